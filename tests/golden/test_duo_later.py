"""Duo's later published code (Duo++): psi samplers, the Gaussian whose largest entry is the token, distillation's two paths."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from zellige.core import gaussian, maths
from zellige.core.batch import Batch
from zellige.core.curves import Cosine, Linear
from zellige.core.prediction import LeaveOneOut, kernel, posterior
from zellige.core.schedule import CLEAN
from zellige.methods import MDLM, UDLM
from zellige.plugins.students.distill import steps_of_rounds
from zellige.samplers import Psi, State
from zellige.samplers.distillation import consistency
from zellige.samplers.guide import Wrapper, truncate

from .recorded import EPS, LAST, LATER, FixedTime, K, L, RecordedRaces, V, published_network

if not LATER:
    pytest.skip("no recorded numbers of Duo++", allow_module_level=True)

(DUO,) = LATER
STEPS, TRAJECTORIES, TAILS = (
    DUO.cases("duo__step_psi_.*"),
    DUO.cases("duo__traj_psi_.*"),
    DUO.cases("duo__greedy_tail_.*"),
)
DISTILLED, APPROXIMATE = DUO.cases("duo__distill_.*"), DUO.cases("duo__operator_approx")
EXCLUDED = {
    **dict.fromkeys(DUO.cases("duo__curriculum_.*"), "Duo's curriculum of soft inputs: not a part of the library"),
    **dict.fromkeys(DUO.cases("duo__gumbel_tau"), "the temperature of the curriculum's soft inputs by training step"),
}
ENDS = "a part of its steps whose kappa depends on the noise ends with kappa 1, and so does the step before the pause"
FORMS = {
    **dict.fromkeys(DUO.cases("duo__psi_schedules"), ENDS),
    **dict.fromkeys(DUO.cases("duo__traj_psi_(cap|loop).*"), ENDS),
    **dict.fromkeys(
        DUO.cases("duo__traj_psi_loop_greedy_duo_base"),
        f"{ENDS}; its top-p is of the network's mu, ours of p(x_0 | x_t)",
    ),
    **dict.fromkeys(APPROXIMATE, "fits of ours, as far from it as they say"),
    **dict.fromkeys(
        DUO.cases("duo__operator_cached"), "ours at the nearest point of a table, and the slope a difference of two"
    ),
}
TESTED = {
    *STEPS, *TRAJECTORIES, *TAILS, *DISTILLED, *APPROXIMATE, "duo__psi_schedules", "duo__teacher_weights", "duo__top_k_top_p",
    "duo__operator_cached", "duo__operator_series", "duo__integral_tables",
}  # fmt: skip


def test_every_case_is_accounted_for():
    assert set(DUO.cases("duo__.*")) == TESTED | EXCLUDED.keys()
    assert FORMS.keys() <= TESTED
    assert not TESTED & EXCLUDED.keys()


# ---------------------------------------------------------------------------------- psi samplers
def method_of(network, algo: str, noise: str):
    """Their model with its schedule, and what makes our time of theirs: their cosine is ours at (1 - eps) t."""
    method = MDLM(FixedTime(network, 0.0), V, (L,), MDLM.Config()) if algo == "mdlm" else UDLM(network, K, (L,))
    cosine = noise == "cosine"
    method.process.schedule = Cosine(0.0) if cosine else Linear(EPS)
    return method, 1 - EPS if cosine else 1.0


def single_sigma(t: Tensor) -> float:
    """sigma of their cosine at time t, in single precision, where 1 - cos has lost most digits at t = 1."""
    return -float((1 - torch.cos(torch.pi / 2 * (1 - (1 - EPS) * t.float()))).log())


def rule(mode: str) -> str:
    name, _, eta = mode.rpartition("-")
    rules = {"max-capped": f"cap:{eta}", "max-rescale": f"rescale-published:{eta}", "constant-remdm": f"cap:{eta}"}
    rules |= {"pure": {"posterior": "1", "pc": "0"}.get(eta, ""), "constant": eta}
    return rules[name]


def sampler_of(config: dict, times: Tensor, method, unit: float, **more) -> tuple[Psi, dict[int, str]]:
    """Our sampler of their configuration on their n + 1 times, and the steps in which theirs has another rule."""
    n = len(times)
    high, middle = (round(config.get(name, usual) * n) for name, usual in (("high_frac", 0.2), ("middle_frac", 0.6)))
    early, kappa, late = (rule(config.get(f"{part}_mode", "pure-posterior")) for part in ("high", "middle", "low"))
    edges = [high, high + middle, n]
    others = {edge - 1: "1" for edge, each in zip(edges, (early, kappa, late)) if edge < n and ":" in each}
    if config.get("time_profile", "linear") != "linear":
        still = float(method.process.schedule.alpha(unit * times[high].double())[0])
        others |= {high - 1: "1" if ":" in early else early}
        t_on, t_off = 1 - high / n, max(0.0, 1 - (high + middle) / n)
        return Psi(kappa, early, late, t_on, t_off, still, "published", **more), others
    between = [
        float(times[i - 1] + times[i]) / 2 if 0 < i < n else 1.0 if i == 0 else 0.0 for i in (high, high + middle)
    ]
    return Psi(kappa, early, late, *(unit * edge for edge in between), grid="published", **more), others


def kappas_agree(case: str, sampler: Psi, others: dict[int, str], method, unit: float, times: Tensor, kappas: Tensor):
    """Theirs step by step, those that are declared by the rule that they have."""
    for i, kappa in enumerate(kappas[:-1]):
        t, s = (unit * times[j].double()[None] for j in (i, i + 1))
        if i in others and others[i] != "1" and ":" not in others[i]:
            DUO.near(case, kappa, float(others[i]))
        else:
            DUO.near(case, torch.ones(1) if i in others else sampler.share(method, t, s), kappa[None])


def test_schedules():
    case = "duo__psi_schedules"
    c, scalars = DUO[case], DUO.scalars(case)
    for key in (key.removesuffix("_timesteps") for key in c if key.endswith("_timesteps")):
        noise, _, rest = key.partition("_")
        config = scalars["configs"][rest.rpartition("_n")[0]]
        times, kappas = c[f"{key}_timesteps"], c[f"{key}_kappas"]
        method, unit = method_of(None, "duo_base", noise)
        sampler, others = sampler_of(config, times, method, unit)
        kappas_agree(case, sampler, others, method, unit, times, kappas)
        ours = sampler.times(method, len(times) - 1)
        if sampler.pause is None or noise == "log-linear":  # (1 - eps) t is not on our grid of t, but a stretched one
            DUO.near(case, ours[: len(times)], times)


class Kept(RecordedRaces):
    """Recorded races that keep the distributions which they were given."""

    def categorical(self, p, at=None):
        self.p, self.at = p, at
        return super().categorical(p, at)


def step_agrees(case: str, sampler: Psi, method, x: Tensor, t, s, c: dict[str, Tensor], probs: Tensor, u: Tensor):
    """One step of the sampler with the recorded uniforms; the tokens after it."""
    state, source = State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros(len(x), dtype=torch.long)), Kept(u)
    after = sampler.step(sampler.truncated(method), state, t, s, source)  # pyright: ignore[reportArgumentType]
    DUO.near(case, source.p, probs[source.at])
    return after.x


@pytest.mark.parametrize("case", STEPS)
@torch.no_grad()
def test_step(case, network):
    c, scalars = DUO[case], DUO.scalars(case)
    method, unit = method_of(network, scalars["algo"], scalars["noise"])
    modes = {"low_mode": scalars["mode"], "high_frac": 0.0, "middle_frac": 0.0}
    sampler, others = sampler_of(modes, c["timesteps"], method, unit)
    kappas_agree(case, sampler, others, method, unit, c["timesteps"], c["kappas"])
    for i in (int(key[2:]) for key in c if key.startswith("x_") and key[2:].isdecimal()):
        t, s = (unit * c["timesteps"][j].double().expand(len(c[f"x_{i}"]), 1) for j in (i, i + 1))
        x = c[f"x_{i}"]
        if scalars["noise"] == "cosine" and scalars["algo"] != "mdlm":
            method.network = FixedTime(network, single_sigma(c["timesteps"][i]))
        pred = method.predict(x, t)
        movable = method.process.movable(x)
        DUO.near(case, pred.mu[movable], c[f"p_x0_{i}"][movable])
        DUO.near(case, kernel(pred, s.expand(x.shape)), c[f"posterior_{i}"])
        DUO.near(case, method.process.push(posterior(pred).double(), CLEAN, s), c[f"pc_{i}"])
        assert torch.equal(
            step_agrees(case, sampler, method, x, t, s, c, c[f"probs_{i}"], c[f"u_{i}"]), c[f"x_next_{i}"]
        )


class OfTheNetwork(Wrapper):
    """Top-p of the network's own distribution, where ours is of the clean posterior."""

    def __init__(self, method, top_p: float):
        super().__init__(method)
        self.top_p = top_p

    def predict(self, x_t, t, **more):
        pred = self.method.predict(x_t, t, **more)
        assert isinstance(pred, LeaveOneOut)
        return replace(pred, mu=maths.normalise(truncate(pred.mu, 1.0, self.top_p, None)))


