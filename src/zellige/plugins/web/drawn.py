"""A sample as the page shows it: each step, and the network's prediction of each token that it changed.

A sampler draws from `Sampler.truncated(method)`. `RecordingMethod` wraps that method and keeps its predictions,
temperature and top-p included, at no further network evaluation. They are the distributions that were drawn from where
`draws_predictions`.
"""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from zellige.core.maths import xlogy
from zellige.core.prediction import DataScore, Prediction, posterior
from zellige.methods.method import Method
from zellige.models.ends import end_token, trained_on_documents
from zellige.models.model import Model
from zellige.plugins.kinds.molecules.smiles import atoms_of, is_molecule
from zellige.plugins.report.trace import page_text
from zellige.samplers import Sampler
from zellige.samplers.growing import Growth
from zellige.samplers.pairing import one_alpha
from zellige.sampling.trajectory import Frame
from zellige.show.kinds import of

RIVALS = 5  # tokens of a distribution that the page shows, most probable first
Predictions = list[
    tuple[list[int] | None, Tensor]
]  # (positions, distributions (N, K)) of one sample; None: all positions


class RecordingMethod:
    """A method that appends its predictions to a list: clean posteriors, or distributions of a next token."""

    def __init__(self, method: Any, predictions: Predictions):
        self.method, self.predictions = method, predictions

    def __getattr__(self, name: str) -> Any:
        if name == "method" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.method, name)

    def predict(self, x_t: Tensor, t: Tensor | float, **more: Any) -> Prediction | DataScore:
        """The prediction of the method; see `Diffusion.predict`."""
        prediction = self.method.predict(x_t, t, **more)
        if isinstance(prediction, DataScore):  # a chain on the data has no clean posterior
            return prediction
        at = more.get("at")
        positions = None if at is None else at[0].nonzero()[:, 0].tolist()
        p = posterior(prediction)
        self.predictions.append((positions, p.reshape(-1, p.shape[-1])))
        return prediction

    def next(self, h: Tensor) -> Tensor:
        """The distribution of the next token; see `AR.next`."""
        p = self.method.next(h)
        self.predictions.append(([], p))  # of the position that this step writes
        return p

    def of_length(self, length: int) -> "RecordingMethod":
        """The same for texts of `length` tokens."""
        return RecordingMethod(self.method.of_length(length), self.predictions)


def draws_predictions(method: Any) -> bool:
    """Return whether the tokens that change are drawn from the prediction: next tokens, and those of masks that share
    one alpha.

    Other noise draws from the kernel p(x_s | x_t), in which a token may also stay as it is.
    """
    return method.process is None or (method.process.hides and one_alpha(method.process))


def recorded(sampler: Sampler, predictions: Predictions) -> Sampler:
    """The sampler, whose method appends its predictions to a list."""

    class Recorded(type(sampler)):
        def truncated(self, method: Method) -> Any:
            return RecordingMethod(super().truncated(method), predictions)

    return Recorded(**{field.name: getattr(sampler, field.name) for field in fields(sampler) if field.init})


class Texts:
    """The text of each position of a row, as the page shows it; that of a token that ends a document is empty."""

    def __init__(self, model: Model):
        self.kind, self.size = of(model.tokenizer), model.tokenizer.size
        documents = trained_on_documents(model)
        self.end = end_token(model.tokenizer, documents) if documents else None
        self.alone: dict[int, str] = {}

    def of(self, token: int) -> str | None:
        """The text of a token alone; None for a masked one."""
        if not 0 <= token < self.size:
            return None
        if token not in self.alone:
            self.alone[token] = page_text(self.kind.pieces([token])[0])
        return self.alone[token]

    def row(self, tokens: list[int]) -> list[str | None]:
        """The text of each token of a row; of a character of several tokens the last has it, the others ""."""
        texts = ["" if token == self.end else self.of(token) for token in tokens]
        if not any("\ufffd" in text for text in texts if text):
            return texts
        pieces = self.kind.pieces(tokens)
        return [text and page_text(piece) for text, piece in zip(texts, pieces)]


