"""`zellige.pipeline` is the verbs behind it: the same texts, the same bounds, whatever stands beside them."""

import inspect
import math
import re
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

import zellige
from zellige import InputError, Net
from zellige.data import tokenizer as tk
from zellige.data.levels import Levels
from zellige.evaluation import conditional
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.published import PublishedChoices
from zellige.plugins.adapters import pipelines
from zellige.plugins.published.layout import Choices
from zellige.sampling import infill, sample
from zellige.sampling.choices import SamplerChoices

L = 16


def model(name="mdlm", tokenizer=None, length=L, **net):
    torch.manual_seed(0)
    tokenizer = tokenizer or tk.Characters(tk.TEXT8)
    sizes = Net(layers=1, hidden=16, heads=2, length=length, **net)
    method = build(name, tokenizer.size, sizes, ordered=tokenizer.ordered)
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return zellige.Model(method, tokenizer, Config(name, method.config, zellige.Data(), sizes, zellige.Train()))


@pytest.fixture(scope="module")
def text():
    return model()


@pytest.fixture(scope="module")
def grid():
    return model(tokenizer=Levels(4, (4, 4), "grid", "cell", False))


def test_samples_are_those_of_sample(text):
    how: Any = {"steps": 4, "seed": 3, "temperature": 0.8}
    draw = zellige.pipeline("sample", text, **how)
    assert draw() == zellige.sample(text, **how)[0]
    assert draw(count=3) == zellige.sample(text, count=3, **how)
    assert draw("the ", seed=1) == zellige.sample(text, prompt="the ", **how | {"seed": 1})[0]
    prompts = ["the ", "a ", "value"]
    together = zellige.sample(text, prompt=prompts, count=6, **how)
    assert draw(prompts, count=2) == [together[:2], together[2:4], together[4:]]
    assert draw(prompts[:1]) == [draw("the ")]
    assert draw([]) == []


def test_gaps_are_filled_as_by_infill(text, grid):
    fill = zellige.pipeline("infill", text, steps=4)
    assert fill("the ____ of") == zellige.infill(text, "the ____ of", steps=4)[0]
    assert fill(["the ____", "a __ is"], count=2, seed=1) == zellige.infill(
        text, ["the ____", "a __ is"], steps=4, count=2, seed=1
    )
    puzzle = "12...............4"[:16]
    fill = zellige.pipeline("infill", grid, steps=4)
    assert (fill(puzzle) == zellige.infill(grid, puzzle, steps=4)[0]).all()
    assert (np.stack(fill([puzzle, puzzle])) == np.asarray(zellige.infill(grid, [puzzle, puzzle], steps=4))[:, 0]).all()
    rows = np.full((2, 16), -1)
    rows[:, 0] = 3
    assert [each.tolist() for each in fill(rows)] == np.asarray(zellige.infill(grid, fixed=rows, steps=4))[
        :, 0
    ].tolist()
    assert fill(rows[0]).tolist() == np.asarray(zellige.infill(grid, fixed=rows[0], steps=4))[0].tolist()


def test_a_score_is_the_bound_of_the_text(text):
    judge = zellige.pipeline("score", text, draws=8, seed=2)
    texts = ["the value", "a", "the value of the object is returned"]  # the last is longer than the network
    bounds = conditional.bound(text, [("", each) for each in texts], draws=8, seed=2)
    scores = judge(texts)
    assert [score.nats for score in scores] == pytest.approx(bounds.nats.tolist())
    assert judge(texts[0]).nats == pytest.approx(scores[0].nats)
    assert [score.value for score in scores] == pytest.approx(
        [s.nats / math.log(2) / len(t) for s, t in zip(scores, texts)]
    )
    assert {(score.kind, score.unit) for score in scores} == {("bound", "bits/char")}
    assert re.fullmatch(r"≤ \S+ ± \S+ bits/char \(95%\), in all \S+ ± \S+ nats", str(scores[0]))
    assert judge([]) == []


def test_a_score_of_ar_is_exact_and_that_of_uniform_noise_has_a_note():
    score = zellige.pipeline("score", model("ar"))("the value")
    assert (score.kind, score.half, score.note) == ("exact", 0.0, None)
    assert str(score).startswith("= ")
    assert "approximate" in (zellige.pipeline("score", model("udlm"))("the value", draws=2).note or "")


