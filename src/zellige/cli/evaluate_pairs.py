"""`zellige evaluate RUN --pairs FILE.jsonl`: how likely a text is after another, and which of several is."""

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ..errors import InputError
from ..show.numbers import counted, pm
from ..show.progress import Bar
from ..show.terminal import Terminal
from . import options
from .common import Document, OfRun, command_options, file_suffix, load, of_model, run_folder, write_result

if TYPE_CHECKING:
    from ..evaluation.choices import ChoiceScores


@command_options
class Pairs(OfRun):
    pairs: str = ""
    """a .jsonl with the fields context and continuation, or context, choices and answer; and class, if the model has classes"""
    draws: int = 32
    """draws of each pair"""
    batch: int = 64
    """rows in one call of the network; the numbers do not depend on it"""
    prefix: bool = False
    """the token that ends documents stands before each context"""
    classes: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """of a model with classes: that of all pairs, by name or number; the field class of each if not given, else none"""
    unconditional: bool = False
    """of a model with classes, tell it none"""


def pairs(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate RUN --pairs FILE`"""
    about = "-log p(continuation | context) of pairs in a file, and the accuracy of choices."
    chosen = options.parse(Pairs, words, "evaluate --pairs", about=about, most=1)
    if not chosen.run:
        raise InputError("evaluate needs a run; e.g. zellige evaluate runs/demo --pairs pairs.jsonl")
    if chosen.unconditional and chosen.classes is not None:
        raise InputError("--unconditional tells no class, and --class tells one; leave one of the two out")
    with terminal.waiting("loading"):
        from ..evaluation import choices

        records = choices.read_pairs(chosen.pairs)
    folder = run_folder(chosen.run) if write else None
    model = load(terminal, chosen.run, "evaluate", chosen)
    with Bar(terminal, "pairs", 1, "rows") as bar:
        judged = choices.score_choices(
            model, records, chosen.draws, chosen.seed, chosen.batch, prefix=chosen.prefix, label=chosen.classes,
            unconditional=chosen.unconditional, source=chosen.pairs,
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    for line in describe(judged):
        terminal.result(line)
    document = judged.to_dict(dataclasses.asdict(chosen))
    if folder is not None:
        draws = chosen.draws if chosen.draws != Pairs.draws else None
        classes = {"class": chosen.classes, "unconditional": chosen.unconditional}
        suffix = file_suffix(prefix=chosen.prefix, draws=draws, seed=chosen.seed or None, **classes)
        write_result(terminal, folder / f"pairs-{Path(chosen.pairs).stem}{suffix}.json", document)
    return document


def describe(judged: "ChoiceScores") -> list[str]:
    """What is printed: what was judged, the mean, over what its interval is, the accuracies, the protocol."""
    result, about, p = judged.result, judged.result.about, judged.result.protocol
    lines = [
        of_model(about),
        f"{Path(about['data']).name}: {counted(about['pairs'], 'pair')}, {counted(round(result.units), 'token')} to be said",
        "",
        f"  {result}{' ' + p['class'] if 'class' in p else ''}   perplexity {result.perplexity_text}",
    ]
    if result.kind == "exact":
        lines.append("    exact for each pair: the interval is that of other pairs of the same kind")
    elif result.draws == 1:
        lines.append("    of other pairs of the same kind; with --draws 2 or more it is known what the draws bring")
    elif judged.drawn == math.inf:
        lines.append("    of other pairs of the same kind; too few replicates to say what draws do")
    else:
        half = pm(0, judged.drawn).partition("± ")[2]
        lines.append(f"    of other pairs of the same kind; other draws for these very pairs: ± {half}")
    if judged.accuracy is not None:
        lines += [
            f"  accuracy {judged.accuracy} (95%, Wilson) by nats",
            f"  accuracy {judged.normalised} (95%, Wilson) by nats per character",
        ]
    if judged.note:
        lines += textwrap.wrap(judged.note, 80, initial_indent="  note      ", subsequent_indent=" " * 12)
    protocol = f"{p['name']}: {p['estimator']}; {counted(result.draws, 'draw')} a pair ({p['strata']}), network {p['network']}, "
    protocol += f"{p['weights']} weights, "
    protocol += f"{p['class']}, " if "class" in p else ""
    protocol += f"seed {p['seed']}"
    return [*lines, "", *textwrap.wrap(protocol, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)]
