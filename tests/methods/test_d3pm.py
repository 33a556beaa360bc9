"""D3PM: its closed forms against the definition, its terms, its hybrid loss and its schedules, by enumeration."""

import importlib
import itertools
import math
import re

import numpy as np
import pytest
import torch

from testing.worlds import L, V, data_distribution, numbers, table
from zellige import exact, methods
from zellige.base.errors import InputError
from zellige.core import bound, maths
from zellige.core.batch import Batch
from zellige.core.matrices import CTMC, Chain
from zellige.core.prediction import LeaveOneOut, kernel, posterior, restricted, reverse, truth
from zellige.core.process import Mixture
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import D3PM, TauLDR, d3pm_noise, d3pm_transitions
from zellige.nn import Net
from zellige.samplers import Ancestral

D = torch.float64
close = torch.testing.assert_close
X_0 = exact.states(V, L)
SCHEDULES = ("linear", "cosine", "mutual-information")
KINDS = list(itertools.product(("uniform", "absorbing"), ("leave-one-out", "mean"), ("text", "image")))
KINDS += [
    (process, "leave-one-out", last)
    for process in ("absorbing-uniform", "middle", "gaussian", "band", "nearest")
    for last in ("text", "image")
]
KINDS += [(process, "mean", "text") for process in ("absorbing-uniform", "middle", "gaussian")]
kinds = pytest.mark.parametrize(("process", "prediction", "last"), KINDS)


class Scaled(torch.nn.Module):
    """An enumerable network that is told the time in the unit 1000 t."""

    def __init__(self, states, outputs):
        super().__init__()
        self.table, self.outputs = table(states, L, time=True), outputs
        self.told = []

    def features(self, x, time=None, **kwargs):
        self.told.append(time)
        return self.table.features(x, time.double() / 1000)[..., : self.outputs]

    def head(self, h):
        return self.table.head(h)


def d3pm(
    process="uniform", prediction="leave-one-out", last="text", schedule="cosine", steps=4, auxiliary=0.0, **others
):
    others = {"neighbours": 1, **others}
    if schedule == "mutual-information" and process in ("gaussian", "band"):
        schedule = "auto"
    config = D3PM.Config(process, schedule, steps, prediction, last, auxiliary, **others)
    return D3PM(Scaled(D3PM.states(V, config), D3PM.outputs(V, config)), V, (L,), config)


def pairs(method, t):
    """Every x_0 with every x_t that it can become, and the probability of it."""
    X = exact.states(method.process.K, L)
    x_0, x_t = X_0.repeat_interleave(len(X), 0), X.repeat(len(X_0), 1)
    q = method.process.likelihood(x_t, CLEAN, t).gather(-1, x_0[..., None])[..., 0].prod(-1)
    return x_0[q > 0], x_t[q > 0], q[q > 0]


# ---------------------------------------------------------------------------------- the schedules
def test_the_schedules_of_tables_4_and_6():
    """At their ends: of a single step, of a thousand, and of the noises that have none of them."""
    close(d3pm_transitions.table("linear-to-one", 1, 5, False), torch.tensor([1.0, 0.0], dtype=D))
    long = d3pm_transitions.table("linear-to-one", 1000, 5, False)
    assert (long.diff() <= 0).all()
    assert torch.isfinite(long[1:-1].log()).all()  # 1 - beta_i is never 0 / 0
    for kind, schedule in itertools.product(("gaussian", "nearest"), ("even", "linear-to-one")):
        with pytest.raises(InputError, match=f"`schedule` {schedule} is not for `process` {kind}"):
            d3pm_noise.noise_of(D3PM.Config(kind, schedule, 4, neighbours=1), 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5,0.5\n0.2,0.9", "row 2 of '{}' sums to 1.1; every row must sum to 1"),
        ("1.5,-0.5\n0.5,0.5", "'{}' has entries that are negative or not finite; give probabilities"),
        ("1,0\n0,1", "the noise of `matrix` never leaves some of its states"),
        ("a,b", "'{}' is no table of numbers"),
        ("0.5,0.5", "'{}' is 2, and the vocabulary has 2 tokens; give 2 rows of as many numbers"),
        (None, "no file at '{}'"),
    ],
)
def test_a_wrong_matrix_of_ones_own_is_one_line(text, message, tmp_path):
    file = tmp_path / "own.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=re.escape(message.format(file))):
        D3PM(None, 2, (2,), D3PM.Config("matrix", diffusion_steps=4, matrix=str(file)))
    with pytest.raises(InputError, match="`process` matrix needs `matrix`"):
        D3PM(None, 2, (2,), D3PM.Config("matrix"))
    with pytest.raises(InputError, match="`matrix` needs `process` matrix"):
        D3PM(None, 2, (2,), D3PM.Config(matrix=str(file)))


