"""A third party's re-implementation of concrete score matching (not the authors') against ours: scores, and the explicit loss.

It compares c_theta with the true c, which needs the distribution of the data, and takes the mean over the neighbours where the
paper has the sum. `identities.score.explicit` is that form of ours, a sum for each text.
"""

import pytest
import torch

from zellige import exact
from zellige.exact import metropolis
from zellige.methods import CSM
from zellige.methods.csm_neighbourhood import NEIGHBOURHOODS
from zellige.nn import Table
from zellige.plugins.verify.identities.score import explicit

from .recorded import JAX

CASES = JAX.cases(r"csm_thirdparty\..*")
S = JAX.index[CASES[0]]["config"]["S"]  # states of one position
TESTED = set(CASES)
MEAN = "a mean over the neighbours, where the paper (and ours) has the sum"
FORMS = {
    "csm_thirdparty.cycle": f"{MEAN}: half of ours",
    "csm_thirdparty.grid": f"{MEAN}: each text over their number; at cell 0 the only neighbour is in the first slot",
}


@pytest.fixture(scope="module")
def golden():
    return JAX


def true_scores(name, distribution):
    """c (S, S) by tokens, nan where there is no arrow."""
    arrows, x = NEIGHBOURHOODS[name](S), torch.arange(S)[:, None]
    c = metropolis.Scores(arrows, distribution, 1).predict(x, 0.0).v[:, 0] - 1
    return torch.where(arrows.of(x[:, 0]), c, torch.nan)


def slots(name, table):
    """Their two slots a cell, in the order of their neighbours, at our tokens: (S, S), nan where there is no arrow."""
    x = torch.arange(S)[:, None]
    ours = torch.full((S, S), torch.nan, dtype=torch.float64)
    if name == "cycle":
        return ours.scatter(1, torch.cat([(x - 1) % S, (x + 1) % S], 1), table.double())
    ours[1:] = ours[1:].scatter(1, x[1:] - 1, table[1:, :1].double())
    ours[1:-1] = ours[1:-1].scatter(1, x[1:-1] + 1, table[1:-1, 1:].double())
    ours[0, 1] = table[0, 0]  # the first of its neighbours is in the first slot
    return ours


def model(name, table):
    """CSM that gives these scores (S, S)."""
    network = Table(S, 1).double()
    with torch.no_grad():
        network.logits[0, :, 0] = table.nan_to_num(0.0)
    return CSM(network, S, (1,), CSM.Config(neighbourhood=name))


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("csm_thirdparty")} == TESTED
    assert FORMS.keys() == TESTED
    assert all(golden.index[case]["config"]["S"] == S for case in CASES)


@pytest.mark.parametrize("case", CASES)
def test_concrete_score(golden, case):
    c, name = golden[case], golden.index[case]["config"]["structure"]
    golden.near(case, true_scores(name, c["p_data"]), slots(name, c["concrete_score"]))


@pytest.mark.parametrize("case", CASES)
def test_loss(golden, case):
    """Each text's sum over its neighbours, divided by their number, in the mean over the recorded texts."""
    c, name = golden[case], golden.index[case]["config"]["structure"]
    arrows, distribution, x = NEIGHBOURHOODS[name](S), c["p_data"].double(), c["x"]
    table = slots(name, c["model_table"])
    method = model(name, table)
    each, _ = explicit(method, distribution)
    number = arrows.of(exact.states(S, 1)).sum((1, 2))
    golden.near(case, (each / number)[x].mean(), c["loss"])
    ours = each[x].detach().mean()
    if name == "cycle":  # two neighbours everywhere
        golden.near(case, ours / 2, c["loss"])
    else:
        assert float(ours) > 1.2 * float(c["loss"])  # the sum of the paper
