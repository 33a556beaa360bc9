"""From a path, a run, a name or a hub id to the folder that holds a model."""

import os
from pathlib import Path
from typing import Any

from ..base.errors import InputError, nearest
from ..base.files import FULL
from ..base.schema import shown
from ..data import remote
from ..methods import METHODS
from . import hub, shipped
from .checkpoint.layout import BEST, CHECKPOINTS, CHECKSUMS, CONFIG, LAST, MODEL
from .checkpoint.pickles import refuse_pickle
from .checkpoint.read import named_checkpoint
from .published import is_published


def locate(path: str | os.PathLike, checkpoint: str | None = None) -> Path:
    """The folder that holds the model: of a run its best (or last) checkpoint; downloaded if it is a hub id.

    A name of `shipped` is that model, unless a folder of that name is there that may hold one: one of data does not.
    """
    folder = Path(path)
    if not _may_hold_a_model(folder):
        folder = shipped.find(str(path)) or folder
    if folder.name in (LAST, BEST) and folder.parent.name == CHECKPOINTS:
        meant = named_checkpoint(folder.parent, folder.name)
        if meant is not None:
            return meant
    if folder.is_file():
        if is_published(folder):
            return folder
        refuse_pickle(folder)
        where = f"'{shown(folder.parent)}'" if folder.name in MODEL else f"of a model, which holds {CONFIG}"
        raise InputError(f"'{shown(folder)}' is a file; give the folder {where}")
    if not folder.is_dir():
        if hub.ID.fullmatch(str(path)) and not folder.parent.is_dir():
            return download(str(path))
        raise InputError(f"no run or model at '{path}'; {_near(folder)}")
    points = folder / CHECKPOINTS
    if points.is_dir():
        names = [Path(checkpoint).name] if checkpoint else [BEST, LAST]
        match = next((f for f in (named_checkpoint(points, name) for name in names) if f), None)
        if match is None:
            short = (name for name in (BEST, LAST) if named_checkpoint(points, name))
            candidates = sorted({*short, *(p.name for p in points.iterdir() if not p.name.startswith("."))})
            if checkpoint and candidates:
                raise InputError(
                    f"'{shown(folder)}' has no checkpoint '{checkpoint}', only {', '.join(candidates)}; give one of "
                    "them"
                )
            if candidates:
                raise InputError(
                    f"'{shown(points)}' holds no checkpoint such as step-000500, only {', '.join(candidates)}; "
                    "give the path of one"
                )
            raise InputError(f"'{shown(folder)}' holds no checkpoint yet; continue it with `resume`")
        return match
    if checkpoint:
        raise InputError(f"'{shown(folder)}' is not a run, so it has no checkpoint '{checkpoint}'; leave it out")
    return folder


def _may_hold_a_model(path: Path) -> bool:
    return path.is_file() or any((path / name).exists() for name in (CONFIG, CHECKPOINTS)) or is_published(path)


def _near(path: Path) -> str:
    """Suggestions for a folder that does not exist."""
    if str(path) in METHODS:
        return "it is the name of a method; train a model of it, and give its run"
    if not path.parent.is_dir():
        return "give a run, a folder that Zellige saved, or the id of a model on the Hugging Face hub"
    names = [p.name for p in path.parent.iterdir() if p.is_dir() and _may_hold_a_model(p)]
    if near := nearest(path.name, names):
        return f"nearest in that folder: '{near}'"
    shipped_names = shipped.names() if path.name == str(path) else []
    if near := nearest(path.name, shipped_names):
        return f"did you mean '{near}', which comes with Zellige?"
    also = (
        f"; with Zellige come {', '.join(shipped_names)}; on the Hugging Face hub a name is owner/model"
        if shipped_names
        else ""
    )
    where = shown(path.parent)
    return (f"'{where}' holds {', '.join(sorted(names)[:5])}" if names else f"'{where}' holds no run or model") + also


def download(name: str, **how: Any) -> Path:
    """The folder of a model on the hub, downloaded; `how` as huggingface_hub has it.
    InputError where it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    silence = ""
    try:
        with remote.hub_silence() as silence:
            folder = Path(
                snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", CHECKSUMS], **how)
            )
            if not any(folder.glob("*.safetensors")):  # an older one
                folder = Path(snapshot_download(name, allow_patterns=["*.json", "*.bin", "*.ckpt", "*.txt"], **how))
        return folder
    except GatedRepoError:
        raise InputError(
            f"'{name}' on the Hugging Face hub asks for consent; give it there, then: hf auth login"
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        raise InputError(
            f"no folder at '{name}' and no such model on the Hugging Face hub; give a run, a saved folder or a hub id"
        ) from None
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno in FULL:
            raise InputError(f"no space left while downloading '{name}'; free space and run it again") from problem
        raise InputError(
            f"no folder at '{name}', and the Hugging Face hub cannot be reached "
            f"({silence or hub.first_line(problem)}); check the connection, or give a folder"
        ) from problem
