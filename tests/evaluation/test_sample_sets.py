"""`evaluate --generate` end to end: what is drawn, kept, judged again, and drawn as figures; and its curves by hand."""

import json
import math
import re
import shlex
from dataclasses import replace

import pytest
import torch

import zellige
from zellige import Data, Net, cli
from zellige.base.errors import InputError
from zellige.data.tokenizer import Characters
from zellige.evaluation.interval import Number
from zellige.evaluation.metrics import METRICS, Metric, entropies
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.evaluations.generate import sample_sets
from zellige.plugins.evaluations.generate.command import READ, GenerateOptions, _suffix, samples_name
from zellige.plugins.evaluations.generate.degenerate import fooled_metrics
from zellige.plugins.evaluations.generate.judge import Judge
from zellige.plugins.evaluations.generate.request import EvaluateSamples
from zellige.plugins.evaluations.generate.sample_sets import ScoredSet, Set, Way
from zellige.plugins.report import sweep as figures
from zellige.show.record import Record, dumps

TEXT = "the value of the object is returned by the function and it is the name of a class "
L = 16


def model(name: str, seed: int = 0, **config) -> Model:
    tokenizer = Characters("abcdefghijklmnopqrstuvwxyz ")
    net = Net(layers=1, hidden=16, heads=2, length=L, conv=3)
    cls = zellige.METHODS[name]
    torch.manual_seed(seed)
    method = build(cls, tokenizer.size, net, cls.Config(**config), L)
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return Model(method, tokenizer, Config(name, cls.Config(**config), Data("pydocs"), net))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    model("mdlm").save(folder / "model")
    model("ar", 1).save(folder / "ar")
    (folder / "real.txt").write_text("".join(f"{TEXT[i : i + L]}\n" for i in range(0, 60, 4)))
    return folder


@pytest.fixture
def command(here, monkeypatch, capsys):
    monkeypatch.chdir(here)

    def run(words: str) -> tuple[int, str, str]:
        code = cli.main(shlex.split(words))
        return code, *capsys.readouterr()

    return run


USUAL = "evaluate model --generate --judge ar --reference real.txt --count 6 --steps 4 --quiet"


# ------------------------------------------------------------------------------------------------------- the command


def test_the_numbers_are_those_of_the_parts(command, here):
    code, out, _ = command(f"{USUAL} --seed 3 --json - --first judged --eos all")
    assert code == 0
    plain = json.loads(out)
    own, judge = zellige.load(here / "model"), Judge(here / "ar", first="judged", eos="all")
    done: list[tuple[int, int]] = []
    drawn = sample_sets.draw_samples(own, Way("ancestral", 4), 6, 3, batch=4, progress=lambda *both: done.append(both))
    assert done == [(i, 24) for i in (0, 4, 8, 12, 16, 16, 18, 20, 22, 24)]  # steps of samples: four, then two
    nats, tokens = judge.nats(drawn.texts)
    measures = plain["result"]["points"][0]["measures"]
    assert measures["perplexity"]["value"] == pytest.approx(float((nats.sum() / tokens.sum()).exp()))
    assert measures["entropy"]["value"] == pytest.approx(entropies(drawn.rows).mean())
    assert plain["result"]["points"][0]["calls"] <= 4
    real = (here / "real.txt").read_text().splitlines()
    nats, tokens = judge.nats(real)
    assert plain["result"]["real"]["measures"]["perplexity"]["value"] == pytest.approx(
        float((nats.sum() / tokens.sum()).exp())
    )
    assert plain["protocol"]["judge"] == vars(judge.about) | {"judge": "ar"}
    assert plain["seed"] == 3


def test_perplexity_never_stands_without_entropy_and_the_protocol(command):
    code, out, err = command(USUAL)
    assert code == 0
    assert err == ""
    for said in ("perplexity, corpus", "perplexity, per sequence", "unigram entropy, nats", "seq-rep-4", "float64"):
        assert said in out
    assert re.search(r"^  of each \d+\.\d network evaluations are expected$", out, re.MULTILINE)
    assert "tokenizer characters (27)" in out
    assert "decoded, then tokenized" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())


