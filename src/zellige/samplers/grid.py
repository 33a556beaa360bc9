"""Grids of times for a sampler's steps.

`auto` is the grid of the method (`Diffusion.sampling_grid`): cosine for MD4 with its linear schedule, uniform for the
others.

`published` is the grid of the authors' sampler: steps from t = 1, not PRIOR, to `Diffusion.published_end`, then one
more to CLEAN, which fills in what is still noise (with `argmax` last: with the likeliest tokens). RADD's own last step
goes to CLEAN. A number is the length of a step: from t = 1 to 0, the last step shorter if the length does not divide 1.

A model of T steps also has grids of fewer steps, a coarse chain. They consist of some of its own times: as evenly
spaced as possible (`uniform`), or those next to another grid. The number of steps need not divide T.
"""

import math

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import GRID, declared, known_grid, option, size_steps, step_size
from ..core.schedule import CLEAN
from ..methods.diffusion import Diffusion
from ..methods.method import Method
from .pairing import count_of_steps, discrete_times, one_alpha, usual_steps
from .sampler import Sampler


def spaced(method: Diffusion, steps: int | None, grid: str = "uniform") -> Tensor:
    """steps + 1 times from the start of sampling to CLEAN; `steps` defaults to the model's own.

    Of a model with steps of its own, fewer steps take part of its own times (`Diffusion.coarse`).
    """
    T, grid = discrete_times(method), grid_of(method, grid)
    size = None if grid == "uniform" else step_size(grid)
    if size is not None and steps is not None:
        raise InputError(f"grid {grid} says how many steps there are; leave out `steps`")
    steps = count_of_steps(steps, (None if size is None else size_steps(grid)) or usual_steps(method))
    if T and grid in ("log-snr", "published"):
        raise InputError(f"grid '{grid}' needs continuous time; {method.name} has {T:,} steps, use uniform or cosine")
    if 0 < T < steps:
        raise InputError(f"{steps:,} steps are more than the {T:,} of {method.name}; use {T:,} or fewer")
    if grid == "uniform":
        return method.grid(steps)
    if grid == "published":
        return _published(method, steps)
    if size is not None:
        times = of_size(1.0, 0.0, size)
    elif grid == "log-snr":
        times = _even_in_log_snr(method, steps)
    else:
        low, high = method.span
        times = low + (high - low) * _share(steps, grid)
    times = method.coarse(times) if T or steps < method.steps else times
    times[0], times[-1] = method.start_time, CLEAN
    return times


def grid_of(method: Method, grid: str) -> str:
    """The name of a grid; of `auto` that of the method."""
    return getattr(method, "sampling_grid", "uniform") if grid == "auto" else grid


def of_size(first: float, last: float, size: float) -> Tensor:
    """Times from `first` down to `last`, `size` apart; the last step may be shorter."""
    steps = math.ceil((first - last) / size - 1e-9)
    times = first - size * torch.arange(steps + 1, dtype=torch.float64)
    times[-1] = last
    return times


def _share(steps: int, grid: str) -> Tensor:
    """steps + 1 numbers from 1 to 0, evenly spaced or on the cosine grid."""
    u = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
    return torch.sin(math.pi / 2 * u) if grid == "cosine" else u  # MD4 eq. 6


def _published(method: Diffusion, steps: int) -> Tensor:
    end = getattr(method, "published_end", None)
    if end is None:
        raise InputError(f"grid 'published' is not known of {method.name}; use uniform")
    times = end + (1 - end) * _share(steps, method.sampling_grid)
    last = torch.tensor([CLEAN], dtype=times.dtype)
    return torch.cat((times if method.published_fills else times[:-1], last))


def _even_in_log_snr(method: Diffusion, steps: int) -> Tensor:
    if not one_alpha(method.process):
        raise InputError(f"grid 'log-snr' needs one alpha for all tokens; with {method.name} use uniform or cosine")
    schedule, device, (begin, end) = method.process.schedule, method.process.prior.device, method.span
    step = (end - begin) / steps
    ends = torch.tensor([end, begin, end - step, begin + step], dtype=torch.float64, device=device)
    high, low, near_high, near_low = schedule.log_snr(ends)[:, 0]  # MD4 section 3
    begin_snr, end_snr = torch.where(high.isinf(), near_high, high), torch.where(low.isinf(), near_low, low)
    values = begin_snr + (end_snr - begin_snr) * torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float64, device=device)
    return schedule.inverse(values.sigmoid())


@declared
class OnGrid(Sampler):
    """A sampler whose steps lie on a grid of times."""

    grid: str = option(GRID, default="auto", check=known_grid)

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """steps + 1 times from the start of the process to CLEAN: `steps` draws, the last of them of clean tokens."""
        return spaced(method, steps, self.grid)
