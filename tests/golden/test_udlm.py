"""UDLM's published code, and what it publishes of MDLM, against ours at the tolerance of each case."""

import pytest
import torch
from torch import Tensor, nn

from zellige.core import bound
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import LeaveOneOut, kernel, truth
from zellige.core.process import uniform
from zellige.core.schedule import CLEAN
from zellige.methods import MDLM, UDLM
from zellige.methods.diffusion import jumps_at
from zellige.methods.method import Method
from zellige.plugins.published import classifier
from zellige.samplers.guidance import ByClassifier, ClassifierFree

from .recorded import EPS, TORCH, FixedTime, K, L, RecordedLogits, V, published_network, race, rounded, vanishes

CLASSES = TORCH.index["udlm__weights"]["config"]["data"]["num_classes"]  # the row after them is the class of nothing
CBG = TORCH.cases("udlm__step_cbg_.*")
DDPM = TORCH.cases("udlm__step_ddpm_.*")
CFG = TORCH.cases("udlm__step_cfg_.*")
LOSSES = TORCH.cases("udlm__loss_udlm_.*")
RECONSTRUCTION = "it adds -log mu(x_0) at clean x_0 and sigma = 0, where alpha is 1 and no step is left"
FORMS = {
    **dict.fromkeys(LOSSES, f"{RECONSTRUCTION}; its bound has alpha = 1 - t, x_t and sigma have (1 - eps) t: ours with eps = 0"),
    "udlm__loss_udlm_ct_zero_recon": "its bound has alpha = 1 - t, x_t and sigma have (1 - eps) t: ours with eps = 0",
}  # fmt: skip
TESTED = {
    "udlm__weights", "udlm__forward", *LOSSES, "udlm__loss_absorb_subs", "udlm__udlm_nelbo_closed_form",
    "udlm__udlm_posterior", *DDPM, *CFG, *CBG, "udlm__classifier_weights", "udlm__classifier_forward",
}  # fmt: skip


@pytest.fixture(scope="module")
def weights(golden):
    return golden["udlm__weights"]


class Classed(nn.Module):
    """A network that is told these classes, whatever it would be told."""

    def __init__(self, network: nn.Module, classes: Tensor):
        super().__init__()
        self.network, self.classes = network, classes

    def features(self, x, time=None, **kwargs):
        return self.network.features(x, time, **kwargs | {"condition": self.classes})

    def head(self, h):
        return self.network.head(h)


def conditioned(weights: dict[str, Tensor], classes: Tensor | None) -> nn.Module:
    """The published network, told one class a row. Difference: told none, theirs adds nothing, ours the class of none."""
    if classes is not None:
        return Classed(published_network(weights), classes)
    return published_network({name: tensor for name, tensor in weights.items() if "cond_map" not in name})


def udlm(network, eps: float = EPS) -> UDLM:
    """With alpha = 1 - (1 - eps) t; upstream's loss takes eps = 0."""
    method = UDLM(network, K, (L,))
    method.process = uniform(K, Linear(eps))
    return method


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("udlm__")} == TESTED
    assert FORMS.keys() <= TESTED


def test_forward(golden, weights):
    case = "udlm__forward"
    c = golden[case]
    nothing = torch.full_like(c["cond"], CLASSES)
    for name, classes in (("uncond_none", None), ("cond", c["cond"]), ("nullclass", nothing)):
        method = udlm(conditioned(weights, classes))
        t = method.process.schedule.inverse(torch.exp(-c["sigma"].double()))
        golden.near(case, method.predict(c["xt"], t).mu.log(), c[f"log_p_{name}"])


def test_classifier(golden):
    case = "udlm__classifier_forward"
    c = golden[case]
    file = golden.folder / "udlm__classifier_weights.safetensors"
    golden.near(case, classifier(file, length=L)(c["x"], c["sigma"]).log_softmax(-1), c["log_probs"])


# ---------------------------------------------------------------------------------- losses
def per_token(method: Method, c: dict[str, Tensor], t: Tensor, s: Tensor | None = None) -> Tensor:
    """`cost` at every position, (B, L)."""
    spread = lambda u: None if u is None else u[:, None].expand(c["xt"].shape).flatten()  # noqa: E731
    logits = method.logits(method.hidden(c["xt"], t[:, None])).flatten(0, 1).double()
    x_0, x_t = c["x0"].flatten(), c["xt"].flatten()
    return method.cost(logits, x_0, x_t, spread(t), spread(s)).reshape(c["xt"].shape)  # pyright: ignore


