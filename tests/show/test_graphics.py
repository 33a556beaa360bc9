"""Pixels on a terminal: what is sent is read back, by a decoder written after the manuals; who is asked, and who is not."""

import base64
import io
import os
import re
import threading

import numpy as np
import pytest
from PIL import Image

from zellige.show import graphics
from zellige.show.graphics import Graphics, graphics_of
from zellige.show.picture import Picture, Watch
from zellige.show.terminal import Terminal

PIXELS = np.random.default_rng(0).integers(0, 16, (7, 5, 3)).astype(np.uint8) * 17


def read_sixel(sequence: str) -> np.ndarray:
    """(H, W, 3) uint8, by the levels of the palette, 0 to 100."""
    width, height = map(int, re.findall(r'"1;1;(\d+);(\d+)', sequence)[0])
    out, palette = np.full((height + 5, width, 3), 7, np.uint8), {}
    body = re.sub(r"#(\d+);2;(\d+);(\d+);(\d+)", lambda m: palette.update({m[1]: [int(x) for x in m.groups()[1:]]}) or "",
                  sequence[sequence.index(f"{height}") + len(str(height)) : -2])  # fmt: skip
    top, x, colour = 0, 0, ""
    for chosen, times, sign in re.findall(r"#(\d+)|(?:!(\d+))?([?-~$-])", body):
        if chosen:
            colour = chosen
        elif sign == "$":
            x = 0
        elif sign == "-":
            top, x = top + 6, 0
        else:
            for k in range(6):
                if ord(sign) - 63 >> k & 1:
                    out[top + k, x : x + int(times or 1)] = palette[colour]
            x += int(times or 1)
    assert (out[height:] == 7).all()
    return out[:height]


@pytest.mark.parametrize("scale", [1, 4])
def test_sixels_hold_every_pixel(scale):
    read = read_sixel(graphics.sixel(PIXELS, scale))
    assert (read == np.rint(PIXELS / 2.55).repeat(scale, 0).repeat(scale, 1)).all()


def test_sixels_of_many_colours_are_near():
    many = np.random.default_rng(1).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    far = np.abs(read_sixel(graphics.sixel(many)) * 2.55 - many)
    assert len(np.unique(many.reshape(-1, 3), axis=0)) > 1000
    assert far.mean() < 20  # 256 colours of 16.8 million: a cube of 6 steps would be 21 off


def test_kitty_gets_a_png_in_pieces():
    large = np.random.default_rng(2).integers(0, 256, (100, 90, 3)).astype(np.uint8)
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", graphics.kitty(large, 9, 5))
    assert len(pieces) > 2
    assert all(len(data) <= 4096 for _, data in pieces)
    assert [re.search(r"m=(\d)", head)[1] for head, _ in pieces] == [*"1" * (len(pieces) - 1), "0"]  # pyright: ignore
    assert {"a=T", "f=100", "i=5", "q=2", "C=1", "r=9"} <= set(pieces[0][0].split(","))
    image = Image.open(io.BytesIO(base64.b64decode("".join(data for _, data in pieces))))
    assert (np.asarray(image) == large).all()


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (64, 64), (100, 3), (3, 900), (2000, 2000)])
def test_a_picture_fits_the_room_and_fills_it(shape):
    how = Graphics("sixel", (9, 18))
    sequence = how.draw(np.zeros((*shape, 3), np.uint8), 77, 18, 1)
    width, height = map(int, re.findall(r'"1;1;(\d+);(\d+)', sequence)[0])
    assert width <= 77 * 9
    assert height <= how.rows(np.zeros((*shape, 3)), 77, 18) * 18 <= 18 * 18
    assert max(width / (77 * 9), height / (18 * 18)) > 0.5


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-256color"}, None),
    ],
)
def test_the_environment_tells(environ, protocol):
    found = graphics_of(environ, None)
    assert (found and found.protocol) == protocol


@pytest.fixture
def terminal_side():
    """A pseudo-terminal whose other end answers to a question by what the test says."""
    pty = pytest.importorskip("pty")
    mine, theirs = pty.openpty()
    yield mine, theirs
    os.close(mine)
    os.close(theirs)


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (b"\x1b[6;18;9t\x1b[?62;4;22c", Graphics("sixel", (9, 18))),
        (b"\x1b[?62;4c", Graphics("sixel")),
        (b"\x1b[?64;14;24c", None),  # 14 and 24 are no 4
        (b"\x1b[?4c", None),  # the first number is the kind of terminal
    ],
)
def test_the_answer_tells(answer, how, terminal_side, monkeypatch):
    mine, theirs = terminal_side
    asked = []

    def reply():
        asked.append(os.read(mine, 100))
        os.write(mine, answer)

    monkeypatch.setattr(
        os, "tcgetpgrp", lambda _: os.getpgrp()
    )  # the test does not stand in that terminal's foreground
    monkeypatch.setattr(graphics.query, "__defaults__", (30,))
    thread = threading.Thread(target=reply)
    thread.start()
    assert graphics_of({"TERM": "xterm"}, theirs) == how
    thread.join()
    assert asked == [b"\x1b[16t\x1b[c"]


def test_nobody_answers(terminal_side, monkeypatch):
    _, theirs = terminal_side
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    assert graphics.query(theirs, 0.01) == ""
    with open(os.devnull, "w") as file:
        assert graphics.query(file.fileno()) == ""


def test_in_the_background_nobody_is_asked(terminal_side, monkeypatch):
    _, theirs = terminal_side
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    monkeypatch.setattr(os, "write", lambda *_: pytest.fail("asked"))
    assert graphics.query(theirs) == ""


def test_watched_images_are_drawn_over_blank_lines():
    """In kitty: between head and foot as many lines as it takes, and the cursor comes back to the foot."""

    class Stream(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal(Stream(), Stream(), environ={"TERM": "xterm-kitty"})
    block = [[("▀", ((1, 2, 3), (4, 5, 6)))]]
    with Watch(terminal) as watch:
        picture = Picture("head", (), ["shown"] * 35, "foot", block, pixels=PIXELS)
        lines = watch.lines(picture)
        watch.draw(picture, last=True)
    out = terminal.err.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    rows = len(lines) - 2
    assert lines[0] == "head"
    assert not any(line.strip() for line in lines[1:-1])
    assert rows == Graphics("kitty").rows(PIXELS, 77, 18) > 10
    placed = re.findall(r"\x1b7\x1b\[(\d+)A\r\x1b\[2C\x1b_Ga=T.*?\x1b8", out, re.S)
    assert placed
    assert set(placed) == {str(rows)}
    assert "▀" not in out
    plain = Terminal(Stream(), Stream(), environ={"TERM": "xterm-kitty", "NO_COLOR": "1"})
    assert plain.graphics is None
