"""Groups of texts, weighed: both sides of -log p by n draws, the exact values of other laws, and the model's own samples."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.batch import Batch
from ..core.random import mix
from ..samplers.replay import Path, weigh
from .likelihood import number_of_tokens
from .two_sides import bidirectional, effective, from_above, from_below, replicates, width

GROUP = 16  # texts that are asked at once
SETS = 4  # so many times the largest n are drawn of each text: two pairs of psi and p


@dataclass
class Work:
    """Weighs groups of texts, by their number: plain lists, so that it may be asked in another process.

    Attributes:
        rows, chosen: the data set, and the rows of it that are judged.
        path: what brackets the method's own law; None: its -log p is exact.
        others: by name, the laws that have an exact value.
        numbers: n of the bounds, each a divisor of the largest.
        own: how many samples of the model's own.
        batch: rows (texts x draws) in one call of the network.
    """

    method: Any
    rows: Any
    chosen: list[int]
    path: Path | None
    others: dict[str, Path]
    numbers: tuple[int, ...]
    own: int
    seed: int
    batch: int
    device: torch.device

    def __len__(self) -> int:
        return -(-len(self.chosen) // GROUP)

    def __call__(self, index: int) -> dict[str, Any]:
        """Nats of each text of a group: {"exact": name -> (texts), "above", "below", "apart": n -> (texts, replicates)}.

        "apart" is the difference of the two, paired. "own above" and so on: of its own samples, a mean each. "calls" of the
        network by name, of one draw under "draw"; "tokens" (texts); "effective" (texts), the share of draws that count.
        """
        places = self.chosen[index * GROUP : (index + 1) * GROUP]
        texts = self.rows.collate([self.rows[i] for i in places])
        tokens, texts = number_of_tokens(texts), texts.to(self.device)
        result: dict[str, Any] = {"exact": {}, "calls": {}, "tokens": tokens.tolist()}
        for name, path in self.others.items():
            written = weigh(self.method, texts, path)
            result["exact"][name] = (-written.log_w.sum(-1)).tolist()
            result["calls"][name] = written.calls.double().tolist()
        if self.path is None:
            return result
        most = max(self.numbers)
        log_w, result["calls"]["draw"] = self._draws(texts, places, SETS * most, "text")
        result["effective"] = effective(log_w).tolist()
        for n in self.numbers:
            for name, estimate in (("above", from_above), ("below", from_below), ("apart", width)):
                result.setdefault(name, {})[n] = replicates(estimate, log_w, n).tolist()
        own = places[: max(self.own - index * GROUP, 0)]
        if own:
            result |= self._own(texts.take(torch.arange(len(own), device=self.device)), own, most)
        return result

    def _own(self, texts: Batch, places: list[int], most: int) -> dict[str, Any]:
        """Both sides on samples of the model itself, one for each of these texts, with its class where it has one."""
        assert self.path is not None
        streams = [self._stream("own", place, 0) for place in places]
        wrote = weigh(self.method, Batch(texts.tokens, None, None, texts.condition), self.path, streams, draw=True)
        samples = Batch(wrote.x, None, None, texts.condition)
        log_w, _ = self._draws(samples, places, 2 * most, "sample")
        (one, other), first = log_w.unflatten(1, (2, most)).unbind(1), wrote.log_w.cpu()
        result: dict[str, Any] = {}
        for n in self.numbers:  # a text has one z that wrote it: no replicates
            above, below = (v.mean(1, keepdim=True) for v in (from_above(one, n), bidirectional(first, other, n)))
            for name, values in (("own above", above), ("own below", below), ("own apart", above - below)):
                result.setdefault(name, {})[n] = values.tolist()
        return result

    def _draws(self, texts: Batch, places: list[int], draws: int, purpose: str) -> tuple[Tensor, list[float]]:
        """log w of so many z of each text, (texts, draws, G) float64, and the network calls of a draw of each."""
        assert self.path is not None
        of = [(row, draw) for draw in range(draws) for row in range(len(places))]
        parts, calls = [], torch.zeros(len(places), dtype=torch.float64)
        for begin in range(0, len(of), self.batch):
            part = of[begin : begin + self.batch]
            rows = torch.tensor([row for row, _ in part])
            streams = [self._stream(purpose, places[row], draw) for row, draw in part]
            written = weigh(self.method, texts.take(rows.to(self.device)), self.path, streams)
            parts.append(written.log_w.cpu())
            calls.index_add_(0, rows, written.calls.double().cpu())
        log_w = torch.cat(parts).unflatten(0, (draws, len(places))).transpose(0, 1)
        return log_w, (calls / draws).tolist()

    def _stream(self, purpose: str, place: int, draw: int) -> torch.Generator:
        return torch.Generator().manual_seed(mix(self.seed, purpose, place, draw))
