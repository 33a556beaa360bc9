"""Options: frozen dataclasses on the command line. Names and values are checked here, in one line each; tyro does the rest.

The flag of a field is its name, with the name of the dataclass it stands in before it: `Net.layers` in a field `net` is
`--net.layers`. A field whose annotation says `arg(name="")` puts its own fields at the top: a method's `schedule` is
`--schedule`. What is said below the command line names fields, in backquotes; `Terminal.spelled` makes options of them.

`--config FILE` has options in YAML, JSON or TOML, such as a run's config.json; what is typed comes first:

    method: mdlm
    schedule: cosine            # or options: {schedule: cosine}
    data: {path: notes/}
    train: {steps: 3000, lr: 1e-3}
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import tomllib
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from ..base.arguments import Annotation
from ..base.errors import InputError, nearest
from ..base.requests import option_of
from ..base.schema import shown
from ..data import DATASETS
from ..data.file_names import data_of
from ..show.terminal import Terminal
from .flags import Flag, descriptions, flags, named_fields, positionals, short_help
from .meanings import meaning, same_value, synonym

T = TypeVar("T")
LIST = "--list-options"  # for completion: prints what a command takes, a line each; `--name=` takes a value, of these words
COLORS = ("auto", "always", "never")  # of --color
EVERYWHERE = {  # what every command takes, and options of `zellige train` that other commands advise
    "checksums=False": "--no-checksums", "allow_code": "--allow-code", "allow_remote": "--allow-remote", "resume": "--resume",
    "data.labels": "--data.labels", "begin": "--begin",
}  # fmt: skip


def names_of_fields(known: Mapping[str, Flag]) -> dict[str, str]:
    """The options by the fields that the library names: `net.length` is --net.length, `checksums=False` --no-checksums.

    For `Terminal.fields`, which says what a field is called where a command runs.
    """
    names = {flag.name.removeprefix("--").replace("-", "_"): flag for flag in known.values()}
    names_by_field = {flag.field: flag.name for flag in known.values() if "." not in flag.name}  # `classes` is --class
    data = {"data": "--data.path"} if "data.path" in names else {}
    off = {f"{name}=False": flag.off for name, flag in names.items() if flag.switch}
    return EVERYWHERE | data | names_by_field | {name: flag.name for name, flag in names.items()} | off


def given(argv: Sequence[str], cls: type | None = None) -> set[str]:
    """The flags that stand in a command line: as they are written there, or as the options `cls` spells them."""
    argv = argv if cls is None else canonical(flags(cls), argv)
    return {word.partition("=")[0] for word in argv if word.startswith("--")}


def value_of(argv: Sequence[str], flag: str) -> str:
    """The first word that is given to an option; "" where it is not there."""
    for i, word in enumerate(argv):
        name, equals, text = word.partition("=")
        if name == flag:
            return text if equals else "".join(argv[i + 1 : i + 2])
    return ""


def take(words: Sequence[str], name: str, where: str) -> tuple[str | None, list[str]]:
    """The value of one option, and the command line without the two."""
    for i, word in enumerate(words):
        head, has_value, value = word.partition("=")
        if head == name:
            if not has_value and (i + 1 == len(words) or words[i + 1].startswith("--")):
                raise InputError(f"{name} needs a value; see zellige {where} --help")
            return (
                (value, [*words[:i], *words[i + 1 :]]) if has_value else (words[i + 1], [*words[:i], *words[i + 2 :]])
            )
    return None, list(words)


def _nearest(name: str, known: dict[str, Flag], where: str) -> str:
    """The flag that is spelt most like `name`, by all of it or by what stands after its section."""
    ends = [flag.rpartition(".")[2] for flag in known]
    near = nearest(name, known) or nearest(name.rpartition(".")[2].strip("-"), ends)
    near = near if near in known else next((flag for flag in known if near and flag.endswith(f".{near}")), None)
    return f"did you mean '{near}'?" if near else f"see zellige {where} --help"


def asks_help(argv: Sequence[str]) -> bool:
    """Return whether a command line asks for help, short or in full, or for the names of its options."""
    return bool({"-h", "--help", "--help-all", LIST} & set(argv))


def canonical(known: dict[str, Flag], argv: Sequence[str]) -> list[str]:
    """The command line in our names, --train.lr for --lr, bfloat16 for bf16, and tyro's, --train.no-x for --no-train.x."""
    negations = {f"--no-{flag.name.removeprefix('--')}": flag.off for flag in known.values() if flag.switch}
    words, known_words = [], []
    for word in argv:
        name, equals, value = word.partition("=")
        if word.startswith("--no-"):
            word, known_words = negations.get(word.replace("_", "-"), word), []
        elif name.startswith("--") and len(name) > 2:
            name = synonym(name, known) if name.replace("_", "-") not in known else name
            flag = known.get(name.replace("_", "-"))
            known_words = flag.words if flag else []
            word = name + equals + same_value(value, known_words)
        else:
            word = same_value(word, known_words)
        words.append(word)
    return words