def test_samplers_with_options_of_their_own():
    """Those that decide how many steps they make are one point; numbers differ along a curve, words do not."""
    names = (
        "ancestral",
        "confidence:entropy_bound=0.1",
        "confidence:entropy-bound=0.5",
        "confidence:confidence=margin",
    )
    m = model("mdlm")
    base = sample_sets.with_sampler(m, Way())
    ways = sample_sets.different(sample_sets.with_sampler(m, way) for way in sample_sets.calls(m, base, (2, 4), names))
    assert [(way.name, way.steps) for way in ways] == [
        ("ancestral", 2), ("ancestral", 4), ("confidence entropy_bound=0.1", L), ("confidence entropy_bound=0.5", L),
        ("confidence confidence=margin", 2), ("confidence confidence=margin", 4),
    ]  # fmt: skip
    assert [*dict.fromkeys(way.curve for way in ways)] == [
        "ancestral", "confidence entropy_bound", "confidence confidence=margin",
    ]  # fmt: skip
    for name, message in {
        "confidence:0.1": "'confidence:0.1' has a choice without a value; e.g. confidence:threshold=0.9",
        "confidence:factor=much": "factor is 'much' in 'confidence:factor=much'; it must be a number",
        "klass:threshold=2": "`threshold` is 2; it must be between 0 and 1",
    }.items():
        with pytest.raises(InputError, match=re.escape(message)):
            _ = [sample_sets.with_sampler(m, way) for way in sample_sets.calls(m, base, (2,), (name,))]


def test_other_samples_have_files_of_their_own():
    """Samples of a rounded network, in other blocks, or of other data do not replace those of the model as it is."""
    plain = EvaluateSamples(count=7)
    choices = ({}, {"precision": "bfloat16"}, {"precision": "int8"}, {"block": 3})
    names = {samples_name(plain, GenerateOptions(run="r", **choice)) for choice in choices}
    for data in (Data("pydocs"), Data("text", path="t.txt"), Data("text", path="u.txt")):
        names.add(samples_name(replace(plain, data=data), GenerateOptions(run="r")))
    assert len(names) == 7
    for name in ("samples", "judge"):
        files = {_suffix(EvaluateSamples(**{name: f"{at}/ar"}), GenerateOptions(run="r"), READ) for at in ("a", "b")}
        assert len(files) == 2
    assert _suffix(EvaluateSamples(judge="ar"), GenerateOptions(run="r"), READ) == ""
    assert samples_name(plain, GenerateOptions(run="r", precision="int8", out="here")) == "generate.jsonl"


def test_samples_are_kept_and_judged_again(command, here):
    assert (
        command(f"{USUAL} --temperatures 0.5 1 --top-ps 0.9 --calls 2 4 --samplers ancestral confidence --out a")[0]
        == 0
    )
    files = {f.name for f in (here / "a").iterdir()}
    assert files == {
        "generate.jsonl", "generate-ar.json", "generate-ar.md", "generate-ar-frontier.svg", "generate-ar-calls.svg",
    }  # fmt: skip
    before = json.loads((here / "a/generate-ar.json").read_text())["result"]
    ways = [p["way"] for p in before["points"]]
    assert [(w["sampler"], w["steps"], w["temperature"], w["top_p"]) for w in ways] == [
        ("ancestral", 4, 1.0, 1.0), ("ancestral", 4, 0.5, 1.0), ("ancestral", 4, 1.0, 0.9), ("ancestral", 2, 1.0, 1.0),
        ("confidence", 2, 1.0, 1.0), ("confidence", 4, 1.0, 1.0),
    ]  # fmt: skip
    again = "evaluate --generate --samples a/generate.jsonl --judge ar --reference real.txt --quiet --out b"
    assert command(again)[0] == 0
    after = json.loads((here / "b/generate-ar.json").read_text())["result"]
    for point in before["points"]:
        del point["measures"]["memorisation"]  # no model, so nobody knows its training text
    assert [p["measures"] for p in after["points"]] == [p["measures"] for p in before["points"]]
    for name in ("generate-ar-frontier.svg", "generate-ar-calls.svg"):
        assert (here / "b" / name).is_file()
    assert not (here / "b/generate.jsonl").exists()


