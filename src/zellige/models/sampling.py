"""Requests for samples: every field is declared here once, with its help, its range and its default.

`Decoding` is the strategy by which tokens are sampled, which a model may carry in its generation_config.json;
`Sampling` adds the fields of one request. `zellige.Sample` and `zellige.Infill` are such requests. The functions of
Python, pipelines, the command line, the web page, the endpoint and the harness read these fields. Importing this file
imports no torch.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self

from ..base.arguments import checked_methods
from ..base.errors import InputError, nearest
from ..base.requests import TEMPERATURE, TOP_K, TOP_P, Request, aside, declared, option, options_of, step_size

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..samplers import Sampler

BATCH = 16  # samples drawn at once
STEPS = 1_000_000  # of a sampler, at most
SYMMETRIES: dict[str, Any] = {
    "help": "average the network over so many symmetric copies of what it reads (sudokus, mirrored images, both strands of DNA): "
    "better, and as many times slower; 1: as it is",
    "minimum": 1,
    "maximum": 1024,
}


def own(about: Mapping[str, Any], otherwise: str) -> dict[str, Any]:
    """Return an option of truncation whose help says that a model may carry a default, and what holds otherwise."""
    return {**about, "help": f"{about['help']}; default: the model's own, else {otherwise}"}


@checked_methods
@declared
class Decoding:
    """Sampling strategy. A field that is None is left to the model's defaults, then to the method and the sampler."""

    steps: int | None = option(
        "sampling steps: fewer are faster, more are better; default: the model's own, else T of a model of T steps, "
        "else 64",
        default=None,
        minimum=1,
        maximum=STEPS,
    )
    sampler: Any = option(
        "how tokens are sampled (zellige list samplers); default: the model's own, else the method's, ancestral for "
        "most",
        default=None,
        typed=str | None,
    )
    temperature: float | None = option(**own(TEMPERATURE, "1"), default=None)
    top_p: float | None = option(**own(TOP_P, "1, all of them"), default=None)
    top_k: int | None = option(**own(TOP_K, "all"), default=None)
    guidance: float | None = option(
        "strength of guidance to the class: 0 ignores it, 1 is the class as trained, more exaggerates it; with a "
        "classifier the power of P(class | text), with a reward its factor; default: the model's own, else 1",
        default=None,
        minimum=0,
        maximum=1000,
    )
    symmetries: int | None = option(**SYMMETRIES, default=None)
    options: Mapping[str, Any] | None = option(
        "options of the sampler, by name; of a block sampler also those of the sampler inside",
        default=None,
        hidden=True,
    )
    around: Callable[[Any], Any] | None = aside(
        "a wrapper: takes the method and returns the one to sample from; temperature, top-p and top-k act on its "
        "predictions",
        default=None,
    )

    @classmethod
    def of(cls, **values: Any) -> Self:
        """The request with these fields; any other name is an option of the sampler."""
        names = {field.name for field in fields(cls)} - {"options"}
        options = dict(values.pop("options", None) or {})
        options |= {name: value for name, value in values.items() if name not in names}
        return cls(**{name: value for name, value in values.items() if name in names}, options=options)

    def decoding(self) -> dict[str, Any]:
        """The fields of `Decoding` that are given, and the options of the sampler beside them."""
        values = {name: getattr(self, name) for name in DECODING}
        return {name: value for name, value in values.items() if value is not None} | dict(self.options or {})

    @property
    def labels(self) -> Any:
        """The classes that are asked for; None where none is."""
        return None

    @property
    def infills(self) -> bool:
        """Whether tokens are given, and not only a beginning."""
        return False

    def advised(self, model: object) -> dict[str, Any]:
        """The model's defaults for this request: where tokens are given, those of `infill` come first."""
        values = dict(getattr(model, "defaults", {}))
        of_infill = values.pop(INFILL, None)
        return values | of_infill if of_infill and self.infills else values

    def with_defaults(self, model: object) -> Self:
        """The request with the defaults that the model carries for what it leaves open.

        Without a class there is no guidance. Another sampler than the model's takes neither its steps nor its options;
        a grid that gives the size of a step does not take their number; a sampler that is made already has all its
        options.
        """
        if self.sampler is not None and not isinstance(self.sampler, str):
            return self
        if (steered := self.steered()) is not self:
            return steered.with_defaults(model)
        own_options, model_defaults = self.decoding(), self.advised(model)
        if any(
            name in own_options and own_options[name] != model_defaults.get(name)
            for name in ("sampler", "block_sampler")
        ):
            model_defaults = {name: value for name, value in model_defaults.items() if name in KEPT}
        if self.labels is None:
            model_defaults.pop("guidance", None)
        grid = own_options.get("grid")
        if isinstance(grid, str) and step_size(grid) is not None:
            model_defaults.pop("steps", None)
        all_options = model_defaults | own_options
        options = {name: value for name, value in all_options.items() if name not in DECODING}
        return replace(
            self, **{name: value for name, value in all_options.items() if name in DECODING}, options=options
        )

    def steered(self) -> Self:
        """The request with the sampler of weighted particles, where one of its options is given and no sampler."""
        steers = getattr(self, "reward", None) is not None or not {"particles", "anneal"}.isdisjoint(self.options or {})
        return replace(self, sampler="smc") if steers and self.sampler is None else self

    def sampler_for(self, method: "Method", end: int | None = None, beside: Collection[str] = ()) -> "Sampler":
        """The sampler for a method.

        Args:
            end: the token that ends a text, where the sampler stops at one and no option names it.
            beside: more names that a caller may have meant by an unknown option.

        Raises:
            InputError: unknown sampler, an option that it does not take, a number out of its range, a method that it
                does not support.
        """
        from ..samplers import choose_sampler

        options = {"top_k": self.top_k} if self.top_k is not None else {}
        names = [field.name for field in fields(self) if field.name not in ("options", "around")]
        return choose_sampler(
            self.sampler,
            method,
            self.temperature,
            self.top_p,
            {**options, **(self.options or {})},
            end,
            [*names, *beside],
        )


