"""Numbers, streams, colours, encodings, bars and frames: what is printed where, and when something may move."""

import io
import json
import os
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.small import RECORD
from zellige.show import numbers as t
from zellige.show.numbers import path
from zellige.show.picture import Picture, Watch
from zellige.show.progress import Bar, Speed, TrainingBar
from zellige.show.record import dumps, json_record
from zellige.show.terminal import Terminal

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


class Stream(io.StringIO):
    """A text stream that says what it is."""

    def __init__(self, tty: bool = False, encoding: str = "utf-8"):
        super().__init__()
        self.tty, self._encoding = tty, encoding

    @property
    def encoding(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._encoding

    def isatty(self):
        return self.tty


def screen(tty=False, encoding="utf-8", environ=None, **options):
    return Terminal(
        Stream(tty, encoding), Stream(tty, encoding), environ=environ or {"TERM": "xterm-256color"}, **options
    )


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


# ------------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (t.count(50258), "50,258"),
        (t.counted(1, "text"), "1 text"),
        (t.counted(2, "text"), "2 texts"),
        (t.token_rate(16_400), "16.4k tokens/s"),
        (t.token_rate(612_300), "612k tokens/s"),
        (t.token_rate(569.4), "569 tokens/s"),
        (t.token_rate(999_960), "1.0M tokens/s"),
        (t.flop_rate(2.14e9), "2.1 GFLOP/s"),
        (t.flop_rate(4.1e7), "41.0 MFLOP/s"),
        (t.flop_rate(99.96e9), "100 GFLOP/s"),
        (t.flop_rate(412e12), "412 TFLOP/s"),
        (t.flop_rate(9.999e14), "1.0 PFLOP/s"),
        (t.scaled(13.1e9), "13.1B"),
        (t.parameters(800_000), "0.80M parameters"),
        (t.parameters(92_100_000), "92.1M parameters"),
        (t.parameters(999_000), "1.0M parameters"),
        (t.duration(0.3), "0.3 s"),
        (t.duration(9.96), "10 s"),
        (t.duration(59.4), "59 s"),
        (t.duration(59.6), "1:00"),
        (t.duration(178), "2:58"),
        (t.duration(13867), "3:51:07"),
        (t.byte_size(400_000), "0.4 MB"),
        (t.byte_size(12_345), "12 kB"),
        (t.byte_size(21.4e9), "21.4 GB"),
        (t.error(1.8e-14), "1.8e-14"),
        (t.error(0.0), "0"),
        (t.percent(0.71), "71.0%"),
        (t.pm(1.4123, 0.0061), "1.412 ± 0.006"),
        (t.pm(1.4123, 0.0004), "1.412 ± <0.001"),
        (t.pm(1.4123, 0.0005), "1.412 ± 0.001"),
        (t.pm(26.6258, 1.96, 2), "26.63 ± 1.96"),
        (t.pm(-0.0001, 0.0004), "0.000 ± <0.001"),
        (t.pm(5.61e18, 2.1e17, 2), "5.6e+18 ± 2.1e+17"),
        (t.pm(12.0, 3e7), "1.2e+01 ± 3.0e+07"),
        (t.pm(1.5, float("inf")), "1.500 ± unknown"),
        (t.quantity(1.412, 0.006, "bits/char", "bound"), "≤ 1.412 ± 0.006 bits/char (95%)"),
        (t.quantity(4.0871, 0.0121, "bits/char", "exact"), "= 4.087 ± 0.012 bits/char (95%)"),
        (t.perplexity(2.661, 0.011, "character", "bound"), "≤ 2.661 ± 0.011 per character"),
        (t.perplexity(17.4, 0.31, "token", "bound"), "≤ 17.40 ± 0.31 per token"),
    ],
)
def test_numbers(said, text):
    assert said == text


@given(st.floats(0, 1e7))
def test_a_duration_never_says_sixty_seconds(seconds):
    parts = t.duration(seconds).removesuffix(" s").split(":")
    assert all(float(part) < 60 for part in parts[1:] + ([parts[0]] if len(parts) == 1 else []))