def test_the_same_seed_gives_the_same_file_whatever_the_batch(command, here):
    assert command(f"{USUAL} --out c --batch 6")[0] == 0
    assert command(f"{USUAL} --out d --batch 2")[0] == 0
    assert (here / "c/generate.jsonl").read_bytes() == (here / "d/generate.jsonl").read_bytes()


def test_a_record_is_saved_loaded_and_run_again(here, tmp_path, monkeypatch):
    """The same numbers bit for bit, from Python; its request is the one that was made, options of the sampler included."""
    monkeypatch.chdir(here)
    drawn = []
    request = zellige.evaluations.EvaluateSamples(
        judge="ar",
        reference="real.txt",
        count=6,
        steps=4,
        sampler="remasking",
        options={"eta": 0.1},
        temperatures=(0.5, 1.0),
    )
    record = replace(request, keep=drawn.extend).run("model")
    assert [len(each.texts) for each in drawn] == [6, 6]
    assert record.request == request
    record.save(tmp_path / "r.json")
    back = zellige.Record.load(tmp_path / "r.json")
    assert back.request == request
    again = back.request.run(zellige.load("model"))
    results = [dumps(each.to_dict()["result"]) for each in (record, back, again)]
    assert results[0] == results[1] == results[2]
    assert (back.protocol, again.protocol, back.seed) == (record.protocol, record.protocol, 0)
    assert record.points[0].measures["entropy"].value > 0


def test_texts_one_a_line_are_judged(command, here):
    code, out, _ = command("evaluate --generate --samples real.txt --judge ar --reference none --json - --quiet")
    point = json.loads(out)["result"]["points"][0]
    assert code == 0
    assert point["samples"] == 15
    assert point["way"]["sampler"] == ""
    rows = [Characters("abcdefghijklmnopqrstuvwxyz ").encode(t) for t in (here / "real.txt").read_text().splitlines()]
    assert point["measures"]["entropy"]["value"] == pytest.approx(entropies(rows).mean())


def test_own_tokens_or_their_text_are_one_for_characters(command):
    numbers = [
        json.loads(command(f"{USUAL} --tokens {tokens} --json -")[1])["result"]["points"][0]["measures"]
        for tokens in ("own", "retokenized")
    ]
    assert numbers[0] == numbers[1]


def test_a_row_is_all_that_a_metric_needs(command, here, monkeypatch):
    """A planted one is computed, printed, saved with its interval and definition, in the tables, and judges cheats.

    However many there are: the table of several sets left out what came after eleven columns.
    """
    of = lambda rows: [float(len(set(row))) for row in rows]  # noqa: E731
    kinds = Metric(
        "kinds", of, ("rows",), True, unit="tokens", definition="different tokens of a sample", column="kinds"
    )
    for name in ("one more", "another"):
        monkeypatch.setitem(METRICS, name, Metric(name, of, ("rows",), True, column=name))
    monkeypatch.setitem(METRICS, "kinds", kinds)
    code, out, _ = command(f"{USUAL} --temperatures 0.5 --out planted")
    assert code == 0
    document = json.loads((here / "planted/generate-ar.json").read_text())
    real = [len(set(line)) for line in (here / "real.txt").read_text().splitlines()]
    assert document["result"]["real"]["measures"]["kinds"]["value"] == pytest.approx(sum(real) / len(real))
    assert document["protocol"]["kinds"] == "different tokens of a sample"
    assert "kinds" in document["interval"]["method"]
    assert re.search(r"^  sampler .* kinds$", out, re.MULTILINE)
    assert re.search(r"^\| sampler .*\| kinds \|$", (here / "planted/generate-ar.md").read_text(), re.MULTILINE)
    assert re.search(r"^  kinds, tokens +\d+\.\d{3} ± ", command(USUAL)[1], re.MULTILINE)
    loaded = Record.load(here / "planted/generate-ar.json")
    assert fooled_metrics(loaded.real.measures, {"kinds": loaded.real.measures["kinds"]}) == ("kinds",)


