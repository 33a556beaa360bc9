"""MDLM (Sahoo et al. 2024, arXiv 2406.07524) from scratch in plain PyTorch: network, loss, sampler, training, in one file.

    python examples/nano.py                                  # on Python's own documentation, character by character
    python examples/nano.py --path my.txt --steps 5000 --device cuda

The noise hides each token with probability t, independently, at time t in [0, 1]; nothing else happens to it:

    q(x_t | x_0)     each x_0 stays with probability alpha_t = 1 - t, else becomes the mask
    network          p(x_0 | x_t), one distribution over the tokens for each position; it need not see t
    -log p(x_0)  <=  E_t [ 1/t  sum over the masks of -log p(x_0 | x_t) ]                                            (eq. 11)
    reverse step     from t to s < t each mask is revealed with probability (t - s)/t, and then drawn from p(x_0 | x_t)

The tests of Zellige hold this file's losses and samples equal to the library's for the same weights and random numbers.

Shapes: B sequences, L positions, D the width of the network, H heads, V tokens; token V is the mask.
"""

import argparse
import itertools
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


# ---------------------------------------------------------------------------------- the network
class Block(nn.Module):
    """Attention and an MLP, each added to the stream (B, L, D) that it reads through a layer norm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, L, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, L, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v
        )  # every position sees every other
        x = x + self.out(mixed.transpose(1, 2).reshape(B, L, D))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Tokens (B, L), masks among them, to logits (B, L, V): the mask is never a prediction, so it has no logit."""

    def __init__(self, vocabulary: int, length: int, layers: int = 4, width: int = 128, heads: int = 4):
        super().__init__()
        self.vocabulary, self.mask, self.length = vocabulary, vocabulary, length
        self.embedding = nn.Embedding(vocabulary + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary)
        frequency = 1e4 ** (-torch.arange(0, width // heads, 2).double() / (width // heads))
        angle = torch.arange(length)[:, None] * frequency
        self.register_buffer("rotary", torch.stack((angle.cos(), angle.sin())).float(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2 and name != "embedding.weight":
                ends_a_branch = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(p, std=p.shape[1] ** -0.5 / (math.sqrt(2 * layers) if ends_a_branch else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        nn.init.zeros_(self.head.weight)  # so the first prediction is uniform

    def forward(self, x: Tensor) -> Tensor:
        h, (cos, sin) = self.embedding(x), self.rotary[:, : x.shape[1]]
        for block in self.blocks:
            h = block(h, cos, sin)
        return self.head(self.norm(h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021): turn the pairs (i, i + W/2) of x (B, H, L, W) by their position's angle (L, W/2)."""
    a, b = x.chunk(2, -1)
    cos, sin = cos.to(x), sin.to(x)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


# ---------------------------------------------------------------------------------- the loss
def uniform(*shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Uniforms in [0, 1), float64."""
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def stratified(n: int, generator: torch.Generator | None = None) -> Tensor:
    """n uniforms that are spread evenly, (n,): one random shift of an even grid. The loss varies less with them."""
    return (uniform(1, generator=generator) + torch.arange(n).double() / n) % 1.0


def masked_nats(network: Transformer, x_0: Tensor, x_t: Tensor) -> Tensor:
    """The sum over the masks of x_t of -log p(x_0 | x_t): (B,) nats."""
    at = x_t == network.mask
    nats = F.cross_entropy(network(x_t)[at], x_0[at], reduction="none")
    return torch.zeros(len(x_0), dtype=torch.float64, device=x_0.device).index_add(0, at.nonzero()[:, 0], nats.double())


def bound_in_time(network: Transformer, x_0: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Equation 11 as it stands, with a time for each sequence: an unbiased draw of a bound on -log p(x_0), (B,) nats."""
    t = 1 - stratified(len(x_0), generator)  # in (0, 1], so that 1/t is finite
    lost = uniform(*x_0.shape, generator=generator) < t[:, None]
    x_t = x_0.masked_fill(lost.to(x_0.device), network.mask)
    return masked_nats(network, x_0, x_t) / t.to(x_0.device)


def bound_by_count(network: Transformer, x_0: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """The same bound with less variance, for a network that does not see t: (B,) nats.

    At time t, k of L tokens are masked with probability C(L, k) t^k (1 - t)^(L - k), and which ones is uniform. The integral of
    that over t, divided by t, is 1/k. So draw k evenly from 1..L, mask exactly k tokens, and weigh them with L/k (RADD,
    arXiv 2406.03736, eq. 3.7).
    """
    B, L = x_0.shape
    order = uniform(B, L, generator=generator).argsort(-1).argsort(-1)  # each position's place in a random order
    k = 1 + (stratified(B, generator) * L).long()
    x_t = x_0.masked_fill((order < k[:, None]).to(x_0.device), network.mask)
    return masked_nats(network, x_0, x_t) * (L / k.double()).to(x_0.device)


# ---------------------------------------------------------------------------------- the sampler
@torch.no_grad()
def sample(network: Transformer, x: Tensor, steps: int, generator: torch.Generator | None = None) -> Tensor:
    """Fill the masks of x (B, L) in `steps` steps; what is no mask stays. Masks alone make whole new texts."""
    x = x.clone()
    times = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
    for t, s in itertools.pairwise(times):
        chosen = uniform(*x.shape, generator=generator) < (t - s) / t
        chosen = chosen.to(x.device) & (x == network.mask)
        if not chosen.any():
            continue  # nothing is revealed: the network need not be evaluated
        p = network(x)[chosen].softmax(-1).double().cumsum(-1)
        u = uniform(*x.shape, generator=generator).to(x.device)[chosen]
        x[chosen] = torch.searchsorted(p, (u * p[:, -1])[:, None], right=True)[:, 0]  # the first whose sum exceeds u
    return x


# ---------------------------------------------------------------------------------- the training
def read(path: str | None) -> str:
    """The text of a file; without one Python's own documentation."""
    if path:
        return Path(path).read_text(encoding="utf-8")
    from pydoc_data.topics import topics

    return "\n\n".join(topics.values())


def learning_rate(step: int, steps: int, peak: float, warmup: int = 100) -> float:
    """It rises in `warmup` steps to its peak, then falls to 0 along a cosine."""
    rise = min(1.0, (step + 1) / warmup)
    return peak * rise * (1 + math.cos(math.pi * max(0, step - warmup) / max(1, steps - warmup))) / 2


def train(network: Transformer, tokens: Tensor, steps: int, batch: int, peak: float, report: int) -> None:
    """Minimise the bound on random windows of `tokens` (N,), and say every `report` steps how it goes."""
    device, L = next(network.parameters()).device, network.length
    optimizer = torch.optim.AdamW(network.parameters(), lr=peak, betas=(0.9, 0.99), weight_decay=0.01)
    began, total = time.monotonic(), 0.0
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak)
        first = torch.randint(len(tokens) - L + 1, (batch, 1))
        x = tokens[first + torch.arange(L)].to(device)
        loss = bound_by_count(network, x).mean() / L  # nats per token
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        total += float(loss.detach())
        if (step + 1) % report == 0:
            bits, seconds = total / report / math.log(2), time.monotonic() - began
            print(f"step {step + 1:>6,}   {bits:.3f} bits/char   {seconds:.0f} s", flush=True)
            total = 0.0


@torch.no_grad()
def evaluate(network: Transformer, tokens: Tensor, batch: int, most: int = 256) -> float:
    """The bound on held-out text, in bits per character: the same rows and random numbers each time."""
    L, device = network.length, next(network.parameters()).device
    rows = tokens[: len(tokens) // L * L].view(-1, L)[:most]
    generator = torch.Generator().manual_seed(0)
    nats = sum(float(bound_by_count(network, part.to(device), generator).sum()) for part in rows.split(batch))
    return nats / rows.numel() / math.log(2)


def main(words: list[str] | None = None) -> Transformer:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--path", help="a text file in UTF-8 (default: Python's own documentation)")
    ask.add_argument("--steps", type=int, default=2000, help="optimizer steps (default 2000)")
    ask.add_argument("--batch", type=int, default=32, help="sequences in a step (default 32)")
    ask.add_argument("--length", type=int, default=128, help="tokens in a sequence (default 128)")
    ask.add_argument("--layers", type=int, default=4, help="blocks of the network (default 4)")
    ask.add_argument("--width", type=int, default=128, help="its hidden size (default 128)")
    ask.add_argument("--heads", type=int, default=4, help="attention heads (default 4)")
    ask.add_argument("--lr", type=float, default=2e-3, help="peak learning rate of AdamW (default 2e-3)")
    ask.add_argument("--sample-steps", type=int, default=64, help="steps of the sampler (default 64)")
    ask.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU (default cpu)")
    ask.add_argument("--seed", type=int, default=0, help="of the weights and of all that is drawn (default 0)")
    options = ask.parse_args(words)
    torch.manual_seed(options.seed)

    text = read(options.path)
    letters = sorted({*text})
    number = {letter: i for i, letter in enumerate(letters)}
    tokens = torch.tensor([number[letter] for letter in text])
    cut = len(tokens) * 9 // 10  # the last tenth is held out
    if len(tokens) - cut < options.length:
        ask.error(
            f"the text has {len(text):,} characters; it must have {10 * options.length:,}, or give a smaller --length"
        )
    show = lambda row: "".join("_" if i == len(letters) else letters[i] for i in row.tolist())  # noqa: E731

    network = Transformer(len(letters), options.length, options.layers, options.width, options.heads).to(options.device)
    parameters = sum(p.numel() for p in network.parameters())
    print(f"{len(text):,} characters, {len(letters)} different   {parameters:,} parameters")
    train(network, tokens[:cut], options.steps, options.batch, options.lr, report=max(1, options.steps // 20))
    print(f"held out: at most {evaluate(network, tokens[cut:], options.batch):.3f} bits/char")

    masks = torch.full((1, options.length), network.mask, device=options.device)
    print(f"\na sample\n{show(sample(network, masks, options.sample_steps)[0])}")
    whole = tokens[cut : cut + options.length].to(options.device)
    given = whole.clone()
    given[options.length // 3 : options.length * 2 // 3] = network.mask
    filled = sample(network, given[None], options.sample_steps)[0]
    print(f"\nheld-out text with a masked span\n{show(given)}\n\nfilled in\n{show(filled)}")
    return network


if __name__ == "__main__":
    main()
