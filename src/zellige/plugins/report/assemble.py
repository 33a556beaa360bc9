"""Page of a run: its files say what happened, its model gives samples and its integrand."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zellige.base.arguments import checked
from zellige.base.errors import InputError
from zellige.base.files import writable, write_file
from zellige.base.requests import Progress
from zellige.base.schema import read_json
from zellige.data.corpus import Corpus
from zellige.data.tokenizer_base import Tokenizer
from zellige.evaluation.result import Result, fullest
from zellige.methods.method import MIXTURE
from zellige.models.checkpoint.layout import CONFIG, EVALUATIONS, REPORT, folder_of_run
from zellige.models.model import Model, as_model
from zellige.show.kinds import of
from zellige.show.numbers import count, escape
from zellige.show.numbers import path as shown_path
from zellige.show.units import unit_of

from . import page
from .bracket import bracket_sections
from .figures import curves, extremes, learnt, loss_against_t, metrics, reveal_counts, revealed, schedule
from .sections import by_defaults, configuration_part, evaluation_part, infilled, run_facts, stills, validation_samples
from .trace import entropies, fewer, integrand, record
from .work import POINTS, Work

LIMIT = 2_000_000  # bytes of a page; above it samples are dropped, last first
SMALL = 2_000_000  # tokens of a train split up to which n-grams are fitted for comparison


@checked
def write(
    run: object,
    out: str | os.PathLike | None = None,
    *,
    model: Any = None,
    steps: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Write the report of a run and return its path.

    Args:
        run: the run's folder (or what `train` returned).
        out: the file; default report.html in the run's folder.
        model: the run's model if it is already in memory; else its best checkpoint is loaded.
        steps: of the watched samples, at most 199; 64 unless said, of images and the like 32, of a large model fewer.
        seed: of the watched samples and of the noise in the loss against t.
        progress: called with how much of the model's work is done, and how much there is.

    Raises:
        InputError: there is no run at `run`, or a file in it is not what the run wrote.
    """
    folder = folder_of_run(run)
    if not (folder / CONFIG).is_file():
        raise InputError(f"no run at '{folder}' (it holds no config.json); give the folder of a zellige train --run")
    config = read_json(folder / CONFIG)
    target = Path(out) if out is not None else folder / REPORT
    writable(target)
    log, unit = metrics(folder)
    model, problem = _model(folder, None if model is None else as_model(model))
    corpus, missing = _corpus(model)
    evaluations = {path: Result.from_json(path) for path in sorted(folder.glob(EVALUATIONS))}
    data, options = (config.get(name) or {} for name in ("data", "options"))
    best = fullest(evaluations.values(), data.get("name", ""), options.get("block"))
    evaluations = dict(sorted(evaluations.items(), key=lambda item: item[1] is not best))
    figures, player, infilling = [page.html_note(problem)], None, ""
    if model is not None:
        work = Work(model, steps, progress)
        figures, player = _ask(model, corpus, missing, work, seed)
        infilling = _filled(model, corpus, work, seed)
        work.passed(work.total)  # also what was left out, as it has no meaning for this model

    command = page.html_code(f"zellige evaluate {shown_path(folder)}")
    sections = {
        "curves": _curves(folder, _ngrams(model, corpus)) if len(log.step) else page.html_note("no metrics.csv yet"),
        "schedule": "".join(figures),
        "samples": validation_samples(folder, model) + infilling,
        "evaluation": (
            "".join(evaluation_part(*evaluation) for evaluation in evaluations.items()) + bracket_sections(folder)
        )
        or page.html_note("not evaluated yet; type") + command,
        "configuration": configuration_part(config, model),
    }
    title = f"{config.get('method', 'run')} on {data.get('name', 'own data')}"
    facts = run_facts(log, unit, config, model, best)
    samples, still_pictures = (player["samples"], player.pop("stills", "")) if player else ([], "")
    for shown_samples in range(len(samples), -1, -1):  # drop samples, last first, until the page is small enough
        part = page.html_note(problem)
        if player:
            part = page.html_player(
                {**player, "samples": samples[:shown_samples]}, len(samples) - shown_samples, still_pictures
            )
        raw = page.page(title, facts, {**sections, "watch": part}).encode("utf-8", errors="backslashreplace")
        if len(raw) <= LIMIT or shown_samples <= 1:
            break
    write_file(target, raw)
    return target


