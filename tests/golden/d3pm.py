"""What the cases of D3PM share: its published processes as ours, and a D3PM that says recorded logits under any of them."""

import torch
from torch import Tensor

from zellige.core.process import Process
from zellige.core.schedule import Tabulated
from zellige.methods import D3PM

from .recorded import RecordedLogits

D = torch.float64


def product(beta: Tensor) -> Tabulated:
    """alpha_i from betas (T,)."""
    beta = beta.to(D)
    return Tabulated(torch.cat((torch.ones(1, dtype=D), (1 - beta).cumprod(0))))


def d3pm(logits: Tensor, process: Process, kind: str, steps: int, last: str = "text", **more) -> D3PM:
    """D3PM that says the recorded logits (B, L, K), with upstream's process."""
    K = process.K - (process.mask is not None)
    method = D3PM(
        RecordedLogits(logits),
        K,
        logits.shape[1:2],
        D3PM.Config(kind, diffusion_steps=steps, last=last, neighbours=1, **more),
    )
    method.process = process
    return method
