"""DNA: windows of the sequences of a FASTA or FASTQ file, plain or compressed, and the other strand.

A window is `net.length` bases in a row of one sequence; windows follow each other, and what a sequence has left at its
end fills none. The letters are A, C, G, T and N, a base that is not known, which is a token like the others; windows
that are mostly N, such as centromeres, are left out. Lower case (soft-masked repeats) is read as upper case. A base
takes one byte of memory.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from zellige.base.errors import InputError
from zellige.data import file_names, unpack
from zellige.data.array_source import Context, Raw, encoded, locate_files, read_lines
from zellige.data.symmetry import Symmetries, no_symmetries, two
from zellige.data.tokenizer import Characters

if TYPE_CHECKING:
    from zellige.data.corpus import Data
    from zellige.data.tokenizer_base import Tokenizer

BASES = "ACGNT"  # in the order of their tokens
OTHER = {"A": "T", "C": "G", "G": "C", "T": "A", "N": "N"}  # the base on the other strand
READS = (".fastq", ".fq")
LENGTH = 256  # of a window where nothing says it, as the default of `net.length`
MOSTLY = 0.5  # the share of N up to which a window is read
_LETTERS = f"{BASES}{BASES.lower()}".encode()
_TOKENS = bytes.maketrans(_LETTERS, bytes(range(5)) * 2)

Line = tuple[int, bytes | None]  # its number, and its bases; None where a sequence begins


def read(data: "Data", context: Context) -> Raw:
    """Windows of FASTA or FASTQ; of other files a sequence a row.

    A window is as long as the run says, else as all sequences are, if they have one length, else `LENGTH`.
    """
    of_sequences = _suffix(data.path or "") in (*file_names.FASTA, *READS)
    raw = _windows(data, context) if of_sequences else _rows(data, context)
    if data.reverse_complement:
        complement(raw.tokenizer)  # of all its letters
    return raw


def _rows(data: "Data", context: Context) -> Raw:
    """Sequences of bases, all of one length, one a row."""
    lines, about = read_lines(data, context)
    lengths = {len(line) for line in lines}
    if len(lengths) > 1:
        raise InputError(f"'{data.path}' has sequences of {min(lengths)} to {max(lengths)} bases; give one length")
    letters = Characters("".join(lines), "text", (lengths.pop(),))
    return _raw(encoded(letters, "".join(lines)), letters, about)


def _raw(rows: np.ndarray, letters: Characters, about: dict[str, Any]) -> Raw:
    return Raw({"all": rows}, letters.size, tokenizer=letters, characters=np.size, about=about)


def _windows(data: "Data", context: Context) -> Raw:
    files, about = locate_files(data, context)
    path = next(iter(files.values()))
    with unpack.opened(path, lambda count: None) as file:
        sequences = [*_whole(path, fastq(path, file) if _suffix(data.path or "") in READS else fasta(path, file))]
    sizes = [len(sequence) for sequence in sequences]
    own = sizes[0] if len(sizes) > 1 and len({*sizes}) == 1 else LENGTH
    trained = context.tokenizer.shape if context.tokenizer else ()
    length, bases, count = context.length or (trained[0] if trained else own), sum(sizes), len(sizes)
    of = f"{count:,} sequence{'s' if count != 1 else ''}"
    parts = [sequence[: len(sequence) // length * length].reshape(-1, length) for sequence in sequences]
    windows = np.concatenate([np.empty((0, length), np.uint8), *parts])
    known = (windows == BASES.index("N")).mean(1) <= MOSTLY
    tail, unknown = bases - windows.size, int((~known).sum())
    if not known.any():
        longest = f"{bases:,} bases in {of}"
        raise InputError(f"'{data.path}' has no window of {length:,} known bases ({longest}); set `net.length` lower")
    left_out = [f"{tail:,} of {bases:,} bases at the ends of sequences, which fill no window"] if tail else []
    left_out += [f"{unknown:,} of {len(windows):,} windows, which are mostly N"] if unknown else []
    about |= {"left_out": left_out} if left_out else {}
    about["read"] = [f"{of}, lower case as upper case"]
    about["protocol"] = f"windows of {length:,} bases, one after another; A, C, G, T and N are tokens"
    return _raw(windows[known], Characters(BASES, "text", (length,)), about)


def strands(data: "Data", tokenizer: "Tokenizer", count: int) -> Symmetries:
    """A sequence as it is, and the other strand, read backwards, where training read it too."""
    if not data.reverse_complement:
        raise no_symmetries()
    backwards = np.arange(int(np.prod(tokenizer.shape)))[::-1]
    return two(backwards, np.array(complement(tokenizer)), "the other strand", count)


def complement(tokenizer: "Tokenizer") -> list[int]:
    """The token of the base on the other strand, for each token; InputError where a token is no base."""
    alphabet = getattr(tokenizer, "alphabet", "")
    wrong = next((letter for letter in alphabet if OTHER.get(letter, "?") not in alphabet), None)
    if not alphabet or wrong is not None:
        letter = f"'{wrong}'" if alphabet else "no letters"
        raise InputError(
            f"the data has {letter}, without a complement; `data.reverse_complement` is for A, C, G, T and N"
        )
    return [alphabet.index(OTHER[letter]) for letter in alphabet]


def _suffix(path: str) -> str:
    """`.fa` of `genome.fa.gz`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in file_names.PACKED), "")


def fasta(path: Path, file: IO[bytes]) -> Iterator[Line]:
    """The lines between headers (`>...`); comments (`;...`) and empty lines are left out."""
    begun = False
    for number, raw in enumerate(file, 1):
        line = raw.strip()
        if line.startswith(b">"):
            begun = True
            yield number, None
        elif line and not line.startswith(b";"):
            if not begun:
                raise InputError(f"line {number:,} of '{path}' stands before any header (>...); FASTA begins with one")
            yield number, line


def fastq(path: Path, file: IO[bytes]) -> Iterator[Line]:
    """The second of each four lines: @name, bases, +, and a quality for each base. Between reads, blank lines may stand."""
    lines = list[bytes]()
    for number, raw in enumerate(file, 1):
        line, begin = raw.strip(), ("@", "", "+", "")[len(lines)]
        if not lines and not line:
            continue
        if not line.startswith(begin.encode()):
            raise InputError(f"line {number:,} of '{path}' does not begin with {begin}; FASTQ has four lines a read")
        lines.append(line)
        if len(lines) < 4:
            continue
        if len(lines[1]) != len(lines[3]):
            raise InputError(
                f"line {number:,} of '{path}' has {len(lines[3]):,} qualities for {len(lines[1]):,} bases; give one "
                "for each"
            )
        yield number - 3, None
        yield number - 2, lines[1]
        lines = []
    if lines:
        raise InputError(f"'{path}' ends in the middle of a read; FASTQ has four lines a read, copy it again")


def _whole(path: Path, lines: Iterator[Line]) -> Iterator[np.ndarray]:
    """The tokens of each sequence; InputError for another letter."""
    buffer: list[Any] = []
    for number, line in lines:
        if line is None:
            if buffer:
                yield np.concatenate(buffer)
            buffer = []
            continue
        if wrong := line.translate(None, _LETTERS):
            letter = chr(wrong[0])
            raise InputError(
                f"line {number:,} of '{path}' has the letter '{letter}'; DNA has A, C, G, T, and N for a base that is "
                "not known"
            )
        buffer.append(np.frombuffer(line.translate(_TOKENS), np.uint8))
    if buffer:
        yield np.concatenate(buffer)
