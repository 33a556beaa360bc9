"""`zellige demo`: a small block diffusion model learns to write stories, in minutes, and is compared with n-grams.

Nothing is downloaded, and nothing here is special to the demo: each step is the call that a person would make.
"""

import contextlib
import dataclasses
import math
import signal
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import free
from ..base.requests import declared, option
from ..show.numbers import count, counted, duration, parameters, path, pm
from ..show.progress import Bar, Speed, TrainingPart
from ..show.terminal import Terminal
from . import options
from .common import write_json

if TYPE_CHECKING:  # torch comes after the first line is on the screen
    import numpy as np

    from ..data import Data, Rows
    from ..evaluation.result import Result
    from ..models.config import Train
    from ..nn import Net

METHOD, BLOCK = "bd3lm", 4
STEPS, VALIDATIONS = 700, 7
LETTERS = 584  # no story is longer
RIVAL = "4-gram"  # what a full run has to beat
DRAWS = 2  # of each test story
CELLS = 20  # of the longest bar
WIDTH = 79  # columns
LINES = 2  # of a story while the model learns


def data() -> "Data":
    """The demo's data: each row a story from its beginning, with the token that ends it."""
    from ..data import Data

    return Data("stories", pack="document", fill=BLOCK)


def network() -> "Net":
    """The demo's network: small, time-free, with the short convolution by which a small model learns soon.
    Each story fits into its length."""
    from ..nn import Net

    return Net(layers=4, hidden=128, heads=4, length=224, conv=7)


def training(steps: int = STEPS, seed: int = 0) -> "Train":
    """Configuration of the demo's training: as often as it is validated, the same noise becomes a story."""
    from ..models.config import Train

    return Train(
        steps=steps,
        batch=8,
        optimizer="muon",
        lr=8e-3,
        decay="wsd",
        times="middle",
        warmup=50,
        ema=0.99,
        precision="float32",
        device="cpu",
        validate_every=max(1, steps // VALIDATIONS),
        validate_rows=0,
        validate_draws=1,
        samples=1,
        save_every=0,
        save_minutes=0,
        seed=seed,
    )


def demo(terminal: Terminal | None = None, *, steps: int = STEPS, seed: int = 0, run: str | Path | None = None) -> int:
    """Run the demo; returns the exit code, 1 if a full run does not beat the 4-gram model.

    Args:
        steps: training steps; fewer than `STEPS` are a short run, of which nothing is claimed.
        run: the folder for everything; by default the first free one of runs/demo, runs/demo-2, ...
    """
    terminal = terminal or Terminal()
    began = time.perf_counter()
    folder = Path(run) if run is not None else free(Path("runs/demo"))
    terminal.say("A small model learns to write stories, from nothing, while you watch.")
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
        Demo, words, "demo", terminal, about="Train a small model on short stories, and watch it learn to write."
    )
    how: dict[str, Any] = {"run": arguments.run, "seed": arguments.seed}
    if arguments.steps is not None:
        how["steps"] = arguments.steps
    code = demo(terminal, **how)
    write_json(terminal, "demo", dataclasses.asdict(arguments), {"exit": code}, began, seed=arguments.seed)
    return code


class _Learning(TrainingPart):
    """The training as a person watches it: how long it takes, and what the same noise becomes at each validation."""

    def __init__(self, terminal: Terminal, characters: int):
        super().__init__(terminal)
        self.characters = characters  # of the validation split

    def step(self, step: int, loss: float | None, unit: str | None, speed: Speed | None) -> None:
        if self.terminal.motion:
            super().step(step, None, None, None)

    def validated(self, step: int, result: Any, sample: str | None = None, best: bool = False) -> None:
        bits = result.value * result.units / self.characters / math.log(2)
        self.terminal.say(f"\n  step {count(step)}, {bits:.2f} bits per character")
        for line in wrapped(sample or "", LINES):
            self.terminal.say(line)


