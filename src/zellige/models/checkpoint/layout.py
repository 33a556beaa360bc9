"""The files of a run: their names, where a new run goes, which checkpoints there are.

    RUN/config.json                   enough to rebuild the model and to train again; written first
    RUN/metrics.csv                   what was measured, a row every `train.log_every` steps
    RUN/checkpoints/step-000500/      a checkpoint, whole or absent
        generation_config.json        of text: by which options it is sampled (`models.defaults`)
        model.safetensors             the averaged weights, with which config.json and tokenizer.json are a model (`models.model`)
        adapter_model.safetensors     of a tuned model, instead: its adapter, and adapter_config.json, both as the library peft
                                      has them (`models.adapter`)
        training.safetensors          the weights themselves and the optimizer's moments; where they are sharded, each process
                                      has a file of its own beside it, shard-*.safetensors
        training.json                 the numbers: step, seconds, best validation, the losses of the unfinished row of metrics.csv
        metrics.csv                   that of the run, up to here
        SHA256SUMS                    of all the files above
    RUN/checkpoints/last, best        links, for people
    RUN/samples/step-000500.jsonl     samples of a validation
    RUN/log.txt, events.out.tfevents.*, evaluate-*.json, report.html, ...

No pointer says which checkpoint is which: the last one has the highest step, and it records which one is the best. A
copy of a run may lack the links.
"""

import fnmatch
import glob
import os
import re
from collections.abc import Collection
from pathlib import Path

from ...base import files
from ...base.arguments import of_kind, refuse_path
from ...base.errors import InputError
from ...base.processes import this_process
from ...data import Data

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", ("tokenizer.json", "tokenizer_config.json")
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
GENERATION = "generation_config.json"  # sampling defaults
MODEL = (CONFIG, *TOKENIZER, WEIGHTS, ADAPTER, ADAPTER_CONFIG, GENERATION)  # the files that are read when it is loaded
CHECKSUMS = "SHA256SUMS"  # of a model's folder, as `sha256sum` writes it and `sha256sum -c` checks it
TRAINING, STATE = "training.safetensors", "training.json"
SHARDS = "shard-*.safetensors"
METRICS, METRICS_BEFORE, METRICS_DAMAGED = "metrics.csv", "metrics-before.csv", "metrics-damaged.csv"
CHECKPOINTS, LAST, BEST = "checkpoints", "last", "best"
SAMPLES, LOG, REPORT, WANDB = "samples", "log.txt", "report.html", "wandb-id.txt"
CARD, EVALUATIONS = "README.md", "evaluate-*.json"

_WRITTEN = (  # by a run, beside config.json
    CHECKPOINTS, SAMPLES, METRICS, METRICS_BEFORE, METRICS_DAMAGED, LOG, REPORT, WANDB, "events.out.tfevents.*",
    EVALUATIONS, "suite-*.json", "steps-*.json", "pairs-*.json", "probe-*.json", "bracket-*", "generate-*", "generate.jsonl",
)  # fmt: skip
_STEP = re.compile(r"step-([0-9]{6,})")


# ---------------------------------------------------------------------------------------------------- a model's folder
def may_be_replaced(folder: Path, config: str = CONFIG, others: Collection[str] = (*MODEL, CARD, EVALUATIONS)) -> bool:
    """Return whether a folder is not there, is empty, or holds what was saved there and nothing else: its config, the
    checksums, and files with the names of `others` (patterns; by default those of a model)."""
    if not folder.is_dir():
        return not folder.exists()
    names = {path.name for path in folder.iterdir()}
    known = [name for name in names for other in (config, CHECKSUMS, *others) if fnmatch.fnmatchcase(name, other)]
    return not names or {config, CHECKSUMS} <= names == {*known}


# ---------------------------------------------------------------------------------------------------- the folder of a run
def holds_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, or of a model: its config.json is Zellige's, if perhaps damaged."""
    config = folder / CONFIG
    return config.is_file() and b'"zellige":' in config.read_bytes()


def folder_of_run(run: object) -> Path:
    """Return the folder of a run, given it or what `zellige.train` returned; InputError where it is neither."""
    folder = getattr(run, "folder", run)
    if not isinstance(folder, (str, os.PathLike)):
        raise InputError(f"`run` is {of_kind(run)}; it must be a run's folder, or what train returned")
    refuse_path("run", folder)
    return Path(folder)


def data_label(data: Data) -> str:
    """Return what a run's folder is called after: the data set, or the user's files:
    `notes` of notes/ and of notes/*.txt.gz."""
    parts = [part for part in Path(data.path or "").absolute().parts if not glob.has_magic(part)]
    has_no_name = data.name in ("text", "tokens", "array", "images")
    name = parts[-1].partition(".")[0] if data.path and has_no_name and parts else ""
    return re.sub(r"[^\w-]+", "-", name).strip("-")[:60] or ("mix" if data.mix else data.name)


def default_folder(name: str, existing: bool, rank: int = 0) -> Path:
    """Return runs/NAME, or the first of NAME-2, NAME-3, ... that is not there yet.

    Args:
        existing: return the last one that is there, to continue or replace it.
        rank: of this process; those after the first take the folder that it made. Where torchrun or Slurm starts all at
            once none can, so that there is no number.
    """
    base, new = Path("runs") / name, files.free(Path("runs") / name)
    if this_process().world > 1 or new == base:
        return base
    number = int(new.name.rpartition("-")[2]) - 1
    return new if not (existing or rank) else base if number == 1 else base.with_name(f"{name}-{number}")


def clear(folder: Path) -> None:
    """Remove what a run has written but its config.json, and nothing else.

    The next run replaces that one at once (`write.write_config`), so the folder is a run whenever this is killed.
    """
    for pattern in _WRITTEN:
        for file in [*folder.iterdir()]:
            if fnmatch.fnmatchcase(file.name, pattern):
                files.remove(file)


def samples_file(folder: Path, step: int, suffix: str = ".jsonl") -> Path:
    """Return the file of a validation's samples."""
    return folder / SAMPLES / f"{step_name(step)}{suffix}"


def sample_files(folder: Path) -> list[Path]:
    """Return the files of all validations' samples, the newest last."""
    return sorted((folder / SAMPLES).glob("step-*[0-9].jsonl"), key=lambda file: int(file.stem.rpartition("-")[2]))


# ---------------------------------------------------------------------------------------------------- its checkpoints
def step_name(step: int) -> str:
    """Return `step-000500`, the name of a checkpoint."""
    return f"step-{step:06d}"


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint, by its name (by its content: `read.read_state`,
    from which a training goes on)."""
    return int(folder.name.removeprefix("step-"))


def steps(checkpoints: Path) -> list[Path]:
    """Return the checkpoints, the newest last. Folders of other names are not ours: a copy, `step-000060-backup`."""
    if not checkpoints.is_dir():
        return []
    matches = ((_STEP.fullmatch(path.name), path) for path in checkpoints.iterdir())
    return sorted((p for m, p in matches if m and p.name == step_name(int(m[1])) and p.is_dir()), key=step_of)


def newest(checkpoints: Path) -> Path | None:
    """Return the checkpoint with the highest step; None where there is none."""
    return next(reversed(steps(checkpoints)), None)
