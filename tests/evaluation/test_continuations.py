"""Samples that continue real texts: metrics by enumeration, what is given, and the interval of several samples of a text."""

import itertools
import json
import math
import shlex

import numpy as np
import pytest
import torch

import zellige
from zellige import Data, Net, cli, exact
from zellige.base.errors import InputError
from zellige.data import prepare
from zellige.data.given import Given
from zellige.data.levels import Levels
from zellige.data.tokenizer import Characters
from zellige.evaluation import metrics
from zellige.evaluation.interval import Number
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.evaluations.generate import continuations, sample_sets
from zellige.samplers import Ancestral
from zellige.show.record import dumps

L = 3
HISTOGRAMS = [list(row) for n in (1, 2, 3) for row in itertools.product(range(3), repeat=n)]
PREFIX = (Given("prefix", 1),)
TEXTS = ["abc", "cab", "bca", "aab", "cbb"]


def model(name="mdlm", length=L, given="", **net) -> Model:
    torch.manual_seed(0)
    tokenizer, net = Characters("abc"), Net(layers=1, hidden=16, heads=2, length=length, conv=3, **net)
    cls = zellige.METHODS[name]
    method = build(cls, tokenizer.size, net, cls.Config(), length)
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.5 * torch.randn_like(p))
    return Model(method, tokenizer, Config(name, cls.Config(), Data("text", given=given), net))


def texts_of(per_text=1, parts=PREFIX, texts=TEXTS):
    corpus = prepare(Data.of({"test": texts}, pack="document"), L, tokenizer=Characters("abc"))
    return continuations.continuations(corpus, "test", parts, len(texts), per_text, L)


# ---------------------------------------------------------------------------------------------------- the two metrics
def test_hellinger_and_outliers_of_all_pairs_of_histograms():
    """By 1 - H^2 = sum sqrt(f g); 0 for equal frequencies alone, 1 for disjoint ones alone; outliers by sets."""
    pairs = [*itertools.product(HISTOGRAMS, repeat=2)]
    distance = metrics.hellinger(*zip(*pairs))
    outside = metrics.outliers(*zip(*pairs))
    for (written, true), h, share in zip(pairs, distance, outside):
        f, g = (np.bincount(row, minlength=3) / len(row) for row in (written, true))
        assert 1 - h**2 == pytest.approx(float(np.sqrt(f * g).sum()), abs=1e-12)
        assert (h == 0) == bool((f == g).all())
        assert (h > 1 - 1e-12) == (not {*written} & {*true})
        assert share == sum(token not in {*true} for token in written) / len(written)
    assert np.array_equal(distance, metrics.hellinger(*zip(*[(b, a) for a, b in pairs])))
    assert np.isnan(metrics.hellinger([[], [1]], [[1], []])).all()
    assert np.isnan(metrics.outliers([[]], [[1]])).all()


def test_the_numbers_are_expectations_over_the_distribution_of_the_sampler():
    """All continuations enumerated, each text's with the probability that the sampler gives it."""
    own, per_text, texts = model(), 100, TEXTS[3:]
    continued = texts_of(per_text, texts=texts)
    drawn = sample_sets.draw_samples(own, sample_sets.Way("ancestral", 2), continued.count, 3, fixed=continued.fixed)
    sets = continued.parts(drawn)
    measured = [sample_sets.score_rows(part, continued.measures(part.rows or [])) for part in sets]
    whole = continuations.merged(drawn, measured)
    X = exact.states(4, L)
    clean = (X < 3).all(-1)
    for name, metric in (("Hellinger", metrics.hellinger), ("outliers", metrics.outliers)):
        expected = variance = 0.0
        for text, at in zip(continued.texts, continued.given):
            fixed = torch.from_numpy(np.where(at, text, -1))
            with torch.no_grad():
                p = exact.sample_distribution(Ancestral(), own.method.double(), 2, fixed)[clean].numpy()
            free = X[clean].numpy()[:, ~at]
            values = metric(free.tolist(), [text[~at].tolist()] * len(free))
            expected += p @ values / len(texts)
            variance += (p @ values**2 - (p @ values) ** 2) / len(texts) ** 2
        assert abs(whole.measures[name].value - expected) < 5.5 * math.sqrt(variance / per_text) + 1e-9
    assert all((np.array(row)[at] == text[at]).all() for part in sets for row, text, at in
               zip(part.rows or [], continued.texts, continued.given))  # fmt: skip
    assert whole.samples == len(drawn.texts) == 2 * per_text


# ---------------------------------------------------------------------------------------------------- several of a text
def test_each_part_has_one_sample_of_every_text():
    continued = texts_of(3)
    drawn = sample_sets.draw_samples(
        model(), sample_sets.Way("ancestral", 2), continued.count, 0, fixed=continued.fixed
    )
    for k, part in enumerate(continued.parts(drawn)):
        assert part.texts == [drawn.texts[3 * i + k] for i in range(5)]
        assert [row[0] for row in part.rows or []] == continued.texts[:, 0].tolist()
    with pytest.raises(InputError, match="there are 14 samples, and 3 of each of 5 texts are 15"):
        continued.parts(sample_sets.Set(drawn.way, drawn.texts[1:], (drawn.rows or [])[1:]))


