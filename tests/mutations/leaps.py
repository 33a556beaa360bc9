"""Planted errors in what tau-leaping reports of its steps."""

from .mutant import Mutant as M

ST, NUMBERS = "samplers/tau_leaping.py", "sampler.tau_leaping-numbers"
MEAN = "mean = (h[..., None] * method.process.schedule.weight(t))[..., 0]"

LEAPS = [
    M(
        "a jump is exactly one jump",
        ST,
        "jump, single = -torch.expm1(-mean), _single(mean)",
        "jump, single = _single(mean), _single(mean)",
        f"{NUMBERS} tauldr",
    ),
    M(
        "every jump is rejected",
        ST,
        "rejected = jump - single if rejects else",
        "rejected = jump if rejects else",
        f"{NUMBERS} mdlm",
    ),
    M(
        "two jumps are rejected where they are summed",
        ST,
        "clipped, rejects=not sums)",
        "clipped, rejects=True)",
        f"{NUMBERS} udlm",
    ),
    M(
        "only what leaves the states at the top is clipped",
        ST,
        "return (target < 0) | (target > K - 1)",
        "return target > K - 1",
        f"{NUMBERS} udlm",
    ),
    M(
        "a landing on the last state is clipped",
        ST,
        "return (target < 0) | (target > K - 1)",
        "return (target < 0) | (target >= K - 1)",
        f"{NUMBERS} udlm",
    ),
    M(
        "given positions leap too",
        ST,
        "leaps = at & ~end",
        "leaps = method.process.movable(state.x) & ~end",
        f"{NUMBERS} mdlm",
    ),
    M(
        "the end steps are leaps",
        ST,
        "leaps = at & ~end",
        "leaps = at",
        f"{NUMBERS} mdlm",
    ),
    M(
        "masks leap at the rate of losing",
        ST,
        MEAN,
        MEAN.replace("weight", "beta"),
        f"{NUMBERS} md4",
    ),
    M(
        "corrector leaps are reported as steps",
        ST,
        "state, *_ = self._leap(method, state, t, h, corrector_rate, generator)",
        "state = remembered(*self._leap(method, state, t, h, corrector_rate, generator))",
        f"{NUMBERS} genmd4",
    ),
    M(
        "what is drawn is never clipped",
        ST,
        "clamped(target, method.process.K), beyond(target, method.process.K)",
        "clamped(target, method.process.K), torch.zeros_like(target, dtype=torch.bool)",
        why="verify enumerates the distribution of a leap and draws no counts that it judges",
        tests="tests/samplers/test_tau_leaping.py -k clipped_positions",
    ),
    M(
        "batches count alike, whatever their positions",
        ST,
        "mean = lambda name: sum(leap.positions * getattr(leap, name) for leap in leaps) / max(total, 1)",
        "mean = lambda name: sum(getattr(leap, name) for leap in leaps) / len(leaps)",
        why="of reports on samples, which verify does not write",
        tests="tests/samplers/test_tau_leaping.py -k leaps_of_batches",
    ),
]
