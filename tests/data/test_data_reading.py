"""Readers: every format gives the same text; what cannot be read is said in one sentence."""

import csv
import gzip
import json
import lzma
import zipfile

import pytest

from zellige.base.errors import InputError
from zellige.data import DATASETS, Data, readers, unpack
from zellige.data.corpus import as_data
from zellige.data.file_names import FASTA, MOST, is_text
from zellige.data.prepare import prepare
from zellige.data.readers import Format, read_pieces
from zellige.training import notes

TEXT = "Ünïcödé – 日本語 text.\nSecond line.\n" * 70_000  # several blocks, and characters of 1 to 3 bytes across them


def whole(path):
    pieces = list(read_pieces(path, Format()))
    return "".join(text for text, _ in pieces), pieces


def test_plain_and_packed_files_read_the_same(tmp_path):
    raw = TEXT.encode()
    (tmp_path / "a.txt").write_bytes(raw)
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbf" + raw)  # with a byte order mark
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(raw, 1))
    (tmp_path / "d.txt.xz").write_bytes(lzma.compress(raw, preset=0))
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        archive.writestr("text8", raw)
    for path in sorted(tmp_path.iterdir()):
        read_back, pieces = whole(path)
        assert read_back == TEXT
        assert len(pieces) > 1
        assert max(len(t) for t, _ in pieces) <= unpack.BLOCK
        assert [ends for _, ends in pieces] == [False] * (len(pieces) - 1) + [True]
        counted = []
        assert sum(len(t) for t, _ in read_pieces(path, Format(raw=True), counted.append)) in (len(raw), len(raw) + 3)
        assert sum(counted) >= path.stat().st_size * 0.99


def test_nothing_is_passed_over_without_a_word(tmp_path):
    """A .zip of several files is refused, a folder says which of its files are no text; what a Mac adds is no file."""
    folder = tmp_path / "notes"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("one.txt", "abc " * 100)
        archive.writestr("__MACOSX/._one.txt", "x")
    corpus = prepare(Data("text", path=str(folder), validation=0, test=0), 16)
    assert (len(corpus.train), corpus.about.get("left_out")) == (25, None)
    (folder / "b.png").write_bytes(b"x")
    (folder / "c.bin").write_bytes(b"\xff")
    corpus = prepare(Data("text", path=str(folder), validation=0, test=0), 16)
    assert corpus.about["left_out"] == ["2 files, b.png, c.bin"]
    with zipfile.ZipFile(folder / "a.zip", "a") as archive:
        archive.writestr("two.txt", "def")
    with pytest.raises(InputError, match=r"which holds 3 files, a\.zip, b\.png, c\.bin; give UTF-8 text"):
        prepare(Data("text", path=str(folder)), 16)
    with pytest.raises(
        InputError, match=r"a\.zip' holds 2 files, a \.zip is read with one; unpack it, give the folder"
    ):
        prepare(Data("text", path=str(folder / "a.zip")), 16)


def row(corpus, i):
    """A training row as text."""
    return corpus.tokenizer.decode(corpus.train[i]["tokens"].tolist())


FOX = "the fox went into the wood and said nothing of it "


@pytest.mark.parametrize(
    "name", ["thesis.tex", "code.py", "run.log", "page.html", "games.pgn", "doc.rst", "Makefile", "a.tex.gz"]
)
def test_a_file_is_text_whatever_it_is_called(tmp_path, name):
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    path.write_bytes(gzip.compress(FOX.encode() * 40) if name.endswith(".gz") else FOX.encode() * 40)
    assert as_data(str(path)) == Data("text", path=str(path))
    for data in (Data("text", path=str(path)), Data("text", path=str(path.parent))):
        assert prepare(data, 16).train.tokens_total == len(FOX) * 36 // 16 * 16


