"""Temperature and top-p: by their definitions, and on the clean posterior whatever the network predicts."""

import inspect
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.growing import ar, masked, transformer
from testing.pairs import generators, mdlm
from testing.worlds import L, all_processes, data_distribution, numbers
from zellige import exact, guide, samplers
from zellige.base.errors import InputError
from zellige.core import maths
from zellige.core.batch import Batch
from zellige.core.prediction import kernel, posterior
from zellige.core.schedule import CLEAN
from zellige.methods.method import NoBound
from zellige.samplers import Ancestral, Blockwise, Confidence, LeftToRight, Remasking, Truncated, run

D = torch.float64
close = torch.testing.assert_close
distributions = st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0]), min_size=1, max_size=6).filter(any)


@given(distributions, st.sampled_from([0.03, 0.2, 0.5, 0.77, 0.9, 0.99]), st.sampled_from([1.0, 0.25, 16.0]))
@settings(max_examples=200)
def test_top_p_keeps_the_smallest_set_that_reaches_p_and_its_ties(weights, level, scale):
    w = torch.tensor(weights, dtype=D)
    kept = guide.top_p(w * scale, level) / scale  # need not be normalised
    ours = {k for k, v in enumerate(kept.tolist()) if v > 0}
    total, sets = sum(weights), []
    for size in range(1, len(weights) + 1):
        sets = [
            s
            for s in itertools.combinations(range(len(weights)), size)
            if sum(weights[k] for k in s) >= level * total - 1e-9
        ]
        if sets:
            break
    least = max(
        min(weights[k] for k in s) for s in sets
    )  # the heaviest of the smallest sets, with all that tie with its last
    assert ours == {k for k, v in enumerate(weights) if v >= least and v > 0}
    close(kept[kept > 0], w[kept > 0])


def test_top_p_that_drops_keeps_no_more_than_p_ties_and_all():
    """Of ties at the threshold all go, or the mass would be above it: 0.6 of (0.4, 0.2, 0.2, 0.2) was 1, and is 0.4."""
    p = torch.tensor([[0.4, 0.2, 0.2, 0.2]])
    assert guide.top_p(p, 0.6, drop=True)[0].tolist() == pytest.approx([0.4, 0, 0, 0])
    assert guide.top_p(p, 0.3, drop=True)[0].tolist() == pytest.approx([0.4, 0, 0, 0])  # the first never goes
    for K in (2, 3, 5):
        for weights in itertools.product((0.0, 1.0, 2.0, 3.0), repeat=K):
            if not sum(weights):
                continue
            p = torch.tensor(weights, dtype=torch.float64) / sum(weights)
            for value in (0.1, 0.35, 0.5, 0.75, 0.99):
                cuts = [torch.where(p >= least, p, 0.0) for least in p.unique() if least > 0]
                within = [cut for cut in cuts if float(cut.sum()) <= value + 1e-12]
                expected = max(within or cuts[-1:], key=lambda cut: float(cut.sum()))
                kept = guide.top_p(p, value + 1e-12, drop=True)
                assert torch.equal(kept, expected), (weights, value)


def test_top_p_always_keeps_the_first_and_1_keeps_all():
    p = torch.tensor([[0.125, 0.5, 0.375], [0.0, 0.0, 1.0]], dtype=D)
    assert (guide.top_p(p, 1e-12) > 0).sum(-1).tolist() == [1, 1]
    assert guide.top_p(p, 1.0) is p
    assert guide.top_p(p, 0.5)[0].tolist() == [0.0, 0.5, 0.0]  # reached exactly: no further token


@pytest.mark.parametrize("heat", [0.1, 0.5, 2.0, 10.0])
def test_temperature_is_a_power(heat):
    logits = 4 * numbers(5, 7)
    p = guide.temperature(logits.softmax(-1), heat)
    close(maths.normalise(p), (logits / heat).softmax(-1))


def test_extreme_temperatures():
    p = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.0, 1e-300, 0.0]], dtype=D)
    assert guide.temperature(p, 0.0).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    assert guide.temperature(p, 1.0) is p
    cold = maths.normalise(guide.temperature(p, 1e-3))
    close(cold[0], torch.tensor([0.0, 1, 0], dtype=D))
    close(cold[1], torch.tensor([0.5, 0.5, 0], dtype=D))  # the limit shares what ties; 0 takes the first
    assert cold.isfinite().all()


