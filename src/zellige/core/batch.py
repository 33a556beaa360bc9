"""Input of a method (`Batch`), and an estimator of -log p that a method may return (`Estimator`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..base.arguments import checked, checked_methods, of_kind
from ..base.errors import InputError
from .random import Randomness

WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


def tensor(value: Tensor) -> str:
    """Shape and dtype of a tensor, for an error: `(2, 16) float32`."""
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"


def whole_numbers(name: str, value: object) -> Tensor:
    """Convert a tensor, array or list of whole numbers to a long tensor (*); InputError for anything else."""
    try:
        tokens = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        tokens = None
    if tokens is None or tokens.ndim == 0 or (tokens.dtype not in WHOLE and tokens.numel()):
        description = of_kind(value) if tokens is None else tensor(tokens)
        raise InputError(f"`{name}` is {description}; it must be a tensor, array or list of whole numbers")
    return tokens.long()


def usable(device: torch.device | str) -> torch.device:
    """Return a device of PyTorch; InputError if it does not exist or cannot be used."""
    try:
        torch_device = torch.device(device)
        torch.empty(0, device=torch_device)
    except (RuntimeError, AssertionError, NotImplementedError):
        choices = "cpu or cuda" if torch.cuda.is_available() else "cpu: there is no GPU that torch can use here"
        raise InputError(f"`device` is {of_kind(str(device))}; it must be {choices}") from None
    return torch_device


@dataclass(frozen=True)
class Estimate:
    """Estimate of the clean tokens that a network with self-conditioning takes as input, from an earlier evaluation.

    Attributes:
        p: (B, L, K) probabilities; zeros if there is no estimate.
    """

    p: Tensor

    def take(self, rows: Tensor) -> "Estimate":
        """Select the estimates of sequences (N,)."""
        return Estimate(self.p[rows])


@checked_methods
@checked
@dataclass(frozen=True)
class Batch:
    """Input of a method's loss and bound.

    Attributes:
        tokens: (B, L) whole numbers.
        mask: (B, L) bool, True where a token is noised and counted, False where it is given or padding; None: all True.
            It is not the mask token, which is `process.mask`.
        segments: (B, L) long, the packed document that each position belongs to; None: one document.
        condition: (B,) long, the class of each sequence (a value of the latent, for `Net.latents`); None: no class.
        spare: () a uniform random number for `positions` in a compiled step; None in any other step.
    """

    tokens: Tensor
    mask: Tensor | None = None
    segments: Tensor | None = None
    condition: Tensor | None = None
    spare: Tensor | None = None

    def __post_init__(self) -> None:
        if self.tokens.ndim != 2 or self.tokens.dtype not in WHOLE:
            raise InputError(f"tokens are {tensor(self.tokens)}; they must be (B, L) whole numbers")
        for name, kind in (("mask", torch.bool), ("segments", torch.long)):
            field = getattr(self, name)
            if field is not None and (field.shape != self.tokens.shape or field.dtype != kind):
                expected = "True and False" if kind is torch.bool else "whole numbers"
                raise InputError(
                    f"`{name}` is {tensor(field)}; it must be {expected}, of the shape {tuple(self.tokens.shape)}"
                )

    @property
    def counted(self) -> Tensor:
        """Positions that are noised and counted, (B, L) bool: `mask`, or all."""
        return torch.ones_like(self.tokens, dtype=torch.bool) if self.mask is None else self.mask

    def to(self, device: torch.device | str) -> "Batch":
        """Move the batch to another device; from pinned memory the copy is asynchronous."""
        device = usable(device)
        return self._each(lambda field: field.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Copy the batch to pinned memory; PyTorch's DataLoader calls this method."""
        return self._each(Tensor.pin_memory)

    def take(self, rows: Tensor) -> "Batch":
        """Select sequences (N,) of the batch, in this order."""
        return self._each(lambda field: field[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        fields = {name: getattr(self, name) for name in ("tokens", "mask", "segments", "condition")}
        return replace(self, **{name: change(field) for name, field in fields.items() if field is not None})

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Estimator:
    """An estimator of -log p other than the bound.

    Attributes:
        draw: (batch, generator) -> one value (B,) in nats.
        about: description for the protocol, such as "one token at a time, left to right".
        exact: True if the value is -log p itself; False if it is random, and its expectation is an upper bound.
        strata: the quantity over which the values are stratified; None if they are independent.
    """

    draw: Callable[[Batch, Randomness], Tensor]
    about: str
    exact: bool = False
    strata: str | None = None

    def __call__(self, batch: Batch, generator: Randomness = None) -> Tensor:
        return self.draw(batch, generator)


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return rows as (B, T) tokens, filled up with 0 on the right, and where they are, (B, T) bool."""
    T = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows], dtype=torch.long)
    return tokens, torch.arange(T) < torch.tensor([[len(row)] for row in rows])


def by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Group the indices of sequences of equal length, at most `most` per group, longest first.

    So sequences of different lengths are batched without padding.

    >>> list(by_length([3, 5, 3, 3], 2))
    [[1], [0, 2], [3]]
    """
    groups: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        groups.setdefault(length, []).append(i)
    for _, group in sorted(groups.items(), reverse=True):
        yield from (group[i : i + most] for i in range(0, len(group), most))