def test_equal_unigrams_are_none(tmp_path):
    np.save(tmp_path / "even.npy", np.full(7, 3))
    even = d3pm_noise.read_unigrams(str(tmp_path / "even.npy"), 7)
    for redrawn in (None, 0.02):
        asked, even_by_default = (
            d3pm_transitions.table("mutual-information", 9, 7, False, redrawn, p) for p in (even, None)
        )
        close(asked, even_by_default, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2", "'{}' has 2 counts and the vocabulary 3 tokens; give one for each"),
        ("1\n-2\n3", "'{}' must hold counts of 0 or more, of two tokens at least above 0"),
        ("0\n4\n0", "'{}' must hold counts of 0 or more, of two tokens at least above 0"),
        ("a\nb\nc", "'{}' is no list of numbers; `unigrams` takes a file with a count for each token, .npy or text"),
        (None, "no file at '{}'; `unigrams` takes a file with a count for each token"),
    ],
)
def test_wrong_unigrams_are_one_line(text, message, tmp_path):
    file = tmp_path / "unigrams.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=re.escape(message.format(file))):
        D3PM(None, 3, (2,), D3PM.Config("uniform", "mutual-information", diffusion_steps=4, unigrams=str(file)))
    for kind, schedule in (("uniform", "cosine"), ("absorbing", "paper"), ("middle", "paper")):
        with pytest.raises(InputError, match="`unigrams` is for `schedule` mutual-information"):
            d3pm_noise.noise_of(D3PM.Config(kind, schedule, 4, neighbours=1, unigrams=str(file)), 3)


# ---------------------------------------------------------------------------------- the closed forms
@kinds
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_closed_form_is_the_definition(process, prediction, last, schedule):
    for T in (1, 4):
        method = d3pm(process, prediction, last, schedule, T)
        steps = list(itertools.pairwise(method.grid(T))) + ([(torch.tensor(0.5), torch.tensor(CLEAN))] if T > 1 else [])
        for t, s in steps:  # one of them skips
            x_0, x_t, _ = pairs(method, t)
            times, later = (u.to(D).expand(x_0.shape) for u in (t, s))
            ours = method.discrete_bound(Batch(x_0), x_t, times[:, 0], later[:, 0])
            pred, target = method.predict(x_t, times), truth(method.process, x_0, x_t, times)
            definition = bound.discrete(target, pred, later)
            close(ours, definition.sum(-1), rtol=0, atol=1e-11)
            weight = numbers(len(ours))
            parameters = list(method.parameters())
            a, b = (
                torch.autograd.grad((weight * v).sum(), parameters, retain_graph=True)[0]
                for v in (ours, definition.sum(-1))
            )
            close(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("prediction", ["leave-one-out", "mean"])
def test_closed_form_in_float32_at_many_states_and_steps(prediction):
    """1,000 steps of 5,000 states: T times a step's KL keeps its digits, at confident networks too."""
    V, T, N = 5000, 1000, 64
    method = D3PM(None, V, (1,), D3PM.Config("uniform", "cosine", T, prediction))
    x_0 = torch.arange(N)
    for size, i in itertools.product((1.0, 30.0), (1, 2, 500, 1000)):
        logits = size * (2 * numbers(N, V, seed=i) - 1)
        t, s = torch.full((N,), i / T, dtype=D), torch.full((N,), (i - 1) / T if i > 1 else CLEAN, dtype=D)
        x_t = method.process.sample(x_0, t, torch.Generator().manual_seed(i))
        values, gradients = [], []
        for dtype in (D, torch.float32):
            z = logits.to(dtype).requires_grad_()
            value = T * method.cost(z, x_0, x_t, t, s)
            gradients.append(torch.autograd.grad(value.sum(), z)[0].to(D))
            values.append(value.detach())
        generic = T * bound.discrete(truth(method.process, x_0, x_t, t), method.read(logits, x_t, t), s)
        close(values[0], generic, rtol=1e-9, atol=1e-9)
        close(values[1], generic, rtol=2e-4, atol=2e-4)
        close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)


