"""GLUE: metrics against scikit-learn and SciPy, files as published and as on the hub, and a task that can be learnt."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from zellige import Config, Data, InputError, cli
from zellige.data.tokenizer import Characters, Tokens
from zellige.evaluations import EvaluateGlue
from zellige.methods import METHODS, build
from zellige.models.config import Train
from zellige.models.model import Model
from zellige.nn.block import Net
from zellige.plugins.studies.probes.glue import (
    METRICS,
    TASKS,
    Examples,
    GlueRecord,
    _row,
    _trained,
    encoded,
    examples,
    glue,
    tasks_of,
)
from zellige.show.record import dumps

LETTERS = "abcdefghijklmnopqrstuvwxyz "


def test_metrics_by_hand_and_as_scipy_has_them():
    """Eight answers: 3 true positives, 1 false, 2 missed, 2 true negatives; ties have their mean rank; a batch is each row."""
    truth = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0])
    guess = torch.tensor([1, 1, 1, 0, 0, 1, 0, 0])
    want = {"accuracy": 5 / 8, "F1": 6 / 9, "Matthews": (3 * 2 - 1 * 2) / math.sqrt(4 * 5 * 3 * 4)}
    for name, value in want.items():
        assert float(METRICS[name](guess, truth)) == pytest.approx(value), name
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randint(6, (3, 40), generator=g).double() for _ in range(2))
    for name, theirs in (("Pearson", stats.pearsonr), ("Spearman", stats.spearmanr)):
        got = METRICS[name](a, b)
        assert got.tolist() == pytest.approx([np.asarray(theirs(x, y))[0] for x, y in zip(a.numpy(), b.numpy())])
        assert float(METRICS[name](torch.zeros(4), torch.arange(4.0))) == 0


def rows(name: str, count: int) -> list[tuple[str, str, object]]:
    """A made-up task: the label is whether an "a" is in the first text, or how many."""
    g = torch.Generator().manual_seed(len(name) + count)
    made = []
    for _ in range(count):
        first = "".join(
            LETTERS[i] for i in torch.randint(26, (int(torch.randint(3, 9, (), generator=g)),), generator=g)
        )
        first = first.replace("a", "b") if torch.rand((), generator=g) < 0.5 else "a" + first
        classes = TASKS[name].classes
        label = classes[0 if "a" in first else 1] if classes else float(first.count("a"))
        made.append((first, "the other", label))
    return made


def published(folder, name: str, count: int = 12) -> None:
    """The files of a task as GLUE publishes them: TSV, each with its own columns."""
    task = TASKS[name]
    place = folder / task.folder
    place.mkdir(parents=True)
    for split, many in [("train", count), *((old, count // 2) for _, old in task.judged)]:
        lines = []
        for i, (first, second, label) in enumerate(rows(name, many)):
            if name == "cola":
                lines.append(["gj04", label, "", first])
                continue
            cells = {"index": i, task.first[0]: f'"{first}', **({task.second[0]: second} if task.second else {})}
            lines.append([*cells.values(), label])
            header = [*cells, task.label[0]]
        lines = lines if name == "cola" else [header, *lines]
        (place / f"{split}.tsv").write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))


@pytest.mark.parametrize("name", TASKS)
def test_files_as_published_and_as_on_the_hub(name, tmp_path):
    """The same texts and labels from GLUE's .tsv, quotation marks and all, and from rows with the hub's names and numbers."""
    task = TASKS[name]
    published(tmp_path / "tsv", name)
    (tmp_path / "hub").mkdir()
    for split, many in [("train", 12), *((hub, 6) for hub, _ in task.judged)]:
        made = [
            {
                task.first[-1]: first if name == "cola" else f'"{first}',
                **({task.second[-1]: second} if task.second else {}),
                "label": task.classes.index(label) if task.classes else label,
                "idx": i,
            }
            for i, (first, second, label) in enumerate(rows(name, many))
        ]  # fmt: skip
        (tmp_path / "hub" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    old, new = (examples(name, str(tmp_path / of)) for of in ("tsv", "hub"))
    assert list(old) == list(new) == ["train", *(hub for hub, _ in task.judged)]
    for split in old:
        assert (old[split].first, old[split].second) == (new[split].first, new[split].second)
        assert torch.equal(old[split].labels, new[split].labels)
    assert len(old["train"].first) == 12
    if task.classes not in ((), ("0", "1")):  # the hub's numbers
        numbers = {"entailment": 0, "neutral": 1, "contradiction": 2, "not_entailment": 1}
        assert [numbers[name] for name in task.classes] == [*range(len(task.classes))]
    assert set(old["train"].second) == ({"the other"} if task.second else {""})


def test_pairs_are_joined_and_the_longer_part_is_cut(bert):
    """[CLS] first [SEP] second [SEP]; of other tokenizers the separator between the two, of letters the space."""
    pair = Examples(["a a a a a", "a"], ["the", "the the"], torch.zeros(2))
    (one, two), cut = encoded(bert, pair, 7)
    say = lambda ids: [bert.inner.id_to_token(i) for i in ids]  # noqa: E731
    assert say(one) == ["[CLS]", "a", "a", "a", "[SEP]", "the", "[SEP]"]
    assert say(two) == ["[CLS]", "a", "[SEP]", "the", "the", "[SEP]"]
    assert cut == 1
    alone, _ = encoded(bert, Examples(["a"], [""], torch.zeros(1)), 7)
    assert say(alone[0]) == ["[CLS]", "a", "[SEP]"]
    letters = Characters(LETTERS)
    assert encoded(letters, Examples(["ab"], ["c"], torch.zeros(1)), 3) == ([letters.encode("a c")], 1)


@pytest.fixture(scope="module")
def bert():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "<|endoftext|>"]
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    inner.add_special_tokens(words[:5])
    return Tokens(inner, "bert", mask=4)


def small() -> Model:
    torch.manual_seed(0)
    tokenizer, net = Characters(LETTERS), Net(layers=1, hidden=16, heads=2, length=32)
    method = build(METHODS["mdlm"], tokenizer.size, net, METHODS["mdlm"].Config(), 32, False)
    return Model(method.eval(), tokenizer, Config("mdlm", method.Config(), Data("text"), net, Train(ema=0)))


def test_what_is_learnt_and_what_the_record_says(tmp_path):
    """A class and a number that the first text shows are learnt; a random guess is not; two runs are the same to the bit."""
    for name in ("sst2", "stsb"):
        published(tmp_path, name, 160)
    for file in tmp_path.glob("*/*.tsv"):
        file.write_text(file.read_text().replace('"', ""))
    how = {"path": str(tmp_path), "batch": 8, "rate": 1e-2}
    found = glue(small(), ["sst2", "stsb"], epochs=6, **how)
    sst2, stsb = found.rows
    assert (sst2.name, sst2.metric, sst2.others) == ("sst2", "accuracy", {})
    assert (stsb.metric, [*stsb.others]) == ("Spearman", ["Pearson"])
    assert (sst2.train, sst2.judged) == (160, 80)
    assert sst2.value > 0.9
    assert stsb.value > 0.6
    assert 0 < stsb.half < 0.3
    assert found.mean == (sst2.value + stsb.value) / 2
    assert glue(small(), ["stsb"], epochs=6, **how).rows == (stsb,)  # whatever was trained before
    assert glue(small(), ["sst2"], epochs=1, path=str(tmp_path), rate=1e-9).rows[0].value < 0.7
    assert GlueRecord.from_dict(json.loads(dumps(found.to_dict()))) == found


def test_the_interval_of_few_texts_is_students():
    """Of six answers, four right: 2.571 standard errors; of one it is not known."""
    truth, right = torch.zeros(6, dtype=torch.long), torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 2)
    half = _row("sst2", "validation", right, truth, 10, 0, seed=0).half
    assert half == pytest.approx(2.5706 * math.sqrt(4 / 6 * 2 / 6 / 6), rel=0.1)
    assert _row("sst2", "validation", right[:1], truth[:1], 10, 0, seed=0).half == math.inf


def test_the_rate_falls_to_0_and_nothing_decays(monkeypatch):
    """The protocol's optimizer: AdamW without decay, the whole rate at the first step, a line to 0."""
    seen, decay = [], []
    step = torch.optim.AdamW.step

    def watched(self, *args, **how):
        seen.append(self.param_groups[0]["lr"])
        decay.append(self.param_groups[0]["weight_decay"])
        return step(self, *args, **how)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    of = Examples(["a", "b", "c", "d"], [""] * 4, torch.tensor([0, 1, 0, 1]))
    _trained(small().method, TASKS["sst2"], [[0], [1], [2], [3]], of, 0, 2, 1e-3, 2, lambda *_: None)
    assert seen == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    assert decay == [0.0] * 4


