"""Self-speculative sampling on all texts of 3^4, its counts and batches; a head that learns, on disk, and of another model."""

import math
from typing import Any

import pytest
import torch

from testing.pairs import generators
from testing.small import Rows, make
from testing.worlds import Counting
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.models.model import fingerprint
from zellige.models.speculative import HeadConfig, Verifier, load_verifier
from zellige.nn.speculative import CausalHead
from zellige.plugins.students.command import head_lines
from zellige.plugins.students.small import FitOptions
from zellige.plugins.students.speculative import HeadRecord, measured, train
from zellige.plugins.verify.identities.speculative import samples
from zellige.samplers import Speculative, run
from zellige.samplers.guidance import ClassifierFree
from zellige.samplers.replay import weigh
from zellige.samplers.speculative import OverOrders, in_order

V, L = 3, 4


def headed(length: int = L, std: float = 0.8, name: str = "mdlm", mask: int | None = None, **net: Any) -> Any:
    choices, vocabulary = ({}, V) if mask is None else ({"mask": mask}, V + 1)
    method = make(name, choices, length=length, vocabulary=vocabulary, **net)
    head = CausalHead(V + 1, 8, 2, conv=3).double()
    if std:
        for p in head.parameters():
            torch.nn.init.normal_(p, std=std)
    head.requires_grad_(False)
    return method.verified_by(lambda h, x, turn: head(h, x, turn))


def test_a_head_is_no_part_of_the_weights():
    """Neither of the method that it is given to nor of the method without it; a head may be a module."""
    method = make("mdlm", {}, length=L, vocabulary=V)
    names, head = [*method.state_dict()], CausalHead(V + 1, 8, 2, conv=3)
    verified = method.verified_by(head)
    assert verified.verifier is verified.of_length(L).verifier is head
    assert method.verifier is None
    assert [*method.state_dict()] == [*verified.state_dict()] == names


@pytest.mark.parametrize("how", [{"window": 1}, {"window": 2}, {}, {"window": 2, "temperature": 0.6}])
@torch.no_grad()
def test_samples_have_the_probability_of_their_passes(how):
    """Over all drafts, acceptances and replacements of 3^4 texts; and another distribution with another window."""
    method, X = headed(), exact.states(V, L)
    sampler = Speculative(order="2,0,3,1", **how)
    when = sampler.when(torch.ones_like(X, dtype=torch.bool))
    likelihood = in_order(sampler, method, Batch(X), when).exp()
    assert float((samples(sampler, sampler.truncated(method), V, L) - likelihood).abs().max()) < 1e-12
    assert abs(float(likelihood.sum()) - 1) < 1e-12
    other = in_order(Speculative(window=3), method, Batch(X), when).exp()
    assert float((likelihood - other).abs().sum()) > 1e-3


@torch.no_grad()
def test_given_tokens_stay_and_the_rest_has_its_conditional_passes():
    method, sampler = headed(), Speculative(window=2, order="forward")
    X = exact.states(V, 2)
    whole = torch.cat((X[:, :1], torch.full_like(X[:, :1], 2), X[:, 1:], torch.full_like(X[:, :1], 1)), 1)
    counted = torch.tensor([True, False, True, False]).expand(whole.shape)
    when = torch.arange(L).double().expand(whole.shape)
    p = in_order(sampler, method, Batch(whole, counted), when).exp()
    assert abs(float(p.sum()) - 1) < 1e-12
    fixed = torch.tensor([-1, 2, -1, 1])
    *_, state = run(sampler, method, (4000, L), fixed=fixed, generator=torch.Generator().manual_seed(0))
    found = exact.index(state.x[:, [0, 2]], V).bincount(minlength=V**2) / 4000
    assert (state.x[:, [1, 3]] == torch.tensor([2, 1])).all()
    assert ((found - p).abs() < 5 * (p * (1 - p) / 4000).sqrt() + 1e-3).all()


@torch.no_grad()
def test_nothing_is_rejected_where_the_head_says_what_the_network_says():
    """An untrained head; so a pass takes its whole window, and evaluations are counted: those of each text with masks."""
    method = headed(length=12, std=0.0)
    method.network = Counting(method.network)
    for window, passes in ((None, 1), (5, 3), (1, 12)):
        method.network.rows.clear()
        *_, state = run(Speculative(window=window), method, (6, 12), generator=generators(*range(6)))
        assert state.calls.tolist() == [passes] * 6
        assert sum(method.network.rows) == 6 * passes