@given(st.floats(0, 1e13))
def test_scaled_has_at_most_three_figures_and_a_half(value):
    assert float(t.scaled(value).rstrip("kMB")) < 1000 or value >= 1e12


def test_columns_align_names_left_and_numbers_right():
    lines = t.columns([("term", "bits"), ("diffusion", "1.403"), ("π網", "10.009")], "<>", indent=2, gap=4)
    assert lines == ["  term           bits", "  diffusion     1.403", "  π網          10.009"]
    assert len({t.cells(line) for line in lines}) == 1  # wide characters are counted by cell


def test_control_characters_are_drawn():
    assert t.escape("a\x1b[2Jb\tc\n", keep="\n") == "a\\x1b[2Jb\\tc\n"
    assert t.excerpt("héllo\nwörld " * 9, 20) == '"héllo\\nwörld héllo\\n"'


HOSTILE = "a\x1b[31m\x9b2J\u202e\nb\r\x07"
DRAWN = r"a\x1b[31m\x9b2J\u202e\nb\r\x07"


def test_what_comes_from_files_cannot_move_the_cursor():
    """Everything that is printed goes through the terminal, which draws what is not printable."""
    out, err = Stream(tty=True), Stream(tty=True)
    s = Terminal(out, err, environ={"TERM": "xterm"}, color="always")
    s.result(HOSTILE), s.note(HOSTILE.replace("\n", "")), s.fail(HOSTILE), s.picture([[(HOSTILE, ((1, 2, 3), None))]])
    s.picture([[(HOSTILE, "given")]])
    styles = re.compile(r"\x1b\[[\d;]*m")
    lines = [styles.sub("", line) for line in (out.getvalue() + err.getvalue()).splitlines()]
    assert lines == [DRAWN] * 3 + ["note: " + DRAWN.replace(r"\n", ""), "error: " + DRAWN]
    assert all(line.isprintable() for line in lines)


def test_samples_keep_their_lines_and_are_as_they_are_in_a_pipe():
    out, pipe = Stream(tty=True), Stream()
    Terminal(out, Stream(), environ={"TERM": "xterm"}).data("one\n\ttwo\x1b")
    Terminal(pipe, Stream(), environ={}).data("one\n\ttwo\x1b")
    assert out.getvalue() == "one\n\ttwo\\x1b\n"
    assert pipe.getvalue() == "one\n\ttwo\x1b\n"


def test_json_has_nothing_that_a_terminal_obeys():
    text = HOSTILE + "é 網 \U000e0001"
    for value in (text, {text: [text, {text: text}]}):
        written = dumps(value)
        assert all(line.isprintable() for line in written.splitlines())
        assert json.loads(written) == value
    assert r"\u009b2J\u202e\nb" in dumps(text)
    assert "é 網" in dumps(text)


def test_a_path_with_a_line_end_is_one_line_and_can_be_pasted(tmp_path):
    name = "it's\n\x1b]0;title\x07 \\ é\u202e\x9b2J"
    (tmp_path / name).write_text("here")
    shown = path(tmp_path / name)
    assert shown.isprintable()
    assert subprocess.run(["bash", "-c", f"cat {shown}"], capture_output=True, text=True).stdout == "here"


def test_paths_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert t.path(tmp_path / "runs" / "a b") == "'runs/a b'"
    assert t.path("/elsewhere/x") == "/elsewhere/x"


# ------------------------------------------------------------------------------------------------------------ streams


def test_results_go_to_stdout_and_the_rest_to_stderr():
    s = screen()
    s.result("result"), s.say("progress"), s.note("remark"), s.fail("wrong; right"), s.try_next("zellige verify")
    assert s.out.getvalue() == "result\n"
    assert s.err.getvalue() == "progress\nnote: remark\nerror: wrong; right\nTry next:\n  zellige verify\n"


