"""Features as vectors, and the probe: identities, and a case that can be counted."""

import json

import pytest
import torch

from testing.small import make
from zellige import METHODS, Config, Data, InputError, embed
from zellige.core.batch import Batch
from zellige.data.tokenizer import Characters
from zellige.models.config import Train
from zellige.models.embed import embed_tokens, features, tokens_at_once
from zellige.models.model import Model
from zellige.nn.block import Net
from zellige.nn.classifier import Classifier
from zellige.plugins.published.nn import Llama, LlamaNet
from zellige.plugins.studies.probes.fine_tuning import logits
from zellige.plugins.studies.probes.probe import (
    Labelled,
    ProbeRecord,
    bags,
    fine_tune,
    labelled,
    linear,
    probe,
    regress,
    split_texts,
    standardized,
    untrained,
)
from zellige.show.record import dumps

TEXTS = [[0, 1, 2, 1], [2], [1, 1, 0, 2, 0, 1, 2, 2, 1, 0, 1], [2, 0, 1, 1], [0, 1, 2, 1]]
close = torch.testing.assert_close


# ------------------------------------------------------------------------------------------------------- the vectors
@pytest.mark.parametrize("name", METHODS)
def test_a_vector_is_the_mean_of_the_hidden_states(name):
    """What the head reads, at t = 0; a long text is the weighted mean of its pieces; nothing depends on the batch."""
    method = make(name)
    found = embed_tokens(method, TEXTS)
    assert found.shape == (5, 8)
    close(found[0], features(method, torch.tensor([TEXTS[0]]))[0].mean(0).float())
    close(found[0], found[4], rtol=0, atol=0)
    close(embed_tokens(method, TEXTS, batch=1), found, rtol=1e-6, atol=1e-6)
    size = tokens_at_once(method)
    first, rest = embed_tokens(method, [TEXTS[2][:size], TEXTS[2][size:]])
    close(found[2], (size * first + (11 - size) * rest) / 11)
    assert len({round(float(v), 6) for v in found[[0, 1, 2, 3], 0]}) == 4  # order tells, and length


@torch.no_grad()
def test_layers_of_a_published_network_are_its_blocks():
    """The last one is what the final norm reads."""
    net = LlamaNet(layers=2, hidden=8, heads=2, shared=1, inner=12, rows=4, length=8)
    method = make("mdlm").of_network(Llama(net, 4).double())
    x = torch.tensor([TEXTS[0], TEXTS[3]])
    close(method.network.norm(features(method, x, layer=-1)), features(method, x))
    assert not torch.allclose(features(method, x, layer=0), features(method, x, layer=1))


@pytest.mark.parametrize(
    ("name", "choices"), [("mdlm", {}), ("md4", {}), ("bd3lm", {"block": 2}), ("sedd", {})], ids=str
)
def test_it_is_what_the_method_itself_reads(name, choices):
    """The features from which a method predicts, given the clean text at time 0."""
    method = make(name, choices)
    x = torch.tensor([TEXTS[0], TEXTS[3]])
    batch = Batch(x)
    close(features(method, x), method.hidden(x, torch.zeros(2, 1), batch, method.clean(batch)))


def test_ar_reads_up_to_a_token():
    """Its feature at a token is that from which the next is predicted; the token that begins a text is not among them."""
    method = make("ar")
    x = torch.tensor([TEXTS[0]])
    close(features(method, x)[:, :-1], method.hidden(method.inputs(Batch(x)), None, Batch(x))[:, 1:])
    assert tokens_at_once(method) == 7


def test_a_layer_and_a_time_can_be_chosen():
    method = make("md4")
    x = torch.tensor([TEXTS[0]])
    last = features(method, x, -1)
    close(method.network._end(last, method.network.embed_time(method.input_times(x, 0.0, None))), features(method, x))
    assert not torch.allclose(features(method, x, 0), last)
    noisy = embed_tokens(method, TEXTS, t=0.9, seed=1)
    close(noisy, embed_tokens(method, TEXTS, t=0.9, seed=1, batch=2))
    assert not torch.allclose(noisy, embed_tokens(method, TEXTS, t=0.9, seed=2))
    assert not torch.allclose(noisy, embed_tokens(method, TEXTS))
    for wrong, error in [
        ({"layer": 2}, "the network has no layer 2, but 0 to 1; "),
        ({"t": 1.5}, "`t` is 1.5; it must be from 0"),
    ]:
        with pytest.raises(InputError, match=error):
            embed_tokens(method, TEXTS, **wrong)
    with pytest.raises(InputError, match="ar has no noise, so t is 0; "):
        embed_tokens(make("ar"), TEXTS, t=0.5)
    with pytest.raises(InputError, match="text 1 is empty; "):
        embed_tokens(method, [[0], []])


