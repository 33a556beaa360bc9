"""RECIPES: how a paper trained a model, by name, in the words of this library, and the number that it reports.

    zellige.train(recipe="mdlm-owt")        # zellige train --recipe mdlm-owt; zellige list recipes

A paper's own text comes first; what it leaves out is taken from its authors' code. What neither says is a choice of ours, and is
named so (`Recipe.ours`); where a network or a data set cannot be the paper's, or the code contradicts it, `Recipe.differs` says
how. docs/_tools/published_configurations.py has what stands in the published files, value by value, and a test holds the recipes
to it. The number that a paper reports stands in its table (`tables`).

A limit of the gradient's norm is of the loss that it was made for. Ours is in nats per token, of the whole bound; a published
loss that is c times ours and clipped at g is clipped here at g/c.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..base.errors import InputError
from ..base.plugins import Registry
from ..data import Data
from ..methods import METHODS
from ..methods.method import Method
from ..models.config import Config, Train
from ..nn.block import Net
from . import tables
from .tables import CLIPS, Reported


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
        published: the parameters that the paper or its checkpoint has; None where neither says, or what they say does not add up.
        ours: what the source does not give, so that the value here is a choice of our own.
        differs: what is known to be otherwise than in the paper.
        base: the recipe that it is but for a few choices; "" where it stands alone.
        name: in RECIPES.
    """

    paper: str
    arxiv: str
    source: str
    method: str
    data: Data
    net: Net
    train: Train
    vocabulary: int
    options: tuple[tuple[str, Any], ...] = ()
    sampler: str = "ancestral"
    drawing: tuple[tuple[str, Any], ...] = ()
    steps: int = 1000
    published: float | None = None
    ours: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    base: str = ""
    name: str = ""

    @property
    def reported(self) -> Reported:
        """The number to reach, as the table of the paper has it."""
        return tables.reported(self.name, self.paper)

    @property
    def config(self) -> Config:
        """All of it as the config of a run."""
        return Config(self.method, METHODS[self.method].Config(**dict(self.options)), self.data, self.net, self.train)

    def for_method(self, name: str, method: str | type[Method] | None) -> Config:
        """The config, where `method` is None or that of this recipe, which is called `name`; else InputError."""
        if method is not None and method not in (self.method, METHODS[self.method]):
            name_of_other = method if isinstance(method, str) else method.__name__
            raise InputError(f"recipe {name} trains {self.method}, not {name_of_other}; leave the method out")
        return self.config

    def note(self, name: str) -> str:
        """Note of a run on its recipe, at its start."""
        number = self.reported if self.reported.value else "no number"
        return f"recipe {name}: {self.paper} reports {number} ({self.reported.where})"


# ---------------------------------------------------------------------------------- what several papers share
DIT = Net(layers=12, hidden=768, heads=12, length=1024, dropout=0.1)  # of SEDD and its successors
GATED_DIT = replace(DIT, mlp="swiglu", drop_channels=True)  # of MD4's texts
SHORT = replace(DIT, length=128)
CONSTANT = replace(DIT, constant=True)  # time-free, with the adaptive layer norms of the published checkpoints
UNET = Net(length=3072, grid=(32, 32, 3), kind="unet", condition=512, dropout=0.1)  # of DDPM on CIFAR-10
_BASE = Train(decay="constant", weight_decay=0.0, betas=(0.9, 0.999), ema=0.9999, validate_every=10_000, log_every=100)
TEXT = replace(_BASE, steps=1_000_000, batch=512, lr=3e-4, warmup=2500)
IMAGES = replace(_BASE, steps=1_500_000, batch=128, lr=2e-4, warmup=0)
SUMMED = 1 / 1024  # the clipping of a loss that is summed over a row of 1,024 tokens
MD4 = replace(TEXT, warmup=2000, decay="cosine", weight_decay=0.03, decay_all=True, ema_warmup=False, clip=0.0)
OWT, SENTENCES, PACKED = Data("openwebtext"), Data("lm1b", pack="document", fill=0), Data("lm1b")
CIFAR = Data("cifar10", flip=True)
GPT2, BERT, LEVELS, LETTERS = 50257, 30522, 256, 27

