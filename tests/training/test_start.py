"""Beginning with another model: `--train.start` and a text are enough."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from zellige import Config, Data, InputError, Net, Train, cli, train
from zellige.core.batch import Batch
from zellige.data.tokenizer import Characters
from zellige.evaluation import workers
from zellige.methods import METHODS, build
from zellige.models import model
from zellige.training import device, setup

TINY = "--train.steps 2 --train.batch 2 --train.samples 0 --train.validate-rows 4 --train.device cpu --quiet"
NEW = f"--data.name text --data.path new.txt --train.start runs/a {TINY}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run on letters, in runs/a, and other texts of fewer letters and of other ones."""
    folder = tmp_path_factory.mktemp("start")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ZELLIGE_CACHE", str(folder / "cache"))
        Path("old.txt").write_text("the cat and a dog saw it all " * 300)
        Path("new.txt").write_text("a cat saw it " * 500)
        Path("foreign.txt").write_text("a cat saw 7 " * 500)
        small = "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 32 --net.conv 3 --schedule cosine"
        assert cli.main(f"train md4 --data.name text --data.path old.txt --run runs/a {small} {TINY}".split()) == 0
    return folder


@pytest.fixture
def begun(place, tmp_path, monkeypatch):
    """A copy of that folder, to work in."""
    shutil.copytree(place, tmp_path / "start", symlinks=True)
    monkeypatch.chdir(tmp_path / "start")
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "start" / "cache"))


def test_a_model_brings_tokenizer_network_and_choices(begun):
    """What is not asked for comes from the model, and stays with the run: it is resumed and judged in the same tokens."""
    assert cli.main(f"train md4 --run runs/b {NEW}".split()) == 0
    before, after = (model.load(f"runs/{name}") for name in "ab")
    assert after.config.net == before.config.net
    assert after.config.options == before.config.options != type(before.config.options)()
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    assert after.tokenizer.size > len(set("a cat saw it "))
    assert cli.main(f"train md4 --run runs/b --resume {NEW.replace('steps 2', 'steps 3')}".split()) == 0
    assert cli.main(["evaluate", "runs/b", "--quiet"]) == 0
    assert cli.main(f"train mdlm --run runs/c {NEW}".split()) == 2  # told no time: other weights


def test_the_weights_of_the_model_are_read_once_and_checked(begun, monkeypatch, capsys):
    """A run knows tokenizer and sizes of the model before; damage to any of its files is noticed."""
    read, plain = [], setup.load_weights
    monkeypatch.setattr(setup, "load_weights", lambda folder: read.append(folder) or plain(folder))
    assert cli.main(f"train md4 --run runs/b {NEW}".split()) == 0
    assert len(read) == 1
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        file = next(Path("runs/a/checkpoints").glob(f"step-*/{name}"))
        before = file.read_bytes()
        file.write_bytes(before[:-3] + bytes([before[-3] ^ 1]) + before[-2:])
        capsys.readouterr()
        assert cli.main(f"train md4 --run runs/c {NEW}".split()) == 2
        assert f"{name}' has changed since it was written" in capsys.readouterr().err
        assert not Path("runs/c").exists()
        file.write_bytes(before)


def test_a_masked_model_begins_with_an_autoregressive_one(begun):
    """Each weight of `ar` bit for bit, and a fresh row of the head for the mask; and back, without that row."""
    tiny = Train(steps=1, batch=2, samples=0, validate_rows=4, device="cpu", lr=1e-30, weight_decay=0.0)
    small = Net(layers=1, hidden=16, heads=2, length=32, conv=3)
    train("ar", data=Data("text", path="old.txt"), net=small, train=replace(tiny, steps=2, lr=1e-2), run="runs/ar")
    steps = (("bd3lm", "runs/ar", "runs/b", METHODS["bd3lm"].Config(block=4)), ("ar", "runs/b", "runs/c", None))
    for method, start, run, options in steps:
        train(method, data=Data("text", path="new.txt"), train=replace(tiny, start=start), run=run, options=options)
        source, target = (model.load(name).method.state_dict() for name in (start, run))
        assert source.keys() == target.keys()
        assert source["network.head.bias"].any()
        for name, tensor in source.items():
            rows = min(len(tensor), len(target[name]))
            assert torch.equal(tensor[:rows], target[name][:rows]), name
            assert rows == len(tensor) == len(target[name]) or "head" in name


def larger(name, net, more):
    """A method with random weights, one of the larger network `more` that begins with it, and the way back."""
    torch.manual_seed(0)
    before, after = (build(name, 5, n) for n in (net, more))
    for p in before.parameters():
        torch.nn.init.normal_(p, std=0.3)
    config = Config(name, METHODS[name].Config(), Data("text"), net, Train())
    start = setup.Start("a", config, Characters("abcd\n"), before.state_dict)
    setup.copy_weights(after, replace(config, net=more), start)

    def back():
        setup.copy_weights(before, config, replace(start, config=replace(config, net=more), weights=after.state_dict))

    return before, after, back


