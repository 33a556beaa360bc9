"""Requests for samples: each field is declared once and stands everywhere; a record is saved, loaded and drawn again."""

import inspect
import json
import math
from dataclasses import replace

import pytest
import torch

import zellige
from web.small_models import small
from zellige import InputError, Record
from zellige.cli.drawing import InfillOptions, SampleOptions
from zellige.cli.flags import flags
from zellige.models import defaults
from zellige.models.decoding import DECODING, WATCHED
from zellige.samplers import Ancestral, Blockwise, Confidence, Truncated
from zellige.samplers.smc import Constant, Group, Weighed
from zellige.sampling.samples import Samples


def test_a_field_of_decoding_stands_everywhere():
    body = pytest.importorskip("zellige.plugins.web.body", reason="the extra `web` is missing")
    for function in (zellige.sample, zellige.watch, zellige.infill, zellige.pipeline):
        assert {*DECODING} <= {*inspect.signature(function).parameters}
    for command in (SampleOptions, InfillOptions):
        assert {f"--{name.replace('_', '-')}" for name in DECODING} <= {*flags(command)}
    assert {*WATCHED, "options"} == {*body.DecodingBody.model_fields}
    assert {*DECODING} <= {*defaults.names()}


@pytest.mark.parametrize(
    "request_",
    [
        zellige.Sample(count=2, seed=3, prompt="the ", temperature=0.7),
        zellige.Sample.of(count=2, sampler="confidence", confidence="margin", steps=4),
        zellige.Sample.of(count=3, batch=2, sampler="tau_leaping", steps=4),
        zellige.Sample(seed=[(1, 4), (2, 0)], count=2, prompt=["the", "a"], steps=4),
        zellige.Infill(text="the ____ is", seed=1, steps=4),
        zellige.Infill(text=["a _", "the __"], count=2, mask_token="_"),
        zellige.Sample(sampler=Ancestral("cosine", top_k=3), steps=4),
    ],
    ids=str,
)
def test_a_record_is_saved_and_drawn_again(request_, tmp_path):
    model = small()
    samples = request_.run(model)
    samples.save(tmp_path / "a.json")
    loaded = Record.load(tmp_path / "a.json")
    assert type(loaded.request) is type(request_)
    assert (loaded.texts, loaded.tokens, loaded.calls, loaded.steps) == (
        samples.texts, samples.tokens, samples.calls, samples.steps
    )  # fmt: skip
    assert (loaded.distribution, loaded.expected_calls) == (samples.distribution, samples.expected_calls)
    assert loaded.summary == samples.summary
    assert ("in a leap" in str(loaded)) == (request_.sampler == "tau_leaping")
    assert loaded.request.run(model).tokens == samples.tokens
    samples.save(tmp_path / "a.jsonl")
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == json.loads(
        json.dumps(samples.lines())
    )


def test_guidance_is_inside_of_the_truncation():
    """A method around the method changes what is sampled, in every function; the record holds none of it."""
    model = small()
    sharpen = lambda method: Truncated(method, temperature=0.0)  # noqa: E731
    samples = zellige.Sample(seed=1, steps=4, top_p=0.9, around=sharpen).run(model)
    plain, cold = zellige.sample(model, seed=1, steps=4), zellige.sample(model, seed=1, steps=4, temperature=0.0)
    assert samples.texts == cold != plain
    assert zellige.sample(model, seed=1, steps=4, around=sharpen) == cold
    assert zellige.infill(model, "a ____", around=sharpen) == zellige.infill(model, "a ____", temperature=0.0)
    assert samples.request.around is None
    unchanged = zellige.Sample(steps=4, around=lambda method: method).run(model).distribution
    assert unchanged.key.endswith(", guided")
    assert unchanged.number is None


def test_a_block_sampler_that_is_made_is_written_by_name():
    made = Blockwise(Confidence("margin"), temperature=0.5)
    entries = zellige.Sample(sampler=made).to_dict()
    assert (entries["sampler"], entries["block_sampler"]) == ("blockwise", "confidence")
    assert (entries["confidence"], entries["temperature"]) == ("margin", 0.5)
    model = small(name="bd3lm", block=4)
    again = zellige.Sample.from_dict(json.loads(json.dumps(entries)))
    assert again.run(model).tokens == zellige.Sample(sampler=made).run(model).tokens