class Recorder:
    """The steps of one sample as plain data for the page.

    Attributes:
        predictions: those of the current step, as `recorded` appends them.
        cost: -log p of each sampled token, under the prediction, in nats.
        once: whether each was drawn once, from the prediction; else the sum is no probability of the text.
    """

    def __init__(self, model: Model):
        self.tokenizer, self.kind = model.tokenizer, of(model.tokenizer)
        self.predictions: Predictions = []
        self.texts = Texts(model)
        self.cost: dict[int, float] = {}
        self.once = draws_predictions(model.method)

    def steps(self, frames: Iterator[Frame]) -> Iterator[dict[str, Any]]:
        """{step, steps, t, calls, changes}; the first with `start` and `given`, the last with `tokens`, `text` and
        more.

        A token whose text is another, since it makes a character with one that changed, is a change too.
        """
        memory: Any = None  # of the sampler, one step earlier
        texts_before: list[str | None] = []
        for frame in frames:
            x, previous, masked = frame.x[0], frame.previous[0], frame.masked[0].tolist()
            tokens = [-1 if is_mask else token for token, is_mask in zip(x.tolist(), masked)]
            texts = self.texts.row(tokens)
            step: dict[str, Any] = {
                "step": frame.step,
                "steps": frame.steps,
                "t": round(frame.t, 4),
                "calls": int(frame.calls[0]),
                "seconds": round(frame.seconds, 3),
            }
            if frame.step == 0:
                step["from"] = tokens
                step["start"] = texts_before = texts
                step["given"] = [
                    int(is_given and not is_mask) for is_given, is_mask in zip(frame.fixed[0].tolist(), masked)
                ]
            positions = (x != previous).nonzero()[:, 0].tolist()
            distributions = self._distributions(positions, memory)
            step["changes"] = [self._change(i, tokens[i], texts[i], distributions.get(i)) for i in positions]
            beside = {i for i, pair in enumerate(zip(texts, texts_before)) if pair[0] != pair[1]} - {*positions}
            step["changes"] += [[i, tokens[i], texts[i]] for i in sorted(beside)]
            texts_before = texts
            self.predictions.clear()
            memory = frame.state.memory
            if frame.step == frame.steps:
                step |= self._last(frame, tokens)
            yield step

    def _distributions(self, changed: list[int], memory: Any) -> dict[int, Tensor]:
        """The prediction (K,) of each position, the last one of the step.

        Of a next token that of the position that is written; in a block the positions count from the beginning of the
        block.
        """
        distributions: dict[int, Tensor] = {}
        inner = memory.inner if isinstance(memory, Growth) else None
        first = 0 if inner is None else memory.end - inner.x.shape[1]
        for positions, p in self.predictions:
            if inner is not None:
                positions = [first + i for i in positions or range(len(p))]
            where = changed[:1] if positions == [] else range(len(p)) if positions is None else positions
            distributions |= dict(zip(where, p))
        return distributions

    def _change(self, i: int, token: int, text: str | None, p: Tensor | None) -> list[Any]:
        """[position, token, text, probability, entropy in bits, [[rival, its probability], ...]]; without p the first
        three."""
        self.once &= self.cost.pop(i, None) is None
        if p is None or token < 0:
            return [i, token, text]
        p = p[: self.tokenizer.size].double()
        p = p / p.sum().clamp_min(1e-300)
        probability, top = float(p[token]), p.topk(min(RIVALS, len(p)))
        self.cost[i] = float(-xlogy(torch.ones(()), p[token])) if probability else math.inf
        likeliest = zip(top.values.tolist(), top.indices.tolist())
        rivals = [[text if j == token else self.texts.of(j), round(v, 4)] for v, j in likeliest if v > 0]
        bits = float(-xlogy(p, p).sum()) / math.log(2)
        return [i, token, text, round(probability, 4), round(bits, 2), rivals]

    def _last(self, frame: Frame, tokens: list[int]) -> dict[str, Any]:
        """More entries of the last step: the tokens, the text, -log p of the tokens if each was drawn once from a
        prediction."""
        end = frame.ends[0]
        nats = sum(self.cost.values())
        text = page_text(self.kind.text(tokens[:end]))
        more: dict[str, Any] = {"verdict": self.kind.verdict(tokens)} if not self.kind.running else {}
        if self.kind.name == "smiles":
            more |= molecule(text)
        if hasattr(self.kind, "notes"):
            more["notes"] = self.kind.notes(tokens)  # pyright: ignore[reportAttributeAccessIssue]
        if hasattr(self.kind, "clashes"):
            clashes = self.kind.clashes(tokens)[0]  # pyright: ignore[reportAttributeAccessIssue]
            more["clashes"] = clashes.nonzero()[0].tolist()
        return more | {
            "tokens": tokens,
            "end": end,
            "text": text,
            "nats": round(nats, 3) if self.cost and self.once and math.isfinite(nats) else None,
            "drawn": len(self.cost),
        }


def molecule(text: str) -> dict[str, Any]:
    """{verdict, atoms, bonds} of SMILES: elements, and [atom, atom, order] as far as the text can be read."""
    atoms = atoms_of(text) or []
    bonds = [[i, j, order] for i, atom in enumerate(atoms) for j, order in atom.bonds.items() if i < j]
    verdict = "valid" if is_molecule(text) else "not valid" if atoms else "not valid: no molecule can be read from it"
    return {"verdict": verdict, "atoms": [atom.element for atom in atoms], "bonds": bonds}
