"""Records of files in every usual form: one reader for `tune`, which learns answers, and `train`, which learns all."""

import gzip
import json

import pytest

from zellige.base.errors import InputError
from zellige.data import Data, chat, prepare, records
from zellige.data.given import read_pairs

ASKED, SAID = "Who are you?", "A fox — a red one.\nOr not."
TOLD = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]
PARTS = [
    {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "are you?"}]},
    {"role": "assistant", "content": [{"text": SAID}]},
]
SYSTEM = {"role": "system", "content": "Be brief."}
EARLIER = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
CONVERSATIONS = {  # of the same question and answer
    "messages": ({"messages": TOLD}, TOLD),
    "parts": ({"messages": PARTS}, TOLD),
    "system in the list": ({"messages": [SYSTEM, *TOLD], "system": "not this"}, [SYSTEM, *TOLD]),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": SAID}], "system": "Be brief."},
        [SYSTEM, *TOLD],
    ),
    "sharegpt with a tool": (
        {"conversations": [{"from": "observation", "value": ASKED}, {"from": "gpt", "value": SAID}]},
        [{"role": "tool", "content": ASKED}, TOLD[1]],
    ),
    "after the last answer": ({"messages": [*TOLD, {"role": "user", "content": "Why?"}]}, TOLD),
    "conversation": ({"conversation": TOLD}, TOLD),
    "alpaca": (
        {"instruction": "Who", "input": "are you?", "output": SAID},
        [{"role": "user", "content": "Who\nare you?"}, TOLD[1]],
    ),
    "identity": ({"instruction": ASKED, "input": "", "output": SAID, "text": "### Instruction"}, TOLD),
    "history": (
        {"instruction": ASKED, "output": SAID, "history": [["Hi", "Hello"]], "system": "Be brief."},
        [SYSTEM, *EARLIER, *TOLD],
    ),
    "lists": ({"prompt": [SYSTEM, TOLD[0]], "completion": [TOLD[1]]}, [SYSTEM, *TOLD]),
    "prompt and messages": ({"prompt": "not this", "messages": TOLD}, TOLD),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_each_form_is_the_conversation_that_it_holds(name):
    record, wanted = CONVERSATIONS[name]
    assert records.is_conversation(record)
    assert records.conversation(record, "x") == wanted


@pytest.mark.parametrize("name", ["prompt", "no answer", "an empty answer", "an answer alone"])
def test_what_has_no_answer_is_empty(name):
    told = {
        "prompt": [TOLD[0]],
        "no answer": TOLD[:1],
        "an empty answer": [TOLD[0], TOLD[1] | {"content": ""}],
        "an answer alone": TOLD[1:],
    }
    record = {"prompt": "", "completion": "b"} if name == "prompt" else {"messages": told[name]}
    assert not any(records.conversation(record, "x"))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"messages": "Hi"}, "x has no list of messages; each needs 'role' and 'content'"),
        ({"messages": [{"content": "Hi"}]}, "x has a message without a 'role'; each needs 'role' and 'content'"),
        ({"messages": ["Hi"]}, "x has a message without a 'role'; each needs 'role' and 'content'"),
        ({"messages": [{"role": "user", "content": None}]}, "x has a message with a content that is no text; give texts alone"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "x has a message with a part of type 'image_url'; give texts alone",
        ),
        ({"instruction": "a", "output": "b", "history": ["c"]}, "x: 'history' must hold pairs of a question and an answer"),
        ({"instruction": 3, "output": "b"}, "x has a message with a content that is no text; give texts alone"),
        ({"prompt": "a", "chosen": "b"}, "x has neither a prompt with its answer nor messages (prompt, chosen); give text; "),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_one_line(record, message):
    with pytest.raises(InputError) as problem:
        records.conversation(record, "x")
    assert str(problem.value).startswith(message)


RECORDS = [{"id": i, "instruction": f"Say {i}", "input": "", "output": f"It is {i}"} for i in range(30)]
PROMPTS = [(f"User: Say {i}\nAssistant:", f" It is {i}\n") for i in range(30)]


