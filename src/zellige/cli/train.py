"""`zellige train METHOD`: its options are those of the method, the data, the network and the training, all dataclasses.

A recipe (`--recipe NAME`) says the method, and is the default of every option.
"""

import contextlib
import dataclasses
import itertools
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import InputError
from ..base.plugins import named, ours
from ..base.processes import this_process
from ..base.requests import inline, option, option_of
from ..base.trust import reading, refuse_code
from ..data import DATASETS, Data
from ..show.numbers import path
from ..show.progress import TrainingBar
from ..show.terminal import Terminal
from ..training.requests import SECTIONS, Training
from . import options
from .common import own_class, put_json
from .flags import Flag, flags, options_class

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..training.run import Run

OWN = 4  # of a method's own options, at the head of the short help
SHOWN = (  # below them
    "size config data.path data.name net.layers net.hidden net.length train.steps epochs train.batch train.lr run "
    "resume overwrite recipe"
)


def form(method: Any) -> Any:
    """The options of `train METHOD`, as a dataclass: the sections, and what a request of a training has beside them."""
    from ..models.config import Train
    from ..nn import Net

    sections = [
        ("options", method.Config, inline(default=method.Config())),
        ("data", Data, option(default=Data())),
        ("net", Net, option(default=Net())),
        ("train", Train, option(default=Train())),
    ]
    config = option("file of options: YAML, JSON or TOML; a run's config.json too", default=None)
    first = [name.removeprefix("--") for name in flags(method.Config)][:OWN]
    return options_class(
        "Options", [*sections, *own_fields(Training), ("config", str | None, config)], shown=" ".join([*first, SHOWN])
    )


def own_fields(request: type) -> list[tuple[str, Any, Any]]:
    """The fields of a request that are options of a command: of each its name, type,
    default and what it says of itself."""
    hints = typing.get_type_hints(request)
    names = []
    for entry in dataclasses.fields(request):
        about = option_of(entry)
        if about is not None and not about.hidden:
            names.append((entry.name, hints[entry.name], field(default=entry.default, metadata=entry.metadata)))
    return names


def _subject(words: Sequence[str], entries: dict[str, Any], source: str) -> tuple[str, str, list[str]]:
    """The method that is typed or stands in a file of options, the recipe (at least one of the two),
    and the options."""
    name, rest = ("", [*words]) if words[0].startswith("-") else (words[0], [*words[1:]])
    method_name = str(entries.pop("method", ""))
    recipe = options.value_of(rest, "--recipe") or ("" if name else str(entries.get("recipe") or ""))
    if not name and not recipe:
        refuse_code(method_name, f"'{source}'")
    name = name or ("" if recipe else method_name)
    if not name and not recipe:
        if "--recipe" in options.given(rest):
            raise InputError("--recipe needs a name; see zellige list recipes")
        raise InputError(f"train needs its method first, then the options; e.g. zellige train mdlm {words[0]} ...")
    return name, recipe, rest


def choose(
    words: Sequence[str],
    terminal: Terminal,
    command: str = "train",
    varied: Sequence[str] = (),
    default: Mapping[str, str] | None = None,
) -> tuple[Training, dict[str, Flag]]:
    """Read what is typed after `zellige train`: a method or a recipe, then options.

    Args:
        varied: an option with one of its values, `--train.lr=1e-3`, for each that has several, in a sweep.
        default: values by their flags, where they are not typed.

    Returns:
        The training, and the options that it may have.

    Raises:
        InputError: what is typed is wrong, or the file of options.
    """
    file = options.value_of(words, "--config")
    entries = {} if not file or options.asks_help(words) else options.read_entries(file)
    from_file = "" if words and not words[0].startswith("-") else file
    name, recipe, words = _subject(words, entries, file)
    with terminal.waiting("starting"), reading(from_file):
        method: Any = own_class(name) if name else None
        unsized = Training(method, recipe=recipe)
        Options = form(unsized.method_class)
    flags_of_command = flags(Options)
    words = _with_column(words)
    where = f"{command} {name or f'--recipe {recipe}'}"
    if options.asks_help(words):
        values, _ = options.take(flags_of_command, words, where)
        size = default_size(values, recipe) or values.get("--size")
        kinds = {name: values[f"--{name}"] for name in ("data.name", "net.kind") if f"--{name}" in values}
        complete = replace(unsized, size=size or None, settings=kinds).filled()
        shown_options = Options(*(getattr(complete, section) for section in SECTIONS), recipe=recipe, size=size or None)
        about = f"Train {recipe or name}; everything goes into --run FOLDER."
        options.parse(Options, words, where, terminal, default=shown_options, about=about)
    terminal.fields = options.names_of_fields(flags_of_command)
    typed_values, more = options.read(flags_of_command, [*varied, *words], where)
    if more:
        word = more[0]
        flag = "--data.name" if word in DATASETS else "--data.path" if Path(word).exists() else ""
        hint = f"train on it with {flag} {word}" if flag else f"see zellige {where} --help"
        raise InputError(f"'{word}' is one argument too many for {where}; {hint}")
    values: dict[str, Any] = dict(default or {}) | typed_values
    values = options.values_of(entries, flags_of_command, values, file, where) | values
    begins = "--resume" not in values or bool(this_process().launcher)
    if begins:
        recipes = values.get("--recipe", recipe)
        values["--size"] = values.get("--size") or default_size(values, recipes, values.get("--train.device", "auto"))
    whole = {flag: values.pop(flag) for flag in [*values] if flags_of_command[flag].owner is Options}
    request = Training(
        method,
        recipe=whole.get("--recipe", recipe),
        size=whole.get("--size") or None,
        folder=whole.get("--run"),
        resume=whole.get("--resume", False),
        overwrite=whole.get("--overwrite", False),
        settings={setting(flags_of_command[flag]): value for flag, value in values.items()},
    )
    return request.with_values({"epochs": whole["--epochs"]} if "--epochs" in whole else {}), flags_of_command


