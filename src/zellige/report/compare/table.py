"""The table of a comparison: on a terminal, in Markdown, and the letters that say which methods are not told apart."""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from ...show.numbers import SIGN, count, counted, parameters, percent, pm, scaled

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
def bound_text(row: dict[str, Any]) -> str:
    """`≤ 1.846 ± 0.010`, `± ?` where its draws give no interval, or `-` where there is no bound."""
    if row["bound"] is None:
        return "-"
    value, low, high = (_finite(row["bound"][k]) for k in ("value", "low", "high"))
    text = pm(value, (high - low) / 2).replace("unknown", "?") if math.isfinite(value) else "infinite"
    return f"{SIGN[row['bound']['kind']]} {text}"


def _finite(value: float | None) -> float:
    return math.inf if value is None else value


def _quality(result: dict[str, Any], value: float) -> str:
    return f"{value:.2f}" if result["judge"]["kind"] == "n-gram" else f"{value:.3f}"


def _last(result: dict[str, Any], quality: dict[str, Any]) -> str:
    return f"{quality['entropy']:.2f}" if result["judge"]["kind"] == "n-gram" else percent(quality["inside"])


def _speed(row: dict[str, Any]) -> str:
    return scaled(row["tokens_per_second"]) if row["tokens_per_second"] else "-"


def _cells(result: dict[str, Any]) -> list[list[str]]:
    """method, variant, bound, letters, quality at each number of calls, entropy or share inside, speed."""
    return [
        [row["method"], row["variant"], bound_text(row), row["letters"] or "-"]
        + [_quality(result, q["value"]) for q in row["quality"]]
        + [_last(result, row["quality"][-1]), _speed(row)]
        for row in result["methods"]
    ]


def _real(result: dict[str, Any]) -> list[str]:
    """The row of the data itself: real text, or what exact samples of the law would show."""
    real, blank = result["reference"], [""] * (len(result["calls"]) - 1)
    if result["judge"]["kind"] == "n-gram":
        return [f"real {result['rows']}", "", "", "", *blank, f"{real['value']:.2f}", f"{real['entropy']:.2f}", ""]
    return ["its law", "", f"= {real['bound']:.3f}", "", *blank, f"{real['value']:.3f}", "100.0%", ""]


def _heads(result: dict[str, Any]) -> tuple[str, str, str]:
    """What stands over the bound, the quality and the last column but one."""
    if result["judge"]["kind"] == "n-gram":
        return f"{result['data']} test", f"judge, {result['judge']['unit']}, at network calls", "entropy"
    return f"{result['data']}, its law", "total variation, at network calls", "inside"


def notes(result: dict[str, Any]) -> list[str]:
    """The lines under the table: what its columns mean, and where the methods were not alike."""
    grams, rows = result["judge"]["kind"] == "n-gram", result["methods"]
    lines = []
    if any(row["letters"] for row in rows):
        where = (
            f"on the same test {'texts' if result['rows'] == 'text' else 'rows'}" if grams else "with the same draws"
        )
        lines.append(f"same letter: not told apart {where}, each pair at 95%")
    if result["partial"]:
        lines.append(f"a partial result: bounds of {result['partial']}")
    samples = rows[0]["quality"][0]["samples"]
    half = max((q["high"] - q["low"]) / 2 for row in rows for q in row["quality"])
    if grams:
        lines.append(f"judge: {result['judge']['name']}, within ± {half:.2f} (95%) for {counted(samples, 'sample')}")
    else:
        lines.append(f"law: {result['judge']['name']}; what a bound has above it is the excess over the data's entropy")
        lines.append(
            f"total variation: within ± {half:.3f} (95%) for {counted(samples, 'sample')}; exact ones show the last row"
        )
    lines += _calls(result)
    few, many = min(r["parameters"] for r in rows), max(r["parameters"] for r in rows)
    size = parameters(few) if parameters(few) == parameters(many) else f"{_millions(few)} to {parameters(many)}"
    lines.append(f"{size}, {counted(result['steps'], 'step')} each")
    return lines


def _millions(n: int) -> str:
    return parameters(n).removesuffix(" parameters")


def _calls(result: dict[str, Any]) -> list[str]:
    """Network calls are at most the steps: how many they were, where they were not the number in the table's head."""
    by_calls: dict[str, list[str]] = {}
    for row in result["methods"]:
        calls = ", ".join(count(q["calls"]) for q in row["quality"])
        by_calls.setdefault(calls, []).append(row["label"])
    asked = ", ".join(map(count, result["calls"]))
    lines = [f"  {calls}: {', '.join(names)}" for calls, names in by_calls.items() if calls != asked]
    return ["network calls are at most the steps in the head; their mean was", *lines] if lines else []


# ---------------------------------------------------------------------------------------------------- the table
def terminal_lines(result: dict[str, Any]) -> list[str]:
    """The table of at most 100 columns, best first, and its notes."""
    over, group, end = _heads(result)
    calls, n = [count(c) for c in result["calls"]], len(result["calls"])
    body = [*_cells(result), _real(result)]
    unit = "nats/" + result["judge"]["unit"].partition("/")[2] if result["judge"]["kind"] == "n-gram" else "the data"
    head = ["method", "variant", f"{result['unit']} (95%)", "at 95%", *calls, unit, "tokens/s"]
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
    for note in notes(result):
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="    ")
    return lines


def _width(wide: Sequence[int], n: int, gap: int) -> int:
    return sum(wide) + 2 * (len(wide) - 1) + (gap - 2) * (n - 1)


def markdown(result: dict[str, Any], figure: str = "compare.svg") -> str:
    """The same table with all its numbers, the figure (the file of that name), and how it was made."""
    over, group, end = _heads(result)
    law, calls = result["judge"]["kind"] == "law", [count(c) for c in result["calls"]]
    head = ["method", "variant", f"{over}, {result['unit']} (95%)", *(["excess"] if law else []), "same", *calls, end]
    head += ["training, tokens/s", "parameters"]
    body = [head, ["---"] * len(head)]
    for row, cells in zip([*result["methods"], None], [*_cells(result), _real(result)]):
        size = _millions(row["parameters"]) if row else ""
        body.append([*cells[:3], *([_excess(result, row)] if law else []), *cells[3:], size])
    remarks = [f"- {line.strip()}" for line in notes(result)]
    how = [f"- {name}: {_flat(value)}" for name, value in result["protocol"].items()]
    title = ", ".join(dict.fromkeys(row["method"] for row in result["methods"]))
    parts = [f"# {title} on {result['data']}"]
    parts += [f"    {result['command']}"] if result["command"] else []
    parts += [f"Under {', '.join(calls)}: {group}.", "\n".join("| " + " | ".join(row) + " |" for row in body)]
    parts += ["\n".join(remarks), f"![bounds and samples]({figure})", "\n".join(how)]
    return "\n\n".join(parts) + "\n"


def _excess(result: dict[str, Any], row: dict[str, Any] | None) -> str:
    """What a bound in expectation over the law has above the law's entropy."""
    if row is None or row["bound"] is None:
        return ""
    return f"{_finite(row['bound']['value']) - result['reference']['bound']:.3f}"


def _flat(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
