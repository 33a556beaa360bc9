"""How a likelihood is printed: what was judged, its terms, the number, where its width comes from, the protocol."""

import contextlib
import math
import os
import textwrap
from pathlib import Path

from ..errors import InputError
from ..evaluation.evaluate import PROTOCOL
from ..evaluation.interval import FREEDOM, Proportion
from ..evaluation.result import Result
from ..show.numbers import columns, count, counted, path, percent, pm, quantity
from ..show.terminal import Terminal
from .common import of_model


def heading(result: Result) -> list[str]:
    """What was judged, on what."""
    about = result.about
    if not about:
        return []
    noun = result.per
    texts = f"{counted(result.sequences, 'sequence')} of {count(about['length'])}"
    some = f", evenly spaced among {count(about['texts'])}" if result.partial else ""
    return [
        of_model(about),
        f"{about['data']} {about['split']}: {counted(round(result.units), noun)} in {texts}{some}",
        "",
    ]


def describe(result: Result) -> list[str]:
    """The lines that `zellige evaluate` prints under its heading: terms, number, where its width comes from, protocol."""
    p = result.protocol
    per_sequence = result.units / max(result.sequences, 1)
    loss = result.kind == "loss"  # no nats, and no perplexity
    rows = [("term", "a sequence" if loss else "nats/sequence", f"per {result.per}" if loss else result.unit)]
    total = 0.0
    for name, nats in result.terms.items():
        rows.append((name, f"{nats:.3f}", f"{nats / per_sequence / result.scale:.3f}"))
        total += nats
    if len(result.terms) > 1:
        rows.append(("total", f"{total:.3f}", f"{total / per_sequence / result.scale:.3f}"))
    lines = columns(rows, "<>>", indent=2, gap=4)
    label = f" {p['class']}" if "class" in p else ""
    lines += ["", f"  {result}{label}" + ("" if loss else f"   perplexity {result.perplexity_text}")]
    if result.partial:
        lines.append(f"    a partial result: {result.partial}")
    if (each := result.about.get("characters_per_token")) and not loss:  # comparable with any model of characters
        value, half = (nats / math.log(2) / each for nats in (result.value, result.half))
        lines.append(f"  {quantity(value, half, 'bits/char', result.kind)}   {each:.3f} characters a token")
    if result.document is not None:
        lines.append(f"  {result.document}   {counted(round(result.document.units), 'document')}")
    if not loss:
        lines += _both(result)
        lines += textwrap.wrap(_law(result), 80, initial_indent="    ", subsequent_indent="    ")
    drawn = f"    {count(result.sequences)} sequences x {counted(result.draws, 'draw')}"
    if result.undetermined:
        lines += textwrap.wrap(
            f"{drawn.strip()}; the interval is {result.undetermined}",
            80,
            initial_indent="    ",
            subsequent_indent="    ",
        )
    elif result.kind == "exact":
        lines.append(f"    {counted(result.sequences, 'sequence')}; exact for each: the interval is that of the texts")
    elif result.draws == 1:
        lines.append(f"{drawn}; with --draws 2 or more it is known how much of the interval the draws make")
    elif result.between is None:
        lines.append(f"{drawn}; the draws' own interval needs {FREEDOM} degrees of freedom,")
        lines.append(f"    {_freedom(result)}: more texts or more draws give it")
    else:
        lines.append(f"{drawn}; {percent(result.between)} of the variance lies between the texts,")
        half = pm(0, result.floor).partition("± ")[2]
        text = (
            f"{percent(1 - result.between)} in the draws: ever more draws would narrow the interval to about ± {half}"
        )
        lines += textwrap.wrap(text, 80, initial_indent="    ", subsequent_indent="    ")
    protocol = [str(p[key]) for key in ("packing", "separators", "time", "class") if key in p]
    protocol += [f"{key} {p[key]}" for key in ("network", "bound") if key in p]
    protocol += [f"{p['weights']} weights"] if "weights" in p else []
    text = f"{p.get('name', PROTOCOL)}: {', '.join([*protocol, f'seed {result.seed}'])}"
    lines += ["", *textwrap.wrap(text, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)]
    return lines


def tasks(shares: dict[str, Proportion]) -> list[str]:
    """The lines below them, of what the data's task asks (`evaluation.tasks`)."""
    rows = [(name, str(share), f"{count(share.right)} of {count(share.total)}") for name, share in shares.items()]
    return ["", *columns([("task", "share [95%]", ""), *rows], "<<<", indent=2, gap=4)] if rows else []


def _law(result: Result) -> str:
    """Whose samples the number is about."""
    names = result.protocol.get("bounds samples of")
    if names is None:  # a result of before this was written down
        return ""
    if not names:
        return "bounds the samples of no sampler here"
    verb = "-log p of" if result.kind == "exact" else "bounds"
    few = "" if "ancestral" in names else "; of T steps: --steps T"
    timed = "steps" in str(result.protocol.get("time"))
    return f"{verb} samples of {', '.join(names)}{'' if timed or result.kind == 'exact' else few}"


def _both(result: Result) -> list[str]:
    """The two intervals by their names, and the other perplexity."""
    half, drawn = (pm(0, h).partition("± ")[2] for h in (result.half, result.draws_half))
    if result.undetermined:
        return []
    lines = [f"    ± {half} over the population of texts, ± {drawn} over draws of these texts"]
    if result.between is None:
        lines = [f"    ± {half} over the population of texts and draws"]
    if result.kind == "exact":
        lines = [f"    ± {half} over the population of texts; for these texts it is exact"]
    each = result.per_sequence
    if each is not None:
        mean = quantity(each.value, each.half, f"per {result.per}", result.kind)
        lines.append(f"    perplexity per sequence, mean {mean} (above: corpus)")
    return lines


def write(folder: Path, result: Result, terminal: Terminal) -> Path:
    """Write a result into a run; one that is there under its name, and is fuller or of other choices, is renamed before."""
    file = folder / result.file_name
    with contextlib.suppress(InputError):  # nothing there, or nothing that is a result
        before = Result.from_json(file)
        fewer = result.kind != "exact" and before.draws > result.draws
        fuller = fewer or before.sequences > result.sequences
        own = folder / before.file_name
        if own == file and fuller:
            own = file.with_name(f"{file.stem}-of-{before.sequences}.json")
        if own != file and not own.exists():
            os.replace(file, own)
            terminal.note(f"the {'fuller' if fuller else 'other'} result that was there is now {path(own)}")
    result.save(file)
    return file


def _freedom(result: Result) -> str:
    return "and these have fewer" if result.freedom is None else f"and these have {result.freedom}"
