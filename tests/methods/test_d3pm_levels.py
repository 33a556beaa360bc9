"""D3PM on ordered tokens: the logistic head, many levels, neighbours of an embedding, and what needs an order."""

import math

import numpy as np
import pytest
import torch

from methods.test_d3pm import X_0, D, close, d3pm
from testing.worlds import L, LogitsOf, V, numbers
from zellige import exact, methods
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN
from zellige.methods import D3PM, d3pm_transitions
from zellige.nn.logistic import logistic
from zellige.samplers import Ancestral


@pytest.mark.parametrize("process", ["uniform", "middle", "gaussian"])
@pytest.mark.parametrize("last", ["text", "image"])
def test_logistic_head_is_logits_of_two_numbers(process, last):
    """The bound with a logistic head is that of the K logits it stands for; so are its loss, its gradients and its samples."""
    method = d3pm(process, last=last, head="logistic", auxiliary=0.3)
    other = d3pm(process, last=last, auxiliary=0.3)
    assert method.outputs(V, method.config) == 2

    other.network = LogitsOf(method)
    batch = Batch(X_0.repeat(20, 1))
    for f in ("loss", "bound"):
        a, b = (getattr(m, f)(batch, torch.Generator().manual_seed(3)) for m in (method, other))
        close(a, b)
        parameters = list(method.parameters())
        close(*(torch.autograd.grad(v.sum(), parameters)[0] for v in (a, b)))
    with torch.no_grad():
        close(*(exact.sample_distribution(Ancestral(), m, 2) for m in (method, other)))


def test_logistic_distribution_by_its_definition():
    """P(level k) is the mass of the logistic distribution between k -+ half a level, renormalised; scale = exp(log_scale -
    2)."""
    K, mean, log_scale = 9, 2 * numbers(6, seed=1) - 1, 4 * numbers(6, seed=2) - 3
    distribution = logistic(mean, log_scale, K).softmax(-1)
    for m, s, p in zip(mean.tolist(), log_scale.exp().tolist(), distribution):
        cdf = lambda x, m=m, s=s: 1 / (1 + math.exp(-(x - m) / (s * math.exp(-2))))  # noqa: E731
        mass = [cdf((2 * k + 1) / (K - 1) - 1) - cdf((2 * k - 1) / (K - 1) - 1) for k in range(K)]
        close(p, torch.tensor(mass, dtype=D) / sum(mass), rtol=1e-9, atol=1e-12)
    sharp = logistic(torch.tensor([0.5]), torch.tensor([-60.0]), K)
    assert sharp.isfinite().all()
    assert int(sharp.argmax()) == 6


def test_logistic_head_is_relative_to_x_t_and_excludes_nothing():
    """mean = tanh(x_t in [-1, 1] + what the network says) (appendix B.1); a millionth is uniform."""
    method = d3pm("gaussian", head="logistic")
    V, outputs = method.process.K, torch.tensor([[0.4, -9.0]], dtype=D)
    for x_t in range(V):
        distribution = method._clean(outputs, torch.tensor([x_t])).softmax(-1)[0]
        assert float(distribution.min()) >= 1e-6 / V * 0.999
        assert float(distribution.max()) > 0.99
        assert int(distribution.argmax()) == round((math.tanh(2 * x_t / (V - 1) - 1 + 0.4) + 1) / 2 * (V - 1))


@torch.no_grad()
def test_gaussian_on_many_levels_in_float32():
    """256 levels, 1,000 steps, float32 logits and a sharp distribution: the bound is finite and that of float64."""
    T, N = 200, 64
    for prediction, last in (("leave-one-out", "text"), ("leave-one-out", "image"), ("mean", "text")):
        method = D3PM(None, 256, (1,), D3PM.Config("gaussian", "linear", T, prediction, last, head="logistic"))
        x_0 = (256 * numbers(N, seed=7)).long()
        for i in (1, 2, 100, 200):
            t, s = torch.full((N,), i / T, dtype=D), torch.full((N,), (i - 1) / T if i > 1 else CLEAN, dtype=D)
            x_t = method.process.sample(x_0, t, torch.Generator().manual_seed(i))
            outputs = torch.stack([4 * numbers(N, seed=i) - 2, -8 * numbers(N, seed=i + 1)], -1)
            values = [method.cost(outputs.to(dtype), x_0, x_t, t, s) for dtype in (D, torch.float32)]
            assert values[0].isfinite().all()
            close(values[1], values[0], rtol=1e-2, atol=1e-3)


