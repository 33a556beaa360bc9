"""All that a cache holds, read through and compared with what was written:
damage that left the times of a file as they were."""

from collections.abc import Callable, Iterator
from pathlib import Path

from ..base.errors import InputError
from ..base.schema import sha256
from . import cache as store
from .catalogue import DATASETS, download_path
from .pixels import read_pixels
from .sums import Sums
from .tokenizer_by_name import GPT2_FILES

MADE, FETCHED = "it is made again when it is next used", "it is downloaded again when it is next used"
OWN = "restore it, or write it anew where its content is meant"


def damages(cache: Path, report: Callable[[Path], None] = lambda path: None) -> Iterator[str]:
    """One sentence for each file that is damaged: in the cache, and of the texts that it has read.

    Tokens and images are compared with their own sums, downloads with the catalogue's, all else with the sums
    remembered: what changed since (by its times) is no damage. report(path) is called with what comes to be read.
    """
    for name, read in (("tokens", store.read_meta), ("images", read_pixels)):
        for folder in sorted(p for p in cache.glob(f"{name}/*") if p.is_dir() and not p.name.startswith(".")):
            report(folder)
            try:
                read(folder)
            except InputError as problem:
                yield f"{problem}; {MADE}"
    addresses = [
        where for entry in DATASETS.all().values() for where in (*entry.files.values(), *entry.labels.values())
    ]
    for address, checksum in (*addresses, *GPT2_FILES.values()):
        path = download_path(address, cache)
        kind, _, digest = (checksum or "").rpartition(":")
        if digest and path.is_file():
            report(path)
            if sha256(path, kind=kind or "sha256") != digest:
                yield f"'{path}' is damaged; {FETCHED}"
    for path in Sums(cache).damaged():  # last: it forgets what is damaged in the cache, so that its next reader sees it
        if not path.is_relative_to(cache.absolute()):
            yield f"'{path}' is not what was read, and its times are those of then; {OWN}"
