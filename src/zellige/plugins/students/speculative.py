"""Train the causal head of a model, for self-speculative sampling: `zellige train speculative MODEL`.

    L / k sum over k masks in a random order of -log q(x | the revealed tokens, the masks before it)

the second term of the loss of arXiv 2510.03929, any-order autoregression on a network that has read the masked text.
The network is frozen (the first term is its own loss), so that its drafts and its likelihood stay as they are. The
head's embedding begins as the network's, at variance 1.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.random import mix
from zellige.core.student import half
from zellige.data.rows import Rows, evenly_spaced
from zellige.evaluation.corpus import corpus_of
from zellige.methods.absorbing import Masked
from zellige.methods.diffusion import where_noised
from zellige.models.model import Model, fingerprint
from zellige.models.speculative import HeadConfig, Verifier
from zellige.nn.cross_entropy import cross_entropy
from zellige.nn.speculative import CausalHead
from zellige.samplers import Speculative, State
from zellige.samplers.predict import expected_time
from zellige.samplers.speculative import HEADLESS
from zellige.show.record import Figure, Trained

from .small import FitOptions, fit, held_out


def train_speculative(model: Model, data: Any, options: FitOptions) -> Verifier:
    """A causal head of the model, which gets it as its `verifier`, and its nats per token on held-out texts; see
    `requests.TrainSpeculative`."""
    method, net = model.method, model.config.net
    why = Speculative.reason_against(method)
    if why not in (None, HEADLESS):
        raise InputError(f"{method.name} {why}; a causal head is for mdlm, md4 and radd")
    if method.precision == "int8":
        raise InputError("weights rounded to int8 give a head no gradients; use the model they were rounded from")
    corpus = corpus_of(model, data)
    judged = held_out(corpus, "test", "validation")
    device = next(method.parameters()).device
    with torch.no_grad():
        width = method.hidden(torch.zeros(1, *method.shape, dtype=torch.long, device=device), 0.5).shape[-1]
    heads = net.heads if not net.is_unet and width % (2 * net.heads) == 0 else 1
    conv = 0 if net.is_unet or net.grid else net.conv
    name = (model.source or Path(model.config.run)).name
    config = HeadConfig(
        name, fingerprint(method), method.process.K, width, heads, conv, tuple(net.grid), options.steps, options.seed
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(options.seed, "head") % 2**63)
        network = config.network()
    known = getattr(method.network, "embedding", None)
    if known is not None and known.weight.shape == network.embedding.weight.shape:  # begins with what the network knows
        network.embedding.weight.data.copy_(known.weight / known.weight.std())
    network.to(device)
    train(network, method, corpus.train, options)
    texts, draft, verified = measured(network, method, judged, seed=options.seed)
    verifier = Verifier(network, replace(config, texts=texts, draft=draft, verified=verified))
    model.method = method.verified_by(verifier)
    return verifier


def nats(network: CausalHead, method: Masked, batch: Batch, generator: torch.Generator, draft: bool = False) -> Tensor:
    """The loss of the module for each text, (B,) nats; with `draft` that of the network itself on the same masks, (2,
    B)."""
    _, n, k, x_t = method.mask_exactly_k(batch, generator)
    masks = x_t == method.process.mask_id
    order = torch.rand(masks.shape, generator=generator, dtype=torch.float64).to(masks.device)
    turn = order.masked_fill(~masks, 2.0).argsort(-1).argsort(-1).masked_fill(~masks, masks.shape[1])
    with torch.no_grad():
        state = State(x_t, ~batch.counted, n[:, 0] * 0)
        h = method.hidden(x_t, where_noised(batch, expected_time(method, state)), batch).to(network.norm.weight.dtype)
    target, row = batch.tokens[masks], masks.nonzero()[:, 0]
    heads = (h, network(h, batch.tokens, turn)) if draft else (network(h, batch.tokens, turn),)
    results = []
    for features in heads:
        nll = cross_entropy(method.network, features[masks], target, exclude=method.process.mask_id)
        results.append(nll.new_zeros(len(x_t)).index_add(0, row, nll) * (n / k)[:, 0])
    return torch.stack(results) if draft else results[0]


def train(network: CausalHead, method: Masked, rows: Rows, options: FitOptions) -> None:
    """Train a head, as `fit` does; the network of the method has no gradients meanwhile."""
    device = next(network.parameters()).device
    trained = [p.requires_grad_(False) for p in method.parameters() if p.requires_grad]

    def loss_of(texts: Batch, generator: torch.Generator) -> Tensor:
        texts = texts.to(device)
        return nats(network, method, texts, generator).sum() / texts.counted.sum().clamp_min(1)

    fit(network, rows, loss_of, options, betas=(0.9, 0.99), clip=1.0)
    for p in trained:
        p.requires_grad_(True)


@torch.no_grad()
def measured(
    network: CausalHead, method: Masked, rows: Rows, most: int = 512, seed: int = 0
) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """Texts, and nats per token of the network and of its head with their standard errors: each text once."""
    generator = torch.Generator().manual_seed(mix(seed, "held out") % 2**63)
    places, device = evenly_spaced(np.arange(len(rows)), most), next(network.parameters()).device
    N = len(places)
    values = []
    for part in torch.arange(N).split(32):
        texts = rows.collate([rows[i] for i in places[part.numpy()].tolist()]).to(device)
        values.append(nats(network, method, texts, generator, draft=True).double() / texts.counted.sum(-1).clamp_min(1))
    value = torch.cat(values, 1)
    errors = value.std(1) / math.sqrt(N) if N > 1 else torch.full((2,), math.inf)
    draft, verified = ((float(mean), float(error)) for mean, error in zip(value.mean(1), errors))
    return N, draft, verified


@dataclass(frozen=True)
class HeadRecord(Trained):
    """A causal head that was trained, with its nats per token in `config`."""

    command: ClassVar = "train speculative"
    unit: ClassVar = "nats/token"
    kind: ClassVar = "speculative"
    config: HeadConfig

    def figures(self) -> list[Figure]:
        values = {"drafts": self.config.draft, "verified": self.config.verified}
        n = self.config.texts
        return [Figure(name, mean, half(error, n), "nats/token", "estimate") for name, (mean, error) in values.items()]
