"""Who takes part in a comparison: a method with its choices, or a trained run; its column `variant`,
the folder of its run."""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

from zellige.base.arguments import from_text, of_kind
from zellige.base.errors import InputError, unknown
from zellige.base.requests import choices_of
from zellige.base.schema import shown
from zellige.data import Data
from zellige.methods import METHODS, find
from zellige.methods.method import Method
from zellige.models import shipped
from zellige.models.checkpoint.layout import CHECKPOINTS, holds_run, newest
from zellige.models.checkpoint.read import read_config, run_config
from zellige.models.config import Config, Train, to_json
from zellige.nn.block import Net
from zellige.training.requests import Training

OWN = re.compile(r"(compare|measured)(-limit-\d+)?\.(json|md|svg)")  # what a comparison writes beside its runs


@dataclass(frozen=True)
class Entrant:
    """A method that takes part.

    Attributes:
        method: its class; `name` as `train` calls it.
        options: its Config, with the choices.
        chosen: the choices that differ from a plain name, by name.
        named: whether the name alone finds the class (else it is an own one, to be handed over).
        title: in the place of a label that is made of the choices: the recipe of a paper's row.
        net: fields of the network that are not those of the others.
        seed: of its training, where that is not the comparison's own.
        place: of a run that was trained before, its folder, as it is reached from that of the comparison.
    """

    method: type[Method]
    name: str
    options: Any
    chosen: dict[str, Any]
    named: bool = True
    title: str = ""
    net: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    place: str = ""

    @classmethod
    def of_run(cls, run: Path, comparison: Path) -> "Entrant":
        """Of a run that is trained, in a comparison in that folder. InputError where it holds no checkpoint."""
        config, _ = run_config(run)
        if newest(run / CHECKPOINTS) is None:
            raise InputError(f"'{shown(run)}' holds no checkpoint yet; continue it with `resume`, or leave it out")
        place = os.path.relpath(run.resolve(), comparison.resolve())
        return cls(find(config.method), config.method, config.options, {}, title=shown(run), place=place)

    @classmethod
    def of(cls, what: Any) -> "Entrant":
        """Of "sedd", "sedd:process=uniform", a class, or (a name or class, "process=uniform").

        Raises InputError for an unknown method, a choice that it has not, or a value that is none.
        """
        what, choices = what if isinstance(what, tuple) and len(what) == 2 else (what, "")
        if not isinstance(choices, str):
            raise InputError(f"the choices of a method are {of_kind(choices)}; they must be a text: process=uniform")
        if isinstance(what, str) and not choices:
            what, _, choices = what.partition(":")
        method = find(what)
        name = what if isinstance(what, str) else getattr(method, "name", method.__name__)
        hints = get_type_hints(method.Config)
        fields = {f.name: f.default for f in dataclasses.fields(method.Config)}
        options = {}
        for key, value in choices_of(name, choices, "sedd:process=uniform"):
            if key not in fields:
                raise unknown("choice", key, fields, f"zellige train {name} --help")
            options[key] = from_text(value, hints[key], key, where=f" in '{name}:{key}={value}'")
        return cls(method, name, method.Config(**options), options, isinstance(what, str))

    def training(self, data: Data, net: Net, train: Train, folder: Path) -> Training:
        """Its training in a comparison in that folder, filled."""
        return Training(
            self.name if self.named else self.method,
            data,
            replace(net, **self.net),
            train if self.seed is None else replace(train, seed=self.seed),
            self.options,
            folder=folder / self.folder,
        ).filled()

    @property
    def variant(self) -> str:
        """`uniform`, `uniform, steps=64`; without choices the default process, where the method has several,
        else `-`."""
        if self.place:
            return self.title
        words = [v if isinstance(v, str) else f"{k}={v}" for k, v in self.chosen.items()]
        return ", ".join(words) or getattr(self.options, "process", "-")

    @property
    def label(self) -> str:
        """Name in a figure: `sedd uniform`; `sedd uniform, seed 1` of a run with a seed of its own."""
        name = self.title or (self.name if self.variant == "-" else f"{self.name} {self.variant}")
        return name if self.seed is None else f"{name}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """`sedd-uniform`, `sedd-uniform-seed-1`: the name of its run in the folder of the comparison,
        or its place from there."""
        if self.place:
            return self.place
        words = [v if isinstance(v, str) else f"{k}-{v}" for k, v in self.chosen.items()]
        name = self.title or "-".join([self.name, *words])
        return name if self.seed is None else f"{name}-seed-{self.seed}"

    def seeded(self, first: int, seeds: int) -> list["Entrant"]:
        """The entrant once for each seed, the first seed first."""
        return [self, *(replace(self, seed=seed) for seed in range(first + 1, first + seeds))]


def entrants(methods: Any, folder: Path) -> list[Entrant]:
    """All of them, in a comparison in that folder.

    Raises:
        InputError: fewer than two, one that is named twice, an included model, or methods and trained runs together.
    """
    runs = [isinstance(entry, str | Path) and entry not in METHODS and holds_run(Path(entry)) for entry in methods]
    included = (entry for entry, run in zip(methods, runs) if not run and entry in shipped.names())
    if name := next(included, None):
        raise InputError(
            f"'{name}' is an included model, and compare takes methods or runs; use zellige evaluate {name}"
        )
    if any(runs) and not all(runs):
        raise InputError(
            f"'{methods[runs.index(True)]}' is trained and '{methods[runs.index(False)]}' is not; compare methods, or "
            "runs"
        )
    members = [Entrant.of_run(Path(entry), folder) if any(runs) else Entrant.of(entry) for entry in methods]
    if len(members) < 2:
        raise InputError("compare needs two methods or more; e.g. zellige compare mdlm md4 --run runs/compare")
    names = [entry.folder for entry in members]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice:
        raise InputError(f"'{twice}' is named twice; name each method once, or give it other choices")
    return members


# ---------------------------------------------------------------------------------------------------- the folder
def check_folder(folder: Path) -> None:
    """InputError unless a comparison may live there: nothing yet, or runs and what a comparison writes."""
    if folder.is_file():
        raise InputError(f"'{shown(folder)}' is a file; give `run` a folder")
    if holds_run(folder):
        raise InputError(f"'{shown(folder)}' is one run, not a comparison; choose another `run`")
    if any(
        not OWN.fullmatch(p.name) and not (p.is_dir() and (holds_run(p) or not visible(p))) for p in visible(folder)
    ):
        raise InputError(f"'{shown(folder)}' holds something that is not a comparison; choose another `run`")


def visible(folder: Path) -> list[Path]:
    """Contents of a folder, without hidden files (such as a lock)."""
    return [p for p in folder.iterdir() if not p.name.startswith(".")] if folder.is_dir() else []


def check_runs(folder: Path, wanted: dict[str, Config]) -> None:
    """InputError where a run that is there was made with other settings than this comparison's.

    Args:
        wanted: the config of each entrant's run, by its folder; other runs must share data, net and training, but for
            the seed.
    """
    for run in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not holds_run(run):
            continue
        before, config = read_config(run), wanted.get(run.name)
        now = json.loads(json.dumps(to_json(config or next(iter(wanted.values())))))
        if config and before["method"] != config.method:
            raise InputError(
                f"'{shown(run)}' is a run of {before['method']}, not {config.method}; choose another `run`"
            )
        for section in ("data", "net", "train", *(["options"] if config else [])):
            for key, value in now[section].items():
                free = key == "cache" or (key == "seed" and config is None)
                if before[section].get(key, value) != value and not free:
                    name = key if section == "options" else f"{section}.{key}"
                    raise InputError(
                        f"'{shown(run)}' was trained with `{name}` {_value_text(before[section][key])}, "
                        f"not {_value_text(value)}; give the same settings, or use a new `run`"
                    )


def check_alike(runs: Iterable[tuple[str, Path, Config]]) -> None:
    """InputError for trained runs that are not of the same rows of tokens: of each its name,
    its folder and its config."""
    first, *others = [
        (name, (replace(config.data, cache=None), config.net.length, *_learnt(run))) for name, run, config in runs
    ]
    for name, rows in others:
        if different := next((what for what, a, b in zip(ROWS, first[1], rows) if a != b), ""):
            raise InputError(
                f"'{name}' and '{first[0]}' have other {different}; compare runs whose texts are cut into the same rows"
            )


ROWS = ("options of the data", "lengths", "data", "tokens")


def _learnt(run: Path) -> tuple[Any, Any]:
    """The hash of a run's data, and of its tokenizer."""
    about = run_config(run)[1].get("data") or {}
    return about.get("sha256"), (about.get("tokenizer") or {}).get("fingerprint")


def _value_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
