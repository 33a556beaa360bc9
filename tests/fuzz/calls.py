"""Calls of the Python interface: valid ones, with one or two arguments exchanged for something odd, added, or left out."""

import itertools
import math
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from . import world


@cache
def models(template: Path) -> dict[str, Any]:
    """The tiny models, loaded once: no call may change them."""
    import zellige

    return {name: zellige.load(template / "runs" / name) for name in world.RUNS}


def pool(model: Any) -> list[Callable[[], Any]]:
    """What an argument may be by mistake."""
    import zellige
    from zellige.samplers import Ancestral

    return [
        lambda: None, lambda: True, lambda: -1, lambda: 0, lambda: 1, lambda: 3, lambda: 1.5, lambda: math.nan,
        lambda: math.inf, lambda: 10**30, lambda: -(10**30), lambda: "", lambda: "missing", lambda: "a\0b",
        lambda: "a" * 5000, lambda: "\udc80", lambda: b"bytes", lambda: [], lambda: [1], lambda: ["a"],
        lambda: [[1, 2], [3]], lambda: {}, lambda: {"a": 1}, lambda: (), set, object, lambda: int, lambda: len,
        lambda: Path("missing"), lambda: Path("a\0b"), lambda: torch.zeros(2), lambda: torch.zeros(0),
        lambda: torch.zeros(2, 16, dtype=torch.long), lambda: torch.full((2, 16), 99),
        lambda: torch.full((2, 16), -1), lambda: torch.zeros(2, 3, 4, dtype=torch.long),
        lambda: torch.zeros(2, 17, dtype=torch.long), lambda: torch.full((2, 16), math.nan),
        lambda: np.zeros((2, 2)), lambda: np.array(["a"]), lambda: np.int64(2), lambda: np.float32(0.5),
        lambda: torch.tensor(2), lambda: model, lambda: model.method, lambda: model.tokenizer, lambda: model.config,
        zellige.Data, zellige.Train, zellige.Net, torch.Generator, Ancestral,
        lambda: zellige.Batch(torch.zeros(2, 16, dtype=torch.long)), lambda: zellige.METHODS["mdlm"], lambda: "cuda",
        lambda: "runs/a", lambda: torch.float32, lambda: complex(1, 2), SimpleNamespace, lambda: range(3),
        lambda: iter([1]),
    ]  # fmt: skip


def targets(models: dict[str, Any]) -> dict[str, tuple[Any, Callable[[], tuple[list[Any], dict[str, Any]]], str]]:
    """What is called: name -> (the function, its valid arguments, what becomes of the result)."""
    import zellige
    from zellige import methods, samplers
    from zellige.data.prepare import prepare

    model = models["a"]
    train = lambda **more: zellige.Train(steps=1, batch=2, samples=0, validate_rows=2, tensorboard=False, **more)  # noqa: E731
    net = lambda **more: zellige.Net(layers=1, hidden=16, heads=2, length=16, **more)  # noqa: E731
    data = lambda: zellige.Data("text", path="notes.txt")  # noqa: E731
    batch = lambda: zellige.Batch(torch.zeros(2, 16, dtype=torch.long))  # noqa: E731
    tokens = lambda: torch.zeros(2, 16, dtype=torch.long)  # noqa: E731
    settings = lambda run: {"data": data(), "net": net(), "train": train(), "run": run}  # noqa: E731
    few = {"steps": 2, "count": 1, "seed": 0}
    calls: dict[str, Any] = {
        "train": (zellige.train, lambda: (["mdlm"], settings("new"))),
        "evaluate": (zellige.evaluate, lambda: ([model], {"draws": 1, "limit": 2, "seed": 0, "split": "test", "batch": 64})),
        "sample": (zellige.sample, lambda: ([model], {**few, "temperature": 1.0, "top_p": 1.0, "prompt": "the"})),
        "watch": (zellige.watch, lambda: ([model], {**few, "batch": 2, "length": None, "fixed": None})),
        "infill": (zellige.infill, lambda: ([model, "the ___"], dict(few))),
        "embed": (zellige.embed, lambda: ([model, ["the", "value"]], {"layer": 0, "t": 0.0, "seed": 0, "batch": 2})),
        "load": (zellige.load, lambda: (["runs/a"], {"checkpoint": "last", "device": "cpu", "method": None, "net": None})),
        "verify": (zellige.verify, lambda: (["mdlm"], {"only": "process.rows", "sampler": None})),
        "compare": (zellige.compare, lambda: ([["mdlm", "md4"]], settings("runs") | {"calls": [2]})),
        "report": (zellige.plugins.report.write, lambda: (["missing"], {"out": "out.html", "steps": 2, "seed": 0})),
        "prepare": (prepare, lambda: ([data(), 16], {})),
        "build": (methods.build, lambda: (["mdlm", 5], {"net": net(), "length": 16, "ordered": False})),
        "Data": (zellige.Data, lambda: (["text"], {"path": "notes.txt", "tokenizer": "bytes", "pack": "wrap"})),
        "Data.of": (zellige.Data.of, lambda: ([torch.zeros(64, 16, dtype=torch.long), 3], {})),
        "Train": (zellige.Train, lambda: ([], {"steps": 2, "batch": 2, "lr": 1e-3, "betas": (0.9, 0.99), "decay": "cosine"})),
        "Net": (zellige.Net, lambda: ([], {"layers": 1, "hidden": 16, "heads": 2, "length": 16})),
        "Batch": (zellige.Batch, lambda: ([tokens()], {"mask": torch.ones(2, 16, dtype=torch.bool), "segments": None})),
        "Model.text": (model.text, lambda: ([tokens()], {})), "Model.to": (model.to, lambda: (["cpu"], {})),
        "Model.save": (model.save, lambda: (["out"], {})),
        "Model.export": (model.export, lambda: (["out"], {"to": "mdlm"})),
        "run": (samplers.run, lambda: ([samplers.Ancestral(), model.method, (2, 16)], {"steps": 2, "fixed": None})),
        "check": (samplers.check, lambda: ([samplers.Ancestral(), model.method], {})),
        "find": (samplers.find, lambda: (["ancestral"], {})), "METHODS": (methods.find, lambda: (["mdlm"], {})),
    }  # fmt: skip
    for name in models:
        method = models[name].method
        for verb in ("loss", "bound", "terms"):
            if verb == "loss" or method.bounded:
                calls[f"{name}.{verb}"] = (getattr(method, verb), lambda: ([batch()], {"generator": torch.Generator()}))
        calls[f"{name}.predict"] = (
            method.predict,
            lambda: ([tokens(), 0.5], {"at": torch.ones(2, 16, dtype=torch.bool)}),
        )
    calls["a.corrupt"] = (model.method.corrupt, lambda: ([batch(), 0.5], {"generator": torch.Generator()}))
    for name, cls in samplers.SAMPLERS.items():
        calls[name] = (
            cls,
            lambda cls=cls: ([], {n: default(cls, n) for n in samplers.options_of(cls)}),
        )
    return calls


