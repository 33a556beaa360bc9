"""Command lines: a valid one of every command, made wrong (or odd) in one to three places."""

import random
import shlex
from functools import cache
from typing import Any
from unittest import mock

from . import world
from .world import ON, TINY

HUGE = ("1" + "0" * 20, "-1" + "0" * 20, str(2**63), str(2**64), "9" * 5000)
NUMBERS = (
    "-1", "0", "1", "2", "3", *HUGE, "1e3", "0x10", "1.5", "nan", "inf", "-inf", "1e400", "1e-400", "", " ", "١",
    "１２", "1_0", " 2", "+2", "none", "None", "True", "2\n", "0.5", "½", "1,5", "--", "-",
)  # fmt: skip
WORDS = (
    "", " ", "a" * 5000, "x/" * 2500, "a" * 300, "a\0b", "\0", "\x1b[31mred", "\u202eabc", "\udc80", "two\nlines",
    ".", "runs/..", "runs/../missing", "~", "runs/a", "runs/next", "runs/a/checkpoints", "runs/a/config.json", "runs",
    "model", "theirs", "notes.txt", "empty.txt", "lines.jsonl", "missing", "loop", "loop/x", "dangling", "full",
    "notes.txt/x", "/proc/zz", "/sys/zz", "{}", "%s%n", "*", "[", "**/*", "-", "owner/name", "own.py:Own", "own.py:",
    ":", "own.py:Missing", "mdlm", "text", "tokens", "none", "é" * 100, "🦜", "out.png", "out.jsonl", "out.txt",
    "out.mid", "missing/out.json", "bytes", "characters", "bpe:0", "bpe:9999999999", "bpe:x", "bpe:300",
)  # fmt: skip
VALID = (
    "sample runs/a --steps 2 --count 2", "sample runs/next --steps 2", "sample runs/discrete --steps 2",
    "sample model --steps 2", "sample runs/scores --steps 3", "sample theirs --steps 2",
    "infill runs/a 'the ___ of' --steps 2", "infill runs/next 'the ___' --steps 2",
    "evaluate runs/a --limit 4 --draws 1", "evaluate runs/next --limit 4 --draws 1",
    "evaluate runs/discrete --limit 4 --draws 1", "evaluate runs/a --from runs/a/evaluate-text-test.json --show",
    "evaluate runs/a --steps 2 --limit 2 --draws 1", "evaluate runs/a --pairs pairs.jsonl --draws 1",
    "verify mdlm --only process.rows", "list methods", "list samplers", "list data",
    "export runs/a --to mdlm --out out", "export model --to hub --out out", "import theirs --out out",
)  # fmt: skip
DEAR = (  # they take seconds
    f"train mdlm --run runs/new {ON} {TINY}", f"train csm --run runs/new {ON} {TINY}",
    f"train ar --run runs/new {ON} {TINY}", f"train d3pm --diffusion-steps 4 --run runs/new {ON} {TINY}",
    f"train own.py:Own --run runs/new {ON} {TINY}", f"train bd3lm --block 4 --run runs/new {ON} {TINY}",
    f"train genmd4 --run runs/new {ON} {TINY}", "report runs/a", f"train mdlm --run runs/a --resume {TINY}",
)  # fmt: skip
WRONG = (  # only ever made wrong: these take minutes
    f"compare mdlm md4 --run both {ON} {TINY} --samples 2 --limit 2 --calls 2", "demo --run runs/demo",
    "evaluate runs/a --suite zero-shot --limit 2 --draws 1", "evaluate runs/a --probe ag_news", "verify",
    "evaluate runs/a --generate --samples 2 --steps 2",
)  # fmt: skip
SLOW = {
    "--processes",
    "--train.devices",
    "--train.workers",
    "--train.compile",
    "--train.strategy",
    "--train.device",
    "--device",
}
SURROUNDINGS = (
    {"RANK": "x"}, {"LOCAL_RANK": "x"}, {"WORLD_SIZE": "x"}, {"RANK": "-1"}, {"WORLD_SIZE": "0"},
    {"RANK": "1" + "0" * 20}, {"COLUMNS": "0"}, {"COLUMNS": "x"}, {"COLUMNS": "-5", "LINES": "-5"}, {"TERM": ""},
    {"TERM": "dumb"}, {"TERM": "x\x1b"}, {"NO_COLOR": "1"}, {"ZELLIGE_CACHE": "notes.txt"},
    {"ZELLIGE_CACHE": "loop"}, {"ZELLIGE_CACHE": ""}, {"ZELLIGE_CACHE": "a" * 5000}, {"ZELLIGE_CACHE": "/proc/zz"},
    {"ZELLIGE_CACHE": "full"}, {"HOME": "/proc/zz"}, {"OMP_NUM_THREADS": "x"}, {"PYTHONWARNINGS": "x"},
    {"COLORTERM": "truecolor"},
)  # fmt: skip


class _Seen(Exception):
    pass


