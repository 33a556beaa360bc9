"""Texts depend on (seed, number) alone, what is given stays, and frames tell what happened."""

import inspect
import io
import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import zellige
from zellige.cli.viewer import picture as picture_of
from zellige.core.counter_random import Streams
from zellige.core.curves import Linear
from zellige.core.process import uniform
from zellige.core.random import mix
from zellige.data import tokenizer as tk
from zellige.data import tokenizer_by_name
from zellige.data.levels import Levels
from zellige.methods import build
from zellige.nn import Net
from zellige.nn.speculative import CausalHead
from zellige.plugins.kinds.molecules.tokens import Smiles
from zellige.samplers import Ancestral, Blockwise, Confidence, State, growing
from zellige.samplers.sampler import GAP
from zellige.sampling.masked_text import approximate
from zellige.sampling.masked_text import masked_text as gaps_of
from zellige.sampling.samples import Samples, collect
from zellige.sampling.tokens import before_word
from zellige.sampling.trajectory import Frame
from zellige.show.kinds import token_texts
from zellige.show.picture import Picture, Watch
from zellige.show.terminal import Terminal

L = 24


def model(tokenizer=None, name="mdlm", length=L):
    torch.manual_seed(0)
    tokenizer = tokenizer or tk.Characters(tk.TEXT8)
    config = zellige.METHODS[name].Config(**({"block": 8} if name == "bd3lm" else {}))
    method = build(name, tokenizer.size, Net(layers=1, hidden=16, heads=2, length=length), config)
    with torch.no_grad():  # fresh weights give the uniform law: make it sharper, so that contexts matter
        for p in method.parameters():
            p.add_(
                (0.1 if name in ("sedd", "genmd4") else 0.3) * torch.randn_like(p)
            )  # scores and alpha are exponentials
        if method.process is not None:
            head = CausalHead(method.process.K, 16, 2)
            head.out.weight.normal_()
            method = method.verified_by(lambda h, x, turn: head(h, x, turn))
    return SimpleNamespace(method=method, tokenizer=tokenizer)


def fill_gaps(model, text, see=None, **how):
    """The masked text, and the samples that fill it; `see` is shown every frame."""
    request = zellige.Infill.of(text=text, **how)
    return request.masked_texts(model)[0], request.run(model, see)


@pytest.fixture(scope="module")
def bpe():
    return tokenizer_by_name.train_bpe(300, ["the value of the object is returned by the function " * 50])


# -------------------------------------------------------------------------------------------------------- from a noisy text
def test_little_noise_gives_the_text_back():
    """Each text its samples, and all of it at a time near 0; a record draws them again."""
    texts = ["the value of the object ", "is returned by the funct"]
    of = model()
    samples = zellige.Sample(reconstruct=texts, noise=1e-12, count=4, steps=8, defaults=False).run(of)
    assert samples.texts == [texts[0], texts[0], texts[1], texts[1]]
    assert samples.distribution is None
    noisy = zellige.Sample(reconstruct=texts, noise=0.7, count=4, steps=8, defaults=False).run(of)
    assert noisy.texts != samples.texts
    assert noisy.request.run(of).texts == noisy.texts


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"reconstruct": "ab", "prompt": "a"}, "`reconstruct` begins with a whole text; leave out the prompt"),
        ({"reconstruct": ["ab", "abc"], "count": 2}, "the texts of `reconstruct` have several lengths in tokens"),
        ({"reconstruct": "ab", "length": 3}, "`reconstruct` has 2 tokens and `length` is 3; leave it out"),
        ({"reconstruct": [1, -1]}, "`reconstruct` has free positions, -1; give a token for each"),
        ({"reconstruct": "ab", "sampler": "first_hitting"}, "sampler 'first_hitting' cannot begin with a noisy text"),
        ({"reconstruct": "ab", "noise": 0}, "`noise` is 0; it must be above 0 and at most 1"),
    ],
)
def test_a_text_that_cannot_be_reconstructed_is_one_line(how, message):
    with pytest.raises(zellige.InputError, match=re.escape(message)):
        zellige.Sample.of(**how).run(model())


# -------------------------------------------------------------------------------------------------------- the numbers


def pairs():
    """Every sampler with every method that it takes; in short each method's own, each sampler's first but uniformisation."""
    seen = set()
    for name, cls in zellige.METHODS.items():
        method = model(name=name).method
        for sampler, how in zellige.SAMPLERS.items():
            if how.reason_against(method) is None:
                short = sampler != "uniformisation" and (sampler not in seen or sampler == cls.sampler)
                yield pytest.param(name, sampler, marks=() if short else pytest.mark.long)
                seen.add(sampler)


