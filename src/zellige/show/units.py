"""Units of likelihoods: `unit_of("bits/char").scale`. A key stands in JSON and is compared; a title is printed."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A unit.

    Attributes:
        key: `MEASURE/COUNTED`, as JSON has it.
        measure: "bits", "nats", or "loss" where the number is no likelihood; scale: nats in one.
        counted: what it is per, such as "char"; per: the same in words.
        title: as it is printed.
    """

    key: str
    measure: str
    scale: float
    counted: str
    per: str
    title: str

    def measured(self, measure: str) -> "Unit":
        """The unit per the same in bits, nats or loss."""
        return unit_of(f"{measure}/{self.counted}")


SCALES = {"bits": math.log(2), "nats": 1.0, "loss": 1.0}
COUNTED = {"char": "character", "dim": "dimension"} | {
    name: name for name in ("note", "cell", "token", "word", "sequence", "document")
}
UNITS = {
    f"{measure}/{counted}": Unit(f"{measure}/{counted}", measure, scale, counted, per, f"{measure}/{counted}")
    for measure, scale in SCALES.items()
    for counted, per in COUNTED.items()
}


def unit_of(key: str) -> Unit:
    """The unit of a key; that of a file may be none of ours."""
    return UNITS.get(key) or Unit(key, "", 1.0, "", key, key)
