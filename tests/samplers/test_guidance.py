"""What a classifier reads while a text is written token by token, or block after block."""

import pytest
import torch

from testing.small import make
from zellige.base.errors import InputError
from zellige.samplers import Ancestral, Blockwise, LeftToRight, run
from zellige.samplers.guidance import ByClassifier


class Reader:
    """A classifier that has no opinion, and remembers the texts whose tokens are not changed."""

    length, classes = 8, range(2)

    def __init__(self):
        self.read = []

    def log_p(self, x, t, process):
        self.read.append(x[0])
        return torch.zeros(len(x), 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "choices", "sampler"), [("ar", {}, LeftToRight()), ("bd3lm", {"block": 2}, Blockwise(Ancestral()))]
)
def test_it_reads_what_is_written_and_blanks(name, choices, sampler):
    """At each token the text so far; and one that has no opinion changes no sample, with a given beginning or without."""
    method, reader = make(name, choices), Reader()
    for fixed in (None, torch.tensor([[2, 1, 0, -1, -1, -1, -1, -1]])):
        reader.read.clear()
        ways = (None, lambda method: ByClassifier(method, reader, 2.0, label=1))
        plain, guided = (
            [*run(sampler, method, (1, 8), 4, fixed=fixed, generator=torch.Generator().manual_seed(3), around=way)][
                -1
            ].x[0]
            for way in ways
        )
        if name == "ar":
            assert torch.equal(plain, guided)
        read = torch.stack(reader.read)[::2]  # every second one is of texts with a token changed
        known = read != method.vocabulary
        assert torch.equal(read[known], guided.expand_as(read)[known])
        assert bool(known.sum(-1).diff().ge(0).all())
        assert int(known[0].sum()) == (0 if fixed is None else 3)


def test_a_classifier_of_one_token_reads_no_token_before():
    """It favours the token 2, whatever was written."""

    class Word(Reader):
        length = 1

        def log_p(self, x, t, process):
            super().log_p(x, t, process)
            return torch.where(x == 2, 0.0, -40.0).double().expand(-1, 2)

    method, word = make("ar").of_length(4), Word()
    *_, state = run(LeftToRight(), method, (3, 4), 4, around=lambda method: ByClassifier(method, word, 2.0, label=1))
    assert (state.x == 2).all()
    assert {len(x) for x in word.read} == {1}


def test_a_shorter_text_has_its_own_time():
    """A classifier of 8 tokens guides one of 5: the largest time it is given is that of the step, not that of the blanks."""

    class Clock(Reader):
        def log_p(self, x, t, process):
            self.read.append(t.amax().item())
            return torch.zeros(len(x), 2, dtype=torch.float64)

    method, clock = make("mdlm").of_length(5), Clock()
    times = torch.tensor([0.9, 0.6, 0.3], dtype=torch.float64)
    guided = ByClassifier(method, clock, 2.0, label=1)
    for t in times:
        guided.predict(torch.tensor([[2, 1, 0, 1, 2]]), t)
    assert sorted({*clock.read}) == pytest.approx([0.3, 0.6, 0.9])


@pytest.mark.parametrize(
    ("name", "choices", "sampler", "length"),
    [("udlm", {}, Ancestral(), 5), ("bd3lm", {"block": 2, "process": "uniform"}, Blockwise(Ancestral()), 8)],
)
def test_what_is_not_written_yet_is_never_shown_as_a_token(name, choices, sampler, length):
    way = lambda method: ByClassifier(method, Reader(), 2.0, label=1)  # noqa: E731
    with pytest.raises(InputError, match=f"the classifier reads 8 tokens, and the noise of {name} has no mask"):
        list(run(sampler, make(name, choices), (1, length), 4, around=way))
