"""The table of a comparison: on a terminal, in Markdown, and the letters that say which methods are not told apart."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from statistics import stdev
from typing import Any

from zellige.evaluation.interval import mean
from zellige.show.numbers import SIGN, as_markdown, columns, count, counted, parameters, percent, pm, scaled
from zellige.show.units import unit_of

from .record import Bound, Findings, Paper, Quality, Row

WIDTH = 100


def letters(n: int, same: Callable[[int, int], bool]) -> list[str]:
    """Of n methods, best first: two share a letter exactly if they are not told apart (a compact letter display).

    A letter is a largest set of methods of which no two are told apart; a is the one with the best method.
    """
    near = [{j for j in range(n) if j != i and same(i, j)} for i in range(n)]
    sets: list[list[int]] = []

    def grow(chosen: set[int], open: set[int], closed: set[int]) -> None:  # Bron and Kerbosch (1973)
        if not open and not closed:
            sets.append(sorted(chosen))
        for i in sorted(open):
            grow(chosen | {i}, open & near[i], closed & near[i])
            open, closed = open - {i}, closed | {i}

    grow(set(), set(range(n)), set())
    labels = [""] * n
    for letter, members in zip(_names(), sorted(sets)):
        for i in members:
            labels[i] += letter
    return labels


def _names():
    names = "abcdefghijklmnopqrstuvwxyz"
    yield from names
    yield from (a + b for a in names for b in names)


# ---------------------------------------------------------------------------------------------------- cells
def bound_text(bound: Bound | None) -> str:
    """`≤ 1.846 ± 0.010`, `± ?` where its draws give no interval, or `-` where there is no bound."""
    if bound is None:
        return "-"
    text = pm(bound.value, bound.half).replace("unknown", "?") if math.isfinite(bound.value) else "infinite"
    return f"{SIGN[bound.kind]} {text}"


def _quality(found: Findings, value: float) -> str:
    return f"{value:.2f}" if found.judge.grams else f"{value:.3f}"


def _last(quality: Quality) -> str:
    """Entropy, or the fraction inside the support."""
    return f"{quality.entropy:.2f}" if quality.inside is None else percent(quality.inside)


def _speed(row: Row) -> str:
    return scaled(row.tokens_per_second) if row.tokens_per_second else "-"


def _cells(found: Findings) -> list[list[str]]:
    """method, variant, bound, letters, quality at each number of steps, entropy or fraction inside, speed."""
    return [
        [row.method, row.variant, bound_text(row.bound), row.letters or "-"]
        + [_quality(found, quality.value) for quality in row.quality]
        + [_last(row.quality[-1]), _speed(row)]
        for row in found.methods
    ]


def _real(found: Findings) -> list[str]:
    """The row of the data itself: real text, or the score of exact samples of its distribution."""
    real, blank = found.reference, [""] * (len(found.calls) - 1)
    if found.judge.grams:
        return [f"real {found.rows}", "", "", "", *blank, f"{real.value:.2f}", f"{real.entropy:.2f}", ""]
    return ["the data", "", f"= {real.bound:.3f}", "", *blank, f"{real.value:.3f}", "100.0%", ""]


def _heads(found: Findings) -> tuple[str, str, str]:
    """The heads of the bound, the quality and the last column but one."""
    if found.judge.grams:
        return f"{found.data} test", f"judge, {found.judge.unit}, at evaluations", "entropy"
    return f"{found.data}, all of it", "total variation, at evaluations", "inside"


def notes(found: Findings) -> list[str]:
    """The lines under the table: what its columns mean, and where the methods were not alike."""
    rows, judge = found.methods, found.judge
    lines = []
    if any(row.letters for row in rows):
        texts = "texts" if found.rows == "text" else "rows"
        where = f"on the same test {texts}" if judge.grams else "with the same draws"
        where += " and over the seeds" if found.seeds else ""
        lines.append(f"same letter: not told apart {where}, each pair at 95%")
    if found.partial:
        lines.append(f"a partial result: bounds of {found.partial}")
    samples = counted(found.samples, "sample")
    half = max(quality.half for row in rows for quality in row.quality)
    if judge.grams:
        lines.append(f"judge: {judge.name}, within ± {half:.2f} (95%) for {samples}")
    else:
        lines.append(f"judge: {judge.name}; excess: the bound minus the entropy of the data")
        lines.append(f"total variation: within ± {half:.3f} (95%) for {samples}; exact ones show the last row")
    lines += _calls(found)
    lines += sampler_notes(found)
    least, most = (parameters(end(row.parameters for row in rows)) for end in (min, max))
    size = most if least == most else f"{_number(least)} to {most}"
    taken = sorted({row.steps or found.steps for row in rows})
    steps = counted(taken[0], "step") if len(taken) == 1 else f"{count(taken[0])} to {counted(taken[-1], 'step')}"
    lines.append(f"{size}, {steps} each")
    lost = dict.fromkeys(
        row.bound.protocol["tokenizer"] for row in rows if row.bound and "tokenizer" in row.bound.protocol
    )
    return [*lines, *(f"per token, {text}" for text in lost)]


def _number(size: str) -> str:
    """`3.2M` of `3.2M parameters`."""
    return size.removesuffix(" parameters")


def _calls(found: Findings) -> list[str]:
    """The mean network evaluations of a sample, where these are not the steps of the table's head."""
    by_calls: dict[str, list[str]] = {}
    for row in found.methods:
        by_calls.setdefault(", ".join(count(quality.calls) for quality in row.quality), []).append(row.label)
    steps = ", ".join(map(count, found.calls))
    lines = [f"  {calls}: {', '.join(names)}" for calls, names in by_calls.items() if calls != steps]
    return ["the head has numbers of steps; the mean network evaluations of a sample were", *lines] if lines else []


