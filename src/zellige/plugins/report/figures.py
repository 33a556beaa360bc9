"""The figures of the report: each a function that returns a matplotlib Figure. Nothing global is touched."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, ScalarFormatter
from numpy.typing import ArrayLike
from torch import Tensor

from zellige.base.errors import InputError
from zellige.base.schema import shown
from zellige.core.curves import SCHEDULES
from zellige.core.schedule import Schedule
from zellige.evaluation.interval import mean
from zellige.methods.diffusion import Diffusion
from zellige.models.checkpoint.layout import METRICS, folder_of_run
from zellige.models.checkpoint.read import read_metrics

from .palette import BLUE, COLOURS, INK, LINES, SKY, SOFT, VERMILION, styled
from .trace import Trace, trace

POINTS = 1_000  # of a curve, at most
MOST = 12  # tokens of either end of what was learnt about them


@styled
def curves(run: object, *, baselines: Mapping[str, float] | None = None) -> Figure:
    """Training loss and validation bound against steps; below them rate, gradient norm and tokens per second.

    Args:
        run: the folder of a run (or what `train` returned); its metrics.csv is read.
        baselines: name -> value in the unit of the curves, drawn as dashed lines (n-grams).
    """
    log, unit = metrics(run)
    step = log.step
    fig = Figure(figsize=(6.4, 8.2), layout="constrained")
    top, *small = fig.subplots(4, 1, height_ratios=[4, 1, 1, 1], sharex=True)

    has_loss = np.isfinite(log.loss)
    loss = smooth(step[has_loss], log.loss[has_loss], 100)
    if unit and len(loss):
        top.plot(*thin(step[has_loss], loss), color=BLUE, lw=0.9, label="training, mean of 100 steps")
    v = np.isfinite(log.validation)
    if v.any():
        middle = log.validation[v]
        whiskers = np.abs(np.stack([middle - log.validation_low[v], log.validation_high[v] - middle]))
        top.errorbar(step[v], middle, np.nan_to_num(whiskers, posinf=0.0), fmt="o", ms=4, capsize=2.5, lw=1.2,
                     color=VERMILION, label="validation bound, 95%")  # fmt: skip
    first, last = (step.min(), step.max()) if len(step) else (0, 1)
    for name, value in (baselines or {}).items():
        top.plot([first, last], [value, value], color=SOFT, ls=(0, (5, 3)), lw=1, label=name)
    finite = np.concatenate([loss if unit else [], log.validation[v], list((baselines or {}).values())])
    if len(finite) > 10:  # the first steps of training would flatten all that follows
        top.set_ylim(top=min(finite.max(), np.percentile(finite, 97) * 1.25) * 1.02)
    top.set(ylabel=f"{unit or 'bound'}, lower is better")
    low, high = top.get_ylim()
    place = -math.inf
    for name, value in sorted((baselines or {}).items(), key=lambda item: item[1]):
        place = max(value, place + 0.035 * (high - low))  # a label never covers the one below it
        top.annotate(f"{name} {value:.3f}", (1, place), xycoords=("axes fraction", "data"), xytext=(4, 0),
                     textcoords="offset points", va="center", fontsize=8, color=SOFT)  # fmt: skip
    if top.get_legend_handles_labels()[0]:
        series = [h for h in zip(*top.get_legend_handles_labels()) if h[1] not in (baselines or {})]
        top.legend(*zip(*series), loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)

    panels = [("rate", "learning rate"), ("gradient_norm", "gradient norm"), ("tokens_per_second", "tokens/s")]
    if not unit:
        panels[2] = ("loss", "loss (not a bound)")
    for ax, (key, title), (colour, dashes) in zip(small, panels, [("blue", "-"), *LINES[1:]]):
        has_value = np.isfinite(log[key])
        ax.plot(*thin(step[has_value], log[key][has_value]), color=COLOURS[colour], ls=dashes, lw=1, label=title)
        ax.set_title(title)
        ax.set_ylim(bottom=0)
        ax.locator_params(axis="y", nbins=3)
        ax.yaxis.set_major_formatter(EngFormatter(sep="") if key == "tokens_per_second" else ScalarFormatter())
    small[-1].set_xlabel("step")
    return fig


@styled
def schedule(method: Diffusion | Schedule) -> Figure:
    """alpha and the weight of the loss against t: the method's own schedule beside the others with their defaults.

    Args:
        method: a Method, or a Schedule.
    """
    own_schedule = method if isinstance(method, Schedule) else method.process.schedule
    names = {kind: name for name, kind in reversed(SCHEDULES.items())}
    t = torch.linspace(0.005, 0.995, 199, dtype=torch.float64)
    fig = Figure(figsize=(6.4, 3.1), layout="constrained")
    left, right = fig.subplots(1, 2)
    own_name = names.get(type(own_schedule), type(own_schedule).__name__.lower())
    rows = [(f"this run: {own_name}", own_schedule, "blue", "-", 2.4)]
    families = [kind for kind in names if not names.keys() & set(kind.__mro__[1:])]  # square is a polynomial
    other_schedules = [(names[kind], kind) for kind in families if kind is not type(own_schedule)]
    rows += [(name, kind(), *line, 1.1) for (name, kind), line in zip(reversed(other_schedules), LINES)]
    for name, curve, colour, dashes, width in rows:
        for ax, (x, y) in zip((left, right), _curves(curve, t)):
            ax.plot(x, y, color=COLOURS[colour], ls=dashes, lw=width, label=name, zorder=3 if width > 2 else 2)
    left.set(xlabel="t", ylabel="α(t), share of clean tokens", ylim=(-0.02, 1.02), xlim=(0, 1))
    right.set(xlabel="t", ylabel="weight of the loss, −α′/(1 − α)", yscale="log", ylim=(0.05, 300), xlim=(0, 1))
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, handlelength=3)
    return fig


@torch.no_grad()
def _curves(one: Any, t: Tensor) -> list[tuple[Tensor, Tensor]]:
    """alpha and the weight of the loss, each with its times; of a table,
    at its own times and T times those of its steps."""
    if T := getattr(one, "T", 0):
        i = torch.arange(T + 1, dtype=torch.float64) / T
        alpha = one.alpha(i)[:, 0].cpu()
        return [(i, alpha), (i[1:], T * -alpha.diff() / (1 - alpha[1:]))]
    mean = lambda curve: curve(t.to(next(one.parameters(), t))).mean(-1).double().cpu()  # noqa: E731  (of all tokens)
    return [(t, mean(one.alpha)), (t, mean(one.weight))]


@styled
def revealed(states: Iterable[Any], method: Diffusion | Schedule | None = None) -> Figure:
    """Share of the free tokens revealed after each step, and in which step each position was revealed.

    Args:
        states: the frames of `watch`, or the states of `run`, all of them, in order.
        method: a Method or Schedule; its alpha(t), the share expected, is drawn as dashes (frames know t, states not).
    """
    seen = trace(states)
    steps = np.arange(len(seen.x))
    share = seen.share()  # (frames, B)
    fig = Figure(figsize=(6.4, 4.4), layout="constrained")
    top, strip = fig.subplots(2, 1, height_ratios=[2, 1.3])
    top.plot(steps, share.mean(1), color=BLUE, lw=2, label=f"this run, mean of {share.shape[1]}")
    if share.shape[1] > 1:
        top.fill_between(steps, share.min(1), share.max(1), color=SKY, alpha=0.35, lw=0)
    alpha = _expected(seen, method)
    if alpha is not None:
        top.plot(steps, alpha, color=INK, ls=(0, (4, 3)), lw=1.2, label="expected, α(t)")
    top.set(xlabel="step", ylabel="share of tokens revealed", ylim=(-0.02, 1.02), xlim=(0, steps[-1]))
    top.legend(loc="upper left")
    image = strip.imshow(
        seen.reveal, aspect="auto", cmap="viridis", interpolation="none", vmin=0, vmax=steps[-1], label="step of reveal"
    )
    strip.grid(visible=False)
    strip.set(xlabel="position", ylabel="sample", yticks=range(len(seen.reveal)))
    strip.set_yticklabels([str(i + 1) for i in range(len(seen.reveal))])
    fig.colorbar(image, ax=strip, label="step of reveal", pad=0.02)
    return fig


@styled
def reveal_counts(states: Iterable[Any], method: Diffusion | Schedule | None = None) -> Figure:
    """Number of tokens revealed in each step: the mean of the samples, beside what the schedule expects of a mask.

    From t to s that is L (alpha(s) - alpha(t)) of L free positions, each by itself, so that a count is binomial; the
    band is where the mean of so many samples lies with 95%. Arguments as in `revealed`.
    """
    trajectory = trace(states)
    steps, free = np.arange(1, len(trajectory.x)), (~trajectory.fixed).sum(1)
    counts = np.stack([(trajectory.reveal == k).sum(1) for k in steps])  # (steps, B)
    fig = Figure(figsize=(6.4, 2.6), layout="constrained")
    ax = fig.subplots()
    ax.plot(steps, counts.mean(1), color=BLUE, lw=1.4, drawstyle="steps-mid", label=f"this run, mean of {len(free)}")
    alpha = _expected(trajectory, method)
    if alpha is not None:
        p = np.diff(alpha)
        mean, half = p * free.mean(), 1.96 * np.sqrt(p * (1 - p) * free.sum()) / len(free)
        ax.fill_between(steps, np.maximum(mean - half, 0), mean + half, color=INK, alpha=0.12, lw=0, step="mid")
        ax.plot(steps, mean, color=INK, ls=(0, (4, 3)), lw=1.2, label="expected, L (α(s) − α(t)), 95%")
    ax.set(xlabel="step", ylabel="tokens revealed in a step", xlim=(0.5, steps[-1] + 0.5))
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
    return fig


def _expected(seen: Trace, method: Diffusion | Schedule | None) -> np.ndarray | None:
    """(frames,) the share expected to stand after each step, alpha at its time,
    by a Method's schedule or a Schedule."""
    if method is None or seen.t is None:
        return None
    curve = method if isinstance(method, Schedule) else method.process.schedule
    with torch.no_grad():
        alpha = curve.alpha(torch.tensor(seen.t).to(next(curve.parameters(), torch.empty(())))).mean(-1).double().cpu()
    shares = alpha.numpy().copy()
    shares[0], shares[-1] = 0.0, 1.0  # the first step starts at PRIOR, the last one ends at CLEAN
    return shares


