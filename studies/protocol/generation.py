"""What each choice of the protocol makes of generative perplexity, on one small model.

    python studies/protocol/generation.py MODEL --samples FOLDER [--count 64] [--steps 512] [--judge AR] [--other AR]

MODEL is a run of mdlm. `--judge` is a run of ar with the same tokenizer, `--other` one with another. Samples are drawn once and
kept in FOLDER; without `--judge` they are drawn only. The table goes to stdout.

The draw of the published code stands here and nowhere else: a race, argmax p / E with E exponential, over all states and the
mask at once (the Gumbel-max trick). In float32 a uniform has 24 bits, so that E is never below 6e-8: unlikely tokens cannot win
against a mask that stays likely, the less the shorter the steps (Zheng et al. 2024, arXiv 2409.02908).
"""

import argparse
import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import zellige
from zellige.core.prediction import posterior
from zellige.evaluation.corpus import corpus_of
from zellige.plugins.evaluations.generate import sample_sets
from zellige.plugins.evaluations.generate.judge import Judge
from zellige.plugins.evaluations.generate.sample_sets import Set, Way
from zellige.samplers import Ancestral
from zellige.samplers.predict import fill, free, predict_at
from zellige.sampling.sample import watch
from zellige.sampling.samples import collect


@dataclass(frozen=True, kw_only=True)
class Race(Ancestral):
    """The published draw: every mask at every step, argmax of p / E over all tokens and the mask, in `dtype`."""

    dtype: torch.dtype
    seed: int

    @functools.cached_property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def step(self, method: Any, state: Any, t: Tensor, s: Tensor, generator: Any = None) -> Any:
        at = free(method, state)
        pred = predict_at(method, state, at, t)
        if pred is None:
            return state
        alpha_t, alpha_s = (float(method.process.schedule.alpha(x)) for x in (t, s))
        reveal = (alpha_s - alpha_t) / (1 - alpha_t)
        p = posterior(pred).to(self.dtype) * reveal
        p[:, method.process.mask] = 1 - reveal
        u = torch.rand(p.shape, generator=self.generator, dtype=self.dtype)
        return fill(state, at, (p / (1e-10 - (u + 1e-10).log())).argmax(-1), at.any(-1))


def draw(model: Any, count: int, steps: int, dtype: torch.dtype | None, top_p: float, seed: int) -> Set:
    """Samples of the ancestral sampler: exact, or by the published race in `dtype`."""
    how = Ancestral(top_p=top_p) if dtype is None else Race(top_p=top_p, dtype=dtype, seed=seed)
    drawn = collect(watch(model, count=count, steps=steps, sampler=how, seed=seed, batch=16))
    name = "exact" if dtype is None else f"race in {str(dtype).removeprefix('torch.')}"
    return Set(Way(name, steps, 1.0, top_p), drawn.texts, drawn.tokens, drawn.calls, seed)


@torch.no_grad()
def lost(model: Any, steps: int, bits: int = 24) -> tuple[float, float, float]:
    """What a race with uniforms of so many bits does to the distribution of the token that a mask becomes, without drawing
    anything.

    To first order in r, the probability of a reveal, token k wins with r p_k x / (e^x - 1), x = 1 / (2^bits r p_k). The mean
    over masks of real text at five times: the share of the distribution that is lost, its entropy in nats, and that of what is
    left.
    """
    method = model.method
    test = corpus_of(model).test
    x = test.collate([test[i] for i in range(16)]).tokens
    found = []
    for t in (0.1, 0.3, 0.5, 0.7, 0.9):
        time = torch.tensor(t, dtype=torch.float64)
        x_t = method.process.sample(x, time, torch.Generator().manual_seed(0))
        p = posterior(method.predict(x_t, time, at=x_t == method.process.mask)).double()
        r = 1 / (steps * t)  # loglinear: alpha = 1 - t
        fraction = 1 / (2.0**bits * r * p).clamp_min(1e-12)
        q = p * torch.where(fraction > 1e-9, fraction / torch.expm1(fraction), 1.0)
        left = q.sum(-1, keepdim=True)
        entropy = lambda distribution: -torch.special.xlogy(distribution, distribution).sum(-1)  # noqa: E731
        found.append(torch.stack([1 - left[:, 0], entropy(p), entropy(q / left)]).mean(1))
    return tuple(torch.stack(found).mean(0).tolist())


