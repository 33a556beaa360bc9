"""The demo: what it prints, where it writes, and what it may claim."""

import io
import re
import shlex
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
    """Made-up results of 40 stories of 500 characters; the model `ours`, the 4-gram 1.75 bits/char."""
    noise = torch.from_numpy(np.random.default_rng(0).normal(0, spread, (5, 40)))
    values = {"1-gram": 4.4, "2-gram": 3.3, "3-gram": 2.3, "4-gram": 1.75, "model": ours}
    return {
        name: summarize(
            (value + noise[i]) * 500 * np.log(2),
            torch.full((40,), 500.0),
            "bits/char",
            "bound" if name == "model" else "exact",
        )
        for i, (name, value) in enumerate(values.items())
    }


def end(ours: float, *, steps: int = demo.STEPS, stopped: bool = False) -> tuple[int, str]:
    err, table = io.StringIO(), results(ours)
    show = demo._Parts(Terminal(err=err), Path("runs/a run"), steps, 0)
    return show.end(difference(table["4-gram"], table["model"]), stopped, 172.0), err.getvalue()


def test_a_full_run_that_wins_says_so():
    code, text = end(1.4)
    assert code == 0
    assert "Done in 2:52. The model beats the 4-gram." in text


def test_a_full_run_that_stays_above_the_4_gram_fails():
    code, text = end(2.1)
    assert code == 1
    assert "stays above the 4-gram" in text
    assert "beats" not in text


def test_a_win_within_the_interval_is_no_win():
    code, text = end(1.75 - 0.002)
    assert "beats" not in text
    assert code in (0, 1)


@pytest.mark.parametrize("how", [{"steps": 20}, {"stopped": True}])
@pytest.mark.parametrize("ours", [1.4, 2.1])
def test_a_short_run_claims_nothing(how, ours):
    code, text = end(ours, **how)
    assert code == 0
    assert "A short run" in text
    assert "beats" not in text


def test_the_three_commands_can_be_pasted():
    commands = [line.partition("  # ") for line in end(1.4)[1].split("Try next:\n")[1].splitlines()]
    assert [shlex.split(command) for command, _, _ in commands] == [
        ["zellige", "play", "runs/a run"],
        ["zellige", "train", "bd3lm", "--data.path", "FILE"],
        ["zellige", "evaluate", "runs/a run"],
    ]
    assert all(purpose for _, _, purpose in commands)
    page = next(word for word in commands[-1][2].split() if word.startswith("docs/"))
    assert (Path(__file__).parents[2] / page).exists()


def test_table_shows_the_winner_too():
    lines = demo.table(results(1.4))
    assert [line.split()[0] for line in lines] == ["1-gram", "2-gram", "3-gram", "4-gram", "model"]
    assert [line.split()[1] for line in lines] == ["=", "=", "=", "=", "≤"]
    assert [line.count("█") for line in lines] == [20, 15, 10, 8, 6]
    assert len({line.index("±") for line in lines}) == 1
    assert max(map(cells, lines)) < 80


@pytest.mark.parametrize(
    ("text", "passage"),
    [("a red hat on a cat", "a red hat"), ("the cat wore a red hat", "the cat wore a red hat"), ("xyz", ""), ("", "")],
)
def test_the_longest_passage_that_was_read(text, passage):
    assert demo.shared(text, "the cat wore a red hat") == passage


def test_a_second_demo_has_its_own_folder(tmp_path):
    with chdir(tmp_path):
        assert demo.free(Path("runs/demo")) == Path("runs/demo")
        Path("runs/demo").mkdir(parents=True)
        assert demo.free(Path("runs/demo")) == Path("runs/demo-2")
        Path("runs/demo-2").mkdir()
        assert demo.free(Path("runs/demo")) == Path("runs/demo-3")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def small(tmp_path, cache, monkeypatch):
    """An empty folder to work in, and a network that trains in a moment."""
    monkeypatch.setenv("ZELLIGE_CACHE", str(cache))
    monkeypatch.setattr(demo, "network", lambda: Net(layers=1, hidden=16, heads=1, length=224, conv=7))
    monkeypatch.setattr(demo, "VALIDATIONS", 2)
    with chdir(tmp_path):
        yield tmp_path


def test_short_run_end_to_end(small):
    """All four steps, as a person sees them where nothing moves: the noise, then a story after each validation."""
    out, err = io.StringIO(), io.StringIO()
    assert demo.demo(Terminal(out, err), steps=4, seed=1) == 0
    shown = re.findall(r"^(\d) (\S+)", err.getvalue(), re.MULTILINE)
    assert shown == [("1", "read"), ("2", "train"), ("3", "compare"), ("4", "write")]
    assert "1,889 stories, and 104 others" in err.getvalue()
    assert re.findall(r"^  step (\d)", err.getvalue(), re.MULTILINE) == ["0", "2", "4"]
    rows = [line.split()[0] for line in out.getvalue().splitlines()[:5]]
    assert sorted(rows) == ["1-gram", "2-gram", "3-gram", "4-gram", "model"]
    assert re.search(r"Of its \d+ characters, at most \d+ in a row", out.getvalue())
    assert "\x1b" not in err.getvalue() + out.getvalue()
    shown = (err.getvalue() + out.getvalue()).splitlines()
    assert max(cells(line) for line in shown if "\\x" not in line) < 80  # untrained it writes control characters
    run = small / "runs" / "demo"
    assert (run / "config.json").exists()
    assert (run / f"evaluate-stories-test-draws-{demo.DRAWS}-seed-1.json").exists()


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
    assert demo.demo(Terminal(out, err), steps=1) == 0
    assert "4 write" in err.getvalue()
    assert "A short run" in err.getvalue()


def test_sigterm_in_training_ends_the_demo(small, monkeypatch):
    stop_after_training(monkeypatch, signal.SIGTERM)
    with pytest.raises(Stopped) as stop:
        demo.demo(Terminal(io.StringIO(), io.StringIO()), steps=2)
    assert stop.value.code == 143