def test_quiet_leaves_results_and_errors():
    s = screen(tty=True, quiet=True)
    s.result("result"), s.say("progress"), s.note("remark"), s.fail("wrong")
    with Bar(s, "read", 10) as bar, Watch(s) as watch:
        bar.update(5)
        watch.draw(Picture("head", "ab", ["new", "new"], "foot"))
    assert s.out.getvalue() == "result\n"
    assert CONTROL.sub("", re.sub(r"\x1b\[\d*m", "", s.err.getvalue())) == "error: wrong\n"


def test_json_on_stdout_stands_alone():
    s = screen(json="-")
    s.result("a table")
    assert s.out.getvalue() == ""


@pytest.mark.parametrize(
    ("tty", "environ", "moves"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm", "FORCE_COLOR": "1"}, False),  # Rich takes FORCE_COLOR for a terminal
        (False, {"TERM": "xterm", "TTY_COMPATIBLE": "1"}, False),
    ],
)
def test_motion_is_for_terminals(tty, environ, moves, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    s = screen(tty, environ=environ)
    assert s.motion is moves
    with Bar(s, "read", 100) as bar, Watch(s) as watch, s.waiting("loading"):
        bar.update(50)
        watch.draw(Picture("head", "ab", ["new", "masked"], "foot"))
    training = TrainingBar(s)
    training.start(10), training.step(5, 1.0, "bits/char", Speed(100.0)), training.close()
    assert bool(CONTROL.search(s.err.getvalue())) is moves


@pytest.mark.parametrize(
    ("color", "environ", "codes"),
    [
        ("auto", {"TERM": "xterm"}, "\x1b[31merror:\x1b[0m"),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, "error:"),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, "error:"),
        ("always", {"TERM": "xterm", "NO_COLOR": "1"}, "\x1b[31merror:\x1b[0m"),
        ("never", {"TERM": "xterm"}, "error:"),
    ],
)
def test_color(color, environ, codes):
    s = screen(True, environ=environ, color=color)
    s.fail("wrong")
    assert s.err.getvalue() == f"{codes} wrong\n"
    assert s.paint("x", "bold") == "\x1b[1mx\x1b[0m"  # NO_COLOR keeps bold and dim


def test_color_always_holds_in_a_pipe_and_auto_does_not():
    assert screen(False, color="always").paint("ok", "green", out=True) == "\x1b[32mok\x1b[0m"
    assert screen(False).paint("ok", "green", out=True) == "ok"


def test_a_stream_without_the_signs_gets_others():
    s = screen(encoding="ascii")
    s.result("≤ 1.4 ± 0.1 ·····"), s.say("━━╸ █ …")
    assert s.out.getvalue() == "<= 1.4 +/- 0.1 _____\n"
    assert s.err.getvalue() == "--- # ...\n"


def test_a_stream_that_cannot_write_a_character_does_not_fail():
    raw = io.BytesIO()
    s = Terminal(io.TextIOWrapper(raw, "latin-1"), Stream(), environ={})
    s.result("é and 網")
    assert raw.getvalue() == b"\xe9 and \\u7db2\n"


# ----------------------------------------------------------------------------------------------------------- progress


def test_plain_lines_come_every_5_percent_or_30_seconds():
    clock, s = Clock(), screen()
    training = TrainingBar(s, clock)
    training.start(2300)
    for step in range(1, 2301):
        clock.now += 0.1
        training.step(step, 2.41, "bits/char", Speed(16_400.0))
    lines = s.err.getvalue().splitlines()
    assert len(lines) == 20
    assert lines[10] == "train step 1265/2300 loss 2.41 bits/char 16.4k tokens/s left 1:43"
    clock, s = Clock(), screen()
    training = TrainingBar(s, clock)
    training.start(1_000_000)
    for step in range(1, 601):
        clock.now += 1
        training.step(step, 2.0, "bits/char", Speed(1.0))
    assert 19 <= len(s.err.getvalue().splitlines()) <= 20


