"""A completion: the request as OpenAI's clients send it, what the worker draws for it, and the answer.

    prompt            what the text begins with; `max_tokens` of it are drawn
    prompt + suffix   a gap of `max_tokens` between the two is filled (`models.infill`)

A stream has a part for each step. A text is not written from left to right, so a part's `text` is what has become certain at its
beginning (all parts together are the completion), and `zellige.frame` is the whole text as it stands, `·` where nothing is yet.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..arguments import MOST_SEED
from ..errors import InputError
from ..models.defaults import PLAIN, with_defaults
from ..models.frames import Frame
from ..models.model import find_classes
from ..models.watch import before_word, watch
from ..samplers import choose_sampler
from ..show.kinds import added
from .guard import Limits
from .worker import Job

SHORT = 16  # tokens, where nobody says how many (OpenAI's number)


class Completion(BaseModel):
    """The fields of OpenAI's `completions.create`, and below them our own. What is not supported may be sent at its default."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: str = ""
    prompt: str | list[str] = ""
    suffix: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    n: int = Field(1, ge=1)
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=MOST_SEED)
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    echo: bool | None = False
    user: str | None = None
    best_of: int | None = None
    logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0

    steps: int | None = Field(None, ge=1)
    sampler: str | None = None
    class_: str | int | None = Field(None, alias="class")

    def unsupported(self) -> str | None:
        """The first field that asks for what we do not do."""
        asked = {
            "best_of": self.best_of not in (None, self.n),
            "logprobs": self.logprobs is not None,
            "logit_bias": bool(self.logit_bias),
            "presence_penalty": bool(self.presence_penalty),
            "frequency_penalty": bool(self.frequency_penalty),
        }
        return next((name for name, wanted in asked.items() if wanted), None)


@dataclass
class Choice:
    """One text of the answer.

    Attributes:
        prompt: the tokens before what is drawn; suffix: those behind.
        end: one after the last token that is drawn; `text` is what stands between, as far as it is certain.
        joined: the prompt ends with a blank that was left to the first token that is drawn (`before_word`).
    """

    prompt: list[int]
    suffix: list[int]
    end: int
    joined: bool = False
    text: str = ""
    sent: int = 0
    frame: str = ""
    tokens: int = 0
    calls: int = 0
    reason: str | None = None


@dataclass
class Plan:
    """A request, checked against a model: what its job needs.

    Attributes:
        settles: a token that stands stays, so that a beginning is certain before the last step.
    """

    model: Any
    choices: list[Choice]
    prompts: list[str]
    rows: list[list[int]] | None
    seed: int
    stop: list[str]
    settles: bool
    how: dict[str, Any] = field(default_factory=dict)

    def job(self) -> Job:
        key = (*sorted(self.how.items()), self.rows is None or len(self.rows[0]))
        if self.how["grows"]:  # what is read of one text depends on where the others begin (`models.watch`)
            key += tuple({len(choice.prompt) for choice in self.choices})
        return Job(key, _start, _see, len(self.choices), self)