NOTHING = "-"


def sampler_cells(found: Findings) -> list[list[str]]:
    """A header and a row for each method and sampler that is compared at equal numbers of network evaluations."""
    if not any(row.by_sampler for row in found.methods):
        return []
    head = ["method", "variant", "sampler", *map(count, found.calls), _heads(found)[2]]
    return [head] + [
        [row.method, row.variant, by.sampler, *(_quality(found, q.value) for q in by.quality), _last(by.quality[-1])]
        for row in found.methods
        for by in row.by_sampler
    ]


def sampler_notes(found: Findings) -> list[str]:
    """What the table of samplers shows, and where a sampler makes fewer evaluations than it may."""
    means: dict[str, list[str]] = {}
    for row in found.methods:
        for by in row.by_sampler:
            calls = ", ".join(f"{quality.calls:.3g}" for quality in by.quality)
            means.setdefault(calls, []).append(f"{row.label} {by.sampler}")
    if not means:
        return []
    end = "entropy" if found.judge.grams else "samples that the data has"
    numbers = f"{found.judge.unit} by the judge" if found.judge.grams else "total variation"
    half = max(q.half for row in found.methods for by in row.by_sampler for q in by.quality)
    digits = 2 if found.judge.grams else 3
    lines = [
        f"by sampler: {numbers}, within ± {half:.{digits}f} (95%), at no more network evaluations of a sample than in "
        f"the head; last: {end}, at the most evaluations; their mean was"
    ]
    return lines + [f"  {calls}: {', '.join(names)}" for calls, names in means.items()]


def seed_cells(found: Findings) -> list[list[str]]:
    """A header and a row for each method: the mean over its seeds, their deviation, and both intervals of the mean."""
    if not found.seeds:
        return []
    head = [f"bound of {len(found.seeds)} seeds", "mean", "deviation", "± over seeds (95%)", "± over texts (95%)"]
    rows = []
    for row in found.methods:
        if row.bound is None or not all(map(math.isfinite, row.seeds)):
            continue
        over = mean(row.seeds)
        numbers = (over.value, stdev(row.seeds), over.half, row.bound.half)
        rows.append([row.label, *(f"{n:.3f}" if math.isfinite(n) else "?" for n in numbers)])
    return [head, *rows] if rows else []


def _seed_lines(found: Findings) -> list[str]:
    return columns(seed_cells(found), "<>>>>")


# ---------------------------------------------------------------------------------------------------- a paper's table


def heading(paper: Paper) -> str:
    """The title of a paper's table on a substitute, which says that it is one."""
    return f"{paper.title}. Substitute: {paper.substitute}, at most {paper.minutes:g} minutes a row; not a reproduction"


def paper_cells(found: Findings, paper: Paper) -> list[list[str]]:
    """A header and the rows in the paper's order: what each reports,
    its bound here and what that is above the best one's."""
    rows = {row.folder: row for row in found.methods}
    best = found.methods[0].label
    gaps = {gap.method: gap for gap in found.differences if gap.minus == best}
    columns = [f"published, {column}" for column in paper.columns]
    table = [["row", *columns, f"here, {found.unit} (95%)", "same", "minus the best", "steps", "recipe"]]
    for row in paper.rows:
        run = rows.get(row.folder)
        cells = [NOTHING] * 4
        if run is not None:
            gap = gaps.get(run.label)
            apart = NOTHING if gap is None else pm(gap.value, gap.half)
            cells = [bound_text(run.bound), run.letters or NOTHING, apart, count(run.steps or found.steps)]
        table.append([row.name, *row.published, *cells, row.recipe or NOTHING])
    return table


def paper_notes(paper: Paper) -> list[str]:
    """The lines under the table that are about the paper."""
    lines = [
        f"published: {paper.protocol}; other data and other units, so no number here is to be compared with one there"
    ]
    return lines + [f"{row.name}: {row.note}" for row in paper.rows if row.note]