@pytest.mark.parametrize(("name", "kind"), [("mdlm", "dit"), ("udlm", "conv")])
def test_classes_and_self_conditioning_may_be_added(name, kind):
    """The first prediction is that of the model begun with, whatever the class; then both are learnt."""
    net = Net(layers=2, hidden=16, heads=2, length=8, conv=3, kind=kind)
    before, after, back = larger(name, net, replace(net, classes=3, self_condition=True))
    x, time = torch.randint(5, (4, 8)), (torch.rand(4) if before.network.time_conditioned else None)
    plain, classed = (
        m.network.head(m.network.eval().features(x, time, **how))
        for m, how in ((before, {}), (after, {"condition": torch.tensor([0, 1, 2, -1])}))
    )
    torch.testing.assert_close(classed, plain)
    classed.square().sum().backward()
    assert all(after.network.get_parameter(n).grad.abs().sum() > 0 for n in ("estimates", "blocks.0.modulation.weight"))
    with pytest.raises(InputError, match="is 0, and 'a' has 3; leave it out"):
        back()


@pytest.mark.parametrize(
    ("name", "more"), [("mdlm", {}), ("mdlm", {"mlp": "swiglu"}), ("mdlm", {"classes": 3}), ("udlm", {}), ("bd3lm", {})]
)
def test_blocks_may_be_added(name, more):
    """The first prediction is that of the shallower model; then every weight of the further blocks has a gradient."""
    net = Net(layers=1, hidden=16, heads=2, length=8, conv=3, mlp=more.get("mlp", "gelu"))
    before, after, back = larger(name, net, replace(net, layers=3, **more))
    batch = Batch(torch.randint(4, (4, 8)))
    losses = [m.eval().loss(batch, torch.Generator().manual_seed(3)).sum() for m in (before, after)]
    torch.testing.assert_close(losses[1], losses[0])
    further = {n: p for n, p in after.network.named_parameters() if n.startswith(("blocks.1.", "blocks.2."))}
    step = torch.optim.SGD(after.parameters(), 0.1)
    for _ in range(3):
        step.zero_grad()
        after.loss(batch, torch.Generator().manual_seed(3)).sum().backward()
        step.step()
    assert [n for n, p in further.items() if not p.grad.abs().sum() > 0] == []
    with pytest.raises(InputError, match="is 1, and 'a' has 3; leave it out"):
        back()


def test_another_method_has_its_own_choices(begun):
    tiny = Train(start="runs/a", steps=1, batch=2, samples=0, validate_rows=4, device="cpu")
    run = train("genmd4", data=Data("text", path="new.txt"), train=tiny, run="runs/b")
    assert run.config.net == model.load("runs/a").config.net
    assert run.config.options == type(run.config.options)()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--net.conv 5", "--net.conv is 5, and 'runs/a' has 3; leave it out"),
        ("--net.heads 4", "--net.heads is 4, and 'runs/a' has 2; leave it out"),  # the weights' shapes are the same
        (
            "--data.tokenizer bytes",
            "'runs/a' has the tokenizer 'characters' (14), and --data.tokenizer bytes is another (256); leave it out",
        ),
    ],
)
def test_what_differs_from_the_model_is_one_line(begun, capsys, flags, said):
    assert cli.main(f"train md4 --run runs/b {NEW} {flags}".split()) == 2
    assert capsys.readouterr().err == f"error: {said}\n"
    assert not Path("runs/b").exists()


def test_a_model_of_another_network_is_named(begun, capsys):
    assert cli.main(f"train radd --run runs/b {NEW}".split()) == 2
    said = (
        "'runs/a' is a model of md4, whose network differs from that of radd; begin with a model of radd, or train md4"
    )
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {said}"
    assert not Path("runs/b").exists()


def test_a_character_that_the_model_does_not_know(begun, capsys):
    assert cli.main(f"train md4 --run runs/b {NEW.replace('new.txt', 'foreign.txt')}".split()) == 2
    why = "'7' in 'foreign.txt' is not in the vocabulary"
    err = capsys.readouterr().err
    assert err.startswith(f"error: {why} (")
    assert err.endswith("); take it out of the text, or train without --train.start\n")
    assert not Path("runs/b").exists()


@pytest.mark.parametrize("name", ["train.workers", "train.devices", "processes"])
def test_more_processes_than_a_machine_bears_are_refused(name, monkeypatch):
    """100,000 of them took the memory of a machine, and with it what else ran there."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    if name == "processes":
        with pytest.raises(InputError, match=r"`processes` is 100,000, and this machine has 2 cores; use 16 or fewer"):
            workers.limit_processes(name, 100_000)
        return
    config = Config("mdlm", None, train=Train(device="cpu", **{name.rpartition(".")[2]: 100_000}))
    with pytest.raises(InputError, match=rf"`{name}` is 100,000, and this machine has 2 cores; use 16 or fewer"):
        device.fleet(config)
