"""Classifiers of noisy texts, which guide samples (`samplers.guidance`), and their folders.

`zellige train classifier MODEL` trains one (`plugins.students.classifier`). It reads texts with that model's noise, and their
noise level: 1 - alpha, whatever the schedule is. For a model of blocks, or from left to right, it reads the beginning
of a text, with blanks behind it, and no noise level.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core.process import Process
from ..core.schedule import CLEAN
from ..methods.method import Method, device_of
from ..nn.block import Net
from ..nn.classifier import Classifier
from ..nn.network import build_network
from .network_folder import load_network, save_network

if TYPE_CHECKING:
    from .model import Model

NAME = "classifier"  # of its files
LEVELS = (0.25, 0.5, 0.75)  # of noise, at which that of two models is compared
SEEN, CLOSE = 16, 1e-3  # tokens between which it is compared, and how near probabilities are of one noise


@dataclass(frozen=True)
class AtNoise:
    """Quality of a classifier on held-out texts of one range of noise levels.

    Attributes:
        low, high: the range of 1 - alpha, or of the fraction that is blank.
        right: how many of the texts have their class as the likeliest.
        nats: mean of -log P(their class).
        gap: expected calibration error: mean distance of confidence and accuracy, in ten ranges of confidence.
    """

    low: float
    high: float
    texts: int
    right: int
    nats: float
    gap: float


@dataclass(frozen=True)
class ClassifierConfig:
    """Contents of classifier.json.

    Attributes:
        noise: mask, tokens, or blocks (of `block` tokens; 1 for models that write from left to right).
        states: K, the number of states that it reads.
        transitions: what `transitions` says of the noise.
        calibration: on held-out texts, by noise level.
    """

    data: str
    classes: list[str]
    tokenizer: str
    tokenizer_sha256: str
    noise: str
    block: int
    states: int
    transitions: list[float]
    net: Net
    steps: int
    seed: int
    calibration: list[AtNoise]


def noise_of(method: Method) -> tuple[str, int]:
    """The kind of noise of a method and the length of its blocks; see `ClassifierConfig`."""
    if method.process is None:
        return "blocks", 1
    if 0 < method.block < method.shape[0]:
        return "blocks", method.block
    return ("tokens" if method.process.mask is None else "mask"), 0


def level_of(t: Tensor, process: Process | None) -> Tensor:
    """Noise level 1 - alpha at times t (*) in [0, 1], (*); t itself where the noise has no alpha."""
    schedule = getattr(process, "schedule", None)
    return t if schedule is None else 1 - schedule.alpha(t).mean(-1)


def transitions(method: Method) -> list[float]:
    """q(x_t | x_0) between SEEN tokens or fewer, at the LEVELS of noise, whatever the schedule; [] of noise in blocks.

    It is linear between two times of a grid: exact where noise keeps a token or draws a new one.
    """
    process = method.process
    if process is None or noise_of(method)[0] == "blocks":
        return []
    T = process.T or 1024
    t = torch.arange(T + 1, dtype=torch.float64, device=process.prior.device) / T
    level = level_of(t, process).detach()  # (T + 1,), rising
    wanted = level.new_tensor(LEVELS)
    i = torch.searchsorted(level, wanted).clamp(1, T)  # (3,)
    share = (wanted - level[i - 1]) / (level[i] - level[i - 1])
    x = torch.linspace(0, process.K - 1, min(process.K, SEEN), device=t.device).round().long()  # (n,)
    low, high = (process.marginal(x, t[at, None])[..., x].detach() for at in (i - 1, i))  # (3, n, n)
    return torch.lerp(low, high, share[:, None, None].to(low)).flatten().tolist()


class TextClassifier:
    """A trained classifier of noisy texts, a `samplers.guidance.NoisyClassifier`."""

    def __init__(self, network: Classifier, config: ClassifierConfig):
        self.network, self.config, self.length = network, config, config.net.length

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return self.config.classes

    def _time(self, t: Tensor, process: Process | None) -> Tensor | None:
        """The network's input at times t (B, L): 1,000 (1 - alpha) of its noisiest position, (B,)."""
        if self.config.noise == "blocks":
            return None
        t = t.masked_fill(t == CLEAN, 0.0).amax(-1).clamp(0.0, 1.0)
        return (1000 * level_of(t, process)).float()

    def log_p(self, x: Tensor, t: Tensor, process: Process | None) -> Tensor:
        """log P(class | x_t), (B, L) -> (B, classes) float64."""
        return self.network(x, self._time(t, process)).double().log_softmax(-1)

    def slopes(self, x: Tensor, t: Tensor, process: Process | None, label: Tensor) -> Tensor:
        """Gradient of log P(label | x_t) in the one-hot tokens, (B, L, K) float64: one evaluation and its gradient."""
        return self.network.slopes(x, self._time(t, process), label).double()

    def to(self, device: torch.device | str) -> "TextClassifier":
        """The same on another device."""
        self.network.to(device)
        return self

    def save(self, folder: str | Path) -> Path:
        """Write classifier.safetensors, classifier.json and their SHA256SUMS; the folder."""
        return save_network(folder, NAME, self.network, self.config)


def fresh(net: Net, states: int, timed: bool, classes: int) -> Classifier:
    """A new network of these sizes, which reads tokens and, if `timed`, their time alone."""
    net = replace(net, classes=0, latents=0, constant=False, given=False, self_condition=False)
    trunk = build_network(net, states, timed)
    time = torch.zeros(1) if timed else None
    width = trunk.features(torch.zeros(1, net.length, dtype=torch.long), time).shape[-1]
    return Classifier(trunk, width, classes)


def load_classifier(folder: str | Path, device: torch.device | str = "cpu") -> TextClassifier:
    """The classifier in such a folder. InputError: a file is missing, damaged, or not of this kind."""

    def build(config: ClassifierConfig) -> Classifier:
        return fresh(config.net, config.states, config.noise != "blocks", len(config.classes))

    network, config = load_network(Path(folder), NAME, ClassifierConfig, build, "zellige train classifier", device)
    return TextClassifier(network, config)


def classifier_of(model: "Model", folder: str | Path) -> TextClassifier:
    """The classifier in a folder, on the device of the model. InputError: it reads other texts than the model's."""
    device = device_of(model.method)
    classifier = load_classifier(folder, device)
    check_pair(classifier, model)
    return classifier


def check_pair(classifier: TextClassifier, model: "Model") -> None:
    """Raise InputError unless the classifier reads the noisy texts of the model."""
    method, config = model.method, classifier.config
    if config.tokenizer_sha256 != model.tokenizer.fingerprint:
        raise InputError(
            f"the classifier was trained on {config.data}, in other tokens than the model's; train one with zellige "
            "train classifier MODEL"
        )
    (noise, block), found, known = noise_of(method), transitions(method), config.transitions
    alike = len(found) == len(known) and all(abs(a - b) < CLOSE for a, b in zip(found, known))
    if (noise, block) != (config.noise, config.block) or not alike:
        other = "other " if noise == config.noise else ""
        raise InputError(
            f"the classifier was trained on {NOISE[config.noise]}, the model has {other}{NOISE[noise]}; train one with "
            "zellige train classifier MODEL"
        )


NOISE = {"mask": "masks", "tokens": "noise that is tokens", "blocks": "beginnings of texts, block after block"}
