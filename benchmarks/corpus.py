"""A corpus larger than memory should be: its tokens made, opened, mixed and trained on.

    python benchmarks/corpus.py --gigabytes 2 --folder /tmp/corpus      # disk: three times the text; made and removed
    python benchmarks/corpus.py --gigabytes 2 --entries 0 --folder /tmp/corpus      # bytes: as much, in minutes

The text is lines of what lies in `shared/data`, drawn again and again in another order, as one large file and two small ones; the
tokenizer a BPE learnt on 16 MB of it. Measured, each in a process of its own:

    tokenizing   MB of text a second, in turn with the `tokenizers` library alone on the same lines: `encode_batch_fast` of lists
                 that are in memory, whose tokens nobody takes. The ratio is the median over rounds of some MB.
    the corpus   all of it through `prepare`: seconds, and the most memory, anonymous and resident with what is mapped.
    opened       seconds to the first step of `train` with the tokens there, the start of the process included; the processor time
                 up to it, and of that the imports; the most memory.
    a mixture    of the three, by weights: 20 steps, and 10 and 10 after a stop; the weights are equal, bit for bit.
"""

import argparse
import json
import lzma
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

HERE = Path(__file__).parent
LINES = ("tales/train.txt.xz", "wikitext-2/train.txt.xz")
NET = {"layers": 2, "hidden": 64, "heads": 2, "length": 128, "dropout": 0.0}


def lines_of(data: Path) -> list[str]:
    text = "".join(lzma.decompress((data / name).read_bytes()).decode() for name in LINES)
    return [line for line in text.splitlines(keepends=True) if line.strip()]


def write_text(path: Path, lines: list[str], size: float, seed: int) -> None:
    """Some `size` bytes of the lines, each time round in another order."""
    draw, lines, written = random.Random(seed), list(lines), 0
    with path.open("wb") as file:
        while written < size:
            draw.shuffle(lines)
            for i in range(0, len(lines), 100):
                written += file.write("".join(lines[i : i + 100]).encode())
                if written >= size:
                    break


