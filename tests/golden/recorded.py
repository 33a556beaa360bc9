"""Numbers recorded from the published code, and the few things that turn our conventions into theirs.

Conversions live here and in the tests, never in the product.
"""

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from testing.places import GOLDEN, GUIDANCE
from zellige.nn import DiT, Net
from zellige.plugins.published.ddit import BUFFERS, ours, theirs

if not GOLDEN.is_dir():
    pytest.skip(f"no recorded numbers at {GOLDEN}: set ZELLIGE_GOLDEN", allow_module_level=True)


class Recorded:
    """One folder of recorded cases with its index; `sizes` are those of the recorded networks and batches, where it has them."""

    def __init__(self, folder: Path):
        whole = json.loads((folder / "index.json").read_text())
        self.folder = folder
        self.index: dict[str, Any] = {c["name"]: c for c in whole["cases"]}
        self.sizes: dict[str, int] = whole.get("dims", {})

    def cases(self, pattern: str) -> list[str]:
        """The names that the regular expression matches in full, as the index has them."""
        return [name for name in self.index if re.fullmatch(pattern, name)]

    def __getitem__(self, name: str) -> dict[str, Tensor]:
        return load_file(self.folder / f"{name}.safetensors")

    def scalars(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{name}.json").read_text())

    def eps(self, name: str) -> float:
        """What the conventions of the case say that the published code adds."""
        return float(re.findall(r"eps=(\d\S*e-\d+)", self.index[name]["conventions"])[0])

    def noted(self, name: str) -> float:
        """The absolute tolerance of which the index has a note beside its suggestion."""
        case = self.index[name]
        match = re.search(r"atol (\d\S*e-\d+)", case.get("notes") or case["suggested_tolerance"]["note"])
        assert match, f"the index has no note of a tolerance for {name}"
        return float(match[1])

    def near(self, name: str, ours: Tensor | float, theirs: Tensor | float, **tolerance: float) -> None:
        """Equal at the tolerance that the index suggests for the case (unless given: rtol, atol), in float64; nan equals nan."""
        ours, theirs = (torch.as_tensor(each, dtype=torch.float64).detach() for each in (ours, theirs))
        case = self.index[name]
        if len(tolerance) == 2:
            pass
        elif "suggested_tolerance" in case:
            suggested = case["suggested_tolerance"] or {}
            assert suggested.keys() & {"atol", "rtol", "exact"}, f"the index has no tolerance for {name}"
            tolerance = {k: suggested.get(k, 0.0) for k in ("atol", "rtol")} | tolerance
        else:  # the jax cases: a relative tolerance, with 1e-6 of the scale for float32 (see their index)
            finite = theirs[theirs.isfinite()].abs()
            scale = float(finite.max()) if len(finite) else 1.0
            single = case.get("precision") == "f32"
            atol = (1e-6 if single else 1e-12) * max(scale, 1.0)
            tolerance = {"rtol": case.get("suggested_rtol", 0.0), "atol": atol} | tolerance
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance)


def vanishes(difference: Callable[[float], Tensor], c: float | None = None, rounding: float = 1e-12) -> None:
    """What an eps of theirs adds to ours, difference(eps), is at most c eps at each eps = 1e-4 .. 1e-9.

    Without a bound c that the formula gives: it falls with each eps, and from 1e-8 to 1e-9 like eps or eps log(1/eps), of order
    1, where a relation that does not hold would stay (order 0) and a root would fall by half (order 1/2): the order there is
    above 3/4, the middle. `rounding` is what float64 leaves of a difference of 0.
    """
    sizes = {eps: float(difference(eps).detach().abs().max()) for eps in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)}
    if c is not None:
        assert all(size <= c * eps + rounding for eps, size in sizes.items()), (c, sizes)
        return
    assert sizes[1e-9] > rounding, "nothing vanishes here"
    assert all(a > b for a, b in pairwise(sizes.values())), sizes
    assert math.log10(sizes[1e-8] / sizes[1e-9]) > 0.75, sizes


