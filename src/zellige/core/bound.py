"""The bound of any noise process, per position, in nats: the cost of a step (`discrete`) or per unit of time (`continuous`).

The upper bound on -log p(x_0) has three terms (DDPM's L_T, L_t, L_0):

    prior            KL( q(x_1 | x_0) || prior ); with masks the cost of the tokens still visible at t = 1
    diffusion        the integral over t in (0, 1) of `continuous`, or a sum of `discrete` over a grid
    reconstruction   -log p(x_0 | x_{t=0}), from t = 0 to clean tokens

With masks, prior and reconstruction are integrals of `continuous`, too: their tokens are revealed one by one (see
`core.schedule`). `exact.bounds` computes all terms on a small space.
"""

from torch import Tensor

from . import maths
from .prediction import Prediction, kernel, score
from .process import Process


def discrete(target: Prediction, pred: Prediction, s: Tensor | float) -> Tensor:
    """KL( q(x_s | x_t, x_0) || p(x_s | x_t) ), (*): D3PM eq. 1, a term of MD4's L_T;
    s = CLEAN gives -log p(x_0 | x_t)."""
    return maths.kl(kernel(target, s), kernel(pred, s))  # D3PM eq. 1


def continuous(target: Prediction, pred: Prediction) -> Tensor:
    """sum_y R_t(y, x_t) [v - u + u log(u / v)] with u, v the scores of target and prediction, (*), per unit of time.

    The one continuous-time bound: SEDD's score entropy (eq. 10), MDLM's eq. 10 and MD4's eq. 4, RADD's t-DSE
    (eq. 2.11), and tauLDR's ELBO (proposition 2) up to a constant. t in the open interval (0, 1).
    """
    into = pred.process.rate_into(pred.x_t, pred.t)
    return (into * maths.score_entropy(score(target), score(pred))).sum(-1)  # SEDD eq. 10


def prior(process: Process, x_0: Tensor, t: Tensor | float) -> Tensor:
    """KL( q(x_t | x_0) || prior ), (*)."""
    return process.divergence(x_0, t)  # D3PM eq. 1, its first term
