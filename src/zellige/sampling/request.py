"""Shared part of requests for samples: `zellige.Sample` and `zellige.Infill`.

Importing this file imports no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from ..base.errors import InputError, nearest
from ..base.requests import Request, declared, option, options_of, step_size
from ..models.decoding import BEST_OF, DECODING, INFILL, Decoding

if TYPE_CHECKING:
    from ..models.model import Model

BATCH = 16  # samples drawn at once
KEPT = tuple(name for name in DECODING if name not in ("sampler", "steps"))  # defaults that go with any sampler


@declared
class Sampling(Decoding, Request[Any]):
    """Fields that all requests for samples share."""

    count: int = option("number of samples (with classes: of each class)", default=1, minimum=1)
    seed: int | Sequence[tuple[int, int]] = option(
        "random seed; each sample depends only on the seed and its number; in Python also a pair (seed, number) for each "
        "sample",
        default=0,
        typed=int,
    )
    length: int | None = option(
        "tokens per sample, prompt included (default: the model's length; if it was trained with the lengths of documents,"
        " one of these, at random); longer samples need a block sampler",
        default=None,
        minimum=1,
    )
    classes: Any = option(
        "class to sample, by name or number, or several (class-conditional models)",
        default=(),
        flag="class",
        typed=tuple[str, ...],
    )
    classifier: Any = option(
        "classifier that guides samples to the class: a folder that zellige train classifier wrote; in "
        "Python also a NoisyClassifier",
        default=None,
        typed=str | None,
    )
    first_order: bool = option(
        "with `classifier`: approximate it by its gradient; faster, one evaluation per step instead of one for "
        "each possible token",
        default=False,
    )
    reward: Any = option(
        "weight samples by exp(reward) (sampler smc): FILE.py:FUNCTION, which takes a list of samples, "
        "or the folder of a classifier for log P(class | sample); in Python a function",
        default=None,
        typed=str | None,
    )
    batch: int = option("samples drawn at once; changes the speed, not the samples", default=BATCH, minimum=1)
    defaults: bool = option(
        "use the sampling options that the model recommends (its generation_config.json) instead of the method's",
        default=True,
    )

    @property
    def labels(self) -> list[Any] | None:
        """The requested classes, by name or number; None without any."""
        asked = self.classes.tolist() if hasattr(self.classes, "tolist") else self.classes
        if asked is None or asked == ():
            return None
        return list(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else [asked]

    @property
    def infills(self) -> bool:
        """Whether tokens are given, and not only a beginning."""
        return False

    @property
    def begins_noisy(self) -> bool:
        """Whether the samples begin from a noisy text."""
        return False

    def advised(self, model: object) -> dict[str, Any]:
        """The model's defaults for this request: where tokens are given, those of `infill` come first."""
        values = dict(getattr(model, "defaults", {}))
        of_infill = values.pop(INFILL, None)
        return values | of_infill if of_infill and self.infills else values

    def with_defaults(self, model: object) -> Self:
        """The request with the defaults that the model carries for what it leaves open, if it takes them (`defaults`).

        Without a class there is no guidance. Another sampler than the model's takes neither its steps nor its options;
        a grid that gives the size of a step does not take their number; a sampler that is made already has all its
        options.
        """
        if not self.defaults or not isinstance(self.sampler, str | None):
            return self
        if (steered := self.steered()) is not self:
            return steered.with_defaults(model)
        if not (model_defaults := self.advised(model)):
            return self
        own_options = self.decoding()
        if self._by_another(model, model_defaults):
            model_defaults = {name: value for name, value in model_defaults.items() if name in KEPT}
        if self.labels is None:
            model_defaults.pop("guidance", None)
        if self.sampler == "smc":  # which chooses by its own weights
            model_defaults.pop(BEST_OF, None)
        grid = own_options.get("grid")
        if isinstance(grid, str) and step_size(grid) is not None:
            model_defaults.pop("steps", None)
        all_options = model_defaults | own_options
        options = {name: value for name, value in all_options.items() if name not in DECODING}
        return replace(
            self, **{name: value for name, value in all_options.items() if name in DECODING}, options=options
        )

    def _by_another(self, model: object, model_defaults: Mapping[str, Any]) -> bool:
        """Whether the samples have another sampler than that of the defaults: it is named, or the defaults' own does
        not take an option that is given, or cannot begin with a noisy text."""
        own_options, names = self.decoding(), ("sampler", "block_sampler")
        if any(name in own_options and own_options[name] != model_defaults.get(name) for name in names):
            return True
        if not any(name in model_defaults for name in names):
            return False
        if self.begins_noisy:
            return True
        from ..samplers import every_option, find

        outer = model_defaults.get("sampler") or getattr(getattr(model, "method", None), "sampler", "blockwise")
        samplers = {find(name).name for name in (outer, model_defaults.get("block_sampler")) if name}
        taken_by = {name: {*takers} for name, (_, takers) in every_option().items()}
        return any(samplers.isdisjoint(taken_by.get(name, samplers)) for name in own_options)

    def steered(self) -> Self:
        """The request with the sampler of weighted particles, where no sampler is given and a reward or an option of
        that one is."""
        steers = self.reward is not None or not {"particles", "anneal"}.isdisjoint(self.options or {})
        return replace(self, sampler="smc") if steers and self.sampler is None else self

    def guided(
        self, model: "Model", end: int | None, width: int | None = None
    ) -> "tuple[tuple[Callable[[Any], Any], ...], Any]":
        """What is put around the method of a model, the innermost first; and whose classes the `labels` are: the model
        itself, or a classifier.

        Args:
            end: the token that ends a text, of a model trained on documents.
            width: how many tokens of a sample are its own; None: all.
        """
        strength, by_class, by_reward, conditional = self.guidance, None, None, model
        if self.reward is not None:
            from .reward import steer

            by_reward, conditional = steer(model, self.reward, strength, self.labels, end, width)
            strength = None  # it is that of the reward
            if conditional is not model and self.classifier is not None:
                raise InputError("`reward` is a classifier, and so is `classifier`; leave one of them out")
        if conditional is model and (strength is not None or self.classifier is not None or self.first_order):
            from .guidance import guide

            by_class, conditional = guide(model, strength, self.classifier, self.labels, self.first_order)
        return tuple(wrap for wrap in (by_class, by_reward, self.around) if wrap is not None), conditional

    def given_texts(self) -> list[str]:
        """The texts that the samples continue or fill, in order; [] without any."""
        return []

    def prompts(self, samples: int) -> list[str | None]:
        """The text that each of so many samples continues or fills."""
        texts = self.given_texts()
        return [texts[number * len(texts) // samples] if texts else None for number in range(samples)]

    def to_dict(self) -> dict[str, Any]:
        """The fields, and the options of the sampler beside them."""
        values = {name: getattr(self, name) for name in self.fields() if name != "options"}
        return {
            name: _plain(value) for name, value in (values | _named(self.sampler) | dict(self.options or {})).items()
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], source: str = "it") -> Self:
        from ..samplers import every_option

        own_entries = {name: value for name, value in entries.items() if name in cls.fields()}
        options = {name: value for name, value in entries.items() if name not in own_entries}
        for name in options:
            if name not in every_option():
                near = nearest(name, [*cls.fields(), *every_option()])
                hint = f"did you mean '{near}'?" if near else f"it has {', '.join(cls.fields())}"
                raise InputError(f"'{source}': {cls.__name__} has no field '{name}'; {hint}")
        if isinstance(own_entries.get("classes"), list):
            own_entries["classes"] = tuple(own_entries["classes"])
        return replace(super().from_dict(own_entries, source), options=options or None)


def _named(sampler: Any) -> dict[str, Any]:
    """A sampler that is made, as its name and its options; {} for a name."""
    if sampler is None or isinstance(sampler, str):
        return {}
    options = {name: getattr(sampler, name) for name in options_of(type(sampler))}
    if (inner := options.get("block_sampler")) is not None and not isinstance(inner, str):
        sampler_options = options_of(type(inner))
        options = {name: getattr(inner, name) for name in sampler_options} | options | {"block_sampler": inner.name}
    return {"sampler": sampler.name} | {name: value for name, value in options.items() if value is not None}


def _plain(value: Any) -> Any:
    """A value as JSON has it: tensors and arrays are lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(part) for part in value] if isinstance(value, list | tuple | range) else value