class Peak(threading.Thread):
    """The most memory of this process since it began, in MB: resident, and of that what is no mapped file (sampled)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.anonymous = 0.0
        self.start()

    def run(self) -> None:
        while True:
            self.anonymous = max(self.anonymous, self.read("RssAnon"))
            time.sleep(0.05)

    def read(self, name: str) -> float:
        return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) * 1024 / 1e6

    def most(self) -> dict[str, float]:
        return {"resident_mb": self.read("VmHWM"), "anonymous_mb": max(self.anonymous, self.read("RssAnon"))}


# ---------------------------------------------------------------------------------------------------- parts, a process each
def learn(text: str, tokenizer: str, entries: int) -> dict[str, Any]:
    """The tokenizer, of the first 16 MB of a text."""
    from zellige.data import tokenizer_by_name

    with open(text, encoding="utf-8") as file:
        learnt = tokenizer_by_name.train_bpe(entries, file.read(16_000_000).splitlines(keepends=True))
    learnt.save(tokenizer)
    return {"entries": learnt.size}


def speed(text: str, tokenizer: str, folder: str, megabytes: float, rounds: int) -> dict[str, Any]:
    """MB/s of the library alone and of `prepare`, in turn, by the clock and by the time of all processors."""
    from zellige.data import Data
    from zellige.data.prepare import prepare
    from zellige.data.tokenizer import load

    inner = load(tokenizer).inner  # pyright: ignore[reportAttributeAccessIssue]
    seconds: dict[str, list[tuple[float, float]]] = {"library": [], "zellige": []}  # wall and processor
    part, cache = Path(folder) / "part.txt", Path(folder) / "cache-speed"
    clocks = lambda: (time.perf_counter(), time.process_time())  # noqa: E731
    with open(text, "rb") as file:
        for i in range(1 + rounds):
            part.write_bytes(file.read(int(megabytes * 1e6)).rpartition(b"\n")[0])
            lines = part.read_text(encoding="utf-8").splitlines(keepends=True)
            begin = clocks()
            for first in range(0, len(lines), 10_000):
                inner.encode_batch_fast(lines[first : first + 10_000], add_special_tokens=False)
            between = clocks()
            prepare(Data("text", path=str(part), tokenizer=tokenizer, cache=str(cache)), 128)
            end = clocks()
            if i:  # the first is to warm up
                seconds["library"].append((between[0] - begin[0], between[1] - begin[1]))
                seconds["zellige"].append((end[0] - between[0], end[1] - between[1]))
    shutil.rmtree(cache)
    part.unlink()
    report: dict[str, Any] = {}
    for clock, name in enumerate(("wall", "processor")):
        ratios = [alone[clock] / ours[clock] for alone, ours in zip(*seconds.values())]
        rates = {way: megabytes / statistics.median(each[clock] for each in times) for way, times in seconds.items()}
        report[name] = {"mb_per_s": rates, "ratio": statistics.median(ratios), "ratios": ratios}
    return report


def corpus(text: str, tokenizer: str, cache: str, shard: int) -> dict[str, Any]:
    """All of it."""
    from zellige.data import Data
    from zellige.data import cache as store
    from zellige.data.prepare import prepare

    store.SHARD, peak, begin = shard or store.SHARD, Peak(), (time.perf_counter(), time.process_time())
    made = prepare(Data("text", path=text, tokenizer=tokenizer, cache=cache), NET["length"])
    return {
        "seconds": time.perf_counter() - begin[0],
        "processor_s": time.process_time() - begin[1],
        "tokens": sum(rows.tokens_total for rows in made.rows.values()),
        "shards": len(made.train._tokens.files),  # pyright: ignore[reportAttributeAccessIssue]
        **peak.most(),
    }


def opened(text: str, tokenizer: str, cache: str, run: str, steps: int, resume: int) -> dict[str, Any]:
    """A training on one path or, where there are commas, on a mixture; to its first step, and to its end."""
    peak = Peak()
    import zellige
    import zellige.training.fit
    from zellige.data import Data
    from zellige.show.progress import Progress

    imported = time.process_time()
    first: list[tuple[float, float]] = []

    class Watch(Progress):
        def step(self, *_: Any) -> None:
            first.append((time.time(), time.process_time()))

    which = {"mix": text} if "," in text else {"path": text}
    usual = {"warmup": 0, "decay": "constant", "samples": 0, "tensorboard": False, "device": "cpu"}
    chosen = zellige.Train(steps=steps, batch=8, validate_rows=8, validate_draws=1, **usual)
    data, net = Data("text", tokenizer=tokenizer, cache=cache, **which), zellige.Net(**NET)
    zellige.train("mdlm", data=data, net=net, train=chosen, run=run, resume=bool(resume), progress=Watch())
    began = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    began += int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return {"first_step_s": first[0][0] - began, "processor_s": first[0][1], "imports_s": imported, **peak.most()}


PARTS = {"learn": learn, "speed": speed, "corpus": corpus, "opened": opened}


def part(name: str, *arguments: Any) -> dict[str, Any]:
    """What a part says, in a process of its own."""
    command = [sys.executable, __file__, "--part", name, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: stopped with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------------------------------------------- all of it
def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    lines, size, report = lines_of(options.data), options.gigabytes * 1e9, {}
    sizes = {"large": size, "tenth": size / 10, "hundredth": size / 100}
    for seed, (name, bytes_of) in enumerate(sizes.items()):
        write_text(folder / f"{name}.txt", lines, bytes_of, seed)
    texts = {name: str(folder / f"{name}.txt") for name in sizes}
    tokenizer, cache = str(folder / "tokenizer") if options.entries else "bytes", str(folder / "cache")

    def note(name: str, result: dict[str, Any]) -> dict[str, Any]:
        report[name] = result
        print(name, json.dumps(result), flush=True)
        return result

    if options.entries:
        note("tokenizer", part("learn", texts["large"], tokenizer, options.entries))
        note("speed", part("speed", texts["large"], tokenizer, folder, options.part_mb, options.rounds))
    shard, width = 0, 1 if options.entries <= 256 else 2 if options.entries <= 1 << 16 else 4
    for name in ("hundredth", "large", "tenth"):
        made = note(f"corpus {name}", part("corpus", texts[name], tokenizer, cache, shard if name == "large" else 0))
        longer = os.path.getsize(texts["large"]) / os.path.getsize(texts[name])  # times as many tokens
        shard = int(made["tokens"] * width * longer / options.shards * 1.005)
    for name, text in texts.items():
        for when in ("once", "again"):  # the first time the tokens are new, and are read through
            note(f"opened {name} {when}", part("opened", text, tokenizer, cache, folder / f"run-{name}-{when}", 2, 0))
    mix = ",".join(f"{text}={weight}" for text, weight in zip(texts.values(), (0.6, 0.3, 0.1)))
    whole, stopped = folder / "run-whole", folder / "run-stopped"
    note("mixture", part("opened", mix, tokenizer, cache, whole, 20, 0))
    part("opened", mix, tokenizer, cache, stopped, 10, 0)
    part("opened", mix, tokenizer, cache, stopped, 20, 1)
    weights = [load_file(run / "checkpoints" / "last" / "model.safetensors") for run in (whole, stopped)]
    note("resumed", {"equal": all(bool((weights[0][name] == weights[1][name]).all()) for name in weights[0])})
    return report


def main() -> None:
    if sys.argv[1:2] == ["--part"]:
        name, *arguments = sys.argv[2:]
        print(json.dumps(PARTS[name](*(json.loads(a) if a[:1].isdigit() else a for a in arguments))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--gigabytes", type=float, default=2, help="of the large text; the others are a tenth and a hundredth"
    )
    parser.add_argument("--shards", type=int, default=64, help="so many of the large one")
    parser.add_argument(
        "--entries", type=int, default=2048, help="of the tokenizer; 0: bytes, and no speed beside the library"
    )
    parser.add_argument("--part-mb", type=float, default=64, help="MB of text of a round of the speed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--folder", type=Path, default=Path("corpus"), help="made, and removed at the end")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    try:
        report = measure(options, options.folder.resolve())
    finally:
        shutil.rmtree(options.folder)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
