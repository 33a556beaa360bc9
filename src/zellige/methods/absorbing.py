"""The family of absorbing noise: what is lost becomes the mask, so that only masks say anything and only they are asked.

`Masked` (MDLM, MD4, RADD, BD3-LM) adds the closed forms of one alpha for all tokens; GenMD4 has an alpha of its own for each, and
D3PM's matrices absorb where that is its `process`.
"""

import math

import torch
from torch import Tensor

from ..core.batch import Batch
from ..core.positions import positions
from ..core.prediction import Mean, restricted
from ..core.schedule import PRIOR
from ..nn.cross_entropy import cross_entropy
from .diffusion import Diffusion


class Absorbing(Diffusion):
    """A method of absorbing noise, the network read as p(x_0 | x_t) through SUBS (MDLM, section 3.2.3) unless it says otherwise.

    A subclass may have other noise too, where nothing absorbs (`process.mask` is None): it then gives `read` and `cost`.
    """

    lost: float | None = None  # the mean share of masks at the times that are drawn, where all tokens have one alpha

    def read(self, logits, x_t, t):
        # MDLM section 3.2.3: zero masking probability and carry-over; the latter holds already where all are masks
        make = restricted if torch.compiler.is_compiling() or bool((x_t != self.process.mask).any()) else Mean
        return make(self.process, self.process.without_mask(logits).softmax(-1), x_t, t)

    def reveal(self, t: Tensor | float, s: Tensor | float) -> Tensor:
        """P(a mask at t is a token at s): (alpha_s - alpha_t)/(1 - alpha_t), (*)."""
        alpha = self.process.schedule.alpha
        alpha_t, alpha_s = alpha(t)[..., 0], alpha(s)[..., 0]
        return (alpha_s - alpha_t) / (1 - alpha_t)  # MDLM eq. 8

    def cross_entropy(
        self,
        batch: Batch,
        x_t: Tensor,
        t: Tensor | float | None,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """The sum over the masks of each row of -log mu(x_0), times `weight` (B,) or (B, L): (B,) nats.

        With `group` (B, L), which of its row's groups a position is in, the sum over each of them: (B, groups). The head is
        computed at the masks only, or at other positions `at` (B, L) bool.
        """
        chosen = positions(x_t == self.process.mask, self.most(batch), batch.spare) if at is None else positions(at)
        h = self.hidden(x_t, t, batch, self.clean(batch), chosen)
        each = chosen.weights(weight)
        each = None if each is None else each.to(h.dtype if h.dtype == torch.float64 else torch.float32)
        target, mask = chosen.of(batch.tokens), self.process.mask
        ce = cross_entropy(self.network, h, target, weight=each, exclude=mask).double()
        if group is None:
            return chosen.sum(ce, weighted=True)
        total = torch.zeros(len(x_t), int(group.max()) + 1, dtype=torch.float64, device=x_t.device)
        return total.index_put((chosen.row, chosen.of(group)), ce, accumulate=True)

    def most(self, batch):
        # numbers of masks and times are spread evenly over the rows, so that their sum is within L of its mean, and one more for
        # each block; masks drawn at a time deviate from that by at most sqrt(B L)/2, and six times as much has a chance of 1e-9
        B, L = batch.tokens.shape
        if self.lost is None:
            return None
        return (
            math.ceil(B * L * max(self.lost, 0.5))
            + L
            + B * -(-L // (self.block or L))
            + math.ceil(3 * math.sqrt(B * L))
        )

    def most_rows(self, batch):
        B, L = batch.tokens.shape
        if self.lost is None:
            return None
        some = 1 - self.process.schedule.clean_end**L
        return math.ceil(B * some + 6 * math.sqrt(B * some * (1 - some))) + 6

    def prior_term(self, batch, generator=None):
        """The jump PRIOR -> t = 1: alpha_1 times the cross-entropy of the input that is all masks. (B,) nats."""
        if self.process.mask is None:
            return super().prior_term(batch, generator)
        x, alpha_1 = batch.tokens, self.process.schedule.alpha_1
        if alpha_1 == 0.0:
            return torch.zeros(len(x), dtype=torch.float64, device=x.device)
        x_t = self.process.sample_prior(x.shape)
        if any(part is not None for part in (batch.mask, batch.segments, batch.condition, self.clean(batch))):
            x_t = x_t if batch.mask is None else torch.where(batch.mask, x_t, x)
            return alpha_1 * self.cross_entropy(
                batch, x_t, PRIOR, at=batch.counted
            )  # MDLM eq. 8 from alpha = 0 to alpha_1
        logits = self.process.without_mask(self.logits(self.hidden(x_t[:1], PRIOR)[0]))  # one row serves all: (L, K)
        place = torch.arange(x.shape[1], device=x.device)
        at_x_0 = logits[place, x]  # not of logits expanded: its gradient would be (B, L, K)
        return alpha_1 * (logits.logsumexp(-1) - at_x_0).double().sum(-1)  # MDLM eq. 8 from alpha = 0 to alpha_1
