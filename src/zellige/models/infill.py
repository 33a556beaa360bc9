"""Filling gaps: what is given stays, the rest is drawn."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, overload

import numpy as np

from ..arguments import checked
from ..core.batch import by_length, whole_numbers
from ..errors import InputError
from ..samplers.choices import SamplerChoices
from ..show.kinds import Modality, added, of
from .frames import BATCH, Drawn, collect
from .model import as_model, find_classes
from .watch import before_word, flat_rows, length_of, watch


def approximate(model: Any) -> str | None:
    """What to say where tokens are given to a process for which keeping them is not exact; None where it is."""
    process = model.method.process
    if (
        process is None or process.mask is not None
    ):  # a chain keeps the conditional law; a mask is no noise where it is given
        return None
    return "given tokens are kept, which is approximate for this noise: the rest is not drawn from the exact conditional law"


@dataclass(frozen=True)
class Gaps:
    """A text with gaps, as tokens.

    Attributes:
        parts: what is given, verbatim, and between two parts how many tokens are missing.
        fixed: the tokens, -1 where one is missing.
    """

    parts: list[str | int]
    fixed: list[int]

    def pieces(self, tokens: Sequence[int], tokenizer: Any) -> list[tuple[str, bool]]:
        """The text with its gaps filled from `tokens`, in pieces: (text, whether it was filled in)."""
        out, at = [], 0
        free = [i for i, token in enumerate(self.fixed) if token < 0]
        for part in self.parts:
            if isinstance(part, str):
                out.append((part, False))
                continue
            where = free[at : at + part]
            at += part
            before = list(tokens[: where[0]][-1:])
            text = added(tokenizer, before, [tokens[i] for i in where])
            typed = out[-1][0] if out else ""
            joined = before_word(tokenizer, typed) != typed  # its blank stands already
            out.append((text.removeprefix(" ") if joined else text, True))
        return out

    def fill(self, tokens: Sequence[int], tokenizer: Any) -> str:
        """The text with its gaps filled from `tokens`; what was given stays as it was given."""
        return "".join(text for text, _ in self.pieces(tokens, tokenizer))


def gaps(tokenizer: Any, text: str, length: int, mask_token: str = "_") -> Gaps:
    """Read a text with gaps: each `mask_token` is one missing token, a character, a byte or a subword.

    Raises:
        InputError: nothing to fill, too long, or a character that is not in the vocabulary.
    """
    if not mask_token or mask_token not in text:
        raise InputError(
            f"nothing to fill: no '{mask_token}' in the text; mark each missing token with it, or set `mask_token`"
        )
    parts: list[str | int] = []
    fixed: list[int] = []
    if getattr(tokenizer, "unit", "token") == "char":
        # read as a whole, so that an error names the position in what was typed
        stand_in = tokenizer.decode([0])
        tokenizer.encode(text.replace(mask_token, stand_in * len(mask_token)), "the text")
    split = text.split(mask_token)
    for i, part in enumerate(split, 1):
        if i > 1:
            if parts and isinstance(parts[-1], int):
                parts[-1] += 1
            else:
                parts.append(1)
            fixed.append(-1)
        if part:
            parts.append(part)
            fixed += tokenizer.encode(before_word(tokenizer, part) if i < len(split) else part, "the text")
    if len(fixed) > length:
        raise InputError(f"the text has {len(fixed):,} tokens, the model takes {length:,}; shorten it")
    return Gaps(parts, fixed)


class SampleChoices(SamplerChoices, total=False):
    """The arguments of `zellige.sample`, which `pipeline("sample", ...)` takes."""

    count: int
    steps: int | None
    sampler: Any
    seed: int
    temperature: float | None
    top_p: float | None
    length: int | None
    batch: int
    classes: Any
    defaults: bool


class InfillChoices(SampleChoices, total=False):
    """The arguments of `zellige.infill`, which `pipeline("infill", ...)` takes."""

    mask_token: str


@overload
def infill(model: Any, text: str, **choices: Unpack[InfillChoices]) -> list[str] | np.ndarray: ...
@overload
def infill(model: Any, text: Sequence[str], **choices: Unpack[InfillChoices]) -> list[list[str]] | np.ndarray: ...
@overload
def infill(
    model: Any, text: None = None, *, fixed: Any, **choices: Unpack[InfillChoices]
) -> list[str] | np.ndarray: ...
@checked
def infill(
    model: Any,
    text: str | Sequence[str] | None = None,
    *,
    fixed: Any = None,
    count: int = 1,
    steps: int | None = None,
    seed: int = 0,
    mask_token: str = "_",
    sampler: Any = None,
    temperature: float | None = None,
    top_p: float | None = None,
    length: int | None = None,
    batch: int = BATCH,
    classes: Any = None,
    defaults: bool = True,
    **options: Unpack[SamplerChoices],
) -> Any:
    """Fill the gaps of `text`, `count` times; everything else stays exactly as it is.

    `infill(model, "the quick _____ fox")`: each `_`, or what `mask_token` says, is one missing token, a character or a subword.
    For a grid the text is a puzzle, "53..7....": a dot is a blank. The other arguments are those of `watch`.

    **The law.** The text is the beginning of one of the model's own length. Where the noise is a mask, the places behind it stay
    masked and nothing is asked about them: a mask says nothing, so that the gaps have the conditional law given the text, the
    rest summed out, by the network's own answers for an unseen rest (with the exact network the same law as if the rest were
    drawn too; with a trained one that of reading the text alone), at one network call a gap at most. Noise that is tokens is
    read as text wherever it stands: there the rest is drawn, too, and is cut off; keeping tokens is approximate.

    Args:
        text: one, or several: each is then filled as it would be alone, those of one length in the same calls of the network. A
            text that stands in the list again has random numbers of its own.
        fixed: instead of a text (L,) or (N, L) tokens, or rows in their own shape, -1 where one is to be drawn: half an image,
            some voices; of a grid its symbols, of a Sudoku digits, and there a 0 is a blank too.

    Returns:
        The texts, of several a list of them for each; of images, music and grids an array (count, *shape), or (N, count, *shape)
        for N rows or texts, as `zellige.sample` gives it. With several `classes` there are `count` of each.
    """
    model = as_model(model)
    kind = of(model.tokenizer)
    if (text is None) == (fixed is None):
        raise InputError("infill needs a text with gaps, or fixed tokens; give one of the two")
    if text is not None and not isinstance(text, str) and not text:
        return []
    how: dict[str, Any] = {"steps": steps, "sampler": sampler, "temperature": temperature, "top_p": top_p}
    how |= {"length": length, "batch": batch, "classes": classes, "defaults": defaults, **options}
    if text is not None and kind.running:
        texts = fill_texts(model, [text] if isinstance(text, str) else text, count, seed, mask_token, **how)
        return texts[0] if isinstance(text, str) else texts
    if text is not None and type(kind).read is Modality.read:
        raise InputError(
            f"this model makes {kind.many}, and no text is one; give `fixed`: tokens, -1 where one is to be drawn"
        )
    if text is not None:
        fixed = np.stack([kind.read(one) for one in ([text] if isinstance(text, str) else text)])
    else:
        fixed = kind.tokens(fixed)
    tokens = flat_rows(whole_numbers("fixed", fixed), kind.shape)
    many = tokens.ndim > 1 and not isinstance(text, str)
    rows = kind.rows(tokens)
    values = kind.values(collect(watch(model, fixed=rows, count=count * len(rows), seed=seed, **how)).tokens)
    return values.reshape(len(rows), -1, *kind.shape) if many and not kind.running else values


def fill_texts(
    model: Any, texts: Sequence[str], count: int, seed: int, mask_token: str = "_", **how: Any
) -> list[list[str]]:
    """Each text filled `count` times (of each class). Text number k of one has the random numbers of (seed, k), whatever stands
    beside it; where the same text stands in the list again, it goes on counting."""
    every = [gaps(model.tokenizer, text, length_of(model, how.get("length")), mask_token) for text in texts]
    classes = 1 if how.get("classes") is None else len(find_classes(model, how["classes"]))
    each = count * classes
    seen: Counter[str] = Counter()
    first: list[int] = []
    for text in texts:
        first.append(seen[text] * each)
        seen[text] += 1
    out: list[list[str]] = [[] for _ in texts]
    for group in by_length([len(text.fixed) for text in every], len(texts) if classes == 1 else 1):
        seeds = [(seed, first[i] + k) for i in group for k in range(each)]
        rows = [every[i].fixed for i in group]
        drawn = collect(watch(model, fixed=rows, count=count * len(group), seed=seeds, alone=True, **how))
        for k, row in enumerate(drawn.tokens):
            i = group[k // each]
            out[i].append(every[i].fill(row, model.tokenizer))
    return out


def filled(gapped: Gaps, drawn: Drawn, tokenizer: Any) -> Drawn:
    """Drawn rows as the text with its gaps filled; what comes after the text is cut off."""
    texts = [gapped.fill(row, tokenizer) for row in drawn.tokens]
    tokens = [row[: len(gapped.fixed)] for row in drawn.tokens]
    return replace(drawn, texts=texts, tokens=tokens)
