"""What a document of plain text is: what <|endoftext|> ends, a line, what blank lines divide, or a file; and what is said."""

import gzip
import random
import re

import pytest

from zellige.base.errors import InputError
from zellige.data import Data, readers
from zellige.data.prepare import prepare

STORIES = [
    f"Once there {'was' if i % 3 else 'were'} {i}.\r\nIt ran\n\n to {'é' * (i % 4)}.\nThe <end> of {i}."
    for i in range(60)
]
MARKED = "\n<|endoftext|>\n".join(STORIES) + "\n<|endoftext|>\n\n"
GAPS = "\n \n\n".join(f"story {i}\nof {i % 4 + 1} lines" + "\nmore" * (i % 3) for i in range(30)) + "\n"
LIST = "".join(f"name {i}\r\n" for i in range(30)) + "\n\nlast"


def documents(folder, tmp_path, pack="document", tokenizer="characters", length=64, **more):
    """The documents as they are read, and what is said of them."""
    data = Data(
        "text", path=str(folder), pack=pack, tokenizer=tokenizer, cache=str(tmp_path / "cache"), validation=3, test=4, **more
    )  # fmt: skip
    corpus = prepare(data, length)
    texts = [corpus.tokenizer.decode(row) for split in corpus.rows.values() for row in split.array().clip(-1)]
    return [text.replace("·", "").rstrip("\n") for text in texts], corpus


@pytest.mark.parametrize("block", [3, 50, 1 << 20])
@pytest.mark.parametrize("documents_are", ["mark", "file", "blank", "line"])
def test_documents_are_the_same_in_blocks_of_any_size(block, documents_are, monkeypatch, tmp_path):
    """Long ones come in parts; what ends a document may lie in two blocks. Blank documents are none."""
    monkeypatch.setattr(readers, "BLOCK", block)
    monkeypatch.setattr(readers, "TAIL", 40)
    blank = "\n\n<|endoftext|>\n  \n<|endoftext|>"
    path = tmp_path / "a.txt"
    path.write_bytes((MARKED + blank + "x" * 900 + " \n" + "y" * 500).encode())
    pieces, whole = [], ""
    for text, ends in readers.read_pieces(path, readers.Format(documents=documents_are)):
        whole += text
        if ends:
            pieces.append(whole)
            whole = ""
    wanted = [*STORIES, "x" * 900 + " \n" + "y" * 500]
    if documents_are == "blank":
        wanted = [part for story in wanted for part in story.split("\n\n")]
    if documents_are == "line":
        wanted = [line.rstrip("\r") for story in wanted for line in story.split("\n") if line]
    assert pieces == wanted
    assert whole == ""


DIVISIONS = {"mark": "(?!)", "file": "(?!)", "line": "\n", "blank": r"\n(?:[ \t\r]*\n)+"}


@pytest.mark.parametrize("documents_are", DIVISIONS)
def test_a_mark_ends_a_document_with_all_line_ends_around_it(documents_are, tmp_path):
    """Of a run of 200,000 line ends that no mark follows, each is looked at a few times, and not as often as there are others."""
    draw, path, form = random.Random(1), tmp_path / "a.txt", readers.Format(documents=documents_are)
    ends = re.compile(rf"[\r\n]*<\|endoftext\|>[\r\n]*|{DIVISIONS[documents_are]}")
    for _ in range(400):
        text = "".join(draw.choices(["\n", "\r", "\r\n", " ", "a", "b c", readers.MARK], k=draw.randrange(40)))
        path.write_bytes(text.encode())
        wanted = [(part.strip("\r\n"), True) for part in ends.split(text) if part.strip()]
        assert [*readers.read_pieces(path, form)] == wanted, repr(text)
    path.write_bytes(b"a" + b"\r\n" * 100_000 + b"b\n<|endoftext|>c")
    inside = ["a", "b"] if DIVISIONS[documents_are] != "(?!)" else ["a" + "\r\n" * 100_000 + "b"]
    assert [text for text, _ in readers.read_pieces(path, form)] == [*inside, "c"]


