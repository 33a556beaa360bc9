"""Numbers recorded from the published code, and the few things that turn our conventions into theirs.

Conversions live here and in the tests, never in the product.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from places import GOLDEN
from zellige.models.published.names import BUFFERS, ours, theirs
from zellige.nn import DiT, Net

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

    def near(self, name: str, ours: Tensor, theirs: Tensor) -> None:
        """Equal at the tolerance that the index suggests for the case, in float64; nan equals nan."""
        case = self.index[name]
        if "suggested_tolerance" in case:
            tolerance = {k: case["suggested_tolerance"][k] for k in ("atol", "rtol")}
        else:  # the jax cases: a relative tolerance, with 1e-6 of the scale for float32 (see their index)
            finite = theirs[theirs.isfinite()].double().abs()
            scale = float(finite.max()) if len(finite) else 1.0
            single = case["precision"] == "f32"
            tolerance = {"rtol": case["suggested_rtol"], "atol": (1e-6 if single else 1e-12) * max(scale, 1.0)}
        torch.testing.assert_close(ours.double(), theirs.double(), equal_nan=True, **tolerance)


TORCH, JAX = Recorded(GOLDEN / "torch"), Recorded(GOLDEN / "jax")
V, L = TORCH.sizes["vocab"], TORCH.sizes["length"]  # of the torch cases: tokens without the mask, positions
K, MASK = V + 1, V


class Given:
    """A source of draws that gives recorded uniforms."""

    def __init__(self, *draws: Tensor):
        self.draws = [d.double() for d in draws]

    def uniform(self, shape, device):
        (draw, *self.draws) = self.draws
        assert draw.shape == tuple(shape)
        return draw


class Said(nn.Module):
    """A network that says recorded logits whatever it sees: features are the logits, the head is the identity."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = logits

    def features(self, x, time=None, **kwargs):
        return self.logits

    def head(self, h):
        return h


class Told(nn.Module):
    """A time-conditioned network that is told the given time (B,), whatever the method would tell it."""

    def __init__(self, network: nn.Module, time: Tensor | float):
        super().__init__()
        self.network, self.time = network, time

    def _said(self, x):
        return torch.as_tensor(self.time).float().expand(len(x))

    def features(self, x, time=None, **kwargs):
        return self.network.features(x, self._said(x), **kwargs)

    def extend(self, cache, x, time=None, valid=None):
        return self.network.extend(cache, x, self._said(x), valid)

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


def race(p: Tensor, u: Tensor) -> Tensor:
    """The published categorical draw, argmax p / (1e-10 - log(u + 1e-10)): exponential clocks, so p need not be normalised."""
    return (p.double() / (1e-10 - (u.double() + 1e-10).log())).argmax(-1)
