"""Confidence: a choice that the network decides, enumerated; what is drawn there."""

import math

import pytest
import torch

from testing.pairs import METHODS, close, constant, distance, md4, mdlm
from testing.worlds import V, data_distribution, per_token
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.prediction import posterior
from zellige.core.process import absorbing
from zellige.core.schedule import Tabulated
from zellige.samplers import AnyOrder, Confidence, Klass, State, run
from zellige.samplers.predict import expected_time

THREE = 3


def sureness(p, measure):
    p = sorted(p.tolist(), reverse=True)
    if measure == "probability":
        return p[0]
    if measure == "margin":
        return p[0] - p[1]
    return 1 + sum(q * math.log(q) for q in p if q > 0) / math.log(V)


def entropy(p):
    return -sum(q * math.log(q) for q in p.tolist() if q > 0)


def by_hand(method, measure, choose):
    """The distribution of a sampler that draws the positions choose(sureness of each mask, step, entropies), step after step."""
    distribution = {(V,) * THREE: 1.0}
    for step in range(THREE):
        new = {}
        for x, p in distribution.items():
            masked = [i for i in range(THREE) if x[i] == V]
            if not masked:
                new[x] = new.get(x, 0.0) + p
                continue
            each = posterior(method.predict(torch.tensor([x]), 0.5))[0]
            sure = {i: sureness(each[i], measure) for i in masked}
            where = choose(sure, step, {i: entropy(each[i]) for i in masked})
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
def test_the_most_confident_come_first(measure):
    method = mdlm(length=THREE)
    most_confident = lambda sure: sorted(sure, key=lambda i: -sure[i])  # noqa: E731
    for T in (1, 2, 3):
        some = lambda sure, step, _, T=T: most_confident(sure)[: math.ceil(len(sure) / max(T - step, 1))]  # noqa: E731
        close(
            exact.sample_distribution(Confidence(measure), method, T),
            by_hand(method, measure, some),
            rtol=0,
            atol=1e-12,
        )
    enough = lambda sure, *_: [i for i in sure if sure[i] >= 0.35] or most_confident(sure)[:1]  # noqa: E731
    distribution = exact.sample_distribution(Confidence(measure, 0.35), method, 1)  # its own number of steps
    close(distribution, by_hand(method, measure, enough), rtol=0, atol=1e-12)


def leading(sure, allowed):
    """The most confident masks, as many as `allowed` of their list says, and at least one."""
    order = sorted(sure, key=lambda i: -sure[i])
    return order[: max((n for n in range(1, len(order) + 1) if allowed(order[:n])), default=1)]


@pytest.mark.parametrize("measure", ["probability", "margin", "entropy"])
@torch.no_grad()
def test_how_many_a_rule_reveals(measure):
    """By the definitions of Fast-dLLM and of EB; each value reveals another number of masks somewhere."""
    method, seen = mdlm(length=THREE), []
    for factor in (0.5, 1.35, 1.9, 2.4, 3.0, 4.0):
        few = lambda sure, step, _, f=factor: leading(sure, lambda some: (len(some) + 1) * (1 - sure[some[-1]]) < f)  # noqa: E731
        seen.append(exact.sample_distribution(Confidence(measure, factor=factor), method, 1))
        close(seen[-1], by_hand(method, measure, few), rtol=0, atol=1e-12)
    for bound in (0.1, 1.25, 2.2, 3.0):
        few = lambda sure, step, H, g=bound: leading(  # noqa: E731
            sure, lambda some: sum(H[i] for i in some) - max(H[i] for i in some) <= g
        )
        seen.append(exact.sample_distribution(Confidence(measure, entropy_bound=bound), method, 1))
        close(seen[-1], by_hand(method, measure, few), rtol=0, atol=1e-12)
    for k in (1, 2, 3):
        few = lambda sure, step, _, k=k: leading(sure, lambda some: len(some) <= k)  # noqa: E731
        close(
            exact.sample_distribution(Confidence(measure, per_step=k), method, 1),
            by_hand(method, measure, few),
            rtol=0,
            atol=1e-12,
        )
    for rules in (seen[:6], seen[6:]):
        assert distance(rules[0], rules[-1]) > 1e-3
        assert any(min(distance(rule, rules[0]), distance(rule, rules[-1])) > 1e-4 for rule in rules)


