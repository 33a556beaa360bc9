"""RECIPES: how a paper trained a model, by name, in the words of this library, and the number that it reports.

    zellige.train(recipe="mdlm-owt")        # zellige train --recipe mdlm-owt; zellige list recipes

A paper's own text comes first; what it leaves out is taken from its authors' code. What neither says is a choice of ours, and is
named so (`Recipe.ours`); where a network or a data set cannot be the paper's, or the code contradicts it, `Recipe.differs` says
how. docs/published.py has what stands in the published files, value by value, and a test holds the recipes to it.

A limit of the gradient's norm is of the loss that it was made for. Ours is in nats per token, of the whole bound; a published
loss that is c times ours and clipped at g is clipped here at g/c.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from ..data import Data
from ..errors import InputError, Registry
from ..methods import METHODS
from ..methods.method import Method
from ..models.config import Config, Train
from ..nn.block import Net
from ..show.numbers import SIGN


@dataclass(frozen=True)
class Reported:
    """The number of a paper: `≤ 3.435 bits/dim, test, table 3`.

    kind: "bound" or "exact". where: of which split, in which table.
    """

    value: str
    unit: str
    where: str
    kind: str = "bound"

    def __str__(self) -> str:
        return f"{SIGN[self.kind]} {self.value} {self.unit}"


@dataclass(frozen=True)
class Recipe:
    """One configuration of a paper.

    Attributes:
        paper, arxiv: what it is called, and its number.
        source: where in the paper, or in its authors' code, the choices stand.
        method, options: the method's name, and its choices that are not the default.
        vocabulary: data tokens of the tokenizer, or levels of a pixel.
        sampler, drawing, steps: what the paper draws with, its options that are not the default, how many steps; samples of
            validations, which are only looked at, take `train.sample_steps`.
        reported: the number to reach.
        published: the parameters that the paper or its checkpoint has; None where neither says, or what they say does not add up.
        ours: what the source does not give, so that the value here is a choice of our own.
        differs: what is known to be otherwise than in the paper.
    """

    paper: str
    arxiv: str
    source: str
    method: str
    data: Data
    net: Net
    train: Train
    vocabulary: int
    reported: Reported
    options: tuple[tuple[str, Any], ...] = ()
    sampler: str = "ancestral"
    drawing: tuple[tuple[str, Any], ...] = ()
    steps: int = 1000
    published: float | None = None
    ours: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """All of it as the config of a run."""
        return Config(self.method, METHODS[self.method].Config(**dict(self.options)), self.data, self.net, self.train)

    def for_method(self, name: str, method: str | type[Method] | None) -> Config:
        """The config, where `method` is None or that of this recipe, which is called `name`; else InputError."""
        if method is not None and method not in (self.method, METHODS[self.method]):
            other = method if isinstance(method, str) else method.__name__
            raise InputError(f"recipe {name} trains {self.method}, not {other}; leave the method out")
        return self.config

    def note(self, name: str) -> str:
        """What a run says of it at its start."""
        return f"recipe {name}: {self.paper} reports {self.reported} ({self.reported.where})"


# ---------------------------------------------------------------------------------- what several papers share
DIT = Net(layers=12, hidden=768, heads=12, length=1024, dropout=0.1)  # of SEDD and its successors
SHORT = replace(DIT, length=128)
CONSTANT = replace(DIT, constant=True)  # time-free, with the adaptive layer norms of the published checkpoints
UNET = Net(length=3072, grid=(32, 32, 3), kind="unet", condition=512, dropout=0.1)  # of DDPM on CIFAR-10
_BASE = Train(decay="constant", weight_decay=0.0, betas=(0.9, 0.999), ema=0.9999, validate_every=10_000, log_every=100)
TEXT = replace(_BASE, steps=1_000_000, batch=512, lr=3e-4, warmup=2500)
IMAGES = replace(_BASE, steps=1_500_000, batch=128, lr=2e-4, warmup=0)
SUMMED = 1 / 1024  # the clipping of a loss that is summed over a row of 1,024 tokens
MD4 = replace(TEXT, warmup=2000, decay="cosine", weight_decay=0.03, decay_all=True, ema_warmup=False, clip=0.0)
OWT, SENTENCES, PACKED = Data("openwebtext"), Data("lm1b", pack="document"), Data("lm1b")
CIFAR = Data("cifar10", flip=True)
GPT2, BERT, LEVELS, LETTERS = 50257, 30522, 256, 27

HELD_OUT = "trains on 45,000 images: the other 5,000 are the validation split"
ENDS = "the published convolution goes straight to the logits of all colours; here through 128 features of each colour"
NUMBERED = "the network is told the steps as 1 to T, the published one as 0 to T - 1"
FIRST_AVERAGE = "the average begins with the first weights, the published one with those after the first step"
WEIGHTS = "first weights: variance 1 / inputs, less with depth where branches end; the published ones are their framework's own"
COUNTED = "the paper counts 110M parameters; with embeddings and head this network, its authors', has more"
UNTIED = (
    "its authors' configuration ties the head to the embeddings and leaves adaptive norms out; the published checkpoint has a "
    "head and norms of its own, as here"
)
GLU = "the published MLP is gated, here it is GELU, four times as wide"
T5 = (
    "rotary positions and adaptive layer norms, where the paper's transformer is T5's; "
    "12 layers of 768 have more than the 70M parameters that it counts"
)
CORRECTED = (  # its authors' configuration; their 0.1 of a time that begins at 0.01
    ("corrector", 10), ("corrector_step", 1.5), ("corrector_from", 0.0909), ("argmax", "last"),
)  # fmt: skip
D3PM_RATE = (
    "the paper's appendix B.2 has a rate of 5e-4, 10,000 steps of warm-up and decay with the root of the step, as here; its "
    "authors' configuration 2e-4, 5,000 and no decay"
)
EACH_DEVICE = "the gradient is clipped when the devices' are averaged, the published one on each device before"


def _d3pm(value: str, where: str, published: float, *differs: str, **options) -> Recipe:
    choices = {"diffusion_steps": 1000, "last": "image", **options}
    return Recipe(
        "D3PM", "2107.03006", "section 6, appendix B.1; its authors' configuration (clipping, warm-up)", "d3pm", CIFAR,
        UNET, replace(IMAGES, ema_warmup=False, clip=1000 * math.log(2)), LEVELS, Reported(value, "bits/dim", where),
        tuple(choices.items()), published=published, drawing=(("argmax", "last"),),
        differs=(ENDS, NUMBERED, FIRST_AVERAGE, EACH_DEVICE, *differs, HELD_OUT),
    )  # fmt: skip


def _d3pm_text(reported: Reported, data: Data, length: int, vocabulary: int, *differs: str) -> Recipe:
    choices = {"diffusion_steps": 1000, "auxiliary": 10.0, "auxiliary_at": "all"}
    return Recipe(
        "D3PM", "2107.03006", "section 5, appendix B.2; its authors' configuration (dropout, clipping, no average)", "d3pm", data,
        replace(DIT, length=length, dropout=0.0),
        replace(TEXT, lr=5e-4, warmup=10_000, decay="inverse-sqrt", ema=0.0, clip=0.25 * 1000 / length), vocabulary, reported,
        tuple(choices.items()), differs=(T5, D3PM_RATE, *differs),
    )  # fmt: skip


def _md4(source: str, data: Data, net: Net, train: Train, vocabulary: int, reported: Reported, *differs: str) -> Recipe:
    return Recipe(
        "MD4", "2406.04329", f"appendix {source}; its authors' configuration", "md4", data, net, train, vocabulary,
        reported, published={"u-vit": 198e6, "flat-unet": 28e6}.get(net.kind), differs=differs,
    )  # fmt: skip


def _bd3lm(data: Data, net: Net, vocabulary: int, reported: Reported, block: int, first: str = "") -> Recipe:
    """A stage of BD3-LM: the first, one block as long as a row; or the second, after the run of the recipe `first`."""
    train, stage = replace(TEXT, steps=850_000), "the first of two stages, with MDLM's number for the whole"
    if first:
        train = replace(TEXT, steps=150_000, start=f"runs/{first}", validate_every=5000)
        stage = f"the second of two stages, after {first} or another first one (`train.start`)"
    return Recipe(
        "BD3-LM", "2503.09573", f"section 6, appendices C.2, C.3 and C.5; its authors' code; {stage}", "bd3lm", data, net, train,
        vocabulary, reported, (("block", block), ("search", bool(first)), ("resample", bool(first))), "blockwise",
        (("block_sampler", "first_hitting"),), 5000, 170e6 if vocabulary == GPT2 else None, differs=(COUNTED, UNTIED),
    )  # fmt: skip


# ---------------------------------------------------------------------------------- the table
RECIPES: Registry[Recipe] = Registry("recipe", "zellige list recipes")
RECIPES |= {
    "d3pm-cifar10-gauss": _d3pm(
        "3.435", "test, table 3 (FID 7.34)", 35.7e6, process="gaussian", schedule="linear", head="logistic", auxiliary=1.0,
    ),
    "d3pm-cifar10-absorbing": _d3pm(
        "4.40", "test, table 3 (FID 30.97)", 36.6e6, process="middle", head="residual", auxiliary=1.0,
    ),
    "d3pm-cifar10-uniform": _d3pm(
        "5.08", "test, table 3 (FID 51.27)", 36.6e6, process="uniform", schedule="cosine", head="residual", levels=True,
        auxiliary=0.0,
    ),
    "d3pm-text8": _d3pm_text(
        Reported("1.45", "bits/char", "test, table 1"), Data("text8", crop=True), 256, LETTERS,
        "rows begin anywhere, as the paper says; in its authors' code anywhere within pieces of 512 characters",
    ),
    "d3pm-lm1b": _d3pm_text(
        Reported("76.9", "PPL", "test, packed, per word, table 2"), replace(PACKED, tokenizer="bpe:8192"), 128, 8192,
        "byte-pair encoding with 8,192 tokens, learnt here; the paper's is sentencepiece",
    ),
    "tauldr-cifar10": Recipe(
        "tauLDR", "2205.14987", "section 6.2, table 1, appendix H.2; its authors' code (one pass, which is biased)", "tauldr",
        CIFAR, replace(UNET, rescale=True),
        replace(IMAGES, steps=2_000_000, warmup=5000, clip=0.99 / 3072), LEVELS,  # their times begin at 0.01
        Reported("3.59", "bits/dim", "test, table 1 (FID 3.74 with correctors)"),
        (
            ("process", "gaussian"), ("base", 3.0), ("growth", 100.0), ("rate_sigma", 6.0), ("target_sigma", 512.0),
            ("min_time", 0.01), ("objective", "one-pass-biased"), ("auxiliary", 0.99 * 0.001), ("head", "logistic-within"),
        ),
        "tau_leaping", CORRECTED, 500, published=35.7e6,
        differs=(
            ENDS, HELD_OUT,
        ),
    ),
    "sedd-owt": Recipe(
        "SEDD", "2310.16834", "section 5, table 1, appendix C; its authors' configuration (dropout, betas)", "sedd", OWT, DIT,
        replace(TEXT, steps=400_000, warmup=2000, clip=SUMMED), GPT2, Reported("50.92", "PPL", "LAMBADA, zero-shot, table 1"),
        (("process", "absorbing"), ("schedule", "loglinear")), steps=2048, published=170e6,
        differs=(
            "the paper has no number of steps: RADD's authors name 400,000, its own configuration 1.3 million",
            "the paper says 2,000 steps of warm-up, its authors' configuration 2,500",
        ),
    ),
    "radd-owt": Recipe(
        "RADD", "2406.03736", "section 4, table 1, appendix J.2", "radd", OWT, replace(DIT, dropout=0.02),
        replace(TEXT, steps=400_000, weight_decay=0.03, decay_all=True, clip=SUMMED), GPT2,
        Reported("51.70", "PPL", "LAMBADA, zero-shot, table 1"), (("loss", "lambda-dce"), ("schedule", "loglinear")),
        steps=1024, published=162e6,
        differs=(
            "float16 in the paper, bfloat16 here",
            "400,000 steps, weight decay 0.03 and lambda-DCE are the paper's; its configuration has 1,000,001, 0 and t-DCE",
        ),
    ),
    "mdlm-owt": Recipe(
        "MDLM", "2406.07524", "section 5.1, table 2; its authors' configuration", "mdlm", OWT, CONSTANT, TEXT, GPT2,
        Reported("23.21", "PPL", "last 100,000 documents, table 2"), published=170e6,
        differs=("the paper counts 262B tokens, half of those that pass the network", COUNTED),
    ),
    "mdlm-lm1b": Recipe(
        "MDLM", "2406.07524", "section 5.1, table 1; its authors' configuration", "mdlm", SENTENCES,
        replace(CONSTANT, length=128), TEXT, BERT, Reported("27.04", "PPL", "test, a sentence a row, table 1"),
        differs=("the paper counts 33B tokens, half of those that pass the network", COUNTED),
    ),
    "md4-text8": _md4(
        "J.1, table 2", Data("text8", crop=True), replace(DIT, length=256, dropout=0.05), MD4, LETTERS,
        Reported("1.37", "bits/char", "test, table 2"), GLU,
        "the paper says a rate of 3e-4 and a width of 784; its authors' configuration of text8 5e-4 and 12 heads of 64",
    ),
    "md4-owt": _md4(
        "J.2, table 5", OWT, replace(DIT, dropout=0.02), MD4, GPT2, Reported("22.13", "PPL", "validation, table 5"), GLU,
        "validates on the last 100,000 documents; the paper on 2% of them",
    ),
    "md4-cifar10": _md4(
        "J.4", Data("cifar10"), Net(length=3072, grid=(32, 32, 3), kind="flat-unet", dropout=0.1),
        replace(MD4, steps=2_000_000, batch=256, lr=4e-4, betas=(0.9, 0.99), warmup=100, weight_decay=0.01), LEVELS,
        Reported("2.75", "bits/dim", "test, abstract"), ENDS, HELD_OUT,
        "the paper says a rate of 4e-4 and draws in 1,000 steps, as here; its authors' configuration 2e-4 and 256",
    ),
    "md4-imagenet64": _md4(
        "J.4", Data("imagenet64-oord"),
        Net(
            length=12288, grid=(64, 64, 3), kind="u-vit", layers=12, hidden=768, heads=12, channels=256, condition=256,
            dropout=0.1,
        ),
        replace(MD4, steps=2_000_000, lr=2e-4, betas=(0.9, 0.99), warmup=100), LEVELS,
        Reported("3.40", "bits/dim", "validation, abstract"), ENDS,
        "the paper says a weight decay of 0.03 and draws in 1,000 steps, as here; its authors' configuration 0.01 and 256",
        "24 and 12 layers as in the paper; its authors' configuration has 8 and 20, and these in a comment",
    ),
    "udlm-lm1b": Recipe(
        "UDLM", "2412.10193", "its authors' script; the number as Duo (2506.10892) measures it", "udlm", SENTENCES, SHORT,
        TEXT, BERT, Reported("31.3", "PPL", "test, a sentence a row, Duo's table 1"), (("time", True),), steps=128,
        published=139e6, differs=("the paper's own number was not looked up",),
    ),
    "bd3lm-owt-pretrain": _bd3lm(OWT, CONSTANT, GPT2, Reported("22.98", "PPL", "last 100,000 documents, table 4"), 1024),
    "bd3lm-owt": _bd3lm(
        OWT, CONSTANT, GPT2, Reported("20.73", "PPL", "last 100,000 documents, table 4"), 4, "bd3lm-owt-pretrain"
    ),
    "bd3lm-lm1b-pretrain": _bd3lm(
        PACKED, replace(CONSTANT, length=128), BERT, Reported("31.78", "PPL", "test, packed, table 3"), 128
    ),
    "bd3lm-lm1b": _bd3lm(
        PACKED, replace(CONSTANT, length=128), BERT, Reported("28.23", "PPL", "test, packed, table 3"), 4, "bd3lm-lm1b-pretrain"
    ),
}  # fmt: skip
RECIPES |= {  # of every transformer
    name: replace(recipe, differs=(*recipe.differs, WEIGHTS))
    for name, recipe in RECIPES.items()
    if not recipe.net.convolutional
}
