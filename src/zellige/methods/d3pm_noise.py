"""The noises of D3PM by their names, NOISES, and the process that a config chooses, `noise_of`.

To add one, write a function that makes its process, and give it a line of NOISES.

"absorbing" (into a mask), "uniform", "absorbing-uniform" (one or the other) and "middle" (absorbing into the middle
level) are mixtures, never K x K: keep with probability 1 - beta_i, else draw from the prior. "gaussian" and "band" are
chains of K x K matrices, "nearest", "absorbing-nearest" and "matrix" are matrix exponentials: one matrix for each time,
not for each position. The mutual-information schedules take x_0 to be uniform, or of the frequencies in `unigrams`, as
the published ones do. What the options mean stands in D3PM's `Config`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..base.errors import InputError, either
from ..core import process
from ..core.matrices import afford
from ..core.process import Process
from ..core.schedule import Tabulated
from .d3pm_transitions import TABLES, graph, graph_steps, levels, of_matrix, table

SCALINGS = ("exponential", "sinkhorn", "expm")  # of the neighbours' graph
WEIGHTS = ("equal", "rank")  # of its edges
STRENGTHS = ("paper", "matched")  # of a Gaussian kernel


@dataclass(frozen=True)
class Noise:
    """A noise of D3PM.

    Attributes:
        make: (config, V, schedule, unigrams) -> its process of V tokens, on one state more where there is a mask.
        mask: whether there is a mask.
        ordered: whether tokens must be ordered; embedded: whether they must be, without `embedding`.
        paper, auto: the schedules that these two names mean.
        schedules: the names of the schedules that it can have.
        informed: whether its mutual-information schedule reads the frequencies of the tokens.
    """

    make: Callable[[Any, int, str, Tensor | None], Process]
    mask: bool = False
    ordered: bool = False
    embedded: bool = False
    paper: str = "mutual-information"
    auto: str = "mutual-information"
    schedules: Sequence[str] = TABLES
    informed: bool = False


def noise_of(config: Any, V: int) -> Process:
    """The process of V tokens that a Config of D3PM chooses, on one state more where there is a mask.

    Raises:
        InputError: an option out of its range, or one that this noise does not have.
    """
    _refuse(config)
    noise, schedule = NOISES[config.process], config.schedule
    if schedule in ("paper", "auto"):
        schedule = getattr(noise, schedule) if config.scaling == "exponential" else "linear"
    if config.unigrams and not (noise.informed and schedule == "mutual-information"):
        informed = either([name for name, other in NOISES.items() if other.informed])
        raise InputError(f"`unigrams` is for `schedule` mutual-information of `process` {informed}; drop it")
    if schedule not in noise.schedules:
        raise InputError(f"`schedule` {schedule} is not for `process` {config.process}; use {either(noise.schedules)}")
    return noise.make(config, V, schedule, read_unigrams(config.unigrams, V) if config.unigrams else None)


def _refuse(config: Any) -> None:
    """Raise InputError for an option out of its range, or one that the noise does not have."""
    near = NOISES[config.process].embedded
    if config.matrix and config.process != "matrix":
        raise InputError("`matrix` needs `process` matrix; drop it")
    if config.process == "matrix" and not config.matrix:
        raise InputError("`process` matrix needs `matrix`, a .npy or .csv file whose rows sum to 1")
    if not 0 < config.mask_proportion < 1:
        hint = "use `process` absorbing" if config.mask_proportion == 1 else "it must be above 0 and below 1"
        raise InputError(f"`mask_proportion` is {config.mask_proportion:g}; {hint}")
    if config.scaling != "exponential" and config.process != "nearest":
        raise InputError(f"`scaling` {config.scaling} needs `process` nearest; drop it")
    if config.neighbour_weights != "equal" and (not near or config.scaling != "exponential"):
        raise InputError(
            "`neighbour_weights` rank needs `process` nearest or absorbing-nearest, and `scaling` exponential"
        )
    if not 0 < config.mask_rate < math.inf:
        raise InputError(f"`mask_rate` is {config.mask_rate:g}; it must be above 0 and finite")


# ---------------------------------------------------------------------------------- how each is made
def _absorbing(config: Any, V: int, schedule: str, _: Tensor | None) -> Process:
    return process.absorbing(V + 1, Tabulated(table(schedule, config.diffusion_steps, V, absorbing=True)))


def _uniform(config: Any, V: int, schedule: str, unigrams: Tensor | None) -> Process:
    alpha = table(schedule, config.diffusion_steps, V, absorbing=False, unigrams=unigrams)
    return process.uniform(V, Tabulated(alpha))


def _absorbing_uniform(config: Any, V: int, schedule: str, unigrams: Tensor | None) -> Process:
    redrawn = (1 - config.mask_proportion) / (V + 1)
    alpha = table(schedule, config.diffusion_steps, V, False, redrawn, unigrams)
    return process.absorbing_uniform(V + 1, Tabulated(alpha), config.mask_proportion)


def _middle(config: Any, V: int, schedule: str, _: Tensor | None) -> Process:
    alpha = table(schedule, config.diffusion_steps, V, absorbing=True)
    return process.Mixture(F.one_hot(torch.tensor(V // 2), V).double(), Tabulated(alpha))


def _levels(config: Any, V: int, schedule: str, _: Tensor | None) -> Process:
    return levels(config.process, V, config.diffusion_steps, schedule, config.width, config.strength)


def _nearest(config: Any, V: int, schedule: str, unigrams: Tensor | None) -> Process:
    afford(V)
    k, T = config.neighbours, config.diffusion_steps
    points = read_embedding(config.embedding, V) if config.embedding else torch.arange(V)[:, None]
    if config.scaling == "exponential":
        mask_rate = config.mask_rate if NOISES[config.process].mask else 0.0
        return graph(points, k, T, schedule, unigrams, config.neighbour_weights, mask_rate)
    if schedule == "mutual-information":
        raise InputError(f"`schedule` mutual-information is not for `scaling` {config.scaling}; use linear or cosine")
    return graph_steps(points, k, T, schedule, config.scaling)


def _matrix(config: Any, V: int, schedule: str, _: Tensor | None) -> Process:
    return of_matrix(read_matrix(config.matrix, V), config.diffusion_steps, schedule)


OF_BETAS = ("linear", "cosine")  # schedules of chains of matrices
LEVELS: dict[str, Any] = {"ordered": True, "paper": "linear", "auto": "linear", "schedules": OF_BETAS}
NEAREST: dict[str, Any] = {"embedded": True, "informed": True, "schedules": (*OF_BETAS, "mutual-information")}
NOISES: dict[str, Noise] = {
    "absorbing": Noise(_absorbing, mask=True),
    "uniform": Noise(_uniform, paper="cosine", informed=True),
    "absorbing-uniform": Noise(_absorbing_uniform, mask=True, informed=True),
    "middle": Noise(_middle, ordered=True),
    "gaussian": Noise(_levels, **LEVELS),
    "band": Noise(_levels, **LEVELS),
    "nearest": Noise(_nearest, **NEAREST),
    "absorbing-nearest": Noise(_nearest, mask=True, **NEAREST),
    "matrix": Noise(_matrix, paper="cosine", auto="cosine", schedules=OF_BETAS),
}


# ---------------------------------------------------------------------------------- files
def read_embedding(path: str, tokens: int) -> Tensor:
    """The array (tokens, d) of a .npy file, float64. Nothing in it is run."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"no file at '{path}'; `embedding` takes a .npy file with a row for each token") from None
    except (OSError, ValueError, EOFError):
        raise InputError(f"'{path}' is no array; `embedding` takes a .npy file with a row for each token") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(f"'{path}' is no table of numbers; `embedding` takes a .npy file with a row for each token")
    if len(array) != tokens:
        raise InputError(
            f"'{path}' has {len(array):,} rows and the vocabulary {tokens:,} tokens; give a row for each token"
        )
    if not np.isfinite(array).all():
        raise InputError(f"'{path}' has entries that are not finite; give a number for each")
    return torch.from_numpy(array.astype(np.float64))