# ------------------------------------------------------------------------------------------------------- the parts


def point(way: Way, perplexity=10.0, calls=4.0) -> ScoredSet:
    number = Number(perplexity, perplexity - 1, perplexity + 1)
    measures = {"perplexity": number, "entropy": number}
    return ScoredSet(way=way, samples=1, samples_sha256="", tokens=1, measures=measures, calls=calls)


def test_curves_are_what_the_ways_say():
    base = Way("ancestral", 8)
    ways = [base, *sample_sets.along(base, (0.5, 1.0), (0.9, 1.0)), Way("confidence", 4), Way("ancestral", 4)]
    points = [point(way, calls=float(way.steps or 0)) for way in sample_sets.different(ways)]
    assert len(points) == 5
    found = sample_sets.curves_of(points, "frontier")
    assert [p.way.temperature for p in found["temperature"]] == [0.5, 1.0]
    assert [p.way.top_p for p in found["top-p"]] == [0.9, 1.0]
    calls = sample_sets.curves_of(points, "calls")
    assert {name: [p.way.steps for p in each] for name, each in calls.items()} == {
        "ancestral": [4, 8], "confidence": [4],
    }  # fmt: skip
    assert sample_sets.curves_of(points[:1], "frontier") == sample_sets.curves_of(points[:1], "calls") == {}
    assert figures.sweep_figure(points[:1], None, "calls") is None


def test_the_figures_hold_every_point():
    base = Way("ancestral", 8)
    points = [point(way, 5.0 + i) for i, way in enumerate([base, *sample_sets.along(base, (0.5, 0.7), (0.9,))])]
    points += [point(Way("confidence", n), 30.0 + n, float(n)) for n in (2, 4)]
    real = point(Way(), 3.0)
    figure = figures.sweep_figure(points, real, "frontier", "ar")
    (ax,) = figure.axes
    places = sorted({round(float(y), 6) for line in ax.lines for y in line.get_ydata() if len(line.get_ydata()) < 4})
    assert {3.0, 5.0, 6.0, 7.0, 8.0} <= set(places)
    assert {t.get_text() for t in ax.texts} == {"0.5", "0.7", "1", "0.9"}
    assert ax.get_ylabel() == "generative perplexity, judge ar"
    top, low = figures.sweep_figure(points, real, "calls", "ar").axes
    assert low.get_xlabel() == "network evaluations for each sample, mean"
    assert {text.get_text() for text in top.figure.legends[0].get_texts()} == {
        "ancestral",
        "confidence",
        "real text, 95%",
    }


def test_settled_says_how_many_steps_there_are():
    own = model("mdlm")
    assert sample_sets.with_sampler(own, Way()) == Way("ancestral", 64)
    assert sample_sets.with_sampler(own, Way("first_hitting", 3)) == Way("first_hitting", L)
    ways = sample_sets.calls(own, sample_sets.with_sampler(own, Way()), (2, 8))
    assert [way.sampler for way in ways[::2]] == ["ancestral", *sample_sets.SAMPLERS]
    discrete = model("d3pm", diffusion_steps=12)
    assert [way.steps for way in sample_sets.calls(discrete, Way("ancestral", 12), (5, 100), ("ancestral",))] == [5, 12]
    blocks = model("bd3lm", block=4)
    assert [
        w.steps for w in sample_sets.calls(blocks, sample_sets.with_sampler(blocks, Way()), (16,), ("blockwise",))
    ] == [4]


