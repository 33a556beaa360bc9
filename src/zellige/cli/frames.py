"""`--frames FOLDER` of `sample` and `infill`: a picture a step."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..models.frames import Frame
    from ..show.kinds import Modality

MOST = 200  # pictures, evenly spaced, of more steps than that


class FrameFiles:
    """Frames of the first batch as step-0000.png, step-0001.png, ..., all of its samples in each; `files` are those written."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.files: list[Path] = []

    def write(self, frames: "Iterable[Frame]") -> "Iterator[Frame]":
        """Hand the frames on, each when it is written."""
        from ..files import make, write_file
        from ..show import kinds

        for frame in frames:
            every = -(-frame.steps // MOST) or 1
            if frame.first == 0 and (frame.step % every == 0 or frame.step == frame.steps):
                file = self.folder / f"step-{frame.step:0{max(4, len(str(frame.steps)))}}.png"
                rows = frame.x.cpu().masked_fill(frame.masked.cpu(), -1)
                make(self.folder)
                write_file(file, kinds.of(frame.tokenizer).png(rows))
                if file not in self.files:  # samples that are drawn again go through the steps once more
                    self.files.append(file)
            yield frame


def frames_folder(name: str, kind: "Modality") -> Path:
    """The folder of --frames. InputError where such rows make no pictures, where nothing can be written, or some are there."""
    from ..files import writable

    if ".png" not in kind.suffixes:
        raise InputError(f"--frames writes pictures, and this model makes {kind.many}; use --watch, or --out x.jsonl")
    folder = Path(name)
    if folder.is_file():
        raise InputError(f"'{name}' is a file; --frames needs a folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"no folder '{folder.parent}' for --frames {name}; make it first")
    if any(folder.glob("step-*.png")):
        raise InputError(f"'{name}' has frames in it; give --frames another folder")
    writable((folder if folder.is_dir() else folder.parent) / "step-0000.png")
    return folder
