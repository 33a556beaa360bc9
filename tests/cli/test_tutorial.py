"""The tutorial "From your text to a compared result": its commands run in order, with a smaller network and two steps."""

import re
import shlex
import sys
from pathlib import Path
from pydoc_data.topics import topics

from zellige import cli

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import outputs  # noqa: E402

PAGE = ROOT / "docs" / "tutorials" / "your_text.md"
SMALLER = "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 64 --train.batch 4 --train.steps 2 --train.validate-rows 8"


def skeletons(text: str) -> set[str]:
    """The lines that end a measurement, without their numbers."""
    lines = [" ".join(line.split()) for line in text.splitlines() if "(95%)" in line]
    return {re.sub(r"<?\d[\d.,]*", "#", line) for line in lines}


def test_the_commands_of_the_tutorial_run(tmp_path, monkeypatch, capsys):
    """Each command runs after those before it, and prints the lines of the same form as the page shows below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    Path("shakespeare.txt").write_text("\n\n".join(topics.values())[:300_000])
    text = PAGE.read_text(encoding="utf-8")
    done = []
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        shown = next((found["shown"] for found in outputs.BLOCK.finditer(text) if found["commands"] == block), None)
        for line in (line for line in block.splitlines() if line.startswith("zellige ")):
            command, *words = shlex.split(re.sub(r" --train\.(steps|minutes) \d+", "", line))[1:]
            trains = command == "train" or (command == "compare" and not words[0].startswith("runs/"))
            words += shlex.split(SMALLER) if trains else []
            assert cli.main([command, *words]) == 0, line
            out = capsys.readouterr().out
            assert skeletons(shown or "") <= skeletons(out) or command == "train", line
            done.append(command)
    assert [*dict.fromkeys(done)] == ["train", "sample", "infill", "evaluate", "compare"]
