"""Fine-tuning of a trained denoiser as a classifier of texts, and what probe and GLUE say of it."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige.base.errors import InputError
from zellige.core.batch import padded
from zellige.core.random import mix
from zellige.methods.method import Method
from zellige.models.class_names import told_none
from zellige.models.embed import embed_tokens, reading
from zellige.models.model import Model, ModelSource, as_model, identity, which_weights
from zellige.nn.classifier import Classifier
from zellige.show.kinds import of
from zellige.show.record import Record

Progress = Callable[[str, int, int], None]  # called with (title, done, total)


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True, kw_only=True)
class Protocol:
    """All that was done; `class_` of a model with classes."""

    name: str
    data: str
    features: str
    fine_tuning: str
    weights: str
    seed: int
    class_: str | None = None


@dataclass(frozen=True, kw_only=True)
class Classified(Record):
    """Texts that classifiers of a model told apart; `about`: the model and the texts."""

    protocol: Protocol
    about: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def seed(self) -> int:
        return self.protocol.seed


def model_of_text(model: ModelSource, task: str) -> Model:
    """The model. InputError: it makes no text; `task` begins the sentence."""
    model = as_model(model)
    kind = of(model.tokenizer)
    if not kind.running:
        raise InputError(f"{task}, and this model makes {kind.many}; use a model of text")
    return model


def of_model(model: Model) -> dict[str, Any]:
    """Entries of the protocol. A model with classes is told none: given the topic,
    there would be nothing to classify."""
    return {"weights": which_weights(model), "class_": told_none(model).get("class")}


def about_texts(model: Model, data: str, sha256: str) -> dict[str, Any]:
    """The model and the texts, as a record states them."""
    about = {"data": data, "sha256": sha256, "trained on": model.config.data.name, "tokenizer": model.tokenizer.name}
    return identity(model) | about


# ---------------------------------------------------------------------------------------------------- the classifier
def logits(method: Method, classifier: Classifier, texts: Sequence[Sequence[int]]) -> Tensor:
    """The classifier's logits (B, classes) of texts, which the network reads as in `models.embed`."""
    device = next(classifier.parameters()).device
    x, mask = (part.to(device) for part in padded(texts))
    inputs, conditioning, skip = reading(method, x)
    around = (skip, inputs.shape[1] - skip - mask.shape[1])
    present = F.pad(mask, around, value=True)
    segments = None if bool(mask.all()) else (~present).long()
    return classifier(inputs, conditioning, mask=F.pad(mask, around, value=False), segments=segments)


@torch.no_grad()
def outputs_of(method: Method, classifier: Classifier, texts: Sequence[Sequence[int]], batch: int = 64) -> Tensor:
    """The classifier's outputs (N, classes) for texts, in batches of about one length."""
    classifier.eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    outputs = [
        logits(method, classifier, [texts[i] for i in order[a : a + batch]]).cpu() for a in range(0, len(order), batch)
    ]
    return torch.cat(outputs)[torch.tensor(order).argsort()]


def _groups(lengths: Sequence[int], batch: int, generator: torch.Generator) -> list[list[int]]:
    """All texts once, in a random order of batches; those of a batch are of about one length,
    so that little is padded."""
    groups = []
    for chunk in torch.randperm(len(lengths), generator=generator).split(16 * batch):
        near = sorted(chunk.tolist(), key=lambda i: lengths[i])
        groups += [near[first : first + batch] for first in range(0, len(near), batch)]
    return [groups[i] for i in torch.randperm(len(groups), generator=generator).tolist()]


def descended(
    method: Method,
    texts: Sequence[Sequence[int]],
    outputs: int,
    loss_of: Callable[[Tensor, Sequence[int]], Tensor],
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    progress: Callable[[int, int], None],
    warmup: float = 0.1,
    weight_decay: float = 0.01,
) -> Iterator[tuple[int, Classifier]]:
    """Train a copy of the network and a linear map on its mean hidden state by AdamW: each epoch's number, and the
    classifier.

    Args:
        outputs: of the linear map.
        loss_of: (outputs of a batch, the numbers of its texts) -> the mean loss.
        warmup: share of the steps in which the rate grows to `rate`; then it falls to 0, in lines.
    """
    width = embed_tokens(method, [texts[0]]).shape[1]
    generator = torch.Generator().manual_seed(mix(seed, "order"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, "head") % 2**63)
        classifier = Classifier(copy.deepcopy(method.network), width, outputs).to(next(method.parameters()).device)
        nn.init.zeros_(classifier.output.weight)
        parameters = [p for name, p in classifier.named_parameters() if "head" not in name]
        optimizer = torch.optim.AdamW(parameters, rate, weight_decay=weight_decay)
        steps, step = epochs * math.ceil(len(texts) / batch), 0
        for epoch in range(1, epochs + 1):
            classifier.train()
            for group in _groups([len(text) for text in texts], batch, generator):
                step += 1
                share = (1 - step / steps) / (1 - warmup) if warmup else 1 - (step - 1) / steps
                share = min(step / (warmup * steps), share) if warmup else share
                for options in optimizer.param_groups:
                    options["lr"] = rate * max(share, 0.0)
                guess = logits(method, classifier, [texts[i] for i in group])
                loss = loss_of(guess, group)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                progress(step, steps)
            yield epoch, classifier
