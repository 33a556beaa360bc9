"""`zellige demo`: a small MDLM on the prose of Python's own documentation, trained, compared and watched in minutes.

Before it a model that comes with Zellige writes for ten seconds, where there is one.
Nothing is downloaded, and nothing here is special to the demo: each step is the call that a person would make.
"""

import dataclasses
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import free
from ..base.requests import declared, option
from ..show.numbers import byte_size, count, counted, duration, parameters, path, pm
from ..show.progress import Bar, TrainingPart
from ..show.terminal import Terminal
from . import options
from .common import write_json

if TYPE_CHECKING:  # torch comes after the first line is on the screen
    import numpy as np

    from ..data import Rows
    from ..evaluation.result import Result
    from ..models.config import Train
    from ..nn import Net

STEPS = 2300
RIVAL = "3-gram"  # what a full run has to beat
DRAWS = 16  # of each test text
SAMPLE_STEPS, TEMPERATURE = 64, 0.7  # of the text that is shown; at 1 half of the words are none
SHIPPED, SECONDS = "tales", 10.0  # what is shown first, and for how long at least
CELLS = 20  # of the longest bar
RIGHT = 79  # the column where times end


def network() -> "Net":
    """The demo's network: small, time-free, with the short convolution by which a small model learns soon."""
    from ..nn import Net

    return Net(layers=4, hidden=128, heads=4, length=128, conv=7)


