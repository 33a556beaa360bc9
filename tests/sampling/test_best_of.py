"""Best of N: the likeliest of the candidates, which are the samples of the same seed."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import zellige
from sampling.test_calls import model_of
from zellige import InputError, cli
from zellige.core.batch import Batch
from zellige.data.tokenizer import Integers
from zellige.models.decoding import as_watched
from zellige.samplers.growing import Redrawn
from zellige.sampling import best_of as module
from zellige.sampling.best_of import DRAWS, best_of, has_ended

N = 5
BEGINNING = torch.tensor([[2, 0, 3, *13 * [-1]]])
GAP = torch.tensor([[3, 2, 1, 2, 1, 3, -1, -1, 2, 1, 3, 0, 0, 2, 2, 0]])
GIVEN = torch.tensor([[2, -1, 0, -1, -1, 3, 1, -1, -1, 0, -1, -1, -1, 2, -1, -1]])


def nats(model: Any, rows: Any, draws: int = 400, **more: Any) -> torch.Tensor:
    """The bound of each row, the mean of so many draws: (N,)."""
    x = torch.as_tensor(rows)
    batch = Batch(x, **more).take(torch.arange(len(x)).repeat(draws))
    return model.method.bound(batch, torch.Generator().manual_seed(1)).reshape(draws, -1).mean(0)


@pytest.mark.parametrize("name", ["ar", "mdlm", "bd3lm", "udlm"])
@torch.no_grad()
def test_it_is_the_likeliest_of_the_samples_of_that_seed(name, monkeypatch):
    monkeypatch.setattr(module, "DRAWS", 64)  # few draws are noisy
    model = model_of(name)
    candidates = zellige.Sample(count=3 * N, seed=4, steps=6).run(model)
    chosen = zellige.Sample(count=3, seed=4, steps=6, best_of=N).run(model)
    values, wide = nats(model, candidates.tokens).reshape(3, N), 0
    for k, row in enumerate(chosen.tokens):
        group = candidates.tokens[N * k : N * k + N]
        assert row in group
        value = values[k, group.index(row)]
        assert value < values[k].median()
        wide += bool(values[k].max() - values[k].min() > 1)
    assert wide == 3
    assert chosen.distribution is not None
    assert chosen.distribution.key.endswith(f"best of {N}")
    alone = zellige.Sample(count=1, seed=[(4, 1)], steps=6, best_of=N).run(model)
    assert alone.tokens == chosen.tokens[1:2]


@torch.no_grad()
def test_of_an_exact_model_it_is_the_likeliest_itself():
    model = model_of("ar")
    candidates = zellige.Sample(count=40, seed=1).run(model)
    chosen = zellige.Sample(count=1, seed=1, best_of=40).run(model)
    values = nats(model, candidates.tokens, draws=1)
    assert chosen.tokens[0] == candidates.tokens[int(values.argmin())]
    assert chosen.calls == [sum(candidates.calls) + 40]


@pytest.mark.parametrize("name", ["mdlm", "bd3lm", "udlm", "ar"])
def test_the_bound_is_given_what_is_given(name, monkeypatch):
    model, seen = model_of(name), []
    bound = type(model.method).bound
    monkeypatch.setattr(
        type(model.method), "bound", lambda self, batch, g=None: (seen.append(batch), bound(self, batch, g))[1]
    )
    given = BEGINNING if name in ("ar", "bd3lm") else GIVEN
    filled = zellige.Sample(fixed=given, count=2, best_of=3, seed=2, steps=4, options={}).run(model)
    assert all(row[i] == t for row in filled.tokens for i, t in enumerate(given[0].tolist()) if t >= 0)
    assert len(seen) == 6
    assert all(len(batch) == (1 if name == "ar" else DRAWS) for batch in seen)
    assert all(torch.equal(batch.mask, (given < 0).expand(len(batch), -1)) for batch in seen)


@pytest.mark.parametrize("name", ["ar", "bd3lm"])
@torch.no_grad()
def test_a_gap_is_filled_by_what_follows(name, monkeypatch):
    """Two tokens in the middle, which the sampler draws from those before them: of all fillings the likeliest."""
    monkeypatch.setattr(module, "DRAWS", 256)
    model = model_of(name)
    model.tokenizer = Integers(4)  # the rules of Sudoku are no part of it
    with pytest.raises(InputError, match="right of a gap"):
        zellige.Sample(fixed=GAP).run(model)
    filled = zellige.Sample(fixed=GAP, best_of=250, seed=2, steps=8).run(model)
    all_rows = GAP.repeat(16, 1)
    all_rows[:, 6:8] = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    free = torch.arange(16) >= 6
    values = nats(model, all_rows, draws=1 if name == "ar" else 1500, mask=free.expand(16, -1))
    first, second = values.sort().values[:2]
    assert second - first > 0.15
    assert torch.equal(torch.tensor(filled.tokens), all_rows[values.argmin()][None])
    if name == "ar":  # what follows decides
        assert nats(model, all_rows[:, :8], draws=1).argmin() != values.argmin()


def test_an_end_cuts_nothing_that_is_given():
    """The text may end in its last gap, which is then shorter; before given tokens it may not."""
    model = zellige.load("stories")
    (end,) = model.tokenizer.encode(".")
    filled = zellige.infill(model, "Tom had a red ball___", end=end, best_of=2, seed=1)[0]
    assert filled.startswith("Tom had a red ball")
    assert not filled.endswith(".")
    for ending in ({"end": end}, {"entropy": 2.0}):
        with pytest.raises(InputError, match="may end the text before it; leave these out"):
            zellige.infill(model, "Tom had a red ball__ He ___ it.", best_of=2, **ending)


def test_each_class_has_its_own_candidates(monkeypatch):
    model, seen = model_of("mdlm", classes=3), []
    bound = type(model.method).bound
    monkeypatch.setattr(
        type(model.method),
        "bound",
        lambda self, batch, g=None: (seen.append(batch.condition), bound(self, batch, g))[1],
    )
    found = zellige.Sample(classes=(2, 0), count=2, best_of=3, steps=3).run(model)
    assert [int(label) for label in found.classes if label is not None] == [2, 2, 0, 0]
    assert [int(condition[0]) for condition in seen] == 6 * [2] + 6 * [0]
    drawn = zellige.Sample(classes=(2, 0), count=6, steps=3).run(model)
    assert all(row in drawn.tokens[3 * k : 3 * k + 3] for k, row in enumerate(found.tokens))


def test_a_text_that_ended_comes_first_and_its_end_counts(monkeypatch):
    model = model_of("ar")
    trajectory = replace(zellige.Sample(count=4).trajectory(model), end=3)
    samples = zellige.Sample(count=4, seed=2).run(model)
    rows = [[0] * 16, [1, 2, 0], [1] * 16, [2] * 16]
    samples = replace(samples, tokens=rows, distribution=None, summary=None)
    values = {16: 0.1, 3: 5.0}
    monkeypatch.setattr(module, "nats_per_token", lambda of, k, row, *more: values[len(row)])
    assert best_of(4, trajectory, samples).tokens == [[1, 2, 0]]
    assert best_of(2, trajectory, samples).tokens == [[1, 2, 0], [1] * 16]
    stopped = replace(samples, summary=Redrawn([False] * 4, [0] * 4, [False, True, False, False]))
    assert best_of(4, trajectory, stopped).tokens == [[0] * 16]  # it repeats itself, and has not ended
    assert has_ended(replace(trajectory, lengths=(16, 3, 16, 16)), samples) == [False] * 4
    monkeypatch.undo()
    whole = nats(model, [[1, 2, 0, 3]], draws=1).item() / 4
    assert module.nats_per_token(trajectory, 1, [1, 2, 0], True, 1) == pytest.approx(whole, rel=1e-5)


def test_infilled_texts_have_the_candidates_that_infill_draws():
    fill: dict[str, Any] = {"seed": 3, "steps": 4, "temperature": 1.0, "defaults": False}
    text = "C_C_C"
    several = zellige.infill("molecules", text, count=8, **fill)
    assert zellige.infill("molecules", text, count=2, best_of=4, **fill)[0] in several[:4]


def test_where_there_is_nothing_to_choose_by_it_says_so():
    with pytest.raises(InputError, match="`best_of` compares bounds, and this csm has none"):
        zellige.sample(model_of("csm"), best_of=2)
    with pytest.raises(InputError, match="`best_of` chooses among finished samples"):
        zellige.watch(model_of("mdlm"), best_of=2)
    with pytest.raises(InputError, match="best_of"):
        zellige.sample(model_of("mdlm"), best_of=0)


def test_what_is_watched_is_drawn_once(capsys, monkeypatch):
    shipped = zellige.load("molecules")
    shipped.defaults = {"temperature": 0.5, "best_of": 3, "infill": {"best_of": 2}}
    monkeypatch.setattr("zellige.cli.drawing.load", lambda *_: shipped)
    for words, calls in (("", 3), ("--watch", 1), ("--watch --best-of 2", 2)):
        assert cli.main(["sample", "molecules", "--json", "-", "--sampler", "any_order", *words.split()]) == 0
        done = json.loads(capsys.readouterr().out)["result"]["samples"]
        assert len(done) == 1
        length = shipped.method.shape[0]
        assert done[0]["calls"] == calls * length + (calls * DRAWS if calls > 1 else 0)
    assert as_watched(shipped.defaults) == {"temperature": 0.5, "infill": {}}
    assert next(zellige.watch(shipped)).count == 1


def test_a_given_beginning_does_not_make_a_short_text_likelier():
    model = model_of("ar")
    trajectory = replace(zellige.Sample(count=1, fixed=BEGINNING).trajectory(model), end=3)
    row = [2, 0, 3, 1]
    counted = torch.tensor([[False, False, False, True]])
    alone = nats(model, [row], draws=1, mask=counted).item()
    assert module.nats_per_token(trajectory, 0, row, False, 1) == pytest.approx(alone, rel=1e-5)


def test_a_text_longer_than_the_network_is_scored_in_windows():
    model = model_of("ar")
    model.tokenizer = Integers(4)
    long = zellige.Sample(count=1, length=37, best_of=3, options={"end": -1})
    drawn = zellige.Sample(count=3, length=37, options={"end": -1}).run(model).tokens
    of_row = [sum(nats(model, [row[a : a + 16]], draws=1).item() for a in (0, 16, 32)) for row in drawn]
    assert long.run(model).tokens == [drawn[of_row.index(min(of_row))]]


def test_the_number_of_samples_is_checked_before_the_candidates():
    model = model_of("mdlm")
    with pytest.raises(InputError, match="multiple"):
        zellige.Sample(fixed=torch.cat((GIVEN, GIVEN)), count=3, best_of=2).run(model)


def test_particles_and_rewards_choose_by_themselves():
    model = model_of("mdlm")
    with pytest.raises(InputError, match="sampler 'smc' weighs its own particles"):
        zellige.Sample(best_of=2, reward=lambda texts: [0.0] * len(texts)).run(model)
    model.defaults = {"best_of": 3}
    request = zellige.Sample(reward=lambda texts: [0.0] * len(texts))
    assert request.with_defaults(model).best_of is None
    assert zellige.Sample().with_defaults(model).best_of == 3
