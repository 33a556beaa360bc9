"""Sections of the page of a run: its facts, its results, its configuration, and samples as their kind shows them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from zellige.base.schema import read_lines
from zellige.data.rows import Rows
from zellige.evaluation.result import Result
from zellige.models.checkpoint.layout import sample_files
from zellige.models.decoding import as_watched, described
from zellige.models.model import Model
from zellige.sampling.masked_text import approximate
from zellige.sampling.sample import watch
from zellige.show.kinds import Modality, of
from zellige.show.numbers import byte_size, count, duration, flop_rate, parameters, percent, token_rate
from zellige.show.numbers import path as shown_path
from zellige.training.run import HEAD

from . import page
from .figures import TrainingLog, terms


def run_facts(
    log: TrainingLog, unit: str, config: Mapping[str, Any], model: Model | None, result: Result | None
) -> list[str]:
    """Facts under the title: the number, the size, how long it took."""
    facts = []
    has_validation = np.isfinite(log.validation)
    if result:
        part = f", a partial result: {page.esc(result.judged)}" if result.partial else ""
        facts.append(f"<b>{page.esc(str(result))}</b> test{part}")
    elif has_validation.any():
        best = np.flatnonzero(has_validation)[log.validation[has_validation].argmin()]
        values = (float(series[best]) for series in (log.validation, log.validation_low, log.validation_high))
        value, low, high = values
        method = getattr(model, "method", None)
        kind = "bound" if method is None else "exact" if method.exact else "bound" if method.bounded else "loss"
        formats = page.esc(str(Result(value, low, high, unit or "nats/token", kind)))
        facts.append(f"<b>{formats}</b> validation, step {count(int(log.step[best]))}")
    if model is not None:
        facts.append(parameters(model.method.parameter_count))
    if len(log.step):
        step, steps = int(log.step[-1]), (config.get("train") or {}).get("steps")
        facts.append(f"{count(step)} steps" if steps in (None, step) else f"{count(step)} of {count(steps)} steps")
        if np.isfinite(log.seconds).any():
            facts.append(duration(float(np.nanmax(log.seconds))))
    use = lambda share: f"{percent(share)} MFU"  # noqa: E731
    formats = {"tokens_per_second": token_rate, "flops_per_second": flop_rate, "utilisation": use}
    facts += [text(float(np.nanmedian(log[name]))) for name, text in formats.items() if np.isfinite(log[name]).any()]
    if np.isfinite(log.flops_per_second).any():
        facts[-1] += f" ({HEAD})"
    if np.isfinite(log.peak_memory).any():
        facts.append(f"peak {byte_size(float(np.nanmax(log.peak_memory)))}")
    return facts


def evaluation_part(path: Path, result: Result) -> str:
    """A result: its terms, its protocol, the command that shows it."""
    loss = result.kind == "loss"  # no nats, and no perplexity
    rows = [(name, f"{value:,.3f}") for name, value in result.terms.items()]
    rows.append(("total", f"{sum(result.terms.values()):,.3f}"))
    perplexity = "" if loss else f"perplexity {result.perplexity_text}"
    draws = ", exact for each" if result.kind == "exact" else f" x {result.draws} draws"
    part = [f"a partial result: {result.judged}"] if result.partial else []
    facts = (str(result), *([perplexity] if perplexity else []), f"{count(result.sequences)} sequences{draws}", *part)
    bar = ""
    if len(result.terms) > 1:
        text = "The whole bar is the total."
        bar = page.html_figure(terms(result.terms), f"{path.stem}-terms", "Terms of the bound", text)
    return (
        f"<h3>{page.esc(path.stem.removeprefix('evaluate-'))}</h3>{page.html_line(facts)}"
        + bar
        + f'<div class="pair"><div>{page.html_table(rows, ("term", "a sequence" if loss else "nats/sequence"))}</div>'
        + f"<div>{page.html_table(page.flat(result.protocol), ('protocol', ''), numbers=False)}</div></div>"
        + page.html_code(f"zellige evaluate --from {shown_path(path)}")
    )


def configuration_part(config: Mapping[str, Any], model: Model | None) -> str:
    """The command, what is known of the run and its machine, and config.json."""
    about = {**(config.get("about") or {}), **(getattr(model, "about", None) or {})}
    command, seed = about.pop("command", None), (config.get("train") or {}).get("seed")
    groups = {name: value for name, value in about.items() if isinstance(value, Mapping)}
    alone = {name: value for name, value in about.items() if name not in groups and value not in (None, "", [])}
    groups["run"] = alone | ({} if seed is None else {"seed": seed})
    tables = [
        f"<div><h3>{page.esc(name)}</h3>{page.html_table(page.flat(group), numbers=False)}</div>"
        for name, group in groups.items()
        if group
    ]
    settings = {name: value for name, value in config.items() if name != "about"}
    return (
        (page.html_code(str(command)) if command else "")
        + f'<div class="flow">{"".join(tables)}</div>'
        + page.html_folded("config.json", page.html_code(json.dumps(settings, indent=2, ensure_ascii=False)))
    )


STILLS = (0, 0.25, 0.5, 0.75, 1)  # of the way: what is seen in print, and without scripts


class ValidationSample(TypedDict):
    """A line of samples/step-000500.jsonl."""

    text: str
    tokens: list[int]


def validation_samples(folder: Path, model: Model | None, most: int = 4) -> str:
    """Samples of the first and of the last validation, side by side. InputError where a file of them is damaged."""
    files = sample_files(folder)
    columns: dict[str, list[dict[str, Any]]] = {}
    for path in dict.fromkeys(files[:1] + files[-1:]):
        rows = [row for _, row in read_lines(path, ValidationSample, "copy the run again, or remove the file")]
        columns[f"step {count(int(path.stem.rpartition('-')[2]))}"] = rows[:most]
    if not columns:
        return page.html_note("no samples yet: they are drawn at each validation")
    kind = None if model is None else of(model.tokenizer)
    if kind is None or kind.running:
        return page.html_samples(columns)
    labels = {name: ", ".join(row["class"] for row in rows if row.get("class")) for name, rows in columns.items()}
    titles = {name: f"{name}, classes {labels[name]}" if labels[name] else name for name in columns}
    return page.html_pictures(
        {titles[name]: kind.png([row["tokens"] for row in rows]) for name, rows in columns.items()}
    )


def by_defaults(model: Model | None) -> str:
    """The model's sampling defaults, where it has any, in a sentence."""
    if model is None or not model.defaults:
        return ""
    return (
        f"The samples are drawn by the model's defaults: {described(as_watched(model.defaults))}; zellige sample "
        "--no-defaults draws from its own distribution, which the bound is about."
    )