@torch.no_grad()
def test_a_rule_takes_as_many_steps_as_it_needs():
    method = mdlm(length=THREE)
    for sampler, steps in (
        (Confidence(per_step=2), 2),
        (Confidence(entropy_bound=9.0), 1),
        (Confidence(factor=0.01), 3),
    ):
        *_, state = run(sampler, method, (1, THREE), generator=torch.Generator().manual_seed(0))
        assert (state.x < V).all()
        assert int(state.calls) == steps


def klass_by_hand(method, threshold, most, history):
    """KLASS as its paper has it, every text by itself: what a mask was before, and how long it is stable, in dicts."""
    distribution, length = {}, method.shape[0]

    def follow(x, p, before, stable):
        masked = [i for i in range(length) if x[i] == V]
        if not masked:
            distribution[x] = distribution.get(x, 0.0) + p
            return
        each = dict(zip(masked, posterior(method.predict(torch.tensor([x]), 0.5))[0][masked]))
        for i in masked:
            if i in before:
                change = sum(float(a) * math.log(a / b) for a, b in zip(each[i], before[i]) if a > 0)
                stable = stable | {i: stable.get(i, 0) + 1 if change < most else 0}
        settled = [i for i in masked if stable.get(i, 0) >= history and float(each[i].max()) >= threshold]
        where = settled or [max(masked, key=lambda i: float(each[i].max()))]
        for tokens in torch.cartesian_prod(*[torch.arange(V)] * len(where)).reshape(-1, len(where)).tolist():
            y, chance = list(x), p
            for i, token in zip(where, tokens):
                y[i], chance = token, chance * float(each[i][token])
            follow(tuple(y), chance, each, stable)

    follow((V,) * length, 1.0, {}, {})
    return torch.tensor([distribution[tuple(x)] for x in exact.states(V, length).tolist()], dtype=torch.float64)


def klass_is_by_hand(method, threshold, kl, history):
    """Its distribution, asserted to be that of `klass_by_hand`."""
    distribution = exact.run_distribution(Klass(threshold=threshold, kl=kl, history=history), method, method.shape[0])
    close(distribution, klass_by_hand(method, threshold, kl, history), rtol=0, atol=1e-12)
    return distribution


@torch.no_grad()
def test_settled_tokens_come_at_once():
    method = mdlm(length=THREE)
    several, one = (klass_is_by_hand(method, *how) for how in ((0.0, 9.0, 1), (0.9, 9.0, 1)))
    assert distance(several, one) > 1e-3  # several at once, and one after the other


@pytest.mark.long
@torch.no_grad()
@pytest.mark.parametrize("how", [(0.3, 0.05, 1), (0.0, 0.02, 1), (0.0, 9.0, 2)])
def test_tokens_are_settled_by_all_three_options(how):
    klass_is_by_hand(mdlm(length=4), *how)


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


@pytest.mark.parametrize("last", [0.0, 1e-3])  # alpha at t = 1, as d3pm's and as mdlm's
def test_a_model_of_few_steps_is_told_the_nearest_of_its_times(last):
    schedule = Tabulated(torch.linspace(1.0, last, 11, dtype=torch.float64))
    method = exact.Denoiser(absorbing(V + 1, schedule), data_distribution(L=1), 1, "leave_one_out")
    x = torch.zeros(11, 10, dtype=torch.long).masked_fill(torch.ones(11, 10).tril(-1).bool(), V)  # 0 to 10 masks
    state = State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros(11))
    close(expected_time(method, state)[:, 0], torch.tensor([1, *range(1, 11)], dtype=torch.float64) / 10)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"confidence": "certainty"}, "`confidence` is 'certainty'; it must be probability, margin or entropy"),
        ({"threshold": 2.0}, "`threshold` is 2; it must be between 0 and 1"),
        ({"factor": 0.0}, "`factor` is 0; it must be above 0"),
        ({"entropy_bound": -1.0}, "`entropy_bound` is -1; it must be 0 or more"),
        (
            {"threshold": 0.9, "factor": 1.0},
            "`threshold` and `factor` both say how many tokens a step reveals; give one of them",
        ),
    ],
)
def test_wrong_input(how, message):
    with pytest.raises(InputError) as error:
        Confidence(**how)
    assert str(error.value) == message
