"""Read the classes of texts from a trained denoiser: a linear probe and a fine-tuned classifier, with baselines.

    zellige evaluate MODEL --probe ag_news

Five classifiers are trained and tested on the same texts, in the model's tokens, cut to the network's length:

    bag of tokens            logistic regression on tf-idf counts of the tokens: no network, no order
    linear, random weights   logistic regression on the mean hidden state (`models.embed`) of the network before training
    linear, trained          the same for the trained network
    fine-tuned, random       the network and a linear map on its mean hidden state, trained on the labels from fresh weights
    fine-tuned, trained      the same, from the trained weights

The L2 penalty of the regressions, and the epoch after which fine-tuning stops, are chosen on texts that are used neither
for training nor for the test. The MDLM paper reports that a BERT trained further as a diffusion model can be fine-tuned on
GLUE as well as before (Sahoo et al. 2024, arXiv 2406.07524); this command asks the same of any model.
"""

import copy
import csv
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.base.errors import InputError, unknown
from zellige.core.random import mix
from zellige.data import DATASETS
from zellige.data.catalogue import cache_folder, fetch
from zellige.data.unpack import of_rows
from zellige.evaluation.interval import Interval, Proportion, student
from zellige.methods import METHODS, build, reference
from zellige.methods.method import Method
from zellige.models.embed import embed_tokens, tokens_at_once
from zellige.models.model import Model, ModelSource, fingerprint
from zellige.nn.classifier import Classifier
from zellige.show.record import Figure

from . import genomic
from .fine_tuning import Classified, Progress, Protocol, about_texts, descended, model_of_text, of_model, outputs_of

PENALTIES = tuple(10.0**k for k in range(-6, 0))


