"""What `verify` says in words of a user's method with one error: each sentence names the error that was planted."""

import math

import pytest
import torch

from zellige import verify
from zellige.core.prediction import Mean
from zellige.methods import MD4, MDLM, METHODS, UDLM
from zellige.plugins.verify import diagnosis


class WeightOfOneMinusT(MDLM):
    variants = ({},)

    def continuous_bound(self, batch, x_t, t):
        return self.cross_entropy(batch, x_t, t[:, None], self.process.schedule.weight(1 - t)[..., 0])


class Bits(MDLM):
    variants = ({},)

    def continuous_bound(self, batch, x_t, t):
        return super().continuous_bound(batch, x_t, t) / math.log(2)


class NoWeight(MDLM):
    variants = ({},)

    def continuous_bound(self, batch, x_t, t):
        return self.cross_entropy(batch, x_t, t[:, None])


class RateOfLosing(MDLM):
    variants = ({},)

    def continuous_bound(self, batch, x_t, t):
        return self.cross_entropy(batch, x_t, t[:, None], self.process.schedule.beta(t)[..., 0])


class AlphaOfS(MDLM):
    variants = ({},)

    def reveal_probability(self, t, s):
        alpha = self.process.schedule.alpha
        return (alpha(s) - alpha(t))[..., 0] / (1 - alpha(s)[..., 0])


class Half(UDLM):
    variants = ({},)

    def cost(self, logits, x_0, x_t, t, s=None):
        return super().cost(logits, x_0, x_t, t, s) / (2 if s is None else 1)


class NoJumpAtTheNoisyEnd(MDLM):
    variants = ({},)

    def terms(self, batch, generator=None):
        terms = super().terms(batch, generator)
        return terms | {"prior": torch.zeros_like(terms["prior"])}


class NoJumpAtTheCleanEnd(MD4):
    variants = ({},)

    def terms(self, batch, generator=None):
        terms = super().terms(batch, generator)
        return terms | {"reconstruction": torch.zeros_like(terms["prior"])}


class MeanOverPositions(MDLM):
    variants = ({},)

    def bound(self, batch, generator=None):
        return super().bound(batch, generator) / batch.tokens.shape[1]


class MassOnTheMask(MDLM):
    variants = ({},)

    def read(self, logits, x_t, t):
        return Mean(self.process, logits.softmax(-1), x_t, t)


class NormalisedOverTheMask(MDLM):
    variants = ({},)

    def read(self, logits, x_t, t):
        distribution = torch.where(self.process.clean, logits.softmax(-1), 0.0)
        held = self.process.one_hot(x_t)
        return Mean(self.process, torch.where((x_t == self.mask)[..., None], distribution, held), x_t, t)


class NotCarriedOver(MDLM):
    variants = ({},)

    def read(self, logits, x_t, t):
        return Mean(self.process, self.process.without_mask(logits).softmax(-1), x_t, t)


class SeesItsTokens(MDLM):
    variants = ({},)

    def hidden(self, x, t, batch=None, context=None, at=None):
        return super().hidden(x if batch is None else batch.tokens, t, batch, context, at)


SAID = {
    WeightOfOneMinusT: "the weight is that of 1 - t in place of t",
    Bits: "bits for nats: the ratio is 1.443",
    NoWeight: "the weight -alpha'/(1 - alpha) is missing",
    RateOfLosing: "the rate of losing",
    AlphaOfS: "the weight is of s in place of t",
    Half: "half of it is left out",
    NoJumpAtTheNoisyEnd: "nats below the entropy, at the exact network: the prior term is missing",
    NoJumpAtTheCleanEnd: "the reconstruction term is missing",
    MeanOverPositions: "it is a mean over the 2 positions for a sum",
    MassOnTheMask: "of its mass on the mask",
    NormalisedOverTheMask: "a normaliser over V + 1 in place of V",
    NotCarriedOver: "it must be carried over",
    SeesItsTokens: "it sees the tokens that it predicts",
}


@pytest.mark.parametrize("cls", SAID, ids=lambda cls: cls.__name__)
def test_the_planted_error_is_named(cls):
    sentences = diagnosis.explained(cls)
    assert any(SAID[cls] in sentence for sentence in sentences), sentences


@pytest.mark.parametrize("name", ["mdlm", "md4", "udlm", "sedd"])
def test_of_a_right_method_nothing_is_said(name):
    assert diagnosis.explained(METHODS[name]) == []


def test_verify_prints_the_sentences():
    report = verify(Bits, only="bound.closed-form")
    assert not report.ok
    lines = report.lines()
    at = lines.index("what is wrong with mdlm")
    assert "bits for nats" in lines[at + 1]
    assert report.to_json()["words"]["mdlm"] == report.words["mdlm"]
