"""What is said of a sampler, method, distribution, unit, metric, table or record is only printed: rewritten to nonsense, it
changes nothing that is computed, chosen, recommended, grouped or refused."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from testing.small import Rows, make
from zellige.base.errors import InputError
from zellige.cli.evaluate_again import of_unit
from zellige.evaluation.evaluate import EvaluationRows, evaluate_rows
from zellige.evaluation.likelihood import Likelihood
from zellige.evaluation.metrics import METRICS
from zellige.evaluation.result import Result, fullest
from zellige.methods import METHODS
from zellige.models.ends import learns_ends
from zellige.papers import tables
from zellige.papers.recipes import RECIPES
from zellige.papers.tables import TABLES
from zellige.plugins.evaluations.bracket.bracket import bracket_rows
from zellige.plugins.evaluations.bracket.command import describe_bracket
from zellige.plugins.verify.identities.check import L, enumerable
from zellige.samplers import SAMPLERS, Distribution, distributions, run
from zellige.sampling.samples import Samples
from zellige.show.units import UNITS, unit_of

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "_tools"))
import lists  # pyright: ignore[reportMissingImports]

NONSENSE = "none bits of all valid quoted steps"  # one for all, so that what is grouped by its words falls together
SAYS = ("samples_from", "claim", "needs", "calls", "label", "sentence", "__doc__")  # of a sampler
PROSE = (
    "time",
    "strata",
    "texts",
    "distribution",
    "network",
    "bound of",
    "psi",
    "packing",
    "separators",
)  # of a protocol


def rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim, to nonsense."""
    for cls in SAMPLERS.values():
        for name in SAYS:
            monkeypatch.setattr(cls, name, NONSENSE)
    for cls in METHODS.values():
        for name in ("system", "paper", "noise", "__doc__"):
            monkeypatch.setattr(cls, name, NONSENSE)
    for cls in (*SAMPLERS.values(), *METHODS.values()):
        monkeypatch.setattr(sys.modules[cls.__module__], "__doc__", NONSENSE)
    text: Any = property(lambda self: NONSENSE, lambda self, value: None)
    monkeypatch.setattr(Distribution, "text", text, raising=False)
    for key, unit in UNITS.items():
        monkeypatch.setitem(UNITS, key, replace(unit, title=NONSENSE, per=NONSENSE))
    for name, metric in METRICS.items():
        monkeypatch.setitem(METRICS, name, replace(metric, title=NONSENSE, interval=NONSENSE, definition=NONSENSE))
    for name, table in TABLES.items():
        rows = tuple(replace(row, name=NONSENSE, note=NONSENSE) for row in table.rows)
        monkeypatch.setitem(TABLES, name, replace(table, rows=rows, what=NONSENSE, protocol=NONSENSE))


def outcome(compute, *values: Any) -> Any:
    """A value, or the error in its place."""
    try:
        return compute(*values)
    except InputError as error:
        return str(error)


def sampled() -> dict[str, Any]:
    """Tokens of every sampler of every method, or the error that recommends others; the distributions and what bounds them."""
    entries: dict[str, Any] = {}
    for name, cls in METHODS.items():
        method = enumerable(cls)
        for sampler in SAMPLERS.values():
            streams = [torch.Generator().manual_seed(row) for row in range(2)]
            last = lambda sampler=sampler, method=method, streams=streams: (  # noqa: E731
                list(run(sampler(), method, (2, L), 3, generator=streams))[-1].x.tolist()
            )
            entries[f"{name} {sampler.name}"] = outcome(last)
        for sampler, of in distributions(method, method.steps or 4).items():
            bounds = None if of.number is None else Likelihood(method, **of.number).bounds
            entries[f"{name} distribution {sampler}"] = (of.key, of.number, bounds)
    return entries


