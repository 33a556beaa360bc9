"""AR: the autoregressive model, the baseline of every table.

    factorisation    log p(x) = sum_i log p(x_i | x_1 .. x_{i-1})
    network          causal; it reads a begin token, then x_1 .. x_{L-1}, and gives the next token
    likelihood       exact: the sum of the cross-entropies

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| none | - | next token | cross-entropy | left_to_right |

Differences from the other methods: there is no noise, so `bound` is -log p itself (`exact`). The network sees only the
tokens on the left, so a token may be given to the right of a gap only where `best_of` chooses among candidates. With
`token_share` below 1 the loss of a training batch is the mean over a random fraction of its tokens; 0.5 is the average
fraction that masked diffusion masks (BD3-LM, section 4.2). Published models begin a text with a token of the vocabulary
(`begin`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.batch import Batch
from ..core.positions import positions
from ..nn.cross_entropy import cross_entropy
from .method import Method


class AR(Method):
    """One token after another, left to right; see the module for the equations."""

    name = "ar"
    system, paper, noise = "AR", "", "none"
    parameterization = "next"
    exact = True
    sampler = "left_to_right"

    @declared
    class Config:
        """AR's own choice."""

        begin: int | None = option(
            "id of the token that begins a text, as in published models (default: an additional token)",
            default=None,
            minimum=0,
        )
        token_share: float = option(
            "fraction of the tokens that count in the training loss, chosen at random; 0.5: as many as masked diffusion "
            "masks",
            default=1.0,
            above=0,
            maximum=1,
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        super().__init__(network, vocabulary, shape, self.checked(config))
        begin = self.config.begin
        if begin is not None and not 0 <= begin < vocabulary:
            raise InputError(f"`begin` is {begin}; it must be a token of 0 to {vocabulary - 1:,}")
        self.begin = vocabulary if begin is None else begin
        self.unused = None if begin is None else vocabulary  # an output that no token has

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    @classmethod
    def outputs(cls, vocabulary, config):
        return vocabulary + (config.begin is not None)

    @classmethod
    def timed(cls, config):
        return False

    @classmethod
    def block_size(cls, config):
        return 1

    @classmethod
    def build_network(cls, net, vocabulary, config):
        if net.self_condition:
            raise InputError("`net.self_condition` is for noisy texts, and ar has none; leave it out")
        return super().build_network(net, vocabulary, config)

    def inputs(self, batch: Batch) -> Tensor:
        """Network input at each position (B, L): the token before it, or the token that begins a text or a document."""
        before = F.pad(batch.tokens[:, :-1], (1, 0), value=self.begin)
        if batch.segments is None:
            return before
        starts = F.pad(batch.segments[:, 1:] != batch.segments[:, :-1], (1, 0), value=True)
        return before.masked_fill(starts, self.begin)

    def logits(self, h):
        return super().logits(h)[..., : self.vocabulary]

    def next(self, h: Tensor) -> Tensor:
        """Distribution of the next token from the hidden states h (*, D) up to it: (*, V) float64."""
        return self.logits(h).double().softmax(-1)

    def predict(self, *_, **__):
        raise InputError(
            "ar undoes no noise and predicts no clean tokens; ask `next` for the distribution of the next one"
        )

    def terms(self, batch, generator=None):
        return {"next token": self._nll(batch, batch.counted)}

    def loss(self, batch, generator=None):
        if self.config.token_share == 1:
            return super().loss(batch, generator)
        counted = batch.counted
        share = torch.full(counted.shape, self.config.token_share, device=counted.device)
        drawn = counted & random.bernoulli(share, generator)
        return self._nll(batch, drawn) * (counted.sum() / drawn.sum().clamp_min(1)).double()

    def _nll(self, batch: Batch, at: Tensor) -> Tensor:
        """Sum of -log p(x_i | x_1 .. x_{i-1}) over the positions `at` (B, L) bool of each sequence: (B,) nats."""
        where = positions(at)
        h = where.of(self.hidden(self.inputs(batch), None, batch))
        target, weights = where.of(batch.tokens), where.weights(None)
        nll = cross_entropy(
            self.network, h, target, weight=None if weights is None else weights.to(h.dtype), exclude=self.unused
        )
        return where.sum(nll.double(), weighted=True)

    @property
    def reads_forward(self):
        return True

    def left_to_right(self, batch, *targets):
        where = positions(batch.counted)
        h = where.of(self.hidden(self.inputs(batch), None, batch))
        nats = [cross_entropy(self.network, h, where.of(target), exclude=self.unused).double() for target in targets]
        return torch.stack([where.put(torch.zeros_like(batch.tokens, dtype=each.dtype), each) for each in nats])
