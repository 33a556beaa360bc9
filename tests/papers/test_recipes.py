"""The recipes: of the published sizes, at a cost that arithmetic gives too; each trains, small; the command line fills it in."""

import copy
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import zellige
from testing.small import loop as small_loop
from zellige import Data, Net, Train, samplers
from zellige.base.errors import InputError
from zellige.cli import main, tables
from zellige.core.batch import Batch
from zellige.core.curves import Exponential
from zellige.methods import METHODS, build, diffusion
from zellige.models.config import Config
from zellige.papers.recipes import RECIPES
from zellige.samplers import choose_sampler
from zellige.training.cost import PEAK, UTILISATION, training_cost
from zellige.training.order import StepSeeds

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_tools"))
import published_configurations as published  # pyright: ignore[reportMissingImports]

SIZES = {"layers": 2, "hidden": 16, "heads": 2, "condition": 8, "channels": 8}


def small(config: Config) -> Config:
    """The config with everything but its sizes: a small network, short rows, few of them, for two steps, from scratch."""
    net, options = config.net, config.options
    usual = Net()
    sizes = {name: size for name, size in SIZES.items() if getattr(net, name) != getattr(usual, name)}
    sizes |= {"grid": (4, 4, 3), "length": 48, "blocks": 1} if net.grid else {"length": 16, "condition": 8}
    sizes |= {"channels": 8, "condition": 8} if net.is_unet else {}
    sizes |= {"multipliers": (1, 2), "attention": (4,)} if net.kind == "unet" else {}
    smaller = {"diffusion_steps": 8} if getattr(options, "diffusion_steps", 0) else {}
    smaller |= (
        {"block": 16 if options.block == net.length else min(options.block, 4)} if hasattr(options, "block") else {}
    )
    smaller |= {"embedding": ""} if getattr(options, "embedding", "") else {}  # a file of the reader's
    train = replace(config.train, steps=2, batch=4, warmup=0, start="")
    return replace(config, net=replace(net, **sizes), options=replace(options, **smaller), train=train)


# ---------------------------------------------------------------------------------- what they are
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_published_size_and_the_listed_one(name):
    recipe = RECIPES[name]
    config, row = recipe.config, next(row for row in tables.table("recipes") if row["name"] == name)
    with torch.device("meta"):
        network = METHODS[config.method].build_network(config.net, recipe.vocabulary, config.options)
    count = sum(p.numel() for p in network.parameters())
    assert float(row["size"].removesuffix("M")) == pytest.approx(count / 1e6, rel=3e-3)
    if recipe.parameters is not None:
        assert count == pytest.approx(recipe.parameters, rel=0.015)
    hours = float(row["H100 h at 40%"].replace(",", ""))
    assert hours == pytest.approx(float(row["FLOP"]) / (PEAK * UTILISATION * 3600), abs=0.5, rel=0.035)  # two digits


def test_the_cost_is_what_arithmetic_gives():
    """Of a transformer: 6 for each weight of a matrix and each position, and 12 L^2 D a layer for the products of attention."""
    D, L, V = 32, 24, 50
    net, train = Net(layers=3, hidden=D, heads=4, length=L), Train(steps=7, batch=5)
    matrices, products, head = 3 * (4 * D * D + 2 * D * 4 * D), 3 * 12 * L * L * D, 6 * L * D * (V + 1)
    one = training_cost(Config("mdlm", METHODS["mdlm"].Config(), net=net, train=train), V)
    assert (one.flops, one.tokens) == (7 * 5 * (6 * L * matrices + products + head), 7 * 5 * L)
    two = training_cost(Config("bd3lm", METHODS["bd3lm"].Config(block=4), net=net, train=train), V)  # two streams
    assert one.flops < two.flops < 7 * 5 * (6 * 2 * L * matrices + 4 * products + head)
    ar = training_cost(Config("ar", METHODS["ar"].Config(), net=net, train=train), V)
    assert ar.flops == one.flops - 7 * 5 * 6 * L * D  # a causal mask is counted as none; the head says no mask


# ---------------------------------------------------------------------------------- as published
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_published_configuration(name):
    """Value by value beside the published files; what contradicts the paper is named; no number is without a source."""
    entries = published.PUBLISHED[name]
    assert published.disagreements(RECIPES[name], entries) == []
    assert published.unstated(RECIPES[name], entries) == []
    assert {entry.file for entry in entries} <= {*published.FILES, published.PAPER}
    assert len({entry.ours for entry in entries}) == len(entries)


def with_value(recipe, ours, value):
    """The recipe with another value of a choice, whether or not it is one that would be taken."""
    section, _, name = ours.partition(".")
    if section in ("options", "drawing"):
        value = tuple({**dict(getattr(recipe, section)), name: value}.items())
    elif name:
        value = unchecked(getattr(recipe, section), name, value)
    return unchecked(recipe, section, value)


def unchecked(of, name, value):
    """A copy of a frozen dataclass with another value of a field."""
    changed = copy.copy(of)
    object.__setattr__(changed, name, value)
    return changed