def test_a_field_that_there_is_not_is_named(tmp_path):
    with pytest.raises(InputError, match="Sample has no field 'temperatures'; did you mean 'temperature'"):
        zellige.Sample.from_dict({"temperatures": 1})
    with pytest.raises(InputError, match="'it': `count` is 0; it must be 1 or more"):
        zellige.Sample.from_dict({"count": 0})


def without_abc(texts):
    """A reward that forbids the letters a, b and c."""
    return [-math.inf if {*"abc"} & {*text} else 0.0 for text in texts]


def test_samples_that_a_reward_forbids_are_counted_and_named(tmp_path):
    request = zellige.Sample(
        count=12, seed=0, length=10, steps=3, batch=5, reward=without_abc, options={"particles": 2}
    )
    samples = request.run(small())
    forbidden = [bool({*"abc"} & {*text}) for text in samples.texts]
    assert samples.summary.forbidden == forbidden
    assert 2 <= sum(forbidden) < 12
    numbers = [number for number, word in enumerate(forbidden, 1) if word]
    assert f"the reward forbids {len(numbers)} of 12 samples (-inf): {', '.join(map(str, numbers))}" in str(samples)
    assert [line.get("forbidden", False) for line in samples.lines()] == forbidden
    samples.save(tmp_path / "a.json")
    assert Record.load(tmp_path / "a.json").summary.forbidden == forbidden
    only = replace(samples, summary=Weighed([None] * 12, [True] * 12))
    assert str(only).endswith("12 of 12 samples (-inf): " + ", ".join(map(str, range(1, 13))))
    assert str(replace(only, texts=["a"] * 25, summary=Weighed([None] * 25, [True] * 25))).endswith(
        ", 19, 20 and 5 more"
    )
    allowed = zellige.Sample(count=2, seed=0, steps=3, reward=lambda texts: [0.0] * len(texts)).run(small())
    assert "forbids" not in str(allowed)


@pytest.mark.parametrize(
    "request_",
    [
        zellige.Sample(count=3, steps=2, reward=lambda texts: [-math.inf] * len(texts)),
        zellige.Sample(steps=2, reward=lambda texts: [-math.inf] * len(texts), options={"particles": 1}),
        zellige.Infill(text=["a_c", "dd__"], count=2, steps=2, reward=lambda texts: [-math.inf] * len(texts)),
        zellige.Infill(text="a___", reward=lambda texts: [-math.inf] * len(texts)),
    ],
    ids=["samples", "a sample of one particle", "filled texts", "a filled text"],
)
def test_a_reward_that_forbids_every_sample_is_refused(request_):
    with pytest.raises(InputError, match=r"`reward` forbids (all \d samples|the sample) \(-inf for every particle\)"):
        request_.run(small())


def test_one_of_several_filled_texts_may_be_forbidden():
    samples = zellige.Infill(text=["a_c", "dd__"], count=2, steps=2, reward=without_abc).run(small())
    assert samples.summary.forbidden[:2] == [True, True]
    assert not all(samples.summary.forbidden)


def group(log_z, ess=3.5):
    return Group(log_z, ess, 1, [0.75, 0.25], [[0], [1]])


def weighed(*log_z, classes=None):
    n = len(log_z)
    summary = Weighed([*map(group, log_z)], [False] * n)
    return str(Samples(["a"] * n, [[0]] * n, [1] * n, 1, 0.9, summary=summary, classes=classes or [None] * n))


def test_log_z_has_its_interval_or_the_reason_that_it_has_none():
    constant = Constant.of(torch.tensor([-1.0, -1.5, -0.5, -1.25, -2.0], dtype=torch.float64))
    shown = weighed(-1.0, -1.5, -0.5, -1.25, -2.0)
    assert f"2 particles each: log Z {constant.value:.3f} ± {constant.half:.3f}, effective" in shown
    assert "determined" not in shown
    dominated = weighed(0.0, -9.0, -9.0, -9.0, -math.inf)
    assert "log Z -1.609 ± unknown, effective" in dominated
    assert "log Z is not determined: one of 5 samples has nearly all of the weight; take more samples" in dominated
    few = weighed(-1.0, -1.0, -1.0)
    assert "log Z -1.000 ± unknown, effective" in few
    assert "log Z has no interval of fewer than 4 samples; take more samples" in few
    assert "log Z -2.500, effective" in weighed(-2.5)
    assert "log Z -2.500 to -1.000, effective" in weighed(
        -1.0, -2.5, -math.inf, -2.0, -1.5, classes=["a", "b", "a", "b", "a"]
    )