@torch.no_grad()
def test_evaluations_are_those_of_texts_with_masks():
    method = headed(length=12)
    method.network = Counting(method.network)
    *_, state = run(Speculative(window=6), method, (8, 12), generator=generators(*range(8)))
    assert sum(method.network.rows) == int(state.calls.sum())
    assert 2 < float(state.calls.double().mean()) < 12
    assert len(state.calls.unique()) > 1


@pytest.mark.parametrize("how", [{"window": 5, "rounds": 3}, {"cosine": 0.2}])
@torch.no_grad()
def test_a_text_does_not_depend_on_its_batch(how):
    method, seeds, sampler = headed(length=12), range(5), Speculative(**how, temperature=0.9)
    sources = generators(*seeds)
    *_, together = run(sampler, method, (5, 12), generator=sources)
    for i in seeds:
        (source,) = generators(i)
        *_, alone = run(sampler, method, (1, 12), generator=[source])
        assert torch.equal(source.get_state(), sources[i].get_state())  # nor what is drawn once it is finished
        assert torch.equal(alone.x[0], together.x[i])
        assert alone.calls[0] == together.calls[i]


def test_a_cosine_window_grows():
    """Of 100 tokens: those that 100 cos(pi t / 2) loses in a tenth of the time, at least one, from the time of the masks on."""
    sizes, left = [], 100
    while left:
        later = 100 * math.cos(math.pi / 2 * min(2 / math.pi * math.acos(left / 100) + 0.1, 1))
        sizes.append(int(Speculative(cosine=0.1).size(torch.tensor([left]), torch.tensor([100]))))
        assert sizes[-1] == max(left - round(later), 1)
        left -= sizes[-1]
    assert sizes[:-1] == sorted(sizes[:-1])
    assert len(sizes) == 11


@pytest.mark.parametrize("mask", [None, 1], ids=["after the tokens", "among them"])
@torch.no_grad()
def test_a_text_is_sampled_with_the_weight_of_its_order(mask):
    """For two-sided bounds: w = p(x | order), with the order that wrote it; its mean over orders is in `verify`."""
    method, sampler = headed(mask=mask), Speculative(window=2)
    texts = Batch(torch.zeros(5, L, dtype=torch.long))
    wrote = weigh(method, texts, OverOrders(sampler), generators(*range(5)), draw=True)
    when = sampler.when(texts.counted, generators(*range(5)))
    assert torch.equal(wrote.log_w[:, 0], in_order(sampler, method, Batch(wrote.x), when))
    assert len(wrote.x.unique(dim=0)) > 1
    again = weigh(method, Batch(wrote.x), OverOrders(sampler), generators(*range(5)))
    assert torch.equal(again.log_w, wrote.log_w)
    assert again.calls.tolist() == [L] * 5


@torch.no_grad()
def test_an_untrained_head_knows_the_neighbours_and_changes_nothing():
    """Its convolution is large from the start, so that the first gradients see what stands beside a position."""
    torch.manual_seed(0)
    head = CausalHead(5, 16, 2, conv=3)
    h, x, turn = torch.randn(2, 6, 16), torch.randint(0, 5, (2, 6)), torch.arange(6).expand(2, 6)
    assert torch.equal(head(h, x, turn), h)
    head.mlp[2].weight.normal_()
    beside = x.clone()
    beside[:, 2] = (x[:, 2] + 1) % 5
    changed = (head(h, beside, turn) != head(h, x, turn)).any(-1)
    assert changed.tolist() == [[False, False, False, True, False, False]] * 2  # attention still adds nothing


@torch.no_grad()
def test_a_head_on_a_grid_knows_lines_and_columns():
    """Of 2 lines of 3: a neighbour on the left says the same wherever it is; the last of the line above does not."""
    torch.manual_seed(0)
    head = CausalHead(5, 16, 2, grid=(2, 3)).double()
    for p in head.parameters():
        torch.nn.init.normal_(p, std=0.3)
    h, x = torch.randn(16).double().expand(3, 6, -1), torch.ones(3, 6, dtype=torch.long)
    turn = torch.tensor(
        [[0, 1, 2, 3, 4, 5], [2, 3, 4, 0, 1, 5], [2, 3, 0, 1, 4, 5]]
    )  # 0 before 1, 3 before 4, 2 before 3
    out = head(h, x, turn)
    assert torch.allclose(out[0, 1], out[1, 4])
    assert not torch.allclose(out[0, 1], out[2, 3])