@pytest.mark.parametrize(("name", "sampler"), pairs())
def test_a_text_does_not_depend_on_its_batch(name, sampler):
    m = model(name=name)
    how = {"steps": 10, "sampler": sampler, "temperature": 3.0}  # so that what is surest is not always the same
    if sampler in ("uniformisation", "speculative"):  # both ask at t = 1, where these weights may be sure of one token
        how["temperature"] = 10.0
    if sampler == "uniformisation":  # a network evaluation for each candidate, 64 intervals at least
        how["length"] = 6
    whole = zellige.sample(m, count=5, seed=7, **how)
    assert zellige.sample(m, count=5, seed=7, batch=1, **how) == whole
    assert zellige.sample(m, count=5, seed=7, batch=2, **how) == whole
    assert zellige.sample(m, count=3, seed=7, **how) == whole[:3]
    assert zellige.sample(m, count=5, seed=8, **how) != whole
    assert len(set(whole)) >= 3


def test_seeds_are_mixed_well():
    seeds = {mix(a, b) for a in range(50) for b in range(50)}
    assert len(seeds) == 2500
    assert all(0 <= s < 2**63 for s in seeds)
    assert mix(1, 23) != mix(12, 3)


@pytest.mark.parametrize(("name", "ends"), [("bd3lm", range(8, L + 1, 8)), ("ar", range(8, L + 1))])
def test_texts_that_repeat_themselves_are_drawn_again(name, ends, monkeypatch):
    """Each from its beginning, with a stream of its own, until its last tokens are varied enough: whatever the batch."""
    monkeypatch.setattr(growing, "SPAN", 8)
    m, tries, low = model(name=name), 3, 1.5 if name == "bd3lm" else 1.6
    sampler = zellige.SAMPLERS[m.method.sampler]()

    def attempt(number: int, tried: int) -> tuple[list[int], int]:
        """The whole text, and where it first repeats itself."""
        stream = Streams([mix(7, number, *([tried] if tried else []))])
        m.method.eval()
        (*_, state) = zellige.run(sampler, m.method, (1, L), 4, generator=stream)
        x = state.x[0]
        return x.tolist(), next((end for end in ends if growing.entropy(x[end - 8 : end]) < low), 0)

    expected, again, still = [], [], 0
    for number in range(8):
        for tried in range(tries + 1):
            tokens, end = attempt(number, tried)
            if not end:
                break
        expected.append(tokens[: end or L])
        again.append(tried)
        still += bool(end)
    assert 0 < sum(again) < tries * 8
    assert 0 in again
    how = {"count": 8, "steps": 4, "seed": 7, "entropy": low, "redraw": tries}
    drawn = collect(zellige.watch(m, batch=8, **how))
    assert (drawn.tokens, drawn.summary.tries, sum(drawn.summary.repeating)) == (expected, again, still)
    once = collect(zellige.watch(m, batch=8, **how | {"redraw": 0}))
    more = [a > b for a, b in zip(drawn.calls, once.calls)]
    assert more == [tried > 0 for tried in again]
    assert f"{sum(tried > 0 for tried in again)} samples drawn again, {sum(again)} times in all" in str(drawn)
    assert "drawn again" not in str(once)
    alone = collect(zellige.watch(m, batch=1, **how))
    assert (alone.tokens, alone.calls) == (drawn.tokens, drawn.calls)
    frames = list(zellige.watch(m, batch=8, **how))
    assert [f.step for f in frames].count(frames[0].steps) == 1  # the last step is that of all texts
    for wrong, line in [
        ({"redraw": 3}, "`redraw` needs `entropy`, which says what repeats itself"),
        ({"redraw": -1, "entropy": 4.0}, "`redraw` is -1; it must be 0 or more"),
    ]:
        with pytest.raises(zellige.InputError, match=line):
            next(zellige.watch(m, **wrong))


# --------------------------------------------------------------------------------------------------------- the frames


