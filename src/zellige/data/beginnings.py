"""What a file is by how it begins: UTF-8 text, or one of the forms that other programs write."""

import codecs
import re

MOST = 1 << 16  # bytes of a beginning

_FORMS = {
    rb"PK(\x03\x04|\x05\x06)": "a zip archive", rb"\x1f\x8b\x08[\x00-\x1f]": "packed with gzip",
    rb"\xfd7zXZ\x00": "packed with xz", rb"BZh[1-9]1AY&SY": "packed with bzip2", rb"\x28\xb5\x2f\xfd": "packed with zstd",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive", rb"\x7fELF": "a program", rb"MZ\x90\x00": "a program",
    rb"\x89PNG": "an image", rb"\xff\xd8\xff[\xdb-\xfe]": "an image", rb"GIF8[79]a": "an image",
    rb"RIFF.{4}WEBP": "an image", rb"%PDF-": "a document", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document",
    rb"PAR1": "a parquet file", rb"ARROW1": "an arrow file", rb"\x89HDF": "an HDF5 file", rb"SQLite format": "a database",
    rb"\x80[\x02-\x05][\x95}\](c]": "a pickle", rb".{8}\{\"": "a safetensors file",
}  # fmt: skip


def form_of(begin: bytes) -> str:
    """The form that a file has which begins so, e.g. "an image"; "" where it is none of those known."""
    return next((form for pattern, form in _FORMS.items() if re.match(pattern, begin, re.S)), "")


def is_text(begin: bytes) -> bool:
    """Whether the first `MOST` bytes of a file, or all that it has, are UTF-8 without a NUL, and no PDF.

    >>> is_text("Käse".encode()), is_text("Käse".encode("latin-1")), is_text("text".encode("utf-16"))
    (True, False, False)
    """
    if b"\0" in begin or begin.startswith(b"%PDF-"):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(begin, final=len(begin) < MOST)
    except UnicodeDecodeError:
        return False
    return True
