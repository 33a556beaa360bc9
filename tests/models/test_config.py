import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zellige import METHODS, Config, Data, InputError, Net, Train
from zellige.methods.mdlm import MDLM
from zellige.models.config import from_json, to_json


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
        decay=st.sampled_from(["cosine", "wsd", "constant"]),
        compile=st.booleans(),
        wandb=st.text(),
    )
)
def test_any_choice_comes_back_exactly(train):
    config = replace(example(), train=train)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


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
        ("format", 2, "'config.json' has format 2; Zellige 0.2.0 reads format 1"),
        ("format", "x", "'config.json' has format 'x'; Zellige 0.2.0 reads format 1"),
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
        missing = plain()
        del missing[section][entry]
        with pytest.raises(InputError) as caught:
            from_json(missing)
        wanted = f"'config.json' has no entry '{section}.{entry}'; copy it again from where it was trained"
        assert str(caught.value) == wanted


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
        ({"decay": "linear"}, "`train.decay` is 'linear'; it must be cosine, wsd, constant or inverse-sqrt"),
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
