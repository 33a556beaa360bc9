"""Masked diffusion as the published repositories compute it, in own words: what the benchmarks compare with.

The mathematics is MDLM's (arXiv 2406.07524), or SEDD's (2310.16834) where a score is drawn from, and the work done per
step is that of its PyTorch code and of those that grew from it: adaLN in every block although the time fed to it is
constantly 0, layer norms outside autocast, rotary tables applied in float32, the head and the log-softmax at every
position, a Gumbel race over all of (B, L, V) in every sampling step. Attention is torch's scaled_dot_product_attention
(the repositories call flash-attn, which needs a GPU). With the weights of a time-free `zellige.nn.DiT` the network
computes the same function: see `Network.take`.
"""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MINUS_INFINITY = -1_000_000.0


class LayerNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = F.layer_norm(x.float(), [self.width])
        return x * self.weight[None, None, :]


class Rotary(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("frequency", 1.0 / (1e4 ** (torch.arange(0, width, 2).float() / width)))
        self.tables: tuple[Tensor, Tensor] | None = None

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        if self.tables is None or self.tables[0].shape[1] != length:
            angle = torch.outer(torch.arange(length, device=self.frequency.device).float(), self.frequency)
            angle = torch.cat((angle, angle), -1)
            self.tables = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
        return self.tables


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, condition: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = LayerNorm(hidden), LayerNorm(hidden)
        self.attn_qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.attn_out = nn.Linear(hidden, hidden, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(approximate="tanh"), nn.Linear(4 * hidden, hidden)
        )
        self.adaln = nn.Linear(condition, 6 * hidden)
        nn.init.zeros_(self.adaln.weight)
        nn.init.zeros_(self.adaln.bias)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], c: Tensor) -> Tensor:
        B, L, D = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaln(c)[:, None].chunk(6, dim=2)
        skip = x
        h = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.attn_qkv(h).view(B, L, 3, self.heads, D // self.heads).unbind(2)
        with torch.autocast(x.device.type, enabled=False):
            q, k = (turn(y, *(r.to(y.dtype) for r in rotary)) for y in (q, k))
        h = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        h = h.transpose(1, 2).reshape(B, L, D)
        x = skip + gate1 * F.dropout(self.attn_out(h), self.dropout, self.training)
        h = self.mlp(self.norm2(x) * (1 + scale2) + shift2)
        return x + gate2 * F.dropout(h, self.dropout, self.training)


class Network(nn.Module):
    """(B, L) tokens, sigma (B,) -> logits (B, L, K)."""

    def __init__(self, states: int, hidden: int, layers: int, heads: int, condition: int = 128, dropout: float = 0.0):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(states, hidden))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))
        self.sigma_map = nn.Sequential(nn.Linear(256, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.rotary = Rotary(hidden // heads)
        self.blocks = nn.ModuleList(Block(hidden, heads, condition, dropout) for _ in range(layers))
        self.norm = LayerNorm(hidden)
        self.adaln = nn.Linear(condition, 2 * hidden)
        self.linear = nn.Linear(hidden, states)
        for layer in (self.adaln, self.linear):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        frequency = torch.exp(-math.log(1e4) * torch.arange(128, dtype=torch.float32, device=sigma.device) / 128)
        angle = sigma[:, None].float() * frequency[None]
        c = F.silu(self.sigma_map(torch.cat((angle.cos(), angle.sin()), -1)))
        h = self.embedding[x]
        rotary = self.rotary(x.shape[1])
        for block in self.blocks:
            h = block(h, rotary, c)
        shift, scale = self.adaln(c)[:, None].chunk(2, dim=2)
        return self.linear(self.norm(h) * (1 + scale) + shift)

    @torch.no_grad()
    def take(self, dit: nn.Module) -> None:
        """Take the weights of a `zellige.nn.DiT`. The branches of a time-free one have no gates: here they are 1 and stay so."""
        names = [
            ("time.mlp", "sigma_map"),
            ("modulation", "adaln"),
            ("embedding.weight", "embedding"),
            ("head", "linear"),
            ("qkv", "attn_qkv"),
            ("out.weight", "attn_out.weight"),
        ]
        weights = self.state_dict()
        for key, value in dit.state_dict().items():
            for theirs, ours in names:
                key = key.replace(theirs, ours)
            weights[key] = value
        self.load_state_dict(weights)
        if any("modulation" in key for key in dit.state_dict()):
            return
        for block in self.blocks:
            gate1, gate2 = block.adaln.bias.chunk(6)[2::3]
            gate1.fill_(1.0)
            gate2.fill_(1.0)


def log_mean(network: nn.Module, x_t: Tensor, mask: int) -> Tensor:
    """SUBS: log p(x_0 | x_t), (B, L, K), at every position. The network is not conditioned: it is fed sigma = 0."""
    logits = network(x_t, torch.zeros(len(x_t), device=x_t.device))
    logits[:, :, mask] += MINUS_INFINITY
    logits = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    unmasked = x_t != mask
    logits[unmasked] = MINUS_INFINITY
    logits[unmasked, x_t[unmasked]] = 0
    return logits


def loss(network: nn.Module, x_0: Tensor, mask: int, eps: float = 1e-3) -> Tensor:
    """The training loss of continuous time: nats per token."""
    B, device = len(x_0), x_0.device
    t = (torch.rand(B, device=device) / B + torch.arange(B, device=device) / B) % 1
    t = (1 - eps) * t + eps
    sigma = -torch.log1p(-(1 - eps) * t)
    rate = (1 - eps) / (1 - (1 - eps) * t)
    x_t = torch.where(torch.rand(x_0.shape, device=device) < (1 - torch.exp(-sigma))[:, None], mask, x_0)
    log_p = torch.gather(log_mean(network, x_t, mask), -1, x_0[:, :, None])[..., 0]
    return (-log_p * (rate / torch.expm1(sigma))[:, None]).sum() / x_0.numel()


class EMA:
    """A moving average of the parameters, one by one."""

    def __init__(self, parameters, decay: float = 0.9999):
        self.shadow = [p.clone().detach() for p in parameters]
        self.decay = decay

    @torch.no_grad()
    def update(self, parameters) -> None:
        for s, p in zip(self.shadow, parameters):
            s.sub_((1 - self.decay) * (s - p))


# ---------------------------------------------------------------------------------------------- sampling
def race(p: Tensor) -> Tensor:
    """A categorical draw at every position: the Gumbel trick without a logarithm of p."""
    noise = 1e-10 - (torch.rand_like(p) + 1e-10).log()
    return (p / noise).argmax(dim=-1)


@torch.no_grad()
def sample(network: nn.Module, shape: tuple[int, int], masked: Tensor, mask: int, cache: bool) -> tuple[Tensor, int]:
    """Ancestral sampling along `masked` (T + 1,), the probability of a mask at each time: from 1 to 0.

    With `cache` the network is asked again only after something in the batch has changed (`ddpm_cache`).
    Returns the tokens and the number of network calls, each of which is for the whole batch.
    """
    x = torch.full(shape, mask, device=masked.device)
    p_x0, calls = None, 0
    for m_t, m_s in itertools.pairwise(masked):
        if p_x0 is None or not cache:
            p_x0, calls = log_mean(network, x, mask).exp(), calls + 1
        q = p_x0 * (m_t - m_s)
        q[:, :, mask] = m_s
        drawn = race(q)
        kept = (x != mask).to(x.dtype)
        new = kept * x + (1 - kept) * drawn
        if not torch.equal(new, x):
            p_x0 = None
        x = new
    return x, calls


@torch.no_grad()
def sample_score(network: nn.Module, shape: tuple[int, int], sigmas: Tensor, mask: int) -> tuple[Tensor, int]:
    """SEDD's analytic sampler along `sigmas` (T + 1,), and its denoising step from the last of them to none.

    The score at every position, its staggered form, times the transposed transition; a race over all of (B, L, K). Returns the
    tokens and the number of network calls.
    """
    x, K = torch.full(shape, mask), mask + 1

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        log_score = network(x, sigma.expand(len(x)))
        log_score = log_score - sigma.expm1().log() - math.log(K - 1)
        return torch.scatter(log_score, -1, x[..., None], torch.zeros_like(log_score[..., :1])).exp()

    def reverse(x: Tensor, sigma: Tensor, d_sigma: Tensor) -> Tensor:
        staggered = score(x, sigma).clone()
        extra = (1 - d_sigma.exp()) * staggered.sum(dim=-1)
        staggered *= d_sigma.exp()
        staggered[..., -1] += extra
        transition = (-d_sigma).exp() * F.one_hot(x, num_classes=K)
        transition += torch.where(x == mask, 1 - (-d_sigma).exp(), 0)[..., None]
        return staggered * transition

    for sigma, following in itertools.pairwise(sigmas):
        x = race(reverse(x, sigma, sigma - following))
    x = race(reverse(x, sigmas[-1], sigmas[-1])[..., :-1])
    return x, len(sigmas)
