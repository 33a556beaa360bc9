"""Both sides of -log p hold in expectation, by enumeration of everything that is drawn; replayed samplers have their own
law."""

import dataclasses
import functools
import itertools
import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from testing.small import Rows
from testing.worlds import numbers
from zellige import Net, exact
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.evaluation import interval
from zellige.evaluation.evaluate import EvaluationRows
from zellige.evaluation.result import summarize
from zellige.exact.script import branches
from zellige.methods import METHODS, build
from zellige.nn import Table
from zellige.plugins.evaluations.bracket import two_sides
from zellige.plugins.evaluations.bracket.bracket import Bracket, bracket_rows, exact_distributions
from zellige.plugins.evaluations.bracket.command import describe_bracket
from zellige.plugins.evaluations.bracket.request import EvaluateBracket
from zellige.plugins.evaluations.bracket.two_sides import bidirectional, effective, from_above, from_below, tangent
from zellige.plugins.report.bracket import bracket_figure
from zellige.samplers import Ancestral, AnyOrder, Confidence, Distribution, FirstHitting, FixedOrder
from zellige.samplers.replay import Oracle, Replayed, Trajectory, path_of, weigh
from zellige.show.record import dumps

V = 3
IN_ORDER: list[tuple[str, dict]] = [
    ("mdlm", {}),
    ("radd", {}),
    ("md4", {"time": False}),
]  # whose law is that of any order
CHAINS: list[tuple[str, dict]] = [  # of any noise and prediction, in two steps
    ("d3pm", {"diffusion_steps": 2, "process": "uniform"}),
    ("d3pm", {"diffusion_steps": 2, "process": "absorbing"}),
    ("udlm", {}),
    ("sedd", {}),
    ("tauldr", {}),
    ("genmd4", {}),
    ("md4", {"time": True}),
    ("mdlm", {}),
]
OWN_STEPS: list[tuple[str, dict]] = [  # of two steps of their own, in a process that knows every time
    ("mdlm", {"diffusion_steps": 2}),
    ("mdlm", {"diffusion_steps": 2, "time": True}),
    ("md4", {"diffusion_steps": 2}),
    ("udlm", {"diffusion_steps": 2}),
]


@functools.cache
def texts(L: int) -> Tensor:
    return exact.states(V, L)


def table(name: str, choices: dict, L: int, seed: int = 0, block: int = 0) -> Any:
    """The method over a table of random numbers, float64."""
    cls, config = METHODS[name], METHODS[name].Config(**choices)
    states, outputs = cls.states(V, config), cls.outputs(V, config)
    network = Table(states, L, cls.timed(config), outputs, block).double()
    method = cls.resolve(config)(network, V, (L,), config).double().eval()
    with torch.no_grad():
        network.logits.copy_(4 * numbers(*network.logits.shape, seed=seed) - 2)
    return method


def test_the_tangent_touches_the_logarithm_and_lies_above():
    psi, p = torch.tensor([-3.0, 0.5]).double()[:, None], torch.linspace(-6, 3, 50).double()
    assert bool((tangent(psi, p) >= p).all())
    torch.testing.assert_close(tangent(psi, psi), psi)


def classes(name: str, choices: dict, L: int, seed: int) -> Any:
    """The method over a small transformer that is told one of two classes."""
    torch.manual_seed(seed)
    net = Net(length=L, layers=1, hidden=8, heads=2, condition=8, classes=2)
    method = build(name, V, net, METHODS[name].Config(**choices), ordered=True).double().eval()
    with torch.no_grad():
        for p in method.network.parameters():
            p.normal_(std=0.5)
    return method


