"""Chat templates: a conversation as a prompt and an answer, by the template that is published with a tokenizer.

A template is Jinja. transformers renders it, in its sandbox: it can read the messages and the names of special tokens, and
nothing else. It comes from `chat_template.jinja`, or from the entry `chat_template` of `tokenizer_config.json`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, not_installed
from ..schema import read_json, read_text
from .tokenizer_base import CONFIG

TEMPLATE, FILE = "chat_template", "chat_template.jinja"
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_AGAIN = "copy or download it again"


def chat_of(folder: Path) -> dict[str, str]:
    """The chat template in a tokenizer's folder, and the texts of the special tokens that it may name; {} where it has none."""
    path = folder / CONFIG
    entries: dict[str, Any] = read_json(path, dict, _AGAIN) if path.is_file() else {}
    template = entries.get(TEMPLATE)
    if isinstance(template, list):  # several by name
        by_name = {one.get("name"): one.get("template") for one in template if isinstance(one, Mapping)}
        template = by_name.get("default")
    if (folder / FILE).is_file():
        template = read_text(folder / FILE, _AGAIN)
    if not isinstance(template, str) or not template:
        return {}
    tokens = {name: entries[name] for name in SPECIAL if name in entries}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in tokens.items()}
    return {TEMPLATE: template} | {name: text for name, text in texts.items() if isinstance(text, str)}


def as_pair(tokenizer: Any, messages: object, where: str) -> tuple[str, str]:
    """The prompt and the answer of a conversation: the answer is its last message, with all that ends it.

    Args:
        tokenizer: one with a template (`Tokens.chat`).
        messages: [{"role": "user", "content": ...}, ..., {"role": "assistant", "content": ...}].
        where: what to call it in an error: "line 3 of 'chat.jsonl'".

    Raises:
        InputError: no messages, or the last is not the assistant's; the tokenizer has no template; the template refuses them, or
            writes the earlier messages otherwise where an answer follows.
    """
    chat: dict[str, str] = getattr(tokenizer, "chat", None) or {}
    if not chat:
        raise InputError(
            f"{where} has 'messages', and tokenizer '{tokenizer.name}' has no chat template; give 'prompt' and 'answer'"
        )
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not all(_is_message(m) for m in messages):
        raise InputError(f"{where} has no list of messages; each needs 'role' and 'content'")
    if len(messages) < 2 or messages[-1]["role"] != "assistant" or not messages[-1]["content"]:
        raise InputError(f"{where} ends without an answer; its last message must be the assistant's, after another")
    prompt = _render(chat, messages[:-1], where, add_generation_prompt=True)
    whole = _render(chat, messages, where)
    if not whole.startswith(prompt) or whole == prompt:
        raise InputError(
            f"{where}: the chat template writes the prompt otherwise once an answer follows; give 'prompt' and 'answer'"
        )
    return prompt, whole.removeprefix(prompt)


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(name), str) for name in ("role", "content"))


def _render(chat: Mapping[str, str], messages: Sequence[Any], where: str, **how: Any) -> str:
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError:
        raise not_installed("a chat template", "transformers", "tune") from None
    words: dict[str, Any] = {name: text for name, text in chat.items() if name != TEMPLATE}
    try:
        texts, _ = render_jinja_template([[*messages]], chat_template=chat[TEMPLATE], **how, **words)
    except Exception as problem:  # whatever the template raises, or Jinja of it
        reason = " ".join(str(problem).split())[:120].rstrip(".")
        raise InputError(f"{where}: the chat template refuses the messages ({reason})") from None
    return texts[0]
