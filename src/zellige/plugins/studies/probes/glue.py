"""GLUE: a trained denoiser fine-tuned on eight tasks of understanding, as the MDLM paper does it with BERT.

    zellige evaluate MODEL --probe glue          # all tasks, and the mean over what the paper's table 4 has
    zellige evaluate MODEL --probe glue:sst2

    input       [CLS] first [SEP] second [SEP] in the model's tokens, 128 at most, the longer part cut first
    network     all its weights, and a linear map on its mean hidden state at t = 0
    training    AdamW without weight decay, rate 2e-5 falling to 0 in a line, 3 epochs of batches of 16; the last epoch counts
    judged on   the published validation split; the test split's labels are not published

This is the protocol of appendix D.6 of the paper (Sahoo et al. 2024, arXiv 2406.07524): the defaults of the script that
it names, but for the batch. The script reads BERT's pooler over the first position, which a model of masks does not
have; here it is the mean over the positions. Wang et al. 2019, arXiv 1804.07461, made GLUE; its task WNLI is left out,
as in the paper.
"""

import csv
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.base.arguments import is_number
from zellige.base.errors import InputError, not_installed, unknown
from zellige.base.schema import shown
from zellige.core.random import mix
from zellige.core.student import half
from zellige.data import Data
from zellige.data.catalogue import cache_folder
from zellige.data.remote import installed
from zellige.data.text_source import load_hub
from zellige.data.unpack import of_rows
from zellige.methods.method import Method
from zellige.models.embed import tokens_at_once
from zellige.models.model import ModelSource, fingerprint
from zellige.nn.classifier import Classifier
from zellige.show.record import Figure

from .fine_tuning import Classified, Progress, Protocol, about_texts, descended, model_of_text, of_model, outputs_of

if TYPE_CHECKING:
    from zellige.data.tokenizer_base import Tokenizer

PROTOCOL = "zellige-glue-1"
LENGTH = 128
NAME = "glue"
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_SAMPLES = 400  # of the bootstrap


# ---------------------------------------------------------------------------------------------------- metrics
# torchmetrics 1.9 has them in float32, and a Matthews' correlation of 0.41 where a guess is constant and says nothing
def accuracy(guess: Tensor, truth: Tensor) -> Tensor:
    """Share of right answers; guess and truth (..., N) classes -> (...)."""
    return (guess == truth).double().mean(-1)


def f1(guess: Tensor, truth: Tensor) -> Tensor:
    """2 / (1 / precision + 1 / recall) of class 1; 0 where none is found."""
    found = ((guess == 1) & (truth == 1)).double().sum(-1)
    return 2 * found / ((guess == 1).double().sum(-1) + (truth == 1).double().sum(-1)).clamp_min(1)


def matthews(guess: Tensor, truth: Tensor) -> Tensor:
    """Correlation of the two classes; 0 where one of the two is constant."""
    return pearson(guess.double(), truth.double())


def pearson(guess: Tensor, truth: Tensor) -> Tensor:
    """Correlation of guess and truth (..., N) -> (...); 0 where one of the two is constant."""
    a, b = (x.double() - x.double().mean(-1, keepdim=True) for x in (guess, truth))
    norm = (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return torch.where(norm > 0, (a * b).sum(-1) / norm.clamp_min(1e-300), 0.0)


def spearman(guess: Tensor, truth: Tensor) -> Tensor:
    """Correlation of the ranks; equal values have the mean of their ranks."""
    return pearson(ranks(guess), ranks(truth))


def ranks(x: Tensor) -> Tensor:
    """Ranks (..., N) from 0, those of equal values their mean.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 2.0])).tolist()
    [2.5, 0.0, 2.5, 1.0]
    """
    ordered, x = x.sort(-1).values.contiguous(), x.contiguous()
    below, upto = (torch.searchsorted(ordered, x, right=right) for right in (False, True))
    return (below + upto - 1).double() / 2


METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "F1": f1,
    "Matthews": matthews,
    "Pearson": pearson,
    "Spearman": spearman,
}


