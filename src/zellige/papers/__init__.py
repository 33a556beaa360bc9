"""Papers as data: `NAME.toml` has the recipes of a paper, its tables, and what its authors' files say.

    paper, arxiv                    what the paper is called, and its number
    [notes]                         sentences by name, for `differs` and `ours`; those of several papers are in common.toml
    [recipes.NAME]                  the fields of `recipes.Recipe`; after `base`, those that are not the base's
    [shared.NAME]                   what several recipes have in common: a base, and no recipe itself
    [recipes.NAME.published.FILE]   the values of a published file, or of the text (`paper`), by the choice that they are about
    [[repositories]]                where these files were read
    [tables.NAME]                   the fields of `tables.PublishedTable`

A recipe says each of its values itself, and `published` says it again from the source: tests compare the two.
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ..base.errors import InputError, unknown

PAPERS = ("d3pm", "tauldr", "sedd", "radd", "mdlm", "md4", "duo", "udlm", "bd3lm")
RECIPE_SECTIONS = ("data", "net", "train", "options", "drawing")
ANEW = ("options", "sampler", "drawing")  # which a recipe of another method than its base's does not inherit
T = TypeVar("T")
Entries = dict[str, Any]


@cache
def read(name: str) -> Mapping[str, Any]:
    """The file of a paper."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def notes(name: str, names: list[str]) -> tuple[str, ...]:
    """Sentences of a paper, by their names."""
    texts = read("common")["notes"] | read(name).get("notes", {})
    if missing := next((note for note in names if note not in texts), None):
        raise unknown("note", missing, texts)
    return tuple(texts[note] for note in names)


def recipe_entries(paper: Mapping[str, Any]) -> dict[str, Entries]:
    """The recipes of a paper by name, each with all that its bases say; `base` is "" where that is no recipe itself."""
    named, shared = paper.get("recipes", {}), paper.get("shared", {})

    def whole(name: str) -> Entries:
        entries = named[name] if name in named else shared[name]
        base = entries.get("base", "")
        return _joined(whole(base) if base else {}, entries) | {"base": base if base in named else ""}

    return {name: whole(name) for name in named}


def _joined(base: Entries, entries: Entries) -> Entries:
    """What a recipe says after what its base says. The number of parameters is not inherited."""
    gone = (*(ANEW if "method" in entries else ()), "parameters")
    kept = {name: value for name, value in base.items() if name not in gone}
    parts = {part: kept.get(part, {}) | entries.get(part, {}) for part in RECIPE_SECTIONS}
    differs = [note for note in kept.get("differs", []) if note not in entries.get("without", [])]
    more = {"differs": differs + entries.get("differs", []), "published": _published(kept, entries, gone)}
    return kept | {name: value for name, value in entries.items() if name != "without"} | parts | more


def _published(base: Entries, entries: Entries, gone: tuple[str, ...]) -> Entries:
    """The published values by choice; of a choice that the recipe makes itself, the base's have no say."""
    own = {f"{part}.{name}" for part in RECIPE_SECTIONS for name in entries.get(part, {})} | {*entries}
    kept = {
        choice: value
        for choice, value in base.get("published", {}).items()
        if choice not in own and choice.partition(".")[0] not in gone
    }
    values = [
        (choice, {"file": file, **value})
        for file, choices in entries.get("published", {}).items()
        for choice, value in choices.items()
    ]
    if len({choice for choice, _ in values}) < len(values):
        raise InputError("two published values of one choice; give one of them")
    return kept | dict(values)


def made(kind: Callable[..., T], entries: Mapping[str, Any], where: str) -> T:
    """A dataclass of its entries.

    Raises:
        InputError: an entry that it has not, one that is missing, or a value that may not be; it begins with `where`.
    """
    try:
        return kind(**entries)
    except (TypeError, InputError) as wrong:
        raise InputError(f"{where}: {wrong}") from None