def _curves(folder: Path, baselines: Mapping[str, float]) -> str:
    text = (
        "Thin: the training loss, mean over 100 steps. Dots: the validation bound with its 95% interval."
        + (" Dashed: n-gram models on the validation split, left to right." if baselines else "")
        + " Below: learning rate, gradient norm, tokens per second."
    )
    return page.html_figure(curves(folder, baselines=baselines), "curves-figure", "Training and validation", text)


def _ask(model: Model, corpus: Corpus | None, missing: str, work: Work, seed: int) -> tuple[list[str], dict[str, Any]]:
    """Results of the model itself: figures of its schedule, order of reveal and integrand;
    and the player of its samples."""
    method = model.method
    frames = _watch(model, work, seed)
    unsure = None if method.process is None or method.latents else entropies(method, frames, work.passed)
    player = record(method, model.tokenizer, fewer(frames, method), unsure)
    if not (kind := of(model.tokenizer)).running:
        player["stills"] = stills(kind, frames)
    player["note"] = f"{count(work.steps)} steps, seed {seed}. {by_defaults(model)}".strip()
    if method.process is None:
        missing = (
            "no schedule and no order of reveal" if method.bounded else "no schedule, no order of reveal and no bound"
        )
        reason = "tokens are inserted" if method.parameterization == "insertion" else "no noise"
        return [page.html_note(f"{reason}, so {missing}")], player
    if getattr(method.process, "schedule", None) is None:
        alpha, curve = page.html_note("this noise is a list of matrices: it has no α(t)"), None
    else:
        alpha = page.html_figure(schedule(method), "schedule-alpha", "Schedule", _SCHEDULE)
        own_order = method.block <= 1 and "sampler" not in model.defaults
        curve = method if own_order else None  # in another order, or in blocks, the share that stands is not alpha
    text = _REVEALED.format(beside=", beside α(t)" if curve else "")
    figures = [alpha, page.html_figure(revealed(frames, curve), "schedule-revealed", "Order of reveal", text)]
    if getattr(method.process, "mask", None) is not None:
        counts_figure = reveal_counts(frames, curve)
        text = f"The mean over the watched samples{_EXPECTED if curve else '.'}"
        figures.append(page.html_figure(counts_figure, "schedule-counts", "Tokens revealed in each step", text))
    if values := {name: value.cpu() for name, value in method.learned_quantities().items()}:
        figures.append(_learnt(values, model.tokenizer))
    if corpus is None or method.latents:
        return [*figures, page.html_note(missing if corpus is None else MIXTURE)], player
    t, loss, unit = _loss(model, corpus, work, seed)
    return [*figures, page.html_figure(loss_against_t(t, loss, unit), "schedule-loss", "Loss against t", _LOSS)], player


def _filled(model: Model, corpus: Corpus | None, work: Work, seed: int) -> str:
    """Images, music, grids: rows of the test split filled in."""
    if corpus is None or model.method.process is None or of(model.tokenizer).running:
        return ""
    return infilled(model, corpus.test, work.steps, seed, work.filled, work.passed)


def _learnt(values: Mapping[str, torch.Tensor], tokenizer: Tokenizer) -> str:
    name = lambda i: f"'{escape(tokenizer.decode([i]))}'"  # noqa: E731
    early, late = extremes(next(iter(values.values())))
    rows = [[f"{i + 1}", name(k), *(f"{float(v[k]):.4g}" for v in values.values())] for i, k in enumerate(early)]
    last = len(next(iter(values.values()))) - len(late) + 1
    rows += [[f"{last + i}", name(k), *(f"{float(v[k]):.4g}" for v in values.values())] for i, k in enumerate(late)]
    table = page.html_table(rows, ["place", "token", *values])
    return page.html_figure(learnt(values, name), "schedule-learnt", "Which tokens appear early", _LEARNT, table)