def model(name: str = "mdlm") -> Model:
    method = make(name, length=12).float()
    net = Net(layers=2, hidden=8, heads=2, length=12, conv=3, condition=8)
    return Model(method, Characters("abc"), Config(name, method.config, Data(), net, Train()))


def test_texts():
    found = embed(model(), ["abca", "cab"])
    close(found, embed_tokens(model().method, [[0, 1, 2, 0], [2, 0, 1]]))
    close(embed(model(), "cab"), found[1:])
    with pytest.raises(InputError, match="'x' at position 1 of the text is not in the model's vocabulary"):
        embed(model(), "ax")


# ------------------------------------------------------------------------------------------------------- the regression
def test_the_regression_is_the_minimum():
    """Zero gradient there; with two classes and one feature it is the logistic curve; a large penalty leaves the frequencies."""
    torch.manual_seed(0)
    x = torch.randn(200, 3, dtype=torch.float64)
    y = (x @ torch.tensor([1.0, -2.0, 0.5]).double() + torch.randn(200).double() > 0).long()
    weights = regress(lambda w: x @ w, 3, y, 2, 0.01)
    probability = (x @ weights[:-1] + weights[-1]).softmax(-1)
    residual = probability - torch.nn.functional.one_hot(y, 2)
    close(x.T @ residual / 200 + 0.01 * weights[:-1], torch.zeros(3, 2).double(), rtol=0, atol=1e-5)
    close(residual.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-5)
    flat = regress(lambda w: x @ w, 3, y, 2, 1e6)
    close(flat[-1].softmax(-1), torch.bincount(y).double() / 200, rtol=0, atol=1e-4)


def test_the_bag_is_the_table_of_counts():
    """By hand: two texts, three tokens; sparse and dense give the same regression."""
    parts = [[[0, 0, 1], [1, 2]], [[2]], [[0, 1, 2, 2]]]
    found = [bag.to_dense() for bag in bags(parts, 3)]
    log = lambda v: torch.tensor(v).double().log()  # noqa: E731
    idf = torch.stack((1 + log(2.0), 1 + log(1.0), 1 + log(2.0)))
    row = torch.stack(((1 + log(2.0)) * idf[0], idf[1], 0 * idf[2]))
    close(found[0][0], row / row.norm())
    close(found[1][0], torch.tensor([0.0, 0.0, 1.0]).double())
    torch.manual_seed(1)
    texts = [[[int(t) for t in torch.randint(0, 8, (5,))] for _ in range(n)] for n in (60, 20, 30)]
    labels = [torch.tensor([int(3 in t) for t in part]) for part in texts]
    sparse = bags(texts, 8)
    right, penalty = linear(sparse, labels, 2)
    dense, same = linear([bag.to_dense() for bag in sparse], labels, 2)
    assert torch.equal(right, dense)
    assert penalty == same
    assert right.double().mean() > 0.9


def test_standardized_by_the_first_part_only():
    torch.manual_seed(0)
    a, b = (torch.randn(50, 4) * 3 + 1 for _ in range(2))
    first, second = standardized([a, b])
    close(first.mean(0), torch.zeros(4).double(), rtol=0, atol=1e-7)
    close(second, (b.double() - a.double().mean(0)) / a.double().std(0))


