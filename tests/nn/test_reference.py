"""The plain code that the benchmarks compare with computes what the published code computes, and what ours does."""

import importlib.util
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from zellige.methods import build
from zellige.nn import DiT, Net


@pytest.fixture(scope="module")
def reference():
    path = Path(__file__).parents[2] / "benchmarks" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_gives_the_published_log_probabilities(golden_folder, reference):
    folder = golden_folder / "torch"
    network = reference.Network(states=54, hidden=64, layers=2, heads=4, condition=32).eval()
    names = {"vocab_embed.": "", "sigma_map.mlp": "sigma_map", "output_layer.": "", "norm_final": "norm"}
    names |= {"adaLN_modulation": "adaln", "rotary_emb.inv_freq": "rotary.frequency"}
    weights = {}
    for key, value in load_file(folder / "mdlm__weights.safetensors").items():
        for theirs, ours in names.items():
            key = key.replace(theirs, ours)
        weights[key] = value
    network.load_state_dict(weights)
    case = load_file(folder / "mdlm__forward_subs_tc_false.safetensors")
    got = reference.log_mean(network, case["xt"], 53)
    torch.testing.assert_close(got, case["log_p_x0"], atol=2e-5, rtol=2e-4)


def test_reference_and_ours_are_one_function(reference):
    torch.manual_seed(0)
    net = Net(layers=2, hidden=32, heads=4, length=12)
    dit = DiT(net, states=7)
    torch.nn.init.normal_(dit.head.weight)
    network = reference.Network(states=7, hidden=32, layers=2, heads=4)
    network.take(dit)
    x = torch.randint(7, (3, 12))
    torch.testing.assert_close(network(x, torch.zeros(3)), dit(x), atol=1e-5, rtol=1e-5)


def test_reference_and_ours_are_one_score(reference):
    torch.manual_seed(0)
    method = build("sedd", 6, Net(layers=2, hidden=32, heads=4, length=12))
    for weight in method.network.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    network = reference.Network(states=7, hidden=32, layers=2, heads=4)
    network.take(method.network)
    x, t = torch.randint(7, (3, 12)), torch.full((3, 1), 0.4, dtype=torch.float64)
    theirs = network(x, method.process.schedule.sigma(t[:, 0])[:, 0])
    torch.testing.assert_close(theirs, method.logits(method.hidden(x, t)), atol=1e-5, rtol=1e-5)
