"""A draw as the page sees it: each step, and of each token that it put in the law that this one came from.

A sampler is handed its method by `Sampler.guided`. `Witness` stands round that method and notes what it says, so the laws on the
page are the very ones that were drawn from, temperature and top-p included, at no further call of the network.
"""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch

from ..core.maths import xlogy
from ..core.prediction import DataScore, posterior
from ..models.frames import Frame
from ..report.trace import page_text
from ..samplers.growing import Growth
from ..show.kinds import of

RIVALS = 5  # tokens of a law that the page shows, the likeliest first


class Witness:
    """A method that notes what it is asked for, clean posteriors or laws of a next token; `laws` are (places, law) of one row."""

    def __init__(self, method: Any, laws: list[tuple[list[int] | None, torch.Tensor]]):
        self.method, self.laws = method, laws

    def __getattr__(self, name: str) -> Any:
        if name == "method" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.method, name)

    def predict(self, x_t: Any, t: Any, **more: Any) -> Any:
        pred = self.method.predict(x_t, t, **more)
        if isinstance(pred, DataScore):  # a chain on the data: there is no clean posterior
            return pred
        at = more.get("at")
        places = None if at is None else at[0].nonzero()[:, 0].tolist()
        law = posterior(pred)
        self.laws.append((places, law.reshape(-1, law.shape[-1])))
        return pred

    def next(self, h: Any) -> Any:
        law = self.method.next(h)
        self.laws.append(([], law))  # of the place that this step writes
        return law

    def of_length(self, length: int) -> "Witness":
        return Witness(self.method.of_length(length), self.laws)


def witnessed(sampler: Any, laws: list[Any]) -> Any:
    """The sampler, whose method notes its laws in `laws`."""

    class Witnessed(type(sampler)):
        def guided(self, method: Any) -> Any:
            return Witness(super().guided(method), laws)

    return Witnessed(**{field.name: getattr(sampler, field.name) for field in fields(sampler) if field.init})


class Seen:
    """The steps of one text as plain data for the page; `cost`: -log p of each token that stands, under the law it came from."""

    def __init__(self, model: Any, laws: list[Any]):
        self.tokenizer, self.kind, self.laws = model.tokenizer, of(model.tokenizer), laws
        self.pieces: dict[int, str] = {}
        self.cost: dict[int, float] = {}

    def piece(self, token: int) -> str | None:
        """What a token shows; None: nothing is there yet."""
        if not 0 <= token < self.tokenizer.size:
            return None
        if token not in self.pieces:
            self.pieces[token] = page_text(self.kind.pieces([token])[0])
        return self.pieces[token]

    def steps(self, frames: Iterator[Frame]) -> Iterator[dict[str, Any]]:
        """{step, steps, t, calls, changes}; of the first `start` and `given`, of the last `tokens`, `text` and more."""
        memory: Any = None  # of the sampler, one step before
        for frame in frames:
            x, before, masked = frame.x[0], frame.before[0], frame.masked[0].tolist()
            tokens = [-1 if gone else token for token, gone in zip(x.tolist(), masked)]
            step: dict[str, Any] = {
                "step": frame.step, "steps": frame.steps, "t": round(frame.t, 4), "calls": int(frame.calls[0]),
                "seconds": round(frame.seconds, 3),
            }  # fmt: skip
            if frame.step == 0:
                step["from"] = tokens
                step["start"] = [self.piece(token) for token in tokens]
                step["given"] = [int(held and not gone) for held, gone in zip(frame.fixed[0].tolist(), masked)]
            changed = (x != before).nonzero()[:, 0].tolist()
            laws = self._laws(changed, memory)
            step["changes"] = [self._change(i, tokens[i], laws.get(i)) for i in changed]
            self.laws.clear()
            memory = frame.state.memory
            if frame.step == frame.steps:
                step |= self._last(frame, tokens)
            yield step

    def _laws(self, changed: list[int], memory: Any) -> dict[int, torch.Tensor]:
        """The distribution that each position was drawn from, the last one of the step.

        Of a next token that of the position that is written; in a block the positions count from where the block begins.
        """
        out: dict[int, torch.Tensor] = {}
        inner = memory.inner if isinstance(memory, Growth) else None
        first = 0 if inner is None else memory.end - inner.x.shape[1]
        for places, law in self.laws:
            if inner is not None:
                places = [first + i for i in places or range(len(law))]
            where = changed[:1] if places == [] else range(len(law)) if places is None else places
            out |= dict(zip(where, law))
        return out

    def _change(self, i: int, token: int, law: torch.Tensor | None) -> list[Any]:
        """[place, token, piece, p of it, entropy in bits, [[rival, p], ...]]; no law: the last three are left out."""
        if law is None or token < 0:
            self.cost.pop(i, None)
            return [i, token, self.piece(token)]
        law = law[: self.tokenizer.size].double()
        law = law / law.sum().clamp_min(1e-300)
        p, top = float(law[token]), law.topk(min(RIVALS, len(law)))
        self.cost[i] = float(-xlogy(torch.ones(()), law[token])) if p else math.inf
        rivals = [[self.piece(j), round(v, 4)] for v, j in zip(top.values.tolist(), top.indices.tolist()) if v > 0]
        return [i, token, self.piece(token), round(p, 4), round(float(-xlogy(law, law).sum()) / math.log(2), 2), rivals]

    def _last(self, frame: Frame, tokens: list[int]) -> dict[str, Any]:
        end = frame.ends[0]
        nats = sum(self.cost.values())
        more: dict[str, Any] = {"verdict": self.kind.verdict(tokens)} if not self.kind.running else {}
        if hasattr(self.kind, "notes"):
            more["notes"] = self.kind.notes(tokens)  # pyright: ignore[reportAttributeAccessIssue]
        if hasattr(self.kind, "clashes"):
            clashes = self.kind.clashes(tokens)[0]  # pyright: ignore[reportAttributeAccessIssue]
            more["clashes"] = clashes.nonzero()[0].tolist()
        return more | {
            "tokens": tokens, "end": end, "text": page_text(self.kind.text(tokens[:end])),
            "nats": round(nats, 3) if math.isfinite(nats) else None, "drawn": len(self.cost),
        }  # fmt: skip