def stills(kind: Modality, frames: Sequence[Any]) -> str:
    """The first sample at five of its steps, one picture."""
    at = [round((len(frames) - 1) * part) for part in STILLS]
    captions = [f"step {frames[k].step}" for k in at]
    return page.html_picture(kind.png([frames[k].x[0].tolist() for k in at], None, captions), ", ".join(captions))


def infilled(
    model: Model, rows: Rows, steps: int, seed: int, most: int, passed: Callable[[int], None] = lambda rows: None
) -> str:
    """Rows of the data of which a part was given, filled in by the model, beside the truth; at most so many are drawn.

    passed: called with the rows that the network was asked about.
    """
    kind = of(model.tokenizer)
    across = kind.name != "roll"  # a roll is as wide as the page
    per_row = 2 if across and most > 1 else 1
    number = min(len(rows), max(1, most // per_row)) if across else 1
    indices = np.linspace(0, len(rows) - 1, number).astype(int).tolist()
    truth = np.stack([rows[i]["tokens"].numpy() for i in indices])
    given_tokens = np.stack(
        [kind.given(row) if rows.clues is None else rows.clues[i] for i, row in zip(indices, truth)]
    )
    frames = []
    for frame in watch(
        model, fixed=given_tokens, count=per_row * len(given_tokens), steps=steps, seed=seed, defaults=False
    ):
        passed(len(frame.x))
        frames += [frame] if frame.step == frame.steps else []
    samples = np.concatenate([kind.rows(f.x) for f in frames]).reshape(len(given_tokens), per_row, -1)
    panels = np.concatenate([given_tokens[:, None], samples, truth[:, None]], 1).reshape(-1, truth.shape[-1])
    is_fixed = np.repeat(given_tokens >= 0, per_row + 2, 0)
    captions = ["given", *["filled"] * per_row, "truth"]
    text = f"{', '.join(captions[:-1])} and {captions[-1]}, {'from left to right' if across else 'from above'}."
    verdicts = [kind.verdict(row) for row in samples.reshape(-1, truth.shape[-1])]
    if any(verdicts):
        valid = int(kind.valid(samples.reshape(-1, truth.shape[-1])).sum())
        text += f" {valid} of {len(verdicts)} are valid; what stands twice in a row, a column or a box is shaded."
    if note := approximate(model):
        text += f" {note[:1].upper()}{note[1:]}."
    return page.html_picture(kind.png(panels, is_fixed, captions), text, "A part given, the rest filled in")