@pytest.mark.parametrize("sampler", list(zellige.SAMPLERS))
def test_frames_tell_what_happened(sampler):
    m = model()
    if zellige.SAMPLERS[sampler].reason_against(m.method):
        pytest.skip("cannot be paired")
    frames = list(zellige.watch(m, count=3, steps=12, sampler=sampler, prompt="the ", batch=2))
    for batch in (frames[: len(frames) // 2], frames[len(frames) // 2 :]):
        first, last = batch[0], batch[-1]
        assert (first.step, first.t, last.step, last.t) == (0, 1.0, last.steps, 0.0)
        assert [f.step for f in batch] == list(range(last.steps + 1))
        assert all(a.t >= b.t for a, b in itertools.pairwise(batch))  # a jump at an end takes no time
        assert first.text == ["the " + "·" * (L - 4)] * len(first.text)
        assert not first.new.any()
        revealed = torch.stack([f.new for f in batch]).sum(0)
        again = (sampler in ("remasking", "p2", "psi", "informed")) & ~first.fixed  # may come more than once
        assert torch.where(again, revealed >= 1, revealed == (~first.fixed)).all()  # each once, the given ones never
        assert all("·" not in text and text.startswith("the ") for text in last.text)
        if sampler not in (
            "uniformisation",
            "informed",
        ):  # which ask where nothing may happen, and once more for a correction
            assert (last.calls <= min(last.steps, L - 4)).all()
        for f in batch:
            assert sum(mark in ("masked", "again") for mark in f.marks(0)) == int(f.masked[0].sum())
            assert f.marks(0)[:4] == ["given"] * 4
    drawn = collect(iter(frames))
    assert drawn.texts == zellige.sample(m, count=3, steps=12, sampler=sampler, prompt="the ")


def frame_of(mask, x, before, given=None):
    """A frame in the middle of a trajectory over the letters a and b, with this token as the mask."""
    method = SimpleNamespace(parameterization="mean", process=SimpleNamespace(blank=mask))
    trajectory: Any = SimpleNamespace(model=SimpleNamespace(tokenizer=tk.Characters("ab"), method=method))
    state = State(x, torch.zeros_like(x, dtype=torch.bool) if given is None else given, torch.tensor([1]))
    return Frame(trajectory, state, 1, 2, 0.5, before, 0, 0.1, [0])


def test_every_mark():
    """0 a, 1 b, 2 the mask: also what only other processes and samplers do."""
    before = torch.tensor([[2, 2, 0, 0, 0, 1]])
    x = torch.tensor([[2, 0, 0, 1, 2, 1]])
    given = torch.tensor([[False] * 5 + [True]])
    assert frame_of(2, x, before, given).marks(0) == ["masked", "new", "shown", "changed", "again", "given"]
    assert frame_of(None, x, before, given).marks(0)[3] == "changed"


def test_noise_may_absorb_into_a_token_of_the_data():
    """What stands at it is masked until the end, and then it is a token like any other."""
    x = torch.tensor([[1, 0]])
    frame = frame_of(1, x, x)
    assert frame.marks(0) == ["masked", "shown"]
    assert replace(frame, step=2).marks(0) == ["shown", "shown"]


def test_the_summary():
    drawn = Samples(["a" * 256] * 2, [[0] * 256] * 2, [63, 63], 64, 0.9)
    assert str(drawn) == "2 samples, 512 tokens, 0.9 s, 569 tokens/s\n  63 network evaluations each in 64 steps"
    drawn = Samples(["a"], [[0]], [1], 1, 0.9)
    assert str(drawn) == "1 sample, 1 token, 0.9 s, 1.1 tokens/s\n  1 network evaluation each in 1 step"
    drawn = Samples(["a", "b"], [[0], [0]], [3, 5], 8, 0.9)
    assert "3 to 5 network evaluations each in 8 steps" in str(drawn)
    drawn = Samples(["a"], [[0]], [7], 8, 0.9, expected_calls=6.9834)
    assert "7 network evaluations each (7.0 expected) in 8 steps" in str(drawn)


# ------------------------------------------------------------------------------------------------- prompts and lengths
def test_a_prompt_as_a_question_is_the_prompt_that_the_template_makes_of_it():
    m = model()
    written = zellige.sample(m, prompt=["user why assistant", "user who assistant"], count=4, seed=2, steps=4)
    assert zellige.sample(m, prompt=["why", "who"], chat=True, count=4, seed=2, steps=4) == written
    for more in ({}, {"prompt": ""}, {"fixed": [1, -1]}):
        with pytest.raises(
            zellige.InputError, match="`chat` writes a question by the chat template; give it by `prompt`"
        ):
            zellige.sample(m, chat=True, **more)


def test_options_of_a_sampler():
    m = model()
    assert zellige.sample(m, sampler="analytic", steps=5) == zellige.sample(m, sampler="ancestral", steps=5)
    assert zellige.sample(m, sampler="ancestral", steps=5, grid="cosine") == zellige.sample(
        m, sampler=Ancestral("cosine"), steps=5
    )
    assert len(list(zellige.watch(m, sampler="any_order", per_step=5))) == 1 + 5
    assert len(list(zellige.watch(m, sampler="confidence", threshold=0.0))) == 1 + L
    with pytest.raises(TypeError, match="no argument is called 'ordr'; did you mean 'order'"):
        zellige.sample(m, sampler="fixed_order", ordr="backward")
    with pytest.raises(TypeError, match="no argument is called 'step'; did you mean 'steps'"):
        zellige.sample(m, step=5)


def test_sample_has_the_arguments_of_watch():
    """It spells them out, for editors: the same names, defaults and kinds, in the same order."""
    sample, watch = (inspect.signature(f).parameters for f in (zellige.sample, zellige.watch))
    assert [*sample.values()] == [*watch.values()]


def test_keeping_what_is_given_is_exact_for_masks_only():
    assert approximate(model()) is None
    other = SimpleNamespace(method=SimpleNamespace(process=uniform(3, Linear()), network=None, parameterization="mean"))
    assert approximate(other).startswith("given tokens are kept, which is approximate")
    assert approximate(model(name="flexmdm")) is None
    blind = SimpleNamespace(method=build("flexmdm", 3, Net(length=8), zellige.METHODS["flexmdm"].Config(spans=0.0)))
    assert "trained with spans 0" in approximate(blind)


def test_greedy_is_temperature_zero():
    m = model()
    by_order = {
        zellige.sample(m, seed=s, sampler="first_hitting", temperature=0.0, prompt="x" * (L - 1))[0] for s in range(4)
    }
    assert len(by_order) == 1


def test_length():
    assert [len(t) for t in zellige.sample(model(), count=2, length=9, steps=5)] == [9, 9]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"prompt": "a" * 25},
            "the prompt has 25 tokens, the model takes 24; shorten it, or use `length` with a block sampler",
        ),
        ({"prompt": "café"}, "'é' at position 3 of the prompt is not in the model's vocabulary (a-z and space)"),
        ({"count": 0}, "`count` is 0; it must be 1 or more"),
        ({"steps": 0}, "`steps` is 0; it must be 1 or more"),
        (
            {"length": 25},
            "`length` is 25, the model takes 24; use 24 or less, or a block sampler: `block_sampler` ancestral",
        ),
        ({"temperature": float("nan")}, "`temperature` is nan; it must be a number or None"),
        ({"sampler": "euler", "order": "backward"}, "sampler 'euler' takes no `order`; its options: `grid`"),
        (
            {"sampler": "first_hitting", "eta": 0.1},
            "sampler 'first_hitting' takes no `eta`; it has no options of its own",
        ),
        ({"sampler": Ancestral(), "grid": "cosine"}, "`grid` goes with a sampler's name; this one is made already"),
        ({"top_p": 1.5}, "`top_p` is 1.5; it must be above 0 and at most 1"),
        ({"sampler": "gibbs"}, "unknown sampler 'gibbs'; all of them: zellige list samplers"),
    ],
)
def test_wrong_input(how, message):
    with pytest.raises(zellige.InputError) as error:
        zellige.watch(model(), **how)  # at once, not at the first frame
    assert str(error.value) == message


