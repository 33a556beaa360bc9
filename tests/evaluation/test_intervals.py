"""The two intervals cover what they say; the number is the same whoever makes it, however often it is interrupted."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import zellige
from evaluation.test_evaluate import Times, method
from testing.small import Rows
from zellige import exact
from zellige.cli.evaluate_print import describe
from zellige.core.batch import Batch
from zellige.evaluation import interval, workers
from zellige.evaluation.evaluate import evaluate_rows
from zellige.evaluation.interval import over_draws, over_texts, student
from zellige.evaluation.result import PerSequence, summarize
from zellige.methods import build
from zellige.nn.block import Net
from zellige.plugins.evaluations.steps.table import StepsTable

V, L = 3, 2


def texts(n=24, seed=5):
    return Rows(torch.randint(V, (n, L), generator=torch.Generator().manual_seed(seed)))


# --------------------------------------------------------------------------------------------------- over the draws


@pytest.fixture
def any_freedom(monkeypatch):
    """The interval of however few replicates, which is not shown to people."""
    monkeypatch.setattr(interval, "FREEDOM", 1)


def test_the_interval_over_draws_is_that_of_the_sums_of_replicates(any_freedom):
    """By hand: the mean of R sums has variance var/R; groups add; with one group it is Student's interval of the R sums."""
    g = torch.Generator().manual_seed(0)
    table = torch.randn(6, 4, generator=g, dtype=torch.float64)
    one, freedom = over_draws(table, torch.zeros(6, dtype=torch.long))
    sums = table.sum(0)
    assert one == pytest.approx(student(3) * float(sums.std()) / 2)
    assert freedom == 3
    two, freedom = over_draws(torch.cat([table, table]), torch.tensor([0] * 6 + [1] * 6))
    assert two == pytest.approx(student(6) * float(sums.std()) / 2 * math.sqrt(2))
    assert freedom == 6  # Welch's 5 x 2 - 2 is more than two groups of four replicates have
    uneven, freedom = over_draws(torch.cat([table, 2 * table]), torch.tensor([0] * 6 + [1] * 6))
    assert freedom == 5  # 5 (1 + 4)^2 / (1 + 4^2) - 2
    assert uneven == pytest.approx(student(5) * float(sums.std()) / 2 * math.sqrt(5))
    assert over_draws(table, torch.arange(6), "exact") == (0, math.inf)
    assert over_draws(table[:, :1], torch.arange(6)) == (math.inf, 0)


def test_few_replicates_give_no_interval_over_draws():
    """One or two groups of two replicates used to print ± 0.008 over the draws beside ± 0.006 over texts and draws together."""
    one = [summarize(torch.randn(16, 2), torch.ones(16), "nats/token", group=torch.zeros(16).long()) for _ in range(20)]
    for r in one:
        assert (r.draws_half, r.freedom, r.between) == (math.inf, 1, None)
        assert r.half < math.inf
        said = "\n".join(describe(replace(r, draws=4)))
        assert "over the population of texts and draws" in said
        assert "needs\n    8 degrees of freedom and has 1; take more texts or draws" in said
        assert "%" not in said.replace("95%", "")


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_whether_there_is_an_interval_over_draws_does_not_depend_on_them(spread):
    """8 groups of two replicates have an interval in each of 2,000 repeats, 7 groups in none.

    Groups differ in noise by exp(spread x normal). Outside 93 to 97% at a coverage of 95%: 5e-5 (normal, standard error 0.49%).
    Given only where Welch's estimate was 8 or more, 26% had one at a spread of 0.7, and 87% of those held.
    """
    g, group, hits = torch.Generator().manual_seed(0), torch.arange(8), 0
    for _ in range(2000):
        scale = (spread * torch.randn(8, 1, generator=g, dtype=torch.float64)).exp()
        table = scale * torch.randn(8, 2, generator=g, dtype=torch.float64)
        assert over_draws(table[:7], group[:7]) == (math.inf, 7)
        half, freedom = over_draws(table, group)
        assert 1 <= freedom <= 8
        hits += abs(float(table.mean(1).sum())) <= half
    assert 0.93 * 2000 <= hits <= 0.97 * 2000, hits


