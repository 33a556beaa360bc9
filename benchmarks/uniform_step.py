"""A training step under uniform noise at many states, Zellige's against the published formulations.

python benchmarks/uniform_step.py [--method d3pm|sedd] [--rounds N] [--threads N] [--json FILE]

Published, for D3PM: both factors of eq. 4 at every state and position, as logarithms, for the truth and for the prediction,
then two log-softmaxes and their KL, as Google's text code and its descendants have it; with mixtures for their matrices,
which at 50,258 states would be 10 GB. For SEDD: the log scores of all positions, their exponentials and means, as its graph
library has them. The network, its head and the draw of x_t are Zellige's in both, and neither takes an optimizer's step:
what differs is the loss.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import measure
from zellige.core import random
from zellige.core.batch import Batch
from zellige.methods import D3PM, SEDD, build
from zellige.methods.diffusion import draw_step
from zellige.methods.method import Method
from zellige.nn import Net

NET = Net(layers=4, hidden=256, heads=8, length=128)
SIZES = {"V = 50,258": (50_258, 8), "V = 27": (27, 8)}  # states, batch
EPS = 1e-20  # of the text code; the image code's 1e-6 is more than (1 - a) / K at many states

CONFIGS: dict[str, Any] = {
    "d3pm": D3PM.Config("uniform", "cosine", prediction="leave-one-out", auxiliary=0.0),
    "sedd": SEDD.Config("uniform"),
}


def make(name: str, states: int) -> Method:
    torch.manual_seed(0)
    return build(name, states, NET, CONFIGS[name])


def d3pm(method: Any, x_0: Tensor, generator: torch.Generator) -> Tensor:
    """T times the bound of one step, at random times: (B,) nats."""
    K, schedule = method.process.K, method.process.schedule
    _, t, s = draw_step(method, Batch(x_0), generator)
    x_t = method.corrupt(Batch(x_0), t[:, None], generator)
    alpha_s, alpha_t = (schedule.alpha(u)[:, :, None].float() for u in (s, t))
    a = alpha_t / alpha_s
    logits = method.network.head(method.network.features(x_t, method.network_time(t)))

    def posterior_logits(distribution: Tensor) -> Tensor:
        into = a * torch.nn.functional.one_hot(x_t, K) + (1 - a) / K
        return torch.log(into + EPS) + torch.log(alpha_s * distribution + (1 - alpha_s) / K + EPS)

    true = posterior_logits(torch.nn.functional.one_hot(x_0, K).float())
    pred = posterior_logits(torch.softmax(logits, -1))
    log_q, log_p = true.log_softmax(-1), pred.log_softmax(-1)
    return method.steps * (log_q.exp() * (log_q - log_p)).sum((1, 2))


def sedd(method: Any, x_0: Tensor, generator: torch.Generator) -> Tensor:
    """The rate of the noise times the score entropy, at random times: (B,) nats. With e = e^sigma - 1, w = e / (e + K)."""
    K, schedule = method.process.K, method.process.schedule
    t = 1 - random.stratified(len(x_0), generator)
    x_t = method.corrupt(Batch(x_0), t[:, None], generator)
    e = schedule.sigma(t).expm1().float()
    w = 1 - K / (e + K)
    logits = method.network.head(method.network.features(x_t, method.network_time(t)))
    log_v = logits.scatter(-1, x_t[..., None], 0.0)
    at = lambda table, x: table.gather(-1, x[..., None])[..., 0]  # noqa: E731
    v, kept = log_v.exp(), x_t == x_0
    positive = v.mean(-1) - at(v, x_t) / K
    mean = log_v.mean(-1) - at(log_v, x_t) / K
    negative = torch.where(kept, w * mean, at(log_v, x_0) / e + mean)
    constant = torch.where(kept, (K - 1) / K * w * (w.log() - 1), ((-w.log() - 1) / w - (K - 2)) / K)
    return (schedule.beta(t)[:, 0] * (positive - negative + constant).sum(-1)).float()


PUBLISHED: dict[str, Callable[[Any, Tensor, torch.Generator], Tensor]] = {"d3pm": d3pm, "sedd": sedd}


def step(way: str, name: str, method: Method, x_0: Tensor) -> float:
    method.zero_grad()
    generator = torch.Generator().manual_seed(1)
    each = PUBLISHED[name](method, x_0, generator) if way == "published" else method.loss(Batch(x_0), generator)
    loss = each.mean() / NET.length
    loss.backward()
    return float(loss.detach())


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=5)
    parser.add_argument("--method", choices=PUBLISHED, default="sedd")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        size, way, name = options.peak.split("/")
        states, batch = SIZES[size]
        method, memory = make(name, states), measure.Memory()
        x_0 = torch.randint(states, (batch, NET.length), generator=torch.Generator().manual_seed(0))
        measure.peak_of_steps(
            memory, partial(step, way, name, method, x_0[:1, :4]), partial(step, way, name, method, x_0)
        )
        return
    name, rows, out = options.method, [], {"machine": measure.machine(), "method": options.method, "sizes": {}}
    for size, (states, batch) in SIZES.items():
        method = make(name, states)
        x_0 = torch.randint(states, (batch, NET.length), generator=torch.Generator().manual_seed(0))
        peak = lambda way, size=size: measure.peak(__file__, f"{size}/{way}/{name}", options.threads)["step"]  # noqa: E731
        row, out["sizes"][size] = measure.beside(size, partial(step, name=name, method=method, x_0=x_0), peak, options)
        rows.append(row)
    measure.show(rows, measure.BESIDE)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
