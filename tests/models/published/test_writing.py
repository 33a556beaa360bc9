"""Own models in published layouts: the same function in another form, refused where the layout has no word for it."""

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

import zellige
from zellige import cli
from zellige.core.batch import Batch
from zellige.core.curves import schedule_of
from zellige.data.tokenizer import Integers
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins import published
from zellige.plugins.published import ddit, layouts, writing
from zellige.training import setup

from . import hub

NET = zellige.Net(layers=2, hidden=32, heads=2, length=16, condition=8)
X = torch.randint(0, 12, (2, 16), generator=torch.Generator().manual_seed(0))


def made(name: str, net=NET, tokens: int = 11, **options) -> Model:
    """A model with random weights."""
    cls = METHODS[name]
    config = cls.Config(**options)
    torch.manual_seed(3)
    method = build(name, tokens, net, config)
    for p in method.network.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return Model(method, Integers(tokens), Config(name, config, net=net))


def logits(model: Model) -> torch.Tensor:
    network = model.method.network
    time = torch.tensor([0.2, 1.5]) if network.time_conditioned else None
    return network(X % model.method.network.states, time).detach()


def fails(model: Model, folder, to) -> str:
    with pytest.raises(zellige.InputError) as caught:
        model.export(folder, to)
    assert "\n" not in str(caught.value)
    assert not folder.exists()
    return str(caught.value)