@pytest.mark.parametrize("apart", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_two_intervals_and_the_split_agree(apart, noise):
    """By construction: the squares of the half-widths add, so that none of the three can contradict another."""
    for seed in range(50):
        g = torch.Generator().manual_seed(seed)
        y = apart * torch.randn(60, 1, generator=g, dtype=torch.float64)
        y = 3 + y + noise * torch.randn(60, 4, generator=g, dtype=torch.float64)
        r = summarize(y, 1 + torch.rand(60, generator=g), "bits/char", group=torch.arange(60) // 4)
        each = r.per_sequence
        assert each is not None
        assert r.between is not None
        assert r.draws_half <= r.half
        assert each.draws_high == math.inf or each.draws_high - each.value <= each.half * (1 + 1e-12)
        assert r.draws_half**2 + r.floor**2 == pytest.approx(r.half**2)
        assert 1 - r.between == pytest.approx((r.draws_half / r.half) ** 2 if r.half else 0)


@pytest.mark.parametrize(
    ("apart", "together"),
    [
        (0.0, 0.9),
        (0.3, 0.0),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((0.0, 0.0), (0.3, 0.9), (1.0, 0.0), (1.0, 0.9))),
    ],
)
def test_the_interval_over_the_population_covers(apart, together):
    """Texts that differ by `apart`, draws of which a group's share `together` of their sum is held fixed by the strata.

    2,000 repeats of 320 texts in 20 groups of two replicates: below 93.5% at a coverage of 95%: 0.2% for each case (normal,
    standard error 0.49%); the generator is seeded, so it holds or it does not. It may be above 95%: strata make the draws err
    against each other.
    """
    g, group = torch.Generator().manual_seed(0), torch.arange(320) // 16
    hits = 0
    for _ in range(2000):
        noise = torch.randn(320, 2, generator=g, dtype=torch.float64)
        mean = torch.zeros(20, 2, dtype=torch.float64).index_add(0, group, noise) / 16
        y = apart * torch.randn(320, 1, generator=g, dtype=torch.float64) + noise - together * mean[group]
        half = over_texts((y - y.mean()).mean(1), over_draws(y, group)[0]) / 320
        hits += abs(float(y.mean())) <= half
    assert hits >= 0.935 * 2000


def covered(m, rows, draws, repeats, longer=50):
    """Of how many repeats the interval holds the value of a `longer` times longer run on the same texts."""
    truth = evaluate_rows(m, rows, draws=longer * draws, seed=10**6, batch=4096).value
    found = [evaluate_rows(m, rows, draws=draws, seed=seed, batch=4096) for seed in range(repeats)]
    return sum(r.draws_low <= truth <= r.draws_high for r in found)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mdlm", "md4"])
def test_the_interval_over_draws_covers_a_run_50_times_as_long(name, any_freedom):
    """Fewer than 53 of 60 at a coverage of 95%: 0.7%; the seeds are fixed, so it holds or it does not."""
    assert covered(method(name), texts(160), draws=4, repeats=60) >= 53


@pytest.mark.long
@pytest.mark.parametrize("name", ["mdlm", "md4", "sedd", "bd3lm"])
def test_the_interval_over_draws_covers_for_a_transformer(name, any_freedom):
    """89 to 100 of 100, for a small transformer on 48 texts of 16 tokens.

    The weights are moved from where training starts, but not far: the score entropy of wild scores has no variance to speak of.
    """
    torch.manual_seed(0)
    cls = zellige.METHODS[name]
    m = build(
        cls, 11, Net(layers=1, hidden=32, heads=2, length=16), cls.Config(**({"block": 4} if name == "bd3lm" else {}))
    )
    with torch.no_grad():
        for p in m.parameters():
            p.add_(0.1 * torch.randn_like(p))
    rows = Rows(torch.randint(11, (48, 16), generator=torch.Generator().manual_seed(1)))
    assert 89 <= covered(m, rows, draws=4, repeats=100) <= 100


def test_the_spread_of_stratified_draws_says_nothing(any_freedom):
    """The mean of the times that are drawn: s/sqrt(n) is many times as wide as its error, the replicates are right."""
    m, rows = Times(), Rows(torch.zeros(160, L, dtype=torch.long))
    runs = [evaluate_rows(m, rows, draws=4, seed=seed) for seed in range(200)]  # type: ignore[arg-type]
    error = float(torch.tensor([r.value for r in runs]).std())  # what happens when all is drawn again
    naive = (
        sum(r.half for r in runs) / len(runs) / student(159)
    )  # of the texts' means, which differ by their draws alone
    assert naive > 3 * error
    assert sum(r.draws_low <= 0.25 <= r.draws_high for r in runs) >= 180  # 0.5 in 2 tokens; below 180 of 200: 0.2%
    assert sum(r.draws_half for r in runs) / len(runs) < 3 * error


def test_the_perplexity_of_sequences():
    """exp of each text's own number; what noise lifts is what the second order says."""
    g = torch.Generator().manual_seed(0)
    sizes = torch.full((40000,), 10.0)
    y = 10 * (2 + 0.2 * torch.randn(40000, generator=g, dtype=torch.float64))
    clean = summarize(y, sizes, "nats/token", "exact").per_sequence
    assert clean is not None
    assert clean.value == pytest.approx(float((y / 10).exp().mean()))
    assert (clean.draws_low, clean.draws_high, clean.lift) == (clean.value, clean.value, 0.0)
    noisy = summarize(y[:, None] + 2 * torch.randn(40000, 2, generator=g, dtype=torch.float64), sizes, "nats/token")
    assert noisy.per_sequence is not None
    assert noisy.per_sequence.lift == pytest.approx(noisy.per_sequence.value - clean.value, abs=0.02)
    assert noisy.per_sequence.value > noisy.perplexity
    assert summarize(y, sizes, "nats/token", "loss").per_sequence is None
    empty = summarize(torch.tensor([0.0, 5.0, 6.0]), torch.tensor([0.0, 2.0, 3.0]), "nats/token")  # a row of padding
    assert empty.per_sequence == PerSequence(*[pytest.approx(v) for v in _two()], None)  # type: ignore[arg-type]


def _two():
    each = torch.tensor([2.5, 2.0]).double().exp()
    half = student(1) * float(each.std()) / math.sqrt(2)
    return float(each.mean()), float(each.mean()) - half, float(each.mean()) + half, -math.inf, math.inf


# ------------------------------------------------------------------------------------------- what may be left out of it


def test_the_step_bound_of_a_continuous_model_is_that_of_the_enumeration(any_freedom):
    """MD4's ablation: the T-step bound on the grid, drawn."""
    for name in ("mdlm", "md4"):
        m, x = method(name), exact.states(V, L)
        found = [evaluate_rows(m, Rows(x), draws=1024, seed=2, steps=T, batch=4096) for T in (1, 4, 16)]
        for r, T in zip(found, (1, 4, 16)):
            with torch.no_grad():
                truth = float(exact.step_bound(m, x, m.grid(T)).mean()) / L
            assert abs(r.value - truth) <= 2 * r.draws_half + 1e-12 < 0.3
            text = f"{T} steps: the first and the last of every sequence, of the {T - 2} others one drawn evenly (stratified)"
            text = f"{T} steps (stratified)" if name == "mdlm" else text  # which draws numbers of masks
            assert r.protocol["time"] == ("one step of every sequence" if T == 1 else text)
        assert m.steps == 0


@pytest.mark.parametrize("name", ["mdlm", "md4", "sedd"])
def test_times_from_t_min_are_the_published_estimate(name, any_freedom):
    """The mean of the diffusion term over t in [t_min, 1], integrated; no bound, and said so."""
    m, x = method(name), exact.states(V, L)
    u, weight = exact.quadrature()
    for t_min in (1e-3, 0.2):
        r = evaluate_rows(m, Rows(x), draws=1024, seed=2, t_min=t_min, ends="none", batch=4096)
        with torch.no_grad():
            truth = float((weight @ exact.expected(m, x, t_min + (1 - t_min) * u, None)).mean()) / L
        assert abs(r.value - truth) <= r.draws_half < 0.25
        assert r.kind == "estimate"
        assert str(r).startswith("≈ ")
        assert r.protocol["time"] == f"t in [{t_min:g}, 1] (stratified), without the ends of time"
    r = evaluate_rows(m, Rows(x), draws=64, ends="none")
    assert set(r.terms) == {"diffusion"}
    assert evaluate_rows(m, Rows(x), draws=64).terms["diffusion"] == r.terms["diffusion"]


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("d3pm", {"process": "uniform", "diffusion_steps": 8, "last": "image"}),
        ("md4", {"diffusion_steps": 8}),
        ("genmd4", {}),
    ],
)
def test_the_ends_as_published_are_another_number_and_said_so(name, choices):
    """By little, since little happens there; of D3PM they are those of the image code, which its own `log_eps` gives too."""
    cls = zellige.METHODS[name]
    m = build(cls, V, Net(layers=1, hidden=8, heads=1, length=L), cls.Config(**choices)).double().eval()
    ours, theirs = (evaluate_rows(m, Rows(exact.states(V, L)), draws=256, ends=ends) for ends in ("model", "published"))
    assert (ours.kind, theirs.kind, theirs.protocol["ends"]) == ("bound", "estimate", "published")
    assert "the ends as published" in theirs.protocol["time"]
    assert theirs.value == pytest.approx(ours.value, abs=0.05)
    assert theirs.value != ours.value
    assert "ends-published" in theirs.file_name
    if name == "d3pm":
        image = build(cls, V, Net(layers=1, hidden=8, heads=1, length=L), cls.Config(**choices, log_eps=1e-6))
        image.double().load_state_dict(m.state_dict())
        again = evaluate_rows(image.eval(), Rows(exact.states(V, L)), draws=256)
        assert (again.value, again.kind) == (theirs.value, "estimate")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "ar",
            {"steps": 4},
            "`steps` is for a bound of T steps, and ar has no time; leave it out",
        ),
        (
            "d3pm",
            {"steps": 1001},
            "1,001 steps are more than the 1,000 of d3pm; use 1,000 or fewer",
        ),
        (
            "mdlm",
            {"grid": "cosine"},
            "`grid` cosine is for a bound of T steps; give `steps`, too",
        ),
        (
            "mdlm",
            {"grid": "0.05", "steps": 4},
            "the bound of T steps has the grid uniform, cosine, log-snr or auto, not 0.05",
        ),
        (
            "mdlm",
            {"ends": "published"},
            "`ends` published is for those of the code of MD4, GenMD4 and D3PM, and that of mdlm leaves them out; "
            "use model or none",
        ),
        (
            "ar",
            {"ends": "published"},
            "`ends` published is for those of the code of MD4, GenMD4 and D3PM, and ar has no time; use model or none",
        ),
        ("mdlm", {"ends": "paper"}, "unknown ends 'paper'; all of them: model, jumps, none, published"),
        ("mdlm", {"processes": 0}, "`processes` is 0; it must be 1 or more"),
    ],
)
def test_wrong_input(name, options, message):
    with pytest.raises(zellige.InputError) as error:
        evaluate_rows(build(zellige.METHODS[name], V, Net(layers=1, hidden=8, heads=1, length=L)), texts(), **options)
    assert str(error.value) == message