def test_eq_4_is_the_sum_over_x_0_normalised():
    """p(x_s | x_t) of eq. 4, summed as it stands there from q(x_s, x_t | x_0): `LeaveOneOut`; the mixture is `Mean`."""
    for process in ("uniform", "absorbing"):
        method = d3pm(process)
        P, K = method.process, method.process.K
        logits = 2 * numbers(K, K)
        for t, s in itertools.pairwise(method.grid(4)):
            x_t, time = torch.arange(K), t.expand(K)
            p_x0 = method.read(logits, x_t, time).mu
            assert isinstance(method.read(logits, x_t, time), LeaveOneOut)
            joint = P.matrix(CLEAN, s)[:, :, None] * P.matrix(s, t)  # q(x_s, x_t | x_0): (x_0, x_s, x_t)
            summed = torch.einsum("nk,ksn->ns", p_x0, joint)
            close(reverse(LeaveOneOut(P, p_x0, x_t, time), s), maths.normalise(summed))
            each = maths.normalise(joint.transpose(1, 2))  # q(x_s | x_t, x_0): (x_0, x_t, x_s)
            mixed = torch.einsum("nk,kns->ns", p_x0, each)
            masks = x_t == P.mask if P.mask is not None else torch.ones_like(x_t, dtype=torch.bool)
            close(reverse(restricted(P, p_x0, x_t, time), s)[masks], mixed[masks])
            if P.mask is not None:
                close(mixed[masks], maths.normalise(summed)[masks])


@kinds
def test_what_the_network_is_told_and_read_as(process, prediction, last):
    method = d3pm(process, prediction, last)
    K = method.process.K
    assert isinstance(method.process, {"gaussian": Chain, "band": Chain, "nearest": CTMC}.get(process, Mixture))
    assert method.process.start_time == (PRIOR if process in ("absorbing", "middle") else 1.0)
    x_t = torch.full((3, L), K - 1)
    for t in (0.25, 1.0):
        distribution = posterior(method.predict(x_t, t))
        assert float(method.network.told[-1][0]) == 1000 * t
        logits = method.network.features(x_t, torch.full((3,), 1000 * t))
        if process.startswith("absorbing"):
            logits = logits[..., :V]
            assert (distribution[..., V] == 0).all()
        raw = logits.softmax(-1)
        as_mean = prediction == "mean" or (last == "image" and t == 0.25)  # else text: q(x_1 | x_0) enters
        likely = method.process.likelihood(x_t, CLEAN, t)[..., :V]
        close(distribution[..., :V], maths.normalise(raw * (likely > 0) if as_mean else raw * likely))
        if process in ("uniform", "gaussian", "absorbing"):
            assert torch.allclose(distribution[..., :V], raw) == (as_mean or process == "absorbing")


# ---------------------------------------------------------------------------------- the bound
@pytest.mark.parametrize("process", ["uniform", "absorbing"])
@pytest.mark.parametrize("predicts", ["leave_one_out", "mean"])
@torch.no_grad()
def test_one_step_of_one_token_is_exact_with_the_exact_network(process, predicts):
    """On one position the T-step bound with the exact network is the entropy (+ KL(p_T || prior)), for any T."""
    distribution = data_distribution(V, 1)
    for T in (1, 3, 8):
        method = D3PM(None, V, (1,), D3PM.Config(process, "cosine", T))
        denoiser = exact.Denoiser(method.process, distribution, 1, predicts)
        value = (distribution * exact.step_bound(denoiser, denoiser.x_0, method.grid(T))).sum()
        p_T = exact.marginal(method.process, exact.embed(method.process, distribution, 1), 1, method.process.start_time)
        close(value, exact.entropy(distribution) + maths.kl(p_T, method.process.prior))