@pytest.mark.parametrize("name", RECIPES)
def test_a_wrong_number_at_writing_is_a_disagreement(name, monkeypatch):
    """Each value in turn is made wrong, by a thousandth if it is a number; each contradiction is left out."""
    recipe, entries = RECIPES[name], published.PUBLISHED[name]
    monkeypatch.setattr(type(recipe), "config", property(lambda self: ConfigAsWritten(self)))
    for entry in entries:
        value = published.said(recipe, entry.ours)
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        wrong = (value * 1.001 or 0.001) if numeric else not value if isinstance(value, bool) else "another"
        found = published.disagreements(with_value(recipe, entry.ours, wrong), entries)
        assert [text.split(" is ")[0] for text in found] == [entry.ours]
    unnamed = published.disagreements(replace(recipe, differs=()), entries)
    assert len(unnamed) == sum(len(entry.words) for entry in entries)


class ConfigAsWritten:
    """What `Recipe.config` is, with options that nobody checks."""

    def __init__(self, recipe):
        self.data, self.net, self.train = recipe.data, recipe.net, recipe.train
        self.options = SimpleNamespace(**vars(METHODS[recipe.method].Config()) | dict(recipe.options))


def test_taus_times_from_001_make_099_of_its_loss():
    """`min_time` 0.01 and times in (0, 1] are its rates at 0.01 + 0.99 t, 0.99 times: so are the bound, and clipping."""
    t = torch.linspace(0.0, 1.0, 7, dtype=torch.float64)
    ours, theirs = Exponential(3.0, 100.0, 0.01), lambda t: 3.0 * math.log(100.0) * 100.0**t
    torch.testing.assert_close(ours.beta(t)[:, 0], 0.99 * theirs(0.01 + 0.99 * t), atol=0, rtol=1e-12)
    assert RECIPES["tauldr-cifar10"].train.clip == pytest.approx(0.99 / 3072)


@pytest.mark.parametrize(
    ("method", "choices"),
    [("d3pm", {"process": "gaussian", "last": "image"}), ("d3pm", {}), ("sedd", {}), ("radd", {})],
)
def test_a_clipped_gradient_is_that_of_the_published_loss_at_its_own_scale(method, choices):
    """The loss of training is nats of the whole bound, a token: the published losses are (T ln 2), (T / L) and (1 / L) of it."""
    K, L, T, rows = 4, 5, 6, 12
    options = METHODS[method].Config(
        **choices, **({"diffusion_steps": T, "auxiliary": 0.0} if method == "d3pm" else {})
    )
    torch.manual_seed(0)
    net = Net(layers=1, hidden=16, heads=2, length=L, condition=8, dropout=0.0)
    built = build(method, K, net, options, L, ordered=True).double()
    batch = Batch(torch.randint(K, (rows, L), generator=torch.Generator().manual_seed(1)))
    train = Train(steps=1, batch=rows, device="cpu", precision="float32")
    loop = small_loop(built, Config(method, options, net=net, train=train), K)
    ours = torch.autograd.grad(loop.training_step(batch, 0), [*built.network.parameters()], allow_unused=True)
    draws = StepSeeds(0, 1, torch.device("cpu")).seed_part(0, 0)
    if method == "d3pm":  # one step of each row, and its KL
        _, t, s = diffusion.draw_step(built, batch, draws)
        step = built.discrete_bound(batch, built.corrupt(batch, t[:, None], draws), t, s)
        bits = "last" in choices
        published_loss = step.mean() / (L * math.log(2)) if bits else step.mean()
        scale = T * math.log(2) if bits else T / L
    else:
        published_loss, scale = built.loss(batch, draws).mean(), 1 / L
    theirs = torch.autograd.grad(published_loss, [*built.network.parameters()], allow_unused=True)
    for g, h in zip(ours, theirs, strict=True):
        if g is not None:
            torch.testing.assert_close(g, scale * h, atol=1e-12, rtol=1e-9)


# ---------------------------------------------------------------------------------- that they train
DISTINCT = {
    repr((c.method, c.options, c.net, r.sampler, r.drawing)): n for n, r in RECIPES.items() for c in [small(r.config)]
}


@pytest.mark.parametrize("name", DISTINCT.values())
def test_a_recipe_trains_two_steps_small_and_its_sampler_takes_the_method(name):
    recipe = RECIPES[name]
    config = small(recipe.config)
    smaller = ("diffusion_steps", "block", "embedding")
    assert {f: getattr(config.options, f) for f, _ in recipe.options if f not in smaller} == {
        f: value for f, value in recipe.options if f not in smaller
    }
    V, t, ordered = 8, config.train, bool(config.net.grid) or "embedding" in dict(recipe.options)
    torch.manual_seed(0)
    method = build(config.method, V, config.net, config.options, config.net.length, ordered=ordered)
    samplers.check(choose_sampler(recipe.sampler, method, options=dict(recipe.drawing)), method)
    generator = torch.Generator().manual_seed(1)
    batch = Batch(torch.randint(V, (t.batch, config.net.length), generator=generator))
    optimizer = torch.optim.AdamW(method.parameters(), lr=t.lr, betas=t.betas, weight_decay=t.weight_decay)
    before = [p.detach().clone() for p in method.network.parameters()]
    for _ in range(t.steps):
        optimizer.zero_grad()
        loss = method.loss(batch, generator).mean()
        loss.backward()
        optimizer.step()
        assert torch.isfinite(loss)
    assert any(not torch.equal(a, b) for a, b in zip(before, method.network.parameters()))


