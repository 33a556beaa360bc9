"""The tokens that samples begin with, and how many tokens they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from ..base.errors import InputError, check_counts
from ..core.batch import tensor, whole_numbers
from ..data.tokenizer_base import Tokenizer
from ..models.model import Model
from ..samplers import Blockwise
from ..samplers.sampler import GAP
from ..show import kinds


@dataclass(frozen=True)
class Start:
    """What samples begin with.

    Attributes:
        length: tokens of each sample.
        fixed: (N, length) given tokens, -1 where one is free, HIDDEN where nothing is sampled; None: all are free.
        begin: (N, length) texts from whose noise the samples begin; None: they begin with the prior.
        lengths: tokens of each sample, where they are drawn for each; at most `length`.
    """

    length: int
    fixed: Tensor | None = None
    begin: Tensor | None = None
    lengths: tuple[int, ...] = ()


def length_of(model: Model, length: int | None, grows: bool = False) -> int:
    """Tokens of a sample: the model's own length, or a shorter one;
    a longer one where the sampler goes on (`grows`)."""
    most = int(model.method.shape[0])
    if length is None:
        return most
    running = kinds.of(model.tokenizer).running
    check_counts(length=length)
    if length > most and not (grows and running):
        blocks = running and Blockwise.reason_against(model.method) is None
        more = ", or a block sampler: `block_sampler` ancestral" if blocks else ""
        raise InputError(f"`length` is {length:,}, the model takes {most:,}; use {most:,} or less{more}")
    if length < most and not running:
        raise InputError(f"`length` is {length:,}, the rows of this model have {most:,} places; leave it out")
    return length


def flat_rows(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Rows of a shape, (*shape) or (N, *shape), as (L,) or (N, L); anything else as it is."""
    axes = len(shape)
    return values.flatten(-axes) if axes > 1 and tuple(values.shape[-axes:]) == tuple(shape) else values


def fixed_tokens(
    fixed: Any, tokenizer: Tokenizer, length: int, count: int, beyond: int = -1, gaps: bool = False, name: str = "fixed"
) -> Tensor:
    """Return the given tokens (L,) or (N, L) as (N, length), -1 where one is free.

    Args:
        count: samples, a multiple of N.
        beyond: what stands after the given tokens.
        gaps: whether GAP, any number of tokens, may be among them.
        name: the field that gives them.
    """
    rows = flat_rows(whole_numbers(name, fixed).cpu(), tokenizer.shape)
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InputError(f"`{name}` is {tensor(rows)}; it must be (L,) or (N, L) tokens, -1 where one is free")
    N, width = rows.shape
    if width > length or (width < length and not kinds.of(tokenizer).running):
        raise InputError(f"`{name}` has {width:,} places, the model takes {length:,}; give a token or -1 for each")
    low, high = (int(x) for x in rows.aminmax()) if rows.numel() else (-1, -1)
    if gaps and (rows == GAP).any():
        low = int(rows.where(rows != GAP, -1).min())
    if low < -1 or high >= tokenizer.size:
        wrong = low if low < -1 else high
        free = "" if name == "reconstruct" else ", and -1 where one is free"
        raise InputError(f"`{name}` holds {wrong:,}; give tokens 0 to {tokenizer.size - 1:,}{free}")
    if (mask := tokenizer.mask) is not None and bool((rows == mask).any()):
        use = "give the token itself" if name == "reconstruct" else "give -1 where a token is free"
        raise InputError(f"`{name}` holds {mask:,}, the mask; {use}")
    if not N or count % N:
        rows_in_it = f"{N:,} {'texts' if name == 'prompt' else 'rows'}"
        raise InputError(f"`count` is {count:,}, `{name}` has {rows_in_it}; give a multiple of that")
    rows, kind = pad(rows, (0, length - width), value=beyond), kinds.of(tokenizer)
    if type(kind).check_given is not kinds.Modality.check_given:
        for row in rows.unique(dim=0).tolist():
            kind.check_given(row)
    return rows


def begin_tokens(tokenizer: Tokenizer, begin: Any, length: int | None, model: Model, count: int) -> Tensor:
    """The texts, or rows of tokens, that samples begin from: (N, length), all of one length."""
    texts = [begin] if isinstance(begin, str) else begin
    rows: Any = begin
    if isinstance(texts, list | tuple) and texts and all(isinstance(text, str) for text in texts):
        rows = [tokenizer.encode(text) for text in texts]
        if len({len(row) for row in rows}) > 1:
            raise InputError("the texts of `reconstruct` have several lengths in tokens; give texts of one length")
    rows = flat_rows(whole_numbers("reconstruct", rows).cpu(), tokenizer.shape)
    width = int(rows.shape[-1])
    if length not in (None, width):
        raise InputError(f"`reconstruct` has {width:,} tokens and `length` is {length:,}; leave it out")
    rows = fixed_tokens(rows, tokenizer, length_of(model, width), count, name="reconstruct")
    if bool((rows < 0).any()):
        raise InputError("`reconstruct` has free positions, -1; give a token for each")
    return rows


def prompt_tokens(tokenizer: Tokenizer, prompts: Sequence[str], length: int, grows: bool, most: int) -> list[list[int]]:
    """The tokens of each prompt, -1 after those that are shorter than others; `most`: the tokens that the model takes."""
    rows = [_prompt(tokenizer, prompt, length, grows, most) for prompt in prompts]
    longest = max(map(len, rows), default=0)
    return [row + [-1] * (longest - len(row)) for row in rows]


def _prompt(tokenizer: Tokenizer, prompt: str, length: int, grows: bool, most: int) -> list[int]:
    tokens = tokenizer.encode(before_word(tokenizer, prompt))
    if len(tokens) > length:
        has = f"the prompt has {len(tokens):,} tokens, "
        if grows:
            raise InputError(f"{has}the text {length:,}; give a larger `length`")
        if len(tokens) <= most:
            raise InputError(f"{has}and `length` is {length:,}; give a larger one, or leave it out")
        raise InputError(f"{has}the model takes {most:,}; shorten it, or use `length` with a block sampler")
    return tokens


def before_word(tokenizer: Tokenizer, text: str) -> str:
    """Return `text` without a blank at its end that the tokenizer would join to the next word.

    Subwords begin with their blank: no text has the tokens of "Once " followed by those of "upon", and a model has
    never seen them. Without the blank the next token may bring it. Unchanged where the tokens of a longer text begin
    with those of `text`.
    """
    if tokenizer.unit != "token" or not text.endswith(" ") or not text.strip():
        return text
    tokens, last = tokenizer.encode(text), text.split()[-1]
    longer = [tokenizer.encode(text + word)[: len(tokens)] for word in {last, last.lower()}]  # a name may join no blank
    return text if all(start == tokens for start in longer) else text[:-1]
