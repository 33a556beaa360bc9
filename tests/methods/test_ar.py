"""AR: its likelihood is that of its conditional distributions and sums to one; documents, padding, and `=` wherever it is
printed."""

import html

import pytest
import torch

import zellige
from testing.worlds import numbers
from zellige import Data, Net, Train, exact
from zellige.core.batch import Batch
from zellige.methods import AR, build
from zellige.nn import Table
from zellige.plugins.report import write

close = torch.testing.assert_close
V, LENGTH = 3, 3
X = exact.states(V, LENGTH)


def ar() -> AR:
    """On a table whose rows may say anything of what comes before."""
    network = Table(V + 1, LENGTH, outputs=V, block=1).double()
    with torch.no_grad():
        network.logits.copy_(3 * numbers(*network.logits.shape) - 1.5)
    return AR(network, V, (LENGTH,))


def small(length=8) -> AR:
    torch.manual_seed(0)
    method = build("ar", V, Net(layers=2, hidden=8, heads=2, length=length, conv=3)).double().eval()
    with torch.no_grad():
        for p in method.parameters():
            p.normal_(std=0.5)
    assert isinstance(method, AR)
    return method


def test_the_likelihood_is_the_product_of_the_distributions_of_the_next_tokens():
    method = ar()
    table = method.network.logits[0].detach().reshape(4, 4, 4, LENGTH, V).log_softmax(-1)
    for x, nats in zip(X.tolist(), method.bound(Batch(X)).detach()):
        a, b, c = x
        meant = table[V, 0, 0, 0, a] + table[V, a, 0, 1, b] + table[V, a, b, 2, c]  # it reads the first token as V
        assert float(nats) == pytest.approx(-float(meant))
    close((-method.bound(Batch(X))).exp().sum(), torch.ones((), dtype=torch.float64))
    assert torch.equal(method.loss(Batch(X)), method.bound(Batch(X)))
    assert method.exact
    assert method.estimators() == {}


def test_it_never_looks_ahead():
    method = small()
    x = exact.states(V, 8)[100:105]
    for i in range(8):
        other = torch.cat((x[:, :i], (x[:, i:] + 1) % V), 1)
        h = [method.network.features(method.inputs(Batch(tokens))) for tokens in (x, other)]
        close(h[0][:, : i + 1], h[1][:, : i + 1])


@torch.no_grad()
def test_documents_and_padding():
    """A document packed with another, and one padded: each as it is alone."""
    method = small()
    x, segments = exact.states(V, 8)[[77, 200]], torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]]).expand(2, 8)
    assert method.inputs(Batch(x, None, segments))[0, [0, 3]].tolist() == [V, V]
    alone = [method.bound(Batch(x[:, s])) for s in (slice(0, 3), slice(3, 8))]
    close(method.bound(Batch(x, None, segments)), alone[0] + alone[1])
    padded = torch.arange(8).expand(2, 8) < 3
    close(method.bound(Batch(x, padded)), alone[0])


def test_what_is_exact_is_printed_so(tmp_path):
    data = Data.of(torch.randint(0, V, (60, 8), generator=torch.Generator().manual_seed(5)), vocabulary=V)
    settings = Train(steps=2, batch=4, samples=1, tensorboard=False, device="cpu", validate_rows=4)
    run = zellige.train(
        "ar", data=data, net=Net(layers=1, hidden=16, heads=2, length=8), train=settings, run=tmp_path / "ar"
    )
    assert str(run.validation).startswith("= ")
    result = zellige.evaluate(tmp_path / "ar", data, draws=8)
    assert (result.kind, result.draws) == ("exact", 1)
    assert list(result.terms) == ["next token"]
    assert result.protocol["strata"] == "none"
    assert result.protocol["time"] == "one token at a time, left to right"
    report = write(tmp_path / "ar", steps=4)
    assert f"<b>{html.escape(str(run.validation))}</b> validation" in report.read_text()