def test_a_loss_that_is_no_bound_has_no_unit():
    clock, s = Clock(), screen()
    training = TrainingBar(s, clock)
    training.start(10)
    clock.now = 10
    training.step(5, 0.412, None, None)
    assert s.err.getvalue() == "train step 5/10 loss 0.412 (not a bound) left 10 s\n"


def test_validations_stay():
    s = screen()
    training = TrainingBar(s)
    training.start(2300)
    training.validated(500, "≤ 2.873 ± 0.024 bits/char (95%)", "the sof the tron a mothe ins is are coll tx", best=True)
    assert s.err.getvalue().splitlines() == [
        "  step   500   validation ≤ 2.873 ± 0.024 bits/char (95%)   best",
        '               "the sof the tron a mothe ins is are coll t"',
    ]


@pytest.mark.parametrize(
    ("width", "has", "lacks"),
    [
        (80, "━", ""),
        (100, "━", ""),
        (70, "tokens/s", "━"),
        (55, "left", "tokens/s"),
        (40, "bits/char", "left"),
        (30, "2.41 bits/char", "train"),
    ],
)
def test_a_narrow_terminal_gives_up_the_bar_then_the_speed_never_the_number(width, has, lacks, monkeypatch):
    s = screen(True, color="never")
    monkeypatch.setattr(type(s), "width", property(lambda self: width))
    clock = Clock()
    training = TrainingBar(s, clock)
    training.total, clock.now = 100_000, 0.0
    training.step(24_180, 2.41, "bits/char", Speed(612_000.0))
    clock.now = 5200.0
    line = re.sub(r"\x1b\[\d*m", "", training._draw())
    assert "24,180/100,000  2.41 bits/char" in line
    assert has in line
    assert not lacks or lacks not in line
    assert t.cells(line) <= min(width, 79)


def test_the_speed_at_length_where_there_is_room_for_the_bar(monkeypatch):
    s, clock = screen(True, color="never"), Clock()
    training = TrainingBar(s, clock)
    training.total = 300
    training.step(20, 2.41, "bits/char", Speed(612_000.0, 4.1e14, 0.412))
    line = re.sub(r"\x1b\[\d*m", "", training._draw())
    assert line.endswith("20/300  2.41 bits/char  612k tokens/s, 410 TFLOP/s, 41.2% MFU")
    assert "━" in line
    training.total, training.now = 100_000, 24_180
    assert training._draw().endswith("24,180/100,000  2.41 bits/char  612k tokens/s")


def test_a_bar_that_is_quick_says_nothing_in_a_pipe():
    clock, s = Clock(), screen()
    with Bar(s, "read", 100, clock=clock) as bar:
        for done in range(101):
            clock.now += 0.01
            bar.update(done)
    assert s.err.getvalue() == ""


def test_a_bar_counts_once_it_knows_how_much_there_is():
    """What comes before is no part of the time that is left: 10 s of reading, then 1 piece of 4 in 2 s."""
    clock, s = Clock(), screen(True, color="never")
    with Bar(s, "draw the report", 1, clock=clock) as bar:
        assert bar._draw() == "  draw the report ..."
        clock.now += 10
        bar.update(0, total=4)
        assert bar._draw().endswith(" 0/4")
        clock.now += 2
        bar.update(1, total=4)
        assert bar._draw().endswith(" 1/4  6.0 s left")


# -------------------------------------------------------------------------------------------------------------- watch

MARKS = ["given", "given", "masked", "new", "shown", "changed", "again"]
FRAME = Picture(
    "sample 1 of 2   step 22/64   t = 0.66", list("th?equi?"[:7]), MARKS, "22 network calls  11.8k tokens/s"
)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {"TERM": "xterm"},
            "  \x1b[34mth\x1b[0m\x1b[2m·\x1b[0m\x1b[1;36me\x1b[0mq\x1b[1;33mu\x1b[0m\x1b[33m·\x1b[0m",
        ),
        (
            {"TERM": "xterm", "NO_COLOR": "1"},
            "  \x1b[4mth\x1b[0m\x1b[2m·\x1b[0m\x1b[1;4me\x1b[0mq\x1b[1;4mu\x1b[0m\x1b[1m·\x1b[0m",
        ),
    ],
)
def test_marks(environ, line):
    assert Watch(screen(True, environ=environ)).lines(FRAME)[1] == line