@pytest.mark.parametrize("process", ["uniform", "absorbing"])
@torch.no_grad()
def test_more_steps_of_the_exact_network_come_down_to_the_entropy(process):
    distribution = data_distribution()
    gaps = []
    for T in (16, 32, 64):
        method = D3PM(None, V, (L,), D3PM.Config(process, diffusion_steps=T))
        denoiser = exact.Denoiser(method.process, distribution, L, method.parameterization)
        gaps.append(
            float(
                (distribution * exact.step_bound(denoiser, denoiser.x_0, method.grid(T))).sum()
                - exact.entropy(distribution)
            )
        )
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[0] / gaps[2] > 3


@torch.no_grad()
def test_uniform_prior_term_is_the_divergence_of_the_last_distribution():
    method = d3pm("uniform", schedule="linear", steps=6)
    alpha = float(method.process.schedule.alpha_1)
    here = alpha + (1 - alpha) / V
    each = here * math.log(V * here) + (1 - here) * math.log(V * (1 - here) / (V - 1))
    mask = torch.tensor([[True, False]]).expand(len(X_0), -1)
    close(method.terms(Batch(X_0))["prior"], torch.full((len(X_0),), L * each, dtype=D))
    close(method.terms(Batch(X_0, mask))["prior"], torch.full((len(X_0),), each, dtype=D))


@torch.no_grad()
@pytest.mark.parametrize("process", ["uniform", "gaussian", "middle", "absorbing"])
def test_an_eps_in_the_logarithms_adds_what_p_has_where_x_1_cannot_come_from(process):
    """As it falls to 0 the published terms are ours, and at the first step -log of that mass more; drawn as the bound is."""
    T, x_0 = 3, X_0[3:4]
    ours, theirs = (
        d3pm(process, last="image", schedule="mutual-information", steps=T, log_eps=eps) for eps in (0.0, 1e-10)
    )
    assert (theirs.approximate, theirs.loss_is_bound, ours.approximate) == (True, False, False)
    known, x_1, q = pairs(ours, torch.tensor(1 / T))
    x_1, q = x_1[(known == x_0).all(-1)], q[(known == x_0).all(-1)]
    time = torch.full(x_1.shape, 1 / T, dtype=D)
    p = ours._clean(ours.network.features(x_1, 1000 * time[:, 0]), x_1).softmax(-1)
    mass = (p * (ours.process.likelihood(x_1, CLEAN, time) > 0)).sum(-1)
    more = -(q * mass.log().sum(-1)).sum()
    assert (float(more) > 0.1) == (process in ("middle", "absorbing"))
    n = T - 1  # the last step is not drawn
    nodes = (torch.arange(n, dtype=D) + 0.5) / n, torch.full((n,), 1 / n, dtype=D)
    assert theirs.grid(T)[0] == 1.0  # absorbing noise, too: L_T is a term of its own
    expected = exact.step_bound(ours, x_0, ours.grid(T)) + more
    close(exact.expectation(theirs.bound, x_0, nodes), expected, rtol=0, atol=1e-6)


# ---------------------------------------------------------------------------------- the hybrid loss
@torch.no_grad()
def test_the_cross_entropy_at_all_positions():
    """Of absorbing noise, at tokens that are still there too, as the published code has it; at given positions never."""
    T, weight = 3, 0.7
    at_masks, everywhere = (d3pm("absorbing", steps=T, auxiliary=weight, auxiliary_at=at) for at in ("masks", "all"))
    for t, s in itertools.pairwise(at_masks.grid(T)):
        x_0, x_t, _ = pairs(at_masks, t)
        mask = numbers(*x_0.shape) < 0.6
        batch, n = Batch(x_0, mask), len(x_0)
        x_t = torch.where(mask, x_t, x_0)
        logits = at_masks.network.features(x_t, torch.full((n,), 1000 * float(t.clamp(max=1.0))))[..., :V]
        ce = -logits.log_softmax(-1).gather(-1, x_0[..., None])[..., 0]
        ours, less = (m.discrete_bound(batch, x_t, t.expand(n), s.expand(n), T, weight) for m in (everywhere, at_masks))
        close(ours - less, weight * (ce * ((x_t != V) & mask)).sum(-1), rtol=0, atol=1e-6)
    with pytest.raises(InputError, match="unknown auxiliary_at 'mask'; did you mean 'masks'"):
        d3pm("absorbing", auxiliary_at="mask")


