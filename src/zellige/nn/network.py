"""What a method asks of its network."""

from typing import Protocol

from torch import Tensor


class Network(Protocol):
    """Hidden states and head apart, so that the head is paid only where it is read.

    A network of blocks (its attribute `block` > 0) takes more keywords in `features`: `clean` (B, L), the tokens that earlier
    blocks are read from, and `clean_time`, what it is told of them; or `cache`, what it remembers of the tokens before x; and
    it has `extend(cache, x, time) -> cache` (see `nn.DiT`). A network whose attribute `chooses` is True takes `at`, positions
    (`core.positions`), and gives the hidden states (N, D) of these alone.
    """

    def features(
        self, x: Tensor, time: Tensor | None = None, *, segments: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """(B, L) tokens, time (B,) or (B, L) -> (B, L, D)."""
        ...

    def head(self, h: Tensor) -> Tensor:
        """(*, D) -> (*, K) logits."""
        ...
