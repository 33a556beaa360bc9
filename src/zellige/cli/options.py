"""The command line: what is typed becomes a frozen dataclass of options (`flags`); what is wrong is said in one line.

What is said below the command line names fields, in backquotes; `Terminal.spelled` makes options of them.

`--config FILE` has options in YAML, JSON or TOML, such as a run's config.json; what is typed comes first:

    method: mdlm
    schedule: cosine            # or options: {schedule: cosine}
    data: {path: notes/}
    train: {steps: 3000, lr: 1e-3}
"""

import itertools
import json
import os
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..base.errors import InputError, nearest
from ..base.requests import declared, option
from ..base.schema import shown
from ..data import DATASETS
from ..data.file_names import data_of
from ..show.terminal import Terminal
from . import help
from .flags import Flag, arguments, flags, with_values
from .meanings import meaning, same_value, synonym

T = TypeVar("T")
WRITTEN = ("--out", "--frames", "--json")  # options that name what a command writes
LIST = "--list-options"  # for completion: prints what a command takes, as `help.words` has it
EVERYWHERE = {  # what every command takes, and options of `zellige train` that other commands advise
    "checksums=False": "--no-checksums",
    "allow_code": "--allow-code",
    "allow_remote": "--allow-remote",
    "resume": "--resume",
    "data.labels": "--data.labels",
    "begin": "--begin",
}


def names_of_fields(known: Mapping[str, Flag]) -> dict[str, str]:
    """The options by the fields that the library names: `net.length` is --net.length, `checksums=False` --no-checksums.

    For `Terminal.fields`, which says what a field is called where a command runs.
    """
    names = {flag.name.removeprefix("--").replace("-", "_"): flag for flag in known.values()}
    names_by_field = {flag.field: flag.name for flag in known.values() if "." not in flag.name}  # `classes` is --class
    data = {"data": "--data.path"} if "data.path" in names else {}
    off = {f"{name}=False": flag.off for name, flag in names.items() if flag.switch}
    return EVERYWHERE | data | names_by_field | {name: flag.name for name, flag in names.items()} | off


def before_arguments(argv: Iterable[str]) -> list[str]:
    """The words before a bare `--`, after which all are arguments."""
    return [*itertools.takewhile(lambda word: word != "--", argv)]


def given(argv: Iterable[str]) -> set[str]:
    """The flags of a command line as they are written there, before it is known what they are."""
    return {word.partition("=")[0] for word in before_arguments(argv) if word.startswith("--")}


def value_of(argv: Sequence[str], flag: str) -> str:
    """The first word that is given to an option, before it is known what it takes; "" where it is not there."""
    for i, word in enumerate(before_arguments(argv)):
        name, equals, text = word.partition("=")
        if name == flag:
            return text if equals else "".join(argv[i + 1 : i + 2])
    return ""


def asks_help(argv: Sequence[str]) -> bool:
    """Return whether a command line asks for help, short or in full, or for the names of its options."""
    return bool({"-h", "--help", "--help-all", LIST} & set(before_arguments(argv)))


def flag_of(name: str, known: Mapping[str, Flag]) -> Flag | None:
    """The option that a name stands for, ours or another program's; None where there is none."""
    return known.get(synonym(name.replace("_", "-"), known))


