"""-log p of the rows of a data set, as an upper bound or exactly, with a 95% interval and its protocol.

`requests` has the options, `result` the number and its intervals, `likelihood` the likelihood of a group of texts, and
`workers` the processes and the cache of finished groups.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..base.errors import InputError, check_counts
from ..base.processes import this_process
from ..base.requests import Progress
from ..data.corpus import Corpus
from ..data.losses import LOSSLESS
from ..data.rows import Rows
from ..data.tokenizer import Tokenizer
from ..methods.method import Method, device_of
from ..models.ends import learns_ends
from ..models.given import refuse_given
from ..models.model import Model, fingerprint, identity
from ..show.units import unit_of
from . import workers
from .corpus import beside_training, rows_with_classes
from .likelihood import DIVERGENCE, Likelihood, Work, entropy_and_divergence, evaluating
from .pilot import pilot, proposal_of
from .result import Result, determined, summarize

GROUP = 64  # rows (texts x draws) that share their strata
PROTOCOL = "zellige-1"


# ---------------------------------------------------------------------------------------------------- the drawing
def evaluate_rows(
    method: Method,
    rows: Rows,
    *,
    draws: int = 4,
    seed: int = 0,
    limit: int | None = None,
    batch: int = GROUP,
    characters: float | None = None,
    unit: str = "",
    estimator: str = "bound",
    t_min: float = 0.0,
    ends: str = "model",
    steps: int = 0,
    grid: str = "uniform",
    terms: str = "drawn",
    processes: int = 1,
    distributed: bool = False,
    keep: Path | None = None,
    progress: Progress | None = None,
    protocol: dict[str, Any] | None = None,
) -> Result:
    """Compute the bound (or another estimator of the method) on the rows of a data set.

    An estimator without random draws (the likelihood in a given order, AR) is evaluated once for each text, for any `draws`.

    Args:
        rows: a sequence of examples with `collate(list) -> Batch`.
        limit: evaluate only this many rows, evenly spaced; default: all.
        batch: rows per network evaluation; the number does not depend on it, nor on the number of processes.
        characters: number of characters in all rows, for a number in bits per character; None: nats per token.
        unit: another unit of the number: bits/dim, bits/note, bits/cell.
        t_min, ends, steps, grid, terms: see `likelihood.Likelihood`. If times are drawn by importance, a pilot of some 80
            draws comes first (`pilot`).
        processes: number of worker processes, 1: this one.
        distributed: share the work with the other ranks of torchrun or Slurm.
        keep: folder for finished groups, which a later call reads after an interruption.
        progress: called with (texts done, texts in all).
        protocol: more entries for the protocol (packing, weights).
    """
    began = time.perf_counter()
    check_counts(draws=draws, batch=batch, processes=processes)
    indices, chosen = evenly_chosen(len(rows), limit)
    N = len(indices)
    likelihood = Likelihood(method, estimator, t_min, ends, steps, terms, grid=grid)
    kind, draws = likelihood.kind, 1 if likelihood.certain else draws
    if kind == "loss":
        characters, unit = None, unit_of(unit or "nats/token").measured("loss").key
    device, texts = device_of(method), max(1, GROUP // draws)
    replicates = 2 if draws % 2 == 0 else draws
    work = Work(likelihood, rows, indices, texts, draws // replicates, replicates, seed, batch, device)
    spread = (
        f"{replicates} x {draws // replicates} draws of {texts} texts at once, evenly spread over {likelihood.strata}"
    )
    full_protocol = {
        "name": PROTOCOL,
        "estimator": estimator,
        "time": likelihood.time,
        "draws": draws,
        "strata": spread if likelihood.strata else "none",
        "network": method.precision,
        "bound": "float64",
        "texts": chosen,
        "seed": seed,
        "device": device.type,
        **({"distribution": None} if likelihood.distribution is None else likelihood.distribution.protocol),
        "bounds samples of": likelihood.bounds,
    } | (protocol or {})
    full_protocol |= getattr(rows, "losses", LOSSLESS).protocol
    full_protocol |= likelihood.other_steps | ({} if ends == "model" else {"ends": ends})
    full_protocol |= {"terms": "all"} if terms == "all" else {}
    with evaluating(method):
        if likelihood.importance:
            pilot_terms = pilot(likelihood, rows, indices, seed, device)
            likelihood.proposal = proposal_of(pilot_terms, likelihood)
            full_protocol |= {} if pilot_terms is None else {"pilot": pilot_terms}
        results = _gathered(work, full_protocol, processes, distributed, keep, progress)
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
        means = entropy_and_divergence(means[estimator], rows.collate([rows[i] for i in indices]).tokens)
    total, group = torch.stack(list(tables.values())).sum(0), torch.arange(N) // texts
    per_document = (
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
        seconds=time.perf_counter() - began,
        document=per_document,
        partial=len(rows) > N,
    )
    if not (likelihood.draws_times and (likelihood.T or likelihood.importance)):
        return result
    return determined(result, torch.cat([torch.tensor(f["squares"], dtype=torch.float64).mean(0) for f in results]))


def _gathered(
    work: Work,
    protocol: dict[str, Any],
    processes: int,
    distributed: bool,
    keep: Path | None,
    progress: Progress | None,
) -> list[workers.GroupResult]:
    """Results of each group; groups that an interruption left in `keep` are read from there."""
    key = ""
    if keep is not None:
        texts = [part for i in range(len(work)) for part in vars(work.group(i)).values()]
        method = work.likelihood.method
        key = fingerprint(protocol, method, repr(method.config), method.shape, *texts)
    cache = workers.ResultCache(keep, key, this_process().rank if distributed else 0)
    results = workers.gather_results(
        work,
        len(work),
        processes=processes,
        distributed=distributed,
        cache=cache,
        device=work.device,
        progress=workers.by_texts(progress, len(work.chosen), work.texts),
    )
    cache.remove()
    return results


def evenly_chosen(rows: int, limit: int | None) -> tuple[list[int], str]:
    """Numbers of the rows to evaluate, `limit` of them evenly spaced, and a description of them.

    Raises:
        InputError: fewer than two rows: an interval needs two.
    """
    if limit is not None and limit < 2:
        raise InputError(f"`limit` is {limit}; it must be 2 or more: an interval needs two texts")
    if rows == 0:
        raise InputError("there are no texts to evaluate; give a data set that holds at least two")
    N = min(rows, limit or rows)
    return [i * rows // N for i in range(N)], f"{N} of {rows}, evenly spaced" if rows > N else f"all {N}"


COUNTED = 4096  # rows in which words are counted


class EvaluationRows(NamedTuple):
    """Data on which a model is evaluated: rows, facts about model and data, protocol, and unit.

    `characters` is the number in all rows, None for a number per token. `unit` is "" if `characters` determines it.
    """

    rows: Any
    about: dict[str, Any]
    protocol: dict[str, Any]
    characters: float | None
    unit: str


def rows_of(model: Model, corpus: Corpus, split: str, unconditional: bool = False) -> EvaluationRows:
    """Return the rows of a split of a corpus in the form that the model reads."""
    method, tokenizer = model.method, model.tokenizer
    rows, given_class = rows_with_classes(model, corpus, split, unconditional)
    about = (
        identity(model)
        | {
            "data": corpus.about["name"],
            "split": split,
            "length": rows.length,
            "texts": len(rows),
            "sha256": corpus.about.get("sha256"),
            "tokens_sha256": corpus.about.get("tokens_sha256"),
        }
        | beside_training(model, corpus)
    )
    of_documents = corpus.about.get("separates") == "documents"
    between = f"{corpus.about['separator']}, no BOS" if of_documents else "no BOS/EOS"
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
    if copies := getattr(method.network, "symmetries", 0):
        protocol["symmetries"] = copies
    config = method.config
    loss = getattr(config, "loss", None)
    if not method.loss_is_bound and loss != getattr(type(config)(), "loss", None):
        protocol["trained by"] = f"the loss {loss} (no bound)"
    if word := corpus.about.get("given"):
        refuse_given(method, word)
        protocol["given"] = corpus.about["given part"]
    characters = rows.characters if tokenizer.unit in ("char", "byte") else None
    if characters is None and rows.characters and rows.tokens_total:
        about["characters_per_token"] = rows.characters / rows.tokens_total
    if rows.characters and rows.tokens_total and not tokenizer.shape and not corpus.about.get("given"):
        per_token = words_per_token(rows, tokenizer)
        about["words_per_unit"] = per_token if characters is None else per_token * rows.tokens_total / characters
    return EvaluationRows(rows, about, protocol, characters, model.unit if tokenizer.shape else "")


def words_per_token(rows: Rows, tokenizer: Tokenizer) -> float:
    """Words, separated by spaces, per token, in the first `COUNTED` rows or documents."""
    tokens = rows.between(0, COUNTED)
    texts = [tokens.reshape(-1)] if rows.documents is None else [row[row >= 0] for row in tokens]
    return sum(len(tokenizer.decode(text).split()) for text in texts) / max(sum(map(len, texts)), 1)


def _packing(method: Method, about: dict[str, Any], rows: Rows) -> str:
    """Description of how the data was cut into rows; for documents also whether the model predicts where they end."""
    pack, fill = about.get("pack"), about.get("fill", 0)
    if pack not in ("document", "packed"):
        left_out = f", {rows.left_out:,} tokens that fill no row left out" if rows.left_out else ""
        return ("wrapped" if pack == "wrap" else "one a row") + left_out
    text = "one document a row" if pack == "document" else "documents packed into rows"
    text += f", {rows.cut:,} longer ones in pieces of {rows.length:,}" if rows.cut else ""
    text += f", filled up to multiples of {fill:,}" if fill > 1 else ""
    if method.parameterization == "insertion":
        return f"{text}, lengths included"
    return f"{text}, {'ends included' if learns_ends(method, about, rows.length) else 'lengths given'}"