def rounded(ours: Tensor | float, theirs: Tensor | float, n: float, dtype=torch.float64, scale: Any = None) -> None:
    """Equal but for n roundings to dtype (2^-53 or 2^-24) of values of size `scale`: of each entry of theirs, unless stated."""
    ours, theirs = (torch.as_tensor(each, dtype=torch.float64).detach() for each in (ours, theirs))
    assert ours.shape == theirs.shape
    size = theirs.abs() if scale is None else torch.as_tensor(scale, dtype=torch.float64)
    most = n * torch.finfo(dtype).eps / 2 * size
    wrong = (ours - theirs).abs() > most
    assert not wrong.any(), (float((ours - theirs).abs()[wrong].max()), float(most.max()))


TORCH, JAX = Recorded(GOLDEN / "torch"), Recorded(GOLDEN / "jax")
LATER = [Recorded(GUIDANCE)] if GUIDANCE.is_dir() else []  # GIDD's and Duo's later cases
V, L = TORCH.sizes["vocab"], TORCH.sizes["length"]  # of the torch cases: tokens without the mask, positions
K, MASK = V + 1, V
NOISES = TORCH.scalars("mdlm__noise_schedules")  # name -> what its schedule was made with
EPS = NOISES["loglinear"]["eps"]  # alpha of loglinear ends there
LAST = TORCH.scalars(TORCH.cases("sedd__traj_.*")[0])["eps"]  # the last time of the published samplers


class RecordedUniforms:
    """A source of draws: the uniforms that were recorded, one after the other."""

    def __init__(self, *draws: Tensor):
        self.draws = [d.double() for d in draws]

    def uniform(self, shape, device):
        (draw, *self.draws) = self.draws
        assert draw.shape == tuple(shape)
        return draw


class RecordedNoise(RecordedUniforms):
    """A source of the draws that give recorded times t (B,) and noise: tokens are lost where `lost` (B, L)."""

    def __init__(self, t: Tensor, *lost: Tensor):
        super().__init__(*(torch.where(where, 0.0, 1 - 1e-9) for where in lost))
        self.t = t

    def stratified(self, n, device):
        assert n == len(self.t)
        return 1 - self.t.double()


class RecordedLogits(nn.Module):
    """A network that gives recorded logits whatever it sees: features are the logits, the head is the identity."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = logits

    def features(self, x, time=None, **kwargs):
        return self.logits

    def head(self, h):
        return h


class FixedTime(nn.Module):
    """A time-conditioned network at one time (B,), whatever the method asks it at."""

    def __init__(self, network: nn.Module, time: Tensor | float):
        super().__init__()
        self.network, self.time = network, time

    def _time(self, x):
        return torch.as_tensor(self.time).float().expand(len(x))

    def features(self, x, time=None, **kwargs):
        return self.network.features(x, self._time(x), **kwargs)

    def extend(self, cache, x, time=None, valid=None):
        return self.network.extend(cache, x, self._time(x), valid)

    def head(self, h):
        return self.network.head(h)


def published_network(weights: dict[str, Tensor], block: int = 0, time: bool = True) -> DiT:
    """The DiT that the recorded weights belong to (RADD's: no time, biases). Without `time`, what belongs to it is left out."""
    states, bias = len(weights["vocab_embed.embedding"]), "blocks.0.norm1.bias" in weights
    time = time and not bias
    classes = len(weights.get("cond_map.embedding_table.weight", [0])) - 1
    size = TORCH.sizes
    net = Net(
        layers=size["n_blocks"], hidden=size["hidden_size"], heads=size["n_heads"], length=L, condition=size["cond_dim"],
        classes=classes,
    )  # fmt: skip
    network = DiT(net, states, time, bias, block=block)
    given = weights if time else {theirs(name): weights[theirs(name)] for name in network.state_dict()}
    network.load_state_dict({ours(name): tensor for name, tensor in given.items() if name not in BUFFERS})
    return network.eval()


class RecordedRaces(RecordedUniforms):
    """A source of draws: each is the published race with the next of the recorded uniforms (B, L, K)."""

    def categorical(self, p: Tensor, at: Tensor | None) -> Tensor:
        (u, *self.draws) = self.draws
        u = u if at is None else u[at]
        return race(p[..., : u.shape[-1]], u)


def race(p: Tensor, u: Tensor) -> Tensor:
    """The published categorical draw, argmax p / (1e-10 - log(u + 1e-10)): exponential clocks, so p need not be normalised."""
    return (p.double() / (1e-10 - (u.double() + 1e-10).log())).argmax(-1)