# ------------------------------------------------------------------------------------------------------- fine-tuning, all of it
@pytest.mark.parametrize("name", ["mdlm", "ar", "bd3lm", "md4"])
def test_padding_does_not_change_the_logits(name):
    method = make(name).float()
    torch.manual_seed(0)
    classifier = Classifier(method.network, 8, 3).eval()
    texts = [text[:7] for text in TEXTS]
    with torch.no_grad():
        alone = torch.cat([logits(method, classifier, [text]) for text in texts])
        close(logits(method, classifier, texts), alone, rtol=1e-5, atol=1e-5)
        classifier.output.weight.copy_(torch.eye(8)[:3])
        classifier.output.bias.zero_()
        close(logits(method, classifier, texts), embed_tokens(method, texts)[:, :3], rtol=1e-5, atol=1e-5)


def test_fresh_weights_are_those_of_a_new_network():
    one, other = untrained(model(), 0), untrained(model(), 1)
    same = untrained(model(), 0)
    weights = lambda m: torch.cat([p.flatten() for p in m.parameters()])  # noqa: E731
    assert torch.equal(weights(one), weights(same))
    assert not torch.allclose(weights(one), weights(other))
    assert not torch.allclose(weights(one), weights(model().method))
    assert not one.network.head.weight.any()


def test_fine_tuning_learns_what_a_bag_cannot_see():
    """Which of two letters comes first: the counts are equal. The trunk that it starts from is left as it was."""
    torch.manual_seed(0)
    texts = [[int(v) for v in torch.randperm(2)] + [2, 2] for _ in range(300)]
    labels = torch.tensor([text[0] for text in texts])
    numbers = split_texts(300, 0)
    parts, marks = [[texts[i] for i in part.tolist()] for part in numbers], [labels[part] for part in numbers]
    method = untrained(model(), 0)
    before = {name: p.clone() for name, p in method.named_parameters()}
    right, epoch = fine_tune(method, parts, marks, 2, 0, 4, 3e-3, 16, lambda done, total: None)
    assert float(right.double().mean()) == 1.0
    assert 1 <= epoch <= 4
    assert all(torch.equal(before[name], p) for name, p in method.named_parameters())
    assert linear(bags(parts, 3), marks, 2)[0].double().mean() < 0.7


def test_the_probe_has_its_five_rows(tmp_path):
    torch.manual_seed(0)
    texts = ["".join("abc"[int(v)] for v in torch.randint(0, 3, (n % 9 + 4,))) for n in range(80)]
    data = Labelled("made up", texts, torch.tensor([int("ab" in text) for text in texts]), ("no", "yes"))
    told = []
    found = probe(model(), data, epochs=1, batch=16, progress=lambda what, done, total: told.append(what))
    names = ["bag of tokens", "linear, random weights", "linear, trained", "fine-tuned, random", "fine-tuned, trained"]
    assert [row.name for row in found.rows] == names == [*dict.fromkeys(told)]
    again = probe(model(), data, epochs=0)
    assert again.rows == found.rows[:3]  # deterministic
    a, b = found.row("linear, trained"), found.row("bag of tokens")
    gain = found.differences[2]
    assert gain.name == "linear, trained - bag of tokens"
    assert gain.value == pytest.approx(a.accuracy.value - b.accuracy.value)
    assert gain.half > 0
    assert len(found.differences) == 4
    assert ProbeRecord.from_dict(json.loads(dumps(found.to_dict()))) == found


def test_the_split_and_the_data(shared):
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert not set(split_texts(100, 3)[one].tolist()) & set(split_texts(100, 3)[other].tolist())
    assert [len(part) for part in split_texts(7600, 0)] == [5320, 760, 1520]
    assert not torch.equal(split_texts(100, 3)[0], split_texts(100, 4)[0])
    data = labelled("ag_news", shared / "data" / "ag_news")
    assert len(data.texts) == 7600
    assert torch.bincount(data.labels).tolist() == [1900] * 4
    assert data.texts[0].startswith("Fears for T N pension after talks Unions representing")
    assert data.classes[int(data.labels[0])] == "Business"


def test_wrong_data(tmp_path):
    with pytest.raises(InputError, match="unknown probe 'agnews'; did you mean 'ag_news'"):
        labelled("agnews")
    with pytest.raises(InputError, match="no file at "):
        labelled("ag_news", tmp_path)
    (tmp_path / "test.csv").write_text('"5","a","b"\n')
    with pytest.raises(InputError, match=r"row 1 of .* is not class \(1 to 4\), title, description"):
        labelled("ag_news", tmp_path)
