"""Planted errors in training losses that are no bounds: MaskGIT's and SUNDAE's."""

from .mutant import Mutant as M

MD4, UDLM, UNIFORM = "methods/md4.py", "methods/udlm.py", "methods/uniform.py"
MASKGIT, SUNDAE = "bound.unweighted-loss md4", "bound.unrolled-loss udlm"

OTHER_LOSSES = [
    M(
        "MaskGIT: the bound is drawn all the same",
        MD4,
        'if self.config.loss == "bound":\n            return super().loss',
        "if True:\n            return super().loss",
        MASKGIT,
    ),
    M(
        "MaskGIT: with the weight of the bound",
        MD4,
        "return self.cross_entropy(batch, x_t, per_position(t))",
        "return self.diffusion(batch, x_t, t)",
        MASKGIT,
    ),
    M(
        "MaskGIT: over all positions",
        MD4,
        "return self.cross_entropy(batch, x_t, per_position(t))",
        "return self.cross_entropy(batch, x_t, per_position(t), at=batch.counted)",
        MASKGIT,
    ),
    M(
        "MaskGIT: reported as a bound",
        MD4,
        'self.loss_is_bound = config.loss == "bound"',
        "pass",
        MASKGIT,
    ),
    M(
        "SUNDAE: the second text is the first",
        UDLM,
        "return (self._missed(batch, logits) + self._missed(batch, self._mean_logits(batch, x, t))) / 2",
        "return (self._missed(batch, logits) + self._missed(batch, self._mean_logits(batch, x_t, t))) / 2",
        SUNDAE,
    ),
    M(
        "SUNDAE: the sum of the steps for their mean",
        UDLM,
        "return (self._missed(batch, logits) + self._missed(batch, self._mean_logits(batch, x, t))) / 2",
        "return self._missed(batch, logits) + self._missed(batch, self._mean_logits(batch, x, t))",
        SUNDAE,
    ),
    M(
        "SUNDAE: the second text is the likeliest",
        UDLM,
        "x = random.categorical(logits.detach().softmax(-1), generator)",
        "x = logits.detach().argmax(-1)",
        SUNDAE,
    ),
    M(
        "SUNDAE: the network's distribution of the others' for the mean",
        UDLM,
        "return as_mean(self.process, logits, x, per_position(t).expand(x.shape))",
        "return logits",
        SUNDAE,
    ),
    M(
        "uniform noise: a token is kept with probability alpha, and never comes back by chance",
        UNIFORM,
        "torch.log1p(process.K * alpha / (1 - alpha))",
        "torch.log(process.K * alpha / (1 - alpha))",
        SUNDAE,
    ),
    M(
        "SUNDAE: given tokens are drawn anew",
        UDLM,
        "x = torch.where(batch.counted, x, batch.tokens)",
        "x = torch.where(batch.counted | True, x, batch.tokens)",
        SUNDAE,
    ),
    M(
        "SUNDAE: given tokens are counted",
        UDLM,
        "return torch.where(batch.counted, nll.reshape(batch.tokens.shape), 0.0).double().sum(-1)",
        "return nll.reshape(batch.tokens.shape).double().sum(-1)",
        SUNDAE,
    ),
]
