"""What compare.json holds of each method, made of what was measured: its row, its bound, its differences from the others."""

import math
from typing import Any

import torch

from ...evaluation.result import Result, difference, interval_ends
from . import table
from .entrant import Entrant


def row_of(each: Entrant, measured: dict[str, Any]) -> dict[str, Any]:
    """One method as compare.json has it: without the nats of each text."""
    bound = measured["bound"] and {k: v for k, v in measured["bound"].items() if k not in ("nats", "sizes")}
    return {
        "method": each.name, "variant": each.variant, "label": each.label, "folder": each.folder, "letters": "",
        **{k: v for k, v in measured.items() if k not in ("key", "seconds")}, "bound": bound,
    }  # fmt: skip


def bound_of(entry: dict[str, Any] | None) -> Result | None:
    """A bound as measured.json has it."""
    if entry is None:
        return None
    value, (low, high) = math.inf if entry["value"] is None else entry["value"], interval_ends(entry)
    nats = torch.tensor([math.inf if x is None else x for x in entry["nats"]], dtype=torch.float64)
    sizes = torch.tensor(entry["sizes"], dtype=torch.float64)
    return Result(
        value, low, high, entry["unit"], entry["kind"], protocol=entry["protocol"], nats=nats, sizes=sizes
    )  # fmt: skip


def differences(named: list[tuple[str, Result]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Each pair's difference on the same texts with its interval, and the letters; best first."""
    pairs, same = [], set()
    for j, (b, second) in enumerate(named):
        for i, (a, first) in enumerate(named[:j]):
            ends = [math.inf] * 3
            if math.isfinite(second.value):  # the bound of a score may be infinite; such a one comes last
                gap = difference(second, first)
                ends = [gap.value, gap.low, gap.high]
            apart = ends[1] > 0 and math.isfinite(first.value)
            pairs.append({"method": b, "minus": a, **dict(zip(("value", "low", "high"), ends)), "same": not apart})
            same |= set() if apart else {(i, j), (j, i)}
    return pairs, table.letters(len(named), lambda i, j: (i, j) in same)
