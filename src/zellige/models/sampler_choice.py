"""Which sampler draws, by the names and options that `watch` and the command line take."""

from collections.abc import Collection
from typing import Any

from .. import samplers
from ..arguments import of_kind
from ..errors import InputError, meant
from ..methods.method import Method
from ..samplers.guide import check_guidance


def choose_sampler(
    sampler: Any,
    method: Method,
    temperature: float | None = None,
    top_p: float | None = None,
    options: dict[str, Any] | None = None,
    end: int | None = None,
    beside: Collection[str] = (),
) -> Any:
    """The sampler, made; it may be made already, or None for the method's own.

    Args:
        options: of the sampler. With `block_sampler` it is `blockwise`, which hands the options that are not its own to the one
            inside.
        end: the token that ends a text, where the sampler stops at one and nobody says which.
        beside: the arguments of the caller that stand beside a sampler's options, for the error of a name that nobody has.

    Raises:
        InputError: unknown sampler, an option that it does not take, a number out of its range, a method that it does not admit.
    """
    options = dict(options or {})
    temperature, top_p = (1.0 if value is None else value for value in (temperature, top_p))
    check_guidance(temperature, top_p)
    if sampler is not None and not isinstance(sampler, str):
        if options:
            raise InputError(f"`{next(iter(options))}` goes with a sampler's name; this one is made already")
        if isinstance(sampler, type) or not hasattr(sampler, "step"):
            raise InputError(
                f"`sampler` is {of_kind(sampler)}; it must be the name of one, or one that is made: Ancestral()"
            )
        samplers.check(sampler, method)
        return sampler
    inside = options.get("block_sampler")
    if inside is not None and sampler not in (None, "blockwise"):
        raise InputError(f"`block_sampler` goes with `sampler` blockwise, not {sampler}; leave one of them out")
    name = "blockwise" if inside is not None else sampler or getattr(method, "sampler", "ancestral")
    own = samplers.takes(samplers.find(name))
    if "end" in own:
        options.setdefault("end", end)
    if name == "blockwise":
        others = {key: options.pop(key) for key in list(options) if key not in own}
        if inside is None or isinstance(inside, str):
            options["block_sampler"] = _make(inside or "ancestral", 1.0, 1.0, others, beside)
        elif others:
            raise InputError(f"`{next(iter(others))}` goes with a sampler's name; this one is made already")
    made = _make(name, temperature, top_p, options, beside)
    samplers.check(made, method)
    return made


def _make(name: str, temperature: float, top_p: float, options: dict[str, Any], beside: Collection[str]) -> Any:
    cls = samplers.find(name)
    own = samplers.options(cls)
    for option in options:
        if option not in samplers.takes(cls):
            if not any(option in samplers.takes(other) for other in samplers.SAMPLERS.values()):
                raise _misnamed(option, beside)
            takes = f"its options: {', '.join(f'`{each}`' for each in own)}" if own else "it has no options of its own"
            raise InputError(f"sampler '{name}' takes no `{option}`; {takes}")
    return cls(temperature=temperature, top_p=top_p, **options)  # pyright: ignore[reportCallIssue]


def _misnamed(name: str, beside: Collection[str]) -> TypeError:
    """The error for an argument that neither the caller nor a sampler has."""
    every = [*beside]
    every += [option for cls in samplers.SAMPLERS.values() for option in samplers.takes(cls)]
    near = meant(name, every)
    hint = f"did you mean '{near}'?" if near else f"there are {', '.join(dict.fromkeys(every))}"
    return TypeError(f"no argument is called '{name}'; {hint}")


def end_token(tokenizer: Any, documents: bool = False) -> int | None:
    """The token that ends a text, where the tokenizer has one.

    Of characters none does; but a line end ends a molecule, and the text of a model that was trained on `documents`.
    """
    token = getattr(tokenizer, "separator", None)
    ends = getattr(tokenizer, "unit", "token") == "token" or getattr(tokenizer, "kind", "text") == "smiles"
    return token if ends or (documents and token is not None and tokenizer.decode([token]) != " ") else None
