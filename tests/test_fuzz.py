"""The fuzzer (`make fuzz`), for some seconds with a fixed seed: a few trials of each family, and what it finds wrong."""

import random
import subprocess
from pathlib import Path

import pytest

from fuzz import calls, commands, configs, files, requests, templates
from fuzz.world import Outcome, World, Wrong, judge

TRIALS = {
    "commands": (commands, 20), "files": (files, 12), "calls": (calls, 100), "configs": (configs, 40),
    "requests": (requests, 100), "templates": (templates, 6),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("fuzz").resolve() / "box")


@pytest.mark.parametrize("family", TRIALS)
def test_some_trials(world, family):
    if family == "requests":
        pytest.importorskip("fastapi.testclient", reason="the extra `web` is missing")
    module, count = TRIALS[family]
    for number in range(count):
        module.trial(world, random.Random(f"test {number}"))


ERROR = "error: --steps is 0; it must be 1 or more\n"


def test_what_it_finds_wrong(world):
    judge(world, Outcome(2, "", ERROR))
    for outcome, wrong in [
        (Outcome(1, "", "error: KeyError: 'x' (traceback: /tmp/zellige-error.txt)\n"), "a traceback"),
        (Outcome(2, "", ERROR * 2), "not one line"),
        (Outcome(2, "", "error: no\n"), "does not say what would be right"),
        (Outcome(2, "a text\n", ERROR), "an error with a result"),
        (Outcome(3, "", ""), "exit 3"),
    ]:
        with pytest.raises(Wrong, match=wrong):
            judge(world, outcome)
    with world.trial():
        Path("notes.txt").write_text("other")
        with pytest.raises(Wrong, match=r"changed \['notes.txt'\]"):
            judge(world, Outcome(2, "", ERROR))
    assert not world.touched
    trial = world.trial()
    trial.__enter__()
    (world.temporary / "other").write_text("")
    waiting = subprocess.Popen(["tee"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert waiting.stdin
    assert waiting.stdout
    waiting.stdin.write(b"begun\n")
    assert waiting.stdout.readline() == b"begun\n"
    with pytest.raises(Wrong, match=r"left: \['other', 'tee '\]"):
        trial.__exit__(None, None, None)
    waiting.communicate()
    sound, other = Outcome(0, "a text\n", ""), Outcome(0, "another\n", "")
    with pytest.raises(Wrong, match="another result without a word"):
        files.judge(world, sound, other)
    files.judge(world, sound, Outcome(0, "a text\n  written   elsewhere\n", ""))
