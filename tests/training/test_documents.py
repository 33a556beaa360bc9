"""Training and evaluation on documents: padding changes nothing, bounds per document, texts that end where those did."""

import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import zellige
from zellige import Data, InputError, Net, Train, cli
from zellige.cli.evaluate_print import describe
from zellige.cli.train import choose
from zellige.core.batch import Batch
from zellige.data.prepare import prepare
from zellige.evaluation.evaluate import _packing, evaluate_rows
from zellige.evaluation.interval import student
from zellige.evaluation.requests import evaluate
from zellige.evaluation.result import Result
from zellige.methods import METHODS, build
from zellige.models import model as checkpoint
from zellige.models.config import Config
from zellige.models.ends import drawn_lengths, learns_ends
from zellige.sampling.sample import watch
from zellige.sampling.samples import collect
from zellige.show.progress import Progress
from zellige.show.terminal import Terminal
from zellige.training import setup
from zellige.training.train import train

close = torch.testing.assert_close
LENGTH = 8
TEXTS = ["ab", "ba", "abab", "b", "aabba", "bbbabab"] * 20
NET = Net(layers=1, hidden=16, heads=2, length=LENGTH, conv=3)


@pytest.fixture
def data(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("\n".join(TEXTS))
    return lambda pack, **more: Data(
        "text", path=str(text), cache=str(tmp_path / "cache"), pack=pack, validation=20, test=20, **more
    )


def make(name: str, choices: dict[str, Any] | None = None, length: int = LENGTH) -> Any:
    """For texts of a, b and the line end, with random weights, float64."""
    torch.manual_seed(0)
    config = METHODS[name].Config(**(choices or {}))
    method = build(name, 3, Net(layers=2, hidden=8, heads=2, length=length, conv=3), config).double().eval()
    with torch.no_grad():
        for p in method.network.parameters():
            p.normal_(std=0.4)
    return method


def run(folder, method, data, length=LENGTH, options=None, resume=False, progress=None, **more):
    usual = {
        "steps": 6, "batch": 8, "lr": 1e-2, "warmup": 0, "decay": "constant", "validate_every": 3, "validate_rows": 0,
        "log_every": 1, "samples": 2, "sample_steps": 3, "tensorboard": False, "device": "cpu", "ema": 0.9,
    }  # fmt: skip
    return train(
        method, data=data, net=replace(NET, length=length), train=Train(**(usual | more)), run=folder, options=options,
        resume=resume, progress=progress,
    )  # fmt: skip


def weights(folder) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder, checkpoint="last").method.state_dict()


def test_another_text_is_cut_as_that_of_the_training(tmp_path, data):
    """By command line and in Python: the path of another text changes the text alone."""
    made = run(tmp_path / "run", "ar", data("packed"), 2 * LENGTH, steps=1)
    other = tmp_path / "other.txt"
    other.write_text("\n".join(TEXTS * 2))
    assert cli.main(["evaluate", str(made.folder), "--data.path", str(other), "--json", str(tmp_path / "it.json")]) == 0
    typed = json.loads((tmp_path / "it.json").read_text())["result"]
    assert typed["value"] == evaluate(made.folder, str(other)).value
    assert typed["document"] is not None
    assert evaluate(made.folder, Data("text", path=str(other))).document is None


def test_training_does_not_depend_on_the_padding(tmp_path, data):
    """Rows twice as long, so more padding: the same losses, validation, clipped gradients and weights."""
    short, long = (run(tmp_path / str(n), "ar", data("document"), n) for n in (LENGTH, 2 * LENGTH))
    for name, one in weights(short.folder).items():
        close(weights(long.folder)[name], one, rtol=1e-4, atol=1e-5)
    assert long.validation.value == pytest.approx(short.validation.value, rel=1e-5)
    assert long.validation.document.value == pytest.approx(short.validation.document.value, rel=1e-5)
    assert long.tokens == short.tokens == round(6 * 8 * (sum(map(len, TEXTS[:80])) + 80) / 80)


def test_packed_training_is_resumed_bit_for_bit(tmp_path, data):
    options, packed = METHODS["bd3lm"].Config(block=4), data("packed", fill=4)
    whole = run(tmp_path / "whole", "bd3lm", packed, 2 * LENGTH, options)
    run(tmp_path / "parts", "bd3lm", packed, 2 * LENGTH, options, steps=2)
    parts = run(tmp_path / "parts", "bd3lm", packed, 2 * LENGTH, options, resume=True)
    assert all(torch.equal(one, weights(parts.folder)[name]) for name, one in weights(whole.folder).items())
    assert parts.validation.value == whole.validation.value
    with pytest.raises(InputError, match=r"`resume` with `data\.fill` 8, but the run has 4"):
        run(tmp_path / "parts", "bd3lm", data("packed", fill=8), 2 * LENGTH, options, resume=True)