@pytest.mark.parametrize("case", LOSSES)
def test_loss(golden, weights, case):
    c, T = golden[case], golden.index[case]["config"].get("T", 0)
    t = (
        ((c["t"].double() * T).floor() + 1) / T if T else c["t"].double()
    )  # the index says t before it is put on the grid
    network = FixedTime(conditioned(weights, c["cond"]), Linear(EPS).sigma(t)[:, 0])
    method, s = udlm(network, eps=0.0), t - 1 / T if T else None
    each = per_token(method, c, t, s) * max(T, 1)
    golden.near(case, each, c["diffusion_loss"])
    batch = Batch(c["x0"])
    whole = (
        method.discrete_bound(batch, c["xt"], t, s) * T if s is not None else method.continuous_bound(batch, c["xt"], t)
    )
    golden.near(case, whole, c["diffusion_loss"].sum(-1))
    clean = udlm(FixedTime(network.network, 0.0)).predict(c["x0"], 0.0)
    reconstruction = -clean.mu.double().log().gather(-1, c["x0"][..., None])[..., 0]
    golden.near(case, reconstruction, c["recon_loss"])
    golden.near(case, each + reconstruction * ("zero" not in case), c["loss_per_token"])
    golden.near(case, c["loss_per_token"].mean(), golden.scalars(case)["token_nll"])
    assert not jumps_at(method.process, 0)  # so ours asks for no reconstruction
    vanishes(
        lambda eps: per_token(udlm(network, eps), c, t, s) * max(T, 1) - each
    )  # what the eps of the schedule is worth
    if s is not None:  # it adds 1e-12 inside one log of the KL: q (log(q + eps) - log q) is at most eps for each state
        time = t[:, None].expand(c["xt"].shape)
        q = kernel(truth(method.process, c["x0"], c["xt"], time), s[:, None])
        p = kernel(method.predict(c["xt"], t[:, None]), s[:, None])
        theirs = lambda eps: T * (q * ((q + eps).log() - p.log())).sum(-1)  # noqa: E731
        golden.near(case, theirs(1e-12), c["diffusion_loss"])
        golden.near(case, theirs(0.0), each)
        vanishes(lambda eps: theirs(eps) - theirs(0.0), c=T * K)


def test_absorbing_loss(golden, weights):
    case = "udlm__loss_absorb_subs"
    c = golden[case]
    method = MDLM(conditioned(weights, c["cond"]), V, (L,), MDLM.Config(time=True))
    t = c["t"].double()
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], t), c["loss_per_token"].sum(-1))
    time = t[:, None].expand(c["xt"].shape)
    each = bound.continuous(truth(method.process, c["x0"], c["xt"], time), method.predict(c["xt"], time))
    golden.near(case, each, c["loss_per_token"])


def test_nelbo(golden):
    case = "udlm__udlm_nelbo_closed_form"
    c = golden[case]
    method = udlm(RecordedLogits(c["log_p_x0"]), eps=0.0)
    for name in (key.removeprefix("diffusion_loss_t") for key in c if key.startswith("diffusion_loss_t")):
        t = torch.full((len(c["xt"]),), float(name), dtype=torch.float64)
        golden.near(case, per_token(method, c, t), c[f"diffusion_loss_t{name}"])


# ---------------------------------------------------------------------------------- steps
def test_posterior(golden):
    case = "udlm__udlm_posterior"
    c = golden[case]
    process = uniform(K, Linear(0.0))
    for s, t in (key.removeprefix("posterior_pred_s").split("_t") for key in c if key.startswith("posterior_pred_")):
        time = torch.full(c["xt"].shape, float(t), dtype=torch.float64)
        pred = LeaveOneOut(process, c["p_x0"], c["xt"], time)
        golden.near(case, kernel(pred, float(s)), c[f"posterior_pred_s{s}_t{t}"])
        golden.near(case, kernel(truth(process, c["x0"], c["xt"], time), float(s)), c[f"posterior_onehot_s{s}_t{t}"])
        if not float(s):
            rounded(kernel(pred, 0.0), kernel(pred, CLEAN), 4, scale=1.0)


def method_of(network: nn.Module, scalars) -> Method:
    return udlm(network) if scalars["diffusion"] == "uniform" else MDLM(network, V, (L,), MDLM.Config(time=True))


@pytest.mark.parametrize("case", DDPM)
def test_step(golden, weights, case):
    c, scalars = golden[case], golden.scalars(case)
    method = method_of(conditioned(weights, None), scalars)
    p = kernel(method.predict(c["x"], scalars["t"]), scalars["t"] - scalars["dt"])
    golden.near(case, p, c["q_xs"])
    assert torch.equal(race(p, c["u"]), c["x_next"])


@pytest.mark.parametrize("case", CFG)
def test_step_guided_without_classifier(golden, weights, case):
    c, scalars = golden[case], golden.scalars(case)
    guided = ClassifierFree(method_of(published_network(weights), scalars), scalars["gamma"])
    p = kernel(guided.predict(c["x"], scalars["t"], condition=c["cond"]), scalars["t"] - scalars["dt"])
    golden.near(case, p, c["q_xs"])
    assert torch.equal(race(p, c["u"]), c["x_next"])


class Published:
    """Their classifier, which is told sigma."""

    length, classes = L, range(CLASSES)

    def __init__(self, network):
        self.network = network

    def log_p(self, x, t, process):
        return self.network(x, self.sigma(t, process)).log_softmax(-1)

    def slopes(self, x, t, process, label):
        return self.network.slopes(x, self.sigma(t, process), label)

    def sigma(self, t, process):
        return process.schedule.sigma(t[:, 0])[:, 0].float()


@pytest.mark.parametrize("case", CBG)
def test_step_guided_by_a_classifier(golden, weights, case):
    """Theirs steps from the model that is told no class at all, which adds nothing where ours adds the class of none."""
    c, scalars = golden[case], golden.scalars(case)
    method = method_of(conditioned(weights, None), scalars)
    judge = Published(classifier(golden.folder / "udlm__classifier_weights.safetensors", length=L))
    guided = ByClassifier(method, judge, scalars["gamma"], scalars["cls"], first_order=scalars["approx"])
    p = kernel(guided.predict(c["x"], scalars["t"]), scalars["t"] - scalars["dt"])
    golden.near(case, p, c["q_xs"])
    assert torch.equal(race(p, c["u"]), c["x_next"])
