"""A model carries how it is sampled: taken where nothing is given, checked when it is read."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import zellige
from web.small_models import TOKENIZERS, small
from zellige import Data, InputError, Net, Train, cli
from zellige.data.tokenizer import Integers
from zellige.evaluation.tasks import draw_tokens
from zellige.methods import METHODS, build
from zellige.models.checkpoint.write import write_checksums
from zellige.models.config import Config
from zellige.models.defaults import GENERATION, for_text
from zellige.models.model import Model
from zellige.plugins.evaluations.generate.sample_sets import Way, draw_samples
from zellige.sampling.request import Sampling
from zellige.sampling.samples import collect
from zellige.show.kinds import of

COLD = {"sampler": "confidence", "confidence": "margin", "steps": 4, "temperature": 0.3, "top_p": 0.9}
GAPS = "the ____ is"


@pytest.fixture
def model():
    made = small()
    made.defaults = COLD
    return made


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "model")


def test_what_is_not_given_is_as_the_model_says(model, folder):
    again = zellige.load(folder)
    assert again.defaults == COLD
    plain, cold = zellige.sample(small(), seed=1), zellige.sample(small(), seed=1, **COLD)
    assert plain != cold
    assert zellige.sample(folder, seed=1) == zellige.sample(again, seed=1) == cold
    assert zellige.sample(again, seed=1, defaults=False) == plain
    assert zellige.pipeline("sample", again, seed=1)() == cold[0]
    assert zellige.pipeline("sample", again, seed=1, defaults=False)() == plain[0]
    assert collect(zellige.watch(again, seed=1)).texts == cold
    assert zellige.infill(again, GAPS, seed=1) == zellige.infill(small(), GAPS, seed=1, **COLD)
    assert zellige.infill(again, GAPS, seed=1, defaults=False) == zellige.infill(small(), GAPS, seed=1)


def test_what_is_given_comes_first(model):
    said = lambda **given: Sampling.of(**given).with_defaults(model).decoding()  # noqa: E731
    assert said() == said(steps=None, temperature=None) == COLD
    assert said(temperature=1.0, steps=9) == COLD | {"temperature": 1.0, "steps": 9}
    assert said(sampler="confidence", threshold=0.5) == COLD | {"threshold": 0.5}
    assert said(sampler="first_hitting") == {"sampler": "first_hitting", "temperature": 0.3, "top_p": 0.9}
    made = zellige.SAMPLERS["ancestral"]()
    assert said(sampler=made) == {"sampler": made}
    model.defaults = {"steps": 4}
    assert said(grid="0.25") == {"grid": "0.25"}  # the size of the steps says how many there are
    assert said(grid="cosine") == {"grid": "cosine", "steps": 4}
    model.defaults = {}
    assert said(top_p=0.5) == {"top_p": 0.5}


def test_guidance_is_for_samples_of_a_class(capsys, tmp_path):
    """Its default has no effect without a class, and is that of the command, the record and the function with one."""
    net = Net(layers=1, hidden=16, heads=2, length=8, classes=2)
    cls, about = zellige.METHODS["mdlm"], {"data": {"classes": ["a", "b"]}}
    model = Model(
        build(cls, 5, net, cls.Config(), 8), Integers(5), Config("mdlm", cls.Config(), Data("array"), net), about
    )
    for parameter in model.method.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(0))
    how, plain = {"steps": 3, "seed": 1, "count": 4}, {"defaults": False}
    model.defaults = {"guidance": 5.0}
    same = lambda a, b: np.array_equal(zellige.sample(model, **how, **a), zellige.sample(model, **how, **b))  # noqa: E731
    assert same({}, plain)
    assert same({"classes": "b"}, {"classes": "b", "guidance": 5.0} | plain)
    assert not same({"classes": "b"}, {"classes": "b"} | plain)
    model.save(tmp_path / "m")
    for words, note in (([], False), (["--class", "b"], True)):
        assert (
            cli.main(["sample", str(tmp_path / "m"), "--steps", "3", *words, "--json", str(tmp_path / "r.json")]) == 0
        )
        assert ("defaults --guidance 5.0" in capsys.readouterr().err) == note
        record = zellige.Record.load(tmp_path / "r.json")
        assert record.request.run(model).tokens == record.tokens


def test_where_tokens_are_given_there_are_others(tmp_path, capsys, monkeypatch):
    """`infill` and `fixed` take them before the rest, a beginning alone does not; what is typed comes first."""
    monkeypatch.chdir(tmp_path)
    model = small()
    model.defaults = {"steps": 4, "temperature": 0.8, "infill": {"temperature": 0.0, "steps": None}}
    assert model.defaults == {"steps": 4, "temperature": 0.8, "infill": {"temperature": 0.0}}
    model = zellige.load(model.save(tmp_path / "m"))
    warm, cold = {"steps": 4, "temperature": 0.8}, {"steps": 4, "temperature": 0.0}
    fixed = np.full(model.method.shape[0], -1)
    fixed[:2] = model.tokenizer.encode("th")
    for draw in (
        lambda **how: zellige.infill(model, GAPS, seed=1, **how),
        lambda **how: zellige.infill(model, fixed=fixed, seed=1, **how),
        lambda **how: zellige.sample(model, fixed=fixed, seed=1, **how),
    ):
        assert draw() == draw(defaults=False, **cold) != draw(defaults=False, **warm)
        assert draw(temperature=0.8) == draw(defaults=False, **warm)
    for how in ({}, {"prompt": "th"}):
        assert zellige.sample(model, seed=1, **how) == zellige.sample(model, seed=1, defaults=False, **warm, **how)
    for command, temperature in (("sample", 0.8), ("infill", 0.0)):
        assert cli.main([command, "m", *[GAPS] * (command == "infill"), "--seed", "1", "--json", "a.json"]) == 0
        assert f"--steps 4 --temperature {temperature} (--no-defaults" in " ".join(capsys.readouterr().err.split())
        record = zellige.Record.load("a.json")
        assert record.request.run(model).tokens == record.tokens
    for wrong, message in (
        ({"heat": 1}, "`infill` of the sampling defaults has an unknown entry 'heat'"),
        ({"infill": {}}, "`infill` of the sampling defaults has an unknown entry 'infill'"),
        ({"temperature": -1}, "is -1; it must be 0 or more"),
        (3, "`infill` of the sampling defaults is 3; it must hold defaults by name"),
    ):
        with pytest.raises(InputError, match=message):
            model.defaults = {"infill": wrong}


def test_the_commands_say_so_in_a_line(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    typed = "--sampler confidence --confidence margin --steps 4 --temperature 0.3 --top-p 0.9"
    line = f"note: with the model's defaults {typed} (--no-defaults ignores them)\n"

    def run(*words: str) -> tuple[str, str]:
        assert cli.main([*words, "--seed", "1", "--json", "a.json"]) == 0
        return capsys.readouterr()

    out, err = run("sample", "model")
    assert line in err
    assert json.loads((tmp_path / "a.json").read_text())["arguments"]["temperature"] == 0.3
    again, silent = run("sample", "model", *typed.split())
    assert "defaults" not in silent
    assert out.split("\n")[0] == again.split("\n")[0] == zellige.sample(small(), seed=1, **COLD)[0]
    plain, silent = run("sample", "model", "--no-defaults")
    assert "defaults" not in silent
    assert plain.split("\n")[0] == zellige.sample(small(), seed=1)[0]
    assert line in run("infill", "model", GAPS)[1]


def test_served_and_played_alike(folder):
    client = pytest.importorskip("fastapi.testclient", reason="the extra `web` is missing").TestClient
    from zellige.plugins.web import play, serve

    model = zellige.load(folder)
    with client(serve.application(model, "tiny"), base_url="http://127.0.0.1") as people:
        ask = lambda **more: people.post(  # noqa: E731
            "/v1/completions", json={"prompt": "the ", "max_tokens": 8, "seed": 3} | more
        ).json()
        for more in ({}, {"temperature": 1.0}, {"sampler": "first_hitting"}):
            drawn = zellige.sample(model, prompt="the ", length=12, seed=3, **more)
            assert [choice["text"] for choice in ask(**more, echo=True)["choices"]] == drawn
    with client(play.application({"tiny": model}), base_url="http://127.0.0.1") as people:
        assert people.get("/api/models").json()[0]["advice"] == COLD
        last = people.post("/api/draw", json={"model": 0, "seed": 3}).text.splitlines()[-1]
    assert json.loads(last)["tokens"] == collect(zellige.watch(model, seed=3)).tokens[0]


def test_what_measures_takes_none(model):
    plain = small()
    for drawn in (
        lambda m: draw_samples(m, Way(steps=8), 3).texts,
        lambda m: draw_tokens(m, 3, 0, None, 0, 1),
    ):
        assert drawn(model) == drawn(plain)
    assert zellige.evaluate(model, ["the value"] * 9).value == zellige.evaluate(plain, ["the value"] * 9).value


def test_saved_exported_and_shared_along(model, folder, tmp_path):
    assert GENERATION in (folder / "SHA256SUMS").read_text()
    zellige.load(folder).save_pretrained(tmp_path / "hub")
    assert zellige.Model.from_pretrained(tmp_path / "hub").defaults == COLD
    net = zellige.Net(layers=1, hidden=16, heads=2, length=8)
    options = zellige.METHODS["mdlm"].Config()
    theirs = zellige.Model(build("mdlm", 11, net, options), Integers(11), zellige.Config("mdlm", options, net=net))
    theirs.defaults = {"temperature": 0.5}
    theirs.export(tmp_path / "theirs", "mdlm")
    assert zellige.load(tmp_path / "theirs").defaults == {"temperature": 0.5}
    (tmp_path / "theirs" / GENERATION).write_text('{"bos_token_id": 1, "alg": "entropy"}')  # transformers', not ours
    (tmp_path / "theirs" / "SHA256SUMS").unlink()
    assert zellige.load(tmp_path / "theirs").defaults == {}
    small().save(tmp_path / "none")
    assert not (tmp_path / "none" / GENERATION).exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"temperature": "hot"}', "temperature is 'hot'; it must be a number"),
        ('{"temperature": -1}', "temperature is -1; it must be 0 or more"),
        ('{"temperature": NaN}', "temperature is nan; it must be"),
        ('{"top_p": 1.5}', "top_p is 1.5; it must be above 0 and at most 1"),
        ('{"steps": 2.5}', "steps is 2.5; it must be a whole number"),
        ('{"steps": 0}', "steps is 0; it must be 1 or more"),
        ('{"steps": 1000000000}', "steps is 1,000,000,000; it must be 1,000,000 or less"),
        ('{"sampler": "confidense"}', "unknown sampler 'confidense'; did you mean 'confidence'?"),
        ('{"sampler": "left_to_right"}', "left_to_right"),
        ('{"sampler": "ancestral", "order": "forward"}', "sampler 'ancestral' takes no order"),
        ('{"top-p": 1}', "has an unknown entry 'top-p'; did you mean 'top_p'"),
        ('{"seed": 1}', "has an unknown entry 'seed'"),
        ("[1]", "all of it is [1]; it must be an object"),
        ('{"temperature": ', "is not JSON"),
        ("[" * 100_000, "is nested too deep"),
    ],
)
def test_a_wrong_file_is_one_line(folder, content, message):
    path = folder / GENERATION
    path.write_text(content)
    with pytest.raises(InputError, match="has changed since it was written"):
        zellige.load(folder)
    write_checksums(folder)
    with pytest.raises(InputError) as wrong:
        zellige.load(folder)
    assert message in str(wrong.value)
    assert str(wrong.value).startswith(f"'{path}'")
    assert "\n" not in str(wrong.value)
    path.unlink()
    with pytest.raises(InputError, match=f"{GENERATION}' is missing"):
        zellige.load(folder)


def test_a_wrong_default_is_refused_when_it_is_set(model):
    for wrong, message in (
        ({"temperature": -1}, "`temperature` is -1; it must be 0 or more"),
        ({"top-p": 1}, "the sampling defaults have an unknown entry 'top-p'; did you mean 'top_p'"),
        ({"sampler": "left_to_right"}, "left_to_right"),
    ):
        with pytest.raises(InputError, match=message):
            model.defaults = wrong
        assert model.defaults == COLD


# -------------------------------------------------------------------------------------------- of a text model trained here
TRUNCATED = {"temperature": 0.7, "top_p": 0.9}
BY_CONFIDENCE = {"sampler": "confidence", "confidence": "entropy", **TRUNCATED}
IN_BLOCKS = {"block_sampler": "confidence", "confidence": "entropy", **TRUNCATED}
MASKED = {"mdlm", "md4", "genmd4", "radd", "bd3lm"}  # by name; others say it by their option `process`
OTHERS = {"ar": {"temperature": 0.8, "top_p": 0.9}, "csm": {"temperature": 0.7}}  # the walk of csm takes no top-p
TEXTS = ["the cat and a dog saw it all"] * 60


def expected(model: Model) -> dict[str, Any]:
    method = model.method
    noise = getattr(method.config, "process", "absorbing" if method.name in MASKED else "tokens")
    masked = IN_BLOCKS if method.block else BY_CONFIDENCE
    return OTHERS.get(method.name) or (masked if noise == "absorbing" and method.block != 1 else TRUNCATED)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_text_has_defaults(name):
    """By confidence where there are masks to choose from. One option changes that option alone; without the defaults
    nothing has changed."""
    for choices in METHODS[name].variants:
        if choices.get("process", "uniform") not in ("uniform", "absorbing", "absorbing-uniform"):
            continue  # for ordered tokens
        plain, model = small(name=name, length=8, **choices), small(name=name, length=8, **choices)
        model.defaults = for_text(model.method, model.tokenizer)
        assert model.defaults == expected(model)
        how = {"steps": 4, "seed": 1}
        assert zellige.sample(model, **how) == zellige.sample(plain, **how, **model.defaults)
        assert zellige.sample(model, **how, defaults=False) == zellige.sample(plain, **how)
        assert Sampling.of(temperature=0.5).with_defaults(model).decoding() == model.defaults | {"temperature": 0.5}


def test_text_alone_has_them():
    for kind in ("sudoku", "image", "music", "molecules", "selfies"):
        assert for_text(small(kind).method, TOKENIZERS[kind]) == {}
    assert for_text(small().method, Integers(35)) == {}
    assert for_text(small("bytes").method, TOKENIZERS["bytes"]) == BY_CONFIDENCE


def test_an_option_that_their_sampler_does_not_take_is_for_the_methods_own():
    """--grid of ancestral, with the temperature that goes with any sampler; in blocks too."""
    for name, defaults in (("mdlm", BY_CONFIDENCE), ("bd3lm", IN_BLOCKS)):
        model = small(name=name, length=16)
        model.defaults = defaults
        said = lambda **given: Sampling.of(**given).with_defaults(model).decoding()  # noqa: B023, E731
        assert said(grid="cosine") == {"grid": "cosine", **TRUNCATED}
        assert said(threshold=0.9) == defaults | {"threshold": 0.9}
        assert zellige.sample(model, grid="cosine", seed=1) == zellige.sample(
            small(name=name, length=16), grid="cosine", seed=1, **TRUNCATED
        )
    assert said(window=8) == IN_BLOCKS | {"window": 8}  # of blockwise
    model = small()
    model.defaults = {"sampler": "mean"}  # another name of ancestral
    assert said(grid="cosine") == {"sampler": "mean", "grid": "cosine"}


def test_a_noisy_text_is_denoised_by_the_methods_own_sampler():
    model, plain = small(), small()
    model.defaults = BY_CONFIDENCE
    how = {"reconstruct": "the value is", "seed": 1}
    assert zellige.sample(model, **how) == zellige.sample(plain, **how, **TRUNCATED)


def test_a_training_and_its_report_say_how_samples_are_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("the cat and a dog saw it all " * 300)
    small = (
        "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 16 --train.steps 1 --train.batch 2 --train.samples 1"
    )
    assert cli.main(f"train bd3lm --block 4 --data.path notes.txt --run r {small} --train.validate-rows 4".split()) == 0
    words = "block_sampler confidence, confidence entropy, temperature 0.7, top_p 0.9; zellige sample --no-defaults draws from"
    assert f"samples are drawn by {words} the model's own distribution" in capsys.readouterr().err
    assert cli.main(["report", "r"]) == 0
    assert f"by the model&#x27;s defaults: {words} its own distribution" in (tmp_path / "r" / "report.html").read_text()


def test_a_training_leaves_them_with_its_run(tmp_path, monkeypatch):
    """In every checkpoint, also of a run that goes on; its samples are drawn by them. They go where the model goes; a
    run that begins with it has those of its own method, and a tuned model those of its base."""
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    a, net = tmp_path / "a", Net(layers=1, hidden=16, heads=2, length=16)
    how = Train(
        steps=1, batch=2, warmup=1, samples=2, sample_steps=5, save_every=1, keep=9, validate_rows=4, device="cpu",
        tensorboard=False,
    )  # fmt: skip
    zellige.train("mdlm", data=TEXTS, net=net, run=a, train=how)
    model = zellige.train("mdlm", data=TEXTS, run=a, train=replace(how, steps=2), resume=True).model
    assert model.defaults == BY_CONFIDENCE
    checkpoints = [folder for folder in (a / "checkpoints").glob("step-*") if not folder.is_symlink()]
    assert len(checkpoints) == 2
    for folder in checkpoints:
        assert json.loads((folder / GENERATION).read_text()) == {"zellige": zellige.__version__, **BY_CONFIDENCE}
        assert GENERATION in (folder / "SHA256SUMS").read_text()
    last = zellige.load(a, checkpoint="last")
    drawn = [json.loads(line)["text"] for line in (a / "samples" / "step-000002.jsonl").read_text().splitlines()]
    assert drawn == zellige.sample(last, count=2, steps=5, seed=how.seed)
    assert drawn != zellige.sample(last, count=2, steps=5, seed=how.seed, defaults=False)
    for layout in ("hub", "mdlm"):
        assert zellige.load(last.export(tmp_path / layout, layout)).defaults == BY_CONFIDENCE
    start = replace(how, start=str(a), samples=0)
    assert zellige.train("bd3lm", data=TEXTS, run=tmp_path / "b", train=start).model.defaults == IN_BLOCKS
    last.defaults = COLD
    last.save(tmp_path / "base")
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "the cat", "answer": "saw a"}\n' * 20)
    tuned = zellige.Tune(folder=tmp_path / "tuned", data=str(pairs), rank=2, train=replace(how, samples=0))
    assert tuned.run(tmp_path / "base").model.defaults == COLD
    images = torch.randint(0, 4, (40, 4, 4), generator=torch.Generator().manual_seed(0))
    run = zellige.train("mdlm", data=Data.of(images, 4), net=replace(net, length=16), run=tmp_path / "i", train=how)
    assert run.model.defaults == {}


# ------------------------------------------------------------------------------------------------------- grids of digits
def test_a_grid_comes_and_goes_as_its_symbols(tmp_path, monkeypatch, capsys):
    grids = small("sudoku")
    tokens = np.array(collect(zellige.watch(grids, count=3, seed=1)).tokens).reshape(3, 4, 4)
    drawn = zellige.sample(grids, count=3, seed=1)
    assert np.array_equal(drawn, tokens + 1)
    assert {*np.unique(drawn).tolist()} <= {1, 2, 3, 4}
    givens = np.array([[1, 2, 3, 4], [3, 4, 1, 2]])  # without a conflict; others by another naming of the digits
    for free in (-1, 0):
        part = np.full((3, 4, 4), free)
        part[:, :2] = np.stack([givens, 5 - givens, givens % 4 + 1])
        filled = zellige.infill(grids, fixed=part, seed=2)
        assert np.array_equal(filled[:, 0, :2], part[:, :2])
        assert np.array_equal(filled[1, 0], zellige.pipeline("infill", grids, seed=2)(part)[1])
        assert np.array_equal(zellige.sample(grids, fixed=part[0], seed=2)[0], filled[0, 0])
    rows = drawn.reshape(3, -1)
    scores = zellige.pipeline("score", grids)(drawn)
    assert [score.nats for score in zellige.pipeline("score", grids)(rows)] == [score.nats for score in scores]
    with pytest.raises(InputError, match="holds 5; the cells are 1 to 4, -1 where one is free"):
        zellige.infill(grids, fixed=drawn + (drawn == 4))
    kind = of(grids.tokenizer)
    assert np.array_equal(kind.tokens(kind.values(tokens.reshape(3, -1))).reshape(3, 4, 4), tokens)
    grids.save(tmp_path / "grids")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sample", "grids", "--count", "3", "--seed", "1"]) == 0
    assert f"valid: {int(kind.valid(tokens.reshape(3, -1)).sum())} of 3\n" in capsys.readouterr().out


@pytest.mark.long
def test_the_sudokus_of_the_model_that_ships_are_valid():
    """58 of 64 are (another batch): 5 or fewer of 8 with probability 0.03, on a machine whose rounding draws others."""
    model = zellige.load("sudoku")
    drawn = zellige.sample(model, count=8, seed=0)
    assert drawn.shape == (8, 9, 9)
    assert {*np.unique(drawn).tolist()} == {*range(1, 10)}
    kind = of(model.tokenizer)
    assert kind.valid(kind.tokens(drawn.reshape(8, -1))).sum() >= 6