def row(name: str, point: sample_sets.ScoredSet, base: float) -> str:
    numbers = [point.measures[m] for m in ("perplexity", "perplexity per sequence", "entropy", "seq-rep-4")]
    shown = [n.text(1 if i < 2 else 3) for i, n in enumerate(numbers)]
    return f"| {name} | {' | '.join(shown)} | {numbers[0].value / base:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--samples", type=Path, required=True)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--judge")
    parser.add_argument("--other")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    model, T, N = zellige.load(chosen.model), chosen.steps, chosen.count
    half, few = max(T // 2, 1), max(T // 16, 1)
    f32, f64 = torch.float32, torch.float64
    ways = {  # name -> samples, steps, dtype of the race, top-p; the race is slow, it asks at every mask in every step
        f"exact, {T} steps": (N, T, None, 1.0),
        "nucleus 0.9": (N, T, None, 0.9),
        f"float32 race, {half} steps": (N // 2, half, f32, 1.0),
        **{f"exact, {n} steps": (N, n, None, 1.0) for n in (half, 8, few)},
        f"float32 race, {few} steps": (N // 2, few, f32, 1.0),
        f"float64 race, {few} steps": (N // 2, few, f64, 1.0),
    }
    chosen.samples.mkdir(exist_ok=True)
    sets: dict[str, Set] = {}
    for name, how in ways.items():
        file = chosen.samples / f"{name.replace(', ', '-').replace(' ', '-')}.jsonl"
        if not file.exists():
            began = time.perf_counter()
            file.write_text(sample_sets.samples_as_lines([draw(model, *how, chosen.seed)]))
            print(f"{name}: drawn in {time.perf_counter() - began:.0f} s", flush=True)
        (sets[name],) = sample_sets.read_samples(file)
    print("\n| steps | of the probability lost in float32 | entropy, nats | of what is left |\n|---|---|---|---|")
    for steps in (128, 512, 1_000, 10_000):
        share, before, after = lost(model, steps)
        print(f"| {steps:,} | {share:.2%} | {before:.3f} | {after:.3f} |")
    if not chosen.judge:
        return
    base_name = next(iter(sets))
    usual = Judge(chosen.judge)
    points = {name: sample_sets.score_samples(one, usual) for name, one in sets.items()}
    base = points[base_name].measures["perplexity"].value
    print(
        "\n| choice | perplexity, corpus | per sequence | entropy, nats | seq-rep-4 | of the first |\n|---|---|---|---|---|---|"
    )
    for name, point in points.items():
        print(row(name, point, base))
    print(
        row(
            "real text (test)",
            sample_sets.score_samples(sample_sets.real_texts(corpus_of(model), "test", chosen.count), usual),
            base,
        )
    )
    first = sets[base_name]
    readings: dict[str, tuple[Judge, bool]] = {
        "its own tokens, first given": (usual, True),
        "tokenized again, first judged after BOS": (Judge(chosen.judge, first="judged"), False),
        "tokenized again, every EOS counted": (Judge(chosen.judge, eos="all"), False),
        "tokenized again, context 32, in pieces": (Judge(chosen.judge, context=32, long="chunks"), False),
        "tokenized again, context 32, cut": (Judge(chosen.judge, context=32), False),
    }
    if chosen.other:
        readings["another judge, its own tokenizer"] = (Judge(chosen.other, long="chunks"), False)
    print(f"\nThe same samples ({base_name}), read in other ways:\n")
    print("| reading | perplexity, corpus | per sequence | tokens judged | nats/character |\n|---|---|---|---|---|")
    readings = {"tokenized again, first given": (usual, False)} | readings
    letters = sum(map(len, first.texts))
    for name, (judge, own) in readings.items():
        judged = first.rows if own and first.rows else judge.encode(first.texts)
        nats, tokens = judge.nats_of(judged)
        point = sample_sets.score_samples(first, judge, own=own)
        numbers = [point.measures[m].text(1) for m in ("perplexity", "perplexity per sequence")]
        whole = "-" if judge.long == "cut" and judge.cut(judged) else f"{float(nats.sum()) / letters:.3f}"
        print(f"| {name} | {' | '.join(numbers)} | {int(tokens.sum()):,} | {whole} |")
    if usual.inner.same(model.tokenizer):
        again = usual.encode(first.texts)
        respelt = sum(a != b for a, b in zip(again, first.rows or []))
        print(f"\n{respelt} of {len(again)} samples are spelt otherwise once they are tokenized again")


if __name__ == "__main__":
    main()
