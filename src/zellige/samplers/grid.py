"""Grids of times for a sampler's steps.

`auto` is the grid of the method (`Diffusion.sampling_grid`): cosine for MD4 with its linear schedule, uniform for the others.
"""

import math

import torch
from torch import Tensor

from ..core.schedule import CLEAN
from ..errors import InputError
from ..methods.diffusion import Diffusion
from .pairing import admissible, divisors, one_alpha, steps_of

GRIDS = ("auto", "uniform", "cosine", "log-snr")

STEPS = 64  # where nobody says how many


def known(grid: str) -> str:
    """The name of a grid, if it is one."""
    if grid not in GRIDS:
        raise InputError(f"unknown grid '{grid}'; auto, uniform, cosine or log-snr")
    return grid


def spaced(method: Diffusion, steps: int | None, grid: str = "uniform") -> Tensor:
    """steps + 1 times from where sampling starts to CLEAN; in discrete time `steps` must divide T."""
    T = steps_of(method)
    grid = getattr(method, "sampling_grid", "uniform") if grid == "auto" else grid
    if steps is None:
        steps = admissible(method, STEPS)
    if steps < 1:
        raise InputError(f"`steps` is {steps}; it must be 1 or more")
    if T and grid != "uniform":
        raise InputError(f"grid '{grid}' needs continuous time; {method.name} has {T:,} steps, use uniform")
    if T and T % steps:
        *most, last = sorted(divisors(T, steps)[:3], reverse=True)
        use = f"{', '.join(map(str, most))} or {last}" if most else last
        raise InputError(f"{steps} steps do not divide the grid T = {T}; use {use}")
    if grid == "uniform":
        return method.grid(steps)
    if grid == "log-snr":
        times = _even_in_log_snr(method, steps)
    else:
        low, high = method.span
        u = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        times = low + (high - low) * torch.sin(math.pi / 2 * u)  # MD4 eq. 6
    times[0], times[-1] = method.process.start, CLEAN
    return times


def _even_in_log_snr(method: Diffusion, steps: int) -> Tensor:
    if not one_alpha(method.process):
        raise InputError(f"grid 'log-snr' needs one alpha for all tokens; with {method.name} use uniform or cosine")
    schedule, device, (begin, end) = method.process.schedule, method.process.prior.device, method.span
    step = (end - begin) / steps
    ends = torch.tensor([end, begin, end - step, begin + step], dtype=torch.float64, device=device)
    high, low, near_high, near_low = schedule.log_snr(ends)[:, 0]  # MD4 section 3
    first, last = torch.where(high.isinf(), near_high, high), torch.where(low.isinf(), near_low, low)
    each = first + (last - first) * torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float64, device=device)
    return schedule.inverse(each.sigmoid())
