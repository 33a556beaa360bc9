"""Methods small enough to be enumerated, and the pairs of sampler and method that the tests run through."""

import torch
from torch import nn

from testing.worlds import L, V, data_distribution, per_token, table
from zellige import exact
from zellige.core.curves import Geometric, Linear, Polynomial
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import Tabulated
from zellige.methods import MD4, MDLM
from zellige.methods.absorbing import Masked
from zellige.samplers import (
    P2,
    Ancestral,
    AnyOrder,
    Confidence,
    Euler,
    FirstHitting,
    FixedOrder,
    Informed,
    Klass,
    Psi,
    Remasking,
    Smc,
    TauLeaping,
    Uniformisation,
)

close = torch.testing.assert_close


def mdlm(mask=V, length=L):
    return MDLM(table(V + 1, length), V, (length,), mask=mask)


def md4(schedule="cosine"):
    return MD4(table(V + 1, L, time=True), V, (L,), MD4.Config(schedule, eps=0.02))


def denoiser(process, predicts="mean"):
    return exact.Denoiser(process, data_distribution(), L, predicts)


def genmd4():
    """The exact network of an absorbing process with one exponent for each token."""
    return denoiser(absorbing(V + 1, Polynomial(per_token(0.5, 1.0, 2.5, 1.0))))


def d3pm(uniformly=False):
    """Discrete time, T = 12."""
    schedule = Tabulated(torch.linspace(1.0, 0.0 if not uniformly else 1e-3, 13, dtype=torch.float64))
    return denoiser(uniform(V, schedule) if uniformly else absorbing(V + 1, schedule), "leave_one_out")


def sedd(uniformly=False):
    noise = Geometric(1e-2, 8.0)
    return denoiser(uniform(V, noise) if uniformly else absorbing(V + 1, noise), "score")


def constant(schedule, logits, length=1):
    """A time-free network that says the same logits (V + 1,) everywhere, under any schedule."""
    return Masked(Constant(logits), V, (length,), None, schedule, False)


class Constant(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = torch.as_tensor(logits, dtype=torch.float64)

    def features(self, x, time=None, **kwargs):
        return self.logits.expand(*x.shape, -1)

    def head(self, h):
        return h


METHODS = {
    "mdlm": mdlm,
    "md4": md4,
    "genmd4": genmd4,
    "d3pm, absorbing": d3pm,
    "d3pm, uniform": lambda: d3pm(True),
    "sedd, absorbing": sedd,
    "sedd, uniform": lambda: sedd(True),
    "uniform, mean": lambda: denoiser(uniform(V, Linear())),
}
SAMPLERS = {
    "ancestral": Ancestral(),
    "ancestral, cold": Ancestral(temperature=0.7, top_p=0.9),
    "plain": Ancestral(choose=False),
    "euler": Euler(),
    "first_hitting": FirstHitting(),
    "any_order": AnyOrder(),
    "any_order by two": AnyOrder(2),
    "backward": FixedOrder("backward"),
    "confidence": Confidence(),
    "confidence above 0.5": Confidence("margin", 0.5),
    "confidence, entropy bound": Confidence(entropy_bound=0.5),
    "klass": Klass(0.2, 0.5, 1),
    "p2": P2(1.5),
    "remasking, cap": Remasking(eta=0.3),
    "remasking, conf": Remasking("conf"),
    "remasking, loop": Remasking("loop", eta=0.3),
    "psi": Psi("0.6"),
    "smc": Smc(),
    "informed": Informed(resample=2, pick="margin"),
    "tau_leaping": TauLeaping(),
    "tau_leaping, corrected": TauLeaping(corrector=2, corrector_step=0.5, corrector_from=0.7),
    "uniformisation": Uniformisation(),
}
CANNOT = {  # sampler -> the methods that it refuses
    "euler": {"d3pm, absorbing", "d3pm, uniform"},
    "tau_leaping": {"d3pm, absorbing", "d3pm, uniform"},
    "uniformisation": {"d3pm, absorbing", "d3pm, uniform", "sedd, absorbing", "sedd, uniform", "genmd4"},
    "first_hitting": {"d3pm, absorbing", "d3pm, uniform", "sedd, absorbing", "sedd, uniform", "uniform, mean"},
    "any_order": {"md4", "genmd4", "d3pm, uniform", "sedd, uniform", "uniform, mean"},
    "confidence": {"d3pm, uniform", "sedd, uniform", "uniform, mean"},
    "remasking": {"genmd4", "d3pm, uniform", "sedd, uniform", "uniform, mean"},
}
CANNOT["informed"] = {"genmd4"}
CANNOT["klass"] = CANNOT["confidence"]
CANNOT["p2"] = {"genmd4", "d3pm, absorbing", "sedd, absorbing", "d3pm, uniform", "sedd, uniform", "uniform, mean"}
CANNOT["fixed_order"] = CANNOT["any_order"]
CANNOT["metropolis"] = CANNOT["left_to_right"] = CANNOT["speculative"] = CANNOT["insertion"] = set(METHODS)
CANNOT["semi_autoregressive"] = CANNOT["any_order"] - {"genmd4"}
CANNOT["blockwise"] = {"d3pm, uniform", "sedd, uniform", "uniform, mean"}
PAIRS = [
    (s, m)
    for s, sampler in SAMPLERS.items()
    for m in METHODS
    if m not in CANNOT.get(sampler.name, ()) and (s, m) != ("remasking, loop", "d3pm, absorbing")
]


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def distance(p, q):
    return float((p - q).abs().sum()) / 2
