"""A sampler from its name and options, as Python, the command line and the web page give them."""

from collections.abc import Collection
from typing import Any

from ..base.arguments import of_kind
from ..base.errors import InputError, meant
from ..base.requests import Option, options_of
from ..methods.method import Method
from .guide import Truncation
from .sampler import SAMPLERS, Sampler, check, find

PLAIN = ("temperature", "top_p")  # options that every sampling names as arguments of its own


def choose_sampler(
    sampler: str | Sampler | None,
    method: Method,
    temperature: float | None = None,
    top_p: float | None = None,
    options: dict[str, Any] | None = None,
    end: int | None = None,
    beside: Collection[str] = (),
) -> Sampler:
    """Create a sampler from its name and options; it may also be an instance, or None for the method's default.

    Args:
        options: of the sampler. With `block_sampler` it is `blockwise`, or another that has one; it hands the options
            that are not its own to the one inside.
        end: default of the token that ends a text, for a sampler that has this option.
        beside: the caller's other arguments, for the error of an unknown name.

    Raises:
        InputError: unknown sampler, an option that it does not take, a number out of its range, a method that it does
            not admit.
    """
    options = dict(options or {})
    temperature, top_p = (1.0 if value is None else value for value in (temperature, top_p))
    if sampler is not None and not isinstance(sampler, str):
        if options:
            raise InputError(f"`{next(iter(options))}` goes with a sampler's name; this one is made already")
        if isinstance(sampler, type) or not hasattr(sampler, "step"):
            raise InputError(
                f"`sampler` is {of_kind(sampler)}; it must be the name of a sampler, or a sampler: Ancestral()"
            )
        for name, value in zip(PLAIN, (temperature, top_p)):
            if value not in (1, getattr(sampler, name, 1)):
                raise InputError(f"`{name}` goes with a sampler's name; this one is made already, give it to that one")
        check(sampler, method)
        return sampler
    inside = options.get("block_sampler")
    if inside is not None and sampler is not None and "block_sampler" not in options_of(find(sampler)):
        hosts = " or ".join(name for name, cls in SAMPLERS.items() if "block_sampler" in options_of(cls))
        raise InputError(f"`block_sampler` goes with `sampler` {hosts}, not {sampler}; leave one of them out")
    name = sampler or ("blockwise" if inside is not None else getattr(method, "sampler", "ancestral"))
    takes = options_of(find(name))
    if "end" in takes:
        options.setdefault("end", end)
    if "block_sampler" in takes:
        inner_options = {key: options.pop(key) for key in list(options) if key not in takes}
        if inside is None or isinstance(inside, str):
            options["block_sampler"] = _make(inside or "ancestral", inner_options, beside)
        elif inner_options:
            raise InputError(f"`{next(iter(inner_options))}` goes with a sampler's name; this one is made already")
    for key, value in zip(PLAIN, (temperature, top_p)):
        if value != 1:
            options[key] = value
    instance = _make(name, options, beside)
    check(instance, method)
    return instance


def _make(name: str, options: dict[str, Any], beside: Collection[str]) -> Sampler:
    cls = find(name)
    declared_options = options_of(cls)
    for option in options:
        if option not in declared_options:
            if option not in every_option():
                raise _misnamed(option, beside)
            names = [key for key in declared_options if key not in options_of(Truncation)]
            takes = (
                f"its options: {', '.join(f'`{key}`' for key in names)}" if names else "it has no options of its own"
            )
            raise InputError(f"sampler '{name}' takes no `{option}`; {takes}")
    return cls(**options)


def every_option() -> dict[str, tuple[Option, list[str]]]:
    """Every option of any sampler, as its first sampler declares it, with the names of all samplers that take it."""
    options: dict[str, tuple[Option, list[str]]] = {}
    for name, cls in SAMPLERS.items():
        for option in options_of(cls).values():
            options.setdefault(option.name, (option, []))[1].append(name)
    return options


def _misnamed(name: str, beside: Collection[str]) -> TypeError:
    """Error for an argument that neither the caller nor a sampler takes."""
    names = [*beside, *every_option()]
    near = meant(name, names)
    hint = f"did you mean '{near}'?" if near else f"there are {', '.join(dict.fromkeys(names))}"
    return TypeError(f"no argument is called '{name}'; {hint}")
