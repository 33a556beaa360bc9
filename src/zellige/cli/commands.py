"""The commands, one function each: (words after the command, terminal, when it began) -> exit code.

Their options are frozen dataclasses; what they do is one call of the Python interface; what remains here is what is printed.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..data import Data
from ..errors import InputError, nearest
from ..terminal import Terminal, as_file, columns, count, escape, parameters, path, record, size
from . import options, pages

if TYPE_CHECKING:
    from ..result import Result

Run = Annotated[str, tyro.conf.Positional]
Device = Literal["auto", "cpu", "cuda"]


def write_json(terminal: Terminal, command: str, arguments: Any, result: Any, began: float, **more: Any) -> None:
    """The result as JSON, where --json asks for it."""
    if terminal.json is None:
        return
    plain = (
        result
        if command == "evaluate"
        else record(command, arguments, result, seconds=time.monotonic() - began, **more)
    )
    put_json(terminal, plain)


def put_json(terminal: Terminal, plain: Any) -> None:
    """What --json asks for, into its file or on stdout."""
    if terminal.json == "-":
        terminal.document(plain)
    elif terminal.json is not None:
        from ..files import write_file

        write_file(terminal.json, as_file(plain))


def writable(name: str, flag: str) -> Path:
    """The path of a file to be written; InputError where that cannot be."""
    from .. import files

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
    where, colon, title = name.rpartition(":")
    if not colon or not where.endswith(".py"):
        from ..methods import find

        find(name)  # an InputError here is the first thing said
        return name
    file = Path(where)
    if not file.is_file():
        near = (
            nearest(file.name, [f.name for f in file.absolute().parent.glob("*.py")])
            if file.absolute().parent.is_dir()
            else None
        )
        raise InputError(
            f"no file at '{where}'; " + (f"nearest in that folder: '{near}'" if near else "give the path of a .py file")
        )
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"'{where}' does not import ({type(error).__name__}: {error}); run it with python first"
        ) from error
    from ..method import Method

    classes = [
        n
        for n, c in vars(module).items()
        if isinstance(c, type) and issubclass(c, Method) and c.__module__ == file.stem
    ]
    if title not in classes:
        near = nearest(title, classes)
        meant = f"did you mean '{near}'? " if near else ""
        raise InputError(f"no method class '{title}' in '{where}'; {meant}(there: {', '.join(classes) or 'none'})")
    return getattr(module, title)


def load(terminal: Terminal, run: str, what: str, method: str | None, device: str) -> Any:
    """The model of a run, a saved folder or a hub id."""
    if not run:
        raise InputError(f"{what} needs a run; e.g. zellige {what} runs/demo")
    with terminal.waiting("loading"):
        import torch

        from ..checkpoint import load

        if device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device is cuda, and there is no GPU here; use --device cpu")
        chosen = "cuda" if device == "auto" and torch.cuda.is_available() else device
        cls = own_class(method) if method else None
        return load(run, method=None if isinstance(cls, str) else cls, device="cpu" if chosen == "auto" else chosen)


def of_model(about: dict[str, Any]) -> str:
    """`d3pm, discrete time, T = 64, 92.1M parameters, step 98,000 (EMA)`: which model a result is of (`checkpoint.identity`)."""
    step = f"step {count(about['step'])}" if about.get("step") is not None else ""
    said = [about["method"], about.get("time"), parameters(about["parameters"]), step]
    return f"{', '.join(filter(None, said))} ({about.get('weights', 'EMA')})"


# ---------------------------------------------------------------------------------------------------------- evaluate
MODES = {  # a flag of `evaluate` that makes another command of it: cli/<module>.run(words, terminal, began) does all
    "--suite": "suite",
    "--generate": "quality",
    "--pairs": "pairs",
    "--probe": "probe",
    "--steps": "steps",  # last: others have an option of that name
}


@dataclass(frozen=True)
class Evaluate:
    run: Run = ""
    """a run, a saved folder or a hub id"""
    data: Data = field(default_factory=Data)
    """another data set than the run's own"""
    split: str = "test"
    """train, validation or test"""
    draws: int = 4
    """draws of each text"""
    limit: int | None = None
    """so many texts, evenly spaced; all if not given"""
    batch: int = 64
    """rows in one call of the network; the number does not depend on it"""
    estimator: str = "bound"
    """bound, or another that the method admits: any_order, random, forward, backward"""
    processes: int = 1
    """worker processes; the number does not depend on it"""
    seed: int = 0
    method: str | None = None
    """file.py:Class of a run with an own method"""
    device: Device = "auto"
    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """do again what this file says was done"""
    show: bool = False
    """with --from: print what the file holds, evaluate nothing"""


