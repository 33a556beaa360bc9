"""What a notebook shows of samples and frames: paragraphs of text, pictures of everything else."""

import base64
import pickle
import re
from html import escape, unescape

import numpy as np
import pytest

import zellige
from zellige.show import kinds
from zellige.show.notebook import Rows, Texts
from zellige.show.style import MARKS, STYLES

from ..web.small_models import small


def pictures(html: str) -> list[bytes]:
    return [base64.b64decode(data) for data in re.findall(r'<img alt="\w+" src="data:image/png;base64,([^"]+)">', html)]


def test_texts_are_a_list_and_paragraphs():
    model = small()
    texts = zellige.sample(model, count=3, seed=5)
    assert type(texts) is Texts
    assert texts == [*texts] == pickle.loads(pickle.dumps(texts))
    assert re.findall(r"<p [^>]*>(.*?)</p>", texts._repr_html_(), re.DOTALL) == [escape(text) for text in texts]
    filled = zellige.infill(model, ["the _ of", "a _"], count=2, seed=5)
    assert [one._repr_html_().count("<p ") for one in filled] == [2, 2]
    assert Texts(["<b>&"])._repr_html_().endswith(">&lt;b&gt;&amp;</p>")


def test_a_frame_has_the_colour_of_what_happened_to_each_token():
    model = small()
    first, *_, last = frames = [*zellige.watch(model, count=2, steps=6, seed=5, prompt="the ")]
    for frame in frames:
        html = frame._repr_html_()
        assert f"step {frame.step} of 6, t = {frame.t:.2f}" in html
        plain = [unescape(re.sub("<[^>]+>", "", part)) for part in re.findall(r"<p [^>]*>(.*?)</p>", html, re.DOTALL)]
        assert plain == frame.text
    assert ("opacity" in first._repr_html_(), "opacity" in last._repr_html_()) == (True, False)
    assert first._repr_html_().count(">the </span>") == 2  # given
    assert set(STYLES) == {*MARKS}


@pytest.mark.parametrize("name", ["mnist", "sudoku", "chorales"])
def test_images_grids_and_music_are_pictures(name):
    model = zellige.load(name)
    rows = zellige.sample(model, count=2, steps=2, seed=5)
    kind, plain = kinds.of(model.tokenizer), np.asarray(rows)
    assert isinstance(rows, Rows)
    assert pictures(rows._repr_html_()) == [kind.png(kind.tokens(plain).reshape(2, -1))]
    assert repr(rows) == repr(plain)
    assert type(pickle.loads(pickle.dumps(rows))) is np.ndarray
    assert (rows + 1)._repr_html_() is None
    (first, *_) = zellige.watch(model, count=2, steps=2, seed=5)
    absent = np.where([[mark == "masked" for mark in first.marks(row)] for row in range(2)], -1, first.x.numpy())
    assert pictures(first._repr_html_()) == [kind.png(absent, np.zeros(absent.shape, bool))]
