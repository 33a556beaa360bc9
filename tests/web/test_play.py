"""`zellige play` without a browser: what its addresses answer, to right requests and to wrong ones."""

import asyncio
import dataclasses
import html
import json
import math
import re
import socket
import sys
import threading
import time
from typing import Any

import pytest
import torch

import zellige
from zellige import cli, samplers
from zellige.cli import flags
from zellige.cli.common import SamplerOptions
from zellige.cli.drawing import SampleOptions
from zellige.core.batch import Batch
from zellige.models import shipped
from zellige.plugins.kinds.music import roll
from zellige.plugins.web import command as serve_command
from zellige.samplers import Confidence, FixedOrder
from zellige.samplers.replay import Replayed, weigh
from zellige.show import kinds

from .small_models import LENGTH, at_once, small

TestClient = pytest.importorskip("fastapi.testclient", reason="the extra `web` is missing").TestClient
Limits = pytest.importorskip("zellige.plugins.web.guard").Limits
export = pytest.importorskip("zellige.plugins.web.export")
play = pytest.importorskip("zellige.plugins.web.play")
drawn = pytest.importorskip("zellige.plugins.web.drawn")
examples = pytest.importorskip("zellige.plugins.web.examples")
worker = pytest.importorskip("zellige.plugins.web.worker")
sampler_fields = pytest.importorskip("zellige.plugins.web.play").sampler_fields

HERE = "http://127.0.0.1"
MODELS = {
    "text": small(),
    "ar": small(name="ar"),
    "sudoku": small("sudoku"),
    "images": small("image", classes=3),
    "music": small("music"),
    "csm": small(name="csm"),
    "bd3lm": small(name="bd3lm", block=4),
    "udlm": small(name="udlm"),
    "selfies": small("selfies"),
    "bytes": small("bytes"),
}
NUMBER = {name: i for i, name in enumerate(MODELS)}


@pytest.fixture(scope="module")
def client():
    limits = dataclasses.replace(play.LIMITS, body=20_000, steps=50, tokens=1_500)
    with TestClient(play.application(MODELS, limits), base_url=HERE, raise_server_exceptions=False) as client:
        yield client


def lines(response) -> list[dict]:
    return [json.loads(line) for line in response.text.splitlines()]


def draw(client, model="text", **fields) -> list[dict]:
    answer = client.post("/api/draw", json={"model": NUMBER[model], "steps": 6} | fields)
    assert answer.status_code == 200, answer.text
    return lines(answer)


def recorded(steps: list[dict], model: str, **fields) -> dict:
    """What the page sends of a draw to have it as a file."""
    return {
        "model": NUMBER[model], "format": "html", "steps": [s["step"] for s in steps], "t": [s["t"] for s in steps],
        "calls": [s["calls"] for s in steps], "held": steps[0]["given"], "start": steps[0]["from"],
        "changes": [[change[:2] for change in s["changes"]] for s in steps], "entropy": [None] * len(steps[0]["from"]),
    } | fields  # fmt: skip


# ---------------------------------------------------------------------------------------------- what is right
@pytest.mark.parametrize("model", MODELS)
def test_a_draw_is_what_sample_draws(client, model):
    steps = draw(client, model, seed=4)
    frames = list(zellige.watch(MODELS[model], seed=4, steps=6))
    assert steps[-1]["tokens"] == frames[-1].x[0].tolist()
    assert [s["calls"] for s in steps] == [int(f.calls[0]) for f in frames]


@pytest.mark.skipif("stories" not in shipped.names(), reason="the included models are not installed")
def test_the_token_that_ends_a_text_is_not_shown():
    """Its positions are empty, on the page and in what is saved of it; of running text it is a token like others."""
    model = zellige.load("stories")
    begin, end = model.tokenizer.encode("The end."), model.tokenizer.separator
    texts = drawn.Texts(model)
    assert texts.row([*begin, end, end, -1]) == [*texts.row(begin), "", "", None]
    assert "".join(filter(None, texts.row(begin))) == "The end."
    assert texts.of(end)  # as a rival of others it has its name
    running = dataclasses.replace(model.config, data=dataclasses.replace(model.config.data, pack="wrap"))
    assert drawn.Texts(zellige.Model(model.method, model.tokenizer, running)).row([end])[0] == texts.of(end)


