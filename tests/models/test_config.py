import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zellige import METHODS, Config, Data, InputError, Net, Train
from zellige.methods.mdlm import MDLM
from zellige.models.config import FORMAT, LATER, RENAMED, from_json, to_json
from zellige.training.settings import with_settings


def example(**more) -> Config:
    data = Data("text", path="letters/*.txt", tokenizer="bytes", validation=0.1)
    train = Train(steps=7, betas=(0.8, 0.95), clip=0.5, strategy="ddp", seed=3)
    return Config(
        "md4", METHODS["md4"].Config(schedule="cosine", eps=1e-3), data, Net(layers=2), train, "runs/a", **more
    )


def plain(**more) -> dict:
    return json.loads(json.dumps(to_json(example(), more or None)))


def broken(place: str, value) -> dict:
    *path, name = place.split(".")
    found = inner = plain()
    for key in path:
        inner = inner[key]
    inner[name] = value
    return found


@pytest.mark.parametrize("method", METHODS)
def test_round_trip(method):
    config = replace(example(), method=method, options=METHODS[method].Config())
    back = from_json(json.loads(json.dumps(to_json(config))))
    assert back == config
    assert type(back.options) is METHODS[method].Config
    assert back.train.betas == (0.8, 0.95)  # a tuple, not a list


@given(
    st.builds(
        Train,
        steps=st.integers(1, 10**9),
        lr=st.floats(1e-12, 1e3),
        ema=st.floats(0, 0.9999999),
        betas=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
        decay=st.sampled_from(["cosine", "constant"]),
        compile=st.booleans(),
        wandb=st.text(),
    )
)
def test_any_choice_comes_back_exactly(train):
    config = replace(example(), train=train)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


@dataclass(frozen=True)
class Former:
    steps: int = 3


class Older(MDLM):
    name = "older"
    Config = Former


@pytest.mark.parametrize("method", ["mdlm", "md4", "udlm", "d3pm"])
def test_an_option_under_its_former_name(method):
    config = replace(example(), method=method, options=METHODS[method].Config(diffusion_steps=64))
    older = json.loads(json.dumps(to_json(config)))
    older["options"]["steps"] = older["options"].pop("diffusion_steps")
    assert from_json(older) == config
    with pytest.raises(InputError, match=r"unknown entry .options\.steps."):  # which of the two is meant?
        from_json(older | {"options": older["options"] | {"diffusion_steps": 8}})


def test_the_learning_rate_under_its_former_name():
    """`rate` was the name of `lr`: as an argument, in `replace`, as an attribute, in files and as a setting."""
    train = Train(rate=2e-3)  # pyright: ignore[reportCallIssue]
    assert train == Train(lr=2e-3)
    assert train.rate == 2e-3  # pyright: ignore[reportAttributeAccessIssue]
    assert replace(train, rate=1e-4) == Train(lr=1e-4)  # pyright: ignore[reportCallIssue]
    older = plain()
    assert "rate" not in older["train"]
    older["train"]["rate"] = older["train"].pop("lr")
    assert from_json(older) == example()
    older["train"]["lr"] = 1.0
    with pytest.raises(InputError, match=r"unknown entry .train\.rate."):  # which of the two is meant?
        from_json(older)
    assert with_settings({"train": train}, {"train.rate": "1e-4"}) == {"train": Train(lr=1e-4)}


def test_an_own_option_of_a_former_name_stays():
    config = replace(example(), method="older", options=Former(steps=5))
    assert from_json(json.loads(json.dumps(to_json(config))), method=Older) == config


def test_about_is_beside_the_config():
    assert plain(step=5)["about"] == {"step": 5}
    assert from_json(plain(step=5)) == example()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("train.steps", "twelve", "'config.json': train.steps is 'twelve'; it must be a whole number"),
        ("train.steps", 1.5, "'config.json': train.steps is 1.5; it must be a whole number"),
        ("train.steps", 0, "`train.steps` is 0; it must be 1 or more"),
        ("train.compile", 1, "'config.json': train.compile is 1; it must be true or false"),
        ("train.stepz", 1, "'config.json' has an unknown entry 'train.stepz'; did you mean 'train.steps'?"),
        ("net.layer", 1, "'config.json' has an unknown entry 'net.layer'; did you mean 'net.layers'?"),
        ("netz", {}, "'config.json' has an unknown entry 'netz'; did you mean 'net'?"),
        ("net", 3, "'config.json': net is 3; it must be an object"),
        ("data.path", 3, "'config.json': data.path is 3; it must be a text"),
        ("format", FORMAT + 1, f"'config.json' was written by format {FORMAT + 1}, this is Zellige 0.2 (format {FORMAT}); "
                               "install a newer Zellige"),
        ("format", "x", "'config.json' has format 'x'; it must be a whole number of 1 or more"),
        ("method", ["mdlm"], "'config.json': method is ['mdlm']; it must be a text"),
        ("method", "focal", "'focal' is not a method of Zellige; hand its class over, e.g. load(path, method=Focal)"),
    ],
)  # fmt: skip
def test_wrong_json(place, value, message):
    with pytest.raises(InputError) as caught:
        from_json(broken(place, value))
    assert str(caught.value) == message