@pytest.mark.parametrize("sampler", ["blockwise", "semi_autoregressive"])
def test_the_steps_of_blocks_are_those_of_each(sampler):
    own = model("bd3lm", block=4) if sampler == "blockwise" else model("mdlm")
    way = sample_sets.with_sampler(own, Way(sampler, 3, options={} if sampler == "blockwise" else {"block_length": 4}))
    assert way.steps == 3
    assert sample_sets.with_sampler(own, way) == way
    drawn = sample_sets.draw_samples(own, way, 2)
    assert max(drawn.calls) <= (3 + (sampler == "blockwise")) * (L // 4)


def test_files_of_samples(tmp_path):
    own = model("mdlm")
    sets = [
        Set(Way("ancestral", 4, 0.5), ["ab", "c"], [[0, 1], [2]], [3, 4], 7),
        Set(Way("ancestral", 4), ["x\ny"], [[5]], [1], 7),
    ]
    file = tmp_path / "a.jsonl"
    file.write_text(sample_sets.samples_as_lines(sets), encoding="utf-8")
    assert sample_sets.read_samples(file) == sets
    lines = ["a\u2028b", "", "c\x0cd\x85"]  # no ends of lines
    (tmp_path / "a.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert sample_sets.read_samples(tmp_path / "a.txt")[0].texts == lines
    (tmp_path / "b.jsonl").write_text('{"text": "ab"}\n{"txt": 1}\n')
    with pytest.raises(
        InputError, match=r"line 2 of .* has no entry 'text'; give one object a line, with the field text"
    ):
        sample_sets.read_samples(tmp_path / "b.jsonl")
    for entry, wrong in (
        ('"calls": "a"', "calls is 'a'; it must be a whole number"),
        ('"calls": [1]', r"calls is \[1\]; it must be a whole number"),
        ('"calls": -3', "calls has -3; it must be 0 or more"),
        ('"tokens": ["a"]', r"tokens\[0\] is 'a'; it must be a whole number"),
        ('"tokens": 5', "tokens is 5; it must be a list"),
        ('"tokens": [1.5]', r"tokens\[0\] is 1.5; it must be a whole number"),
        ('"tokens": [-1]', f"tokens has -1; it must be 0 to {own.tokenizer.size - 1}"),
        ('"tokens": [1, 999]', f"tokens has 999; it must be 0 to {own.tokenizer.size - 1}"),
        ('"temperature": "hot"', "temperature is 'hot'; it must be a number"),
        ('"steps": "x"', "steps is 'x'; it must be a whole number"),
        ('"options": 3', "options is 3; it must be an object"),
        ('"class": [1]', r"class is \[1\]; it must be a text or a whole number"),
    ):
        (tmp_path / "b.jsonl").write_text(f'{{"text": "ab"}}\n{{"text": "ab", {entry}}}\n')
        with pytest.raises(InputError, match=f"^line 2 of '.*b.jsonl': {wrong}$"):
            sample_sets.read_samples(tmp_path / "b.jsonl", own)
    (tmp_path / "c.txt").write_text("")
    with pytest.raises(InputError, match="holds no text"):
        sample_sets.read_samples(tmp_path / "c.txt")
    (tmp_path / "d.txt").write_text("the\na\n")
    (one,) = sample_sets.read_samples(tmp_path / "d.txt", own)
    assert one.rows == [[20, 8, 5], [1]]


def test_cold_samples_are_plainer_and_likelier_to_their_own_law():
    """Of an ar model that judges its own samples: colder ones have fewer nats and less entropy, and its draws are its law's."""
    own = model("ar", 1)
    judge = Judge(own, first="judged", eos="all")
    found = [
        sample_sets.score_samples(
            sample_sets.draw_samples(own, sample_sets.with_sampler(own, Way(temperature=t)), 200, 0), judge
        )
        for t in (0.3, 1.0)
    ]
    cold, warm = ([p.measures[m] for m in ("perplexity", "entropy")] for p in found)
    assert cold[0].high < warm[0].low
    assert cold[1].high < warm[1].low
    with (
        torch.no_grad()
    ):  # the first token's law is the same for every sample: its mean nats are the entropy of that law
        begin = torch.tensor([[own.method.begin]])
        law = own.method.next(own.method.hidden(begin, None, None)[0, 0])
        drawn = sample_sets.draw_samples(own, Way("left_to_right"), 400, 1)
        nats = -law[torch.tensor([row[0] for row in drawn.rows])].log()
    expected = -float((law * law.log()).sum())
    assert abs(float(nats.mean()) - expected) < 4 * float(nats.std()) / math.sqrt(400)
