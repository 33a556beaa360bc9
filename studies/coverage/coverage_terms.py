"""How often the intervals of `zellige evaluate` hold the bound of a chain of many steps on images.

    python studies/coverage/coverage_terms.py                # a D3PM of Gaussian noise, T = 1,000, trained here on 8 x 8 digits
    python studies/coverage/coverage_terms.py runs/mine      # a run of your own
    python studies/coverage/coverage_terms.py --made-up      # terms without a network

Every term of the bound is computed once for each of some images, each step and each of some noise samples. This table is the
world of the simulation: its truth is known to rounding and an evaluation costs nothing. The evaluations are the command's own,
with its pilot, its groups and its intervals. *One of T* is how the bound was estimated before: one of all T
steps for each draw, evenly. Over texts the images of each repeat are drawn from those of the table, over draws they are the same.
"""

import argparse
import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import zellige
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.process import uniform
from zellige.core.random import uniform as uniforms
from zellige.data import Data, prepare
from zellige.evaluation.corpus import corpus_of
from zellige.evaluation.evaluate import evaluate_rows, rows_of
from zellige.methods import D3PM, build, diffusion
from zellige.methods.diffusion import Diffusion
from zellige.nn import Net


class Terms(Diffusion):
    """A chain whose terms stand in a table: a text is one token, its place there, and its noise is another.

    Args:
        table: (texts, T, samples) nats of each step, the last one first.
        prior: (texts,) nats.
    """

    name = "table"

    def __init__(self, table: Tensor, prior: Tensor):
        texts, T, _ = table.shape
        super().__init__(None, texts, (1,), None, uniform(texts, Linear(0.0, 1.0)), True, T)
        self.table, self.priors = table.double(), prior.double()

    @property
    def start(self):
        return 1.0

    def prior_term(self, batch, generator=None):
        return self.priors[batch.tokens[:, 0]]

    def corrupt(self, batch, t, generator=None):
        u = uniforms(batch.tokens.shape, generator)
        return (u * self.table.shape[2]).long()

    def discrete_bound(self, batch, x_t, t, s, weight=None):
        return self.table[batch.tokens[:, 0], (t * self.steps).round().long() - 1, x_t[:, 0]]

    @property
    def truth(self) -> Tensor:
        """The bound of each text (texts,)."""
        return self.table.mean(-1).sum(-1) + self.priors


class OneOfT(Terms):
    """As it was estimated before: one of all T steps."""

    def terms(self, batch, generator=None):
        return {"bound": diffusion.one_step(self, batch, generator)}


class Rows(list):
    """Texts (L,)."""

    def collate(self, texts: list[Tensor]) -> Batch:
        return Batch(torch.stack(texts))


def made_up(texts: int = 300, T: int = 1000, samples: int = 8) -> tuple[Tensor, Tensor]:
    """Terms that fall as 1/i^1.2, the last one a fifth of all, lognormal between texts and between noise samples."""
    g = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    size = 100 * torch.arange(2, T + 1, dtype=torch.float64) ** -1.2
    size = torch.cat([size.sum()[None] / 4, size])
    table = size[:, None] * (0.3 * normal(texts, 1, 1) + 0.4 * normal(texts, T, samples)).exp()
    return table, torch.full((texts,), 0.1)


