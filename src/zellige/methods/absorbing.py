"""The family of absorbing noise: what is lost becomes the mask, so that only masks say anything and only they are asked.

`Masked` (MDLM, MD4, RADD, BD3-LM) adds the closed forms of one alpha for all tokens; GenMD4 has an alpha of its own for each, and
D3PM's matrices absorb where that is its `process`.
"""

import torch
from torch import Tensor

from ..core.batch import Batch
from ..core.prediction import Mean, restricted
from ..core.schedule import PRIOR
from ..nn.cross_entropy import cross_entropy
from .diffusion import Diffusion


class Absorbing(Diffusion):
    """A method of absorbing noise, the network read as p(x_0 | x_t) through SUBS (MDLM, section 3.2.3) unless it says otherwise.

    A subclass may have other noise too, where nothing absorbs (`process.mask` is None): it then gives `read` and `cost`.
    """

    def read(self, logits, x_t, t):
        # MDLM section 3.2.3: zero masking probability and carry-over; the latter holds already where all are masks
        make = Mean if bool((x_t == self.process.mask).all()) else restricted
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
        masked = x_t == self.process.mask if at is None else at
        h = self.hidden(x_t, t, batch, self.clean(batch))[masked]
        row = masked.nonzero()[:, 0]
        each = None
        if weight is not None:
            each = weight[masked if weight.ndim == 2 else row]
            each = each.to(h.dtype if h.dtype == torch.float64 else torch.float32)
        ce = cross_entropy(self.network, h, batch.tokens[masked], weight=each, exclude=self.process.mask).double()
        if group is None:
            return torch.zeros(len(x_t), dtype=torch.float64, device=x_t.device).index_add(0, row, ce)
        total = torch.zeros(len(x_t), int(group.max()) + 1, dtype=torch.float64, device=x_t.device)
        return total.index_put((row, group[masked]), ce, accumulate=True)

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
            return alpha_1 * self.cross_entropy(batch, x_t, PRIOR)  # MDLM eq. 8 from alpha = 0 to alpha_1
        logits = self.process.without_mask(self.logits(self.hidden(x_t[:1], PRIOR)[0]))  # one row serves all: (L, K)
        place = torch.arange(x.shape[1], device=x.device)
        at_x_0 = logits[place, x]  # not of logits expanded: its gradient would be (B, L, K)
        return alpha_1 * (logits.logsumexp(-1) - at_x_0).double().sum(-1)  # MDLM eq. 8 from alpha = 0 to alpha_1