# ---------------------------------------------------------------------------------------------------- tasks
@dataclass(frozen=True)
class Task:
    """One task of GLUE.

    Attributes:
        folder: of the published files.
        first, second: names of the columns of the text, or of the two texts, in the published files and on the hub.
        metrics: the one that counts first.
        label: names of the column of the label.
        classes: what the classes are called, where they have names; () for a number.
        judged: the splits that it is judged on, as the hub and as the published files call them.
        columns: of files without a header.
    """

    folder: str
    first: tuple[str, ...]
    second: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    label: tuple[str, ...] = ("label",)
    classes: tuple[str, ...] = _BINARY
    judged: tuple[tuple[str, str], ...] = (("validation", "dev"),)
    columns: tuple[str, ...] = ()


TASKS = {
    "mnli": Task(
        "MNLI",
        ("sentence1", "premise"),
        ("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        classes=("entailment", "neutral", "contradiction"),
        judged=(("validation_matched", "dev_matched"), ("validation_mismatched", "dev_mismatched")),
    ),
    "qqp": Task("QQP", ("question1",), ("question2",), ("F1", "accuracy"), label=("is_duplicate", "label")),
    "qnli": Task("QNLI", ("question",), ("sentence",), classes=_ENTAILMENT),
    "sst2": Task("SST-2", ("sentence",)),
    "cola": Task("CoLA", ("sentence",), (), ("Matthews", "accuracy"), columns=("source", "label", "star", "sentence")),
    "stsb": Task(
        "STS-B", ("sentence1",), ("sentence2",), ("Spearman", "Pearson"), label=("score", "label"), classes=()
    ),
    "mrpc": Task(
        "MRPC", ("#1 String", "sentence1"), ("#2 String", "sentence2"), ("F1", "accuracy"), ("Quality", "label")
    ),
    "rte": Task("RTE", ("sentence1",), ("sentence2",), classes=_ENTAILMENT),
}
SUFFIXES = (".tsv", ".jsonl", ".json")


def tasks_of(name: str) -> list[str]:
    """The tasks that "glue" or "glue:sst2" (also "glue/sst2") names; InputError for one that there is not.

    >>> tasks_of("glue/rte")
    ['rte']
    """
    if name == NAME:
        return list(TASKS)
    task = name.removeprefix(NAME)[1:]
    if task not in TASKS or name[len(NAME)] not in ":/":
        raise unknown("probe", name, ["ag_news", NAME, *(f"{NAME}:{task}" for task in TASKS)])
    return [task]


@dataclass(frozen=True)
class Examples:
    """Texts or pairs of them (without one the second is ""), and labels: classes from 0 (N,),
    or numbers (N,) float64."""

    first: list[str]
    second: list[str]
    labels: Tensor


def examples(name: str, path: str | None = None, cache: str | None = None) -> dict[str, Examples]:
    """The splits of a task: train, and those that it is judged on.

    Args:
        path: a folder of GLUE's tasks or of this one, with train.tsv and dev.tsv as published, or .jsonl; by `datasets`
            from the Hugging Face hub where it is not given.

    Raises:
        InputError: no such file; a row without a column, or with another label.
    """
    task = TASKS[name]
    if path is None:
        if not installed("datasets"):
            raise not_installed("GLUE", "datasets", "data", ", or give local copies by `data.path`")
        splits = {split: split for split in ("train", *(hub for hub, _ in task.judged))}
        hub = load_hub(Data("text"), ("nyu-mll/glue", name, splits), cache_folder(cache))
        return {split: _examples(task, enumerate(rows, 1), f"{name}, {split}") for split, rows in hub.items()}
    folder = next((place for place in (Path(path) / task.folder, Path(path) / name) if place.is_dir()), Path(path))
    files = {"train": _file(folder, ("train",))} | {hub: _file(folder, (hub, old)) for hub, old in task.judged}
    return {split: _examples(task, _rows(task, file), shown(file)) for split, file in files.items()}


def _file(folder: Path, names: Sequence[str]) -> Path:
    for suffix in SUFFIXES:
        for name in names:
            if (folder / f"{name}{suffix}").is_file():
                return folder / f"{name}{suffix}"
    raise InputError(
        f"no {names[-1]}.tsv and no {names[0]}.jsonl in '{shown(folder)}'; give the folder of GLUE's tasks by "
        "`data.path`, or leave it out"
    )


def _rows(task: Task, file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line, row) of a file; a .tsv has no quotation marks, its first line the names of the columns but for CoLA's."""
    with of_rows(shown(file)), file.open(encoding="utf-8", newline="") as lines:
        if file.suffix != ".tsv":
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        row = json.loads(line)
                    except ValueError:
                        row = None
                    if not isinstance(row, dict):
                        raise InputError(f"line {number:,} of '{shown(file)}' is no JSON object; give one a line")
                    yield number, row
            return
        table = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = None
        for number, cells in enumerate(table, 1):
            if header is None:
                header = list(task.columns) if task.columns and not {*task.columns} & {*cells} else cells
                if header is cells:
                    continue
            yield number, dict(zip(header, cells))


def _examples(task: Task, rows: Any, of: str) -> Examples:
    first, second, labels = list[str](), list[str](), list[float]()
    for number, row in rows:
        first.append(_cell(row, task.first, number, of))
        second.append(_cell(row, task.second, number, of) if task.second else "")
        label = str(_cell(row, task.label, number, of)).strip()
        labels.append(_label(task, label, number, of))
    if not first:
        raise InputError(f"'{of}' has no rows; give the published file")
    return Examples(first, second, torch.tensor(labels, dtype=torch.long if task.classes else torch.float64))


def _cell(row: Mapping[str, Any], names: Sequence[str], number: int, of: str) -> Any:
    found = next((row[name] for name in names if row.get(name) is not None), None)
    if found is None:
        raise InputError(
            f"row {number:,} of '{of}' has no column '{names[0]}'; its columns are {', '.join(map(str, row))}"
        )
    return found


def _label(task: Task, label: str, number: int, of: str) -> float:
    if task.classes:
        if label in task.classes:
            return task.classes.index(label)
        if is_number(label) and int(label) < len(task.classes):
            return int(label)
        raise InputError(
            f"row {number:,} of '{of}' has the label '{label}'; it must be {', '.join(task.classes)}, or its number"
        )
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"row {number:,} of '{of}' has the label '{label}'; it must be a number")
    return value


