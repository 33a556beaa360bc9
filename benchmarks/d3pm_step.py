"""A training step of D3PM with uniform noise at many states, Tessella's against the published formulation.

python benchmarks/d3pm_step.py [--rounds N] [--threads N] [--json FILE]

Published: both factors of eq. 4 at every state and position, as logarithms, for the truth and for the prediction, then two
log-softmaxes and their KL, as Google's text code and its descendants have it; with mixtures for their matrices, which at
50,258 states would be 10 GB. The network, its head and the draw of x_t are Tessella's in both, and neither takes an
optimizer's step: what differs is the loss.
"""

import json
import statistics
from functools import partial

import torch
from torch import Tensor

import measure
from tessella.method import Batch
from tessella.methods import D3PM, build
from tessella.nn import Net

NET = Net(layers=4, hidden=256, heads=8, length=128)
SIZES = {"V = 50,258": (50_258, 8), "V = 27": (27, 8)}  # states, batch
EPS = 1e-20  # of the text code; the image code's 1e-6 is more than (1 - a) / K at many states


def make(states: int, prediction: str = "leave-one-out") -> D3PM:
    torch.manual_seed(0)
    method = build("d3pm", states, NET, D3PM.Config("uniform", "cosine", prediction=prediction, auxiliary=0.0))
    assert isinstance(method, D3PM)
    return method


def published(method: D3PM, x_0: Tensor, generator: torch.Generator) -> Tensor:
    """T times the bound of one step, at random times: (B,) nats."""
    K, schedule = method.process.K, method.process.schedule
    _, t, s = method._draw_step(Batch(x_0), generator)
    x_t = method.corrupt(Batch(x_0), t[:, None], generator)
    alpha_s, alpha_t = (schedule.alpha(u)[:, :, None].float() for u in (s, t))
    a = alpha_t / alpha_s
    logits = method.network.head(method.network.features(x_t, method.network_time(t)))

    def posterior_logits(law: Tensor) -> Tensor:
        into = a * torch.nn.functional.one_hot(x_t, K) + (1 - a) / K
        return torch.log(into + EPS) + torch.log(alpha_s * law + (1 - alpha_s) / K + EPS)

    true = posterior_logits(torch.nn.functional.one_hot(x_0, K).float())
    pred = posterior_logits(torch.softmax(logits, -1))
    log_q, log_p = true.log_softmax(-1), pred.log_softmax(-1)
    return method.steps * (log_q.exp() * (log_q - log_p)).sum((1, 2))


def tessella(method: D3PM, x_0: Tensor, generator: torch.Generator) -> Tensor:
    """The same as the trainer asks for it."""
    return method.loss(Batch(x_0), generator)


WAYS = {"published": published, "tessella": tessella}


def step(way: str, method: D3PM, x_0: Tensor) -> float:
    method.zero_grad()
    loss = WAYS[way](method, x_0, torch.Generator().manual_seed(1)).mean() / NET.length
    loss.backward()
    return float(loss.detach())


def main() -> None:
    options = measure.options(__doc__.splitlines()[0], rounds=5).parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        size, way = options.peak.split("/")
        states, batch = SIZES[size]
        method, memory = make(states), measure.Memory()
        x_0 = torch.randint(states, (batch, NET.length), generator=torch.Generator().manual_seed(0))
        step(way, method, x_0[:1, :4])  # the gradients of the weights are there now
        before = memory.mark()
        for _ in range(2):
            step(way, method, x_0)
        print(json.dumps({"step": memory.largest() - before}))
        return
    rows, out = [], {"machine": measure.machine(), "sizes": {}}
    for size, (states, batch) in SIZES.items():
        method = make(states)
        x_0 = torch.randint(states, (batch, NET.length), generator=torch.Generator().manual_seed(0))
        losses = {way: step(way, method, x_0) for way in WAYS}
        seconds = measure.alternate(
            {way: partial(step, way, method, x_0) for way in WAYS}, options.rounds, 1, options.clock
        )
        method.zero_grad()
        memory = {way: measure.peak(__file__, f"{size}/{way}", options.threads)["step"] for way in WAYS}
        faster = measure.compare(seconds, "published", "tessella")
        out["sizes"][size] = {"loss": losses, "seconds": seconds, "faster": faster, "MiB": memory}
        rows.append(
            (
                size,
                *(f"{statistics.median(seconds[way]):.3f} s" for way in WAYS),
                f"{faster['times']:.2f}x",
                f"{faster['low']:.2f}-{faster['high']:.2f}",
                *(f"{memory[way]:,.0f} MiB" for way in WAYS),
                f"{memory['tessella'] / memory['published']:.2f}",
                *(f"{losses[way]:.4f}" for way in WAYS),
            )
        )
    head = ("loss and backward", "published", "tessella", "faster", "quartiles", "published", "tessella", "memory")
    measure.show(rows, (*head, "published", "tessella"))
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
