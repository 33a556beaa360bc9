"""`--config FILE`: options in YAML, JSON or TOML, such as a run's config.json; what is typed comes first.

method: mdlm
schedule: cosine            # or options: {schedule: cosine}
data: {path: notes/}
train: {steps: 3000, lr: 1e-3}
"""

import itertools
import json
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError, nearest
from ..schema import shown
from .flags import Flag
from .meanings import same_value, synonym

LARGEST, ENTRIES = 1 << 18, 10_000  # bytes, and entries, of a file of options
OF_A_RUN = (
    "format",
    "zellige",
    "about",
    "run",
    "network",
    "checksum",
)  # what config.json has that is no choice, or not for another run


def read_entries(name: str) -> dict[str, Any]:
    """The entries of a file by their dotted names, those of `options` at the top; InputError where it cannot be read."""
    try:
        return dict(_flat(_read(Path(name))))
    except RecursionError:
        raise InputError(
            f"'{shown(Path(name))}' is nested too deep; write 'name: value' lines, or JSON or TOML"
        ) from None


def _read(file: Path) -> Mapping[Any, Any]:
    """Those that are choices of a training."""
    if not file.is_file():
        raise InputError(f"no file at '{file}'; give --config a .yaml, .json or .toml")
    if file.stat().st_size > LARGEST:
        raise InputError(f"'{shown(file)}' is larger than options are; give a file of {LARGEST:,} bytes or less")
    try:
        text = file.read_text(encoding="utf-8")
        entries = _parse(text, file.suffix.lower())
        _count(entries, lambda value: value.values() if isinstance(value, Mapping) else value, (Mapping, list))
    except (ValueError, OSError) as problem:
        reason = " ".join(str(problem).split())[:120].rstrip(".")
        raise InputError(
            f"'{shown(file)}' cannot be read ({reason}); write 'name: value' lines, or JSON or TOML"
        ) from None
    if not isinstance(entries, Mapping):
        raise InputError(f"'{shown(file)}' holds no entries by name; write e.g. train: {{steps: 3000}}")
    if entries.get("network"):
        raise InputError(
            f"'{shown(file)}' is of a run with an own network ({entries['network']}); train it from Python"
        )
    of_a_run = "format" in entries
    return {key: value for key, value in entries.items() if not (of_a_run and key in OF_A_RUN)}


def _parse(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        if text.count(".") > ENTRIES:  # a key a.a.a... costs the square of its parts
            raise ValueError(f"above {ENTRIES:,} entries")
        return tomllib.loads(text)
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()  # aliases are one node each here, and trees of them in what is made of it
        if node is None:
            return None
        _count(
            node, lambda node: itertools.chain(*node.value) if node.id == "mapping" else node.value, yaml.CollectionNode
        )
        return loader.construct_document(node)
    except yaml.YAMLError as problem:
        raise ValueError(problem) from None
    finally:
        loader.dispose()


def _count(tree: Any, inside: Callable[[Any], Iterable[Any]], kind: Any) -> None:
    """ValueError where a tree, with all that is in the things of a `kind` in it, holds more entries than options can."""
    left, count = [tree], 0
    while left:
        node = left.pop()
        if isinstance(node, kind):
            children = list(inside(node))
            count += len(children)
            left += children
        if count > ENTRIES:
            raise ValueError(f"above {ENTRIES:,} entries, or aliases that hold each other")


def _flat(entries: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in entries.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, "" if name == "options" else f"{name}.")
        else:
            yield name, value


def _option(entry: str) -> str:
    return "--" + entry.replace("_", "-")


def values(
    entries: Mapping[str, Any], known: Mapping[str, Flag], typed: Container[str], name: str, where: str
) -> dict[str, Any]:
    """Return the entries by their flags, without those that are typed.

    Raises:
        InputError: an entry that is no option, or an impossible value.
    """
    found: dict[str, Any] = {}
    for entry, value in entries.items():
        leaf = entry.rpartition(".")[2]  # `train.lr` is --lr
        flag = next((known[f] for f in (synonym(_option(n), known) for n in (entry, leaf)) if f in known), None)
        if flag is None:
            names = {each.removeprefix("--").replace("-", "_") for each in known} | {"method"}
            near = nearest(entry, names)
            hint = f"did you mean '{near}'?" if near else "an entry is called as its option: train.steps, data.path"
            raise InputError(f"'{shown(Path(name))}' has an unknown entry '{entry}' for {where}; {hint}")
        if value is None or value == "" or value == [] or flag.name in typed:
            continue
        if flag.switch:
            if not isinstance(value, bool):
                raise InputError(f"'{shown(Path(name))}' has {entry} {value}; it must be true or false")
        else:
            several = value if isinstance(value, list) else [value]
            texts = [same_value(str(one), flag.words) for one in several]
            for text in texts:
                flag.check(text)
            value = texts[0] if flag.many == 1 else texts
        if flag.name in found:
            raise InputError(f"{flag.name} is given twice; give it once")
        found[flag.name] = value
    return found
