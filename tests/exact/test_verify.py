"""`verify`: every method in the table holds; what is wrong is found, and by which check; what the table looks like."""

import contextlib
import dataclasses
import importlib
import itertools
import re

import pytest
import torch

from testing.worlds import CTMC, generator_matrix
from zellige import methods, verify
from zellige.base.errors import InputError
from zellige.core import maths
from zellige.core.prediction import LeaveOneOut
from zellige.methods import D3PM, METHODS, RADD, SEDD, UDLM, GenMD4
from zellige.methods.diffusion import Diffusion
from zellige.plugins.verify import identities
from zellige.plugins.verify.identities.check import near
from zellige.plugins.verify.identities.sampler import chi_square
from zellige.plugins.verify.verify import Report, _admits
from zellige.samplers import SAMPLERS

verify_module = importlib.import_module("zellige.plugins.verify.verify")
KEYS = [*identities.SHARED, *identities.OWN]


# ---------------------------------------------------------------------------------- every method holds
SHARED = ("process", "prediction", "bound.implicit")
OF_EACH = {
    f"bound.{key}" for key in ("convert", "steps", "sum", "normalised", "one-position", "draws", "closed-form", "sides")
}


@pytest.mark.parametrize("only", SHARED)
def test_what_all_methods_share(only):
    report = verify("mdlm", only=only)
    assert report.failures == []
    assert {row.key for row in report.rows} >= {key for key in identities.SHARED if key.startswith(only)}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [name for name, cls in METHODS.items() if issubclass(cls, Diffusion)])
def test_bounds_of(name, every, monkeypatch):
    """Closed forms, limits, likelihoods, and the expectations of what is drawn; in short of every third variant and the last."""
    cls = METHODS[name]
    if not every:
        some = {*range(0, len(cls.variants), 3), len(cls.variants) - 1}
        monkeypatch.setattr(cls, "variants", tuple(cls.variants[i] for i in sorted(some)))
        for key in ("bound.hybrid", "bound.weights", "bound.definition"):
            monkeypatch.delitem(identities.OWN, key)
    monkeypatch.delitem(identities.SHARED, "bound.implicit")  # test_what_all_methods_share
    report = verify(name, only="bound")
    assert report.failures == []
    kinds = {row.key for row in report.rows}
    assert kinds >= OF_EACH
    discrete = methods.find(name) is D3PM
    assert discrete != ("bound.limit" in kinds)  # the only bound of discrete time is that of its steps
    assert discrete != ("bound.entropy" in kinds)


@pytest.mark.parametrize("name", ["bd3lm", "ar"])
def test_blocks_of(name):
    report = verify(name, only="blocks")
    assert report.failures == []
    assert {row.key for row in report.rows} >= {
        "blocks.cache",
        *(["blocks.ar"] if name == "ar" else ["blocks.streams"]),
    }


@pytest.mark.parametrize("name", ["bd3lm", pytest.param("ar", marks=pytest.mark.long)])
def test_guidance_of(name):
    """What follows the block being written is masks, whose time a classifier is given too."""
    report = verify(name, only="guidance")
    assert report.failures == []
    assert any(row.key == "guidance.next" for row in report.rows)


def test_insertion_holds(monkeypatch):
    """In short of the variant with another rate of unmasking; its samplers are below, and in test_flexmdm."""
    monkeypatch.setattr(METHODS["flexmdm"], "variants", METHODS["flexmdm"].variants[1:])
    report = verify("flexmdm", only="insertion")
    assert report.failures == []
    assert len(report.rows) == 10


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_samplers_of(name):
    report = verify(name, only="sampler")
    assert report.failures == []
    variants = [method for _, method in identities.variants(methods.find(name), kinds=True)]
    for sampler in SAMPLERS.values():  # one that can be paired is checked, one that cannot is not
        paired = any(sampler.reason_against(method) is None for method in variants)
        checked = any(row.key.split(".")[1].split("-")[0] == sampler.name for row in report.rows)
        assert checked <= paired
        if sampler.name != "semi_autoregressive":  # whose rows are those of the caches, shared by all methods
            assert (
                checked == paired or name == "genmd4"
            )  # whose exact network depends on the time: confidence has an error


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_the_matrix_of_methods_and_samplers(name):
    """Each sampler that fits a method has rows, and each other is an error."""
    cls = METHODS[name]
    for sampler in SAMPLERS:
        if any(_admits(SAMPLERS[sampler](), method) for _, method in identities.variants(cls)):
            report = verify(name, sampler=sampler)
            assert report.rows
            assert report.failures == []
        else:
            with pytest.raises(InputError, match="nothing to check"):
                verify(name, sampler=sampler)


