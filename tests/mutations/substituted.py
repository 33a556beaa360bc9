"""Planted errors in MDLM without SUBS, or with a part of it."""

from .mutant import Mutant as M

S, P = "methods/mdlm.py", "core/prediction.py"

SUBSTITUTED = [
    M(
        "without carry-over the last step costs the masks alone",
        S,
        "at = (x_t == self.process.blank) | self._redrawn(s)",
        "at = x_t == self.process.blank",
        "bound.without-subs mdlm",
    ),
    M(
        "the mask's probability is forgotten where a token is revealed",
        S,
        "return reveal * nll + now - (1 - reveal) * later",
        "return reveal * nll - (1 - reveal) * later",
        "bound.without-subs mdlm",
    ),
    M(
        "the mask's probability is forgotten where none is revealed",
        S,
        "return reveal * nll + now - (1 - reveal) * later",
        "return reveal * nll + now",
        "bound.without-subs mdlm",
    ),
    M(
        "the last step draws a mask",
        P,
        "last = maths.normalise(torch.where(pred.process.clean, pred.mu.to(p), 0.0))",
        "last = maths.normalise(pred.mu.to(p))",
        "bound.without-subs mdlm",
    ),
    M(
        "the last step keeps visible tokens though nothing carries them over",
        S,
        "if self.config.carry_over:\n            visible",
        "if True:\n            visible",
        "bound.without-subs mdlm",
    ),
    M(
        "trained without the last step, which redraws every token",
        S,
        "return (T - 1) * self.step(batch, x_t, t, s) + diffusion.jump(self, batch, times[-2], times[-1], generator)",
        "return (T - 1) * self.step(batch, x_t, t, s)",
        "bound.without-subs mdlm",
    ),
    M(
        "a guided model forgets the last step",
        P,
        "if isinstance(pred, Substituted):\n        raise",
        "if False:\n        raise",
        why="refused, so that verify has nothing to compare",
        tests="tests/methods/test_mdlm.py -k refused",
    ),
    M(
        "texts are weighed by paths that noise has not",
        "samplers/replay.py",
        "if isinstance(method, Diffusion) and not method.retraces:",
        "if False:",
        why="refused, so that verify has nothing to compare",
        tests="tests/methods/test_mdlm.py -k refused",
    ),
]