def test_a_head_learns_what_drafts_say_of_each_other():
    """Texts of one token repeated: a network that has not learnt it gains nearly all that one token says of the rest."""
    method = make("mdlm", length=6).float()
    for p in method.network.head.parameters():
        p.data.mul_(0.3)
    rows = Rows((torch.arange(60)[:, None] % 3).expand(60, 6).contiguous())
    torch.manual_seed(0)
    head, before = CausalHead(method.process.K, 8, 2), fingerprint(method)
    _, draft, same = measured(head, method, rows)
    assert same == draft
    assert measured(head, method, rows, most=1)[1][1] == math.inf  # the error of one text is not known
    read, collate = [], rows.collate
    rows.collate = lambda chosen: read.extend(chosen) or collate(chosen)  # pyright: ignore[reportAttributeAccessIssue]
    measured(head, method, rows, most=40)
    assert read == [i * 60 // 40 for i in range(40)]  # evenly spaced
    rows.collate = collate
    train(head, method, rows, FitOptions(80, 16, 3e-2))
    _, draft, verified = measured(head, method, rows)
    assert verified[0] < 0.75 * draft[0]
    assert fingerprint(method) == before


def test_the_interval_of_few_texts_is_students():
    few = HeadConfig("letters", "", 4, 8, 2, 3, (), 10, 0, texts=3, draft=(2.0, 0.1), verified=(1.5, 0.2))
    assert [figure.half for figure in HeadRecord(few).figures()] == pytest.approx([0.43027, 0.86053], rel=1e-4)
    assert "1.500 ± 0.861" in head_lines(few)[-1]


# --------------------------------------------------------------------------------------------------- on disk
def test_a_folder_holds_a_head_of_one_model(tmp_path):
    method = make("mdlm")
    head = CausalHead(method.process.K, 8, 2, 3)
    torch.nn.init.normal_(head.out.weight)
    config = HeadConfig("letters", fingerprint(method), method.process.K, 8, 2, 3, (), 10, 0)
    folder = Verifier(head, config).save(tmp_path / "head")
    loaded = load_verifier(folder, fingerprint(method))
    h, x, turn = torch.randn(2, 6, 8), torch.randint(0, 3, (2, 6)), torch.rand(2, 6).argsort(-1)
    assert loaded.config == config
    assert torch.equal(loaded(h, x, turn), head(h, x, turn))
    assert loaded(h.bfloat16(), x, turn).dtype == torch.bfloat16  # of a model that computes in it
    with pytest.raises(InputError, match="is one of other weights, those of 'letters'; train one of this model with"):
        load_verifier(folder, "0" * 64)
    with pytest.raises(InputError, match=r"holds no head\.json; give a folder of zellige train speculative"):
        load_verifier(tmp_path, fingerprint(method))
    (folder / "SHA256SUMS").unlink()
    (folder / "head.safetensors").write_bytes(b"\x80\x04\x95" + b"0" * 100)
    with pytest.raises(InputError, match="pickle"):
        load_verifier(folder, fingerprint(method))


def test_what_it_cannot_be_paired_with():
    needs = "needs a causal head: train one with zellige train speculative RUN, and give its folder as `head`"
    assert Speculative.reason_against(make("mdlm")) == needs
    assert Speculative.reason_against(make("sedd", {"process": "absorbing"})) == "needs a network of p(x_0 | x_t)"
    guided: Any = ClassifierFree(make("mdlm", classes=3), 2.0)
    assert Speculative.reason_against(guided) == "reads the network itself, whose distribution guidance changes"
    with pytest.raises(InputError, match="`window` and `cosine` both say how many tokens a pass drafts"):
        Speculative(window=2, cosine=0.1)
    with pytest.raises(InputError, match="the order has 3 positions, the text 4"):
        next(run(Speculative(order="2,1,0"), headed(), (1, L)))
