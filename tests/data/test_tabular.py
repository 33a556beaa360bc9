"""Tables of categories: each column has values of its own."""

import numpy as np
import pytest

import zellige
from zellige import InputError, Net, Train
from zellige.data import Data, load, prepare, table
from zellige.data.table import Table, refuse_mixed
from zellige.methods import build
from zellige.show.kinds import of

ROWS = [("grey", "10"), ("clear", "9"), ("rain", "2"), ("grey", "9")] * 10


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "weather.csv"
    file.write_text("sky,wind\n" + "".join(f"{sky}, {wind}\n" for sky, wind in ROWS))
    return file


def test_each_column_has_its_values_in_order(path, tmp_path):
    corpus = prepare(Data("table", path=str(path)))
    tokenizer = corpus.tokenizer
    assert isinstance(tokenizer, Table)
    assert tokenizer.columns == {"sky": ["clear", "grey", "rain"], "wind": ["2", "9", "10"]}
    rows = [tuple(tokenizer.words(part[i]["tokens"].tolist())) for part in (corpus.train, corpus.validation, corpus.test)
            for i in range(len(part))]  # fmt: skip
    assert sorted(rows) == sorted(ROWS)
    assert rows != ROWS  # shuffled
    tokenizer.save(tmp_path)
    back = load(tmp_path)
    assert isinstance(back, Table)
    assert back.fingerprint == tokenizer.fingerprint
    assert back.encode("rain,?") == [2, -1]
    assert of(back).tokens(of(back).values([[2, 1], [0, -1]])).tolist() == [[2, 1], [0, -1]]
    assert np.array(of(back).read("clear,10")).tolist() == [0, 2]


def test_the_order_of_numbers_is_one_with_nan_among_them(tmp_path):
    """In which order a set of words is gone through is another in each process; of 40 columns one would be out of order."""
    values = [["-inf", f"-{i}", "0", f"{i}", f"{i}.0", f"{i + 10}", "inf", "NaN", "nan"] for i in range(2, 10)]
    values += [[f"{i}", f"{i + 1}", f"{i + 20}", "nan"] for i in range(8, 40)]
    rows = [[column[k % len(column)] for column in values] for k in range(60)]
    header = [f"c{i}" for i in range(len(values))]
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in [header, *rows]))
    tokenizer = prepare(Data("table", path=str(tmp_path / "a.csv"))).tokenizer
    assert tokenizer.columns == dict(zip(header, values))  # pyright: ignore[reportAttributeAccessIssue]


def test_a_run_goes_on_with_tokens_of_the_same_meaning_alone(path, tmp_path, monkeypatch):
    about = {"data": Data("table", path=str(path)), "run": tmp_path / "run"}
    zellige.train(
        "mdlm",
        net=Net(layers=1, hidden=8, heads=1),
        train=Train(steps=1, batch=2, samples=0, tensorboard=False),
        **about,
    )
    zellige.train("mdlm", resume=True, **about)
    monkeypatch.setattr(table, "_ordered", lambda values: sorted(values, reverse=True))
    with pytest.raises(
        InputError, match=r"^the tokens of the run, 'table' \(3\), are not those of this data; give the data"
    ):
        zellige.train("mdlm", resume=True, **about)


def test_columns_of_different_sizes_need_masks():
    mixed, equal = Table({"a": "01", "b": "012"}), Table({"a": "012", "b": "345"})
    assert (mixed.size, mixed.mixed, equal.mixed) == (3, (2, 3), None)
    net = Net(layers=1, hidden=8, heads=1, length=2)
    for name in ("csm", "udlm", "mdlm", "ar", "d3pm"):
        method = build(name, 3, net)
        refuse_mixed(equal, method)
        if name in ("csm", "udlm"):
            with pytest.raises(
                InputError, match=f"the columns have 2 to 3 values, and this {name} changes a value into any"
            ):
                refuse_mixed(mixed, method)
        else:
            refuse_mixed(mixed, method)


def test_what_is_no_table(path, tmp_path):
    for text, line in [
        ("a,a\n1,2\n", "the header of '.*' has 'a' twice"),
        ("a,b\n1,2\n1\n", "line 3 of '.*' has 1 cells, and its header 2"),
        ("a,b\n1,2\n1,\n", "line 3 of '.*' has no value for 'b'"),
        ("a,b\n", "holds no rows"),
        ("a\n" + "".join(f"{i}\n" for i in range(300)), "the column 'a' of '.*' has 300 values; 256 at most"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=line):
            prepare(Data("table", path=str(path)))
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"is no \.csv or \.tsv"):
        prepare(Data("table", path=str(tmp_path / "a.txt")))
    with pytest.raises(InputError, match="'x' in the prompt is no value of the column 'a'"):
        Table({"a": "01", "b": "012"}).encode("x,1")
