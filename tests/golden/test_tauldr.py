"""tauLDR's published code against ours at the tolerance of each case.

Theirs drops what the network has no part in, ours keeps it: the tests take it off (`constants`). Their times are those of the
schedule from its very beginning: `min_time` 0. Their sequences are (data, given first); ours say by the mask which is which.
"""

import itertools

import pytest
import torch
from torch import Tensor, nn

from zellige.core import maths, random
from zellige.core.batch import Batch
from zellige.core.curves import LinearSigma
from zellige.core.matrices import CTMC
from zellige.core.prediction import posterior
from zellige.core.schedule import CLEAN
from zellige.methods import TauLDR, tauldr_rates, tauldr_rows
from zellige.methods.diffusion import summed
from zellige.samplers import State, TauLeaping, tau_leaping
from zellige.samplers.tau_leaping import landing

from .recorded import JAX, rounded, vanishes

NAMES = {"UniformRate": "uniform", "GaussianTargetRate": "gaussian", "BirthDeathForwardBase": "birth-death"}
RATES = JAX.cases(r"tauldr\.rate\..*")
INITIAL = JAX.cases(r"tauldr\.initial_gaussian\..*")
LOSSES = JAX.cases(r"tauldr\.loss\..*")
CHAINS = JAX.cases(r"tauldr\.sampler\..*")
GAUSSIAN = "tauldr.sampler.TauLeaping.GaussianTargetRate"
FORMS = {
    **{case: "it starts from a Gaussian half a state beside the stationary distribution: S // 2 for S/2" for case in INITIAL if
       JAX.index[case]["config"]["S"] % 2},
}  # fmt: skip
DIFFERS = {
    GAUSSIAN: "at its last time its float32 transitions, 1e-7 of 1, are 2% of the smallest that it divides by",
}
EXCLUDED: dict[str, str] = {}
TESTED = {*RATES, *INITIAL, *LOSSES, *CHAINS}


@pytest.fixture(scope="module")
def golden():
    return JAX


def config(case: dict, **more) -> TauLDR.Config:
    """Their rate as ours."""
    c, process = case.get("rate", case), NAMES[case["kind"]]
    if process == "uniform":
        return TauLDR.Config(process, base=c["rate_const"], min_time=0.0, **more)
    if process == "gaussian":
        time = {"base": c["time_base"], "growth": c["time_exponential"]}
        return TauLDR.Config(
            process, rate_sigma=c["rate_sigma"], target_sigma=c["Q_sigma"], min_time=0.0, **time, **more
        )
    low, ratio = c["sigma_min"], c["sigma_max"] / c["sigma_min"]  # the integral of sigma^2 log(ratio) over time
    return TauLDR.Config(process, base=low**2 / 2, growth=ratio**2, min_time=0.0, **more)


def method(golden, case: str, network=None, length: int = 1, **more) -> TauLDR:
    c = {"kind": case.split(".")[2], **golden.index[case]["config"]}  # the rates' cases do not say their kind
    return TauLDR(network, c["S"], (length,), config(c, **more))


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("tauldr.")} == TESTED | EXCLUDED.keys()
    assert FORMS.keys() | DIFFERS.keys() <= TESTED


# ---------------------------------------------------------------------------------- the noise
@pytest.mark.parametrize("case", RATES)
def test_rate(golden, case):
    c, process = golden[case], method(golden, case).process
    t = c["t"].double()
    golden.near(case, process.rate(t), c["rate"])
    Q = process.matrix(CLEAN, t)
    golden.near(case, Q, c["transition"], atol=golden.noted(case))  # float32, small entries cut to 0
    scalars = golden.index[case]["config"]
    if "rate_const" in scalars:  # a mixture here; the same from its rates
        dense = CTMC(*tauldr_rates.uniform(scalars["S"]), LinearSigma(0.0, scalars["rate_const"]))
        rounded(dense.matrix(CLEAN, t), Q, 16, scale=1.0)
        return
    slow = (
        process.rate(t)[:, 0, 1] / c["base_rate"][0, 1].double()
    )  # their R is ours times a number, their beta over it
    golden.near(case, slow, c["rate_scalar"])
    golden.near(
        case, process.schedule.sigma(t)[:, 0] / float(process.schedule.beta(0.0) / slow[0]), c["integral_rate_scalar"]
    )


