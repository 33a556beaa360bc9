"""The comparison: what it writes, that it can be stopped and goes on, and its statistics against enumeration and simulation."""

import io
import itertools
import json
import math
import os
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import zellige
import zellige.plugins.studies.compare.command
from zellige import Data, InputError, Net, Train, cli, exact
from zellige.base.schema import entries_of, structure
from zellige.core.curves import Linear
from zellige.core.random import mix
from zellige.data.prepare import prepare
from zellige.evaluation.interval import student
from zellige.evaluation.ngram import NGrams
from zellige.evaluation.result import determined, difference, summarize
from zellige.methods import build
from zellige.methods.mdlm import MDLM
from zellige.papers.tables import TABLES
from zellige.plugins.evaluations.generate.sample_sets import Way, by_name
from zellige.plugins.evaluations.steps.table import StepsTable
from zellige.plugins.report.palette import as_svg
from zellige.plugins.studies.compare import comparison, entrant, figure, table
from zellige.plugins.studies.compare import comparison as comparer
from zellige.plugins.studies.compare import reference as judge
from zellige.plugins.studies.compare.measure import Settings, measure_method, measurement_key, steps_within
from zellige.plugins.studies.compare.record import Bound, Findings
from zellige.show.record import dumps
from zellige.show.terminal import Terminal
from zellige.training.requests import Training
from zellige.training.setup import SIZES
from zellige.training.signals import Stopped

NET = Net(layers=1, hidden=16, heads=2, length=8, conv=3)
CALLS = (2, 4)


def tokens(rows: int = 160, vocabulary: int = 7, length: int = 8) -> torch.Tensor:
    return torch.randint(0, vocabulary, (rows, length), generator=torch.Generator().manual_seed(5))


def settings(**more) -> Train:
    usual = {
        "steps": 4, "batch": 4, "lr": 1e-2, "warmup": 0, "validate_every": 2, "validate_rows": 4, "log_every": 1,
        "samples": 0, "tensorboard": False, "device": "cpu",
    }  # fmt: skip
    return Train(**(usual | more))


def go(folder, methods=("mdlm", "sedd:process=uniform"), **more):
    usual = {
        "data": Data.of(tokens(), vocabulary=7, test=0.3), "net": NET, "train": settings(), "calls": CALLS,
        "samples": 6, "draws": 2,
    }  # fmt: skip
    return zellige.compare(list(methods), run=folder, **(usual | more))


def read(entries: dict[str, Any], kind: Any) -> Any:
    return structure(entries, kind, "it", strict=False)


def files(folder) -> dict[str, bytes]:
    return {end: (folder / f"compare.{end}").read_bytes() for end in ("json", "md", "svg")}


def timeless(plain):
    """A result without what a clock has measured, and without the folder it lies in."""
    if isinstance(plain, dict):
        clocks = ("seconds", "tokens_per_second", "folder")
        return {k: timeless(v) for k, v in plain.items() if k not in clocks}
    return [timeless(v) for v in plain] if isinstance(plain, list) else plain


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare") / "c"
    return go(folder)


# ---------------------------------------------------------------------------------------------------- end to end
@pytest.mark.parametrize(
    ("names", "times"),
    [
        ("mdlm bd3lm ar", "middle"),
        ("ar bd3lm mdlm", "middle"),
        ("ar mdlm", "middle"),
        ("mdlm flexmdm", "stratified"),
        ("tauldr mdlm", "stratified"),
        ("ar ar", "stratified"),
    ],
)
def test_all_of_a_comparison_draw_their_times_alike_in_any_order(names, times):
    methods = [zellige.METHODS[name] for name in names.split()]
    for order in (methods, methods[::-1]):
        assert SIZES["tiny"].of("pydocs", *order)[1].times == times
    assert SIZES["tiny"].of("sudoku", *methods)[1].times == "stratified"


def test_each_method_is_a_run_and_its_bound_that_of_evaluate(done):
    for row in done.plain["result"]["methods"]:
        model = zellige.load(done.folder / row["folder"])
        corpus = prepare(Data.of(tokens(), vocabulary=7, test=0.3), 8)
        again = zellige.evaluate(model, corpus, draws=2, seed=0)
        assert (row["bound"]["value"], row["bound"]["low"], row["bound"]["high"]) == (
            again.value,
            again.low,
            again.high,
        )
        assert row["parameters"] == sum(p.numel() for p in model.method.parameters())


def test_samples_are_those_of_the_methods_sampler_and_judged_by_the_train_split(done):
    corpus = prepare(Data.of(tokens(), vocabulary=7, test=0.3), 8)
    grams = NGrams(corpus.train.array(), corpus.validation.array(), 7, 5)
    for row in done.plain["result"]["methods"]:
        model = zellige.load(done.folder / row["folder"])
        assert [q["asked"] for q in row["quality"]] == list(CALLS)
        for q in row["quality"]:
            seed = zellige.core.random.mix(0, "compare")
            frames = zellige.watch(model, count=6, steps=q["steps"], seed=seed)
            drawn = zellige.sampling.samples.collect(frames)
            assert q["value"] == pytest.approx(grams.nats(np.array(drawn.tokens)).sum() / 48, rel=1e-12)
            assert q["calls"] == pytest.approx(np.mean(drawn.calls))
            assert q["example"] == drawn.texts[0]


def test_the_best_is_first_and_the_page_has_the_numbers_of_the_json(done):
    result = json.loads((done.folder / "compare.json").read_text())["result"]
    values = [row["bound"]["value"] for row in result["methods"]]
    assert values == sorted(values)
    page = (done.folder / "compare.md").read_text()
    for row in result["methods"]:
        low, high = row["bound"]["low"], row["bound"]["high"]  # null where few draws count, as of uniform noise here
        half = "?" if low is None else f"{(high - low) / 2:.3f}"
        cells = [
            f"≤ {row['bound']['value']:.3f} ± {half}",
            row["letters"],
            *(f"{q['value']:.2f}" for q in row["quality"]),
        ]
        assert f"| {row['method']} | {row['variant']} | {' | '.join(cells)} |" in page
    svg = (done.folder / "compare.svg").read_text()
    assert all(row["label"] in svg for row in result["methods"])


