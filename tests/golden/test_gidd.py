"""GIDD's published code against ours at the tolerance of each case."""

import math

import pytest
import torch
from torch import Tensor, nn

from zellige.core import maths, random
from zellige.core.curves import Linear
from zellige.core.prediction import LeaveOneOut, kernel
from zellige.core.schedule import CLEAN
from zellige.methods import MDLM
from zellige.methods.gidd import GIDD, T_EPS, Drifting, Hybrid
from zellige.nn import DiT, Net
from zellige.plugins.published.ddit import ours
from zellige.samplers import Ancestral, Informed, State

from .recorded import LATER, RecordedLogits, RecordedUniforms

if not LATER:
    pytest.skip("no recorded numbers of GIDD", allow_module_level=True)

(GUIDED,) = LATER
V, L = GUIDED.sizes["vocab"], GUIDED.sizes["length"]
K, FLOOR = V + 1, math.exp(-20) / (1 + math.exp(-20))
BESIDE = ("rotary_emb.cos_cached", "rotary_emb.sin_cached", "logit_bias")  # buffers, and a constant that is 0
STEPS, TRAJECTORIES = GUIDED.cases("gidd__step_.*"), GUIDED.cases("gidd__traj_.*")
LOSSES = GUIDED.cases(r"gidd__loss_pu.*")
CORRECTED = GUIDED.cases("gidd__self_correction_temp.*")
MIN_P = "probabilities below min_p are zeroed and the others normalised: our kernel, cut so"
FORMS = {
    **dict.fromkeys(GUIDED.cases("gidd__.*pu0[.]0"), "p_u = 0 has a floor of e^-20: ours with that p_u"),
    **dict.fromkeys(("gidd__step_min_p", "gidd__traj_pu0.2"), MIN_P),
    "gidd__loss_network_pu0.1": "its training model gives probability to 74 logits of padding: ours is the other, without them",
}
TESTED = {
    "gidd__weights", "gidd__noise_schedule_state", "gidd__checkpoint_layout", "gidd__forward", "gidd__schedule", "gidd__sample_t",
    "gidd__marginals", "gidd__transition", "gidd__loss_weights", "gidd__loss_network_pu0.1", "gidd__mdlm_baseline", *STEPS,
    *TRAJECTORIES, *LOSSES, *CORRECTED, "gidd__self_correction_traj",
}  # fmt: skip


def process(p_u: float, gamma: float = 1.0, mask: int | None = None) -> Drifting:
    return Drifting(K, Hybrid(p_u or FLOOR, gamma), mask)


def method(network: nn.Module, p_u: float = 0.1, **choices) -> GIDD:
    made = GIDD(network, V, (L,), GIDD.Config(p_uniform=p_u or FLOOR, **choices))
    return made.eval()


def network(rows: int = K) -> DiT:
    """The published network, of the training (128 states) or of the Hugging Face model (without the padding)."""
    size, weights = GUIDED.sizes, GUIDED["gidd__weights"]
    net = Net(
        layers=size["n_blocks"], hidden=size["hidden_size"], heads=size["n_heads"], length=L, condition=size["cond_dim"]
    )
    made = DiT(net, rows, True)
    tensors = {ours(name): tensor for name, tensor in weights.items() if name not in BESIDE}
    states = {"embedding.weight", "head.weight", "head.bias"}
    made.load_state_dict({name: tensor[:rows] if name in states else tensor for name, tensor in tensors.items()})
    return made.eval()


def test_every_case_is_accounted_for():
    assert set(GUIDED.cases("gidd__.*")) == TESTED
    assert FORMS.keys() <= TESTED


def test_layout():
    """Names and shapes of the checkpoint, and the numbers of the schedule beside it."""
    keys = GUIDED.scalars("gidd__checkpoint_layout")["tiny"]["keys"]
    assert {ours(name) for name in keys if name not in BESIDE} == set(network(128).state_dict())
    assert all(tuple(keys[name][0]) == tuple(tensor.shape) for name, tensor in GUIDED["gidd__weights"].items())
    c, noise = GUIDED["gidd__noise_schedule_state"], process(0.1)
    GUIDED.near("gidd__noise_schedule_state", c["log_B"].exp(), noise.schedule.B)
    GUIDED.near("gidd__noise_schedule_state", c["log_gamma"].exp(), noise.schedule.gamma)
    GUIDED.near("gidd__noise_schedule_state", c["log_prior"].exp(), noise.prior)


