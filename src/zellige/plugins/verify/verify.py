"""`zellige verify`: the identities behind the library, as a table.

By enumeration and quadrature, in float64; see `identities` for what is checked and `exact` for how.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from time import perf_counter
from typing import Any

import torch

from zellige import methods
from zellige.base.arguments import checked
from zellige.base.errors import InputError, unknown
from zellige.methods import reference
from zellige.methods.method import Method
from zellige.samplers import SAMPLERS, Sampler, find
from zellige.samplers.pairing import admissible
from zellige.samplers.sampler import check
from zellige.show import numbers

from . import diagnosis, identities
from .identities import OWN, SHARED, WHOLE, L, Row, V, worst_of

PAGES = {  # first part of an identity's name -> page in docs/ that explains it
    "blocks": "theory/model.md#blocks",
    "bound": "theory/model.md#bound",
    "caches": "theory/samplers.md#caches-of-bidirectional-networks",
    "decoders": "theory/samplers.md#which-distribution-which-bound",
    "draws": "theory/model.md#random-numbers",
    "few-steps": "guides/few_steps.md",
    "given": "theory/samplers.md#given-tokens",
    "guidance": "theory/samplers.md#truncation-and-guidance",
    "insertion": "methods/flexmdm.md",
    "networks": "theory/model.md#networks",
    "options": "theory/model.md#bound",
    "prediction": "theory/model.md#prediction",
    "process": "theory/model.md#process",
    "sampler": "theory/samplers.md",
    "score": "theory/model.md#without-a-process",
    "smc": "theory/samplers.md#weighted-particles",
    "symmetries": "theory/model.md#averages-over-symmetries",
}


@dataclass(frozen=True)
class Report:
    """All rows; `str()` is the table that `zellige verify` prints.

    `pairings` is, for each method and sampler, the total variation between the distribution of 128 steps with the exact
    network and the data; None where the two cannot be paired. `notes` says why, if one sampler was asked for. `typed`
    is how a command line names each method.
    """

    rows: tuple[Row, ...]
    seconds: float
    pairings: dict[str, dict[str, float | None]]
    notes: tuple[str, ...] = ()
    typed: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def failures(self) -> list[Row]:
        """The rows that do not hold."""
        return [row for row in self.rows if not row.ok]

    @property
    def ok(self) -> bool:
        """Return whether every identity holds."""
        return not self.failures

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The table, 80 columns."""
        random_tests = sum(row.key.endswith("-drawn") for row in self.rows)
        random = (
            f"{random_tests} tests of draws"
            if random_tests > 1
            else "one test of draws"
            if random_tests
            else "nothing random"
        )
        out = [f"By enumeration ({V} tokens, length {L}) and quadrature, float64, {random}.", ""]
        out.append(f"{'largest error':>65}{'tolerance':>11}")
        group = None
        for row in self.rows:
            if row.group != group:
                group = row.group
                out.append(group)
            out.append(f"  {_name(row):<52}{_error(row):>11}{row.claim:>11}  {'ok' if row.ok else 'FAIL'}")
        counts = [f"   {name} {n}" for name, n in Counter(row.method for row in self.rows).items() if name]
        n, failures = len(self.rows), len(self.failures)
        fails = f", {failures} fails" if failures == 1 else f", {failures} fail" if failures else ""
        few = counts if len(counts) < 4 else []
        out += ["", f"{n - failures} of {n} hold{fails}{''.join(few)}   {numbers.duration(self.seconds)}"]
        out += [] if few else ["".join(counts[i : i + 7]).strip() for i in range(0, len(counts), 7)]
        for name, sentences in self.words.items():
            out += ["", f"what is wrong with {name}", *(f"  {sentence}" for sentence in sentences)]
        for row in self.failures:
            again = " ".join(
                ["zellige verify", *filter(None, [self.typed.get(row.method, row.method)]), "--only", row.key]
            )
            out += ["", f"  {_name(row)}", f"    see          docs/{PAGES[row.key.partition('.')[0]]}"]
            out += [f"    largest at   {row.where}", f"    error        {row.error:.9g}, allowed {row.claim}"]
            out += [f"    again        {again}"]
        if self.pairings:
            out += ["", "distance of 128-step samples from the data, exact network (- cannot be paired)"]
            out += _matrix(self.pairings)
        return [*out, *([""] if self.notes else []), *(f"  {line}" for line in self.notes)]

    def to_json(self) -> dict[str, Any]:
        """Everything, unrounded."""
        return {
            "ok": self.ok,
            "rows": [asdict(row) for row in self.rows],
            "words": dict(self.words),
            "pairings": self.pairings,
            "notes": self.notes,
            "seconds": self.seconds,
        }


def _name(row: Row) -> str:
    return f"{row.method:<6} {row.identity}" if row.method else row.identity


def _error(row: Row) -> str:
    return f"{row.error:.3f}" if "±" in row.claim else numbers.error(row.error)


def _matrix(pairings: dict[str, dict[str, float | None]], width: int = 100) -> list[str]:
    """Samplers by methods, in as many parts as the width asks for; a part has the methods that one of its samplers
    draws from."""
    samplers, parts = list(next(iter(pairings.values()))), []
    while samplers:
        for n in range(len(samplers), 0, -1):
            heads = [name.rpartition("_") for name in samplers[:n]]  # of two lines
            table = [["", *(a + b for a, b, _ in heads)], ["", *(c for _, _, c in heads)]]
            for name, row in pairings.items():
                values = [row[s] for s in samplers[:n]]
                cells = ["-" if value is None else numbers.error(value) for value in values]
                if set(cells) != {"-"} or n == len(row):
                    table.append([name, *cells])
            lines = numbers.columns(table if any(table[0]) else table[1:], "<" + ">" * n, indent=2)
            if n == 1 or max(map(len, lines)) <= width:
                break
        parts += [*([""] if parts else []), *lines]
        samplers = samplers[n:]
    return parts


