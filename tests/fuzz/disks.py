"""A disk that is full at any write: one line, and what was there before is as it was."""

import random
import resource
from pathlib import Path

from . import world
from .commands import VALID

WRITERS = (
    *(words for words in VALID if words.startswith(("export", "import", "evaluate"))), "report runs/a",
    "sample runs/a --steps 2 --out out.jsonl", "sample runs/a --steps 2 --json out.json", "list methods --json out.json",
    f"train mdlm --run runs/new {world.ON} {world.TINY}", "train mdlm --run runs/a --resume --train.steps 4 --quiet",
)  # fmt: skip


def trial(here: world.World, rng: random.Random) -> str:
    """One command while no file may grow beyond so many bytes. Raises Wrong."""
    words, room = rng.choice(WRITERS), rng.choice((0, 1, 100, 1000, 5000, 20_000, 100_000))
    name = f"zellige {words}   with {room:,} bytes a file"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with here.trial():
            before = {path: path.read_bytes() for path in Path("runs/a").rglob("*.safetensors")}
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            try:
                done = world.run(words.split())
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            said = f"exit {done.code}; stderr: {world.short(done.err)!r}"
            lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
            if "traceback" in done.err.lower() or done.code not in (0, 2) or len(lines) != (done.code == 2):
                raise world.Wrong(said)
            if left := [str(path) for path in Path().rglob("*.part")]:
                raise world.Wrong(f"left: {left}; {said}")
            if changed := [str(path) for path, raw in before.items() if path.exists() and path.read_bytes() != raw]:
                raise world.Wrong(f"changed: {changed}; {said}")
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return name