def take(known: Mapping[str, Flag], argv: Iterable[str], where: str) -> tuple[dict[str, Any], list[str]]:
    """Return what is typed for each of the options, by its flag, and all other words, with a bare `--` among them.

    A value is a text, several texts where the option takes several, or True or False of a switch.

    Raises:
        InputError: a missing or an impossible value.
    """
    off = {name: f for f in known.values() if f.switch for name in (f.off, f"--no-{f.name.removeprefix('--')}")}
    values, rest, words = dict[str, Any](), list[str](), [*argv]
    while words:
        word = words.pop(0)
        if word == "--":
            return values, [*rest, word, *words]
        name, equals, text = word.partition("=")
        flag = (flag_of(name, known) or off.get(name.replace("_", "-"))) if name[:2] == "--" else None
        if flag is None:
            rest.append(word)
            continue
        if flag.name in values:
            raise InputError(f"{flag.name} is given twice; give it once")
        if flag.switch:
            if equals or (words and words[0].lower() in ("true", "false")):
                raise InputError(f"{name} takes no value; write {flag.name} or {flag.off}")
            values[flag.name] = name.replace("_", "-") not in off
            continue
        texts = [text] if equals else []
        while not equals and words and not words[0].startswith("--") and (flag.many is None or len(texts) < flag.many):
            texts.append(words.pop(0))
        if not texts or (flag.many is not None and len(texts) < flag.many):
            count = "a value" if flag.many in (1, None) else f"{flag.many} values"
            raise InputError(f"{name} needs {count}; see {_page(where)}")
        texts = [same_value(text, flag.words) for text in texts]
        values[flag.name] = texts[0] if flag.many == 1 else texts
        flag.value(values[flag.name])
    return values, rest


def read(known: Mapping[str, Flag], argv: Iterable[str], where: str) -> tuple[dict[str, Any], list[str]]:
    """Return what is typed for each option, by its flag, and the arguments.

    Raises:
        InputError: an unknown option, with the nearest one; a missing or an impossible value.
    """
    values, rest = take(known, argv, where)
    first = before_arguments(rest)
    for word in first:
        if len(word) == 2 and word[0] == "-" and word[1].isalpha():
            meant = meaning(word, known)
            hint = f", {meant}" if meant else f" (all: {_page(where)})"
            raise InputError(f"unknown option '{word}' for {where}; flags are whole words{hint}")
        if word.startswith("--"):
            name = word.partition("=")[0]
            if " " in name:
                raise InputError(f"unknown option '{name}' for {where}; write a bare -- before a text that begins so")
            name = name.replace("_", "-")
            hint = meaning(name, known) or _nearest(name, known, where)
            raise InputError(f"unknown option '{name}' for {where}; {hint}")
    return values, first + rest[len(first) + 1 :]


def _nearest(name: str, known: Mapping[str, Flag], where: str) -> str:
    """The flag that is spelt most like `name`, by all of it or by what stands after its section."""
    section, dot, end = name.rpartition(".")
    if dot and f"--{end}" not in known and not any(flag.startswith(f"{section}.") for flag in known):
        return f"none of its options begins with {section}; see {_page(where)}"
    ends = [flag.rpartition(".")[2] for flag in known]
    near = nearest(name, known) or nearest(end.strip("-"), ends)
    near = near if near in known else next((flag for flag in known if near and flag.endswith(f".{near}")), None)
    return f"did you mean '{near}'?" if near else f"see {_page(where)}"


def _page(where: str) -> str:
    return f"zellige {where} --help" if where else "zellige --help"


def typed(cls: type, argv: Iterable[str]) -> dict[str, Any]:
    """What is typed for each option of `cls`, by its flag."""
    return take(flags(cls), argv, "")[0]


def made(options: T, known: Mapping[str, Flag], texts: Mapping[str, Any]) -> T:
    """The options with what is typed in the place of their values."""
    return with_values(options, {known[name].path: known[name].value(text) for name, text in texts.items()})