HELD_OUT = "trains on 45,000 images: the other 5,000 are the validation split"
ENDS = "the published convolution goes straight to the logits of all colours; here through 128 features of each colour"
NUMBERED = "the network gets the steps as 1 to T, the published one as 0 to T - 1"
FIRST_AVERAGE = "the average begins with the first weights, the published one with those after the first step"
WEIGHTS = "first weights: variance 1 / inputs, less with depth where branches end; the published ones are their framework's own"
COUNTED = "the paper counts 110M parameters; with embeddings and head this network, its authors', has more"
UNTIED = (
    "its authors' configuration ties the head to the embeddings and leaves adaptive norms out; the published checkpoint has a "
    "head and norms of its own, as here"
)
GATED = "a gate of SiLU (SwiGLU) as the paper says; its authors' configuration has `glu`, a sigmoid"
ELSEWHERE = "the published code drops attention weights and embedded tokens, too; here the ends of the branches alone"
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


def _d3pm(published: float, *differs: str, **options) -> Recipe:
    choices = {"diffusion_steps": 1000, "last": "image", **options}
    return Recipe(
        "D3PM", "2107.03006", "section 6, appendix B.1; its authors' configuration (clipping, warm-up)", "d3pm", CIFAR,
        UNET, replace(IMAGES, ema_warmup=False, clip=1000 * math.log(2)), LEVELS,
        tuple(choices.items()), published=published, drawing=(("argmax", "last"),),
        differs=(ENDS, NUMBERED, FIRST_AVERAGE, EACH_DEVICE, *differs, HELD_OUT),
    )  # fmt: skip


def _d3pm_text(data: Data, length: int, vocabulary: int, *differs: str) -> Recipe:
    choices = {"diffusion_steps": 1000, "auxiliary": 10.0, "auxiliary_at": "all"}
    return Recipe(
        "D3PM", "2107.03006", "section 5, appendix B.2; its authors' configuration (dropout, clipping, no average)", "d3pm", data,
        replace(DIT, length=length, dropout=0.0),
        replace(TEXT, lr=5e-4, warmup=10_000, decay="inverse-sqrt", ema=0.0, clip=0.25 * 1000 / length), vocabulary,
        tuple(choices.items()), differs=(T5, D3PM_RATE, *differs),
    )  # fmt: skip


def _md4(source: str, data: Data, net: Net, train: Train, vocabulary: int, *differs: str) -> Recipe:
    return Recipe(
        "MD4", "2406.04329", f"appendix {source}; its authors' configuration", "md4", data, net, train, vocabulary,
        published={"u-vit": 198e6, "flat-unet": 28e6}.get(net.kind), differs=differs,
    )  # fmt: skip


def _bd3lm(data: Data, net: Net, vocabulary: int, block: int, first: str = "") -> Recipe:
    """A stage of BD3-LM: the first, one block as long as a row; or the second, after the run of the recipe `first`."""
    train, stage = replace(TEXT, steps=850_000), "the first of two stages, with MDLM's number for the whole"
    if first:
        train = replace(TEXT, steps=150_000, start=f"runs/{first}", validate_every=5000)
        stage = f"the second of two stages, after {first} or another first one (`train.start`)"
    return Recipe(
        "BD3-LM", "2503.09573", f"section 6, appendices C.2, C.3 and C.5; its authors' code; {stage}", "bd3lm", data, net, train,
        vocabulary, (("block", block), ("search", bool(first)), ("resample", bool(first))), "blockwise",
        (("block_sampler", "first_hitting"),), 5000, 170e6 if vocabulary == GPT2 else None, differs=(COUNTED, UNTIED),
    )  # fmt: skip