@pytest.mark.parametrize("case", TRAJECTORIES)
@torch.no_grad()
def test_trajectory(case, network):
    c, scalars = DUO[case], DUO.scalars(case)
    times, n = c["timesteps"], scalars["num_steps"]
    method, unit = method_of(network, scalars["algo"], scalars["noise"])
    masking, tail = scalars["algo"] == "mdlm", scalars["noise_removal"]
    argmax = {"greedy": "last" if masking else "mu"}.get(tail, "none")
    more = {"argmax": argmax, **({"top_p": scalars["p_nucleus"]} if masking else {})}
    sampler, others = sampler_of(scalars["psi"], times, method, unit, **more)
    kappas_agree(case, sampler, others, method, unit, times, c["kappas"])
    whole = method  # the tail is of the network's distribution, not truncated
    if not masking and scalars["p_nucleus"] < 1:
        method = OfTheNetwork(method, scalars["p_nucleus"])
    states = [*c["states"], c.get("before_tail", c["final"])]
    for i in range(n):
        t, s = (unit * times[j].double().expand(len(states[i]), 1) for j in (i, i + 1))
        way = Psi(*[others[i]] * 3, **more) if i in others else sampler
        after = step_agrees(case, way, method, states[i], t, s, c, c["probs"][i], c["u"][i])
        if tail != "ancestral" or i < n - 1:
            assert torch.equal(after, states[i + 1]), i
    t, clean = unit * times[n].double().expand(len(after), 1), torch.full((len(after), 1), CLEAN).double()
    if tail == "ancestral":
        assert torch.equal(step_agrees(case, sampler, method, after, t, clean, c, c["probs"][n], c["u"][n]), c["final"])
    elif tail == "greedy":
        at = method.process.movable(after)
        DUO.near(case, whole.predict(after, t).mu[at], c["tail_log_p"].exp()[at])
        assert torch.equal(tail_of(sampler, whole, after, t, clean), c["final"])
    else:
        assert torch.equal(after, c["final"])


