"""Loading a published model of SEDD-small's sizes (12 x 768, 50,258 rows; random float32 numbers): seconds and memory.

    python benchmarks/loading.py

Each way is measured in a process of its own, after the imports, several times in turn. `read` is the time in which the bytes of
the file go through memory once, with nothing made of them; `load` is `zellige.load`; `touch` is a sum over every weight after
it, so that memory that was only promised is paid. Peak: resident memory above what was there before, over that of the weights.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from measure import Memory

WAYS = {
    "safetensors": "SEDD's layout, model.safetensors",
    "bin": "SEDD's layout, pytorch_model.bin",
    "ckpt": "a Lightning checkpoint, the averaged weights",
    "own": "a folder that Zellige wrote",
    "copied": "the same, filled and copied (as before)",
}
FILES = {"safetensors": "model.safetensors", "bin": "pytorch_model.bin", "ckpt": "last.ckpt"}


def config(layers: int, hidden: int, tokens: int) -> dict:
    model = {
        "hidden_size": hidden, "cond_dim": 128, "length": 1024, "n_blocks": layers, "n_heads": hidden // 64,
        "scale_by_sigma": True, "dropout": 0.1,
    }  # fmt: skip
    noise = {"type": "loglinear", "sigma_min": 1e-4, "sigma_max": 20}
    return {"tokens": tokens, "graph": {"type": "absorb"}, "noise": noise, "model": model}


def make(folder: Path, layers: int, hidden: int, tokens: int) -> None:
    """Every way's folder."""
    from zellige.data.tokenizer import Integers
    from zellige.nn import DiT, Net
    from zellige.plugins.published import ddit

    torch.manual_seed(0)
    network = DiT(Net(layers, hidden, hidden // 64, 1024), tokens + 1, time=True)
    state = {ddit.theirs(name): torch.randn_like(tensor) * 0.02 for name, tensor in network.state_dict().items()}
    rotary = {"rotary_emb.inv_freq": 1e4 ** (-torch.arange(0, 64, 2).float() / 64)}
    ordered = ddit.order(list(state))
    for way, file in FILES.items():
        (folder / way).mkdir(parents=True)
        path = folder / way / file
        Integers(tokens).save(folder / way)
        (folder / way / "config.json").write_text(json.dumps(config(layers, hidden, tokens)))
        if way == "safetensors":
            save_file(state | rotary, path, {"format": "pt"})
        elif way == "bin":
            torch.save(state | rotary, path)
        else:
            average = {"decay": 0.9999, "num_updates": 9, "shadow_params": [state[name].clone() for name in ordered]}
            torch.save({"model": state | rotary, "ema": average, "step": 9}, path)
    import zellige

    zellige.load(folder / "safetensors").save(folder / "own")


def once(folder: Path, way: str) -> dict[str, float]:
    """One load in this process."""
    import contextlib

    import zellige
    from zellige.models import model as checkpoint

    place = folder / ("own" if way == "copied" else way)
    file = place / FILES.get(way, "model.safetensors")
    if way == "copied":
        checkpoint.unfilled = contextlib.nullcontext
        checkpoint.place_weights.__kwdefaults__ = None
        whole = checkpoint.place_weights
        checkpoint.place_weights = lambda *args, take=False: whole(*args)
    assert zellige.load is checkpoint.load  # imported by now
    block = bytearray(1 << 22)
    began = time.perf_counter()
    with file.open("rb", buffering=0) as stream:
        while stream.readinto(block):
            pass
    read = time.perf_counter() - began
    memory = Memory()
    before = memory.mark()
    began = time.perf_counter()
    model = zellige.load(place)
    load = time.perf_counter() - began
    loaded = memory.largest() - before
    began = time.perf_counter()
    with torch.no_grad():
        for p in model.method.parameters():
            p.sum()
    touch = time.perf_counter() - began
    size = sum(p.numel() * p.element_size() for p in model.method.parameters()) / 2**20
    return {
        "read": read, "load": load, "touch": touch, "MiB": size, "peak, loaded": loaded / size,
        "peak, touched": (memory.largest() - before) / size,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=50257)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", nargs=2, metavar=("FOLDER", "WAY"))
    chosen = parser.parse_args()
    if chosen.once:
        print(json.dumps(once(Path(chosen.once[0]), chosen.once[1])))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), chosen.layers, chosen.hidden, chosen.tokens)
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for i in range(chosen.rounds + 1):  # the first round brings the files into the page cache
            for way in WAYS:
                command = [sys.executable, __file__, "--once", folder, way]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                if i:
                    found[way].append(json.loads(done.stdout))
    size = found["own"][0]["MiB"]
    print(f"{size * 2**20 / 4e6:.1f}M parameters, {size:.0f} MiB; medians of {chosen.rounds} rounds\n")
    print("| | read, s | load, s | touch, s | peak loaded | peak touched |\n|---|---|---|---|---|---|")
    for way, what in WAYS.items():
        row = {key: statistics.median(r[key] for r in found[way]) for key in found[way][0]}
        print(
            f"| {what} | {row['read']:.2f} | {row['load']:.2f} | {row['touch']:.2f} | {row['peak, loaded']:.2f} | "
            f"{row['peak, touched']:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
