"""Combinations of options: which there are, and that any two of them have one bound."""

import dataclasses
import functools
import itertools
import math

import pytest
import torch

from zellige import InputError, verify
from zellige.core.curves import SCHEDULES, named
from zellige.methods import METHODS
from zellige.methods.bd3lm import BD3LMScore
from zellige.plugins.verify.combinations import LEFT_OUT, VALUES, Combinations, combinations
from zellige.plugins.verify.identities import options
from zellige.plugins.verify.identities.check import L, V

QUICK = ("ar", "csm", "flexmdm", "mdlm", "md4", "bd3lm")  # the others also draw, in the long tests


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", METHODS)
def test_any_two_options_have_one_bound(name, every, monkeypatch):
    """In short, for most methods, the closed forms at each x_t alone."""
    if not every and name not in QUICK:
        monkeypatch.setattr(options, "expectations", lambda method: ())
    report = verify(name, only="options")
    assert report.failures == []
    assert report.rows[0].identity.partition(" ")[0] == str(len(found(name).rows))
    assert len(report.rows) >= (1 if name in ("csm", "flexmdm", "ar") or name not in QUICK else 4)


def test_two_options_that_are_wrong_together_are_found(monkeypatch):
    """Each right alone: scores scaled as for masks, where the noise is uniform."""
    init = BD3LMScore.__init__

    def scaled(self, *args, **more):
        init(self, *args, **more)
        self.scaled = True

    monkeypatch.setattr(BD3LMScore, "__init__", scaled)
    monkeypatch.setattr(options, "expectations", lambda method: ())
    (row,) = verify("bd3lm", only="options").failures
    assert "process uniform" in row.where
    assert "prediction score" in row.where


@functools.cache
def found(name: str) -> Combinations:
    with options.files() as paths:
        return combinations(METHODS[name], V, L, paths)


@pytest.mark.parametrize("name", METHODS)
def test_every_option_has_values_and_each_is_in_a_combination(name):
    of_method = found(name)
    for option in dataclasses.fields(METHODS[name].Config):
        values = of_method.values[option.name]
        assert len(values) > 1 or option.name in LEFT_OUT or option.name == "diffusion_steps"
        assert {row[option.name] for row in of_method.rows} == {*values}


@pytest.mark.parametrize("name", ["sedd", "md4", "gidd", "genmd4", "csm", "radd"])
def test_every_pair_that_some_combination_admits_is_in_one(name):
    """Against the product of all values."""
    all_found, cls = found(name), METHODS[name]
    held = {pair for row in all_found.rows for pair in itertools.combinations(row.items(), 2)}
    for combination in itertools.product(*all_found.values.values()):
        row = dict(zip(all_found.values, combination))
        try:
            config = cls.Config(**row)
            cls.resolve(config)(None, V, (L,), config)  # pyright: ignore[reportCallIssue]
        except InputError:
            continue
        assert {*itertools.combinations(row.items(), 2)} <= held
    assert len(held) == all_found.pairs


def test_no_value_is_of_an_option_that_there_is_not():
    names = {field.name for cls in METHODS.values() for field in dataclasses.fields(cls.Config)}
    assert {name.rpartition(".")[2] for name in VALUES} | {*LEFT_OUT} <= names


@pytest.mark.parametrize("name", SCHEDULES)
def test_odds_near_clean_tokens(name):
    """Where 1 - alpha is below any rounding of alpha."""
    schedule, t = named(name), torch.tensor([1e-10], dtype=torch.float64)
    if schedule.alpha_0 < 1:
        return
    power = math.log(float(schedule.odds(t) / schedule.odds(t / 2))) / math.log(2)  # of t, as t falls to 0
    exponents = {"cosine-power": 2.0, "polynomial": 2.0, "square": 2.0, "square-root": 0.5}
    assert power == pytest.approx(-exponents.get(name, 1.0), abs=1e-5)
    middle = torch.tensor([0.4], dtype=torch.float64)
    torch.testing.assert_close(schedule.odds(middle), schedule.alpha(middle) / (1 - schedule.alpha(middle)))