@torch.enable_grad()
def trained(train: Any, vocabulary: int, steps: int = 400, batch: int = 32) -> Diffusion:
    """A small D3PM, trained by cross-entropy with one time for each batch, early ones as often as late ones."""
    torch.manual_seed(0)
    config = D3PM.Config(process="gaussian", head="logistic", last="image", diffusion_steps=1000)
    net = Net(layers=2, hidden=64, heads=2, length=64, grid=(8, 8))
    method: Any = build(D3PM, vocabulary, net, config, ordered=True)
    optimizer, times = torch.optim.Adam(method.parameters(), 2e-3), method.grid(1000)
    for _ in range(steps):
        x = train.collate([train[int(i)] for i in torch.randint(len(train), (batch,))])
        t = times[1000 - int(1000 ** float(torch.rand(())))].expand(batch)
        x_t = method.corrupt(x, t[:, None])
        outputs = method.logits(method.hidden(x_t, t, x))
        loss = F.cross_entropy(method._clean(outputs, x_t).flatten(0, 1), x.tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return method


@torch.no_grad()
def table_of(run: str | None, texts: int, samples: int) -> tuple[Tensor, Tensor]:
    """The terms of a trained model's test images."""
    if run is None:
        corpus = prepare(Data(name="digits"), 64)
        rows, method = corpus.test, trained(corpus.train, corpus.tokenizer.size)
    else:
        model = zellige.load(run)
        method, rows = model.method, rows_of(model, corpus_of(model, None), "test").rows
    method: Any = method.eval()
    texts = min(texts, len(rows))
    x = rows.collate([rows[i * len(rows) // texts] for i in range(texts)])
    generator, times, table = torch.Generator().manual_seed(0), method.grid(method.steps), []
    part = torch.arange(texts).repeat_interleave(samples)
    for t, s in itertools.pairwise(times):
        here = x.take(part)
        t, s = t.expand(len(part)), s.expand(len(part))
        table.append(
            method.discrete_bound(here, method.corrupt(here, t[:, None], generator), t, s).reshape(texts, samples)
        )
    return torch.stack(table[::-1], 1), method.prior_term(x)


def cover(name: str, cls: type[Terms], table: tuple[Tensor, Tensor], texts: int, draws: int, repeats: int) -> None:
    """The shares of repeats in which each interval held the truth, and how far the estimates were from it."""
    method = cls(*table)
    every, g = method.truth, torch.Generator().manual_seed(1)
    held, given, wide, inner, known, error = 0, 0, 0.0, 0, 0, []
    same = torch.randperm(len(every), generator=g)[:texts]
    for seed in range(repeats):
        chosen = torch.randint(len(every), (texts,), generator=g)
        r = evaluate_rows(method, Rows(chosen[:, None].unbind()), draws=draws, seed=seed)
        given += math.isfinite(r.half)
        held += r.low <= float(every.mean()) <= r.high and math.isfinite(r.half)
        wide += r.half if math.isfinite(r.half) else 0.0
        error.append(r.value - float(every[chosen].mean()))
        r = evaluate_rows(method, Rows(same[:, None].unbind()), draws=draws, seed=seed)
        known += math.isfinite(r.draws_half)
        inner += math.isfinite(r.draws_half) and r.draws_low <= float(every[same].mean()) <= r.draws_high
    truth, spread = float(every.mean()), torch.tensor(error).std()
    print(
        f"  {name:<12} {texts:>5} x {draws}: over texts {_share(held, given, repeats)}, ± {wide / max(given, 1) / truth:.1%}; "
        f"over draws {_share(inner, known, repeats)}; draws' error {float(spread) / truth:.1%} of the bound",
        flush=True,
    )


def _share(held: int, given: int, repeats: int) -> str:
    return f"{held / given:.1%}" + (f" of {given:,}" if given < repeats else "") if given else "none given"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--made-up", action="store_true")
    parser.add_argument("--texts", type=int, default=120)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2000)
    chosen = parser.parse_args()
    table = made_up() if chosen.made_up else table_of(chosen.run, chosen.texts, chosen.samples)
    each = table[0].mean((0, 2))
    whole = float(each.sum() + table[1].mean())
    print(f"{tuple(table[0].shape)} terms; the last is {float(each[0]) / whole:.1%} of the bound, {whole:.1f} nats")
    for name, cls in (("one of T", OneOfT), ("by pilot", Terms)):
        for texts, draws in ((128, 1), (64, 4), (200, 4)):
            cover(name, cls, table, texts, draws, chosen.repeats)


if __name__ == "__main__":
    main()