@pytest.mark.parametrize(("name", "choices"), [("ar", {}), ("mdlm", {}), ("bd3lm", {"block": 2})])
@torch.no_grad()
def test_bounds_per_token_and_per_document(data, name, choices):
    """However documents are packed: exactly what each of them is alone, as far as nothing is drawn."""
    method, found = make(name, choices, 2 * LENGTH), {}
    for pack in ("document", "packed"):
        corpus = prepare(data(pack), 2 * LENGTH)
        found[pack] = evaluate_rows(
            method, corpus.test, draws=1 if name == "ar" else 200, characters=corpus.test.characters
        )
        result, texts = found[pack], TEXTS[-20:]
        assert result.sequences == len(corpus.test)
        assert result.units == pytest.approx(sum(map(len, texts)) + 20)
        assert result.document.units == 20
        assert result.document.value * 20 == pytest.approx(result.value * math.log(2) * result.units)
        assert result.document.unit == "nats/document"
    one, packed = found["document"], found["packed"]
    assert packed.sequences < one.sequences == 20
    assert packed.value == pytest.approx(one.value, rel=1e-6 if name == "ar" else 0.02)
    if name == "ar":
        alone = sum(float(method.bound(Batch(torch.tensor([corpus.tokenizer.encode(t + "\n")])))) for t in texts)
        assert one.document.value * 20 == pytest.approx(alone)
        half = student(19) * float(one.nats.std()) / math.sqrt(20)  # of the mean of independent documents
        assert one.document.half == pytest.approx(half)
    again = Result.from_dict(json.loads(json.dumps(packed.to_dict())))
    assert str(again.document) == str(packed.document)
    assert f"  {packed.document}   20 documents" in describe(packed)


def test_rows_that_are_no_documents_have_no_bound_per_document(data):
    corpus = prepare(replace(data("wrap"), validation=0.1, test=0.1), LENGTH)
    result = evaluate_rows(make("ar"), corpus.test, characters=corpus.test.characters)
    assert result.document is None
    assert "document" not in result.to_dict()["result"]


def test_the_protocol_says_how_documents_were_cut_and_whether_their_ends_count(tmp_path, data):
    said = lambda pack, model, **more: _packing(make(*model), corpus(pack, **more).about, corpus(pack, **more).test)  # noqa: E731
    corpus = lambda pack, **more: prepare(data(pack, **more), LENGTH)  # noqa: E731
    assert said("document", ["mdlm"]) == "one document a row, lengths given"
    assert said("document", ["flexmdm"]) == "one document a row, lengths included"
    assert said("document", ["mdlm"], fill=8) == "one document a row, filled up to multiples of 8, ends included"
    assert said("packed", ["ar"]) == "documents packed into rows, ends included"
    assert said("packed", ["bd3lm", {"block": 4}]) == "documents packed into rows, lengths given"
    assert said("packed", ["bd3lm", {"block": 4}], fill=4).endswith("multiples of 4, ends included")
    spaced = prepare(Data(pack="packed"), 64)  # a-z and space: nothing else to end a document
    assert _packing(make("ar"), spaced.about, spaced.test).endswith("lengths given")
    shorter = prepare(data("document"), 4)
    cut = sum(len(t) + 1 > 4 for t in TEXTS[-20:])
    said = _packing(make("ar"), shorter.about, shorter.test)
    assert said == f"one document a row, {cut} longer ones in pieces of 4, ends included"
    model = run(tmp_path / "run", "ar", data("packed"), steps=1).model
    assert evaluate(model).protocol["packing"] == "documents packed into rows, ends included"


class Notes(Progress):
    def __init__(self):
        self.notes: list[str] = []

    def note(self, text):
        self.notes += text.splitlines()


