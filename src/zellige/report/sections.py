"""What the page of a run says in numbers and tables: its facts, its results, its configuration."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation.result import Result, fullest
from ..show.numbers import byte_size, duration, flop_rate, parameters, percent, token_rate
from ..show.numbers import count as counted
from ..show.numbers import path as shown_path
from ..training.progress import HEAD
from . import page
from .figures import terms


def run_facts(log: Any, unit: str, config: Any, model: Any, evaluations: Mapping[Path, Result]) -> list[str]:
    """What stands under the title: the number, the size, how long it took."""
    facts = []
    result = fullest(evaluations.values(), (config.get("data") or {}).get("name", ""))
    measured = np.isfinite(log["validation"])
    if result:
        part = f", a partial result: {page.esc(result.partial)}" if result.partial else ""
        facts.append(f"<b>{page.esc(str(result))}</b> test{part}")
    elif measured.any():
        best = np.flatnonzero(measured)[log["validation"][measured].argmin()]
        values = (float(log[c][best]) for c in ("validation", "validation_low", "validation_high"))
        value, low, high = values
        method = getattr(model, "method", None)
        kind = "bound" if method is None else "exact" if method.exact else "bound" if method.bounded else "loss"
        shown = page.esc(str(Result(value, low, high, unit or "nats/token", kind)))
        facts.append(f"<b>{shown}</b> validation, step {counted(log['step'][best])}")
    if model is not None:
        facts.append(parameters(sum(p.numel() for p in model.method.parameters())))
    if len(log["step"]):
        done, wanted = int(log["step"][-1]), (config.get("train") or {}).get("steps")
        facts.append(
            f"{counted(done)} steps" if wanted in (None, done) else f"{counted(done)} of {counted(wanted)} steps"
        )
        if np.isfinite(log["seconds"]).any():
            facts.append(duration(float(np.nanmax(log["seconds"]))))
    use = lambda share: f"{percent(share)} MFU"  # noqa: E731
    shown = {"tokens_per_second": token_rate, "flops_per_second": flop_rate, "utilisation": use}
    facts += [text(float(np.nanmedian(log[name]))) for name, text in shown.items() if np.isfinite(log[name]).any()]
    if np.isfinite(log["flops_per_second"]).any():
        facts[-1] += f" ({HEAD})"
    if np.isfinite(log["peak_memory"]).any():
        facts.append(f"peak {byte_size(float(np.nanmax(log['peak_memory'])))}")
    return facts


def evaluation_part(path: Path, result: Result) -> str:
    """A result: its terms, its protocol, the command that shows it."""
    loss = result.kind == "loss"  # no nats, and no perplexity
    rows = [(name, f"{value:,.3f}") for name, value in result.terms.items()]
    rows.append(("total", f"{sum(result.terms.values()):,.3f}"))
    perplexity = "" if loss else f"perplexity {result.perplexity_text}"
    drawn = ", exact for each" if result.kind == "exact" else f" x {result.draws} draws"
    part = [f"a partial result: {result.partial}"] if result.partial else []
    facts = (str(result), *([perplexity] if perplexity else []), f"{counted(result.sequences)} sequences{drawn}", *part)
    bar = ""
    if len(result.terms) > 1:
        text = "The whole bar is the total."
        bar = page.html_figure(terms(result.terms), f"{path.stem}-terms", "Terms of the bound", text)
    return (
        f"<h3>{page.esc(path.stem.removeprefix('evaluate-'))}</h3>{page.html_line(facts)}"
        + bar
        + f'<div class="pair"><div>{page.html_table(rows, ("term", "a sequence" if loss else "nats/sequence"))}</div>'
        + f"<div>{page.html_table(page.flat(result.protocol), ('protocol', ''), numbers=False)}</div></div>"
        + page.html_code(f"zellige evaluate --from {shown_path(path)}")
    )


def configuration_part(config: Mapping[str, Any], model: Any) -> str:
    """The command, what is known of the run and its machine, and config.json."""
    about = {**(config.get("about") or {}), **(getattr(model, "about", None) or {})}
    command, seed = about.pop("command", None), (config.get("train") or {}).get("seed")
    groups = {name: value for name, value in about.items() if isinstance(value, Mapping)}
    alone = {name: value for name, value in about.items() if name not in groups and value not in (None, "", [])}
    groups["run"] = alone | ({} if seed is None else {"seed": seed})
    tables = [
        f"<div><h3>{page.esc(name)}</h3>{page.html_table(page.flat(group), numbers=False)}</div>"
        for name, group in groups.items()
        if group
    ]
    settings = {name: value for name, value in config.items() if name != "about"}
    return (
        (page.html_code(str(command)) if command else "")
        + f'<div class="flow">{"".join(tables)}</div>'
        + page.html_folded("config.json", page.html_code(json.dumps(settings, indent=2, ensure_ascii=False)))
    )