def test_a_score_of_rows_with_a_shape(grid):
    judge = zellige.pipeline("score", grid, draws=4)
    rows = torch.randint(4, (3, 4, 4), generator=torch.Generator().manual_seed(0))
    scores = judge(rows)
    assert [score.unit for score in scores] == ["bits/cell"] * 3
    assert judge(rows.flatten(1).numpy()) == scores
    one = judge(rows[0])
    assert one == judge(rows[0].flatten())
    assert (one.nats, one.half) == pytest.approx(
        (scores[0].nats, scores[0].half)
    )  # what stands beside it moves a last digit


def test_classes(grid):
    spoken = model(classes=2)
    draw, judge = zellige.pipeline("sample", spoken), zellige.pipeline("score", spoken)
    assert draw(classes=range(2), steps=2) == zellige.sample(spoken, classes=[0, 1], steps=2)
    assert len(draw(["a", "b"], classes=[0, 1], steps=2)[1]) == 2
    one, other = judge(["the", "the"], classes=[0, 1])
    assert one.nats != other.nats == pytest.approx(judge("the", classes=1).nats)
    with pytest.raises(InputError, match="there are 2 classes and 1 texts; give one, or one for each text"):
        judge("the", classes=[0, 1])


WRONG = {
    ("generate",): "unknown task 'generate'; here it is pipeline(\"sample\", model)",
    ("scoer",): "unknown task 'scoer'; did you mean 'score'? (all: sample, infill, score)",
    ("score", ("steps", 3)): "`steps` goes with 'sample' and 'infill', not with 'score'; leave it out",
    ("sample", ("draws", 3)): "`draws` goes with 'score', not with 'sample'; leave it out",
    ("sample", ("steps", 0)): "`steps` is 0; it must be 1 or more",
    ("infill", ("sampler", "metropols")): "unknown sampler 'metropols'; did you mean 'metropolis'?",
    ("score", ("draws", 0)): "`draws` is 0; it must be 1 or more",
    ("score", ("num_samples", 2)): "pipeline() has no argument 'num_samples'; it has draws, seed, batch, classes",
    ("sample", ("num_samples", 2)): "pipeline() has no argument 'num_samples'; did you mean 'count'?",
    ("sample", ("classes", "cat")): "the model was trained without classes",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_is_wrong_is_said_before_there_is_a_text(wrong, text):
    task, *choices = wrong
    with pytest.raises((InputError, TypeError), match=re.escape(WRONG[wrong])):
        zellige.pipeline(task, text, **dict(choices))


@pytest.mark.parametrize("task", ["sample", "infill", "score"])
def test_what_is_no_text(task, text):
    pipe = zellige.pipeline(task, text)
    name = "prompt" if task == "sample" else "text"
    with pytest.raises(InputError, match=re.escape(f"`{name}` is 3; it must be a text, or a list of texts")):
        pipe(3)
    with pytest.raises(InputError, match=re.escape(f"text 1 of `{name}` is None; it must be a text")):
        pipe(["a_", None])


def test_a_method_without_a_bound_scores_nothing():
    with pytest.raises(InputError, match="csm defines no likelihood bound"):
        zellige.pipeline("score", model("csm"))


# ------------------------------------------------------------------------------------------------------- signatures


def names(function, *without):
    return {name for name in inspect.signature(function).parameters if name not in {"self", *without}}


def test_signatures_name_every_option():
    every = {*get_type_hints(SamplerChoices)}
    for verb in (zellige.sample, zellige.watch, zellige.infill):
        assert every <= names(verb)
    assert {*get_type_hints(PublishedChoices)} == {*Choices.__dataclass_fields__} <= names(zellige.load)
    assert {*get_type_hints(pipelines.SamplingChoices)} == names(
        sample.sample, "model", "prompt", "chat", "fixed", "alone", "reconstruct", "noise"
    )
    assert {*get_type_hints(pipelines.InfillChoices)} == names(infill.infill, "model", "text", "fixed")
    assert {*get_type_hints(pipelines.ScoreChoices)} == names(conditional.bound_tokens, "method", "pairs", "progress")
    assert names(zellige.pipeline, "task", "model") == {*get_type_hints(pipelines.AnyChoices)}
    for cls in (pipelines.Sampling, pipelines.Infilling, pipelines.Scoring):
        assert names(cls.__call__, "prompt", "text") == {*get_type_hints(cls.takes)}


def test_no_public_call_hides_its_options():
    for name in zellige.__all__:
        value = getattr(zellige, name)
        if inspect.isfunction(value):
            assert inspect.Parameter.VAR_KEYWORD not in {
                p.kind for p in inspect.signature(value).parameters.values()
            }, name
    assert not names(zellige.Data.of) & {"choices"}
