"""What each command and each part of the library imports, each in a process of its own.

A case has the packages that must not be there, and about how many modules there may be: a new one that nobody uses is
seen in either. How long that takes is measured by `benchmarks/start.py`.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from zellige.cli import COMMANDS, tables

SCHEMAS = {"attr", "attrs", "cattrs", "typing_extensions", "zellige"}  # all that a command needs before it computes
COMPILER = {"torch._dynamo", "torch._inductor", "sympy"}
TRAINING = {"lightning", "torchmetrics", "scipy", "matplotlib", "tensorboard", "torch.distributed.fsdp"}
HUB = {"huggingface_hub", "httpx", "httpx2", "requests", "transformers", "datasets", "yaml"}
OTHERS = {"pandas", "pyarrow", "sklearn", "peft", "wandb", "rich", "PIL", "IPython", "fastapi"}
WRITES = {"torch", "safetensors", "tensorboard", "google", "absl", "matplotlib", "PIL"}  # checkpoints, curves, the page

COMMAND = "from zellige.cli import main\ncode = main(sys.argv[1:])"


def imported(code: str, *arguments: str, after: str = "", cwd: Path | None = None, ends: int = 0) -> list[str]:
    """The modules that some code imports in a fresh interpreter, beside those that `after` has imported."""
    lines = ["import sys", after, "before, code = {*sys.modules}, 0", code]
    lines += ["print(*{*sys.modules} - before, file=sys.stderr)", "sys.exit(code)"]
    command = [sys.executable, "-c", "\n".join(lines), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)
    assert done.returncode == ends, done.stderr
    return done.stderr.splitlines()[-1].split()


def packages(modules: list[str]) -> set[str]:
    """Those of others among them, but for private ones."""
    tops = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    return {name for name in tops if not name.startswith("_")}


# ---------------------------------------------------------------------------------------------------- without torch
def test_the_package_alone_imports_nothing():
    assert packages(imported("import zellige")) == {"zellige"}


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "--version",
        "trian mdlm",
        "train --help",
        "verify --help",
        "list",
        *(f"list {name}" for name in tables.LISTS),
    ],
)
def test_help_and_lists_need_no_torch(words):
    """`rich` knows how wide a character is."""
    modules = imported(COMMAND, *words.split(), ends=2 if words.startswith("trian") else 0)
    assert packages(modules) - ({"rich"} if words.startswith("list ") else set()) == SCHEMAS
    assert len(modules) < 320


def test_the_names_of_the_commands_need_nothing():
    code = "import sys; from zellige.cli import COMMANDS; print(*COMMANDS.names(), 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == [*COMMANDS.names(), "False"]


# ---------------------------------------------------------------------------------------------------- with torch
PROMPT = "'Once upon a time ___ was a king'"
CASES = {  # commands that come one after another in a process add to what is imported
    "the mathematics": ("import zellige.exact, zellige.methods, zellige.samplers", 130, {"tokenizers", "cattrs"}),
    "the public names": ("import zellige\nzellige.load, zellige.evaluate, zellige.sample, zellige.train", 230, set()),
    "sample mnist --steps 2": (COMMAND, 270, {"tokenizers"}),
    f"sample stories; infill stories-mdlm {PROMPT} --steps 2": (COMMAND, 280, set()),
    "evaluate stories-mdlm --data.path a.txt --limit 2 --draws 1": (COMMAND, 330, set()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_used_is_imported(case, tmp_path):
    code, most, absent = CASES[case]
    (tmp_path / "a.txt").write_text("Once upon a time there was a king.\n" * 1_000)
    if code is COMMAND:
        commands = [shlex.split(part) for part in case.split(";")]
        code = f"from zellige.cli import main\nfor words in {commands}: code |= main(words)"
    modules = imported(code, after="import torch", cwd=tmp_path)
    assert not {*modules} & (COMPILER | TRAINING | HUB | OTHERS | absent)
    assert len(modules) < most


def test_a_training_adds_to_lightning_what_it_writes(tmp_path):
    """Lightning imports most of what there is, and torch.optim the compiler."""
    (tmp_path / "a.txt").write_text("Once upon a time there was a king. " * 400)
    sizes = "--net.length 16 --net.hidden 16 --net.layers 1 --train.batch 2 --train.steps 1 --train.validate-rows 2"
    words = f"train mdlm --data.path a.txt {sizes}".split()
    modules = imported(COMMAND, *words, after="import lightning", cwd=tmp_path)
    assert packages(modules) <= SCHEMAS | WRITES
    assert len(modules) < 550