@pytest.mark.parametrize(
    "key", [key for key in KEYS if not key.startswith(("sampler.", *SHARED)) and key not in OF_EACH]
)
def test_no_check_is_empty_for_all_methods(key):
    """And it holds: all of what methods share, of the rest the first rows. Of the others the tests above say the same."""
    if key in identities.OWN:
        classes = sorted(METHODS.values(), key=lambda cls: len(cls.variants))  # the first of which there is one ends it
        checks = (identities.OWN[key](method) for cls in classes for _, method in identities.variants(cls))
        rows = next((rows for check in checks if (rows := list(itertools.islice(check, 3)))), [])
    else:
        rows = list(identities.SHARED[key]())  # pyright: ignore
    assert rows
    assert [row for row in rows if not row.ok] == []


# ---------------------------------------------------------------------------------- what is wrong is found
def failing(cls, only="bound"):
    cls.name = "wrong"
    return {row.identity: row for row in verify(cls, only=only).failures}


def test_a_closed_form_that_is_not_the_bound():
    class Wrong(UDLM):
        def cost(self, logits, x_0, x_t, t, s=None):
            value = super().cost(logits, x_0, x_t, t, s)
            return value if s is not None else torch.where(t > 0.9, value * 1.001, value)

    found = failing(Wrong)
    assert {row.key for row in found.values()} == {"bound.closed-form", "bound.draws"}
    assert "t = 0.9" in found["closed form = generic bound"].where
    assert "x_0 = [" in found["closed form = generic bound"].where


@pytest.mark.long
def test_a_gradient_that_is_not_that_of_the_bound():
    """What is drawn depends on the learnt exponents; without the surrogate of RLOO their gradient is biased."""

    class Wrong(GenMD4):
        def rloo(self, batch, z, other, t, s=None):
            return self.continuous_bound(batch, z, t) if s is None else self.discrete_bound(batch, z, t, s)

    assert failing(Wrong, "bound.draws").keys() == {"E of the drawn gradient = its gradient"}


def test_a_loss_with_another_expectation():
    class Wrong(RADD):
        def t_dce(self, batch, x_t, t):
            return super().t_dce(batch, x_t, t) * 1.001

    (row,) = failing(Wrong, "bound.losses").values()
    assert row.where.startswith("t-dce: ")  # only this variant


def test_the_constant_of_the_published_loss_vanishes_in_expectation():
    """RADD's published t-DCE leaves out a log a for each mask: when alpha runs from 1 to 0 its integral is zero."""

    class Published(RADD):
        def t_dce(self, batch, x_t, t):
            alpha, rate = self.process.schedule.alpha(t)[:, 0], self.process.schedule.beta(t)[:, 0]
            a = alpha / (1 - alpha)
            return super().t_dce(batch, x_t, t) - rate * maths.xlogy(a, a) * (x_t == self.mask).sum(-1)

    assert failing(Published, "bound.losses") == {}


def test_a_draw_without_its_weight():
    class Wrong(SEDD):
        variants = ({"process": "uniform"},)

        def terms(self, batch, generator=None):
            return {"diffusion": super().terms(batch, generator)["diffusion"], "prior": torch.zeros(len(batch))}

    assert {row.key for row in failing(Wrong).values()} == {"bound.draws"}


def test_an_own_method_without_closed_forms():
    class Own(UDLM):
        name = "own"
        variants = ({},)
        cost = methods.Diffusion.cost

    report = verify(Own, only="bound")
    assert report.ok
    assert "bound.closed-form" not in {row.key for row in report.rows}  # nothing to compare
    assert {row.method for row in report.rows} == {"own", ""}