@styled
def loss_against_t(t: np.ndarray, loss: np.ndarray, unit: str = "nats/sequence") -> Figure:
    """Where the bound comes from: the integrand of the diffusion term against t, mean over texts with a 95% interval.

    Args:
        t: times, (G,), increasing.
        loss: the integrand at each time for each text, (G, N), in `unit`.
    """
    t, loss = np.asarray(t, float), np.asarray(loss, float)
    half = [mean(values).half for values in loss]
    fig = Figure(figsize=(6.4, 2.6), layout="constrained")
    ax = fig.subplots()
    ax.errorbar(t, loss.mean(1), half, fmt="s-", ms=3.5, capsize=2, lw=1.2, color=BLUE,
                label=f"mean of {loss.shape[1]} sequences, 95%")  # fmt: skip
    ax.set(xlabel="t", ylabel=f"{unit} per unit of t", xlim=(0, 1))
    ax.set_ylim(bottom=0)
    cells = np.diff([0.0, *(t[1:] + t[:-1]) / 2, 1.0])
    ax.legend(loc="best", title=f"area under it: {cells @ loss.mean(1):.3f}")
    return fig


@styled
def learnt(values: Mapping[str, Any], name: Callable[[int], str] = str, most: int = MOST) -> Figure:
    """Learned quantities of each token (`Method.learned_quantities`): the earliest and the latest, one panel for each
    number.

    Args:
        values: name -> (V,); the first orders the tokens, the largest appears first.
        name: how a token is called.
        most: how many of either end.
    """
    if not values:
        raise InputError("`values` is empty; give a learned quantity of each token, by its name")
    early, late = extremes(next(iter(values.values())), most)
    at, rows = [*early, *late], [*range(len(early)), *range(len(early) + 1, len(early) + 1 + len(late))]
    fig = Figure(figsize=(6.4, 1.0 + 0.17 * len(rows)), layout="constrained")
    panels = np.atleast_1d(fig.subplots(1, len(values), sharey=True))
    for ax, (title, numbers), (colour, _) in zip(panels, values.items(), [("blue", "-"), *LINES]):
        ax.plot(np.asarray(numbers, float)[at], rows, "o", ms=4, color=COLOURS[colour])  # its table is the page's own
        ax.set(xlabel=title)
    panels[0].set(yticks=rows, ylabel="earliest above, latest below" if late else "earliest above")
    panels[0].set_yticklabels([name(i) for i in at], family="monospace", parse_math=False)
    panels[0].invert_yaxis()
    return fig


