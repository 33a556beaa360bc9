"""Fine-tuning a denoiser's network to classify texts: a linear map on its mean hidden state, all weights trained."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.random import mix
from ..methods import METHODS, build, reference
from ..models.embed import embed_tokens, reading
from ..nn.classifier import Classifier


def untrained(model: Any, seed: int) -> Any:
    """The model's method with fresh weights of its own kind."""
    method = model.method
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, "weights") % 2**63)
        if not model.config.network and reference(type(method)) in METHODS:
            options, length = model.config.options, int(method.shape[0])
            fresh = build(type(method), method.vocabulary, model.config.net, options, length, method.ordered)
        else:  # another network: each of its parts says itself how it begins
            fresh = copy.deepcopy(method)
            for module in fresh.network.modules():
                getattr(module, "reset_parameters", lambda: None)()
            getattr(fresh.network, "initialise", lambda: None)()
    return fresh.to(next(method.parameters()).device).eval()


def padded_tokens(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Texts of several lengths as (B, n) tokens, and where they are, (B, n) bool."""
    sizes = torch.tensor([len(text) for text in texts])
    x = torch.zeros(len(texts), int(sizes.max()), dtype=torch.long)
    for row, text in zip(x, texts):
        row[: len(text)] = torch.tensor([*text])
    return x, torch.arange(x.shape[1]) < sizes[:, None]


def logits(method: Any, classifier: Classifier, texts: Sequence[Sequence[int]]) -> Tensor:
    """The classifier's logits (B, classes) of texts, which the network reads as in `models.embed`."""
    device = next(classifier.parameters()).device
    x, mask = (part.to(device) for part in padded_tokens(texts))
    inputs, conditioning, skip = reading(method, x)
    there = F.pad(mask, (skip, 0), value=True)
    segments = None if bool(mask.all()) else (~there).long()
    return classifier(inputs, conditioning, mask=F.pad(mask, (skip, 0), value=False), segments=segments)


@torch.no_grad()
def right(
    method: Any, classifier: Classifier, texts: Sequence[Sequence[int]], labels: Tensor, batch: int = 64
) -> Tensor:
    """Which texts the classifier gets right, (N,) bool."""
    classifier.eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    correct = torch.zeros(len(texts), dtype=torch.bool)
    for first in range(0, len(order), batch):
        part = order[first : first + batch]
        guess = logits(method, classifier, [texts[i] for i in part]).argmax(-1).cpu()
        correct[torch.tensor(part)] = guess == labels[torch.tensor(part)]
    return correct


def _groups(lengths: Sequence[int], batch: int, generator: torch.Generator) -> list[list[int]]:
    """All texts once, in a random order of batches; those of a batch are of about one length, so that little is padded."""
    groups = []
    for chunk in torch.randperm(len(lengths), generator=generator).split(16 * batch):
        near = sorted(chunk.tolist(), key=lambda i: lengths[i])
        groups += [near[first : first + batch] for first in range(0, len(near), batch)]
    return [groups[i] for i in torch.randperm(len(groups), generator=generator).tolist()]


def fine_tune(
    method: Any,
    parts: Sequence[Sequence[Sequence[int]]],
    labels: Sequence[Tensor],
    classes: int,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    progress: Callable[[int, int], None],
) -> tuple[Tensor, int]:
    """Train all weights on the labels by AdamW: which held-out texts are right, (N,) bool, after the epoch that part 2 chose."""
    network = copy.deepcopy(method.network)
    width = embed_tokens(method, [parts[0][0]]).shape[1]
    generator = torch.Generator().manual_seed(mix(seed, "order"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, "head") % 2**63)
        classifier = Classifier(network, width, classes).to(next(method.parameters()).device)
        nn.init.zeros_(classifier.output.weight)
        trained = [p for name, p in classifier.named_parameters() if "head" not in name]
        optimizer = torch.optim.AdamW(trained, rate, weight_decay=0.01)
        steps, step = epochs * math.ceil(len(parts[0]) / batch), 0
        best: tuple[int, int, Tensor] = (-1, 0, torch.empty(0))
        for epoch in range(1, epochs + 1):
            classifier.train()
            for group in _groups([len(text) for text in parts[0]], batch, generator):
                step += 1
                share = min(step / (0.1 * steps), (1 - step / steps) / 0.9)
                for options in optimizer.param_groups:
                    options["lr"] = rate * max(share, 0.0)
                guess = logits(method, classifier, [parts[0][i] for i in group])
                loss = F.cross_entropy(guess, labels[0][group].to(guess.device))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(trained, 1.0)
                optimizer.step()
                progress(step, steps)
            chosen = int(right(method, classifier, parts[1], labels[1]).sum())
            if chosen > best[0]:
                best = (chosen, epoch, right(method, classifier, parts[2], labels[2]))
    return best[2], best[1]
