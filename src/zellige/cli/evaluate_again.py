"""`zellige evaluate` with `--from` or `--audit`: numbers computed again, ours and those claimed elsewhere.

`--from result.json` does what a result says was done, and says whether its number holds. `--audit DIR` computes each
claim of a folder, and says which hold, and why the others do not.

DIR/claims.csv has a line a claim, with the columns

    model       a run, a saved folder or a hub id
    data        a data set by name, or a file of text; empty: what the model was trained on
    protocol    the other options, as `zellige evaluate` takes them: --suite zero-shot --only ptb --protocol mdlm
    value       the number, as it was printed
    unit        of it: bits/char, nats/token, perplexity, accuracy, FID ...
    tolerance   what it may be off by, or low and high, its interval; if none is given, half a unit of its last digit
    kind        what it was said to be: bound, exact or estimate; empty: only the number is compared

Paths are those seen from DIR.
"""

import contextlib
import csv
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.errors import InputError, quoted
from ..base.requests import Request
from ..show.numbers import SIGN, columns, counted, path, pm
from ..show.progress import Bar
from ..show.record import SENSES, Figure, Record, json_record, read_document, record_of
from ..show.terminal import Terminal
from ..show.units import unit_of
from . import options
from .common import Document, refuse_unasked, run_folder
from .flags import flags

Judge = Callable[..., Record | None]


@dataclass(frozen=True)
class Mode:
    """One thing that `zellige evaluate` does.

    Attributes:
        request: the class of what it asks for.
        options: its command line: the request in a field `request`, how the model is loaded, and `run`.
        where, about: the command, and its first line of help.
        run: the record of its options, with the words that were typed and the terminal; None: another process has it.
        lines: what is printed of a record.
        save: writes a record into a folder, with the options that made it.
        folder: where its files go, by its options; None: nowhere.
        early: whether `run` writes some of them itself, and gets the folder.
        others: what is done instead, by the value of the flag up to a colon or a slash: `--probe glue:sst2`.
    """

    request: type[Request[Any]]
    options: type[Any]
    where: str
    about: str
    run: Callable[..., Any]
    lines: Callable[[Any], Sequence[str]]
    save: Callable[..., None]
    folder: Callable[[Any], Path | None] = lambda chosen: run_folder(chosen.run)
    early: bool = False
    others: Mapping[str, "Mode"] = field(default_factory=dict)

    def of(self, record: Record, source: str) -> Any:
        """The options that made a record."""
        arguments = record.arguments or {}
        if not (arguments.get("run") or arguments.get("samples")):
            raise InputError(f"'{source}' does not say how it was made; evaluate the run itself")
        loading = {name: value for name, value in (record.loading or {}).items() if value is not None}
        return self.options(request=record.request, **loading)


def again(
    source: str, words: Sequence[str], terminal: Terminal, judge: Judge, modes: Sequence[Mode]
) -> Document | None:
    """Judge anew, and say of each number whether it holds; what is returned has "held": {number: in what sense}."""
    from ..evaluation.repeat import changes

    document = read_document(source, "zellige evaluate")
    mode = next((mode for mode in modes if mode.request.__name__ == document.get("request")), None)
    if mode is None:
        raise InputError(f"'{source}' is not a result of zellige evaluate; give a JSON file that it wrote")
    before = record_of(document, source)
    arguments = options.parse(mode.options, words, mode.where, terminal, default=mode.of(before, source))
    refuse_unasked(untyped(mode.options, document["arguments"], words), f"'{source}'")
    record = judge(mode, arguments, words, terminal, write=False)
    if record is None:
        return None
    now, senses = record.to_dict(), before.holds(record)
    for change in changes(document, now):
        terminal.note(f"{change}")
    for line in describe_held(before, record, senses, path(source)):
        terminal.result(line)
    return now | {"held": senses}