@styled
def terms(values: Mapping[str, float], unit: str = "nats/sequence") -> Figure:
    """The terms of the bound as one stacked bar; the name and number of each stand under it."""
    fig = Figure(figsize=(13.4, 1.3), layout="constrained")
    ax = fig.subplots()
    left = 0.0
    looks = [("sky", ""), ("orange", "///"), ("green", "..."), ("purple", "xx")]
    for (name, value), (colour, hatch) in zip(values.items(), looks):
        ax.barh([0], [value], left=left, color=COLOURS[colour], hatch=hatch, edgecolor=INK, lw=0.6,
                height=0.7, label=f"{name} {value:,.3f}")  # fmt: skip
        left += value
    ax.set(yticks=[], xlabel=unit, xlim=(0, left * 1.005 or 1))
    ax.grid(visible=False, axis="y")
    fig.legend(loc="outside lower center", ncols=4)
    return fig


# ---------------------------------------------------------------------------------------------------- data for them
def extremes(values: ArrayLike, most: int = MOST) -> tuple[list[int], list[int]]:
    """The `most` tokens of the largest values, largest first, and as many of the smallest, smallest last."""
    order = np.argsort(-np.asarray(values, float), kind="stable").tolist()
    early = order[:most]
    return early, order[len(early) :][-most:]