def test_a_question_goes_through_the_template_as_in_sample(client):
    """A line stands in it as it is typed, `_` too; the page names the plain template of text, and of nothing else."""
    drawn = zellige.sample(MODELS["text"], prompt="why", chat=True, seed=4, steps=6)
    assert drawn[0].startswith("user why assistant")
    assert draw(client, seed=4, text="why", chat=True)[-1]["text"] == drawn[0]
    assert draw(client, seed=4, text="", chat=True)
    templates = {model["name"]: model["template"] for model in client.get("/api/models").json()}
    assert templates["text"] == "'user ... assistant ...'"
    assert not any(templates[name] for name in ("sudoku", "selfies", "images"))


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("fixed_order", {"order": "backward", "per_step": 5}),
        ("remasking", {"remasking": "rescale", "eta": 0.4}),
        ("confidence", {"confidence": "margin", "threshold": 0.2}),
        ("ancestral", {"argmax": "every", "top_k": 2}),
        ("blockwise", {"block_sampler": "first_hitting", "stride": 6}),
        ("semi_autoregressive", {"block_length": 8, "cache": "dual", "refresh": 2}),
    ],
)
def test_the_options_of_a_sampler_are_those_of_sample(client, sampler, options):
    steps = draw(client, sampler=sampler, options=options, seed=1)
    *_, last = zellige.watch(MODELS["text"], steps=6, seed=1, sampler=sampler, **options)
    assert steps[-1]["tokens"] == last.x[0].tolist()
    assert last.x[0].tolist() != draw(client, sampler=sampler, seed=1)[-1]["tokens"]


def test_every_option_of_the_command_line_is_a_field_of_the_page(client):
    listed = {
        option["name"]: option
        for model in client.get("/api/models").json()
        for sampler in model["samplers"]
        for option in sampler["options"]
    }
    every = {option["name"] for cls in samplers.SAMPLERS.values() for option in sampler_fields(cls)}
    assert every == {field.name for field in dataclasses.fields(SamplerOptions)} | {"top_k", "guidance", "symmetries"}
    assert listed.keys() <= every
    assert not any(
        model["symmetric"] for model in client.get("/api/models").json()
    )  # so the page offers no `symmetries`
    assert listed["eta"] == {
        "name": "eta",
        "kind": "number",
        "note": "probability of masking a token again in a step (cap, loop), or its factor (rescale); no effect on conf",
        "default": 0.02,
    }
    assert listed["order"]["note"].startswith("order in which positions are filled: forward")
    assert not any("--" in option["note"] for option in listed.values())


def test_the_law_of_a_token_is_the_one_it_was_drawn_from(client):
    """By likelihood: of one token a step the probabilities multiply to the exact p of that order."""
    steps = draw(client, sampler="fixed_order", seed=2, steps=None)
    assert steps[-1]["drawn"] == LENGTH
    p = [change[3] for step in steps for change in step["changes"]]
    assert len(p) == LENGTH
    assert all(0 < value <= 1 for value in p)
    for step in steps[1:]:
        for _, _, piece, chosen, bits, rivals in step["changes"]:
            assert dict(map(tuple, rivals)).get(piece, chosen) == chosen
            assert 0 <= bits <= 5
            assert bits >= -math.log2(rivals[0][1]) - 0.02  # no law has less than that of its likeliest token


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("text", {"sampler": "fixed_order"}),
        ("bd3lm", {"options": {"block_sampler": "fixed_order"}}),
        ("bd3lm", {"options": {"block_sampler": "confidence", "confidence": "entropy"}}),
    ],
)
def test_nats_are_the_likelihood_of_the_order(client, model, how):
    """Of one token a step, block after block too, the sum over the laws on the page is -log p(x) of that sampler."""
    last = draw(client, model, seed=2, steps=4 if how.get("options") else LENGTH, **how)[-1]
    options = how.get("options") or {}
    sampler = Confidence("entropy") if "confidence" in options else FixedOrder()
    path = Replayed(sampler, samplers.Distribution("own", ""), 4 if options else LENGTH)
    exact = -float(weigh(MODELS[model].method, Batch(torch.tensor([last["tokens"]])), path).log_w.sum())
    assert last["drawn"] == LENGTH
    assert last["nats"] == pytest.approx(exact, abs=1e-3)


def test_nats_of_tokens_that_were_drawn_again_are_not_shown(client):
    options = {"remasking": "loop", "eta": 0.5, "alpha_on": 0.6, "t_on": 0.8, "t_off": 0.2}
    last = draw(client, "text", seed=2, steps=40, sampler="remasking", options=options)[-1]
    assert last["drawn"] == LENGTH
    assert last["nats"] is None


@pytest.mark.parametrize(("name", "steps", "drawn_from"), [
    ("udlm", 1, False), ("gidd", 1, False), ("genmd4", 9, False), ("csm", 5, False), ("mdlm", 5, True), ("ar", None, True),
])  # fmt: skip
def test_nats_are_only_of_tokens_that_were_drawn_from_the_prediction(name, steps, drawn_from):
    """Noise without masks draws each position in each step, where a token may stay; csm predicts no token."""
    model = MODELS.get(name) or small(name=name)
    trajectory = zellige.Sample(seed=1, steps=steps).trajectory(model)
    recorder = drawn.Recorder(model)
    frames = dataclasses.replace(trajectory, sampler=drawn.recorded(trajectory.sampler, recorder.predictions)).frames()
    *_, last = recorder.steps(frames)
    assert (last["nats"] is not None) == drawn_from
    assert play.about(0, name, model)["draws_predictions"] == (drawn_from or name == "csm")