def with_data(known: dict[str, Flag], argv: Sequence[str]) -> list[str]:
    """The command line with the --data.name that a --data.path or --data.mix means, where none is typed."""
    name, heads = known.get("--data.name"), given(argv)
    if name is None or "--data.name" in heads:
        return [*argv]
    if "--data.mix" in heads:
        return [*argv, "--data.name=text"]
    if "--data.path" not in heads or "path" in DATASETS[name.default].reads:
        return [*argv]
    return [*argv, f"--data.name={data_of(value_of(argv, '--data.path'))}"]


def read(known: dict[str, Flag], argv: Sequence[str], where: str) -> tuple[dict[str, Any], list[str]]:
    """Return what is typed for each option, by its flag, and the words that are no option.

    A value is a text, several texts where the option takes several, or True or False of a switch.

    Raises:
        InputError: an unknown option with the nearest one, a missing or an impossible value.
    """
    values_by_name, rest, words = dict[str, Any](), list[str](), canonical(known, argv)
    off = {flag.off: flag for flag in known.values() if flag.switch}
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            if len(word) == 2 and word[0] == "-" and word[1].isalpha() and word != "-h":
                meant = meaning(word, known)
                hint = (
                    f"flags are whole words, {meant}"
                    if meant
                    else f"flags are whole words (all: zellige {where} --help)"
                )
                raise InputError(f"unknown option '{word}' for {where}; {hint}")
            rest.append(word)
            continue
        name, has_value, value = word.partition("=")
        name = name.replace("_", "-")
        flag = known.get(name) or off.get(name)
        if flag is None:
            raise InputError(
                f"unknown option '{name}' for {where}; {meaning(name, known) or _nearest(name, known, where)}"
            )
        if flag.name in values_by_name:
            raise InputError(f"{flag.name} is given twice; give it once")
        if flag.switch:
            if has_value or (words and words[0].lower() in ("true", "false")):
                raise InputError(f"{name} takes no value; write {flag.name} or {flag.off}")
            values_by_name[flag.name] = name == flag.name
            continue
        values = [value] if has_value else []
        while (
            not has_value and words and (flag.many is None or len(values) < flag.many) and not words[0].startswith("--")
        ):
            values.append(words.pop(0))
        if not values or (flag.many is not None and len(values) < flag.many):
            want = "a value" if flag.many in (1, None) else f"{flag.many} values"
            raise InputError(f"{name} needs {want}; see zellige {where} --help")
        for entry in values:
            flag.check(entry)
        values_by_name[flag.name] = values[0] if flag.many == 1 else values
    return values_by_name, rest


def parse(
    cls: type[T], argv: Sequence[str], where: str, terminal: Terminal, *,
    default: T | None = None, about: str = "", most: int = 0,
) -> T:  # fmt: skip
    """The dataclass `cls` from a command line; `where` is the command as it was typed, `most` its positional arguments.

    The terminal says fields as the options of this command from now on. `--help` prints the short page, `--help-all` tyro's;
    both end with SystemExit(0).
    """
    import tyro

    kwargs: dict[str, Any] = {"prog": f"zellige {where}", "args": argv, "description": about}
    view = _view(cls)
    if default is not None:
        kwargs["default"] = _as_view(view, default)
    if "--help-all" in argv:
        kwargs["args"] = ["--help"]
        tyro.cli(view, **kwargs)
    if LIST in argv:
        flags_of_command = flags(cls, default).values()
        print(
            "\n".join(
                [
                    *positionals(cls),
                    *(
                        (f.off if f.default else f.name) if f.switch else f"{f.name}={' '.join(f.words)}"
                        for f in flags_of_command
                    ),
                ]
            )
        )
        raise SystemExit(0)
    if asks_help(argv):
        print(short_help(cls, where, default, about))
        raise SystemExit(0)
    flags_of_command = flags(cls, default)
    terminal.fields = names_of_fields(flags_of_command)
    argv = with_data(flags_of_command, canonical(flags_of_command, argv))
    rest = read(flags_of_command, argv, where)[1]
    if rest[most:]:
        raise InputError(f"'{rest[most]}' is one argument too many for {where}; see zellige {where} --help")
    kwargs["args"] = argv
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            parsed_view = tyro.cli(view, **kwargs)
    except SystemExit as end:
        own_message = getattr(
            end.__context__, "message", None
        )  # what a dataclass said about its fields, one within another
        own_message = str(end.__context__) if isinstance(end.__context__, InputError) else own_message
        if isinstance(own_message, str) and "; " in own_message and "\n" not in own_message:
            raise InputError(own_message) from None
        message = " ".join(line.strip(" │") for line in output.getvalue().splitlines() if line.startswith("│"))
        short = message.partition(" ─")[0].strip().rstrip(".") or "the options cannot be read"
        raise InputError(f"{short[:1].lower()}{short[1:]}; see zellige {where} --help") from None
    return _as_options(cls, parsed_view, default)