# ------------------------------------------------------------------------------------------------- text of any length

LONG = {"bd3lm": {}, "ar": {}, "mdlm": {"block_sampler": "first_hitting", "stride": 8}}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_does_not_depend_on_its_batch_or_its_length(name):
    m, how = model(name=name), {"steps": 4, "temperature": 3.0, "seed": 3, "prompt": "the value of ", **LONG[name]}
    whole = zellige.sample(m, count=5, length=60, **how)
    assert [len(text) for text in whole] == [60] * 5
    assert len(set(whole)) == 5
    assert zellige.sample(m, count=5, length=60, batch=2, **how) == whole
    assert zellige.sample(m, count=5, length=41, **how) == [text[:41] for text in whole]


@pytest.mark.parametrize("name", LONG)
def test_frames_of_a_text_that_grows(name):
    m = model(name=name)
    *frames, last = list(zellige.watch(m, count=2, length=60, steps=4, prompt="the ", **LONG[name]))
    assert (frames[0].t, last.t) == (1.0, 0.0)
    assert frames[0].text == ["the " + "·" * 56] * 2
    for a, b in itertools.pairwise([*frames, last]):
        assert a.t > b.t
        assert all(i <= j for i, j in zip(a.reached, b.reached))
        assert (a.x == b.x)[~a.masked].all()  # what stands stays
        for row, end in enumerate(a.reached):
            assert end >= 4
            assert a.masked[row, end:].all()
    revealed = torch.stack([f.new for f in (*frames, last)]).sum(0)
    assert torch.equal(revealed, (~last.fixed).long())
    assert last.reached == [60, 60]
    picture = picture_of(frames[len(frames) // 2])
    assert picture.total == 60
    assert len(picture.pieces) == len(picture.marks) == frames[len(frames) // 2].reached[0] < 60


def test_a_growing_picture_shows_its_end():
    text = "".join(chr(97 + i % 26) for i in range(3000))
    picture = Picture("head", text, ["shown"] * 2999 + ["new"], "foot", total=5000)
    lines = Watch(Terminal(io.StringIO(), io.StringIO(), environ={})).lines(picture)
    assert lines[1].endswith(" lines before")
    assert "".join(line[2:] for line in lines[2:-1]) == text[-len("".join(line[2:] for line in lines[2:-1])) :]
    assert "3,000 of 5,000 revealed, 1 new" in lines[-1]


@pytest.mark.parametrize("name", LONG)
def test_texts_end_at_the_tokenizers_end(bpe, name, monkeypatch):
    m, how = model(bpe, name), {"count": 8, "length": 40, "steps": 4, "temperature": 5.0, **LONG[name]}
    whole = collect(zellige.watch(m, **how, end=-1))
    end = whole.tokens[0][17]  # one that does occur
    monkeypatch.setattr(bpe, "separator", end)
    short = collect(zellige.watch(m, **how))
    for a, b, text in zip(short.tokens, whole.tokens, short.texts):
        assert a == b[: b.index(end) if end in b else 40]
        assert text == bpe.decode(a)
    assert len(short.tokens[0]) <= 17
    assert zellige.sample(m, **how) == short.texts
    assert [len(tokens) for tokens in whole.tokens] == [40] * 8


def test_characters_end_no_text():
    from zellige.models.ends import end_token

    assert end_token(tk.Characters(tk.TEXT8)) is None
    assert end_token(tk.Characters("\tab\n")) is None  # a line end stands within a running text
    assert end_token(tk.Characters("\tab\n"), documents=True) == 1
    assert end_token(tk.Characters(" ab"), documents=True) is None
    assert end_token(Smiles("CNO=()\n", shape=(12,))) == 0


def test_block_sampler_is_blockwise_with_its_options():
    m = model(name="bd3lm")
    ours = zellige.sample(m, block_sampler="confidence", confidence="margin", steps=3, seed=2)
    made = Blockwise(Confidence("margin"), end=None)
    assert ours == zellige.sample(m, sampler=made, steps=3, seed=2)
    assert zellige.sample(m, steps=3, seed=2, temperature=0.5) == zellige.sample(
        m, sampler=Blockwise(Ancestral(temperature=0.5)), steps=3, seed=2
    )
    for how, message in (
        ({"confidence": "margin"}, "sampler 'ancestral' takes no `confidence`; its options: `grid`, `argmax`"),
        (
            {"block_sampler": "euler", "sampler": "euler"},
            "goes with `sampler` blockwise or semi_autoregressive, not euler",
        ),
        (
            {"block_sampler": Ancestral(), "grid": "cosine"},
            "`grid` goes with a sampler's name; this one is made already",
        ),
        ({"prompt": "a" * 25}, "the prompt has 25 tokens, the text 24; give a larger `length`"),
        (
            {"fixed": [0, -1, *[-1] * 7, 1]},
            "position 9 is given and lies right of a gap; bd3lm writes from left to right",
        ),
    ):
        with pytest.raises(zellige.InputError, match=re.escape(message)):
            zellige.watch(m, **how)


@pytest.mark.parametrize("name", ["mdlm", "bd3lm", "udlm"])
def test_texts_are_filled_together_as_each_alone(name):
    """Also those of other lengths; a text that stands in the list again goes on counting."""
    m = model(name=name)
    texts = ["the value of _ ___", "a ___", "the value of _ ___", "b _ c", "a ___"]
    together = zellige.infill(m, texts, count=2, steps=4, seed=1)
    alone = {text: zellige.infill(m, text, count=4, steps=4, seed=1) for text in set(texts)}
    assert together[:2] == [alone[texts[0]][:2], alone[texts[1]][:2]]
    assert together[2:] == [alone[texts[2]][2:], alone[texts[3]][:2], alone[texts[4]][2:]]
    assert zellige.infill(m, []) == []


def test_a_model_of_blocks_fills_what_stands_left_of_its_gaps():
    m, text = model(name="bd3lm"), "the value of _ ___"
    filled = zellige.infill(m, text, count=3, steps=4, seed=1)
    assert all(f.startswith("the value of ") and len(f) == len(text) and f[14] == " " for f in filled)
    frames = []
    fill_gaps(m, text, see=frames.append, steps=4)
    assert frames[0].x.shape[1] == len(text)  # what comes after does not matter to it
    with pytest.raises(zellige.InputError, match="position 16 is given and lies right of a gap"):
        zellige.infill(m, "the value _f the object")


# ------------------------------------------------------------------------------------------------------------- infill


def test_infill_keeps_what_is_given():
    m = model()
    text = "the ____ of a __ is _"
    for filled in zellige.infill(m, text, count=6, steps=8, seed=2):
        assert len(filled) == len(text)
        assert all(a in ("_", b) for a, b in zip(text, filled))
        assert "_" not in filled
    assert zellige.infill(m, text, count=2, seed=2) == zellige.infill(m, text, count=2, seed=2, batch=1)
    assert "____" not in zellige.infill(m, "____")[0]


def test_infill_draws_nothing_behind_the_text():
    """The text is the beginning of one of the model's length; what comes after it stays masked, and costs no call."""
    m = model()
    frames = []
    _, drawn = fill_gaps(m, "ab_", see=frames.append, seed=1)
    assert drawn.calls == [1]
    assert drawn.expected_calls == pytest.approx(1)
    assert frames[0].x.shape == (1, L)
    assert frames[0].fixed[0].tolist() == [True, True, False] + [True] * (L - 3)
    assert (frames[-1].x[0, 3:] == m.method.process.mask).all()


@pytest.mark.parametrize("name", ["mdlm", "md4", "radd", "sedd", "d3pm", "genmd4"])
@pytest.mark.parametrize("sampler", list(zellige.SAMPLERS))
def test_infill_asks_once_a_gap_at_most(name, sampler):
    """53 calls for six gaps before: all places behind the text were drawn too."""
    m = model(name=name)
    cls = zellige.SAMPLERS[sampler]
    if (
        cls.reason_against(m.method)
        or cls.grows
        or sampler == "uniformisation"
        or (name, sampler) == ("d3pm", "remasking")
    ):
        pytest.skip("cannot be paired, writes from left to right, or asks where nothing may happen")
    steps = 50 if name == "d3pm" else 64
    _, drawn = fill_gaps(m, "the ___ of _ is __", count=3, steps=steps, sampler=sampler, seed=2)
    revealing = (name not in ("sedd", "d3pm") or sampler in ("any_order", "fixed_order")) and sampler != "remasking"
    if name == "genmd4" and sampler in ("ancestral", "first_hitting", "tau_leaping", "euler"):
        revealing = False  # candidates that are not accepted cost a call too
    if sampler in ("confidence", "smc", "p2"):
        revealing = False  # asks for all gaps, each step that has some left or masks some again
    if sampler in ("psi", "informed"):
        revealing, steps = (
            False,
            steps * (1 + (sampler == "informed")),
        )  # both change tokens again; informed asks once more
    assert all(calls <= (6 if revealing else steps) for calls in drawn.calls)
    assert all("·" not in text and len(text) == 18 for text in drawn.texts)


def test_noise_of_tokens_draws_the_rest_too():
    m = model(name="udlm")
    frames = []
    fill_gaps(m, "ab_", see=frames.append, seed=1, steps=4)
    assert frames[0].fixed[0].tolist() == [True, True] + [False] * (L - 2)


def test_what_was_filled_is_told_from_what_was_given():
    gaps = gaps_of(model(), "a_b__", L)
    tokens = tk.Characters(tk.TEXT8).encode("axbyz")
    assert gaps.pieces(tokens, tk.Characters(tk.TEXT8)) == [("a", False), ("x", True), ("b", False), ("yz", True)]
    frame = list(zellige.watch(model(), fixed=gaps.fixed, alone=True, steps=4))[-1]
    watch = Watch(Terminal(io.StringIO(), io.StringIO(), environ={}))
    assert re.fullmatch(r"  a\[.\]b\[..\]", watch.lines(picture_of(frame, 5, brackets=True))[1])
    assert re.fullmatch(r"  a.b..", watch.lines(picture_of(frame, 5))[1])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "no gaps",
            {},
            "nothing to fill: no '_' in the text; mark each missing token with it, or set `mask_token`",
        ),
        (
            "a _ b",
            {"mask_token": "[M]"},
            "nothing to fill: no '[M]' in the text; mark each missing token with it, or set `mask_token`",
        ),
        ("a _ É", {}, "'É' at position 4 of the text is not in the model's vocabulary (a-z and space)"),
        ("a" * 24 + "_", {}, "the text has 25 tokens, the model takes 24; shorten it"),
    ],
)
def test_wrong_gaps(text, options, message):
    with pytest.raises(zellige.InputError) as error:
        zellige.infill(model(), text, **options)
    assert str(error.value) == message