def test_the_table_fits_100_columns_and_says_all_of_it(done):
    lines = str(done).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].split() == "tokens test same judge, nats/token, at evaluations entropy training".split()  # noqa: SIM905
    assert lines[1].split()[:2] == ["method", "variant"]
    assert {line.split()[0] for line in lines[2:4]} == {"mdlm", "sedd"}
    assert lines[4].startswith("real text")


def test_a_second_call_measures_nothing_and_writes_the_same(done, monkeypatch):
    before = files(done.folder)
    monkeypatch.setattr(comparer, "measure_method", None)
    monkeypatch.setattr(comparer, "judge_of", None)
    assert str(go(done.folder)) == str(done)
    assert files(done.folder) == before


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A comparison of two methods on a file."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("the cat sat on the mat and looked at the moon and the sun. " * 60)
    data = Data("text", path=str(folder / "a.txt"), tokenizer="characters", pack="wrap", cache=str(folder / "cache"))
    return go(folder / "c", data=data, net=replace(NET, length=16)), data


def test_trained_runs_are_compared_as_they_are(texts, tmp_path, monkeypatch):
    """They were trained again, or "unknown method". The same numbers, whatever folder the comparison is in."""
    made, _ = texts
    monkeypatch.setattr(Training, "run", lambda *_: pytest.fail("trained"))
    monkeypatch.chdir(made.folder.parent)
    folders = ["c/sedd-uniform", made.folder / "mdlm"]
    again = zellige.compare(folders, run=tmp_path / "new", calls=CALLS, samples=6, draws=2)
    for row, before in zip(again.findings.methods, made.findings.methods, strict=True):
        assert (again.folder / row.folder).resolve() == (made.folder / before.folder).resolve()
        assert row.label == row.variant == f"c/{before.folder}"
        same = ("method", "bound", "quality", "letters", "parameters", "steps", "sampler")
        assert all(getattr(row, name) == getattr(before, name) for name in same)
    assert again.findings.reference == made.findings.reference
    for wrong, message in (
        ({"net": NET}, "`net` is for methods that are trained, and these runs are; leave it out"),
        ({"train": settings()}, "`train` is for methods that are trained"),
        ({"seeds": 2}, "`seeds` is for methods that are trained"),
    ):
        with pytest.raises(InputError, match=message):
            zellige.compare(folders, run=tmp_path / "wrong", **wrong)
    with pytest.raises(InputError, match="is trained and 'mdlm' is not; compare methods, or runs"):
        zellige.compare([*folders, "mdlm"], run=tmp_path / "wrong")


def test_runs_of_other_rows_are_not_compared(texts, tmp_path):
    made, data = texts
    other = zellige.train("mdlm", data=data, net=NET, train=settings(steps=1), run=tmp_path / "b").folder
    with pytest.raises(InputError, match=r"b' and '.*mdlm' have other lengths; compare runs whose texts are cut into"):
        zellige.compare([made.folder / "mdlm", other], run=tmp_path / "c")


