"""What `zellige evaluate --generate` says of samples beside real text: distances, memorisation, the cheats, matched entropy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...show.progress import Bar
from ...show.terminal import Terminal

if TYPE_CHECKING:
    from ...evaluation.judge import Judge, Judged
    from ...evaluation.sweep import Cheat, Set

FEATURES = "judge"


@dataclass(frozen=True)
class Beside:
    """Real texts.

    Attributes:
        real: as many as there are samples; `name`, what they are called.
        pool: two for each sample, where there are so many, for the distances.
        training: the split that the model was trained on; None where it is not at hand.
    """

    real: "Set | None" = None
    name: str = ""
    pool: "Set | None" = None
    training: Any = None


def cheats(
    chosen: Any, model: Any, judge: "Judge", beside: Beside, way: Any, count: int, terminal: Terminal
) -> "list[Cheat]":
    """Every cheat that can be made here; a note says which cannot."""
    from ...evaluation import sweep as made

    if beside.training is None:
        raise InputError("--cheats are made of the training text, and it is not at hand; leave them out")
    every = made.of_training(model.tokenizer, beside.training, count, chosen.seed)
    with Bar(terminal, "cold", 1, "steps") as bar:
        show = lambda done, total: bar.update(done, total=total)  # noqa: E731
        every.append(made.cold(model, way, count, chosen.seed, chosen.length, show))
    texts = beside.real.texts if beside.real is not None else every[-2].samples.texts
    length = round(sum(map(len, judge.encode(texts))) / len(texts))
    try:
        with terminal.waiting("the judge writes"):
            every.append(made.judges_own(model.tokenizer, judge, count, length, chosen.seed))
    except InputError as absent:
        terminal.note(str(absent))
    return every


def measured(
    chosen: Any, judge: "Judge", sets: "list[Set]", more: "list[Cheat]", beside: Beside, embed: Any, terminal: Terminal
) -> dict[str, Any]:  # fmt: skip
    """{points, real, cheats, matched, compared} as the document's result has them."""
    from ...evaluation import sweep
    from ...evaluation.judge import judged
    from ...evaluation.sweep import fooled
    from ...evaluation.text_features import RealText

    own = lambda one: chosen.tokens == "own" and one.rows is not None  # noqa: E731
    tested = [*sets, *(cheat.samples for cheat in more)]
    every = [*tested, *(one for one in (beside.real, beside.pool) if one is not None)]
    readings: list[Judged] = []
    with Bar(terminal, "judge", 1, "texts") as bar:
        for i, one in enumerate(every):
            show = lambda done, total, i=i: bar.update(i * total + done, total=len(every) * total)  # noqa: E731
            readings.append(judged(one.texts, one.rows, judge, own(one), show))
    real, pool = beside.real, beside.pool
    beside_real = readings[len(tested)] if real is not None else None
    features = judge.features(real.texts) if chosen.mauve and real is not None else None
    scored = []
    for one, reading in zip(every, readings[: len(tested) + (real is not None)]):
        against = features if one is not real else None
        scored.append(sweep.score_samples(one, judge, own=own(one), against=against, seed=chosen.seed, reading=reading))
    compared = None
    if pool is not None and embed is not None:
        with terminal.waiting("comparing"):
            text = RealText(pool.texts, readings[-1], embed[0], max(len(one.texts) for one in tested))
            for one, point, reading in zip(tested, scored, readings):
                _add(point, text.distances(text.view(one.texts, reading)))
            _add(scored[len(tested)], text.floor)
        compared = {"texts": text.size} | embed[1]
    if chosen.distances and beside.training is not None:
        _add_memorisation(
            scored, readings, model_rows=[one.rows for one in every], training=beside.training, terminal=terminal
        )
    reals = scored[len(tested)] if real is not None else None
    curve = [
        (p["way"]["temperature"], r)
        for p, r in zip(scored, readings[: len(sets)])
        if any(p is q for q in sweep.curves_of(scored[: len(sets)], "frontier").get("temperature", ()))
    ]
    at = sweep.matched([t for t, _ in curve], [r for _, r in curve], beside_real) if beside_real and curve else None
    of_cheats = [
        {"name": cheat.name} | point
        | ({"fools": fooled(_numbers(point), _numbers(reals))} if reals is not None else {})
        for cheat, point in zip(more, scored[len(sets) :])
    ]  # fmt: skip
    return {
        "points": scored[: len(sets)], "real": None if reals is None else {"name": beside.name} | reals,
        "cheats": of_cheats, "compared": compared,
        "matched": None if at is None else at.to_dict(), "curve": bool(curve),
    }  # fmt: skip


def _add(point: dict[str, Any], numbers: dict[str, Any]) -> None:
    from ...evaluation.metrics import as_json

    point["measures"] |= as_json(numbers)


def _add_memorisation(
    scored: list[dict[str, Any]], readings: "list[Judged]", model_rows: list[Any], training: Any, terminal: Terminal
) -> None:
    """Of all sets in one pass over the training set; of those in the model's tokens."""
    from ...evaluation.memorisation import longest
    from ...evaluation.metrics import measure

    rows = [[*each] if each is not None else [] for each, _ in zip(model_rows, scored)]
    with Bar(terminal, "search", 1, "rows") as bar:
        runs = longest(
            [row for each in rows for row in each], training, lambda done, total: bar.update(done, total=total)
        )
    at = 0
    for point, each in zip(scored, rows):
        if each:
            _add(point, measure(runs=runs[at : at + len(each)]))
        at += len(each)


def _numbers(point: dict[str, Any]) -> dict[str, Any]:
    from ...evaluation.sweep import measure_of

    return {name: measure_of(point, name) for name in point["measures"]}
