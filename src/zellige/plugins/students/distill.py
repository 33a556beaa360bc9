"""Train a student of a model that samples in fewer steps: `zellige train distill MODEL`.

A round teaches the student to take in one step what its teacher takes in `merge` of `steps`; the next round's teacher
is that student, with 1/merge of the steps. Both are the moving average of the weights. The losses are in
`samplers.distillation`.
"""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.base.schema import UNREAD
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.gaussian import on_path
from zellige.core.process import Mixture
from zellige.core.random import Randomness, mix
from zellige.core.student import half
from zellige.data.rows import Rows, evenly_spaced
from zellige.evaluation.corpus import corpus_of
from zellige.methods import build
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method
from zellige.models.config import Config
from zellige.models.decoding import BEST_OF
from zellige.models.model import Model, fingerprint
from zellige.nn.transformer import DiT
from zellige.samplers import distillation
from zellige.samplers.pairing import irreversible, not_absorbing
from zellige.sampling.request import KEPT
from zellige.show.numbers import counted
from zellige.show.record import Figure, Trained
from zellige.training.ema import EMA
from zellige.training.setup import publication

from .small import FitOptions, fit, held_out

Loss = Callable[
    [Diffusion, Diffusion, Batch, int, Randomness], Tensor
]  # (student, teacher, batch, steps, generator) -> (B,)
HELD_OUT = 256  # texts on which a round is judged
LATENTS = 8


@dataclass(frozen=True)
class Round:
    """One round: the steps of its teacher and of its student, and the loss on held-out texts with its standard error.

    `before` is that of the student as the round began, a copy of the teacher; units of `Distilled.divergence` per
    token.
    """

    teacher: int
    student: int
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True)
class Distilled:
    """Training of a student.

    Attributes:
        by: "sdtt", "consistency" or "di4c".
        teacher_sha256: of the weights of the model that was distilled.
        steps: in which the student samples.
        texts: held-out texts of the rounds' losses.
    """

    by: str
    teacher: str
    teacher_sha256: str
    divergence: str
    steps: int
    training_steps: int
    seed: int
    texts: int
    rounds: tuple[Round, ...]

    @property
    def unit(self) -> str:
        """Unit of the loss."""
        return "nats/token" if "kl" in self.divergence else f"{self.divergence}/token"

    @property
    def loss(self) -> str:
        """The loss of the rounds in words, with its unit."""
        if self.by == "di4c":
            return "-log p of the teacher's steps in nats"
        return {
            "kl": "KL(teacher || student) in nats",
            "reverse-kl": "KL(student || teacher) in nats",
            "tvd": "total variation",
            "mse": "mean square of the difference of logarithms",
        }[self.divergence]


def distill(
    model: Model,
    data: Any,
    *,
    by: str,
    teacher_steps: int,
    rounds: int,
    merge: int,
    divergence: str,
    latents: int | None,
    ema: float,
    options: FitOptions,
) -> tuple[Model, Distilled]:
    """The student and how its rounds went; see `requests.TrainDistill`."""
    method = model.method
    by = next((name for name in WAYS if not WAYS[name].reason_against(method)), "sdtt") if by == "auto" else by
    way = WAYS[by]
    if why := way.reason_against(method):
        raise InputError(why)
    if by == "di4c" and divergence != "kl":
        raise InputError(f"`by` di4c maximises a likelihood, without `divergence` {divergence}; leave it out")
    if by != "di4c" and latents is not None:
        raise InputError("`latents` is for `by` di4c; leave it out")
    counts = steps_of_rounds(method, teacher_steps, rounds, merge)
    corpus = corpus_of(model, data)
    judged = held_out(corpus, "validation", "test")
    student, model_config = (
        (copy.deepcopy(method.verified_by(None)), model.config)
        if by != "di4c"
        else with_latent(model, latents or LATENTS, options.seed)
    )
    for p in student.parameters():
        p.data = p.data.to(torch.promote_types(p.dtype, torch.float32))  # in bfloat16 most steps would round to nothing
    student.compute_in("tf32" if options.precision == "tf32" else "float32", student.compiles)
    loss: Loss = partial(way.loss, merge=merge, divergence=divergence)
    results = train_rounds(student, method, loss, corpus.train, judged, counts, ema, options)
    name = (model.source.name if model.source else "") or model.config.run or model.config.method
    texts = min(len(judged), HELD_OUT)
    config = Distilled(
        by, name, fingerprint(method), divergence, counts[-1], options.steps, options.seed, texts, results
    )
    distilled = {"by": by, "teacher_sha256": config.teacher_sha256, "steps": counts[-1]}
    about = model.about | publication(model.about) | {"distilled": distilled}
    kept = {name: value for name, value in model.defaults.items() if name in KEPT and name != BEST_OF}
    return Model(student, model.tokenizer, model_config, about, kept | {"steps": counts[-1]}), config


