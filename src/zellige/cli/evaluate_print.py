"""A printed likelihood, with its terms and its protocol."""

import contextlib
import os
import textwrap
from pathlib import Path

from ..base.errors import InputError
from ..evaluation.evaluate import PROTOCOL
from ..evaluation.interval import FREEDOM, Proportion
from ..evaluation.result import Result
from ..show.numbers import columns, count, counted, half_width, paragraph, path, percent, perplexity, quantity
from ..show.terminal import Terminal
from ..show.units import unit_of
from .common import of_model


def heading(result: Result) -> list[str]:
    """Heading: the model and the data."""
    about = result.about
    if not about:
        return []
    noun = result.per
    texts = f"{counted(result.sequences, 'sequence')} of {count(about['length'])}"
    note = f", evenly spaced among {count(about['texts'])}" if result.partial else ""
    return [
        of_model(about),
        f"{about['data']} {about['split']}: {counted(round(result.units), noun)} in {texts}{note}",
        "",
    ]


def describe(result: Result) -> list[str]:
    """The lines that `zellige evaluate` prints under its heading: terms, number, where its width comes from,
    protocol."""
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
    label += f" given {p['given']}" if "given" in p else ""
    lines += ["", f"  {result}{label}" + ("" if loss else f"   perplexity {result.perplexity_text}")]
    if result.partial:
        lines.append(f"    a partial result: {result.judged}")
    if (bits := result.per_character) is not None:
        text = quantity(bits.value, bits.half, unit_of(bits.unit).title, result.kind)
        lines.append(f"  {text}   {result.about['characters_per_token']:.3f} characters a token")
        if (bits := result.per_word) is not None:
            text = quantity(bits.value, bits.half, unit_of(bits.unit).title, result.kind)
            lines.append(f"  {text}   {1 / result.about['words_per_unit']:.3f} tokens a word")
    if result.document is not None:
        lines.append(f"  {result.document}   {counted(round(result.document.units), 'document')}")
    if not loss:
        lines += _both(result)
        lines += _indented(_bounded_samplers(result))
    counts = f"    {count(result.sequences)} sequences x {counted(result.draws, 'draw')}"
    if result.undetermined:
        lines += _indented(f"{counts.strip()}; the interval is {result.undetermined}")
    elif result.kind == "exact":
        lines.append(f"    {counted(result.sequences, 'sequence')}; exact for each: the interval is that of the texts")
    elif result.draws == 1:
        lines.append(f"{counts}; --draws 2 or more shows how much of the interval is from the draws")
    elif result.between is None:
        lines.append(f"{counts}: no interval over the draws alone, as that needs")
        has = "" if result.freedom is None else f" and has {result.freedom}"
        lines.append(f"    {FREEDOM} degrees of freedom{has}; take more texts or draws")
    else:
        lines.append(f"{counts}; {percent(result.between)} of the variance lies between the texts,")
        half = half_width(result.floor)
        share = percent(1 - result.between)
        lines += _indented(f"{share} in the draws: ever more draws would narrow the interval to about ± {half}")
    protocol = [str(p[key]) for key in ("packing", "tokenizer", "separators", "time", "class") if key in p]
    protocol += [f"{key} {p[key]}" for key in ("network", "bound", "trained by") if key in p]
    protocol += [f"averaged over {count(p['symmetries'])} symmetries"] if "symmetries" in p else []
    protocol += [f"{p['weights']} weights"] if "weights" in p else []
    text = f"{p.get('name', PROTOCOL)}: {', '.join([*protocol, f'seed {result.seed}'])}"
    lines += ["", *paragraph("protocol", text)]
    return lines


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent="    ", subsequent_indent="    ")


def tasks(shares: dict[str, Proportion]) -> list[str]:
    """The lines below them, of what the data's task asks (`evaluation.tasks`)."""
    rows = [(name, str(share), f"{count(share.right)} of {count(share.total)}") for name, share in shares.items()]
    return ["", *columns([("task", "share [95%]", ""), *rows], "<<<", indent=2, gap=4)] if rows else []


def _bounded_samplers(result: Result) -> str:
    """The samplers whose samples the number bounds."""
    names = result.protocol.get("bounds samples of")
    if names is None:
        return ""
    if not names:
        return "holds for the samples of no sampler here"
    verb = "-log p of" if result.kind == "exact" else "holds for"
    few = "" if "ancestral" in names else "; for ancestral in T steps: --steps T"
    has_steps = "steps" in str(result.protocol.get("time"))
    return f"{verb} samples of {', '.join(names)}{'' if has_steps or result.kind == 'exact' else few}"


def _both(result: Result) -> list[str]:
    """The two intervals by their names, and the other perplexity."""
    if result.undetermined:
        return []
    if result.kind == "exact":
        rest = "; for these texts it is exact"
    elif result.between is None:
        rest = " and draws"
    else:
        rest = f", ± {half_width(result.draws_half)} over draws of these texts"
    lines = [f"    ± {half_width(result.half)} over the population of texts{rest}"]
    per_sequence = result.per_sequence
    if per_sequence is not None:
        mean = perplexity(per_sequence.value, per_sequence.half, result.per, result.kind)
        lines.append(f"    mean perplexity per sequence {mean} (above: corpus)")
    return lines


def write(folder: Path, result: Result, terminal: Terminal) -> Path:
    """Write a result into a run; one that is there under its name, and is fuller or of other choices,
    is renamed before."""
    file = folder / result.file_name
    with contextlib.suppress(InputError):  # nothing there, or nothing that is a result
        before = Result.from_json(file)
        fewer = result.kind != "exact" and before.draws > result.draws
        fuller = fewer or before.sequences > result.sequences
        own_file = folder / before.file_name
        if own_file == file and fuller:
            own_file = file.with_name(f"{file.stem}-of-{before.sequences}.json")
        if own_file != file and not own_file.exists():
            os.replace(file, own_file)
            terminal.note(f"the {'fuller' if fuller else 'other'} result that was there is now {path(own_file)}")
    result.save(file)
    return file
