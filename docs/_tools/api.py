"""The page docs/reference/api.md: `zellige.__all__`, METHODS, SAMPLERS and the packages, as the code has them."""

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent))
import floor_plan
import zellige
from zellige.methods.method import Method
from zellige.samplers import ALIASES

HEAD = """\
# Reference

Made from the code by `docs/_tools/api.py`. Shapes are in parentheses; B is the batch, L the length, V the data tokens, K the
states.
[The design](../design.md) says what each package is for. In the pictures, a file stands above the files of its own package
that it imports, and the bottom row has the other packages that it imports, with the number of imports.

![Each package in its row, with the number of its imports from every package below](../pictures/plan.svg)
"""


def directives(lines: Iterable[str]) -> str:
    return "\n".join(["", "```{eval-rst}", *lines, "```", ""])


def public() -> Iterable[str]:
    """The directive of each public name, by what it is; data and the version have no docstring of their own."""
    groups = (zellige.evaluations, zellige.studies)
    for place, name in ((module, name) for module in (zellige, *groups) for name in module.__all__):
        value, path = getattr(place, name), f"{place.__name__}.{name}"
        if isinstance(value, ModuleType):
            yield f".. automodule:: {value.__name__}\n   :no-members:\n   :no-index:"
        elif inspect.isclass(value):
            kind = "autoexception" if issubclass(value, Exception) else "autoclass"
            yield f".. {kind}:: {path}\n   :no-index:"
        elif callable(value):
            yield f".. autofunction:: {path}\n   :no-index:"


def sentence(text: str) -> str:
    """The lines up to the first that ends with a full stop."""
    lines = text.splitlines()
    last = next((i for i, line in enumerate(lines) if line.endswith(".")), 0)
    return " ".join(line.strip() for line in lines[: last + 1])


def table(classes: dict[str, type], what: str) -> str:
    """A row for each name: its class, its module, and the first sentence of its page."""
    rows = [f"\n| name | class | {what} |", "|---|---|---|"]
    for name, cls in classes.items():
        title = sentence(inspect.getdoc(sys.modules[cls.__module__]) or "").replace("|", "\\|")
        rows.append(f"| `{name}` | `{cls.__module__}.{cls.__qualname__}` | {title} |")
    return "\n".join([*rows, ""])


def package(name: str) -> str:
    """A package: what it is, then each of its modules with what is public in it."""
    top = f"zellige.{name}"
    files = [m for m in floor_plan.modules() if m.split(".")[0] == name]
    picture = f"\n![The files of {name}, each above those that it imports](../pictures/plan-{name}.svg)\n"
    return (
        f"\n## {name}\n" + picture + directives(f".. automodule:: {'.'.join([top, *m.split('.')[1:]])}" for m in files)
    )


def bases() -> list[type]:
    """The classes between `Method` and the systems: bases of a method of your own."""
    return list(
        dict.fromkeys(c for cls in zellige.METHODS.values() for c in cls.__mro__[:0:-1] if issubclass(c, Method))
    )


def page() -> str:
    order = [name for storey in reversed(floor_plan.storeys()) for name in storey]
    packages = [name for name in order if (floor_plan.SOURCE / name).is_dir() and name != "cli"]
    families = {cls.__name__: cls for cls in bases()}
    own = {**zellige.METHODS, **families}
    assert len(own) == len(zellige.METHODS) + len(families)
    return "".join(
        [
            HEAD,
            "\n## zellige\n\nThe public names; all of them are imported when they are first used.\n",
            directives(public()),
            "\n## METHODS\n",
            table(dict(zellige.METHODS), "system"),
            "\nTheir base classes, which a method of your own may use too:\n",
            table(families, "family"),
            "\n## SAMPLERS\n",
            table(dict(zellige.SAMPLERS), "sampler"),
            "\nOther names: " + ", ".join(f"`{name}` is `{of}`" for name, (of, _) in ALIASES.items()) + ".\n",
            *map(package, packages),
        ]
    )
