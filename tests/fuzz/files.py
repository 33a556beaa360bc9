"""Files of a run and of a model, damaged in one place, and then read: refused in one line, or what they gave before."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from . import world

READERS = (  # what reads, and of what it says whether it is as it was: stdout
    "sample runs/a --steps 2 --seed 3", "sample model --steps 2 --seed 3", "sample runs/next --steps 2 --seed 3",
    "sample runs/scores --steps 3 --seed 3", "sample theirs --steps 2 --seed 3", "evaluate runs/a --limit 2 --draws 1",
    "evaluate --from runs/a/evaluate-text-test.json --show", "export model --to mdlm --out out",
)  # fmt: skip
DEAR = ("report runs/a", "train mdlm --run runs/a --resume --train.steps 3 --quiet")  # they take seconds
LEAVES = (
    None, True, False, -1, 0, 1, 2, 10**30, 1.5, float("nan"), float("inf"), "", "x", "\0", "a" * 3000, "mdlm", "../..",
    [], {}, [[]], [None], {"a": {}}, [1, 2, 3],
)  # fmt: skip


def paths(words: str) -> list[str]:
    """The files and folders that a command reads, of those that may be damaged."""
    return [word for word in words.split() if word.startswith(("runs/", "model", "theirs"))][:1]


@cache
def before(here: world.World, words: str) -> world.Outcome:
    """What a command does while nothing is damaged."""
    with here.trial():
        return world.run(words.split())


def damage(file: Path, rng: random.Random) -> str:
    """Change a file in one place; says how. (The whole of it where it has no more.)"""
    raw = file.read_bytes()
    kinds: list[Callable[[], str]] = [lambda: flip(file, raw, rng)] * 4 + [lambda: cut(file, raw, rng)] * 2
    kinds += [lambda: replaced(file, rng)] * 2
    if file.suffix == ".json":
        kinds += [lambda: restructured(file, rng)] * 10
    return rng.choice(kinds)()


def flip(file: Path, raw: bytes, rng: random.Random) -> str:
    """One bit."""
    if not raw:
        return replaced(file, rng)
    at, bit = rng.randrange(len(raw)), rng.randrange(8)
    file.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
    return f"bit {bit} of byte {at:,} of {len(raw):,}"


def cut(file: Path, raw: bytes, rng: random.Random) -> str:
    """Its end is missing, or there is more."""
    if rng.random() < 0.3:
        file.write_bytes(raw + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20))))
        return "more at its end"
    length = rng.randrange(len(raw) + 1)
    file.write_bytes(raw[:length])
    return f"cut to {length:,} of {len(raw):,} bytes"


def replaced(file: Path, rng: random.Random) -> str:
    """Something else stands in its place."""
    file.unlink()
    kind = rng.choice(("missing", "empty", "folder", "loop", "dangling", "other", "noise", "nested", "json"))
    if kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "dangling":
        file.symlink_to("missing")
    elif kind == "other":
        near = [p for p in sorted(file.parent.iterdir()) if p.is_file() and p.name != file.name]
        file.write_bytes(rng.choice(near).read_bytes() if near else b"")
    elif kind == "nested":
        file.write_text("[" * 100_000)
    elif kind == "json":
        file.write_text(rng.choice(("{}", "[]", "null", "1", '"a"', "NaN", '{"a": 1}')))
    elif kind != "missing":
        file.write_bytes(b"" if kind == "empty" else rng.randbytes(300))
    return kind


def restructured(file: Path, rng: random.Random) -> str:
    """JSON that is whole, with an entry gone, renamed, added or exchanged."""
    plain = json.loads(file.read_text(encoding="utf-8"))
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, below in inner:
            places.append((value, key))
            walk(below)

    walk(plain)
    if not places:
        return replaced(file, rng)
    parent, key = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0:
        del parent[key]
        said = f"without {key!r}"
    elif kind == 1 and isinstance(parent, dict):
        parent[key + rng.choice("x _")] = parent.pop(key)
        said = f"{key!r} renamed"
    else:
        value = rng.choice(LEAVES)
        said = f"{key!r} is {repr(value)[:30]}"
        parent[key] = value
    file.write_text(json.dumps(plain), encoding="utf-8")
    return said


def trial(here: world.World, rng: random.Random) -> str:
    """One damage and one command that reads what is damaged. Raises Wrong."""
    words = rng.choice(DEAR if rng.random() < 0.06 else READERS)
    sound = before(here, words)
    target = here.work / paths(words)[0]
    files = sorted(f for f in target.rglob("*") if f.is_file()) if target.is_dir() else [target]
    file = rng.choice(files)
    name = f"zellige {words}   with {file.relative_to(here.work)}: "
    try:
        with here.trial():
            name += damage(file, rng)
            done = world.run(words.split())
            judge(here, sound, done)
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    finally:
        shutil.rmtree(here.cache, ignore_errors=True)
        os.makedirs(here.cache)
    return name


def judge(here: world.World, sound: world.Outcome, done: world.Outcome) -> None:
    """One line of error; or the same texts and numbers as before the damage."""
    said = f"exit {done.code}; stderr: {world.short(done.err)!r}; stdout: {world.short(done.out)!r}"
    if "traceback" in (done.out + done.err).lower() or any(here.temporary.glob("zellige-error-*")):
        raise world.Wrong(f"a traceback: {said}")
    if done.code == 2:
        if len(re.findall(r"^error: ", done.err, re.M)) != 1 or not done.err.rsplit("error: ", 1)[1].count("\n") == 1:
            raise world.Wrong(f"not one line of error: {said}")
    elif done.code != sound.code:
        raise world.Wrong(said)
    elif lasting(done.out) != lasting(sound.out) and not done.err.count("note: "):
        raise world.Wrong(f"another result without a word: {said}; before: {world.short(sound.out)!r}")


def lasting(text: str) -> str:
    """A result without what differs from time to time: seconds, speeds, sizes; and without where it was written."""
    text = re.sub(r"\n  (written|again) .*", "", text)
    return re.sub(r"in [\d.,]+ \S+|[\d.,]+[kM]? tokens/s|[\d.,]+ [kM]B|[\d.,]+ ms|peak \S+ \S+", "", text)
