"""Every recorded model, read by `zellige.load` from a folder as the hub holds it: the recorded logits and losses, and back."""

import json

import pytest
import torch
from safetensors.torch import load_file

import zellige
from golden.recorded import FixedTime, Recorded
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import posterior
from zellige.core.process import uniform
from zellige.plugins import published

from . import hub

SEDD = [f"sedd_{process}_{noise}" for process in ("absorb", "uniform") for noise in ("loglinear", "geometric")]
KINDS = [*SEDD, "radd", "mdlm", "mdlm-timed", "sedd-noeos", "bd3lm", "ar", "udlm", "duo"]


@pytest.fixture(scope="module")
def golden(golden_folder):
    return Recorded(golden_folder / "torch")


@pytest.fixture
def read(golden_folder, tmp_path):
    """The model of a recorded kind, and its folder."""

    def load(kind, choices=None, **more):
        source = hub.of(golden_folder, tmp_path / kind, kind, **more)
        return zellige.load(source, **(choices or {})), source

    return load


def near(ours, theirs):
    torch.testing.assert_close(ours.double(), theirs.double(), atol=3e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("kind", SEDD)
def test_sedd(golden, read, kind):
    method = read(kind)[0].method
    c = golden["sedd__forward" + kind.removeprefix("sedd")]
    t = method.process.schedule.inverse(torch.exp(-c["sigma"].double()))
    near(method.predict(c["xt"], t[:, None]).v.log(), c["log_score"])
    case = "sedd__loss" + kind.removeprefix("sedd")
    c = golden[case]
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], c["t"].double()), c["loss"])


@torch.no_grad()
def test_radd(golden, read):
    method = read("radd")[0].method
    assert method.config.loss == "t-dce"
    c = golden["radd__forward"]
    near(method.network(c["xt"]), c["logits"])
    for case, loss in (("lambda_DCE", lambda c: method.lambda_dce(Batch(c["x0"]), c["xt"], c["Lambda"].double())),
                       ("k_DCE", lambda c: method.k_dce(Batch(c["x0"]), c["xt"], c["k"])),
                       ("t_DSE", lambda c: method.t_dse(Batch(c["x0"]), c["xt"], c["t"].double()))):  # fmt: skip
        c = golden[f"radd__loss_{case}"]
        golden.near(f"radd__loss_{case}", loss(c), c["loss"])


@torch.no_grad()
@pytest.mark.parametrize(("kind", "told"), [("mdlm", "false"), ("mdlm-timed", "true")])
def test_mdlm(golden, read, kind, told):
    method = read(kind)[0].method
    assert method.time_conditioned == (told == "true")
    c = golden[f"mdlm__forward_subs_tc_{told}"]
    near(method.network(c["xt"], c["sigma"][:, 0] if told == "true" else None), c["logits"])
    case = f"mdlm__loss_subs_ct_tc_{told}"
    c = golden[case]
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], c["t"].double()), c["loss_per_token"].sum(-1))


@torch.no_grad()
def test_sedd_of_the_same_keys(golden, read):
    method = read("sedd-noeos")[0].method
    c = golden["mdlm__forward_sedd"]
    t = method.process.schedule.inverse(torch.exp(-c["sigma"].double().reshape(-1)))
    near(method.predict(c["xt"], t[:, None]).v.log(), c["log_score"])
    c = golden["mdlm__loss_sedd"]
    ours = method.continuous_bound(Batch(c["x0"]), c["xt"], c["t"].double())
    golden.near("mdlm__loss_sedd", ours, c["loss_per_token"].sum(-1))


@torch.no_grad()
@pytest.mark.parametrize("block", [1, 4, 8, 24])
def test_bd3lm(golden, read, block):
    model, _ = read("bd3lm", block_size=block)
    method = model.method
    assert method.config.clip == (0.3, 0.8)
    assert method.block == block
    case = f"bd3lm__forward_loss_bs{block}_tc_false"
    c = golden[case]
    t = c["t"].double().expand(c["x0"].shape)
    log_p = posterior(method.predict(c["xt"], t, context=method.clean(Batch(c["x0"])))).log()
    possible = c["log_p_x0"] > -9e5
    near(log_p[possible], c["log_p_x0"][possible])
    method.process.schedule = Linear(0.0)  # theirs has no eps
    given = Batch(c["x0"], c["token_mask"] > 0)
    golden.near(case, method.continuous_bound(given, c["xt"], t), c["nlls"].sum(-1))