@pytest.mark.parametrize("process", ["uniform", "absorbing"])
def test_losses_have_gradients_in_chunks_as_in_one_piece(process, monkeypatch):
    net = Net(layers=1, hidden=16, heads=2, length=6)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False] * 6])
    batch = Batch(torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0)), mask)
    method = methods.build("d3pm", 11, net, D3PM.Config(process, diffusion_steps=8, auxiliary=0.3)).double()
    for p in method.parameters():
        torch.nn.init.normal_(p, std=0.3, generator=torch.Generator().manual_seed(len(p)))
    both = []
    for large in (1 << 22, 1):
        for module in ("zellige.nn.chunks", "zellige.nn.cross_entropy"):
            monkeypatch.setattr(importlib.import_module(module), "LARGE", large)
            monkeypatch.setattr(importlib.import_module(module), "CHUNK", 3)
        monkeypatch.setattr(importlib.import_module("zellige.nn.cross_entropy"), "ENTRIES", 1)
        values = [f(batch, torch.Generator().manual_seed(2)) for f in (method.loss, method.bound)]
        both.append([*values, *torch.autograd.grad(sum(v.sum() for v in values), list(method.parameters()))])
    for a, b in zip(*both):
        close(a, b, rtol=0, atol=1e-10)
    assert (both[0][0][:2] > 0).all()
    if process == "absorbing":
        assert float(both[0][0][2].detach()) == 0.0  # everything was given


# ---------------------------------------------------------------------------------- schedules
def test_schedules_of_the_paper():
    for T in (1, 2, 10, 1000):
        i = torch.arange(T + 1, dtype=D)
        alpha = d3pm_transitions.table("mutual-information", T, 7, True)
        close(1 - alpha[1:] / alpha[:-1], 1 / (T - i[1:] + 1), rtol=1e-9, atol=1e-12)  # beta_i = 1/(T - i + 1)
        alpha = d3pm_transitions.table("cosine", T, 7, True)
        f = torch.cos((i / T + 0.008) / 1.008 * math.pi / 2)
        close(alpha[:-1], (f / f[0])[:-1])
        assert float(alpha[-1] / alpha[-2]) == pytest.approx(1e-3)  # beta_T would be 1; 0.999
    alpha = d3pm_transitions.table("linear", 1000, 7, True)
    close(1 - alpha[1:] / alpha[:-1], torch.linspace(1e-4, 0.02, 1000, dtype=D), rtol=1e-9, atol=1e-12)
    assert float(d3pm_transitions.table("linear", 1, 7, True)[-1]) == pytest.approx(1e-3)  # of one step the last beta
    assert all(
        math.exp(-11) < d3pm_transitions.table("linear", T, 7, True)[-1] < math.exp(-10) for T in (100, 300, 1000)
    )


@pytest.mark.parametrize("K", [2, 27, 50_257])
def test_mutual_information_of_uniform_noise_falls_evenly(K):
    T = 20
    alpha = d3pm_transitions.table("mutual-information", T, K, False)
    process = D3PM(None, K, (1,), D3PM.Config("uniform", "mutual-information", T)).process
    close(process.schedule.table, alpha)  # pyright: ignore
    information = process.divergence(torch.zeros(T + 1, dtype=torch.long), torch.arange(T + 1, dtype=D) / T)
    close(information / math.log(K), 1 - torch.arange(T + 1, dtype=D) / T, rtol=0, atol=1e-9)