def _pair(name: str, method: Method, sampler: Sampler, asked: bool) -> tuple[float | None, str | None]:
    """Distance of a sampler from the data, None if sampler and method do not fit; and a note."""
    try:
        check(sampler, method)
    except InputError as error:
        return None, f"{name}: {error}" if asked else None
    value = identities.distance(method, sampler, admissible(method, 128))
    draws = identities.drawn(sampler, method)
    return (
        value,
        f"{sampler.name}: frequencies of {draws:,} draws, which are some 5e-03 away themselves" if draws else None,
    )


@checked
def verify(
    *which: str | type[Method],
    only: str | None = None,
    sampler: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Report:
    """Check the identities of the given methods (of all, if none is given), and those that all methods share.

    Args:
        which: names, or own Method classes.
        only: a key such as "bound.closed-form", or the beginning of one such as "bound".
        sampler: only the checks of this sampler, and its pairing with each method.
        progress: called before each check, with how many are done, of how many, and its name.

    Returns:
        The rows; `failures` is empty if everything holds.

    Raises:
        InputError: for an unknown method, check or sampler; or if there is nothing to check.
    """
    classes = [methods.find(m) for m in which] or list(methods.METHODS.values())
    known = [*SHARED, *OWN, *WHOLE]
    if sampler is not None:
        sampler = find(sampler).name
        keys = [key for key in known if _is_about(key, sampler)]
        if not any(_admits(SAMPLERS[sampler](), method) for cls in classes for _, method in identities.variants(cls)):
            keys = [key for key in keys if key not in SHARED]  # whose models are none of these methods
    else:
        keys = [key for key in known if only is None or key == only or key.startswith((f"{only}.", f"{only}-"))]
        if not keys:
            raise unknown("check", str(only), known, "zellige verify --json -")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny: a second thread only waits, on busy cores for minutes
    try:
        report = _verify(classes, keys, only, sampler, progress)
    finally:
        torch.set_num_threads(threads)
    if not report.rows and not report.pairings:
        names = ", ".join(cls.name for cls in classes)
        why = (
            report.notes[0] if report.notes else f"`only` {only} is no check of {names}; leave it out for all that are"
        )
        raise InputError(f"nothing to check: {why}")
    return report


def _is_about(key: str, sampler: str) -> bool:
    """Return whether a check is one of a sampler: `sampler.NAME-...`, or `decoders.` and its name.

    The checks of the caches are those of `semi_autoregressive`.
    """
    package, _, name = key.partition(".")
    return (
        name == sampler or name.startswith(f"{sampler}-") or (package == "caches" and sampler == "semi_autoregressive")
    )


def _admits(sampler: Sampler, method: Method) -> bool:
    """Return whether a sampler fits a method, with a head if it needs one."""
    return sampler.reason_against(method.verified_by(lambda h, x, turn: h)) is None


def _most_memory() -> int:
    """The largest number of bytes that this process has held; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _verify(
    classes: list[type[Method]],
    keys: list[str],
    only: str | None,
    sampler: str | None,
    progress: Callable[[int, int, str], None] | None,
) -> Report:
    begin, rows = perf_counter(), []
    variants = cache(lambda cls, kinds: [*identities.variants(cls, kinds)])
    checks = [(key, cls) for key in keys for cls in ([None] if key in SHARED else classes)]
    asked = SAMPLERS if sampler is None else {sampler: SAMPLERS[sampler]}
    pair_samplers = {
        key: s for key, s in asked.items() if not s.grows and not hasattr(s, "block_sampler")
    }  # the others are of several steps
    pair_classes = classes if pair_samplers and (sampler is not None or (only is None and len(classes) > 1)) else []
    total = len(checks) + len(pair_classes)
    for number, (key, cls) in enumerate(checks):
        name = cls.name if cls else ""
        if progress:
            progress(number, total, f"{name} {key}".strip())
        started = perf_counter()
        if cls is None:
            checked_rows = [*SHARED[key]()]
        elif key in WHOLE:
            checked_rows = [*WHOLE[key](cls)]
        else:
            some = variants(cls, key.startswith("sampler."))  # a check may change its copy of the method
            checked_rows = [*worst_of((variant, OWN[key](deepcopy(method))) for variant, method in some)]
        cost = {"seconds": perf_counter() - started, "memory": _most_memory()}
        rows += [replace(row, key=key, method=name, **cost) for row in checked_rows]
    pairings, notes = {}, []
    for number, cls in enumerate(pair_classes, len(checks)):
        if progress:
            progress(number, total, f"{cls.name} samplers")
        for variant, method in variants(cls, True):
            name = f"{cls.name} {variant}".strip()
            pairs = {key: _pair(name, method, s(), sampler is not None) for key, s in pair_samplers.items()}
            pairings[name] = {key: value for key, (value, _) in pairs.items()}
            notes += [note for _, note in pairs.values() if note]
    if all(value is None for pairs in pairings.values() for value in pairs.values()):
        pairings, notes = {}, [] if rows else notes
    wrong = {row.method for row in rows if not row.ok}
    words = {cls.name: sentences for cls in classes if cls.name in wrong and (sentences := diagnosis.explained(cls))}
    return Report(
        tuple(rows),
        perf_counter() - begin,
        pairings,
        tuple(dict.fromkeys(notes)),
        {c.name: numbers.path(reference(c)) for c in classes},
        words,
    )
