"""Files of version 0.2.0: results of every kind are read and hold when they are computed again; every option still parses.

`written_by_0_2_0` holds three small models, their text, and a result of each kind, as 0.2.0 wrote it with --json.
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest

import zellige
from zellige import cli
from zellige.cli.commands import COMMANDS
from zellige.cli.completion import listed
from zellige.cli.meanings import synonym
from zellige.evaluation.result import Result
from zellige.report.compare import table
from zellige.report.compare.record import Findings
from zellige.schema import structure

WRITTEN = Path(__file__).parent / "written_by_0_2_0"
FLAGS = json.loads((Path(__file__).parent / "flags_of_0_2_0.json").read_text())
KINDS = ("plain", "steps", "bracket", "suite", "pairs", "generate", "probe")  # a number each that is computed again


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A copy of what was written, as the working folder."""
    shutil.copytree(WRITTEN, tmp_path / "old")
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


@pytest.mark.parametrize("kind", [*KINDS, "generate-images"])
def test_the_numbers_of_a_result_are_read(kind):
    file = WRITTEN / "results" / f"{kind}.json"
    figures, written = zellige.Record.load(file).figures(), {*_numbers(json.loads(file.read_text()))}
    assert figures
    assert {figure.value for figure in figures} <= written


def _numbers(value):
    """Every number in plain data, however deep."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)


def test_a_bound_is_read():
    result = Result.from_json(WRITTEN / "results" / "plain.json")
    assert (result.unit, result.kind, result.sequences, result.draws) == ("bits/char", "bound", 8, 2)
    assert result.low < result.value < result.high


@pytest.mark.parametrize("kind", KINDS)
def test_its_numbers_hold(folder, capsys, kind):
    assert cli.main(shlex.split(f"evaluate --from results/{kind}.json")) == 0
    assert "holds     " in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["generate", "generate-images", "probe"])
def test_a_record_is_read(folder, kind):
    """With its request, and numbers that hold."""
    record = zellige.Record.load(f"results/{kind}.json")
    assert record.request is not None
    if kind != "generate-images":  # whose features are not stored here
        assert all(record.holds(record.request.run(record.loading["run"])).values())


def test_a_comparison_is_read():
    written = json.loads((WRITTEN / "results" / "compare.json").read_text())["result"]
    findings = structure(written, Findings, "it", strict=False)
    rows = {row["method"]: row for row in written["methods"]}
    assert {row.method: row.quality[0].value for row in findings.methods} == {
        name: row["quality"][0]["value"] for name, row in rows.items()
    }
    assert len(table.terminal_lines(findings)) > 2 + len(rows)


@pytest.mark.parametrize("command", FLAGS)
def test_every_option_is_still_taken(command):
    now, _ = listed(COMMANDS, *command.split())
    missing = {flag for flag in FLAGS[command] if flag not in now and synonym(flag, now) not in now}
    assert not missing