def test_one_draw_of_what_is_impossible_is_found():
    exact = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    assert chi_square(torch.tensor([50, 50, 0]), exact, "").ok
    assert not chi_square(torch.tensor([50, 49, 1]), exact, "").ok


# ---------------------------------------------------------------------------------- one sampler, and its refusal
def test_one_sampler():
    report = verify("mdlm", "udlm", sampler="analytic")  # another name of ancestral
    assert report.ok
    assert {row.key for row in report.rows} == {
        "sampler.ancestral",
        "sampler.ancestral-grids",
        "sampler.ancestral-gumbel",
        "sampler.ancestral-choose",
        "sampler.ancestral-argmax",
    }
    assert list(report.pairings) == ["mdlm", "mdlm time", "udlm"]
    assert all(0 < row["ancestral"] < 1e-2 for row in report.pairings.values())
    assert report.notes == ()


def test_the_reason_of_a_dash():
    report = verify("d3pm", "udlm", sampler="euler")
    assert report.pairings["d3pm"] == {"euler": None}
    assert "d3pm: sampler 'euler' needs continuous time" in report.notes[0]
    assert "use ancestral" in report.notes[0]
    assert report.lines()[-len(report.notes)].strip() == report.notes[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sampler": "euler"}, "nothing to check: d3pm: sampler 'euler' needs continuous time"),
        ({"sampler": "speculative"}, "nothing to check: d3pm: sampler 'speculative' needs"),
        ({"only": "bound.limit"}, "nothing to check: `only` bound.limit is no check of d3pm"),
    ],
)
def test_nothing_to_check_is_an_error(options, why):
    with pytest.raises(InputError, match=re.escape(why)):
        verify("d3pm", **options)


@pytest.fixture
def one_variant(monkeypatch):
    """Methods as they are by default, and pairings of two steps."""
    for cls in METHODS.values():
        monkeypatch.setattr(cls, "variants", cls.variants[:1])
    monkeypatch.setattr(verify_module, "admissible", lambda method, steps: 2)


@pytest.mark.parametrize(("a", "b"), itertools.combinations(METHODS, 2))
def test_any_two_methods_are_paired_with_every_sampler(a, b, one_variant, monkeypatch):
    """A number where the sampler fits, without the checks and distances themselves."""
    monkeypatch.setattr(identities, "distance", lambda method, sampler, steps: 0.5)
    for checks in (identities.SHARED, identities.OWN, identities.WHOLE):
        for key in checks:
            monkeypatch.setitem(checks, key, lambda *_: [near("all", "one", 0.0, 0.0, 1.0)])
    report = verify(a, b)
    assert len(report.rows) == len(identities.SHARED) + 2 * len(identities.OWN) + 2 * len(identities.WHOLE)
    for name, pairs in report.pairings.items():
        _, method = next(identities.variants(METHODS[name.partition(" ")[0]]))
        assert {s for s, value in pairs.items() if value} == {
            s for s in pairs if SAMPLERS[s].reason_against(method) is None
        }


LIKE_MDLM = ("radd", "md4", "genmd4")  # one exact network with mdlm, and so one distance


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LIKE_MDLM else name for name in METHODS]
)
def test_every_sampler_that_fits_has_a_distance(name, one_variant):
    """With the exact network, by the sampler's own code."""
    _, method = next(identities.variants(METHODS[name]))
    for sampler in SAMPLERS.values():
        if sampler.grows or hasattr(sampler, "block_sampler") or sampler.name == "uniformisation":
            continue
        value, _ = verify_module._pair(name, method, sampler(), True)
        assert (value is not None) == (sampler.reason_against(method) is None)
        if value is not None:
            assert 0 <= value <= 1


def test_names_that_are_not_there():
    with pytest.raises(InputError, match="unknown sampler 'eulr'; did you mean 'euler'"):
        verify("mdlm", sampler="eulr")
    with pytest.raises(InputError, match=r"unknown check 'bound.limmit'; did you mean 'bound.limit'"):
        verify("mdlm", only="bound.limmit")


