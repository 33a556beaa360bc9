"""Planted errors in a carried estimate: the sampler, its bound, what the network reads."""

from .mutant import Mutant as M

CA, AN, TR = "samplers/carried.py", "samplers/ancestral.py", "nn/transformer.py"
CHECK = "networks.carried mdlm"
NOISY = "networks.carried udlm"

CARRY = [
    M(
        "the estimate is read as logits",
        TR,
        "return read(estimate.to(self.estimates.dtype) @ self.estimates, at)",
        "return read(estimate.log().clamp_min(-9).to(self.estimates.dtype) @ self.estimates, at)",
        CHECK,
    ),
    M(
        "an estimate that is given is not read",
        TR,
        "return read(estimate.to(self.estimates.dtype) @ self.estimates, at)",
        "return read(None, at)",
        CHECK,
    ),
    M("the next estimate is that of the step before", AN, "at.any(-1)), context=estimate)", "at.any(-1)))", CHECK),
    M(
        "the estimate of the kernel is carried, not that of the network",
        CA,
        "return pred, Estimate(logits.softmax(-1))",
        "return pred, Estimate(logits[..., : method.process.K].log_softmax(-1))",
        CHECK,
    ),
    M(
        "without a step before, all tokens are taken as likely",
        CA,
        "Estimate(torch.zeros(*state.x.shape",
        "Estimate(torch.ones(*state.x.shape",
        CHECK,
    ),
    M(
        "the bound forgets the estimate from step to step",
        CA,
        "x=random.categorical(q, generator), context=estimate)",
        "x=random.categorical(q, generator))",
        NOISY,
    ),
    M("the bound counts its last step alone", CA, "nats = nats + step", "nats = step", NOISY),
    M(
        "a path of the bound keeps its first state",
        CA,
        "x=random.categorical(q, generator), context",
        "context",
        NOISY,
    ),
]
