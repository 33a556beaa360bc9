"""Do the features of a trained denoiser tell texts apart? A linear probe and a fine-tuned classifier, with baselines.

    zellige evaluate MODEL --probe ag_news

Five classifiers of the same texts, cut at the network's length, in the model's own tokens, judged on the same held-out ones:

    bag of tokens            logistic regression on tf-idf counts of the tokens: no network, no order
    linear, random weights   logistic regression on the mean hidden state (`models.embed`) of the same network, never trained
    linear, trained          the same on the trained network
    fine-tuned, random       the network and a linear map on its mean hidden state, trained on the labels from fresh weights
    fine-tuned, trained      the same, from the trained weights

That diffusion training keeps what is needed to classify is MDLM's claim (Sahoo et al. 2024, arXiv 2406.07524, for BERT on GLUE);
here it is asked of any model in one command. The regressions' L2 penalty, and after which epoch fine-tuning stops, are chosen on
texts that are neither trained on nor held out.
"""

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.random import mix
from ..data import DATASETS
from ..data.catalogue import cache_folder, fetch
from ..errors import InputError, unknown
from ..models.classes import told_none
from ..models.embed import embed_tokens, tokens_at_once
from ..models.identity import fingerprint, identity, which_weights
from ..models.model import as_model
from ..show.kinds import of
from .fine_tune import fine_tune, untrained
from .interval import student
from .logistic_regression import bags, linear, standardized
from .proportion import Proportion

PROTOCOL = "zellige-probe-1"
CLASSES = {"ag_news": ("World", "Sports", "Business", "Sci/Tech")}
Progress = Callable[[str, int, int], None]


# ---------------------------------------------------------------------------------------------------- labelled texts
@dataclass(frozen=True)
class Labelled:
    """Texts with a class each: name, texts, labels from 0, the names of the classes."""

    name: str
    texts: list[str]
    labels: Tensor
    classes: tuple[str, ...]


def labelled(name: str, path: str | Path | None = None, cache: str | None = None) -> Labelled:
    """The 7,600 texts of AG News's test.csv: title and description, and one of four classes.

    Args:
        path: a folder with the file, or the file; downloaded where it is not given.

    Raises:
        InputError: another name; no such file; a row that is not class, title, description.
    """
    if name not in CLASSES:
        raise unknown("probe", name, CLASSES)
    if path is None:
        file = fetch(*DATASETS[name].files["test"], cache_folder(cache))  # pyright: ignore[reportArgumentType]
    else:
        file = Path(path) / "test.csv" if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise InputError(f"no file at '{file}'; give the folder of test.csv by `data.path`, or leave it out")
    texts, labels = [], []
    with file.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
                raise InputError(
                    f"row {number:,} of '{file}' is not class (1 to 4), title, description; give {name}'s test.csv"
                )
            texts.append(f"{row[1]} {row[2]}".replace("\\", " "))
            labels.append(int(row[0]) - 1)
    return Labelled(name, texts, torch.tensor(labels), CLASSES[name])


def split_texts(count: int, seed: int, shares: tuple[float, float] = (0.7, 0.1)) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers of the texts that train, that choose, and that are held out, by the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(mix(seed, "split")))
    first, second = round(shares[0] * count), round(sum(shares) * count)
    return order[:first].sort().values, order[first:second].sort().values, order[second:].sort().values


# ---------------------------------------------------------------------------------------------------- all of it
@dataclass(frozen=True)
class ProbeRow:
    """One classifier: its name, which held-out texts it gets right (N,) bool, and what was chosen for it."""

    name: str
    right: Tensor
    chosen: str

    @property
    def share(self) -> Proportion:
        return Proportion(int(self.right.sum()), len(self.right))

    def above(self, other: "ProbeRow") -> tuple[float, float]:
        """How much higher its accuracy is, with half the 95% interval of the paired difference on the same texts."""
        each = self.right.double() - other.right.double()
        return float(each.mean()), student(len(each) - 1) * float(each.std()) / math.sqrt(len(each))


