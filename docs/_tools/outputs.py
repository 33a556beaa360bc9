"""The outputs shown in the pages: run each marked command and write what it printed below it.

    python docs/_tools/outputs.py                             runs all marked commands, a minute or two; writes what changed
    python docs/_tools/outputs.py docs/guides/infill.md        only those of a page
    python docs/_tools/outputs.py --recorded FOLDER PAGE      the recorded ones of a page, in a folder that has their runs

A page marks a block of shell commands by the line after it, and the block below that line is written here:

    <!-- output -->             run in an empty folder: models that come with Zellige, lists, plans
    <!-- output: last 5 -->     only the first or the last so many lines
    <!-- output: lines a|b -->  only the lines that contain one of these
    <!-- recorded -->           of a training that takes minutes or more; the page says when it was recorded
    <!-- file: NAME -->         the block below is that file, in the folder in which the commands of the page run

Times and speeds, which depend on the machine, are written as "…" unless the output is recorded. `tests/test_site.py` (long) runs
the commands again: words must be equal, numbers nearly.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parents[1]
BLOCK = re.compile(
    r"```sh\n(?P<commands>(?:(?!```).)*)```\n"
    r"(?P<mark><!-- (?P<kind>output|recorded)(?:: (?P<part>first|last|lines) (?P<which>.+?))? -->\n)"
    r"(?:```text\n(?P<shown>.*?)```\n)?",
    re.DOTALL,
)
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)
PROGRESS = re.compile(r"^.*\bleft \d[\d:.]*(?: s)?\n", re.MULTILINE)
TIMING = re.compile(r"\b\d[\d.]* s\b|(?<!:)\b\d+:\d\d\b(?!:)|\d[\d.,]*k?(?= (?:minutes?|hours?|tokens/s)\b)")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
WIDTH = 100


def pages() -> list[Path]:
    there = (page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts)
    return [page for page in there if BLOCK.search(page.read_text(encoding="utf-8"))]


@cache
def printed(commands: str, folder: Path) -> str:
    """Output of shell commands, errors included, in lines of at most WIDTH characters."""
    source = DOCS.parent / "src"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | {"PATH": path, "PYTHONPATH": str(source), "NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        ["bash", "-c", commands], cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = PROGRESS.sub("", done.stdout).splitlines()
    return "\n".join(part for line in lines for part in (folded(line) or [""])) + "\n"


def folded(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line.rstrip()]
    return textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def part_of(lines: list[str], block: re.Match[str]) -> list[str]:
    """The lines of an output that a page shows."""
    which = block["which"]
    if block["part"] == "first":
        return lines[: int(which)]
    if block["part"] == "lines":
        return [line for line in lines if any(part in line for part in which.split("|"))]
    return lines[-int(which or 0) :]


def same(old: str, new: str) -> bool:
    """Whether two outputs have the same words and nearly the same numbers."""
    if NUMBER.sub("#", old).split() != NUMBER.sub("#", new).split():
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=2e-3) for a, b in pairs)


def written(text: str, kind: str = "output", folder: Path | None = None) -> str:
    """The text of a page with the outputs of its marked commands; an output that is the same stays as it is."""
    with tempfile.TemporaryDirectory() as empty:
        place = folder or Path(empty)
        for name, content in FILE.findall(text):
            (place / name).write_text(content, encoding="utf-8")

        def block(found: re.Match[str]) -> str:
            if found["kind"] != kind:
                return found[0]
            shown = "\n".join(part_of(printed(found["commands"], place).splitlines(), found)) + "\n"
            shown = shown if kind == "recorded" else TIMING.sub("…", shown)
            if found["shown"] is not None and same(found["shown"], shown):
                return found[0]
            return f"```sh\n{found['commands']}```\n{found['mark']}```text\n{shown}```\n"

        return BLOCK.sub(block, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--recorded", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    for page in options.pages or pages():
        text = page.read_text(encoding="utf-8")
        new = written(text, "recorded" if options.recorded else "output", options.recorded)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"written  {page}")


if __name__ == "__main__":
    main()
