"""The papers' tables: rows have recipes, recipes have rows, quoted numbers are those of the paper that they are quoted from."""

import json
import re
from dataclasses import replace

import pytest
import torch

import zellige
from zellige.base.errors import InputError
from zellige.cli import main
from zellige.papers import tables
from zellige.papers.recipes import RECIPES
from zellige.papers.tables import LIKELIHOODS, TABLES, Column, PublishedTable, TableRow, plain
from zellige.plugins.studies.plan.estimate import Step

ROWS = [(name, table, row) for name, table in TABLES.items() for row in table.rows]
VALUE = re.compile(r"\d+(\.\d+)?K?( ± \d+\.\d+)?")


def test_every_row_has_a_recipe_or_says_why_and_every_recipe_has_a_row():
    assert {row.recipe for _, _, row in ROWS if row.recipe} == {*RECIPES}
    assert [f"{name}: {row.name}" for name, _, row in ROWS if not row.recipe and not row.note] == []
    assert all(len(row.values) == len(table.columns) for _, table, row in ROWS)


def test_values_are_numbers():
    values = [value for _, _, row in ROWS for value in row.values if value]
    assert [value for value in values if not VALUE.fullmatch(value)] == []
    assert len(values) > 400


def test_what_is_quoted_is_what_the_other_paper_reports():
    """To the digits that are quoted: 3.44 of 3.435, 27.0 of 27.04."""
    checked = 0
    for _, table, row in ROWS:
        if not row.quoted:
            continue
        theirs = [
            (t, r) for t in TABLES.values() for r in t.rows if t.paper == row.quoted_from and r.recipe == row.recipe
        ]
        known = {float(plain(v)) for _, r in theirs for v in r.values if v}
        for value in filter(None, row.values[:1]) if row.recipe else ():
            digits = len(plain(value).partition(".")[2])
            rounds = {half for k in known for half in (round(k, digits), round(k + 1e-9, digits))}
            assert float(plain(value)) in rounds, f"{table.title}: {row.name} {value}"
            checked += 1
    assert checked >= 18


def test_a_bound_is_signed_and_an_fid_is_not():
    table = PublishedTable(
        "A", "1", "2", "it", "test", (Column("PPL"), Column("FID")), (TableRow("a", ("3.1 ± 0.2", "7"), "b"),)
    )
    assert table.shown(table.rows[0]) == ["≤ 3.1 ± 0.2", "7"]
    assert str(table.reported(table.rows[0])) == "≤ 3.1 PPL"
    assert table.reported(table.rows[0]).where == "test, table 2 (FID 7)"
    exact = TableRow("a", ("", ""), exact=True)
    assert table.shown(exact) == ["-", "-"]
    assert str(table.reported(exact)) == "-"


def test_a_recipe_reports_its_own_papers_likelihood_first():
    assert (RECIPES["md4-owt"].reported.value, RECIPES["md4-owt"].reported.where) == ("22.13", "validation, table 5")
    assert RECIPES["sedd-owt-medium"].reported.unit in LIKELIHOODS  # not its MAUVE
    assert RECIPES["d3pm-text8"].reported.value == "1.45"  # not 1.44 of table 5
    assert RECIPES["udlm-lm1b"].reported.where.endswith("Duo's table 1")
    assert str(RECIPES["mdlm-lm1b-ar"].reported) == "= 22.32 PPL"
    assert "reports no number (figure 5)" in RECIPES["md4-fineweb-large"].note
    with pytest.raises(InputError, match="no table has a row of the recipe ours"):
        tables.reported("ours", "a paper")


def test_the_list_of_tables(capsys):
    assert main(["list", "tables", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["result"]
    assert [row["name"] for row in rows] == [*TABLES]
    assert [int(row["with a recipe"]) for row in rows] == [
        sum(bool(row.recipe) for row in table.rows) for table in TABLES.values()
    ]


def test_a_table_is_planned_row_by_row(capsys, tmp_path, monkeypatch):
    """Each recipe once, as `Plan` plans it; what cannot be planned says why."""
    step = Step(torch.nn.Linear(2, 2), 1e9, 1000.0, 100.0)  # that of a network takes seconds to count
    monkeypatch.setattr("zellige.plugins.studies.plan.estimate.count_step", lambda *_: step)
    monkeypatch.setattr("zellige.plugins.studies.plan.estimate.sharded_blocks", lambda _: [])
    kept = tuple(row for row in TABLES["md4-2"].rows if row.name in ("MD4", "GenMD4"))
    monkeypatch.setitem(TABLES, "md4-2", replace(TABLES["md4-2"], rows=kept))
    assert main(["plan", "md4-2", "--gpus", "8", "--price", "2", "--json", str(tmp_path / "plan.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["row", "MD4", "GenMD4"]
    assert lines[-1].startswith("  GenMD4: no plan of genmd4")
    record = zellige.Record.load(tmp_path / "plan.json")
    alone = zellige.studies.Plan("md4-text8", gpus=8, price=2.0).run()
    assert record.budgets["md4-text8"].hours == pytest.approx(alone.hours)
    assert [*record.reasons] == ["genmd4-text8"]
    assert record.gpu_hours == pytest.approx(alone.gpu_hours)
    assert record.request == zellige.studies.PlanTable("md4-2", gpus=8, price=2.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plan mdlm-99", "unknown recipe, method or table 'mdlm-99'; did you mean 'mdlm-8'?"),
        ("plan mdlm-1 --gpus 0", "--gpus is 0; it must be 1 or more"),
        (
            "compare --table mdlm-99 --minutes 1",
            "unknown table 'mdlm-99'; did you mean 'mdlm-8'? (all: zellige list tables)",
        ),
        ("compare --table mdlm-1 --minutes 0", "--minutes is 0; it must be above 0, minutes"),
        ("compare --table mdlm-1", "--minutes is not given; say how long each row is trained, e.g. --minutes 5"),
    ],
)
def test_wrong_words_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