def _with_column(words: Sequence[str]) -> list[str]:
    """The words with a column that stands after --data.labels, a switch, given to --data.labels-by."""
    column = lambda word, after: "=" in word or not after.startswith("--")  # noqa: E731
    return [
        word.replace("--data.labels", "--data.labels-by")
        if word.partition("=")[0] == "--data.labels" and column(word, after)
        else word
        for word, after in itertools.pairwise([*words, "--"])
    ]


def setting(flag: Flag) -> str:
    """The name of an option's field among the settings of a training."""
    return ".".join(flag.path).removeprefix("options.")


def default_size(typed: Iterable[str], recipe: str, device: str = "auto") -> str:
    """Return the machine's size, or "" if one of the typed flags chooses a network."""
    if recipe or not {"--size", "--train.start"}.isdisjoint(typed):
        return ""
    from ..training.setup import machine_size

    return machine_size(device)


def train(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige train METHOD`: the rest is flags; or `zellige train classifier MODEL` and its like."""
    if words and (on_model := ours("zellige.trainings").get(words[0])):
        return named(on_model)(words[0], words[1:], terminal)
    request, _ = choose(words, terminal)
    with terminal.waiting("reading" if request.epochs is not None else "starting"):
        complete = request.filled()
    with contextlib.closing(TrainingBar(terminal)) as progress:
        finished_run = complete.start(progress)
    trained(terminal, finished_run, complete.method_class)
    put_json(terminal, finished_run.to_dict() | {"seconds": time.monotonic() - began})
    return 0


def trained(terminal: Terminal, run: "Run", method: "type[Method] | None" = None, then: str = "") -> None:
    """The end of a run: what it came to, and what to type next."""
    from ..methods import METHODS, reference
    from ..training.run import summary

    own = None if method is None or method in METHODS.values() else reference(method)
    folder = f"{path(run.folder)} --method {path(own)}" if own else path(run.folder)
    for line in summary(run):
        terminal.result(line)
    commands = (f"zellige evaluate {folder}", f"zellige sample {folder} --watch", f"zellige report {folder}")
    terminal.try_next(*commands, *([then] if then else []))


class About(NamedTuple):
    """A command about trainings, `plan` or `sweep`: options of its own beside those of `zellige train METHOD`.

    Attributes:
        name: of the command.
        own: the request whose fields are its own options.
        without: the options of `train` that it has not, or has of its own, by their fields.
        what: it does, for its help.
        usage, shown: of its options, as `help.short` reads them.
    """

    name: str
    own: type
    without: tuple[str, ...]
    what: str
    usage: str
    shown: str

    def form(self, method: Any) -> Any:
        """The options of the command with a method, as a dataclass."""
        common_fields = [(f.name, f.type, f) for f in dataclasses.fields(form(method)) if f.name not in self.without]
        fields = [*own_fields(self.own), *common_fields]
        return options_class(f"{self.name.title()}Options", fields, usage=self.usage, shown=self.shown)

    def help(self, words: Sequence[str], terminal: Terminal) -> None:
        """Show the help and leave, if that is asked for."""
        if options.asks_help(words):
            from ..methods import METHODS, find

            name = words[0] if words[0] in METHODS else ""
            options.parse(
                self.form(find(name or "mdlm")), words, f"{self.name} {name}".strip(), terminal, about=self.what
            )

    def split(self, words: Sequence[str], terminal: Terminal) -> tuple[Any, list[str]]:
        """The request of its own options, and the words that are those of `train`."""
        known = flags(self.own)
        texts, rest = options.take(known, words, self.name)
        terminal.fields = options.names_of_fields(known)
        return options.made(self.own(), known, texts), rest