def test_gaps_are_filled_and_the_rest_stays(client):
    steps = draw(client, text="the ____ is")
    assert re.fullmatch(r"the .{4,}? is.*", steps[-1]["text"], re.S)
    tokens = steps[-1]["tokens"][:11]
    again = draw(client, fixed=[*tokens[:4], *[-1] * 4, *tokens[8:]], seed=5)[-1]["tokens"]
    assert again[:4] + again[8:11] == tokens[:4] + tokens[8:11]
    cells = [3, *[-1] * 15]
    assert draw(client, "sudoku", fixed=cells)[-1]["tokens"][0] == 3


def test_a_character_of_several_tokens_is_one(client):
    """On the page and in a file; when the second half of a character comes, the first one's text goes."""
    text = "né 網"
    steps = draw(client, "bytes", text=text)
    given = len(text.encode())
    assert steps[0]["start"][:given] == ["n", "", "é", " ", "", "", "網"]
    tokens = [*text.encode()]
    run = recorded(steps[:3], "bytes") | {"start": [-1] * LENGTH, "held": [0] * LENGTH}
    run["changes"] = [[], [[1, tokens[1]]], [[2, tokens[2]]]]
    page = client.post("/api/export", json=run).text
    assert '"changes":[[],[[1,"\ufffd"]],[[1,""],[2,"é"]]]' in page


def test_a_text_changes_with_the_token_beside_it():
    model = MODELS["bytes"]
    recorder = drawn.Recorder(model)
    *_, last = zellige.watch(model, fixed=[0x6E, 0xC3, 0xA9], alone=True, length=3, steps=1)
    masked = lambda at: last.x.index_fill(1, torch.tensor(at), 256)  # noqa: E731
    rows = [masked([1, 2]), masked([2]), last.x]
    frames = [
        dataclasses.replace(
            last, state=dataclasses.replace(last.state, x=row), previous=rows[max(k - 1, 0)], step=k, steps=2
        )
        for k, row in enumerate(rows)
    ]
    steps = [*recorder.steps(iter(frames))]
    assert steps[0]["start"] == ["n", None, None]
    assert [step["changes"] for step in steps[1:]] == [[[1, 0xC3, "\ufffd"]], [[2, 0xA9, "é"], [1, 0xC3, ""]]]


def test_a_draw_says_where_given_tokens_make_it_approximate(client):
    """Of noise without a mask, where tokens are given; nothing of the kind otherwise."""
    given = [0, *[-1] * (LENGTH - 1)]
    said = {
        (model, fixed is None): "given tokens are kept, which is approximate" in first["distribution"]
        for model in ("udlm", "text")
        for fixed in (None, given)
        for first in draw(client, model, fixed=fixed)[:1]
    }
    assert said == {("udlm", True): False, ("udlm", False): True, ("text", True): False, ("text", False): False}


def test_a_puzzle_in_conflict_is_refused_and_says_where(client):
    for cells, said in [
        ({0: 3, 3: 3}, "4 stands at row 1, column 1 and at row 1, column 4, in one row"),
        ({1: 0, 13: 0}, "1 stands at row 1, column 2 and at row 4, column 2, in one column"),
        ({10: 2, 15: 2}, "3 stands at row 3, column 3 and at row 4, column 4, in one box"),
    ]:
        fixed = [cells.get(i, -1) for i in range(16)]
        answer = client.post("/api/draw", json={"model": NUMBER["sudoku"], "fixed": fixed})
        assert answer.status_code == 400
        assert answer.json()["error"] == f"the given cells conflict: {said}; correct one of them"
    assert len(draw(client, "sudoku", fixed=[0, 1, 2, 3, *[-1] * 12])[-1]["tokens"]) == 16


def test_a_molecule_with_gaps_ends_where_its_text_ends(client):
    steps = draw(client, "selfies", text="CC(=O)__N", seed=1)
    last = steps[-1]
    assert len(last["tokens"]) == steps[0]["size"] == 10
    assert min(last["tokens"]) >= 0
    assert last["text"].startswith("CC(=O)")
    assert last["verdict"] == "valid"
    assert last["atoms"]
    said = client.post("/api/draw", json={"model": NUMBER["selfies"], "text": "CC=O"}).json()["error"]
    assert said.startswith("'CC=O' is whole: ")