def test_embedding_is_read_and_must_fit(tmp_path):
    np.save(tmp_path / "e.npy", numbers(V, 2, seed=8).numpy())
    P = d3pm("nearest", embedding=str(tmp_path / "e.npy")).process
    close(P.R / P.R[0, 0], graph_of(numbers(V, 2, seed=8)))
    with pytest.raises(InputError, match="3 rows and the vocabulary 5 tokens"):
        D3PM(None, 5, (L,), D3PM.Config("nearest", embedding=str(tmp_path / "e.npy"), neighbours=1))
    line = d3pm("nearest").process.R  # levels 0, 1, 2: near to the next, which of two is the lower
    assert float(line[0, 1] / line[1, 2]) == 2.0
    assert float(line[0, 2]) == 0.0


def graph_of(embedding):
    R = d3pm_transitions.nearest(embedding, 1)
    return R / R[0, 0]


@pytest.mark.parametrize("schedule", ["mutual-information", "cosine", "linear"])
@pytest.mark.parametrize("rate", [0.5, 4.0])
def test_neighbours_beside_a_mask(tmp_path, schedule, rate):
    """exp((a_t - a_s) R) of the graph times what is not masked, alpha_t; the rest is the mask, which nothing leaves (A.2.6)."""
    T, N, embedding = 6, 7, numbers(7, 2, seed=8)
    np.save(tmp_path / "e.npy", embedding.numpy())
    config = {"embedding": str(tmp_path / "e.npy"), "neighbours": 3, "neighbour_weights": "rank", "mask_rate": rate}
    method = D3PM(None, N, (1,), D3PM.Config("absorbing-nearest", schedule, T, **config))
    P, R = method.process, d3pm_transitions.nearest(embedding, 3, "rank")
    assert method.states(N, method.config) == P.K == N + 1
    for i in range(1, T):
        alpha = P.schedule.alpha(torch.tensor(i / T, dtype=D))[0]
        Q = P.matrix(0.0, i / T)
        close(Q[:N, :N], alpha * torch.linalg.matrix_exp(-alpha.log() / rate * R))
        close(Q[:N, N], (1 - alpha).expand(N))
    close(Q[N], torch.nn.functional.one_hot(torch.tensor(N), N + 1).to(D))
    if schedule == "mutual-information":  # of a uniform token a share i/T of what is known is lost by step i
        distribution = torch.full((N,), 1 / N, dtype=D)
        lost = torch.stack([1 - d3pm_transitions.kept(P.matrix(0.0, i / T)[:N], distribution) for i in range(1, T)])
        close(
            lost, torch.arange(1, T, dtype=D) / T, rtol=0, atol=2e-3
        )  # interpolated between strengths 5% apart, as in the paper
    for wrong, says in (({"mask_rate": 0.0}, "`mask_rate` is 0; it must be above 0"),
                        ({"process": "uniform", "mask_rate": 4.0}, "needs `process` nearest")):  # fmt: skip
        with pytest.raises(InputError, match=says):
            D3PM(None, N, (1,), D3PM.Config(**{"process": "absorbing-nearest", **config, **wrong}))


def test_what_needs_order_says_so():
    for change, said in (
        ({"process": "gaussian"}, "`process` gaussian"),
        ({"process": "band"}, "`process` band"),
        ({"process": "middle"}, "`process` middle"),
        ({"process": "nearest", "neighbours": 1}, "`process` nearest without `embedding`"),
        ({"process": "uniform", "head": "logistic"}, "`head` logistic"),
        ({"process": "nearest", "embedding": "x.npy"}, None),
        ({"process": "uniform"}, None),
    ):
        config = D3PM.Config(**change)
        assert D3PM.needs_order(config) == said
        if said:
            with pytest.raises(InputError, match=f"^{said} needs ordered tokens"):
                methods.build("d3pm", V, torch.nn.Identity(), config, length=L)
            assert methods.build("d3pm", V, torch.nn.Identity(), config, length=L, ordered=True).ordered
