"""What each choice of a likelihood protocol changes, on one model: the table of README.md.

    python studies/protocol/protocol.py runs/small --data FOLDER --out protocol.md

A choice is varied alone, from the protocol `zellige`. Where the rows stay the same texts, the change is the paired difference;
where they are cut or spelt otherwise it is the difference of two numbers, each with its interval over texts.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import zellige
from zellige.data import Local
from zellige.evaluation.evaluate import evaluate_rows
from zellige.evaluation.result import Result, difference
from zellige.plugins.evaluations.suite import sets
from zellige.plugins.evaluations.suite.protocol import PROTOCOLS, Protocol
from zellige.plugins.evaluations.suite.request import EvaluateSuite
from zellige.samplers.pairing import of_length

BASE = PROTOCOLS["zellige"]
SAME_ROWS = ("t_min", "ends", "draws")


def variants(name: str, length: int) -> list[tuple[str, Protocol]]:
    """Each choice, and the protocol where it alone is made otherwise."""
    lines = [("a document a line, the blank ones too", replace(BASE, lines=True))] if name in sets.RUNNING else []
    detokenized = [("not detokenized", replace(BASE, detokenize=False))] if name != "ag_news" else []
    documents = [] if name in sets.RUNNING else [("one document a row, padded", replace(BASE, pack="document"))]
    return [
        *detokenized,
        *lines,
        *documents,
        *([] if name in sets.RUNNING else [("no EOS between documents", replace(BASE, eos=False))]),
        ("BOS and EOS round each row, counted", replace(BASE, begin="counted", end=True)),
        ("BOS before each row, given", replace(BASE, begin="given")),
        (f"rows of {length // 2}", replace(BASE, length=length // 2)),
        (f"rows of {length // 4}", replace(BASE, length=length // 4)),
        ("without the ends of time", replace(BASE, ends=False)),
        ("t from 0.001, without the ends", replace(BASE, t_min=1e-3, ends=False)),
        ("t from 0.01, without the ends", replace(BASE, t_min=1e-2, ends=False)),
        ("t from 0.1, without the ends", replace(BASE, t_min=0.1, ends=False)),
        *[(f"{draws} draw{'s' * (draws > 1)}", replace(BASE, draws=draws)) for draws in (1, 2, 16)],
        *[(f"all of `{other}`", PROTOCOLS[other]) for other in ("mdlm", "sedd", "bd3lm")],
    ]


def same_rows(protocol: Protocol) -> bool:
    """Whether nothing differs from the base but what is asked of the same rows."""
    return replace(protocol, **{name: getattr(BASE, name) for name in SAME_ROWS}, name="zellige") == BASE


def measure(model: Any, name: str, protocol: Protocol, data: str, limit: int, seed: int, kept: dict) -> Result:
    """The number of one set by one protocol; rows that are the same texts are cut once."""
    if same_rows(protocol):  # the suite would read and cut them again
        if name not in kept:
            found = sets.read_texts(name, "test", detokenize=True, lines=False, path=sets.folder_of(data, name))
            length = int(model.method.shape[0])
            kept[name] = sets.cut_rows(
                found.documents, model.tokenizer, length, pack="wrap", eos=True, begin="none", end=False, name=name
            )
        return evaluate_rows(
            of_length(model.method, int(model.method.shape[0])), kept[name], draws=protocol.draws, seed=seed,
            limit=limit, t_min=protocol.t_min, ends=protocol.ends, batch=128,
        )  # fmt: skip
    rows = (
        EvaluateSuite(protocol=protocol, data=Local(data), only=(name,), limit=limit, seed=seed, batch=128)
        .run(model)
        .rows
    )
    assert rows[0].result is not None, rows[0].reason
    return rows[0].result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run, a saved folder or a hub id")
    parser.add_argument("--data", default="../shared/data", help="a folder with a subfolder for each set")
    parser.add_argument("--sets", nargs="+", default=["wikitext2", "lambada", "ag_news"])
    parser.add_argument("--limit", type=int, default=160, help="rows of each set, evenly spaced")
    parser.add_argument("--choices", nargs="*", default=[""], help="only those that begin so: 't from' 'all of'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="protocol.md")
    chosen = parser.parse_args()
    model = zellige.load(chosen.run)
    lines, plain, kept = [], [], {}
    for name in chosen.sets:
        base = measure(model, name, BASE, chosen.data, chosen.limit, chosen.seed, kept)
        lines += ["", f"**{name}**", "", HEADER, RULE, row("`zellige`", base, "")]
        plain.append({"set": name, "choice": "zellige"} | base.to_dict())
        for title, protocol in variants(name, int(model.method.shape[0])):
            if not title.startswith(tuple(chosen.choices)):
                continue
            try:
                found = measure(model, name, protocol, chosen.data, chosen.limit, chosen.seed, kept)
            except zellige.InputError as reason:
                print(f"{name}, {title}: {reason}", flush=True)
                lines.append(f"| {title} | - | - | - | - | {str(reason).partition(';')[0]} |")
                continue
            if same_rows(protocol):
                paired = difference(found, base)
                change = f"{paired.value:+.3f} ± {paired.half:.3f}"
            else:
                change = f"{found.value - base.value:+.3f}"
            lines.append(row(title, found, change))
            plain.append({"set": name, "choice": title, "change": change} | found.to_dict())
            print(lines[-1], flush=True)
            Path(chosen.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
            Path(chosen.out).with_suffix(".json").write_text(json.dumps(plain, indent=1, default=str) + "\n")


HEADER = (
    "| choice | nats/token, ± over texts | ± over draws | perplexity: corpus | per sequence, its lift | change, nats |"
)
RULE = "|---|--:|--:|--:|--:|--:|"


def row(title: str, r: Result, change: str) -> str:
    """A line of the table."""
    each, drawn = r.per_sequence, "-" if r.draws == 1 else f"{r.draws_half:.3f}"
    assert each is not None
    lift = "-" if each.lift is None else f"{each.lift:.1f}"
    return f"| {title} | {r.value:.3f} ± {r.half:.3f} | {drawn} | {r.perplexity:.1f} | {each.value:.1f}, {lift} | {change} |"


if __name__ == "__main__":
    main()