def test_what_is_cut_or_left_out_is_said_first(tmp_path, data):
    """In the heading of a run: which documents are longer than a row, and how many tokens fill none."""
    notes = {pack: Notes() for pack in ("packed", "document", "wrap")}
    for pack, told in notes.items():
        run(tmp_path / pack, "ar", data(pack), 4, steps=1, samples=0, progress=told)
    cut = [sum(len(t) + 1 > 4 for t in part) for part in (TEXTS[:80], TEXTS[80:100], TEXTS[100:])]
    each = "train {}, validation {}, test {}".format(*cut)
    for pack in ("packed", "document"):
        lines = [note.strip() for note in notes[pack].notes]
        assert f"cut into pieces: {sum(cut)} documents longer than a row ({each})" in lines
        assert not any(line.startswith("left out") for line in lines)
    total = sum(len(t) + 1 for t in TEXTS) - 1 - 40  # validation and test are 20 characters, five rows each
    lines = [note.strip() for note in notes["wrap"].notes]
    assert f"left out: {total % 4} tokens at the end, too few for a sequence (train {total % 4})" in lines


def test_texts_end_where_their_documents_did(tmp_path, data):
    """A model of documents ends its texts at what ends those; what cannot end within a block says so."""
    model = run(tmp_path / "ar", "ar", data("document"), samples=0).model
    drawn = collect(watch(model, count=40, length=4 * LENGTH, seed=1))
    assert all("\n" not in text for text in drawn.texts)
    assert len({len(text) for text in drawn.texts}) > 3
    whole = run(tmp_path / "mdlm", "mdlm", data("document", fill=LENGTH), samples=0).model
    end = whole.tokenizer.separator
    *_, last = watch(whole, count=16, steps=8, seed=1)
    for row, count, text in zip(last.x.tolist(), last.ends, last.text):
        assert (row[:count].count(end), row[count : count + 1]) == (0, [end] if count < LENGTH else [])
        assert len(text) == count
    notes = {}
    for fill in (0, 4):
        notes[fill] = Notes()
        options = METHODS["bd3lm"].Config(block=4)
        run(
            tmp_path / f"fill{fill}", "bd3lm", data("packed", fill=fill), options=options, steps=1, progress=notes[fill]
        )
    assert any("`data.fill` 4 teaches it" in note for note in notes[0].notes)
    assert not any("data.fill" in note for note in notes[4].notes)