def written(folder, form: str):
    """The same records in a file of each form."""
    path = folder / {"list": "a.json", "lines in .json": "a.json", "packed list": "a.json.gz"}.get(form, f"a.{form}")
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    if form == "parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(RECORDS), path)
    elif form == "packed list":
        path.write_bytes(gzip.compress(json.dumps(RECORDS).encode()))
    else:
        path.write_text("\ufeff" * (form == "list") + (json.dumps(RECORDS, indent=1) if form == "list" else lines))
    return path


@pytest.mark.parametrize("form", ["jsonl", "list", "lines in .json", "packed list", "parquet"])
def test_every_file_gives_the_same_pairs_and_the_same_text(tmp_path, form):
    """`tune` gets prompts and answers; `train` the conversation as a document, and neither braces nor quotes."""
    path = written(tmp_path, form)
    pairs, note = read_pairs(str(path))
    assert [tuple(pair) for _, *pair in pairs] == PROMPTS
    assert note == chat.note(None)
    assert (
        pairs[2][0] == f"{'record' if form in ('list', 'lines in .json') else 'line'} 3 of '{path}'"[len("") :]
        or form == "parquet"
    )
    data = Data("text", path=str(path), tokenizer="characters", validation=0.0, test=0.0, pack="document")
    corpus = prepare(data, 40)
    texts = [corpus.tokenizer.decode(row["tokens"][row["mask"]]).rstrip("\n") for row in corpus.train]
    assert texts == [(prompt + answer).rstrip("\n") for prompt, answer in PROMPTS]
    assert corpus.about["read"] == ["each conversation, or prompt with its answer, as one text"]


def test_a_list_of_texts_is_documents(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"text": f"text {i}\n{{}}", "n": i} for i in range(30)]))
    data = Data(
        "text", path=str(tmp_path / "a.json"), tokenizer="characters", validation=0.0, test=0.0, pack="document"
    )
    corpus = prepare(data, 16)
    texts = [corpus.tokenizer.decode(row["tokens"][row["mask"]]) for row in corpus.train]
    assert texts == [f"text {i}\n{{}}\n" for i in range(30)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [{"title": "a", "body": "b"}],
            "holds records of title, body; name the one with the text by `data.field`, or give text;",
        ),
        ({"data": [{"text": "a"}]}, "holds no list of records; give a list of objects with text;"),
        (["a", "b"], "holds no list of records; give a list of objects with text;"),
        ([], "holds no list of records; give a list of objects with text;"),
    ],
)
def test_other_json_is_refused_where_it_is_named_and_read_with_a_field(tmp_path, content, message):
    """Alone it would be learnt with its braces; among the files of a folder it is a text as code is."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as problem:
        prepare(Data("text", path=str(path)), 8)
    assert str(problem.value).startswith(f"'{path}' {message}")
    (tmp_path / "main.py").write_text("print(3)\n" * 40)
    assert (
        not prepare(Data("text", path=str(tmp_path), tokenizer="bytes"), 8)
        .about.get("read", [""])[0]
        .startswith("column")
    )
    if "title" in str(content):
        path.write_text(json.dumps(content * 30))
        corpus = prepare(
            Data("text", path=str(path), field="body", tokenizer="characters", validation=0.0, test=0.0), 8
        )
        assert corpus.tokenizer.alphabet == "\nb"  # pyright: ignore[reportAttributeAccessIssue]


def test_records_of_a_damaged_list_are_one_line(tmp_path):
    path = tmp_path / "a.json"
    good = json.dumps([{"text": "abc"}] * 3)
    for text, message in (
        (good[:-4], f"'{path}' is not JSON; a list of objects, or one object a line"),
        (
            good.replace('{"text": "abc"}]', "3]"),
            f"record 3 of '{path}' is not an object; give a list of objects, {{\"text\": ...}}",
        ),
    ):
        path.write_text(text)
        with pytest.raises(InputError) as problem:
            prepare(Data("text", path=str(path)), 8)
        assert str(problem.value) == message