@torch.no_grad()
def test_forward():
    c = GUIDED["gidd__forward"]
    for rows, name in ((128, "logits"), (K, "logits_hf")):
        GUIDED.near("gidd__forward", network(rows)(c["x"], c["t"]), c[name])
    bias = torch.nn.functional.one_hot(c["x"], 128) * 0.75  # a buffer that is always 0 in published checkpoints
    GUIDED.near("gidd__forward", network(128)(c["x"], c["t"]) + bias, c["logits_bias"])


def test_schedule():
    c = GUIDED["gidd__schedule"]
    for name, of in GUIDED.scalars("gidd__schedule").items():
        noise = process(of["p_uniform_effective"], math.exp(of["log_gamma"]), of["mask_id"])
        t = c["t64"]
        n, mask = noise.noise(t), of["mask_id"]
        tokens = n[:, (mask + 1) % K]
        values = {
            "alpha": noise.schedule.alpha(t)[:, 0],
            "beta_pi_mask": n[:, mask],
            "beta_pi_tok": tokens,
            "beta_pi_full": n,
        }
        for what, value in values.items():
            for suffix in ("", "_64"):
                if f"{name}_{what}{suffix}" in c:
                    GUIDED.near("gidd__schedule", value, c[f"{name}_{what}{suffix}"])


def test_times():
    """Ours run the other way: t and 1 - t have one distribution."""
    c = GUIDED["gidd__sample_t"]
    u = RecordedUniforms(c["u_low_discrepancy"])
    v = random.stratified(8, u)  # pyright: ignore[reportArgumentType]
    GUIDED.near("gidd__sample_t", T_EPS + (1 - 2 * T_EPS) * v, c["t_low_discrepancy"])
    GUIDED.near("gidd__sample_t", T_EPS + (1 - 2 * T_EPS) * c["u_iid"].double(), c["t_iid"])


def test_marginals():
    c = GUIDED["gidd__marginals"]
    t = c["t"].double()[:, None]
    for name in ("0.0", "0.1", "0.2"):
        noise = process(float(name))
        q, hat = noise.marginal(c["x0"], t), noise.push(c["p_hat"].double(), CLEAN, t)
        for value, key in ((q, "q_x0"), (hat, "q_hat")):
            for suffix in ("", "_64"):
                GUIDED.near("gidd__marginals", value, c[f"{key}_pu{name}{suffix}"])
        z = random.categorical(q, RecordedUniforms(c[f"u_pu{name}"]))  # pyright: ignore[reportArgumentType]
        edge = (q.cumsum(-1) - c[f"u_pu{name}"][..., None]).abs().amin(-1)
        assert bool((z == c[f"z_pu{name}"])[edge > 5e-6].all())
    assert bool((c["prior_sample"] == V).all())
    assert torch.equal(process(0.1).sample_prior((2, 3)), torch.full((2, 3), V))


def test_transitions():
    c = GUIDED["gidd__transition"]
    for key in (key for key in c if key.startswith("q_ts")):
        _, _, p_u, s, t = key.split("_")
        Q = process(float(p_u[2:])).matrix(
            *(torch.tensor(float(time[1:])).double() for time in (s, t))
        )  # float32 times
        GUIDED.near("gidd__transition", Q.mT, c[key])


# ---------------------------------------------------------------------------------- losses
WEIGHTS = {"none": "none", "clip": "clip", "dynamic": "dynamic-published"}


def test_loss_weights():
    c = GUIDED["gidd__loss_weights"]
    t = c["t"].double()
    x_0 = torch.zeros(len(t), dtype=torch.long)
    for key in (key for key in c if not key.startswith(("t", "alpha"))):
        kind, p_u, gamma = key.split("_")
        p = float(p_u[2:])
        made = method(RecordedLogits(torch.empty(0)), p, gamma=float(gamma[5:]), weights=WEIGHTS[kind])
        columns = (x_0, torch.full_like(x_0, V), torch.ones_like(x_0))  # right, the mask, wrong
        GUIDED.near("gidd__loss_weights", torch.stack([made.loss_weight(x_0, x_t, t) for x_t in columns], -1), c[key])


