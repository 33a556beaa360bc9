"""What holds for every sampler: streams of rows, given tokens, costs, pairings, names."""

import dataclasses
import itertools
import sys
import time
from pathlib import Path
from typing import ClassVar, get_args

import pytest
import torch

from testing.pairs import CANNOT, METHODS, PAIRS, SAMPLERS, Constant, close, d3pm, generators, md4, mdlm
from testing.worlds import Counting, L, V, five_sigma, table
from zellige import exact, samplers
from zellige.base.errors import InputError
from zellige.base.requests import declared, option
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN
from zellige.methods import MDLM
from zellige.samplers import (
    Ancestral,
    AnyOrder,
    Confidence,
    Distribution,
    Euler,
    FirstHitting,
    FixedOrder,
    Informed,
    Remasking,
    State,
    TauLeaping,
    Uniformisation,
    run,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_tools"))
import lists  # pyright: ignore[reportMissingImports]
from zellige.samplers.predict import predict_at
from zellige.samplers.replay import Oracle, Replayed, weigh
from zellige.samplers.sampler import HIDDEN, Exactness


# ---------------------------------------------------------------------------------- names and pairings
def test_every_sampler_says_what_it_is():
    for name, cls in samplers.SAMPLERS.items():
        assert cls.name == name
        for field in ("claim", "needs", "calls"):
            assert isinstance(getattr(cls, field), str), name
        assert cls.exactness in get_args(Exactness), name
    for alias, (name, _) in samplers.ALIASES.items():
        assert samplers.find(alias) is samplers.find(name)
    with pytest.raises(InputError, match="unknown sampler 'analyti'; did you mean 'analytic'"):
        samplers.find("analyti")


def test_the_pages_name_the_samplers_that_change_a_revealed_token():
    """Those that were seen to, on a masked model; the one of several candidates changes it by copying another."""
    found = []
    for name, cls in samplers.SAMPLERS.items():
        method = mdlm()
        if cls.reason_against(method) is None:
            states = [state.x for state in run(cls(), method, (64, L), 16, generator=torch.Generator().manual_seed(0))]
            pairs = [(x, y) for x, y in itertools.pairwise(states) if x.shape == y.shape]
            if any(((x != y) & (x != method.process.mask)).any() for x, y in pairs):
                found.append(name)
    assert {*found, "smc"} == {name for name, cls in samplers.SAMPLERS.items() if cls.revises}
    said = ", ".join(f"`{name}`" for name in found)
    for page in ("methods/mdlm", "guides/serve"):
        text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert said in " ".join(text.split()), page


def test_no_gradients_are_recorded():
    """Not in a step, which is taken after the call of `run` is over; outside, they are as they were."""
    method, seen = mdlm(), []

    class Asked(Counting):
        def features(self, x, time=None, **kwargs):
            seen.append(torch.is_grad_enabled())
            return super().features(x, time, **kwargs)

    method.network = Asked(method.network)
    for _ in run(Ancestral(), method, (2, L), 3):
        assert torch.is_grad_enabled()
    assert seen
    assert not any(seen)


def test_a_sampler_and_its_options_are_declared_in_one_place(monkeypatch):
    """Python, the command line and the page read the same fields."""

    @declared
    class Slow(Ancestral):
        """Ancestral sampling that takes its time."""

        name: ClassVar[str] = "slow"
        wait: float = option("how long it waits", default=0.5, kw_only=True, minimum=0, below=2)

    monkeypatch.setitem(samplers.SAMPLERS, "slow", Slow)
    made = samplers.choose_sampler("slow", mdlm(), options={"wait": 1.5, "grid": "cosine"})
    assert made == Slow("cosine", wait=1.5)
    with pytest.raises(InputError, match="`wait` is 2; it must be at least 0 and below 2"):
        Slow(wait=2)
    with pytest.raises(InputError, match="`wait` is 'long'; it must be a number"):
        samplers.choose_sampler("slow", mdlm(), options={"wait": "long"})
    with pytest.raises(InputError, match="sampler 'euler' takes no `wait`; its options: `grid`"):
        samplers.choose_sampler("euler", mdlm(), options={"wait": 1.0})
    with pytest.raises(InputError, match="`temperature` goes with a sampler's name"):
        samplers.choose_sampler(made, mdlm(), temperature=0.5)
    assert lists.options()[-1] == {
        "name": "wait",
        "kind": "number",
        "help": "for slow: how long it waits (default: 0.5)",
    }


def whole_options() -> list[tuple[str, str]]:
    """(sampler, option) of every option that is a whole number, as the command line and the page take it."""
    return [
        (name, option.name)
        for name, cls in samplers.SAMPLERS.items()
        for option in samplers.options_of(cls).values()
        if option.kind is int
    ]


@pytest.mark.parametrize(("name", "option"), whole_options())
def test_every_whole_number_of_a_sampler_has_a_most(name, option):
    """Each costs work or memory by its size, so that none may be as large as whoever asks likes."""
    more = {"entropy": 4.0} if option == "redraw" else {}
    with pytest.raises(InputError, match=rf"`{option}` is 1,000,000,000; it must be (53|1,000|1,000,000) or less"):
        samplers.SAMPLERS[name](**more, **{option: 10**9})


def test_tokens_a_step_beyond_the_length_cost_no_more_than_it():
    torch.manual_seed(0)
    state = AnyOrder(1_000_000).init(mdlm(), (1, L))
    began = time.process_time()
    *_, last = run(AnyOrder(1_000_000), mdlm(), (1, L))
    assert time.process_time() - began < 5.0
    assert last.x.shape == state.x.shape
    assert not (last.x == V).any()


def test_calls_at_most_are_no_fewer_than_those_that_are_made():
    """With a reward, too, for which `smc` has several particles: more calls than steps."""
    steered = samplers.Rewarded(mdlm(), lambda x, condition: x.sum(-1).double())
    makes = (Ancestral(), TauLeaping(corrector=3), Confidence(), AnyOrder(), Informed(), samplers.Blockwise(stride=1))
    inside = samplers.Blockwise("smc", stride=1)
    pairs = [(sampler, mdlm()) for sampler in makes] + [(samplers.Smc(), steered), (inside, steered)]
    for sampler, method in pairs:
        *_, last = run(sampler, method, (4, L), 5, generator=generators(*range(4)))
        most = sampler.most_calls(method, sampler.times(method, 5))
        assert int(last.calls.max()) <= most, sampler.name
        assert method is not steered or last.calls.max() > 5


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_what_cannot_be_paired_is_refused_with_what_would_work(name):
    for title, make in METHODS.items():
        method, sampler = make(), samplers.SAMPLERS[name]()
        if title in CANNOT.get(name, ()):
            with pytest.raises(InputError) as error:
                sampler.init(method, (1, L))
            message = str(error.value)
            assert message == f"sampler '{name}' {sampler.reason_against(method)}; " + message.partition("; ")[2]
            works = message.partition(f"; with {method.name} use ")[2].replace(" or ", ", ").split(", ")
            assert works[0] == "ancestral"
            assert all(samplers.SAMPLERS[other].reason_against(method) is None for other in works)
        else:
            sampler.init(method, (1, L))
    with pytest.raises(InputError) as error:
        AnyOrder().init(md4(), (1, L))
    assert str(error.value) == (
        "sampler 'any_order' needs a network without time conditioning; with md4 use ancestral, euler or first_hitting"
    )


@torch.no_grad()
def test_a_score_leaves_no_mask():
    """However little a score says in all: the last step is a draw of clean tokens."""
    method = METHODS["sedd, absorbing"]()
    predict = method.predict

    def little(x_t, t, **how):
        pred = predict(x_t, t, **how)
        return dataclasses.replace(pred, v=(0.3 * pred.v).scatter(-1, pred.x_t[..., None], 1.0))

    method.predict = little  # type: ignore[method-assign]
    for sampler in (Ancestral(), Euler(), Confidence(), Remasking(), Ancestral(temperature=0.5), TauLeaping()):
        distribution = exact.sample_distribution(sampler, method, 2)
        close(distribution.sum(), torch.ones((), dtype=torch.float64))
        assert distribution[(exact.states(V + 1, L) == V).any(-1)].abs().max() == 0, sampler.name


# ---------------------------------------------------------------------------------- the stream of a row
@pytest.mark.parametrize(("sampler", "method"), PAIRS)
@torch.no_grad()
def test_a_row_with_its_own_generator_does_not_see_its_batch(sampler, method):
    sampler, method = SAMPLERS[sampler], METHODS[method]()
    for T in (2, 6):
        fixed = torch.tensor([[-1, -1], [-1, 2], [-1, -1], [0, -1], [-1, -1], [1, 1]])
        (*_, whole) = run(sampler, method, (6, L), T, fixed=fixed, generator=generators(*range(6)))
        assert method.process.clean[whole.x].all()
        assert torch.equal(whole.x[fixed >= 0], fixed[fixed >= 0])
        for b in range(6):
            (*_, alone) = run(sampler, method, (1, L), T, fixed=fixed[b : b + 1], generator=generators(b))
            assert torch.equal(alone.x[0], whole.x[b])
            assert int(alone.calls) == int(whole.calls[b])
        assert int(whole.calls[5]) == 0


class Rolled(torch.nn.Module):
    """A network whose last state is called 0, and each other state one more."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def features(self, x, time=None, **kwargs):
        return self.network.features((x - 1) % (V + 1), time, **kwargs)

    def head(self, h):
        return self.network.head(h).roll(1, -1)


@pytest.mark.parametrize("path", [Oracle(), Replayed(FixedOrder("backward"), Distribution("backward", "an order"))])
def test_the_number_of_the_mask_is_nothing_to_a_likelihood(path):
    last = mdlm(length=4)
    x, mask = torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1]]), torch.tensor([[True] * 4, [True, False, True, True]])
    log_w = [
        weigh(method, Batch(tokens, mask), path).log_w
        for method, tokens in ((last, x), (MDLM(Rolled(last.network), V, (4,), mask=0), x + 1))
    ]
    close(*log_w, rtol=1e-12, atol=0)


DRAWS_MASKS = ("plain", "psi", "smc", "informed", "uniformisation")  # among the tokens: in the order of their numbers


@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
@pytest.mark.parametrize("name", [*sorted(SAMPLERS.keys() - DRAWS_MASKS), "blockwise", "semi_autoregressive"])
@torch.no_grad()
def test_the_number_of_the_mask_is_nothing_to_a_sampler(name, timed):
    """Of one model whose mask is V, and 0: the same samples at the same steps, beside given tokens and a hidden one."""
    sampler = SAMPLERS.get(name) or samplers.find(name)(**{"blockwise": {"stride": 1}}.get(name, {"block_length": 2}))
    network, config = table(V + 1, 4, time=timed), MDLM.Config(time=timed)
    last, first = (MDLM(of, V, (4,), config, mask=mask) for of, mask in ((network, V), (Rolled(network), 0)))
    if timed and sampler.reason_against(last):
        return
    fixed = torch.tensor([[-1, -1, -1, -1], [-1, 2, -1, 0], [-1, 1, -1, HIDDEN]]).repeat(5, 1)
    states = [
        [*run(sampler, method, (15, 4), 5, fixed=given, generator=generators(*range(15)))]
        for method, given in ((last, fixed), (first, torch.where(fixed < 0, fixed, fixed + 1)))
    ]
    for a, b in zip(*states, strict=True):
        assert torch.equal((a.x + 1) % (V + 1), b.x)
        assert a.calls.tolist() == b.calls.tolist()


@pytest.mark.parametrize("name", DRAWS_MASKS)
@torch.no_grad()
def test_nor_where_the_mask_is_drawn_among_the_tokens(name):
    """The same frequencies of whole texts, within 5.5 standard errors of their difference."""
    last, n = mdlm(length=2), 8_000
    rates = []
    for method in (last, MDLM(Rolled(last.network), V, (2,), mask=0)):
        *_, state = run(SAMPLERS[name], method, (n, 2), 3, generator=torch.Generator().manual_seed(1))
        x = state.x if method is last else state.x - 1
        assert ((x >= 0) & (x < V)).all()
        rates.append(exact.index(x, V).bincount(minlength=V**2) / n)
    assert ((rates[0] - rates[1]).abs() <= 5.5 * ((rates[0] + rates[1]) / n).sqrt()).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
@torch.no_grad()
def test_the_same_seed_gives_the_same_samples(sampler):
    a, b = (
        [s.x for s in run(SAMPLERS[sampler], mdlm(), (4, L), 5, generator=torch.Generator().manual_seed(7))]
        for _ in range(2)
    )
    assert all(torch.equal(x, y) for x, y in zip(a, b))
    assert (a[0] == V).all()


@torch.no_grad()
def test_samples_of_the_real_generator_have_the_enumerated_distribution():
    """50,000 samples within 5.5 standard errors of each of the 16 probabilities (a false alarm: 6e-7 a sampler)."""
    for sampler, method, T in (
        (Ancestral(), md4(), 3),
        (Ancestral(choose=False), md4(), 3),
        (Ancestral(), METHODS["genmd4"](), 2),
        (Euler(), md4(), 3),
        (Euler(), METHODS["genmd4"](), 3),
        (FirstHitting(), mdlm(), L),
        (AnyOrder(2), mdlm(), 1),
        (Confidence(), md4(), 1),
        (Remasking(eta=0.5), mdlm(), 3),
        (TauLeaping(), md4(), 3),
        (TauLeaping(), METHODS["genmd4"](), 3),
    ):
        distribution = exact.sample_distribution(sampler, method, T)
        (*_, state) = run(sampler, method, (50_000, L), T, generator=torch.Generator().manual_seed(1))
        drawn = torch.nn.functional.one_hot(exact.index(state.x, V + 1), len(distribution)).double()
        assert five_sigma(drawn, distribution), sampler.name


# ---------------------------------------------------------------------------------- asking
class Spy:
    """A method that notes what it is asked."""

    def __init__(self, method):
        self.method, self.asked = method, []

    def __getattr__(self, name):
        return getattr(self.method, name)

    def predict(self, x_t, t, *, at=None, **kwargs):
        self.asked.append((x_t, t, at))
        return self.method.predict(x_t, t, at=at, **kwargs)


@torch.no_grad()
def test_ask_is_about_rows_with_a_question_and_tells_what_is_given_clean():
    method = Spy(mdlm(length=3))
    x = torch.tensor([[V, 0, V], [1, V, 2], [V, V, V]])
    fixed = torch.tensor([[False, True, False], [True, False, False], [False, False, False]])
    state, at = State(x, fixed, torch.zeros(3)), torch.tensor([[True, False, False], [False] * 3, [True, False, True]])
    pred = predict_at(method, state, at, torch.tensor([[0.2], [0.3], [0.4]]))  # pyright: ignore[reportArgumentType]
    ((seen, t, where),) = method.asked
    assert torch.equal(seen, x[[0, 2]])
    assert torch.equal(where, at[[0, 2]])
    close(t, torch.tensor([[0.2, CLEAN, 0.2], [0.4, 0.4, 0.4]]).double(), rtol=1e-6, atol=0)
    assert pred.x_t.shape == (3,)
    assert predict_at(method, state, torch.zeros_like(at), 0.5) is None  # pyright: ignore[reportArgumentType]
    assert len(method.asked) == 1


# ---------------------------------------------------------------------------------- cost
@pytest.mark.parametrize("name", SAMPLERS)
@torch.no_grad()
def test_the_head_is_computed_only_where_it_is_read(name):
    """12 tokens, 2 of them given, 5 rows: how many rows the network sees, and how many positions its head."""
    length, rows = 12, 5
    counting, sampler = Counting(Constant([0.0] * (V + 1))), SAMPLERS[name]
    method = MDLM(counting, V, (length,))
    fixed = torch.full((rows, length), -1)
    fixed[:, 3:5] = 1
    for T in (1, 4, 100):
        counting.rows, counting.heads = [], 0
        states = list(run(sampler, method, (rows, length), T, fixed=fixed, generator=torch.Generator().manual_seed(0)))
        masked = torch.stack([(s.x == V).sum() for s in states])
        assert int(states[-1].calls.sum()) == sum(counting.rows)
        assert int(masked[-1]) == 0
        if name in ("plain", "klass", "smc") or "confidence" in name:  # asks at every mask
            assert counting.heads == int(masked[:-1].sum())
        elif name == "uniformisation":  # one position a call, whether it jumps or not
            assert counting.heads == sum(counting.rows) >= rows * 10
        elif name in ("tau_leaping, corrected", "psi", "informed", "p2"):  # masked again, and asked about again
            assert counting.heads >= rows * 10
        elif "remasking" not in name:
            assert counting.heads == rows * 10  # once for each free token
            assert (states[-1].calls <= 10).all()
        else:
            revealed = sum(int(((a.x == V) & (b.x != V)).sum()) for a, b in itertools.pairwise(states))
            assert counting.heads == revealed


@torch.no_grad()
def test_uniform_noise_asks_only_where_something_is_free():
    method = Spy(METHODS["sedd, uniform"]())
    fixed = torch.tensor([[1, -1], [0, 2], [-1, -1]])
    for sampler in (Ancestral(), Euler(), TauLeaping()):
        method.asked.clear()
        states = list(run(sampler, method, (3, L), 4, fixed=fixed, generator=generators(0, 1, 2)))  # pyright: ignore[reportArgumentType]
        assert states[-1].calls.tolist() == [4, 0, 4]
        for x, _, at in method.asked:
            assert len(x) == 2
            assert at.tolist() == [[False, True], [True, True]]


@torch.no_grad()
def test_nothing_is_asked_where_all_is_given():
    everything = torch.tensor([[2, 1]])
    for name, sampler in SAMPLERS.items():
        counting = Counting(table(V + 1, L))
        (*_, state) = run(sampler, MDLM(counting, V, (L,)), (1, L), 3, fixed=everything)
        assert torch.equal(state.x, everything), name
        assert int(state.calls) == sum(counting.rows) == 0


@torch.no_grad()
def test_shorter_texts_and_numbers_of_steps():
    method = mdlm()
    for sampler in (FirstHitting(), AnyOrder(), FixedOrder()):
        assert sampler.times(method, 1000).tolist() == [2, 1, 0]
    assert AnyOrder(2).times(method, None).tolist() == [1, 0]
    assert Confidence().times(method, 1000).tolist() == [2, 1, 0]
    assert Confidence().times(method, 1).tolist() == [1, 0]
    assert len(Ancestral().times(d3pm(), None)) == 13  # not 64
    for sampler in (Ancestral(), Euler(), Confidence(), Remasking(), Remasking("loop"), TauLeaping(), Uniformisation()):
        with pytest.raises(InputError, match="`steps` is 0; it must be 1 or more"):
            sampler.times(method, 0)


# ---------------------------------------------------------------------------------- expected calls
CHOSEN = {
    "ancestral": Ancestral(),
    "ancestral, cosine": Ancestral("cosine"),
    "ancestral, argmax": Ancestral(argmax="last"),
    "euler": Euler(),
    "tau_leaping": TauLeaping(),
}


@pytest.mark.parametrize("sampler", CHOSEN)
@pytest.mark.parametrize("method", ["mdlm", "md4", "d3pm, absorbing"])
@pytest.mark.parametrize("fixed", [None, [1, -1]], ids=str)
@torch.no_grad()
def test_expected_calls_are_the_expectation_of_the_calls(sampler, method, fixed):
    """Against the calls that the code makes, over every outcome of its draws (RADD's expected function evaluations)."""
    method, sampler = METHODS[method](), CHOSEN[sampler]
    if sampler.reason_against(method) or (sampler.grid != "uniform" and method.process.T):
        return
    given = None if fixed is None else torch.tensor(fixed)
    for T in (1, 3):
        times = sampler.times(method, T)
        distributions, total = exact.sample_distributions(sampler, method, times, given), 0.0
        X = exact.states(method.process.K, L)
        start = sampler.init(method, (len(X), L), fixed=given)
        state = State(X, start.fixed, start.calls)
        for distribution, t, s in zip(distributions, times, times[1:]):
            time = (t.expand(len(X), 1), s.expand(len(X), 1))
            for new, p in exact.scripts(lambda script: sampler.step(method, state, *time, script), len(X)):  # noqa: B023
                total += float((distribution * p * new.calls).sum())
        free = L if given is None else int((given < 0).sum())
        assert sampler.expected_calls(method, times, free) == pytest.approx(total, abs=1e-9)


def test_expected_calls_where_nobody_knows():
    """Where the network has a part in it, or each token its own alpha; and no other sampler says it."""
    for title, sampler in [
        ("genmd4", Ancestral()),
        ("sedd, absorbing", Ancestral()),
        ("d3pm, uniform", Ancestral()),
        ("mdlm", Ancestral(choose=False)),
        ("mdlm", Ancestral(argmax="every")),
        ("mdlm", TauLeaping(corrector=1)),
        ("mdlm", FirstHitting()),
    ]:
        method = METHODS[title]()
        assert sampler.expected_calls(method, sampler.times(method, 4), L) is None