def test_of_a_folder_all_that_is_text_is_read_and_the_others_are_named(tmp_path):
    folder = tmp_path / "thesis"
    texts = {"main.tex": "abc " * 100, "code/run.py": "bca " * 50, "notes.md": "cab " * 25, "LICENSE": "cc " * 100}
    others = {"old.tex": "Stra\xdfe".encode("latin-1"), "fig.pdf": b"%PDF-1.4\n1 0 obj\n", "wide.txt2": "ab".encode("utf-16"),
              "pack.zip": b"no zip", "pic.png": b"abc", "empty.log": b""}  # fmt: skip
    hidden = {".git/config": b"x" * 99, ".DS_Store": b"\0"}
    for name, text in (texts | others | hidden).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    corpus = prepare(Data("text", path=str(folder), validation=0, test=0), 10)
    assert corpus.about["read"] == ["4 files: 1 without a suffix, 1 .py, 1 .tex, 1 .md"]
    assert corpus.about["left_out"] == ["6 files, e.g. empty.log, fig.pdf, old.tex"]
    assert notes.left_out(corpus)[:2] == [
        f"read: {corpus.about['read'][0]}",
        f"left out: {corpus.about['left_out'][0]}",
    ]
    read = corpus.tokenizer.decode([int(t) for i in range(len(corpus.train)) for t in corpus.train[i]["tokens"]])
    assert read == " ".join(texts[name] for name in sorted(texts))[: len(read)]
    (folder / "notes.md").write_bytes(b"\xff")  # what is called a text and is none is not passed over
    refuse(folder, f"'{folder / 'notes.md'}' is not UTF-8 (byte 0xff at 0); convert it, or use `data.tokenizer` bytes")


def test_a_latin_1_character_after_the_beginning_is_an_error_and_no_end(tmp_path):
    path = tmp_path / "mine" / "a.tex"
    path.parent.mkdir()
    path.write_bytes(b"x" * MOST + b"\xe9" + b"x" * 99)
    assert is_text(path.read_bytes()[:MOST])
    refuse(path.parent, f"'{path}' is not UTF-8 (byte 0xe9 at {MOST:,}); convert it, or use `data.tokenizer` bytes")
    assert is_text("é".encode() * MOST)  # which the end of the beginning cuts
    assert not is_text("é".encode() + b"\xc3")


@pytest.mark.parametrize(("begin", "form"), [(b"%PDF-1.4\nabc", "a document"), (b"PK\x03\x04\xff", "a zip archive")])
def test_what_is_no_text_is_named(tmp_path, begin, form):
    path = tmp_path / "thesis.doc"
    path.write_bytes(begin * 99)
    refuse(path, f"'PATH' is {form}, and no text; save it as plain text, or use `data.tokenizer` bytes")
    assert len(prepare(Data("text", path=str(path), tokenizer="bytes", validation=0, test=0), 16).train)


def test_a_folder_that_holds_no_text_says_what_it_holds(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    refuse(folder, "folder 'PATH' is empty; give a file, a folder or a glob")
    for name in "abcd":
        (folder / f"{name}.webp").write_bytes(b"\0\xff")
    holds = "which holds 4 files, e.g. a.webp, b.webp, c.webp; give UTF-8 text, or .png and .jpg images"
    refuse(folder, f"no text in folder 'PATH', {holds}")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", FASTA)
def test_fasta(tmp_path, suffix, end, monkeypatch):
    """Sequences without their headers, however they are wrapped; parts of one that is long."""
    monkeypatch.setattr(readers, "LINES", 3)
    path = tmp_path / f"a{suffix}"
    lines = [">sp|P1 first", "ACGT", "AC GT", "", "TT", "A", "C", "; old comment", ">second", "GG", ">none", ">third"]
    path.write_bytes(end.join([*lines, "C" * 7, "C*"]).encode())
    pieces = list(read_pieces(path, Format()))
    assert "".join(text + "|" * ends for text, ends in pieces) == "ACGTACGTTTAC|GG|CCCCCCCC*|"
    assert len(pieces) > 3
    corpus = prepare(Data("text", path=str(path), validation=0, test=0), 5)
    assert corpus.about["read"] == ["3 sequences of FASTA, without headers"]
    assert row(corpus, 2) == "AC\nGG"  # what separates them
    for _ in range(2):  # made, and found in the cache
        corpus = prepare(Data("text", path=str(path), pack="document", validation=1, test=0), 16)
        assert (corpus.train.texts, corpus.validation.texts) == (2, 1)
        assert corpus.about["read"] == ["3 sequences of FASTA, without headers"]
    path.write_text("ACGT\n>late\nAC")
    refuse(
        path, "'PATH' does not begin with a header (>...), as FASTA does; give it the suffix .txt if it is other text"
    )


def rows_of(path, sign=","):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.writer(file, delimiter=sign)
        rows.writerows([["id", "title, year", "body"], *[[i, "Fox", f"{FOX} {sign} {i}"] for i in range(40)]])


@pytest.mark.parametrize(
    ("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.tsv.gz", "\t"), ("a.jsonl", "")]
)
def test_without_a_named_column_the_one_with_the_longest_texts_is_read(tmp_path, name, sign):
    path = tmp_path / name
    if sign:
        rows_of(tmp_path / "plain", sign)
        raw = (tmp_path / "plain").read_bytes()
        (tmp_path / "plain").unlink()
    else:
        rows = [{"id": i, "title, year": "Fox", "body": f"{FOX} {sign} {i}"} for i in range(40)]
        raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    corpus = prepare(Data("text", path=str(path), pack="document", validation=1, test=1), 64)
    assert corpus.train.texts == 38
    assert row(corpus, 7).startswith(f"{FOX} {sign} 7\n")
    said = "column 'body', the one with the longest texts; by `data.field` another (id, title, year)"
    assert corpus.about["read"] == [said]
    other = prepare(Data("text", path=str(path), field="title, year", validation=1, test=1), 4)
    assert (row(other, 0), "read" in other.about) == ("Fox\n", False)