@pytest.mark.parametrize(
    "name", ["absorbing", "absorbing, mask in the middle", "uniform", "any prior", "ctmc", "chain"]
)
def test_guidance_means_the_same_for_all_three_predictions(name):
    P = all_processes()[name]
    X = exact.states(P.K, L)
    t = 0.5
    preds = [
        exact.Denoiser(P, data_distribution(int(P.clean.sum())), L, k).predict(X, t)
        for k in ("mean", "leave_one_out", "score")
    ]
    for heat, nucleus in ((0.5, 1.0), (1.0, 0.6), (0.0, 1.0), (2.0, 0.9)):
        guided = [guide.truncated(p, heat, nucleus) for p in preds]
        expected = maths.normalise(guide.top_p(guide.temperature(posterior(preds[0]), heat), nucleus))
        for g in guided:
            if heat > 0:  # rounding may break ties of the greedy choice
                close(posterior(g), expected, rtol=1e-7, atol=1e-7)
                close(kernel(g, 0.2), kernel(guided[0], 0.2), rtol=1e-6, atol=1e-6)
            close(kernel(g, CLEAN).sum(-1), torch.ones(X.shape, dtype=D))
    assert guide.truncated(preds[0], 1.0, 1.0) is preds[0]


def test_guidance_changes_what_a_mask_becomes_not_when():
    P = all_processes()["absorbing"]
    pred = exact.Denoiser(P, data_distribution(), L).predict(exact.states(P.K, L), 0.8)
    masked = pred.x_t == P.mask
    for heat, nucleus in ((0.0, 1.0), (0.3, 0.5), (5.0, 1.0)):
        stay = kernel(guide.truncated(pred, heat, nucleus), 0.3)[masked][:, P.mask]
        close(stay, kernel(pred, 0.3)[masked][:, P.mask])


# ---------------------------------------------------------------------------------- a method around a method
@torch.no_grad()
def test_a_guided_method_and_a_sampler_with_guidance_draw_alike():
    how = {"temperature": 0.6, "top_p": 0.8}
    for make in (Ancestral, Confidence, Remasking, lambda **g: Blockwise("ancestral", **g)):
        states = [
            [state.x for state in run(sampler, method, (5, 2), 4, generator=generators(*range(5)))]
            for sampler, method in ((make(**how), mdlm()), (make(), Truncated(mdlm(), **how)))
        ]
        assert all(torch.equal(a, b) for a, b in zip(*states))
    inside = exact.run_distribution(Blockwise(Ancestral(**how)), mdlm(), 2, 2)
    close(inside, exact.run_distribution(Blockwise(Ancestral(), **how), mdlm(), 2, 2))


@torch.no_grad()
def test_guidance_stands_inside_the_truncation():
    """Half the temperature around the method, then the sampler's own half: a quarter in all, for every kind of network."""
    half = lambda method: Truncated(method, 0.5)  # noqa: E731
    for make, method in ((Ancestral, mdlm()), (Blockwise, masked(transformer(4), 16, 5)), (LeftToRight, ar())):
        shape = (5, method.shape[0])
        inside, whole = (
            [state.x for state in run(sampler, method, shape, 4, generator=generators(*range(5)), around=around)]
            for sampler, around in ((make(temperature=0.5), half), (make(temperature=0.25), None))
        )
        assert all(torch.equal(a, b) for a, b in zip(inside, whole, strict=True))


@torch.no_grad()
def test_guidance_of_guidance():
    """Half the temperature twice is a quarter; a copy for another length stays guided."""
    method, X = mdlm(), exact.states(4, 2)
    twice, once = Truncated(Truncated(method, 0.5), 0.5), Truncated(method, 0.25)
    close(posterior(twice.predict(X, 0.5)), posterior(once.predict(X, 0.5)))
    shorter = once.of_length(1)
    assert (shorter.shape, shorter.window, shorter.how[0]) == ((1,), 2, 0.25)
    assert method.shape == once.shape == (2,)


def test_a_guided_method_has_no_bound():
    guided = Truncated(mdlm(), 0.5)
    for ask in (guided.bound, guided.loss, guided.terms):
        with pytest.raises(NoBound, match="truncation changes the distribution of mdlm"):
            ask(Batch(torch.zeros(1, 2, dtype=torch.long)))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"temperature": -0.5}, "`temperature` is -0.5; it must be 0 or more"),
        ({"temperature": math.inf}, "`temperature` is inf; it must be a finite number"),
        ({"top_p": 0.0}, "`top_p` is 0; it must be above 0 and at most 1"),
        ({"top_p": math.inf}, "`top_p` is inf; it must be above 0 and at most 1"),
        ({"top_k": 0}, "`top_k` is 0; it must be"),
    ],
)
def test_what_cannot_guide(how, message):
    """Not a method, and not a sampler when it is made: it would draw as if nothing had been asked."""
    with pytest.raises(InputError, match=message):
        Truncated(mdlm(), **how)
    for cls in samplers.SAMPLERS.values():
        if how.keys() <= inspect.signature(cls).parameters.keys():
            with pytest.raises(InputError, match=message):
                cls(**how)


def test_every_sampler_truncates_as_it_says():
    for name, cls in samplers.SAMPLERS.items():
        options = samplers.options_of(cls)
        assert options["temperature"].default == 1.0
        assert (
            ("top_p" in options) == ("top_k" in options) == (name != "metropolis")
        )  # it has no clean posterior to cut
