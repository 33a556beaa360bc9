"""The demo: what it prints, where it writes, and what it may claim."""

import io
import re
import signal
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch

from zellige import Net, demo
from zellige.evaluation.result import difference, summarize
from zellige.show.numbers import cells
from zellige.show.terminal import Terminal
from zellige.training.signals import Stopped


def results(ours: float, spread: float = 0.1) -> dict:
    """Made-up results of 40 texts of 128 characters; the model `ours`, the 3-gram 2.4 bits/char."""
    noise = torch.from_numpy(np.random.default_rng(0).normal(0, spread, (5, 40)))
    values = {"1-gram": 4.1, "2-gram": 3.3, "3-gram": 2.4, "MDLM": ours, "4-gram": 1.8}
    return {
        name: summarize(
            (value + noise[i]) * 128 * np.log(2),
            torch.full((40,), 128.0),
            "bits/char",
            "bound" if name == "MDLM" else "exact",
        )
        for i, (name, value) in enumerate(values.items())
    }


def end(ours: float, *, steps: int = demo.STEPS, stopped: bool = False) -> tuple[int, str]:
    err, table = io.StringIO(), results(ours)
    show = demo._Parts(Terminal(err=err), Path("runs/a run"), steps, 0)
    return show.end(difference(table["3-gram"], table["MDLM"]), stopped, 172.0), err.getvalue()


def test_a_full_run_that_wins_says_so():
    code, text = end(2.18)
    assert code == 0
    assert "Done in 2:52. The model beats the 3-gram, writes in any order and fills gaps." in text


def test_a_full_run_that_stays_above_the_3_gram_fails():
    code, text = end(2.9)
    assert code == 1
    assert "stays above the 3-gram" in text
    assert "beats" not in text


def test_a_win_within_the_interval_is_no_win():
    code, text = end(2.4 - 0.002)
    assert "beats" not in text
    assert code in (0, 1)


@pytest.mark.parametrize("how", [{"steps": 20}, {"stopped": True}])
@pytest.mark.parametrize("ours", [1.9, 2.9])
def test_a_short_run_claims_nothing(how, ours):
    code, text = end(ours, **how)
    assert code == 0
    assert "A short run" in text
    assert "beats" not in text


def test_the_three_commands_can_be_pasted():
    commands = end(2.1)[1].split("Try next:\n")[1].splitlines()
    assert commands == [
        "  zellige sample 'runs/a run' --watch --prompt \"the function \"",
        "  zellige infill 'runs/a run' \"the value of the ______ is returned\"",
        "  zellige verify mdlm",
    ]


def test_table_shows_the_winner_too():
    lines = demo.table(results(2.18), 128)
    assert [line.split()[0] for line in lines[1:]] == ["1-gram", "2-gram", "3-gram", "MDLM", "4-gram"]
    assert [line.split()[1] for line in lines[1:]] == ["=", "=", "=", "≤", "="]
    assert [line.count("█") for line in lines[1:]] == [20, 16, 12, 11, 9]
    assert len({line.index("±") for line in lines[1:]}) == 1
    assert max(map(cells, lines)) < 80


def test_a_second_demo_has_its_own_folder(tmp_path):
    with chdir(tmp_path):
        assert demo.free(Path("runs/demo")) == Path("runs/demo")
        Path("runs/demo").mkdir(parents=True)
        assert demo.free(Path("runs/demo")) == Path("runs/demo-2")
        Path("runs/demo-2").mkdir()
        assert demo.free(Path("runs/demo")) == Path("runs/demo-3")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """An empty folder to work in, and a network that trains in a moment."""
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "network", lambda: Net(layers=1, hidden=32, heads=2, length=128, conv=7))
    monkeypatch.setattr(demo, "DRAWS", 2)
    monkeypatch.setattr(demo, "show_shipped", lambda *_: 0)  # ten seconds; tests/models/test_shipped.py watches it
    with chdir(tmp_path):
        yield tmp_path


def test_short_run_end_to_end(small):
    """All six steps, as a person sees them where nothing moves."""
    out, err = io.StringIO(), io.StringIO()
    assert demo.demo(Terminal(out, err), steps=4, seed=1) == 0
    shown = re.findall(r"^(\d) (\S+)", err.getvalue(), re.MULTILINE)
    assert shown == [
        ("1", "data"),
        ("2", "n-grams"),
        ("3", "train"),
        ("4", "compare"),
        ("5", "sample"),
        ("6", "report"),
    ]
    assert "step 4   validation ≤" in err.getvalue()
    rows = [line.split()[0] for line in out.getvalue().splitlines()]
    assert sorted(rows[1:6]) == ["1-gram", "2-gram", "3-gram", "4-gram", "MDLM"]
    assert "on the same texts" in out.getvalue()
    assert "\x1b" not in err.getvalue() + out.getvalue()
    assert max(map(len, err.getvalue().splitlines())) <= 100
    run = small / "runs" / "demo"
    assert (run / "report.html").stat().st_size > 10_000
    assert (run / "config.json").exists()
    assert (run / f"evaluate-pydocs-test-draws-{demo.DRAWS}-seed-1.json").exists()
    assert "runs/demo/report.html" in err.getvalue()


def stop_after_training(monkeypatch, number: signal.Signals) -> None:
    """Let training end as it does when a signal comes."""

    from zellige.training.train import train as real

    def stopped(*args, **kwargs):
        real(*args, **kwargs)
        raise Stopped(number, 2, saved=True)

    monkeypatch.setattr("zellige.training.train.train", stopped)


def test_ctrl_c_in_training_goes_on_with_the_next_step(small, monkeypatch):
    stop_after_training(monkeypatch, signal.SIGINT)
    out, err = io.StringIO(), io.StringIO()
    assert demo.demo(Terminal(out, err), steps=2) == 0
    assert "6 report" in err.getvalue()
    assert "A short run" in err.getvalue()


def test_sigterm_in_training_ends_the_demo(small, monkeypatch):
    stop_after_training(monkeypatch, signal.SIGTERM)
    with pytest.raises(Stopped) as stop:
        demo.demo(Terminal(io.StringIO(), io.StringIO()), steps=2)
    assert stop.value.code == 143


def test_the_network_is_the_size_that_is_said():
    from zellige.methods import build

    assert sum(p.numel() for p in build("mdlm", 27, demo.network()).parameters()) == pytest.approx(0.8e6, rel=0.01)
