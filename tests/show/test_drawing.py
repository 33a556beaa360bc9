"""`sample` and `infill` of images, music and grids: what comes on the screen, and what in the files."""

import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zellige import cli
from zellige.base.errors import InputError
from zellige.cli import drawing
from zellige.cli.drawing import frames_folder
from zellige.data import load
from zellige.data.levels import Levels
from zellige.data.tokenizer import Characters
from zellige.show import kinds
from zellige.show.terminal import Terminal

SMALL = "--net.layers 1 --net.hidden 16 --net.heads 2 --train.batch 4 --train.steps 2 --train.validate-rows 4 --quiet"
RUNS = {"images": "digits", "grids": "sudoku", "music": "jsb-chorales --data.path chorales.json --data.size 32"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run of each kind; two steps of training, so that what they draw is nearly noise."""
    folder = tmp_path_factory.mktemp("drawing")
    chorale = [[60 + i % 7, 55, 52 + i % 3, -1 if i % 32 < 2 else 48] for i in range(64)]
    (folder / "chorales.json").write_text(json.dumps(dict.fromkeys(("train", "valid", "test"), [chorale] * 4)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ZELLIGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        for run, data in RUNS.items():
            assert cli.main(shlex.split(f"train mdlm --run {run} --data.name {data} {SMALL}")) == 0
    return folder


@pytest.fixture
def run(place, monkeypatch, capsys, tmp_path):
    """Run a command there: (code, stdout, stderr)."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path))

    def call(command: str):
        code = cli.main(shlex.split(command))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def samples(file: str = "s.json") -> np.ndarray:
    return np.array([row["tokens"] for row in json.loads(Path(file).read_text())["result"]["samples"]])


def read(file: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(Path(file).read_bytes())).convert("RGB"))


def test_training_leaves_pictures(place):
    assert sorted(f.name for f in place.glob("*/samples/*")) == [
        "step-000002.jsonl", "step-000002.jsonl", "step-000002.jsonl", "step-000002.png", "step-000002.png",
        "step-000002.txt",
    ]  # fmt: skip
    rows = [json.loads(line) for line in (place / "images/samples/step-000002.jsonl").read_text().splitlines()]
    kind = kinds.of(load(place / "images/checkpoints/last"))
    assert (place / "images/samples/step-000002.png").read_bytes() == kind.png([row["tokens"] for row in rows])
    assert (place / "grids/samples/step-000002.txt").read_text().startswith("┌─────┬─────┐\n│ ")


