"""The pages that are plain text of our own: help, and what `zellige list` prints. Importing this imports nothing heavy."""

import dataclasses
import json
import re
import typing
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.plugins import part, plugged

HELP = f"""Zellige {__version__}: discrete diffusion for text and any tokens

  demo        start here: see a model write, then train a small one (5 min)
  train       train a model of METHOD on your text or on a data set
  tune        fine-tune a model on prompts and answers, or other data (LoRA)
  evaluate    likelihood with 95% intervals; quality of samples; zero-shot
  sample      sample text, images or music; --watch shows each step
  infill      fill the masked spans of a text; the rest stays as it is
  verify      check the formulas on examples small enough to enumerate
  compare     train several methods on the same budget and compare them
  sweep       train a METHOD with several values of its options
  plan        estimate memory, time and cost of a training on other GPUs
  report      write a self-contained HTML page about a run
  play        web page to write and fill text, and to see each step
  serve       OpenAI-compatible server for a text model
  list        list models, methods, samplers, data, recipes and others
  import      convert a published model, from the hub or from files
  export      save a model in a layout that the published code can read
  doctor      show versions, devices, extras and caches
  completion  print a completion script for bash, zsh or fish

Everywhere: --json FILE (- is stdout)  --quiet  --seed N  --color WHEN  --help
            --help shows the usual options of a command, --help-all every one
            --no-checksums, --allow-code, --allow-remote: lift safety checks"""

TRAIN = """usage: zellige train METHOD [options]   options of one: zellige train mdlm -h
  METHOD                 d3pm csm tauldr sedd radd mdlm md4 genmd4 udlm gidd
                         bd3lm flexmdm ar, or file.py:Class for your own
  --data.path notes/     your own text; or --data.name pydocs, text8 and others
                         (zellige list data)
  --size tiny            tiny, small, base or medium: preset of network, batch,
                         learning rate and steps; without a GPU: tiny
  --net.layers, --train.steps, --lr and others override the preset
  --run FOLDER           folder for everything (default: runs/METHOD-DATA);
                         --resume continues it, --overwrite starts again
  --config FILE          file of options: YAML, JSON, TOML, or a config.json
  --recipe NAME          instead of METHOD: the settings of a paper; other
                         options override them (zellige list recipes)
example
  zellige train mdlm --data.path notes/"""

LISTS = {
    "models": "trained models included in Zellige; try: zellige sample tales",
    "methods": "for train and compare: paper, noise, parameterization, likelihood",
    "samplers": "for sample and infill: distribution, requirements, network evaluations",
    "data": "data sets for --data.name: size, split, licence",
    "checkpoints": "published models, used by their id",
    "recipes": "settings of papers, for train --recipe: reported result and cost",
    "tables": "tables of papers, for plan and compare --table: their rows and recipes",
    "plugins": "methods, samplers, commands and more that other packages bring",
}
LEGENDS = {  # what a list's columns say, below it
    "methods": "likelihood: 'bound' is an upper bound on -log p; '= in one order' means that -log p is exact if the "
    "tokens are revealed one by one in a fixed order",
    "samplers": "draws from: the distribution of the samples; bounded by: the number of zellige evaluate that bounds "
    "-log p of the samples (forward, divergence: its --estimator); evaluations: of the network, per text",
}
CHOICES = '''\
"""The arguments of `zellige.sample` and `zellige.infill` by name, for type checkers; written by `cli.help.write` from what the
samplers and the requests declare."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict
'''
TABLES = Path(__file__).with_name("lists.json")  # read without torch; `write` writes it


def table(what: str) -> list[dict[str, str]]:
    """The rows of `zellige list`: a header's names in the first one."""
    if what in ("data", "models", "tables", "plugins"):  # from tables that need no torch
        return {"data": data, "models": models, "tables": paper_tables, "plugins": plugins}[what]()
    return json.loads(TABLES.read_text(encoding="utf-8"))[what]


def tables() -> dict[str, list[dict[str, str]]]:
    """Contents of `lists.json`, from the classes; imports torch."""
    from ..papers.recipes import RECIPES

    recipes = [recipe(name) for name in RECIPES]
    return {
        "methods": methods(),
        "samplers": samplers(),
        "checkpoints": checkpoints(),
        "recipes": recipes,
        "options": options(),
    }


def in_one_order(cls: Any) -> bool:
    """Return whether a method has an exact likelihood in one order of the positions: a masked one whose network sees no time."""
    from ..methods.absorbing import Masked

    return issubclass(cls, Masked) and not cls.timed(cls.Config())


def methods() -> list[dict[str, str]]:
    """A row for each method, from what it says of itself."""
    from ..methods import METHODS

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
    from ..methods import METHODS
    from ..samplers import ALIASES, SAMPLERS

    first = sorted(METHODS.values(), key=lambda cls: cls.name != "mdlm")  # which admits most
    methods, rows = [part("verify").enumerable(cls).verified_by(lambda h, x, turn: h) for cls in first], []
    for name, cls in SAMPLERS.items():
        distribution = next(cls().distribution(method, None) for method in methods if cls.refuse(method) is None)
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
    """A row for each option of a sampler: its kind, and what it is for, after the samplers that have it."""
    return [
        {"name": option.name, "kind": option.word, "help": f"for {_takers(names)}: {option.help}"}
        | ({"minimum": str(option.minimum)} if option.kind is int and option.minimum is not None else {})
        for option, names in _sampler_options()
    ]


def choices() -> str:
    """The text of `models/choices.py`."""
    from ..models.infill import Infill
    from ..models.sample import Sample
    from ..models.sampling import Sampling

    text, options = CHOICES, []
    for option, names in _sampler_options():
        kind = option.kind.__name__ if option.plain else "Any"
        options.append(f"{option.name}: {kind}{' | None' * (option.default is None)}  # {_takers(names)}")
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


def _sampler_options() -> list[tuple[Any, list[str]]]:
    """Each option of a sampler with the samplers that have it, but for the fields of every request for samples."""
    from ..models.sampling import DECODING
    from ..samplers import every_option

    return [value for name, value in every_option().items() if name not in DECODING]


def _takers(names: list[str]) -> str:
    """`euler, remasking`, or `all but metropolis`"""
    from ..samplers import SAMPLERS

    other_samplers = [name for name in SAMPLERS if name not in names]
    return f"all but {', '.join(other_samplers)}" if len(other_samplers) < len(names) else ", ".join(names)


def data() -> list[dict[str, str]]:
    """A row for each data set by name."""
    from ..data import DATASETS

    return [
        {
            "name": name, "what": d.what, "size": d.size, "train / validation / test": d.split, "licence": d.licence,
            "needs": d.needs.replace("`data.path`", "--data.path"),
        }
        for name, d in DATASETS.items()
    ]  # fmt: skip


def paper_tables() -> list[dict[str, str]]:
    """A row for each table of a paper."""
    from ..papers.tables import TABLES

    return [
        {
            "name": name, "paper": table.paper, "arXiv": table.arxiv, "what": table.what, "rows": str(len(table.rows)),
            "with a recipe": str(sum(bool(row.recipe) for row in table.rows)),
        }
        for name, table in TABLES.items()
    ]  # fmt: skip


def models() -> list[dict[str, str]]:
    """A row for each model that comes with Zellige, from its card."""
    from ..models import shipped

    cards = {name: shipped.card(name) for name in shipped.names()}
    return [
        {"name": name, **{key: card[key] for key in ("what", "method", "size", "test")}} for name, card in cards.items()
    ]


def plugins() -> list[dict[str, str]]:
    """A row for each thing that another package brings, and what is wrong with it; one that is broken hides no other."""
    return [
        {"name": one.name, "what": one.kind, "package": one.package, "state": one.problem or "ready"}
        for one in plugged()
    ]


def checkpoints() -> list[dict[str, str]]:
    """A row for each published model that loads by its id; `-` where its card says nothing."""
    return [entry.row() for entry in part("published").CATALOGUE]


def recipe(name: str) -> dict[str, str]:
    """The row of a recipe: what it trains on, the number of its paper, and what it costs, counted on its network."""
    from ..papers.recipes import RECIPES
    from ..show.numbers import count, parameters
    from ..training.cost import UTILISATION, training_cost

    recipe = RECIPES[name]
    cost = training_cost(recipe.config, recipe.vocabulary)
    return {
        "name": name, "arXiv": recipe.arxiv, "data": recipe.data.name,
        "size": parameters(cost.parameters).split()[0], "reported": str(recipe.reported),
        "FLOP": f"{cost.flops:.1e}", f"H100 h at {UTILISATION:.0%}": count(cost.hours),
    }  # fmt: skip


def write() -> None:
    """Write `lists.json` and `models/choices.py`, after a change of a method, a sampler, the catalogue or a recipe."""
    (Path(__file__).parents[1] / "models" / "choices.py").write_text(choices(), encoding="utf-8")
    TABLES.write_text(json.dumps(tables(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