def test_the_default_schedule_is_the_papers():
    """Section 3.2: cosine for uniform noise, linear for Gaussian, 1/(T - t + 1) for absorbing. `auto` is what it was before."""
    for process, paper, auto in [
        ("uniform", "cosine", "mutual-information"),
        ("absorbing", "mutual-information", "mutual-information"),
        ("absorbing-uniform", "mutual-information", "mutual-information"),
        ("middle", "mutual-information", "mutual-information"),
        ("gaussian", "linear", "linear"),
        ("band", "linear", "linear"),
        ("nearest", "mutual-information", "mutual-information"),
    ]:
        of = lambda name: d3pm(process, schedule=name, steps=8).process.matrix(CLEAN, 0.5)  # noqa: B023, E731
        assert D3PM.Config().schedule == "paper"
        for name, meant in (("paper", paper), ("auto", auto)):
            close(of(name), of(meant))
    assert not torch.allclose(
        *(d3pm("uniform", schedule=n, steps=8).process.matrix(CLEAN, 0.5) for n in ("paper", "auto"))
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"process": "absorbing-uniform", "mask_proportion": 1.5},
            "`mask_proportion` is 1.5; it must be above 0 and below 1",
        ),
        ({"process": "absorbing-uniform", "mask_proportion": 1.0}, "`mask_proportion` is 1; use `process` absorbing"),
        ({"process": "unif"}, "unknown process 'unif'; did you mean 'uniform'?"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'?"),
        ({"prediction": "score"}, "unknown prediction 'score'; all of them: zellige train d3pm --help"),
        ({"last": "video"}, "unknown last 'video'; all of them: zellige train d3pm --help"),
        ({"diffusion_steps": 0}, "`diffusion_steps` is 0; it must be 1 or more"),
        ({"auxiliary": -0.5}, "`auxiliary` is -0.5; it must be 0 or more"),
        ({"head": "logistik"}, "unknown head 'logistik'; did you mean 'logistic'?"),
        ({"head": "residual"}, "`head` residual has no place for a mask; use `process` middle, or `head` logits"),
        (
            {"log_eps": 1e-6},
            "`log_eps` is of the published image code; it needs `last` image and `prediction` leave-one-out",
        ),
        ({"log_eps": -1.0, "last": "image"}, "`log_eps` is -1; it must be 0 or more"),
        ({"head": "logistic"}, "`head` logistic has no place for a mask; use `process` middle, or `head` logits"),
        ({"process": "gaussian", "width": 3}, "`width` is 3; with 3 levels it must be from 0 to 2"),
        ({"process": "nearest"}, "`neighbours` is 5; with 3 tokens it must be from 1 to 2"),
        (
            {"process": "band", "schedule": "mutual-information"},
            "`schedule` mutual-information is not for `process` band; use linear or cosine",
        ),
    ],
)
def test_wrong_choices_are_one_line(wrong, said):
    with pytest.raises(InputError) as error:
        D3PM(None, V, (L,), D3PM.Config(**wrong))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------------------------- sampling
@kinds
@torch.no_grad()
def test_samples_have_the_distribution_of_the_model(process, prediction, last):
    method = d3pm(process, prediction, last)
    for steps in (1, 2, 4):
        times = Ancestral().times(method, steps)
        distribution = exact.sample_distribution(Ancestral(), method, steps)
        log_p = exact.log_likelihood(method, times)
        clean = method.process.clean[exact.states(method.process.K, L)].all(-1)
        close(distribution[clean], log_p.exp())
    last_step = kernel(method.predict(X_0, 0.25), CLEAN)
    close(last_step.sum(-1), torch.ones(X_0.shape, dtype=D))


@pytest.mark.parametrize(
    ("cls", "choices"),
    [(D3PM, {"process": "absorbing-uniform"}), (D3PM, {"process": "uniform", "schedule": "mutual-information"})]
    + [(TauLDR, {"process": process}) for process in ("gaussian", "birth-death")],
)
def test_noise_of_one_token_is_one_line(cls, choices):
    with pytest.raises(InputError, match="needs two tokens or more"):
        cls(None, 1, (2,), cls.Config(**choices))
