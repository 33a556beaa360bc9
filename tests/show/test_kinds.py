"""How data show themselves: files are read back, pixels and notes compared one by one, masks and rules by brute force."""

import io
import itertools
import sys

import numpy as np
import pytest
from PIL import Image as Pillow

from zellige.base.errors import InputError
from zellige.cli.drawing import Panels
from zellige.data.levels import Levels
from zellige.data.tokenizer import TEXT8, Characters
from zellige.plugins.kinds.molecules.tokens import Smiles
from zellige.plugins.kinds.music.notes import Notes
from zellige.show import kinds
from zellige.show.kinds.image import GAP, MASKED
from zellige.show.style import painted

GREY = Levels(8, (6, 4), "image", "dim", ordered=True)
COLOUR = Levels(256, (5, 7, 3), "image", "dim", ordered=True)
CHORALE = Notes(40, (32, 4), ordered=True, labels=[-1, *range(43, 82)])
NINE = Levels(9, (9, 9), "grid", "cell", labels=range(1, 10))
FOUR = Levels(4, (4, 4), "grid", "cell", labels=(1, 2, 3, 4))
SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def read(png: bytes) -> np.ndarray:
    return np.asarray(Pillow.open(io.BytesIO(png)).convert("RGB"))


def rows(tokenizer, count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, tokenizer.size, (count, int(np.prod(tokenizer.shape))))


def solved() -> np.ndarray:
    return kinds.of(NINE).read(SOLVED)


