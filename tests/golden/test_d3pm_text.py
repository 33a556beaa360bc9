"""D3PM's text code (Google's, transcribed by hand) against ours, at the tolerance of each case.

It numbers steps t = 0..T-1 and has columns as sources: its step t takes x_t to x_{t+1}, which is our Q from t/T to (t + 1)/T
transposed. Losses there are of one step, ours of all T.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from zellige.core.batch import Batch
from zellige.core.matrices import Chain
from zellige.core.prediction import kernel, truth
from zellige.core.process import Process, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.methods import D3PM, d3pm_transitions
from zellige.methods.d3pm_transitions import table

from .d3pm import D, d3pm, product
from .recorded import JAX, rounded

CASE = r"d3pm_google\.text\."
Q = {case: tuple(case.split(".")[-2:])
     for case in JAX.cases(CASE + r"Q\.((beta_diagonal|mask)(_slow)?\.(standard|cosine|linear)|closed_form_mi\..*)")}  # fmt: skip
BAND = {case: int(case.split(".")[-2][-1]) for case in JAX.cases(CASE + r"Q\.band_diagonal_w.*")}
(GAUSSIAN,) = JAX.cases(CASE + r"Q\.gaussian_precomputed\..*")
NEAREST = {case: int(case.split(".")[-2][-1]) for case in JAX.cases(CASE + r"Q\.nearest_neighbor_.*")}
BETAS, RATE = "d3pm_google.text.betas", "d3pm_google.text.nn_rate"
LOSS, MI = JAX.cases(CASE + r"loss\..*"), JAX.cases(CASE + r"mutual_information\..*")
K, T = (JAX.index[GAUSSIAN]["config"][k] for k in ("dim", "T"))
TESTED = {BETAS, *MI, *Q, *BAND, GAUSSIAN, *NEAREST, RATE, *LOSS}

FORCED = "its fast inference sets the product of all T steps to the stationary distribution: ours to PRIOR"
FORMS = {
    BETAS: "its linear betas stop one step before beta_max; ours end at it, and scale with T",
    **{case: FORCED for case, (kind, schedule) in Q.items() if kind in ("beta_diagonal", "mask") and schedule != "standard"},
    **dict.fromkeys(BAND, "it divides each column by its own band, which near the ends is no doubly stochastic matrix, and an "
                          "even width has one level more below; ours is eq. 10, equal far from the ends at an odd width"),
    GAUSSIAN: "its levels are K/(K-1) apart, and the product of all T is missing; ours is eq. 8, the same at betas times "
              "((K-1)/K)^2",
    RATE: "its exponential is (1 + A/512)^512, ours exp(A); the rates are ours, its columns the sources",
}  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("d3pm_google.text")} == TESTED
    assert FORMS.keys() <= TESTED
    assert all(JAX.index[case]["config"]["T"] == T for case in [*Q, *BAND, *NEAREST, *LOSS, *MI])


def recorded_chain(golden, case: str) -> Chain:
    """Upstream's matrices as a process."""
    return Chain(_rows(golden[case]["q_onestep"]), torch.full((K,), 1 / K, dtype=D))


def _rows(columns: torch.Tensor) -> torch.Tensor:
    """float32 matrices whose columns sum to 1, as ours."""
    return (columns.to(D) / columns.to(D).sum(-2, keepdim=True)).mT


def process(golden, kind: str, schedule: str) -> Process:
    """Upstream's process by its recorded betas, exponents or matrices."""
    if kind == "closed_form_mi":
        alpha = torch.exp(-golden[f"d3pm_google.text.mutual_information.{schedule}"]["exponents"].to(D))
        if schedule == "mask":  # the last step jumps to the mask
            alpha[-1] = 0.0
        return (absorbing if schedule == "mask" else uniform)(K, Tabulated(alpha))
    if kind.startswith(("beta", "mask")):
        betas = product(golden[BETAS][schedule])
        return (absorbing if kind.startswith("mask") else uniform)(K, betas)
    return recorded_chain(golden, f"d3pm_google.text.Q.{kind}.{schedule}")


# ---------------------------------------------------------------------------------- schedules
def test_betas(golden):
    case, c = BETAS, golden[BETAS]
    for ours, theirs in (("mutual-information", "standard"), ("cosine", "cosine")):
        golden.near(case, d3pm_transitions.betas(ours, T), c[theirs])
        golden.near(case, table(ours, T, K, True), product(c[theirs]).table)
    low, high = (golden.index[case]["config"]["linear"][k] for k in ("beta_min", "beta_max"))
    golden.near(case, low + (high - low) * torch.arange(T, dtype=D) / T, c["linear"])  # difference: never beta_max
    beta = d3pm_transitions.betas("linear", T)
    rounded(
        beta, torch.linspace(float(beta[0]), float(beta[-1]), T, dtype=D), 4, scale=1.0
    )  # one less the ratio of alphas
    constant = golden.index[case]["config"]["linear_const"]
    golden.near(case, product(c["linear_const"]).table[1:], (1 - constant) ** torch.arange(1, T + 1))


