"""Train a classifier of a model's noisy texts, for guidance: `zellige train classifier MODEL`.

    texts with a class, noised as the model's are at a time that is drawn evenly; cross-entropy of the class

For a model of blocks, or from left to right, a text is cut instead: what is written so far stays, its block is masked
in part, and the rest is blank. Models of the same tokens and noise can share a classifier, whatever their schedules are.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.base import schema
from zellige.base.errors import InputError
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.random import mix
from zellige.core.schedule import CLEAN, PRIOR
from zellige.data import Data
from zellige.data.rows import Rows, evenly_spaced
from zellige.evaluation.corpus import corpus_of
from zellige.evaluation.interval import Proportion
from zellige.methods.diffusion import where_noised
from zellige.methods.method import Method
from zellige.models.classifier import AtNoise, ClassifierConfig, TextClassifier, fresh, level_of, noise_of, transitions
from zellige.models.model import Model
from zellige.nn.block import UNREAD, Net
from zellige.samplers.pairing import blank, discrete_times
from zellige.show.record import Figure, Trained

from .small import FitOptions, fit, held_out

RANGES = 5  # of the noise level, in which the calibration is measured
CONFIDENCES = 10


def drawn(method: Method, count: int, generator: torch.Generator) -> Tensor:
    """What `noised` takes as u, (count,), drawn evenly: any time in [0, 1), or i/T where the noise has no other times."""
    u, T = random.stratified(count, generator), discrete_times(method)
    return ((u * T).floor() + 1) / T if T else u


def noised(method: Method, batch: Batch, u: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noisy texts (B, L), as sampling meets them, and their times (B, L); u (B,) in [0, 1] is the time,
    or how much is blank."""
    noise, block = noise_of(method)
    if noise != "blocks":
        t = where_noised(batch, u[:, None])
        return method.process.sample(batch.tokens, t, generator), t  # pyright: ignore[reportOptionalMemberAccess]
    length = batch.tokens.shape[1]
    blocks = -(-length // block) if block > 1 else length + 1
    counts = ((1 - u) * blocks).long()[:, None] * block  # tokens that are written
    position = torch.arange(length, device=u.device)
    shares = random.uniform((len(u), 1), generator, u.device) if block > 1 else torch.ones_like(u)[:, None]
    hidden = random.bernoulli(shares.expand(batch.tokens.shape), generator) & (position < counts + block)
    empty = (position >= counts) & (hidden | (position >= counts + block))
    x = torch.where(empty, blank(method), batch.tokens)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return x, torch.where(empty, PRIOR, CLEAN).double()


def train_classifier(model: Model, data: Any, layers: int | None, options: FitOptions) -> TextClassifier:
    """A classifier of the noisy texts of a model, and its calibration on the test split;
    see `requests.TrainClassifier`."""
    data_config = model.config.data if data is None else data
    net: Net = model.config.net
    if layers is not None and "layers" in UNREAD[net.kind]:
        raise InputError(f"`layers` is for a transformer, and the network of this model is a {net.kind}; leave it out")
    if type(data_config) is Data:  # values that are handed over have their classes beside them, or none
        data_config = replace(data_config, labels=True)
    corpus = corpus_of(model, data_config)
    names = [str(name) for name in corpus.about.get("classes") or ()]
    if not names:
        raise InputError(
            f"'{corpus.about['name']}' has no classes; give data that has some, e.g. `data.name` mnist or ag_news"
        )
    judged = held_out(corpus, "test", "validation")
    method, device = model.method, next(model.method.parameters()).device
    noise, block = noise_of(method)
    if noise == "blocks" and blank(method) is None:
        raise InputError(
            f"the noise of {method.name} has no mask for the blocks that are not there yet, so no classifier can read "
            "its texts; use a model with masks, or one that noises whole texts"
        )
    states = method.vocabulary + 1 if method.process is None else method.process.K
    sizes = net if layers is None else replace(net, layers=layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(options.seed, "weights") % 2**63)
        network = fresh(sizes, states, noise != "blocks", len(names))
    config = ClassifierConfig(
        corpus.about["name"], names, model.tokenizer.name, model.tokenizer.fingerprint, noise, block, states,
        transitions(method), sizes, options.steps, options.seed, [],
    )  # fmt: skip
    classifier = TextClassifier(network.to(device), config)

    def loss_of(texts: Batch, generator: torch.Generator) -> Tensor:
        u = drawn(method, len(texts.tokens), generator)
        x, t = noised(method, texts.to(device), u.to(device), generator)
        return F.nll_loss(classifier.log_p(x, t, method.process), texts.condition.long().to(device))  # pyright: ignore

    fit(network, corpus.train, loss_of, options)
    classifier.config = replace(config, calibration=calibration(classifier, method, judged, seed=options.seed))
    return classifier


@torch.no_grad()
def calibration(made: TextClassifier, method: Method, rows: Rows, most: int = 2048, seed: int = 0) -> list[AtNoise]:
    """Quality of the classifier on texts, by noise level: each text once, its level drawn evenly."""
    generator = torch.Generator().manual_seed(mix(seed, "calibration") % 2**63)
    places = evenly_spaced(np.arange(len(rows)), most)
    N = len(places)
    device, log_ps, labels = next(made.network.parameters()).device, [], []
    apart = torch.randperm(N, generator=generator)  # neighbours in the split may be of one class
    u = drawn(method, N, generator)[apart]
    for part in torch.arange(N).split(64):
        texts = rows.collate([rows[i] for i in places[part.numpy()].tolist()])
        x, t = noised(method, texts.to(device), u[part].to(device), generator)
        log_ps.append(made.log_p(x, t, method.process).cpu())
        labels.append(texts.condition.long())  # pyright: ignore[reportOptionalMemberAccess]
    log_p, label = torch.cat(log_ps), torch.cat(labels)
    level = u if made.config.noise == "blocks" else level_of(u.to(device), method.process).cpu()
    sure, guess = log_p.exp().max(-1)
    right, results = (guess == label).double(), []
    for low in (i / RANGES for i in range(RANGES)):
        at = (level >= low) & ((level < low + 1 / RANGES) | (low + 1 / RANGES >= 1))
        n = int(at.sum())
        if n == 0:
            continue
        bins = (sure[at] * CONFIDENCES).long().clamp_max(CONFIDENCES - 1)
        gap = torch.zeros(CONFIDENCES, dtype=torch.float64).index_add(0, bins, sure[at] - right[at]).abs().sum() / n
        nats = -log_p[at].gather(-1, label[at, None]).mean()
        results.append(AtNoise(low, low + 1 / RANGES, n, int(right[at].sum()), float(nats), float(gap)))
    return results


@dataclass(frozen=True)
class ClassifierRecord(Trained):
    """A classifier that was trained, with its calibration in `config`; `classifier` is None where a file was read."""

    command: ClassVar = "train classifier"
    unit: ClassVar = "accuracy"
    kind: ClassVar = "classifier"
    config: ClassifierConfig
    classifier: TextClassifier | None = field(default=None, compare=False, repr=False, metadata=schema.UNREAD)

    def figures(self) -> list[Figure]:
        levels = [(part, Proportion(part.right, part.texts)) for part in self.config.calibration]
        return [
            Figure(f"accuracy from {part.low:.0%}", share.value, share.half, "accuracy", "estimate")
            for part, share in levels
        ]