_LEARNT = (
    "What the noise learnt about each token: the earliest and the latest to appear. Generation runs from t = 1 to t = "
    "0, so what is revealed at a larger t comes earlier."
)
_SCHEDULE = "Left: the share of tokens that are still clean at t. Right: the weight of a masked token in the loss."
_REVEALED = (
    "Above: the share of tokens revealed after each step, mean over the watched samples and their range"
    "{beside}. Below: for each sample and position, the step in which it was revealed."
)
_EXPECTED = (
    ", beside what the schedule expects: from t to s a masked token is revealed with "
    "probability (α(s) − α(t)) / (1 − α(t)), so L (α(s) − α(t)) of L; in the band the mean lies with 95%."
)
_LOSS = "Where the bound comes from: the integrand of its diffusion term at each t; the area under it is that term."


# ---------------------------------------------------------------------------------------------------- what is asked
def _model(folder: Path, model: Model | None) -> tuple[Model | None, str]:
    """The model of the run, or the reason why there is none."""
    if model is not None:
        return model, ""
    from zellige.models.model import load

    try:
        return load(folder, device="cuda" if torch.cuda.is_available() else "cpu"), ""
    except InputError as error:
        return None, str(error)


def _corpus(model: Model | None) -> tuple[Corpus | None, str]:
    """The texts that the run was trained on, or the reason why they are not at hand."""
    if model is None:
        return None, ""
    from zellige.evaluation.corpus import corpus_of

    try:
        corpus = corpus_of(model)
        return (corpus, "") if len(corpus.validation) > 1 else (None, "the validation split is empty")
    except (InputError, OSError) as error:
        problem = str(error).partition("; ")[0]  # what would be right is no option of `zellige report`
        return None, f"the loss against t needs the run's texts: {problem}"


def _watch(model: Model, work: Work, seed: int) -> list[Any]:
    from zellige.sampling.sample import watch_some

    frames = []
    for frame in watch_some(model, work.watched, steps=work.steps, seed=seed):
        frames.append(frame)
        work.passed(work.watched)
    return frames


def _loss(model: Model, corpus: Corpus, work: Work, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """The integrand on validation texts, in the model's unit: times (G,), (G, N), unit."""
    rows = corpus.validation
    indices = np.linspace(0, len(rows) - 1, min(work.texts, len(rows))).astype(int)
    device = next(model.method.parameters()).device
    batch = rows.collate([rows[int(i)] for i in indices]).to(device)
    t, nats = integrand(model.method, batch, POINTS, seed, work.passed)
    if unit_of(model.unit).measure == "bits" and (rows.characters or corpus.tokenizer.shape):
        return t, nats * len(rows) / ((rows.characters or rows.tokens_total) * math.log(2)), model.unit
    return t, nats * len(rows) / rows.tokens_total, "nats/token"


def _ngrams(model: Model | None, corpus: Corpus | None) -> dict[str, float]:
    """1- to 4-grams of tokens on the validation split, in the model's unit, where they are of text and few."""
    if model is None or corpus is None or not model.method.bounded:
        return {}
    if corpus.tokenizer.shape or corpus.train.tokens_total > SMALL:
        return {}
    from zellige.evaluation.ngram import NGrams, order_within

    rows, size = corpus.validation, corpus.tokenizer.size
    order = order_within(4, size)
    grams = NGrams(corpus.train.array(), rows.array(), size, order=order)
    units = math.log(2) * (rows.characters or 0) if model.unit == "bits/char" else rows.tokens_total
    return {f"{m}-gram": float(grams.nats(rows.array(), order=m).sum() / units) for m in range(1, order + 1)}