def test_a_mask_token_of_ones_own():
    filled = zellige.infill(model(), "the ?? of ??", mask_token="?")[0]
    assert filled.startswith("the ")
    assert filled[6:10] == " of "


def test_a_span_of_any_length(bpe):
    """`__*`, beside masks of which each is one token; none at all leaves one blank between words."""
    m = model(name="flexmdm", length=32)
    m.method.network.head.weight.data[-1] = 0.0  # rates of insertion
    filled = zellige.infill(m, "the __* of a_c", count=6, seed=1, steps=6)
    assert all(re.fullmatch("the .* of a.c", text) for text in filled)
    assert len({len(text) for text in filled}) > 1
    assert all(text.startswith("the ") for text in zellige.sample(m, prompt="the ", count=3, steps=4))
    gaps = gaps_of(model(bpe, "flexmdm"), "the value __* is", L)
    assert (gaps.parts, gaps.fixed.count(GAP)) == (["the value ", 0, " is"], 1)
    for text in ("the value is", "the value of the object is"):
        assert gaps.fill(bpe.encode(text), bpe) == text
    with pytest.raises(zellige.InputError, match="mdlm keeps the length of a text; write one _ for each missing token"):
        zellige.infill(model(), "the __* of", steps=4)
    with pytest.raises(zellige.InputError, match="the text has 2 spans __"):
        zellige.infill(m, "the __* of __*", steps=4)


