"""Notes of a training: its heading, its end, and what config.json holds beside the choices."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data import Corpus, Rows
from ..methods.method import Method
from ..models import published
from ..models.config import Config, Train
from ..models.decoding import described
from ..models.ends import lengths_given
from ..show.numbers import count, counted, parameters, path
from ..show.record import versions
from . import logger
from .device import Fleet, cuda, precision
from .order import epochs
from .setup import NUMBERS, WHERE, typed


def about_run(
    about: dict[str, Any], corpus: Corpus, method: Method, changes: dict[str, Any], step: int
) -> dict[str, Any]:
    """Entries of config.json beside the choices."""
    now = {
        "parameters": method.parameter_count,  # of a tuned model `tune` counts them
        "vocabulary": corpus.tokenizer.size,
        "data": corpus.about | ({"lengths": lengths} if (lengths := lengths_given(method, corpus)) else {}),
        "versions": versions(),
        "command": logger.typed_command(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "changes": [],
    }
    about = now | {k: v for k, v in about.items() if k not in ("versions", "step")}
    if changes:
        about["changes"] = [*about["changes"], {"step": step, **changes}]
    return about


def heading(config: Config, method: Method, corpus: Corpus, about: dict[str, Any], fleet: Fleet, folder: Path) -> str:
    """The three lines with which a run begins: the model, the data, the folder."""
    t, n = config.train, config.net
    kind = "GPU" if cuda(config) else "CPU"
    where = counted(fleet.devices, kind) if kind == "GPU" or fleet.world > 1 else kind
    where = f"{fleet.nodes} nodes of {where}" if fleet.nodes > 1 else where
    blocks = str(n) if n.is_unet else counted(n.layers, "layer")
    blocks = f"an own network ({config.network})" if config.network else blocks
    classes = counted(n.classes, "class", "classes") if n.classes else ""
    ema = "EMA" if t.ema else "no EMA"
    tokenizer, train, validation = corpus.tokenizer, corpus.train, corpus.validation
    if tokenizer.shape:
        rows = f"{tokenizer.describe()}; {count(len(train))} for training, {count(len(validation))} for validation"
    else:
        rows = (
            f"{tokenizer.name}, vocabulary {count(tokenizer.size)} + mask; "
            f"{count(train.tokens_total)} tokens for training, {count(validation.tokens_total)} for validation"
        )
    wide = max(len(config.method), len(config.data.name), 3) + 2
    model = [
        method.discrete_time,
        parameters(about["parameters"]),
        blocks,
        classes,
        f"length {n.length}",
        precision(config),
        where,
        ema,
        f"seed {t.seed}",
    ]
    lines = [
        (config.method, ", ".join(filter(None, model))),
        (config.data.name, rows),
        *(("", line) for line in _tuned(config, about)),
        *(("", line) for line in mixed(corpus, t)),
        *(("", line) for line in left_out(corpus)),
        ("run", f"{path(folder)}: validates {_every(t.validate_every)}, saves {_saves(t)}"),
    ]
    return "\n".join(f"{name:<{wide}}{text}" for name, text in lines)


def _tuned(config: Config, about: dict[str, Any]) -> list[str]:
    """Of a tuned model, what is trained."""
    if not config.adapter:
        return []
    a = config.adapter
    return [
        f"LoRA of rank {a.rank} beside {', '.join(a.targets)}: {parameters(about['trained'])} are trained",
        f"base: {path(config.train.start)}",
    ]


def mixed(corpus: Corpus, t: Train) -> list[str]:
    """Of a mixture: the share of each source, how often the run goes through it, and what the validation is of."""
    if "mix" not in corpus.about:
        return []
    passes = epochs(corpus.train.sources, t.steps * t.batch)
    shares = [
        f"{name} {of['share']:.4g} ({often:.2g} epochs)"
        for (name, of), often in zip(corpus.about["mix"].items(), passes)
    ]
    return [f"mix: {', '.join(shares)}", "validation and test are pooled: each row of each source counts once"]


def left_out(corpus: Corpus) -> list[str]:
    """Which splits are one's own, what was read and what was not, what no row holds, which documents were cut
    to fit: a line each, none where there is none."""
    lines = [corpus.about["taken"]] if "taken" in corpus.about else []
    lines += [f"read: {note}" for note in corpus.about.get("read", [])]
    lines += [f"left out: {note}" for note in corpus.about.get("left_out", [])]
    lines += [] if (losses := corpus.train.losses).lossless else [f"per token, {losses}"]
    for entry, text in (
        ("left_out", "left out: {} at the end, too few for a sequence"),
        ("cut", "cut into pieces: {} longer than a row"),
    ):
        numbers = {name: split[entry] for name, split in corpus.about["splits"].items() if split.get(entry)}
        if numbers:
            noun = counted(sum(numbers.values()), "token" if entry == "left_out" else "document")
            lines.append(f"{text.format(noun)} ({', '.join(f'{name} {count(n)}' for name, n in numbers.items())})")
    return lines


def _every(steps: int) -> str:
    return f"every {counted(steps, 'step')}" if steps > 1 else "every step" if steps else "at the end"


def _saves(t: Train) -> str:
    minutes = f"every {t.save_minutes:g} minutes" if t.save_minutes else ""
    steps = _every(t.save_every) if t.save_every else ""
    return " and ".join(x for x in (steps, minutes) if x) or "at validations"


def ending(config: Config, block: int) -> str:
    """Note on a model in whose training no document ends within a block; "" where it learns to end."""
    if (
        config.data.pack == "wrap"
        or (fill := config.data.fill or 0) >= config.net.length
        or max(fill, 1) % (block or 1) == 0
    ):
        return ""
    return (
        f"note: documents end with a shorter block, so that texts rarely end within one; `data.fill` {block} teaches it"
    )


def exporting(config: Config) -> str:
    """Note on a text model that no published layout can describe, though there is one of its method; else ""."""
    layouts = published.plugin()
    parts = "" if config.network or config.net.grid or config.net.is_unet else layouts.unpublished(config.net)
    if not parts or not (names := layouts.fitting(config)):
        return ""
    return (
        f"note: no published format has {parts}: this model can be exported with zellige export --to hub, not as "
        f"{' or '.join(names)}"
    )


def sampling(defaults: Mapping[str, Any]) -> str:
    """Note on the defaults by which the trained model is sampled; "" without any."""
    if not defaults:
        return ""
    return (
        f"note: samples are drawn by {described(defaults)}; zellige sample --no-defaults draws from the model's own "
        "distribution, which the bound is about"
    )


def resumed(step: int, config: Config, rows: Rows, changes: dict[str, list[Any]]) -> str:
    """Where a run goes on, and with what it does so."""
    t = config.train
    epoch, position = divmod(step * t.batch, len(rows))
    where = f"epoch {count(epoch)}, batch {count(position // t.batch)} of {count(max(len(rows) // t.batch, 1))}"
    if len(passes := epochs(rows.sources, step * t.batch)) > 1:
        where = f"epochs of the sources: {', '.join(f'{often:.2g}' for often in passes)}"
    lines = [f"resumed at step {count(step)} of {count(t.steps)} ({where})"]
    for name, (before, now) in changes.items():
        lines.append(f"  changed: `{name}` {typed(now)} (was {typed(before)})")
    names = {f.removeprefix("train.") for f in changes}
    # drawn for each part of a step; of an own network it is not known
    drawn = config.network or config.net.dropout or config.net.self_condition or getattr(config.adapter, "dropout", 0)
    if not (names & NUMBERS or (drawn and names & WHERE)):
        rounding = ", up to rounding" if names & WHERE else ""
        lines.append(f"  data order, optimizer, EMA and random state restored: same numbers as unbroken{rounding}")
    return "\n".join(lines)