def with_latent(model: Model, latents: int, seed: int) -> tuple[Method, Config]:
    """The method with the weights of a model and a latent of so many values, and the config of such a model."""
    if model.config.network:
        raise InputError(f"`by` di4c needs a network of Zellige's own, and this one is {model.config.network}")
    config = replace(model.config, net=replace(model.method.network.net, latents=latents))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, "latent") % 2**63)
        student = build(
            type(model.method), model.tokenizer.size, config.net, model.method.config, ordered=model.method.ordered
        )
    student.load_state_dict(model.method.state_dict(), strict=False)
    return student.to(next(model.method.parameters()).device), config


def steps_of_rounds(method: Method, teacher_steps: int, rounds: int, merge: int) -> list[int]:
    """Number of steps of the first teacher, and of the student of each round.

    Raises:
        InputError: the steps cannot be divided so often, or the model has fewer.
    """
    if method.steps and teacher_steps > method.steps:
        raise InputError(f"`teacher_steps` is {teacher_steps:,}, and the model has {method.steps:,}; give no more")
    if teacher_steps % (whole := merge**rounds):
        nearest = max(round(teacher_steps / whole), 1) * whole
        power = f"{merge}^{rounds}" if rounds > 1 else f"{merge}"
        raise InputError(
            f"`teacher_steps` is {teacher_steps:,}; {counted(rounds, 'round')} of `merge` {merge} need a multiple of "
            f"{power}: give {nearest:,}, or fewer `rounds`"
        )
    return [teacher_steps // merge**r for r in range(rounds + 1)]


def train_rounds(
    student: Any,
    teacher: Any,
    loss: Loss,
    rows: Rows,
    judged: Rows,
    counts: Sequence[int],
    ema: float,
    options: FitOptions,
) -> tuple[Round, ...]:
    """Train the student for a round from each of `counts` to the next, and leave it with the average of its weights.

    Args:
        teacher: of the first round; the student, as a round has left it, is that of the next.
        options: of each round.
    """
    rounds, device = [], next(student.parameters()).device
    for turn, (n, after) in enumerate(itertools.pairwise(counts)):
        student.requires_grad_(True)
        judge = partial(held_out_loss, loss, student, teacher, judged, n, mix(options.seed, "held out", turn))
        before, average = judge(), EMA(student, ema)

        def loss_of(texts: Batch, generator: torch.Generator, n: int = n, teacher: Any = teacher) -> Tensor:
            texts = texts.to(device)
            return loss(student, teacher, texts, n, generator).sum() / texts.counted.sum().clamp_min(1)

        def after_step(done: int, total: int, turn: int = turn, average: EMA = average) -> None:
            average.update(done)
            if options.progress:
                options.progress(turn * total + done, (len(counts) - 1) * total)

        fit(student, rows, loss_of, replace(options, seed=mix(options.seed, turn), progress=after_step), clip=1.0)
        student.load_state_dict(average.state(), strict=False)
        rounds.append(Round(n, after, before, judge()))
        teacher = copy.deepcopy(student)
    return tuple(rounds)


@torch.no_grad()
def held_out_loss(
    loss: Loss, student: Diffusion, teacher: Diffusion, rows: Rows, n: int, seed: int
) -> tuple[float, float]:
    """The loss per token with its standard error over texts: each text once, with the same noise for every student."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    places, device = evenly_spaced(np.arange(len(rows)), HELD_OUT), next(student.parameters()).device
    N = len(places)
    student.eval()
    values = []
    for part in torch.arange(N).split(32):
        texts = rows.collate([rows[i] for i in places[part.numpy()].tolist()]).to(device)
        values.append(loss(student, teacher, texts, n, generator).double() / texts.counted.sum(-1).clamp_min(1))
    value = torch.cat(values)
    return float(value.mean()), float(value.std()) / math.sqrt(N) if N > 1 else math.inf


# ---------------------------------------------------------------------------------- the ways
def windows(method: Diffusion, n: int, merge: int, rows: int, generator: Randomness) -> Tensor:
    """Times (rows, merge + 1) of `merge` steps of the n-step model, from any of its times on, evenly drawn."""
    grid = method.grid(n).to(next(method.parameters()).device)
    first = (random.stratified(rows, generator) * (n - merge + 1)).long().to(grid.device)
    return grid[first[:, None] + torch.arange(merge + 1, device=grid.device)]


def _sdtt(
    student: Any, teacher: Any, batch: Batch, n: int, generator: Randomness, merge: int, divergence: str
) -> Tensor:
    times = windows(student, n, merge, len(batch), generator)
    return distillation.sdtt(student, teacher, batch, times, divergence, generator)


def _consistency(
    student: Any, teacher: Any, batch: Batch, n: int, generator: Randomness, merge: int, divergence: str
) -> Tensor:
    times = windows(student, n, merge, len(batch), generator)
    t, s = times[:, :1], times[:, -2:-1]  # where the last of the teacher's steps begins
    alpha = student.process.schedule.alpha
    x_t, x_s = on_path(batch.tokens, alpha(t)[..., 0], alpha(s)[..., 0], student.process.K, generator)
    x_t, x_s = (torch.where(batch.counted, x, batch.tokens) for x in (x_t, x_s))
    return distillation.consistency(student, teacher, batch, x_t, x_s, t, s, divergence).sum(-1)


def _di4c(
    student: Any, teacher: Any, batch: Batch, n: int, generator: Randomness, merge: int, divergence: str
) -> Tensor:
    return distillation.mixture(student, teacher, batch, windows(student, n, merge, len(batch), generator), generator)


def _no_distribution(method: Method) -> bool:
    """Return whether the network gives no distribution of clean tokens from which a whole text is sampled."""
    return bool(irreversible(method)) or method.parameterization not in ("mean", "leave_one_out")


def _of_masks(method: Method) -> str | None:
    """Reason why SDTT does not support a method."""
    unfit = _no_distribution(method) or not_absorbing(method, one=True)
    return f"`by` sdtt is for masked models (mdlm, md4, radd), and this is {described(method)}" if unfit else None


def _of_uniform_noise(method: Method) -> str | None:
    """Reason why consistency does not support a method."""
    process = method.process
    uniform = isinstance(process, Mixture) and bool((process.prior == process.prior[0]).all())
    if uniform and not _no_distribution(method):
        return None
    return f"`by` consistency is for uniform noise (udlm, or d3pm with it), and this is {described(method)}"


def _of_both(method: Method) -> str | None:
    """Reason why a mixture cannot be a student of a method."""
    if _no_distribution(method):
        return f"`by` di4c is for models that predict clean tokens (mdlm, md4, radd, udlm), and this is {described(method)}"
    if not isinstance(method.network, DiT) or method.network.net.classes:
        return "`by` di4c needs a transformer without classes"
    return None


def described(method: Method) -> str:
    """A method in the words of an error."""
    if 1 < method.block < method.shape[0]:
        return f"{method.name}, which writes block after block"
    return f"a mixture over a latent, a student of {method.name}" if method.latents else method.name


@dataclass(frozen=True)
class Way:
    """A way to distill: its loss, and why it does not support a method."""

    loss: Callable[..., Tensor]
    reason_against: Callable[[Method], str | None]


WAYS = {
    "sdtt": Way(_sdtt, _of_masks),
    "consistency": Way(_consistency, _of_uniform_noise),
    "di4c": Way(_di4c, _of_both),
}


# ---------------------------------------------------------------------------------- its record
@dataclass(frozen=True)
class DistillRecord(Trained):
    """A student that was trained, with how its rounds went in `config`; `model` is None where a file was read."""

    command: ClassVar = "train distill"
    kind: ClassVar = "distill"
    config: Distilled
    model: Model | None = field(default=None, compare=False, repr=False, metadata=UNREAD)

    def figures(self) -> list[Figure]:
        n = self.config.texts
        return [
            Figure(counted(r.student, "step"), r.after[0], half(r.after[1], n), self.config.unit, "estimate")
            for r in self.config.rounds
        ]

    @property
    def unit(self) -> str:
        return self.config.unit