def default(cls: type, name: str) -> Any:
    """The default of an argument of a constructor."""
    import inspect

    return inspect.signature(cls).parameters[name].default


def trial(here: world.World, rng: random.Random) -> str:
    """One call; what it was. Raises Wrong."""
    known = models(here.template)
    calls = targets(known)
    cheap = [name for name in calls if name not in ("train", "compare")]
    target = rng.choice(cheap) if rng.random() < 0.9 else rng.choice(("train", "compare"))
    function, arguments = calls[target]
    with here.here(here.work):
        args, kwargs = arguments()
    odd = pool(known["a"])
    kept = kwargs.get("train")  # the default trains for hours
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.randrange(20)
        if kind == 0 and args:
            args.pop()
        elif kind == 1:
            name = rng.choice(("n", "num_samples", "stesp", "lr", "epochs", "batch_size", "Seed", "model_", "zz"))
            kwargs[name] = 1
        elif kind == 2:
            args.append(rng.choice(odd)())
        elif kwargs and (kind < 12 or not args):
            kwargs[rng.choice([*kwargs])] = rng.choice(odd)()
        elif args:
            args[rng.randrange(len(args))] = rng.choice(odd)()
    if kept is not None and (kwargs.get("train") is None or isinstance(kwargs["train"], type(kept))):
        kwargs["train"] = kept
    name = f"{target}({', '.join([*map(brief, args), *(f'{k}={brief(v)}' for k, v in kwargs.items())])})"
    generator = torch.random.get_rng_state()
    try:
        with here.trial():
            call(function, args, kwargs)
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    finally:
        torch.random.set_rng_state(generator)
    return name


def call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """It works, or says what is wrong: an InputError, or for what is no argument a TypeError that names those that are."""
    import zellige

    try:
        result = function(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(itertools.islice(result, 4))
    except zellige.InputError as error:
        text = str(error)
        if ("; " not in text and "(" not in text) or "\n" in text or len(text) > 600:
            raise world.Wrong(f"InputError: {world.short(text)!r}") from error
    except TypeError as error:
        if "; " not in str(error) or " argument" not in str(error):
            raise world.Wrong(f"TypeError: {error} {place(error)}") from error
    except (world.Wrong, world.Hang):
        raise
    except BaseException as error:
        raise world.Wrong(f"{type(error).__name__}: {world.short(str(error))} {place(error)}") from error


def place(error: BaseException) -> str:
    """Where in the package it was raised."""
    at, last = error.__traceback__, ""
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if "/zellige/" in file:
            last = f"({file.rpartition('/zellige/')[2]}:{at.tb_lineno} {at.tb_frame.f_code.co_name})"
        at = at.tb_next
    return last


def brief(value: Any) -> str:
    """An argument in a few signs."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"{type(value).__name__}{tuple(value.shape)}"
    text = repr(value)
    return text if len(text) < 50 else f"{text[:45]}..."