def encoded(tokenizer: "Tokenizer", of: Examples, size: int) -> tuple[list[list[int]], int]:
    """Each pair as tokens, `size` at most, and how many were cut: [CLS] first [SEP] second [SEP]; without [CLS], the
    separator between the two alone; without a separator, a space."""
    inner = getattr(tokenizer, "inner", None)
    begin, end = (inner.token_to_id(name) for name in ("[CLS]", "[SEP]")) if inner is not None else (None, None)
    end = tokenizer.separator if begin is None or end is None else end
    texts, cut = list[list[int]](), 0
    for first, second in zip(of.first, of.second):
        if end is None:
            parts = [tokenizer.encode(f"{first} {second}".strip(), "a text of GLUE")]
        else:
            parts = [tokenizer.encode(text, "a text of GLUE") for text in (first, second) if text]
        marks = 0 if end is None else (1 + len(parts) if begin is not None else len(parts) - 1)
        over = sum(map(len, parts)) + marks - size
        cut += over > 0
        for _ in range(max(over, 0)):
            max(parts, key=len).pop()
        text = [] if begin is None or end is None else [begin]
        for i, part in enumerate(parts):
            text += part
            if end is not None and (begin is not None or i < len(parts) - 1):
                text.append(end)
        texts.append(text)
    return texts, cut


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True)
class GlueRow:
    """One task on one split.

    Attributes:
        metric, value, half: what counts, and half its 95% interval over the judged texts (bootstrap).
        others: the task's other metrics.
        train, judged, cut: how many texts train, are judged, and were cut of either.
    """

    task: str
    split: str
    metric: str
    value: float
    half: float
    others: dict[str, float]
    train: int
    judged: int
    cut: int

    @property
    def name(self) -> str:
        """The task, and the split where there are two."""
        return f"{self.task} {self.split.partition('_')[2]}".strip()


@dataclass(frozen=True, kw_only=True)
class GlueProtocol(Protocol):
    """All that was done."""

    input: str


@dataclass(frozen=True, kw_only=True)
class GlueRecord(Classified):
    """A model fine-tuned on tasks of GLUE.

    Attributes:
        rows: one for each task and split.
        mean: of the rows' values.
    """

    advice: ClassVar = "give a file that zellige evaluate --probe glue wrote"
    unit: ClassVar = "metric of the task"
    rows: tuple[GlueRow, ...]
    protocol: GlueProtocol

    @property
    def mean(self) -> float:
        return sum(row.value for row in self.rows) / len(self.rows)

    def figures(self) -> list[Figure]:
        return [Figure(f"{r.name}: {r.metric}", r.value, r.half, r.metric, "estimate") for r in self.rows]

    def content(self) -> dict[str, Any]:
        return super().content() | {"mean": self.mean}