def test_ascii_counts_the_new_ones_in_the_bar():
    s = screen(encoding="ascii")
    Watch(s).draw(FRAME)
    head, text, foot = s.err.getvalue().splitlines()
    assert (head, text) == (FRAME.head, "  th_equ_")
    assert foot.endswith("5 of 7 revealed, 1 new  22 network calls  11.8k tokens/s")
    assert foot.isascii()


def test_a_frame_has_20_lines_at_most_and_no_control_characters():
    s = screen()
    text = ["\x1b[2J", "\r", "\t", "[bold]x[/bold]", *["a"] * 5000, *["\n"] * 50]
    watch = Watch(s)
    lines = watch.lines(Picture("head", text, ["shown"] * len(text), "foot"))
    assert len(lines) == 20
    assert not CONTROL.search("\n".join(lines))
    assert lines[1].startswith("  \\x1b[2J\\r\\t[bold]x[/bold]aaa")  # and no markup is read
    assert all(t.cells(line) <= 80 for line in lines)


def test_tokens_that_appear_do_not_move_the_others():
    watch = Watch(screen())
    text = list("the value of the object is returned " * 4)
    hidden = watch.lines(Picture("", text, ["masked"] * len(text), ""))
    half = watch.lines(Picture("", text, ["shown", "masked"] * (len(text) // 2), ""))
    assert len(hidden) == len(half)
    full = "".join(line[2:] for line in watch.lines(Picture("", text, ["shown"] * len(text), ""))[1:-1])
    assert all(a in (b, "·") for a, b in zip("".join(line[2:] for line in half[1:-1]), full))


def test_twelve_frames_a_second_and_always_the_last(monkeypatch):
    clock, s = Clock(), screen(True)
    drawn = []
    watch = Watch(s, clock=clock)
    with watch:
        for i in range(1001):
            clock.now = i / 1000
            watch.draw(Picture(f"step {i}", "ab", ["shown", "new"], ""), last=i == 1000)
            if not drawn or watch.drawn != drawn[-1]:
                drawn.append(watch.drawn)
    assert 12 <= len(drawn) <= 14
    assert drawn[-1] == 1.0
    assert "step 1000" in s.err.getvalue()


def test_a_real_terminal_redraws_in_place():
    """In a pseudo-terminal: the cursor moves, comes back, and the last frame stays."""
    pty = pytest.importorskip("pty")
    import subprocess
    import sys

    code = """
from zellige.show.picture import Picture, Watch
from zellige.show.terminal import Terminal
s = Terminal()
with Watch(s, hold=0.01) as watch:
    for i in range(20):
        watch.draw(Picture(f"step {i}", "ab", ["shown", "new"], "calls"), last=i == 19)
s.result("done")
"""
    mine, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, env=environ)
    out, _ = process.communicate(timeout=60)
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(mine, 65536):
            seen += block
    except OSError:  # the other end is closed
        pass
    os.close(mine)
    text = seen.decode()
    assert process.returncode == 0
    assert out == b"done\n"
    assert "\x1b[1A" in text  # up a line
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden, and shown again
    assert "step 19" in text[text.rindex("\x1b[1A") :]


# --------------------------------------------------------------------------------------------------------------- JSON


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                    lambda x: st.lists(x) | st.dictionaries(st.text(), x)))  # fmt: skip
def test_json_says_what_it_was_given(value):
    assert json.loads(dumps(value)) == value


def test_json_is_strict_and_has_lists_on_one_line():
    assert (
        dumps({"a": [1, 2, float("inf")], "b": {"c": 1e-3}}) == '{\n "a": [1, 2, null],\n "b": {\n  "c": 0.001\n }\n}'
    )


def test_records_have_the_same_keys():
    assert list(json_record("list", {}, [])) == RECORD
