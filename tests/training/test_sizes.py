"""The sizes belong together, and what is given comes first; a run that is not told where to go has a folder of its own."""

import dataclasses
import itertools
from pathlib import Path
from typing import get_args

import pytest
import torch

import zellige
from zellige import Data, InputError, Net, Train
from zellige.cli.flags import Flag, flags
from zellige.cli.train import choose, form
from zellige.methods import build
from zellige.models.checkpoint.layout import data_label, default_folder
from zellige.models.config import Config
from zellige.nn.block import UNREAD
from zellige.nn.network import build_network, least_parameters
from zellige.papers.recipes import RECIPES
from zellige.show.terminal import Terminal
from zellige.training.cost import training_cost
from zellige.training.setup import CPU, SIZES, described, fitted


def test_each_size_costs_more_than_the_one_before_and_the_command_line_has_all():
    costs = [
        training_cost(Config("mdlm", zellige.METHODS["mdlm"].Config(), net=size.net, train=size.train), 64)
        for size in SIZES.values()
    ]
    assert all(b.flops > 10 * a.flops and b.parameters > 3 * a.parameters for a, b in itertools.pairwise(costs))
    (kind,) = (f.type for f in dataclasses.fields(form(zellige.METHODS["mdlm"])) if f.name == "size")
    assert get_args(get_args(kind)[0]) == tuple(SIZES)


def test_the_smallest_is_half_an_hour_of_two_cores():
    """At 40 GFLOP/s a core: studies/speed has the demo's training at 55 on one."""
    size = SIZES[CPU]
    cost = training_cost(Config("mdlm", zellige.METHODS["mdlm"].Config(), net=size.net, train=size.train), 64)
    assert cost.flops / 2 / 40e9 < 1800