@pytest.mark.parametrize("case", LOSSES)
def test_loss(case):
    c, scalars = GUIDED[case], GUIDED.scalars(case)
    t = c["t"].double()[:, None].expand(c["x0"].shape)
    for kind, weights in WEIGHTS.items():
        made = method(RecordedLogits(c["logits"]), scalars["p_uniform"], weights=weights)
        logits = c["logits"].double().requires_grad_()
        value, weight = made.divergence(logits, c["x0"], c["z_t"], t), made.loss_weight(c["x0"], c["z_t"], t)
        GUIDED.near(case, weight, c[f"loss_weights_{kind}_64"])
        GUIDED.near(case, weight * value, c[f"loss_{kind}_64"])
        GUIDED.near(case, weight * value, c[f"loss_{kind}"])
        (gradient,) = torch.autograd.grad((weight * value).mean(), logits)
        GUIDED.near(case, gradient, c[f"grad_logits_{kind}_64"])
        GUIDED.near(case, (weight * value).mean(), scalars[f"{kind}_tokenmean"])
        flat = (x.flatten() for x in (c["x0"], c["z_t"], t))
        GUIDED.near(case, made.cost(logits.flatten(0, 1), *flat).reshape(c["x0"].shape), c["elbo_64"])


@torch.no_grad()
def test_loss_of_the_network():
    case = "gidd__loss_network_pu0.1"
    c = GUIDED[case]
    t = c["t"].double()[:, None].expand(c["x0"].shape)
    for kind in ("none", "dynamic"):
        made = method(network(), 0.1, weights=WEIGHTS[kind])
        logits = made.logits(made.hidden(c["z_t"], t))
        value = made.divergence(logits, c["x0"], c["z_t"], t)
        GUIDED.near(case, made.loss_weight(c["x0"], c["z_t"], t) * value, c[f"loss_{kind}_hf"])
    padded = network(128)(c["z_t"], c["t"]).double()  # of all 128 but the mask; what the padding has is of no token
    mu = padded.index_fill(-1, torch.tensor([V]), -torch.inf).softmax(-1)[..., :K]
    q, q_mu = made.process.marginal(c["x0"], t), made.process.push(mu, CLEAN, t)
    q_mu = q_mu + (1 - mu.sum(-1, keepdim=True)) * made.process.noise(t)
    here, here_mu = (x.gather(-1, c["z_t"][..., None])[..., 0] for x in (q, q_mu))
    divergence = (
        (torch.special.xlogy(q, q) - torch.special.xlogy(q, q_mu)).sum(-1) + here / here_mu - (here / here_mu).log() - 1
    )
    weight = method(network(), 0.1).weight(c["x0"], c["z_t"], t)
    GUIDED.near(case, weight * divergence, c["elbo"])