@cache
def grammar(start: str) -> dict[str, Any]:
    """The options of a command, as its own parser knows them: the command is asked for its help, and its form is looked at."""
    from zellige.base.errors import InputError
    from zellige.cli import dispatch, options
    from zellige.cli.flags import flags
    from zellige.show.terminal import Terminal

    form: list[Any] = []

    def look(cls: Any, argv: Any, where: str, *_: Any, default: Any = None, **__: Any) -> None:
        form.append(flags(cls, default))
        raise _Seen

    with mock.patch.object(options, "parse", look):
        try:
            dispatch([*shlex.split(start), "--help"], Terminal())
        except _Seen:
            return form[0]
        except InputError:
            return {}
    return {}  # it prints a page of its own


def _start(words: list[str]) -> str:
    """What the options of a command line depend on."""
    modes = [
        w
        for w in words
        if w in ("--suite", "--probe", "--generate", "--pairs", "--train-features", "--bracket", "--steps")
        and words[0] == "evaluate"
    ]
    return shlex.join([*words[:2], *modes[:1]] if words[0] in ("train", "evaluate") else words[:1])


def value(flag: Any, rng: random.Random) -> str:
    """Something that a flag may be given: of its kind, or not."""
    from zellige.base.arguments import choices_of_kind

    if flag.words and rng.random() < 0.6:
        return rng.choice(flag.words)
    numeric = bool(choices_of_kind(flag.kind)[1] & {int, float})
    return rng.choice(NUMBERS if numeric and rng.random() < 0.85 else WORDS)


def spoil(words: list[str], rng: random.Random) -> list[str]:
    """A command line, changed in one place."""
    flags, words = list(grammar(_start(words)).values()) if words[0] != "verify" else [], list(words)
    flag = rng.choice(flags) if flags else None
    kind = rng.randrange(12)
    if flag is None or kind == 11:
        at = rng.randrange(1, len(words) + 1)
        words.insert(at, rng.choice(WORDS))
    elif kind <= 4 and flag.name not in SLOW:
        text = value(flag, rng)
        if flag.switch:
            words.append(flag.name if rng.random() < 0.5 else "--no-" + flag.name[2:])
        else:
            words += [f"{flag.name}={text}"] if rng.random() < 0.4 else [flag.name, *([text] * (flag.many or 2))]
    elif kind == 5:
        words.append(rng.choice((flag.name, flag.name + "=", flag.name.replace("-", "_"))))  # no value
    elif kind == 6:
        at = rng.randrange(2, len(flag.name))
        words += [flag.name[:at] + rng.choice("xyz.-=") + flag.name[at:], value(flag, rng)]
    elif kind == 7 and len(words) > 1:
        del words[rng.randrange(1, len(words))]
    elif kind == 8 and len(words) > 1:
        at = rng.randrange(1, len(words))
        if words[at - 1] not in SLOW:
            words[at] = rng.choice(WORDS if not words[at].isdigit() else NUMBERS)
    elif kind == 9 and len(words) > 2:
        i, j = rng.sample(range(1, len(words)), 2)
        words[i], words[j] = words[j], words[i]
    elif kind == 10:
        more = (
            "--json", "--json=full", "--json=-", "--json=loop", "--json=missing/x", "--json=runs", "--color=x",
            "--color", "--quiet", "--help", "-h", "-x", "--", "---", "--=", "--version", "--json=" + "a" * 5000,
            "--json=a\0b", "--seed=x", "--seed=" + "1" + "0" * 30, "--json=out.json", "--color=always",
        )  # fmt: skip
        words.insert(rng.randrange(1, len(words) + 1), rng.choice(more))
    return words


def draw(rng: random.Random) -> tuple[list[str], dict[str, str]]:
    """A command line and its surroundings."""
    which = rng.random()
    if which < 0.01:
        return [rng.choice((*WORDS, *NUMBERS)) for _ in range(rng.randrange(4))], {}
    must_fail = which < 0.13
    words = shlex.split(rng.choice(WRONG if must_fail else DEAR if which < 0.28 else VALID))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        words = spoil(words, rng)
    if must_fail and not {"--help", "-h"} & set(words):
        words.append(rng.choice(("--missing", "--seed", "--seed=x", "--json", "--sed=1")))
    return words, rng.choice(SURROUNDINGS) if rng.random() < 0.12 else {}


def typed(word: str) -> str:
    """A word as one might type it, cut where it is long."""
    cut = word if len(word) < 60 else f"{word[:40]}...({len(word)})"
    return shlex.quote(cut) if cut.isprintable() else f"${cut!r}"


def trial(here: world.World, rng: random.Random) -> str:
    """One command line; what it was, for whoever wants to repeat it by hand. Raises Wrong."""
    with here.here(here.work):
        words, environ = draw(rng)
    name = " ".join([*(f"{key}={typed(text)}" for key, text in environ.items()), "zellige", *map(typed, words)])
    try:
        with here.trial(environ, seconds=world.COMPILING if "--compile" in words else world.SECONDS):
            world.judge(here, world.run(words))
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    return name