# ---------------------------------------------------------------------------------- the table
RECIPES: Registry[Recipe] = Registry("recipe", "zellige list recipes")
RECIPES |= {
    "d3pm-cifar10-gauss": _d3pm(
        35.7e6, process="gaussian", schedule="linear", head="logistic", auxiliary=1.0,
    ),
    "d3pm-cifar10-absorbing": _d3pm(
        36.6e6, process="middle", head="residual", auxiliary=1.0,
    ),
    "d3pm-cifar10-uniform": _d3pm(
        36.6e6, process="uniform", schedule="cosine", head="residual", levels=True,
        auxiliary=0.0,
    ),
    "d3pm-text8": _d3pm_text(
        Data("text8", crop=True), 256, LETTERS,
        "rows begin anywhere, as the paper says; in its authors' code anywhere within pieces of 512 characters",
    ),
    "d3pm-lm1b": _d3pm_text(
        replace(PACKED, tokenizer="sentencepiece:8192"), 128, 8192,
        "sentencepiece of 8,192 tokens, a unigram model learnt here on text that is not normalised; the paper's is not published",
    ),
    "tauldr-cifar10": Recipe(
        "tauLDR", "2205.14987", "section 6.2, table 1, appendix H.2; its authors' code (one pass, which is biased)", "tauldr",
        CIFAR, replace(UNET, rescale=True),
        replace(IMAGES, steps=2_000_000, warmup=5000, clip=0.99 / 3072), LEVELS,  # their times begin at 0.01
        (
            ("process", "gaussian"), ("base", 3.0), ("growth", 100.0), ("rate_sigma", 6.0), ("target_sigma", 512.0),
            ("min_time", 0.01), ("objective", "one-pass-biased"), ("auxiliary", 0.99 * 0.001), ("head", "logistic-within"),
        ),
        "tau_leaping", CORRECTED, 500, published=35.7e6,
        differs=(
            ENDS, HELD_OUT,
        ),
    ),
    "tauldr-lakh": Recipe(
        "tauLDR", "2205.14987", "section 6.3, table 2, appendices C.2, H.3; its authors' configuration (biased one pass)",
        "tauldr", Data("lakh-pianoroll", given="prefix:32"),
        Net(layers=6, hidden=128, heads=8, length=256, dropout=0.1, condition=128, given=True),
        replace(_BASE, steps=1_000_000, batch=64, lr=2e-4, warmup=5000, clip=0.99 / 224), 129,
        (
            ("process", "uniform"), ("base", 0.03), ("min_time", 0.01), ("objective", "one-pass-biased"),
            ("auxiliary", 0.99 * 0.001),
        ),
        "tau_leaping", (("corrector", 2), ("corrector_step", 0.1), ("corrector_from", 0.899), ("argmax", "last")), 1000,
        differs=(
            "MLPs four times as wide as the network, the published ones sixteen times (2,048 of 128)",
            "the network sees which positions are given, the published one does not",
            "a twentieth of the training melodies is the validation split",
        ),
    ),
    "sedd-owt": Recipe(
        "SEDD", "2310.16834", "section 5, table 1, appendix C; its authors' configuration (dropout, betas)", "sedd", OWT, DIT,
        replace(TEXT, steps=400_000, warmup=2000, clip=SUMMED), GPT2,
        (("process", "absorbing"), ("schedule", "loglinear")), steps=2048, published=170e6,
        differs=(
            "the paper has no number of steps: RADD's authors name 400,000, its own configuration 1.3 million",
            "the paper says 2,000 steps of warm-up, its authors' configuration 2,500",
        ),
    ),
    "radd-owt": Recipe(
        "RADD", "2406.03736", "section 4, table 1, appendix J.2", "radd", OWT, replace(DIT, dropout=0.02),
        replace(TEXT, steps=400_000, weight_decay=0.03, decay_all=True, clip=SUMMED), GPT2,
        (("loss", "lambda-dce"), ("schedule", "loglinear")),
        steps=1024, published=162e6,
        differs=(
            "float16 in the paper, bfloat16 here",
            "400,000 steps, weight decay 0.03 and lambda-DCE are the paper's; its configuration has 1,000,001, 0 and t-DCE",
        ),
    ),
    "mdlm-owt": Recipe(
        "MDLM", "2406.07524", "section 5.1, table 2; its authors' configuration", "mdlm", OWT, CONSTANT, TEXT, GPT2,
        published=170e6,
        differs=("the paper counts 262B tokens, half of those that pass the network", COUNTED),
    ),
    "mdlm-lm1b": Recipe(
        "MDLM", "2406.07524", "section 5.1, table 1; its authors' configuration", "mdlm", SENTENCES,
        replace(CONSTANT, length=128), TEXT, BERT,
        differs=("the paper counts 33B tokens, half of those that pass the network", COUNTED),
    ),
    "md4-text8": _md4(
        "J.1, table 2", Data("text8", crop=True), replace(GATED_DIT, length=256, dropout=0.05), MD4, LETTERS,
        GATED, ELSEWHERE,
        "the paper says a rate of 3e-4 and a width of 784; its authors' configuration of text8 5e-4 and 12 heads of 64",
    ),
    "md4-owt": _md4(
        "J.2, table 5", OWT, replace(GATED_DIT, dropout=0.02), MD4, GPT2, GATED, ELSEWHERE,
        "validates on the last 100,000 documents; the paper on 2% of them",
    ),
    "md4-cifar10": _md4(
        "J.4", Data("cifar10"), Net(length=3072, grid=(32, 32, 3), kind="flat-unet", dropout=0.1),
        replace(MD4, steps=2_000_000, batch=256, lr=4e-4, betas=(0.9, 0.99), warmup=100, weight_decay=0.01), LEVELS,
        ENDS, HELD_OUT,
        "the paper says a rate of 4e-4 and draws in 1,000 steps, as here; its authors' configuration 2e-4 and 256",
    ),
    "md4-imagenet64": _md4(
        "J.4", Data("imagenet64-oord"),
        Net(
            length=12288, grid=(64, 64, 3), kind="u-vit", layers=12, hidden=768, heads=12, channels=256, condition=256,
            dropout=0.1,
        ),
        replace(MD4, steps=2_000_000, lr=2e-4, betas=(0.9, 0.99), warmup=100), LEVELS,
        ENDS,
        "the paper says a weight decay of 0.03 and draws in 1,000 steps, as here; its authors' configuration 0.01 and 256",
        "24 and 12 layers as in the paper; its authors' configuration has 8 and 20, and these in a comment",
    ),
    "udlm-lm1b": Recipe(
        "UDLM", "2412.10193", "its authors' script; the number as Duo (2506.10892) measures it", "udlm", SENTENCES, SHORT,
        TEXT, BERT, (("time", True),), steps=128,
        published=139e6, differs=("the paper's own number was not looked up",),
    ),
    "bd3lm-owt-pretrain": _bd3lm(OWT, CONSTANT, GPT2, 1024),
    "bd3lm-owt": _bd3lm(
        OWT, CONSTANT, GPT2, 4, "bd3lm-owt-pretrain"
    ),
    "bd3lm-lm1b-pretrain": _bd3lm(
        PACKED, replace(CONSTANT, length=128), BERT, 128
    ),
    "bd3lm-lm1b": _bd3lm(
        PACKED, replace(CONSTANT, length=128), BERT, 4, "bd3lm-lm1b-pretrain"
    ),
}  # fmt: skip