def evaluate(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate RUN`"""
    given = options.given(words)
    mode = next((MODES[flag] for flag in MODES if flag in given), None)
    if mode is not None:
        return importlib.import_module(f"{__package__}.{mode}").run(words, terminal, began)
    about = f"The likelihood of a text, with its 95% intervals. {', '.join(MODES)} are commands of their own: see their --help."
    chosen = options.parse(Evaluate, words, "evaluate", about=about, most=1)
    data = chosen.data if any(flag.startswith("--data.") for flag in given) else None
    recorded = None
    if chosen.show and not chosen.from_:
        raise InputError("--show needs a file; e.g. zellige evaluate --from runs/demo/evaluate-pydocs-test.json --show")
    if chosen.from_:
        from ..result import Result, read

        plain = read(chosen.from_)
        recorded = Result.from_dict(plain, chosen.from_)
        if chosen.show:
            _print(terminal, recorded)
            write_json(terminal, "evaluate", None, plain, began)
            return 0
        chosen, data = _again(chosen, data, plain, given)
    file = run_folder(chosen.run)
    model = load(terminal, chosen.run, "evaluate", chosen.method, chosen.device)
    from .. import evaluate as judge
    from .. import groups
    from .suite import keep, resumable

    rank, world = groups.ranks()
    with terminal.bar("read", 1, say=size) as bar:
        corpus = judge.corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    with resumable(terminal), terminal.bar("evaluate", 1, "texts") as bar:
        result = judge.evaluate(
            model, corpus, chosen.split, chosen.draws, chosen.seed, chosen.limit, chosen.batch,
            estimator=chosen.estimator, processes=chosen.processes, distributed=world > 1,
            keep=keep(chosen.run, model.config.data.cache), progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    if rank:  # of several, the first one speaks
        return 0
    arguments = {
        "run": chosen.run, "data": None if data is None else dataclasses.asdict(data), "split": chosen.split,
        "draws": chosen.draws, "seed": chosen.seed, "limit": chosen.limit, "batch": chosen.batch,
        "estimator": chosen.estimator, "method": chosen.method, "device": chosen.device,
    }  # fmt: skip
    _print(terminal, result)
    plain = result.to_dict("evaluate", arguments)
    if recorded is not None:
        same = recorded.value == result.value
        terminal.note(f"{path(chosen.from_ or '')} holds {'the same number' if same else str(recorded)}")
    elif file is not None:
        from .results import write

        name = write(file, result, plain, terminal)
        terminal.result(f"  written   {path(name)}")
        terminal.result(f"  again     zellige evaluate --from {path(name)}")
    write_json(terminal, "evaluate", arguments, plain, began)
    return 0


def note_change(terminal: Terminal, about: dict[str, Any]) -> None:
    """A line where the data is not what the model was trained on; `about` as a result has it, or `evaluate.beside_training`."""
    from .. import evaluate as judge

    if said := judge.changed(about):
        terminal.note(said)


def run_folder(source: str) -> Path | None:
    """The folder that a result is written into: that of the run, if it is one. InputError where nothing can be written."""
    from .. import files

    folder = Path(source)
    if not (folder / "config.json").is_file() or not (folder / "checkpoints").is_dir():
        return None
    files.writable(folder / "evaluate.json")
    return folder


def _again(chosen: Evaluate, data: Data | None, plain: dict, given: set[str]) -> tuple[Evaluate, Data | None]:
    """The options that a result was made with; those given now outrank them."""
    before = plain.get("arguments")
    if not isinstance(before, dict) or "run" not in before:
        raise InputError(f"'{chosen.from_}' does not say how it was made; evaluate the run itself")
    before = dict(before)
    made_on = before.pop("data", None)
    if data is None and made_on is not None:
        data = Data(**made_on)
    names = {f.name for f in dataclasses.fields(Evaluate)} - {"data", "from_", "show", "processes"}
    keep = {n: v for n, v in before.items() if n in names and f"--{n}" not in given and not (n == "run" and chosen.run)}
    return dataclasses.replace(chosen, **keep), data


def _print(terminal: Terminal, result: "Result") -> None:
    from .results import describe, heading

    for line in [*heading(result), *describe(result)]:
        terminal.result(line)
    note_change(terminal, result.about)


# ---------------------------------------------------------------------------------------------- verify, report, demo
@dataclass(frozen=True)
class Verify:
    methods: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """names, or file.py:Class; all if none is given"""
    only: str | None = None
    """a check, or the beginning of its name: bound.closed-form, sampler"""
    sampler: str | None = None
    """the checks of one sampler only"""
    seed: int = 0
    """changes nothing: nothing is drawn at random"""


def verify(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige verify [METHOD ...]`; exit code 1 if an identity does not hold."""
    chosen = options.parse(Verify, words, "verify", about="Check the identities by enumeration.", most=10**9)
    with terminal.waiting("starting"):
        from .. import verify as checks

        classes = [own_class(name) for name in chosen.methods]
    with terminal.bar("verify", 1, "checks") as bar:
        report = checks.verify(
            *classes, only=chosen.only, sampler=chosen.sampler,
            progress=lambda done, total, name: bar.update(done, name, total),
        )  # fmt: skip
    for line in report.lines():
        head, gap, word = escape(line).rpartition("  ")
        style = {"ok": "green", "FAIL": "red"}.get(word, "")
        terminal.result(head + gap + (terminal.paint(word, style, out=True) if style else word), painted=True)
    write_json(terminal, "verify", dataclasses.asdict(chosen), report.to_json(), began)
    return 0 if report.ok else 1


@dataclass(frozen=True)
class Report:
    run: Run = ""
    """a run, or a saved folder"""
    out: str | None = None
    """the page; RUN/report.html if not given"""
    seed: int = 0
    """of the samples that are shown"""
    method: str | None = None
    """file.py:Class of a run with an own method"""


def report(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige report RUN`"""
    chosen = options.parse(Report, words, "report", about="One self-contained page about a run.", most=1)
    if not chosen.run:
        raise InputError("report needs a run; e.g. zellige report runs/demo")
    if chosen.out:
        writable(chosen.out, "--out")
    model = load(terminal, chosen.run, "report", chosen.method, "auto") if chosen.method else None
    with terminal.waiting("drawing"):
        from ..report import write

        page = write(chosen.run, chosen.out, model=model, seed=chosen.seed)
    terminal.result(f"{path(page)}, {size(page.stat().st_size)}")
    result = {"page": str(page), "bytes": page.stat().st_size}
    write_json(terminal, "report", dataclasses.asdict(chosen), result, began, seed=chosen.seed)
    return 0


@dataclass(frozen=True)
class Demo:
    steps: int | None = None
    """training steps; fewer than the default make a short run, of which nothing is claimed"""
    run: str | None = None
    """the folder; the first free one of runs/demo, runs/demo-2, ... if not given"""
    seed: int = 0


def demo(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige demo`"""
    chosen = options.parse(Demo, words, "demo", about="Train a small model here and now, and watch it write.")
    from ..demo import demo

    how: dict[str, Any] = {"run": chosen.run, "seed": chosen.seed}
    if chosen.steps is not None:
        how["steps"] = chosen.steps
    code = demo(terminal, **how)
    write_json(terminal, "demo", dataclasses.asdict(chosen), {"exit": code}, began, seed=chosen.seed)
    return code


# --------------------------------------------------------------------------------------------------------------- list
@dataclass(frozen=True)
class List:
    what: Annotated[Literal["methods", "samplers", "data", "checkpoints"] | None, tyro.conf.Positional] = None
    seed: int = 0
    """changes nothing"""


def list_(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige list methods|samplers|data|checkpoints`; without a word: these four."""
    chosen = options.parse(List, words, "list", about="What there is to choose from.", most=1)
    rows: Any = pages.table(chosen.what) if chosen.what else [{"name": k, "what": v} for k, v in pages.LISTS.items()]
    header = [*rows[0]]
    whole = [row for row in rows if row.keys() == rows[0].keys()]
    for line in columns([header, *([row[name] for name in header] for row in whole)], "<" * len(header)):
        terminal.result(line)
    for row in rows[len(whole) :]:  # other names
        terminal.result(f"{row['name']:<{max(len(r['name']) for r in rows) + 2}}= {row['same as']}")
    write_json(terminal, "list", dataclasses.asdict(chosen), rows, began)
    return 0