# -------------------------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize("tokenizer", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_png_holds_every_pixel(tokenizer, tmp_path):
    some = rows(tokenizer, 5)
    some[0] = tokenizer.size  # an image of which nothing is there yet
    kind = kinds.of(tokenizer)
    (file,) = kind.save(tmp_path / "x.png", some)
    image = read(file.read_bytes())
    height, width = tokenizer.shape[:2]
    scale = image.shape[0] // (2 * height + GAP)  # two lines of three
    assert scale >= 2
    assert image.shape == (scale * (2 * height + GAP), scale * (3 * width + 2 * GAP), 3)
    assert (image.reshape(-1, scale, image.shape[1] // scale, scale, 3) == image[::scale, None, ::scale, None]).all()
    image = image[::scale, ::scale]
    for i, row in enumerate(some):
        y, x = i // 3 * (height + GAP), i % 3 * (width + GAP)
        for (a, b), values in zip(itertools.product(range(height), range(width)), row.reshape(height * width, -1)):
            wanted = MASKED if i == 0 else [round(255 * v / (tokenizer.size - 1)) for v in values] * (3 // len(values))
            assert image[y + a, x + b].tolist() == list(wanted)
    assert (image[-height:, -width:] == 255).all()  # there is no sixth
    assert (image[height : height + GAP] == 255).all()


def test_a_sheet_has_a_line_for_each_class_with_its_name(tmp_path):
    """Two images of one class and one of another, out of order: the second line has room for one more, both have names."""
    some, kind, labels = rows(GREY, 3), kinds.of(GREY), ["boot", "shirt", "boot"]
    Panels(kind, some.tolist(), None, labels).write(tmp_path / "x.png", [])
    image, plain = read((tmp_path / "x.png").read_bytes()), read(kind.png(some[[0, 2, 1]], captions=("", "")))
    margin = image.shape[1] - plain.shape[1]
    assert (image[:, margin:] == plain).all()
    half = image.shape[0] // 2
    assert all((part[:, :margin] < 128).any() for part in (image[:half], image[half:]))
    assert (image[:half, :margin] != image[-half:, :margin]).any()
    Panels(kind, some.tolist(), None, ["boot"] * 3).write(tmp_path / "y.png", [])  # of one class: as without classes
    assert (tmp_path / "y.png").read_bytes() == kind.png(some)


def test_masked_pixels_look_like_nothing_else():
    pixels = kinds.of(GREY).pixels(np.array([[*range(8)] * 3, [8, -1] * 12]))
    assert (pixels[0] == pixels[0][..., :1]).all()  # greys
    assert (pixels[1] == MASKED).all()
    assert len(set(MASKED)) == 3
    half = np.zeros(105, int)
    half[1::3] = -1  # of colours one channel is still to come
    assert (kinds.of(COLOUR).pixels(half) == [0, 128, 0]).all()


def test_half_blocks():
    """2 x 3 pixels, then an odd line: two pixels a character, and the lower half of the last is left free."""
    kind = kinds.of(Levels(256, (3, 2), "image", "dim", ordered=True))
    block = kind.block([0, 10, 128, 255, 77, 256])
    grey = lambda v: (v, v, v)  # noqa: E731
    assert block == [
        [("▀", (grey(0), grey(128))), ("▀", (grey(10), grey(255)))],
        [("▀", (grey(77), None)), ("▀", (MASKED, None))],
    ]
    assert painted(block, True, 2**24) == [
        "\x1b[38;2;0;0;0;48;2;128;128;128m▀\x1b[0m\x1b[38;2;10;10;10;48;2;255;255;255m▀\x1b[0m",
        "\x1b[38;2;77;77;77m▀\x1b[0m\x1b[38;2;86;108;150m▀\x1b[0m",
    ]
    assert painted(block, True, 256)[0] == "\x1b[38;5;16;48;5;244m▀\x1b[0m\x1b[38;5;232;48;5;231m▀\x1b[0m"
    assert painted(block, True, 0) == []
    marked = kind.block([0] * 6, ["masked", *["shown"] * 5])
    assert marked[0][0] == ("▀", (MASKED, grey(0)))


def test_the_256_colours_are_near():
    """Every grey within 8 of the terminal's own, and of the cube the nearest level of each colour."""
    levels = [0, 95, 135, 175, 215, 255]
    for v in range(256):
        (line,) = painted([[("▀", ((v, v, v), None))]], True, 256)
        code = int(line.split(";")[2].partition("m")[0])
        shown = {16: 0, 231: 255}.get(code, 8 + 10 * (code - 232))
        assert abs(shown - v) <= 8
        (line,) = painted([[("▀", ((v, 0, 255), None))]], True, 256)
        code = int(line.split(";")[2].partition("m")[0]) - 16
        assert (code // 6 % 6, code % 6) == (0, 5)
        assert abs(levels[code // 36] - v) == min(abs(level - v) for level in levels)


def test_a_wide_image_fits_the_terminal():
    kind = kinds.of(Levels(2, (4, 200), "image", "dim", ordered=True))
    assert {len(line) for line in kind.block([0] * 800)} == {67}  # every third pixel
    assert len(kind.block([0] * 800)) == 1


# --------------------------------------------------------------------------------------------------------------- music


def melody() -> np.ndarray:
    """Soprano: C5 for 4 steps, D5 for 2, a rest of 2, D5 to the end; alto: a rest, then a sixteenth; tenor, bass: held."""
    level = {p: i for i, p in enumerate(CHORALE.labels)}
    out = np.zeros((32, 4), int)
    out[:4, 0], out[4:6, 0], out[8:, 0] = level[72], level[74], level[74]
    out[31, 1] = level[67]
    out[:, 2], out[:, 3] = level[55], level[48]
    return out.reshape(-1)


def test_midi_reads_back_note_for_note(tmp_path):
    mido = pytest.importorskip("mido")
    kind = kinds.of(CHORALE)
    some = np.stack([melody(), rows(CHORALE, 1)[0]])
    files = kind.save(tmp_path / "x.mid", some)
    assert [f.name for f in files] == ["x-1.mid", "x-2.mid"]
    assert kind.save(tmp_path / "y.mid", some[0]) == [tmp_path / "y.mid"]
    assert (tmp_path / "y.mid").read_bytes() == files[0].read_bytes()
    for file, row in zip(files, some):
        read = mido.MidiFile(file)
        sixteenth = read.ticks_per_beat / 4
        back = np.full((32, 4), -1)
        names = []
        for track in read.tracks[1:]:
            now, voice = 0.0, len(names)
            began: dict[int, float] = {}
            for message in track:
                now += message.time
                if message.type == "track_name":
                    names.append(message.name)
                elif message.type == "note_on":
                    assert not began  # one note at a time in a voice
                    began[message.note] = now
                elif message.type == "note_off":
                    first, last = began.pop(message.note) / sixteenth, now / sixteenth
                    assert first == int(first)
                    back[int(first) : int(last), voice] = message.note
            assert not began
        assert names == ["soprano", "alto", "tenor", "bass"]
        assert (back == np.array(CHORALE.labels)[row].reshape(32, 4)).all()
    soprano = [m for m in mido.MidiFile(files[0]).tracks[1] if m.type == "note_on"]
    assert len(soprano) == 3  # an equal pitch goes on, a rest ends it


def test_notes_are_runs():
    assert kinds.of(CHORALE).notes(melody())[:3] == [
        [(0, 4, 72), (4, 2, 74), (8, 24, 74)],
        [(31, 1, 67)],
        [(0, 32, 55)],
    ]


def test_a_roll_on_a_terminal():
    lines = kinds.of(CHORALE).text(melody()).splitlines()
    assert lines[0] == "bar 1"
    assert lines[1] == "soprano C5  ────────────D5  ──── -   -  D5  " + "─" * 28
    assert lines[2].split() == ["alto", *["-"] * 16]
    assert lines[5:7] == ["bar 2", "soprano D5  " + "─" * 60]  # a bar says what it holds
    assert lines[7].endswith(" -  G4")
    masked = kinds.of(CHORALE).block(melody().tolist(), ["masked"] * 4 + ["shown"] * 124)
    assert masked[1][1:3] == [(" ·  ", "masked"), ("────", "shown")]


def test_a_piano_roll_has_a_bar_for_each_note():
    fig = kinds.of(CHORALE).figure(np.stack([melody()] * 2), captions=("one", "two"))
    for ax, caption in zip(fig.axes, ("one", "two")):
        assert ax.get_title(loc="left") == caption
        boxes = [p.get_extents() for c in ax.collections for p in c.get_paths()]
        found = sorted((round(16 * b.x0), round(16 * b.width), round((b.y0 + b.y1) / 2)) for b in boxes)
        assert found == sorted(note for voice in kinds.of(CHORALE).notes(melody()) for note in voice)


def test_states_that_are_no_pitches_are_not_written_as_midi():
    """Those of a piano roll whose key is not known: the 129th would be MIDI's pitch 128."""
    with pytest.raises(InputError, match=r"not known as pitches, since its data came without descramble_key\.txt"):
        kinds.of(Notes(129, (8, 1))).refuse(".mid")
    kinds.of(Notes(129, (8, 1))).refuse(".png")


def test_without_mido_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mido", None)
    with pytest.raises(InputError) as error:
        kinds.of(CHORALE).refuse(".mid")
    assert str(error.value) == "`out` x.mid needs 'mido'; pip install 'zellige[music]'"


# --------------------------------------------------------------------------------------------------------------- grids


def test_a_grid_is_drawn_with_its_boxes():
    lines = kinds.of(NINE).text(solved()).splitlines()
    assert lines[:5] == [
        "┌───────┬───────┬───────┐",
        "│ 5 3 4 │ 6 7 8 │ 9 1 2 │",
        "│ 6 7 2 │ 1 9 5 │ 3 4 8 │",
        "│ 1 9 8 │ 3 4 2 │ 5 6 7 │",
        "├───────┼───────┼───────┤",
    ]
    assert lines[-1] == "└───────┴───────┴───────┘"
    assert kinds.of(FOUR).text([3, -1, 0, 1] * 4).splitlines()[1] == "│ 4 · │ 1 2 │"
    plain = kinds.of(Levels(12, (2, 3))).text(range(6)).splitlines()
    assert plain == ["┌──────────┐", "│  0  1  2 │", "│  3  4  5 │", "└──────────┘"]
    assert kinds.of(Levels(3, (100,))).text([2] * 100).splitlines()[-2].count("2") == 100 - 2 * 36


def test_validity_against_brute_force():
    """All 4^4 ways to fill four cells of a solved grid, one in each row: the rules, spelt out."""
    kind = kinds.of(FOUR)
    base = kind.read("1234 3412 2143 4321")
    for values in itertools.product(range(4), repeat=4):
        grid = base.copy()
        grid[[0, 5, 10, 15]] = values
        board = grid.reshape(4, 4)
        groups = [*board, *board.T, *(board[y : y + 2, x : x + 2].ravel() for y in (0, 2) for x in (0, 2))]
        assert kind.valid(grid)[0] == all(sorted(g) == [0, 1, 2, 3] for g in groups)
        for i in range(16):
            y, x = divmod(i, 4)
            others = [
                j
                for j in range(16)
                if j != i and (j // 4 == y or j % 4 == x or (j // 8, j % 4 // 2) == (y // 2, x // 2))
            ]
            assert kind.clashes(grid)[0, i] == any(grid[j] == grid[i] for j in others)


def test_what_is_said_of_a_filled_grid():
    kind = kinds.of(NINE)
    right, wrong = solved(), solved()
    wrong[0] = wrong[1]
    other = (solved() + 1) % 9
    assert kind.verdict(right, solved()) == "valid, the solution"
    assert kind.verdict(other, solved()) == "valid, another solution"
    assert kind.verdict(right) == "valid"
    assert kind.verdict(wrong, solved()).startswith("not valid: ")
    assert not kind.valid(kind.read(PUZZLE))[0]  # not until it is filled
    assert not kind.clashes(kind.read(PUZZLE)).any()


def test_a_puzzle_is_read():
    kind = kinds.of(NINE)
    fixed = kind.read(PUZZLE)
    assert (kind.read(PUZZLE.replace(".", "0")) == fixed).all()
    assert all(a == -1 if c == "." else a == int(c) - 1 for a, c in zip(fixed, PUZZLE, strict=True))
    assert (fixed[fixed >= 0] == solved()[fixed >= 0]).all()
    with pytest.raises(InputError, match=r"^the puzzle has 80 cells, the model takes 9 x 9 = 81; "):
        kind.read(PUZZLE[:-1])
    with pytest.raises(InputError, match="'x' in the puzzle"):
        kind.read("x" + PUZZLE[1:])


# --------------------------------------------------------------------------------------------------------------- given


@pytest.mark.parametrize("tokenizer", [GREY, COLOUR, NINE], ids=["grey", "colour", "grid"])
def test_halves_by_brute_force(tokenizer):
    kind, row = kinds.of(tokenizer), rows(tokenizer, 1)[0]
    height, width, *_ = tokenizer.shape
    depth = row.size // (height * width)
    inside = {
        "top": lambda y, x: y < height / 2,
        "bottom": lambda y, x: y >= height // 2,
        "left": lambda y, x: x < width / 2,
        "right": lambda y, x: x >= width // 2,
    }
    assert kind.keeps == tuple(inside)
    for keep, rule in inside.items():
        for i, token in enumerate(kind.given(row, keep)):
            y, x = i // depth // width, i // depth % width
            assert token == (row[i] if rule(y, x) else -1)
    assert (kind.given(row) == kind.given(row, "top")).all()


@pytest.mark.parametrize("keep", ["first", "soprano", "alto,bass", "first, tenor"])
def test_voices_by_brute_force(keep):
    kind, row = kinds.of(CHORALE), rows(CHORALE, 1)[0]
    for i, token in enumerate(kind.given(row, keep)):
        step, voice = divmod(i, 4)
        kept = ("first" in keep and step < 16) or ["soprano", "alto", "tenor", "bass"][voice] in keep
        assert token == (row[i] if kept else -1)


@pytest.mark.parametrize(
    ("tokenizer", "keep", "message"),
    [
        (GREY, "middle", "unknown keep 'middle'; of images one can keep top, bottom, left or right"),
        (
            CHORALE,
            "soprano,top",
            "unknown keep 'top'; of music one can keep first, soprano, alto, tenor or bass",
        ),
    ],
)
def test_wrong_keep(tokenizer, keep, message):
    with pytest.raises(InputError) as error:
        kinds.of(tokenizer).given(rows(tokenizer, 1)[0], keep)
    assert str(error.value) == message


# ---------------------------------------------------------------------------------------------------------------- text


def test_molecules_are_lines():
    tokenizer = Smiles("CO=()\n", shape=(8,))
    kind = kinds.of(tokenizer)
    row = tokenizer.encode("C(=O)O\n\n")
    assert kind.values([row]) == ["C(=O)O"]
    assert "".join(kind.pieces([*row[:2], -1, *row[3:]])) == "C(·O)O  "
    assert kind.block(row) is None


def test_text_is_running_text(tmp_path):
    kind = kinds.of(Characters(TEXT8))
    row = kind.tokenizer.encode("the value")
    assert (kind.values([row]), kind.block(row), kind.name) == (["the value"], None, "text")
    kind.save(tmp_path / "x.txt", [row, row])
    assert (tmp_path / "x.txt").read_text() == "the value\nthe value\n"
    with pytest.raises(InputError) as error:
        kind.refuse(".png")
    assert str(error.value) == "texts cannot be written as .png; use .jsonl, .txt, .gif or .mp4"


def test_rows_stand_side_by_side():
    lines = kinds.of(FOUR).lines([[0, 1, 2, 3] * 4] * 7, ["given", "filled"], width=60)
    text = ["".join(part for part, _ in line) for line in lines]
    assert text[0].split() == ["given", "filled"]
    assert text[2] == "│ 1 2 │ 3 4 │  " * 3 + "│ 1 2 │ 3 4 │"
    assert len(text) == 8 + 1 + 7  # four, a blank line, three without captions
    assert all(len(line) <= 60 for line in text)
