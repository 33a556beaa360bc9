"""Makes of a finished run a model that comes with Zellige: averaged weights in float16, sampling defaults, the log of the
training, and a card of what its commands print.

    python studies/included-models/ship.py runs/mnist mnist --data mnist    # RUN NAME --data PATH

NAME is one of MODELS below. The model goes into src/zellige/models/shipped/NAME; there the commands of its card are run, in an
empty folder, on the weights that ship, and what they print is the card: nothing in it is written by hand but what MODELS says of
the data. PATH, the data, stays where it is. A card is made again with --card-only NAME --data PATH; if a change of the code has
changed what models sample, or MODELS their sampling defaults, --samples-only NAME makes only the samples again, which needs no
data.
"""

import argparse
import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import zellige
from zellige import cli
from zellige.base.files import write_folder
from zellige.data import DATASETS
from zellige.models import shipped
from zellige.models.checkpoint.write import write_checksums
from zellige.models.defaults import write_defaults
from zellige.models.model import load, write_model
from zellige.show.numbers import byte_size, columns, count, parameters

SEEDS = range(16)
LOGGED = (
    "step",
    "seconds",
    "tokens",
    "loss",
    "unit",
    "rate",
    "gradient_norm",
    "validation",
    "validation_low",
    "validation_high",
)


@dataclasses.dataclass(frozen=True)
class Shipped:
    """What the card says that no run knows, and which commands it shows; {data} is the field of that name.

    text: what the model writes; of: the data, where it is from, its licence; data: how it is handed over, $DATA being the path,
        "" if it comes with Zellige.
    before: which trainings it began with, in words.
    options: its sampling defaults, `infill` their different values for filling in, `advice` what to know of them.
    once: the commands beside evaluate; seeded: those run for each of SEEDS.
    """

    text: str
    of: str
    data: str
    options: str
    infill: str = ""
    once: tuple[str, ...] = ()
    seeded: str = ""
    bracket: str = "--limit 4 --numbers 1 16 --own 2 --batch 256"
    evaluate: str = "--draws 4"
    advice: str = ""
    before: str = ""