@pytest.mark.parametrize(
    ("words", "optimizer", "lr", "decay"),
    [
        ("", "muon", 6e-3, "wsd"),
        ("--data.path a.txt", "muon", 6e-3, "wsd"),
        ("--train.optimizer adamw", "adamw", 3e-3, "cosine"),
        ("--train.optimizer adamw --train.lr 1e-3", "adamw", 1e-3, "cosine"),
        ("--train.lr 1e-3", "muon", 1e-3, "wsd"),
        ("--train.decay cosine", "muon", 6e-3, "cosine"),
        ("--net.kind conv", "adamw", 3e-3, "cosine"),
        ("--net.kind conv --train.optimizer muon", "muon", 6e-3, "wsd"),
        ("--data.name sudoku", "adamw", 3e-3, "cosine"),
        ("--size small", "adamw", 3e-4, "cosine"),
        ("--size small --train.optimizer muon", "muon", 3e-4, "cosine"),
    ],
)
def test_tiny_trains_a_transformer_of_text_by_muon(words, optimizer, lr, decay, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    made = choose(["mdlm", *words.split()], Terminal())[0].filled().train
    assert (made.optimizer, made.lr, made.decay) == (optimizer, lr, decay)


@pytest.mark.parametrize(
    ("words", "times"),
    [
        ("mdlm", "middle"),
        ("bd3lm --data.path a.txt --train.optimizer adamw", "middle"),
        ("mdlm --net.kind conv", "middle"),
        ("mdlm --train.times stratified", "stratified"),
        ("ar", "stratified"),
        ("tauldr", "stratified"),
        ("genmd4", "stratified"),
        ("mdlm --data.name sudoku", "stratified"),
        ("mdlm --data.name mnist", "stratified"),
        ("mdlm --size small", "stratified"),
    ],
)
def test_tiny_draws_the_times_of_a_text_in_the_middle(words, times, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert choose(words.split(), Terminal())[0].filled().train.times == times


def test_what_is_published_or_begins_with_weights_or_has_an_own_network_is_trained_by_adamw():
    assert {(recipe.train.optimizer, recipe.train.times) for recipe in RECIPES.values()} == {("adamw", "stratified")}
    begun = zellige.Training("mdlm", settings={"train.start": "stories-mdlm"}).filled()
    assert (begun.train.optimizer, begun.train.lr, begun.train.times) == ("adamw", Train().lr, "stratified")
    own = zellige.Training("mdlm", net=build_network(Net(1, 16, 2, 8), 5, False), size="tiny").filled()
    unet = zellige.Training("mdlm", net=Net(kind="unet"), size="tiny").filled()
    assert {(made.train.optimizer, made.train.lr) for made in (own, unet)} == {("adamw", 3e-3)}


def test_what_python_takes_by_default_is_a_size():
    assert (SIZES["small"].net, SIZES["small"].train) == (Net(), Train())


def test_a_size_fits_the_data_and_the_kind_of_network():
    tiny = SIZES["tiny"]
    assert fitted(tiny.net, "dit") == tiny.net
    assert fitted(tiny.net, "dit", shaped=True) == dataclasses.replace(tiny.net, length=Net().length, conv=0)
    assert fitted(tiny.net, "unet", shaped=True) == Net(kind="unet")
    assert fitted(tiny.image_net, "unet") == dataclasses.replace(tiny.image_net, kind="unet")
    with pytest.raises(InputError, match="unknown size 'tinny'; did you mean 'tiny'"):
        SIZES["tinny"]


@pytest.mark.parametrize(
    ("data", "method", "kind", "expected"),
    [
        ("mnist", "md4", "", "flat-unet"), ("images", "tauldr", "", "flat-unet"), ("cifar10", "md4", "dit", "dit"),
        ("mnist", "bd3lm", "", "dit"), ("mnist", "ar", "", "dit"), ("digits", "md4", "", "dit"), ("sudoku", "md4", "", "dit"),
        ("mnist", "md4", "unet", "unet"), ("mnist", "md4", "conv", "conv"),
    ],
)  # fmt: skip
def test_images_have_a_network_of_their_own(data, method, kind, expected):
    """What studies/images measured: a U-Net, unless the method reads block after block or another is asked for."""
    net, train = SIZES["tiny"].of(data, zellige.METHODS[method], kind=kind)
    assert net.kind == expected
    assert (train == SIZES["tiny"].image_train) == net.is_unet
    assert net.channels == (32 if net.is_unet else Net().channels)


# of an option that is given alone: the value, where any other would be refused; and what must stand beside it
VALUES = {
    "--data.path": "a.txt", "--data.mix": "a.txt=1", "--data.given": "prefix:3", "--net.hidden": "192", "--net.conv": "5",
    "--net.heads": "2", "--net.channels": "40", "--net.multipliers": "1 3", "--net.attention": "8",
    "--train.betas": "0.8 0.95",
}  # fmt: skip
OF_UNET = ["--net.kind=unet"]
# what an option changes beside its own field: a length in steps ends that in minutes, a path says what kind of data it is,
# an optimizer has a rate, and Muon is for transformers
BESIDE = {
    "--train.steps": "train.minutes", "--data.path": "data.name", "--data.mix": "data.name",
    "--train.optimizer": "train.lr train.decay", "--net.kind": "train.optimizer train.lr train.decay",
}  # fmt: skip


def typed(flag: Flag, default: object) -> list[str]:
    """An option with a value that is neither its default nor the size's."""
    if flag.switch:
        return [flag.off if default else flag.name]
    if flag.name in VALUES:
        return [flag.name, *VALUES[flag.name].split()]
    if flag.words:
        return [flag.name, next(word for word in flag.words if word != default)]
    kinds = get_args(flag.kind) or (flag.kind,)
    if str in kinds:
        return [flag.name, "some"]
    return [flag.name, str((default or 0) + 3) if int in kinds else "0.37" if (default or 0) <= 1 else "1.5"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_option_changes_one_thing(device, monkeypatch):
    """Each option alone beside a method: all others stay as the machine's size has them. `--net.hidden` took lr and conv away."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "cuda")
    settled = lambda *words: choose(["mdlm", *words], Terminal())[0].filled()  # noqa: E731
    size, plain, of_unet = SIZES[{"cpu": "tiny", "cuda": "small"}[device]], settled(), settled(*OF_UNET)
    assert (plain.net, plain.train) == size.of("pydocs", zellige.METHODS["mdlm"])
    assert of_unet.train == dataclasses.replace(size.train, times=size.times)
    kinds = (zellige.METHODS["mdlm"].Config, Data, Net, Train)
    walked = [flag for flag in flags(form(zellige.METHODS["mdlm"])).values() if flag.owner in kinds]
    assert len(walked) > 90
    for flag in walked:
        if flag.name in (
            "--train.start",
            "--train.device",
        ):  # they choose the network, and the machine whose size it is
            continue
        section = flag.name.rpartition(".")[0][2:] or "options"
        before = of_unet if flag.field in UNREAD["dit"] + ("published",) and section == "net" else plain
        words = typed(flag, getattr(getattr(before, section), flag.field))
        words = [flag.name, "16", str(size.net.length // 16)] if flag.field == "grid" else words
        now = settled(*(OF_UNET if before is of_unet else ()), *words)
        changed = {
            f"{name}.{f.name}"
            for name in ("options", "data", "net", "train")
            for f in dataclasses.fields(getattr(now, name))
            if getattr(getattr(now, name), f.name) != getattr(getattr(before, name), f.name)
        }
        allowed = {f"{section}.{flag.field}", *BESIDE.get(flag.name, "").split()}
        assert f"{section}.{flag.field}" in changed <= allowed, (words, changed)


def test_the_first_line_has_the_size_and_what_is_not_of_it():
    tiny = SIZES["tiny"]
    net, train = tiny.of("pydocs", zellige.METHODS["mdlm"])
    config = Config("mdlm", zellige.METHODS["mdlm"].Config(), Data(), net, train)
    said = lambda **of: described("tiny", dataclasses.replace(config, **of), zellige.METHODS["mdlm"])  # noqa: E731
    assert said() == said(train=dataclasses.replace(train, steps=300, minutes=0, warmup=150, seed=4)) == "size tiny"
    by_adamw = dataclasses.replace(tiny.train, times="middle")
    assert said(train=by_adamw) == "size tiny except `train.optimizer` adamw"  # its rate is AdamW's
    assert said(train=tiny.train).endswith("`train.optimizer` adamw, `train.times` stratified")
    assert said(train=by_adamw, network="Own") == "size tiny"
    of_puzzles = Config("mdlm", config.options, Data("sudoku"), *tiny.of("sudoku", zellige.METHODS["mdlm"]))
    assert described("tiny", of_puzzles, zellige.METHODS["mdlm"], shaped=True) == "size tiny"
    several = [zellige.METHODS[name] for name in ("ar", "mdlm")]
    assert described("tiny", dataclasses.replace(config, train=train), *several) == "size tiny"  # of a comparison
    net = dataclasses.replace(tiny.net, hidden=192, layers=2)
    assert said(net=net) == "size tiny except `net.layers` 2, `net.hidden` 192"
    assert (
        said(train=dataclasses.replace(train, lr=2e-3, warmup=0))
        == "size tiny except `train.lr` 0.002, `train.warmup` 0"
    )
    assert said(net=dataclasses.replace(tiny.net, length=64)) == "size tiny except `net.length` 64"
    of_images = dataclasses.replace(tiny.image_net, length=784, grid=(28, 28))
    config = dataclasses.replace(config, data=Data("mnist"), net=of_images, train=tiny.image_train)
    assert described("tiny", config, zellige.METHODS["md4"], shaped=True) == "size tiny"


def test_the_sizes_of_images_cost_more_and_more():
    config = zellige.METHODS["md4"].Config()
    of = lambda size: dataclasses.replace(size.image_net, length=3072, grid=(32, 32, 3))  # noqa: E731
    costs = [training_cost(Config("md4", config, net=of(s), train=s.image_train), 256) for s in SIZES.values()]
    assert all(b.flops > 10 * a.flops and b.parameters > 3 * a.parameters for a, b in itertools.pairwise(costs))


def test_from_python_what_is_given_comes_before_the_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokens = torch.randint(0, 7, (60, 128), generator=torch.Generator().manual_seed(5))
    few = Train(steps=1, batch=4, validate_rows=4, samples=0, tensorboard=False, device="cpu")
    done = zellige.train("mdlm", data=Data.of(tokens, vocabulary=7), train=few, size="tiny")
    assert (done.config.net, done.config.train) == (SIZES["tiny"].net, few)
    assert done.folder == Path("runs/mdlm-tokens")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (Data(), "pydocs"), (Data("text8", path="copies/text8"), "text8"), (Data("text", path="my/notes/"), "notes"),
        (Data("text", path="notes.jsonl.gz"), "notes"), (Data("text", path="letters/*.txt.gz"), "letters"),
        (Data("text", path="two words.txt"), "two-words"), (Data("text", path="..."), "text"),
    ],
)  # fmt: skip
def test_a_run_is_called_by_its_data(data, name):
    assert data_label(data) == name


def test_a_second_run_has_its_own_folder_and_the_newest_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    base = Path("runs/mdlm-pydocs")
    assert [default_folder("mdlm-pydocs", existing=again) for again in (False, True)] == [base, base]
    for n in ("", "-2", "-3"):
        Path(f"{base}{n}").mkdir(parents=True)
        assert default_folder("mdlm-pydocs", existing=True) == Path(f"{base}{n}")
        assert default_folder("mdlm-pydocs", existing=False, rank=1) == Path(f"{base}{n}")
    assert default_folder("mdlm-pydocs", existing=False) == Path(f"{base}-4")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert default_folder("mdlm-pydocs", existing=False) == base


@pytest.mark.parametrize(
    "net",
    [
        Net(layers=3, hidden=32, heads=2, length=12), Net(layers=3, hidden=32, heads=2, length=12, mlp="swiglu", constant=True),
        Net(layers=2, hidden=64, heads=4, length=12, grid=(3, 4)), Net(layers=5, hidden=48, heads=3, length=12, kind="conv"),
        Net(kind="unet", channels=8, length=64, grid=(8, 8)),
        Net(kind="flat-unet", channels=12, blocks=2, length=64, grid=(8, 8)),
        Net(kind="u-vit", channels=8, blocks=1, layers=2, hidden=32, heads=2, length=64, grid=(8, 8)),
    ],
)  # fmt: skip
def test_the_parameters_are_at_least_so_many(net):
    count = sum(p.numel() for p in build_network(net, 7, time=net.is_unet).parameters())
    assert count / 100 < least_parameters(net, 7) <= count


@pytest.mark.parametrize(
    ("net", "train", "wrong"),
    [
        (
            {"layers": 10**6},
            {},
            "a step of 32 rows of 256 tokens, through 1,000,000 layers of 256, 8 heads needs at least 80 TB",
        ),
        (
            {"length": 10**7},
            {},
            "a step of 32 rows of 10,000,000 tokens, through 6 layers of 256, 8 heads needs at least 16 TB",
        ),
        (
            {"hidden": 10**7, "heads": 5},
            {"accumulate": 32},
            "a step of 1 row of 256 tokens, through 6 layers of 10,000,000",
        ),
        ({}, {"batch": 10**8}, "a step of 100,000,000 rows of 256 tokens"),
    ],
)
def test_sizes_that_no_machine_holds_are_refused_before_the_text_is_read(net, train, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr("zellige.training.setup.prepare", lambda *_, **__: pytest.fail("the text was read"))
    monkeypatch.setattr("zellige.training.device.machine_memory", lambda: 64e9)
    settings = Train(**train, device="cpu", precision="float32")  # "auto" depends on the CPU
    with pytest.raises(InputError, match=f"^{wrong}.* of memory, and there are 64.0 GB; choose smaller sizes$"):
        zellige.train("mdlm", net=Net(**net), train=settings, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_that_no_machine_holds_is_not_built():
    layers = pytest.raises(InputError, match=r"a network of 900,000,000 layers of 8, 2 heads needs at least 7,200.0 GB")
    with layers, torch.device("meta"):
        build("mdlm", 5, Net(layers=900_000_000, hidden=8, heads=2, length=4))
    with pytest.raises(InputError, match="a network of 6 layers of 10,000,000, 5 heads needs"):
        build("mdlm", 5, Net(hidden=10**7, heads=5))
    with torch.device("meta"):  # where there are no numbers it is planned for another machine
        build("mdlm", 5, Net(hidden=10**6, heads=5, layers=1, conv=1))
