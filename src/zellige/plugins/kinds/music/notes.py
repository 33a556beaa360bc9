"""Tokens of music: a level is a pitch, or that a voice is silent."""

import math
from collections.abc import Iterable, Sequence

from zellige.base.errors import InputError
from zellige.data.levels import Levels
from zellige.data.tokenizer_base import token_ids

NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
VOICES = ("soprano", "alto", "tenor", "bass")
SILENT = -1


def note_name(pitch: int) -> str:
    """The name of a MIDI pitch: C4 is 60; a rest is `-`."""
    return "-" if pitch == SILENT else f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


class Notes(Levels):
    """Rows of (steps, voices) pitches; `labels` are their MIDI numbers, -1 a rest."""

    display = "zellige.plugins.kinds.music.roll:Roll"
    sign = staticmethod(note_name)

    def __init__(
        self,
        size: int,
        shape: Sequence[int],
        kind: str = "roll",
        unit: str = "note",
        ordered: bool = False,
        labels: Sequence[int] = (),
    ):
        super().__init__(size, shape, kind, unit, ordered, labels)

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        """A row as text, voice by voice; what is no pitch is drawn as `mask`."""
        row = token_ids(tokens)
        if len(row) != math.prod(self.shape):
            return super().decode(row, mask)
        signs, count = self.signs(row, mask), self.shape[1]
        names = VOICES if count == len(VOICES) else [f"voice {v + 1}" for v in range(count)]
        return "\n".join(f"{name:<7}  {' '.join(signs[v::count])}" for v, name in enumerate(names))

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        raise InputError(f"{of} is a text, and a row of this model is music ({self.describe()}); give none")
