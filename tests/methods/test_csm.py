"""CSM: neighbourhoods by their definition, losses by loops over them, minimisers, and a whole small run."""

import itertools
import math

import pytest
import torch

import zellige
from testing.worlds import L, V, data_distribution, numbers, table
from zellige import InputError, exact, verify
from zellige.core.batch import Batch
from zellige.core.prediction import DataScore, Prediction
from zellige.exact import metropolis
from zellige.methods import CSM
from zellige.methods.csm_neighbourhood import NEIGHBOURHOODS, Neighbourhood
from zellige.methods.method import NoBound
from zellige.nn import Net

close = torch.testing.assert_close
X = exact.states(V, L)
MEANT = {  # from x to y, of V tokens
    "hamming": lambda x, y, V: x != y,
    "cycle": lambda x, y, V: x != y and (x - y) % V in (1, V - 1),
    "grid": lambda x, y, V: abs(x - y) == 1,
    "star": lambda x, y, V: y == 0 and x != 0,
}


def csm(length=L, **choices) -> CSM:
    return CSM(table(V, length), V, (length,), CSM.Config(**choices)).double()


def at_truth(distribution, **choices) -> CSM:
    """With a table that holds the true scores of a distribution."""
    method = csm(**choices)
    v = (
        metropolis.Scores(method.neighbourhood, distribution, L).predict(X, 0.0).v
    )  # 0 where there is no arrow: any number does
    with torch.no_grad():
        method.network.logits[0] = v.clamp_min(1e-9).log() if method.positive else v - 1
    return method