def describe_held(before: Record, now: Record, senses: Mapping[str, str], source: str) -> list[str]:
    """One line where every number of a record holds; else a line for each that does not."""
    figures, new_figures = before.figures(), {figure.name: figure for figure in now.figures()}
    if all(senses.values()):
        weakest = next((sense for sense in SENSES if sense in senses.values()), SENSES[-1])
        same = len(figures) <= 2 and weakest == SENSES[-1]
        return [f"  holds     {source}: {'the same number' if same else counted(len(figures), 'number')}, {weakest}"]
    lines = []
    for figure in figures:
        if not senses[figure.name]:
            new_figure = new_figures.get(figure.name)
            became = "is not there" if new_figure is None else f"is {new_figure.value:.6g}"
            if new_figure is not None and figure.distribution not in (None, new_figure.distribution):
                now_of = f"`{new_figure.distribution}`" if new_figure.distribution else "no distribution"
                became += f"; it was of `{figure.distribution}`, is of {now_of}"
            lines.append(f"  does not hold  {figure.name} was {figure.value:.6g} ± {figure.half:.2g}, {became}")
    return lines


def untyped(cls: type, entries: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    """The texts among the entries of a file, but for those that are typed now."""
    typed, arguments = options.read(flags(cls), words, "evaluate")
    typed_now = {flag.removeprefix("--").replace("-", "_") for flag in typed}
    typed_now |= {"data"} if any(name.startswith("data.") for name in typed_now) else set()
    typed_now |= {"run"} if arguments else set()
    for name, value in entries.items():
        if name not in typed_now:
            yield from _texts(value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


CLAIMS, NEEDED = "claims.csv", ("model", "value", "unit")
COLUMNS = ("model", "data", "protocol", "value", "unit", "tolerance", "low", "high", "kind")
KINDS = ("", "bound", "exact", "estimate")
HOLDS, FAILS, NO_BOUND, UNKNOWN = "holds", "does not hold", "is not a bound of what is claimed", "cannot be checked"
_SHORT = {"bpc": "bits/char", "bpd": "bits/dim", "ppl": "perplexity"}


@dataclass(frozen=True)
class Claim:
    """A line of claims.csv; `half` is what the number may be off by."""

    model: str
    data: str
    protocol: str
    value: float
    half: float
    unit: str
    kind: str
    text: str

    @property
    def words(self) -> list[str]:
        """Command line of `zellige evaluate` in the folder of the claims."""
        local = Path(self.data).suffix != "" or Path(self.data).exists()
        data = ["--data.name=text", f"--data.path={self.data}"] if local else [f"--data.name={self.data}"]
        return [self.model, *(data if self.data else []), *shlex.split(self.protocol)]


def audit(folder: str, words: Sequence[str], terminal: Terminal, judge: Judge) -> Document:
    """Every claim of a folder computed again, in one table.

    The document's result has "holds": true where all of them do, false where one does not, null where none is refuted
    but some cannot be checked; and "checked", how many could be.
    """
    if words:
        raise InputError(f"'{words[0]}' does not go with --audit; the options of each claim are in {CLAIMS}")
    claims = read_claims(Path(folder))
    silent = Terminal(open(os.devnull, "w"), terminal.err, quiet=True, fields=options.EVERYWHERE)  # noqa: SIM115
    records: dict[tuple[str, ...], Record | InputError] = {}
    rows = []
    with contextlib.chdir(folder), Bar(terminal, "audit", len(claims), "claims") as bar:
        for number, claim in enumerate(claims):
            bar.update(number, claim.model)
            rows.append(_checked(claim, records, silent, judge))
        bar.update(len(claims))
    silent.out.close()
    for line in describe_audit(claims, rows):
        terminal.result(line)
    verdicts = [row["verdict"] for row in rows]
    verdicts_known = [verdict for verdict in verdicts if verdict != UNKNOWN]
    is_refuted = any(verdict != HOLDS for verdict in verdicts_known)
    holds = False if is_refuted else True if len(verdicts_known) == len(rows) else None
    result = {"holds": holds, "checked": len(verdicts_known), "claims": rows}
    return json_record("evaluate", {"audit": folder}, result, kind="audit")


def status(document: Document) -> int:
    """Exit status: 0 if something could be checked and nothing is refuted, else 1."""
    result = document["result"]
    return 0 if result["checked"] and result["holds"] is not False else 1


def read_claims(folder: Path) -> list[Claim]:
    """The claims of a folder. InputError: no file, a column that is missing or unknown, a number that is none."""
    file = folder / CLAIMS
    if not file.is_file():
        raise InputError(f"no file at '{file}'; --audit needs a folder with {CLAIMS}: {', '.join(COLUMNS)}")
    with file.open(newline="", encoding="utf-8", errors="replace") as lines:
        table = csv.DictReader(lines)
        names = [name.strip() for name in table.fieldnames or ()]
        table.fieldnames = names
        missing = [name for name in NEEDED if name not in names]
        if missing or set(names) - set(COLUMNS):
            wrong = (
                f"has no column '{missing[0]}'" if missing else f"has a column {quoted(min(set(names) - set(COLUMNS)))}"
            )
            raise InputError(
                f"'{file}' {wrong}; its columns are {', '.join(COLUMNS)}, of which {', '.join(NEEDED)} must be"
            )
        rows = [{name: (row.get(name) or "").strip() for name in COLUMNS} for row in table]
    if not rows:
        raise InputError(f"'{file}' holds no claim; give one a line")
    return [_claim(row, f"claim {number:,} of '{file}'") for number, row in enumerate(rows, 1)]


def _claim(row: dict[str, str], where: str) -> Claim:
    numbers = {name: row[name] for name in ("value", "tolerance", "low", "high") if row[name]}
    for name, text in numbers.items():
        try:
            finite = math.isfinite(float(text.encode("ascii")))
        except ValueError:
            finite = False
        if not finite:
            raise InputError(f"{name} of {where} is {quoted(text)}; it must be a number")
    if "value" not in numbers or not row["model"]:
        raise InputError(f"{where} has no {'model' if not row['model'] else 'value'}; give one")
    if row["kind"] not in KINDS:
        raise InputError(f"kind of {where} is {quoted(row['kind'])}; it must be {', '.join(KINDS[1:])} or empty")
    value = float(numbers["value"])
    mantissa, _, exponent = numbers["value"].lower().partition("e")
    digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
    half = 0.5 * 10.0**-digits * (abs(value) > 0 or digits > 0)
    if "low" in numbers or "high" in numbers:
        low, high = (float(numbers.get(name, math.nan)) for name in ("low", "high"))
        if not low <= value <= high:
            raise InputError(
                f"low and high of {where} are not the ends of its interval; give both, low <= value <= high"
            )
        half = max(high - value, value - low)
    if "tolerance" in numbers:
        half = abs(float(numbers["tolerance"]))
    unit = _SHORT.get(row["unit"].lower(), row["unit"])
    return Claim(row["model"], row["data"], row["protocol"], value, half, unit, row["kind"], numbers["value"])


def _checked(
    claim: Claim, made: dict[tuple[str, ...], Record | InputError], silent: Terminal, judge: Judge
) -> dict[str, Any]:
    """A claim, the number of ours that it is compared with, and the verdict."""
    number, document = None, {}
    try:
        key = tuple(claim.words)
        if key not in made:
            made[key] = _judged(key, silent, judge)
        record = made[key]
        if isinstance(record, InputError):
            raise record
        document = record.to_dict()
        number = of_unit(record.claimable(), claim.unit)
        verdict, why = compared(claim, number)
    except InputError as reason:
        verdict, why = UNKNOWN, silent.spelled(str(reason))
    except ValueError as reason:  # a quotation mark that is never closed
        verdict, why = UNKNOWN, f"protocol: {str(reason).lower()}"
    return {
        "claim": asdict(claim),
        "ours": None if number is None else asdict(number),
        "verdict": verdict,
        "why": why,
        **{key: document.get(key) for key in ("arguments", "interval", "protocol", "seed")},
        "about": document.get("result", {}).get("about"),
    }


def _judged(words: Sequence[str], silent: Terminal, judge: Judge) -> Record | InputError:
    try:
        refuse_unasked(words, f"'{CLAIMS}'")
        if "--out" in options.given(words):
            raise InputError("a claim writes no files; leave out --out")
        record = judge(words, silent, 0.0, write=False)
    except InputError as reason:
        return reason
    except SystemExit:
        return InputError("the protocol asks for help; give options that evaluate")
    return record if record is not None else InputError("another process has the number; audit in one")


def of_unit(numbers: Sequence[Figure], unit: str) -> Figure:
    """The number of a result that is in this unit, or can be: bits and nats are the same but for ln 2.

    Raises:
        InputError: there is none, or several: the claim must say which.
    """
    same = [figure for figure in numbers if unit in (figure.name, figure.unit)]
    if not same:
        wanted, other = unit_of(unit), {"bits": "nats", "nats": "bits"}
        given = wanted.measured(other.get(wanted.measure, ""))
        scale = given.scale / wanted.scale
        same = [
            replace(figure, unit=unit, value=figure.value * scale, half=figure.half * scale)
            for figure in numbers
            if figure.unit == given.key
        ]
    if len(same) != 1:
        names = ", ".join(dict.fromkeys(figure.name for figure in same or numbers))
        wrong = "is the unit of several numbers" if same else "is not among ours"
        raise InputError(f"{quoted(unit)} {wrong}; ours are {names}")
    return same[0]


def compared(claim: Claim, ours: Figure) -> tuple[str, str]:
    """The verdict, and why."""
    apart, room = claim.value - ours.value, claim.half + ours.half
    if claim.kind in ("bound", "exact") and ours.kind in ("estimate", "loss"):
        return NO_BOUND, f"under this protocol it is an {ours.kind}" if ours.kind == "estimate" else "it is a loss"
    if claim.kind == "exact" and ours.kind == "bound" and apart < -room:
        return UNKNOWN, "ours is an upper bound, and the claim an exact number below it"
    if math.isnan(apart):
        return UNKNOWN, "ours is no number"
    if abs(apart) <= room:
        return HOLDS, ""
    return (
        FAILS,
        f"off by {abs(apart):.3g}, {'more than' if room else 'and nothing'} {f'{room:.2g}' if room else 'may be'}",
    )


def describe_audit(claims: Sequence[Claim], rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table as it is printed, then why, a line each."""
    body = [("", "claim", "claimed", "ours (95%)", "verdict")]
    for number, (claim, row) in enumerate(zip(claims, rows), 1):
        value = "-"
        if ours := row["ours"]:
            value = f"{SIGN.get(ours['kind'], '')} {pm(ours['value'], ours['half'])}".strip()
        subject = " ".join(filter(None, (claim.model, claim.data, claim.protocol)))
        body.append((str(number), subject, f"{claim.text} {claim.unit}", value, row["verdict"]))
    taken = [max(map(len, column)) + 2 for i, column in enumerate(zip(*body)) if i != 1]
    room = max(15, 80 - sum(taken))  # of a line
    body = [(n, text if len(text) <= room else f"{text[: room - 3]}...", *others) for n, text, *others in body]
    lines = columns(body, "><>><", gap=2)
    lines += [""] + [f"  {n}: {row['why']}" for n, row in enumerate(rows, 1) if row["why"]]
    holding, unknown = (sum(row["verdict"] == verdict for row in rows) for verdict in (HOLDS, UNKNOWN))
    remark = f", {unknown} cannot be checked" if unknown else ""
    return [*lines, f"  {holding} of {counted(len(rows), 'claim')} hold{remark}"]