@pytest.mark.parametrize("case", INITIAL)
def test_initial_distribution(golden, case):
    c, S = golden[case], golden.index[case]["config"]["S"]
    std = golden.index[case]["config"]["std"]
    distribution, k = tauldr_rates.gaussian(S, 2.0, std)[1], torch.arange(S, dtype=torch.float64)
    golden.near(case, (-((k - S // 2 + 1) ** 2) / (2 * std**2)).softmax(0), c["probs"])
    golden.near(case, (-((k - S / 2 + 1) ** 2) / (2 * std**2)).softmax(0), distribution)
    if S % 2 == 0:
        golden.near(case, distribution, c["probs"])


# ---------------------------------------------------------------------------------- losses
class Answers(nn.Module):
    """A network that knows its answers: logits (B, L, K) for each of a few inputs (B, L)."""

    def __init__(self, *answers: tuple[Tensor, Tensor]):
        super().__init__()
        self.answers, self.calls = answers, 0

    def features(self, x, time=None, **kwargs):
        self.calls += 1
        (logits,) = [logits for at, logits in self.answers if torch.equal(at, x)]
        return logits

    def head(self, h):
        return h


class Replay:
    """A recorded loss: its batch, its draws, its logits, our method."""

    def __init__(self, golden, case: str, monkeypatch):
        self.golden, self.case, self.c, self.config = golden, case, golden[case], golden.index[case]["config"]
        self.one, self.weight = self.config["one_forward_pass"], self.config["nll_weight"]
        x_0, given = self.c["x0"], self.config["condition_dim"]
        mask = (torch.arange(x_0.shape[1]) >= given).expand(x_0.shape) if given else None
        self.batch, self.t = Batch(x_0, mask), self.c["t"].double()
        self.x_t, self.jumped = (torch.cat((x_0[:, :given], self.c[k]), 1) for k in ("x_t", "x_tilde"))
        self.logits = [self.c[f"logits_at_{k}"].double().requires_grad_() for k in ("x_t", "x_tilde")]
        network = Answers((self.x_t, self.logits[0]), (self.jumped, self.logits[1]))
        objective = {"objective": "one-pass" if self.one else "two-pass"}
        if given and not self.one:  # its code of infilling reads the cross-entropy in the second evaluation
            objective["auxiliary_pass"] = "second"
        self.method = method(golden, case, network, x_0.shape[1], **objective, auxiliary=self.weight)
        monkeypatch.setattr(random, "stratified", lambda n, generator, device: 1 - self.t)
        monkeypatch.setattr(self.method, "corrupt", lambda batch, t, generator: self.x_t)
        monkeypatch.setattr(tauldr_rows, "jump", lambda process, x_t, t, counted, generator: self.jumped)
        monkeypatch.setattr(random, "bernoulli", lambda p, generator: torch.ones_like(p, dtype=torch.bool))
        self.w = tauldr_rows.weight(
            tauldr_rows.after(self.method.process, x_0, self.jumped, self.t, self.batch.counted)
        )
        self.given = given

    def constants(self, x: Tensor, f) -> Tensor:
        """The sum over positions and y of R_t(y, x) f(u_y), u the score given x_0: (B,)."""
        P, t = self.method.process, self.t[:, None].expand(x.shape)
        distribution = P.marginal(self.batch.tokens, t)
        u = distribution / distribution.gather(-1, x[..., None])
        return (P.rate_into(x, t) * f(u)).sum(-1)[:, self.given :].sum(-1)

    def part(self, f, x: Tensor) -> Tensor:
        """f of what the bound is made of at each position, summed: (B,)."""
        return summed(self.method, lambda *each: f(*self.method.moment(*each)), self.batch, x, self.t)

    def cross_entropy(self, x: Tensor) -> Tensor:
        return self.method.weighted(lambda _, u, v: 0 * v.sum(-1), self.batch, x, self.t, torch.zeros_like(self.t), 1.0)

    def reg(self, x: Tensor) -> Tensor:
        return self.part(tauldr_rows.leaving, x) + self.constants(x, lambda u: u)

    def sig(self) -> Tensor:
        entropy = self.constants(self.jumped, lambda u: maths.xlogy(u, u))
        return self.w * (self.part(tauldr_rows.signal, self.jumped) - entropy)


class Published:
    """Its two terms in float64 at an eps of one's own, added to each q(x | x_0) that they divide by and inside the log."""

    def __init__(self, r: Replay, x: Tensor, logits: Tensor):
        P, at = r.method.process, slice(r.given, None)
        t = r.t[:, None].expand(x.shape)
        self.q, self.p = P.matrix(CLEAN, r.t), logits.softmax(-1)[:, at]  # (B, S, S) from x_0 to y
        self.distribution, self.x = P.marginal(r.batch.tokens, t)[:, at], x[:, at]
        self.likely, self.into = P.likelihood(x, CLEAN, t)[:, at], P.rate_into(x, t)[:, at]
        z = tauldr_rows.exits(P)
        total = z[self.x].sum(-1)[:, None, None]
        self.before = (total - z[self.x][..., None] + z) * P.schedule.beta(r.t)[..., None]

    def score(self, eps: float) -> Tensor:
        return torch.einsum("blv,bvk->blk", self.p / (self.likely + eps), self.q)

    def reg(self, eps: float) -> Tensor:
        return (self.into * self.score(eps)).sum((1, 2))

    def sig(self, eps: float) -> Tensor:
        flow = self.into * self.distribution / (self.distribution.gather(-1, self.x[..., None]) + eps)
        return -(flow * (self.score(eps) + eps).log()).sum((1, 2)) / (flow / self.before).sum((1, 2))


@pytest.mark.parametrize("case", LOSSES)
def test_loss(golden, case, monkeypatch):
    r = Replay(golden, case, monkeypatch)
    c, at = r.c, slice(r.given, None)
    # what is drawn
    distribution = r.method.process.marginal(r.batch.tokens, r.t[:, None])[:, at]
    golden.near(case, distribution, c["x_t_sampling_probs"])
    leave = tauldr_rows.exits(r.method.process)[r.x_t[:, at]]
    golden.near(case, leave / leave.sum(-1, keepdim=True), c["dim_sampling_probs"])
    place = (c["square_dims"] + r.given)[:, None]
    rows = r.method.process.rate_from(r.x_t.gather(1, place), r.t[:, None])[:, 0]
    golden.near(case, rows / rows.sum(-1, keepdim=True), c["newval_sampling_probs"])
    # its two terms
    reg = r.reg(r.jumped if r.one else r.x_t)
    golden.near(case, reg, c["reg_per_sample"])
    golden.near(case, r.sig(), c["sig_per_sample"])
    # theirs at its eps, which vanishes: without it they are ours
    reg_theirs = Published(r, r.jumped if r.one else r.x_t, r.logits[int(r.one)])
    sig_theirs, eps = Published(r, r.jumped, r.logits[1]), r.config["eps_ratio"]
    golden.near(case, reg_theirs.reg(eps), c["reg_per_sample"])
    golden.near(case, sig_theirs.sig(eps), c["sig_per_sample"])
    vanishes(lambda eps: reg_theirs.reg(eps) - reg)
    vanishes(lambda eps: sig_theirs.sig(eps) - r.sig())
    # the whole, with the published gradient
    r.method.network.calls = 0
    loss = r.method.loss(r.batch)
    assert r.method.network.calls == 2 - r.one
    cross_entropy = [r.cross_entropy(x) for x in (r.x_t, r.jumped)]
    entropy = r.w * r.constants(r.jumped, lambda u: maths.xlogy(u, u))
    if r.one:
        whole = r.w * r.reg(r.jumped) + r.sig() + entropy - r.w * r.constants(r.jumped, lambda u: u)
        expected = 2 / (1 + r.w) * whole + r.weight * cross_entropy[1]  # ours may stay at x_t: the balanced weight
        rounded(loss, expected, 1, torch.float32, r.weight * cross_entropy[1])  # ours has its weight in float32
        assert not torch.equal(
            r.w, torch.ones_like(r.w)
        )  # theirs has no w in its first term: biased, as ours where it is said
        biased = method(
            golden, case, r.method.network, r.batch.tokens.shape[1], objective="one-pass-biased", auxiliary=r.weight
        )
        ours = biased.loss(r.batch) - entropy + r.constants(r.jumped, lambda u: u)
        golden.near(case, ours, reg + r.sig() + r.weight * cross_entropy[1])
        theirs = ours.mean()
    else:
        ours = loss - entropy + r.constants(r.x_t, lambda u: u)
        golden.near(case, ours, c["loss_per_sample"])
        theirs = ours.mean()
    golden.near(case, theirs, c["loss"])
    for logits, name in zip(r.logits, ("x_t", "x_tilde")):
        (gradient,) = torch.autograd.grad(theirs, logits, retain_graph=True, materialize_grads=True)
        atol = 2.0**-24 * float(reg.detach().max()) / len(reg)  # a float32 sum of terms of this size
        golden.near(case, gradient, c[f"grad_logits_at_{name}"], atol=max(1e-6, atol))


# ---------------------------------------------------------------------------------- sampler
class Stub(nn.Module):
    """logits = base + table[x] (1 + t); keeps what it was asked."""

    def __init__(self, base: Tensor, table: Tensor):
        super().__init__()
        self.base, self.table = base.double(), table.double()
        self.asked: list[tuple[Tensor, float]] = []

    def features(self, x, time, **kwargs):
        self.asked.append((x, float(time[0]) / 1000))
        return self.base + self.table[x] * (1 + time.double() / 1000)[:, None, None]

    def head(self, h):
        return h


def steps(sampler: dict, pc: bool) -> list[tuple[float, float]]:
    """Their steps as ours, (t, s): leaps, the first of them too, and at last a question at the smallest time."""
    n, end = sampler["num_steps"], sampler["min_t"]
    grid = torch.linspace(1.0, end + 1 / n if pc else end, n, dtype=torch.float64)
    grid[0] = torch.nextafter(grid[0], grid[1])  # at 1 itself ours would take the kernel
    return [*itertools.pairwise(grid.tolist() + ([] if pc else [0.0])), (end, CLEAN)]


@pytest.mark.parametrize("case", CHAINS)
@torch.no_grad()
def test_chain(golden, case, monkeypatch):
    """Our sampler with the options of theirs, on their times and their numbers of jumps, is theirs step by step."""
    c, settings = golden[case], golden.index[case]["config"]["sampler"]
    pc, network = "PC" in case, Stub(c["base"], c["table"])
    ours = method(golden, case, network, c["base"].shape[1])
    given = c.get("conditioner", torch.empty(len(c["x_init"]), 0, dtype=torch.long))
    fixed = torch.cat((given, torch.full_like(c["x_init"], -1)), 1)
    free, shape = slice(given.shape[1], None), c["x_init"].shape
    # in `ConditionalTauLeaping` the rejection of multiple jumps is overwritten: it sums them, as `jumps` sum does
    sampler = TauLeaping(
        jumps="one" if pc and settings.get("reject_multiple_jumps") else "sum",
        corrector=settings.get("num_corrector_steps", 0),
        corrector_step=settings.get("corrector_step_size_multiplier", 1.0),
        corrector_from=settings.get("corrector_entry_time", 1.0),
        argmax="last",
    )
    means: list[Tensor] = []

    def jumps(mean: Tensor) -> Tensor:
        means.append(mean.view(*shape, -1))
        return c["jump_nums"][len(means) - 1].view(mean.shape).to(mean)

    def landed(x: Tensor, mean: Tensor) -> Tensor:
        count = jumps(mean)
        return ours.process.one_hot(landing(x, torch.where(count.sum(-1, keepdim=True) > 1, 0.0, count)))

    monkeypatch.setattr(random, "poisson", lambda mean, generator, at: jumps(mean))
    monkeypatch.setattr(tau_leaping, "single_distribution", landed)
    x = torch.cat((given, c["x_init"]), 1)
    state = State(x, fixed >= 0, torch.zeros(len(x), dtype=torch.long))
    for t, s in steps(settings, pc):
        t, s = (torch.tensor(u, dtype=torch.float64) for u in (t, s))
        state = sampler.step(ours, state, t, s, torch.Generator())
    assert torch.equal(state.x, c["final_x0"])
    assert len(network.asked) == len(c["model_call_t"])
    for k, (asked, t) in enumerate(network.asked):
        assert torch.equal(asked[:, free], c["model_call_x"][k].long())
        golden.near(case, t, c["model_call_t"][k])
    for k, mean in enumerate(means):
        asked, t = network.asked[k]
        if case != GAUSSIAN or t > settings["min_t"] * (1 + 1e-6):
            golden.near(case, mean, c["poisson_mean"][k])
            continue
        # sum_x0 p q(y | x0) / q(x | x0): float32 has roundings of 1 in both q, which 1/q(x | x0) enlarges
        P, end = ours.process, settings["min_t"]
        distribution, q, least = (
            posterior(ours.predict(asked, end)),
            P.matrix(CLEAN, end),
            P.likelihood(asked, CLEAN, end),
        )
        enlarged = torch.einsum("blv,blv,blvk->blk", distribution, 1 / least, 1 + q / least[..., None])
        rounded(c["poisson_mean"][k], mean, 2, torch.float32, end * P.rate_into(asked, end) * enlarged)