def tail_of(sampler: Psi, method, x: Tensor, t: Tensor, clean: Tensor) -> Tensor:
    state = State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros(len(x), dtype=torch.long))
    return sampler.step(sampler.truncated(method), state, t, clean, torch.Generator().manual_seed(0)).x


@pytest.mark.parametrize("case", TAILS)
@torch.no_grad()
def test_tail(case, network):
    c = DUO[case]
    masking = case.endswith("mdlm")
    method, _ = method_of(network, "mdlm" if masking else "duo_base", "log-linear")
    t, clean = (torch.full((len(c["x"]), 1), time).double() for time in (LAST, CLEAN))
    at = method.process.movable(c["x"])
    DUO.near(case, method.process.schedule.sigma(t)[..., 0], c["sigma"])
    DUO.near(case, method.predict(c["x"], t).mu[at], c["log_p"].exp()[at])
    sampler = Psi(grid="published", argmax="last" if masking else "mu")
    assert torch.equal(tail_of(sampler, method, c["x"], t, clean), c["final"])


def test_truncation():
    case = "duo__top_k_top_p"
    c = DUO[case]
    for key in (key for key in c if key != "log_p"):
        k, p = key[1:].split("_p")
        kept = truncate(c["log_p"].exp(), 1.0, float(p) or 1.0, int(k) or None)
        DUO.near(case, maths.normalise(kept), c[key])


# ---------------------------------------------------------------------------------- the Gaussian
def test_tables():
    case = "duo__integral_tables"
    c = DUO[case]
    for name, of in DUO.scalars(case).items():
        p, slope = gaussian.top_probability(c[f"{name}_gamma"], of["vocab_size"])
        DUO.near(case, p, c[f"{name}_pt"])
        DUO.near(case, slope, c[f"{name}_grad_pt"])