def test_checksums(tmp_path, monkeypatch):
    """What is written in a published layout has them, and whatever reads such a folder, or a file in it, compares them."""
    monkeypatch.chdir(tmp_path)
    folder = made("mdlm").export("out", "mdlm")
    listed = {line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    assert listed == {p.name for p in folder.iterdir()} - {"SHA256SUMS"}
    for name in sorted(listed):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        for place in (folder, folder / "model.safetensors"):
            with pytest.raises(zellige.InputError, match=f"^'out/{name}' has changed since it was written .SHA256SUMS"):
                zellige.load(place)
        (folder / name).write_bytes(whole)
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    with pytest.raises(zellige.InputError, match="SHA256SUMS"):
        zellige.load(folder)
    assert zellige.load(folder, checksums=False).tokenizer.name == "integers"


@pytest.mark.parametrize(
    ("name", "to", "options"),
    [
        ("mdlm", "mdlm", {}),
        ("mdlm", "radd", {}),
        ("md4", "mdlm", {"time": False}),
        ("radd", "mdlm", {}),
        ("radd", "radd", {"loss": "t-dse"}),
        ("mdlm", "mdlm", {"time": True}),
        ("sedd", "sedd", {"process": "uniform", "schedule": "geometric"}),
        ("sedd", "sedd", {"process": "uniform", "schedule": "geometric", "sigma_min": 1e-3, "sigma_max": 15.0}),
        ("sedd", "sedd", {}),
        ("sedd", "sedd-noeos", {}),
        ("bd3lm", "bd3lm", {"block": 4, "clip": (0.25, 0.75)}),
        ("bd3lm", "bd3lm", {"block": 4, "time": True, "schedule": "cosine-power", "exponent": 1.0}),
        ("mdlm", "mdlm", {"time": True, "schedule": "cosine-power", "exponent": 1.0, "alpha_1": 1e-3}),
        ("udlm", "udlm", {"schedule": "cosine-power", "exponent": 1.0}),
        ("udlm", "udlm", {}),
        ("udlm", "udlm", {"time": False}),
        ("udlm", "duo", {}),
        ("ar", "ar", {"begin": 3}),
    ],
)
def test_out_and_in_again(tmp_path, name, to, options):
    model = made(name, **options)
    model.export(tmp_path / "out", to)
    again = zellige.load(tmp_path / "out")
    assert again.config.method == layouts.LAYOUTS[to].method
    torch.testing.assert_close(logits(again), logits(model), atol=2e-5, rtol=1e-5)
    if again.config.method == name:
        bounds = [m.method.bound(Batch(X[:, :8] % 11), torch.Generator().manual_seed(1)) for m in (again, model)]
        torch.testing.assert_close(*bounds, rtol=1e-5, atol=1e-5)
        for key, value in options.items():
            assert getattr(again.config.options, key) == value or key == "alpha_1", key
    keys = load_file(tmp_path / "out" / "model.safetensors").keys()
    assert all(key.startswith(layouts.LAYOUTS[to].prefix) or key.startswith("sampling_eps") for key in keys)


@torch.no_grad()
def test_forms_are_one_function():
    """Adaptive norms that are told one time = norms with a bias, and back, in float64."""
    constant = made("mdlm", dataclasses.replace(NET, constant=True)).method.network.double()
    for p in constant.parameters():
        torch.nn.init.normal_(p, std=0.3)
    as_plain = build("radd", 11, NET).network.double()
    as_plain.load_state_dict(ddit.unmodulated(constant))
    torch.testing.assert_close(as_plain(X), constant(X), rtol=1e-11, atol=1e-11)
    back = build("mdlm", 11, dataclasses.replace(NET, constant=True)).network.double()
    back.load_state_dict(ddit.modulated(as_plain))
    torch.testing.assert_close(back(X), constant(X), rtol=1e-11, atol=1e-11)


def test_refused(tmp_path):
    out = tmp_path / "out"
    assert fails(made("mdlm", dataclasses.replace(NET, conv=3)), out, "mdlm").startswith(
        "this network has short convolutions (`net.conv`), which no published format has"
    )
    assert fails(made("ar"), out, "ar").startswith("the format ar needs a begin token")
    assert fails(made("sedd"), out, "mdlm") == (
        "the format mdlm is for mdlm, and this is sedd; for sedd there are sedd, sedd-noeos"
    )
    assert "time-conditioned" in fails(made("mdlm", time=True), out, "radd")
    assert "did you mean 'mdlm'?" in fails(made("mdlm"), out, "mdml")


@pytest.mark.parametrize(
    ("name", "to", "options", "what"),
    [
        ("mdlm", "mdlm", {"time": True, "schedule": "cosine"}, "`schedule` cosine"),
        ("mdlm", "mdlm", {"time": True, "alpha_1": 0.05}, "`alpha_1` 0.05"),
        ("mdlm", "radd", {"diffusion_steps": 5}, "`diffusion_steps` 5"),
        ("md4", "mdlm", {"time": False, "diffusion_steps": 5}, "`diffusion_steps` 5"),
        ("mdlm", "mdlm", {"mask": 3}, "`mask` 3"),
        ("udlm", "udlm", {"schedule": "cosine-power"}, "`schedule` cosine-power"),
        ("udlm", "udlm", {"time": False, "schedule": "cosine"}, "`schedule` cosine"),
        ("udlm", "duo", {"schedule": "cosine-power", "exponent": 1.0}, "`schedule` cosine-power"),
        ("udlm", "duo", {"time": False}, "`time` False"),
        ("sedd", "sedd", {"alpha_1": 0.05}, "`alpha_1` 0.05"),
        ("sedd", "sedd-noeos", {"schedule": "geometric"}, "`schedule` geometric"),
        ("sedd", "sedd-noeos", {"process": "uniform"}, "`process` uniform"),
        ("sedd", "sedd-noeos", {"scale_by_sigma": False}, "`scale_by_sigma` False"),
        ("bd3lm", "bd3lm", {"process": "uniform"}, "`process` uniform"),
        ("bd3lm", "bd3lm", {"prediction": "score"}, "`prediction` score"),
    ],
)
def test_what_a_format_does_not_say_of_a_method(tmp_path, name, to, options, what):
    said = fails(made(name, **options), tmp_path / "out", to)
    assert said == f"the format {to} has no word for {what}; use `to` hub"


@pytest.mark.parametrize(
    "parts", [{"kind": "conv"}, {"self_condition": True}, {"given": True}, {"latents": 3}, {"mlp": "swiglu"}]
)
def test_what_no_format_says_of_a_network(tmp_path, parts):
    said = fails(made("mdlm", dataclasses.replace(NET, **parts)), tmp_path / "out", "radd")
    assert f"(`net.{next(iter(parts))}`), which no published format has" in said


def test_choices_that_a_format_does_not_say(tmp_path):
    """A model that came in a format is not written back where it was made another by a choice."""
    for name, options, choices, what in (
        ("udlm", {}, {"schedule": "cosine"}, "`schedule` cosine"),
        ("udlm", {}, {"time": False}, "`time` False"),
        ("ar", {"begin": 7}, {"begin": 4}, "`begin` 4"),
    ):
        made(name, **options).export(tmp_path / name, name)
        chosen = zellige.load(tmp_path / name, **choices)
        for model in (chosen, zellige.load(chosen.save(tmp_path / "own"))):
            assert fails(model, tmp_path / "back", None) == f"the format {name} has no word for {what}; use `to` hub"
        zellige.load(tmp_path / name).export(tmp_path / f"{name}-back")


def test_the_cosine_of_published_configs():
    """alpha = eps + (1 - eps) cos(pi t / 2) in MDLM's code, which is not MD4's cosine; Duo's is yet another."""
    entries = {**hub.FLAT, "model_type": "mdlm", "noise": "cosine"}
    curve = schedule_of(METHODS["mdlm"].Config(**layouts.LAYOUTS["mdlm"].read(entries, {}).options))
    assert float(curve.alpha(1 / 3)) == pytest.approx(1e-3 + 0.999 * 0.75**0.5, rel=1e-6)
    with pytest.raises(zellige.InputError, match="its noise is 'cosine', and only loglinear is known here"):
        layouts.LAYOUTS["duo"].read(entries | {"model_type": "DUO"}, {})


@pytest.mark.parametrize("method", ["mdlm", "csm"])
def test_what_was_trained_here_is_written_as_zelliges_own(tmp_path, method):
    """Unless a layout is asked for; with a model card, and the same weights."""
    model = made(method)
    back = zellige.load(model.export(tmp_path / "out"))
    assert (tmp_path / "out" / "README.md").is_file()
    assert back.config.method == method
    weights = back.method.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.method.state_dict().items())


