"""`zellige evaluate RUN --pairs FILE`: its options, what it prints and writes."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zellige.base.errors import InputError
from zellige.base.files import file_suffix
from zellige.base.requests import declared, inline
from zellige.cli.common import OfModel, bars, load, of_model, write_result
from zellige.cli.evaluate_again import Mode
from zellige.show.numbers import counted, half_width, paragraph
from zellige.show.terminal import Terminal

from .request import EvaluatePairs

if TYPE_CHECKING:
    from .choices import ChoiceScores


@declared
class PairsOptions(OfModel):
    usage = "RUN --pairs FILE.jsonl [options]"

    request: EvaluatePairs = inline(default=EvaluatePairs())


def pairs(chosen: PairsOptions, words: Sequence[str], terminal: Terminal) -> "ChoiceScores":
    """`zellige evaluate RUN --pairs FILE`"""
    if not chosen.run:
        raise InputError("evaluate needs a run; e.g. zellige evaluate runs/demo --pairs pairs.jsonl")
    with terminal.waiting("loading"):
        chosen.request.questions()  # before a model is loaded
    model = load(terminal, chosen.run, "evaluate", chosen)
    with bars(terminal) as show:
        return replace(chosen.request, progress=show("pairs", "rows")).run(model)


def save_pairs(judged: "ChoiceScores", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the name has every choice that is not the default's, and is not that of other pairs."""
    from zellige.evaluation.result import loaded

    request, about = judged.request, judged.about
    assert isinstance(request, EvaluatePairs)
    changed = request.changed("prefix", "draws", "seed", "classes", "unconditional")
    choices = {"class" if name == "classes" else name: value for name, value in changed.items()}
    suffix = file_suffix(**choices, **loaded(about, judged.result.protocol))
    file = folder / f"pairs-{Path(request.pairs).stem}{suffix}.json"
    with contextlib.suppress(InputError):  # nothing there, or nothing that is a result
        if judged.from_json(file).about.get("sha256") != about["sha256"]:
            file = file.with_name(f"{file.stem}-{about['sha256'][:8]}.json")
    write_result(terminal, file, judged.to_dict())


def describe_pairs(judged: "ChoiceScores") -> list[str]:
    """Printed lines: the data, the mean, the population of its interval, the accuracies, the protocol."""
    result, about, p = judged.result, judged.result.about, judged.result.protocol
    lines = [
        of_model(about),
        f"{Path(about['data']).name}: {counted(about['pairs'], 'pair')}, {counted(round(result.units), 'token')} to "
        "predict",
        "",
        f"  {result}{' ' + p['class'] if 'class' in p else ''}   perplexity {result.perplexity_text}",
    ]
    if result.kind == "exact":
        lines.append("    exact for each pair: the interval is that of other pairs of the same kind")
    elif result.draws == 1:
        lines.append("    ± over other pairs of the same kind; with --draws 2 or more also over the draws")
    elif judged.drawn == math.inf:
        lines.append("    ± over other pairs of the same kind; too few replicates for one over draws")
    else:
        half = half_width(judged.drawn)
        lines.append(f"    ± over other pairs of the same kind; over other draws for these pairs: ± {half}")
    if judged.accuracy is not None:
        lines += [
            f"  accuracy {judged.accuracy} (95%, Wilson) by nats",
            f"  accuracy {judged.normalised} (95%, Wilson) by nats per character",
        ]
    if judged.note:
        lines += paragraph("note", judged.note)
    protocol = f"{p['name']}: {p['estimator']}; {counted(result.draws, 'draw')} a pair ({p['strata']}), network {p['network']}, "
    protocol += f"{p['weights']} weights, "
    protocol += "".join(f"{p[key]}, " for key in ("tokenizer", "class") if key in p)
    protocol += f"seed {p['seed']}"
    return [*lines, "", *paragraph("protocol", protocol)]


PAIRS = Mode(
    EvaluatePairs,
    PairsOptions,
    "evaluate --pairs",
    "Score given continuations and choose between them.",
    pairs,
    describe_pairs,
    save_pairs,
)