# ---------------------------------------------------------------------------------- on the command line
@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    """Options that make a run of a text recipe small: what is typed comes before the recipe."""
    file = tmp_path / "text.txt"
    file.write_text("the quick brown fox jumps over the lazy dog " * 40)
    data = ["--data.name", "text", "--data.path", str(file), "--data.cache", str(tmp_path / "cache")]
    net = ["--net.layers", "1", "--net.hidden", "16", "--net.heads", "2", "--net.length", "16", "--net.condition", "8"]
    train = [
        "--train.steps",
        "2",
        "--train.batch",
        "4",
        "--train.samples",
        "0",
        "--train.device",
        "cpu",
        "--train.no-tensorboard",
    ]
    return [*data, *net, *train, "--train.validate-rows", "2"]


def test_a_run_of_a_recipe_is_the_recipe_but_for_what_is_typed_and_goes_on(text, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", "--recipe", "mdlm-owt", *text, "--run", run]) == 0
    assert "recipe mdlm-owt: MDLM reports ≤ 23.21 PPL" in capsys.readouterr().err
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    theirs = RECIPES["mdlm-owt"].config
    assert (saved["recipe"], saved["method"], saved["data"]["name"]) == ("mdlm-owt", "mdlm", "text")
    assert (saved["train"]["batch"], saved["train"]["warmup"], saved["train"]["ema"]) == (4, 2500, 0.9999)
    assert (saved["net"]["dropout"], saved["net"]["constant"]) == (theirs.net.dropout, True)
    assert main(["train", "--recipe", "mdlm-owt", "--run", run, "--resume", "--train.steps", "3"]) == 0
    again = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (again["recipe"], again["train"]["steps"], again["train"]["batch"]) == ("mdlm-owt", 3, 4)
    assert main(["train", "mdlm", "--run", run, "--resume", "--train.steps", "4"]) == 0
    assert zellige.load(run).config.recipe == "mdlm-owt"
    capsys.readouterr()
    assert main(["train", "--recipe", "mdlm-lm1b", "--run", run, "--resume"]) == 2
    assert "is a run of mdlm-owt, not of mdlm-lm1b; leave --recipe out" in capsys.readouterr().err


def test_the_second_stage_begins_with_the_run_of_the_first(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--recipe", "bd3lm-owt-pretrain", "--block", "16", *text]) == 0
    assert main(["train", "--recipe", "bd3lm-owt", *text]) == 0
    saved = json.loads(Path("runs/bd3lm-owt/config.json").read_text())
    assert (saved["options"]["block"], saved["train"]["start"]) == (4, "runs/bd3lm-owt-pretrain")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--recipe mdlm-owy", "unknown recipe 'mdlm-owy'; did you mean 'mdlm-owt'? (all: zellige list recipes)"),
        ("md4 --recipe mdlm-owt", "recipe mdlm-owt trains mdlm, not md4; leave the method out"),
        ("--recipe", "--recipe needs a name; see zellige list recipes"),
        ("mdlm --recipe", "--recipe needs a value; see zellige train mdlm --help"),
        (
            "--recipe bd3lm-owt --run nowhere",
            "no run at 'runs/bd3lm-owt-pretrain'; zellige train --recipe bd3lm-owt-pretrain makes",
        ),
        (
            "mdlm --train.start kuleshov-group/mdlm-owt",
            "no folder at 'kuleshov-group/mdlm-owt', and the Hugging Face hub",
        ),
        ("--recipe tauldr-cifar10 --train.batch 1 --data.path .", "no 'cifar-10-binary.tar.gz' in folder '.'"),
        ("--recipe mdlm-owt --train.bach 3", "did you mean '--train.batch'?"),
    ],
)
def test_wrong_words_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_from_python_what_is_not_handed_over_is_the_recipes(tmp_path):
    pixels: Any = np.random.default_rng(0).integers(0, 8, (12, 4, 4, 3))
    theirs = RECIPES["d3pm-cifar10-absorbing"].config
    config = small(theirs)
    made = zellige.train(
        recipe="d3pm-cifar10-absorbing", data=Data.of(pixels, 8, kind="image", flip=True), net=config.net,
        train=replace(config.train, samples=0, validate_rows=0, device="cpu", tensorboard=False), run=tmp_path / "run",
    )  # fmt: skip
    assert made.config.options == theirs.options
    assert made.config.recipe == "d3pm-cifar10-absorbing"
    with pytest.raises(InputError, match="trains d3pm, not mdlm"):
        zellige.train("mdlm", recipe="d3pm-cifar10-absorbing")