def test_gaps_of_other_tokenizers_are_tokens(bpe):
    m = model(bpe)
    assert gaps_of(m, "the ____ is", L).parts == ["the ", 4, " is"]
    text = "the value [M][M] is returned"
    gaps = gaps_of(m, text, L, "[M]")
    assert gaps.parts == ["the value ", 2, " is returned"]
    for filled in zellige.infill(m, text, mask_token="[M]", count=4, seed=1):
        assert filled.startswith("the value ")
        assert filled.endswith(" is returned")


def test_a_blank_before_what_is_drawn_is_left_to_the_next_subword(bpe):
    """Subwords begin with their blank: with it in the prompt the tokens are such as no text has."""
    assert bpe.encode("the value of")[:2] == bpe.encode("the value")
    assert bpe.encode("the value ")[:3] != bpe.encode("the value of")[:3]
    assert [before_word(bpe, text) for text in ("the value ", "the value  ", "the value", " ", "the\n", "")] == [
        "the value", "the value ", "the value", " ", "the\n", "",
    ]  # fmt: skip
    for tokenizer in (tk.Bytes(), tk.Characters(tk.TEXT8), tk.Integers(9)):
        assert before_word(tokenizer, "1 2 ") == "1 2 "
    m = model(bpe)
    assert zellige.sample(m, prompt="the value ", seed=2) == zellige.sample(m, prompt="the value", seed=2)
    joined, apart = gaps_of(m, "the value_ is ", L), gaps_of(m, "the value _ is ", L)
    assert joined.fixed == apart.fixed
    (of,) = set(bpe.encode("the value of")) - set(bpe.encode("the value"))
    row = [of if token < 0 else token for token in apart.fixed]
    assert apart.fill(row, bpe) == joined.fill(row, bpe) == "the value of is "
    row = [bpe.encode("the")[0] if token < 0 else token for token in apart.fixed]
    assert apart.fill(row, bpe) == "the value the is "  # what was typed stays