# ----------------------------------------------------------------------------------------------- whoever makes the number


@pytest.mark.parametrize("draws", [4, 100])
def test_the_number_does_not_depend_on_the_processes(draws):
    m, rows = method(), texts(40 if draws == 4 else 5)
    one = evaluate_rows(m, rows, draws=draws, seed=3)
    told = []
    two = evaluate_rows(m, rows, draws=draws, seed=3, processes=2, batch=7, progress=lambda *a: told.append(a))
    assert two.value == pytest.approx(one.value, abs=1e-12)
    assert (two.low, two.draws_low) == pytest.approx((one.low, one.draws_low), abs=1e-12)
    assert told[-1] == (len(rows), len(rows))


def test_an_interrupted_evaluation_goes_on_to_the_same_bits(tmp_path):
    m, rows = method(), texts(100)
    whole = evaluate_rows(m, rows, seed=3)
    asked = []

    def interrupt(done, total):
        asked.append(done)
        if done >= 48:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_rows(m, rows, seed=3, keep=tmp_path, progress=interrupt)
    (file,) = tmp_path.iterdir()
    assert len(file.read_text().split()) > 0
    with file.open("a") as cut:
        cut.write('[4, {"terms": {"diff')  # the machine went down here
    told = []
    other = evaluate_rows(m, rows, seed=4, keep=tmp_path, progress=lambda done, _: told.append(done))
    assert told == [16, 32, 48, 64, 80, 96, 100]  # another protocol mixes nothing in
    assert other.value != whole.value
    network, calls = m.network.features, []
    m.network.features = lambda *a, **k: calls.append(len(a[0])) or network(*a, **k)
    again = evaluate_rows(m, rows, seed=3, keep=tmp_path)
    del m.network.features
    assert (again.value, again.low, again.draws_low, again.terms) == (
        whole.value,
        whole.low,
        whole.draws_low,
        whole.terms,
    )
    assert sum(calls) == sum(
        4 * n for n in (16, 16, 16, 4)
    )  # four groups of seven; the ends are other weights of the same
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_line_of_what_is_done_counts_for_nothing(tmp_path):
    keep, one, two = workers.ResultCache(tmp_path, "k"), {"terms": [0.25, 3.5]}, {"terms": [0.5]}
    keep.add(0, one)
    keep.add(1, two)
    keep.close()
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    for before, after in (("0.25", "0.75"), ("group", "grouq"), ('{"group": 0', '{"group": 2'), ("3.5]", "3.5}")):
        file.write_text(whole.replace(before, after, 1))
        assert workers.ResultCache(tmp_path, "k").results == {1: two}, before


