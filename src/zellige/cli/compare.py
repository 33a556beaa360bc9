"""`zellige compare METHOD METHOD ...`: data, network and training are those of `train`, the same for all methods."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from ..data import Data
from ..errors import InputError
from ..show.numbers import path
from ..show.terminal import Terminal
from . import options
from .common import own_class, put_json


def compare(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige compare METHOD METHOD ...`"""
    about = "Several methods, the same network, data, seed and budget: one table."
    with terminal.waiting("starting"):
        Options = form()
    chosen: Any = options.parse(Options, words, "compare", about=about, most=10**9)
    if not chosen.run:
        raise InputError("--run is ''; give it a folder, e.g. --run runs/compare")
    with terminal.waiting("starting"):
        from ..methods import reference
        from ..report.compare.comparison import compare as run_comparison

        methods = [_own(word) for word in chosen.methods]
        own_classes = [method[0] for method in methods if not isinstance(method, str)]
    how: dict[str, Any] = {name: getattr(chosen, name) for name in ("data", "net", "train", "run")}
    how |= {name: getattr(chosen, name) for name in ("calls", "samples", "draws", "limit")}
    try:
        done = run_comparison(methods, **how, terminal=terminal)
    except KeyboardInterrupt:
        terminal.say("stopped; what is finished is kept, the same command goes on")
        return 130
    for line in str(done).splitlines():
        terminal.result(line)
    terminal.result(
        f"  written   {'   '.join(path(done.folder / f'{done.name}.{end}') for end in ('json', 'md', 'svg'))}"
    )
    put_json(terminal, done.plain)
    best = done.plain["result"]["methods"][0]
    own = next((f" --method {path(reference(cls))}" for cls in own_classes if cls.name == best["method"]), "")
    folder = path(done.folder / best["folder"])
    terminal.try_next(f"zellige sample {folder}{own} --watch", f"zellige report {folder}{own}")
    return 0


def _own(word: str) -> Any:
    """A method by name, or the class in `file.py:Class`; either with choices after a colon."""
    where, mark, rest = word.partition(".py:")
    if not mark:
        return word
    title, _, choices = rest.partition(":")
    return own_class(f"{where}.py:{title}"), choices


def form() -> Any:
    """The options, as a dataclass; torch comes with them."""
    from ..models.config import Train
    from ..nn import Net

    @dataclass(frozen=True)
    class Compare:
        methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="METHOD METHOD ...")] = ()
        """two or more, with choices if there are any: mdlm sedd:process=uniform file.py:Class"""
        data: Data = field(default_factory=Data)
        net: Net = field(default_factory=Net)
        train: Train = field(default_factory=Train)
        run: str = "runs/compare"
        """the folder of the comparison; each method's run is in a folder of its own there"""
        calls: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
        """at how many steps of its sampler each method's samples are judged"""
        samples: int = 0
        """how many at each; 0: 64 of a text, 2,000 of enumerable data"""
        draws: int = 4
        """draws of the bound for each text"""
        limit: int | None = None
        """so many texts of the test split, evenly spaced; all if not given"""

    return Compare