# ---------------------------------------------------------------------------------- the table
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_table_has_80_columns(every):
    """In short of some checks alone; without what takes longest."""
    rows = []
    for key in KEYS:
        if key != "bound.draws" and (every or key.startswith(("process", "bound.s")) or key == "sampler.ancestral"):
            with contextlib.suppress(InputError):  # no check of udlm
                rows += verify("udlm", only=key).rows
    lines = Report((*rows, dataclasses.replace(rows[-1], ok=False, method="genmd4")), 61.0, {}).lines()
    assert max(len(line.replace("FAIL", "ok")) for line in lines if not line.startswith("    ")) <= 80
    assert "1 fails" in "\n".join(lines)
    assert f"zellige verify genmd4 --only {rows[-1].key}" in "\n".join(lines)


def test_the_matrix():
    """In parts, none wider than 100 columns, that together hold each number once."""
    pairings = {name: dict.fromkeys(SAMPLERS, 1.234e-3) for name in ("sedd uniform, geometric", "mdlm", "d3pm")}
    pairings["mdlm"]["euler"] = None
    pairings["d3pm"] |= dict.fromkeys(list(SAMPLERS)[1:])
    lines = Report((), 1.0, pairings).lines()
    _, *lines = lines[lines.index("distance of 128-step samples from the data, exact network (- cannot be paired)") :]
    parts = [part.split("\n") for part in "\n".join(lines).split("\n\n")]
    assert max(map(len, lines)) <= 100
    heads = [part[next(i for i, line in enumerate(part) if line.lstrip().startswith("sedd")) - 1] for part in parts]
    assert [name for head in heads for name in head.split()] == [name.split("_")[-1] for name in SAMPLERS]
    assert parts[0][0].split() == ["first_", "any_", "fixed_"]
    assert parts[0][3].split()[:3] == ["mdlm", "1.2e-03", "-"]
    assert ["d3pm" in "".join(part) for part in parts] == [
        True,
        *(False for _ in parts[1:]),
    ]  # the others cannot draw from it
    assert sum(line.count("1.2e-03") for line in lines) == 2 * len(SAMPLERS)


def test_a_row_is_that_of_the_worst_variant():
    (row,) = verify("md4", only="bound.sum").rows
    each = [next(iter(identities.OWN["bound.sum"](m))).error for _, m in identities.variants(methods.find("md4"))]
    assert row.error == min(each)
    assert row.where.startswith("diffusion_steps 4: ")


def test_variants_differ_for_a_sampler_only_where_the_exact_network_or_the_pairing_does():
    names = lambda name: [said for said, _ in identities.variants(methods.find(name), kinds=True)]  # noqa: E731
    assert names("radd") == [""]  # four losses, one model
    assert names("mdlm") == ["", "time"]  # any_order refuses a network that is told the time
    noises = [
        "",
        "uniform",
        "uniform, mean, linear-to-one",
        "uniform, image, even",
        "absorbing-uniform",
        "middle",
        "gaussian",
        "gaussian, mean",
        "band",
        "nearest, neighbours 1",
        "nearest, neighbours 2, sinkhorn",
        "absorbing-nearest, neighbours 2, rank",
    ]
    assert names("d3pm") == noises
    assert names("csm") == ["", "cycle", "grid", "star"]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.long
def test_an_own_process_without_a_schedule(every):
    """A generator and nothing else: what needs a schedule is left out, the rest holds; in short for one sampler."""

    class Own(Diffusion):
        name = "own"
        parameterization = "leave_one_out"

        @dataclasses.dataclass(frozen=True)
        class Config:
            pass

        def __init__(self, network, vocabulary, shape, config=None):
            super().__init__(network, vocabulary, shape, config, CTMC(generator_matrix(vocabulary)), timed=True)

        @classmethod
        def states(cls, vocabulary, config):
            return vocabulary

        def network_time(self, t):
            return t

        def read(self, logits, x_t, t):
            return LeaveOneOut(self.process, logits.softmax(-1), x_t, t)

    reports = [verify(Own)] if every else [verify(Own, only="bound"), verify(Own, sampler="ancestral")]
    assert [report.failures for report in reports] == [[]] * len(reports)
    keys = {row.key for report in reports for row in report.rows if row.method}
    assert {"bound.limit", "bound.entropy", "bound.draws", "sampler.ancestral-choose"} <= keys
    assert not keys & {
        "bound.log-snr",
        "sampler.ancestral",
    }  # it starts from its stationary distribution, not from that of x_1