def test_a_bound_comes_in_eight_parts(client):
    tokens = draw(client)[-1]["tokens"]
    ask = {"model": 0, "tokens": tokens, "held": [0] * LENGTH}
    parts = lines(client.post("/api/bound", json=ask))
    assert len(parts) == 8
    assert all(part["nats"] > 0 and not part["exact"] for part in parts)
    exact = [
        lines(client.post("/api/bound", json=ask | {"model": NUMBER["ar"], "both": both})) for both in (False, True)
    ]
    assert exact[0] == exact[1]
    assert [part["exact"] for part in exact[0]] == [True]


@pytest.mark.parametrize(("model", "law"), [("text", "any_order"), ("udlm", "ancestral, T = 4")])
def test_a_bracket_has_two_sides(client, monkeypatch, model, law):
    """Of an order and of T steps; the mean of what is above is not below that of the other side."""
    monkeypatch.setattr(play, "GAP_STEPS", 4)
    tokens = draw(client, model)[-1]["tokens"]
    ask = {"model": NUMBER[model], "tokens": tokens, "held": [1] * 18 + [0] * (LENGTH - 18), "both": True}
    parts = lines(client.post("/api/bound", json=ask))
    assert [part["distribution"] for part in parts] == [law] * 8
    assert all(isinstance(part["determined"], bool) for part in parts)
    below, above = (sum(part[name] for part in parts) / 8 for name in ("below", "nats"))
    assert above > 0
    assert below < above + 1


@pytest.mark.parametrize(
    ("model", "format", "start"),
    [
        ("text", "html", b"<!doctype"), ("text", "gif", b"GIF8"), ("images", "gif", b"GIF8"), ("images", "png", b"\x89PNG"),
        ("text", "mp4", b"\0\0\0"),
        ("sudoku", "html", b"<!doctype"), ("music", "mid", b"MThd"), ("music", "html", b"<!doctype"),
    ],
)  # fmt: skip
def test_a_run_becomes_a_file(client, model, format, start):
    if format == "mp4":
        pytest.importorskip("av")
    answer = client.post("/api/export", json=recorded(draw(client, model), model, format=format))
    assert answer.status_code == 200, answer.text
    assert answer.content.startswith(start)


def test_a_recorded_run_has_a_frame_a_step():
    parts = {"steps": [0, 1, 2], "t": [1.0, 0.5, 0.0], "calls": [0, 1, 2], "held": [0, 0], "entropy": [None, None]}
    run = export.Recorded(format="png", start=[-1, 4], changes=[[], [[0, 3]], [[1, 2]]], **parts)
    assert run.rows(5).tolist() == [[-1, 4], [3, 4], [3, 2]]


def test_a_saved_page_shows_hostile_text_as_text(client):
    steps = draw(client, text="<script>x()</script>\u200f\x07")
    assert steps[0]["start"][-3:] == [None] * 3 or steps[0]["start"][20:22] == ["\\u200f", "\\x07"]
    body = recorded(steps, "text", title="</title><script>x()</script>", facts=["<img onerror=x()>"])
    page = client.post("/api/export", json=body).text
    assert "<script>x()" not in page
    assert "<img onerror" not in page
    assert "&lt;/title&gt;" in page


def test_two_people_at_once_get_what_they_get_alone(client):
    tokens = lambda seed: draw(client, seed=seed)[-1]["tokens"]  # noqa: E731
    alone = [tokens(seed) for seed in range(6)]
    assert at_once(tokens, range(6)) == alone