def test_cached():
    case = "duo__operator_cached"
    c, of = DUO[case], DUO.scalars(case)
    span, states = of["gamma_max"] - of["gamma_min"], of["V"]
    p, slope = gaussian.top_probability(c["gamma"], states)
    alpha, alpha_slope = gaussian.uniform_alpha(c["gamma"], states)
    for ours, name in ((p, "pt"), (slope, "grad_pt"), (alpha, "alpha"), (span * alpha_slope, "dalpha")):
        DUO.near(case, ours, c[f"{name}_exact"])
    DUO.near(case, alpha, c["alpha"])
    step = (of["cache_gamma_max"] - of["cache_gamma_min"]) / (of["cache_points"] - 1)
    inside = (c["gamma"] >= of["cache_gamma_min"]) & (c["gamma"] + 0.001 <= of["cache_gamma_max"])
    forward = span * 1000 * (gaussian.uniform_alpha(c["gamma"] + 0.001, states)[0] - alpha)
    most = span * 1000 * step * alpha_slope.abs() * 1.01  # both look-ups are half a step of the table off, at most
    assert bool(((forward - c["dalpha"]).abs() <= most + 1e-9)[inside].all())
    schedule = gaussian.Gaussian(states, of["gamma_min"], of["gamma_max"])
    inside = (c["gamma"] >= of["gamma_min"]) & (c["gamma"] <= of["gamma_max"])
    t = (c["gamma"][inside] - of["gamma_min"]) / span
    DUO.near(case, schedule.alpha(t)[:, 0], c["alpha_exact"][inside])


def test_series():
    case = "duo__operator_series"
    c, of = DUO[case], DUO.scalars(case)
    alpha, slope = gaussian.uniform_alpha(c["gamma"], of["V"])
    span = of["gamma_max"] - of["gamma_min"]
    for name in ("", "_exact"):
        DUO.near(case, alpha, c[f"alpha{name}"])
        DUO.near(case, span * slope, c[f"dalpha{name}"])


def test_fits():
    (case,) = APPROXIMATE
    c, of = DUO[case], DUO.scalars(case)
    span = of["gamma_max"] - of["gamma_min"]
    alpha, slope = gaussian.uniform_alpha(of["gamma_min"] + span * c["t"], of["V"])
    DUO.near(case, alpha, c["alpha_exact"])
    DUO.near(case, span * slope, c["dalpha_exact"])
    for name in (key.removesuffix("_alpha") for key in c if key.endswith("_alpha")):
        for ours, what in ((alpha, "alpha"), (span * slope, "dalpha")):
            DUO.near(case, (ours - c[f"{name}_{what}"]).abs().max(), of[name][f"max_abs_error_{what}"])


@pytest.mark.parametrize("case", DISTILLED)
@torch.no_grad()
def test_distillation(case, network):
    """Two tokens of one Gaussian path, the later one read by the student, the earlier one by the teacher; its round's step."""
    c, of = DUO[case], DUO.scalars(case)
    low, span = of["gamma_min"], of["gamma_max"] - of["gamma_min"]
    student, teacher = (UDLM(net, K, (L,)) for net in (network, published_network(DUO["duo__teacher_weights"])))
    t = c["t"].double()
    s = t - of["dt"]
    ratio, other = gaussian.leaves(c["x0"], c["epsilon"])
    for method, path, time in ((student, "t", t), (teacher, "s", s)):
        DUO.near(case, low + span * time, c[f"gamma_{path}"])
        method.process.schedule = gaussian.Gaussian(K, low, low + span)
        DUO.near(case, method.process.schedule.alpha(time), c[f"alpha_{path}"])
        gamma = c[f"gamma_{path}"][:, None].expand(c["x0"].shape)
        assert torch.equal(gaussian.tokens_at(c["x0"], gamma, c["epsilon"]), c[f"x{path}"])
        assert torch.equal(torch.where((-gamma / 2).exp() > ratio, c["x0"], other), c[f"x{path}"])
        name = {"t": "student", "s": "teacher"}[path]
        DUO.near(case, method.predict(c[f"x{path}"], time[:, None]).mu.double().log(), c[f"log_{name}"])
    kind = {"kl-bwd": "reverse-kl", "kl-fwd": "kl"}[of["loss_type"]]
    loss = consistency(student, teacher, Batch(c["x0"]), c["xt"], c["xs"], t[:, None], s[:, None], kind)
    DUO.near(case, loss, c["loss"])
    DUO.near(case, loss, c["loss_64"])
    DUO.near(case, loss.mean(), of["loss_mean"])
    counts = steps_of_rounds(student, of["T"], 5, 2)
    rounds = [step // of["update_teacher_every"] for step in of["dt_steps"]]
    assert [1 / counts[i] for i in rounds] == of["dt_values"]
