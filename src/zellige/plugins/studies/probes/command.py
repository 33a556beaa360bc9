"""`zellige evaluate --probe`: classifiers in a model's features, GLUE too."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zellige.base.errors import InputError
from zellige.base.files import file_suffix
from zellige.base.requests import declared, inline
from zellige.cli.common import OfModel, load, of_model, write_result
from zellige.cli.evaluate_again import Mode
from zellige.show.numbers import columns, paragraph, pm
from zellige.show.progress import one_bar_each
from zellige.show.terminal import Terminal

from .requests import EvaluateGlue, EvaluateProbe

if TYPE_CHECKING:
    from .fine_tuning import Protocol
    from .glue import GlueRecord
    from .probe import ProbeRecord


@declared
class ProbeOptions(OfModel):
    usage = "RUN --probe ag_news [options]"

    request: EvaluateProbe = inline(default=EvaluateProbe())


@declared
class GlueOptions(OfModel):
    usage = "RUN --probe glue [options]"

    request: EvaluateGlue = inline(default=EvaluateGlue())


def probe(chosen: ProbeOptions | GlueOptions, words: Sequence[str], terminal: Terminal) -> "ProbeRecord | GlueRecord":
    """The record of what is asked for; each classifier has a bar of its own."""
    if not chosen.run:
        raise InputError(f"evaluate needs a run; e.g. zellige evaluate runs/demo --probe {chosen.request.probe}")
    model = load(terminal, chosen.run, "evaluate", chosen)
    with one_bar_each(terminal) as show:
        return replace(chosen.request, progress=show).run(model)


def describe_probe(record: "ProbeRecord") -> list[str]:
    """The lines that are printed: model and texts, accuracies, what training brings, the protocol."""
    about, protocol = record.about, record.protocol
    lines = [
        f"{of_model(about)}, trained on {about['trained on']}",
        f"{about['data']}: {protocol.texts}; {protocol.length}",
        "",
    ]
    rows = [("classifier", "accuracy (95%, Wilson)", "chosen")]
    rows += [(row.name, str(row.accuracy), row.chosen) for row in record.rows]
    lines += [*columns(rows, "<<<", indent=2, gap=3), ""]
    rows = [("difference, on the same texts", "points (95%)")]
    rows += [(gain.name, pm(100 * gain.value, 100 * gain.half, 1)) for gain in record.differences]
    lines += columns(rows, "<>", indent=2, gap=3)
    if record.folds:
        rows = [(f"over {len(record.folds[0].accuracies)} folds", "mean", "lowest", "highest")]
        shown = lambda share: f"{100 * share:.1f}%"  # noqa: E731
        rows += [(f.name, shown(f.mean), shown(min(f.accuracies)), shown(max(f.accuracies))) for f in record.folds]
        lines += ["", *columns(rows, "<>>>", indent=2, gap=3)]
    return [*lines, "", *_protocol_lines(protocol, protocol.features, protocol.regression)]


def save_probe(record: "ProbeRecord", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the options that are not the default's stand in its name."""
    request: EvaluateProbe = record.request  # pyright: ignore[reportAssignmentType]
    values = request.changed("linear", "layer", "epochs", "rate", "seed", "folds")
    if request.linear:
        values.pop("epochs", None)
    write_result(terminal, folder / f"probe-{request.probe}{file_suffix(**values)}.json", record.to_dict())


def describe_glue(record: "GlueRecord") -> list[str]:
    """The lines that are printed: the model, a row for each task and split, their mean, the protocol."""
    about, protocol = record.about, record.protocol
    rows = [("task", "metric", "x 100 (95%, bootstrap)", "trained on", "judged on", "others")]
    rows += [
        (
            row.name,
            row.metric,
            pm(100 * row.value, 100 * row.half, 2),
            f"{row.train:,}",
            f"{row.judged:,}",
            ", ".join(f"{name} {100 * value:.2f}" for name, value in row.others.items()) or "-",
        )
        for row in record.rows
    ]
    lines = [f"{of_model(about)}, trained on {about['trained on']}", "", *columns(rows, "<<>>><", indent=2, gap=3)]
    if len(record.rows) > 1:
        lines += ["", f"  mean of {len(record.rows)}: {100 * record.mean:.2f}"]
    cut = sum(row.cut for row in record.rows)
    inputs = protocol.input + (f" ({cut:,} cut)" if cut else "")
    return [*lines, "", *_protocol_lines(protocol, inputs, protocol.features)]


def _protocol_lines(protocol: "Protocol", *parts: str) -> list[str]:
    """The protocol in words; `parts` of it stand in the middle."""
    words = [protocol.name, protocol.data, *parts, protocol.fine_tuning, protocol.class_, f"seed {protocol.seed}"]
    return paragraph("protocol", ", ".join(filter(None, words)))


def save_glue(record: "GlueRecord", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the options that are not the default's stand in its name."""
    request: EvaluateGlue = record.request  # pyright: ignore[reportAssignmentType]
    values = request.changed("epochs", "rate", "batch", "seed")
    name = record.about["data"].replace(":", "-")
    write_result(terminal, folder / f"probe-{name}{file_suffix(**values)}.json", record.to_dict())


GLUE = Mode(
    EvaluateGlue,
    GlueOptions,
    "evaluate --probe glue",
    "Fine-tune on GLUE: accuracy, F1 and correlations.",
    probe,
    describe_glue,
    save_glue,
)

PROBE = Mode(
    EvaluateProbe,
    ProbeOptions,
    "evaluate --probe",
    "Classify by the hidden states (also: --probe glue).",
    probe,
    describe_probe,
    save_probe,
    others={"glue": GLUE},
)
