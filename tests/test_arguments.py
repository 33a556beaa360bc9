"""The table of errors.md for Python, word for word; what is checked of rows and of own methods."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import zellige
from zellige import Batch, InputError, Net, Train
from zellige.base.arguments import checked
from zellige.base.requests import option, options_of
from zellige.cli.flags import flags
from zellige.methods import build
from zellige.methods.mdlm import MDLM
from zellige.models.model import as_model

PAGE = Path(__file__).resolve().parent / "errors.md"
ROWS = re.findall(
    r"^\| `((?:zellige\.|method\.).+?\))` \| (?:`` ?|`)(.+?)(?: ?``|`) \|$", PAGE.read_text(encoding="utf-8"), re.M
)


@pytest.fixture(scope="module")
def method():
    return build("mdlm", 5, Net(layers=1, hidden=8, heads=1, length=8))


@pytest.mark.parametrize(("call", "message"), ROWS, ids=[call for call, _ in ROWS])
def test_the_page_tells_the_truth(call, message, method, tmp_path, monkeypatch):
    if "cuda" in call and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.chdir(tmp_path)
    model = zellige.Model(method, zellige.data.tokenizer.Integers(5), None)
    named = lambda given: model if isinstance(given, str) else as_model(given)  # noqa: E731
    monkeypatch.setattr("zellige.models.model.as_model", named)
    known = {"zellige": zellige, "method": method, "tokens": torch.zeros(2, 8, dtype=torch.long)}
    with pytest.raises((InputError, TypeError)) as caught:
        eval(call, known)
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_the_page_has_rows():
    assert len(ROWS) == 8


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.full((2, 8), 5), "tokens hold 5; they must be 0 to 4"),
        (torch.full((2, 8), -1), "tokens hold -1; they must be 0 to 4"),
        (
            torch.zeros(2, 9, dtype=torch.long),
            "tokens are (2, 9) int64; they must be one row or more, of 1 to 8 tokens",
        ),
    ],
)
def test_rows_that_are_no_texts_of_the_method(tokens, message, method):
    for ask in (method.loss, method.bound, method.terms):
        with pytest.raises(InputError, match=re.escape(message)):
            ask(Batch(tokens))


def test_an_own_method_is_checked_too(method):
    class Own(type(method)):
        def loss(self, batch, generator=None):
            return batch.tokens.sum(-1)

    own = Own(method.network, 5, (8,))
    assert own.loss(Batch(torch.ones(2, 8, dtype=torch.long))).tolist() == [8, 8]
    with pytest.raises(InputError, match="`batch` is a Tensor; it must be a Batch"):
        own.loss(torch.ones(2, 8, dtype=torch.long))


def test_numbers_of_numpy_become_those_of_python():
    import numpy as np

    @checked
    def same(count: int, share: float = 0.5) -> tuple:
        return count, share

    assert [type(x) for x in same(np.int64(2), np.float32(0.25))] == [int, float]
    with pytest.raises(InputError, match=r"`count` is True; it must be a whole number"):
        same(True)
    with pytest.raises(InputError, match=r"`count` is 1,000,000,000,000; it must be at most 1,000,000,000"):
        same(10**12)
    with pytest.raises(InputError, match="`share` is nan; it must be a number"):
        same(1, float("nan"))
    with pytest.raises(TypeError, match=re.escape("same() lacks the argument 'count'; give it")):
        same()


def test_a_setting_out_of_its_kind():
    with pytest.raises(InputError, match=re.escape("`train.batch` is a list; it must be a whole number")):
        Train(batch=[2])
    with pytest.raises(InputError, match=re.escape("`net.layers` is '2'; it must be a whole number")):
        Net(layers="2")


def test_a_vocabulary_of_one_has_no_neighbours():
    with pytest.raises(InputError, match="one token has no neighbour; give data of two tokens or more"):
        build("csm", 1, Net(layers=1, hidden=8, heads=1, length=8))


def test_classes_in_a_batch_of_which_no_row_moves():
    method = build("genmd4", 5, Net(layers=1, hidden=8, heads=1, length=8, classes=2))
    none = torch.zeros(0, 8, dtype=torch.long)
    assert method.network.features(none, torch.zeros(0)).shape == (0, 8, 8)


@pytest.mark.parametrize("path", ["x" * 5000, "x" * 300, "x/" * 2500, f"runs/{'x' * 256}"], ids=len)
def test_a_path_that_no_file_can_have(path):
    """It was an OSError of the system: File name too long."""
    for call, name in [
        (zellige.load, "path"),
        (zellige.watch, "path"),
        (zellige.report.write, "run"),
        (lambda run: zellige.train("mdlm", run=run), "run"),
        (lambda run: zellige.compare(["mdlm", "md4"], run=run), "run"),
    ]:
        with pytest.raises(
            InputError, match=rf"^`{name}` is '.*\.\.\.', {len(path):,} characters long; it must be a shorter path$"
        ):
            call(path)


def test_the_ranges_of_options_are_checked_or_the_class_is_refused():
    """Those of a method's Config are checked, declared or not; a dataclass that nobody checks cannot be read as options."""

    @dataclasses.dataclass(frozen=True)
    class Choices:
        width: int = option("how wide", default=1, minimum=1)

    class Wide(MDLM):
        Config = Choices

    with pytest.raises(InputError, match="`width` is 0; it must be 1 or more"):
        Wide.Config(width=0)

    @dataclasses.dataclass(frozen=True)
    class Plain:
        width: int = option("how wide", default=1, minimum=1)

    for read in (options_of, flags):
        with pytest.raises(TypeError, match="Plain's options; decorate it with `declared`"):
            read(Plain)