INFILL = "infill"  # the entry of a model's defaults with different values for filling in
DECODING = tuple(options_of(Decoding))
KEPT = tuple(
    name for name in DECODING if name not in ("sampler", "steps")
)  # of a model's defaults, with another sampler


@declared
class Sampling(Decoding, Request[Any]):
    """Fields that all requests for samples share."""

    count: int = option("number of samples (with classes: of each class)", default=1, minimum=1)
    seed: int | Sequence[tuple[int, int]] = option(
        "random seed; each sample depends only on the seed and on its own number; in Python also a pair (seed, number) "
        "for each",
        default=0,
        typed=int,
    )
    length: int | None = option(
        "tokens per sample (default: the model's length, or drawn from those of its documents if it was given them in "
        "training); longer ones need a block sampler",
        default=None,
        minimum=1,
    )
    classes: Any = option(
        "class to sample (class-conditional models); by name or number; or several",
        default=(),
        flag="class",
        typed=tuple[str, ...],
    )
    classifier: Any = option(
        "classifier of noisy texts that guides to the class: the folder of zellige train classifier; in Python also an "
        "object",
        default=None,
        typed=str | None,
    )
    first_order: bool = option(
        "with a classifier: one evaluation and its gradient a step, not one evaluation for each token; faster, "
        "approximate",
        default=False,
    )
    reward: Any = option(
        "weigh samples by exp(reward), with particles: FILE.py:FUNCTION of a list of samples, or the folder of a "
        "classifier for log P(class | sample); in Python a function",
        default=None,
        typed=str | None,
    )
    batch: int = option("samples drawn at once; changes the speed, not the samples", default=BATCH, minimum=1)
    defaults: bool = option(
        "use the sampling options that the model recommends (its generation_config.json); else the method's",
        default=True,
    )

    @property
    def labels(self) -> Any:
        return None if isinstance(self.classes, tuple) and not self.classes else self.classes

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