def test_images_as_half_blocks(run, monkeypatch):
    monkeypatch.setenv("COLORTERM", "truecolor")
    code, out, err = run("sample images --count 3 --steps 8 --seed 1 --color always --json s.json")
    assert code == 0
    assert "note: " not in err
    pixels = kinds.of(load("images/checkpoints/last")).pixels(samples())
    lines = out.splitlines()
    assert len(lines) == 4  # side by side
    for y, line in enumerate(lines):
        found = []
        for sgr, text in re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)\x1b\[0m", line):
            found += [tuple(map(int, re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", sgr)[k])) for k in (0, 1)] * len(text)
        tops = [tuple(p) for image in pixels for p in image[2 * y].tolist()]
        below = [tuple(p) for image in pixels for p in image[2 * y + 1].tolist()]
        assert found == [p for pair in zip(tops, below) for p in pair]


def test_without_colours_a_note_and_numbers_for_a_pipe(run):
    code, out, err = run("sample images --count 2 --steps 8 --seed 1 --json s.json")
    assert code == 0
    assert err.count("note: images are shown where there are colours; --out x.png writes them") == 1
    assert np.array([line.split() for line in out.splitlines()], int).reshape(2, 64).tolist() == samples().tolist()


@pytest.mark.parametrize("what", ["images", "grids", "music"])
def test_every_format_holds_the_same_samples(what, run):
    pytest.importorskip("mido")
    said = "--count 3 --steps 8 --seed 2"
    assert run(f"sample {what} {said} --json s.json")[0] == 0
    rows, kind = samples(), kinds.of(load(f"{what}/checkpoints/last"))
    for suffix in (".jsonl", *kind.suffixes):
        code, out, err = run(f"sample {what} {said} --out x{suffix}")
        assert (code, out) == (0, f"valid: {int(kind.valid(rows).sum())} of 3\n" if what == "grids" else "")
        files = ["x-1.mid", "x-2.mid", "x-3.mid"] if suffix == ".mid" else [f"x{suffix}"]
        assert err.endswith(f"written  {' '.join(files)}\n")
    assert [json.loads(line)["tokens"] for line in Path("x.jsonl").read_text().splitlines()] == rows.tolist()
    assert Path("x.png").read_bytes() == kind.png(rows)
    assert Path("x.txt").read_text() == "".join(kind.text(row) + "\n" for row in rows.tolist())
    if what == "music":
        kind.midi(rows[1]).save("y.mid")
        assert Path("y.mid").read_bytes() == Path("x-2.mid").read_bytes()


def test_a_grid_and_a_roll_are_drawn(run):
    _, out, _ = run("sample grids --count 2 --steps 8 --json s.json")
    assert out.splitlines()[0] == "┌─────┬─────┐  ┌─────┬─────┐"
    assert [int(c) - 1 for c in re.findall(r"\d", out.partition("valid")[0])] == samples().reshape(2, 4, 4).transpose(
        1, 0, 2
    ).ravel().tolist()
    _, out, _ = run("sample music --steps 8 --json s.json")
    assert out.splitlines()[5:] == kinds.of(load("music/checkpoints/last")).text(samples()[0].tolist()).splitlines()[5:]
    assert [line.split()[0] for line in out.splitlines()[:5]] == ["bar", "soprano", "alto", "tenor", "bass"]


@pytest.mark.parametrize(
    ("what", "keep"), [("images", "--keep bottom"), ("images", ""), ("music", "--keep soprano,bass"), ("music", "")]
)
def test_infill_keeps_a_part_of_an_example(what, keep, run):
    code, _, err = run(f"infill {what} --example 2 {keep} --count 2 --steps 8 --json s.json --out x.png")
    assert code == 0
    assert "note: " not in err
    result = json.loads(Path("s.json").read_text())["result"]
    fixed, truth = np.array(result["given"]), np.array(result["truth"])
    kind = kinds.of(load(f"{what}/checkpoints/last"))
    assert (kind.given(truth, keep.removeprefix("--keep ") or None) == fixed).all()
    rows = samples()
    assert (rows[:, fixed >= 0] == truth[fixed >= 0]).all()
    assert (rows[0] != rows[1]).any()
    if what == "images":
        assert read("x.png").shape[1] > 4 * 100  # given, two fillings, truth, in one line
        assert read("x.png").shape[0] < 2 * 100


def test_a_puzzle_is_filled_and_judged(run):
    code, out, _ = run("infill grids '12.. .... .... ..21' --count 2 --steps 8 --json s.json")
    assert code == 0
    assert out.split("\n")[0].split() == ["given", "filled", "1", "filled", "2"]
    assert out.split("\n")[2].startswith("│ 1 2 │ · · │  │ 1 2 │ ")
    assert re.search(r"^filled 1: (valid|not valid: \d+ cells in conflict)$", out, re.M)
    assert (samples()[:, [0, 1, 14, 15]] == [0, 1, 1, 0]).all()
    result = json.loads(Path("s.json").read_text())["result"]
    assert result["truth"] is None
    assert len(result["verdicts"]) == 2
    assert run("infill grids --example 7 --steps 8")[1].split("\n")[0].split() == ["given", "filled", "truth"]


def test_watch_shows_what_is_there(run, monkeypatch):
    """Frames one after another in a pipe: the grid with its holes; of images, which have no colours here, the counts."""
    _, _, err = run("sample grids --steps 2 --watch --seed 3")
    frames = err.split("sample 1 of 1")[1:]
    assert len(frames) == 3
    assert [frame.count("·") for frame in frames] == [16, int(16 - int(re.search(r"(\d+) of 16", frames[1])[1])), 0]
    _, _, err = run("sample images --steps 2 --watch")
    assert "▀" not in err
    assert err.count(" of 64 revealed") == 3
    monkeypatch.setenv("COLORTERM", "truecolor")
    _, _, err = run("sample images --steps 2 --watch --color always")
    first = err.split("sample 1 of 1")[1]
    assert first.count("▀") == 32
    assert first.count("\x1b[38;2;86;108;150;48;2;86;108;150m") == 4  # four lines, all masked


def test_frames_are_a_picture_a_step(run, place, tmp_path, monkeypatch):
    """The last one is what --out writes; the first is all masked; texts and folders in use are refused."""
    code, _, err = run(f"sample images --count 4 --steps 5 --frames {tmp_path / 'f'} --out {tmp_path / 'x.png'}")
    assert code == 0
    assert "6 frames" in err
    assert sorted(f.name for f in (tmp_path / "f").iterdir()) == [f"step-{i:04d}.png" for i in range(6)]
    assert (tmp_path / "f/step-0005.png").read_bytes() == (tmp_path / "x.png").read_bytes()
    first = read(str(tmp_path / "f/step-0000.png")).reshape(-1, 3)
    assert {tuple(colour) for colour in first.tolist()} == {
        (86, 108, 150),
        (255, 255, 255),
    }  # masked, and between images
    assert run(f"sample images --frames {tmp_path / 'f'}")[0] == 2
    monkeypatch.setattr(drawing, "MOST", 20)
    run(f"infill grids --example 7 --steps 45 --sampler ancestral --frames {tmp_path / 'g'}")
    steps = sorted(int(f.stem[5:]) for f in (tmp_path / "g").iterdir())
    assert steps == [*range(0, 45, 3), 45]
    with pytest.raises(InputError, match="makes texts"):
        frames_folder(str(tmp_path / "t"), kinds.Text(Characters("ab")))


def test_a_film_has_a_picture_a_step(run, tmp_path):
    """As many as fit, the same as --frames writes; the last one stays; no sample is printed."""
    code, out, err = run(f"sample images --count 4 --steps 5 --out {tmp_path / 'x.gif'} --frames {tmp_path / 'f'}")
    assert (code, out) == (0, "")
    assert err.splitlines()[-2].startswith("written  ")
    with Image.open(tmp_path / "x.gif") as film:
        seen = [
            (film.seek(i), film.info["duration"], np.asarray(film.convert("RGB")))[1:] for i in range(film.n_frames)
        ]
    assert sum(duration for duration, _ in seen) == 5 * 120 + 2000
    for (_, picture), step in zip(seen, (0, 1, 2, 3, 4, 5), strict=True):
        wanted = read(str(tmp_path / f"f/step-{step:04d}.png")).astype(int)
        assert np.abs(picture[: len(wanted), : wanted.shape[1]] - wanted).max() < 40  # 256 colours
    run(f"sample images --steps 81 --sampler ancestral --out {tmp_path / 'y.gif'}")
    with Image.open(tmp_path / "y.gif") as film:  # steps 0, 3, ..., 81; those that are alike became one
        assert sum((film.seek(i), film.info["duration"])[1] for i in range(film.n_frames)) == 27 * 120 + 2000


def test_a_film_as_mp4(run, tmp_path):
    av = pytest.importorskip("av")
    assert run(f"sample images --count 3 --steps 5 --out {tmp_path / 'x.mp4'} --frames {tmp_path / 'f'}")[0] == 0
    with av.open(tmp_path / "x.mp4") as film:
        pictures = [frame.to_ndarray(format="rgb24").astype(int) for frame in film.decode(video=0)]
    assert len(pictures) == 5 * 3 + 50
    assert all(side % 2 == 0 for side in pictures[0].shape[:2])
    for shown, step in ((pictures[0], 0), (pictures[-1], 5)):
        wanted = read(str(tmp_path / f"f/step-{step:04d}.png"))
        assert np.abs(shown[: len(wanted), : wanted.shape[1]] - wanted).mean() < 12


def test_ascii_terminals_get_ascii_grids():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal = Terminal(out, io.StringIO(), environ={})
    kind = kinds.of(Levels(4, (4, 4), labels=(1, 2, 3, 4)))
    terminal.picture(kind.lines([[0, 1, 2, 3] * 4]))
    out.flush()
    text = out.buffer.getvalue().decode()
    assert text.splitlines()[:2] == ["+-----+-----+", "| 1 2 | 3 4 |"]
