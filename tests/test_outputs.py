"""What is written is whole or what it was before: no room, no permission, something in the way are one line and exit code 2."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing.disks import small_disk
from zellige import Data, InputError, Net, Train, cli, load
from zellige.base import files
from zellige.show import kinds
from zellige.training.train import train

TEXT = "the value of the object is returned by the function and it is the name of a class "


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with runs of text and of images."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "notes.txt").write_text(TEXT * 300)
    os.environ["ZELLIGE_CACHE"] = str(folder / "cache")
    how = Train(steps=1, batch=4, validate_rows=4, samples=0, tensorboard=False, device="cpu")
    net = Net(layers=1, hidden=16, heads=2, length=32)
    train("mdlm", data=Data("text", path=str(folder / "notes.txt")), net=net, train=how, run=folder / "a")
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    monkeypatch.setenv("ZELLIGE_CACHE", str(made / "cache"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "a", "a")
    return tmp_path


COMMANDS = {  # each with the name of what it writes
    "list samplers --json x.json": "x.json",
    "sample a --steps 2 --out x.jsonl": "x.jsonl",
    "sample a --steps 2 --count 9 --out x.txt": "x.txt",
    "infill a 'the ____ of' --steps 2 --json x.json": "x.json",
    "evaluate a --limit 4 --draws 1 --json x.json": "x.json",
    "report a --out x.html": "x.html",
    "report a": "a/report.html",
    "export a --to mdlm --out x": "x",
}


def refused(command: str, capsys) -> str:
    """The one line of an error with exit code 2; nothing was printed before it."""
    code = cli.main(shlex.split(command))
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert (code, len(lines)) == (2, 1), err
    assert err.splitlines()[-1] == lines[0]
    assert "traceback" not in err
    assert not list(Path.cwd().rglob("*.part"))
    return lines[0].removeprefix("error: ")


def old_one(name: str) -> bytes:
    """What an earlier command has left under the name."""
    if name == "x":
        load("a").export("x", "mdlm")
        return Path("x/config.json").read_bytes()
    Path(name).write_text("what was there before\n")
    return Path(name).read_bytes()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_room(command, here, capsys):
    name = COMMANDS[command]
    for before in (False, True):
        old = old_one(name) if before else b""
        with small_disk(100):
            said = refused(command, capsys)
        assert re.match(r"no space left while .*; free space and (run it|save) again", said)
        file = Path(name) / "config.json" if name == "x" else Path(name)
        assert (file.read_bytes() if file.exists() else b"") == old


@pytest.mark.parametrize("command", COMMANDS)
def test_something_in_the_way(command, here, capsys):
    name = COMMANDS[command]
    if name != "x":
        Path(name).mkdir()
        message = refused(command, capsys)
        assert message in (
            f"'{name}' is a folder; --out needs the name of a file",
            f"'{name}' is a folder; --json needs the name of a file",
            f"cannot write '{name}' (Is a directory); choose another place",
        )
        Path(name).rmdir()
    if name == Path(name).name:
        Path("taken").write_text("x")
        message = refused(re.sub(r"\bx\b(?=\.\w+$|$)", "taken/x", command), capsys)
        assert re.search(r"\((Not a directory|File exists)\)|no folder .taken.", message), message
        assert Path("taken").read_text() == "x"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_permission(command, here, capsys, monkeypatch):
    name = COMMANDS[command]
    old, plain = old_one(name), os.open

    def refuse(path, flags, *more, **how):
        if flags & os.O_CREAT and Path(str(path)).name.startswith(f".{Path(name).name}."):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr("io.open", lambda path, *more, **how: open(path, *more, opener=refuse, **how))  # noqa: SIM115
    mkdir = Path.mkdir

    def refused_folder(self, *more, **how):
        if self.name.startswith(f".{name}."):
            raise PermissionError(13, "Permission denied", str(self))
        return mkdir(self, *more, **how)

    monkeypatch.setattr(Path, "mkdir", refused_folder)
    assert refused(command, capsys) == f"cannot write '{name}' (Permission denied); choose another place"
    file = Path(name) / "config.json" if name == "x" else Path(name)
    assert file.read_bytes() == old


RESULTS = (  # commands that write into the run
    "evaluate a --limit 4 --draws 1", "evaluate a --steps 2 --limit 4 --draws 1", "evaluate a --pairs pairs.jsonl --draws 2",
    "evaluate a --generate --count 2 --steps 2 --judge missing",
)  # fmt: skip


@pytest.mark.parametrize("command", [*COMMANDS, *RESULTS])
def test_no_room_is_said_before_the_work(command, here, capsys, monkeypatch):
    """It was said after all of it, and after the result."""
    from zellige.nn.transformer import DiT

    def ask(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(DiT, "features", ask)
    Path("pairs.jsonl").write_text('{"context": "the value of ", "continuation": "the object"}\n')
    with small_disk(100):
        refused(command, capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_device(here, capsys):
    assert refused("list samplers --json /dev/full", capsys) == (
        "no space left while writing '/dev/full'; free space and run it again"
    )
    assert cli.main(["list", "samplers", "--json", "/dev/null"]) == 0
    assert not Path("/dev/null").is_file()  # it is written to, not replaced
    command = f"{sys.executable} -m zellige list samplers > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: no space left where the output goes; free space and run it again\n"


def test_a_file_is_whole_or_what_it_was(tmp_path, monkeypatch):
    file = tmp_path / "a"
    files.write_file(file, "old")
    file.chmod(0o600)
    for number in (28, 122, 5, 30):

        def broken(handle, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(InputError) as refused:
            files.write_file(file, "new")
        assert files.is_full(refused.value) == (number in (28, 122))
        assert [p.name for p in tmp_path.iterdir()] == ["a"]
        assert file.read_text() == "old"
        monkeypatch.undo()
    files.write_file(file, b"new")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)
    files.write_file(tmp_path / ("n" * 250), "a name as long as it may be")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"cannot write '.*a' \(Permission denied\); choose another place"):
        files.write_file(file, "newer")
    assert file.read_text() == "new"


def test_pictures_too(tmp_path):
    from zellige.data.levels import Levels

    image = kinds.of(Levels(2, (4, 4), "image"))
    image.save(tmp_path / "x.png", [[0, 1] * 8])
    before = (tmp_path / "x.png").read_bytes()
    no_space = r"no space left while writing '.*x\.png'; free space and run it again"
    with small_disk(100), pytest.raises(InputError, match=no_space):
        image.save(tmp_path / "x.png", [[1, 0] * 8])
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x.png", before)]


# ---------------------------------------------------------------------------------------------------- links
WRITERS = (
    "list samplers --json x.json", "sample a --steps 2 --out x.jsonl", "sample a --steps 2 --watch --out x.gif", "report a",
    "evaluate a --limit 4 --draws 1 --json x.json", "export a --to mdlm --out x", *RESULTS[1:3],
    "train mdlm --run a --resume --train.steps 2 --train.samples 1 --train.sample-steps 2",
)  # fmt: skip
_opened: list[set[str]] = []


def _watch(event: str, values: tuple) -> None:
    """Note each name that is opened to be written, or that a file is renamed to."""
    if (
        _opened
        and event == "open"
        and isinstance(values[0], str)
        and values[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    ):
        _opened[-1].add(os.path.abspath(values[0]))
    elif _opened and event == "os.rename":
        _opened[-1].add(os.path.abspath(os.fspath(values[1])))


sys.addaudithook(_watch)


@pytest.mark.parametrize("command", WRITERS)
def test_a_link_is_replaced_and_its_target_stays(command, here, capsys, tmp_path_factory):
    """In a run that somebody sent, every file may be a link to something outside of it."""
    Path("pairs.jsonl").write_text('{"context": "the value of ", "continuation": "the object"}\n')
    box = tmp_path_factory.mktemp("box")
    shutil.copytree(here, box / "again", symlinks=True)
    _opened.append(set())
    assert cli.main(shlex.split(command)) == 0, capsys.readouterr().err
    inside = {Path(name).relative_to(here) for name in _opened.pop() if Path(name).is_relative_to(here)}
    names = {name for name in inside if not re.search(r"\.\d+\.(part|old)\b|/step-\d+$", str(name))}
    assert names
    os.chdir(box / "again")
    (box / "outside").mkdir()
    for number, name in enumerate(sorted(names)):
        target = box / "outside" / str(number)
        if (here / name).is_dir():
            shutil.copytree(here / name, target)
        else:
            target.write_bytes(name.read_bytes() if name.is_file() else b"precious")
        name.parent.mkdir(exist_ok=True)
        name.unlink(missing_ok=True)
        name.symlink_to(target)
    before = _contents(box / "outside")
    assert cli.main(shlex.split(command)) == 0, capsys.readouterr().err
    assert _contents(box / "outside") == before
    assert [str(name) for name in names if name.is_symlink() and name.name not in ("last", "best")] == []


def _contents(folder: Path) -> dict[str, tuple]:
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }
