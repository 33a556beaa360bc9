"""Classifiers of noisy texts: what they are trained on, their calibration, their folder, and what `sample` makes of them."""

import math
import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from testing.small import Rows, make
from zellige import Config, Data, Model, Net, Record, TrainClassifier, TrainDistill, TrainSpeculative, cli, load, sample
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN, PRIOR
from zellige.data import prepare
from zellige.methods import build
from zellige.models.classifier import (
    AtNoise,
    ClassifierConfig,
    TextClassifier,
    check_pair,
    fresh,
    load_classifier,
    noise_of,
    transitions,
)
from zellige.models.model import fingerprint
from zellige.models.speculative import load_verifier
from zellige.plugins.students.classifier import calibration, drawn, noised
from zellige.plugins.students.command import COMMANDS
from zellige.samplers import FirstHitting, check
from zellige.samplers.guidance import ByClassifier, ClassifierFree
from zellige.sampling.guidance import guide

NET = Net(layers=1, hidden=8, heads=2, length=8, conv=3, condition=8)


def classifier(method: Any, classes: int = 3) -> TextClassifier:
    noise, block = noise_of(method)
    states = method.vocabulary + 1 if method.process is None else method.process.K
    names = [str(i) for i in range(classes)]
    config = ClassifierConfig(
        "letters", names, "char", "abc", noise, block, states, transitions(method), NET, 1, 0,
        [AtNoise(0.0, 1.0, 4, 2, 1.0, 0.1)],
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = fresh(NET, states, noise != "blocks", classes).double()
        torch.nn.init.normal_(network.output.weight)
    return TextClassifier(network.eval().requires_grad_(False), config)


@pytest.mark.parametrize(("name", "block"), [("ar", 1), ("bd3lm", 4)])
def test_beginnings_of_texts_are_of_every_length(name, block):
    """Every number of written blocks is equally likely; the rest is blank, the block at hand in part."""
    method = make(name, {"block": 4} if name == "bd3lm" else {})
    tokens = torch.arange(8).expand(900, -1) % 3
    u = (torch.arange(900) + 0.5) / 900
    x, t = noised(method, Batch(tokens), u, torch.Generator().manual_seed(0))
    blank = x == method.vocabulary
    assert torch.equal(t, torch.where(blank, PRIOR, CLEAN).double())
    assert torch.equal(x[~blank], tokens[~blank])
    if block == 1:
        assert torch.equal((~blank).sum(-1).bincount(), torch.full((9,), 100))
        assert torch.equal(blank, blank.cummax(-1).values)  # nothing is written after a blank
    else:
        first, second = blank[:, :4].any(-1), blank[:, 4:].all(-1)
        assert bool((second | ~first).all())  # while the first block is masked in part, the second is blank
        assert abs(float(blank[first][:, :4].double().mean()) - 0.5 / (1 - 1 / 5)) < 0.05  # E u given a mask among 4


def test_it_is_told_how_noisy_the_noisiest_position_is():
    method = make("md4", {"schedule": "cosine"})
    made: Any = classifier(method)
    t = torch.tensor([[CLEAN, 0.25, 0.5], [PRIOR, 0.5, CLEAN]], dtype=torch.float64)
    noisiest = torch.tensor([0.5, 1.0]).double()
    assert torch.allclose(
        made._time(t, method.process).double(), 1000 * (1 - method.process.schedule.alpha(noisiest)[:, 0])
    )  # pyright: ignore
    assert classifier(make("ar"))._time(t, None) is None


def test_calibration_counts_what_is_right():
    """A classifier that says 0.8 for class 0, of texts of which 3 in 4 are of class 0."""
    method, rows = make("mdlm"), Rows(torch.zeros(40, 8, dtype=torch.long))
    rows.collate = lambda chosen: Batch(rows.tokens[chosen], condition=(torch.tensor(chosen) % 4 == 3).long())  # pyright: ignore
    made = classifier(method, 2)
    made.log_p = lambda x, t, process: torch.tensor([0.8, 0.2]).double().log().expand(len(x), -1)  # pyright: ignore
    found = calibration(made, method, rows)
    assert [part.texts for part in found] == [8] * 5
    assert sum(part.right for part in found) == 30
    for part in found:
        share = part.right / 8
        assert abs(part.gap - abs(0.8 - share)) < 1e-6
        assert abs(part.nats + share * math.log(0.8) + (1 - share) * math.log(0.2)) < 1e-6


def test_calibration_is_of_texts_evenly_spaced_each_at_a_level_of_its_own():
    """In batches of 64. The levels do not follow the order of the texts, which may be sorted by class."""
    method, rows, read, times = make("mdlm"), Rows(torch.zeros(200, 8, dtype=torch.long)), [], []
    made = classifier(method, 2)

    def collate(chosen):
        read.extend(chosen)
        return Batch(rows.tokens[chosen], condition=torch.zeros(len(chosen), dtype=torch.long))

    def log_p(x, t, process):
        times.append(t.amax(-1))
        return torch.tensor([0.8, 0.2]).double().log().expand(len(x), -1)

    rows.collate, made.log_p = collate, log_p  # pyright: ignore[reportAttributeAccessIssue]
    calibration(made, method, rows, most=100)
    assert read == [2 * i for i in range(100)]
    assert [len(of) for of in times] == [64, 36]
    level = torch.cat(times)
    assert (100 * level).long().unique().tolist() == [*range(100)]  # one of each hundredth
    assert abs(float(torch.stack((torch.arange(100).double(), level)).corrcoef()[0, 1])) < 0.3


def test_a_folder_holds_it(tmp_path):
    method = make("mdlm")
    made = classifier(method)
    made.network.float()
    loaded = load_classifier(made.save(tmp_path / "c"))
    x, t = torch.randint(0, 4, (5, 8)), torch.rand(5, 8, dtype=torch.float64)
    assert loaded.config == made.config
    assert loaded.classes == ["0", "1", "2"]
    assert torch.equal(loaded.log_p(x, t, method.process), made.log_p(x, t, method.process))
    made.network.output.weight.data[1, 2] = math.nan
    with pytest.raises(InputError, match=r"the weights are not finite: output\.weight has NaN for 1 of its 24 numbers"):
        load_classifier(made.save(tmp_path / "c"))
    made.network.output.weight.data[1, 2] = 0.5
    (tmp_path / "c" / "classifier.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(InputError, match="classifier"):
        load_classifier(tmp_path / "c")
    assert load_classifier(made.save(tmp_path / "c")).config == made.config  # in the place of the damaged one
    (tmp_path / "c" / "mine.py").write_text("x = 1")
    with pytest.raises(InputError, match=r"holds other files than classifier\.json and classifier\.safetensors"):
        made.save(tmp_path / "c")
    assert (tmp_path / "c" / "mine.py").read_text() == "x = 1"


def model(name: str, **choices):
    method = make(name, choices)
    return SimpleNamespace(method=method, tokenizer=SimpleNamespace(fingerprint="abc", name="char"))


def test_a_classifier_of_other_tokens_or_other_noise_is_refused():
    made = classifier(make("mdlm"))
    check_pair(made, model("md4", schedule="cosine"))  # whatever the schedule
    with pytest.raises(InputError, match="trained on masks, the model has noise that is tokens"):
        check_pair(made, model("udlm"))
    with pytest.raises(InputError, match="trained on beginnings of texts, block after block, the model has masks"):
        check_pair(classifier(make("ar")), model("mdlm"))
    made.config = replace(made.config, tokenizer_sha256="xyz")
    with pytest.raises(InputError, match="trained on letters, in other tokens than the model's"):
        check_pair(made, model("mdlm"))


ALIKE: list[list[tuple[str, dict[str, Any]]]] = [  # one noise each
    [("udlm", {}), ("udlm", {"schedule": "cosine"}), ("d3pm", {"process": "uniform", "diffusion_steps": 4}), ("tauldr", {})],
    [("tauldr", {"process": "birth-death"})],
    [("d3pm", {"process": "gaussian", "diffusion_steps": 4})],
    [("gidd", {"p_uniform": 0.0}), ("mdlm", {"diffusion_steps": 4, "carry_over": False})],
    [("gidd", {"p_uniform": 0.9})],
    [("mdlm", {}), ("d3pm", {"diffusion_steps": 1}), ("md4", {"schedule": "cosine"})],
    [("d3pm", {"process": "middle", "diffusion_steps": 4})],
]  # fmt: skip


def test_a_classifier_fits_the_models_of_its_noise_and_no_other():
    models = [(number, model(name, **choices)) for number, kind in enumerate(ALIKE) for name, choices in kind]
    for number, of in models:
        made = classifier(of.method)
        for other, another in models:
            if number == other:
                check_pair(made, another)
            else:
                with pytest.raises(InputError, match="the classifier was trained on"):
                    check_pair(made, another)
    with pytest.raises(InputError, match="noise that is tokens, the model has other noise that is tokens; train one"):
        check_pair(classifier(models[0][1].method), model("tauldr", process="birth-death"))


def test_a_request_says_how_its_samples_are_guided():
    classed = make("mdlm", classes=3)
    assert guide(model("mdlm"), None, None, None)[0] is None
    assert guide(model("mdlm"), 1.0, None, ["a"])[0] is None  # the class as it was trained, at no cost
    around: Any = guide(model("mdlm"), 2.0, None, ["a"])[0]
    assert isinstance(around(classed), ClassifierFree)
    assert around(classed).powers == (2.0, -1.0)
    made = classifier(make("mdlm"))
    around, classes = guide(model("mdlm"), None, made, ["a"])
    guided = around(make("mdlm"))
    assert isinstance(guided, ByClassifier)
    assert (guided.strength, classes) == (1.0, made)
    with pytest.raises(InputError, match="not a guided one"):
        check(FirstHitting(), guided)
    with pytest.raises(InputError, match="trained without classes"):
        ClassifierFree(make("mdlm"), 2.0)
    with pytest.raises(InputError, match="needs a class for each text"):
        guided.predict(torch.zeros(1, 8, dtype=torch.long), 0.5)


def test_what_is_trained_on_a_model_is_a_request_whose_record_is_read_and_run_again(tmp_path):
    data, net = Data("digits"), Net(layers=1, hidden=8, heads=2, length=64, conv=5)
    tokenizer = prepare(data).tokenizer
    method = build("mdlm", tokenizer.size, net, ordered=True)
    model = Model(method, tokenizer, Config("mdlm", method.config, data, net))
    for request in (
        TrainClassifier(tmp_path / "judge", steps=2),
        TrainSpeculative(tmp_path / "head", steps=2, batch=4, precision="bfloat16"),
        TrainDistill(tmp_path / "student", teacher_steps=2, rounds=1, steps=1, batch=4),
    ):
        record: Any = request.run(model)
        record.save(tmp_path / "r.json")
        again = Record.load(tmp_path / "r.json")
        assert again == replace(record, request=replace(request, out=str(request.out)))
        assert {*record.holds(replace(again.request, out=None).run(model)).values()} == {"bit for bit"}
        with pytest.raises(InputError, match="is there; give the name of a new folder with `out`"):
            again.request.run(model)
    assert load_classifier(tmp_path / "judge").classes == [*"0123456789"]
    assert load_verifier(tmp_path / "head", fingerprint(method)).config == model.method.verifier.config
    assert model.method.verifier.config.conv == net.conv
    assert load(tmp_path / "student").defaults == {"steps": 1}
    model.save(tmp_path / "model")  # the head belongs to the weights as they are, in whatever it was trained
    words = ["train", "speculative", str(tmp_path / "model"), "--out", str(tmp_path / "second")]
    assert cli.main([*words, "--steps", "1", "--batch", "2", "--precision", "bfloat16", "--quiet"]) == 0
    assert load(tmp_path / "model", head=tmp_path / "second").method.verifier is not None


@pytest.mark.parametrize("name", ["R&B", "don't", "a b", "5"])
def test_the_next_command_is_one_of_a_shell(name):
    config: Any = SimpleNamespace(classes=[name, "other"])
    words = shlex.split(COMMANDS["classifier"].then("runs/x", "judge", config))
    assert words[words.index("--class") + 1] == name


def test_values_that_are_handed_over_have_their_classes_beside_them():
    tokens = torch.arange(160).reshape(20, 8) % 3
    plain, labelled = Data.of(tokens, 3, kind="grid"), Data.of(tokens, 3, kind="grid", labels=tokens[:, 0])
    model = Model(make("mdlm"), prepare(plain, 8).tokenizer, Config("mdlm", make("mdlm").config, plain, NET))
    record = TrainClassifier(data=labelled, steps=1).run(model)
    assert record.config.classes == ["0", "1", "2"]
    with pytest.raises(InputError, match="'array' has no classes"):
        TrainClassifier(data=plain, steps=1).run(model)
    halves = {"train": tokens[:12], "test": tokens[12:]}
    classes = {name: part[:, 0] for name, part in halves.items()}
    apart = prepare(Data.of(halves, 3, kind="grid", labels=classes))
    assert apart.split("test").labels.tolist() == classes["test"].tolist()
    with pytest.raises(InputError, match="array has no labels of its test split"):
        prepare(Data.of(halves, 3, kind="grid", labels={"train": classes["train"]}))
    model.method = make("bd3lm", {"block": 4, "process": "uniform"})
    with pytest.raises(InputError, match="the noise of bd3lm has no mask for the blocks that are not there yet"):
        TrainClassifier(data=labelled, steps=1).run(model)


def test_a_classifier_is_a_network_of_its_own():
    """It reads tokens and their time, also where the model's network reads more or less; a U-Net has no layers."""
    tokens = torch.arange(160).reshape(20, 8) % 3
    data = Data.of(tokens, 3, kind="grid", labels=tokens[:, 0])
    tokenizer = prepare(data, 8).tokenizer
    own = replace(NET, constant=True, given=True, latents=2, self_condition=True)
    for method in (make("mdlm"), make("udlm")):
        model = Model(method, tokenizer, Config(method.name, method.config, data, own))
        record = TrainClassifier(steps=1).run(model)
        names = {name.split(".")[0] for name, _ in record.classifier.network.trunk.named_parameters()}
        assert names.isdisjoint({"given", "latent", "estimates"})
    net = Net(length=8, kind="flat-unet", grid=(2, 4), channels=4, blocks=1)
    model = Model(make("mdlm"), tokenizer, Config("mdlm", make("mdlm").config, data, net))
    with pytest.raises(
        InputError, match=r"^`layers` is for a transformer, and the network of this model is a flat-unet;"
    ):
        TrainClassifier(steps=1, layers=2).run(model)


@pytest.mark.parametrize("process", ["absorbing", "uniform", "gaussian"])
def test_noise_of_discrete_time_is_read_at_its_own_times(process):
    tokens, T = torch.arange(160).reshape(20, 8) % 3, 4
    data = Data.of(tokens, 3, kind="grid", labels=tokens[:, 0])
    method = make("d3pm", {"process": process, "diffusion_steps": T})
    times = drawn(method, 12, torch.Generator().manual_seed(0))
    assert (T * times).long().bincount().tolist() == [0, 3, 3, 3, 3]
    model = Model(method, prepare(data, 8).tokenizer, Config("d3pm", method.config, data, NET))
    record = TrainClassifier(steps=1).run(model)
    assert sum(part.texts for part in record.config.calibration) > 0
    assert len(sample(model, classes=["1"], classifier=record.classifier, guidance=2.0)) == 1
