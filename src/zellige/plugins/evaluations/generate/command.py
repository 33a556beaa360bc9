"""`zellige evaluate MODEL --generate`: samples of text or images, judged; along temperature and top-p,
or network evaluations."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zellige.base.errors import InputError
from zellige.base.files import file_suffix, make, writable, write_file
from zellige.base.requests import declared, inline, option
from zellige.cli.common import Loading, OfModel, SamplerOptions, load, run_folder, typed_data
from zellige.cli.evaluate_again import Mode
from zellige.data import Data
from zellige.show.numbers import as_markdown, path
from zellige.show.record import as_file
from zellige.show.terminal import Terminal

from .request import EvaluateSamples

if TYPE_CHECKING:
    from .sample_sets import Set
    from .samples import SamplesRecord

NAME = "generate"  # of the files: generate.jsonl, generate-JUDGE.json (or -images), .md, -frontier.svg, -calls.svg
DRAWN = (  # options that make the samples, and those that make of them the numbers
    "count", "sampler", "steps", "temperature", "top_p", "length", "frontier", "temperatures", "top_ps", "calls", "samplers",
    "classes", "guidance", "guidances", "seed", "prompt_tokens", "suffix_tokens", "samples_per_text",
    "best_of", "symmetries",
)  # fmt: skip
READ = (
    "judge", "samples", "tokens", "first", "eos", "long", "context", "reference", "mauve", "features", "distances", "cheats",
)  # fmt: skip


@declared
class GenerateOptions(OfModel):
    usage = "RUN --generate [options]"
    shown = (
        "judge count steps sampler temperature top-p length frontier calls samplers prompt-tokens samples "
        "reference features mauve data.path out seed"
    )

    request: EvaluateSamples = inline(default=EvaluateSamples())
    options: SamplerOptions = inline(default=SamplerOptions())
    data: Data = option("what to evaluate (default: the data of the run)", default=Data(), of_run=True)
    out: str | None = option(
        "folder for the samples and results (default: the run's); generate.jsonl, generate-JUDGE.json, .md and figures",
        default=None,
    )


def generate(chosen: GenerateOptions, words: Sequence[str], terminal: Terminal, folder: Path | None) -> "SamplesRecord":
    """The record of what is asked for; the samples that are drawn are written before they are judged."""
    request = chosen.request
    if not (chosen.run or request.samples):
        raise InputError("--generate needs a run, or --samples FILE; e.g. zellige evaluate runs/demo --generate")
    model = load(terminal, chosen.run, "evaluate", chosen) if chosen.run else None
    if model is not None:
        request = replace(request, data=typed_data(chosen, words, model.config.data) or request.data)
    options = {name: value for name, value in asdict(chosen.options).items() if value is not None}
    request = replace(request, options={**(request.options or {}), **options} or None)
    keep = None if folder is None else partial(write_samples, folder / samples_name(request, chosen))
    return replace(request, terminal=terminal, device=_device(chosen), keep=keep).run(model)


def _device(chosen: Loading) -> str:
    """Where the judge works when there is no model."""
    import torch

    return "cuda" if chosen.device == "cuda" or (chosen.device == "auto" and torch.cuda.is_available()) else "cpu"


def samples_folder(chosen: GenerateOptions) -> Path | None:
    """Where the files go; None: nowhere. InputError where nothing can be written."""
    if chosen.out is None:
        return run_folder(chosen.run) if chosen.run else None
    folder = Path(chosen.out)
    if folder.is_file():
        raise InputError(f"'{chosen.out}' is a file; --out needs a folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"no folder '{folder.parent}' for --out {chosen.out}; make it first")
    writable((folder if folder.is_dir() else folder.parent) / NAME)
    return folder


# ---------------------------------------------------------------------------------------------------- files
def samples_name(request: EvaluateSamples, chosen: GenerateOptions) -> str:
    """The name of the file of the samples that were drawn by these options."""
    return f"{NAME}{_suffix(request, chosen, DRAWN)}.jsonl"


def _suffix(request: EvaluateSamples, chosen: GenerateOptions, names: tuple[str, ...]) -> str:
    """Part of the names of files in a run for the options that differ from the defaults; "" with --out."""
    if chosen.out is not None:
        return ""
    values = request.changed(*names)
    values |= {"top_k": request.top_k, **(request.options or {}), "block": chosen.block}
    if chosen.precision != "float32":
        values["precision"] = chosen.precision
    if (judge := values.pop("judge", "")) != Path(judge).name:  # the last part stands in front
        values["judge"] = judge
    if "distances" in values:
        values["no_distances"] = not values.pop("distances")
    if request.data is not None:
        from zellige.models.model import fingerprint

        values["data"] = (request.data.name, fingerprint(asdict(request.data))[:8])
    return file_suffix(**values)


def write_samples(file: Path, sets: "Sequence[Set]") -> None:
    """Write the samples that were drawn."""
    from .sample_sets import samples_as_lines

    make(file.parent)
    write_file(file, samples_as_lines(sets))


def generate_lines(record: "SamplesRecord") -> list[str]:
    """The lines that are printed."""
    from .printing import describe_samples

    return describe_samples(record)


def save_samples(record: "SamplesRecord", folder: Path, terminal: Terminal, chosen: GenerateOptions) -> None:
    """Write the JSON, the table and the figures, and name them."""
    from zellige import report

    from .printing import describe_samples, of_cheats, tables

    request: Any = record.request
    stem = f"{NAME}-{record.judge}{_suffix(request, chosen, DRAWN + READ)}"
    make(folder)
    files = [folder / f"{stem}.json"]
    write_file(files[0], as_file(record.to_dict()))
    if len(record.points) > 1 or record.cheats:
        body = [f"# {chosen.run or request.samples}", ""]
        for title, rows in [*tables(record), *of_cheats(record)]:
            body += [f"## {title}", ""] if title else []
            body += [as_markdown(rows), ""]
        files.append(folder / f"{stem}.md")
        write_file(files[-1], "\n".join([*body, "```text", *describe_samples(record), "```"]) + "\n")
    features = record.protocol.features
    for by in ("frontier", "calls"):
        figure = report.sweep_figure(
            record.points, record.real, by, record.judge if features is None else features.name
        )
        if figure is not None:
            files.append(folder / f"{stem}-{by}.svg")
            write_file(files[-1], report.as_svg(figure))
    terminal.result(f"  written   {'   '.join(map(path, files))}")
    if not request.samples:
        samples = path(folder / samples_name(request, chosen))
        option = "--features" if record.of_images else "--judge" if record.of_texts else "--reference"
        terminal.result(f"  again     zellige evaluate {path(chosen.run)} --generate --samples {samples} {option} ...")


GENERATE = Mode(
    EvaluateSamples,
    GenerateOptions,
    "evaluate --generate",
    "Quality of samples: perplexity and entropy, or FID.",
    generate,
    generate_lines,
    save_samples,
    samples_folder,
    early=True,
)
