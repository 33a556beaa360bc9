"""Conversations as texts: by the chat template that is published with a tokenizer, or by a plain one.

A template is Jinja, from `chat_template.jinja` or from the entry `chat_template` of `tokenizer_config.json`. It is
rendered in Jinja's sandbox and in a process of its own (`template`): it can read the messages and the names of special
tokens, nothing else, and has `SECONDS` of computing and `MEMORY` bytes for each text of at most `template.MOST`
characters.

A tokenizer without one has a plain template, `User: ...` and `Assistant: ...`, a line for each message; where its
alphabet cannot write that, `user ... assistant ...` in one line.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.schema import read_json, read_text
from . import template
from .records import Message, Pair
from .tokenizer_base import CONFIG, OutsideVocabulary

TEMPLATE, FILE = "chat_template", "chat_template.jinja"
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_AGAIN = "copy or download it again"
SECONDS, MEMORY = 2.0, 1 << 29  # of a text
START = 60.0  # seconds in which the other process has to start


@dataclass(frozen=True)
class Template:
    """How a conversation is written.

    Attributes:
        source: Jinja.
        tokens: the names of special tokens, as a template asks for them, and their texts.
        plain: what it writes, for a line, where it is one of ours; "": it came with the tokenizer.
    """

    source: str
    tokens: tuple[tuple[str, str], ...] = ()
    plain: str = ""


PLAIN = Template(
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}",
    plain="'User: ...' and 'Assistant: ...', a line each",
)
SMALL = Template(
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant{% endif "
    "%}",
    plain="'user ... assistant ...'",
)


def tokenizer_config(folder: Path) -> dict[str, Any]:
    """The entries of the tokenizer_config.json of a folder; {} where there is none."""
    path = folder / CONFIG
    return read_json(path, dict, _AGAIN) if path.is_file() else {}


def chat_of(folder: Path, entries: Mapping[str, Any]) -> dict[str, str]:
    """The chat template in a tokenizer's folder, and the texts of the special tokens that it may name; {} where it has
    none.

    Args:
        entries: of its tokenizer_config.json.
    """
    source = entries.get(TEMPLATE)
    if isinstance(source, list):  # several by name
        by_name = {one.get("name"): one.get("template") for one in source if isinstance(one, Mapping)}
        source = by_name.get("default")
    if (folder / FILE).is_file():
        source = read_text(folder / FILE, _AGAIN)
    if not isinstance(source, str) or not source:
        return {}
    tokens = {name: entries[name] for name in SPECIAL if name in entries}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in tokens.items()}
    return {TEMPLATE: source} | {name: text for name, text in texts.items() if isinstance(text, str)}


def template_of(tokenizer: Any) -> Template:
    """The template of a tokenizer; a plain one where it has none, or is None: not trained yet."""
    chat: dict[str, str] = dict(getattr(tokenizer, "chat", None) or {})
    if TEMPLATE in chat:
        return Template(chat.pop(TEMPLATE), tuple(chat.items()))
    if tokenizer is None:
        return PLAIN
    try:
        tokenizer.encode("System: User: Assistant:\n")
    except OutsideVocabulary:
        return SMALL
    return PLAIN


def note(tokenizer: Any) -> str:
    """A line that names the plain template; "" where the tokenizer has a template of its own."""
    plain = template_of(tokenizer).plain
    return plain and f"the tokenizer has no chat template; a plain one writes conversations: {plain}"


def pairs(tokenizer: Any, conversations: Iterable[tuple[str, Sequence[Message]]]) -> list[tuple[str, str]]:
    """The prompt and the answer of each conversation: the answer is its last message, with all that ends it.

    Args:
        conversations: what to call each in an error ("line 3 of 'chat.jsonl'"), and its messages.

    Raises:
        InputError: the template refuses a conversation, or writes the earlier messages otherwise where an answer
            follows.
    """
    named = list(conversations)
    if not named:
        return []
    renderings = [
        {"messages": [*part], "add_generation_prompt": asks}
        for _, messages in named
        for part, asks in ((messages[:-1], True), (messages, False))
    ]
    names = [name for name, _ in named for _ in (0, 1)]
    texts = render(template_of(tokenizer), renderings, names)
    made = []
    for (name, _), prompt, whole in zip(named, texts[::2], texts[1::2]):
        if not whole.startswith(prompt) or whole == prompt:
            raise InputError(
                f"{name}: the chat template writes the prompt otherwise once an answer follows; give 'prompt' and "
                "'answer'"
            )
        made.append((prompt, whole.removeprefix(prompt)))
    return made


def written(conversation: Pair | list[Message]) -> str:
    """A whole conversation as a text, by the plain template; of a prompt and its answer, one after the other."""
    if isinstance(conversation, tuple):
        return "".join(conversation)
    return render(PLAIN, [{"messages": conversation}], [""])[0] if conversation else ""


def prompt_of(tokenizer: Any, messages: Sequence[Message], name: str = "the conversation") -> str:
    """The text after which the model writes its answer. InputError: the template refuses the messages."""
    return render(template_of(tokenizer), [{"messages": [*messages], "add_generation_prompt": True}], [name])[0]


def ends_of(tokenizer: Any) -> tuple[str, ...]:
    """The texts that end an answer: what the template writes after it or before the next question,
    the token that ends a text."""
    token = getattr(tokenizer, "separator", None) if tokenizer.unit == "token" else None
    ends = (*_ends(template_of(tokenizer)), "" if token is None else tokenizer.decode([token]))
    return tuple(end for end in dict.fromkeys(ends) if end.strip())


@cache
def _ends(form: Template) -> tuple[str, str]:
    told = [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": "ANSWER"}]
    told = [told, [*told, {"role": "user", "content": "AGAIN"}]]
    renderings = [{"messages": messages, "add_generation_prompt": False} for messages in told]
    try:
        last, between = render(form, renderings, ["the conversation"] * 2)
    except InputError:  # of several turns it may take none
        return "", ""
    return last.partition("ANSWER")[2].strip(), between.partition("ANSWER")[2].partition("AGAIN")[0].rstrip()


# ---------------------------------------------------------------------------------------------------- rendering
def render(form: Template, renderings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """The text of each of `renderings`, the variables of a template.

    Raises:
        InputError: Jinja cannot read or render it, or it passes a limit; `names` says at which one.
    """
    asked = [{**dict(form.tokens), **words} for words in renderings]
    if form.plain:
        return [template.render(_ours(form.source), words) for words in asked]
    answers = _elsewhere({"template": form.source, "seconds": SECONDS, "memory": MEMORY}, asked)
    for answer, name in zip(answers, names):
        if "limit" in answer:
            why = _LIMITS[answer["limit"]].format(seconds=SECONDS, memory=MEMORY >> 20, most=template.MOST)
            raise InputError(f"{name}: the chat template {why}; give a tokenizer with another")
        if "problem" in answer:
            raise InputError(f"{name}: the chat template refuses the messages ({answer['problem']})")
    return [answer["text"] for answer in answers]


_ours = cache(template.compiled)
_LIMITS = {
    "time": "computes for more than {seconds:g} seconds",
    "memory": "needs more than {memory} MB",
    "length": "writes more than {most:,} characters",
    "end": "ends the process that renders it",
}


def _elsewhere(how: Mapping[str, Any], renderings: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The answers of `template` as a program; the last of them may be a limit."""
    command = [sys.executable, "-P", template.__file__]
    words = "".join(json.dumps(line) + "\n" for line in (how, *renderings)).encode()
    late = False
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            written, _ = process.communicate(words, START + SECONDS * len(renderings))
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            written, _ = process.communicate()
    answers = [json.loads(line) for line in written.split(b"\n")[:-1]]
    late = late or process.returncode == -getattr(signal, "SIGPROF", 0)
    return answers if len(answers) == len(renderings) else [*answers, {"limit": "time" if late else "end"}]