def test_from_the_command_line_the_preset_is_that_of_train(tmp_path, monkeypatch):
    """Each option alone: `compare` took 6 layers of 256 for all that was not typed, which is hours on a CPU."""
    from zellige.plugins.studies.compare.command import compare
    from zellige.plugins.studies.compare.request import Compare

    def asked(words: str) -> Compare:
        with pytest.raises(ZeroDivisionError):
            compare(["mdlm", "md4", *words.split()], Terminal(quiet=True), 0.0)
        return requests.pop()

    requests: list[Compare] = []
    monkeypatch.setattr(Compare, "run", lambda self, _: requests.append(self) or 1 / 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for size in ("tiny", "base"):
        chosen, (net, train) = (
            f"--size {size}" if size != "tiny" else "",
            SIZES[size].of("pydocs", zellige.METHODS["mdlm"]),
        )
        assert (asked(chosen).net, asked(chosen).train, asked(chosen).size) == (net, train, size)
        assert asked(f"{chosen} --net.hidden 96").net == replace(net, hidden=96)
        assert asked(f"{chosen} --net.hidden 96").train == train
        assert asked(f"{chosen} --lr 0.004").train == replace(train, lr=0.004)
        by_adamw = replace(SIZES[size].train, times=train.times)  # with its own rate
        assert asked(f"{chosen} --train.optimizer adamw").train == by_adamw
        assert asked(f"{chosen} --train.steps 7").train == replace(train, steps=7, minutes=0.0)
        assert asked(f"{chosen} --train.minutes 7").train == replace(train, minutes=7.0)
    images = asked("--data.name mnist")
    assert (images.net, images.train) == (SIZES["tiny"].image_net, SIZES["tiny"].image_train)
    assert asked("bd3lm --data.name mnist").net.kind == "dit"


def test_all_take_the_steps_that_fit_for_the_slowest(tmp_path, monkeypatch):
    slow = {"mdlm": 0.06, "md4": 0.11}
    monkeypatch.setattr(
        "zellige.training.forecast.seconds_per_row", lambda method, *_, **__: slow[type(method).__name__.lower()]
    )
    screen = io.StringIO()
    how = {"train": settings(steps=470, minutes=1.0, validate_every=0), "methods": ("mdlm", "md4")}
    found = go(tmp_path / "c", terminal=Terminal(err=screen), **how).findings
    said = screen.getvalue().splitlines()
    assert said[0].startswith("note: 2 trainings of 100 of 470 steps will take about 1 minute in all on this CPU")
    assert said[0].endswith("at its current load; for all steps: `train.minutes` 0")
    assert [row.steps for row in found.methods] == [100, 100]  # mdlm alone: 200
    slow.update(mdlm=1e-9, md4=1e-9)
    assert go(tmp_path / "c", **how).findings.methods == found.methods


def test_a_measurement_is_of_these_weights(done, tmp_path):
    """A copy's numbers are kept, those of other weights are not."""
    import shutil

    corpus, runs = prepare(Data.of(tokens(), vocabulary=7, test=0.3), NET.length), sorted(done.folder.glob("*/"))
    runs = [run for run in runs if any(run.rglob("*.safetensors"))]
    assert len(runs) == 2
    copy = shutil.copytree(runs[0], tmp_path / "copy", symlinks=True)
    keys = [measurement_key(run, corpus, Settings(CALLS)) for run in (runs[0], copy, runs[1])]
    assert keys[0] == keys[1] != keys[2]


def test_another_number_of_samples_measures_again_and_trains_nothing(done, tmp_path, monkeypatch):
    import shutil

    folder = shutil.copytree(done.folder, tmp_path / "c", symlinks=True)
    weights = {p: p.stat().st_mtime_ns for p in folder.rglob("*.safetensors")}
    again = go(folder, samples=5)
    assert again.plain["result"]["methods"][0]["quality"][0]["samples"] == 5
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*.safetensors")} == weights


def test_samplers_at_equal_network_evaluations(done, tmp_path, monkeypatch):
    """Each method by those that it supports, with options, never above the evaluations asked for; nothing is trained again."""
    import shutil

    folder = shutil.copytree(done.folder, tmp_path / "c", symlinks=True)
    again = lambda training, _: SimpleNamespace() if training.resume else pytest.fail("trained")  # noqa: E731
    monkeypatch.setattr(Training, "run", again)
    names = ("ancestral", "remasking:eta=0.1", "informed:corrections=2")
    found = go(folder, samplers=names, calls=(4, 9)).findings
    rows = {row.method: row for row in found.methods}
    assert [by.sampler for by in rows["mdlm"].by_sampler] == [*names]
    assert [by.sampler for by in rows["sedd"].by_sampler] == [names[0], names[2]]
    for row in rows.values():
        assert row.by_sampler[0].quality == row.quality  # the method's own
        informed = row.by_sampler[-1].quality
        assert [quality.steps for quality in informed] == [1, 3]
        assert all(quality.calls <= quality.asked for by in row.by_sampler for quality in by.quality)
        model = zellige.load(folder / row.folder)
        drawn = zellige.sample(
            model, count=6, steps=3, sampler="informed", corrections=2, seed=mix(0, "compare"), defaults=False
        )
        assert drawn[0] == informed[1].example
    lines = table.terminal_lines(found)
    assert sum("informed:corrections=2" in line and line.startswith(("mdlm", "sedd")) for line in lines) == 2
    assert "| mdlm | - | remasking:eta=0.1 |" in (folder / "compare.md").read_text()
    assert "informed:corrections=2" in (folder / "compare.svg").read_text()
    monkeypatch.setattr(comparer, "measure_method", None)
    assert go(folder, samplers=names, calls=(4, 9)).findings == found
    with pytest.raises(InputError, match=r"^no method here supports the sampler metropolis; leave it out"):
        go(folder, samplers=("metropolis",))


def test_both_evaluations_of_self_conditioning_count():
    """Samples at as many evaluations took twice as many."""
    net = Net(layers=1, hidden=16, heads=2, length=16, self_condition=True)
    method = build(MDLM, 5, net, MDLM.Config(), 16)
    for sampler, steps in (("ancestral", 4), ("ancestral:estimate=carried", 8), ("informed:corrections=1", 2)):
        assert steps_within(method, by_name(sampler, Way()), 8, 1) == steps


def test_a_part_of_the_texts_has_its_own_files_and_says_so(done, tmp_path, monkeypatch):
    """`--limit` wrote over the table of all texts, and over what had been measured for it."""
    import shutil

    folder = shutil.copytree(done.folder, tmp_path / "c", symlinks=True)
    names = ("compare.json", "compare.md", "compare.svg", "measured.json")
    full = {name: (folder / name).read_bytes() for name in names}
    part = go(folder, limit=4)
    assert part.name == "compare-limit-4"
    assert {name: (folder / name).read_bytes() for name in names} == full
    plain = json.loads((folder / "compare-limit-4.json").read_text())
    assert plain["result"]["partial"] == "4 of 48, evenly spaced"
    assert done.plain["result"]["partial"] is None
    assert "a partial result: bounds of 4 of 48, evenly spaced" in str(part).splitlines()
    page = (folder / "compare-limit-4.md").read_text()
    assert "- a partial result: bounds of 4 of 48, evenly spaced\n" in page
    assert "](compare-limit-4.svg)" in page
    assert (folder / "compare-limit-4.svg").is_file()
    assert go(folder, limit=48).name == "compare"  # all of them
    monkeypatch.setattr(comparer, "measure_method", None)
    monkeypatch.setattr(comparer, "judge_of", None)
    assert str(go(folder, limit=4)) == str(part)  # kept beside the other one


def test_the_command(tmp_path, monkeypatch, capsys):
    """The table on stdout, the rest on stderr, the record in --json; --quiet and a second call print the table alone."""
    monkeypatch.chdir(tmp_path)
    np.save("t.npy", tokens().numpy())
    words = shlex.split(
        "compare mdlm sedd:process=uniform --run c --data.name tokens --data.path t.npy --data.vocabulary 7 --data.test 0.3 "
        "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 8 --train.steps 2 --train.batch 4 --train.validate-rows 4 "
        "--train.samples 0 --train.device cpu --calls 2 4 --samples 4 --draws 2 --seed 3 --json c.json"
    )
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    record = json.loads((tmp_path / "c.json").read_text())
    assert record == json.loads((tmp_path / "c/compare.json").read_text())
    assert (record["command"], record["seed"], record["unit"]) == ("compare", 3, "nats/token")
    assert record["arguments"]["methods"] == ["mdlm", "sedd:process=uniform"]
    loaded = zellige.Record.load("c/compare.json")
    assert (loaded.folder, loaded.name, loaded.findings) == (Path("c"), "compare", read(record["result"], Findings))
    assert loaded.request.data == zellige.Data("tokens", path="t.npy", vocabulary=7, test=0.3)
    assert out.splitlines()[:-1] == table.terminal_lines(read(record["result"], Findings))
    assert out.splitlines()[-1] == "  written   c/compare.json   c/compare.md   c/compare.svg"
    assert "1 of 2  mdlm" in err
    assert f"zellige sample c/{record['result']['methods'][0]['folder']} --watch" in err
    assert cli.main([*words, "--quiet"]) == 0
    assert capsys.readouterr() == (out, "")


# ---------------------------------------------------------------------------------------------------- interrupted
class Fragile(MDLM):
    """MDLM with a Ctrl-C in the third step of its training, if `strike`."""

    name = "fragile"
    strike, calls = False, 0

    def loss(self, batch, generator=None):
        Fragile.calls += 1
        if Fragile.strike and Fragile.calls == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().loss(batch, generator)


@pytest.fixture
def interruptible():
    """Ctrl-C is heeded here, also where whoever runs the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_was_interrupted_goes_on_with_the_same_numbers(tmp_path, monkeypatch, interruptible):
    methods = ["mdlm", Fragile]
    monkeypatch.setattr("zellige.training.session.forecast", lambda *_, **__: [])  # it calls the loss too
    monkeypatch.setattr(Fragile, "calls", 0)
    whole = go(tmp_path / "whole", methods)
    monkeypatch.setattr(Fragile, "strike", True)
    monkeypatch.setattr(Fragile, "calls", 0)
    with pytest.raises(Stopped) as stop:
        go(tmp_path / "parts", methods)
    assert stop.value.code == 130
    assert stop.value.step == 3  # the first method is finished, the second stands at step 3
    assert set(json.loads((tmp_path / "parts/measured.json").read_text())) == {"checksum", "data", "mdlm"}
    assert not (tmp_path / "parts/compare.json").exists()
    parts = go(tmp_path / "parts", methods)
    assert Fragile.calls == 4
    assert timeless(parts.plain) == timeless(whole.plain)


def test_stopped_while_measuring(tmp_path, monkeypatch):
    def stopped(model, *how):
        if model.config.method == "sedd":
            raise KeyboardInterrupt
        return measure_method(model, *how)

    with monkeypatch.context() as patch:
        patch.setattr(comparer, "measure_method", stopped)
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "c")
    again = go(tmp_path / "c")
    assert timeless(again.plain) == timeless(go(tmp_path / "whole").plain)


# ---------------------------------------------------------------------------------------------------- letters
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_two_methods_share_a_letter_exactly_if_they_are_not_told_apart(n):
    pairs = list(itertools.combinations(range(n), 2))
    for bits in itertools.product([False, True], repeat=len(pairs)):
        same = {pair for pair, bit in zip(pairs, bits) if bit}
        found = table.letters(n, lambda i, j, same=same: (min(i, j), max(i, j)) in same)
        assert all(found)
        assert found[0].startswith("a")
        for i, j in pairs:
            assert bool(set(found[i]) & set(found[j])) == ((i, j) in same)


def test_two_whose_difference_may_be_zero_share_a_letter():
    sizes = torch.ones(4)
    first, near, far = (
        summarize(torch.tensor(nats), sizes, "nats/token", "exact")
        for nats in ([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.1], [2.0, 3.0, 4.0, 5.1])
    )
    for second, letters in ((near, ["a", "a"]), (far, ["a", "b"])):
        (pair,), names = comparison.differences([("one", [first]), ("other", [second])])
        assert pair.value > 0
        assert (pair.same, names) == (letters[1] == "a", letters)


def test_letters_come_from_paired_differences():
    """Two methods whose intervals overlap widely are told apart where they differ on every text alike."""
    noise = torch.Generator().manual_seed(0)
    texts = 5 * torch.randn(200, generator=noise, dtype=torch.float64) + 100
    small = torch.randn(200, generator=noise, dtype=torch.float64) * 0.1
    sizes = torch.full((200,), 10.0)
    made = [summarize(nats, sizes, "nats/token") for nats in (texts, texts + small, texts + 0.5)]
    assert made[2].low < made[0].high
    pairs, found = comparison.differences([(name, [result]) for name, result in zip("abc", made)])
    assert found == ["a", "a", "b"]
    assert [pair.same for pair in pairs] == [True, False, False]
    gap = difference(made[2], made[0])
    last = pairs[1]
    assert (last.method, last.minus, last.value, last.low) == ("c", "a", gap.value, gap.low)


def test_an_undetermined_bound_is_told_apart_from_no_other():
    """Nor the mean over seeds of which one is; the same in measured.json."""
    noise, sizes = torch.Generator().manual_seed(0), torch.ones(64)
    draws = (3 * torch.randn(64, 4, generator=noise, dtype=torch.float64)).exp()
    b = determined(summarize(draws, sizes, "nats/token", draws=4), draws.square().mean(1))
    a = summarize(torch.full((64, 4), 0.001), sizes, "nats/token")
    assert b.undetermined
    back = read(json.loads(dumps(entries_of(Bound.of(b)))), Bound).result()
    for result in (b, back):
        assert difference(result, a).half == difference(a, result).half == math.inf
        for several in ([result], [result, a, a]):
            (pair,), letters = comparison.differences([("a", [a] * len(several)), ("b", several)])
            assert (pair.low, pair.high, letters) == (-math.inf, math.inf, ["a", "a"])
    steps = StepsTable((4, 0), (a, b))
    assert steps.apart[0].half == math.inf  # pyright: ignore


# ---------------------------------------------------------------------------------------------------- several seeds
def test_an_interval_over_texts_is_never_narrower_than_that_over_seeds():
    """Seeds that disagree although every text of each agrees: t of two degrees of freedom, by hand."""
    sizes = torch.ones(50)
    texts = torch.linspace(1, 2, 50, dtype=torch.float64)
    first = [summarize(texts, sizes, "nats/token", "exact")] * 3
    second = [summarize(texts + gap, sizes, "nats/token", "exact") for gap in (0.1, 0.2, 0.6)]
    (pair,), letters = comparison.differences([("one", first), ("other", second)])
    assert pair.value == pytest.approx(0.3)
    deviation = math.sqrt((0.2**2 + 0.1**2 + 0.3**2) / 2)
    assert pair.high - pair.value == pytest.approx(4.302653 * deviation / math.sqrt(3), rel=1e-6)
    assert letters == ["a", "a"]
    shifted = [summarize(texts + i, sizes, "nats/token", "exact") for i in range(3)]  # paired by seed
    worse = [summarize(texts + i + 0.1, sizes, "nats/token", "exact") for i in range(3)]
    assert comparison.differences([("one", shifted), ("other", worse)])[1] == ["a", "b"]


def test_seeds_are_runs_of_their_own_and_their_mean_is_in_the_table(done, tmp_path):
    import shutil
    import statistics

    folder = shutil.copytree(done.folder, tmp_path / "c", symlinks=True)
    several = go(folder, seeds=3)
    plain = several.plain["result"]
    assert plain["seeds"] == [0, 1, 2]
    before = {row["method"]: row["bound"]["value"] for row in done.plain["result"]["methods"]}
    measured = json.loads((folder / "measured.json").read_text())
    for row in plain["methods"]:
        runs = [folder / f"{row['folder']}{end}" for end in ("", "-seed-1", "-seed-2")]
        assert [json.loads((run / "config.json").read_text())["train"]["seed"] for run in runs] == [0, 1, 2]
        values = [measured[run.name]["bound"]["value"] for run in runs]
        assert row["seeds"] == values
        assert len(set(values)) == 3
        assert values[0] == before[row["method"]]
        assert row["bound"]["value"] == pytest.approx(statistics.mean(values))
        judged = [measured[run.name]["quality"][1]["value"] for run in runs]
        assert row["quality"][1]["value"] == pytest.approx(statistics.mean(judged))
        line = next(
            line for line in str(several).splitlines() if line.startswith(row["label"] + " ") and "≤" not in line
        )
        mean, deviation, over_seeds = map(float, line.removeprefix(row["label"]).split()[:3])
        assert mean == pytest.approx(statistics.mean(values), abs=6e-4)
        assert deviation == pytest.approx(statistics.stdev(values), abs=6e-4)
        assert over_seeds == pytest.approx(4.302653 * statistics.stdev(values) / math.sqrt(3), abs=6e-4)
        assert line.split()[1] in (folder / "compare.md").read_text()
    assert max(map(len, str(several).splitlines())) <= 100
    assert "and over the seeds" in str(several)
    assert str(go(folder)) == str(done)  # one seed again: its own run


def test_the_band_of_real_text_is_that_of_the_mean_of_so_many_texts():
    corpus = prepare(Data.of(tokens(), vocabulary=7, test=0.3), 8)
    grams = judge.Grams(corpus, "bits/token")
    rates = grams.grams.nats(corpus.test.array()) / 8 / math.log(2)
    assert len(rates) == 48
    for count in (12, 48, 100):
        reference = grams.reference(count)
        half = student(47) * rates.std(ddof=1) / math.sqrt(count)
        assert reference.band == pytest.approx((rates.mean() - half, rates.mean() + half), rel=1e-9)
        assert (reference.value, reference.rows) == (pytest.approx(rates.mean()), 48)


# ---------------------------------------------------------------------------------------------------- the data's law
def test_floor_is_the_expectation_over_all_outcomes():
    law, n = np.array([0.5, 0.3, 0.15, 0.05]), 5
    total = 0.0
    for draw in itertools.product(range(4), repeat=n):
        share = np.bincount(draw, minlength=4) / n
        total += law[list(draw)].prod() * np.abs(share - law).sum() / 2
    assert judge.floor(law, n) == pytest.approx(total, abs=1e-12)


def test_floor_and_its_band_against_simulation():
    """20,000 simulations: their mean is within 5 standard errors of the floor (chance of failing: 6e-7), and no more than 5%
    of them (and 5 standard errors) lie outside of the band."""
    random = np.random.default_rng(0)
    law = random.random(81) ** 3
    law /= law.sum()
    n, times = 300, 20_000
    found = np.abs(random.multinomial(n, law, times) / n - law).sum(1) / 2
    assert abs(found.mean() - judge.floor(law, n)) < 5 * found.std() / math.sqrt(times)
    corpus: Any = SimpleNamespace(rows={})
    low, high = judge.Enumerated(np.zeros((81, 4)), law, corpus, "nats/token").reference(n).band
    assert ((found < low) | (found > high)).mean() <= 0.05 + 5 * math.sqrt(0.05 * 0.95 / times)


@pytest.fixture(scope="module")
def lawful():
    """A random law on 3^3 as data, and who judges it."""
    weights = torch.rand(27, generator=torch.Generator().manual_seed(2), dtype=torch.float64) ** 2
    rows = exact.states(3, 3)[torch.multinomial(weights, 4000, True, generator=torch.Generator().manual_seed(3))]
    corpus = prepare(Data.of(rows, vocabulary=3), 3)
    found = judge.judge_of(corpus, "nats/token")
    assert isinstance(found, judge.Enumerated)
    counts = torch.bincount(exact.index(rows, 3), minlength=27)
    assert torch.equal(exact.index(torch.from_numpy(found.support), 3), counts.nonzero()[:, 0])
    assert np.allclose(found.p, (counts[counts > 0] / 4000).numpy())
    return found, counts.double() / 4000


def test_the_bound_over_the_law_is_the_enumerated_one(lawful):
    """Of a fresh network, against enumeration and quadrature; of the exact denoiser, against the entropy."""
    found, law = lawful
    torch.manual_seed(0)
    fresh: Any = zellige.methods.build("md4", 3, Net(layers=1, hidden=16, heads=2, length=3), None).double().eval()
    for p in fresh.parameters():
        p.data += torch.randn_like(p) / 10
    x_0 = exact.states(3, 3)
    with torch.no_grad():
        terms = exact.continuous_terms(fresh, x_0, 40)
    wanted = float(law @ (terms["diffusion"] + terms["reconstruction"] + terms["prior"])) / 3
    model = SimpleNamespace(method=fresh, tokenizer=found.corpus.tokenizer)
    got = found.bound(model, 16, 0, None, lambda *_: None)
    assert abs(got.value - wanted) < 3 * got.half  # 8 sets, t: 3 half-widths are 7 standard errors, 1 in 5,000
    assert abs(wanted - math.log(3)) > 0.05
    assert got.half < 0.15 * wanted
    truth = exact.Denoiser(zellige.core.process.absorbing(4, Linear()), law, 3)
    best = found.bound(SimpleNamespace(method=truth, tokenizer=found.corpus.tokenizer), 16, 0, None, lambda *_: None)
    entropy = found.reference(100).bound
    assert entropy == pytest.approx(float(exact.entropy(law)) / 3, abs=1e-12)
    assert abs(best.value - entropy) < 3 * best.half


def test_total_variation_of_samples(lawful):
    found, law = lawful
    x = exact.states(3, 3)
    n = 3000
    rows = x[torch.multinomial(law, n, True, generator=torch.Generator().manual_seed(1))]
    score = found.score(rows.numpy())
    share = torch.bincount(exact.index(rows, 3), minlength=27).double() / n
    assert score.value == pytest.approx(float((share - law).abs().sum()) / 2, abs=1e-12)
    assert score.inside == 1
    low, high = found.reference(n).band
    assert low <= score.value <= high  # 1 in 20, at this seed
    outside = found.score(np.full((10, 3), 5))
    assert (outside.value, outside.inside, outside.reached) == (pytest.approx(1.0), 0, 0)


def test_who_judges():
    """Few different rows, all of them known from training, are a law; a text is not, nor are rows that are all different."""
    grid = torch.tensor(list(itertools.permutations(range(6))))
    assert isinstance(judge.judge_of(prepare(Data.of(grid.repeat(5, 1), vocabulary=6), 6), ""), judge.Enumerated)
    assert isinstance(judge.judge_of(prepare(Data.of(grid, vocabulary=6), 6), ""), judge.Grams)
    assert isinstance(judge.judge_of(prepare(Data.of(tokens(), vocabulary=7), 8), ""), judge.Grams)


def test_entropy_within_a_sample():
    grams = judge.judge_of(prepare(Data.of(tokens(), vocabulary=7), 8), "nats/token")
    rows = np.array([[3] * 8, [0, 1] * 4])
    assert grams.score(rows).entropy == pytest.approx(math.log(2) / 2)


def test_a_comparison_on_a_law(tmp_path):
    rows = exact.states(2, 4)[
        torch.multinomial(torch.arange(1.0, 17.0), 600, True, generator=torch.Generator().manual_seed(3))
    ]
    net = Net(layers=1, hidden=16, heads=2, length=4, conv=3)
    done = go(
        tmp_path / "c",
        ["mdlm", "d3pm:diffusion_steps=20", "csm"],
        data=Data.of(rows, vocabulary=2),
        net=net,
        samples=200,
    )
    result = done.plain["result"]
    assert result["judge"]["kind"] == "law"
    counts = torch.bincount(exact.index(rows, 2), minlength=16).double() / 600
    assert result["reference"]["bound"] == pytest.approx(float(exact.entropy(counts)) / 4)
    assert result["reference"]["value"] == pytest.approx(judge.floor(counts.numpy(), 200))
    steps = {row["method"]: [q["steps"] for q in row["quality"]] for row in result["methods"]}
    assert steps == {"mdlm": [2, 4], "d3pm": [2, 4], "csm": [2, 4]}
    assert {row["method"]: (row["bound"]["kind"], row["sampler"]) for row in result["methods"]} == {
        "mdlm": ("bound", "ancestral"),
        "d3pm": ("bound", "ancestral"),
        "csm": ("exact", "metropolis"),
    }
    assert "excess" in (tmp_path / "c/compare.md").read_text()
    assert "20 steps" not in str(done)
    for row in result["methods"]:
        assert row["quality"][0]["samples"] == 200
        assert row["bound"]["high"] > result["reference"]["bound"]


def test_discrete_time_takes_the_steps_that_are_asked_for(tmp_path):
    done = go(tmp_path / "c", ["mdlm", "d3pm:diffusion_steps=9"])
    row = next(row for row in done.plain["result"]["methods"] if row["method"] == "d3pm")
    assert [q["steps"] for q in row["quality"]] == [2, 4]  # neither divides 9
    assert row["variant"] == "diffusion_steps=9"


# ---------------------------------------------------------------------------------------------------- what may go wrong
@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["mdlm", "mdml"], "unknown method 'mdml'; did you mean 'mdlm'? (all: zellige list methods)"),
        (["mdlm"], "compare needs two methods or more; e.g. zellige compare mdlm md4 --run runs/compare"),
        (["mdlm", "mdlm"], "'mdlm' is named twice; name each method once, or give it other choices"),
        (
            ["mdlm", "sedd:proces=uniform"],
            "unknown choice 'proces'; did you mean 'process'? (all: zellige train sedd --help)",
        ),
        (["mdlm", "sedd:uniform"], "'sedd:uniform' has a choice without a value; e.g. sedd:process=uniform"),
        (
            ["mdlm", "sedd:process=unif"],
            "unknown process 'unif'; did you mean 'uniform'? (all: zellige train sedd --help)",
        ),
        (
            ["mdlm", "d3pm:diffusion_steps=ten"],
            "diffusion_steps is 'ten' in 'd3pm:diffusion_steps=ten'; it must be a whole number",
        ),
        (["mdlm", "mdlm:time=yes"], "time is 'yes' in 'mdlm:time=yes'; it must be True or False"),
    ],
)
def test_wrong_methods_are_said_before_anything_is_trained(methods, message, tmp_path):
    with pytest.raises(InputError, match="^" + re.escape(message) + "$"):
        go(tmp_path / "c", methods)


@pytest.mark.parametrize(("name", "kind"), [("net", "a Net"), ("train", "a Train")])
@pytest.mark.parametrize("value", [1, "", [], torch.ones(2, 3)], ids=str)
def test_what_is_no_net_and_no_train(name, kind, value, tmp_path):
    with pytest.raises(InputError, match=rf"^`{name}` is .*; it must be {kind}"):
        zellige.compare(["mdlm", "md4"], run=tmp_path / "c", **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_other_settings_are_said_before_anything_is_trained(done):
    before = sorted(done.folder.rglob("*"))
    again = r"give the same settings, or use a new `run`$"
    with pytest.raises(InputError, match=r"was trained with `net.hidden` 16, not 32; " + again):
        go(done.folder, net=Net(layers=1, hidden=32, heads=2, length=8, conv=3))
    with pytest.raises(InputError, match=r"was trained with `train.steps` 4, not 5; " + again):
        go(done.folder, ["md4", "radd"], train=settings(steps=5))
    with pytest.raises(InputError, match="the data has changed since the run began"):
        go(done.folder, data=Data.of(tokens().flip(0), vocabulary=7, test=0.3))
    assert sorted(done.folder.rglob("*")) == before


def test_a_folder_that_is_no_comparison(done, tmp_path):
    with pytest.raises(InputError, match="is one run, not a comparison; choose another `run`"):
        go(done.folder / "mdlm")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something that is not a comparison; choose another `run`"):
        go(tmp_path)
    with pytest.raises(InputError, match="is a file; give `run` a folder"):
        go(tmp_path / "notes.txt")


# ---------------------------------------------------------------------------------------------------- what is said
def test_names_of_those_who_take_part():
    of = entrant.Entrant.of
    assert [
        (e.variant, e.label, e.folder) for e in map(of, ["mdlm", "sedd", "sedd:process=uniform,schedule=geometric"])
    ] == [
        ("-", "mdlm", "mdlm"),
        ("absorbing", "sedd absorbing", "sedd"),
        ("uniform, geometric", "sedd uniform, geometric", "sedd-uniform-geometric"),
    ]
    assert of("mdlm:time=True,diffusion_steps=8").options == MDLM.Config(time=True, diffusion_steps=8)
    assert of((Fragile, "time=True")).options.time
    assert of("sedd:scale-by-sigma=none").options.scale_by_sigma is None


def findings(n: int, kind: str = "n-gram", **more: Any) -> Findings:
    """The findings that compare.json has of n methods; the last of them has no bound."""
    rows: list[dict[str, Any]] = [
        {
            "method": f"method{i}", "variant": "uniform" if i % 2 else "-", "label": f"method{i}", "letters": "ab"[i % 2],
            "folder": f"method{i}", "sampler": "ancestral",
            "parameters": 3_200_000 + 100_000 * i, "tokens_per_second": 9.81e4,
            "bound": {
                "value": 1.8 + i / 50, "low": 1.79 + i / 50, "high": 1.81 + i / 50, "kind": "bound", "unit": "bits/char",
            },
            "quality": [
                {"asked": c, "steps": c, "calls": 0.9 * c, "samples": 64, "value": 4 - k / 4 + i / 99, "low": 3.9, "high": 4.1}
                | ({"entropy": 2.84} if kind == "n-gram" else {"inside": 0.97, "reached": 0.9})
                for k, c in enumerate((8, 16, 32, 64, 128, 256))
            ],
        }
        for i in range(n)
    ]  # fmt: skip
    rows[-1] |= {"bound": None, "letters": ""}
    rows[0]["bound"]["kind"] = "exact"
    rows[1] |= more
    reference = {"value": 2.12, "band": [2.0, 2.3], "entropy": 2.84, "bound": 1.5, "rows": 200}
    entries = {
        "data": "text8", "rows": "text", "unit": "bits/char", "steps": 5000, "partial": None, "calls": [8, 16, 32, 64, 128, 256],
        "methods": rows, "differences": [],
        "judge": {"kind": kind, "name": "5-gram of the train split", "unit": "bits/char"}, "reference": reference,
        "command": None,
    }  # fmt: skip
    return read(entries, Findings)


@pytest.mark.parametrize("kind", ["n-gram", "law"])
def test_a_full_table(kind):
    lines = table.terminal_lines(findings(9, kind, variant="a very long variant, geometric, diffusion_steps=1000"))
    assert max(map(len, lines)) <= 100
    at = lines[1].index("at 95%")
    assert [line[at] for line in lines[2:10]] == list("abababab")
    assert "≤ 1.820 ± 0.010" in lines[3]
    assert "= 1.800 ± 0.010" in lines[2]
    assert lines[10].split()[2] == "-"
    assert "3.2M to 4.0M parameters, 5,000 steps each" in lines
    ends = {found.end() for line in lines[2:11] if (found := re.search(r"(98\.1k)?$", line))}
    assert ends == {len(lines[2])}


def test_a_method_without_a_bound_and_one_that_is_infinite():
    unknown = {"value": None, "low": None, "high": None, "kind": "bound", "unit": "bits/char"}
    made = findings(3, bound=unknown)
    assert [table.bound_text(row.bound) for row in made.methods] == ["= 1.800 ± 0.010", "≤ infinite", "-"]
    plain = {
        "value": math.inf, "low": math.nan, "high": math.inf, "unit": "nats/token", "kind": "bound", "protocol": {},
        "nats": [1.0, math.inf], "sizes": [1.0, 1.0],
    }  # fmt: skip
    back = read(json.loads(dumps(plain)), Bound).result()
    other = summarize(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), "nats/token")
    assert (back.value, back.low, back.high) == (math.inf, -math.inf, math.inf)
    assert comparison.differences([("a", [other]), ("b", [back])])[1] == ["a", "b"]


@pytest.mark.parametrize("kind", ["n-gram", "law"])
def test_the_figure_has_a_point_and_a_line_for_each(kind):
    made = findings(9, kind)
    first, again = (as_svg(figure.comparison_figure(made)) for _ in range(2))
    assert first == again
    fig = figure.comparison_figure(made)
    left, right = fig.axes
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the best on top
    assert [tick.get_text() for tick in left.get_yticklabels()] == [f"method{i}" for i in range(9)]
    looks = {
        (line.get_color(), line.get_linestyle(), line.get_marker())
        for line in right.lines
        if np.size(line.get_xdata()) == 6
    }
    assert len(looks) == 9
    names = [t for t in right.texts if t.get_text().startswith("method")]
    assert len(names) == 9
    heights = sorted(t.get_position()[1] for t in names)
    points = fig.get_size_inches()[1] * 72 * 0.72
    assert min(np.diff(heights)) * points > 9.5  # no name covers another


def test_a_line_whose_end_is_no_number_has_no_name():
    fig = Figure()
    ax = fig.subplots()
    ax.plot([1, 2], [3, 4])
    figure._name(ax, [(2, 4.0, "mdlm", "red"), (2, math.nan, "ar", "blue"), (2, math.inf, "udlm", "green")], 300.0)
    fig.savefig(io.StringIO(), format="svg")
    assert [text.get_text() for text in ax.texts] == ["mdlm"]


# ---------------------------------------------------------------------------------------------------- a paper's table
def of_table(folder, minutes=0.001, **more):
    usual = {
        "table": "mdlm-8", "data": Data.of(tokens(), vocabulary=7, test=0.3), "net": NET, "train": settings(),
        "calls": (2,), "samples": 6, "draws": 2, "folder": folder, "minutes": minutes,
    }  # fmt: skip
    return zellige.studies.Compare(**(usual | more))


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Of three rows, the last without a recipe."""
    with pytest.MonkeyPatch.context() as patch:
        rows = TABLES["mdlm-8"].rows[:3]
        rows = (*rows[:2], replace(rows[2], recipe="", note="carry-over cannot be switched off"))
        patch.setitem(TABLES, "mdlm-8", replace(TABLES["mdlm-8"], rows=rows))
        patch.setattr("zellige.training.forecast.TIMED", 0.0)
        yield of_table(tmp_path_factory.mktemp("table") / "t").run()


def test_a_table_has_its_rows_in_the_papers_order_beside_what_the_paper_reports(papers):
    paper = papers.findings.paper
    assert [(row.name, row.published, row.folder) for row in paper.rows] == [
        ("MDLM", ("≤ 27.04 ± 0.01",), "mdlm-lm1b"),
        ("without continuous time", ("≤ 27.19 ± 0.07",), "mdlm-lm1b-discrete"),
        ("and without carry-over", ("≤ 28.56 ± 0.15",), ""),
    ]
    lines = str(papers).splitlines()
    assert lines[0].endswith("Substitute: tokens, at most 0.001 minutes a row; not a reproduction")
    assert lines[0] in (papers.folder / "compare.md").read_text()
    assert "  and without carry-over: carry-over cannot be switched off" in f"  {chr(10).join(lines)}".replace(
        "\n", "\n  "
    )
    for row, line in zip(paper.rows, lines[2:5]):
        assert line.startswith(row.name)
        here = [method.bound for method in papers.findings.methods if method.folder == row.folder]
        assert (f"{here[0].value:.3f}" in line) if here else (line.split()[-1] == "-")


def test_a_row_is_the_recipe_on_the_substitute(papers):
    from zellige.papers.recipes import RECIPES

    for row in papers.findings.methods:
        config, recipe = zellige.load(papers.folder / row.folder).config, RECIPES[row.folder].config
        assert (config.method, config.options) == (recipe.method, recipe.options)
        assert (config.net.constant, config.net.hidden, config.train.steps) == (True, NET.hidden, row.steps)
        assert config.recipe == ""  # it is not the paper's configuration


def test_the_difference_is_paired(papers):
    (gap,) = papers.findings.differences
    bounds = {row.label: row.bound.value for row in papers.findings.methods}
    assert gap.value == pytest.approx(bounds[gap.method] - bounds[gap.minus])
    assert f"{gap.value:.3f}" in str(papers)


def test_a_table_goes_on_and_is_read_again(papers, monkeypatch):
    before = files(papers.folder)
    monkeypatch.setattr(comparer, "measure_method", None)
    assert str(of_table(papers.folder).run()) == str(papers)
    assert files(papers.folder) == before
    read_again = zellige.Record.load(papers.folder / "compare.json")
    assert (read_again.findings, read_again.request.table) == (papers.findings, "mdlm-8")
    with pytest.raises(InputError, match=r"0\.001 minutes each, not 0\.002; use a new"):
        of_table(papers.folder, minutes=0.002).run()
    assert files(papers.folder) == before


def test_recipes_that_are_the_same_training_are_trained_once():
    from zellige.plugins.studies.compare.paper import rows_of

    rows = rows_of("mdlm-1", 32)
    assert rows.folders == ("d3pm-lm1b", "sedd-lm1b", "mdlm-lm1b-ar", "mdlm-lm1b-ar", "mdlm-lm1b", "mdlm-lm1b")
    assert rows.notes[3] == "here the same training as mdlm-lm1b-ar"
    assert [entrant.folder for entrant in rows.entrants] == ["d3pm-lm1b", "sedd-lm1b", "mdlm-lm1b-ar", "mdlm-lm1b"]
    labels = [entrant.label for entrant in rows_of("radd-1", 32).entrants]
    assert labels[1:3] == ["sedd-owt-unscaled", "sedd-owt"]  # the same method and noise
    assert len({*labels}) == len(labels) == 7
    blocks = {entrant.folder: entrant.options.block for entrant in rows_of("bd3lm-2", 32).entrants}
    assert blocks["bd3lm-lm1b-128-clip-30-80"] == 32  # as long as a sequence, as in the paper
    assert blocks["bd3lm-lm1b-4-clip-30-80"] == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"table": "mdlm-9"}, "unknown table 'mdlm-9'; did you mean 'mdlm-8'"),
        ({"table": "mdlm-6"}, "no row of mdlm-6 has a recipe"),
        ({"minutes": None}, "`minutes` is not given; say how long each row is trained"),
        ({"methods": ("mdlm", "md4")}, "`table` says which methods are compared; leave the names out"),
        ({"table": ""}, "`minutes` is for the rows of a `table`"),
    ],
)
def test_a_wrong_table_is_one_line_and_writes_nothing(wrong, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(message)):
        of_table(tmp_path / "t", **wrong).run()
    assert not (tmp_path / "t").exists()