def test_other_json():
    for other in ({}, [], {"model_type": "bert"}):
        with pytest.raises(InputError, match="is not the config of a Zellige model"):
            from_json(other)  # pyright: ignore[reportArgumentType]
    missing = plain()
    del missing["train"]
    with pytest.raises(InputError, match="has no entry 'train'"):
        from_json(missing)


@pytest.mark.parametrize("section", ["options", "data", "net", "train"])
def test_an_entry_that_is_missing_is_named(section):
    for entry in plain()[section]:
        if f"{section}.{entry}" in LATER:
            continue
        missing = plain()
        del missing[section][entry]
        with pytest.raises(InputError) as caught:
            from_json(missing)
        wanted = f"'config.json' has no entry '{section}.{entry}'; copy it again from where it was trained"
        assert str(caught.value) == wanted


def test_what_earlier_versions_wrote(monkeypatch):
    """An entry that came later has the value that files without it mean, and an entry's earlier name is read."""
    monkeypatch.setitem(LATER, "net.classes", 3)
    monkeypatch.setitem(RENAMED, "train.batch_size", "train.batch")
    earlier = plain()
    for entry in ("classes", "kind", "channels", "multipliers", "blocks", "attention"):
        del earlier["net"][entry]
    earlier["train"]["batch_size"] = earlier["train"].pop("batch")
    now = from_json(earlier)
    assert now.net == replace(example().net, classes=3)  # else what a Net is that says nothing of U-Nets
    assert now.train.batch == example().train.batch
    assert from_json(plain()) == example()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"steps": 0}, "`train.steps` is 0; it must be 1 or more"),
        ({"steps": "twelve"}, "`train.steps` is 'twelve'; it must be a whole number"),
        ({"batch": -1}, "`train.batch` is -1; it must be 1 or more"),
        ({"workers": -1}, "`train.workers` is -1; it must be 0 or more"),
        ({"lr": 0.0}, "`train.lr` is 0; it must be above 0"),
        ({"lr": float("nan")}, "`train.lr` is nan; it must be a number"),
        ({"ema": 1.0}, "`train.ema` is 1; it must be at least 0 and below 1"),
        ({"betas": (0.9, 1.5)}, "`train.betas` is 1.5; it must be at least 0 and below 1"),
        ({"clip": -1.0}, "`train.clip` is -1; it must be 0 or more"),
        ({"decay": "linear"}, "`train.decay` is 'linear'; it must be cosine, constant or inverse-sqrt"),
        ({"precision": "float16"}, "`train.precision` is 'float16'; it must be auto, float32, tf32 or bfloat16"),
        ({"validate_rows": 1}, "`train.validate_rows` is 1; it must be 2 or more (an interval needs two), or 0 for all"),
    ],
)  # fmt: skip
def test_ranges(choice, message):
    with pytest.raises(InputError) as caught:
        Train(**choice)
    assert str(caught.value) == message


@dataclass(frozen=True)
class Line:
    slope: float = 1.0


@dataclass(frozen=True)
class Curve:
    slope: float = 2.0


@dataclass(frozen=True)
class Bent:
    shape: Line | Curve = Curve()


class Own(MDLM):
    name = "own"
    Config = Bent


def test_own_method_with_a_choice_between_dataclasses():
    """The two have the same entries: only a tag tells them apart."""
    for shape in (Line(3.0), Curve(3.0)):
        config = replace(example(), method="own", options=Bent(shape))
        back = from_json(json.loads(json.dumps(to_json(config))), method=Own)
        assert back == config
        assert type(back.options.shape) is type(shape)
        inner = to_json(config)["options"]["shape"]
        del inner["slope"]
        with pytest.raises(InputError, match=r"has no entry 'options\.shape\.slope'"):
            from_json(to_json(config) | {"options": {"shape": inner}}, method=Own)
