"""How good a model is: an upper bound on -log p, or -log p itself, with a 95% interval, and everything that was done to get it.

The number and its interval: `result`. Draws are stratified in two halves, independent of each other: the draws of one text
in one half lie evenly spread over the strata of its group, and how far the two halves differ is what the draws bring. (Among
stratified draws themselves the variance says nothing: they differ because their times do.) Groups, not batches, own the random
numbers, so that the batch size is a matter of memory only.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import exact, invariant, maths
from ._module import callable_module
from .errors import InputError, unknown
from .generate import check, load, mix
from .method import Batch, Estimator, Method
from .nn.attention import documents
from .result import Result, summarize

GROUP = 64  # rows (texts x draws) that share their strata
PROTOCOL = "tessella-1"
DIVERGENCE = "divergence"  # the estimator of methods without a bound, on a space that can be enumerated


# ---------------------------------------------------------------------------------------------------- the drawing
@torch.no_grad()
def evaluate_rows(
    method: Method,
    rows: Any,
    *,
    draws: int = 4,
    seed: int = 0,
    limit: int | None = None,
    batch: int = GROUP,
    characters: float | None = None,
    unit: str = "",
    device: torch.device | str | None = None,
    estimator: str = "bound",
    progress: Callable[[int, int], None] | None = None,
    protocol: dict[str, Any] | None = None,
) -> Result:
    """The bound (or another estimator of the method) on the rows of a data set.

    What draws nothing (the exact likelihood in a given order, the bound of AR) is asked once for each text, whatever `draws`
    says.

    Args:
        rows: a sequence of examples with `collate(list) -> Batch`.
        limit: so many of the rows, evenly spaced; all by default.
        batch: rows in one call of the network; the number does not depend on it.
        characters: how many characters all the rows hold: the number is then in bits per character; None: nats per token.
        unit: of the number, where it is not one of these: bits/dim, bits/note, bits/cell.
        progress: called with (texts done, texts in all).
        protocol: more entries for the protocol (packing, weights).
    """
    started = time.perf_counter()
    check(draws=draws, batch=batch)
    if limit is not None and limit < 2:
        raise InputError(f"--limit is {limit}; it must be 2 or more: an interval needs two texts")
    if len(rows) == 0:
        raise InputError("there are no texts to evaluate; give a data set that holds at least two")
    N = min(len(rows), limit or len(rows))
    chosen = [i * len(rows) // N for i in range(N)]
    other = _estimator(method, estimator)
    certain = getattr(method, "exact", False) if other is None else other.exact  # the bound itself, or the estimator
    draws = 1 if certain else draws
    estimate = method.terms if other is None else lambda batch, generator: {estimator: other(batch, generator)}
    kind = "exact" if certain else "bound" if _bounded(method) else "loss"
    if kind == "loss":
        characters, unit = None, f"loss/{unit.partition('/')[2] or 'token'}"
    device = torch.device(device) if device is not None else _device(method)
    found: dict[str, list[list[Tensor]]] = {}  # name -> half -> groups of texts
    counts: list[Tensor] = []
    pieces: list[Tensor] = []
    training = method.training
    method.eval()
    try:
        texts = max(1, GROUP // draws)
        halves = 2 if draws % 2 == 0 else draws
        for first in range(0, N, texts):
            group = rows.collate([rows[i] for i in chosen[first : first + texts]])
            counts.append(_counted(group))
            pieces.append(_documents(group))
            for half in range(halves):
                key = mix(seed, first // texts, half)
                for name, value in _group(estimate, group, draws // halves, key, batch, device).items():
                    found.setdefault(name, [[] for _ in range(halves)])[half].append(value)
            if progress:
                progress(min(first + texts, N), N)
    finally:
        method.train(training)
    tables = {name: torch.stack([torch.cat(h) for h in each], 1) for name, each in found.items()}  # name -> (N, halves)
    tokens = torch.cat(counts)
    per_token = 1.0 if characters is None else characters / int(getattr(rows, "tokens_total", 0) or tokens.sum())
    terms = {name: float(table.mean()) for name, table in tables.items()}
    if estimator == DIVERGENCE:
        terms = _split(terms[estimator], rows.collate([rows[i] for i in chosen]).tokens)
    strata = _strata(method) if other is None else other.strata
    dtype = str(next((p.dtype for p in method.parameters()), torch.float32)).removeprefix("torch.")
    said = {
        "name": PROTOCOL,
        "estimator": estimator,
        "time": _time(method) if other is None else other.about,
        "draws": draws,
        "strata": f"{halves} x {draws // halves} draws of {texts} texts at once, evenly spread over {strata}"
        if strata
        else "none",
        "network": dtype,
        "bound": "float64",
        "texts": f"{N} of {len(rows)}, evenly spaced" if len(rows) > N else f"all {N}",
        "seed": seed,
        "device": device.type,
    }
    total, number = torch.stack(list(tables.values())).sum(0), torch.cat(pieces)
    each = summarize(total, number, "nats/document", kind) if kind != "loss" and int(number.sum()) else None
    return summarize(
        total,
        tokens * per_token,
        unit or ("nats/token" if characters is None else "bits/char"),
        kind,
        draws=draws,
        terms=terms,
        seed=seed,
        protocol=said | (protocol or {}),
        seconds=time.perf_counter() - started,
        document=each,
    )


def _bounded(method: Method) -> bool:
    return getattr(method, "bounded", True)


def _estimator(method: Method, name: str) -> Estimator | None:
    """The estimator of that name; None for the bound."""
    if name == "bound" and _bounded(method):
        return None
    others = dict(method.estimators())
    if not _bounded(method):
        why = invariant.enumerable(method)
        if name == "bound":
            use = "use --estimator loss" if why else "use --estimator divergence or loss"
            raise InputError(f"{method.name} defines no likelihood bound{f', and {why}' if why else ''}; {use}")
        if why is None:
            about = "all texts enumerated, the law that Metropolis-Hastings keeps"
            others[DIVERGENCE] = Estimator(_kept(method), about, exact=True)
    if name not in others:
        known = ["bound"] * _bounded(method) + [*others]
        raise unknown("estimator", name, known, ", ".join(known))
    return others[name]


def _kept(method: Method) -> Callable[..., Tensor]:
    """-log pi(x) for the law pi that the method's chain keeps: (B,) nats."""
    law = functools.cache(lambda: invariant.law(method))
    return lambda batch, generator=None: -law()[exact.index(batch.tokens.cpu(), method.vocabulary)].log()