def _numbers(path: str, what: str, takes: str) -> np.ndarray:
    """Read numbers from a .npy or text file. InputError: the file is no `what` of numbers;
    `takes` says what would be."""
    try:
        return np.load(path, allow_pickle=False) if path.endswith(".npy") else np.loadtxt(path, delimiter=",")
    except FileNotFoundError:
        raise InputError(f"no file at '{path}'; {takes}") from None
    except (OSError, ValueError, EOFError):
        raise InputError(f"'{path}' is no {what} of numbers; {takes}") from None


def read_matrix(path: str, tokens: int) -> Tensor:
    """The transition matrix (tokens, tokens) of a .npy file, or of a text file of numbers, float64; its rows sum to 1.

    Raises:
        InputError: no such file, no table of numbers of this size, a negative entry, or a row that does not sum to 1.
    """
    array = _numbers(path, "table", "`matrix` takes a .npy or .csv file with a row for each token")
    if getattr(array, "shape", ()) != (tokens, tokens):
        size = " x ".join(map(str, np.shape(array)))
        raise InputError(
            f"'{path}' is {size}, and the vocabulary has {tokens:,} tokens; give {tokens:,} rows of as many numbers"
        )
    M = torch.from_numpy(np.asarray(array, dtype=np.float64))
    if not torch.isfinite(M).all() or (M < 0).any():
        raise InputError(f"'{path}' has entries that are negative or not finite; give probabilities")
    sums = (M.sum(1) - 1).abs()
    worst = int(sums.argmax())
    if sums[worst] > 1e-6:
        raise InputError(f"row {worst + 1} of '{path}' sums to {float(M[worst].sum()):.6g}; every row must sum to 1")
    return M / M.sum(1, keepdim=True)


def read_unigrams(path: str, tokens: int) -> Tensor:
    """The frequencies (tokens,) of the tokens from a .npy file, or a text file with a number on each line: float64, of
    sum 1.

    Raises:
        InputError: no such file, not as many numbers as tokens, or a negative one; none but one token occurs.
    """
    array = _numbers(path, "list", "`unigrams` takes a file with a count for each token, .npy or text")
    counts = np.asarray(array).reshape(-1)
    if len(counts) != tokens or counts.dtype.kind not in "fiu":
        raise InputError(f"'{path}' has {len(counts):,} counts and the vocabulary {tokens:,} tokens; give one for each")
    p = torch.from_numpy(counts.astype(np.float64))
    if not torch.isfinite(p).all() or (p < 0).any() or (p > 0).sum() < 2:
        raise InputError(f"'{path}' must hold counts of 0 or more, of two tokens at least above 0")
    return p / p.sum()
