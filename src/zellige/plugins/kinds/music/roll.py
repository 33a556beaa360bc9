"""Music as a piano roll: rows of (steps, voices) pitches, a step is a sixteenth. PNG, MIDI, and note names on a
terminal.

A roll says which pitch sounds at each step, not where a note begins: equal pitches in a row are one held note.
"""

import io
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zellige.base.errors import InputError, not_installed
from zellige.base.files import write_file
from zellige.show.kinds import Modality
from zellige.show.style import Line, Mark

from .notes import SILENT, VOICES, Notes, note_name

BAR = 16  # steps
BEAT = 4  # steps of a quarter note
COLOURS = ("#d55e00", "#009e73", "#cc79a7", "#0072b2")  # Okabe and Ito's; the voices are named at their lines too


class Roll(Modality):
    name, many = "roll", "music"
    suffixes = (".png", ".mid", ".txt")

    def __init__(self, tokenizer: Notes):
        super().__init__(tokenizer)
        voices = self.shape[1]
        self.voices = VOICES if voices == len(VOICES) else tuple(f"voice{i + 1}" for i in range(voices))
        self.keeps = ("first", *self.voices)
        self.pitch = np.array([*(tokenizer.labels or range(tokenizer.size)), SILENT])  # MIDI's numbers

    def pitches(self, rows: ArrayLike) -> np.ndarray:
        """(N, steps, voices) MIDI numbers, SILENT where nothing sounds or what will is still to come."""
        return self._pitch(self.rows(rows)).reshape(-1, *self.shape)

    def _pitch(self, tokens: ArrayLike) -> np.ndarray:
        return self.pitch[np.where(self.absent(tokens), len(self.pitch) - 1, tokens)]

    def notes(self, row: ArrayLike) -> list[list[tuple[int, int, int]]]:
        """The notes of each voice as (first step, steps, MIDI number); a run of one pitch is one note."""
        out = []
        for voice in self.pitches(row)[0].T:
            runs, step = [], 0
            for pitch, run in groupby(voice.tolist()):
                length = len(list(run))
                runs += [(step, length, pitch)] if pitch != SILENT else []
                step += length
            out.append(runs)
        return out

    def pieces(self, row: Sequence[int]) -> list[str]:
        """The name of each note."""
        return ["·" if is_absent else note_name(p) for p, is_absent in zip(self._pitch(row).tolist(), self.absent(row))]

    # drawn -----------------------------------------------------------------------------------------------------
    def text(self, row: Sequence[int]) -> str:
        return "\n".join("".join(text for text, _ in line).rstrip() for line in self.block(row))

    def block(self, row: Sequence[int], marks: Sequence[Mark] | None = None) -> list[Line]:
        """A line a voice and a bar of sixteenths in it: a note's name where it begins, a line while it is held."""
        steps, voices = self.shape
        pitch, is_absent = self.pitches(row)[0], self.absent(row).reshape(self.shape)
        looks: list[Any] = [*(marks or ["shown"] * (steps * voices))]
        wide = max(map(len, self.voices)) + 1
        out: list[Line] = []
        for start in range(0, steps, BAR):
            out.append([(f"bar {start // BAR + 1}", "shown")])
            for voice, name in enumerate(self.voices):
                line: list[Any] = [(name.ljust(wide), "shown")]
                for step in range(start, min(start + BAR, steps)):
                    look, now = looks[step * voices + voice], pitch[step, voice]
                    is_held = step > start and now == pitch[step - 1, voice] and not is_absent[step - 1, voice]
                    is_mask = is_absent[step, voice] or look in ("masked", "again")
                    cell = " ·" if is_mask else " -" if now == SILENT else "────" if is_held else note_name(now)
                    line.append((cell.ljust(4), look))
                out.append(line)
        return out

    def figure(self, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()) -> Any:
        """A piano roll for each row, the voices in colours, the time in bars; what was given is pale."""
        from matplotlib.figure import Figure

        rows = self.rows(rows)
        steps = self.shape[0]
        is_fixed = np.zeros(rows.shape, bool) if fixed is None else np.broadcast_to(fixed, rows.shape)
        sounding = self.pitches(rows)
        sounding = sounding[sounding != SILENT]
        low, high = (sounding.min(), sounding.max()) if sounding.size else (60, 72)
        fig = Figure(figsize=(9.0, 2.5 * len(rows) + 0.3), layout="constrained")
        for i, (ax, row, fixed_cells) in enumerate(
            zip(fig.subplots(len(rows), 1, squeeze=False)[:, 0], rows, is_fixed)
        ):
            fixed_cells, last = fixed_cells.reshape(self.shape), []
            for voice, notes in enumerate(self.notes(row)):
                colour = COLOURS[voice % len(COLOURS)]
                for step, length, pitch in notes:
                    for pale, run in groupby(
                        range(step, step + length), key=lambda s, v=voice: bool(fixed_cells[s, v])
                    ):
                        where = list(run)
                        ax.broken_barh(
                            [(where[0] / BAR, len(where) / BAR)],
                            (pitch - 0.42, 0.84),
                            color=colour,
                            alpha=0.45 if pale else 1.0,
                            lw=0,
                        )
                    ax.plot([step / BAR] * 2, [pitch - 0.42, pitch + 0.42], color="white", lw=0.7)
                if notes:
                    last.append((notes[-1][2], voice))
            place = -math.inf
            for pitch, voice in sorted(last):  # no name covers another
                place = max(pitch, place + 0.08 * (high - low + 4))
                ax.annotate(
                    self.voices[voice],
                    (steps / BAR, place),
                    xytext=(4, 0),
                    fontsize=8,
                    va="center",
                    color=COLOURS[voice % len(COLOURS)],
                    textcoords="offset points",
                )
            tones = [p for p in range(int(low) - 2, int(high) + 3) if p % 12 in (0, 5)]
            ax.set(xlim=(0, steps / BAR), ylim=(low - 2, high + 2), yticks=tones, xticks=range(-(-steps // BAR)))
            ax.set_xticks(ax.get_xticks(), [str(int(bar) + 1) for bar in ax.get_xticks()], fontsize=8)
            ax.set_yticklabels([note_name(p) for p in tones], fontsize=8)
            ax.grid(axis="x", color="#d5dae0", lw=0.8)
            ax.grid(axis="y", color="#eceef1", lw=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
            if i < len(captions):
                ax.set_title(captions[i], fontsize=9, loc="left")
            if i == len(rows) - 1:
                ax.set_xlabel("bar", fontsize=9)
        return fig

    # files -----------------------------------------------------------------------------------------------------
    def refuse(self, suffix: str, what: str = "") -> None:
        super().refuse(suffix)
        if suffix == ".mid":
            if self.pitch.max() > 127:  # states in an order of their own
                raise InputError(
                    "the model's states are not known as pitches, since its data came without descramble_key.txt; train "
                    "with that file beside the data, or save as .png"
                )
            _mido(what)

    def save(
        self, path: Path, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()
    ) -> list[Path]:
        """As any kind; of several rows as MIDI a file each: x-1.mid, x-2.mid, ..."""
        if path.suffix != ".mid":
            return super().save(path, rows, fixed, captions)
        rows = self.rows(rows)
        files = [path.with_name(f"{path.stem}-{i + 1}.mid") for i in range(len(rows))] if len(rows) > 1 else [path]
        for file, row in zip(files, rows):
            track = io.BytesIO()
            self.midi(row).save(file=track)
            write_file(file, track.getvalue())
        return files

    def midi(self, row: ArrayLike) -> Any:
        """A `mido.MidiFile`, a track for each voice, 100 quarter notes a minute, on an organ."""
        mido = _mido()
        file = mido.MidiFile(ticks_per_beat=480)
        head = mido.MidiTrack(
            [
                mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(100)),
                mido.MetaMessage("time_signature", numerator=4, denominator=4),
            ]
        )
        file.tracks.append(head)
        tick = file.ticks_per_beat // BEAT
        for channel, (name, notes) in enumerate(zip(self.voices, self.notes(row))):
            track = mido.MidiTrack(
                [mido.MetaMessage("track_name", name=name), mido.Message("program_change", channel=channel, program=19)]
            )
            now = 0
            for step, length, pitch in notes:
                on = mido.Message("note_on", channel=channel, note=pitch, velocity=80, time=(step - now) * tick)
                off = mido.Message("note_off", channel=channel, note=pitch, velocity=0, time=length * tick)
                track += [on, off]
                now = step + length
            file.tracks.append(track)
        return file

    # given -----------------------------------------------------------------------------------------------------
    def part(self, name: str, row: np.ndarray) -> np.ndarray:
        """The first half of the steps, or a voice."""
        selection = np.zeros(self.shape, bool)
        selection[np.s_[: (self.shape[0] + 1) // 2] if name == "first" else np.s_[:, self.voices.index(name)]] = True
        return selection


def _mido(what: str = "") -> Any:
    try:
        import mido
    except ImportError:
        raise not_installed(what or "`out` x.mid", "mido", "music") from None
    return mido