def test_the_command(tmp_path, monkeypatch, capsys):
    """Tasks by name, the lines that are printed, a file that says what was done, and the same number again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    small().save("m")
    published(tmp_path, "mnli")
    for file in tmp_path.glob("*/*.tsv"):
        file.write_text(file.read_text().replace('"', ""))
    assert (
        cli.main(
            ["evaluate", "m", "--probe", "glue/mnli", "--data.path", ".", "--epochs", "1", "--json", "-", "--quiet"]
        )
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert [row["split"] for row in document["result"]["rows"]] == ["validation_matched", "validation_mismatched"]
    assert document["result"]["about"]["data"] == "glue:mnli"
    assert cli.main(["evaluate", "m", "--probe", "glue:mnli", "--data.path", ".", "--epochs", "1", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "mnli mismatched   accuracy" in out
    assert "  mean of 2: " in out
    assert tasks_of("glue") == [*TASKS]
    assert len(TASKS) == 8
    assert EvaluateGlue().rate == 2e-5


def test_wrong_files(tmp_path):
    with pytest.raises(InputError, match="unknown probe 'glue:sst'; did you mean 'glue:sst2'"):
        tasks_of("glue:sst")
    with pytest.raises(InputError, match=r"no train\.tsv and no train\.jsonl in "):
        examples("rte", str(tmp_path))
    published(tmp_path, "rte")
    file = tmp_path / "RTE" / "train.tsv"
    text = file.read_text()
    for wrong, said in (
        (
            text.replace("sentence2", "second"),
            r"row 2 of .*train\.tsv' has no column 'sentence2'; its columns are index, ",
        ),
        (
            text.replace("not_entailment", "maybe"),
            r"has the label 'maybe'; it must be entailment, not_entailment, or its num",
        ),
        (text.partition("\n")[0] + "\n", r"train\.tsv' has no rows; give the published file"),
    ):
        file.write_text(wrong)
        with pytest.raises(InputError, match=said):
            examples("rte", str(tmp_path))


def test_from_the_hub(monkeypatch):
    """The hub's name, configuration and splits of a task, and its columns."""
    asked = []

    def rows_of(data, hub, cache):
        asked.append(hub)
        return {split: [{"premise": "a", "hypothesis": split, "label": 2, "idx": 0}] for split in hub[2]}

    monkeypatch.setattr("zellige.plugins.studies.probes.glue.installed", lambda _: True)
    monkeypatch.setattr("zellige.plugins.studies.probes.glue.load_hub", rows_of)
    found = examples("mnli")
    names = ("train", "validation_matched", "validation_mismatched")
    assert asked == [("nyu-mll/glue", "mnli", {name: name for name in names})]
    assert {name: part.second for name, part in found.items()} == {name: [name] for name in names}
    assert found["train"].labels.tolist() == [2]
