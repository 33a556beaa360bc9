"""Folders of others, one of every layout, with an odd value for one entry of one JSON file: read, or refused in one line."""

import copy
import json
import random
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from . import world
from .calls import call

ODD = (
    None, True, False, -1, 0, 1, 2, 5, 10**18, 10**29, -(10**30), 1.5, 1e308, float("nan"), float("inf"), "", "x", "²",
    "9" * 5000, "\0", "\udc80", "a" * 3000, "../..", [], {}, [[]], [None], [1, 2, 3], ["x"], {"a": {}}, {"rope_type": 1},
)  # fmt: skip


@cache
def folders(here: world.World) -> dict[str, Path]:
    """A small folder of every layout, by its name."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
    from published import encoders, large, test_gpt2, test_qwen, test_tauldr  # pyright: ignore[reportMissingImports]
    from safetensors.torch import save_file

    import zellige
    from zellige.data.tokenizer import Characters
    from zellige.methods import METHODS, build
    from zellige.models.config import Config
    from zellige.plugins.published.writing import fitting

    box = here.box / "published"
    for system in encoders.SYSTEMS:
        encoders.published(box / system, system)
    for system in ("llada", "dream"):
        large.published(box / system, system)
    for kind in test_qwen.SIZES:
        test_qwen.folder_of(box / kind, kind)
    sdar = {
        "architectures": ["SDARForCausalLM"],
        "model_type": "sdar",
        "block_size": 4,
        "mask_token_id": test_qwen.MASK,
    }
    test_qwen.folder_of(
        box / "sdar", "Qwen3", test_qwen.SDAR | json.loads((box / "Qwen3/config.json").read_text()) | sdar
    )
    test_gpt2.folder_of(box / "gpt2")
    (box / "tauldr").mkdir()
    save_file(test_tauldr.weights(test_tauldr.SMALL), box / "tauldr/model.safetensors")
    (box / "tauldr/config.json").write_text(json.dumps(test_tauldr.SMALL))
    net = zellige.Net(layers=1, hidden=16, heads=2, length=12)
    for name, cls in METHODS.items():
        config = Config(
            name, cls.Config(**{"begin": 0} if name == "ar" else {}), zellige.Data("text"), net, zellige.Train()
        )
        for layout in fitting(config):
            if not (box / layout).exists():
                model = zellige.Model(
                    build(name, 27, net, config.options), Characters(" abcdefghijklmnopqrstuvwxyz"), config
                )
                model.export(box / layout, layout)
        if name == "mdlm":
            zellige.Model(build(name, 27, net), Characters(" abcdefghijklmnopqrstuvwxyz"), config).save(box / "saved")
    zellige.load(box / "mdlm").save(box / "imported")
    zellige.load(box / "bert").save(box / "imported-bert")
    return {folder.name: folder for folder in sorted(box.iterdir())}


def entries(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every entry in plain data, at most a few of a long list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in list(inner)[:60]:
        yield (*at, key)
        yield from entries(below, (*at, key))


def changed(plain: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Plain data with another value at a place."""
    plain = copy.deepcopy(plain)
    parent = plain
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return plain


def read(folder: Path) -> None:
    """Load what is in a folder, and use it once."""
    import zellige

    zellige.sample(zellige.load(folder), steps=1)


def trial(here: world.World, rng: random.Random) -> str:
    """One entry of one file, and the folder read; what it was. Raises Wrong."""
    with here.here(here.box):
        known = folders(here)
    layout = rng.choice([*known])
    files = sorted(known[layout].glob("*.json"))
    file = rng.choice([known[layout] / "config.json", *files])
    plain = json.loads(file.read_text(encoding="utf-8"))
    place, value = rng.choice([*entries(plain)]), rng.choice(ODD)
    name = f"{layout}/{file.name}: {'.'.join(map(str, place))} is {repr(value)[:30]}"
    generator = torch.random.get_rng_state()
    try:
        with here.trial():
            folder = shutil.copytree(known[layout], Path("folder"))
            text = json.dumps(changed(plain, place, value))
            (folder / file.name).write_text(text, encoding="utf-8")
            (folder / "SHA256SUMS").unlink(missing_ok=True)
            call(read, [folder], {})
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    finally:
        torch.random.set_rng_state(generator)
    return name
