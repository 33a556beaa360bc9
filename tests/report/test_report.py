"""The report: its figures' numbers, the record of a sampling run, the page in a browser."""

import base64
import html
import json
import math
import re
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.curves import Cosine, Linear
from zellige.core.schedule import Tabulated
from zellige.data import Corpus, Rows
from zellige.data.levels import Levels
from zellige.data.tokenizer import Bytes, Characters
from zellige.evaluation.ngram import NGrams
from zellige.evaluation.result import Result
from zellige.methods import D3PM, MD4, MDLM, build
from zellige.methods.method import Method
from zellige.models.config import Config
from zellige.models.model import Model, load
from zellige.nn import Net
from zellige.nn.network import unfilled
from zellige.plugins import report
from zellige.plugins.evaluations.generate import sample_sets
from zellige.plugins.kinds.music.notes import Notes
from zellige.plugins.report import assemble, figures, page, sections, work
from zellige.samplers import Ancestral, run
from zellige.sampling.sample import watch
from zellige.sampling.trajectory import Frame
from zellige.show import kinds
from zellige.training.logger import write_samples

TEXT = "the value of the object is <script>alert(1)</script> & returned to the caller, who may not use it again. "
LENGTH = 128


class Knows(nn.Module):
    """A network that is nearly sure of one text, less so of its later half; K logits stand as features."""

    def __init__(self, tokens: torch.Tensor, states: int):
        super().__init__()
        sure = torch.where(torch.arange(len(tokens)) < len(tokens) // 2, 9.0, 4.0)
        self.logits = nn.Parameter(nn.functional.one_hot(tokens, states) * sure[:, None])

    def features(self, x, time=None, *, segments=None, condition=None):
        return self.logits.expand(len(x), -1, -1)

    def head(self, h):
        return h.clone()


@pytest.fixture(scope="module")
def tokenizer() -> Characters:
    return Characters(sorted(set(TEXT)))


@pytest.fixture(scope="module")
def method(tokenizer) -> MDLM:
    tokens = torch.tensor(tokenizer.encode((TEXT * 2)[:LENGTH]))
    return MDLM(Knows(tokens, tokenizer.size + 1), tokenizer.size, (LENGTH,))


@pytest.fixture(scope="module")
def model(method, tokenizer):
    """What checkpoint.load gives, as far as the report reads it."""
    about = {"commit": "5c3eb56", "versions": {"torch": "2.13.0"}, "command": "zellige train mdlm --run 'a b'"}
    return SimpleNamespace(method=method, tokenizer=tokenizer, config=None, about=about, defaults={}, unit="bits/char")


@pytest.fixture(scope="module")
def frames(model) -> list[Frame]:
    """The samples of the page, in 32 steps."""
    return list(watch(model, count=work.WATCHED, steps=32, seed=0))


@pytest.fixture(scope="module")
def prompted(model) -> list[Frame]:
    """Four that begin with a prompt of ten characters."""
    return list(watch(model, count=4, steps=32, seed=1, prompt=TEXT[:10]))


@pytest.fixture
def folder(tmp_path) -> Path:
    return leave_run(tmp_path)


def leave_run(folder: Path) -> Path:
    """What a training run of 2,300 steps leaves behind, in a folder."""
    rng = np.random.default_rng(0)
    rows = ["step,epoch,seconds,tokens,loss,unit,rate,gradient_norm,tokens_per_second,validation,validation_low,"
            "validation_high"]  # fmt: skip
    for step in range(10, 2301, 10):
        loss = 2.1 + 2.6 * np.exp(-step / 400) + rng.normal(0, 0.08)
        bound = f"{loss:.3f},{loss - 0.02:.3f},{loss + 0.02:.3f}" if step % 460 == 0 else ",,"
        rate, norm = 3e-3 * min(step / 200, 1) * (1 - step / 2400), 0.6 + rng.exponential(0.2)
        rows.append(f"{step},0,{step / 20},{step * 4096},{loss:.4f},bits/char,{rate:.3g},{norm:.3f},16400,{bound}")
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    config = {"method": "mdlm", "data": {"name": "pydocs"}, "train": {"steps": 2300, "seed": 0}, "note": "<b>&</b>"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "samples").mkdir()
    for step in 500, 2300:
        line = {"text": TEXT + "\x1b[31m\u2028", "tokens": [1], "seed": step, "calls": 60, "prompt": "the value "}
        lines = json.dumps(line, ensure_ascii=False) + "\n" + json.dumps(line | {"prompt": None, "text": "ab\ncd"})
        (folder / f"samples/step-{step:06}.jsonl").write_text(lines + "\n", encoding="utf-8")
    terms = {"diffusion": 193.1, "reconstruction": 0.0, "prior": 0.4}
    result = Result(2.181, 2.16, 2.202, "bits/char", terms=terms, sequences=147, draws=4, units=18811.0, seed=0,
                    protocol={"name": "zellige-1", "time": "whole of t in [0, 1]"}, seconds=9.0)  # fmt: skip
    result.save(folder / "evaluate-pydocs-test.json")
    return folder


@contextmanager
def texts_of(model):
    """The corpus of a page is one of our own."""
    tokens = np.array([model.tokenizer.encode((TEXT * 3)[i : i + LENGTH]) for i in range(12)])
    rows = Rows(tokens, LENGTH, characters=tokens.size)
    corpus = Corpus(model.tokenizer, {"train": rows, "validation": rows}, {"name": "text"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_corpus", lambda model: (corpus, ""))
        yield


@pytest.fixture
def corpus(model):
    with texts_of(model):
        yield


@pytest.fixture(scope="module")
def written(model, tmp_path_factory) -> Path:
    """The page of that run, for those who read it."""
    with texts_of(model):
        return report.write(leave_run(tmp_path_factory.mktemp("written")), model=model, steps=32)


# ---------------------------------------------------------------------------------------------------- figures
def line(ax, label):
    return next(one for one in ax.get_lines() if str(one.get_label()).startswith(label)).get_xydata()


def test_thin_keeps_the_extremes_of_every_part():
    rng = np.random.default_rng(0)
    x, y = np.arange(54_321.0), rng.normal(size=54_321)
    y[[77, 40_000]] = 50, -50
    a, b = figures.thin(x, y, 1_000)
    assert len(a) <= 1_000
    assert (np.diff(a) > 0).all()
    assert {50.0, -50.0} <= set(b)
    assert (y[a.astype(int)] == b).all()
    assert figures.thin(x[:9], y[:9], 1_000)[1] is not None
    assert (figures.thin(x[:9], y[:9], 1_000)[1] == y[:9]).all()


def test_smooth_is_the_mean_over_a_window_of_steps():
    step = np.array([1, 2, 5, 50, 101, 102, 300.0])
    y = np.array([1, 2, 3, 4, 5, 6, 7.0])
    slow = [y[(step > s - 100) & (step <= s)].mean() for s in step]
    assert figures.smooth(step, y, 100) == pytest.approx(slow)


def test_curves_draw_what_the_run_measured(folder):
    fig = report.curves(folder, baselines={"3-gram": 2.44})
    log, unit = report.metrics(folder)
    top = fig.axes[0]
    assert unit == "bits/char"
    assert top.get_ylabel() == "bits/char, lower is better"
    measured = np.isfinite(log["validation"])
    dots, _, (whiskers,) = top.containers[0].lines
    assert dots.get_xydata() == pytest.approx(np.stack([log["step"], log["validation"]], 1)[measured])
    ends = np.array([segment[:, 1] for segment in whiskers.get_segments()])
    assert ends == pytest.approx(np.stack([log["validation_low"], log["validation_high"]], 1)[measured])
    assert (line(top, "3-gram")[:, 1] == 2.44).all()
    assert [ax.get_title("left") for ax in fig.axes[1:]] == ["learning rate", "gradient norm", "tokens/s"]
    assert report.curves(SimpleNamespace(folder=folder)).axes[0].containers


def test_a_loss_that_is_no_bound_does_not_stand_beside_the_bound(folder):
    text = (folder / "metrics.csv").read_text().replace("bits/char", "")
    (folder / "metrics.csv").write_text(text)
    fig = report.curves(folder)
    assert not [one for one in fig.axes[0].get_lines() if str(one.get_label()).startswith("training")]
    assert fig.axes[3].get_title("left") == "loss (not a bound)"


@pytest.mark.parametrize("own", [Linear(), Cosine(alpha_0=0.9999)])
def test_schedule_shows_alpha_and_weight_beside_the_others(own):
    left, right = report.schedule(own).axes
    t, alpha = line(left, "this run").T
    assert alpha == pytest.approx(own.alpha(torch.tensor(t))[:, 0].numpy())
    assert line(right, "this run")[:, 1] == pytest.approx(own.weight(torch.tensor(t))[:, 0].numpy())
    names = [str(one.get_label()) for one in left.get_lines()]
    assert names[0] == f"this run: {type(own).__name__.lower()}"
    assert {"geometric", "polynomial"} < set(names)
    assert len(names) == len(set(names))
    dashes = [str(one._dash_pattern) for one in left.get_lines()]
    assert len(set(dashes)) == len(names)  # never colour alone


def test_a_table_is_shown_at_its_own_times():
    alpha = torch.tensor([1.0, 0.7, 0.4, 0.3, 0.0], dtype=torch.float64)
    left, right = report.schedule(Tabulated(alpha)).axes
    assert line(left, "this run") == pytest.approx(np.stack([np.arange(5) / 4, alpha.numpy()], 1))
    weight = 4 * np.array([0.3 / 0.3, 0.3 / 0.6, 0.1 / 0.7, 0.3 / 1.0])  # T (alpha_s - alpha_t)/(1 - alpha_t)
    assert line(right, "this run") == pytest.approx(np.stack([np.arange(1, 5) / 4, weight], 1))


def test_revealed_counts_the_masks(prompted, method):
    frames = prompted
    mask = method.process.mask
    top, strip = report.revealed(iter(frames), method).axes[:2]
    masked = np.stack([(f.x == mask).numpy() for f in frames])
    free = ~frames[0].fixed.numpy()
    share = np.stack([1 - m.sum(1) / free.sum(1) for m in masked])
    assert line(top, "this run")[:, 1] == pytest.approx(share.mean(1))
    expected = line(top, "expected")[1:-1, 1]
    assert expected == pytest.approx([1 - 0.999 * f.t for f in frames[1:-1]], abs=1e-6)
    first = np.where(free, masked.sum(0), np.nan)  # masked in frames 0 .. k-1, so revealed in frame k
    assert np.array_equal(np.ma.filled(strip.get_images()[0].get_array(), np.nan), first, equal_nan=True)


def test_reveal_counts_are_the_differences(prompted, method):
    """The masks that go in each step, against L (alpha(s) - alpha(t)); both add up to all that was free."""
    frames, mask = prompted, method.process.mask
    (ax,) = report.reveal_counts(iter(frames), method).axes
    left = np.stack([(f.x == mask).sum(1).numpy() for f in frames])
    assert line(ax, "this run")[:, 1] == pytest.approx(-np.diff(left.mean(1)))
    free = (~frames[0].fixed).sum(1).double().mean().item()
    times = [1.0, *(0.999 * f.t for f in frames[1:-1]), 0.0]
    assert line(ax, "expected")[:, 1] == pytest.approx(-free * np.diff(times), abs=2e-5)  # float32
    assert line(ax, "expected")[:, 1].sum() == line(ax, "this run")[:, 1].sum() == pytest.approx(free)
    p = -np.diff(times)
    half = 1.96 * np.sqrt(p * (1 - p) * free / len(frames[0].x))  # of the mean of four binomial counts
    (band,) = ax.collections
    ends = band.get_paths()[0].vertices[:, 1]
    for end in np.concatenate((free * p + half, np.maximum(free * p - half, 0))):
        assert np.abs(ends - end).min() < 1e-3
    assert (ends.min(), ends.max()) == pytest.approx(
        (np.maximum(free * p - half, 0).min(), (free * p + half).max()), abs=1e-3
    )
    assert not [one for one in report.reveal_counts(frames).axes[0].get_lines() if "expected" in str(one.get_label())]


def test_learnt_shows_the_earliest_and_the_latest():
    values = {"exponent": torch.tensor([0.5, 3.0, 1.0, 2.0, 0.1]), "half": torch.tensor([0.2, 0.8, 0.5, 0.7, 0.0])}
    assert figures.extremes(values["exponent"], 2) == ([1, 3], [0, 4])
    assert figures.extremes(values["exponent"], 3) == ([1, 3, 2], [0, 4])
    assert figures.extremes(values["exponent"]) == ([1, 3, 2, 0, 4], [])
    left, right = report.learnt(values, lambda i: "ab$_e"[i], most=2).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["b", "_", "a", "e"]
    assert left.get_lines()[0].get_xydata() == pytest.approx(np.array([[3.0, 0], [2.0, 1], [0.5, 3], [0.1, 4]]))
    assert right.get_xlabel() == "half"
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the earliest above


def test_the_page_has_what_was_learnt_where_something_was(folder, model, corpus, written, monkeypatch):
    assert "Which tokens appear early" not in written.read_text()
    learnt = {
        "exponent": torch.linspace(2, 1, model.tokenizer.size),
        "half": torch.linspace(0.9, 0.1, model.tokenizer.size),
    }
    monkeypatch.setattr(type(model.method), "learned_quantities", lambda self: learnt)
    html = report.write(folder, model=model, steps=8).read_text()
    part = html[html.index('id="schedule-learnt-title"') :]
    assert "<desc" in part
    rows = re.findall(r"<tr><td>(\d+)</td><td[^>]*>(.*?)</td><td[^>]*>([\d.]+)</td>", part[: part.index("</table>")])
    assert len(rows) == 24
    assert rows[0] == ("1", f"&#x27;{model.tokenizer.decode([0])}&#x27;", "2")
    assert rows[-1][::2] == (f"{model.tokenizer.size}", "1")


def test_an_exact_likelihood_on_the_page(folder, model, corpus):
    exact = Result(2.0, 1.9, 2.1, "bits/char", "exact", terms={"forward": 177.0}, sequences=147, units=18811.0, seed=0)
    exact.save(folder / "evaluate-pydocs-test-forward.json")
    html = report.write(folder, model=model, steps=8).read_text()
    part = html[html.index("<h3>pydocs-test-forward</h3>") :]
    assert "= 2.000" in part
    assert "147 sequences, exact for each" in part
    assert "<svg" not in part[: part.index("<pre>")]  # one term is no bar
    assert "147 sequences x 4 draws" in html


def test_revealed_takes_bare_states_too(method):
    states = list(run(Ancestral(), method, (1, LENGTH), 8, generator=torch.Generator().manual_seed(1)))
    (share,) = [one for one in report.revealed(states, method).axes[0].get_lines() if one.get_label()[0] != "_"]
    assert share.get_ydata()[-1] == 1.0
    with pytest.raises(InputError, match="no states to draw"):
        report.revealed([])


def test_the_integrand_is_that_of_the_diffusion_term(method, tokenizer):
    """This network ignores x_t, so the integrand is 0.999 (-alpha' of the schedule) times the sum of cross-entropies."""
    tokens = torch.tensor(tokenizer.encode((TEXT * 3)[7 : 7 + LENGTH])).repeat(64, 1)
    law = method.network.logits[:, :-1].log_softmax(-1)
    exact = -0.999 * law.gather(-1, tokens[0][:, None]).sum().item()
    t, nats = report.integrand(method, Batch(tokens, None), points=8)
    assert t == pytest.approx((np.arange(8) + 0.5) / 8)
    error = nats.std(1, ddof=1) / 8
    assert (np.abs(nats.mean(1) - exact) < 4.5 * error + 1e-9).all()
    fig = report.loss_against_t(t, nats)
    assert fig.axes[0].containers[0].lines[0].get_ydata() == pytest.approx(nats.mean(1))
    assert fig.axes[0].get_legend().get_title().get_text() == f"area under it: {nats.mean():.3f}"  # the midpoint rule
    few = np.array([[1.0, 2.0, 6.0]])
    (bar,) = report.loss_against_t(np.array([0.5]), few).axes[0].containers[0].lines[2][0].get_segments()
    half = 4.302653 * few.std(ddof=1) / math.sqrt(3)  # Student's t of three texts
    assert bar[:, 1] == pytest.approx([3 - half, 3 + half])


@pytest.mark.parametrize("process", ["absorbing", "uniform"])
def test_the_integrand_of_discrete_time_is_that_of_its_steps(tokenizer, process):
    tokens = torch.tensor(tokenizer.encode((TEXT * 2)[:LENGTH]))
    config = D3PM.Config(process, "mutual-information", diffusion_steps=6)
    method = D3PM(Knows(tokens, tokenizer.size + (process == "absorbing")), tokenizer.size, (LENGTH,), config)
    for points, times in ((16, [1, 2, 3, 4, 5, 6]), (3, [1, 3, 5])):
        t, nats = report.integrand(method, Batch(tokens.repeat(64, 1)), points)
        assert t == pytest.approx(np.array(times) / 6)
    t, nats = report.integrand(method, Batch(tokens.repeat(64, 1)))
    whole = method.bound(Batch(tokens.repeat(256, 1))).detach()  # no jump and no prior: all of it
    assert abs(float(whole.mean()) - nats.mean()) < 4.5 * (float(whole.std()) / 16 + nats.std() / 16) + 1e-9


# ---------------------------------------------------------------------------------------------------- the record
def test_entropy_is_that_of_the_law_the_token_was_drawn_from(method, prompted):
    frames = prompted
    law = method.network.logits[:, :-1].detach().double().softmax(-1)
    exact = -(law * law.log2()).sum(-1).numpy()
    bits = report.entropies(method, frames)
    free = ~frames[0].fixed.numpy()
    assert np.isnan(bits[~free]).all()
    assert bits[free] == pytest.approx(np.broadcast_to(exact, bits.shape)[free], abs=1e-4)


@pytest.mark.parametrize("given", [0, 10])
def test_the_record_plays_back_every_frame(method, tokenizer, frames, prompted, given):
    frames = prompted if given else frames
    mask = method.process.mask
    data = report.record(method, tokenizer, frames, report.entropies(method, frames))
    assert data == json.loads(json.dumps(data))
    assert (data["total"], data["steps"]) == (32, list(range(33)))
    for b, sample in enumerate(data["samples"]):
        assert sample["calls"] == [int(f.calls[b]) for f in frames]
        assert sum(sample["given"]) == given
        for k, f in enumerate(frames):
            text = "".join("·" if i == mask else tokenizer.decode([i]) for i in f.x[b].tolist())
            assert page.text_at(sample, k) == text


def test_tokens_that_change_twice_are_recorded_as_differences(method, tokenizer, frames):
    """As under uniform noise, or a sampler that masks again."""
    mask = method.process.mask
    x = frames[20].x.clone()
    x[:, ::7], x[:, 1::7] = mask, 3
    changing = [*frames[:20], replace(frames[20], state=replace(frames[20].state, x=x)), *frames[21:]]
    data = report.record(method, tokenizer, changing)
    for b, sample in enumerate(data["samples"]):
        assert "reveal" not in sample
        for k, f in enumerate(changing):
            text = "".join("·" if i == mask else tokenizer.decode([i]) for i in f.x[b].tolist())
            assert page.text_at(sample, k) == text


def test_the_player_shows_a_text_up_to_its_end():
    model = load("stories")
    *_, before, last = watch(model, length=224, seed=3)
    (sample,) = report.record(model.method, model.tokenizer, [before, last])["samples"]
    assert last.ends[0] < len(sample["pieces"]) == 224
    assert "".join(sample["pieces"]) == last.text[0]


def test_pieces_join_to_the_text_where_a_character_spans_tokens():
    text = "né 漢字 ok"
    ids = list(text.encode())
    pieces = report.pieces(Bytes(), ids)
    assert "".join(pieces) == text
    assert len(pieces) == len(ids)
    assert "é" in pieces
    assert "".join(report.pieces(Bytes(), ids[:-6])) == Bytes().decode(ids[:-6])  # cut within a character


# ---------------------------------------------------------------------------------------------------- the page
class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_stands_alone(written):
    raw = written.read_bytes()
    assert written.name == "report.html"
    assert len(raw) < 2_000_000
    assert not list(written.parent.glob("*.part"))
    found = Page(raw.decode("utf-8"))
    for tag, attributes in found.elements:
        for name in {"src", "href", "xlink:href", "action", "data"} & set(attributes):
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    assert not re.search(rb"url\((?!#)|@import", raw)
    ids = [a["id"] for _, a in found.elements if "id" in a]
    assert len(ids) == len(set(ids))
    svgs = [a for tag, a in found.elements if tag == "svg"]
    assert len(svgs) == 6  # curves, schedule, order of reveal, counts, loss against t, terms
    assert all(set(a["aria-labelledby"].split()) <= set(ids) for a in svgs)
    folded = sum(tag == "summary" for tag, _ in found.elements)
    assert folded == 6  # the numbers of all figures but the terms, which stand in a table; config.json
    for section in ("watch", "curves", "schedule", "samples", "evaluation", "configuration"):
        assert "section" in [t for t, a in found.elements if a.get("id") == section], section


def test_everything_is_escaped(written):
    raw = written.read_text(encoding="utf-8")
    found = Page(raw)
    scripts = [a for tag, a in found.elements if tag == "script"]
    assert [a.get("type") for a in scripts] == ["application/json", None]
    assert html.escape("<script>alert(1)</script>") in raw
    assert "\\x1b[31m" in raw
    assert "\x1b" not in raw
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in raw  # of config.json


def test_the_page_says_the_numbers(written):
    text = " ".join(Page(written.read_text(encoding="utf-8")).text)
    for said in ("mdlm on pydocs", "≤ 2.181 ± 0.021 bits/char (95%)", "2,300 steps", "1:55", "193.500", "zellige-1",
                 "zellige evaluate --from", "zellige train mdlm --run 'a b'", "5c3eb56", "4-gram"):  # fmt: skip
        assert said in text, said


def test_the_page_is_the_same_each_time(written, model, corpus, tmp_path):
    again = report.write(written.parent, tmp_path / "again.html", model=model, steps=32)
    assert again.read_bytes() == written.read_bytes()


def test_a_page_says_how_far_it_is(written, model, corpus, tmp_path):
    seen: list[tuple[int, int]] = []
    report.write(written.parent, tmp_path / "again.html", model=model, steps=8, progress=lambda *at: seen.append(at))
    assert seen == sorted(seen)
    assert len({total for _, total in seen}) == 1
    assert seen[0][0] == 0 < seen[-1][0] == seen[-1][1]
    assert len(seen) > 16


@pytest.mark.parametrize(("channels", "steps"), [(8, 32), (128, 8)])
def test_a_page_asks_a_large_model_of_images_less(channels, steps):
    """A U-Net of 36 million parameters on 32 x 32 x 3 was asked about 256 rows, minutes of a CPU beside other work."""
    net = Net(length=3072, grid=(32, 32, 3), kind="unet", channels=channels)
    with unfilled():
        own = Model(
            build("md4", 256, net, ordered=True), Levels(256, (32, 32, 3)), Config("md4", MD4.Config(), net=net)
        )
    asked = work.Work(own)
    assert asked.steps == steps
    assert asked.total < (70 if channels == 128 else 800)
    assert work.Work(own, 64).steps == 64  # what is asked for is done


def test_a_page_too_large_loses_samples_last_first(written, model, corpus, tmp_path, monkeypatch):
    whole = len(written.read_bytes())
    monkeypatch.setattr(assemble, "LIMIT", whole - 100)
    raw = report.write(written.parent, tmp_path / "small.html", model=model, steps=32).read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="watched">(.*?)</script>', raw, re.S)[1])
    assert len(data["samples"]) == work.WATCHED - 1
    assert "1 more was left out to keep the page under 2 MB" in raw


def test_what_is_missing_is_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"no run at .*; give the folder") as caught:
        report.write(tmp_path)
    assert not list(tmp_path.iterdir()), caught
    (tmp_path / "config.json").write_text('{"method": "mdlm"}')
    monkeypatch.setattr(assemble, "_model", lambda folder, model: (None, "no checkpoint in 'x' yet"))
    text = report.write(tmp_path).read_text(encoding="utf-8")
    for said in ("no checkpoint in &#x27;x&#x27; yet", "no metrics.csv yet", "no samples yet", "not evaluated yet"):
        assert said in text


# ---------------------------------------------------------------------------------------------------- images, music, grids
KINDS = {
    "image": Levels(8, (6, 5), "image", "dim", ordered=True),
    "colour": Levels(256, (4, 5, 3), "image", "dim", ordered=True),
    "grid": Levels(9, (9, 9), "grid", "cell", labels=range(1, 10)),
    "roll": Notes(20, (32, 4), ordered=True, labels=[-1, *range(60, 79)]),
}


def shaped(name: str):
    """A model that is nearly sure of one row of that kind, the row, and a corpus of others."""
    tokenizer = KINDS[name]
    length = int(np.prod(tokenizer.shape))
    rows = np.random.default_rng(0).integers(0, tokenizer.size, (6, length))
    if name == "grid":
        rows[:] = [(3 * y + y // 3 + x) % 9 for y in range(9) for x in range(9)]
    method = MDLM(Knows(torch.tensor(rows[0]), tokenizer.size + 1), tokenizer.size, (length,))
    split = Rows(rows, length)
    corpus = Corpus(tokenizer, {"train": split, "validation": split, "test": split}, {"name": name})
    unit = f"bits/{tokenizer.unit}"
    return (
        SimpleNamespace(method=method, tokenizer=tokenizer, config=None, about={}, defaults={}, unit=unit),
        rows,
        corpus,
    )


@pytest.fixture(scope="module", params=list(KINDS))
def shown(request, tmp_path_factory):
    """A kind's name, its model, its first rows, its page and the frames of the samples on it."""
    model, rows, corpus = shaped(request.param)
    folder = leave_run(tmp_path_factory.mktemp(request.param))
    for path in (folder / "samples").iterdir():
        path.write_text("".join(json.dumps({"tokens": row.tolist(), "text": "never read"}) + "\n" for row in rows[:2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_corpus", lambda model: (corpus, ""))
        page = report.write(folder, model=model, steps=16)
    return request.param, model, rows, page, list(watch(model, count=work.WATCHED, steps=16, seed=0))


def test_the_page_shows_what_it_is(shown):
    name, model, rows, page, frames = shown
    kind, raw = kinds.of(model.tokenizer), page.read_bytes()
    assert len(raw) < 1_000_000
    text = raw.decode()
    assert "never read" not in text
    sources = [a["src"] for tag, a in Page(text).elements if tag == "img"]
    images = [base64.b64decode(s.removeprefix("data:image/png;base64,")) for s in sources]
    assert len(images) == 4  # stills, the samples of the first and of the last validation, what was filled in
    assert images[1] == images[2] == kind.png(rows[:2])
    data = json.loads(re.search(r'id="watched">(.*?)</script>', text, re.S)[1])
    across = {"image": 5, "colour": 5, "grid": 9, "roll": 4}[name]
    box, cell = 3 if name == "grid" else None, 3 if name == "colour" else 1
    roll = {name: data["kind"].pop(name) for name in ("pitches", "voices", "bar") if name in data["kind"]}
    assert data["kind"] == {"name": kind.name, "across": across, "cell": cell, "box": box}
    if name == "roll":
        assert {roll["pitches"]["A4"], roll["pitches"]["C4"]} == {69, 60}
        assert len(roll["voices"]) == across
        assert roll["bar"] == 16
    else:
        assert not roll
    assert data["samples"][0]["pieces"] == kind.pieces(frames[-1].x[0].tolist())
    if name == "grid":
        assert re.search(r"[0-8] of 8 are valid; what stands twice", text)


def test_what_is_filled_in_keeps_what_was_given(monkeypatch):
    model, rows, corpus = shaped("image")
    seen = []
    monkeypatch.setattr(kinds.Image, "png", lambda self, *how: seen.append(how) or b"")
    text = sections.infilled(model, corpus.test, 8, 0, 8)
    assert "given, filled, filled and truth, from left to right." in text
    ((pixels, given, captions),) = seen
    assert captions == ["given", "filled", "filled", "truth"]
    for (part, *filled, truth), at in zip(pixels.reshape(4, 4, 30), (0, 1, 3, 5)):  # evenly spaced in the split
        assert (truth == rows[at]).all()
        assert (part[:15] == truth[:15]).all()
        assert (part[15:] == -1).all()
        assert all((row[:15] == truth[:15]).all() and (row >= 0).all() for row in filled)
    assert (given == (np.arange(30) < 15)).all()


class Noise(SimpleNamespace):
    """A method of which the page reads the noise alone."""

    stands_for = Method


def test_noise_may_absorb_into_a_level_of_the_data():
    """Its mask is a token: at the end what stands there is a pixel, not a hole."""
    tokenizer = Levels(3, (2, 2), "image", "dim", ordered=True)
    x = torch.tensor([[[1, 1, 1, 1]], [[1, 2, 1, 1]], [[0, 2, 1, 1]]])
    states = [SimpleNamespace(x=row, fixed=torch.zeros(1, 4, dtype=torch.bool), calls=torch.zeros(1)) for row in x]
    method = Noise(process=SimpleNamespace(mask=1))
    (sample,) = report.record(method, tokenizer, states)["samples"]
    assert sample["pieces"] == ["0", "255", "128", "128"]
    assert sample["reveal"] == [2, 1, 2, 2]


def test_pages_of_noise_that_moves_every_pixel_stay_small():
    """32 x 32 x 3 values, each another one in each of 65 frames: fewer frames, the first and the last among them."""
    tokenizer = Levels(256, (32, 32, 3), "image", "dim", ordered=True)
    x = torch.randint(256, (65, 1, 3072), generator=torch.Generator().manual_seed(0))
    states = [
        SimpleNamespace(x=row, fixed=torch.zeros(1, 3072, dtype=torch.bool), calls=torch.tensor([k]), step=k)
        for k, row in enumerate(x)
    ]
    method = Noise(process=SimpleNamespace(mask=None))
    kept = report.fewer(states, method)
    assert [kept[0].step, kept[-1].step, len(kept)] == [0, 64, 32]
    assert len(json.dumps(report.record(method, tokenizer, kept))) < 1_900_000
    assert report.fewer(states, Noise(process=SimpleNamespace(mask=256))) is states


# ---------------------------------------------------------------------------------------------------- in a browser
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def opened(page: Path, profile: Path):
    """A page's elements after some milliseconds in headless Chromium, with a fragment in the address."""
    if BROWSER is None:
        pytest.skip("no Chromium on this machine: the player was not played")

    def dump(fragment: str, milliseconds: int) -> str:
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile / 'profile'}",
                   f"--virtual-time-budget={milliseconds}", "--dump-dom", f"file://{page}{fragment}"]  # fmt: skip
        return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode("utf-8")

    return dump


@pytest.fixture
def dom(written, tmp_path):
    return opened(written, tmp_path)


def at(dom: str) -> tuple[int, str]:
    """The player's step and the text it shows."""
    step = int(re.search(r'aria-valuetext="step (\d+) of 32"', dom)[1])
    return step, html.unescape(re.search(r'id="spoken">(.*?)</p>', dom, re.S)[1])


def test_the_player_plays_to_the_sample(dom, frames, method, tokenizer):
    mask = method.process.mask
    text = lambda k, b=0: "".join("·" if i == mask else tokenizer.decode([i]) for i in frames[k].x[b].tolist())  # noqa: E731
    assert at(dom("", 500)) == (32, text(32))  # paused, at the finished text
    early, samples = at(playing := dom("#play", 1_500))
    assert 2 < early < 32
    assert samples == text(early)
    assert ">Pause</button>" in playing
    assert at(ended := dom("#play&step=20", 10_000)) == (32, text(32))
    assert ">Play</button>" in ended
    assert at(dom("#step=11&sample=3&colour=entropy", 500)) == (11, text(11, 2))


def test_the_player_follows_the_keys(written, tmp_path):
    """A second script presses keys and notes the steps; it runs only where the page's own policy is lifted."""
    script = """<script>
      const player = document.getElementById("player"), seen = [];
      for (const [key, shiftKey] of [["Home"], ["ArrowRight"], ["ArrowRight", true], ["ArrowLeft"], ["End"], ["ArrowRight"],
                                     ["ArrowLeft", true], [" "], [" "]]) {
        player.dispatchEvent(new KeyboardEvent("keydown", {key, shiftKey, bubbles: true}));
        seen.push(document.getElementById("scrub").value + document.getElementById("play").textContent);
      }
      document.body.append(Object.assign(document.createElement("output"), {id: "seen", textContent: seen.join(" ")}));
    </script></body>"""
    page = tmp_path / "keys.html"
    text = written.read_text(encoding="utf-8").replace("</body>", script)
    page.write_text(text, encoding="utf-8")
    dom = opened(page, tmp_path)
    assert 'id="seen">' not in dom("", 300)
    page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text), encoding="utf-8")
    seen = re.search(r'<output id="seen">(.*?)</output>', dom("", 300))[1]
    assert seen == "0Play 1Play 11Play 10Play 32Play 32Play 22Play 22Pause 22Play"


def test_the_player_shows_the_cells(shown, tmp_path):
    _, model, _, page, frames = shown
    text = opened(page, tmp_path)("#step=8", 500)
    samples = re.search(rf'<div class="{kinds.of(model.tokenizer).name}" id="text"[^>]*>(.*?)</div>', text, re.S)[1]
    spans = re.findall(r"<span([^>]*)>(.*?)</span>", samples)
    kind, mask = kinds.of(model.tokenizer), model.method.process.mask
    tokens = frames[8].x[0].tolist()
    if kind.name == "image":
        colours = [re.search(r"rgb\((\d+), (\d+), (\d+)\)", style) for style, _ in spans]
        pixels = kind.pixels(tokens).reshape(-1, 3).tolist()
        holes = [all(t == mask for t in cell) for cell in np.reshape(tokens, (len(spans), -1))]
        assert sum(holes) > 0
        for found, pixel, hole in zip(colours, pixels, holes, strict=True):
            assert found is None if hole else [int(c) for c in found.groups()] == pixel
    else:
        final = kind.pieces(frames[-1].x[0].tolist())
        for (style, piece), token, last in zip(spans, tokens, final, strict=True):
            assert piece == last
            assert ('class="masked"' in style) == (token == mask)


def test_damaged_samples_are_named(tmp_path, monkeypatch):
    """A letter of a text, a token, the form; and `evaluate --samples` says the same."""
    monkeypatch.chdir(tmp_path)
    write_samples(tmp_path, 4, [{"text": f"the cat {i}", "tokens": [i], "seed": 0, "calls": 3} for i in range(2)])
    file = Path("samples/step-000004.jsonl")
    whole = file.read_text()
    assert "the cat 1" in sections.validation_samples(Path(), None)
    for before, after, said in (
        ("the cat 1", "the bat 1", "has changed since it was written (checksum); "),
        ('"tokens": [1]', '"tokens": [3]', "has changed since it was written (checksum); "),
        ('"tokens": [1]', '"tokens": [1}', "is not JSON; "),
    ):
        file.write_text(whole.replace(before, after))
        for read in (lambda: sections.validation_samples(Path(), None), lambda: sample_sets.read_samples(file)):
            with pytest.raises(InputError) as caught:
                read()
            assert str(caught.value).startswith(f"line 2 of 'samples/step-000004.jsonl' {said}")


@pytest.mark.parametrize("text", ["step,loss\n1,0.5:2\n", "something,else\n1,2\n"])
def test_a_damaged_metrics_csv_is_named(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(InputError, match=r"metrics\.csv' is damaged; copy the run again, or remove the file"):
        report.metrics(tmp_path)


def test_ngrams_are_of_the_tokens_of_the_model(model):
    """In nats per token where these are no characters, of as many tokens as 64 bits hold."""
    g = np.random.default_rng(0)
    for size, orders in ((300, 4), (70_000, 3)):
        train, rows = (Rows(g.integers(0, 3, 640), 32, characters=1280) for _ in range(2))
        corpus = SimpleNamespace(train=train, validation=rows, tokenizer=SimpleNamespace(shape=(), size=size))
        own = SimpleNamespace(method=model.method, unit="nats/token")
        grams = NGrams(train.array(), rows.array(), size, order=orders)
        expected = {f"{m}-gram": -grams.log_prob(rows.array(), m).mean() for m in range(1, orders + 1)}
        assert assemble._ngrams(own, corpus) == pytest.approx(expected)
