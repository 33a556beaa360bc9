"""What `zellige evaluate --generate` draws and writes: the samples, their classes, the result as JSON, the table, the figures."""

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import Data
from ..show.numbers import path
from ..show.progress import Bar
from ..show.record import as_file, json_record
from ..show.terminal import Terminal
from .common import file_suffix

if TYPE_CHECKING:
    from ..evaluation.judge import Judge
    from ..evaluation.sweep import Set, Way


def classes_of(chosen: Any, model: Any) -> list[int]:
    """The numbers of the classes asked for, `all` of them if that is none's name; [] where none is told."""
    from ..models.model import class_names, find_classes

    if not chosen.classes or model is None:
        return []
    names = class_names(model)
    every = chosen.classes == ("all",) and names and "all" not in names
    return [*range(len(names))] if every else find_classes(model, chosen.classes).tolist()


def told_classes(chosen: Any, model: Any) -> dict[str, str]:
    """What the protocol says of a model with classes: which ones its samples were told, one after another; or none."""
    from ..models.model import class_names

    if model is None or chosen.samples or not (names := class_names(model)):
        return {}
    asked = [names[i] for i in classes_of(chosen, model)]
    listed = "all in turn" if asked == names else f"{', '.join(asked)}{' in turn' if len(asked) > 1 else ''}"
    return {"class": f"given the class, {listed}" if asked else "without the class"}


def ways_of(chosen: Any, model: Any) -> "list[Way]":
    """Every way to draw that was asked for; the plain one first. None where samples are given, or nothing could draw."""
    from ..evaluation import sweep

    if model is None or chosen.samples:
        return []
    own = {name: value for name, value in dataclasses.asdict(chosen.options).items() if value is not None}
    base = sweep.Way(chosen.sampler or "", chosen.steps, chosen.temperature, chosen.top_p, own)
    base = sweep.settled(model, base, chosen.length)
    usual = chosen.frontier and not (chosen.temperatures or chosen.top_ps)
    temperatures = sweep.TEMPERATURES if usual else chosen.temperatures
    ways = [base, *sweep.along(base, temperatures, sweep.TOP_PS if usual else chosen.top_ps)]
    if chosen.calls:
        ways += sweep.calls(model, base, chosen.calls, chosen.samplers)
    return sweep.different(sweep.settled(model, way, chosen.length) for way in ways)


def draw(chosen: Any, model: Any, ways: "list[Way]", folder: Path | None, terminal: Terminal) -> "list[Set]":
    """A set for each way, written into the folder."""
    from ..evaluation import sweep

    sets: list[Set] = []
    classes = classes_of(chosen, model)
    with Bar(terminal, "sample", 1, "steps") as bar:
        before, every = 0, chosen.count * sum(way.steps or 1 for way in ways)
        for way in ways:
            show = lambda done, _, before=before: bar.update(before + done, total=every)  # noqa: E731
            sets.append(
                sweep.draw_samples(model, way, chosen.count, chosen.seed, chosen.length, chosen.batch, show, classes)
            )
            before += chosen.count * (way.steps or 1)
    if folder is not None and ways:  # before they are judged, which may take longer
        from ..files import make, write_file

        make(folder)
        write_file(samples_file(folder, chosen), sweep.samples_as_lines(sets))
    return sets


DRAWN = (  # choices that make the samples, and those that make of them the numbers
    "count", "sampler", "steps", "temperature", "top_p", "length", "frontier", "temperatures", "top_ps", "calls", "samplers",
    "classes", "seed",
)  # fmt: skip
READ = ("samples", "tokens", "first", "eos", "long", "context", "reference", "mauve", "features", "distances", "cheats")
NAME = "generate"  # of the files: generate.jsonl, generate-JUDGE.json (or -images), .md, -frontier.svg, -calls.svg


def samples_file(folder: Path, chosen: Any) -> Path:
    """The file of the samples that were drawn by these choices."""
    return folder / f"{NAME}{_suffix(chosen, DRAWN)}.jsonl"


def arguments(chosen: Any, data: Data | None) -> dict[str, Any]:
    """The options as the JSON has them; "data" is None where it is the run's own."""
    of_data = None if data is None else dataclasses.asdict(data)
    return {"mode": NAME} | dataclasses.asdict(chosen) | {"data": of_data}


