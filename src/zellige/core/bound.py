"""The bound of any noise process, per position, in nats: the cost of a step (`discrete`) or per unit of time
(`continuous`).

The upper bound on -log p(x_0) has three terms (DDPM's L_T, L_t, L_0):

    prior            KL( q(x_1 | x_0) || prior ); with masks the cost of the tokens that are still visible at t = 1
    diffusion        the integral over t in (0, 1) of `continuous`, or a sum of `discrete` over a grid of times
    reconstruction   -log p(x_0 | x_{t=0}), from t = 0 to clean tokens

With masks, the prior and reconstruction terms are also integrals of `continuous`: their tokens are revealed one at a
time (`core.schedule`). `exact.bounds` computes all terms on a small space.
"""

from torch import Tensor

from . import maths
from .prediction import Prediction, kernel, score
from .process import Process


def discrete(target: Prediction, pred: Prediction, s: Tensor | float) -> Tensor:
    """KL( q(x_s | x_t, x_0) || p(x_s | x_t) ) of a step from t to s, (*) nats; -log p(x_0 | x_t) for s = CLEAN.

    D3PM eq. 1; a term of MD4's L_T. `target` is the `truth` given x_0.
    """
    return maths.kl(kernel(target, s), kernel(pred, s))  # D3PM eq. 1


def continuous(target: Prediction, pred: Prediction) -> Tensor:
    """sum_y R_t(y, x_t) [v - u + u log(u / v)], u and v the scores of target and prediction: (*) nats per unit of time.

    t is in the open interval (0, 1). This is the bound of all continuous-time methods: SEDD's score entropy (eq. 10),
    MDLM's eq. 10, MD4's eq. 4, RADD's t-DSE (eq. 2.11), and tauLDR's ELBO (proposition 2) up to a constant.
    """
    into = pred.process.rate_into(pred.x_t, pred.t)
    return (into * maths.score_entropy(score(target), score(pred))).sum(-1)  # SEDD eq. 10


def prior(process: Process, x_0: Tensor, t: Tensor | float) -> Tensor:
    """KL( q(x_t | x_0) || prior ), (*) nats."""
    return process.divergence(x_0, t)  # D3PM eq. 1, its first term
