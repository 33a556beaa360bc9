"""Two methods written outside of the package, in one file each and with public names only: GIDD and Duo."""

import ast
from pathlib import Path

import pytest
import torch

from testing.outside_duo import Duo
from testing.outside_gidd import GIDD
from zellige import Net, methods, samplers, verify
from zellige.core.batch import Batch
from zellige.methods import UDLM

HERE = Path(__file__).parents[1] / "testing"


@pytest.mark.long
def test_the_bounds_of_both_hold_at_once():
    report = verify(GIDD, Duo, only="bound")
    assert report.failures == []
    of = {name: {row.key for row in report.rows if row.method == name} for name in ("gidd", "duo")}
    assert of["gidd"] == of["duo"] >= {"bound.closed-form", "bound.limit", "bound.entropy", "bound.draws", "bound.path"}


@pytest.mark.long
def test_the_whole_table_of_both_at_once():
    report = verify(GIDD, Duo)
    assert report.failures == []
    assert {name for name, row in report.pairings.items() if row["ancestral"] is not None} >= {"gidd", "duo"}


@torch.no_grad()
def test_duo_has_the_bound_of_udlm():
    """Two forms of one number, on a transformer of the library."""
    net = Net(layers=1, hidden=16, heads=2, length=6)
    torch.manual_seed(0)
    udlm, duo = (methods.build(cls, 5, net).eval() for cls in (UDLM, Duo))
    duo.load_state_dict(udlm.state_dict())
    batch = Batch(torch.randint(5, (4, 6)))
    ours, theirs = (method.bound(batch, torch.Generator().manual_seed(1)) for method in (duo, udlm))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("cls", [GIDD, Duo])
def test_they_train_and_draw_as_any_method(cls):
    method = methods.build(cls, 5, Net(layers=1, hidden=16, heads=2, length=6))
    assert method.loss(Batch(torch.randint(5, (4, 6)))).isfinite().all()
    for name in ("ancestral", "euler", "tau_leaping"):
        *_, state = samplers.run(samplers.find(name)(), method, (3, 6), 4, generator=torch.Generator().manual_seed(0))
        assert int(state.x.max()) < 5  # no mask is left


@pytest.mark.parametrize("file", ["outside_gidd.py", "outside_duo.py"])
def test_only_public_names(file):
    """Nothing that begins with an underscore is imported, asked or defined, but what Python itself calls."""
    for node in ast.walk(ast.parse((HERE / file).read_text(encoding="utf-8"))):
        names = [getattr(node, field, None) for field in ("attr", "name", "module")]
        for name in filter(None, names):
            assert not any(part.startswith("_") and not part.endswith("__") for part in name.split(".")), name
