"""How good a model is: an upper bound on -log p, or -log p itself, with a 95% interval, and everything that was done to get it.

The number and its intervals: `result`; what is asked of a group of texts: `likelihood`; who asks it, and the cache of
the answers: `workers`; other data and the choices of published papers: `suite`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..arguments import checked
from ..data import Corpus
from ..errors import InputError, at_least, check_counts
from ..exact import metropolis
from ..launched import this_process
from ..methods.method import Method
from ..models.model import as_model, fingerprint, identity
from . import workers
from .corpus import asked_of_classes, beside_training, corpus_of
from .likelihood import DIVERGENCE, Likelihood, Work, bounded, entropy_and_divergence
from .pilot import pilot, proposal_of
from .result import Result, determined, summarize

GROUP = 64  # rows (texts x draws) that share their strata
PROTOCOL = "zellige-1"


# ---------------------------------------------------------------------------------------------------- the drawing
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
    t_min: float = 0.0,
    ends: str = "model",
    steps: int = 0,
    terms: str = "drawn",
    processes: int = 1,
    distributed: bool = False,
    keep: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    protocol: dict[str, Any] | None = None,
) -> Result:
    """The bound (or another estimator of the method) on the rows of a data set.

    What draws nothing (the exact likelihood in a given order, the bound of AR) is asked once for each text, whatever `draws`
    says.

    Args:
        rows: a sequence of examples with `collate(list) -> Batch`.
        limit: so many of the rows, evenly spaced; all by default.
        batch: rows in one call of the network; the number does not depend on it, nor on the number of processes.
        characters: how many characters all the rows hold: the number is then in bits per character; None: nats per token.
        unit: of the number, where it is not one of these: bits/dim, bits/note, bits/cell.
        t_min, ends, steps, terms: what is left out of the bound, its number of steps, and whether all of these are summed; see
            `likelihood.Likelihood`. Where times are drawn by importance, a pilot of some 80 draws comes first (`pilot`).
        processes: worker processes, 1: this one; distributed: share the work with the other ranks of torchrun or Slurm.
        keep: a folder for the groups that are done; they are read again if this is interrupted and called again.
        progress: called with (texts done, texts in all).
        protocol: more entries for the protocol (packing, weights).
    """
    started = time.perf_counter()
    check_counts(draws=draws, batch=batch, processes=processes)
    _check_limit(limit)
    if len(rows) == 0:
        raise InputError("there are no texts to evaluate; give a data set that holds at least two")
    N = min(len(rows), limit or len(rows))
    chosen = [i * len(rows) // N for i in range(N)]
    ask = Likelihood(method, estimator, t_min, ends, steps, terms)
    kind, draws = ask.kind, 1 if ask.certain else draws
    if kind == "loss":
        characters, unit = None, f"loss/{unit.partition('/')[2] or 'token'}"
    device = torch.device(device) if device is not None else _device(method)
    texts, replicates = max(1, GROUP // draws), 2 if draws % 2 == 0 else draws
    work = Work(ask, rows, chosen, texts, draws // replicates, replicates, seed, batch, device)
    spread = f"{replicates} x {draws // replicates} draws of {texts} texts at once, evenly spread over {ask.strata}"
    full_protocol = {
        "name": PROTOCOL,
        "estimator": estimator,
        "time": ask.time,
        "draws": draws,
        "strata": spread if ask.strata else "none",
        "network": method.precision,
        "bound": "float64",
        "texts": f"{N} of {len(rows)}, evenly spaced" if len(rows) > N else f"all {N}",
        "seed": seed,
        "device": device.type,
        "law": ask.law,
        "bounds samples of": ask.bounds,
    } | (protocol or {})
    full_protocol |= {} if ends == "model" else {"ends": ends}
    full_protocol |= {"terms": "all"} if terms == "all" else {}
    training = method.training
    method.eval()
    try:
        if ask.importance:
            found = pilot(ask, rows, chosen, seed, device)
            ask.proposal = proposal_of(found, ask)
            full_protocol |= {} if found is None else {"pilot": found}
        results = _gathered(work, full_protocol, processes, distributed, keep, progress)
    finally:
        method.train(training)
    tables = {  # name -> (N, replicates)
        name: torch.cat([torch.tensor(f["terms"][name], dtype=torch.float64) for f in results], 1).T
        for name in results[0]["terms"]
    }
    tokens, pieces = (
        torch.tensor([n for f in results for n in f[of]], dtype=torch.float64) for of in ("tokens", "documents")
    )
    per_token = 1.0 if characters is None else characters / int(getattr(rows, "tokens_total", 0) or tokens.sum())
    means = {name: float(table.mean()) for name, table in tables.items()}
    if estimator == DIVERGENCE:
        means = entropy_and_divergence(means[estimator], rows.collate([rows[i] for i in chosen]).tokens)
    total, group = torch.stack(list(tables.values())).sum(0), torch.arange(N) // texts
    each = (
        summarize(total, pieces, "nats/document", kind, group=group) if kind != "loss" and int(pieces.sum()) else None
    )
    result = summarize(
        total,
        tokens * per_token,
        unit or ("nats/token" if characters is None else "bits/char"),
        kind,
        group=group,
        draws=draws,
        terms=means,
        seed=seed,
        protocol=full_protocol,
        seconds=time.perf_counter() - started,
        document=each,
    )
    if not (ask.draws_times and (ask.T or ask.importance)):
        return result
    return determined(result, torch.cat([torch.tensor(f["squares"], dtype=torch.float64).mean(0) for f in results]))


def _gathered(
    work: Work, protocol: dict[str, Any], processes: int, distributed: bool, keep: Path | None, progress: Any
) -> list[workers.GroupResult]:
    """What each group gives; read from `keep` where this was interrupted before."""
    N, done = len(work.chosen), [0]

    def tell(index: int) -> None:
        done[0] += min(work.texts, N - index * work.texts)
        if progress:
            progress(done[0], N)

    key = ""
    if keep is not None:
        texts = [part for i in range(len(work)) for part in vars(work.group(i)).values()]
        key = fingerprint(protocol, work.ask.method, repr(work.ask.method.config), work.ask.method.shape, *texts)
    cache = workers.ResultCache(keep, key, this_process().rank if distributed else 0)
    results = workers.gather_results(
        work, len(work), processes=processes, distributed=distributed, cache=cache, device=work.device, progress=tell
    )
    cache.remove()
    return results


def _device(method: Method) -> torch.device:
    return next((p.device for p in method.parameters()), torch.device("cpu"))


@checked
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
    ends: str = "model",
    steps: int = 0,
    terms: str = "drawn",
    unconditional: bool = False,
    processes: int = 1,
    distributed: bool = False,
    keep: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    reading: Callable[[int, int], None] | None = None,
) -> Result:
    """A model's -log p on a data set, bounded or (in a given order) exact, with its two 95% intervals.

    Args:
        model: a `Model`, or a run folder, a saved folder or a hub id.
        data: as `train` takes it, or a `Corpus` that `prepare` made; by default what it was trained on. Values that stand in no
            split are all judged, each text for itself.
        draws: how many draws of each text.
        limit: so many texts, evenly spaced; all by default.
        batch: rows in one call of the network; a matter of memory and speed only.
        estimator: "bound", or another likelihood that the method admits, by name: "forward" and "backward" are exact for
            the model of that order, "random" and "any_order" are averages over orders, which bound that of all orders. A
            method without a bound (CSM) has "loss", and on a space that can be enumerated "divergence", its default there.
        ends: the terms at both ends of time: "model", its own; "jumps", each end of a published schedule in one jump, a bound
            of another model; "none", or "published", as the code of MD4, GenMD4 and D3PM's images has them: no bound then.
        steps: the T-step bound of a model in continuous time, on its grid (MD4, section 3), which bounds what `ancestral`
            draws in T steps; 0: the model as it is, whose bound says nothing of few steps.
        terms: of a bound of T steps, in discrete time or by `steps`: "drawn", each draw has the last step, the first where
            nothing is known before it, and one of the others, drawn by a proposal that a pilot makes; or "all", their sum.
        unconditional: of a model that is told classes, do not tell it any: its bound on -log p(x), and not given the class.
        processes, distributed, keep: see `evaluate_rows`; the number does not depend on them.
        progress, reading: called with (done, total) while the texts are judged, and while the data is read.

    Returns:
        `Result`: `print(it)`, `.value .low .high .unit .kind .terms .perplexity .protocol`, `.to_json(path)`.
    """
    _check_numbers(draws, batch, steps, limit)
    model = as_model(model)
    method = model.method
    way = admitted(method, estimator, ends=ends, steps=steps, terms=terms, draws=draws, limit=limit, batch=batch)
    corpus = data if isinstance(data, Corpus) else corpus_of(model, data, reading, split)
    asked = asked_of(model, corpus, split, unconditional)
    result = evaluate_rows(
        method, asked.rows, draws=draws, seed=seed, limit=limit, batch=batch, characters=asked.characters, estimator=way,
        unit=asked.unit, progress=progress, protocol=asked.protocol, ends=ends, steps=steps, terms=terms,
        processes=processes, distributed=distributed, keep=keep,
    )  # fmt: skip
    return replace(result, about=asked.about)


def admitted(
    method: Method,
    estimator: str = "bound",
    *,
    ends: str = "model",
    steps: int = 0,
    terms: str = "drawn",
    draws: int = 4,
    limit: int | None = None,
    batch: int = GROUP,
) -> str:
    """The estimator that a method is asked for; InputError for what `evaluate` refuses whatever the data, before it is read."""
    _check_numbers(draws, batch, steps, limit)
    if estimator == "bound" and not bounded(method) and metropolis.enumerable(method) is None:
        estimator = DIVERGENCE
    Likelihood(method, estimator, 0.0, ends, steps, terms)
    return estimator


def _check_numbers(draws: int, batch: int, steps: int, limit: int | None) -> None:
    """InputError for numbers that no model admits."""
    check_counts(draws=draws, batch=batch)
    at_least("steps", steps, 0)
    _check_limit(limit)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 2:
        raise InputError(f"`limit` is {limit}; it must be 2 or more: an interval needs two texts")


class Asked(NamedTuple):
    """What a model is judged on: rows, what is known of both, the choices behind the rows, and the unit of a number.

    `characters` of all rows, None where the unit is per token; `unit` "" where `characters` decides it.
    """

    rows: Any
    about: dict[str, Any]
    protocol: dict[str, Any]
    characters: float | None
    unit: str


def asked_of(model: Any, corpus: Any, split: str, unconditional: bool = False) -> Asked:
    """The rows of a split of a corpus as a model is asked about them."""
    method, tokenizer = model.method, model.tokenizer
    rows, given_class = asked_of_classes(model, corpus, split, unconditional)
    about = (
        identity(model)
        | {
            "data": corpus.about["name"],
            "split": split,
            "length": int(method.shape[0]),
            "texts": len(rows),
            "sha256": corpus.about.get("sha256"),
            "tokens_sha256": corpus.about.get("tokens_sha256"),
        }
        | beside_training(model, corpus)
    )
    separator = corpus.about.get("separator", "")
    between = f"{separator}, no BOS" if "after each document" in separator else "no BOS/EOS"
    protocol = {"packing": _packing(method, corpus.about, rows), "separators": between, "weights": about["weights"]}
    if tokenizer.shape:
        protocol = {
            "packing": f"{about['data']}: {corpus.about['protocol'] or 'as published'}",
            "weights": about["weights"],
        }
    if "mix" in corpus.about:
        names = [name for name, of in corpus.about["mix"].items() if split in of["splits"]]
        protocol["pooled"] = f"each row of {', '.join(names)} counts once, whatever its weight in training"
    protocol |= {"class": given_class} if given_class else {}
    characters = rows.characters if tokenizer.unit in ("char", "byte") else None
    if characters is None and not tokenizer.shape and rows.characters and rows.tokens_total:
        about["characters_per_token"] = rows.characters / rows.tokens_total
    return Asked(rows, about, protocol, characters, model.unit if tokenizer.shape else "")


def _packing(method: Method, about: dict[str, Any], rows: Any) -> str:
    """How the data was cut into rows; of documents also whether the model says where they end."""
    pack, fill = about.get("pack"), about.get("fill", 0)
    if pack not in ("document", "packed"):
        left_out = f", {rows.left_out:,} tokens that fill no row left out" if rows.left_out else ""
        return ("wrapped" if pack == "wrap" else "one a row") + left_out
    text = "one document a row" if pack == "document" else "documents packed into rows"
    text += f", {rows.cut:,} longer ones in pieces of {rows.length:,}" if rows.cut else ""
    text += f", filled up to multiples of {fill:,}" if fill > 1 else ""
    block = method.block or rows.length
    word = about["separator"].partition(" ")[0]  # a space ends no document, since it stands within them
    ended = word != "space" and (fill > 0 or word != "none")
    learnt = ended and (fill >= rows.length or max(fill, 1) % block == 0)
    return f"{text}, {'ends included' if learnt else 'lengths given'}"