# ---------------------------------------------------------------------------------- the same but for a few choices
NO_CHANGE: Mapping[str, Any] = MappingProxyType({})


def _like(
    name: str, base: str, *differs: str, net: Mapping[str, Any] = NO_CHANGE, train: Mapping[str, Any] = NO_CHANGE,
    options: Mapping[str, Any] = NO_CHANGE, without: tuple[str, ...] = (), **more: Any,
) -> None:  # fmt: skip
    """Add a recipe that is another one but for single fields of its network and training, options of its method, whole fields.

    differs: what it has beside those of `base`; without: which of these it has not.
    """
    of = RECIPES[base]
    chosen = options if "method" in more else {**dict(of.options), **options}
    parts = {"net": replace(of.net, **net), "train": replace(of.train, **train), "options": tuple(chosen.items())}
    kept = tuple(text for text in of.differs if text not in without)
    RECIPES[name] = replace(of, base=base, differs=(*kept, *differs), **{"published": None, **parts, **more})


def _ar(name: str, base: str, *differs: str, net: Mapping[str, Any] = NO_CHANGE, **more: Any) -> None:
    """Add the autoregressive model beside a recipe: the same transformer, with causal attention and without a time."""
    drawing = {"sampler": "left_to_right", "drawing": (), "steps": RECIPES[base].net.length}
    _like(name, base, *differs, method="ar", net={"constant": False, **net}, **drawing, **more)