def regress(
    apply: Callable[[Tensor], Tensor],
    width: int,
    labels: Tensor,
    classes: int,
    penalty: float,
    start: Tensor | None = None,
):
    """The weights (width + 1, classes) of a regression with an L2 penalty on all but the last row, the bias. Convex; by
    L-BFGS.

    apply: weights (width, classes) -> logits (N, classes).
    """
    weights = torch.zeros(width + 1, classes, dtype=torch.float64) if start is None else start.clone()
    weights.requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=200, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits = apply(weights[:-1]) + weights[-1]
        loss = F.cross_entropy(logits, labels) + penalty / 2 * weights[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    return weights.detach()


def linear(features: Sequence[Any], labels: Sequence[Tensor], classes: int) -> tuple[Tensor, float]:
    """Which texts of the third part a regression on the first gets right, (N,) bool, with the penalty that the second
    chose.

    features: of the three parts, (N, D) each, dense or sparse, float64.
    """
    multiply = lambda x: lambda w: torch.sparse.mm(x, w) if x.is_sparse else x @ w  # noqa: E731
    correct = lambda x, w, y: (multiply(x)(w[:-1]) + w[-1]).argmax(-1) == y  # noqa: E731
    best, weights = (-1, math.inf, None), None
    for penalty in reversed(PENALTIES):  # each starts from the one before, which is smoother
        weights = regress(multiply(features[0]), features[0].shape[1], labels[0], classes, penalty, weights)
        right = int(correct(features[1], weights, labels[1]).sum())
        if right > best[0]:
            best = (right, penalty, weights)
    return correct(features[2], best[2], labels[2]), best[1]


def standardized(parts: Sequence[Tensor]) -> list[Tensor]:
    """Features with mean 0 and variance 1 on the first part, float64."""
    parts = [part.double() for part in parts]
    mean, scale = parts[0].mean(0), parts[0].std(0).clamp_min(1e-8)
    return [(part - mean) / scale for part in parts]


def bags(parts: Sequence[Sequence[Sequence[int]]], vocabulary: int) -> list[Tensor]:
    """tf-idf counts of tokens, each text of norm 1: (1 + log count) (1 + log N/n),
    for n of the first part's N texts with it."""
    bags_of_parts = []
    for texts in parts:
        rows = torch.cat([torch.full((len(text),), i) for i, text in enumerate(texts)])
        columns = torch.cat([torch.tensor([*text], dtype=torch.long) for text in texts])
        weights = torch.ones(len(rows), dtype=torch.float64)
        bags_of_parts.append(
            torch.sparse_coo_tensor(
                torch.stack((rows, columns)), weights, (len(texts), vocabulary), check_invariants=False
            ).coalesce()
        )
    document_counts = torch.bincount(bags_of_parts[0].indices()[1], minlength=vocabulary).double()
    weight = (len(parts[0]) / document_counts.clamp_min(1)).log() + 1
    matrices = []
    for counts in bags_of_parts:
        index = counts.indices()
        values = (1 + counts.values().log()) * weight[index[1]]
        norm = torch.zeros(counts.shape[0], dtype=torch.float64).index_add(0, index[0], values.square()).sqrt()
        matrices.append(
            torch.sparse_coo_tensor(index, values / norm[index[0]], counts.shape, check_invariants=False).coalesce()
        )
    return matrices


def untrained(model: Model, seed: int) -> Any:
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


def right(method: Method, classifier: Classifier, texts: Sequence[Sequence[int]], labels: Tensor) -> Tensor:
    """Which texts the classifier gets right, (N,) bool."""
    return outputs_of(method, classifier, texts).argmax(-1) == labels


def fine_tune(
    method: Method,
    parts: Sequence[Sequence[Sequence[int]]],
    labels: Sequence[Tensor],
    classes: int,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    progress: Callable[[int, int], None],
) -> tuple[Tensor, int]:
    """Train all weights on the labels by AdamW: which held-out texts are right, (N,) bool,
    after the epoch that part 2 chose."""
    best: tuple[int, int, Tensor] = (-1, 0, torch.empty(0))

    def loss_of(guess: Tensor, rows: Sequence[int]) -> Tensor:
        return F.cross_entropy(guess, labels[0][rows].to(guess.device))

    for epoch, classifier in descended(method, parts[0], classes, loss_of, seed, epochs, rate, batch, progress):
        validation_right = int(right(method, classifier, parts[1], labels[1]).sum())
        if validation_right > best[0]:
            best = (validation_right, epoch, right(method, classifier, parts[2], labels[2]))
    return best[2], best[1]


PROTOCOL = "zellige-probe-1"
CLASSES = {"ag_news": ("World", "Sports", "Business", "Sci/Tech")}


# ---------------------------------------------------------------------------------------------------- labelled texts
@dataclass(frozen=True)
class Labelled:
    """Texts with a class each: name, texts, labels from 0, the names of the classes.

    held_out: so many, the last, are held out as published; 0: a fifth, by the seed.
    """

    name: str
    texts: list[str]
    labels: Tensor
    classes: tuple[str, ...]
    held_out: int = 0
    what: str = "test.csv, title and description, split by the seed"

    def split(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers of the texts that train, that choose, and that are held out."""
        if not self.held_out:
            return split_texts(len(self.texts), seed)
        own = len(self.texts) - self.held_out
        first, second, _ = split_texts(own, seed, (0.9, 0.1))
        return first, second, torch.arange(own, len(self.texts))


def labelled(name: str, path: str | Path | None = None, cache: str | None = None) -> Labelled:
    """The 7,600 texts of AG News's test.csv: title and description, and one of four classes; or a task of Genomic
    Benchmarks.

    Args:
        path: a folder with the file, or the file; downloaded where it is not given.

    Raises:
        InputError: another name; no such file; a row that is not class, title, description.
    """
    if name in genomic.TASKS:
        what = "Genomic Benchmarks, test as published, the rest 90 to 10 by the seed"
        return Labelled(name, *genomic.read_task(name, path), what)
    if name not in CLASSES:
        raise unknown("probe", name, [*CLASSES, "glue", *genomic.TASKS])
    if path is None:
        file = fetch(*DATASETS[name].files["test"], cache_folder(cache))  # pyright: ignore[reportArgumentType]
    else:
        file = Path(path) / "test.csv" if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise InputError(f"no file at '{file}'; give the folder of test.csv by `data.path`, or leave it out")
    texts, labels = [], []
    with of_rows(file), file.open(encoding="utf-8", newline="") as lines:
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


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True)
class Answers:
    """One classifier's answers: which held-out texts it gets right (N,) bool, and the choice made for it."""

    name: str
    right: Tensor
    choice: str

    @property
    def row(self) -> "ProbeRow":
        return ProbeRow(self.name, self.choice, Proportion(int(self.right.sum()), len(self.right)))

    def minus(self, other: "Answers") -> "Gain":
        """The difference of the two accuracies, with the 95% interval of the paired difference on the same texts."""
        differences = self.right.double() - other.right.double()
        value, half = (
            float(differences.mean()),
            student(len(differences) - 1) * float(differences.std()) / math.sqrt(len(differences)),
        )
        return Gain(f"{self.name} - {other.name}", value, value - half, value + half)


@dataclass(frozen=True)
class ProbeRow:
    """One classifier: its name, the choice made for it (penalty, epoch), its accuracy."""

    name: str
    chosen: str
    accuracy: Proportion


@dataclass(frozen=True)
class Fold:
    """The accuracies of one classifier over the folds, each with a split and seeds of its own."""

    name: str
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


@dataclass(frozen=True)
class Gain(Interval):
    """The accuracy of one classifier minus that of another, with its 95% interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ProbeProtocol(Protocol):
    """All that was done."""

    SPELT: ClassVar = {"class_": "class", "fine_tuning": "fine-tuning"}
    texts: str
    length: str
    regression: str


@dataclass(frozen=True, kw_only=True)
class ProbeRecord(Classified):
    """The classifiers that were probed.

    Attributes:
        rows: one for each classifier.
        differences: what training brings: the trained network minus the random one, probed and fine-tuned, and minus
            the bag.
        folds: one for each classifier, of several folds; `rows` and `differences` are those of the first.
    """

    advice: ClassVar = "give a file that zellige evaluate --probe wrote"
    unit: ClassVar = "accuracy"
    rows: tuple[ProbeRow, ...]
    differences: tuple[Gain, ...]
    protocol: ProbeProtocol
    folds: tuple[Fold, ...] = ()

    def row(self, name: str) -> ProbeRow:
        return next(row for row in self.rows if row.name == name)

    def figures(self) -> list[Figure]:
        shares = {row.name: row.accuracy for row in self.rows}
        return [Figure(f"{n}: accuracy", s.value, s.half, "accuracy", "estimate") for n, s in shares.items()]

    def content(self) -> dict[str, Any]:
        return {name: entry for name, entry in super().content().items() if name != "folds" or entry}


PAIRS = (
    ("linear, trained", "linear, random weights"),
    ("fine-tuned, trained", "fine-tuned, random"),
    ("linear, trained", "bag of tokens"),
    ("fine-tuned, trained", "bag of tokens"),
)


# ---------------------------------------------------------------------------------------------------- all of it
def probe_folds(model: ModelSource, data: Labelled, folds: int, *, seed: int = 0, **how: Any) -> ProbeRecord:
    """`probe` with the seeds `seed`, `seed` + 1, ...: the record of the first, with the accuracies of all."""
    records = [probe(model, data, seed=seed + fold, **how) for fold in range(folds)]
    rows = zip(*(record.rows for record in records))
    accuracies = tuple(Fold(of[0].name, tuple(row.accuracy.value for row in of)) for of in rows)
    seconds = sum(record.seconds or 0.0 for record in records)
    return replace(records[0], folds=accuracies if folds > 1 else (), seconds=seconds)


def probe(
    model: ModelSource,
    data: Labelled,
    *,
    seed: int = 0,
    epochs: int = 3,
    rate: float = 1e-3,
    batch: int = 32,
    layer: int | None = None,
    progress: Progress = lambda title, done, total: None,
) -> ProbeRecord:
    """Probe and fine-tune a model on labelled texts.

    Args:
        model: a `Model`, or a run, a saved folder or a hub id.
        seed: of the split, the fresh weights and the order of the texts.
        epochs, rate, batch: of fine-tuning; 0 epochs leave it out.
        layer: which block the linear probe reads; what the head reads if not given.
        progress: called with (title, done, total).

    Raises:
        InputError: a model that makes no text; a character that it does not know.
    """
    began, model = time.monotonic(), model_of_text(model, "the probe is on texts")
    method, size, classes = model.method, tokens_at_once(model.method), len(data.classes)
    whole = [model.tokenizer.encode(text, f"text {i:,}") for i, text in enumerate(data.texts)]
    tokens = [text[:size] for text in whole]
    cut = sum(len(text) > size for text in whole)
    numbers = data.split(seed)
    parts, labels = [[tokens[i] for i in part.tolist()] for part in numbers], [data.labels[part] for part in numbers]
    fresh = untrained(model, seed)
    answers = list[Answers]()
    progress("bag of tokens", 0, 1)
    correct, penalty = linear(bags(parts, method.vocabulary), labels, classes)
    answers.append(Answers("bag of tokens", correct, f"penalty {penalty:g}"))
    for name, probed_method in (("linear, random weights", fresh), ("linear, trained", method)):
        vectors = embed_tokens(
            probed_method, tokens, layer, progress=lambda done, total, name=name: progress(name, done, total)
        )
        correct, penalty = linear(standardized([vectors[part] for part in numbers]), labels, classes)
        answers.append(Answers(name, correct, f"penalty {penalty:g}"))
    for name, probed_method in (("fine-tuned, random", fresh), ("fine-tuned, trained", method)) if epochs else ():
        on_step = lambda done, total, name=name: progress(name, done, total)  # noqa: E731
        correct, epoch = fine_tune(probed_method, parts, labels, classes, seed, epochs, rate, batch, on_step)
        answers.append(Answers(name, correct, f"epoch {epoch} of {epochs}"))
    protocol = ProbeProtocol(
        name=PROTOCOL,
        data=f"{data.name}, {data.what}",
        texts=f"{len(numbers[0])} train, {len(numbers[1])} choose, {len(numbers[2])} held out",
        length=f"{size} tokens, {cut} texts cut",
        features="mean over positions at t = 0, " + ("what the head reads" if layer is None else f"layer {layer}"),
        regression="multinomial, L2 penalty chosen, L-BFGS",
        fine_tuning=f"AdamW, rate {rate:g}, {epochs} epochs of batches of {batch}, the epoch chosen",
        **of_model(model),
        seed=seed,
    )
    about = about_texts(model, data.name, fingerprint(data.texts, data.labels))
    by_name = {answer.name: answer for answer in answers}
    gains = tuple(by_name[a].minus(by_name[b]) for a, b in PAIRS if {a, b} <= by_name.keys())
    return ProbeRecord(
        rows=tuple(answer.row for answer in answers),
        differences=gains,
        protocol=protocol,
        about=about,
        seconds=time.monotonic() - began,
    )
