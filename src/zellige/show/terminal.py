"""Streams, colours, encodings, and what may move: stdout has the result, stderr everything else."""

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from .numbers import escape
from .record import dumps

if TYPE_CHECKING:
    from .graphics import Graphics
    from .style import Line

_SIGNS = "±+/- ≤<= ≥>= ≈~ ·_ ━- ╸- █# ▌# ▀ ─- –- …... ×x αalpha σsigma ‖|| │|"  # each, and what stands for it
_ASCII = str.maketrans({entry[0]: entry[1:] for entry in _SIGNS.split()} | dict.fromkeys("┌┬┐├┼┤└┴┘", "+"))
_SGR = {"red": "31", "green": "32", "cyan": "36", "dim": "2", "bold": "1"}


class Terminal:
    """Output streams of a command, and their abilities.

    `color` is "auto", "always" or "never" (it outranks NO_COLOR); `quiet` leaves results and errors only; `json` is the
    file for the result as JSON, "-" for JSON alone on stdout; `fields` has what is said here for fields that the
    library names in backquotes (`cli/options.py`: options); `prefix` stands before every line on stderr.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        quiet: bool = False,
        color: str = "auto",
        json: str | None = None,
        environ: dict[str, str] | None = None,
        fields: Mapping[str, str] = {},
        prefix: str = "",
    ):
        self.out, self.err = out or sys.stdout, err or sys.stderr
        self.quiet, self.json, self.fields, self.prefix = quiet, json, dict(fields), prefix
        environ = dict(os.environ) if environ is None else environ
        tty = bool(getattr(self.err, "isatty", lambda: False)())
        capable = environ.get("TERM") != "dumb"
        self.motion = tty and capable and not quiet
        self.styled = color == "always" or (tty and capable)  # bold and dim
        self.colored = color == "always" or (self.styled and color == "auto" and "NO_COLOR" not in environ)
        out_tty = bool(getattr(self.out, "isatty", lambda: False)())
        self.out_styled = color == "always" or (out_tty and capable)
        self.out_colored = color == "always" or (self.out_styled and color == "auto" and "NO_COLOR" not in environ)
        self.out_tty = out_tty
        self.hues = self._hues(environ) if self.colored else 0  # colours there are on stderr, and on stdout
        self.out_hues = self._hues(environ) if self.out_colored else 0
        self.unicode = _encodes(self.err)
        self._environ = environ
        self._live: Any = None
        self._notes: list[str] | None = None  # of `one_note`
        self.wrote = False  # whether a reader has had some of the result
        for stream in (self.out, self.err):  # a character that a stream cannot encode must not end the run
            if getattr(stream, "errors", None) == "strict" and (reconfigure := getattr(stream, "reconfigure", None)):
                reconfigure(errors="backslashreplace")

    @staticmethod
    def _hues(environ: dict[str, str]) -> int:
        return 2**24 if environ.get("COLORTERM") in ("truecolor", "24bit") else 256

    # what is written -------------------------------------------------------------------------------------------
    # What it prints may come from files and paths: control characters, escape sequences and marks that turn the
    # direction of writing are drawn as \x1b, \u202e. `painted` is text with styles of our own, whose parts were
    # escaped before.
    def result(self, text: str = "", *, painted: bool = False, keep: str = "") -> None:
        """A line of the result, to stdout; nothing if stdout is for JSON alone. `keep`:
        control characters that stay."""
        if self.json != "-":
            text = text if painted else escape(text, keep)
            print(text if _encodes(self.out) else ascii_text(text), file=self.out, flush=True)
            self.wrote = True

    def data(self, text: str) -> None:
        """Text that is itself the result, such as a sample: as it is in a pipe;
        on a terminal line ends and tabs stay."""
        self.result(text, painted=not self.out_tty, keep="\n\t")

    def document(self, value: object) -> None:
        """The result as JSON, alone on stdout."""
        print(dumps(value), file=self.out, flush=True)
        self.wrote = True

    def picture(self, lines: "Sequence[Line]") -> None:
        """Lines of (text, look) as a result, with the colours that stdout has."""
        from .style import painted

        unicode = _encodes(self.out)
        for line in painted(lines, self.out_styled and unicode, self.out_hues if unicode else 0):
            self.result(line.rstrip(), painted=True)

    def say(self, text: str = "", *, painted: bool = False) -> None:
        """A line of progress or notice, or several, to stderr; nothing where it is quiet."""
        if not self.quiet:
            self._stderr(text if painted else escape(self.spelled(text), keep="\n"))

    def spelled(self, text: str) -> str:
        """The text with what `fields` has for each field in backquotes; another one stays as it is."""
        return self.prefix + re.sub(r"`([\w.=]+)`", lambda field: self.fields.get(field[1], field[0]), text)

    def note(self, text: str) -> None:
        if self._notes is None:
            self.say(f"note: {text}")
        else:
            self._notes.append(text)

    @contextmanager
    def one_note(self) -> Iterator[None]:
        """Make one line of all notes inside, printed at the end; an error takes their place."""
        self._notes = notes = []
        try:
            yield
        finally:
            self._notes = None
        if notes:
            self.note("; ".join(notes))

    def fail(self, sentence: str, keep: str = "") -> None:
        """Print the line of an error, in red where there is colour, `quiet` or not; `keep`: "\n" if it has several."""
        self._stderr(self.paint("error:", "red") + " " + escape(self.spelled(sentence), keep=keep))

    def try_next(self, *commands: str) -> None:
        """Print the command to run next, the last line of every command."""
        self.say("Try next:")
        for command in commands:
            self.say(f"  {command}")

    def paint(self, text: str, style: str, *, out: bool = False) -> str:
        """`text` in a style (red, green, cyan, dim, bold) where stderr (or stdout) shows it."""
        has_style, has_color = (self.out_styled, self.out_colored) if out else (self.styled, self.colored)
        if not text or not has_style or (style in ("red", "green", "cyan") and not has_color):
            return text
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m"

    def fit(self, text: str) -> str:
        """`text` as stderr can encode it."""
        return text if self.unicode else ascii_text(text)

    @cached_property
    def graphics(self) -> "Graphics | None":
        """Protocol for pixels of stderr; None without colours, without cursor movement, or without a protocol."""
        if not self.motion or not self.hues:
            return None
        from .graphics import graphics_of

        try:
            return graphics_of(self._environ, self.err.fileno())
        except (OSError, ValueError, AttributeError):
            return graphics_of(self._environ, None)

    @property
    def width(self) -> int:
        """Columns of the terminal; 100 where there is none."""
        return (self._size.columns or 80) if self.motion else 100

    @property
    def height(self) -> int:
        return self._size.lines or 24

    @property
    def _size(self) -> os.terminal_size:
        try:
            return os.get_terminal_size(self.err.fileno())
        except (OSError, ValueError, AttributeError):
            return os.terminal_size((80, 24))

    def _stderr(self, text: str) -> None:
        text = self.fit(text)
        if self._live is not None:  # above what is being redrawn
            from rich.text import Text

            self._live.console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            print(text, file=self.err, flush=True)

    # what moves ------------------------------------------------------------------------------------------------
    @contextmanager
    def live(self, draw, *, over: Callable[[], str] = str, keep: bool = False, every: float = 0.25) -> Iterator[Any]:
        """Redraw `draw() -> str` (ANSI styles allowed) in place until the block ends; only where there is motion.

        `over() -> str` is written behind it as it is, and has to leave the cursor where it was. `keep` leaves the last
        picture on the screen. `every` is the pause between automatic redraws in seconds, 0 for none: the block then
        calls `.refresh()`.
        """
        from rich.console import Console, Group
        from rich.live import Live
        from rich.segment import ControlType, Segment, Segments
        from rich.text import Text

        console = Console(
            file=self.err,
            force_terminal=True,
            color_system="truecolor",
            no_color=False,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

        def whole() -> Any:
            text = Text.from_ansi(self.fit(draw()), no_wrap=True, overflow="crop", end="")
            control = Segment(over(), None, [(ControlType.BELL,)])  # whose text is left alone
            return Group(text, Segments([control]))

        live = Live(
            get_renderable=whole,
            console=console,
            transient=not keep,
            auto_refresh=every > 0,
            refresh_per_second=1 / (every or 1),
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        with live:
            outer, self._live = self._live, live
            try:
                yield live
            finally:
                self._live = outer

    @contextmanager
    def waiting(self, what: str | list[str]) -> Iterator[None]:
        """Something moves while there is nothing to count: `loading ...`, gone afterwards;
        of a list its first entry."""
        if not self.motion or self._live is not None:
            yield
            return
        dots = itertools.cycle((".", "..", "..."))
        with self.live(lambda: f"  {what if isinstance(what, str) else what[0]} {next(dots)}"):
            yield


def _encodes(stream: TextIO) -> bool:
    try:
        "±≤·━╸█".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def ascii_text(text: str) -> str:
    """`text` without the signs an ASCII stream cannot show: `±` as `+/-`, `≤` as `<=`, `·` as `_` ..."""
    return text.translate(_ASCII)