def plan(request: Completion, model: Any, limits: Limits) -> Plan:
    """What a request asks of a model. InputError where it is too much, or where the model cannot."""
    if name := request.unsupported():
        raise InputError(f"`{name}` is not supported; leave it out")
    tokenizer, length = model.tokenizer, int(model.method.shape[0])
    prompts = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if not prompts:
        raise InputError("`prompt` is an empty list; give a text, or several")
    limits.check("rows", len(prompts) * request.n, "texts (`prompt` times `n`)")
    for text in (*prompts, request.suffix or "", *stop):
        limits.check("text", len(text), "characters in a text")
    if not all(stop) or len(stop) > 4:
        raise InputError("`stop` has an empty text or more than 4; give up to 4 texts")
    if request.class_ is not None:
        find_classes(model, request.class_)
    way = with_defaults(model, {name: getattr(request, name) for name in PLAIN})
    options = {name: value for name, value in way.items() if name not in PLAIN}
    sampler = choose_sampler(way.get("sampler"), model.method, way.get("temperature"), way.get("top_p"), options)
    suffix = tokenizer.encode(request.suffix, "the suffix") if request.suffix else []
    begun = [before_word(tokenizer, text) for text in prompts]
    encoded = [tokenizer.encode(text) if text else [] for text in begun]
    longest = max(map(len, encoded))
    room = length - longest - len(suffix)
    drawn = min(SHORT, max(room, 1)) if request.max_tokens is None else request.max_tokens
    if drawn > room:
        what = f"the prompt has {longest:,} tokens, the suffix {len(suffix):,}, and {drawn:,} are to be drawn"
        raise InputError(f"{what}; the model takes {length:,} in all, use `max_tokens` {max(room, 1):,} or less")
    limits.check("tokens", len(prompts) * request.n * (longest + drawn + len(suffix)), "tokens in all texts together")
    limits.check_draw(sampler, model.method, way.get("steps"), longest + drawn + len(suffix), len(prompts) * request.n)
    if len({len(tokens) for tokens in encoded}) > 1 and (suffix or sampler.grows):
        raise InputError("prompts of different lengths, with a suffix or a model that writes left to right; ask apart")
    joined = [text != prompt for text, prompt in zip(begun, prompts)]
    choices = [
        Choice(tokens, suffix, len(tokens) + drawn, each)
        for tokens, each in zip(encoded, joined)
        for _ in range(request.n)
    ]
    rows = [[*c.prompt, *[-1] * drawn, *c.suffix] for c in choices] if suffix else None
    seed = secrets.randbits(31) if request.seed is None else request.seed
    mask = getattr(model.method.process, "mask", None)
    names = {sampler.name, getattr(sampler.inner, "name", "")}
    settles = "remasking" not in names and (mask is not None or sampler.grows)
    how = {
        "way": tuple(way.items()), "class": request.class_, "grows": sampler.grows, "length": longest + drawn + len(suffix)
    }  # fmt: skip
    return Plan(model, choices, [prompts[i // request.n] for i in range(len(choices))], rows, seed, stop, settles, how)


def _start(jobs: Sequence[Job]) -> Iterator[Frame]:
    """All texts of jobs that agree, in one batch."""
    plans: list[Plan] = [job.work for job in jobs]
    model, how = plans[0].model, plans[0].how
    count = sum(len(p.choices) for p in plans)
    seeds = [(p.seed, number) for p in plans for number in range(len(p.choices))]
    if plans[0].rows is None:
        what: dict[str, Any] = {"prompt": [text for p in plans for text in p.prompts], "length": how["length"]}
    else:
        what = {"fixed": [row for p in plans for row in p.rows or []], "alone": True}
    return watch(
        model, count=count, seed=seeds, batch=count, classes=how["class"], defaults=False, **what, **dict(how["way"])
    )


def _see(job: Job, frame: Frame) -> dict[str, Any]:
    """Where each text of a job stands after a step: the certain beginning grows."""
    own: Plan = job.work
    tokenizer, last = frame.tokenizer, frame.step == frame.steps
    masked, x, ends, calls = frame.masked, frame.x, frame.ends, frame.calls.tolist()
    for row, choice in enumerate(own.choices, job.first):
        begin, end = len(choice.prompt), min(choice.end, ends[row])
        tokens = x[row].tolist()
        blank = masked[row, begin:end].tolist()
        certain = end if last else begin + (blank.index(True) if own.settles and True in blank else 0)
        text = added(tokenizer, tokens[:begin], tokens[begin:certain])
        text = text.removeprefix(" ") if choice.joined else text
        choice.frame = tokenizer.decode(tokens[: min(len(tokens), ends[row])])
        choice.calls, choice.tokens = calls[row], end - begin
        choice.reason = "stop" if ends[row] < choice.end and not choice.suffix else "length"
        cuts = [at for at in (text.find(stop) for stop in own.stop) if at >= 0]
        if cuts:
            text, choice.reason = text[: min(cuts)], "stop"
        elif not last:  # a character of several tokens, or what may become a stop, waits
            hold = max(map(len, own.stop), default=1) - 1
            text = text[: max(len(text.rstrip("\ufffd")) - hold, 0)]
        if text.startswith(choice.text):
            choice.text = text
    return {
        "last": last, "step": frame.step, "steps": frame.steps, "t": frame.t, "seconds": frame.seconds,
        "texts": [(c.text, c.frame, c.reason, c.calls, c.tokens) for c in own.choices],
    }  # fmt: skip


def answer(request: Completion, name: str, own: Plan, step: dict[str, Any]) -> dict[str, Any]:
    """The whole completion, from its last step."""
    suffix = request.suffix or ""
    choices = [
        {
            "index": i, "text": f"{own.prompts[i]}{text}{suffix}" if request.echo else text, "logprobs": None,
            "finish_reason": reason,
        }
        for i, (text, _, reason, _, _) in enumerate(step["texts"])
    ]  # fmt: skip
    calls = [calls for *_, calls, _ in step["texts"]]
    return opening(name) | {
        "choices": choices,
        "usage": usage(own, step),
        "zellige": {"seed": own.seed, "steps": step["steps"], "calls": calls, "seconds": round(step["seconds"], 4)},
    }


def parts(request: Completion, head: dict[str, Any], own: Plan, step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a stream after one step, one for each text."""
    for i, (text, frame, reason, calls, _) in enumerate(step["texts"]):
        choice = own.choices[i]
        new, before = text[choice.sent :], own.prompts[i] if request.echo and not step["step"] else ""
        choice.sent = len(text)
        after = (request.suffix or "") if request.echo and step["last"] else ""
        yield head | {
            "choices": [
                {
                    "index": i, "text": before + new + after, "logprobs": None,
                    "finish_reason": reason if step["last"] else None,
                }
            ],
            "zellige": {
                "step": step["step"], "steps": step["steps"], "t": round(step["t"], 4), "frame": frame,
                "calls": calls, "seed": own.seed,
            },
        }  # fmt: skip


def usage(own: Plan, step: dict[str, Any]) -> dict[str, int]:
    read = sum(len(choice.prompt) + len(choice.suffix) for choice in own.choices)
    drawn = sum(tokens for *_, tokens in step["texts"])
    return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}


def opening(name: str) -> dict[str, Any]:
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": name,
    }
