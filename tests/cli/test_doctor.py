"""`zellige doctor` and `zellige completion`: what they say is so."""

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from zellige import METHODS, cli
from zellige.cli import COMMANDS, completion, doctor
from zellige.data import DATASETS
from zellige.papers.recipes import RECIPES
from zellige.samplers import ALIASES, SAMPLERS
from zellige.training.device import DEVICES

ROOT = Path(__file__).resolve().parents[2]


def test_the_doctor_says_what_is_there_and_ends_well(capsys, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    (cache / "tokens").mkdir(parents=True)
    (cache / "tokens" / "a").write_bytes(b"0" * 1500)
    monkeypatch.setenv("ZELLIGE_CACHE", str(cache))
    monkeypatch.setattr(doctor, "version_of", lambda package: None if package == "wandb" else "1")
    assert cli.main(["doctor", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["caches"]["zellige"] == {"path": str(cache), "bytes": 1500}
    assert result["extras"]["wandb"] == {"missing": ["wandb"], "install": "pip install 'zellige[wandb]'"}
    assert result["extras"]["web"]["missing"] == []
    assert set(result["writable"].values()) == {True}
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == [*result]
    assert "          wandb    lacks wandb: pip install 'zellige[wandb]'" in lines


@pytest.mark.long
def test_a_torchvision_of_another_build_is_one_line(tmp_path):
    """Lightning imports torchmetrics, which imports it wherever it is installed; nothing here does."""
    place = tmp_path / "site"
    for folder in ("torchvision", "torchvision-0.99.dist-info"):
        (place / folder).mkdir(parents=True)
    (place / "torchvision" / "__init__.py").write_text(
        'raise RuntimeError("operator torchvision::nms does not exist")\n'
    )
    (place / "torchvision-0.99.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.99\n"
    )
    (tmp_path / "notes.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 100)
    environment = os.environ | {"PYTHONPATH": f"{place}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    def run(words: str):
        command = [sys.executable, "-m", "zellige", *words.split()]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    done = run("train mdlm --data.path notes.txt --data.cache c --net.layers 1 --net.hidden 16 --net.heads 2 --net.length 8 "
               "--train.steps 1 --train.batch 2 --train.device cpu --run r")  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: 'torchvision' cannot be imported (operator torchvision::nms does not exist), and Lightning imports it; "
        "install the one that belongs to this build of torch, or uninstall it"
    )
    said = next(line for line in run("doctor").stdout.splitlines() if "fid " in line)
    assert (
        "torchvision cannot be imported (operator torchvision::nms does not exist), and without it nothing trains"
        in said
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda place, mode: Path(place) != tmp_path)
    able = doctor._writable()
    assert (able[str(tmp_path)], able[str(tmp_path / "runs")]) == (False, False)
    assert True in able.values()


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    theirs = {
        name: tuple(each.partition(">")[0].partition("[")[0] for each in packages)
        for name, packages in project["optional-dependencies"].items()
        if name not in ("test", "dev", "docs")
    }
    assert theirs == {name: tuple(packages.split()) for name, packages in doctor.EXTRAS.items()}


@pytest.fixture(scope="module")
def known():
    return completion.tables()


@pytest.fixture
def place(tmp_path):
    """A folder with two runs, one of whose names has a blank, a folder that is no run, and a text."""
    for name in ("runs/mine", "runs/or mine"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "notes.txt").write_text("")
    return tmp_path


def test_completion_knows_every_command_method_option_and_value(known):
    follow, values = known
    assert {key[0] for key in follow} == set(COMMANDS.names())
    assert follow["train",] == [*METHODS, "--recipe"]
    assert {"--block", "--train.lr", "--size", "--config", "--json"} <= set(follow["train", "bd3lm"])
    assert {"--judge", "--bracket", "--draws", "--suite", "RUN"} <= set(follow["evaluate",])
    assert {key[0] for key, words in follow.items() if "RUN" in words} == {
        "evaluate", "sample", "infill", "report", "play", "serve", "export", "tune",
    }  # fmt: skip
    assert values["--sampler"] == [*SAMPLERS, *ALIASES]
    assert values["--data.name"] == DATASETS.names()
    assert values["--recipe"] == [*RECIPES]
    assert (values["--device"], values["plan --device"]) == (["auto", "cpu", "cuda"], [*DEVICES])
    assert (values["--count"], "--watch" in values) == ([], False)


ASKED = [  # what is typed before a tab, and what of it comes to stand there
    ("tr", "train"), ("train bd", "train bd3lm"), ("train bd3lm --blo", "train bd3lm --block"),
    ("sample note", "sample notes.txt"), ("sample stories --temp", "sample stories --temperature"),
    ("list samp", "list samplers"), ("completion z", "completion zsh"),
    ("sample chor", "sample chorales"), ("play runs/m", "play runs/mine"), ("evaluate runs/o", "evaluate runs/or mine"),
    ("sample stories --sampler euler --block-sampler rema", "sample stories --sampler euler --block-sampler remasking"),
    ("sample --sampler=metr", "sample --sampler=metropolis"), ("train mdlm --data.name su", "train mdlm --data.name sudoku"),
    ("train --recipe md4-t", "train --recipe md4-text8"), ("plan tauldr-c", "plan tauldr-cifar10"),
    ("sample stories --device cu", "sample stories --device cuda"), ("plan x --device mi", "plan x --device mi300x"),
    ("train mdlm --lay", "train mdlm --lay"), ("sample stories --no-d", "sample stories --no-defaults"),
]  # fmt: skip
ARGUMENTS = {"evaluate runs/or mine": ["evaluate", "runs/or mine"]}


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_bash_completes_at_its_prompt(known, place):
    """An interactive bash on a terminal of its own: a tab, then a line end, and the arguments that the command got."""
    (place / "words.sh").write_text(completion.bash("bash", *known))
    lines = ["PS1= PS2=", "source words.sh", "zellige() { printf '<%s>' \"${@%/}\" >> typed.txt; echo >> typed.txt; }"]
    lines += [f"zellige {typed}\t" for typed, _ in ASKED]
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(place)}
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], cwd=place, env=environment, start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as shell:  # fmt: skip
        os.close(theirs)
        drain = threading.Thread(target=_drain, args=(ours,))
        drain.start()
        for line in [*lines, "exit"]:
            os.write(ours, f"{line}\n".encode())
        assert shell.wait(60) == 0
        drain.join()
    os.close(ours)
    got = (place / "typed.txt").read_text().splitlines()
    assert got == ["".join(f"<{word}>" for word in ARGUMENTS.get(done, done.split())) for _, done in ASKED]


def _drain(terminal: int) -> None:
    with contextlib.suppress(OSError):  # the other side has gone
        while os.read(terminal, 4096):
            pass


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
@pytest.mark.parametrize(("typed", "done"), ASKED)
def test_fish_completes(typed, done, known, place):
    (place / "words.fish").write_text(completion.fish(*known))
    ask = f'source words.fish; complete -C "zellige {typed}"'
    environment = os.environ | {"HOME": str(place)}
    told = subprocess.run(["fish", "-c", ask], cwd=place, env=environment, capture_output=True, text=True, timeout=60)
    offered = {line.partition("\t")[0] for line in told.stdout.splitlines()}
    assert (done.removeprefix(typed.rpartition(" ")[0]).strip() in offered) == (done != typed)


def test_fish_and_zsh_have_the_same_words(known):
    follow, values = known
    fish = completion.fish(follow, values)
    for key, words in follow.items():
        where = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in key)
        for word in words:
            assert not word.startswith("--") or f"-n '{where}' -l {word[2:]}" in fish
        assert key in (("completion",), ("train",)) or {"--color", "--json", "--help-all"} <= {*words}
    where = "-n '__fish_seen_subcommand_from sample'"
    assert f"{where} -l sampler -x -a '{' '.join(values['--sampler'])}'\n" in fish
    assert f"{where} -a 'chorales mnist" in fish
    assert completion.bash("zsh", follow, values).splitlines()[1] == "autoload -U +X bashcompinit && bashcompinit"