@dataclass(frozen=True)
class Probe:
    """The five rows, and what was done."""

    rows: list[ProbeRow]
    protocol: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)

    def row(self, name: str) -> ProbeRow:
        return next(row for row in self.rows if row.name == name)

    @property
    def gains(self) -> list[tuple[str, float, float]]:
        """What training brings: the trained network over the random one, probed and fine-tuned, and over the bag."""
        pairs = [("linear, trained", "linear, random weights"), ("fine-tuned, trained", "fine-tuned, random")]
        pairs += [("linear, trained", "bag of tokens"), ("fine-tuned, trained", "bag of tokens")]
        there = {row.name for row in self.rows}
        return [(f"{a} - {b}", *self.row(a).above(self.row(b))) for a, b in pairs if {a, b} <= there]

    def to_dict(self) -> dict[str, Any]:
        rows = [{"name": row.name, "chosen": row.chosen, "accuracy": row.share.to_dict()} for row in self.rows]
        gains = [
            {"name": name, "value": value, "low": value - half, "high": value + half}
            for name, value, half in self.gains
        ]
        return {"rows": rows, "differences": gains, "about": self.about}


def probe(
    model: Any,
    data: Labelled,
    *,
    seed: int = 0,
    epochs: int = 3,
    rate: float = 1e-3,
    batch: int = 32,
    layer: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Probe:
    """Probe and fine-tune a model on labelled texts.

    Args:
        model: a `Model`, or a run, a saved folder or a hub id.
        seed: of the split, the fresh weights and the order of the texts.
        epochs, rate, batch: of fine-tuning; 0 epochs leave it out.
        layer: which block the linear probe reads; what the head reads if not given.
        progress: called with (what, done, total).

    Raises:
        InputError: a model that makes no text; a character that it does not know.
    """
    model = as_model(model)
    kind = of(model.tokenizer)
    if not kind.running:
        raise InputError(f"the probe is on texts, and this model makes {kind.many}; use a model of text")
    method, size, classes = model.method, tokens_at_once(model.method), len(data.classes)
    whole = [model.tokenizer.encode(text, f"text {i:,}") for i, text in enumerate(data.texts)]
    tokens = [text[:size] for text in whole]
    cut = sum(len(text) > size for text in whole)
    numbers = split_texts(len(tokens), seed)
    parts, labels = [[tokens[i] for i in part.tolist()] for part in numbers], [data.labels[part] for part in numbers]
    fresh = untrained(model, seed)
    rows = []
    progress("bag of tokens", 0, 1)
    correct, penalty = linear(bags(parts, method.vocabulary), labels, classes)
    rows.append(ProbeRow("bag of tokens", correct, f"penalty {penalty:g}"))
    for name, which in (("linear, random weights", fresh), ("linear, trained", method)):
        vectors = embed_tokens(
            which, tokens, layer, progress=lambda done, total, name=name: progress(name, done, total)
        )
        correct, penalty = linear(standardized([vectors[part] for part in numbers]), labels, classes)
        rows.append(ProbeRow(name, correct, f"penalty {penalty:g}"))
    for name, which in (("fine-tuned, random", fresh), ("fine-tuned, trained", method)) if epochs else ():
        on_step = lambda done, total, name=name: progress(name, done, total)  # noqa: E731
        correct, epoch = fine_tune(which, parts, labels, classes, seed, epochs, rate, batch, on_step)
        rows.append(ProbeRow(name, correct, f"epoch {epoch} of {epochs}"))
    protocol = {
        "name": PROTOCOL,
        "data": f"{data.name}, test.csv, title and description, split by the seed",
        "texts": f"{len(numbers[0])} train, {len(numbers[1])} choose, {len(numbers[2])} held out",
        "length": f"{size} tokens, {cut} texts cut",
        "features": "mean over positions at t = 0, " + ("what the head reads" if layer is None else f"layer {layer}"),
        "regression": "multinomial, L2 penalty chosen, L-BFGS",
        "fine-tuning": f"AdamW, rate {rate:g}, {epochs} epochs of batches of {batch}, the epoch chosen",
        "weights": which_weights(model),
        "seed": seed,
    } | told_none(model)  # a topic that was told would be no question
    about = identity(model) | {
        "data": data.name,
        "sha256": fingerprint(data.texts, data.labels),
        "trained on": model.config.data.name,
        "tokenizer": model.tokenizer.name,
    }
    return Probe(rows, protocol, about)