@functools.cache  # a process that parses many command lines, such as tests or a notebook, makes it once
def _view(cls: Any) -> Any:
    """A dataclass as tyro reads it: the declared fields that are on the command line, with their help; itself where it has none.

    tyro knows neither `requests.option` nor hidden fields.
    """
    fields = [field for field, _, _ in named_fields(cls)]
    hints = typing.get_type_hints(cls, include_extras=True)
    hints |= {field.name: kind for field, _, kind in named_fields(cls) if option_of(field)}
    views = {field.name: _view(kind) for field, _, kind in named_fields(cls) if dataclasses.is_dataclass(kind)}
    if not any(map(option_of, dataclasses.fields(cls))) and all(views[n] is _bare(hints[n]) for n in views):
        return cls
    helps = descriptions(cls)
    return dataclasses.make_dataclass(
        cls.__name__, [_viewed(field, hints[field.name], views, helps) for field in fields], frozen=True
    )


def _viewed(
    field: dataclasses.Field[Any], hint: Annotation, nested: dict[str, Any], helps: dict[str, str]
) -> tuple[str, Any, Any]:
    """A field of a view: its name, its type with its marks for tyro, and its default."""
    import tyro

    option, marks = option_of(field), typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    kind = _bare(hint) if option is None or option.typed is None else option.typed
    default: Any = dataclasses.field(default=field.default)
    if field.name in nested:
        kind = nested[field.name]
        factory = field.default_factory
        factory = factory if factory is not dataclasses.MISSING else lambda: field.default
        default = dataclasses.field(default_factory=lambda: _as_view(kind, factory()))
    elif tyro.conf.Positional not in marks:
        name = (option and option.flag) or next((m.name for m in marks if getattr(m, "name", None)), field.name)
        description = helps.get(f"--{name}".replace("_", "-"), "")
        marks = (*(m for m in marks if not hasattr(m, "help")), tyro.conf.arg(name=name, help=description or None))
    return field.name, Annotated[(kind, *marks)] if marks else kind, default


def _bare(hint: Annotation) -> Any:
    """A type without its annotations."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _as_view(view: Any, options: object) -> Any:
    """Options in the dataclass that tyro reads."""
    if isinstance(options, view):
        return options
    kinds = {field.name: _bare(field.type) for field in dataclasses.fields(view)}
    values = {name: getattr(options, name) for name in kinds}
    views = {n: _as_view(kind, values[n]) for n, kind in kinds.items() if dataclasses.is_dataclass(kind)}
    return view(**values | views)


def _as_options(cls: Any, viewed: object, default: Any) -> Any:
    """The dataclass `cls` of what tyro read; what is not on the command line is that of `default`."""
    if isinstance(viewed, cls):
        return viewed
    values = {}
    for field, _, kind in named_fields(cls):
        value = getattr(viewed, field.name)
        if dataclasses.is_dataclass(kind):
            value = _as_options(kind, value, getattr(default, field.name, None))
        values[field.name] = value
    return cls(**values) if default is None else dataclasses.replace(default, **values)


# ---------------------------------------------------------------------------------------------------- a file of options
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
        flag = next((known[f] for f in (synonym(_option(n), known) for n in (entry, leaf)) if f in known), None)
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
            for text in texts:
                flag.check(text)
            value = texts[0] if flag.many == 1 else texts
        if flag.name in values_by_name:
            raise InputError(f"{flag.name} is given twice; give it once")
        values_by_name[flag.name] = value
    return values_by_name
