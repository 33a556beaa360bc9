"""Train the included models on one GPU, all at once, in a given number of minutes.

    python studies/included-models/gpu.py FOLDER --data DATA --minutes 20 [--models NAME ...]

DATA holds stories/train.jsonl and stories/validation.jsonl, a story a line ({"text": ...}), and sudoku.csv. Each model has a
process of its own. For three fifths of the time its learning rate is constant (FOLDER/NAME). Then the rate falls to 0
(FOLDER/NAME-end); the time of a step in the first part says how many steps the second can take. `ar` is not included: it is
trained beside `stories`, on the same text. Batches are larger than in `models.sh`. Texts have dropout and weight decay, since
they are read about forty times.

One small model does not fill a GPU, several at once do. `--batch 2 --device cpu` is a trial.
"""

import argparse
import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

from zellige.models import shipped

TEXT = (
    "--data.path {data}/stories/train.jsonl --data.validation {data}/stories/validation.jsonl --net.dropout 0.1 "
    "--train.lr 4e-3 --train.weight-decay 0.1 --train.validate-rows 128 --train.validate-every 400"
)
MODELS = {  # the included model whose config it has, or none; method; batch; options
    "stories": ("stories", "bd3lm", 64, TEXT),
    "stories-mdlm": ("stories-mdlm", "mdlm", 64, TEXT),
    "ar": (
        "",
        "ar",
        64,
        f"{TEXT} --data.pack packed --data.tokenizer bpe:2048 --net.layers 6 --net.hidden 256 --net.heads 4 --net.length 608 "
        "--net.conv 7",
    ),
    "sudoku": (
        "sudoku",
        "mdlm",
        256,
        "--data.path {data}/sudoku.csv --train.lr 3e-3 --train.validate-every 2000",
    ),
    "nouns": ("nouns", "mdlm", 256, "--train.lr 5e-3 --train.validate-every 2000"),
}
ALL = (
    "--train.optimizer muon --train.precision bfloat16 --train.workers 3 --train.samples 0 --train.no-tensorboard "
    "--train.seed 0"
)
FIRST = "--train.decay constant --train.steps 1000000 --train.warmup 300 --train.ema 0.999"
CONSTANT, SPARE = 0.6, 0.85  # share of the time at a constant rate; share of the rest that is planned, as times vary


class Training:
    """One process of `zellige train`."""

    def __init__(self, name: str, part: str, chosen: argparse.Namespace, *more: str):
        self.run, self.log = chosen.folder / f"{name}{part}", chosen.folder / f"{name}{part}.txt"
        config, method, batch, options = MODELS[name]
        words = options.replace("{data}", str(chosen.data)).split()
        words += ["--train.batch", str(chosen.batch or batch)]
        words += ["--config", str(shipped.FOLDER / config / "config.json")] if config else []
        words += [*ALL.split(), "--run", str(self.run)]
        words += ["--train.device", chosen.device, *(["--train.compile"] if chosen.device == "cuda" else []), *more]
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "zellige", "train", method, *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def rows(self) -> list[dict[str, str]]:
        file = self.run / "metrics.csv"
        return list(csv.DictReader(file.open())) if file.exists() else []

    def seconds(self) -> float | None:
        """Seconds of a step, over the last rows of the log; None while there are too few."""
        rows = self.rows()[-12:]
        if len(rows) < 3:
            return None
        first, last = rows[0], rows[-1]
        return (float(last["seconds"]) - float(first["seconds"])) / (int(last["step"]) - int(first["step"]))

    def stop(self) -> None:
        """Stop it as a scheduler would: it saves."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def __str__(self) -> str:
        rows = self.rows()
        values = [row["validation"] for row in rows if row["validation"]]
        state = f"step {rows[-1]['step']}" if rows else "no step"
        return f"{self.run.name}: {state}, validation {', '.join(value[:6] for value in values[-4:]) or 'none'}"


def wait(until: float, trainings: list[Training]) -> None:
    """Wait for the time or the trainings, and say each minute how far they are."""
    while time.monotonic() < until and any(training.process.poll() is None for training in trainings):
        time.sleep(min(60.0, max(0.0, until - time.monotonic())))
        print(*trainings, sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=MODELS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--batch", type=int, default=0, help="for a trial")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    began, total = time.monotonic(), 60 * chosen.minutes
    first = {name: Training(name, "", chosen, "--train.start", "", *FIRST.split()) for name in chosen.models}
    wait(began + CONSTANT * total, [*first.values()])
    seconds = {name: training.seconds() for name, training in first.items()}
    for training in first.values():
        training.stop()
    left = began + total - time.monotonic()
    last = []
    for name, each in seconds.items():
        if each is None:
            print(f"{name}: too few steps; see {first[name].log}")
            continue
        steps = max(1, int(SPARE * left / each))
        fall = f"--train.decay cosine --train.steps {steps} --train.warmup 20 --train.ema 0.998".split()
        last.append(Training(name, "-end", chosen, "--train.start", str(first[name].run), *fall))
    wait(began + total, last)
    for training in last:
        training.stop()
    print(*last, sep="\n")


if __name__ == "__main__":
    main()
