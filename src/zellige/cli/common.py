"""Shared by several commands: their common options, loading, writing results."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..base import files
from ..base.errors import InputError
from ..base.plugins import GROUPS, named, others
from ..base.processes import this_process
from ..base.requests import KINDS, check_fields, declared, inline, option, options_of
from ..base.trust import names_code, object_of, refuse_code, refuse_remote
from ..data import DATASETS, Data
from ..data.corpus import as_packed
from ..data.remote_files import is_remote
from ..show.numbers import count, parameters, path
from ..show.progress import Bar
from ..show.record import LOADING, as_file, json_record
from ..show.terminal import Terminal
from . import options
from .flags import flags, options_class
from .help import with_default
from .tables import table

T = TypeVar("T")
Document = dict[str, Any]  # a result as JSON has it
idle_seed = partial(option, "changes nothing: nothing is drawn at random", default=0, idle=True)


@check_fields
@dataclass(frozen=True, kw_only=True)
class Loading:
    """Options of loading one model or several; a command's own stand before them."""

    method: str | None = option("file.py:Class, for a run of your own method", default=None)
    device: Literal["auto", "cpu", "cuda"] = option("where to compute; auto: the GPU, if there is one", default="auto")
    precision: Literal["float32", "tf32", "bfloat16", "int8"] = option(
        "precision of matrix products; tf32 needs a GPU, int8 a CPU", default="float32"
    )
    compile: bool = option(
        "torch.compile the network, on a GPU each step of sampling; a minute or two at the start, faster for long work",
        default=False,
    )
    head: str | None = option("head for the sampler speculative; a folder from zellige train speculative", default=None)
    base: str | None = option("for a tuned model: folder of its base, if it has moved", default=None)
    block: int | None = option(
        "block size, for a model that was trained with several (bd3lm --blocks; default: the model's own)",
        default=None,
        minimum=1,
    )


@declared
class OfModel(Loading):
    """Options of loading one model, and its path."""

    usage = "RUN [options]"

    run: str = option(
        "the folder of a model, the name of an included one, or a hub id (zellige list models)",
        default="",
        argument="RUN",
    )


def _field(row: dict[str, str]) -> tuple[str, Any, Any]:
    """The field of a sampler's option; the samplers check all ranges but its minimum themselves."""
    minimum = int(row["minimum"]) if "minimum" in row else None
    return row["name"], KINDS[row["kind"]] | None, option(row["help"], default=None, minimum=minimum)


if TYPE_CHECKING:

    @declared
    class SamplerOptions:
        """The options of one sampler or another; a sampler's own default stands where none is given."""

else:  # of lists.json, so that this needs no torch
    SamplerOptions = options_class("SamplerOptions", map(_field, table("options")))


def with_sampler(cls: type[T], words: Sequence[str]) -> type[T]:
    """The options of a command that draws samples, with those of the sampler that is typed,
    where another package brings it."""
    name = options.value_of(words, "--sampler")
    if name not in others("zellige.samplers") or "--block-sampler" not in (known := flags(cls)):
        return cls
    own = options_of(named(GROUPS["zellige.samplers"])[name]).values()
    rows = [{"name": o.name, "kind": o.word, "help": f"for {name}: {with_default(o.help, o.default)}"} for o in own]
    new = [_field(row) for row in rows if f"--{row['name'].replace('_', '-')}" not in known]
    wider = options_class("SamplerOptions", new, (SamplerOptions,))
    return options_class(cls.__name__, [("options", wider, inline(default=wider()))], (cls,))


@contextlib.contextmanager
def bars(terminal: Terminal) -> Iterator[Callable[..., Callable[[int, int], None]]]:
    """Bars one after another: `show("read", as_text=byte_size)` is a callback of (done,
    total) with a bar of its own."""
    with contextlib.ExitStack() as stack:

        def show(label: str, unit: str = "", detail: Callable[[], str] = str, **how: Any) -> Callable[[int, int], None]:
            bar: list[Bar] = []

            def update(done: int, total: int) -> None:
                if not bar:
                    stack.close()
                    bar.append(stack.enter_context(Bar(terminal, label, 1, unit, **how)))
                bar[0].update(done, detail(), total=total)

            return update

        yield show


def write_json(terminal: Terminal, command: str, arguments: object, result: object, began: float, **more: Any) -> None:
    """The result as JSON, where --json asks for it."""
    if terminal.json is not None:
        put_json(terminal, json_record(command, arguments, result, seconds=time.monotonic() - began, **more))