@pytest.mark.parametrize("name", NEIGHBOURHOODS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_neighbourhoods_are_what_they_say(name, size):
    arrows, tokens = NEIGHBOURHOODS[name](size), torch.arange(size)
    meant = torch.tensor([[MEANT[name](x, y, size) for y in range(size)] for x in range(size)])
    assert (arrows.of(tokens) == meant).all()
    assert (arrows.reversed(tokens) == meant.T).all()
    assert (arrows.walk(tokens) == (meant | meant.T)).all()
    assert (arrows.degree == (meant | meant.T).sum(1)).all()
    assert (arrows.arrows_in == meant.sum(0)).all()
    assert arrows.of(tokens.reshape(1, size, 1)).shape == (1, size, 1, size)


# ---------------------------------------------------------------------------------- the losses
@pytest.mark.parametrize("objective", ["csm", "score-entropy"])
@pytest.mark.parametrize("name", NEIGHBOURHOODS)
@pytest.mark.parametrize("given", [False, True])
def test_loss_by_loops(objective, name, given):
    """All reversed neighbours, one after the other; a position that is given has no neighbours."""
    method = csm(neighbourhood=name, objective=objective, neighbours=0)
    network = method.network.logits[0].detach().reshape(V, V, L, V)
    mask = torch.ones_like(X, dtype=torch.bool)
    mask[:, 0] = not given
    loss = method.loss(Batch(X, mask if given else None))
    for row, text in zip(loss.detach(), X.tolist()):
        meant = 0.0
        for i, y in itertools.product(range(L), range(V)):
            if not mask[0, i]:
                continue
            if MEANT[name](text[i], y, V):
                c = float(network[*text, i, y])
                meant += math.exp(c) if method.positive else c**2 + 2 * c
            if MEANT[name](y, text[i], V):  # y is the token of a text that has this one as a neighbour
                other = list(text)
                other[i] = y
                c = float(network[*other, i, text[i]])
                meant -= c if method.positive else 2 * c
        assert float(row) == pytest.approx(meant)


@pytest.mark.parametrize("choices", [{}, {"objective": "score-entropy"}, {"neighbourhood": "star"}], ids=str)
def test_drawn_neighbours_of_the_first_sum(choices):
    """Over all draws, the whole sum; given positions are never drawn; a text without an arrow has none."""
    mask = torch.ones_like(X, dtype=torch.bool)
    mask[::2, 0] = False
    whole = csm(neighbours=0, **choices)
    for k in (1, 2):
        method = csm(neighbours=0, forward_neighbours=k, **choices)
        draw = lambda batch, g, m: m.loss(Batch(batch.tokens, mask), g)  # noqa: E731
        total = sum(p * value for value, p in exact.scripts(lambda g: draw(Batch(X), g, method), len(X)))  # noqa: B023
        close(torch.as_tensor(total), draw(Batch(X), None, whole))
    with pytest.raises(InputError, match="`forward_neighbours` is -1; it must be 0 or more"):
        csm(forward_neighbours=-1)


# ---------------------------------------------------------------------------------- along a path
@pytest.mark.parametrize("name", NEIGHBOURHOODS)
def test_the_ratio_along_any_path_is_that_of_the_distribution(name):
    distribution = data_distribution(4, 3, seed=2)
    truth = metropolis.Scores(NEIGHBOURHOODS[name](4), distribution, 3)
    texts = exact.states(4, 3)
    x, y = texts[torch.randperm(64, generator=torch.Generator().manual_seed(0))], texts
    ratio = (distribution[exact.index(x, 4)] / distribution[exact.index(y, 4)]).log()
    for order in itertools.permutations(range(3)):
        close(metropolis.log_ratio(truth, x, y, order), ratio, rtol=0, atol=1e-10)
    through = y.flip(0)  # a path of two pieces
    pieces = metropolis.log_ratio(truth, through, y) + metropolis.log_ratio(truth, x, through)
    close(pieces, ratio, rtol=0, atol=1e-10)
    close(metropolis.path_distribution(truth), distribution)


def test_paths_are_the_shortest_walks():
    paths = {name: NEIGHBOURHOODS[name](5).path(1, 4) for name in NEIGHBOURHOODS}
    assert paths == {"hamming": [1, 4], "cycle": [1, 0, 4], "grid": [1, 2, 3, 4], "star": [1, 0, 4]}
    assert all(NEIGHBOURHOODS[name](5).path(2, 2) == [2] for name in NEIGHBOURHOODS)
    with pytest.raises(InputError, match="no arrows lead from token 0 to 4; use another `neighbourhood`"):
        _Apart(5).path(0, 4)


class _Apart(Neighbourhood):
    """0 and 1 are next to each other, and 2 to 4 by themselves."""

    def of(self, x):
        return (self._all(x) < 2) & (x[..., None] < 2) & (self._all(x) != x[..., None])


def test_scores_of_no_distribution_depend_on_the_path():
    method = csm(positive=True)
    zero = torch.zeros_like(X)
    ways = [metropolis.log_ratio(method, X, zero, order) for order in ((0, 1), (1, 0))]
    assert float((ways[0] - ways[1]).abs().max()) > 0.01
    network = method.network.logits[0].detach().reshape(V, V, L, V)
    close(ways[0][exact.index(torch.tensor([2, 1]), V)], network[0, 0, 0, 2] + network[2, 0, 1, 1])
    close(ways[1][exact.index(torch.tensor([2, 1]), V)], network[0, 0, 1, 1] + network[0, 1, 0, 2])


def test_given_positions_are_never_drawn():
    method, mask = csm(neighbours=3), torch.tensor([[True, False], [False, True], [False, False]])
    batch = Batch(X[:3], mask)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        row, x, place, weight = method.neighbourhood.reversed_texts(batch.tokens, mask, 3, generator)
        assert (mask[row, place] | (weight == 0)).all()
        assert (x.gather(1, place[:, None]) != batch.tokens[row].gather(1, place[:, None])).all()
        assert ((x == batch.tokens[row]) | mask[row] | (weight == 0)[:, None]).all()
    assert (weight.reshape(3, 3).sum(0) == torch.tensor([2, 2, 0])).all()  # V - 1 neighbours at the one free position
    assert float(method.loss(batch, generator).detach()[2]) == 0.0


BASELINES = [("hamming", {"objective": "ratio-matching"}), ("hamming", {"objective": "discrete-marginalisation"})]


@pytest.mark.parametrize(
    ("name", "choices"),
    [*itertools.product(NEIGHBOURHOODS, [{}, {"positive": True}, {"objective": "score-entropy"}, {"objective": "denoising"}]),
     *BASELINES], ids=str,
)  # fmt: skip
def test_the_true_scores_are_the_minimum(name, choices):
    """Of the data's distribution; of the denoising loss that of the noised data."""
    from zellige.plugins.verify.identities.check import even
    from zellige.plugins.verify.identities.score import noised

    distribution = data_distribution()
    kept = distribution @ noised(distribution, 0.1) if choices.get("objective") == "denoising" else distribution
    method = at_truth(kept, neighbourhood=name, **choices)
    once = even(1)
    value = (distribution * exact.expectation(method.loss, X, once)).sum()
    (gradient,) = torch.autograd.grad(value, list(method.parameters()))
    assert float(gradient.abs().max()) < 1e-12
    with torch.no_grad():
        method.network.logits += 0.1 * (numbers(*method.network.logits.shape) - 0.5)
    assert (distribution * exact.expectation(method.loss, X, once)).sum() > value


@pytest.mark.parametrize(("_", "choices"), BASELINES, ids=str)
def test_drawn_tokens_of_the_baselines(_, choices):
    """Over all draws, the sum over positions that count and the mean over tokens."""
    mask = torch.ones_like(X, dtype=torch.bool)
    mask[::2, 0] = False
    whole = csm(neighbours=0, **choices).loss(Batch(X, mask))
    method = csm(neighbours=1, **choices)
    total = sum(p * value for value, p in exact.scripts(lambda g: method.loss(Batch(X, mask), g), len(X)))
    close(torch.as_tensor(total), whole)


def test_ratio_matching_of_two_tokens_is_that_of_its_author():
    """(1 - q(x_i | x_-i))^2 summed over positions, of one distribution: whatever token stands in the place of x_i."""
    distribution = data_distribution(2, 3)
    method = CSM(table(2, 3), 2, (3,), CSM.Config(objective="ratio-matching", neighbours=0)).double()
    texts = exact.states(2, 3)
    v = metropolis.Scores(method.neighbourhood, distribution, 3).predict(texts, 0.0).v
    with torch.no_grad():
        method.network.logits[0] = v.log()
    own = torch.stack([distribution / (distribution + distribution[exact.index(texts ^ flip, 2)])
                       for flip in torch.eye(3, dtype=torch.long)], -1)  # fmt: skip
    close(method.loss(Batch(texts)).detach(), (1 - own).square().sum(-1))


def test_draws_vary_less_with_more_neighbours():
    """k independent draws have a k-th of the variance of one: over every outcome, nothing is left to chance."""

    def variance(k: int) -> float:
        method = csm(neighbours=k)
        outcomes = [
            (float(loss), float(p)) for loss, p in exact.scripts(lambda g: method.loss(Batch(X[:1]), g).detach(), 1)
        ]
        mean = sum(p * loss for loss, p in outcomes)
        return sum(p * (loss - mean) ** 2 for loss, p in outcomes)

    assert variance(1) > 0.1
    assert variance(3) == pytest.approx(variance(1) / 3, rel=1e-12)


# ---------------------------------------------------------------------------------- what it is not
def test_without_a_process():
    method = csm()
    with pytest.raises(NoBound, match="csm defines no likelihood bound"):
        method.bound(Batch(X))
    pred = method.predict(X, 0.0)
    assert isinstance(pred, DataScore)  # and no Prediction: there is nothing to go back to
    assert not isinstance(pred, Prediction)
    close(pred.v.gather(-1, pred.x[..., None]), torch.ones(*X.shape, 1, dtype=torch.float64))
    for name in ("ancestral", "euler"):
        with pytest.raises(InputError, match=f"sampler '{name}' needs a process to reverse; with csm use metropolis"):
            next(iter(zellige.run(zellige.SAMPLERS[name](), method, (1, L), 4)))


def test_what_is_no_choice():
    for choices, line in [
        ({"neighbourhood": "hammin"}, "unknown neighbourhood 'hammin'; did you mean 'hamming'"),
        ({"objective": "mse"}, "unknown objective 'mse'"),
        ({"neighbours": -1}, "`neighbours` is -1; it must be 0 or more"),
        ({"noise": 1.0}, "`noise` is 1; it must be above 0 and below 1"),
        ({"objective": "score-entropy", "positive": False}, "`objective` score-entropy needs `positive` True"),
        ({"objective": "ratio-matching", "positive": False}, "`objective` ratio-matching needs `positive` True"),
        (
            {"objective": "ratio-matching", "neighbourhood": "cycle"},
            "`objective` ratio-matching compares all tokens of a position, and cycle joins some; use `neighbourhood` hamming",
        ),
    ]:
        with pytest.raises(InputError, match=line):
            csm(**choices)


# ---------------------------------------------------------------------------------- verify finds what is wrong
def test_verify_holds():
    report = verify("csm", only="score")
    assert report.ok
    assert {row.key for row in report.rows} == {"score.gradient", "score.objective", "score.path", "score.invariant"}
    report = verify("csm", sampler="metropolis")
    assert report.ok
    assert list(report.pairings) == ["csm", "csm cycle", "csm grid", "csm star"]
    assert all(row["metropolis"] < 1e-7 for row in report.pairings.values())


def test_verify_finds_a_draw_without_its_weight():
    class Wrong(CSM):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            drawn = self.neighbourhood.reversed_texts
            self.neighbourhood.reversed_texts = lambda *given: (*drawn(*given)[:3], torch.ones(()).double())

    failures = verify(Wrong, only="score.objective").failures
    assert {row.identity for row in failures} == {"E of the loss = the explicit one + a constant", "... its gradient"}


def test_verify_finds_a_neighbour_in_the_wrong_direction():
    class Wrong(CSM):
        variants = ({"neighbourhood": "star"},)

        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.neighbourhood.reversed = self.neighbourhood.of
            self.neighbourhood.__dict__["arrows_in"] = torch.tensor([0.0, 1.0, 1.0]).double()

    assert verify(Wrong, only="score.objective").failures


# ---------------------------------------------------------------------------------- a run
@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Texts of 4 tokens of 3, the second twice the first (mod 3) nine times out of ten."""
    g = torch.Generator().manual_seed(5)
    x = torch.randint(0, 3, (400, 4), generator=g)
    x[:, 1] = torch.where(torch.rand(400, generator=g) < 0.9, (2 * x[:, 0]) % 3, x[:, 1])
    return zellige.train(
        "csm",
        data=zellige.Data.of(x, vocabulary=3),
        net=Net(layers=1, hidden=16, heads=2, length=4),
        train=zellige.Train(
            steps=60, batch=32, lr=1e-2, warmup=0, validate_every=30, samples=1, sample_steps=8, tensorboard=False
        ),
        run=tmp_path_factory.mktemp("runs") / "a",
    )


def test_training_says_its_loss(run):
    assert run.validation.kind == "loss"
    assert str(run.validation).endswith("per token (95%), not a bound")
    assert str(run.validation).startswith("loss -")
    back = type(run.validation).from_dict(run.validation.to_dict())
    assert str(back) == str(run.validation)
    assert "loss" in (run.folder / "metrics.csv").read_text().splitlines()[0]


def test_evaluate_gives_the_divergence(run):
    from zellige.data.prepare import prepare

    data = prepare(run.config.data, 4)
    result = zellige.evaluate(run.model, data, "train")
    assert result.kind == "exact"
    assert list(result.terms) == ["entropy of the texts", "divergence"]
    x = torch.stack([data.train.collate([data.train[i]]).tokens[0] for i in range(len(data.train))])
    distribution = exact.index(x, 3).bincount(minlength=81) / len(x)
    kl = metropolis.divergence(distribution.double(), run.model.method)
    assert result.terms["divergence"] == pytest.approx(float(kl), abs=1e-6)
    assert sum(result.terms.values()) == pytest.approx(4 * result.value, abs=1e-6)
    assert 0 < float(kl) < float(math.log(81) - exact.entropy(distribution.double()))  # it has learnt something
    path = zellige.evaluate(run.model, data, "train", estimator="path")
    distribution = metropolis.path_distribution(run.model.method)
    assert (path.kind, 4 * path.value) == (
        "exact",
        pytest.approx(-float(distribution[exact.index(x, 3)].log().mean()), abs=1e-5),
    )
    loss = zellige.evaluate(run.model, data, estimator="loss", draws=2)
    assert (loss.kind, loss.unit) == ("loss", "loss/token")
    with pytest.raises(InputError, match="unknown estimator 'forward'; all of them: loss, divergence, path"):
        zellige.evaluate(run.model, data, estimator="forward")


def test_too_many_texts_for_the_divergence():
    from zellige.evaluation.evaluate import evaluate_rows

    method = csm(length=L)
    method.shape = (40,)
    rows = type("Rows", (), {"__len__": lambda _: 2, "__getitem__": lambda _, i: i})()
    line = r"csm defines no likelihood bound, and 3\^40 texts are too many to enumerate; use `estimator` loss"
    with pytest.raises(InputError, match=line):
        evaluate_rows(method, rows)


def test_samples_and_report(run):
    from zellige.plugins import report
    from zellige.sampling.sample import watch
    from zellige.sampling.samples import collect

    drawn = collect(watch(run.model, count=20, steps=200, batch=8))
    assert len(drawn.summary.walks) == 3
    assert "of 200 proposals accepted, autocorrelation time" in str(drawn)
    assert set(drawn.calls) == {200}
    filled = collect(watch(run.model, count=4, steps=50, fixed=[1, 2, -1, -1]))
    assert all(row[:2] == [1, 2] for row in filled.tokens)
    assert "no bound" in report.write(run.folder, steps=8).read_text()
