"""Confidence: a choice that the network decides, enumerated; what is drawn there."""

import math

import pytest
import torch
from pairs import METHODS, close, constant, distance, md4, mdlm

from worlds import V, data_distribution, per_token
from zellige import exact
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.prediction import posterior
from zellige.core.process import absorbing
from zellige.errors import InputError
from zellige.samplers import AnyOrder, Confidence, run
from zellige.samplers.predict import expected_time

THREE = 3


def sureness(p, measure):
    p = sorted(p.tolist(), reverse=True)
    if measure == "probability":
        return p[0]
    if measure == "margin":
        return p[0] - p[1]
    return 1 + sum(q * math.log(q) for q in p if q > 0) / math.log(V)


def by_hand(method, measure, choose):
    """The distribution of a sampler that draws the positions choose(sureness of each mask, step), step after step."""
    distribution = {(V,) * THREE: 1.0}
    for step in range(THREE):
        new = {}
        for x, p in distribution.items():
            masked = [i for i in range(THREE) if x[i] == V]
            if not masked:
                new[x] = new.get(x, 0.0) + p
                continue
            each = posterior(method.predict(torch.tensor([x]), 0.5))[0]
            where = choose({i: sureness(each[i], measure) for i in masked}, step)
            for tokens in torch.cartesian_prod(*[torch.arange(V)] * len(where)).reshape(-1, len(where)).tolist():
                y, chance = list(x), p
                for i, token in zip(where, tokens):
                    y[i], chance = token, chance * float(each[i, token])
                new[tuple(y)] = new.get(tuple(y), 0.0) + chance
        distribution = new
    out = torch.zeros((V + 1) ** THREE, dtype=torch.float64)
    for x, p in distribution.items():
        out[exact.index(torch.tensor(x), V + 1)] = p
    return out


@pytest.mark.parametrize("measure", ["probability", "margin", "entropy"])
@torch.no_grad()
def test_the_surest_come_first(measure):
    method = mdlm(length=THREE)
    surest = lambda sure: sorted(sure, key=lambda i: -sure[i])  # noqa: E731
    for T in (1, 2, 3):
        some = lambda sure, step, T=T: surest(sure)[: math.ceil(len(sure) / max(T - step, 1))]  # noqa: E731
        close(
            exact.sample_distribution(Confidence(measure), method, T),
            by_hand(method, measure, some),
            rtol=0,
            atol=1e-12,
        )
    enough = lambda sure, step: [i for i in sure if sure[i] >= 0.35] or surest(sure)[:1]  # noqa: E731
    distribution = exact.sample_distribution(Confidence(measure, 0.35), method, 1)  # its own number of steps
    close(distribution, by_hand(method, measure, enough), rtol=0, atol=1e-12)


@torch.no_grad()
def test_one_a_step_is_a_draw_in_an_order_that_the_network_chooses():
    """With the exact network no error, whatever the order; with one whose distributions do not agree not the average over
    orders."""
    method = exact.Denoiser(absorbing(V + 1, Linear()), data_distribution(V, THREE), THREE)
    data = exact.embed(method.process, method.distribution, THREE)
    for measure in ("probability", "margin", "entropy"):
        close(exact.sample_distribution(Confidence(measure), method, THREE), data, rtol=0, atol=1e-12)
    assert (
        distance(exact.sample_distribution(Confidence(), method, 2), data) > 1e-3
    )  # two at once are drawn independently
    method = mdlm(length=THREE)
    average, distribution = (
        exact.sample_distribution(sampler, method, THREE) for sampler in (AnyOrder(), Confidence())
    )
    assert distance(distribution, average) > 0.01


@torch.no_grad()
def test_temperature_acts_on_what_is_drawn_only():
    method = mdlm(length=THREE)
    first = [s.x != V for s in run(Confidence(), method, (1, THREE), THREE, generator=torch.Generator().manual_seed(0))]
    cold = [s.x for s in run(Confidence(temperature=0.0), method, (1, THREE), THREE)]
    assert torch.equal(cold[1] != V, first[1])
    seen = cold[0]
    for x in cold[1:]:
        best = posterior(method.predict(seen, 0.5))[0].argmax(-1)
        assert (x == seen)[x == seen].all()
        assert torch.equal(x[x != seen], best[None][x != seen])
        seen = x


@torch.no_grad()
def test_the_network_is_told_when_as_many_masks_are_expected():
    for method in (md4("cosine"), constant(Polynomial(per_token(0.5, 1.0, 2.5, 1.0)), torch.zeros(V + 1), length=2)):
        schedule = method.process.schedule
        state = Confidence().init(method, (3, 2))
        state = type(state)(torch.tensor([[V, V], [V, 1], [0, 1]]), state.fixed, state.calls)
        t = expected_time(method, state)[:, 0]
        assert float(t[0]) == 1.0
        lost = 1 - schedule.alpha(t)[:, :V].mean(-1)
        assert float(lost[1]) == pytest.approx(0.5, abs=3e-3)
        assert float(t[2]) < 2e-3 or isinstance(schedule, Cosine)
    d3pm = METHODS["d3pm, absorbing"]()
    state = Confidence().init(d3pm, (1, 2), fixed=torch.tensor([[-1, 2]]))
    assert float(expected_time(d3pm, state)) == 1.0  # one of one free position is masked
    state = type(state)(torch.tensor([[V, 2]]), torch.zeros(1, 2, dtype=torch.bool), state.calls)
    assert float(expected_time(d3pm, state)) == 0.5  # on its grid


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"confidence": "certainty"}, "`confidence` is 'certainty'; it must be probability, margin or entropy"),
        ({"threshold": 2.0}, "`threshold` is 2; it must be between 0 and 1"),
    ],
)
def test_wrong_input(how, message):
    with pytest.raises(InputError) as error:
        Confidence(**how)
    assert str(error.value) == message
