"""Files of tokens that others made, memory-mapped where they lie: several files, each a shard, read as one stream.

    .bin            nanoGPT: integers of 16 or 32 bits and nothing else
    .bin and .idx   Megatron: the .idx says the type of the integers, and where sequences and documents begin
    .ds             datatrove: integers of 16 or 32 bits; the .ds.index beside it says where documents end
    .npy            NumPy: one axis, any whole numbers

All are little-endian. Nothing is copied and nothing is held: a slice reads what it needs, from one file or across two.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError
from . import file_names
from .file_names import TOKENS

MAGIC = b"MMIDIDX\x00\x00"  # how Megatron's .idx begins
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}  # its codes of whole numbers


@dataclass(frozen=True)
class TokenFile:
    """So many integers of a type from a byte of a file on, and where its documents begin and the last ends,
    if it says so."""

    path: Path
    dtype: str
    count: int
    offset: int = 0
    starts: np.ndarray | None = None

    def open(self) -> np.ndarray:
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, (self.count,))
        except FileNotFoundError:
            raise InputError(f"'{self.path}' is missing; copy or make it again") from None
        except ValueError:
            size = self.path.stat().st_size
            raise InputError(
                f"'{self.path}' has {size:,} bytes, too few for {self.count:,} tokens; copy or make it again"
            ) from None


class Shards:
    """Files one after another as one array (N,) that is read by slices. It holds the open maps,
    and travels without them."""

    ndim = 1

    def __init__(self, files: Sequence[TokenFile]):
        self.files = files
        self.ends = np.cumsum([0, *(file.count for file in files)])
        self.size = int(self.ends[-1])
        self.shape, self.dtype = (self.size,), np.result_type(*(file.dtype for file in files))
        self._maps: list[np.ndarray | None] = [None] * len(files)

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maps": [None] * len(self.files)}

    def map(self, i: int) -> np.ndarray:
        """The tokens of one file."""
        array = self._maps[i]
        if array is None:
            array = self._maps[i] = self.files[i].open()
        return array

    def __getitem__(self, part: slice) -> np.ndarray:
        begin, end, _ = part.indices(self.size)
        shard = int(np.searchsorted(self.ends, begin, "right")) - 1
        pieces = []
        while begin < end:
            start, stop = int(self.ends[shard]), int(self.ends[shard + 1])
            pieces.append(self.map(shard)[begin - start : min(end, stop) - start])
            begin, shard = stop, shard + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, self.dtype), *pieces])

    def min(self) -> int:
        return min(int(self.map(i).min()) for i in range(len(self.files)))

    def max(self) -> int:
        return max(int(self.map(i).max()) for i in range(len(self.files)))

    @property
    def starts(self) -> np.ndarray | None:
        """Starts of the documents in the whole, and the end of the last, (D + 1,);
        None if a file does not have them."""
        starts_of = [file.starts for file in self.files]
        if any(offsets is None for offsets in starts_of):
            return None
        begins = [offsets[:-1] + begin for offsets, begin in zip(starts_of, self.ends) if offsets is not None]
        return np.concatenate([*begins, self.ends[-1:]])


def find_shards(path: str) -> dict[str, list[Path]]:
    """The files of tokens that `path` (a file, a folder, a glob) names, by split; "all" where no name says one."""
    place = Path(path).expanduser()
    if not place.is_dir():
        files = file_names.find_files(path)
        files = [file.with_suffix(".bin") if file.suffix == ".idx" else file for file in files]
        files = sorted({file for file in files if len(files) == 1 or file.suffix in TOKENS})
    else:
        files = sorted(file for file in place.rglob("*") if file.suffix in TOKENS and file.is_file())
    if not files:
        raise InputError(f"no tokens at '{path}' ({' '.join(TOKENS)}); give such files, or text by `data.name` text")
    return file_names.own_splits(place, files) or {"all": files}


def index_of(path: Path) -> Path:
    """The index that may lie beside a file of tokens."""
    return Path(f"{path}.index") if path.suffix == ".ds" else path.with_suffix(".idx")


def read_shard(path: Path, vocabulary: int) -> TokenFile:
    """Contents of a token file. vocabulary: the number of different tokens, 0 if unknown."""
    index = index_of(path)
    if path.suffix == ".npy":
        array = np.load(path, mmap_mode="r")
        if array.ndim != 1 or array.dtype.kind not in "ui" or not array.size:
            raise InputError(
                f"'{path}' has shape {array.shape} and type {array.dtype}; of several files each must be whole numbers "
                "(N,)"
            )
        return TokenFile(path, array.dtype.str, array.size, array.offset)
    if not path.is_file():
        raise InputError(f"'{index}' has no '{path.name}' beside it, which holds the tokens; give both")
    if index.is_file():
        return _datatrove(path, index) if path.suffix == ".ds" else _megatron(path, index)
    width = 4 if vocabulary > 1 << 16 or _wide(path) else 2
    size = path.stat().st_size
    if not size or size % width:
        raise InputError(f"{size:,} bytes of '{path}' are no integers of {8 * width} bits; copy or make it again")
    return TokenFile(path, f"<u{width}", size // width)


def _wide(path: Path) -> bool:
    """Return whether the file begins with 32-bit integers below 65,536: read as 16 bits, every second number is 0."""
    with path.open("rb") as file:
        begin = np.frombuffer(file.read(1 << 16)[: 1 << 16 & ~3], "u1")
    halves = begin[: len(begin) // 4 * 4].view("<u2")
    return len(halves) >= 64 and path.stat().st_size % 4 == 0 and not halves[1::2].any() and bool(halves.any())


def _datatrove(path: Path, index: Path) -> TokenFile:
    size, ends = path.stat().st_size, np.fromfile(index, "<u8").astype(np.int64)
    total = int(ends[-1]) if len(ends) else 0
    width = size // total if total > 0 else 0
    if width not in (2, 4) or width * total != size or (np.diff(ends) < 0).any():
        raise InputError(
            f"'{index}' ends at token {total:,}, and '{path.name}' has {size:,} bytes; copy or make both again"
        )
    return TokenFile(path, f"<u{width}", total, starts=np.unique(np.append(0, ends)))


def _megatron(path: Path, index: Path) -> TokenFile:
    """Header (magic, version 1, type, sequences S, documents D + 1), then sizes (S), bytes where they begin (S),
    documents."""
    content, head = index.read_bytes(), len(MAGIC) + struct.calcsize("<QBQQ")
    if not content.startswith(MAGIC) or len(content) < head:
        raise InputError(
            f"'{index}' is no index of Megatron (MMIDIDX); give its own, or take it away from '{path.name}'"
        )
    version, code, sequences, documents = struct.unpack_from("<QBQQ", content, len(MAGIC))
    if version != 1 or code not in TYPES:
        raise InputError(f"'{index}' has version {version} and type {code}; it must be version 1, of whole numbers")
    if len(content) < head + 12 * sequences + 8 * documents:
        raise InputError(f"'{index}' is cut off ({len(content):,} bytes); copy or make it again")
    sizes = np.frombuffer(content, "<i4", sequences, head).astype(np.int64)
    begins = np.frombuffer(content, "<i8", sequences, head + 4 * sequences)
    pointers = np.frombuffer(
        content, "<i8", documents, head + 12 * sequences
    )  # sequence of each document, and S at the end
    ends, size = np.cumsum(np.append(0, sizes)), path.stat().st_size
    width = np.dtype(TYPES[code]).itemsize
    whole = (begins == ends[:-1] * width).all() and not ((pointers < 0) | (pointers > sequences)).any()
    if not ends[-1] or ends[-1] * width != size or not whole:
        raise InputError(
            f"'{index}' says {int(ends[-1]):,} tokens of {width} bytes one after another, and '{path.name}' has "
            f"{size:,} bytes; copy or make both again"
        )
    starts = np.unique(np.concatenate([[0], ends[pointers], ends[-1:]]))
    return TokenFile(path, TYPES[code], int(ends[-1]), starts=starts)