MEDIUM = {"layers": 24, "hidden": 1024, "heads": 16}  # of GPT-2, as large
LARGE = {"layers": 36, "hidden": 1280, "heads": 20}
UNIFORM = {"process": "uniform", "schedule": "cosine"}
PLAIN = {"auxiliary": 0.0}  # the bound alone
GEOMETRIC = {"process": "uniform", "schedule": "geometric", "sigma_min": 1e-5}
ABSORB = {"process": "absorbing", "schedule": "loglinear"}
UNSCALED = {"scale_by_sigma": False}
SEEN_33, SEEN_262 = (RECIPES[name].differs[0] for name in ("mdlm-lm1b", "mdlm-owt"))
HALF = "half of MDLM's steps as the paper says, for as many tokens seen; its authors' configuration has 1,000,000"
GRAPH = "`embedding`, a .npy file with a row for each token, such as a trained d3pm-text8-ar has; the paper's graph is in B.2.1"
OWN_CLIP = "`train.clip`"
AS_D3PM = "`train.steps`: the paper has no number, and follows D3PM, which has these"
SPREAD = "sigma begins at 1e-5 as the paper says, in its authors' configuration at 1e-4"
SAMPLED = "8 residual blocks and 20 layers, as of the network whose samples the paper shows"
SOME_TIME = "the network is time-conditioned; the paper says that it makes no difference"
UNSAID_TIME = "no time input, as MDLM; its authors' script of this parameterization has one, the paper does not say"
LM1B_TOKENS = 512 * 128  # of a step
BRIEF: dict[str, dict[str, Any]] = {  # of BD3-LM's table 8, the options that are not those of table 3
    "45-95": {"clip": (0.45, 0.95)}, "30-80": {"clip": (0.3, 0.8)}, "linear": {"resample": False},
    "logarithmic": {"schedule": "logarithmic", "resample": False},
    "square-root": {"schedule": "square-root", "resample": False}, "square": {"schedule": "square", "resample": False},
    "cosine": {"schedule": "cosine-power", "exponent": 1.0, "resample": False},
}  # fmt: skip
BRIEF_OF = {4: (*BRIEF,)[:5], 16: ("45-95", "30-80", "linear", "square", "cosine")}

for _of in ("text8", "lm1b"):
    _base = f"d3pm-{_of}"
    _like(f"{_base}-uniform", _base, options=UNIFORM | PLAIN)
    _like(
        f"{_base}-nearest", _base, options={"process": "nearest", "embedding": "embedding.npy"} | PLAIN, ours=(GRAPH,)
    )
    _ar(f"{_base}-ar", _base, train={"clip": 1.0}, ours=(OWN_CLIP,))
_like("d3pm-text8-vb", "d3pm-text8", options=PLAIN)
_like("d3pm-text8-uniform-hybrid", "d3pm-text8", options=UNIFORM)
_like(
    "d3pm-text8-absorbing-nearest", "d3pm-text8", options={"process": "absorbing-nearest", "embedding": "embedding.npy"},
    ours=(GRAPH,),
)  # fmt: skip
_like("d3pm-text8-uniform-small", "d3pm-text8-uniform", net={"layers": 6})
_like("d3pm-text8-uniform-small-mi", "d3pm-text8-uniform-small", options={"schedule": "mutual-information"})
_like("d3pm-text8-uniform-small-even", "d3pm-text8-uniform-small", options={"schedule": "even"})
_like("d3pm-cifar10-uniform-linear", "d3pm-cifar10-uniform", options={"schedule": "linear-to-one"}, published=36.6e6)
_like("d3pm-cifar10-absorbing-vb", "d3pm-cifar10-absorbing", options=PLAIN, published=36.6e6)
_like("d3pm-cifar10-gauss-logits", "d3pm-cifar10-gauss", options={"head": "residual"}, published=36.6e6)
_like("d3pm-cifar10-gauss-logits-vb", "d3pm-cifar10-gauss-logits", options=PLAIN, published=36.6e6)

