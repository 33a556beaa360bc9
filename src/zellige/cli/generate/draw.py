"""What `zellige evaluate --generate` draws, and keeps, whatever judges it."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...show.progress import Bar
from ...show.terminal import Terminal
from . import files
from .classes import classes_of

if TYPE_CHECKING:
    from ...evaluation.sweep import Set, Way


def ways_of(chosen: Any, model: Any) -> "list[Way]":
    """Every way to draw that was asked for; the plain one first. None where samples are given, or nothing could draw."""
    from ...evaluation import sweep

    if model is None or chosen.samples:
        return []
    own = {name: value for name, value in dataclasses.asdict(chosen.options).items() if value is not None}
    base = sweep.Way(chosen.sampler or "", chosen.steps, chosen.temperature, chosen.top_p, own)
    base = sweep.settled(model, base, chosen.length)
    usual = chosen.frontier and not (chosen.temperatures or chosen.top_ps)
    temperatures = sweep.TEMPERATURES if usual else chosen.temperatures
    ways = [base, *sweep.along(base, temperatures, sweep.TOP_PS if usual else chosen.top_ps)]
    if chosen.calls:
        ways += sweep.calls(model, base, chosen.calls, chosen.samplers)
    return sweep.different(sweep.settled(model, way, chosen.length) for way in ways)


def draw(chosen: Any, model: Any, ways: "list[Way]", folder: Path | None, terminal: Terminal) -> "list[Set]":
    """A set for each way, written into the folder."""
    from ...evaluation import sweep

    sets: list[Set] = []
    classes = classes_of(chosen, model)
    with Bar(terminal, "sample", 1, "steps") as bar:
        before, every = 0, chosen.count * sum(way.steps or 1 for way in ways)
        for way in ways:
            show = lambda done, _, before=before: bar.update(before + done, total=every)  # noqa: E731
            sets.append(
                sweep.draw_samples(model, way, chosen.count, chosen.seed, chosen.length, chosen.batch, show, classes)
            )
            before += chosen.count * (way.steps or 1)
    if folder is not None and ways:  # before they are judged, which may take longer
        from ...files import make, write_file

        make(folder)
        write_file(files.samples_file(folder, chosen), sweep.samples_as_lines(sets))
    return sets
