"""The strategy by which tokens are sampled, which a model may carry in its generation_config.json (`defaults`).

Each field is declared here once, with its help, its range and its default. Requests for samples (`sampling.request`),
the command line, the web page, the endpoint and the harness read them. Importing this file imports no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

from ..base.arguments import checked_methods
from ..base.requests import TEMPERATURE, TOP_K, TOP_P, aside, declared, option, options_of

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..samplers import Sampler

STEPS = 1_000_000  # of a sampler, at most
SYMMETRIES: dict[str, Any] = {
    "help": "average the network's predictions over this many symmetric copies of its input (Sudokus, "
    "mirrored images, both strands of DNA): better, but this many times slower; 1: no average",
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
        "sampling steps: fewer are faster, more are better (default: the model's own, else the T of a "
        "model of T steps, else 64)",
        default=None,
        minimum=1,
        maximum=STEPS,
    )
    sampler: Any = option(
        "how tokens are sampled (zellige list samplers); default: the model's own, else the method's, for "
        "most ancestral",
        default=None,
        typed=str | None,
    )
    temperature: float | None = option(**own(TEMPERATURE, "1"), default=None)
    top_p: float | None = option(**own(TOP_P, "1, all of them"), default=None)
    top_k: int | None = option(**own(TOP_K, "all"), default=None)
    guidance: float | None = option(
        "strength of guidance to the class: 0 ignores it, 1 is the class as trained, more exaggerates it;"
        " with `classifier` the power of P(class | text), with `reward` its factor (default: the model's "
        "own, else 1)",
        default=None,
        minimum=0,
        maximum=1000,
    )
    symmetries: int | None = option(**SYMMETRIES, default=None)
    best_of: int | None = option(
        "draw this many of each sample and keep the likeliest (default: the model's own, else 1)",
        default=None,
        minimum=1,
        maximum=1024,
    )
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

    def sampler_for(self, method: "Method", end: int | None = None) -> "Sampler":
        """The sampler for a method.

        Args:
            end: the token that ends a text, where the sampler stops at one and no option names it.

        Raises:
            InputError: unknown sampler, an option that it does not take, a number out of its range, a method that it
                does not support.
        """
        from ..samplers import choose_sampler

        options = {**({} if self.top_k is None else {"top_k": self.top_k}), **(self.options or {})}
        names = [field.name for field in fields(self) if field.name not in ("options", "around")]
        return choose_sampler(self.sampler, method, self.temperature, self.top_p, options, end, names)


def described(values: Mapping[str, Any]) -> str:
    """Sampling options in words: "sampler confidence, temperature 0.7, top_p 0.9"."""
    return ", ".join(f"{name} {value}" for name, value in values.items() if name != INFILL)


BEST_OF = "best_of"
INFILL = "infill"  # the entry of a model's defaults with different values for filling in
DECODING = tuple(options_of(Decoding))
WATCHED = tuple(name for name in DECODING if name != BEST_OF)  # of samples that are seen, or sent, as they are drawn


def as_watched(values: Mapping[str, Any]) -> dict[str, Any]:
    """A model's defaults without `best_of`, which chooses among finished samples: for those seen as they are drawn."""
    kept = {name: value for name, value in values.items() if name != BEST_OF}
    return kept | ({INFILL: as_watched(values[INFILL])} if INFILL in values else {})