def test_the_page_names_no_address_of_others(client):
    for path in ("/", *(f"/{name}" for name in play.SCRIPTS), "/player.js", "/play.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert not re.search(r"(https?:)?//[\w-]+\.\w", re.sub(r"//\s", "", answer.text)), path
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_model_says_what_it_is_and_what_it_can_be_saved_as(client, monkeypatch):
    listed = {model["name"]: model for model in client.get("/api/models").json()}
    assert listed["text"]["about"] == "Trained on English of Python's docs."
    stories = zellige.load("stories")
    card = shipped.card("stories")
    assert play.about_model(stories)["about"].lower() == f"{card['what'].lower()}; on test data {card['test']}."
    assert [format["name"] for format in listed["music"]["formats"]] == ["html", "gif", "mp4", "png", "mid"]
    assert [format["name"] for format in listed["text"]["formats"]] == ["html", "gif", "mp4"]
    for extra in ("av", "mido"):
        monkeypatch.setitem(sys.modules, extra, None)
    missing = {format["name"]: format["missing"] for format in export.formats(kinds.of(MODELS["music"].tokenizer))}
    assert {name for name, sentence in missing.items() if sentence} == {"mp4", "mid"}
    assert missing["mid"] == "a run as .mid needs 'mido'; pip install 'zellige[music]'"
    assert "pip install 'zellige[video]'" in missing["mp4"]


def test_the_words_of_the_page_are_those_of_the_options_help(monkeypatch):
    pages = []
    monkeypatch.setattr(serve_command, "load", lambda *_, **__: MODELS["text"])
    monkeypatch.setattr(serve_command, "answer_requests", lambda app, *_: pages.append(app))
    assert cli.main(["play", "x"]) == 0
    with TestClient(pages[0], base_url=HERE) as client:
        page = client.get("/").text
    known = flags.flags(SampleOptions)
    assert not {"law", "calls", "$words"} & {*re.findall(r"[$\w]+", page)}
    for word in ("steps", "sampler", "temperature", "top-p", "seed"):
        assert f"<dt>{word}</dt><dd>{html.escape(known[f'--{word}'].option.help)}</dd>" in page


def test_every_sampler_is_listed_in_plain_words(client):
    labels = [cls.label for cls in samplers.SAMPLERS.values()]
    assert all(labels)
    assert all(cls.sentence.endswith(".") for cls in samplers.SAMPLERS.values())
    assert len({*labels}) == len(labels)
    listed = {model["name"]: model for model in client.get("/api/models").json()}
    counted = {sampler["name"]: sampler["counted"] for sampler in listed["text"]["samplers"]}
    assert counted["ancestral"]
    assert not counted["first_hitting"]  # a step for each position, whatever `steps` says
    assert {"label", "about"} <= listed["text"]["samplers"][0].keys()


def test_included_models_come_after_those_that_are_named(monkeypatch):
    loaded, pages = [], []
    monkeypatch.setattr(
        serve_command, "load", lambda _, name, *__, **more: loaded.append((name, more)) or MODELS["text"]
    )
    monkeypatch.setattr(serve_command, "answer_requests", lambda app, *_: pages.append(app))
    included = examples.included()
    assert {*included} == {*shipped.names()}
    assert cli.main(["play", "x"]) == cli.main(["play"]) == 0
    assert [name for name, _ in loaded] == ["x", *included, *included]
    assert loaded[0][1] == {}
    assert all(more == {"note": False} for _, more in loaded[1:])
    loaded.clear()
    assert cli.main(["play", "x", "--no-included"]) == 0
    assert [name for name, _ in loaded] == ["x"]
    loaded.clear()
    monkeypatch.setattr(shipped, "name_of", lambda _: "sudoku")  # x is another name of it
    assert cli.main(["play", "x"]) == 0
    assert [name for name, _ in loaded] == ["x", *(name for name in included if name != "sudoku")]


def test_a_card_says_what_an_included_model_writes():
    model = zellige.load("sudoku")
    about = play.about(0, "sudoku", model)
    assert about["sentence"].lower() == shipped.card("sudoku")["what"].lower() + "."
    assert about["test"] == shipped.card("sudoku")["test"]
    (puzzle,) = about["examples"]
    assert {*puzzle} <= {*about["labels"], "."}
    assert len(puzzle) == about["length"]
    assert play.about(0, "x", MODELS["text"])["sentence"].startswith("Trained on")


def test_a_molecule_has_atoms_bonds_and_a_verdict():
    assert drawn.molecule("CC=O") == {"verdict": "valid", "atoms": ["C", "C", "O"], "bonds": [[0, 1, 1], [1, 2, 2]]}
    assert drawn.molecule("FC(F)(F)(F)F")["verdict"] == "not valid"  # five bonds
    assert drawn.molecule("C1C")["atoms"] == []


# ---------------------------------------------------------------------------------------------- contrast, WCAG 2.1 AA
TEXT, GROUNDS = {"ink", "soft", "link", "wrong", "good", "accent"}, {"paper", "panel"}
MARKED = {"kept", "away", "clash", "fresh", "deep"}  # grounds of tokens, in --ink
SHAPES = {"edge", "tile", "accent"}  # borders of fields, masked tokens, bars: 3 to 1
DECOR = {
    "rule",
    "blue",
    "vermilion",
    "green",
    "purple",
    "orange",
    "sky",
}  # beside a text or an outline that says the same


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_have_the_contrast_of_wcag_aa(client):
    assert contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.01)  # a known pair
    style = client.get("/play.css").text
    dark = style[style.index("prefers-color-scheme: dark") :].partition("} }")[0]
    shared = [dict(re.findall(r"--(\w+): (#\w{6})", text)) for text in (style.partition("@media")[0], dark)]
    own = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)
    for scheme, colours in enumerate(shared):
        colours |= {name: values[scheme] for name, *values in own}
        assert colours.keys() == TEXT | GROUNDS | MARKED | SHAPES | DECOR | {"on-accent"}
        pairs = [(a, b, 4.5) for a in TEXT for b in GROUNDS] + [("ink", b, 4.5) for b in MARKED]
        pairs += [("on-accent", "accent", 4.5)] + [(a, b, 3.0) for a in SHAPES for b in GROUNDS]
        low = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
        assert {pair: value for pair, value in low.items() if value < pair[2]} == {}
    own_style = client.get("/play.css").text.partition("/* The page of `zellige play`")[2]
    used = {*re.findall(r"[{;\s](?:color|fill): var\(--([\w-]+)\)", own_style)}
    assert used <= TEXT | {"on-accent", "paper"}  # no text stands in a colour that was not checked