SHEET = "zellige sample {name} --count 16 --seed 0 --out samples.png"
TEXTS = "zellige sample {name} --seed {seed}"
STORIES = (
    "TinyStories (Eldan and Li 2023), short stories in simple English that GPT-3.5 and GPT-4 wrote: 14,872 of the training "
    "stories. Licence: CDLA-Sharing-1.0. $DATA is a text file of 1,260 stories of its validation split, blank lines between "
    "them. Other stories of the same data set come with Zellige, as the data set `stories`"
)
STORY_DATA = "--data.path $DATA --data.test $DATA --data.documents blank"
MODELS = {
    "stories": Shipped(
        "short stories for children in English",
        STORIES,
        STORY_DATA,
        "--block-sampler confidence --confidence entropy --temperature 0.4 --top-p 0.9 --best-of 8",
        infill="--temperature 0.7 --best-of 32",
        seeded=TEXTS,
        bracket="",
        before="5,252 steps at a constant rate (2.5 of these hours), with which the log and the learning curve begin",
    ),
    "stories-mdlm": Shipped(
        "missing words of a short story",
        STORIES,
        STORY_DATA,
        "--sampler confidence --confidence entropy --steps 256 --temperature 0.7 --top-p 0.9",
        once=(
            'zellige infill {name} "One day, Lily went to the park.________ She was very happy." --count 3 --seed 0',
        ),
        bracket="",
        before="5,252 steps in blocks of 4 at a constant rate (2.5 hours): the log of `stories` begins with them",
    ),
    "mnist": Shipped(
        "digits of 28 x 28 pixels, by class",
        "MNIST (LeCun and Cortes). Licence: CC BY-SA 3.0. $DATA is a folder with the official .gz files",
        "--data.name mnist --data.path $DATA --data.labels",
        "--steps 250 --temperature 0.9 --guidance 2",
        once=(
            "zellige sample {name} --class 0 1 2 3 4 5 6 7 8 9 --count 4 --steps 250 --no-defaults --seed 0 --out classes.png",
            SHEET,
        ),
        bracket="--limit 2 --numbers 1 4 --per-step 49 --own 1",
        evaluate="--draws 2 --limit 1000",
        advice="Guidance is for samples of a class. The bounds below are of the model without these two.",
    ),
    "chorales": Shipped(
        "four-part chorales in Bach's manner",
        "Bach's chorales as four pitches a sixteenth (Jsb16thSeparated.json of github.com/czhuang/JSB-Chorales-dataset, split of "
        "Boulanger-Lewandowski 2012). Licence: the music is in the public domain, the file names none. $DATA is that file",
        "--data.name jsb-chorales --data.path $DATA --data.size 64",
        "--steps 256 --temperature 0.9",
        once=(SHEET,),
        bracket="--limit 2 --numbers 1 4 --own 1",
    ),
    "sudoku": Shipped(
        "solved Sudokus of 9 x 9; solves yours",
        "6,137 puzzles with their solutions. Licence: facts. $DATA is a .csv with the columns puzzle and solution",
        "--data.name sudoku --data.path $DATA --data.size 9",
        "--sampler confidence --confidence entropy --steps 81 --temperature 0.7 --symmetries 8",
        infill="--temperature 0",
        once=(
            "zellige evaluate {name} {data} --data.given puzzle --draws 16",
            "zellige infill {name} 53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
            SHEET,
        ),
        evaluate="--draws 16",
        advice="The average over eight symmetric copies solves more puzzles than the network alone, of which the bounds and the "
        "solved fractions below are: first of whole grids, then of a solution given its puzzle.",
        before="30,000 steps of 16 on whole grids (1.1 hours), then 2,000 and 11,000 of 32 on puzzles (2.5 hours on a busy "
        "machine), all with five of the eight layers (the run sud4)",
    ),
    "nouns": Shipped(
        "characters of 32 x 32 pixels in colour, by head",
        "Nouns: pictures composed of the parts of nouns.wtf, which come with Zellige as the data set `nouns`. Licence: CC0",
        "",
        "--sampler remasking --remasking loop --steps 1024 --t-on 0.3 --eta 0.04 --top-p 0.9",
        once=(
            SHEET,
            "zellige sample {name} --class banana bear robot whale --count 4 --seed 0 --out heads.png",
            "zellige infill {name} --example 0 --keep head,glasses --count 8 --seed 0 --out bodies.png",
        ),
        bracket="",
        evaluate="--draws 2 --limit 1000",
        advice="Once most pixels are visible, each step masks some of them again, so that mistakes are repaired. Without a class "
        "86 of 100 pictures are right at every pixel. The fractions below are of `--sampler ancestral --steps 256 "
        "--temperature 1`.",
        before="33,516 steps (3.2 of these hours), with which the log and the learning curve begin",
    ),
    "molecules": Shipped(
        "small molecules of C, N, O and F",
        "QM9 (Ramakrishnan et al. 2014), 133,885 molecules, as SELFIES. Licence: CC0. $DATA is a .csv with the column smiles",
        "--data.name qm9 --data.path $DATA",
        "--sampler first_hitting",
        seeded=TEXTS,
        evaluate="--draws 4 --limit 2000",
    ),
}
PLACES = {  # of $DATA in a folder of data that is laid out like shared/data
    "stories": "simple-stories/tinystories-validation.txt.xz",
    "stories-mdlm": "simple-stories/tinystories-validation.txt.xz",
    "mnist": "mnist",
    "chorales": "jsb-chorales/Jsb16thSeparated.json.xz", "sudoku": "sudoku/sudoku9_pairs.csv.xz",
    "molecules": "molecules/qm9_smiles.csv.xz",
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ the weights
def put(run: str, name: str, path: str) -> None:
    """Write the model of a run and its log into its place, in float16, and without a path of this machine."""
    model, source = load(run), Path(run)
    config, about = model.config, json.loads(json.dumps(model.about))
    data = dataclasses.replace(config.data, path=None, validation=None, test=None, cache=None)
    config = dataclasses.replace(config, data=data, run="")
    about["data"]["files"] = [Path(file).name for file in about["data"].get("files") or []]
    if path and about.get("command"):
        about["command"] = about["command"].replace(path, "$DATA")
    about["seconds"], about["curve"] = curve(source)
    own = {n for n, p in model.method.named_parameters() if p.dtype == torch.float32}
    tensors = {n: half(n, t) if n in own else t for n, t in model.method.state_dict().items()}

    def fill(folder: Path) -> None:
        write_model(folder, tensors, model.tokenizer, config, about)
        (folder / shipped.LOG).write_text(log(source), encoding="utf-8")

    write_folder(shipped.FOLDER / name, fill)
    for file in (shipped.FOLDER / name).glob("*.safetensors"):
        file.chmod(0o644)  # safetensors lets nobody else read it


def half(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in float16; an error where a number is too large for it."""
    made = tensor.half()
    if not bool(made.isfinite().all()):
        raise SystemExit(f"{name} holds {float(tensor.abs().max()):g}, which float16 does not; ship float32")
    return made


def metrics(run: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv."""
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def evenly(amount: int, most: int) -> list[int]:
    """Which of `amount` rows to keep: all of them, or `most`, evenly spaced, the first and the last among them."""
    most = min(amount, most)
    return [round(i * (amount - 1) / max(most - 1, 1)) for i in range(most)]


def curve(run: Path, most: int = 12) -> tuple[float, list[list[float]]]:
    """How many seconds a run took, and its validations: (step, bound, half of its interval), some of them."""
    rows = metrics(run)
    each = [
        [int(r["step"]), float(r["validation"]), (float(r["validation_high"]) - float(r["validation_low"])) / 2]
        for r in rows if r["validation"]
    ]  # fmt: skip
    return float(rows[-1]["seconds"]), [each[i] for i in evenly(len(each), most)]


def log(run: Path, most: int = 200) -> str:
    """metrics.csv of a run, thinned: `most` rows, evenly spaced, and every one with a validation; five digits of a number."""
    rows = metrics(run)
    kept = {*evenly(len(rows), most)} | {i for i, row in enumerate(rows) if row["validation"]}
    digits = lambda text: f"{float(text):.5g}" if re.fullmatch(r"-?\d*\.\d+(e[+-]\d+)?", text) else text  # noqa: E731
    lines = [LOGGED, *([digits(rows[i][name]) for name in LOGGED] for i in sorted(kept))]
    return "".join(",".join(line) + "\n" for line in lines)


# -------------------------------------------------------------------------------------------------------------- the card
def commands(name: str) -> list[str]:
    """The commands of a card."""
    of = MODELS[name]
    every = [f"zellige evaluate {{name}} {'{data} ' if of.data else ''}{of.evaluate}"]
    every += [f"zellige evaluate {{name}} {{data}} --bracket {of.bracket}"] if of.bracket else []
    every += of.once
    lines = [line.format(name=name, data=of.data) for line in every]
    return lines + [of.seeded.format(name=name, seed=seed) for seed in SEEDS if of.seeded]


def executed(command: str, data: str) -> tuple[str, dict[str, Any]]:
    """What a command of a card prints, and its numbers; in the working directory, `data` for $DATA."""
    words = [word.replace("$DATA", data) for word in shlex.split(command)[1:]]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main([*words, "--json", ".result.json"])
    if code:
        raise SystemExit(f"{command} ended with {code}")
    result = json.loads(Path(".result.json").read_text(encoding="utf-8"))["result"]
    return printed.getvalue().rstrip("\n"), numbers(result, drawn="--out" in words)


def numbers(result: dict[str, Any], drawn: bool) -> dict[str, Any]:
    """What of a command's result must be the same when it is run again; of samples in a picture their checksum."""
    if "samples" in result:
        texts = [sample["text"] for sample in result["samples"]]
        return {"sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest()} if drawn else {"samples": texts}
    if "rows" in result:
        return {row["name"]: row["result"]["value"] for row in result["rows"] if row.get("result")}
    return {"value": result["value"]} | {task: share["value"] for task, share in result.get("tasks", {}).items()}


@contextlib.contextmanager
def empty_folder(data: str):
    """In an empty working directory: no folder there is in the way of a name, and nothing is left behind."""
    here, data = os.getcwd(), str(Path(data).resolve()) if data else ""
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            yield data
        finally:
            os.chdir(here)


def copy_pictures(folder: Path) -> None:
    """Copy the pictures that the commands wrote, with at most 256 colours, so that the package stays small."""
    for picture in Path().glob("*.png"):
        Image.open(picture).convert("RGB").quantize(256).save(folder / picture.name, optimize=True)


def write_card(name: str, data: str) -> None:
    """Run the commands of a model's card, and write it: README.md, card.json, pictures, checksums."""
    folder, of = shipped.FOLDER / name, MODELS[name]
    model = load(folder)
    amount = sum(p.numel() for p in model.method.parameters())
    write_defaults(folder, defaults(of))
    model_files = {file for file in folder.iterdir() if file.suffix in (".safetensors", ".json")} - {
        folder / shipped.CARD
    }
    weight = sum(file.stat().st_size for file in model_files)
    size = f"{parameters(amount).split()[0]}, {byte_size(weight)}"
    entry = {"what": of.text, "method": model.config.method, "size": size, "test": ""}
    save(folder, entry | {"runs": []})  # from here on the name is one
    runs, shown = [], []
    with empty_folder(data) as path:
        for command in commands(name):
            began = time.perf_counter()
            printed, values = executed(command, path)
            runs.append({"command": command, "seconds": round(time.perf_counter() - began, 1), "numbers": values})
            shown.append((command, re.sub(re.escape(path), "$DATA", printed) if path else printed))
        copy_pictures(folder)
    entry["test"] = next(
        line.split("   ")[0].strip() for line in shown[0][1].splitlines() if re.match(r"  [≤=] ", line)
    )
    if per := re.search(r"^  ([≤=] .* bits/char) \(95%\)", shown[0][1], re.M):
        entry["test"] = per[1]
    entry["test"] = entry["test"].replace(" (95%)", "")
    (folder / "README.md").write_text(page(name, model, size, shown), encoding="utf-8")
    save(folder, entry | {"runs": runs})


def write_samples(name: str) -> None:
    """Write the sampling defaults, run the commands of a card that sample, and put what they print and draw in the place of
    what stands there."""
    folder = shipped.FOLDER / name
    write_defaults(folder, defaults(MODELS[name]))
    write_checksums(folder)
    card = json.loads((folder / shipped.CARD).read_text(encoding="utf-8"))
    text = (folder / "README.md").read_text(encoding="utf-8")
    text = re.sub("^Comes with Zellige: .*$", lambda _: introduction(name), text, flags=re.MULTILINE)
    with empty_folder(""):
        for run in card["runs"]:
            if not run["command"].startswith("zellige evaluate "):
                began = time.perf_counter()
                printed, run["numbers"] = executed(run["command"], "")
                run["seconds"] = round(time.perf_counter() - began, 1)
                begin = f"```text\n$ {run['command']}\n"
                head, _, rest = text.partition(begin)
                rest = f"\n{rest}".partition("\n```")[2]  # what follows the old block
                text = head + begin + "".join(f"{line}\n" for line in printed.splitlines()) + "```" + rest
        copy_pictures(folder)
    (folder / "README.md").write_text(text, encoding="utf-8")
    save(folder, card)


def defaults(of: Shipped) -> dict[str, Any]:
    """The sampling defaults of a model."""
    return options(of.options) | ({"infill": options(of.infill)} if of.infill else {})


def options(text: str) -> dict[str, Any]:
    """`--steps 64 --sampler x` as the arguments of `zellige.sample`."""
    words = shlex.split(text)
    read = lambda word: json.loads(word) if re.fullmatch(r"[\d.]+", word) else word  # noqa: E731
    return {flag[2:].replace("-", "_"): read(word) for flag, word in zip(words[::2], words[1::2])}


def save(folder: Path, card: dict[str, Any]) -> None:
    (folder / shipped.CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_checksums(folder)


def page(name: str, model: Any, size: str, shown: list[tuple[str, str]]) -> str:
    """README.md: what it is, how it was trained, and each command with what it printed."""
    of, config, about = MODELS[name], model.config, model.about
    splits = about["data"]["splits"]
    sums = about["data"].get("sha256")
    sums = sums if isinstance(sums, dict) else {"": sums}
    amounts = [f"{split} {count(s['rows'])} rows of {count(int(model.method.shape[0]))}" for split, s in splits.items()]
    versions = about["versions"]
    facts = {
        "writes": of.text,
        "method": f"{config.method}, `{json.dumps(dataclasses.asdict(config.options))}`",
        "network": f"{size} in float16 (computed in float32); `{json.dumps(changed(config.net))}`",
        "tokens": about["data"]["tokenizer"]["what"] if "tokenizer" in about["data"] else model.tokenizer.name,
        "data": of.of,
        "its size": ", ".join(amounts),
        "its sha256": ", ".join(f"{split} `{one}`".lstrip() for split, one in sums.items()),
        "trained": f"{count(about['step'])} steps of {config.train.batch} rows, seed {config.train.seed}, averaged weights"
        f" ({config.train.ema:g}), {about['seconds'] / 3600:.2f} hours",
        **({"after": of.before} if of.before else {}),
        "on": f"{config.train.device}, {versions['platform']}, torch {versions['torch']}, Zellige {versions['zellige']}",
        "by": f"`{about['command']}`",
        "licence": "Apache-2.0, of the weights and of Zellige",
    }
    what = DATASETS[config.data.name]
    head = [
        "---",
        "library_name: zellige",
        "license: apache-2.0",
        f"tags: [discrete-diffusion, {config.method}]",
        "---",
        "",
    ]
    lines = [*head, f"# {name}", "", introduction(name)]
    lines += ["Written by `studies/included-models/ship.py` from the run and from what the commands below print.", ""]
    lines += ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items()), ""]
    if about["curve"]:
        rows = [(count(int(step)), f"≤ {value:.3f} ± {half:.3f}") for step, value, half in about["curve"]]
        unit = f"validation, {model.unit}"
        lines += ["## Learning curve", "", "```text", *columns([("step", unit), *rows], ">>"), "```", ""]
    if (shipped.FOLDER / name / shipped.LOG).is_file():
        lines += [f"Loss, learning rate, gradient norm and time, step by step: [{shipped.LOG}]({shipped.LOG}).", ""]
    fetched = ", or leave the --data.* out, and the files are downloaded" if what.needs != "`data.path`" else ""
    path = "" if what.needs == "nothing" else f"; put the path for $DATA{fetched}"
    lines += ["## Numbers and samples", "", f"In an empty folder{path}.", ""]
    lines += ["Samples are those of the seeds beside them, all of them, none chosen by a person.", ""]
    for command, printed in shown:
        lines += ["```text", f"$ {command}", *printed.splitlines(), "```", ""]
        if picture := re.search(r"--out (\S+\.png)", command):
            lines += [f"![What this command wrote]({picture[1]})", ""]
    return "\n".join([*lines, f"Zellige {zellige.__version__}."]) + "\n"


def introduction(name: str) -> str:
    """The first line of a card: how the model is used and sampled."""
    of = MODELS[name]
    given = f", and filled in with `{of.infill}`" if of.infill else ""
    sampled = f"Sampled by its defaults: `{of.options}`{given}."
    return f'Comes with Zellige: `zellige sample {name}`, `zellige.load("{name}")`. {sampled} {of.advice}'.rstrip()


def changed(net: Any) -> dict[str, Any]:
    """The entries of a network that are not the default's."""
    return {f.name: v for f in dataclasses.fields(net) if (v := getattr(net, f.name)) != f.default}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--data", default="", help="what $DATA stands for in the commands")
    parser.add_argument("--card-only", action="store_true", help="of the weights that are there")
    parser.add_argument("--samples-only", action="store_true", help="only its samples, of the weights that are there")
    chosen = parser.parse_args(words)
    if chosen.samples_only:
        write_samples(chosen.name)
        return
    if chosen.run and not chosen.card_only:
        put(chosen.run, chosen.name, chosen.data)
    write_card(chosen.name, chosen.data)
    print(shipped.FOLDER / chosen.name / "README.md")


if __name__ == "__main__":
    main()
