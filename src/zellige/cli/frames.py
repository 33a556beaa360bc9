"""`--frames FOLDER` of `sample` and `infill`, a picture a step; and `--out x.gif` or `x.mp4`, a film of them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..models.frames import Frame
    from ..show.kinds import Modality

MOST = 200  # pictures in a folder, evenly spaced, of more steps than that


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


class FilmFile:
    """Frames of the first batch as a film, all of its samples in each picture; `close` writes it."""

    def __init__(self, file: Path):
        self.file = file
        self.steps: dict[int, tuple[str, Any]] = {}
        self.frame: Frame | None = None

    def write(self, frames: "Iterable[Frame]") -> "Iterator[Frame]":
        """Hand the frames on, and keep what is in them."""
        from ..show.film import FRAMES

        for frame in frames:
            every = -(-frame.steps // FRAMES) or 1
            if frame.first == 0 and (frame.step % every == 0 or frame.step == frame.steps):
                rows = frame.x.masked_fill(frame.masked, -1).cpu().numpy()
                self.steps[frame.step], self.frame = (f"step {frame.step} of {frame.steps}", rows), frame
            yield frame

    def close(self) -> list[Path]:
        """Write the film."""
        from ..files import write_file
        from ..show import film, kinds

        assert self.frame is not None
        kind, fixed = kinds.of(self.frame.tokenizer), self.frame.fixed.cpu().numpy()
        write_file(self.file, film.film(kind, [*self.steps.values()], self.file.suffix, fixed))
        return [self.file]


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