def test_a_piano_roll_names_the_pitch_and_the_colour_of_its_voices(client):
    layout = next(model for model in client.get("/api/models").json() if model["name"] == "music")["layout"]
    assert layout["pitches"] == {"G3": 55, "C4": 60, "E4": 64, "G4": 67, "C5": 72}  # a rest has none
    assert [voice for voice, _ in layout["voices"]] == ["soprano", "alto", "tenor", "bass"]
    style = client.get("/play.css").text
    for (_, colour), shown in zip(layout["voices"], roll.COLOURS):
        assert f"--{colour}: {shown}" in style  # as in the picture


# ---------------------------------------------------------------------------------------------- what is wrong
NOTHING = [{"step": 0, "t": 1.0, "calls": 0, "given": [0], "from": [-1], "changes": []}]
CELLS = {"model": 0, "tokens": [0] * LENGTH, "held": [0] * LENGTH}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("draw", {"model": 99}, 400, f"there is no model 99; there are {len(MODELS)}"),
        ("draw", {"colour": 0}, 400, "`colour`: no such field"),
        ("draw", {"steps": 0}, 400, "`steps` is 0; it must be 1 or more"),
        ("draw", {"steps": 51}, 400, "51 steps; at most 50 are allowed here"),
        ("draw", {"steps": "8"}, 400, "`steps`"),
        ("draw", {"temperature": -1}, 400, "`temperature`"),
        ("draw", {"top_p": 0}, 400, "`top_p`"),
        ("draw", {"seed": 2**64}, 400, "`seed`"),
        ("draw", {"sampler": "ancestrall"}, 400, "did you mean 'ancestral'?"),
        ("draw", {"sampler": "tau_leaping", "options": {"jumps": "two"}}, 400, "`jumps` is 'two'; it must be auto, one or sum"),
        ("draw", {"sampler": "remasking", "options": {"eta": "much"}}, 400, "`eta` is 'much'; it must be a number"),
        ("draw", {"sampler": "remasking", "options": {"eta": 2}}, 400, "it must be between 0 and 1"),
        ("draw", {"sampler": "remasking", "options": {"etta": 2}}, 400, "'etta'"),
        ("draw", {"sampler": "euler", "options": {"order": "backward"}}, 400, "takes no `order`"),
        ("draw", {"sampler": "fixed_order", "options": {"order": "2,0"}}, 400, "name each position from 0 to 1 once"),
        ("draw", {"sampler": "tau_leaping", "options": {"corrector": 10**9}}, 400, "it must be 1,000 or less"),
        ("draw", {"sampler": "any_order", "options": {"per_step": 10**9}}, 400, "it must be 1,000,000 or less"),
        ("draw", {"options": {"grid": "1e-6"}}, 400, "1,000,000 steps; at most 50 are allowed here"),
        ("draw", {"options": {"grid": "0.01", "block_sampler": "ancestral"}}, 400, "100 steps; at most 50"),
        ("draw", {"options": {"grid": "1e-400"}}, 400, "between 1e-06 and 1"),
        ("draw", {"sampler": "tau_leaping", "options": {"corrector": 999}, "steps": 50}, 400, "1,200,000 network evaluations"),
        ("bound", CELLS | {"model": NUMBER["udlm"], "both": True}, 400, "196,608 network evaluations times"),
        ("export", recorded(NOTHING, "text", t=[math.inf]), 400, "`t.0`"),
        ("export", recorded(NOTHING, "text", changes=[[[0, 999]]]), 400, "a token that the model does not have"),
        ("export", recorded(NOTHING, "text", changes=[[[999, 0]]]), 400, "a token that the model does not have"),
        ("draw", {"text": "Ж"}, 400, "not in the model's vocabulary"),
        ("draw", {"text": "a" * 200}, 400, "the model takes 24"),
        ("draw", {"text": "\ud800"}, 400, "which is half a character"),
        ("draw", {"text": "a" * 30_000}, 413, "send less"),
        ("draw", {"fixed": [1, 2, 99]}, 400, "99"),
        ("draw", {"fixed": [0] * 25}, 400, "25"),
        ("draw", {"class": "cat"}, 400, "trained without classes"),
        ("draw", {"model": NUMBER["images"], "class": "9"}, 400, "9"),
        ("draw", [], 400, "send an object"),
        ("draw", "x", 400, "send an object"),
        ("bound", {}, 400, "`tokens`"),
        ("bound", CELLS | {"tokens": [0, 99]}, 400, "`tokens` must be 0 to"),
        ("bound", CELLS | {"held": [1] * LENGTH}, 400, "nothing was drawn"),
        ("bound", CELLS | {"tokens": [], "held": []}, 400, "nothing was drawn"),
        ("bound", CELLS | {"model": NUMBER["csm"]}, 400, "no likelihood bound"),
        ("export", {}, 400, "`format`"),
        ("export", recorded(NOTHING, "text", format="mp3"), 400, "`format`"),
        ("export", recorded(NOTHING, "text", format="png"), 400, ".png"),
        ("export", recorded(NOTHING, "text", format="mp4"), 400, "pip install 'zellige[video]'"),
        ("export", recorded(NOTHING, "text", start=[999]), 400, "0 to"),
        ("export", recorded(NOTHING, "text", held=[]), 400, "do not fit"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_answered_in_one_sentence(client, path, body, status, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    answer = client.post(f"/api/{path}", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert {"error", "code", "field"} == error.keys()
    assert words in error["error"]
    assert "\n" not in error["error"]


@pytest.mark.parametrize("path", ["/api/draw", "/api/bound", "/api/export"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 10_000, b'{"model": NaN}', b"null"])
def test_what_is_no_json_is_answered_in_one_sentence(client, path, content):
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert {"error", "code", "field"} == answer.json().keys()
    answer = client.post(path, content=content or b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the header content-type is not application/json")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/x", 404), ("GET", "/api/draw", 405), ("POST", "/", 405)]
)
def test_what_is_not_there_says_what_is(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert "/api/draw" in answer.json()["error"]


def test_another_page_and_another_name_are_refused(client):
    for headers in ({"origin": "http://elsewhere.example"}, {"host": "elsewhere.example"}):
        answer = client.post("/api/draw", json={}, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["code"] in ("wrong_origin", "wrong_host")


def test_what_fails_in_the_model_and_out_of_time_end_the_stream_in_one_sentence(monkeypatch):
    model = small()
    monkeypatch.setattr(model.method, "predict", lambda *a, **k: 1 / 0)
    with TestClient(play.application({"broken": model}), base_url=HERE) as client:
        last = lines(client.post("/api/draw", json={}))[-1]
        assert last["error"].startswith("the model failed (ZeroDivisionError)")
    with TestClient(play.application({"slow": small()}, Limits(seconds=0.0)), base_url=HERE) as client:
        assert "not done within 0 seconds" in lines(client.post("/api/draw", json={}))[-1]["error"]
    with TestClient(play.application({"full": small()}, Limits(waiting=0)), base_url=HERE) as client:
        answer = client.post("/api/draw", json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_what_nobody_foresaw_is_json_too(monkeypatch):
    monkeypatch.setattr(play, "exported", lambda *a: 1 / 0)
    with TestClient(play.application({"text": small()}), base_url=HERE, raise_server_exceptions=False) as client:
        answer = client.post("/api/export", json=recorded(NOTHING, "text"))
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("the model failed (ZeroDivisionError)")


# ---------------------------------------------------------------------------------------------- one request holds up none
def job(start, key=None) -> Any:
    return worker.Job(object() if key is None else key, start, lambda job, step: step)


async def collected(job) -> list:
    return [step async for step in job.steps()]


def test_a_long_step_lets_short_requests_through():
    """A step that evaluates the network a thousand times: requests that come meanwhile are done before it is."""
    done: list[str] = []

    def long(jobs):
        for _ in range(1_000):
            worker.pause()
            time.sleep(0.001)
        done.append("long")
        yield "long"

    def short(jobs):
        for step in range(5):
            worker.pause()
            yield step
        done.append("short")

    async def people(works: Any) -> None:
        slow = asyncio.create_task(collected(works.ask(job(long))))
        while not works.groups:
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert await collected(works.ask(job(short))) == [0, 1, 2, 3, 4]
        assert await slow == ["long"]

    works = worker.Worker("test", Limits(lanes=2))
    try:
        asyncio.run(people(works))
    finally:
        works.close()
    assert done == ["short"] * 3 + ["long"]


def test_long_evaluations_take_no_more_than_their_share_of_the_time():
    """Twenty short evaluations beside long ones of 60 ms: they are done within a few of these, and not after twenty."""
    slices: list[float] = []

    def long(jobs):
        for _ in range(40):
            worker.pause()
            time.sleep(0.06)
            slices.append(time.monotonic())
        yield "long"

    def short(jobs):
        for _ in range(20):
            worker.pause()
            time.sleep(0.001)
        yield "short"

    async def people(works: Any) -> int:
        slow = asyncio.create_task(collected(works.ask(job(long))))
        while len(slices) < 3:
            await asyncio.sleep(0.01)
        before = len(slices)
        assert await collected(works.ask(job(short))) == ["short"]
        passed = len(slices) - before
        assert await slow == ["long"]
        return passed

    works = worker.Worker("test", Limits(lanes=2))
    try:
        assert asyncio.run(people(works)) <= 6
    finally:
        works.close()


@pytest.mark.parametrize("ends", ["hung up", "out of time"])
def test_work_that_nobody_waits_for_ends_within_a_step(ends):
    """Its one step would never be over."""

    def forever(jobs):
        while True:
            worker.pause()
            time.sleep(0.001)
            yield from ()

    async def person(works: Any) -> None:
        asked = works.ask(job(forever))
        if ends == "hung up":
            began = time.monotonic()

            async def gone() -> bool:
                return time.monotonic() - began > 0.3

            assert [step async for step in asked.steps(gone)] == []
        else:
            with pytest.raises(worker.OutOfTime):
                await collected(asked)

    works = worker.Worker("test", Limits(seconds=60 if ends == "hung up" else 0.5, lanes=1))
    try:
        asyncio.run(person(works))
        began = time.monotonic()
        while works.load and time.monotonic() - began < 20:
            time.sleep(0.01)
        assert not works.load
        assert asyncio.run(next_one(works)) == ["done"]  # its thread is free again
    finally:
        works.close()


@pytest.mark.parametrize("model", MODELS)
def test_every_network_evaluation_lets_others_go_first(client, model, monkeypatch):
    """Of every method: at each of its evaluations the one that draws pauses, so that no step is longer than one of them."""
    pauses: list[int] = []
    monkeypatch.setattr(worker, "pause", lambda: pauses.append(0))
    steps = draw(client, model)
    assert len(pauses) >= steps[-1]["calls"] > 0
    if MODELS[model].method.bounded:
        size = len(steps[-1]["tokens"])
        pauses.clear()
        lines(
            client.post("/api/bound", json={"model": NUMBER[model], "tokens": steps[-1]["tokens"], "held": [0] * size})
        )
        assert len(pauses) >= (1 if MODELS[model].method.exact else 8)


async def next_one(works: Any) -> list:
    return await collected(works.ask(job(lambda jobs: iter(["done"]))))


@pytest.fixture
def served():
    """A page under uvicorn whose models of text and images count, and wait a little before, each evaluation; its application."""
    listening_at = pytest.importorskip("zellige.plugins.web.guard")
    models, evaluations = {"text": small(), "images": small("image")}, []
    for model in models.values():
        evaluate = model.method.network.features

        def features(*args, evaluate=evaluate, **more):
            evaluations.append(time.monotonic())
            time.sleep(0.005)
            return evaluate(*args, **more)

        model.method.network.features = features
    app = play.application(models)
    listening = listening_at.listen("127.0.0.1", 0)
    server = listening_at.server_of(app)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1], app, evaluations
    server.should_exit = True
    thread.join(10)
    listening.close()


@pytest.mark.parametrize("what", ["bound", "draw"])
def test_who_hangs_up_frees_the_model_within_a_network_evaluation(served, what):
    """Of a bracket, which has no step before some hundred evaluations; of a step with a thousand corrector steps."""
    port, app, evaluations = served
    ask: dict = {"sampler": "tau_leaping", "steps": 60, "options": {"corrector": 1_000}}
    if what == "bound":
        ask = {"model": 1, "tokens": [0] * 36, "held": [0] * 36, "both": True}
    body = json.dumps(ask).encode()
    head = f"POST /api/{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    workers = app.state.workers
    with socket.create_connection(("127.0.0.1", port)) as wire:
        wire.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        while len(evaluations) < 3:
            time.sleep(0.005)
    began = time.monotonic()
    while any(each.load for each in workers) and time.monotonic() - began < 20:
        time.sleep(0.01)
    assert not any(each.load for each in workers)
    assert len(evaluations) < 1_000


def test_a_file_has_a_time_limit(monkeypatch):
    """An export that lasts is ended, and the next one is made; the rows of a run are those of its changes."""
    frames, L = 1_000, 60
    run = play.Recorded(
        format="html", steps=[*range(frames)], t=[0.0] * frames, calls=[0] * frames, held=[0] * L, entropy=[None] * L,
        start=[-1] * L, changes=[[[i, (i + k) % 7] for i in range(L)] for k in range(frames)],
    )  # fmt: skip
    assert run.rows(7).tolist() == [[(i + k) % 7 for i in range(L)] for k in range(frames)]
    exported, calls = play.exported, []

    def forever(run, model):
        if calls:
            return exported(run, model)
        calls.append(0)
        while True:
            worker.pause()
            time.sleep(0.001)

    monkeypatch.setattr(play, "exported", forever)
    with TestClient(play.application({"text": small()}, Limits(seconds=1.0)), base_url=HERE) as client:
        answers = [client.post("/api/export", json=recorded(NOTHING, "text")) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [504, 200]
    assert "not done within 1 seconds" in answers[0].json()["error"]