class Decided:
    """Draws that are decided beforehand, row by row; `log_q` (rows,) is the log of their probability.

    Args:
        choices: what each draw gives, (rows,) or (rows, L); of draws at some positions the others stay what they were.
        mask: the tokens of a draw of what is lost, if it is one of tokens.
    """

    def __init__(self, *choices: Tensor, mask: int | None = None):
        self.choices, self.log_q = list(choices), torch.zeros(len(choices[0]), dtype=torch.float64)
        self.mask = mask

    def categorical(self, p, at=None):
        choice, before = self.choices.pop(0), getattr(self, "before", None)
        outcome, self.before = choice if at is None else choice[at], choice
        chance = (p / p.sum(-1, keepdim=True)).nan_to_num().double().gather(-1, outcome[..., None])[..., 0]
        if at is None:
            self.log_q = self.log_q + chance.log().reshape(len(chance), -1).sum(-1)
        else:
            self.log_q = self.log_q.index_add(0, at.nonzero()[:, 0], chance.log())
            self.log_q = self.log_q.masked_fill((~at & (choice != before)).any(-1), -math.inf)
        return outcome

    def uniform(self, shape, device):
        raise AssertionError("all that is drawn here is decided")

    def bernoulli(self, p, at=None):
        if self.mask is None:
            return self.categorical(torch.stack((1 - p, p), -1)).bool()
        self.before, lost = self.choices[0], self.choices.pop(0) == self.mask  # noise that is a mask
        self.log_q = self.log_q + torch.where(lost, p, 1 - p).log().sum(-1)
        return lost


class Same:
    """One set of draws, the same for every row."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, shape, device):
        return torch.rand(1, *shape[1:], generator=self.generator, dtype=torch.float64).expand(*shape)


# --------------------------------------------------------------------------------------------- all that can be drawn
def in_all_orders(method, texts: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The probability and log w of each text in each order, by the replayed sampler: (texts, L!) each."""
    orders = torch.tensor(list(itertools.permutations(range(texts.shape[1]))))
    rows = texts.repeat_interleave(len(orders), 0)
    source = Decided(*orders.repeat(len(texts), 1).T)
    of = None if condition is None else condition.repeat_interleave(len(orders))
    path = path_of(method, 2)
    assert isinstance(path, Replayed)
    assert isinstance(path.sampler, AnyOrder)
    log_w = weigh(method, Batch(rows, None, None, of), path, source).log_w[:, 0]
    return source.log_q.exp().reshape(len(texts), -1), log_w.reshape(len(texts), -1)


