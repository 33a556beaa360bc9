"""A completion: the request as OpenAI's clients send it, the samples that the worker draws for it, and the answer.

    prompt            the beginning of the text; `max_tokens` after it are sampled
    prompt + suffix   a masked span of `max_tokens` between the two is filled (`sampling.infill`)
    messages          a conversation: the prompt is what the chat template makes of it, and its end ends the answer

A stream has a part for each step that changed a text. A text is not written from left to right, so a part's `text` is
what has become certain at its beginning (all parts together are the completion), and `zellige.frame` is the whole text
as it stands, `·` for a masked token.
"""

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from zellige.base.arguments import MOST_SEED
from zellige.base.errors import InputError, unknown
from zellige.data import chat, records
from zellige.models.class_names import find_classes
from zellige.models.decoding import Decoding
from zellige.models.model import Model
from zellige.sampling.infill import Infill
from zellige.sampling.sample import Sample
from zellige.sampling.tokens import before_word
from zellige.sampling.trajectory import Frame
from zellige.show.kinds import added

from .body import DecodingBody
from .guard import Limits
from .worker import Job

OPENAI_ROLES = ("system", "developer", "user", "assistant", "tool", "function")  # of messages
SHORT = 16  # tokens of a completion by default (OpenAI's number)


class Asked(DecodingBody):
    """The fields that both of OpenAI's requests have, and beside them those of `Decoding`, the sampler's `options` and
    the class.

    A field that is not supported may be sent at its default.

    Attributes:
        kinds: how OpenAI calls the answer, a part of a stream of it, and how its id begins.
    """

    kinds: ClassVar[tuple[str, str, str]]

    model: str = ""
    max_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(1, ge=1)
    seed: int | None = Field(None, ge=0, le=MOST_SEED)
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    user: str | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0

    class_: str | int | None = Field(None, alias="class")

    def unsupported(self) -> str | None:
        """The first field that asks for something that is not supported."""
        return next((name for name in self.no_effect() if getattr(self, name)), None)

    def no_effect(self) -> tuple[str, ...]:
        """The fields that are not supported, but at a default that is false."""
        return "logit_bias", "presence_penalty", "frequency_penalty"

    @property
    def new(self) -> int | None:
        """Tokens that are asked for."""
        return self.max_tokens

    def texts(self, model: Model, limits: Limits) -> tuple[list[str], str]:
        raise NotImplementedError

    def whole(self, text: str, prompt: str) -> dict[str, Any]:
        raise NotImplementedError

    def part(self, new: str, prompt: str, step: "Step") -> dict[str, Any]:
        raise NotImplementedError


class Completion(Asked):
    """The fields of OpenAI's `completions.create`."""

    kinds: ClassVar = ("text_completion", "text_completion", "cmpl")

    prompt: str | list[str] = ""
    suffix: str | None = None
    echo: bool | None = False
    best_of: int | None = None
    logprobs: int | None = None

    def unsupported(self) -> str | None:
        uses = {"best_of": self.best_of not in (None, self.n), "logprobs": self.logprobs is not None}
        return next((name for name, used in uses.items() if used), None) or super().unsupported()

    def texts(self, model: Model, limits: Limits) -> tuple[list[str], str]:
        """The prompts, and the suffix."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt, self.suffix or ""

    def whole(self, text: str, prompt: str) -> dict[str, Any]:
        """What a choice of the answer holds."""
        return {"text": f"{prompt}{text}{self.suffix or ''}" if self.echo else text}

    def part(self, new: str, prompt: str, step: "Step") -> dict[str, Any]:
        """What a choice of a stream's part holds."""
        before = prompt if self.echo and not step.step else ""
        return {"text": before + new + ((self.suffix or "") if self.echo and step.last else "")}