_like("sedd-owt-uniform", "sedd-owt", SPREAD, options=GEOMETRIC)
_like("sedd-owt-medium", "sedd-owt", net=MEDIUM)
_like("sedd-owt-uniform-medium", "sedd-owt-uniform", net=MEDIUM)
_like("sedd-owt-unscaled", "sedd-owt", options=UNSCALED)
_like("sedd-owt-medium-unscaled", "sedd-owt-medium", options=UNSCALED)
_like(
    "sedd-text8", "sedd-owt", data=Data("text8", crop=True), vocabulary=LETTERS, net={"length": 256},
    train={"steps": 1_000_000, "clip": 1 / 256}, ours=(AS_D3PM,), without=RECIPES["sedd-owt"].differs[:1],
)  # fmt: skip
_like(
    "sedd-lm1b", "sedd-owt", "packed, as section 5.1 says; MDLM's table 1 has the number beside its own, of a sentence a row",
    "1,000,000 steps are the 33B tokens of MDLM's table 1, half of those that pass; the paper has no number",
    data=PACKED, vocabulary=BERT, net={"length": 128}, train={"steps": 1_000_000, "clip": 1 / 128},
    without=RECIPES["sedd-owt"].differs[:1],
)  # fmt: skip
for _of in ("text8", "lm1b"):
    _like(f"sedd-{_of}-uniform", f"sedd-{_of}", SPREAD, options=GEOMETRIC)
_ar("sedd-lm1b-ar", "sedd-lm1b", train={"clip": 1.0}, ours=(OWN_CLIP,))

_like("radd-owt-medium", "radd-owt", net=MEDIUM)
_like("radd-owt-1m", "radd-owt", train={"steps": 1_000_000})
for _base, _losses in (
    ("radd-owt", ("dse", "t-dce", "ao")), ("radd-owt-medium", ("dse", "t-dce", "ao")), ("radd-owt-1m", ("t-dce", "ao")),
):  # fmt: skip
    for _loss in _losses:
        _stem, _end = ("radd-owt", "-1m") if _base.endswith("1m") else (_base, "")
        _of_paper = {"dse": "t-dse", "ao": "k-dce"}.get(_loss, _loss)  # its any-order loss has n/k, over k masks
        _like(f"{_stem}-{_loss}{_end}", _base, options={"loss": _of_paper})

_like("mdlm-lm1b-327b", "mdlm-lm1b", train={"steps": 10_000_000}, without=(SEEN_33,))
_like("mdlm-lm1b-discrete", "mdlm-lm1b", options={"diffusion_steps": 1000})
_like("mdlm-lm1b-no-carry-over", "mdlm-lm1b-discrete", UNSAID_TIME, options={"carry_over": False})
_like("mdlm-lm1b-no-subs", "mdlm-lm1b-no-carry-over", options={"zero_masking": False})
_ar("mdlm-lm1b-ar", "mdlm-lm1b", HALF, train={"steps": 500_000}, without=(SEEN_33,))
_like("mdlm-lm1b-ar-327b", "mdlm-lm1b-ar", train={"steps": 5_000_000})
_ar("mdlm-owt-ar", "mdlm-owt", HALF, train={"steps": 500_000}, without=(SEEN_262,))
_like(
    "mdlm-c4-bert", "mdlm-lm1b",
    "section 5.1 counts 327M tokens and appendix D.6 32M; 5,000 batches of 512 rows of 128 tokens are 328M",
    "begins with MosaicML's own MosaicBERT, of as many steps on C4; the paper trained its own. Size and cost are counted of the "
    "transformer of the other recipes",
    "a document longer than a row goes on in the next one; the paper cuts it off",
    data=Data("c4", pack="document", fill=0), net={"constant": False}, without=RECIPES["mdlm-lm1b"].differs,
    train={"steps": 5000, "lr": 5e-5, "betas": (0.95, 0.999), "validate_every": 1000, "start": "mosaicml/mosaic-bert-base"},
    source="section 5.1, appendix D.6; its authors' configuration",
)  # fmt: skip
_like("mdlm-owt-sedd", "mdlm-owt", method="sedd", options=ABSORB, net={"constant": False})