@dataclass(frozen=True)
class TrainingLog:
    """The columns of metrics.csv, an entry for each line of it; NaN where nothing was measured."""

    step: np.ndarray
    seconds: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    rate: np.ndarray
    gradient_norm: np.ndarray
    tokens_per_second: np.ndarray
    validation: np.ndarray
    validation_low: np.ndarray
    validation_high: np.ndarray
    flops_per_second: np.ndarray
    utilisation: np.ndarray
    peak_memory: np.ndarray

    def __getitem__(self, column: str) -> np.ndarray:
        return getattr(self, column)


def metrics(run: object) -> tuple[TrainingLog, str]:
    """The columns of metrics.csv, and the loss's unit ("" if no bound)."""
    folder = folder_of_run(run)
    try:
        rows = list(csv.DictReader(io.StringIO(read_metrics(folder))))
        columns = [np.array([float(row.get(c.name) or "nan") for row in rows], float) for c in fields(TrainingLog)]
        log = TrainingLog(*columns)
        if not np.isfinite(log.step).all():
            raise ValueError
    except InputError:
        raise
    except (ValueError, csv.Error):
        raise InputError(f"'{shown(folder / METRICS)}' is damaged; copy the run again, or remove the file") from None
    return log, next((unit for row in reversed(rows) if (unit := row.get("unit"))), "")


def smooth(step: np.ndarray, y: np.ndarray, window: int) -> np.ndarray:
    """The mean of y over the last `window` steps, at each step; steps increase."""
    total = np.concatenate([[0.0], np.cumsum(y)])
    start = np.searchsorted(step, step - window, side="right")
    end = np.arange(1, len(y) + 1)
    return (total[end] - total[start]) / (end - start)


def thin(x: np.ndarray, y: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` of a curve: of each bin its lowest and its highest, so that no spike is lost."""
    if len(x) <= points:
        return x, y
    edges = np.linspace(0, len(x), points // 2 + 1).astype(int)
    keep = {i for a, b in pairwise(edges) for i in (a + int(y[a:b].argmin()), a + int(y[a:b].argmax()))}
    indices = sorted(keep)
    return x[indices], y[indices]