def put_json(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """Write the JSON of --json into its file or to stdout."""
    if terminal.json == "-":
        terminal.document(document)
    elif terminal.json is not None:
        files.write_file(terminal.json, as_file(document))


def writable(name: str, flag: str) -> Path:
    """The path of a file to be written; InputError where that cannot be."""
    file = Path(name)
    with contextlib.suppress(OSError):
        if file.is_dir():
            raise InputError(f"'{name}' is a folder; {flag} needs the name of a file")
        if not file.absolute().parent.is_dir():
            raise InputError(f"no folder '{file.parent}' for {flag} {name}; make it first")
    files.writable(file)
    return file


def own_class(name: str) -> Any:
    """A method by its name, or the class in `file.py:Class`."""
    if not names_code(name):
        from ..methods import find

        find(name)  # an InputError here is the first thing said
        return name
    from ..methods.method import Method

    return object_of(name, "method class", lambda value: isinstance(value, type) and issubclass(value, Method))


def load(terminal: Terminal, run: str, what: str, chosen: Loading, note: bool = True) -> Any:
    """The model of a run, a saved folder or a hub id, loaded as a command's options say.

    note: print that a model is an included one.
    """
    device = chosen.device
    if not run:
        raise InputError(f"{what} needs a run; e.g. zellige {what} runs/demo")
    with terminal.waiting("loading"):
        import torch

        from ..models import shipped
        from ..models.model import load

        if device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device is cuda, and there is no GPU here; use --device cpu")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":  # of several processes on a machine each has its own
            torch.cuda.set_device(this_process().local % torch.cuda.device_count())
        cls = own_class(chosen.method) if chosen.method else None
        model = load(
            run,
            method=None if isinstance(cls, str) else cls,
            device=device,
            head=chosen.head,
            base=chosen.base,
            **({} if chosen.block is None else {"block": chosen.block}),
        )
        model.method.compute_in(chosen.precision, chosen.compile)
    if note and (name := shipped.name_of(model)):
        terminal.note(f"'{name}' is included: {shipped.card(name)['what']}")
    return model


def loading(chosen: Any) -> dict[str, Any]:
    """Options by which a command loaded its model, as a record keeps them."""
    return {name: getattr(chosen, name) for name in LOADING}


def typed_data(chosen: Any, words: Sequence[str], own: Data) -> Data | None:
    """The data that a command line asks for; None: the run's `own`, of which nothing is typed.

    Where no other data set is named, what is typed changes the own one: a path says where its files lie. Only beside a
    text a path is another text, whose rows are made like those of the own one.
    """
    typed = {flag[7:].replace("-", "_") for flag in options.typed(type(chosen), words) if flag.startswith("--data.")}
    decisive_fields = {"name", "mix"} if DATASETS[own.name].shaped else {"name", "mix", "path"}
    if not typed:
        return None
    if typed & decisive_fields:
        return chosen.data if "pack" in typed else as_packed(chosen.data, own)
    if "path" not in typed and (far := own.remote):
        refuse_remote(far, f"the config of '{chosen.run}'")
    return replace(own, **{name: getattr(chosen.data, name) for name in typed})


def of_model(about: Mapping[str, Any]) -> str:
    """`d3pm, discrete time, T = 64, 92.1M parameters, step 98,000 (EMA)`: a result's model (`model.identity`)."""
    step = f"step {count(about['step'])}" if about.get("step") is not None else ""
    blocks = f"blocks of {count(about['block'])}" if "block" in about else ""
    parts = [about["method"], blocks, about.get("time"), parameters(about["parameters"]), step]
    return f"{', '.join(filter(None, parts))} ({about.get('weights', 'EMA')})"


def note_change(terminal: Terminal, about: dict[str, Any]) -> None:
    """A line where the data is not what the model was trained on; `about` as a result has it, or `beside_training`."""
    from ..evaluation.corpus import data_change_note

    if note := data_change_note(about):
        terminal.note(note)


def refuse_unasked(words: Iterable[str], source: str) -> None:
    """InputError where a command line that stands in a file has code run, or data fetched, and nobody allowed it."""
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        refuse_code(value, source)
        if is_remote(value):
            refuse_remote(value, source)


def run_folder(source: str) -> Path | None:
    """The folder that a result is written into: that of the run, if it is one.
    InputError where nothing can be written."""
    from ..models.checkpoint.layout import CHECKPOINTS, holds_run

    folder = Path(source)
    if not holds_run(folder) or not (folder / CHECKPOINTS).is_dir():
        return None
    files.writable(folder / "evaluate.json")
    return folder


def write_result(terminal: Terminal, file: Path, document: Mapping[str, Any]) -> None:
    """Write a result as JSON into a run, and say so."""
    files.write_file(file, as_file(document))
    terminal.result(f"  written   {path(file)}")


def unfinished_folder(source: str, cache: str | None = None) -> Path:
    """Where the parts of an evaluation that are done are stored until it is finished: the run's folder,
    or the cache."""
    from ..data.catalogue import cache_folder

    return run_folder(source) or cache_folder(cache) / "evaluations"


@contextlib.contextmanager
def resumable(terminal: Terminal) -> Iterator[None]:
    """An interruption ends with what to do next: what is done is kept."""
    try:
        yield
    except BaseException as stop:
        if not isinstance(stop, Exception):  # Ctrl-C, SIGTERM
            terminal.say("what is done is kept; the same command goes on from there")
        raise
