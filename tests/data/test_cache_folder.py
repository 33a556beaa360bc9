"""The cache: what it holds is what was written, whoever may read it, and whatever happens below the file system."""

import hashlib
import json
import os
import stat
import time
from pathlib import Path

import pytest

from zellige import Data, cli
from zellige.base.errors import InputError
from zellige.data import catalogue, folder, sums, tokenizer_by_name
from zellige.data.prepare import prepare
from zellige.data.remote import Unreachable

TEXT = "the sun rose over the hill and the bird sang.\n" * 60


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A text and a cache of its own, in which what is written has settled at once."""
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 10)
    (tmp_path / "notes.txt").write_text(TEXT)
    return tmp_path


def flip(path: Path, cache: Path | None = None) -> None:
    """Flip a bit of a file; with a cache below the file system: what that remembers of the file's times is so still."""
    remembered = sums.Sums(cache)._known if cache else {}
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    if cache:
        for kind in ("sha256", "md5"):
            if (name := sums._name(path, kind)) in remembered:
                remembered[name] = [*sums._state(path), remembered[name][-1]]
        known = sums.Sums(cache)
        known._new = remembered
        known.keep()


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_damaged_download_is_downloaded_again(kind, texts, monkeypatch):
    """It was returned unread: one bit of a tokenizer's merges gave other tokens without a word."""
    source, cache = texts / "notes.txt", texts / "cache"
    checksum = hashlib.new(kind, source.read_bytes()).hexdigest()
    where = (source.as_uri(), checksum if kind == "sha256" else f"md5:{checksum}")
    there = catalogue.fetch(*where, cache)
    assert catalogue.fetch(*where, cache) == there
    flip(there)
    assert catalogue.fetch(*where, cache) == there
    assert there.read_bytes() == source.read_bytes()
    flip(there)
    monkeypatch.setattr(catalogue.remote, "silence", lambda address: "no network")
    with pytest.raises(Unreachable) as error:
        catalogue.fetch(*where, cache)
    assert str(error.value) == (
        f"'{there}' is damaged, and cannot download '{where[0]}' (no network); give a local copy by `data.path`"
    )
    assert [p.name for p in there.parent.iterdir()] == [there.name]


def test_a_download_is_read_once_as_long_as_its_times_stay(texts, monkeypatch):
    where, read = ((texts / "notes.txt").as_uri(), hashlib.sha256(TEXT.encode()).hexdigest()), []
    plain = sums.sha256
    monkeypatch.setattr(sums, "sha256", lambda path, *more, **how: read.append(path) or plain(path, *more, **how))
    there = [catalogue.fetch(*where, texts / "cache") for _ in range(4)]
    assert read == there[:1]


def test_the_doctor_reads_the_caches_through(texts, monkeypatch, capsys):
    """Damage below the file system, which leaves the times of a file as they were: seen by the doctor, and mended after it."""
    cache, data = texts / "cache", Data("text", path=str(texts / "notes.txt"), tokenizer="gpt2", pack="wrap")
    (texts / "published").mkdir()
    symbols = sorted(set(TEXT) - {" ", "\n"})
    encoder = {symbol: i for i, symbol in enumerate([*symbols, "Ġ", "Ċ", "<|endoftext|>"])}
    files = {"encoder.json": json.dumps(encoder), "vocab.bpe": "#version: 0.2 of the notes\n"}
    for name, content in files.items():
        (texts / "published" / name).write_text(content)
        address = (texts / "published" / name).as_uri()
        monkeypatch.setitem(tokenizer_by_name.GPT2_FILES, name, (address, hashlib.sha256(content.encode()).hexdigest()))
    whole = prepare(data, 16).train.array().copy()
    prepare(data, 16)  # what it wrote is read once, and remembered
    (made,) = (cache / "tokens").iterdir()
    merges = catalogue.download_path(tokenizer_by_name.GPT2_FILES["vocab.bpe"][0], cache)

    def verify() -> tuple[int, list[str]]:
        code = cli.main(["doctor", "--verify-caches", "--json", "-"])
        return code, json.loads(capsys.readouterr().out)["result"]["damaged"]

    assert verify() == (0, [])
    for damaged in (made / "tokens.bin", merges, texts / "notes.txt"):
        flip(damaged, cache)
    prepare(data, 16)  # the trade: what has the times of then is not read again
    assert verify() == (1, [
        f"'{made / 'tokens.bin'}' is damaged; it is made again when it is next used",
        f"'{merges}' is damaged; it is downloaded again when it is next used",
        f"'{texts / 'notes.txt'}' is not what was read, and its times are those of then; restore it, or write it anew where its "
        "content is meant",
    ])  # fmt: skip
    (texts / "notes.txt").write_text(TEXT)
    again = prepare(data, 16)
    assert again.notes == (f"'{made / 'tokens.bin'}' is damaged; the tokens were made again from the text",)
    assert (again.train.array() == whole).all()
    assert verify() == (0, [])


@pytest.mark.parametrize(
    ("umask", "folders", "files"), [(0o022, 0o755, 0o644), (0o002, 0o775, 0o664), (0o077, 0o700, 0o600)]
)
def test_all_in_a_cache_is_as_the_umask_has_it(umask, folders, files, texts):
    """So that a second user can read it, and one of the same group write; it was closed to all others (0700, 0600)."""
    where = ((texts / "notes.txt").as_uri(), hashlib.sha256(TEXT.encode()).hexdigest())
    before = os.umask(umask)
    try:
        for _ in range(2):
            prepare(Data("text", path=str(texts / "notes.txt"), tokenizer="bpe:300"), 16)
            catalogue.fetch(*where, texts / "cache")
    finally:
        os.umask(before)
    there = [texts / "cache", *(texts / "cache").rglob("*")]
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in there}
    assert {"tokens.bin", "meta.json", "tokenizer.json", "sums.json", "downloads"} <= modes.keys()
    assert {modes[p.name] for p in there if p.is_dir()} == {folders}
    assert {modes[p.name] for p in there if p.is_file()} == {files}


@pytest.mark.skipif(not hasattr(os, "fork") or os.getuid() != 0, reason="only root can be somebody else")
def test_a_second_user_reads_a_cache_and_is_told_where_not(texts):
    """Under the usual umask: what is there is used, what is not is one line."""
    cache, data = texts / "cache", Data("text", path=str(texts / "notes.txt"), tokenizer="bytes")
    for place in (texts, *texts.parents):
        if place == Path("/tmp"):
            break
        place.chmod(0o755)
    prepare(data, 16)
    child = os.fork()
    if not child:
        os.setgid(65534)
        os.setuid(65534)
        told = "nothing"
        prepare(data, 16)
        try:
            prepare(Data("text", path=str(texts / "notes.txt"), tokenizer="characters"), 16)
        except InputError as problem:
            told = str(problem)
        os._exit(
            told
            != f"cannot write tokens to '{cache / 'tokens'}' (Permission denied); set `data.cache` or ZELLIGE_CACHE"
        )
    assert os.waitpid(child, 0)[1] == 0


def test_the_cache_in_the_home_folder_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    folder.make_place(tmp_path / ".cache" / "zellige" / "tokens")
    assert stat.S_IMODE((tmp_path / ".cache" / "zellige").stat().st_mode) == 0o700
    folder.make_place(tmp_path / "other" / "tokens")
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) != 0o700