def test_a_changed_model_or_text_is_another_evaluation(tmp_path):
    def name(m, rows, **options):
        with pytest.raises(KeyboardInterrupt):
            evaluate_rows(m, rows, keep=tmp_path, progress=_stop, **options)
        (file,) = tmp_path.iterdir()
        file.unlink()
        return file.name

    m, rows = method(), texts(40)
    first = name(m, rows)
    assert name(m, rows) == first
    assert name(m, rows, batch=5) == first  # a matter of memory
    others = [name(m, rows, seed=1), name(m, rows, draws=2), name(m, rows, t_min=0.1), name(m, texts(40, seed=6))]
    with torch.no_grad():
        m.network.logits[0] += 1e-9
    assert len({first, *others, name(m, rows)}) == 6


def _stop(done, total):
    raise KeyboardInterrupt


RANK = """
import json, sys, torch
sys.path[:0] = {folders!r}
from evaluation.test_evaluate import method
from evaluation.test_intervals import texts
from zellige.evaluation.evaluate import evaluate_rows
r = evaluate_rows(method(), texts(100), seed=3, distributed=True)
print(json.dumps([r.value, r.low, r.draws_low]))
"""


@pytest.mark.long
def test_ranks_of_torchrun_share_the_groups():
    one = evaluate_rows(method(), texts(100), seed=3)
    code = RANK.format(folders=[str(folder) for folder in Path(__file__).resolve().parents[:2]])
    environment = os.environ | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for process in started:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(out.splitlines()[-1]) == [one.value, one.low, one.draws_low]


def test_gathered_in_order_with_nothing_kept():
    assert workers.gather_results(lambda i: {"square": i * i}, 4) == [{"square": i * i} for i in range(4)]
    assert Batch(torch.zeros(1, 2, dtype=torch.long)).mask is None


def test_the_steps_that_others_are_compared_with_are_the_most_or_continuous_time():
    """Numbers of steps in no order, with results of unequal values and seconds."""
    sizes = torch.tensor([3.0, 5.0])
    results = [
        replace(summarize(torch.tensor([[a, a + 1.0], [2.0, 2.5]]), sizes, "nats/token"), seconds=seconds)
        for a, seconds in ((5.0, 1.5), (3.0, None), (4.0, 0.25))
    ]
    table = StepsTable((2, 8, 4), tuple(results))
    assert table.reference is results[1]
    assert [None if one is None else one.value for one in table.apart] == [
        pytest.approx(2 / 8),
        None,
        pytest.approx(1 / 8),
    ]
    assert table.to_dict()["seconds"] == 1.75
    assert StepsTable((2, 8, 0), tuple(results)).reference is results[2]
