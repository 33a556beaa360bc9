"""Records of a file by the names of their fields: a text, a prompt and its answer, or a conversation.

    text                                    a text
    prompt, answer (or completion)          a prompt and its answer; as lists of messages, a conversation
    messages: [{role, content}, ...]        a conversation, as OpenAI's and transformers' files have it
    conversations: [{from, value}, ...]     a conversation, as ShareGPT's files have it
    instruction, input, output              a conversation, as Alpaca's and LLaMA-Factory's identity files have it; also `history`

A conversation may have a `system` message beside it. The content of a message may be a list of parts, all of them
texts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import InputError

FORMS = "text; prompt and answer (or completion); messages; conversations (ShareGPT); instruction and output (Alpaca)"
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "observation": "tool",
}  # of ShareGPT, in OpenAI's words
TALKS = ("messages", "conversations", "conversation")

Pair = tuple[str, str]
Message = dict[str, str]  # {"role": "user", "content": "..."}


def is_conversation(record: Mapping[str, Any]) -> bool:
    """Return whether a record has a prompt and an answer, or messages."""
    has = {*record}
    return (
        bool(has & {*TALKS})
        or {"instruction", "output"} <= has
        or ("prompt" in has and bool(has & {"answer", "completion"}))
    )


def is_known(record: Mapping[str, Any]) -> bool:
    """Return whether the fields of a record say what its text is."""
    return "text" in record or is_conversation(record)


def conversation(record: Mapping[str, Any], where: str) -> Pair | list[Message]:
    """The prompt and the answer of a record, or the messages up to its last answer.

    Empty, ("", "") or [], where there is no answer, or nothing before it.

    Raises:
        InputError: the record has neither; an entry is of another type. `where` says which record: "line 3 of
            'chat.jsonl'".
    """
    if not is_conversation(record):
        raise InputError(
            f"{where} has neither a prompt with its answer nor messages ({', '.join(record)}); give {FORMS}"
        )
    if "prompt" in record and not {*record} & {*TALKS}:
        name = "answer" if "answer" in record else "completion"
        prompt, answer = record["prompt"], record[name]
        if isinstance(prompt, str) and isinstance(answer, str):
            return (_text(prompt, where), _text(answer, where)) if prompt and answer else ("", "")
        if not isinstance(prompt, list) or not isinstance(answer, list):
            raise InputError(
                f"{where}: 'prompt' and '{name}' are neither two texts nor two lists of messages; give texts"
            )
        told = [*messages_of(prompt, where), *messages_of(answer, where)]
    elif "instruction" in record and not {*record} & {*TALKS}:
        told = _alpaca(record, where)
    else:
        told = messages_of(record[next(name for name in TALKS if name in record)], where)
    if record.get("system") and not (told and told[0]["role"] == "system"):
        told = [{"role": "system", "content": _text(record["system"], where)}, *told]
    last = next((i for i in reversed(range(len(told))) if told[i]["role"] == "assistant" and told[i]["content"]), 0)
    return told[: last + 1] if last else []


def _alpaca(record: Mapping[str, Any], where: str) -> list[Message]:
    told: list[Message] = []
    for turn in record.get("history") or ():
        if not isinstance(turn, Sequence) or len(turn) != 2:
            raise InputError(f"{where}: 'history' must hold pairs of a question and an answer")
        told += [{"role": role, "content": _text(text, where)} for role, text in zip(("user", "assistant"), turn)]
    asked = [_text(record.get(name) or "", where) for name in ("instruction", "input")]
    question = "\n".join(filter(None, asked))
    return [
        *told,
        {"role": "user", "content": question},
        {"role": "assistant", "content": _text(record["output"], where)},
    ]


def messages_of(value: object, where: str) -> list[Message]:
    """The messages of a list, each with its role and its text. InputError: it is none, or one of them is not."""
    if not isinstance(value, list):
        raise InputError(f"{where} has no list of messages; each needs 'role' and 'content'")
    told: list[Message] = []
    for entry in value:
        role, content = (
            next((entry[name] for name in names if name in entry), None) if isinstance(entry, Mapping) else None
            for names in (("role", "from"), ("content", "value"))
        )
        if not isinstance(role, str):
            raise InputError(f"{where} has a message without a 'role'; each needs 'role' and 'content'")
        told.append({"role": ROLES.get(role, role), "content": _text(content, where)})
    return told


def _text(content: object, where: str) -> str:
    """The text of a content, which may be a list of parts; half a surrogate pair, which JSON may hold, is replaced."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    for part, text in zip(parts, texts):
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else None
            held = f"a part of type '{kind}'" if isinstance(kind, str) else "a content that is no text"
            raise InputError(f"{where} has a message with {held}; give texts alone")
    return re.sub("[\ud800-\udfff]", "\ufffd", "".join(texts))  # pyright: ignore[reportArgumentType, reportCallIssue]
