"""Texts as vectors: the hidden states of any trained denoiser, averaged over the positions.

    zellige.embed("runs/mine", ["a text", "another"])        # (2, D)

The network reads the clean text at t = 0, its time input in the method's own way: sigma(0), t = 0, or nothing. A
network of blocks reads a position's own block and those before it; an autoregressive one the tokens up to it, the token
that begins a text first.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..base.arguments import checked
from ..base.errors import InputError, check_counts
from ..base.requests import Progress
from ..core.batch import Batch, by_length
from ..core.random import mix
from ..methods.ar import AR
from ..methods.diffusion import Diffusion
from ..methods.flexmdm import FlexMDM
from ..methods.method import Method, device_of
from ..show.kinds import of
from .model import as_model

if TYPE_CHECKING:
    from .model import ModelSource


def reading(method: Method, x: Tensor, t: float = 0.0) -> tuple[Tensor, Tensor | None, int]:
    """Inputs of the network for tokens x (B, n) at time t, its condition,
    and how many of its first positions are no token."""
    causal = method.parameterization == "next"
    inputs = pad(x, (1, 0), value=cast(AR, method).begin) if causal else x
    if isinstance(method, FlexMDM):
        inputs = pad(x, (0, method.window - x.shape[1]), value=method.padding)
    return inputs, method.input_times(inputs, t, None), int(causal)


def tokens_at_once(method: Method) -> int:
    """Tokens of a text that the network reads at once."""
    return int(method.shape[0]) - (method.parameterization == "next")


def features(method: Method, x: Tensor, layer: int | None = None, t: float = 0.0) -> Tensor:
    """The hidden states (B, n, D) of tokens x (B, n) at time t: what the head reads, or what comes out of one of the
    blocks.

    Raises:
        InputError: a layer that the network has not.
    """
    inputs, condition, skip = reading(method, x, t)
    if layer is None:
        return method.network.features(inputs, condition)[:, skip : skip + x.shape[1]]
    blocks = getattr(method.network, "blocks", getattr(method.network, "layers", None))
    if not isinstance(blocks, nn.ModuleList):
        raise InputError("this network has no blocks to look into; leave the layer out")
    if not -len(blocks) <= layer < len(blocks):
        raise InputError(
            f"the network has no layer {layer}, but 0 to {len(blocks) - 1}; give one of these, or -1 for the last"
        )
    outputs: list[Tensor] = []

    def keep(module: nn.Module, args: object, out: Tensor | tuple[Tensor, ...]) -> None:
        outputs.append(out[0] if isinstance(out, tuple) else out)

    handle = blocks[layer].register_forward_hook(keep)
    try:
        method.network.features(inputs, condition)
    finally:
        handle.remove()
    return outputs[0][: len(x), skip : skip + x.shape[1]]


@torch.no_grad()
def embed_tokens(
    method: Method,
    texts: Sequence[Sequence[int]],
    layer: int | None = None,
    t: float = 0.0,
    seed: int = 0,
    batch: int = 64,
    progress: Progress | None = None,
) -> Tensor:
    """As `embed`, of texts that are tokens: (N, D) float32."""
    check_counts(batch=batch)
    if not 0 <= t <= 1:
        raise InputError(f"`t` is {t:g}; it must be from 0, the clean text, to 1, nothing but noise")
    if t and not isinstance(method, Diffusion):
        raise InputError(f"{method.name} has no noise, so t is 0; leave it out")
    if empty := [i for i, text in enumerate(texts) if not len(text)]:
        raise InputError(f"text {empty[0]:,} is empty; give texts of one character or more")
    size, device = tokens_at_once(method), device_of(method)
    rows = [(i, [*text[at : at + size]]) for i, text in enumerate(texts) for at in range(0, len(text), size)]
    total: Tensor | None = None
    count, training = 0, method.training
    method.eval()
    try:
        for group in by_length([len(tokens) for _, tokens in rows], batch):
            x = torch.tensor([rows[i][1] for i in group])
            if t and isinstance(method, Diffusion):  # noise of its own for each piece
                streams = [torch.Generator().manual_seed(mix(seed, *rows[i][1])) for i in group]
                x = method.corrupt(Batch(x.to(device)), t, streams)
            sums = features(method, x.to(device), layer, t).sum(1).double().cpu()
            total = torch.zeros(len(texts), sums.shape[1], dtype=torch.float64) if total is None else total
            total.index_add_(0, torch.tensor([rows[i][0] for i in group]), sums)
            count += len(group)
            if progress:
                progress(count, len(rows))
    finally:
        method.train(training)
    if total is None:
        return torch.zeros(0, 0)
    return (total / torch.tensor([len(text) for text in texts], dtype=torch.float64)[:, None]).float()


@checked
def embed(
    model: "ModelSource",
    texts: Sequence[str] | str,
    layer: int | None = None,
    t: float = 0.0,
    *,
    seed: int = 0,
    batch: int = 64,
    progress: Progress | None = None,
) -> Tensor:
    """Each text as the mean of its hidden states over the positions: (N, D) float32.

    A text longer than the network is read in pieces, and the mean is over all its positions. What a text is batched
    with does not change it.

    Args:
        model: a `Model`, or a run, a saved folder or a hub id.
        texts: one or several.
        layer: which block of the network, from 0, or -1 for the last; what the head reads if not given.
        t: how noisy what is read is, from 0 (clean) to 1.
        seed: of that noise.
        batch: pieces in one call of the network.
        progress: called with (pieces done, pieces in all).

    Raises:
        InputError: an empty text, an unknown character; a layer or a time that there is not; a model that makes no
            text.
    """
    model = as_model(model)
    kind = of(model.tokenizer)
    if not kind.running:
        raise InputError(f"embed takes texts, and this model makes {kind.many}; use a model of text")
    tokens = [model.tokenizer.encode(text, "the text") for text in ([texts] if isinstance(texts, str) else texts)]
    return embed_tokens(model.method, tokens, layer, t, seed, batch, progress)