def training(steps: int = STEPS, seed: int = 0) -> "Train":
    """Configuration of the demo's training. It is validated a few times only: it is there to be watched."""
    from ..models.config import Train

    return Train(
        steps=steps,
        batch=8,
        lr=4e-3,
        ema=0.99,
        precision="float32",
        device="cpu",
        validate_every=max(1, steps // 4),
        validate_rows=0,
        validate_draws=2,
        samples=1,
        save_every=0,
        save_minutes=0,
        seed=seed,
    )


def show_shipped(terminal: Terminal, seed: int = 0, name: str = SHIPPED, seconds: float = SECONDS) -> int:
    """Watch a shipped model write, one text after another until `seconds` have passed; returns how many texts that
    were.

    0 where this installation has no such model. Where nothing can move, the texts alone are shown.
    """
    from ..models import shipped

    if name not in shipped.names():
        return 0
    from ..models.model import load
    from ..sampling.sample import watch
    from ..sampling.samples import collect
    from ..sampling.trajectory import Frame
    from .viewer import Viewer

    card, texts = shipped.card(name), 0
    with terminal.waiting("loading"):
        model = load(name)
    terminal.say(f"First '{name}', a model that comes with Zellige: {card['what']}")
    began = time.perf_counter()
    while not texts or time.perf_counter() - began < seconds:
        viewer = Viewer(terminal)

        def see(frame: Frame, viewer: Viewer = viewer) -> None:
            if terminal.motion or frame.step == frame.steps:
                viewer(frame)

        try:
            collect(watch(model, seed=seed + texts), see)
        finally:
            viewer.close()
        texts += 1
    terminal.say(f"More of it: zellige sample {name} --watch, zellige play {name}. Now one is trained here.\n")
    return texts


def demo(terminal: Terminal | None = None, *, steps: int = STEPS, seed: int = 0, run: str | Path | None = None) -> int:
    """Run the demo; returns the exit code, 1 if a full run does not beat the 3-gram model.

    Args:
        steps: training steps; fewer than `STEPS` are a short run, of which nothing is claimed.
        run: the folder for everything; by default the first free one of runs/demo, runs/demo-2, ...
    """
    terminal = terminal or Terminal()
    show_shipped(terminal, seed)
    began = time.perf_counter()
    folder = Path(run) if run is not None else free(Path("runs/demo"))
    terminal.say("MDLM, a masked diffusion model, on the prose of Python's own documentation")
    return _Parts(terminal, folder, steps, seed).go(began)


@declared
class Demo:
    steps: int | None = option(
        "training steps; a run with fewer than the default makes no claim about its quality", default=None, minimum=1
    )
    run: str | None = option("folder (default: runs/demo, or the first free runs/demo-N)", default=None)
    seed: int = option("random seed", default=0, minimum=0)


def command(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige demo`"""
    arguments = options.parse(
        Demo, words, "demo", terminal, about="Show a model write; then train a small one here, and let it write."
    )
    how: dict[str, Any] = {"run": arguments.run, "seed": arguments.seed}
    if arguments.steps is not None:
        how["steps"] = arguments.steps
    code = demo(terminal, **how)
    write_json(terminal, "demo", dataclasses.asdict(arguments), {"exit": code}, began, seed=arguments.seed)
    return code


class _Parts:
    """The six steps. What one needs of another is an attribute."""

    def __init__(self, terminal: Terminal, folder: Path, steps: int, seed: int):
        self.terminal, self.folder, self.steps, self.seed = terminal, folder, steps, seed

    def go(self, began: float) -> int:
        import torch

        from ..data import Data
        from ..methods import build

        self.source, self.net, self.settings = Data(), network(), training(self.steps, self.seed)
        n = sum(p.numel() for p in build("mdlm", 27, self.net).parameters())
        self.say(
            f"{parameters(n)}, {counted(torch.get_num_threads(), 'thread')}, torch "
            f"{torch.__version__.partition('+')[0]}, float32, seed {self.seed}\n"
        )
        self.read()
        self.count()
        signal_number = self.train()
        better = self.compare()
        self.sample()
        self.report()
        return self.end(better, signal_number, time.perf_counter() - began)

    def say(self, text: str, since: float | None = None) -> None:
        """A line, with the time that it took at its right end."""
        took = "" if since is None else duration(time.perf_counter() - since)
        self.terminal.say(f"{text}{took:>{max(RIGHT - len(text), len(took) + 2)}}" if took else text)

    # ---------------------------------------------------------------------------------------------------- the steps
    def read(self) -> None:
        """1: the text, in rows of the network's length."""
        from ..data.prepare import prepare

        since = time.perf_counter()
        with self.terminal.waiting("reading"):
            self.corpus = prepare(self.source, self.net.length)
        sizes = {name: rows.characters or 0 for name, rows in self.corpus.rows.items()}
        description, sha = self.corpus.tokenizer.describe(), self.corpus.about["sha256"][:8]
        self.say(f"1 data      {count(sum(sizes.values()))} characters, {description}, sha256 {sha}", since)
        self.say("            " + "   ".join(f"{name} {count(n)}" for name, n in sizes.items()))

    def count(self) -> None:
        """2: the n-gram models, and what each gives the test rows."""
        import torch

        from ..evaluation.ngram import NGrams
        from ..evaluation.result import summarize

        since = time.perf_counter()
        train, validation, test = (array(self.corpus.split(name)) for name in ("train", "validation", "test"))
        with self.terminal.waiting("counting"):
            grams = NGrams(train, validation, self.corpus.tokenizer.size)
        sizes = torch.from_numpy((test >= 0).sum(1))
        self.rivals = {
            f"{n}-gram": summarize(torch.from_numpy(grams.nats(test, n)), sizes, "bits/char", "exact")
            for n in range(1, grams.order + 1)
        }
        self.say(f"2 n-grams   1 to {grams.order} characters, interpolated, on the same train split", since)

    def train(self) -> bool:
        """3: training; True if Ctrl-C stopped it early."""
        from ..training.run import summary
        from ..training.signals import Stopped
        from ..training.train import train

        self.say(f"3 train     to {path(self.folder)}; Ctrl-C stops early and goes on with step 4")
        progress = TrainingPart(self.terminal)
        try:
            run = train("mdlm", data=self.source, net=self.net, train=self.settings, run=self.folder, progress=progress)
        except Stopped as stop:
            if stop.code != 128 + signal.SIGINT or not stop.saved or not stop.step:
                raise
            return True
        finally:
            progress.close()
        self.say(f"  {summary(run)[0]}")
        return False

    def compare(self) -> "Result":
        """4: everything on the same test rows; MDLM minus its rival, paired."""
        from ..evaluation.requests import evaluate
        from ..evaluation.result import difference
        from ..models.model import load

        since = time.perf_counter()
        self.model = load(self.folder)
        with Bar(self.terminal, "compare", len(self.corpus.test), "texts") as bar:
            bound = evaluate(
                self.model, self.corpus, "test", DRAWS, seed=self.seed, progress=lambda done, _: bar.update(done)
            )
        bound.save(self.folder / bound.file_name)
        self.say("4 compare   test split, lower is better", since)
        for line in table({**self.rivals, "MDLM": bound}, self.net.length):
            self.terminal.result(line)
        better = difference(self.rivals[RIVAL], bound)
        word = "better" if better.value > 0 else "worse"
        self.terminal.result(
            f"  MDLM is {pm(abs(better.value), better.half)} bits/char {word} than the {RIVAL} on the same texts"
        )
        return better

    def sample(self) -> None:
        """5: one text, every step of it; a few of them where nothing can move."""
        from ..sampling.sample import watch
        from ..sampling.samples import collect
        from ..sampling.trajectory import Frame
        from .viewer import Viewer

        self.say(f"5 sample    {SAMPLE_STEPS} steps, temperature {TEMPERATURE}, new characters highlighted")
        viewer = Viewer(self.terminal)

        def see(frame: Frame) -> None:
            if self.terminal.motion or frame.step % (SAMPLE_STEPS // 4) == 0:
                viewer(frame)

        try:
            collect(watch(self.model, steps=SAMPLE_STEPS, seed=self.seed, temperature=TEMPERATURE), see)
        finally:
            viewer.close()

    def report(self) -> None:
        """6: the page that holds all of it."""
        from .. import report

        since = time.perf_counter()
        with Bar(self.terminal, "draw", 1) as bar:
            page = report.write(
                self.folder, model=self.model, progress=lambda done, total: bar.update(done, total=total)
            )
        self.say(f"6 report    {path(page)}, {byte_size(page.stat().st_size)}", since)

    def end(self, better: "Result", stopped: bool, seconds: float) -> int:
        """Last lines of the demo: its results, and what to type next."""
        full = self.steps >= STEPS and not stopped
        if not full:
            verdict = "A short run: too few steps to say how good the model gets."
        elif better.low > 0:
            verdict = f"The model beats the {RIVAL}, writes in any order and fills gaps."
        elif better.value > 0:
            verdict = f"The model is below the {RIVAL}, but not by more than the interval."
        else:
            verdict = f"The model stays above the {RIVAL}."
        where = path(self.folder)
        self.terminal.say(f"\nDone in {duration(seconds)}. {verdict}")
        self.terminal.try_next(
            f'zellige sample {where} --watch --prompt "the function "',
            f'zellige infill {where} "the value of the ______ is returned"',
            "zellige verify mdlm",
        )
        return 1 if full and better.value <= 0 else 0


def array(rows: "Rows") -> "np.ndarray":
    """All rows as integers, (N, L), -1 where there is padding."""
    batch = rows.collate([rows[i] for i in range(len(rows))])
    return (batch.tokens if batch.mask is None else batch.tokens.masked_fill(~batch.mask, -1)).numpy()


def table(results: "dict[str, Result]", length: int) -> list[str]:
    """The models, worst first: number and interval, a bar, what there is to say."""
    notes = {"MDLM": f"{length} characters at once", "4-gram": "left to right, short words"}
    most = max(result.value for result in results.values())
    lines = ["                    bits/char (95%)"]
    for name, result in sorted(results.items(), key=lambda pair: -pair[1].value):
        number = f"{'≤' if result.kind == 'bound' else '='} {pm(result.value, result.half)}"
        bar = "█" * max(1, round(CELLS * result.value / most))
        lines.append(f"  {name:<15} {number:<15}   {bar:<12}  {notes.get(name, '')}".rstrip())
    return lines