@torch.no_grad()
def test_ar(golden, read):
    """Published, a text begins with its first token, which is not counted: here one row at a time, as `begin`."""
    c = golden["bd3lm__ar"]
    for i, x in enumerate(c["x0"]):
        method = read("ar", {"begin": int(x[0])})[0].method
        batch = Batch(x[None, 1:])
        log_p = method.next(method.network.features(method.inputs(batch))).log()
        near(log_p[0], c["log_probs"][i, :, :53])
        golden.near("bd3lm__ar", method.bound(batch), c["nlls"][i].sum()[None])


@torch.no_grad()
def test_udlm(golden, read):
    """Difference: told no class, published code adds nothing, which the network has never seen; ours tells it of no class."""
    method = read("udlm")[0].method
    c, network = golden["udlm__forward"], method.network
    sigma = c["sigma"][:, 0]
    near(network(c["xt"], sigma, condition=c["cond"]).log_softmax(-1), c["log_p_cond"])
    for nothing in (None, torch.tensor([-1, -1]), torch.tensor([4, 4])):
        near(network(c["xt"], sigma, condition=nothing).log_softmax(-1), c["log_p_nullclass"])
    assert (c["log_p_nullclass"] - c["log_p_uncond_none"]).abs().max() > 0.01
    case = "udlm__loss_udlm_ct_zero_recon"
    c = golden[case]
    batch, t = Batch(c["x0"], condition=c["cond"]), c["t"].double()
    theirs, ours = c["diffusion_loss"].double().sum(-1), method.continuous_bound(batch, c["xt"], t)
    assert 1e-4 < float((ours / theirs - 1).abs().max()) < 0.01
    # the difference: theirs takes alpha = 1 - t in the bound, x_t and sigma have (1 - eps) t
    method.network = FixedTime(network, Linear(1e-3).sigma(t)[:, 0])
    method.process = uniform(54, Linear(0.0))
    golden.near(case, method.continuous_bound(batch, c["xt"], t), theirs)


@torch.no_grad()
def test_duo(golden, read):
    method, case = read("duo")[0].method, "duo__loss_duo_base_log-linear"
    c = golden[case]
    t = method.process.schedule.inverse(c["alpha_t"].double())
    near(method.predict(c["xt"], t[:, None]).mu.log(), c["log_p_x0"])
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], t), c["loss_per_token"].sum(-1))


@torch.no_grad()
def test_classifier(golden, golden_folder, tmp_path):
    found = hub.folder(tmp_path / "c", hub.weights(golden_folder, "udlm__classifier_weights"), {"n_blocks": 1})
    c = golden["udlm__classifier_forward"]
    near(published.classifier(found, length=24)(c["x"], c["sigma"]).log_softmax(-1), c["log_probs"])
    with pytest.raises(zellige.InputError, match="is a classifier, not a model of text"):
        zellige.load(found, system="mdlm", length=24)


@pytest.mark.parametrize("kind", KINDS)
def test_back(read, tmp_path, kind):
    """The same keys, bytes of tensors and config.json, by way of a folder of Zellige's own too."""
    model, source = read(kind, {"begin": 0} if kind == "ar" else None)
    model.save(tmp_path / "own")
    again = zellige.load(tmp_path / "own")
    assert again.config == model.config
    for number, one in enumerate((model, again)):
        one.export(tmp_path / f"back{number}")
        before, after = (load_file(f / "model.safetensors") for f in (source, tmp_path / f"back{number}"))
        assert before.keys() == after.keys()
        for name in before:
            assert before[name].dtype == after[name].dtype
            assert before[name].numpy().tobytes() == after[name].numpy().tobytes(), name
        configs = [json.loads((f / "config.json").read_text()) for f in (source, tmp_path / f"back{number}")]
        assert configs[0] == configs[1]