# ---------------------------------------------------------------------------------- steps
def stepped(p_u: float, logits: Tensor, t: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """Our kernel from recorded logits."""
    made = method(RecordedLogits(logits), p_u)
    time = t.double().reshape(-1, 1).expand(z.shape)
    pred = made.read(logits.double(), z, time)
    assert isinstance(pred, LeaveOneOut)
    return kernel(pred, s.double().reshape(-1, 1).expand(z.shape))


def cut(p: Tensor, least: float) -> Tensor:
    return maths.normalise(torch.where(p < least, 0.0, p)) if least else p


@pytest.mark.parametrize("case", STEPS)
def test_step(case):
    c, scalars = GUIDED[case], GUIDED.scalars(case)
    p = stepped(scalars["p_uniform"], c["logits"], c["t"], c["s"], c["z_t"])
    p = cut(p, scalars["min_p"])
    GUIDED.near(case, p, c["probs_64"])
    GUIDED.near(case, p, c["probs"])
    z = random.categorical(p, RecordedUniforms(c["u"]))  # pyright: ignore[reportArgumentType]
    assert bool((z == c["x_next"])[c["cdf_margin"] > 5e-6].all())


@pytest.mark.parametrize("case", TRAJECTORIES)
@torch.no_grad()
def test_trajectory(case):
    """Each call is a step of `ancestral` with its uniforms; the last one, from t to t, changes nothing."""
    c, scalars = GUIDED[case], GUIDED.scalars(case)
    made, fixed = method(network(), scalars["p_uniform"]), torch.zeros_like(c["states"][0], dtype=torch.bool)
    for k, (t, s) in enumerate(zip(c["ts_t"], c["ts_s"])):
        z = c["states"][k]
        state = State(z, fixed, torch.zeros(len(z), dtype=torch.long))
        times = (value.double().expand(len(z), 1) for value in (t, s))
        p, source = kernel(made.predict(z, t.double()), s.double()), RecordedUniforms(c["u"][k])
        if scalars["min_p"]:
            after = random.categorical(cut(p, scalars["min_p"]), source)  # pyright: ignore[reportArgumentType]
        else:
            after = Ancestral().step(made, state, *times, source).x  # pyright: ignore[reportArgumentType]
        GUIDED.near(case, cut(p, scalars["min_p"]), c["probs"][k])
        assert bool((after == c["states"][k + 1])[c["cdf_margin"][k] > 5e-6].all())


# ---------------------------------------------------------------------------------- self-correction
class KeptUniforms(RecordedUniforms):
    """Recorded uniforms for draws by inverse CDF that keep the distributions which they were given."""

    def categorical(self, p, at=None):
        self.p = p
        u = self.uniform(at.shape, None)[at]
        return (p.cumsum(-1) <= u[..., None]).sum(-1).clamp_max(p.shape[-1] - 1)


def revise(case: str, made: GIDD, z: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens after one step of self-correction by the scalars of the case, and the distributions that were drawn from."""
    of = GUIDED.scalars(case)
    sampler = Informed(
        resample=of["tokens_per_step"], revise=1, revise_time=of["t0"], revise_temperature=of["temp"], corrections=0
    )
    state, source = (
        State(z, torch.zeros_like(z, dtype=torch.bool), torch.zeros(len(z), dtype=torch.long)),
        KeptUniforms(u),
    )
    clean = torch.full((len(z), 1), CLEAN, dtype=torch.float64)
    return sampler.step(made, state, clean, clean, source).x, source.p  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("case", CORRECTED)
@torch.no_grad()
def test_self_correction(case):
    c = GUIDED[case]
    made = method(network(), 0.1)
    z, p = revise(case, made, c["z"], c["u"])
    GUIDED.near(case, p.reshape(c["p"].shape), c["p"])
    changed, count = z != c["z"], GUIDED.scalars(case)["tokens_per_step"]
    least = c["score"].topk(count, -1).values[:, -1:]  # scores of 1 are ties in single precision
    assert bool((c["score"] >= least - 1e-5)[changed].all())
    assert changed.sum(-1).tolist() == [count] * len(z)
    clear = c["top_margin"] > 1e-5
    assert torch.equal(z[clear], c["z_next"][clear])


@torch.no_grad()
def test_self_correction_trajectory():
    case = "gidd__self_correction_traj"
    c, made = GUIDED[case], method(network(), 0.1)
    for before, u, after in zip(c["states"], c["u"], c["states"][1:]):
        z, _ = revise(case, made, before[None], u[None])
        assert torch.equal(z[0], after)


def test_masked_baseline():
    case = "gidd__mdlm_baseline"
    c, scalars = GUIDED[case], GUIDED.scalars(case)
    made = MDLM(RecordedLogits(c["logits"]), V, (L,))
    made.process.schedule = Linear(scalars["eps"])
    t = c["t"].double()[:, None].expand(c["x0"].shape)
    GUIDED.near(case, made.process.schedule.sigma(c["t"].double())[:, 0], c["sigma"])
    GUIDED.near(case, made.process.marginal(c["x0"], t), c["probs_at_t"])
    flat = (x.flatten() for x in (c["x0"], c["z_t"], t))
    value = made.cost(c["logits"].double().flatten(0, 1), *flat).reshape(c["x0"].shape)
    GUIDED.near(case, torch.where(c["z_t"] == V, value, 0.0), c["elbo"])