class _Parts:
    """The four steps. What one needs of another is an attribute."""

    def __init__(self, terminal: Terminal, folder: Path, steps: int, seed: int):
        self.terminal, self.folder, self.steps, self.seed = terminal, folder, steps, seed

    def go(self, began: float) -> int:
        self.source, self.net, self.settings = data(), network(), training(self.steps, self.seed)
        self.read()
        signal_number = self.train()
        better = self.compare()
        self.write()
        return self.end(better, signal_number, time.perf_counter() - began)

    # ---------------------------------------------------------------------------------------------------- the steps
    def read(self) -> None:
        """1: the stories, a row each."""
        import torch

        from ..data.prepare import prepare
        from ..methods import METHODS, build

        with self.terminal.waiting("reading"):
            self.corpus = prepare(self.source, self.net.length)
        self.options = METHODS[METHOD].Config(block=BLOCK)
        method = build(METHOD, self.corpus.tokenizer.size, self.net, self.options)
        n = method.parameter_count
        documents = {name: split["documents"] for name, split in self.corpus.about["splits"].items()}
        self.terminal.say(
            f"Block diffusion, {parameters(n)}, {counted(torch.get_num_threads(), 'thread')}, seed {self.seed}, "
            f"in {path(self.folder)}\n"
        )
        self.terminal.say(
            f"1 read      {count(documents['train'])} stories, and {documents['test']} others for the test"
        )

    def train(self) -> bool:
        """2: training; True if Ctrl-C stopped it early."""
        from ..training.signals import Stopped
        from ..training.train import train

        self.terminal.say("2 train     the same noise is written again and again; Ctrl-C stops early")
        self.terminal.say("\n  step 0, noise: each token is masked")
        self.terminal.say(self.terminal.paint("\n".join(["    " + "·" * (WIDTH - 4)] * LINES), "dim"), painted=True)
        progress = _Learning(self.terminal, self.corpus.validation.characters or 1)
        try:
            train(
                METHOD,
                data=self.source,
                net=self.net,
                train=self.settings,
                options=self.options,
                run=self.folder,
                progress=progress,
            )
        except Stopped as stop:
            if stop.code != 128 + signal.SIGINT or not stop.saved or not stop.step:
                raise
            return True
        finally:
            progress.close()
        return False

    def compare(self) -> "Result":
        """3: the model and n-grams of letters on the same test stories; the rival minus the model, paired."""
        import torch

        from ..data.prepare import prepare
        from ..evaluation.ngram import NGrams
        from ..evaluation.requests import evaluate
        from ..evaluation.result import difference, summarize
        from ..models.model import load

        self.model = load(self.folder)
        with Bar(self.terminal, "compare", len(self.corpus.test), "stories") as bar:
            bound = evaluate(
                self.model, self.corpus, "test", DRAWS, seed=self.seed, progress=lambda done, _: bar.update(done)
            )
        bound.save(self.folder / bound.file_name)
        assert bound.nats is not None
        with self.terminal.waiting("counting letters"):
            letters = prepare(self.source.replaced(tokenizer="characters", fill=0), LETTERS)
            train, validation, test = (array(letters.split(name)) for name in ("train", "validation", "test"))
            grams = NGrams(train, validation, letters.tokenizer.size)
        self.training_text = "\n".join(letters.tokenizer.decode(row[row >= 0].tolist()) for row in train)
        sizes = torch.from_numpy((test >= 0).sum(1))
        model = summarize(bound.nats, sizes, "bits/char", "bound")
        rivals = {
            f"{n}-gram": summarize(torch.from_numpy(grams.nats(test, n)), sizes, "bits/char", "exact")
            for n in range(1, grams.order + 1)
        }
        self.terminal.say("\n3 compare   with n-grams of letters, in bits per character: lower is better")
        for line in table({**rivals, "model": model}):
            self.terminal.result(line)
        return difference(rivals[RIVAL], model)

    def write(self) -> None:
        """4: a whole story, and how much of it the model has read."""
        from ..sampling.sample import watch
        from ..sampling.samples import collect
        from .viewer import Viewer

        with contextlib.closing(Viewer(self.terminal, keep=False)) as viewer:
            samples = collect(watch(self.model, seed=self.seed), viewer if self.terminal.motion else None)
        self.terminal.say("\n4 write     the whole story")
        story = samples.texts[0]
        self.terminal.result()
        for line in (line for paragraph in story.split("\n") for line in wrapped(paragraph)):
            self.terminal.result(line)
        passage = shared(story, self.training_text)
        self.terminal.result()
        copied = f"Of its {len(story)} characters, at most {len(passage)} in a row stand in the stories that it read:"
        for line in wrapped(f'{copied} "{passage.strip()}"'):
            self.terminal.result(line)

    def end(self, better: "Result", stopped: bool, seconds: float) -> int:
        """Last lines of the demo: its results, and what to type next."""
        full = self.steps >= STEPS and not stopped
        if not full:
            verdict = "A short run: too few steps to say how good the model gets."
        elif better.low > 0:
            verdict = f"The model beats the {RIVAL}."
        elif better.value > 0:
            verdict = f"The model is below the {RIVAL}, but not by more than the interval."
        else:
            verdict = f"The model stays above the {RIVAL}."
        where = path(self.folder)
        commands = {
            f"zellige play {where}": "watch it write, in your browser",
            f"zellige train {METHOD} --data.path FILE": "the same with your own text",
            f"zellige evaluate {where}": "its numbers: docs/learn/bounds.md",
        }
        width = max(map(len, commands))
        self.terminal.say(f"\nDone in {duration(seconds)}. {verdict}")
        self.terminal.try_next(*(f"{command:<{width}}  # {purpose}" for command, purpose in commands.items()))
        return 1 if full and better.value <= 0 else 0


def wrapped(text: str, most: int | None = None) -> list[str]:
    """The text cut between words and indented, at most so many lines of it."""
    return textwrap.wrap(
        text, WIDTH, max_lines=most, placeholder=" ...", initial_indent="    ", subsequent_indent="    "
    )


def shared(text: str, read: str) -> str:
    """The longest passage of `text` that stands in `read`.

    >>> shared("a red hat on a cat", "the cat wore a red hat")
    'a red hat'
    """
    longest = ""
    for start in range(len(text)):
        while (more := text[start : start + len(longest) + 1]) in read and len(more) > len(longest):
            longest = more
    return longest


def array(rows: "Rows") -> "np.ndarray":
    """All rows as integers, (N, L), -1 where there is padding."""
    batch = rows.collate([rows[i] for i in range(len(rows))])
    return (batch.tokens if batch.mask is None else batch.tokens.masked_fill(~batch.mask, -1)).numpy()


def table(results: "dict[str, Result]") -> list[str]:
    """The models, worst first: number and interval, a bar."""
    most = max(result.value for result in results.values())
    rows = []
    for name, result in sorted(results.items(), key=lambda pair: -pair[1].value):
        number = f"{'≤' if result.kind == 'bound' else '='} {pm(result.value, result.half)}"
        rows.append(f"    {name:<8} {number:<15}   {'█' * max(1, round(CELLS * result.value / most))}")
    return rows