class Chat(Asked):
    """The fields of OpenAI's `chat.completions.create`."""

    kinds: ClassVar = ("chat.completion", "chat.completion.chunk", "chatcmpl")

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = False
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    def no_effect(self) -> tuple[str, ...]:
        return *super().no_effect(), "logprobs", "top_logprobs", "tools", "functions", "response_format"

    @property
    def new(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def texts(self, model: Model, limits: Limits) -> tuple[list[str], str]:
        messages = records.messages_of(self.messages, "the request")
        if strange := next((message["role"] for message in messages if message["role"] not in OPENAI_ROLES), None):
            raise unknown("role", strange, OPENAI_ROLES)
        limits.check("text", sum(len(message["content"]) for message in messages), "characters in a conversation")
        if not messages or messages[-1]["role"] == "assistant":
            raise InputError("`messages` has no question at its end; the last message must not be the assistant's")
        return [chat.prompt_of(model.tokenizer, messages, "`messages`")], ""

    def whole(self, text: str, prompt: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def part(self, new: str, prompt: str, step: "Step") -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": new} if not step.step else {"content": new} if new else {}}


@dataclass
class Choice:
    """One text of the answer.

    Attributes:
        prompt: the tokens before the sampled ones; suffix: the tokens after them.
        end: one after the last sampled token; `text` is the sampled text, as far as it is certain.
        joined: the prompt ends with a blank that is left to the first sampled token (`before_word`).
        answer: it is the answer of a conversation, without the white space around it.
    """

    prompt: list[int]
    suffix: list[int]
    end: int
    joined: bool = False
    answer: bool = False
    text: str = ""
    sent: int = 0
    frame: str = ""
    shown: str | None = None
    tokens: int = 0
    calls: int = 0
    reason: str | None = None


@dataclass
class Plan:
    """A request for a completion, checked against a model.

    Attributes:
        rows: where there is a suffix, the tokens of each text, -1 where one is sampled.
        n: texts of each prompt; length: tokens of each text; grows: the sampler writes from left to right.
        settles: a token stays once it is sampled, so that a beginning is certain before the last step.
    """

    model: Model
    decoding: Decoding
    choices: list[Choice]
    prompts: list[str]
    rows: list[list[int]] | None
    seed: int
    stop: list[str]
    classes: str | int | None
    n: int
    length: int
    grows: bool
    settles: bool
    template: str | None = None  # of a conversation "own", or the plain one in words

    def job(self) -> Job:
        how = json.dumps(self.decoding.decoding(), sort_keys=True, default=repr)
        key = (how, self.classes, self.grows, self.length, self.rows is None)
        if self.grows:  # how much of one text is read depends on where the others begin (`sampling.trajectory`)
            key += (len(self.choices[0].prompt),)
        return Job(key, _start, _see, len(self.choices), self)


def plan(request: Asked, model: Model, limits: Limits) -> Plan:
    """Check a request against a model. InputError where it asks for too much, or the model does not support it."""
    if name := request.unsupported():
        raise InputError(f"`{name}` is not supported; leave it out")
    talk = request if isinstance(request, Chat) else None
    tokenizer, room_in_all, n = model.tokenizer, int(model.method.shape[0]), request.n or 1
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    prompts, suffix_text = request.texts(model, limits)
    if not prompts:
        raise InputError("`prompt` is an empty list; give a text, or several")
    limits.check("batch", len(prompts) * n, "texts (`prompt` times `n`)")
    for text in (*prompts, suffix_text, *stop):
        limits.check("text", len(text), "characters in a text")
    if not all(stop) or len(stop) > 4:
        raise InputError("`stop` has an empty text or more than 4; give up to 4 texts")
    if request.class_ is not None:
        find_classes(model, request.class_)
    asked = Infill if suffix_text else Sample
    decoding = asked.of(**request.decoding(), classes=request.class_).with_defaults(model)
    sampler = decoding.sampler_for(model.method)
    suffix = tokenizer.encode(suffix_text, "the suffix") if suffix_text else []
    beginnings = [before_word(tokenizer, text) for text in prompts]
    prompt_tokens = [tokenizer.encode(text) if text else [] for text in beginnings]
    size, longest = min(map(len, prompt_tokens)), max(map(len, prompt_tokens))
    if size < longest:  # all texts of a draw have one length, which each of them depends on
        raise InputError(f"the prompts have {size:,} to {longest:,} tokens; send each length in a request of its own")
    room = room_in_all - size - len(suffix)
    new = request.new or min(room_in_all if talk else SHORT, max(room, 1))
    if new > room:
        what = "conversation" if talk else "prompt"
        has = f"the {what} has {size:,} tokens, {f'the suffix {len(suffix):,}, ' if suffix else ''}and {new:,} are to be drawn"
        use = f"use `max_tokens` {room:,} or less" if room > 0 else f"shorten the {what}"
        raise InputError(f"{has}; the model takes {room_in_all:,} in all, {use}")
    length, texts = size + new + len(suffix), len(prompts) * n
    limits.check("tokens", texts * length, "tokens in all texts together")
    limits.check_draw(sampler, model.method, decoding.steps, length, texts)
    choices = [
        Choice(tokens, suffix, size + new, joined=beginning != prompt, answer=talk is not None)
        for tokens, beginning, prompt in zip(prompt_tokens, beginnings, prompts)
        for _ in range(n)
    ]
    rows = [[*choice.prompt, *[-1] * new, *choice.suffix] for choice in choices] if suffix else None
    seed = secrets.randbits(31) if request.seed is None else request.seed
    mask = getattr(model.method.process, "mask", None)
    revises = sampler.revises or (sampler.inner is not None and sampler.inner.revises)
    settles = not revises and (mask is not None or sampler.grows)
    of_choices = [prompts[i // n] for i in range(len(choices))]
    template = chat.template_of(tokenizer).plain or "own" if talk else None
    stop = [*stop, *(chat.ends_of(tokenizer) if talk else ())]
    fields = {"n": n, "length": length, "grows": sampler.grows, "settles": settles, "template": template}
    return Plan(model, decoding, choices, of_choices, rows, seed, stop, request.class_, **fields)


def _start(jobs: Sequence[Job]) -> Iterator[Frame]:
    """The trajectory of all texts of jobs that agree, in one batch."""
    plans: list[Plan] = [job.work for job in jobs]
    first = plans[0]
    count = sum(len(plan.choices) for plan in plans)
    seeds = [(plan.seed, number) for plan in plans for number in range(len(plan.choices))]
    fields = {"count": count, "seed": seeds, "batch": count, "classes": first.classes, "defaults": False}
    if first.rows is None:
        fields |= {"prompt": [text for plan in plans for text in plan.prompts], "length": first.length}
    else:
        fields |= {"fixed": [row for plan in plans for row in plan.rows or []], "alone": True}
    return Sample.of(**first.decoding.decoding(), **fields).trajectory(first.model).frames()


@dataclass(frozen=True)
class Progress:
    """A text after one step: what is certain of it, the whole of it, why it ended,
    network evaluations and tokens that are sampled so far."""

    text: str
    frame: str
    reason: str | None
    calls: int
    tokens: int


@dataclass(frozen=True)
class Step:
    """The texts of a job after `step` of `steps` steps, at time t, after so many seconds of sampling."""

    step: int
    steps: int
    t: float
    seconds: float
    texts: list[Progress]

    @property
    def last(self) -> bool:
        """True at the last step, when the texts are finished."""
        return self.step == self.steps


def _see(job: Job, frame: Frame) -> Step:
    """Return the texts of a job after a step: their certain beginnings grow."""
    plan: Plan = job.work
    tokenizer, last = frame.tokenizer, frame.step == frame.steps
    masked, x, ends, calls = frame.masked, frame.x, frame.ends, frame.calls.tolist()
    for row, choice in enumerate(plan.choices, job.first):
        begin, end = len(choice.prompt), min(choice.end, ends[row])
        tokens = x[row].tolist()
        blank = masked[row, begin:end].tolist()
        certain = end if last else begin + (blank.index(True) if plan.settles and True in blank else 0)
        text = added(tokenizer, tokens[:begin], tokens[begin:certain])
        text = text.removeprefix(" ") if choice.joined else text
        choice.frame = tokenizer.decode(tokens[: min(len(tokens), ends[row])])
        choice.calls, choice.tokens = calls[row], blank.count(False)
        choice.reason = "stop" if ends[row] < choice.end and not choice.suffix else "length"
        cuts = [at for at in (text.find(stop) for stop in plan.stop) if at >= 0]
        if cuts:
            text, choice.reason = text[: min(cuts)], "stop"
        elif not last:  # a character of several tokens, or the beginning of a stop text, waits
            hold = max(map(len, plan.stop), default=1) - 1
            text = text[: max(len(text.rstrip("\ufffd")) - hold, 0)]
        text = text.strip() if choice.answer else text
        if text.startswith(choice.text):
            choice.text = text
    texts = [
        Progress(
            choice_of_plan.text,
            choice_of_plan.frame,
            choice_of_plan.reason,
            choice_of_plan.calls,
            choice_of_plan.tokens,
        )
        for choice_of_plan in plan.choices
    ]
    return Step(frame.step, frame.steps, frame.t, frame.seconds, texts)


def answer(request: Asked, name: str, plan: Plan, step: Step) -> dict[str, Any]:
    """The whole completion, from its last step."""
    choices = [
        {"index": i, **request.whole(progress.text, prompt), "logprobs": None, "finish_reason": progress.reason}
        for i, (prompt, progress) in enumerate(zip(plan.prompts, step.texts))
    ]
    about = {"seed": plan.seed, "steps": step.steps, "calls": [progress.calls for progress in step.texts]}
    about |= {"seconds": round(step.seconds, 4)} | ({"template": plan.template} if plan.template else {})
    return opening(request, name) | {"choices": choices, "usage": usage(plan, step), "zellige": about}


def parts(request: Asked, head: dict[str, Any], plan: Plan, step: Step) -> Iterator[dict[str, Any]]:
    """The parts of a stream after one step, one for each text that is another than before; at the last step of all."""
    for i, (choice, progress) in enumerate(zip(plan.choices, step.texts)):
        new, reason = progress.text[choice.sent :], progress.reason if step.last else None
        if progress.frame == choice.shown and not new and not step.last:
            continue
        choice.sent, choice.shown = len(progress.text), progress.frame
        yield head | {
            "choices": [
                {"index": i, **request.part(new, plan.prompts[i], step), "logprobs": None, "finish_reason": reason}
            ],
            "zellige": {
                "step": step.step,
                "steps": step.steps,
                "t": round(step.t, 4),
                "frame": progress.frame,
                "calls": progress.calls,
                "seed": plan.seed,
            },
        }


def usage(plan: Plan, step: Step) -> dict[str, int]:
    """The token counts of OpenAI's answer."""
    prompt_tokens = sum(len(choice.prompt) + len(choice.suffix) for choice in plan.choices[:: plan.n])
    new = sum(progress.tokens for progress in step.texts)
    return {"prompt_tokens": prompt_tokens, "completion_tokens": new, "total_tokens": prompt_tokens + new}


def opening(request: Asked, name: str) -> dict[str, Any]:
    """The fields that every part of an answer begins with."""
    whole, part, short = request.kinds
    return {
        "id": f"{short}-{secrets.token_hex(12)}",
        "object": part if request.stream else whole,
        "created": int(time.time()),
        "model": name,
    }
