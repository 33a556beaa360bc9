"""What of `zellige list` needs torch (cli/lists.json), and the arguments of samples for type checkers (sampling/choices.py).

.venv/bin/python docs/_tools/lists.py       writes them anew, after a change of a method, a sampler, the catalogue or a recipe
"""

import dataclasses
import json
import re
import typing
from typing import Any

from zellige.base.plugins import part
from zellige.base.requests import Option, options_of
from zellige.cli.help import with_default
from zellige.cli.tables import TABLES
from zellige.methods import METHODS
from zellige.methods.absorbing import Masked
from zellige.models.decoding import DECODING
from zellige.papers.recipes import RECIPES
from zellige.plugins.verify.identities.check import enumerable
from zellige.samplers import ALIASES, SAMPLERS
from zellige.sampling.infill import Infill
from zellige.sampling.request import Sampling
from zellige.sampling.sample import Sample
from zellige.show.numbers import count, parameters
from zellige.training.cost import UTILISATION, training_cost

CHOICES = '''\
"""The arguments of `zellige.sample` and `zellige.infill` by name, for type checkers; written by docs/_tools/lists.py from what
the samplers and the requests declare."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict
'''


def tables() -> dict[str, list[dict[str, str]]]:
    """Contents of `lists.json`, from the classes."""
    return {
        "methods": methods(),
        "samplers": samplers(),
        "checkpoints": checkpoints(),
        "recipes": [recipe(name) for name in RECIPES],
        "options": options(),
    }


def in_one_order(cls: Any) -> bool:
    """Return whether a method has an exact likelihood in one order of the positions: a masked one whose network sees no time."""
    return issubclass(cls, Masked) and not cls.timed(cls.Config())


def methods() -> list[dict[str, str]]:
    """A row for each method, from what it says of itself."""
    rows = []
    for name, cls in METHODS.items():
        bound = "bound; = in one order" if in_one_order(cls) else "bound" if cls.bounded else "none"
        rows.append(
            {
                "name": name,
                "system, paper": cls.system + (f", arXiv {cls.paper}" if cls.paper else ""),
                "noise": cls.noise,
                "network gives": {
                    "leave_one_out": "leave-one-out",
                    "next": "next token",
                    "insertion": "rates",
                }.get(cls.parameterization, cls.parameterization),
                "likelihood": "exact" if cls.exact else bound,
            }
        )
    return rows


def samplers() -> list[dict[str, str]]:
    """A row for each sampler, from what it says of itself without options; then the other names that some of them have."""
    first = sorted(METHODS.values(), key=lambda cls: cls.name != "mdlm")  # which admits most
    methods, rows = [enumerable(cls).verified_by(lambda h, x, turn: h) for cls in first], []
    for name, cls in SAMPLERS.items():
        distribution = next(
            cls().distribution(method, None) for method in methods if cls.reason_against(method) is None
        )
        number = "none" if distribution.number is None else distribution.number.get("estimator", "bound")
        number += " of T steps" if distribution.number and "steps" in distribution.number else ""
        rows.append(
            {
                "name": name, "draws from": cls.samples_from, "needs": cls.needs,
                "bounded by": number, "evaluations": cls.calls,
            }
        )  # fmt: skip
    return rows + [{"name": name, "same as": f"{of} ({why})"} for name, (of, why) in ALIASES.items()]


def options() -> list[dict[str, str]]:
    """A row for each option of a sampler: its kind, its minimum, and what it is for each sampler that has it, a line each."""
    rows = []
    for name, declared in sampler_options().items():
        samplers_by_text: dict[str, list[str]] = {}
        for sampler, option in declared.items():
            samplers_by_text.setdefault(with_default(option.help, option.default), []).append(sampler)
        lines = [f"for {_takers(samplers)}: {text}" for text, samplers in samplers_by_text.items()]
        row = {"name": name, "kind": next(iter(declared.values())).word, "help": "\n".join(lines)}
        minima = {option.minimum for option in declared.values() if option.kind is int} - {None}
        rows.append(row | ({"minimum": str(*minima)} if len(minima) == 1 else {}))
    return rows


def choices() -> str:
    """The text of `sampling/choices.py`."""
    text, options = CHOICES, []
    for name, declared in sampler_options().items():
        option = next(iter(declared.values()))
        kind = option.kind.__name__ if option.plain else "Any"
        options.append(f"{name}: {kind}{' | None' * (option.default is None)}  # {_takers([*declared])}")
    text += _typed_dict("SamplerChoices", "TypedDict", "Options of the samplers (`zellige list samplers`).", options)
    common_options = _annotations(Sampling, {"options"})
    common_names = {line.partition(":")[0] for line in common_options} | {"options"}
    for title, base, about, lines in (
        ("SamplingChoices", "SamplerChoices", "The fields of `Sampling`.", common_options),
        ("SampleChoices", "SamplingChoices", "The fields of `Sample`.", _annotations(Sample, common_names)),
        ("InfillChoices", "SamplingChoices", "The fields of `Infill` beside the text.",
         _annotations(Infill, common_names | {"text", "fixed"})),
    ):  # fmt: skip
        text += _typed_dict(title, base, about, lines)
    return text


def _typed_dict(title: str, base: str, about: str, lines: list[str]) -> str:
    entries = "".join(f"    {line}\n" for line in lines)
    return f'\n\nclass {title}({base}, total=False):\n    """{about}"""\n\n{entries}'


def _annotations(cls: type, without: set[str]) -> list[str]:
    """`name: annotation` of the fields of a dataclass."""
    all_hints = typing.get_type_hints(cls)
    hints = {field.name: all_hints[field.name] for field in dataclasses.fields(cls) if field.name not in without}
    plain = {name: hint.__name__ if isinstance(hint, type) else str(hint) for name, hint in hints.items()}
    return [f"{name}: {re.sub('(typing|collections.abc)[.]', '', hint)}" for name, hint in plain.items()]


def sampler_options() -> dict[str, dict[str, Option]]:
    """Each option of a sampler as the samplers that have it declare it, but for the fields of every request for samples."""
    options: dict[str, dict[str, Option]] = {}
    for sampler, cls in SAMPLERS.items():
        for name, option in options_of(cls).items():
            if name not in DECODING:
                options.setdefault(name, {})[sampler] = option
    return options


def _takers(names: list[str]) -> str:
    """`euler, remasking`, or `all but metropolis`"""
    other_samplers = [name for name in SAMPLERS if name not in names]
    return f"all but {', '.join(other_samplers)}" if len(other_samplers) < len(names) else ", ".join(names)


def checkpoints() -> list[dict[str, str]]:
    """A row for each published model that loads by its id; `-` where its card says nothing."""
    return [entry.row() for entry in part("published").CATALOGUE]


def recipe(name: str) -> dict[str, str]:
    """The row of a recipe: what it trains on, the number of its paper, and what it costs, counted on its network."""
    recipe = RECIPES[name]
    cost = training_cost(recipe.config, recipe.vocabulary)
    return {
        "name": name, "arXiv": recipe.arxiv, "data": recipe.data.name,
        "size": parameters(cost.parameters).split()[0], "reported": str(recipe.reported),
        "FLOP": f"{cost.flops:.1e}", f"H100 h at {UTILISATION:.0%}": count(cost.hours),
    }  # fmt: skip


if __name__ == "__main__":
    (TABLES.parents[1] / "sampling" / "choices.py").write_text(choices(), encoding="utf-8")
    TABLES.write_text(json.dumps(tables(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