def test_bytes_fill_gaps_too():
    m = model(tk.Bytes())
    filled = zellige.infill(m, "é _ 網", seed=3)[0]
    assert filled.startswith("é ")
    assert filled.endswith(" 網")


# ------------------------------------------------------------------------------------------------------ what is shown


def test_pieces_join_to_the_text(bpe):
    text = "the value of the naïve 網 object"
    for tokenizer in (bpe, tk.Bytes(), tk.Characters(text)):
        tokens = tokenizer.encode(text)
        pieces = token_texts(tokenizer, tokens)
        assert len(pieces) == len(tokens)
        assert "".join(pieces) == text


def test_a_character_of_several_tokens_stands_at_its_last():
    """Each character by itself, also where several follow each other; one that is not complete is no character."""
    tokenizer = tk.Bytes()
    tokens = tokenizer.encode("aéб網🙂b")
    assert token_texts(tokenizer, tokens) == ["a", "", "é", "", "б", "", "", "網", "", "", "", "🙂", "b"]
    tokens[5] = -1  # within 網
    assert token_texts(tokenizer, tokens)[:5] == ["a", "", "é", "", "б"]
    assert token_texts(tokenizer, tokens)[5:8] == ["·", "\ufffd", "\ufffd"]


def test_a_picture():
    m = model()
    frame = list(zellige.watch(m, count=2, steps=4, batch=1))[-1]
    picture = picture_of(frame)
    assert picture.head == "sample 2 of 2   step 4/4   t = 0.00"
    assert "".join(picture.pieces) == frame.text[0]
    assert picture.foot.startswith("4 network evaluations  ")
    assert picture.foot.endswith(" tokens/s")