def evaluated() -> dict[str, Any]:
    """Numbers in bits and nats of all texts and of some, as figures, converted, and as a record names its file."""
    entries: dict[str, Any] = {}
    x = torch.randint(3, (6, 8), generator=torch.Generator().manual_seed(0))
    for name, unit, limit in (("mdlm", "bits/dim", None), ("mdlm", "nats/token", 4), ("ar", "bits/cell", None)):
        r = evaluate_rows(make(name), Rows(x), draws=4, seed=1, limit=limit, unit=unit)
        other = unit_of(unit).measured({"bits": "nats", "nats": "bits"}[unit_of(unit).measure]).key
        numbers = (r.value, r.low, r.high, r.unit, r.kind, r.partial, r.scale, r.perplexity, r.file_name, r.between)
        entries[f"{name} {unit} {limit}"] = (*numbers, r.figures(), of_unit(r.figures(), other).value)
    return entries


def bracketed() -> list[Any]:
    """Rows of brackets by the key of their distribution, and how many lines are printed, and name another distribution."""
    x = torch.randint(3, (4, 3), generator=torch.Generator().manual_seed(0))
    about = {"data": "x", "split": "test", "length": 3, "method": "m", "parameters": 1}
    data, entries = EvaluationRows(Rows(x), about, {}, None, ""), []
    for name in ("mdlm", "udlm"):  # the second has two bounds, of continuous time and of T steps
        method = make(name, length=3)
        found = bracket_rows(method, data, (1, 4), limit=None, own=2, bound_draws=4, steps=4)
        for row in found.rows:
            entries.append(
                (row.name, row.side, row.distribution and row.distribution.key, row.result and row.result.value)
            )
        lines = describe_bracket(found)
        entries += [found.figures(), len(lines), sum("bound, " in line for line in lines)]
    return entries


def listed() -> list[Any]:
    """What the lists say that is computed, and the number of a paper that each recipe aims at."""
    methods = [(row["name"], row["network gives"], row["likelihood"]) for row in lists.methods()]
    samplers = [(row["name"], row.get("bounded by"), row.get("same as")) for row in lists.samplers()]
    numbers = []
    for order in (TABLES, dict(reversed(TABLES.items()))):  # a table that quotes a number before and after its own
        with mock.patch.object(tables, "TABLES", order):
            numbers.append({name: (r.reported.value, r.reported.unit, r.reported.kind) for name, r in RECIPES.items()})
    return [methods, samplers, numbers]


@pytest.mark.parametrize("compute", [sampled, evaluated, bracketed, listed])
def test_no_claim_decides_anything(compute, monkeypatch):
    before = compute()
    with monkeypatch.context() as patch:
        rewrite(patch)
        assert Distribution("a", "b").text == UNITS["bits/dim"].title == SAMPLERS["smc"].claim == NONSENSE
        after = compute()
    assert after == before


def test_no_text_of_a_record_decides_anything():
    """Whether a number holds, which result stands for a model, the name of its file: by values, in memory and from a file."""
    x = torch.randint(3, (6, 8), generator=torch.Generator().manual_seed(0))
    results = [
        evaluate_rows(make("mdlm"), Rows(x), draws=n, seed=1, limit=limit) for n, limit in ((4, 5), (4, None), (8, 3))
    ]
    rewritten = [
        replace(r, protocol={key: NONSENSE if key in PROSE else value for key, value in r.protocol.items()})
        for r in results
    ]
    for before, now in zip(results, rewritten):
        read = Result.from_dict(now.to_dict())
        assert [before.partial, before.file_name] == [now.partial, now.file_name] == [read.partial, read.file_name]
        assert (
            before.holds(now) == before.holds(read) == dict.fromkeys([f.name for f in before.figures()], "bit for bit")
        )
    assert results.index(fullest(results, "data")) == rewritten.index(fullest(rewritten, "data")) == 1
    other = replace(results[1], protocol=results[1].protocol | {"distribution_key": "another"})
    assert set(results[1].holds(other).values()) == {""}


def test_a_distribution_is_read_back_by_its_key():
    of = Distribution("steps 8", NONSENSE, {"steps": 8})
    samples = Samples(["a"], [[0]], [1], 8, 0.1, distribution=of)
    assert Samples.from_dict(samples.to_dict()).distribution == of


@pytest.mark.parametrize("end", ["none", "space", "token"])
def test_what_ends_a_document_is_no_word_of_its_separator(end):
    about = {"fill": 0, "end": end, "separates": "documents"}
    found = {learns_ends(make("ar"), about | {"separator": text}, 8) for text in ("none", "space", NONSENSE)}
    assert found == {end == "token"}