def with_data(known: Mapping[str, Flag], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the --data.name that a --data.path or --data.mix means, where none is typed."""
    if "--data.name" not in known or "--data.name" in values or not {"--data.mix", "--data.path"} & values.keys():
        return dict(values)
    if "--data.mix" in values:
        return {**values, "--data.name": "text"}
    reads_files = "path" in DATASETS[known["--data.name"].default].reads
    return dict(values) if reads_files else {**values, "--data.name": data_of(values["--data.path"])}


def parse(
    cls: type[T], argv: Sequence[str], where: str, terminal: Terminal, *, default: T | None = None, about: str = ""
) -> T:
    """The dataclass `cls` from a command line; `where` is the command as it was typed.

    The terminal says fields as the options of this command from now on. `--help` prints the short page, `--help-all`
    the long one; both end with SystemExit(0).
    """
    known = flags(cls, default)
    terminal.fields = names_of_fields(known)
    if asks_help(argv):
        page = help.words if LIST in argv else help.full if "--help-all" in argv else help.short
        print(terminal.spelled(page(cls, where, default, about)))
        raise SystemExit(0)
    texts, rest = read(known, argv, where)
    _refuse_shared({"--json": terminal.json or "-"} | texts)
    texts = with_data(known, texts)
    for argument in arguments(cls):
        if rest:
            known[argument.name] = argument
            texts[argument.name], rest = (rest, []) if argument.many is None else (rest[0], rest[1:])
    if rest:
        raise InputError(f"'{rest[0]}' is one argument too many for {where}; see {_page(where)}")
    return made(cls() if default is None else default, known, texts)


def _refuse_shared(texts: Mapping[str, Any]) -> None:
    """InputError where two outputs would be one file, of which the second would replace the first."""
    outputs = [(flag, texts[flag]) for flag in WRITTEN if flag in texts and texts[flag] != "-"]
    for (flag, name), (other, other_name) in itertools.combinations(outputs, 2):
        device = os.path.exists(name) and not os.path.isfile(name)
        if os.path.realpath(name) == os.path.realpath(other_name) and not device:
            raise InputError(f"{flag} and {other} are both '{name}'; give each a file of its own")


@declared
class Everywhere:
    """The options of every command; the seed is handed on to those that draw something."""

    json: str | None = option("file for the result as JSON; - for stdout", default=None)
    quiet: bool = option("say nothing of the progress", default=False)
    color: Literal["auto", "always", "never"] = option("colours", default="auto")
    checksums: bool = option("refuse files that are not what their checksums say", default=True)
    allow_code: bool = option("run the Python code that a file names", default=False)
    allow_remote: bool = option("fetch the data that a file names", default=False)


def everywhere(argv: Sequence[str]) -> tuple[Everywhere, list[str]]:
    """Take the options of every command out of the command line, wherever they stand in it."""
    known = flags(Everywhere)
    texts, rest = take(known, argv, "")
    return made(Everywhere(), known, texts), rest


# ---------------------------------------------------------------------------------------------------- a file of options
LARGEST, ENTRIES = 1 << 18, 10_000  # bytes, and entries, of a file of options
# what config.json has that is no choice, or not for another run
OF_A_RUN = ("format", "zellige", "about", "run", "network", "checksum")


def read_entries(name: str) -> dict[str, Any]:
    """The entries of a file by their dotted names, those of `options` at the top;
    InputError where it cannot be read."""
    try:
        return dict(_flat(_read(Path(name))))
    except RecursionError:
        raise InputError(
            f"'{shown(Path(name))}' is nested too deep; write 'name: value' lines, or JSON or TOML"
        ) from None


def _read(file: Path) -> Mapping[Any, Any]:
    """The entries that are choices of a training."""
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


def _count(tree: object, inside: Callable[[Any], Iterable[Any]], kind: type | tuple[type, ...]) -> None:
    """ValueError where a tree, with all that is in the things of a `kind` in it,
    holds more entries than options can."""
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


def values_of(
    entries: Mapping[str, Any], known: Mapping[str, Flag], typed: Container[str], name: str, where: str
) -> dict[str, Any]:
    """Return the entries by their flags, without those that are typed.

    Raises:
        InputError: an entry that is no option, or an impossible value.
    """
    values_by_name: dict[str, Any] = {}
    for entry, value in entries.items():
        leaf = entry.rpartition(".")[2]  # `train.lr` is --lr
        flag = flag_of(f"--{entry}", known) or flag_of(f"--{leaf}", known)
        if flag is None:
            names = {flag_name.removeprefix("--").replace("-", "_") for flag_name in known} | {"method"}
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
            texts = [same_value(str(entry_value), flag.words) for entry_value in several]
            value = texts[0] if flag.many == 1 else texts
            flag.value(value)
        if flag.name in values_by_name:
            raise InputError(f"{flag.name} is given twice; give it once")
        values_by_name[flag.name] = value
    return values_by_name
