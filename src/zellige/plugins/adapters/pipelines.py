"""A model as a function of texts, like Hugging Face's pipelines: a text in, a text out; a list in, a list out.

    fill = zellige.pipeline("infill", "runs/demo", steps=16)
    fill("the ____ of the ________")        # one text
    fill(["a ____", "an ________"])         # two

They call `zellige.infill`, `zellige.sample` and the bound of a text (`evaluation.conditional`), which batch the texts.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack, get_type_hints, overload

from numpy.typing import ArrayLike

from zellige.base.arguments import checked, of_kind
from zellige.base.errors import ELSEWHERE, InputError, meant, unknown
from zellige.core.batch import whole_numbers
from zellige.evaluation import conditional
from zellige.evaluation.conditional import TextScore, text_scores
from zellige.models.class_names import find_classes
from zellige.models.model import Model, as_model
from zellige.sampling.choices import InfillChoices, SamplingChoices
from zellige.sampling.infill import infill
from zellige.sampling.sample import Sample, sample
from zellige.sampling.tokens import flat_rows
from zellige.show.kinds import of

if TYPE_CHECKING:
    from zellige.models.model import ModelSource


class ScoreChoices(TypedDict, total=False):
    """The arguments of `pipeline("score", ...)`.

    draws: Monte Carlo samples of the bound of each text. seed: of the draws, with the tokens of the text.
    batch: rows (texts x draws) in one network evaluation. classes: the class that each text is scored given.
    """

    draws: int
    seed: int
    batch: int
    classes: Any


class AnyChoices(InfillChoices, total=False):
    """The arguments of any task."""

    draws: int


class Pipeline:
    """A model with choices, as a function.

    Attributes:
        model, choices: as `pipeline` was given them; the choices of a call override these.
    """

    task: ClassVar[str]
    takes: ClassVar[type]  # the TypedDict of its choices

    def __init__(self, model: "ModelSource", **choices: Any):
        self.model: Model = as_model(model)
        self.choices = self.chosen(choices, "pipeline()")
        self.check(self.choices)

    def chosen(self, choices: dict[str, Any], title: str) -> dict[str, Any]:
        """The choices of the pipeline with those of a call; an error for an argument of another task."""
        names = [*get_type_hints(self.takes)]
        for name in choices:
            if name in names:
                continue
            if name in get_type_hints(AnyChoices):
                takers = " and ".join(f"'{task}'" for task, cls in TASKS.items() if name in get_type_hints(cls.takes))
                raise InputError(f"`{name}` goes with {takers}, not with '{self.task}'; leave it out")
            near = meant(name, names)
            hint = f"did you mean '{near}'?" if near else f"it has {', '.join(names)}"
            raise TypeError(f"{title} has no argument '{name}'; {hint}")
        return getattr(self, "choices", {}) | choices

    def check(self, how: dict[str, Any]) -> None:
        """InputError where the model does not support the choices, as far as that can be checked without a text."""
        Sample.of(**{name: value for name, value in how.items() if name != "mask_token"}).trajectory(
            self.model
        ).frames()

    def __repr__(self) -> str:
        choices = "".join(f", {name}={value!r}" for name, value in self.choices.items())
        return f"<pipeline {self.task}{choices}: {self.model!r}>"


class Sampling(Pipeline):
    """`pipeline("sample", model)`: samples, free or continuing prompts."""

    task, takes = "sample", SamplingChoices

    @partial(checked, kinds=False)
    def __call__(self, prompt: str | Sequence[str] | None = None, **choices: Unpack[SamplingChoices]) -> Any:
        """Return a text, or a list of `count` if that is not 1; of a list of prompts one of these for each.

        Images, music and grids are arrays of tokens instead.
        """
        how = self.chosen({**choices}, "a pipeline")
        if prompt is None or isinstance(prompt, str):
            return _single(sample(self.model, prompt=prompt, **how))
        prompts, count = _texts("prompt", prompt, empty=True), how.pop("count", 1)
        several = how.get("classes") is not None and len(find_classes(self.model, how["classes"])) > 1
        if several or not prompts:
            return [self(prompt_of_list, **how, count=count) for prompt_of_list in prompts]  # pyright: ignore[reportCallIssue]
        texts = sample(self.model, prompt=prompts, count=count * len(prompts), **how)
        return [_single(texts[i : i + count]) for i in range(0, len(texts), count)]


class Infilling(Pipeline):
    """`pipeline("infill", model)`: texts with their masked spans filled."""

    task, takes = "infill", InfillChoices

    @partial(checked, kinds=False)
    def __call__(self, text: Any, **choices: Unpack[InfillChoices]) -> Any:
        """Return the filled text, or a list of `count` if that is not 1; of a list of texts one of these for each.

        text: with masked spans, as `zellige.infill` reads them; of images, music and grids also tokens, (L,) or (N, L),
            -1 where one is sampled, and an array of tokens comes back.
        """
        how = self.chosen({**choices}, "a pipeline")
        if not of(self.model.tokenizer).running and not _are_texts(text):
            rows = flat_rows(whole_numbers("text", text), self.model.tokenizer.shape)
            texts = infill(self.model, fixed=rows, **how)
            return _single(texts) if rows.ndim == 1 else [_single(prompt_of_list) for prompt_of_list in texts]
        texts = infill(self.model, text if isinstance(text, str) else _texts("text", text, empty=True), **how)
        return _single(texts) if isinstance(text, str) else [_single(prompt_of_list) for prompt_of_list in texts]


class Scoring(Pipeline):
    """`pipeline("score", model)`: how likely texts are."""

    task, takes = "score", ScoreChoices

    def check(self, how: dict[str, Any]) -> None:
        self.judge([], how)

    @overload
    def __call__(self, text: str, **choices: Unpack[ScoreChoices]) -> TextScore: ...
    @overload
    def __call__(self, text: list[str], **choices: Unpack[ScoreChoices]) -> list[TextScore]: ...
    @overload
    def __call__(self, text: Any, **choices: Unpack[ScoreChoices]) -> Any: ...
    @partial(checked, kinds=False)
    def __call__(self, text: Any, **choices: Unpack[ScoreChoices]) -> Any:
        """Return a `TextScore`; of a list one of each.

        text: one or several; of images, music and grids tokens, (*shape) or (N, *shape).
        """
        how = self.chosen({**choices}, "a pipeline")
        tokenizer = self.model.tokenizer
        if not of(tokenizer).running:
            rows, alone = self.rows(text)
            units = [len(row) for row in rows]
        else:
            texts, alone = _texts("text", text), isinstance(text, str)
            rows = [tokenizer.encode(prompt_of_list, "the text") for prompt_of_list in texts]
            units = [len(prompt_of_list) for prompt_of_list in (rows if tokenizer.unit == "token" else texts)]
        if not rows:
            return []
        scores = text_scores(self.model, self.judge(rows, how), map(len, rows), units)
        return scores[0] if alone else scores

    def judge(self, rows: list[list[int]], how: dict[str, Any]) -> conditional.Conditional:
        """The bounds of rows of tokens."""
        classes = None if how.get("classes") is None else find_classes(self.model, how["classes"])
        if classes is not None and rows:
            if len(classes) not in (1, len(rows)):
                raise InputError(
                    f"there are {len(classes)} classes and {len(rows)} texts; give one, or one for each text"
                )
            classes = classes.expand(len(rows))
        rest = {name: value for name, value in how.items() if name != "classes"}
        return conditional.bound_tokens(self.model.method, [([], row) for row in rows], classes=classes, **rest)

    def rows(self, values: ArrayLike) -> tuple[list[list[int]], bool]:
        """Rows of tokens, flat; and whether there is a single one."""
        kind, size = of(self.model.tokenizer), self.model.tokenizer.size
        tokens, places = flat_rows(whole_numbers("text", kind.tokens(values)), kind.shape), math.prod(kind.shape)
        if tokens.ndim not in (1, 2) or tokens.shape[-1] != places:
            form = ", ".join(map(str, kind.shape))
            shape = tuple(whole_numbers("text", values).shape)
            raise InputError(f"`text` has shape {shape}, and the model makes {kind.many}; give (N, {form}) tokens")
        low, high = (int(end) for end in tokens.aminmax()) if tokens.numel() else (0, 0)
        if low < 0 or high >= size:
            raise InputError(f"`text` holds {low if low < 0 else high:,}; tokens are 0 to {size - 1:,}")
        return tokens.reshape(-1, places).tolist(), tokens.ndim == 1


def _single(values: Any) -> Any:
    return values[0] if len(values) == 1 else values


def _are_texts(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value)
    )


def _texts(name: str, value: object, empty: bool = False) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)):
        raise InputError(f"`{name}` is {of_kind(value)}; it must be a text, or a list of texts")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {number:,} of `{name}` is {of_kind(text)}; it must be a text")
        if not text and not empty:
            raise InputError(f"text {number:,} of `{name}` is empty; give texts of one character or more")
    return list(texts)


TASKS: dict[str, type[Pipeline]] = {cls.task: cls for cls in (Sampling, Infilling, Scoring)}


@overload
def pipeline(task: Literal["sample"], model: "ModelSource", **choices: Unpack[SamplingChoices]) -> Sampling: ...
@overload
def pipeline(task: Literal["infill"], model: "ModelSource", **choices: Unpack[InfillChoices]) -> Infilling: ...
@overload
def pipeline(task: Literal["score"], model: "ModelSource", **choices: Unpack[ScoreChoices]) -> Scoring: ...
@checked
def pipeline(task: str, model: "ModelSource | None" = None, **choices: Unpack[AnyChoices]) -> Pipeline:
    """A model as a function: `fill = pipeline("infill", "runs/demo")`, then `fill("the ____ of")`.

    Args:
        task: "sample" (prompts or nothing in, texts out), "infill" (texts with masked spans in, filled ones out) or
            "score" (texts in, a `TextScore` of each out: nats, bits per character, bound or exact).
        model: a `Model`, a finished run, or a run folder, a saved folder or a hub id.
        choices: the arguments of `zellige.sample` or `zellige.infill`; of a score `draws`, `seed`, `batch` and
            `classes`. A call of what comes back may give others.

    Returns:
        `Sampling`, `Infilling` or `Scoring`: call it with a text, a list of texts, or (to sample) with nothing.

    Raises:
        InputError: no such task, one that the model cannot do, or a choice out of its range: before there is any text.
    """
    if task_here := ELSEWHERE["pipeline"].get(task):
        raise InputError(f"unknown task '{task}'; here it is pipeline(\"{task_here}\", model)")
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    if model is None:
        raise InputError(f'pipeline("{task}") needs a model; give one, its path or its name')
    return TASKS[task](model, **choices)