def test_a_column_called_text_or_alone_needs_no_choice(tmp_path):
    path = tmp_path / "a.csv"
    for header in ("text,comment", "anything"):
        path.write_text(f"{header}\n" + "".join(f"one{', much longer' * (',' in header)}\n" for _ in range(40)))
        corpus = prepare(Data("text", path=str(path), pack="document"), 8)
        assert (row(corpus, 0)[:4], "read" in corpus.about) == ("one\n", False)
    path = tmp_path / "b.jsonl"
    path.write_text('{"a": 1, "b": [2]}\n' * 9)
    refuse(path, "no column of 'PATH' holds text (a, b); give a file that has one")


def test_a_field_takes_of_a_folder_the_files_that_have_fields(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "README.md").write_text(FOX)
    rows_of(folder / "a.csv")
    corpus = prepare(Data("text", path=str(folder), field="body", validation=1, test=1), 16)
    assert corpus.about["left_out"] == ["1 file, README.md"]


def test_documents(tmp_path):
    texts = ["one", 'two, "quoted"\nand a second line', "drei ü"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": 1, "text": t}) + "\n" for t in texts))
    with (tmp_path / "b.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerows([["class", "title", "text"], *[[1, "T", t] for t in texts]])
    with gzip.open(tmp_path / "c.csv.gz", "wt", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[1, "T", t] for t in texts])
    wanted = [(t, True) for t in texts]
    assert list(read_pieces(tmp_path / "a.jsonl", Format())) == wanted
    assert list(read_pieces(tmp_path / "b.csv", Format(("text",)))) == wanted
    titled = list(read_pieces(tmp_path / "c.csv.gz", Format(("title", "text"), ("class", "title", "text"))))
    assert titled == [("T " + t, True) for t in texts]
    (tmp_path / "d.txt").write_text("one\n\n  \ntwo\r\nthree")
    assert [t for t, _ in read_pieces(tmp_path / "d.txt", Format(documents="line"))] == ["one", "two", "three"]


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_separators_inside_quotes_are_none(tmp_path, name, sign):
    """The header has more of the other signs, all within quotes."""
    other = ";" if sign == "," else ","
    path = tmp_path / name
    rows = [[f"a{other} b{other} c{other} d", "text"], [f"1{other}2", "hello"], ["3", f"good{other} bye"]]
    path.write_text("".join(sign.join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    assert list(read_pieces(path, Format(("text",)))) == [("hello", True), (f"good{other} bye", True)]


@pytest.mark.parametrize(("name", "sign", "shown"), [("a.csv", ",", "','"), ("a.tsv", "\t", r"'\t'")])
def test_a_row_of_more_cells_than_columns_is_refused(tmp_path, name, sign, shown):
    """Of a text without quotation marks all that followed its first sign was lost, and a label became a part of the text."""
    path, tail = tmp_path / name, "put a text that holds SIGN in quotation marks".replace("SIGN", shown)
    path.write_text(f"text\n\nshort{sign}{sign}\nhe said 0{sign} and left\n")
    refuse(path, f"line 4 of 'PATH' has 2 cells for 1 column; {tail}", pack="document")
    path.write_text(f"text{sign}label\nis it 0{sign} is it{sign}a\n")
    refuse(path, f"line 2 of 'PATH' has 3 cells for 2 columns; {tail}", pack="document", labels=True)
    path.write_text(f'text\nshort{sign}{sign}\n"he said 0{sign} and left"\n')
    assert [text for text, _ in read_pieces(path, Format())] == ["short", f"he said 0{sign} and left"]


def refuse(path, said, **choices):
    """The sentence, and nothing written."""
    before = sorted(path.parent.rglob("*")) if path.parent.is_dir() else []
    with pytest.raises(InputError) as error:
        prepare(Data("text", path=str(path), **choices), 256)
    assert str(error.value) == said.replace("PATH", str(path))
    assert before == (sorted(path.parent.rglob("*")) if path.parent.is_dir() else [])


def test_a_missing_file(tmp_path):
    (tmp_path / "notes.txt").write_text("abc")
    refuse(tmp_path / "notes.tx", "no file at 'PATH'; nearest in that folder: 'notes.txt'")
    refuse(tmp_path / "zzz" / "a.txt", "no file at 'PATH'; there is no such folder")
    refuse(tmp_path / "note?.txx", "no file matches 'PATH'; nearest in that folder: 'notes.txt'")


def test_an_empty_file(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    for name in ("empty.txt", "empty.gz"):
        said = "'PATH' holds no characters; give a file with text, or `data.name` pydocs"
        refuse(tmp_path / name, said)
        refuse(tmp_path / name, said, tokenizer="bytes")


def test_a_short_file(tmp_path):
    (tmp_path / "short.txt").write_text("abcdefghi " * 180)
    refuse(
        tmp_path / "short.txt",
        "'PATH' gives 90 tokens for the validation split; length 256 needs at least 256 (try `net.length` 64)",
    )


@pytest.mark.parametrize("where", [0, 1204, unpack.BLOCK - 1, unpack.BLOCK, unpack.BLOCK + 77])
def test_not_utf8(tmp_path, where):
    filler = "é".encode() * (where // 2) + b"x" * (where % 2)
    path = tmp_path / "old.txt"
    path.write_bytes(filler + b"\xe9 and more " * 400)
    refuse(path, f"'PATH' is not UTF-8 (byte 0xe9 at {where:,}); convert it, or use `data.tokenizer` bytes")
    packed = tmp_path / "old.txt.xz"
    packed.write_bytes(lzma.compress(path.read_bytes(), preset=0))
    refuse(packed, f"'PATH' is not UTF-8 (byte 0xe9 at {where:,}); convert it, or use `data.tokenizer` bytes")
    if where == 1204:
        corpus = prepare(Data("text", path=str(path), tokenizer="bytes", validation=0, test=0), 64)
        first = b"".join(bytes(corpus.train[i]["tokens"].tolist()) for i in range(len(corpus.train)))
        assert path.read_bytes().startswith(first)


def test_bytes_that_end_within_a_character(tmp_path):
    path = tmp_path / "cut.txt"
    path.write_bytes(b"abc" * 1000 + "é".encode()[:1])
    refuse(path, "'PATH' is not UTF-8 (byte 0xc3 at 3,000); convert it, or use `data.tokenizer` bytes")


def test_a_field_that_is_not_there(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "7", "text": "abc"}\n')
    refuse(path, "field 'txt' is not in line 1 of 'PATH' (fields: id, text); use `data.field` text", field="txt")
    path.write_text('{"text": "abc"}\n{"text": \n')
    refuse(path, "line 2 of 'PATH' is not JSON; one object a line")
    path.write_text('{"text": "abc"}\n{"body": "x"}\n')
    refuse(path, "field 'text' is not in line 2 of 'PATH' (fields: body); use `data.field` body")
    path = tmp_path / "a.csv"
    path.write_text("id,text\n7,abc\n8\n")
    refuse(path, "field 'txt' is not in the header of 'PATH' (fields: id, text); use `data.field` text", field="txt")
    refuse(path, "field 'text' in line 3 of 'PATH' is not a text; use `data.field`")


def test_a_damaged_file(tmp_path):
    for name, packed in (("a.txt.gz", gzip.compress(TEXT.encode())), ("b.txt.xz", lzma.compress(TEXT.encode()))):
        path = tmp_path / name
        path.write_bytes(packed[: len(packed) // 2])
        with pytest.raises(InputError, match=r"is damaged .*; copy or download it again"):
            prepare(Data("text", path=str(path)), 32)


def test_names_and_choices():
    with pytest.raises(InputError) as error:
        prepare(Data("txet8"), 32)
    assert str(error.value) == "unknown data set 'txet8'; did you mean 'text8'? (all: zellige list data)"
    for wrong in ({"name": "text"}, {"path": "x.txt"}, {"pack": "wrpa"}, {"test": -1.0}, {"validation": 2.5}):
        with pytest.raises(InputError, match=r"`data\."):
            prepare(Data(**wrong), 32)


CHOICES = {
    "path": "x.txt", "field": "text", "tokenizer": "bytes", "pack": "packed", "fill": 8, "vocabulary": 7, "levels": 2, "size": 4,
    "kind": "image", "mix": "a.txt=1", "augment": 1, "labels": True, "flip": True, "colours": "grey",
    "crop": True, "reverse_complement": True, "labels_by": "rings", "documents": "line",
}  # fmt: skip


@pytest.mark.parametrize("name", DATASETS.names())
def test_a_choice_that_means_nothing_to_the_data_is_refused(name):
    """For every data set what the catalogue does not list is one line; nothing is read, and nothing is ignored."""
    reads = DATASETS[name].reads
    assert {*reads} <= {*CHOICES}
    for option, value in CHOICES.items():
        if option not in reads:
            instead = "; to read your own files give" if option == "path" else ", which reads"
            with pytest.raises(InputError, match=rf"^`data\.{option}` has no effect on {name}{instead} `data\."):
                prepare(Data(name, **{option: value}), 32)  # pyright: ignore[reportArgumentType]


def test_a_share_of_what_has_splits_of_its_own_is_refused(published):
    said = r" has a validation split of its own; leave out `data\.validation`$"
    with pytest.raises(InputError, match=said):
        prepare(Data("wikitext2", path=str(published / "wikitext-2"), tokenizer="bytes", validation=0.1), 32)
    with pytest.raises(InputError, match=said):
        prepare(Data("sudoku", validation=10))


def test_a_field_of_plain_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("abc " * 500)
    refuse(tmp_path / "a.txt", "`data.field` has no effect on 'PATH', which is plain text; leave it out", field="text")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.fa"])
def test_a_line_that_is_too_long_is_refused_by_its_number(tmp_path, monkeypatch, name):
    """It is never held as a whole: one line of 200 MB took 5 GB and ended the process."""
    lines = {
        "a.txt": ["short", "x" * 120], "a.jsonl": ['{"text": "short"}', json.dumps({"text": "x" * 120})],
        "a.csv": ["text,id", "x" * 120 + ",2"], "a.fa": [">one", "C" * 120],
    }[name]  # fmt: skip
    (tmp_path / name).write_text("\n".join([*lines, ""]))
    form = Format(documents="line" if name == "a.txt" else "")
    assert len([*read_pieces(tmp_path / name, form)]) in (1, 2)
    monkeypatch.setattr(readers, "LINE", 100)
    monkeypatch.setattr(readers, "BLOCK", 16)
    with pytest.raises(InputError, match=r"^line 2 of '.*' is longer than 100 characters, the most of a line; break"):
        list(read_pieces(tmp_path / name, form))
    if name == "a.txt":  # running text may be one line: text8 is
        assert whole(tmp_path / name)[0] == "short\n" + "x" * 120 + "\n"


def test_an_encrypted_zip_and_one_of_an_unknown_packing(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "abc " * 100)
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    for at, offset in ((raw.find(b"PK\3\4"), 6), (raw.find(b"PK\1\2"), 8)):  # flags in both headers, then the method
        raw[at + offset] |= 1
    (tmp_path / "b.zip").write_bytes(raw)
    with pytest.raises(InputError, match=r"b\.zip' is encrypted; unpack it"):
        whole(tmp_path / "b.zip")
    for at, offset in ((raw.find(b"PK\3\4"), 6), (raw.find(b"PK\1\2"), 8)):
        raw[at + offset] &= 0xFE
        raw[at + offset + 2] = 99
    (tmp_path / "c.zip").write_bytes(raw)
    with pytest.raises(InputError, match=r"c\.zip' is packed in a way that Python does not read"):
        whole(tmp_path / "c.zip")


@pytest.mark.parametrize(
    ("name", "file"), [("sudoku", "a.csv"), ("table", "a.csv"), ("table", "a.tsv"), ("text", "a.csv")]
)
def test_the_bytes_of_something_else_in_a_csv(tmp_path, name, file):
    (tmp_path / file).write_bytes(bytes([0, 13, 200, 34, 13, 7, 44, 13]) * 40)
    with pytest.raises(InputError, match=r"; "):
        prepare(Data(name, path=str(tmp_path / file)), 16 if name == "text" else None)