@pytest.mark.parametrize(
    ("name", "options", "pack", "fill"),
    [
        ("mdlm", {}, "document", 12), ("udlm", {}, "document", 12), ("mdlm", {}, "packed", 0),
        ("bd3lm", {"block": 4}, "document", 4), ("bd3lm", {"block": 4}, "packed", 4), ("bd3lm", {"block": 12}, "packed", 0),
        ("ar", {}, "document", 0), ("flexmdm", {}, "document", 0),
    ],
)  # fmt: skip
def test_documents_learn_their_ends_by_default(data, name, options, pack, fill):
    """Filled up as each method needs it; an option, a row of several documents and an alphabet without ends say otherwise."""
    method = METHODS[name]
    config = Config(name, method.Config(**options), data(pack), replace(NET, length=12))
    corpus = setup.read_corpus(config, setup.ends_for(config, method))
    assert (corpus.about["fill"], setup.filled_up(config, corpus).data.fill) == (fill, fill)
    sizes = np.diff(corpus.test.documents)
    assert corpus.test.tokens_total == sum(-(-sizes // fill) * fill if fill else sizes)
    built = make(name, options, 12)
    assert learns_ends(built, corpus.about, 12) == (pack == "document" or fill > 0 or name == "ar")
    kept = replace(config, data=data(pack, fill=0))
    assert setup.read_corpus(kept, setup.ends_for(kept, method)).about["fill"] == 0
    spaces = replace(config, data=Data(pack=pack))  # a-z and space
    assert setup.read_corpus(spaces, setup.ends_for(spaces, method)).about["fill"] == 0


def test_a_model_that_is_given_lengths_keeps_them_and_draws_one_for_each_sample(tmp_path, data, capsys):
    given = run(tmp_path / "given", "mdlm", data("document", fill=0), 16, steps=1)
    counts = Counter(len(text) + 1 for text in TEXTS[:80])
    assert given.about["data"]["lengths"] == {str(length): counts[length] for length in sorted(counts)}
    assert run(tmp_path / "again", "mdlm", data("document", fill=0), 16, steps=2).config.data.fill == 0
    model = zellige.load(given.folder)
    model.defaults = {}  # by confidence the network evaluations are not expected but known
    how = {"steps": 3, "seed": 5, "batch": 3}
    trajectory = zellige.Sample(count=20, **how).trajectory(model)
    assert len({*trajectory.lengths}) > 2
    few = [
        zellige.Sample(count=1, length=length, steps=3).trajectory(model).expected_calls
        for length in trajectory.lengths
    ]
    assert trajectory.expected_calls == pytest.approx(sum(filter(None, few)) / 20)  # the mean of all texts
    assert {*trajectory.lengths} <= {*counts}
    drawn, alone = collect(trajectory.frames()).texts, zellige.Sample(count=20, **how | {"batch": 1}).run(model).texts
    assert drawn == alone  # in their order, whatever is in a batch
    for number, (text, length) in enumerate(zip(drawn, trajectory.lengths)):
        assert text == zellige.sample(model, length=length, seed=[(5, number)], steps=3)[0]
    prompted = zellige.Sample(count=8, prompt=["aa", "abbab"], seed=1).trajectory(model).lengths
    assert min(prompted[:4]) > 2 < min(prompted[4:]) - 3
    beyond = zellige.Sample(count=2, prompt="abbabbabb").trajectory(model)
    assert beyond.lengths == (16, 16)
    learnt = run(tmp_path / "learnt", "mdlm", data("document"), steps=1)
    assert (learnt.config.data.fill, "lengths" in learnt.about["data"]) == (LENGTH, False)
    assert zellige.Sample().trajectory(learnt.model).lengths == ()
    assert learnt.validation.document.units == 20
    assert cli.main(["sample", str(given.folder), "--count", "3", "--steps", "2"]) == 0
    assert "lengths are drawn from those of the training's documents, 2 to 8 tokens" in capsys.readouterr().err


def test_lengths_are_drawn_by_how_often_they_occurred():
    """20,000 draws; the chance that a count lies six deviations from its mean is below 1e-8."""
    counts, seeds = {"3": 1, "5": 6, "7": 3}, [(2, number) for number in range(20_000)]
    lengths = Counter(drawn_lengths(counts, seeds, [0] * 20_000, 9))
    for length, share in ((3, 0.1), (5, 0.6), (7, 0.3)):
        assert abs(lengths[length] - 20_000 * share) < 6 * math.sqrt(20_000 * share * (1 - share))
    longer = Counter(drawn_lengths(counts, seeds, [3] * 20_000, 9))
    assert {*longer} == {5, 7}
    assert abs(longer[5] - 20_000 * 2 / 3) < 6 * math.sqrt(20_000 * 2 / 9)
    assert {*drawn_lengths(counts, seeds[:9], [7] * 9, 9)} == {9}


@pytest.mark.parametrize("words", [["--data.labels-by", "kind"], ["--data.labels", "kind"], ["--data.labels=kind"]])
def test_a_column_of_classes_is_one_option(words):
    """Typed after either option; `wrap`, which has no rows with a class, is refused where it is typed."""
    typed = ["mdlm", "--data.path", "a.jsonl", *words, "--net.length", "8"]
    training, _ = choose(typed, Terminal())
    data = training.filled().data
    assert (data.labels, data.labels_by, data.pack, data.fill) == (True, "kind", "document", None)
    with pytest.raises(InputError, match=r"a row must be one document: `data.pack` document$"):
        choose([*typed, "--data.pack", "wrap"], Terminal())[0].filled()


def test_a_list_of_short_lines_says_what_else_it_could_be(tmp_path):
    """Without a line end after the last line; whether its tokens are made or found. Prose says nothing, nor do documents."""
    (tmp_path / "names.txt").write_text("\n".join(f"name{i:04d}" for i in range(300)))
    (tmp_path / "prose.txt").write_text("a longer line of some prose\n" * 300)
    note = "300 lines of about 8 characters; `data.pack` document makes each a text of its own"
    for path, pack, notes in (
        ("names.txt", "wrap", (note,)), ("names.txt", "wrap", (note,)), ("names.txt", "document", ()), ("prose.txt", "wrap", ())
    ):  # fmt: skip
        data = Data("text", path=str(tmp_path / path), pack=pack, cache=str(tmp_path / "cache"))
        assert prepare(data, 16).notes == notes


def test_documents_do_not_stand_on_a_grid(tmp_path, data):
    net = replace(NET, grid=(2, 4))
    with pytest.raises(InputError, match=r"`data\.pack` packed needs positions on a line; leave out `net\.grid`"):
        train("mdlm", data=data("packed"), net=net, run=tmp_path / "no")
    assert not (tmp_path / "no").exists()
