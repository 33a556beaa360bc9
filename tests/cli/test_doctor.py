"""`zellige doctor` and `zellige completion`: what they say is so."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from zellige import METHODS, cli
from zellige.cli import completion, doctor, help
from zellige.cli.commands import COMMANDS

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
    assert theirs == doctor.EXTRAS


@pytest.fixture(scope="module")
def follow():
    return completion.tables(COMMANDS)


def test_completion_knows_every_command_method_and_option(follow):
    assert {key[0] for key in follow} == set(help.COMMANDS)
    assert follow["train",] == [*METHODS]
    assert {"--block", "--train.rate", "--size", "--config", "--json"} <= set(follow["train", "bd3lm"])
    assert {"--judge", "--bracket", "--draws", "--suite"} <= set(follow["evaluate",])


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("zellige tr", ["train"]), ("zellige train bd", ["bd3lm"]), ("zellige train bd3lm --blo", ["--block"]),
        ("zellige train mdlm --lay", []), ("zellige sample no", ["notes.txt"]), ("zellige sample runs --temp", ["--temperature"]),
        ("zellige list samp", ["samplers"]), ("zellige completion z", ["zsh"]),
    ],
)  # fmt: skip
def test_bash_completes(typed, offered, follow, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    words = typed.split(" ")
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _zellige; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", f"{completion.bash('bash', follow)}\n{ask}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_fish_and_zsh_have_the_same_words(follow):
    fish = completion.fish(follow)
    for key, words in follow.items():
        where = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in key)
        for word in words:
            assert word not in completion.EVERYWHERE or f"-n '{where}' -l {word[2:]}" in fish
    assert completion.bash("zsh", follow).splitlines()[1] == "autoload -U +X bashcompinit && bashcompinit"