@pytest.mark.parametrize("case", MI)
def test_mutual_information(golden, case):
    """Exponents e at which an even part of the information about x_0 is lost, for a distribution of x_0: Q = exp(e R)."""
    c = golden[case]
    distribution, keep = c["initial_distribution"].to(D), lambda e: torch.exp(torch.tensor(-e, dtype=D)).item()
    if case.endswith("mask"):
        kernel = lambda e: d3pm_transitions.absorbing(K, 1 - keep(e), K - 1)  # noqa: E731
    else:
        kernel = lambda e: d3pm_transitions.uniform(K, 1 - keep(e))  # noqa: E731
    lost = [1 - d3pm_transitions.kept(kernel(e), distribution) for e in c["query_exponents"].tolist()]
    golden.near(case, torch.stack(lost), c["query_info_removal"])
    removed = c["schedule_info_removal"]
    golden.near(case, removed, torch.arange(1, len(removed) + 1, dtype=D) / (len(removed) + 1))
    golden.near(case, d3pm_transitions.informed(kernel, distribution, removed), c["exponents"][1 : len(removed) + 1])
    if case.endswith("mask"):  # alpha_i = 1 - i/T whatever the distribution; the last step jumps
        golden.near(case, table("mutual-information", T, K, True)[:-1], torch.exp(-c["exponents"].to(D))[:-1])
    else:  # a method has no distribution of x_0 at hand: x_0 uniform, and all of it is lost at T
        even = torch.full_like(distribution, 1 / K)
        lost = [1 - d3pm_transitions.kept(d3pm_transitions.uniform(K, 1 - float(a)), even)
                for a in table("mutual-information", T, K, False)]  # fmt: skip
        rounded(torch.stack(lost), torch.arange(T + 1, dtype=D) / T, 4, scale=1.0)  # shares of the information


# ---------------------------------------------------------------------------------- matrices
@pytest.mark.parametrize("case", Q)
def test_mixtures(golden, case):
    c, P = golden[case], process(golden, *Q[case])
    i = torch.arange(T + 1, dtype=D) / T
    golden.near(case, P.matrix(i[:-1], i[1:]).mT, c["q_onestep"])
    whole = P.matrix(torch.zeros_like(i), i).mT
    golden.near(case, whole[:-1], c["q_cum"][:-1])
    if case in FORMS:  # forced to the stationary distribution, whatever the betas
        golden.near(case, P.matrix(CLEAN, PRIOR).mT, c["q_cum"][-1])
        alpha = float(P.schedule.alpha_1)
        golden.near(case, whole[-1], alpha * torch.eye(len(whole[-1]), dtype=D) + (1 - alpha) * c["q_cum"][-1])
    else:
        golden.near(case, whole[-1], c["q_cum"][-1])


@pytest.mark.parametrize("case", [*BAND, GAUSSIAN, *NEAREST])
def test_products(golden, case):
    """Q_{0,t} of a Chain of their matrices."""
    c, P = golden[case], recorded_chain(golden, case)
    i = torch.arange(len(c["q_cum"]), dtype=D) / T
    golden.near(case, P.matrix(torch.zeros_like(i), i).mT, c["q_cum"])
    assert len(i) == T + (case != GAUSSIAN)  # it keeps no product of all T


@pytest.mark.parametrize("case", BAND)
def test_bands(golden, case):
    c, width, beta = golden[case], BAND[case], golden[BETAS]["linear"].to(D)
    low, high = (width - 1) // 2, width // 2  # at level i are those from i - low to i + high, of an even width one more
    offset = torch.arange(K) - torch.arange(K)[:, None]
    inside = ((-low <= offset) & (offset <= high)).to(D)  # (to, from)
    theirs = (1 - beta)[:, None, None] * torch.eye(K, dtype=D) + beta[:, None, None] * inside / inside.sum(0)
    golden.near(case, theirs, c["q_onestep"])
    for matrix, b in zip(theirs.mT, beta.tolist()):
        ours = d3pm_transitions.band(K, b * K / width, high)
        golden.near(case, ours.sum(0), torch.ones(K))
        assert float((matrix.sum(0) - 1).abs().max()) > 0.02 * b  # difference
        inner = slice(high, K - high)  # sources far enough from the ends
        if width % 2:
            golden.near(case, ours[inner], matrix[inner])
        else:  # ours reaches as far on both sides, at the same share a level
            both = (inside.mT > 0)[inner] & (offset != 0)[inner]
            rounded(ours[inner][both], matrix[inner][both], 2)


def test_gaussian(golden):
    c, beta = golden[GAUSSIAN], golden[BETAS]["linear"].to(D)
    ours = lambda scale: torch.stack([d3pm_transitions.gaussian(K, b) for b in (scale * beta).tolist()])  # noqa: E731
    golden.near(GAUSSIAN, ours(((K - 1) / K) ** 2).mT, c["q_onestep"])
    assert float((ours(1.0) - c["q_onestep"]).abs().max()) > 0.01  # difference