def test_time_spent_looking_is_not_time_spent_sampling():
    import time

    drawn = collect(zellige.watch(model(), steps=4), lambda _: time.sleep(0.2))
    assert drawn.seconds < 0.5


# ----------------------------------------------------------------------------------------- images, music, grids, molecules

PUZZLES = [[1, -1, -1, 4, *[-1] * 12], [0] * 12 + [4, 3, 2, 1]]  # -1 and 0: a blank


def grids():
    return model(Levels(4, (4, 4), labels=(1, 2, 3, 4)), length=16)


def test_samples_of_a_shape_are_arrays():
    drawn = zellige.sample(grids(), count=3, steps=4, seed=2)
    assert drawn.shape == (3, 4, 4)
    assert ((drawn >= 1) & (drawn <= 4)).all()
    assert (
        np.array(collect(zellige.watch(grids(), count=3, steps=4, seed=2)).tokens) + 1 == drawn.reshape(3, 16)
    ).all()


def test_each_row_that_is_given_is_filled():
    m = grids()
    filled = zellige.infill(m, fixed=torch.tensor(PUZZLES), count=3, steps=8, seed=1)
    assert filled.shape == (2, 3, 4, 4)
    for i, puzzle in enumerate(PUZZLES):
        for row in filled[i].reshape(3, 16):
            assert all(a in (-1, 0, b) for a, b in zip(puzzle, row.tolist()))
    assert (zellige.infill(m, fixed=PUZZLES, count=3, steps=8, seed=1, batch=2) == filled).all()
    assert (filled[0, 0] != filled[0, 1]).any()
    assert (zellige.infill(m, fixed=PUZZLES[0], count=3, steps=8, seed=1) == filled[0]).all()  # (L,): the rows alone
    assert (zellige.infill(m, "1..4 .... .... ....", count=3, steps=8, seed=1) == filled[0]).all()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "infill needs a text with gaps, or fixed tokens; give one of the two"),
        ({"fixed": [-1] * 15}, "`fixed` has 15 places, the model takes 16; give a token or -1 for each"),
        ({"fixed": [5] + [-1] * 15}, "`fixed` holds 5; the cells are 1 to 4, -1 where one is free"),
        ({"fixed": [-2] + [-1] * 15}, "`fixed` holds -2; the cells are 1 to 4, -1 where one is free"),
        ({"fixed": [-1] * 16, "length": 4}, "`length` is 4, the rows of this model have 16 places; leave it out"),
    ],
)
def test_wrong_rows(how, message):
    with pytest.raises(zellige.InputError) as error:
        zellige.infill(grids(), **how)
    assert str(error.value) == message


def test_a_row_of_a_text_leaves_the_rest_free():
    m = model()
    text = zellige.infill(m, fixed=m.tokenizer.encode("the "), steps=4, seed=3)
    assert text == zellige.sample(m, prompt="the ", steps=4, seed=3)


def test_molecules_have_their_gaps_filled():
    m = model(Smiles("CNO=()\n", shape=(12,)), length=12)
    filled = zellige.infill(m, "C_(=O)", count=8, steps=8, seed=1)
    assert set(filled) <= {f"C{c}(=O)" for c in ("C", "N", "O", "=", "(", ")", "")}  # "": an end of the line
    assert len(set(filled)) > 2
    assert all("\n" not in text[-1:] for text in zellige.sample(m, count=8, steps=8))


def test_a_grid_in_a_picture():
    frames = list(zellige.watch(grids(), steps=4, fixed=[-1] * 12 + [3, 2, 1, 0]))
    for frame in frames:
        picture = picture_of(frame)
        cells = [(text, mark) for line in picture.block for text, mark in line if mark != "shown" or text.isdigit()]
        assert [mark for _, mark in cells] == frame.marks(0) == list(picture.marks)
        for (text, mark), token in zip(cells, frame.x[0].tolist()):
            assert text == ("·" if mark == "masked" else str(token + 1))
    lines = Watch(Terminal(io.StringIO(), io.StringIO(), environ={})).lines(picture_of(frames[0]))
    assert len(lines) == 2 + 7
    assert "4 of 16 revealed" in lines[-1]