@pytest.mark.parametrize("pack", ["wrap", "document", "packed"])
@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "bpe:300"])
def test_endoftext_ends_a_document_and_is_no_text(pack, tokenizer, tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(MARKED.encode()))
    texts, corpus = documents(tmp_path / "a.txt.gz", tmp_path, pack, tokenizer)
    assert corpus.about["read"] == ["60 documents, divided by <|endoftext|>"]
    name = "<|endoftext|>" if tokenizer == "bpe:300" else "newline"
    assert corpus.about["separator"] == f"{name} after each document"
    tokens = corpus.tokenizer
    learnt = tokens.inner.get_vocab() if tokenizer == "bpe:300" else getattr(tokens, "alphabet", "")
    assert not [piece for piece in learnt if ("<|" in piece or "endof" in piece) and piece != readers.MARK]
    if pack == "document":
        assert [text.partition("<|endoftext|>")[0] for text in texts] == STORIES
        assert [corpus.split(name).texts for name in ("train", "validation", "test")] == [53, 3, 4]


def test_a_bpe_learns_no_piece_of_the_end_in_rows_either(tmp_path):
    lines = "".join(f'{{"text": "a <|endoftext|> b{i}<|endoftext|>"}}\n' for i in range(50))
    (tmp_path / "a.jsonl").write_text(lines)
    _, corpus = documents(tmp_path / "a.jsonl", tmp_path, tokenizer="bpe:300")
    assert [piece for piece in corpus.tokenizer.inner.get_vocab() if "<|" in piece or "end" in piece] == [
        "<|endoftext|>"
    ]


@pytest.mark.parametrize(
    ("content", "chosen", "count", "said"),
    [
        (GAPS, "", 30, "divided by blank lines; `data.documents` line makes each line one"),
        (GAPS, "line", 90, "a line each"),
        (GAPS, "blank", 30, "divided by blank lines"),
        (LIST, "", 31, "a line each"),  # one gap divides nothing
        (LIST, "blank", 2, "divided by blank lines"),
        (MARKED, "", 60, "divided by <|endoftext|>"),
        (MARKED, "blank", 120, "divided by blank lines"),
    ],
)
def test_what_a_document_is_follows_from_the_text_or_is_said(content, chosen, count, said, tmp_path):
    (tmp_path / "a.txt").write_bytes(content.encode())
    more = {"validation": 0, "test": 0} if count < 10 else {}
    data = Data(
        "text", path=str(tmp_path / "a.txt"), pack="document", documents=chosen, **{"validation": 3, "test": 3} | more
    )
    corpus = prepare(data, 300)
    assert corpus.about["read"] == [f"{count:,} documents, {said}"]
    assert sum(rows.texts for rows in corpus.rows.values()) == count


def test_each_of_many_files_is_a_document(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    for i in range(12):
        (notes / f"{i:02d}.txt").write_text(f"note {i}\n\nof lines\n")
    texts, corpus = documents(notes, tmp_path)
    assert texts == [f"note {i}\n\nof lines" for i in range(12)]
    assert corpus.about["read"] == ["12 documents, a file each; `data.documents` line makes each line one"]
    lines, corpus = documents(notes, tmp_path, documents="line")
    assert (len(lines), corpus.about["read"]) == (24, ["24 documents, a line each"])
    (notes / "11.txt").unlink()
    for i in range(8, 11):
        (notes / f"{i:02d}.txt").unlink()
    assert documents(notes, tmp_path)[1].about["read"][0].startswith("16 documents, divided by blank lines")
    running = prepare(Data("text", path=str(notes)), 4)
    assert ("read" in running.about, running.train.documents) == (False, None)
    stream = prepare(Data("text", path=str(notes), documents="blank", validation=2, test=2), 4)
    assert stream.about["separator"] == "newline after each document"


def test_rows_have_documents_of_their_own(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 40)
    with pytest.raises(
        InputError, match=r"`data\.documents` has no effect on '.*a\.jsonl', which has documents of its own"
    ):
        documents(tmp_path / "a.jsonl", tmp_path, documents="line")