def test_the_interval_of_several_samples_is_not_too_narrow():
    """Texts differ, samples of one do not: the interval of the texts remains, however many are drawn."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        of_texts = generator.normal(size=12)
        numbers = [metrics.mean(of_texts + 0.1 * generator.normal(size=12)) for _ in range(5)]
        whole = continuations.mean_over_parts(numbers)
        covered += whole.low <= 0 <= whole.high
        assert whole.half == pytest.approx(np.mean([number.half for number in numbers]))
    assert covered >= 182  # 95% of 200 is 190, 2.6 standard deviations below
    assert continuations.mean_over_parts([Number(1, -math.inf, math.inf)] * 2).high == math.inf


# ---------------------------------------------------------------------------------------------------- what is given
def test_what_is_given_by_default_is_what_the_model_was_trained_with():
    of = continuations.given_parts
    assert of(None, None, "suffix:2") == (Given("suffix", 2),)
    assert of(None, None, "field") == of(0, 0, "prefix:2") == of(None, None, "") == ()
    assert of(2, 3, "spans:0.5") == (Given("prefix", 2), Given("suffix", 3))


def test_texts_that_are_too_short_are_left_out():
    assert texts_of(texts=["abc", "ab", "cba", "c"]).texts.tolist() == [[0, 1, 2], [2, 1, 0]]
    with pytest.raises(InputError, match=r"no text of .* test has 3 tokens; set a smaller `length`"):
        texts_of(texts=["ab", "b"])
    with pytest.raises(InputError, match="3 tokens are given, and a text has 3; give fewer"):
        texts_of(parts=(Given("prefix", 1), Given("suffix", 2)))


def test_the_floor_is_the_rest_of_another_text():
    floor = texts_of().floor()
    free = [text[1:] for text in TEXTS]
    others = metrics.hellinger([[*map(ord, other)] for other in free[-1:] + free[:-1]], [[*map(ord, f)] for f in free])
    assert floor["Hellinger"].value == pytest.approx(others.mean())
    assert floor["Hellinger"].value > 0
    assert texts_of(texts=["abc"]).floor() == {}  # there is no other


# ---------------------------------------------------------------------------------------------------- the command
@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("continued")
    model(length=12).save(folder / "model")
    model("ar", length=12).save(folder / "ar")
    (folder / "notes.txt").write_text("abcabbacbcab" * 200)
    return folder


@pytest.fixture
def command(here, monkeypatch, capsys):
    monkeypatch.chdir(here)

    def run(words: str) -> tuple[int, str, str]:
        code = cli.main(shlex.split(words))
        return code, *capsys.readouterr()

    return run


USUAL = (
    "evaluate model --generate --judge ar --data.path notes.txt --data.tokenizer characters --count 6 --steps 4 --quiet"
)


def test_infilling_is_judged_beside_the_true_texts_and_again_from_its_file(command, here):
    words = f"{USUAL} --prompt-tokens 3 --suffix-tokens 2 --samples-per-text 3 --length 10"
    code, out, err = command(f"{words} --out a --json -")
    assert (code, err) == (0, "")
    record = json.loads(out)
    (point,), real = record["result"]["points"], record["result"]["real"]
    assert (point["samples"], real["samples"]) == (18, 6)
    assert "the first 3 tokens and the last 2 tokens of 6 sequences" in record["protocol"]["given"]
    for measures in (point["measures"], real["measures"]):
        assert {"perplexity", "entropy", "Hellinger", "outliers"} <= measures.keys()
    lines = [json.loads(line) for line in (here / "a/generate.jsonl").read_text().splitlines()]
    assert len(lines) == 18
    groups = [lines[3 * i : 3 * i + 3] for i in range(6)]
    assert all(len({(s["text"][:3], s["text"][8:]) for s in group}) == 1 for group in groups)
    code, out, _ = command(f"{words} --samples a/generate.jsonl --json -")
    again = json.loads(out)["result"]["points"][0]["measures"]
    assert again == point["measures"]
    code, out, _ = command(words)
    assert code == 0
    assert "Hellinger distance" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_grids_are_compared_with_the_true_rest_and_need_no_judge():
    own = model(length=4)
    own = Model(own.method, Levels(3, (2, 2)), own.config)
    arrays = {"test": np.arange(80).reshape(20, 2, 2) % 3}
    request = zellige.evaluations.EvaluateSamples(
        prompt_tokens=1, samples_per_text=2, count=8, steps=4, data=Data.of(arrays, vocabulary=3, kind="grid")
    )
    record = request.run(own)
    assert record.real is not None
    assert record.points[0].measures.keys() == {"Hellinger", "outliers"} == record.real.measures.keys()
    assert (record.judge, record.points[0].samples, record.of_images) == ("continuations", 16, False)
    again = zellige.evaluations.EvaluateSamples.record().from_dict(json.loads(dumps(record.to_dict())))
    assert again.protocol.given == record.protocol.given
    with pytest.raises(InputError, match="free samples of grids have no metric here; give a part of real ones"):
        zellige.evaluations.EvaluateSamples(count=8).run(own)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--samples-per-text 3", "--samples-per-text is of texts of which a part is given"),
        ("--prompt-tokens 3 --cheats", "--cheats are whole texts, and here a part of real texts is given"),
        ("--prompt-tokens 9 --suffix-tokens 3", "12 tokens are given, and a text has 12; give fewer"),
        ("--prompt-tokens 3 --reference notes.txt", "--reference is 'notes.txt'; parts of the data are given"),
    ],
)
def test_what_does_not_go_with_given_parts_is_named(command, words, message):
    code, _, err = command(f"{USUAL} {words}")
    assert code == 2
    assert message in err