def along_all_chains(method, texts: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """q and log w of all x_2, x_1 of the chain of two steps: (texts, chains) each."""
    X = exact.states(method.process.K, texts.shape[1])
    first = X if method.process.mask is None else method.process.sample_prior((1, texts.shape[1]))
    pairs = torch.tensor(list(itertools.product(range(len(first)), range(len(X)))))
    rows, of = texts.repeat_interleave(len(pairs), 0), None
    if condition is not None:
        of = condition.repeat_interleave(len(pairs))
    source = Decided(
        first[pairs[:, 0]].repeat(len(texts), 1), X[pairs[:, 1]].repeat(len(texts), 1), rows, mask=method.process.mask
    )
    log_w = weigh(method, Batch(rows, None, None, of), Trajectory(2), source).log_w[:, 0]
    q, log_w = source.log_q.exp().reshape(len(texts), -1), log_w.reshape(len(texts), -1)
    some = (q > 0).any(0)
    return q[:, some], log_w[:, some]


# --------------------------------------------------------------------------------------------- the inequalities
def check(q: Tensor, log_w: Tensor) -> int:
    """The chain of inequalities of every text, expectations over (texts, Z) outcomes with probabilities q; how many texts."""
    assert torch.allclose(q.sum(1), torch.ones(len(q), dtype=q.dtype))
    log_w = torch.where(q > 0, log_w, 0.0)
    p = (q * log_w.exp()).sum(1)
    truth, least = -p.log(), 1e-9
    i, j = torch.triu_indices(q.shape[1], q.shape[1])
    both = q[:, i] * q[:, j] * torch.where(i == j, 1, 2)
    pair = torch.stack((log_w[:, i], log_w[:, j]), -1)[..., None]  # (texts, pairs, 2, 1)
    one = (q * from_above(log_w[..., None, None], 1)[..., 0]).sum(1)
    mean = from_above(pair, 2)[..., 0]
    two = (both * mean).sum(1)
    assert (one >= two - least).all()  # importance weighting falls with n,
    assert (two >= truth - least).all()  # and stays above
    below = (from_below(pair, 1) + from_below(pair.flip(-2), 1))[..., 0] / 2  # psi of one draw, p of another
    assert ((both * below).sum(1) <= truth + least).all()
    of_two = -tangent(-mean, p.log()[:, None])  # psi of two: linear in p, whose estimate is unbiased
    assert ((both * of_two).sum(1) <= truth + least).all()
    assert torch.allclose(-tangent(p.log(), p.log()), truth, rtol=0, atol=1e-12)  # it touches at psi = p
    posterior = q * log_w.exp() / p[:, None]  # own samples: a z of these, the other of q
    first = (posterior * bidirectional(log_w[..., None], torch.zeros(*log_w.shape, 1, 1), 1)[..., 0]).sum(1)
    ordered = posterior[:, i] * q[:, j] + torch.where(i == j, 0.0, posterior[:, j] * q[:, i])
    second = (ordered * mean).sum(1)
    assert (first <= second + least).all()
    assert (second <= truth + least).all()
    return len(q)


def test_every_bracket_holds_the_exact_value_in_10_000_cases():
    """Texts x networks x methods on 3^4, and on two classes of 3^3; chains, which are more than orders, on two classes of 3^2.

    All that can be drawn is enumerated: none may be out.
    """
    cases = sum(check(*in_all_orders(table(*m, 4, seed), texts(4))) for m in IN_ORDER for seed in range(34))
    both, condition = texts(3).repeat(2, 1), torch.arange(2).repeat_interleave(27)
    cases += sum(check(*in_all_orders(classes(*m, 3, seed), both, condition)) for m in IN_ORDER for seed in range(9))
    both, condition = texts(2).repeat(2, 1), torch.arange(2).repeat_interleave(9)
    cases += sum(check(*along_all_chains(classes(*m, 2, seed), both, condition)) for m in CHAINS for seed in range(3))
    assert cases >= 10_000


@pytest.mark.long
def test_every_bracket_of_chains_holds_on_two_classes_of_three_tokens():
    both, condition = texts(3).repeat(2, 1), torch.arange(2).repeat_interleave(27)
    parts = torch.arange(54).split(6)
    assert sum(check(*along_all_chains(classes(*m, 3, 0), both[p], condition[p])) for m in CHAINS for p in parts) >= 54


def test_importance_weighting_falls_with_n_further():
    """n = 1 to 4 over the multisets of 24 orders; the tangent bound comes closer as psi does."""
    _, log_w = in_all_orders(table("mdlm", {}, 4), texts(4))
    truth, last = -(log_w.logsumexp(1) - math.log(24)), torch.full((81,), math.inf, dtype=torch.float64)
    for n in (1, 2, 3, 4):
        of = torch.combinations(torch.arange(24), n, with_replacement=True)
        counts = torch.nn.functional.one_hot(of, 24).sum(1)
        chance = (math.lgamma(n + 1) - (counts + 1.0).double().lgamma().sum(1) - n * math.log(24)).exp()
        now = (chance * from_above(log_w[:, of][..., None], n)[..., 0]).sum(1)
        assert (now < last).all()
        assert (now >= truth).all()
        last = now
    for away in (1.0, 0.1, 0.01, 0.0):
        gap = truth + tangent(-truth + away, -truth)
        assert torch.allclose(gap, torch.full_like(gap, away + math.expm1(-away)), rtol=0, atol=1e-12)


# --------------------------------------------------------------------------------------------- whose law
@pytest.mark.parametrize("name", [name for name, _ in IN_ORDER])
def test_the_mean_over_orders_is_the_law_of_any_order(name):
    """E w by enumeration of the orders is the law of the sampler's own code, and of the conditionals multiplied by hand."""
    method = table(name, {} if name != "md4" else {"time": False}, 3)
    q, log_w = in_all_orders(method, texts(3))
    p = (q * log_w.exp()).sum(1)
    assert torch.allclose(
        p, exact.sample_distribution(AnyOrder(), method, 3)[method.process.clean[exact.states(4, 3)].all(-1)]
    )
    by_hand = [method.in_order(Batch(texts(3)), torch.tensor(o)) for o in itertools.permutations((0.0, 1.0, 2.0))]
    assert torch.allclose(p, torch.stack(by_hand).neg().exp().mean(0))


@pytest.mark.parametrize(
    ("sampler", "steps"),
    [
        *((FixedOrder(order, per_step=k), None) for order in ("forward", "backward", "2,0,1") for k in (1, 2)),
        *((Confidence(m), steps) for m in ("probability", "margin", "entropy") for steps in (3, 2, 1)),
        (Confidence("probability", threshold=0.4), None),
    ],
)
def test_a_deterministic_sampler_has_the_likelihood_of_its_own_code(sampler, steps):
    """DUEL: p of all texts is the law that enumeration of the sampler's code gives; parallel steps, time and scores
    included."""
    others = [("md4", {"time": True}), ("sedd", {}), ("genmd4", {}), ("d3pm", {"diffusion_steps": 4})]
    for name, choices in [("mdlm", {}), *(others if steps == 2 else [])]:
        method = table(name, choices, 3)
        if sampler.reason_against(method) is None:
            p = weigh(method, Batch(texts(3)), Replayed(sampler, Distribution("own", ""), steps)).log_w[:, 0].exp()
            law = exact.sample_distribution(sampler, method, len(sampler.times(method, steps)) - 1)
            assert torch.allclose(p, law[method.process.clean[exact.states(4, 3)].all(-1)])
            assert float(p.sum()) == pytest.approx(1)


@pytest.mark.parametrize(("name", "choices"), CHAINS)
def test_trajectories_weigh_the_chain_of_the_t_step_model(name, choices):
    """E w is p of that chain, and E -log w its bound, both by other enumerations; of blocks too."""
    method = table(name, choices, 2)
    q, log_w = along_all_chains(method, texts(2))
    w = torch.where(q > 0, log_w, 0.0)
    assert torch.allclose((q * w.exp()).sum(1).log(), exact.log_likelihood(method, method.grid(2)))
    assert torch.allclose(-(q * w).sum(1), exact.step_bound(method, texts(2), method.grid(2)))


@pytest.mark.parametrize(("name", "choices"), [*OWN_STEPS, *(m for m in CHAINS if m[0] == "d3pm")])
def test_a_model_of_t_steps_is_weighed_by_its_own_chain(name, choices):
    """By everything that its path draws: E w is p of the T steps, E -log w its bound, and -log p lies between the two sides."""
    method = table(name, choices, 2, seed=1)
    path, mean = path_of(method, 64), torch.zeros(2, 9, dtype=torch.float64)
    draw = lambda rows, source: weigh(method, Batch(texts(2)[rows]), path, source).log_w[:, 0]  # noqa: E731
    drawn = [*branches(draw, 9)]
    for rows, log_w, q in drawn:
        mean.index_add_(1, rows, q * torch.stack((log_w.exp(), -log_w)))
    truth = exact.log_likelihood(method, method.grid(2))
    assert (path.distribution.key, path.distribution.text) == ("steps 2", "ancestral, T = 2")
    assert torch.allclose(mean[0].log(), truth, rtol=0, atol=1e-9)
    assert torch.allclose(mean[1], exact.step_bound(method, texts(2), method.grid(2)), rtol=0, atol=1e-9)
    below = torch.zeros(9, dtype=torch.float64)  # psi of one draw, p of others, whose mean is known
    for rows, log_w, q in drawn:
        below.index_add_(0, rows, q * -tangent(log_w, truth[rows]))
    assert (below <= -truth + 1e-9).all()
    assert (-truth <= mean[1] + 1e-9).all()


def test_choosing_first_has_the_law_of_the_chain():
    """Ancestral steps replayed where positions are chosen first, against the chain's trajectories: one p."""
    method = table("d3pm", {"diffusion_steps": 2, "process": "absorbing"}, 3)
    path = path_of(method, 64)
    assert isinstance(path, Replayed)
    assert isinstance(path.sampler, Ancestral)
    patterns = exact.states(2, 3)
    rows = texts(3).repeat_interleave(8, 0)
    source = Decided(patterns.repeat(27, 1), torch.ones_like(rows))
    log_w = weigh(method, Batch(rows), path, source).log_w[:, 0]
    p = (source.log_q + log_w).exp().reshape(27, 8).sum(1)
    q, of_chains = along_all_chains(method, texts(3))
    assert torch.allclose(p, (q * of_chains.exp()).nan_to_num().sum(1))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_chosen_once_makes_a_law_of_the_texts(seed):
    """Times and positions of first hitting do not depend on the text: with the same for all, w sums to one over the texts.

    With given tokens over the rest; and in blocks over the texts of each block.
    """
    method = table("md4", {"time": True}, 3, seed)
    path = path_of(method, 64)
    assert isinstance(path, Replayed)
    assert isinstance(path.sampler, FirstHitting)
    assert float(weigh(method, Batch(texts(3)), path, Same(seed)).log_w.exp().sum()) == pytest.approx(1)
    some = texts(3)[texts(3)[:, 1] == 2]
    known = Batch(some, torch.tensor([True, False, True]).expand(len(some), 3))
    assert float(weigh(method, known, path, Same(seed)).log_w.exp().sum()) == pytest.approx(1)
    for choices in ({"block": 2}, {"block": 2, "time": True}, {"block": 2, "prediction": "score"}):
        method = table("bd3lm", choices, 4, seed, block=2)
        path = path_of(method, 3)
        if isinstance(path, Replayed):
            log_w = weigh(method, Batch(texts(4)), path, Same(seed)).log_w
            assert log_w.shape == (81, 2)
            assert float(log_w.sum(1).exp().sum()) == pytest.approx(1)


def test_blocks_one_after_another_are_the_order_of_both():
    method = table("bd3lm", {"block": 2}, 4, 0, block=2)
    path = Replayed(FixedOrder("forward"), Distribution("own", ""))
    written = weigh(method, Batch(texts(4)), path)
    assert torch.allclose(-written.log_w.sum(1), method.in_order(Batch(texts(4)), torch.arange(4)))
    assert (written.calls == 5).all()  # a call a token, and one that reads the first block


def test_the_oracle_goes_where_the_text_is_likeliest():
    """By loops: at each step the position whose token the network gives the most; no better than the best of all orders."""
    method = table("radd", {}, 4)
    value = -weigh(method, Batch(texts(4)), Oracle()).log_w[:, 0]
    for text, found in list(zip(texts(4), value))[::7]:
        x, total = torch.full((1, 4), 3), 0.0
        for _ in range(4):
            mu = method.predict(x, 0.5).mu[0]
            masked = [i for i in range(4) if x[0, i] == 3]
            best = max(masked, key=lambda i: mu[i, text[i]].item())
            total -= math.log(mu[best, text[best]].item())
            x[0, best] = text[best]
        assert float(found) == pytest.approx(total)
    _, log_w = in_all_orders(method, texts(4))
    assert (value >= -log_w.amax(1) - 1e-12).all()


@pytest.mark.parametrize("name", ["mdlm", "md4", "d3pm", "udlm", "genmd4", "bd3lm"])
def test_a_text_that_is_drawn_has_the_weight_of_what_drew_it(name):
    """E 1 / w over texts and z of the model is the number of texts, V^L: each z, x has p(z, x), and w = p(z, x) / q(z | x)."""
    choices = {"d3pm": {"diffusion_steps": 2, "process": "uniform"}, "bd3lm": {"block": 1, "time": True}}.get(name, {})
    method = table(name, choices, 2, seed=3, block=1 if name == "bd3lm" else 0)
    generator = torch.Generator().manual_seed(0)
    blank = Batch(torch.zeros(20_000, 2, dtype=torch.long))
    one = (-weigh(method, blank, path_of(method, 3), generator, draw=True).log_w.sum(1)).exp()
    assert abs(float(one.mean()) - 9) < 5 * float(one.std()) / math.sqrt(len(one))


# --------------------------------------------------------------------------------------------- the result
def asked(rows) -> EvaluationRows:
    return EvaluationRows(rows, {}, {}, None, "")


def test_the_numbers_do_not_depend_on_the_batch_nor_on_other_texts():
    method, rows = table("md4", {"time": True}, 4), Rows(texts(4)[::5])
    a = bracket_rows(method, asked(rows), (1, 4), limit=None, batch=64, own=4, bound_draws=4)
    b = bracket_rows(method, asked(rows), (1, 4), limit=None, batch=7, own=4, bound_draws=4)
    for one, other in zip(a.rows, b.rows):
        assert one.result is None or torch.allclose(one.result.nats, other.result.nats)  # pyright: ignore
    twice = bracket_rows(method, asked(Rows(texts(4)[::5].repeat(2, 1)[:20])), (1, 4), limit=None, bound_draws=4)
    name = "importance-weighted, n = 4"
    assert torch.allclose(twice.named(name).result.nats[:17], a.named(name).result.nats)  # pyright: ignore
    assert len(bracket_figure(Bracket.from_dict(json.loads(dumps(a.to_dict())))).axes) == 2


@pytest.mark.parametrize(("name", "choices"), [*CHAINS, *OWN_STEPS])
def test_the_exact_value_lies_between_the_rows(name, choices):
    """With n the width falls, and -log p of the law that is named, by enumeration, lies between, within twice the intervals."""
    method, rows = table(name, choices, 2), Rows(texts(2))
    result = bracket_rows(method, asked(rows), (1, 8, 64), limit=None, steps=2, own=0, bound_draws=8)
    values: Any = lambda row: result.named(row).result  # noqa: E731
    width = [values(f"width, n = {n}") for n in (1, 8, 64)]
    assert width[0].value > width[1].value > width[2].value
    assert width[2].draws_high > 0
    law = result.named("TUBE, n = 64").distribution.text
    bounded = "the model of 2 steps" if law == "ancestral, T = 2" else "the model of continuous time"
    assert (result.protocol["distribution"], result.protocol["bound of"]) == (law, bounded)
    if (
        law == "ancestral, T = 2" == f"ancestral, T = {method.steps}"
    ):  # the bound that is printed first is of that chain too
        found, one = result.rows[0].result, values("importance-weighted, n = 1")
        assert abs(found.value - one.value) <= 2 * (found.draws_half + one.draws_half)  # pyright: ignore
    if law != "first_hitting":
        q, log_w = (in_all_orders if law == "any_order" else along_all_chains)(method, texts(2))
        truth = -float((q * torch.where(q > 0, log_w, 0.0).exp()).sum(1).log().mean()) / 2
        below, above = values("TUBE, n = 64"), values("importance-weighted, n = 64")
        assert below.value - 2 * below.draws_half <= truth <= above.value + 2 * above.draws_half < math.inf


def test_a_row_of_weights_that_hardly_count_says_so():
    """Kish's number: of equal weights all draws, of one that outweighs the others one; with few of them no interval is
    given."""
    equal, one = torch.zeros(1, 8, 1), torch.full((1, 8, 1), -100.0)
    one[0, 3] = 0.0
    assert effective(equal).tolist() == [1.0]
    assert effective(one).tolist() == [0.125]
    assert effective(torch.stack((equal, one), -1)[..., 0, :]).tolist() == [0.125]  # of two blocks the worse
    assert effective(torch.full((1, 8, 1), -math.inf)).tolist() == [0.0]
    assert effective(torch.cat((equal, equal + 3), 1)).item() == pytest.approx(
        (1 + math.e**3) ** 2 / (1 + math.e**6) / 2
    )
    method, rows = table("md4", {"time": True}, 4), Rows(texts(4)[::5])
    result = bracket_rows(method, asked(rows), (1, 16), limit=None, own=2, bound_draws=2)
    few, many = result.named("TUBE, n = 1"), result.named("TUBE, n = 16")
    assert few.effective == pytest.approx(many.effective / 16)  # pyright: ignore
    assert {row.side for row in result.rows if not row.determined} == {"lower", "difference"}
    about = {"method": "md4", "parameters": 9, "data": "texts", "split": "test", "length": 4, "weights": "raw"}
    result = dataclasses.replace(result, about=about)
    (line,) = [line for line in describe_bracket(result) if line.split()[:4] == ["TUBE,", "n", "=", "1"]]
    assert "undetermined" in line
    assert "±" not in line
    assert "for the worst text the 64 draws" in " ".join(" ".join(describe_bracket(result)).split())
    document = json.loads(dumps(result.to_dict()))
    (entry,) = [row for row in document["result"]["rows"] if row["name"] == "TUBE, n = 1"]
    assert entry["value"] == few.result.value  # pyright: ignore
    assert [entry["low"], entry["high"], entry["over_draws"]["low"]] == [None] * 3
    assert entry["why"].startswith("undetermined: ")
    assert bracket_figure(Bracket.from_dict(document)).axes


def test_the_width_is_between_the_bounds_of_the_same_draws():
    log_w = 4 * numbers(3, 12, 2, seed=6)  # 12 draws of 3 texts in 2 blocks
    for n in (1, 2, 3):
        above, below = from_above(log_w, n), from_below(log_w, n)
        pairs = torch.stack([above[:, 2 * i : 2 * i + 2].mean(1) for i in range(6 // n)], 1)
        torch.testing.assert_close(two_sides.width(log_w, n), pairs - below)


def test_a_mean_is_determined_by_many_draws_or_by_weights_alike():
    assert interval.skewness(1.0, 4) == 0.0
    assert interval.skewness(0.0, 4) > 1e9
    sigma = 0.7  # of a lognormal: its skewness is (e^(s^2) + 2) sqrt(e^(s^2) - 1)
    exact = (math.exp(sigma**2) + 2) * math.sqrt(math.expm1(sigma**2))
    assert interval.skewness(math.exp(-(sigma**2)), 512) == pytest.approx(exact / math.sqrt(256))


def test_few_estimates_have_the_spread_of_their_draws():
    """The jackknife of a mean is its standard error; of both bounds its mean is that of the estimates themselves."""
    log_w = torch.randn(3, 256, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = two_sides.replicates(lambda w, n: w.unflatten(1, (-1, n)).mean((2, 3)), log_w, 64)
    groups = log_w.view(3, 4, 16, 4).mean((1, 3))  # each of the 16 groups holds a share of every estimate's draws
    assert torch.allclose(plain.var(1), groups.var(1))
    for estimate in (from_above, from_below, two_sides.width):
        for n in (1, 64):
            values = two_sides.replicates(estimate, log_w, n)
            assert values.shape == (3, 16)
            assert torch.allclose(values.mean(1), estimate(log_w, n).mean(1))


def test_who_has_no_row_says_why():
    paths, refused = exact_distributions(table("md4", {"time": True}, 3), ("forward",), (1, 2))
    assert refused == {"order forward": "'fixed_order' needs a network without time conditioning"}
    assert [*paths] == [f"{m}, {k} a step" for m in ("confidence", "margin", "entropy") for k in ("one", 2)] + [
        "greedy order, an oracle"
    ]
    paths, refused = exact_distributions(table("udlm", {}, 3), ("forward",))
    assert (paths, [*refused]) == ({}, ["order forward", "confidence", "margin", "entropy", "greedy order, an oracle"])
    ar = table("ar", {}, 3)
    found = bracket_rows(ar, asked(Rows(texts(3))), own=2, bound_draws=2)
    assert found.rows[0].side == "exact"
    assert found.rows[1].why == "ar's -log p is exact"
    assert len(bracket_figure(Bracket.from_dict(json.loads(dumps(found.to_dict())))).axes) == 1


def test_noise_that_inserts_has_no_two_sides():
    method = build("flexmdm", 3, Net(layers=1, hidden=8, heads=2, length=4))
    with pytest.raises(
        InputError, match=r"need noise that changes tokens alone, and that of flexmdm is another; leave"
    ):
        path_of(method, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"numbers": (0, 4)}, "`numbers` is 0; it must be 1 or more"),
        ({"numbers": (3, 8)}, "`numbers` has 3, which does not divide 8; each number must divide the largest"),
        ({"limit": 1}, "`limit` is 1; it must be 2 or more: an interval needs two texts"),
        ({"orders": ("2,0",)}, "order 2,0 is not a permutation; name each position from 0 to 1 once"),
        ({"orders": ("1,0",)}, "the order has 2 positions, the text 3; name each one once"),
        ({"per_step": (0,)}, "`per_step` is 0; it must be 1 or more"),
    ],
)
def test_wrong_choices_are_one_line(wrong, message):
    def evaluate():
        EvaluateBracket(**wrong)
        bracket_rows(table("mdlm", {}, 3), asked(Rows(texts(3))), **wrong)

    with pytest.raises(InputError, match=message):
        evaluate()


# --------------------------------------------------------------------------------------------- the intervals
def covers(low, high, truth) -> int:
    return int(low <= truth <= high)


def binomial(hits: int, repeats: int) -> bool:
    """Whether a share of 93 to 97% is not refuted: 3.3 standard errors, 1 in 1,000 on either side."""
    return (
        0.93 - 3.3 * math.sqrt(0.93 * 0.07 / repeats) <= hits / repeats <= 0.97 + 3.3 * math.sqrt(0.97 * 0.03 / repeats)
    )


@pytest.mark.parametrize("n", [1, 4, 16])
@pytest.mark.parametrize("side", ["above", "below", "apart", "own"])
def test_the_intervals_cover(side, n):
    """400 repeats of the bracket of 24 texts, the weights of whose 24 orders are all known: the truth is of 200,000 draws.

    The draws' interval of both sides and of the width; of own samples the population's.
    """
    of = table("mdlm", {}, 4, seed=5)
    of.network.logits.data *= 0.5
    _, log_w = in_all_orders(of, texts(4))
    g = torch.Generator().manual_seed(n)
    draw = lambda rows, size: rows.gather(1, torch.randint(24, (len(rows), size), generator=g))[..., None]  # noqa: E731
    p = log_w.logsumexp(1).exp() / 24

    estimate = {"above": from_above, "below": from_below, "apart": two_sides.width, "own": None}[side]

    def own(number: int) -> Tensor:
        chosen = torch.multinomial(p, number, replacement=True, generator=g)
        first = torch.multinomial(log_w[chosen].exp(), 1, generator=g)
        return bidirectional(log_w[chosen].gather(1, first), draw(log_w[chosen], 16), n).mean(1, keepdim=True)

    some, hits = log_w[::4][:20], 0
    truth = float(own(200_000).mean() if side == "own" else estimate(draw(some, 204_800), n).mean())
    for _ in range(400):
        if side == "own":
            found = two_sides_result(own(64).tolist())
            hits += covers(found.low, found.high, truth)
        else:
            found = two_sides_result(two_sides.replicates(estimate, draw(some, 64), n).tolist())
            hits += covers(found.draws_low, found.draws_high, truth)
    assert binomial(hits, 400)


def two_sides_result(table: list[list[float]]):
    each = torch.tensor(table, dtype=torch.float64)
    return summarize(each, torch.ones(len(each)), "nats/token", "lower", group=torch.arange(len(each)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "choices"), [("mdlm", {}), ("md4", {"time": True}), ("d3pm", {"diffusion_steps": 2, "process": "uniform"})]
)
def test_the_intervals_of_the_command_cover(name, choices):
    """100 repeats of what is printed, a run of 100 times as many draws as the truth: 93 to 97 of 100, binomially."""
    method, rows = table(name, choices, 3, seed=2), Rows(texts(3)[::2])
    method.network.logits.data *= 0.5
    run = lambda numbers, seed: bracket_rows(method, asked(rows), numbers, seed, None, 4096, bound_draws=2)  # noqa: E731
    names = ["importance-weighted, n = 1", "importance-weighted, n = 4", "TUBE, n = 4", "TUBE, n = 1", "width, n = 4"]
    truth, hits = run((1, 4, 1600), 10**6), dict.fromkeys(names, 0)
    for seed in range(100):
        found = run((1, 4, 16), seed)
        for row in names:
            r = found.named(row).result
            hits[row] += covers(r.draws_low, r.draws_high, truth.named(row).result.value)  # pyright: ignore
    assert all(binomial(h, 100) for h in hits.values()), hits
