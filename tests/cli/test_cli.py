"""The command line: what is typed, what comes on which stream, with which exit code."""

import dataclasses
import html
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file, save_file

import zellige
from testing.small import RECORD
from zellige import cli
from zellige.base.errors import InputError
from zellige.base.requests import check_fields, declared, inline, option
from zellige.cli import COMMANDS, common, flags, help, meanings, options, tables
from zellige.cli.common import idle_seed
from zellige.cli.drawing import described
from zellige.cli.evaluate import EVALUATIONS, TRAIN
from zellige.cli.evaluate_again import Mode
from zellige.evaluation.result import Result, fullest
from zellige.models import hub
from zellige.models.checkpoint.write import write_checksums
from zellige.models.config import FORMAT
from zellige.plugins.kinds.molecules.smiles import is_molecule
from zellige.samplers.pairing import CONTINUOUS
from zellige.sampling import choices
from zellige.show.terminal import Terminal

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_tools"))

import lists  # pyright: ignore[reportMissingImports]

TEXT = "the value of the object is returned by the function and it is the name of a class "
SMALL = "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 32 --train.batch 4 --train.samples 1 --train.validate-rows 8"

BY_DEFAULT = (
    "with the model's defaults --sampler confidence --confidence entropy --temperature 0.7 --top-p 0.9 (--no-defaults ignores "
    "them)"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text, and what `zellige train` said while it made runs/a there."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "notes.txt").write_text(TEXT * 600)
    cache = tmp_path_factory.mktemp("cache")
    environ = os.environ | {"ZELLIGE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = f"train mdlm --run runs/a --data.name text --data.path notes.txt {SMALL} --train.steps 6 --train.validate-every 3"
    done = subprocess.run(
        [sys.executable, "-m", "zellige", *shlex.split(command), "--seed", "5", "--json", "train.json"],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done, environ


@pytest.fixture
def run(place, monkeypatch, capsys):
    """Run a command in that folder: (code, stdout, stderr)."""
    folder, _, environ = place
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ZELLIGE_CACHE", environ["ZELLIGE_CACHE"])

    def call(command: str):
        code = cli.main(shlex.split(command))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_help_fits_80_columns_and_names_every_command(capsys):
    for text in (help.commands(), help.TRAIN):
        assert all(len(line) <= 80 for line in text.splitlines())
    named = re.findall(r"^  (\w+)  ", help.commands(), re.M)
    assert sorted(named) == sorted(COMMANDS.names())
    assert [name for name in zellige.METHODS if not re.search(rf"\b{name}\b", help.TRAIN)] == []
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"zellige {zellige.__version__}\n"


def test_the_short_help_counts_what_it_leaves_out(capsys):
    """An option that changes nothing is not shown; what else there is stands in the whole help."""
    said = {}
    for command in ("list", "report", "verify", "sample"):
        assert cli.main([command, "-h"]) == 0
        said[command] = capsys.readouterr().out
    assert "--seed" not in said["list"]
    assert said["list"].splitlines()[-1] == said["report"].splitlines()[-1] == "in full: --help-all"
    assert re.search(r"^all \d\d options, in full: --help-all$", said["sample"], re.M)


@declared
class Idling:
    seed: int = idle_seed()
    other: int = idle_seed()
    dropout: float = option("changes nothing in evaluation", default=0.0)


def test_an_option_is_idle_by_its_mark_and_not_by_its_help():
    shown = help.short(Idling, "try")
    assert "--dropout 0  changes nothing in evaluation" in shown
    assert "--seed" not in shown
    assert "--other" not in shown


def test_the_short_help_of_a_switch_that_is_on_is_negated(capsys):
    assert cli.main(["train", "md4", "-h"]) == 0
    assert re.search(r"^  --no-time +do not condition the network on t$", capsys.readouterr().out, re.M)


PAGES = [
    *COMMANDS.names(), *(f"train {name}" for name in zellige.METHODS), "train --recipe mdlm-owt",
    *(f"evaluate {mode}" for mode in ("--suite zero-shot", "--generate", "--pairs x", "--probe ag_news", "--bracket", "--steps")),
    "evaluate --train-features x", "train classifier", "train speculative", "train distill",
]  # fmt: skip


@pytest.mark.parametrize("command", ["", *PAGES])
def test_the_short_help_fits_a_terminal_and_says_where_the_rest_is(command, capsys):
    pages = []
    for ask in ("-h", "--help"):
        assert cli.main([*command.split(), ask]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        pages.append(out)
    lines = pages[0].splitlines()
    assert pages[0] == pages[1]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= help.COLUMNS
    assert "--help-all" in pages[0] or command == "train"
    assert not [line for line in lines if line.endswith(("...", " .."))]


def test_the_help_of_evaluate_has_a_line_for_each_of_its_modes(capsys):
    assert cli.main(["evaluate", "-h"]) == 0
    named = re.findall(
        r"^  (--[\w-]+(?: --frontier)?)", capsys.readouterr().out.partition("Other evaluations")[2], re.M
    )
    assert sorted(named) == sorted([*(f"--{name}" for name in EVALUATIONS.names()), "--generate --frontier", TRAIN])


@pytest.mark.parametrize("command", PAGES[1:])
def test_the_full_help_has_every_option(command, capsys):
    assert cli.main([*command.split(), "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert cli.main([*command.split(), "-h"]) == 0
    for name in re.findall(r"^  (--[\w.-]+)", capsys.readouterr().out, re.M):
        assert re.search(rf"{name}\b", whole), name


def test_every_option_that_the_short_help_names_is_one():
    classes = forms().values()
    wrong = [
        (c.__name__, word)
        for c in classes
        for word in getattr(c, "shown", "").split()
        if f"--{word}" not in flags.flags(c)
    ]
    assert wrong == []


def test_each_option_is_described_where_it_is_declared():
    from zellige.cli.drawing import SampleOptions

    known = flags.flags(SampleOptions)
    assert known["--prompt"].option.help.startswith("beginning of each sample")
    assert known["--class"].option.help.startswith("class to sample")
    assert "probability of masking a token again" in known["--eta"].option.help  # of a dataclass within


def test_the_full_help_says_of_an_option_what_holds_for_each_sampler_and_no_default_that_is_none(capsys):
    assert cli.main(["sample", "--help-all"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    for said in (
        "tokens drafted in a pass (default: all masks) for blockwise, left_to_right: largest number",
        "at least one (default: the same number in each step) for klass: reveal stable masks",
        "time at which the loop begins (default: 0.55) for psi: time t at which --kappa begins; t falls",
    ):
        assert said in page
    assert "None)" not in page


def test_the_help_of_a_method_is_grouped(capsys):
    assert cli.main(["train", "mdlm", "--help-all"]) == 0
    out = capsys.readouterr().out
    for flag in ("--schedule", "--data.name", "--net.layers", "--train.steps", "--resume", "--run"):
        assert flag in out
    assert [g for g in re.findall(r"(\w+) options\b", out) if g in ("data", "net", "train")] == [
        "data",
        "net",
        "train",
    ]


def test_the_train_page_tells_the_defaults():
    from zellige.training.setup import CPU, SIZES

    assert f"--data.name {zellige.Data().name}," in help.TRAIN
    assert f"--size {CPU} " in help.TRAIN
    *others, last = SIZES
    assert f"{', '.join(others)} or {last}:" in help.TRAIN


# ------------------------------------------------------------------------------------------------------------ options


@partial(check_fields, prefix="net.")
@dataclasses.dataclass(frozen=True)
class Inner:
    layers: int = option(default=6, minimum=1)
    share: float = 0.5
    betas: tuple[float, float] = (0.9, 0.99)


@dataclasses.dataclass(frozen=True)
class Own:
    schedule: Literal["linear", "cosine"] = "linear"


@declared
class Outer:
    own: Own = inline(default=Own())
    net: Inner = Inner()
    what: str = option(default="", argument="WHAT")
    top_p: float = 1.0
    limit: int | None = None
    shift: int = option(default=0, minimum=0)
    resume: bool = False


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Outer()),
        ("x --schedule cosine --net.layers=3", Outer(Own("cosine"), Inner(3), "x")),
        ("--net.betas 0.5 1e-3 x --top-p 0.5", Outer(net=Inner(betas=(0.5, 1e-3)), what="x", top_p=0.5)),
        ("--top_p 0.5 --limit 3 --resume", Outer(top_p=0.5, limit=3, resume=True)),
        ("--limit none --no-resume", Outer()),
    ],
)
def test_options_are_the_dataclasses(words, expected):
    assert options.parse(Outer, words.split(), "try", Terminal()) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["____"], Outer(what="____")),
        (["__ a cat", "--limit", "3"], Outer(what="__ a cat", limit=3)),
        (["--limit", "3", "--", "____"], Outer(what="____", limit=3)),
        (["--", "-- _ cat"], Outer(what="-- _ cat")),
        (["--", "--help"], Outer(what="--help")),
    ],
)
def test_a_text_may_begin_with_gaps_and_after_a_bare_double_dash_with_anything(words, expected):
    """`zellige infill RUN "____"`: gaps were read as dashes."""
    assert options.parse(Outer, options.everywhere(words)[1], "try", Terminal()) == expected


def test_what_stands_after_a_bare_double_dash_is_no_option_of_every_command():
    assert options.everywhere(["a", "--", "--quiet"]) == (options.Everywhere(), ["a", "--", "--quiet"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--net.layer 3", "unknown option '--net.layer' for try; did you mean '--net.layers'?"),
        ("--layers 3", "unknown option '--layers' for try; did you mean '--net.layers'?"),
        ("--schedul cosine", "unknown option '--schedul' for try; did you mean '--schedule'?"),
        ("--zzz", "unknown option '--zzz' for try; see zellige try --help"),
        ("-n 3", "unknown option '-n' for try; flags are whole words (all: zellige try --help)"),
        ("--schedule cosin", "--schedule is 'cosin'; did you mean 'cosine'? it must be linear or cosine"),
        ("--net.layers 0", "`net.layers` is 0; it must be 1 or more"),
        ("--net.layers -2", "`net.layers` is -2; it must be 1 or more"),
        ("--net.layers 2.5", "--net.layers is '2.5'; it must be a whole number of 1 or more"),
        ("--shift -1", "`shift` is -1; it must be 0 or more"),
        ("--net.share much", "--net.share is 'much'; it must be a number"),
        ("--net.betas 0.5", "--net.betas needs 2 values; see zellige try --help"),
        ("--net.layers", "--net.layers needs a value; see zellige try --help"),
        ("--net.layers --resume", "--net.layers needs a value; see zellige try --help"),
        ("--no-shift", "unknown option '--no-shift' for try; did you mean '--shift'?"),
        ("--resume=yes", "--resume takes no value; write --resume or --no-resume"),
        ("a b", "'b' is one argument too many for try; see zellige try --help"),
    ],
)
def test_wrong_options(words, message):
    with pytest.raises(InputError) as error:
        options.parse(Outer, words.split(), "try", Terminal())
    assert str(error.value) == message


def test_fields_are_spelt_as_the_options_of_the_command_that_runs():
    sentence = "`net.layers` 3, `top_p`, `resume=False`, `checksums=False`, `net.length`, 'top_p'"
    terminal = Terminal()
    options.parse(Outer, [], "try", terminal)
    assert terminal.spelled(sentence) == "--net.layers 3, --top-p, --no-resume, --no-checksums, `net.length`, 'top_p'"
    options.parse(Inner, [], "try", terminal)
    assert (
        terminal.spelled(sentence) == "`net.layers` 3, `top_p`, `resume=False`, --no-checksums, `net.length`, 'top_p'"
    )
    assert terminal.spelled("`layers` and `no line`") == "--layers and `no line`"


def _modes() -> list[Mode]:
    modes = [EVALUATIONS[name] for name in EVALUATIONS.names()]
    return [*modes, *(other for mode in modes for other in mode.others.values())]


def forms() -> dict[str, type]:
    """The dataclass of the options of each command, by what is typed."""
    from zellige.cli import (
        demo,
        drawing,
        evaluate,
        lists,
        train,
        tune,
    )
    from zellige.plugins.evaluations.generate import features_command
    from zellige.plugins.published import command as import_export
    from zellige.plugins.report import command as report
    from zellige.plugins.students import command as students
    from zellige.plugins.studies.compare import command as compare
    from zellige.plugins.studies.plan import command as plan
    from zellige.plugins.studies.sweep import command as sweep
    from zellige.plugins.verify import command as verify
    from zellige.plugins.web import command as serve

    made = {f"train {name}": train.form(method) for name, method in zellige.METHODS.items()}
    places = (
        demo,
        evaluate,
        drawing,
        lists,
        report,
        serve,
        sweep,
        verify,
        import_export,
        features_command,
        students,
    )
    for name, each in {name: each for place in places for name, each in vars(place).items()}.items():
        if dataclasses.is_dataclass(each) and isinstance(each, type):
            made[name] = each
    made["compare --samplers"] = compare.samplers_form()
    swept = {
        name: each
        for name, each in made.items()
        if name not in ("Sweep", "Cluster", "Mode", "Picture", "Data", "Net", "Axis", "Flag")
    }  # no forms
    swept["plan"] = plan.form(zellige.METHODS["mdlm"])
    return swept | {
        "compare": compare.form(),
        "sweep": sweep.form(zellige.METHODS["mdlm"]),
        "TuneOptions": tune.form(),
        **{mode.options.__name__: mode.options for mode in _modes()},
    }


def test_how_a_model_is_loaded_is_declared_once():
    loading = [each for each in forms().values() if "compile" in {field.name for field in dataclasses.fields(each)}]
    assert len(loading) > 10
    assert all(issubclass(each, common.Loading) for each in loading)


@pytest.fixture(scope="module")
def switches() -> list[tuple[str, type, flags.Flag]]:
    """Every switch of every command."""
    return [(name, form, f) for name, form in forms().items() for f in flags.flags(form).values() if f.switch]


def test_every_switch_is_turned_on_and_off_in_both_spellings(switches):
    """In a section: --train.no-tensorboard and --no-train.tensorboard."""
    names = {flag.name for _, _, flag in switches}
    assert {
        "--train.tensorboard",
        "--train.compile",
        "--net.checkpoint",
        "--time",
        "--resume",
        "--watch",
        "--show",
    } <= names
    read, seen = {}, set()
    for (name, form), group in itertools.groupby(switches, key=lambda switch: switch[:2]):
        new = [f for *_, f in group if (f.owner, f.name) not in seen]  # what all methods share is read once
        new = [f for f in new if f.name not in ("--net.rescale", "--net.published")]  # both of --net.kind unet alone
        seen |= {(f.owner, f.name) for f in new}
        heads = [(f, *f.name[2:].rpartition(".")) for f in new]
        for words, value in (
            ([f.name for f in new], True),
            ([f"--{section}{dot}no-{leaf}" for _, section, dot, leaf in heads], False),
            ([f"--no-{f.name[2:]}" for f in new], False),
        ):
            parts = list(_parts(options.parse(form, words, name, Terminal())) if words else ())
            for flag, word in zip(new, words):
                at = next((p for p in parts if isinstance(p, flag.owner)), None)
                read[name, word] = at is not None and getattr(at, flag.field) is value
    assert [where for where, right in read.items() if not right] == []


def _parts(chosen):
    """A dataclass and all that are in it."""
    yield chosen
    for field in dataclasses.fields(chosen):
        if dataclasses.is_dataclass(inner := getattr(chosen, field.name)):
            yield from _parts(inner)


def test_every_size_of_a_network_has_a_help(capsys):
    assert cli.main(["train", "mdlm", "--help-all"]) == 0
    whole = capsys.readouterr().out
    for name, flag in flags.flags(zellige.Net).items():
        assert f"--net.{name[2:]}" in whole
        assert len(flag.option.help.split()) > 1, name


def test_the_help_shows_how_a_switch_is_turned_off(capsys):
    assert cli.main(["train", "mdlm", "--help-all"]) == 0
    assert "--train.no-tensorboard" in capsys.readouterr().out


@pytest.mark.long
def test_what_other_programs_call_an_option_is_an_option_of_ours():
    known = {flag for form in forms().values() for flag in flags.flags(form)}
    for table in (meanings.SAME, meanings.NEAR):
        assert {flag for ours in table.values() for flag in ours} <= known
        assert not {f"--{name}" for name in table if f"--{name}" in flags.flags(forms()["train mdlm"])}
    assert not set(meanings.SAME) & set(meanings.NEAR)


@pytest.mark.parametrize(
    ("form", "typed", "ours"),
    [
        ("train mdlm", "--lr 1e-3 --batch_size=8 --max-steps 9", "--train.lr 1e-3 --train.batch=8 --train.steps 9"),
        ("train mdlm", "--train.precision bf16 --lr=1", "--train.precision bfloat16 --train.lr=1"),
        ("train mdlm", "--seq-len 64 --output-dir x --seed 3", "--net.length 64 --run x --train.seed 3"),
        ("SampleOptions", "--num-samples 3 --max-steps 9 --seq-len 7", "--count 3 --steps 9 --length 7"),
        ("SampleOptions", "--output a.txt --seed 3 --batch-size 2", "--out a.txt --seed 3 --batch 2"),
        ("compare", "mdlm md4 --num-samples 3 --lr 1", "mdlm md4 --samples 3 --train.lr 1"),
    ],
)
def test_what_means_the_same_is_taken(form, typed, ours):
    cls = forms()[form]
    assert options.parse(cls, typed.split(), form, Terminal()) == options.parse(cls, ours.split(), form, Terminal())


def test_epochs_are_steps_once_the_data_is_known(run):
    code, _, err = run(
        f"train mdlm --run runs/epochs --data.name text --data.path notes.txt {SMALL} --epochs 0.01 --quiet"
    )
    assert (code, err) == (0, "")
    config = json.loads(Path("runs/epochs/config.json").read_text())
    rows = config["about"]["data"]["splits"]["train"]["rows"]
    assert config["train"]["steps"] == -(-rows // 400)


CHOICES = {
    "method": "md4", "schedule": "cosine", "data": {"path": "notes.txt"},
    "net": {"layers": 1, "hidden": 16, "heads": 2, "length": 32},
    "train": {
        "lr": 1e-3, "max_steps": 2, "batch": 4, "samples": 0, "validate_rows": 4, "tensorboard": False, "betas": [0.8, 0.9],
    },
}  # fmt: skip
TOML = """method = "md4"
schedule = "cosine"
data.path = "notes.txt"
net = {layers = 1, hidden = 16, heads = 2, length = 32}
[train]
lr = 1e-3
max_steps = 2
batch = 4
samples = 0
validate_rows = 4
tensorboard = false
betas = [0.8, 0.9]
"""


def test_a_file_of_options_in_three_forms_and_a_run_are_one(run):
    """Each run has the numbers of the file, and a folder of its own where none is typed; what is typed comes first."""
    shutil.rmtree("runs/md4-notes", ignore_errors=True)
    Path("c.json").write_text(json.dumps(CHOICES))
    Path("c.yaml").write_text(re.sub(r'"(\w+)":', r"\1:", json.dumps(CHOICES)))  # YAML reads 0.001, and 1e-3 as a text
    Path("c.toml").write_text(TOML)
    files = ["c.json", "c.yaml", "c.toml", "runs/md4-notes/config.json"]
    configs = []
    for number, file in enumerate(files, 1):
        assert run(f"train --config {file} --quiet")[0] == 0
        folder = "runs/md4-notes" + (f"-{number}" if number > 1 else "")
        configs.append(json.loads(Path(f"{folder}/config.json").read_text()))
    shared = [{key: c[key] for key in ("method", "options", "data", "net", "train")} for c in configs]
    assert all(each == shared[0] for each in shared)
    assert (shared[0]["options"]["schedule"], shared[0]["data"]["name"]) == ("cosine", "text")
    assert [shared[0]["train"][key] for key in ("lr", "steps", "betas", "tensorboard")] == [
        1e-3,
        2,
        [0.8, 0.9],
        False,
    ]
    assert run("train --config c.toml --quiet --lr 2e-3 --schedule linear --run runs/typed")[0] == 0
    typed = json.loads(Path("runs/typed/config.json").read_text())
    assert (typed["train"]["lr"], typed["options"]["schedule"]) == (2e-3, "linear")


def test_a_number_of_yaml_that_it_calls_a_text_is_a_number(run):
    Path("e.yaml").write_text("train: {lr: 1e-3}")
    known = flags.flags(forms()["train mdlm"])
    assert options.values_of(options.read_entries("e.yaml"), known, [], "e.yaml", "train mdlm") == {
        "--train.lr": "1e-3"
    }


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ([], "tiny"), (["--train.steps", "--net.layers"], "tiny"), (["--train.start"], ""), (["--size"], ""),
    ],
)  # fmt: skip
def test_without_a_gpu_the_smallest_size_unless_one_is_chosen(typed, size, monkeypatch):
    from zellige.cli import train as command

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command.default_size(typed, recipe="") == size
    assert command.default_size(typed, recipe="mdlm-owt") == ""
    assert command.default_size(typed, recipe="", device="cuda") == {"tiny": "small"}.get(size, size)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert command.default_size(typed, recipe="") == {"tiny": "small"}.get(size, size)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("--data.path notes.txt", "text"), ("--data.path missing", "text"), ("", "pydocs"),
        ("--data.path notes.txt --data.name text8", "text8"), ("--data.path a.npy", "array"),
        ("--data.path a.tex", "text"), ("--data.path papers", "text"), ("--data.path pictures", "images"),
        ("--data.mix notes.txt=1", "text"),
    ],
)  # fmt: skip
def test_a_path_that_holds_text_is_text(typed, name, place, monkeypatch):
    monkeypatch.chdir(place[0])
    Path("a.npy").write_bytes(b"")
    Path("a.tex").write_text("x")
    for file in ("papers/a.bib", "pictures/a.png"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text("x")
    form = forms()["train mdlm"]
    assert options.parse(form, typed.split(), "train mdlm", Terminal()).data.name == name


@pytest.mark.parametrize("place_of_it", [0, 1, 2, 3])
def test_the_options_of_every_command_stand_anywhere(place_of_it):
    words = ["list", "data", "--seed=1"]
    for extra, expected in (
        (["--json", "-"], ("-", False, "auto")),
        (["--json=a.json"], ("a.json", False, "auto")),
        (["--quiet"], (None, True, "auto")),
        (["--color", "never"], (None, False, "never")),
    ):
        found, rest = options.everywhere([*words[:place_of_it], *extra, *words[place_of_it:]])
        assert (found.json, found.quiet, found.color) == expected
        assert rest == words


# -------------------------------------------------------------------------------------------------------------- lists


@pytest.mark.parametrize("what", tables.LISTS)
def test_lists(what, run):
    code, out, err = run(f"list {what}")
    rows = out.splitlines()
    assert code == 0
    legend = err.removeprefix("note: ").strip()
    assert legend == tables.LEGENDS.get(what, "")
    assert all(f"  {title}" in rows[0] for title in re.findall(r"(?:^|; )([\w ]+):", legend))
    assert all(len(line) <= (120 if what in ("checkpoints", "recipes") else 80) for line in rows)
    names = [line.split()[0] for line in rows[1:] if line[0] != " "]  # others go on a row
    from zellige.data import DATASETS
    from zellige.papers.recipes import RECIPES
    from zellige.papers.tables import TABLES
    from zellige.plugins.published import CATALOGUE
    from zellige.samplers import ALIASES

    samplers, ids = {**zellige.SAMPLERS, **ALIASES}, [published.id for published in CATALOGUE]
    from zellige.models import shipped

    known = {
        "plugins": [],
        "models": shipped.names(),
        "methods": zellige.METHODS,
        "samplers": samplers,
        "data": DATASETS.names(),
        "checkpoints": ids,
        "recipes": RECIPES,
        "tables": TABLES,
    }
    assert names == list(known[what])
    code, out, _ = run(f"list {what} --json -")
    assert [row["id" if what == "checkpoints" else "name"] for row in json.loads(out)["result"]] == names


LISTS_AGAIN = "lists.json or sampling/choices.py is old: python docs/_tools/lists.py"


def test_lists_are_what_the_classes_say():
    """Of the recipes, whose cost is counted on their networks, the first; all of them in `make test-long`."""
    made = json.loads(tables.TABLES.read_text(encoding="utf-8"))
    assert made["recipes"][0] == lists.recipe(made["recipes"][0]["name"]), LISTS_AGAIN
    for name in ("methods", "samplers", "checkpoints", "options"):
        assert made[name] == getattr(lists, name)(), LISTS_AGAIN
    assert Path(choices.__file__).read_text(encoding="utf-8") == lists.choices(), LISTS_AGAIN


@pytest.mark.long
def test_the_list_of_recipes_is_what_their_networks_cost():
    assert json.loads(tables.TABLES.read_text(encoding="utf-8")) == lists.tables(), LISTS_AGAIN


def test_list_alone_says_which_lists_there_are(run):
    code, out, err = run("list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == ["name", *tables.LISTS]
    _, out, _ = run("list --json -")
    assert [row["name"] for row in json.loads(out)["result"]] == list(tables.LISTS)


def test_list_methods_is_the_table_of_the_readme(run):
    _, out, _ = run("list methods")
    assert out.splitlines()[0].split("  ")[0] == "name"
    assert re.search(r"^mdlm +MDLM, arXiv 2406.07524 +absorbing +mean +bound; = in one\n +order$", out, re.M)


# -------------------------------------------------------------------------------------------------------------- train


def test_train_says_what_it_does(place):
    folder, done, _ = place
    out = done.stdout.splitlines()
    assert out[0].startswith("trained 6 steps in ")
    assert re.fullmatch(
        r"  validation ≤ \d\.\d{3} ± <?\d\.\d{3} bits/char \(95%\)   the best of 2, at step 6; lower is better", out[1]
    )
    assert out[2] == "  saved in runs/a: checkpoints last and best, metrics.csv"
    err = done.stderr.splitlines()
    assert err[0].startswith("size tiny except --net.layers 1, --net.hidden 16, ")
    assert err[1].startswith("mdlm  ")
    assert any(line.startswith("run   runs/a: ") for line in err[3:5])
    assert re.fullmatch(r"  step 3   validation ≤ .* bits/char \(95%\)   best", next(x for x in err if "step 3 " in x))
    assert err[-4:] == [
        "Try next:", "  zellige evaluate runs/a", "  zellige sample runs/a --watch", "  zellige report runs/a",
    ]  # fmt: skip
    assert "\x1b" not in done.stderr
    assert not [line for line in err if "arning" in line]  # of other libraries
    record = json.loads((folder / "train.json").read_text())
    assert list(record) == [*RECORD, "checksum"]
    assert record["seed"] == 5  # --seed is the run's
    assert record["interval"]["low"] < record["result"]["validation"] < record["interval"]["high"]


def test_resume_takes_the_rest_from_the_run(run):
    code, _, err = run("train mdlm --run runs/a --resume")
    assert code == 0  # finished: nothing to do
    code, _, err = run("train mdlm --run runs/a --resume --train.steps 8")
    assert code == 0
    assert "resumed at step 6 of 8" in err
    assert "changed: --train.steps 8 (was 6)" in err


OWN = """
import zellige
from zellige.methods import MDLM
class Mine(MDLM):
    name = "mine"
"""


def test_an_own_method_from_a_file(run, place):
    Path("mine.py").write_text(OWN)
    code, _, err = run(
        f"train mine.py:Mine --run runs/mine --data.name text --data.path notes.txt {SMALL} --train.steps 2 --quiet"
    )
    assert (code, err) == (0, "")
    code, out, _ = run("sample runs/mine --method mine.py:Mine --steps 2")
    assert (code, len(out)) == (0, 33)
    code, out, err = run("report runs/mine --method mine.py:Mine --quiet")
    assert (code, err) == (0, "")
    assert 'id="watch"' in Path("runs/mine/report.html").read_text()
    code, _, err = run("sample runs/mine --method mine.py:Mien")
    assert err == "error: no method class 'Mien' in 'mine.py'; did you mean 'Mine'? (there: Mine)\n"
    code, _, err = run("sample runs/mine")
    assert code == 2


def test_what_to_type_next_after_an_own_method(run):
    Path("mine.py").write_text(OWN)
    code, _, err = run(
        f"train mine.py:Mine --run runs/next --data.name text --data.path notes.txt {SMALL} --train.steps 2"
    )
    assert code == 0
    evaluate, sample, report = err.splitlines()[-3:]
    assert evaluate.strip() == "zellige evaluate runs/next --method mine.py:Mine"
    assert sample.strip() == "zellige sample runs/next --method mine.py:Mine --watch"
    assert not Path("runs/next/report.html").exists()  # it is made when it is asked for
    for line in (f"{evaluate} --limit 4", f"{sample} --steps 2", report):
        assert run(line.strip().removeprefix("zellige "))[0] == 0
    assert Path("runs/next/report.html").is_file()


def test_a_model_with_convolutions_goes_out_in_our_own_layout(run):
    on = f"--data.name text --data.path notes.txt {SMALL} --train.steps 2"
    note = "short convolutions (--net.conv): this model can be exported with zellige export --to hub, not as"
    code, _, err = run(f"train mdlm --run runs/conv --net.conv 3 {on}")
    assert (code, err.count(note)) == (0, 1)
    assert note in run("plan mdlm --size tiny --vocabulary 300")[2]  # before hours are spent
    assert note not in run("plan mdlm --size tiny --vocabulary 300 --net.conv 0")[2]
    code, _, err = run("export runs/conv --to mdlm --out theirs")
    assert code == 2
    assert "short convolutions (`net.conv`), which no published format has; use --to hub, or train one" in err
    assert run("export runs/conv --to hub --out ours --quiet")[0] == 0
    assert zellige.load("ours").config.net.conv == 3


# ----------------------------------------------------------------------------------------------------------- evaluate


def test_evaluate(run):
    code, out, _ = run("evaluate runs/a --draws 2 --json r.json")
    assert code == 0
    lines = out.splitlines()
    assert re.fullmatch(r"mdlm, \d\.\dk parameters, step \d+ \(EMA\)", lines[0])
    assert re.fullmatch(r"text test: [\d,]+ characters in \d+ sequences of 32", lines[1])
    assert lines[3].split() == ["term", "nats/sequence", "bits/char"]
    assert [line.split()[0] for line in lines[4:8]] == ["diffusion", "reconstruction", "prior", "total"]
    terms = [float(line.split()[2]) for line in lines[4:8]]
    assert sum(terms[:3]) == pytest.approx(terms[3], abs=0.002)
    number = r"≤ \d+\.\d+ ± <?\d+\.\d+"
    assert re.fullmatch(rf"  {number} bits/char \(95%\)   perplexity {number} per character", lines[9])
    half = r"± <?\d+\.\d+"
    assert re.fullmatch(rf"    {half} over the population of texts and draws", lines[10])  # too few groups for more
    assert re.fullmatch(rf"    mean perplexity per sequence {number} per character \(above: corpus\)", lines[11])
    assert lines[12] == "    holds for samples of first_hitting, any_order, uniformisation; for ancestral"
    assert lines[13] == "    in T steps: --steps T"
    assert re.fullmatch(r"    \d+ sequences x 2 draws: no interval over the draws alone, as that needs", lines[14])
    assert re.fullmatch(r"    8 degrees of freedom and has [1-7]; take more texts or draws", lines[15])
    assert lines[-2:] == [
        "  written   runs/a/evaluate-text-test-draws-2.json",
        "  again     zellige evaluate --from runs/a/evaluate-text-test-draws-2.json",
    ]
    assert [line for line in lines if len(line) > 80] == []
    written = json.loads(Path("runs/a/evaluate-text-test-draws-2.json").read_text())
    assert list(written) == [*RECORD, "checksum"]
    assert json.loads(Path("r.json").read_text()) == written
    assert written["interval"]["low"] < written["result"]["value"] < written["interval"]["high"]
    assert {"packing", "separators", "time", "draws", "network", "bound", "weights", "seed"} <= set(written["protocol"])
    assert (written["result"]["between"], written["result"]["over_draws"]["low"]) == (None, None)


def test_evaluate_with_draws_enough(run):
    """The two intervals, and the split, which agree as printed."""
    _, out, _ = run("evaluate runs/a --draws 64 --json r.json")
    lines = out.splitlines()
    number = r"± (<?\d+\.\d+)"
    over = re.fullmatch(rf"    {number} over the population of texts, {number} over draws of these texts", lines[10])
    assert over is not None
    assert re.fullmatch(r"    \d+ sequences x 64 draws; \d+\.\d% of the variance lies between the texts,", lines[14])
    written = json.loads(Path("r.json").read_text())
    drawn, split = written["result"]["over_draws"], written["result"]["between"]
    assert drawn["freedom"] >= 8
    ends = written["interval"]
    assert 1 - split == pytest.approx(((drawn["high"] - drawn["low"]) / (ends["high"] - ends["low"])) ** 2)


def test_evaluate_again(run):
    run("evaluate runs/a --draws 2 --seed 3")
    file = "runs/a/evaluate-text-test-draws-2.json"
    before = Path(file).read_text()
    code, out, _ = run(f"evaluate --from {file}")
    assert code == 0
    assert out.endswith(f"\n  holds     {file}: the same number, bit for bit\n")
    assert Path(file).read_text() == before
    code, shown, _ = run(f"evaluate --from {file} --show")
    assert shown.splitlines() == out.splitlines()[:-1]
    code, out, _ = run(f"evaluate --from {file} --seed 4")
    assert "within its interval" in out or "does not hold" in out


def copied(name: str) -> Path:
    """The run as it was trained, without what tests have written into it."""
    shutil.copytree(
        "runs/a",
        name,
        symlinks=True,
        ignore=shutil.ignore_patterns("evaluate-*", "steps-*", "bracket-*", "report.html"),
    )
    return Path(name)


def test_a_partial_result_has_its_own_name_and_says_so(run, tmp_path):
    """`--limit 4` wrote over the full result, and `report` led with 2.122 ± 0.346 in place of 2.287 ± 0.055."""
    here = copied(str(tmp_path / "full"))
    for path in here.glob(
        "checkpoints/step-*/model.safetensors"
    ):  # after 6 steps all tokens were alike, and so all texts
        weights = load_file(path)
        head = weights["network.head.weight"]
        weights["network.head.weight"] = torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
        save_file(weights, path, {"format": str(FORMAT)})
        write_checksums(path.parent)
    run(f"evaluate {here} --draws 1")
    full = (here / "evaluate-text-test-draws-1.json").read_text()
    code, out, _ = run(f"evaluate {here} --limit 4 --draws 1")
    part = here / "evaluate-text-test-limit-4-draws-1.json"
    assert code == 0
    assert f"  written   {part}\n" in out
    assert "    a partial result: 4 of 76, evenly spaced\n" in out
    assert (here / "evaluate-text-test-draws-1.json").read_text() == full
    assert json.loads(full)["result"]["partial"] is None
    assert json.loads(part.read_text())["result"]["partial"] == "4 of 76, evenly spaced"
    assert "a partial result: 4 of 76, evenly spaced" in run(f"evaluate --from {part} --show")[1]
    assert run(f"evaluate {here} --limit 76 --draws 1")[1].splitlines()[-2].endswith("evaluate-text-test-draws-1.json")
    run(f"report {here}")
    page = (here / "report.html").read_text()
    number = f"{Result.from_json(here / 'evaluate-text-test-draws-1.json')}"
    assert f"<b>{html.escape(number)}</b> test" in page
    assert f"<b>{html.escape(str(Result.from_json(part)))}</b>" not in page
    assert "a partial result: 4 of 76" in page
    rows = [line for line in hub.card(zellige.load(here)).splitlines() if line.startswith("| text test")]
    assert ["partial" in row for row in rows] == [False, True]


def test_every_choice_that_changes_what_is_measured_is_in_the_name(run, tmp_path):
    here = copied(str(tmp_path / "named"))
    Path("other.txt").write_text(TEXT * 300)
    run(f"evaluate {here} --draws 2 --estimator forward --limit 2 --split validation")
    run(f"evaluate {here} --limit 2 --data.name text --data.path other.txt")
    run(f"evaluate {here} --limit 2 --data.name text --data.path notes.txt --data.test 0.1")
    run(f"evaluate {here} --steps 2 4 --limit 2 --draws 2")
    run(f"evaluate {here} --limit 2 --seed 7")
    run(f"evaluate {here} --steps 2 4 --limit 2 --draws 2 --seed 7")
    Path("p.jsonl").write_text('{"continuation": "the name"}\n')
    for what in ("", "--steps 2", "--pairs p.jsonl", "--bracket --numbers 1 --own 0"):
        run(f"evaluate {here} {what} {'' if 'pairs' in what else '--limit 2'} --precision bfloat16")
    names = sorted(p.name for p in here.glob("*-*.json"))
    assert [re.sub("[0-9a-f]{8}", "TAG", name) for name in names] == [
        "bracket-text-test-numbers-1-own-0-limit-2-precision-bfloat16.json",
        "evaluate-text-TAG-test-limit-2.json",
        "evaluate-text-TAG-test-limit-2.json",
        "evaluate-text-test-limit-2-seed-7.json",
        "evaluate-text-test-precision-bfloat16-limit-2.json",
        "evaluate-text-validation-forward-limit-2.json",
        "pairs-p-precision-bfloat16.json",
        "steps-text-test-steps-2-4-limit-2-draws-2-seed-7.json",
        "steps-text-test-steps-2-4-limit-2-draws-2.json",
        "steps-text-test-steps-2-limit-2-precision-bfloat16.json",
    ]


def test_bracket(run, tmp_path):
    """Rows of the model's law, exact ones, its own samples; a JSON with each text's own bracket, and the figure on the page."""
    here = copied(str(tmp_path / "bracket"))
    code, out, _ = run(
        f"evaluate {here} --bracket --limit 3 --own 2 --numbers 1 4 --per-step 1 8 --orders forward --json b.json"
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[1].startswith("text test: texts of 32, 3 of ")
    assert lines[3].split()[:2] == ["distribution:", "any_order"]
    for name, sign in (("importance-weighted, n = 4", "≤"), ("TUBE, n = 4", "≥"), ("confidence, 8 a step", "=")):
        assert any(line.startswith(name) and line[len(name) :].split()[0] == sign for line in lines)
    assert [line for line in lines[:-1] if len(line) > 80] == []
    document = json.loads(Path("b.json").read_text())
    rows = {(row["name"], row["own"]): row for row in document["result"]["rows"]}
    assert len(rows["TUBE, n = 4", False]["nats"]) == 3
    assert rows["width, n = 4", True]["n"] == 4
    assert [document["protocol"][key] for key in ("distribution", "bound of")] == [
        "any_order",
        "the model of continuous time",
    ]
    assert (here / "bracket-text-test-numbers-1-4-orders-forward-per-step-1-8-own-2-limit-3.svg").is_file()
    run(f"report {here}")
    assert "Two-sided bounds" in (here / "report.html").read_text()


def test_a_fuller_result_of_an_earlier_name_keeps_its_place(run, tmp_path):
    """Before, the number of draws was not in the name."""
    here = copied(str(tmp_path / "earlier"))
    run(f"evaluate {here} --draws 8 --limit 20")
    fuller = (here / "evaluate-text-test-limit-20-draws-8.json").rename(here / "evaluate-text-test.json").read_text()
    code, _, err = run(f"evaluate {here}")
    assert code == 0
    assert f"note: the fuller result that was there is now {here / 'evaluate-text-test-limit-20-draws-8.json'}\n" in err
    assert (here / "evaluate-text-test-limit-20-draws-8.json").read_text() == fuller
    assert json.loads((here / "evaluate-text-test.json").read_text())["result"]["draws"] == 4


def test_another_seed_has_its_own_name(run, tmp_path):
    """Two evaluations that differed in --seed alone had one name; that of before is renamed, none is lost."""
    here = copied(str(tmp_path / "seeds"))
    name = "evaluate-text-test-limit-4-draws-2{}.json"
    for seed in (0, 7):
        run(f"evaluate {here} --limit 4 --draws 2 --seed {seed}")
    first, seventh = ((here / name.format(end)).read_text() for end in ("", "-seed-7"))
    assert json.loads(first)["result"]["value"] != json.loads(seventh)["result"]["value"]
    (here / name.format("-seed-7")).rename(here / name.format(""))  # as it was named before
    code, _, err = run(f"evaluate {here} --limit 4 --draws 2")
    assert code == 0
    assert f"note: the other result that was there is now {here / name.format('-seed-7')}\n" in err
    assert (here / name.format("-seed-7")).read_text() == seventh
    assert json.loads((here / name.format("")).read_text())["result"] == json.loads(first)["result"]
    results = [Result.from_json(here / name.format(end)) for end in ("-seed-7", "")]
    assert fullest(results, "text") is results[1]  # what the report and the model card lead with


def test_a_text_that_has_changed_since_the_training(run, tmp_path):
    here = copied(str(tmp_path / "changed"))
    code, _, err = run(f"evaluate {here} --limit 2")
    assert "note: " not in err
    before = Path("notes.txt").read_text()
    try:
        Path("notes.txt").write_text(before[::-1])
        code, _, err = run(f"evaluate {here} --limit 2 --json r.json")
    finally:
        Path("notes.txt").write_text(before)
    assert code == 0
    said = r"note: the data has changed since the model was trained \(sha256 [0-9a-f]{8}, now [0-9a-f]{8}\): "
    assert re.search(said + "what is called test may hold texts of the training\n", err)
    about = json.loads(Path("r.json").read_text())["result"]["about"]
    assert about["changed"] is True
    assert about["trained_sha256"] != about["sha256"]
    assert len(list(here.glob("evaluate-*.json"))) == 2  # that of the text of then is still there
    (tagged,) = here.glob("evaluate-text-????????-test-limit-2.json")
    assert re.search(said, run(f"evaluate --from {tagged} --show")[2])


def test_a_hostile_result_and_hostile_names(run, place, capsys, tmp_path, monkeypatch):
    """What `--from --show`, `written` and `--json -` print of files and paths."""
    hostile = "\x1b]0;title\x07\x9b2J\u202e\n  written   elsewhere"
    run("evaluate runs/a --draws 2 --limit 4")
    plain = json.loads(Path("runs/a/evaluate-text-test-limit-4-draws-2.json").read_text())
    plain["result"]["about"] |= {
        "data": hostile,
        "method": hostile,
        "split": hostile,
        "changed": True,
        "trained_sha256": hostile,
    }
    plain["protocol"] |= {"packing": hostile, "texts": hostile}
    plain["result"]["terms"] = {hostile: 1.0}
    del plain["checksum"]
    name = tmp_path / "r\x1b[31m\n.json"
    name.write_text(json.dumps(plain))
    for words in (["--show"], ["--show", "--json", "-"]):
        code = cli.main(["evaluate", "--from", str(name), *words])
        captured = capsys.readouterr()
        assert code == 0
        assert all(line.isprintable() for line in (captured.out + captured.err).splitlines())
        assert not re.search("^  written", captured.out, re.M)
    assert json.loads(captured.out)["result"]["about"]["data"] == hostile
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "odd\x1b[2J\nname"
    shutil.copytree(place[0] / "runs/a", folder, symlinks=True)
    shutil.copy(place[0] / "notes.txt", "notes.txt")
    assert cli.main(["evaluate", str(folder), "--draws", "1", "--limit", "2"]) == 0
    assert cli.main(["evaluate", str(folder) + "\n\x1b[2J"]) == 2
    captured = capsys.readouterr()
    assert all(line.isprintable() for line in (captured.out + captured.err).splitlines())
    assert r"  written   $'odd\x1b[2J\nname/evaluate-text-test-limit-2-draws-1.json'" in captured.out
    assert len(captured.err.splitlines()) == 1


def test_evaluate_pairs(run):
    lines = [{"context": "the value of ", "continuation": "the object"}]
    lines += [{"context": "the name of ", "choices": ["a class", "the value"], "answer": 0}] * 2
    Path("pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, _ = run("evaluate runs/a --pairs pairs.jsonl --draws 8 --json p.json")
    assert code == 0
    found = out.splitlines()
    assert found[1] == "pairs.jsonl: 3 pairs, 24 tokens to predict"
    number = r"≤ \d+\.\d+ ± <?\d+\.\d+"
    assert re.fullmatch(rf"  {number} bits/char \(95%\)   perplexity {number} per character", found[3])
    assert found[4] == "    ± over other pairs of the same kind; too few replicates for one over draws"
    assert re.fullmatch(r"  accuracy (0|100)\.0% \[\d+\.\d%, \d+\.\d%\] \(95%, Wilson\) by nats", found[5])
    assert found[-1] == "  written   runs/a/pairs-pairs-draws-8.json"
    assert all(len(line) <= 80 for line in found)
    written = json.loads(Path("runs/a/pairs-pairs-draws-8.json").read_text())
    assert list(written) == [*RECORD, "checksum"]
    assert json.loads(Path("p.json").read_text()) == written
    nats = [line["nats"] for line in written["result"]["pairs"]]
    assert [len(n) for n in nats] == [1, 2, 2]
    assert nats[1] == nats[2]
    total = sum(n[0] for n in nats) / 24 / 0.6931471805599453
    assert written["result"]["value"] == pytest.approx(total)
    assert run("evaluate runs/a --pairs pairs.jsonl --draws 8 --batch 3")[1].splitlines() == found
    Path("o").mkdir()
    Path("o/pairs.jsonl").write_text(json.dumps(lines[0]))
    other = run("evaluate runs/a --pairs o/pairs.jsonl --draws 8")[1].splitlines()[-1]
    assert re.fullmatch(r"  written   runs/a/pairs-pairs-draws-8-[0-9a-f]{8}\.json", other)


def test_json_alone_on_stdout(run):
    code, out, err = run("evaluate runs/a --limit 4 --draws 2 --json - --quiet")
    assert (code, err) == (0, "")
    assert list(json.loads(out)) == RECORD


# ----------------------------------------------------------------------------------------------------- sample, infill


def test_sample(run):
    code, out, err = run('sample runs/a --count 3 --steps 16 --prompt "the " --seed 2')
    texts = out.splitlines()
    assert code == 0
    assert [len(text) for text in texts] == [32] * 3
    assert all(text.startswith("the ") for text in texts)
    said, first, second = err.splitlines()
    assert said == f"note: {BY_DEFAULT}"
    assert re.fullmatch(r"3 samples, 96 tokens, .* s, .* tokens/s", first)
    assert re.fullmatch(
        r"  \d+( to \d+)? network evaluations each \(\d+\.\d expected\) in 16 steps",
        run("sample runs/a --count 3 --steps 16 --no-defaults")[2].splitlines()[1],
    )
    assert second == "  16 network evaluations each in 16 steps"
    code, out, err = run('sample runs/a --count 3 --steps 16 --prompt "the " --seed 2 --out x.jsonl --json s.json')
    assert out == ""
    assert err.endswith("written  x.jsonl\n")
    rows = [json.loads(line) for line in Path("x.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == texts
    assert [list(row) for row in rows] == [["text", "tokens", "seed", "calls", "prompt"]] * 3
    document = json.loads(Path("s.json").read_text())
    assert document["result"]["samples"] == rows
    assert document["protocol"] is None  # a prompt: no law of whole texts
    assert run("sample runs/a --count 3 --steps 16 --no-defaults --json s.json")[0] == 0
    protocol = json.loads(Path("s.json").read_text())["protocol"]
    assert protocol == {
        "distribution": "the model of 16 steps", "distribution_key": "steps 16", "bounded by": {"steps": 16},
    }  # fmt: skip


def test_the_command_of_a_bound_names_int8():
    law = dataclasses.replace(CONTINUOUS, number={"grid": "cosine"})
    assert described(law, "int8").endswith("; zellige evaluate --grid cosine --precision int8 bounds its likelihood")
    assert described(law, "float32").endswith("; zellige evaluate --grid cosine bounds its likelihood")


def test_samplers_and_their_options(run):
    """A flag that is not given leaves the sampler's own default; an alias is the same sampler."""
    _, plain, _ = run("sample runs/a --count 2 --steps 8 --seed 2 --sampler ancestral")
    for same in ("--sampler analytic", "--sampler mean", "--grid uniform"):
        assert run(f"sample runs/a --count 2 --steps 8 --seed 2 {same}")[1] == plain
    for other in (
        "--grid cosine",
        "--sampler any_order --per-step 4",
        "--sampler fixed_order --order backward",
        "--sampler confidence --confidence margin --threshold 0.9",
        "--sampler remasking --remasking loop --eta 0.1 --t-on 0.6 --t-off 0.1 --alpha-on 0.8",
    ):
        code, out, _ = run(f"sample runs/a --count 2 --seed 2 {other} --json s.json")
        assert code == 0
        assert [len(text) for text in out.splitlines()] == [32] * 2
        assert out != plain
        given = [word.removeprefix("--").replace("-", "_") for word in other.split() if word.startswith("--")]
        arguments = json.loads(Path("s.json").read_text())["arguments"]
        assert all(arguments[name] is not None for name in given)
    assert " each in 8 steps\n" in run("sample runs/a --sampler any_order --per-step 4")[2]
    assert re.search(r"expected\) in 64 steps", run("sample runs/a --no-defaults")[2])


def test_given_tokens_are_approximate_where_they_are(run):
    """Uniform noise: one line that says so, and the tokens stay; masks: nothing to say."""
    small = f"--data.name text --data.path notes.txt {SMALL} --train.steps 2 --quiet"
    assert run(f"train udlm --run runs/uniform {small} --overwrite")[0] == 0
    code, out, err = run('infill runs/uniform "the val__ of" --steps 4 --no-defaults')
    said = [line for line in err.splitlines() if line.startswith("note: ")]
    assert (code, len(said)) == (0, 1)
    assert "approximate" in said[0]
    assert re.fullmatch(r"the val.. of", out.strip("\n"))
    assert "note: " in run('sample runs/uniform --steps 4 --prompt "the "')[2]
    for quiet in ("sample runs/uniform --steps 4", 'sample runs/a --steps 4 --prompt "the "'):
        assert "note: " not in run(f"{quiet} --no-defaults")[2]


def test_watch_in_a_pipe_prints_the_frames(run):
    _, plain, _ = run("sample runs/a --count 2 --steps 3 --seed 2")
    code, out, err = run("sample runs/a --count 2 --steps 3 --seed 2 --watch")
    assert (code, out) == (0, plain)  # the finished text only
    assert re.findall(r"^sample \d of 2   step \d/3   t = \d\.\d\d$", err, re.M) == [
        f"sample {n} of 2   step {k}/3   t = {t}"
        for n in (1, 2)
        for k, t in enumerate(("1.00", "0.67", "0.33", "0.00"))
    ]
    assert "\x1b" not in err
    assert "32 of 32 revealed" in err


def test_infill(run):
    text = "the val__ of t__ object"
    code, out, err = run(f'infill runs/a "{text}" --count 2')
    assert code == 0
    assert all(re.fullmatch(text.replace("_", "."), line) for line in out.splitlines())
    assert len(out.splitlines()) == 2
    note, cost, _ = err.splitlines()
    assert note == f"note: {BY_DEFAULT}"
    assert cost.startswith("2 samples, 46 tokens, ")


def test_infill_of_a_molecule(run):
    code, out, err = run("infill molecules CC(=O)____ --count 6 --seed 2")
    assert code == 0, err
    assert "each _ is one SELFIES symbol" in err
    assert all(map(is_molecule, out.split()))
    assert len({*out.split()}) > 2


def test_infill_marks_what_it_filled(run, monkeypatch):
    """Brackets by choice, colour on a terminal; a pipe has the text alone, and files have."""
    text = "the val__ of t__ object"
    _, plain, err = run(f'infill runs/a "{text}"')
    assert re.search(r" [1-4] network evaluations? each ", err)
    _, out, _ = run(f'infill runs/a "{text}" --mark brackets --json r.json')
    assert re.fullmatch(r"the val\[..\] of t\[..\] object\n", out)
    assert out.replace("[", "").replace("]", "") == plain
    assert json.loads(Path("r.json").read_text())["result"]["samples"][0]["text"] + "\n" == plain
    _, _, err = run(f'infill runs/a "{text}" --mark brackets --watch --steps 2')
    assert "  the val[··] of t[··] object\n" in err
    _, out, _ = run(f'infill runs/a "{text}" --color always')
    assert re.fullmatch(r"the val\x1b\[1;36m..\x1b\[0m of t\x1b\[1;36m..\x1b\[0m object\n", out)
    assert re.sub(r"\x1b\[[\d;]*m", "", out) == plain
    assert run(f'infill runs/a "{text}" --mark none --color always')[1] == plain


def test_quiet(run):
    for command in ("sample runs/a --steps 2", "sample runs/a --steps 2 --watch", "evaluate runs/a --limit 4"):
        code, out, err = run(f"{command} --quiet")
        assert (code, err) == (0, "")
        assert out


# ----------------------------------------------------------------------------------------------------- report, verify


def test_report(run):
    code, out, err = run("report runs/a --out page.html")
    assert code == 0
    assert all(line.startswith("draw ") for line in err.splitlines()), err  # how far it is, where it takes long
    assert re.fullmatch(r"page\.html, .* [kM]B\n", out)
    assert Path("page.html").read_text().startswith("<!doctype html>") or "<html" in Path("page.html").read_text()[:200]


def test_verify(run):
    code, out, _ = run("verify mdlm --only process.semigroup --json v.json")
    assert code == 0
    assert out.splitlines()[-1].startswith("1 of 1 hold")
    assert json.loads(Path("v.json").read_text())["result"]["ok"] is True


def test_verify_says_how_far_it_is(run, monkeypatch):
    from zellige.show import progress

    Path("mine.py").write_text(OWN)
    monkeypatch.setattr(progress.Pace, "due", lambda self, done: done > 0)
    _, _, err = run("verify mine.py:Mine --only process")
    assert re.search(r"^verify 1/\d+ checks (mine )?process\.", err, re.M)


def test_verify_fails_with_code_1(run, monkeypatch):
    from zellige import verify

    report = verify("mdlm", only="process.semigroup")
    rows = tuple(dataclasses.replace(row, ok=False) for row in report.rows)
    monkeypatch.setattr("zellige.plugins.verify.verify.verify", lambda *_, **__: dataclasses.replace(report, rows=rows))
    code, out, _ = run("verify mdlm")
    assert code == 1
    assert "FAIL" in out


# ------------------------------------------------------------------------------------------------------ how it ends


def start(place, command):
    folder, _, environ = place
    process = subprocess.Popen(
        [sys.executable, "-m", "zellige", *shlex.split(command)], cwd=folder, env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_interrupts,
    )  # fmt: skip
    assert process.stderr is not None
    process.stderr.readline()  # it is at work
    return process


def heed_interrupts():
    """In the child, which inherits it where Ctrl-C is ignored by who runs the tests (nohup, a background job of a script)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def ignoring():
    """Ctrl-C is ignored here, as nohup and the background jobs of a script have it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("command", ["--estimator nonsense", "--ends nonsense", "--limit 1", "--steps 4 --limit 1"])
def test_what_no_data_can_mend_is_refused_before_it_is_read(command, place, run, monkeypatch):
    """An unknown estimator was said after the tokens of a corpus had been written."""
    monkeypatch.setattr("zellige.evaluation.corpus.corpus_of", lambda *_, **__: pytest.fail("the data was read"))
    code, out, err = run(f"evaluate runs/a {command}")
    assert (code, out) == (2, "")
    assert err.startswith(
        ("error: unknown estimator 'nonsense'", "error: unknown ends 'nonsense'", "error: --limit is 1")
    )
    asked = {"estimator": "nonsense"} if "estimator" in command else {"limit": 1}
    with pytest.raises(InputError):
        zellige.evaluate(place[0] / "runs" / "a", **asked)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(place, number, code, ignoring):
    process = start(place, "sample runs/a --steps 200000 --watch --no-defaults")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert err.splitlines()[-1] == "stopped"
    assert "Traceback" not in err


def test_a_reader_that_has_seen_enough(place):
    folder, _, environ = place
    command = f"{shlex.quote(sys.executable)} -m zellige list data | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("name ")


def test_a_terminal_shows_something_within_a_second(place):
    pty = pytest.importorskip("pty")
    folder, _, environ = place
    mine, theirs = pty.openpty()
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "zellige", "sample", "runs/a", "--watch", "--steps", "4"], cwd=folder,
        env=environ | {"TERM": "xterm-256color"}, stderr=theirs, stdout=subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    seen = os.read(mine, 1024)
    first = time.perf_counter() - began
    try:
        while block := os.read(mine, 65536):
            seen += block
    except OSError:  # the other end is closed
        pass
    out, _ = process.communicate(timeout=60)
    os.close(mine)
    assert process.returncode == 0
    assert first < 3  # 1 s by itself; tests run beside each other
    assert b"loading" in seen
    assert b"step 4/4" in seen
    assert len(out.decode()) == 33


def test_out_of_memory_says_what_to_lower(run, monkeypatch):
    import torch

    def collect(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    monkeypatch.setattr("zellige.sampling.samples.collect", collect)
    code, _, err = run("sample runs/a --no-defaults")
    assert code == 1
    assert err.startswith("error: out of memory; lower ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate stories", "this model comes without its text; say which text to read with --data.path"),
        ("train distill stories-mdlm", "this model comes without its text; say which text to read with --data.path"),
        (
            "sample stories --class 3",
            "the model was trained without classes; leave the class out, or train with --data.labels",
        ),
    ],
)
def test_errors_about_a_model_that_comes_with_zellige_name_options(words, message, capsys):
    """A note says which model it is; the error names options and no arguments of Python."""
    assert cli.main(words.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {message}"


@pytest.mark.parametrize(("prompt", "notes"), [("Once ", 1), ("Once", 0)])
def test_a_note_says_that_a_blank_is_left_to_the_next_token(prompt, notes, capsys):
    assert cli.main(["sample", "stories-mdlm", "--prompt", prompt, "--steps", "2", "--seed", "1"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Once")
    assert said.err.count("the blank at the end of the prompt is left to the next token") == notes