_like("md4-owt-medium", "md4-owt", net=MEDIUM)
_like("md4-owt-sedd", "md4-owt", method="sedd", options=ABSORB)
_like(
    "genmd4-text8",
    "md4-text8",
    method="genmd4",
    options={"exponent": 1.0},
    train={"lr": 3e-4},
    without=RECIPES["md4-text8"].differs[2:],
)
_like("genmd4-owt", "md4-owt", method="genmd4", options={"exponent": 1.0})
_like(
    "md4-cifar10-tauldr", "md4-cifar10", method="tauldr", options={"process": "absorbing"} | PLAIN, sampler="tau_leaping",
    ours=("one pass, and no cross-entropy beside the bound: the paper says that it is tauLDR's objective",),
)  # fmt: skip
_deep = {"blocks": 8, "layers": 20}
_like(
    "md4-imagenet64-samples-linear", "md4-imagenet64", SAMPLED, net=_deep, without=RECIPES["md4-imagenet64"].differs[2:]
)
_like("md4-imagenet64-samples", "md4-imagenet64-samples-linear", options={"schedule": "cosine"})
_like(
    "md4-imagenet64-classes", "md4-imagenet64-samples", "classes as `imagenet64` has them; the paper resizes the photos anew",
    net={"classes": 1000}, data=Data("imagenet64", labels=True),
)  # fmt: skip
for _size, _net in (("small", {}), ("medium", MEDIUM), ("large", LARGE)):
    _like(f"md4-fineweb-{_size}", "md4-owt", data=Data("fineweb-edu"), net=_net, without=RECIPES["md4-owt"].differs[2:])
    _ar(f"md4-fineweb-ar-{_size}", f"md4-fineweb-{_size}")

for _of in ("owt", "lm1b"):
    for _block in (8, 16):
        _like(f"bd3lm-{_of}-{_block}", f"bd3lm-{_of}", options={"block": _block})
_ar("bd3lm-lm1b-ar", "bd3lm-lm1b-pretrain", train={"steps": 1_000_000})
_ar("bd3lm-lm1b-ar-16b", "bd3lm-lm1b-ar", train={"steps": 250_000})
_like(
    "bd3lm-lm1b-ar-16b-random-batch", "bd3lm-lm1b-ar-16b", options={"token_share": 0.5},
    ours=("each token counts with probability 1/2: the paper names batches of random size, and no distribution was found",),
)  # fmt: skip
_like(
    "bd3lm-lm1b-sedd", "bd3lm-lm1b-pretrain", SOME_TIME, method="sedd", options=ABSORB, sampler="ancestral", drawing=(),
    train={"steps": 1_000_000}, net={"constant": False},
)  # fmt: skip
_like("bd3lm-lm1b-1", "bd3lm-lm1b-pretrain", options={"block": 1}, train={"steps": 250_000})
_like(
    "bd3lm-lm1b-1-masked", "bd3lm-lm1b-1", "masks all but a token in 2,000: the interval of shares is never empty",
    options={"clip": (0.999, 1.0), "resample": True},
)  # fmt: skip
for _block in (128, 16, 4):  # table 2: 10B tokens after the first stage
    for _name, _clip in CLIPS.items():
        _like(
            f"bd3lm-lm1b-{_block}-clip-{_name}", "bd3lm-lm1b", "begins after 55.7B tokens, in the paper after 65B",
            options={"block": _block, "search": False, "clip": _clip, "resample": _clip != (0.0, 1.0)},
            train={"steps": round(10e9 / LM1B_TOKENS)},
        )  # fmt: skip
for _block in (4, 16):  # table 8: 3B tokens after it
    for _name, _options in BRIEF.items():
        if _name in BRIEF_OF[_block]:
            _like(
                f"bd3lm-lm1b-{_block}-short-{_name}", "bd3lm-lm1b", options={"block": _block, "search": False} | _options,
                train={"steps": round(3e9 / LM1B_TOKENS)},
            )  # fmt: skip

RECIPES |= {  # of every transformer
    name: recipe if recipe.net.convolutional else replace(recipe, differs=(*recipe.differs, WEIGHTS))
    for name, recipe in RECIPES.items()
}
RECIPES |= {name: replace(recipe, name=name) for name, recipe in RECIPES.items()}