def _split(nats: float, tokens: Tensor) -> dict[str, float]:
    """The mean of -log pi over texts (N, L) in two terms: the entropy of their empirical law, and its divergence from pi."""
    share = tokens.unique(dim=0, return_counts=True)[1].double() / len(tokens)
    entropy = float(exact.entropy(share))
    return {"entropy of the texts": entropy, DIVERGENCE: nats - entropy}


def _group(
    estimate: Callable[..., dict[str, Tensor]], group: Batch, draws: int, seed: int, batch: int, device: torch.device
) -> dict[str, Tensor]:
    """Each term of each text, the mean over its draws: name -> (texts,) float64. Row d * texts + j is draw d of text j."""
    n = len(group.tokens)
    total = n * draws
    size = max(d for d in range(1, min(batch, total) + 1) if total % d == 0)
    found: dict[str, list[Tensor]] = {}
    for shard in range(total // size):
        rows = torch.arange(shard * size, (shard + 1) * size) % n
        part = group.take(rows).to(device)
        generator = torch.Generator().manual_seed(seed)  # the same for each part of the group: `Shard` takes its rows
        for name, value in estimate(part, maths.Shard(generator, shard, total // size)).items():
            found.setdefault(name, []).append(value.double().cpu())
    return {name: torch.cat(values).reshape(draws, n).mean(0) for name, values in found.items()}


def _counted(batch: Batch) -> Tensor:
    """(B,) tokens that count."""
    if batch.mask is not None:
        return batch.mask.sum(-1).double()
    return torch.full((len(batch.tokens),), float(batch.tokens.shape[1]), dtype=torch.float64)


def _documents(batch: Batch) -> Tensor:
    """(B,) documents that have a token that counts; 0 where rows are no documents."""
    if batch.segments is None or batch.mask is None:
        return torch.zeros(len(batch), dtype=torch.float64)
    start, _ = documents(batch.segments)
    return (
        torch.zeros(batch.mask.shape, dtype=torch.float64).scatter_reduce(1, start, batch.mask.double(), "amax").sum(-1)
    )


def _device(method: Method) -> torch.device:
    return next((p.device for p in method.parameters()), torch.device("cpu"))


def _time(method: Method) -> str:
    if getattr(method, "exact", False):
        return "one token at a time, left to right"
    steps = getattr(method, "steps", 0)
    return f"{steps} steps (stratified)" if steps else "whole of t in [0, 1] (stratified)"


def _strata(method: Method) -> str | None:
    """What the draws of the bound are spread evenly over; None where nothing is drawn."""
    if getattr(method, "exact", False):
        return None
    return "numbers of masks" if getattr(method, "by_counts", False) else "times"


def corpus_of(model: Any, data: Any = None, progress: Callable[[int, int], None] | None = None) -> Any:
    """The corpus that a model is judged on, in its own tokens: `data`, or what it was trained on.

    Raises:
        InputError: the data names a tokenizer that is not the model's.
    """
    from .data import Data, prepare, require_same

    own = model.config.data
    data = own if data is None else Data(data) if isinstance(data, str) else data
    named = data == own or bool(data.tokenizer) or hasattr(data, "_tokens")  # the data says its tokenizer itself
    corpus = prepare(data, int(model.method.shape[0]), tokenizer=None if named else model.tokenizer, progress=progress)
    require_same(model.tokenizer, corpus.tokenizer)
    return corpus


def evaluate(
    model: Any,
    data: Any = None,
    split: str = "test",
    draws: int = 4,
    seed: int = 0,
    limit: int | None = None,
    batch: int = GROUP,
    *,
    estimator: str = "bound",
    progress: Callable[[int, int], None] | None = None,
    reading: Callable[[int, int], None] | None = None,
) -> Result:
    """A model's -log p on a data set, bounded or (in a given order) exact, with a 95% interval.

    Args:
        model: a `Model`, or a run folder, a saved folder or a hub id.
        data: a `Data`, the name of a data set, or a `Corpus` that `prepare` made; by default what it was trained on.
        draws: how many draws of each text.
        limit: so many texts, evenly spaced; all by default.
        batch: rows in one call of the network; a matter of memory and speed only.
        estimator: "bound", or another likelihood that the method admits, by name: "forward" and "backward" are exact for
            the model of that order, "random" and "any_order" are averages over orders, which bound that of all orders. A
            method without a bound (CSM) has "loss", and on a space that can be enumerated "divergence", its default there.
        progress, reading: called with (done, total) while the texts are judged, and while the data is read.

    Returns:
        `Result`: `print(it)`, `.value .low .high .unit .kind .terms .perplexity .protocol`, `.to_json(path)`.
    """
    check(draws=draws, batch=batch)
    model = load(model)
    method, tokenizer = model.method, model.tokenizer
    if estimator == "bound" and not _bounded(method) and invariant.enumerable(method) is None:
        estimator = DIVERGENCE
    corpus = data if hasattr(data, "rows") else corpus_of(model, data, reading)
    rows = corpus.split(split)
    about = {
        "method": getattr(method, "name", type(method).__name__),
        "parameters": sum(p.numel() for p in method.parameters()),
        "step": getattr(model, "about", {}).get("step"),
        "data": corpus.about["name"],
        "split": split,
        "length": int(method.shape[0]),
        "texts": len(rows),
        "tokenizer": tokenizer.name,
        "sha256": corpus.about.get("sha256"),
    }
    separator = corpus.about.get("separator", "")
    ends = f"{separator}, no BOS" if "after each document" in separator else "no BOS/EOS"
    said = {"packing": _packing(method, corpus.about, rows), "separators": ends, "weights": "EMA"}
    if tokenizer.shape:
        said = {"packing": f"{about['data']}: {corpus.about['protocol'] or 'as published'}", "weights": "EMA"}
    characters = rows.characters if tokenizer.unit in ("char", "byte") else None
    result = evaluate_rows(
        method, rows, draws=draws, seed=seed, limit=limit, batch=batch, characters=characters, estimator=estimator,
        unit=model.unit if tokenizer.shape else "", progress=progress, protocol=said,
    )  # fmt: skip
    return replace(result, about=about)


def _packing(method: Method, about: dict[str, Any], rows: Any) -> str:
    """How the data was cut into rows; of documents also whether the model says where they end."""
    pack, fill = about.get("pack"), about.get("fill", 0)
    if pack not in ("document", "packed"):
        return "wrapped" if pack == "wrap" else "one a row"
    said = "one document a row" if pack == "document" else "documents packed into rows"
    said += f", {rows.cut:,} of {rows.texts:,} cut at {rows.length:,}" if rows.cut else ""
    said += f", filled up to multiples of {fill:,}" if fill > 1 else ""
    block = method.block or rows.length
    word = about["separator"].partition(" ")[0]  # a space ends no document, since it stands within them
    ended = word != "space" and (fill > 0 or word != "none")
    learnt = ended and (fill >= rows.length or max(fill, 1) % block == 0)
    return f"{said}, {'ends included' if learnt else 'lengths given'}"


callable_module(__name__)
