"""Data for the drawings of a model: how its samples came about, and where its bound comes from.
Arrays and plain data."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from zellige.base.arguments import of_kind
from zellige.base.errors import InputError, at_least
from zellige.core.batch import Batch
from zellige.core.maths import xlogy
from zellige.core.prediction import posterior
from zellige.data.tokenizer_base import Tokenizer
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method
from zellige.plugins.kinds.music.notes import SILENT
from zellige.plugins.kinds.music.roll import BAR, Roll
from zellige.plugins.kinds.music.roll import COLOURS as VOICE_COLOURS
from zellige.show.kinds import Grid, Image, Modality, of
from zellige.show.numbers import escape

from .palette import COLOURS


@dataclass(frozen=True)
class Trace:
    """A sampling run as arrays: x (frames, B, L), fixed (B, L), calls (frames, B), t (frames,) or None."""

    x: np.ndarray
    fixed: np.ndarray
    calls: np.ndarray
    t: np.ndarray | None

    @property
    def changed(self) -> np.ndarray:
        """(frames, B, L): what took another value in this frame; nothing in the first."""
        return np.concatenate([np.zeros_like(self.x[:1], bool), self.x[1:] != self.x[:-1]])

    @property
    def reveal(self) -> np.ndarray:
        """(B, L) the frame since when the token stands; nan for what is given and for what never changed."""
        last = len(self.x) - 1 - self.changed[::-1].argmax(0)
        return np.where(self.changed.any(0) & ~self.fixed, last, np.nan)

    def share(self) -> np.ndarray:
        """(frames, B) the share of the free positions that stand."""
        free = np.maximum((~self.fixed).sum(1), 1)
        return np.stack([(self.reveal <= k).sum(1) / free for k in range(len(self.x))])


def trace(states: Iterable[Any]) -> Trace:
    """History of frames or states as arrays. Needs all of them, in order, from the initial one."""
    states = list(states)
    refuse_states(states)
    array = lambda tensors: np.stack([torch.as_tensor(x).cpu().numpy() for x in tensors])  # noqa: E731
    times = [getattr(s, "t", None) for s in states]
    return Trace(
        x=array(s.x for s in states),
        fixed=array([states[0].fixed])[0],
        calls=array(s.calls for s in states),
        t=None if None in times else np.clip(np.array([float(t) for t in times if t is not None]), 0.0, 1.0),
    )


def refuse_states(states: Sequence[Any]) -> None:
    """Raise InputError unless these are frames or states of sampling, one or more."""
    wrong = next((state for state in states if not all(hasattr(state, name) for name in ("x", "fixed", "calls"))), None)
    if not states or wrong is not None:
        what = "no states to draw" if wrong is None else f"`states` holds {of_kind(wrong)}"
        raise InputError(f"{what}; give all that watch or run yields, in order")


def integrand(
    method: Diffusion, batch: Batch, points: int = 16, seed: int = 0, passed: Callable[[int], None] = lambda rows: None
) -> tuple[np.ndarray, np.ndarray]:
    """The diffusion term's integrand at `points` midpoints of [0, 1]: times (points,) and nats (points, B).

    Of a T-step model T times the bound of a step, at as many of its T steps: from i/T to the next time of its grid, i =
    T being where sampling starts, so that the mean over all of them is the bound without the prior's term.
    passed: called with the rows that were asked about.
    """
    at_least("points", points, 1)
    times, T = (np.arange(points) + 0.5) / points, method.steps
    times = np.unique(np.ceil(times * T)) / T if T else times
    grid = method.grid(T) if T else torch.empty(0)
    generator = torch.Generator().manual_seed(seed)
    rows = []
    with torch.no_grad():
        for time in times:
            i = T - round(time * T)  # of the steps; T = 0: of none
            t, s = (
                torch.full((len(batch.tokens),), float(u), dtype=torch.float64, device=batch.tokens.device)
                for u in (grid[i : i + 2] if T else (time, time))
            )
            x_t = method.corrupt(batch, t[:, None], generator)
            value = T * method.discrete_bound(batch, x_t, t, s) if T else method.continuous_bound(batch, x_t, t)
            rows.append(value.double().cpu().numpy())
            passed(len(t))
    return times, np.stack(rows)


def entropies(
    method: Diffusion, states: Sequence[Any], passed: Callable[[int], None] = lambda rows: None
) -> np.ndarray:
    """(B, L) bits: how unsure the network was of a token when it was revealed; nan where nothing was.

    passed: called with the rows that were asked about.
    """
    trajectory = trace(states)
    bits = np.full(trajectory.fixed.shape, np.nan)
    with torch.no_grad():
        for before, new in zip(states, trajectory.changed[1:]):
            at = torch.as_tensor(new, device=before.x.device)
            rows = at.any(1)
            passed(len(rows))
            if not rows.any():
                continue
            condition = getattr(getattr(before, "state", before), "condition", None)
            condition = None if condition is None else condition[rows]
            p = posterior(method.predict(before.x[rows], float(before.t), at=at[rows], condition=condition))
            bits[new] = (-xlogy(p, p).sum(-1) / math.log(2)).double().cpu().numpy()
    return bits


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text that each token adds: joined they are decode(ids), also where a character spans several tokens."""
    out, before = [], ""
    for end in range(1, len(ids) + 1):
        text = tokenizer.decode(list(ids[:end]))
        ready = text.startswith(before) and (end == len(ids) or not text.endswith("\ufffd"))
        out.append(text[len(before) :] if ready else "")
        before = text if ready else before
    whole = tokenizer.decode(list(ids))
    return out if "".join(out) == whole else [tokenizer.decode([i]) for i in ids]


