"""Which files of the package does a batch pass in training, a sample of a model, one of a method by `run`, a folder being
loaded, an option from the command line to the sampler, a metric from the request to its printed line?

    python studies/walk.py              a table: files, returns, calls that go up
    python studies/walk.py --list       and the files, in the order in which they are first entered

Measured on the code as it runs, with `sys.setprofile`. A file is *entered* when one of its functions is called.
Entering a file from another that the walk has been in before is a *return*; a call from a function of one file to one
of a file in a storey above it (by the layers in pyproject.toml) goes *up*. Each pair of files counts once, so that
loops and sizes change nothing, and what runs once, when a module is imported, does not count; nor does what is wrapped
around every call: `arguments.py` around a public one, and around one of torch's `nn.network.unfilled`, within which
nothing is initialised. It asks by public names only, so that it walks any commit: PYTHONPATH=src in another checkout.
"""

import argparse
import os
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

TEXT = "to be or not to be that is the question\n" * 200


class Walk:
    """The files that functions are called in, while it is called.

    Attributes:
        files: in the order of their first entry.
        entries: (the file that was entered before, the file entered), each pair once.
        calls: (the caller's file, the callee's), each pair once; the caller is the nearest frame of the package.
    """

    def __init__(self, root: Path):
        self.root, self.storeys = f"{root}{os.sep}", storeys(root.parents[1] / "pyproject.toml")
        self.files: list[str] = []
        self.entries: set[tuple[str, str]] = set()
        self.calls: set[tuple[str, str]] = set()
        self.latest = ""

    def __call__(self, work: Callable, *values: Any, **named: Any) -> Any:
        sys.setprofile(self.event)
        try:
            return work(*values, **named)
        finally:
            sys.setprofile(None)

    def file(self, frame: FrameType | None) -> str:
        """The frame's file below the package; empty for another's, for a module that is being imported, and for wrappers."""
        if frame is None or not frame.f_code.co_filename.startswith(self.root):
            return ""
        if frame.f_code.co_name in ("<module>", "__torch_function__"):
            return ""
        name = frame.f_code.co_filename.removeprefix(self.root)
        return "" if name == "base/arguments.py" else name

    def event(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        name = self.file(frame) if event == "call" else ""
        if not name:
            return
        if name not in self.files:
            self.files.append(name)
        if self.latest and self.latest != name:
            self.entries.add((self.latest, name))
        self.latest, caller = name, frame.f_back
        while caller is not None and not self.file(caller):
            caller = caller.f_back
        if caller is not None:
            self.calls.add((self.file(caller), name))

    def returns(self) -> list[tuple[str, str]]:
        """Entries of a file that the walk has been in before."""
        return sorted((a, b) for a, b in self.entries if self.files.index(b) < self.files.index(a))

    def up(self) -> list[tuple[str, str]]:
        """Calls of what stands in a storey above."""
        return sorted((a, b) for a, b in self.calls if self.storey(b) < self.storey(a))

    def storey(self, file: str) -> int:
        """The storey of a file, 0 at the top."""
        return self.storeys[file.removesuffix(".py").split("/")[0]]


def storeys(project: Path) -> dict[str, int]:
    """Each package or module directly below `zellige` -> its storey in the contract, 0 at the top."""
    contracts = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {name.strip(" ()"): i for i, layer in enumerate(layers) for name in layer.split("|")} | {"__init__": -1}


def walks() -> dict[str, Walk]:
    """What walks -> its walk: a tiny MDLM on a text of one line, all of it once before, so that no import is on the way."""
    import zellige
    from zellige import Data, Net, Train
    from zellige.cli import main
    from zellige.plugins.evaluations.generate.printing import describe_samples

    root = Path(zellige.__file__).parent
    training, sampling, running, loading, option, metric = (Walk(root) for _ in range(6))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ZELLIGE_CACHE"] = f"{folder}/cache"
        text, run = Path(folder, "text.txt"), Path(folder, "run")
        text.write_text(TEXT, encoding="utf-8")
        net = Net(layers=1, hidden=16, heads=2, length=32)
        with ThirdStep(training):
            zellige.train("mdlm", data=Data("text", path=str(text)), net=net, train=Train(steps=6, batch=4), run=run)
        model = zellige.load(run)
        zellige.sample(model, steps=4)
        loading(zellige.load, run)
        sampling(zellige.sample, model, steps=4, seed=0)
        running(lambda: [*zellige.run(zellige.SAMPLERS["ancestral"](), model.method, (1, net.length), 4)])
        command = f"sample {run} --steps 4 --temperature 0.7 --out {folder}/samples.txt --quiet".split()
        main(command)
        with ToTheSampler(option):
            main(command)
        judge, samples = f"{folder}/judge", f"{folder}/samples.txt"
        zellige.train("ar", data=Data("text", path=str(text)), net=net, train=Train(steps=2, batch=4), run=judge)
        request = zellige.evaluations.EvaluateSamples(judge=judge, samples=samples, reference="none")
        describe_samples(request.run(model))
        with WithoutLoading(metric):
            describe_samples(request.run(model))
    return {
        "a batch in training": training,
        "a state in sampling": sampling,
        "a sample of a method, by `run`": running,
        "a folder being loaded": loading,
        "an option, from argv to the sampler": option,
        "a metric, from the request to its line": metric,
    }


class ThirdStep:
    """While in it: walk from the end of the second optimizer step to the end of the third: rows, noise, loss, gradients, step."""

    def __init__(self, walk: Walk):
        self.walk, self.steps = walk, 0

    def event(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.steps == 2:
            self.walk.event(frame, event, argument)
        if event == "return" and frame.f_code.co_name == "optimizer_step" and self.walk.file(frame):
            self.steps += 1

    def __enter__(self) -> None:
        sys.setprofile(self.event)

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)


class WithoutLoading:
    """While in it: walk, but for the loading of a model."""

    def __init__(self, walk: Walk):
        self.walk, self.loading = walk, False

    def event(self, frame: FrameType, event: str, argument: Any) -> None:
        if (self.walk.file(frame), frame.f_code.co_name) == ("models/model.py", "load") and event in ("call", "return"):
            self.loading = event == "call"
        if not self.loading:
            self.walk.event(frame, event, argument)

    def __enter__(self) -> None:
        sys.setprofile(self.event)

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)


class ToTheSampler(WithoutLoading):
    """The same until the sampler takes its first step."""

    def __init__(self, walk: Walk):
        super().__init__(walk)
        self.over = False

    def event(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.over:
            super().event(frame, event, argument)
        self.over = self.over or (self.walk.file(frame).startswith("samplers/") and frame.f_code.co_name == "step")


def measure() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--list", action="store_true", help="the files, in the order of their first entry")
    options = ask.parse_args()
    results = walks()
    print("| | files | returns | calls that go up |\n|---|---|---|---|")
    for what, walk in results.items():
        print(f"| {what} | {len(walk.files)} | {len(walk.returns())} | {len(walk.up())} |")
    if options.list:
        for what, walk in results.items():
            print(f"\n{what}: {' '.join(walk.files)}\n  up: " + ", ".join(f"{a} -> {b}" for a, b in walk.up()))


if __name__ == "__main__":
    measure()