# ---------------------------------------------------------------------------------------------------- all of it
def glue(
    model: ModelSource,
    names: Sequence[str],
    *,
    path: str | None = None,
    cache: str | None = None,
    seed: int = 0,
    epochs: int = 3,
    rate: float = 2e-5,
    batch: int = 16,
    progress: Progress = lambda title, done, total: None,
) -> GlueRecord:
    """Fine-tune a model on tasks of GLUE, each from its own weights, and judge it.

    Args:
        names: of the tasks.
        path, cache: see `examples`.
        seed: of the linear map and the order of the texts.
        progress: called with (title, done, total).

    Raises:
        InputError: a model that makes no text; a character that it does not know; see `examples`.
    """
    began, model = time.monotonic(), model_of_text(model, "GLUE is of texts")
    size = min(LENGTH, tokens_at_once(model.method))
    whole = {name: examples(name, path, cache) for name in names}  # all are read before anything is trained
    rows = list[GlueRow]()
    for name, splits in whole.items():
        show = lambda done, total, name=name: progress(name, done, total)  # noqa: E731
        texts = {split: encoded(model.tokenizer, part, size) for split, part in splits.items()}
        classifier = _trained(
            model.method, TASKS[name], texts["train"][0], splits["train"], seed, epochs, rate, batch, show
        )
        for split, _ in TASKS[name].judged:
            outputs = outputs_of(model.method, classifier, texts[split][0])
            rows.append(_row(name, split, outputs, splits[split].labels, len(texts["train"][0]),
                             texts["train"][1] + texts[split][1], seed))  # fmt: skip
    protocol = GlueProtocol(
        name=PROTOCOL,
        data="GLUE's train splits, judged on its validation splits",
        input=f"[CLS] first [SEP] second [SEP], {size} tokens at most",
        features="mean over positions at t = 0",
        fine_tuning=f"AdamW without decay, rate {rate:g} falling to 0, {epochs} epochs of batches of {batch}, the last one",
        **of_model(model),
        seed=seed,
    )
    hashed = fingerprint(
        *(part for s in whole.values() for of in s.values() for part in (of.first, of.second, of.labels))
    )
    about = about_texts(model, NAME if len(names) > 1 else f"{NAME}:{names[0]}", hashed)
    return GlueRecord(rows=tuple(rows), protocol=protocol, about=about, seconds=time.monotonic() - began)


def _trained(
    method: Method,
    task: Task,
    texts: Sequence[Sequence[int]],
    of: Examples,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    progress: Callable[[int, int], None],
) -> Classifier:
    """The classifier after its last epoch: cross-entropy of the classes, or the squared error of a number."""

    def loss_of(guess: Tensor, rows: Sequence[int]) -> Tensor:
        target = of.labels[rows].to(guess.device)
        return F.cross_entropy(guess, target) if task.classes else F.mse_loss(guess[:, 0], target.to(guess.dtype))

    outputs = len(task.classes) or 1
    how = {"warmup": 0.0, "weight_decay": 0.0}
    *_, (_, classifier) = descended(method, texts, outputs, loss_of, seed, epochs, rate, batch, progress, **how)
    return classifier


def _row(name: str, split: str, outputs: Tensor, truth: Tensor, train: int, cut: int, seed: int) -> GlueRow:
    task = TASKS[name]
    guess = outputs.argmax(-1) if task.classes else outputs[:, 0].double()
    values = {metric: float(METRICS[metric](guess, truth)) for metric in task.metrics}
    metric = task.metrics[0]
    generator = torch.Generator().manual_seed(mix(seed, f"bootstrap {name}"))
    drawn = [torch.randint(len(truth), (len(truth),), generator=generator) for _ in range(_SAMPLES)]
    deviation = torch.stack([METRICS[metric](guess[i], truth[i]) for i in drawn]).std()
    interval = half(float(deviation), len(truth))
    return GlueRow(name, split, metric, values.pop(metric), interval, values, train, len(truth), cut)
