"""Half an hour on one GPU, in stages of at most nine minutes: is it right, how fast is it, and one model trained.

    python benchmarks/gpu_run.py right --out FOLDER       # a GPU computes what the CPU computes (tests/gpu)
    python benchmarks/gpu_run.py steps --out FOLDER       # training steps of 12 x 768, L = 1,024: tokens/s, MFU, memory
    python benchmarks/gpu_run.py sampling --out FOLDER    # the same for sampling
    python benchmarks/gpu_run.py train --out FOLDER       # binarized MNIST; call it until it prints "done"
    python benchmarks/gpu_run.py all --small --device cpu --out FOLDER    # a trial with tiny sizes: no figures to keep

The data is Larochelle's, in runs/data/binarized-mnist (`.amat` or `.amat.xz`); git ignores runs/. A training that its stage cuts
short is saved and goes on at the next call. FOLDER receives at most eight files.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA, RUN = ROOT / "runs" / "data" / "binarized-mnist", ROOT / "runs" / "gpu-binarized-mnist"
LIMIT = 520.0  # seconds of a stage, of which the last 40 are for saving
NET = (
    "--net.kind unet --net.channels 64 --net.blocks 2 --train.steps 30000 --train.batch 256 --train.lr 1e-3 "
    "--train.precision bfloat16"
)
SMALL = "--net.kind unet --net.channels 16 --net.blocks 1 --train.steps 4 --train.batch 4"


def call(words: list[str], log: Path, seconds: float) -> int:
    """Run python with these words, show what it prints and keep it in `log`; at the limit interrupt it, as a scheduler would.

    Returns its exit code, 143 where the time was over.
    """
    print("python", *words, flush=True)
    with (
        log.open("a") as file,
        subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=file, stderr=file) as process,
    ):
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # `train` saves and exits with 143
            code = process.wait()
    print(*log.read_text().splitlines()[-12:], sep="\n", flush=True)
    return code


def right(out: Path, device: str, small: bool) -> int:
    marked = "gpu" if device == "cuda" else "not gpu and not long and not compile"
    return call(["-m", "pytest", "-o", "addopts=", "-q", "-m", marked, "tests/gpu"], out / "right.txt", LIMIT)


def steps(out: Path, device: str, small: bool) -> int:
    return measured("step", out / "steps.md", device, small)


def sampling(out: Path, device: str, small: bool) -> int:
    return measured("sampling", out / "sampling.md", device, small)


def measured(words: str, target: Path, device: str, small: bool) -> int:
    """Measure by benchmarks/gpu.py what has these words, into a page of its own."""
    pages = ROOT / "runs" / "gpu-pages" / words
    pages.mkdir(parents=True, exist_ok=True)
    command = [
        "benchmarks/gpu.py",
        "--device",
        device,
        "--only",
        words,
        "--out",
        str(pages),
        *["--small", "--no-compile"] * small,
    ]
    code = call(command, pages / "log.txt", LIMIT)
    for page in pages.glob("RESULTS-*.md"):
        shutil.copy(page, target)
    return code


def train(out: Path, device: str, small: bool) -> int:
    """Train, or go on; then the bound of the test set and sixteen samples."""
    began = time.monotonic()
    run = RUN.with_name(f"{RUN.name}-trial") if small else RUN
    data = ["--data.name", "binarized-mnist", "--data.path", str(DATA)]
    fresh = ["train", "md4", *data, *(SMALL if small else NET).split(), "--train.device", device, "--run", str(run)]
    words = ["train", "md4", "--run", str(run), "--resume"] if (run / "config.json").is_file() else fresh
    code = call(["-m", "zellige", *words], out / "train.log", LIMIT - 40)
    if code in (143, -signal.SIGTERM):
        print("not done: call this stage again")
        return code
    some = ["--limit", "4"] if small else []
    after = (
        ["evaluate", str(run), *some, "--json", str(out / "evaluate.json")],
        ["sample", str(run), "--count", "100", "--out", str(out / "samples.png")],
    )
    for words in after:
        left = LIMIT - (time.monotonic() - began)
        code = code or call(["-m", "zellige", *words], out / "train.log", max(left, 1.0))
    for file in (run / "checkpoints" / "best" / "model.safetensors", run / "report.html"):
        if file.is_file():
            shutil.copy(file, out / file.name)
    print(f"failed: exit code {code}" if code else "done")
    return code


STAGES = {"right": right, "steps": steps, "sampling": sampling, "train": train}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stage", choices=[*STAGES, "all"])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny sizes: a trial of this file")
    chosen = parser.parse_args()
    if chosen.device == "cpu" and not chosen.small:
        parser.error("on a CPU only a trial, with --small")
    chosen.out.mkdir(parents=True, exist_ok=True)
    worst = 0
    for stage in STAGES if chosen.stage == "all" else [chosen.stage]:
        worst = max(worst, abs(STAGES[stage](chosen.out, chosen.device, chosen.small)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
