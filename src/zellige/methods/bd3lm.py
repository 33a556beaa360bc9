"""BD3-LM: Block diffusion, interpolating between autoregressive and diffusion language models (Arriola et al. 2025,
arXiv 2503.09573).

The sequence is cut into blocks x^b of L' tokens, written one after another; each is a diffusion of its own, given those
before.

    factorisation    log p(x) = sum_b log p(x^b | x^{<b})                                             (eq. 4)
    inside a block   p(x_s^b | x_t^b, x^{<b}) = sum over x^b of q(x_s^b | x_t^b, x^b) p(x^b | x_t^b, x^{<b})    (eq. 5)
    bound            sum_b E_t [ -alpha'/(1 - alpha) sum over the masks of -log mu^b(x_0) ]           (eq. 6 and 8)

In one pass the network reads x_t of all blocks, each with its own time, together with x_0. A noisy position sees its own
block of x_t and the earlier blocks of x_0 (section 3.2). The loss of a block does not depend on the noise of the others.
So the times of a sequence's blocks (or their numbers of masks) are spread evenly, which lowers the variance.

    clipped          t ~ U[beta, omega] in training: extreme times make much of the variance of the
                     gradient and teach little                                                    (sections 5 and 5.2)
    search           choose the interval [beta, omega] whose loss varies least                       (section 5.3)
    mixed sizes      each training batch is cut into blocks of one size, drawn from `blocks`; the model
                     is then evaluated and sampled at any of them                             (arXiv 2606.02241)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing, by blocks | loglinear, t may be clipped | Mean or Score | weighted cross-entropy, t per block | blockwise |
| uniform, by blocks | the same | LeaveOneOut or Score | that of UDLM or SEDD, t per block | blockwise |

Differences from the paper, which has masks and one size of block:

Uniform noise and mixed sizes are additions. Each block has its own time. The clip interval only restricts t in training:
`bound` is always over all of [0, 1], and includes the endpoint terms of the schedule, which the published bound leaves
out. For a network without a time input, training draws the number of masks of a block instead of its time (`Masked`). With
L' = 1 every token is then masked, and the bound is -log p itself, without variance. (The paper attributes its gap to
autoregression to this variance.) Clean tokens have time input t = 0; in published code they have the time of the
sequence's first noisy token. With a score inside (SEDD), `loss` is the diffusion term alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.batch import Batch
from ..core.curves import SCHEDULES, ScheduleChoice, schedule_of
from ..core.process import absorbing, uniform
from ..core.random import Randomness
from ..nn.attention import documents
from .absorbing import Masked, without_mask
from .diffusion import Diffusion, per_position
from .method import copy_of
from .score import Scored
from .uniform import Uniform

WIDTHS, STEP = (0.5, 0.6, 0.7, 0.8, 0.9), 0.05  # of the intervals that are searched


def intervals() -> list[tuple[float, float]]:
    """Candidate intervals: all of [0, 1], and several widths at a fixed spacing."""
    candidates = [(0.0, 1.0)]
    for width in WIDTHS:
        candidates += [(i * STEP, i * STEP + width) for i in range(round((1 - width) / STEP) + 1)]
    return candidates


@torch.no_grad()
def search(
    loss: Callable[[Tensor, Randomness], Tensor], interval: Tensor, generator: Randomness = None
) -> tuple[Tensor, float]:
    """The interval (2,) whose loss has the least variance over examples and noise, and that variance.

    Args:
        loss: of each row (B,), from an interval (2,) and what to draw from.
        interval: (2,) the one so far, which stays where no variance is a number.
    """
    seed = int(random.uniform((1,), generator) * 2**53)
    best, least = interval.clone(), torch.inf
    for ends in map(interval.new_tensor, intervals()):
        variance = float(loss(ends, torch.Generator().manual_seed(seed)).var())
        if variance < least:  # BD3-LM section 5.3
            least, best = variance, ends
    return best, least


class Blocks(Diffusion):
    """Blocks one after another, diffusion inside each; the parameterization is that of `BD3LM`, `BD3LMScore` or
    `BD3LMUniform`."""

    name = "bd3lm"
    system, paper, noise = "BD3-LM", "2503.09573", "absorbing, by blocks"
    time_input = "sigma"
    choices: ClassVar = {"process": ("absorbing", "uniform"), "prediction": ("mean", "score"), "schedule": SCHEDULES}
    sampler = "blockwise"
    variants = (
        {},
        {"block": 1},
        {"block": 1, "time": True},
        {"block": 1, "prediction": "score"},
        {"block": 1, "process": "uniform", "time": True},
    )

    @declared
    class Config(ScheduleChoice):
        """BD3-LM's options."""

        block: int = option(
            "tokens per block; 1 is autoregression, the length of a text is MDLM", default=16, minimum=1
        )
        blocks: tuple[int, ...] = option(
            "sizes of block to train with, one drawn for each batch; `block`, one of them, is the default for "
            "evaluation and samples",
            default=(),
        )
        process: str = option("kind of noise in a block: absorbing or uniform", default="absorbing")
        prediction: str = option(
            "parameterization in a block: mean or score; as MDLM (UDLM with uniform noise) or as SEDD", default="mean"
        )
        time: bool = option("condition the network on each block's noise sigma", default=False)
        clip: tuple[float, float] = option(
            "training draws t from this interval alone; the reported bound covers all t", default=(0.0, 1.0)
        )
        search: bool = option(
            "look for the interval of least variance at each validation, beginning with `clip`", default=False
        )
        resample: bool = option(
            "with `clip`: draw a block again until its fraction of masks is in the interval, too, as the published "
            "code does",
            default=False,
        )
        row_by_row: bool = option(
            "spread the times of training row by row (the first row of a batch gets the largest), as the published code "
            "does",
            default=False,
        )
        mask: int | None = option(
            "id of the tokenizer's own mask token, if it has one; by default the vocabulary has one more token, the "
            "mask",
            default=None,
            minimum=0,
        )

        def __post_init__(self) -> None:
            low, high = self.clip
            if not 0 <= low <= 1 or not 0 <= high <= 1:
                raise InputError(f"clip interval [{low:g}, {high:g}] is outside [0, 1]; e.g. 0.3 0.8")
            if low >= high:
                raise InputError(
                    f"clip interval [{low:g}, {high:g}] is empty; the smaller end comes first, e.g. 0.3 0.8"
                )
            if min(self.blocks, default=1) < 1:
                raise InputError(f"`blocks` has {min(self.blocks)}; a size of block is 1 or more")
            if self.blocks and self.block not in self.blocks:
                sizes = " ".join(map(str, self.blocks))
                raise InputError(f"`block` {self.block} is none of `blocks` {sizes}; give one of them")
            if self.mask is not None and self.process == "uniform":
                raise InputError("`mask` is of absorbing noise, and `process` is uniform; leave it out")
            if self.blocks and self.search:
                raise InputError("`search` looks for the interval of one size of block; leave out `blocks`")

    interval: Tensor | None

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Config,
        *noise: Any,
        **more: Any,
    ):
        if self.resolve(config) not in type(self).__mro__:
            raise InputError(f"{type(self).__name__} reads a {self.parameterization}; build bd3lm by its name instead")
        if config.process == "uniform" and config.resample:
            raise InputError("`resample` counts masks, and `process` uniform has none; leave it out")
        (length,) = shape
        for block in {config.block, *config.blocks}:
            if length > block and length % block:
                fewer = length // block * block
                raise InputError(
                    f"length {length} is not a multiple of block {block}; nearest: {fewer} or {fewer + block}"
                )
        super().__init__(network, vocabulary, shape, config, *noise, **more)
        interval = torch.tensor(config.clip, dtype=torch.float64) if config.search or config.clip != (0, 1) else None
        self.register_buffer("interval", interval, persistent=config.search)
        self.adapts = 64 if config.search else 0
        self._in_blocks: dict[int, Self] = {}  # what `for_step` made
        self.loss_is_bound = self.loss_is_bound and interval is None and not config.blocks

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.process == "absorbing" and config.mask is None)

    @classmethod
    def block_size(cls, config):
        return config.block

    @classmethod
    def resolve(cls, config):
        if cls not in (BD3LM, BD3LMScore, BD3LMUniform):
            return cls
        return BD3LMScore if config.prediction == "score" else BD3LMUniform if config.process == "uniform" else BD3LM

    def clean(self, batch):
        return None if self._one(batch) else batch.tokens

    def groups(self, batch):
        if self._one(batch):
            return super().groups(batch)
        x = batch.tokens
        position = torch.arange(x.shape[1], device=x.device).expand(x.shape)
        if batch.segments is not None:
            _, position = documents(batch.segments)
        group = (position % self.config.block == 0).cumsum(-1) - 1
        if batch.segments is None:
            blocks = -(-x.shape[1] // self.config.block)
        else:  # no row can have more
            blocks = x.shape[1] if torch.compiler.is_compiling() else int(group[:, -1].max()) + 1
        n = x.new_zeros(len(x), blocks)
        return group, n.scatter_add(1, group, batch.counted.long())

    def spread(self, n, generator=None):
        spread = random.row_by_row if self.config.row_by_row and self.training else random.spread
        return spread(n, generator, placed=self.interval is None)  # an interval takes the place of the middle

    def _one(self, batch: Batch) -> bool:
        """Return whether a sequence is a single block."""
        return batch.segments is None and batch.tokens.shape[1] <= self.config.block

    def of_block(self, block: int) -> Self:
        """The same method in blocks of another size. It shares the weights."""
        network = copy_of(self.network)
        copied = self.of_network(network)
        network.block, copied.config = block, replace(self.config, block=block, blocks=())
        copied.exact = self.draws_mask_counts and block == 1
        return copied

    def for_step(self, generator: Randomness = None) -> Self:
        """The same method in blocks of one of the sizes that it is trained with, drawn evenly."""
        sizes = self.config.blocks
        if not sizes:
            return self
        block = sizes[int(len(sizes) * random.shared(generator))]
        if block not in self._in_blocks:
            self._in_blocks[block] = self.of_block(block)
        method = self._in_blocks[block]
        return method if method.training == self.training else method.train(self.training)

    def __getstate__(self):
        return super().__getstate__() | {"_in_blocks": {}}

    # ---------------------------------------------------------------------------------- training
    def loss(self, batch, generator=None):
        if self.config.blocks:
            return self.for_step(generator).loss(batch, generator)
        if self.interval is None:
            return super().loss(batch, generator)
        return self.clipped(batch, self.interval, generator)

    def clipped(self, batch: Batch, interval: Tensor, generator: Randomness = None) -> Tensor:
        """The diffusion term (eq. 8) at a t in each block that is uniform in the interval [beta, omega], (2,):
        (B,) nats."""
        low, high = interval
        t = low + (high - low) * self.draw_times(batch, generator)
        return self.continuous_bound(batch, self.noised(batch, per_position(t), interval, generator), t)  # BD3-LM eq. 8

    def noised(self, batch: Batch, t: Tensor, interval: Tensor, generator: Randomness = None) -> Tensor:
        """x_t (B, L). With `resample`, blocks whose fraction of masks is outside the interval are sampled again, where
        possible."""
        x_t = self.corrupt(batch, t, generator)
        if not self.config.resample:
            return x_t
        (low, high), (group, n) = interval, self.groups(batch)

        def within(masks: Tensor) -> Tensor:
            return (masks.double() / n >= low) & (masks.double() / n <= high) & (masks <= n)

        possible = torch.stack([within(torch.full_like(n, k)) for k in range(int(n.max()) + 1)]).any(0)
        while True:
            masks = torch.zeros_like(n).scatter_add(1, group, (self.process.movable(x_t) & batch.counted).long())
            again = possible & ~within(masks)
            if not bool(again.any()):
                return x_t
            x_t = torch.where(again.gather(1, group), self.corrupt(batch, t, generator), x_t)

    def adapt(self, batch, generator=None):
        """Set the interval whose loss has the least variance over the batch, with common random numbers."""
        assert self.interval is not None
        lengths = batch.counted.sum(-1).clamp_min(1)
        best, least = search(lambda ends, g: self.clipped(batch, ends, g) / lengths, self.interval, generator)
        self.interval.copy_(best)
        return f"t in [{best[0]:.2f}, {best[1]:.2f}], where the loss has variance {least:.3g}"


class BD3LM(Blocks, Masked):
    """Blocks one after another, masked diffusion inside each; see the module for the equations."""

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Blocks.Config | None = None,
        **more: Any,
    ):
        config = self.checked(config)
        vocabulary, mask = without_mask(vocabulary, config.mask)
        super().__init__(network, vocabulary, shape, config, schedule_of(config), config.time, mask=mask, **more)
        self.exact = self.draws_mask_counts and config.block == 1
        self.mean_masked = None if config.search else self._mean_masked(*config.clip)


class BD3LMScore(Blocks, Scored):
    """Blocks one after another, a concrete score inside each, as in SEDD (`prediction` score)."""

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Blocks.Config | None = None
    ):
        config = self.checked(config)
        states, schedule = self.states(vocabulary, config), schedule_of(config)
        vocabulary, mask = without_mask(vocabulary, config.mask)
        process = uniform(states, schedule) if config.process == "uniform" else absorbing(states, schedule, mask)
        super().__init__(network, vocabulary, shape, config, process, config.time)


class BD3LMUniform(Blocks, Uniform):
    """Blocks one after another, uniform noise inside each, as in UDLM (`process` uniform)."""

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Blocks.Config | None = None
    ):
        config = self.checked(config)
        super().__init__(network, vocabulary, shape, config, schedule_of(config), config.time)