def test_classes_go_out_and_in(tmp_path):
    model = made("udlm", dataclasses.replace(NET, classes=3))
    model.export(tmp_path / "out", "udlm")
    again = zellige.load(tmp_path / "out")
    assert again.config.net.classes == 3
    time, classes = torch.tensor([0.2, 1.5]), torch.tensor([2, -1])
    said = [m.method.network(X % 11, time, condition=classes) for m in (model, again)]
    torch.testing.assert_close(*said)
    for name, to in (("mdlm", "radd"), ("udlm", "duo"), ("bd3lm", "bd3lm")):
        said = fails(made(name, dataclasses.replace(NET, classes=3)), tmp_path / "no", to)
        assert said == f"the format {to} has no word for `net.classes` 3; use `to` hub"


# ---------------------------------------------------------------------------------- the command line
def test_import_and_export(golden_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    hub.of(golden_folder, tmp_path / "hub", "mdlm")
    assert cli.main(["import", "hub", "--out", "mine"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("mdlm from format mdlm, 0.15M parameters, 2 layers, length 24, tokenizer integers\n")
    assert "zellige sample mine --watch" in said.err
    assert zellige.load("mine").config.net.constant
    assert cli.main(["export", "mine", "--out", "back"]) == 0
    assert "mdlm in format mdlm, as it came" in capsys.readouterr().out
    assert json.loads((tmp_path / "back/config.json").read_text()) == json.loads(
        (tmp_path / "hub/config.json").read_text()
    )
    assert cli.main(["export", "mine", "--to", "radd", "--out", "plain", "--json", "said.json"]) == 0
    assert json.loads((tmp_path / "said.json").read_text())["result"]["layout"] == "radd"
    torch.testing.assert_close(logits_of("plain"), logits_of("mine"), atol=2e-5, rtol=0)
    assert cli.main(["sample", "mine", "--steps", "4", "--count", "1", "--quiet"]) == 0
    shutil.rmtree("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    assert cli.main(["import", "hub", "--out", "mine"]) == 2
    assert cli.main(["import", "hub", "--out", "other", "--system", "sedd"]) == 2
    assert not (tmp_path / "other").exists()
    capsys.readouterr()
    assert cli.main(["list", "checkpoints"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "id"
    assert lines[1].split() == ["louaaron/sedd-small", "sedd", "170M", "gpt2,", "50257", "score", "openwebtext", "MIT"]
    assert len(lines) == 1 + len(published.CATALOGUE)


def logits_of(folder: str) -> torch.Tensor:
    x = torch.randint(0, 54, (2, 24), generator=torch.Generator().manual_seed(0))
    return zellige.load(folder).method.network(x).detach()


def test_catalogue_names_layouts():
    for row in published.CATALOGUE:
        layout = layouts.LAYOUTS[row.layout]
        assert layout.method == row.system
        gives = METHODS[row.system].parameterization.replace("_", "-").replace("next", "next token")
        assert gives == row.gives


def test_a_training_begins_with_a_published_network(golden_folder, tmp_path):
    """Its weights, as they came; what is trained goes back into its layout; other tokens are refused."""
    source = hub.of(golden_folder, tmp_path / "hub", "mdlm")
    theirs = zellige.load(source)
    model = made("mdlm", theirs.config.net, tokens=53)
    setup.copy_weights(model.method, model.config, setup.load_start(str(source), METHODS["mdlm"], "mdlm"))
    for name, tensor in theirs.method.state_dict().items():
        assert torch.equal(model.method.state_dict()[name], tensor)
    model.export(tmp_path / "out", "mdlm")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == load_file(source / "model.safetensors").keys()
    tiny = zellige.Train(
        start=str(source), steps=1, lr=1e-9, ema=0.0, batch=2, samples=0, validate_rows=2, device="cpu"
    )
    tokens = torch.randint(0, 53, (40, 24))
    run = zellige.train(
        "mdlm", data=zellige.Data.of(tokens, 53), train=tiny, run=tmp_path / "tuned"
    )  # and nothing else
    assert (run.config.net, run.config.options) == (theirs.config.net, theirs.config.options)
    for name, tensor in run.model.method.state_dict().items():
        assert torch.allclose(tensor, theirs.method.state_dict()[name], atol=1e-6)
    with pytest.raises(zellige.InputError, match="token id 53 in the data but the vocabulary has 53 entries"):
        zellige.train("mdlm", data=zellige.Data.of(tokens + 1, 54), train=tiny, run=tmp_path / "other")


def test_the_options_that_an_export_leaves_out_are_options():
    """A renamed one would be missed in the list of those that matter to training alone."""
    known = {name for cls in METHODS.values() for name in cls.Config.__dataclass_fields__}
    assert {*writing.TRAINING, *writing.CURVE} <= known