def fewer(states: Sequence[Any], method: Method, most: int = 100_000) -> Sequence[Any]:
    """So many of the states, evenly spaced, that the differences between them stay a page's size: `most` tokens in all.

    Of an absorbing process, of which one number is kept for each token, all of them.
    """
    refuse_states(states)
    keep = max(2, most // states[0].x.shape[-1])
    if getattr(method.process, "mask", None) is not None or len(states) <= keep:
        return states
    return [states[round(i * (len(states) - 1) / (keep - 1))] for i in range(keep)]


def page_text(text: str) -> str:
    r"""Text for the page: control characters as `\x1b`, line ends and tabs as they are."""
    return escape(text, keep="\n\t")


def piece_layout(kind: Modality) -> dict[str, Any] | None:
    """Layout of the pieces of a row: {name, across, cell, box}; None for running text.

    `across` cells stand side by side, a cell has `cell` pieces (an image's are the brightness of a pixel's channels),
    `box` is the side of a grid's boxes. A roll has a piece for each of its `across` voices at each step, and three
    entries more: `pitches`, the MIDI number of each piece that sounds; `voices`, the name and the colour of each;
    `bar`, its steps.
    """
    if kind.running:
        return None
    across = kind.board[1] if isinstance(kind, Grid) else kind.shape[1]
    cell = math.prod(kind.shape[2:]) if isinstance(kind, Image) else 1
    layout = {"name": kind.name, "across": across, "cell": cell, "box": getattr(kind, "box", None)}
    if isinstance(kind, Roll):
        pitches = zip(kind.pieces(range(kind.tokenizer.size)), kind.pitch.tolist())
        colours = {value: name for name, value in COLOURS.items()}
        layout["pitches"] = {page_text(name): pitch for name, pitch in pitches if pitch != SILENT}
        layout["voices"] = [
            (voice, colours[VOICE_COLOURS[i % len(VOICE_COLOURS)]]) for i, voice in enumerate(kind.voices)
        ]
        layout["bar"] = BAR
    return layout


def record(
    method: Method, tokenizer: Tokenizer, states: Sequence[Any], entropy: np.ndarray | None = None
) -> dict[str, Any]:
    """Data of some samples for the player, as plain data: {steps, t, total, entropy, kind, samples}.

    A sample is {pieces, given, calls, reveal}, and its class where one was asked for, with the frame of reveal for each
    position (null: never), or instead of `reveal` {start, changes}: the pieces at the start (null: masked) and, per
    frame, [position, piece] of what changed. `kind` (null for running text) says how the pieces lie; see
    `piece_layout`. What follows the end of a text has empty pieces.
    """
    trajectory = trace(states)
    mask = getattr(method.process, "mask", None)
    once = mask is not None and bool((trajectory.changed.sum(0) <= 1).all())
    bits = np.full(trajectory.fixed.shape, np.nan) if entropy is None else entropy
    kind = of(tokenizer)
    pieces_of = (lambda ids: pieces(tokenizer, ids)) if kind.running else kind.pieces
    absent = mask if mask is not None and mask >= tokenizer.size else -1  # noise may absorb into a token of the data
    piece = functools.cache(lambda i: None if i == mask else page_text(pieces_of([i])[0]))
    samples = []
    for b, final in enumerate(trajectory.x[-1].tolist()):
        end = getattr(states[-1], "ends", {b: len(final)})[b]
        behind = [""] * (len(final) - end)
        spare = iter(pieces_of([i for i in final[:end] if i != absent]))
        sample: dict[str, Any] = {
            "pieces": ["·" if i == absent else page_text(next(spare)) for i in final[:end]] + behind,
            "given": trajectory.fixed[b].astype(int).tolist(),
            "calls": trajectory.calls[:, b].tolist(),
            "entropy": [None if math.isnan(v) else round(v, 2) for v in bits[b].tolist()],
        }
        if labels := getattr(states[0], "classes", ()):
            sample["class"] = labels[b]
        if once:
            start = np.where((trajectory.x[0, b] != mask), 0, trajectory.reveal[b])
            start = np.where(np.isnan(start) & (trajectory.x[-1, b] != absent), len(states) - 1, start)
            sample["reveal"] = [None if math.isnan(v) else int(v) for v in start]
        else:
            sample["start"] = [piece(i) for i in trajectory.x[0, b, :end].tolist()] + behind
            sample["changes"] = [
                [[int(i), piece(int(x[i]))] for i in np.flatnonzero(new[:end])]
                for x, new in zip(trajectory.x[:, b], trajectory.changed[:, b])
            ]
        samples.append(sample)
    steps = [int(getattr(s, "step", k)) for k, s in enumerate(states)]
    times = np.linspace(1, 0, len(states)) if trajectory.t is None else trajectory.t
    most = float(np.nanmax(bits)) if np.isfinite(bits).any() else 0.0
    return {
        "steps": steps,
        "t": [round(float(t), 4) for t in times],
        "total": steps[-1],
        "entropy": round(most, 2),
        "kind": piece_layout(kind),
        "samples": samples,
    }