def _paper_lines(found: Findings, paper: Paper) -> list[str]:
    """The paper's table on a terminal: the first of its columns, and what was measured."""
    table = [[row[0], row[1], *row[1 + len(paper.columns) :]] for row in paper_cells(found, paper)]
    lines = [heading(paper), *columns(table, "<<<<>>" + "<"), *_seed_lines(found)]
    for note in [*paper_notes(paper), *notes(found)]:
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="    ")
    return lines


# ---------------------------------------------------------------------------------------------------- the table
def terminal_lines(found: Findings) -> list[str]:
    """The table of at most 100 columns, best first, and its notes; of a paper's table its rows in the paper's order."""
    if found.paper is not None:
        return _paper_lines(found, found.paper)
    over, group, end = _heads(found)
    calls, n = [count(c) for c in found.calls], len(found.calls)
    body = [*_cells(found), _real(found)]
    unit = unit_of(found.judge.unit).measured("nats").title if found.judge.grams else "the data"
    head = ["method", "variant", f"{found.unit} (95%)", "at 95%", *calls, unit, "tokens/s"]
    top = ["", "", over, "same", *[""] * n, end, "training"]
    table = [top, head, *body]
    wide = [max(len(row[i]) for row in table if i or row is not body[-1]) for i in range(len(head))]
    gap = next((g for g in (2, 1) if _width(wide, n, g) <= WIDTH), 1)
    wide[4] += max(len(group) - sum(wide[4:-2]) - gap * (n - 1), 0)
    wide[1] = max(7, wide[1] - max(_width(wide, n, gap) - WIDTH, 0))
    lines = []
    for row in table:
        row = [*row]
        row[1] = row[1] if len(row[1]) <= wide[1] else row[1][: wide[1] - 1] + "…"
        numbers = [cell.rjust(w) for cell, w in zip(row[4:-2], wide[4:-2])]
        middle = group.ljust(sum(wide[4:-2]) + gap * (n - 1)) if row[4:-2] == top[4:-2] else (" " * gap).join(numbers)
        names = f"{row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}"
        names = row[0].ljust(len(names)) if row[0] == body[-1][0] and not row[1] else names
        number = row[2].ljust(wide[2])
        ends = f"{row[-2]:>{wide[-2]}}  {row[-1]:>{wide[-1]}}"
        lines.append(f"{names}  {number}  {row[3]:<{wide[3]}}  {middle}  {ends}".rstrip())
    if by_sampler := sampler_cells(found):
        lines += ["", *columns(by_sampler, "<<<" + ">" * (len(by_sampler[0]) - 3)), ""]
    lines += _seed_lines(found)
    for note in notes(found):
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="    ")
    return lines


def _width(wide: Sequence[int], n: int, gap: int) -> int:
    return sum(wide) + 2 * (len(wide) - 1) + (gap - 2) * (n - 1)


def markdown(found: Findings, protocol: Mapping[str, Any], figure: str = "compare.svg") -> str:
    """The same table with all its numbers, the figure (the file of that name), and the protocol."""
    over, group, end = _heads(found)
    excess, calls = not found.judge.grams, [count(c) for c in found.calls]
    head = ["method", "variant", f"{over}, {found.unit} (95%)", *(["excess"] if excess else []), "same", *calls, end]
    head += ["training, tokens/s", "parameters"]
    body = [head]
    for row, cells in zip([*found.methods, None], [*_cells(found), _real(found)]):
        size = _number(parameters(row.parameters)) if row else ""
        body.append([*cells[:3], *([_excess(found, row)] if excess else []), *cells[3:], size])
    title = ", ".join(dict.fromkeys(row.method for row in found.methods))
    parts = [f"# {heading(found.paper) if found.paper else f'{title} on {found.data}'}"]
    parts += [f"    {found.command}"] if found.command else []
    if found.paper:
        parts += [as_markdown(paper_cells(found, found.paper))]
        parts += ["\n".join(f"- {line}" for line in paper_notes(found.paper))]
    parts += [f"Under {', '.join(calls)}: {group}.", as_markdown(body)]
    parts += [as_markdown(rows) for rows in (sampler_cells(found), seed_cells(found)) if rows]
    parts += ["\n".join(f"- {line.strip()}" for line in notes(found)), f"![bounds and samples]({figure})"]
    parts += ["\n".join(f"- {name}: {_flat(value)}" for name, value in protocol.items())]
    return "\n\n".join(parts) + "\n"


def _excess(found: Findings, row: Row | None) -> str:
    """A bound in expectation over the distribution, minus the distribution's entropy."""
    entropy = found.reference.bound
    return f"{row.bound.value - entropy:.3f}" if row and row.bound and entropy is not None else ""


def _flat(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