@pytest.mark.parametrize("case", NEAREST)
def test_nearest(golden, case, tmp_path, monkeypatch):
    c, k, beta = golden[case], NEAREST[case], golden[BETAS]["linear"].to(D)
    embedding = c["embeddings"].to(D)
    scaling = "expm" if "expm" in case else "sinkhorn"
    matrix = d3pm_transitions.neighbour_matrix(embedding, k, scaling, float(beta[0]))
    golden.near(case, matrix, c["neighbor_matrix"])
    steps = (1 - beta)[:, None, None] * torch.eye(K, dtype=D) + beta[:, None, None] * matrix
    golden.near(case, steps, c["q_onestep"])
    np.save(file := tmp_path / "embedding.npy", c["embeddings"].numpy())  # the option, at these betas
    monkeypatch.setattr(d3pm_transitions, "betas", lambda name, T: beta)
    config = D3PM.Config("nearest", "linear", T, neighbours=k, embedding=str(file), scaling=scaling)
    i = torch.arange(T + 1, dtype=D) / T
    P = D3PM(None, K, (1,), config).process
    golden.near(case, P.matrix(i[:-1], i[1:]).mT, c["q_onestep"])
    golden.near(case, P.matrix(torch.zeros_like(i), i).mT, c["q_cum"])


def test_rates(golden):
    c = golden[RATE]
    embedding = c["embeddings"].to(D)
    direction = embedding / embedding.norm(dim=-1, keepdim=True)
    assert torch.equal(d3pm_transitions.neighbours(embedding, 2), c["neighbors_k2"].long())
    R = d3pm_transitions.nearest(direction, 2)
    golden.near(RATE, R, c["rate_k2"])
    A = 0.3 * R  # exp(A), as 512 steps of Euler
    golden.near(RATE, torch.linalg.matrix_power(torch.eye(K, dtype=D) + A / 512, 512), c["expm_0p3_rate_k2"])
    golden.near(RATE, d3pm_transitions.nearest(direction, 3, "rank"), c["rate_gaussian_k3"])
    golden.near(RATE, d3pm_transitions.masked(d3pm_transitions.nearest(embedding, 2), 4.0).mT, c["mask_rate_k2"])


# ---------------------------------------------------------------------------------- losses
KIND = {"mask": "absorbing", "beta": "uniform", "band": "band", "gaussian": "gaussian", "nearest": "nearest"}


@pytest.mark.parametrize("case", LOSS)
def test_loss(golden, case):
    c, config, scalars = golden[case], golden.index[case]["config"], golden.index[case]["scalars"]
    kind, schedule = config["diffusion"].split(".")
    P, step = process(golden, kind, schedule), config["t"]
    x_0, x_t, logits = c["x_start"].long()[None], c["x_t_plus_1"].long()[None], c["logits"].to(D)[None]
    method = d3pm(logits, P, "absorbing" if P.mask is not None else KIND[kind.split("_")[0]], T)
    t, s = torch.tensor([(step + 1) / T], dtype=D), torch.tensor([step / T if step else CLEAN], dtype=D)
    normal = torch.softmax if config["log_space"] else lambda p, dim: p

    golden.near(case, kernel(method.predict(x_t, t[:, None]), s[:, None])[0], normal(c["p_reverse"], -1))
    target = truth(P, x_0, x_t, t[:, None].expand(x_t.shape))
    golden.near(case, kernel(target, s[:, None])[0], normal(c["q_posterior"], -1))
    base = method.discrete_bound(Batch(x_0), x_t, t, s)[0]
    golden.near(case, base, scalars["kl/base_loss"])
    # lambda there stands beside one step's loss, and at a mask process beside all positions: ours, of T steps, counts the masks
    ce = F.cross_entropy(logits[0], x_0[0], reduction="none")
    weight = config["hybrid_lambda"]
    golden.near(case, weight * ce.sum(), scalars["kl/hybrid_loss"])
    golden.near(case, base + weight * ce.sum(), scalars["loss"])
    prior = float(method.terms(Batch(x_0))["prior"]) if P.mask is None else 0.0
    if kind == "gaussian_precomputed":  # out of the range of its products: that of one step less
        prior = float(P.divergence(x_0, (T - 1) / T).sum())
    if isinstance(P, Chain) or "slow" in case:
        golden.near(case, prior, scalars["prior_kl"])
    else:  # forced to 0 there; ours is what alpha_T leaves, sum q log(K q) a position
        assert scalars["prior_kl"] == 0.0
        if P.mask is None:
            q = torch.full((K,), (1 - float(P.schedule.alpha_1)) / K, dtype=D)
            q[0] += float(P.schedule.alpha_1)
            rounded(prior, x_0.numel() * (q * (K * q).log()).sum(), 2 * K * x_0.numel(), scale=1.0)
        else:
            assert float(P.schedule.alpha_1) == 0.0