def as_document(
    chosen: Any, arguments: dict[str, Any], model: Any, judge: "Judge", result: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """The result as JSON; `result` as `generate.measured` has it."""
    from ..evaluation import metrics, sweep
    from ..models.model import identity, which_weights

    measured = result["points"][0]["measures"]
    whose = "the model's tokens" if model is not None else "the judge's tokens, where samples come without"
    protocol = {
        "name": sweep.PROTOCOL, "judge": judge.about,
        "judged": "the samples' own tokens" if chosen.tokens == "own" else "decoded, then tokenized by the judge's tokenizer",
        "draws": sweep.DRAWS if not chosen.samples else f"samples of {chosen.samples}",
        "network": None if model is None else model.method.precision,
        "weights": None if model is None else which_weights(model), **metrics.definitions(measured),
        **({} if result["compared"] is None else {"compared": result["compared"]}),
        "measured on": whose, "streams": "sample i of every set has the stream of (seed, i)",
    }  # fmt: skip
    protocol |= told_classes(chosen, model)
    interval = metrics.intervals(measured)
    interval += f"; {sweep.MATCHED_INTERVAL}" if result["matched"] is not None else ""
    about: dict[str, Any] = {}
    if model is not None:
        about = identity(model) | {"length": chosen.length or int(model.method.shape[0])}
    return json_record(
        "evaluate", arguments, result | {"about": about},
        interval={"level": 0.95, "method": interval}, unit="perplexity per token of the judge", kind="samples",
        protocol=protocol, seed=chosen.seed, seconds=seconds,
    )  # fmt: skip


def _suffix(chosen: Any, names: tuple[str, ...]) -> str:
    """What the files' names in a run say of these choices, those that are not the default's; in a folder of one's own nothing."""
    if chosen.out is not None:
        return ""
    values = {name: getattr(chosen, name) for name in names}
    values = {name: value for name, value in values.items() if value != getattr(type(chosen), name)}
    if "count" in names:
        values |= dataclasses.asdict(chosen.options)
    if "distances" in values:
        values["no_distances"] = not values.pop("distances")
    if "samples" in values:
        values["samples"] = Path(values["samples"]).stem
    return file_suffix(**values)


def publish(terminal: Terminal, folder: Path | None, document: dict[str, Any], chosen: Any, drawn: bool) -> None:
    """Print the result, and write it into the folder, if there is one."""
    from .generate_print import describe

    lines = describe(document)
    for line in lines:
        terminal.result(line)
    if folder is not None:
        for line in write(folder, document, lines, chosen, drawn):
            terminal.result(line)


def write(folder: Path, document: dict[str, Any], lines: list[str], chosen: Any, drawn: bool) -> list[str]:
    """The JSON, the table and the figures; the lines that say so."""
    from ..files import make, write_file
    from ..report import sweep as figures
    from .generate_print import of_cheats, tables

    points, real = document["result"]["points"], document["result"]["real"]
    judge = Path(document["protocol"]["judge"]["judge"]).name if "judge" in document["protocol"] else ""
    stem = f"{NAME}-{judge or 'images'}{_suffix(chosen, DRAWN + READ)}"
    make(folder)
    written = [folder / f"{stem}.json"]
    write_file(written[0], as_file(document))
    if len(points) > 1 or document["result"].get("cheats"):
        body = [f"# {chosen.run or chosen.samples}", ""]
        for title, (head, *rows) in [*tables(document), *of_cheats(document)]:
            body += [
                *([f"## {title}", ""] if title else []),
                *(f"| {' | '.join(r)} |" for r in (head, ["---"] * len(head), *rows)),
                "",
            ]
        write_file(folder / f"{stem}.md", "\n".join([*body, "```text", *lines, "```"]) + "\n")
        written.append(folder / f"{stem}.md")
    for by in ("frontier", "calls"):
        figure = figures.sweep_figure(points, real, by, judge or document["protocol"]["features"]["name"])
        if figure is not None:
            written.append(folder / f"{stem}-{by}.svg")
            drawn_as = io.StringIO()
            figure.savefig(drawn_as, format="svg", metadata={"Date": None})
            write_file(written[-1], drawn_as.getvalue())
    out = [f"  written   {'   '.join(map(path, written))}"]
    if drawn:
        samples = path(samples_file(folder, chosen))
        other = "--judge" if judge else "--features"
        out.append(f"  again     zellige evaluate {path(chosen.run)} --generate --samples {samples} {other} ...")
    return out
