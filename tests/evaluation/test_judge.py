"""The judge: the chain rule by hand, batches, what counts; of transformers with a tiny GPT-2 on disk, and of our own AR."""

import json
import math

import pytest
import torch

import zellige
from zellige import Data, Net
from zellige.base.errors import InputError
from zellige.base.schema import sealed
from zellige.core.batch import Batch
from zellige.data.tokenizer import Characters, Tokens
from zellige.evaluation.evaluate import evaluate_rows
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.evaluations.generate.judge import Judge, causal_model

WORDS = "the value of the object is returned by the function and it is the name of a class in this module "
TEXTS = [WORDS[:30], "a", WORDS * 3, "the", WORDS[10:60], "", "it is"]
ALPHABET = "abcdefghijklmnopqrstuvwxyz "
L = 24
EOS, BOS = 1, 2


@pytest.fixture(scope="module")
def inner():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<pad>", "<|endoftext|>", "<s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([WORDS * 20], trainer)
    return tokenizer


@pytest.fixture(scope="module")
def gpt2(inner, tmp_path_factory):
    """A folder with a random GPT-2 of 32 positions and its tokenizer; BOS and EOS are two tokens, neither of them 0."""
    transformers = pytest.importorskip("transformers", reason="the extra 'eval' is not installed")
    folder = tmp_path_factory.mktemp("gpt2")
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<|endoftext|>", pad_token="<pad>"
    )
    wrapped.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=inner.get_vocab_size(), n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=0,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).eval().save_pretrained(folder)
    return folder


def own(tokenizer=None) -> Model:
    tokenizer = tokenizer or Characters(ALPHABET)
    torch.manual_seed(1)
    net = Net(layers=2, hidden=16, heads=2, length=L, conv=3)
    cls = zellige.METHODS["ar"]
    method = build(cls, tokenizer.size, net, cls.Config(), L).double()
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return Model(method, tokenizer, Config("ar", cls.Config(), Data("pydocs"), net))


def agree(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-5), (a, b)


# ------------------------------------------------------------------------------------------------------- transformers


def chain(model, ids, first):
    """log p by one call for each token: nothing shared with the judge but the network."""
    total, counted = 0.0, 0
    for i, token in enumerate(ids):
        before = ([BOS] if first == "judged" else []) + ids[:i]
        if before:
            logits = model(torch.tensor([before])).logits[0, -1].double()
            total, counted = total - float(logits.log_softmax(-1)[token]), counted + 1
    return total, counted


@pytest.mark.parametrize("first", ["given", "judged"])
def test_nats_are_the_chain_rule(gpt2, first):
    judge = Judge(gpt2, first=first)
    with torch.no_grad():
        expected = [chain(judge.inner.model, ids[:32], first) for ids in judge.encode(TEXTS)]
    agree(judge.nats(TEXTS), (torch.tensor([n for n, _ in expected]), torch.tensor([c for _, c in expected])))
    assert judge.about.context == 32
    assert judge.about.kind == "transformers"


@pytest.mark.parametrize("first", ["given", "judged"])
@pytest.mark.parametrize("long", ["cut", "chunks"])
def test_a_batch_is_one_by_one(gpt2, first, long, monkeypatch):
    judge = Judge(gpt2, first=first, long=long)
    nats, tokens = judge.nats(TEXTS)
    each = [judge.nats([text]) for text in TEXTS]
    agree((nats, tokens), (torch.cat([n for n, _ in each]), torch.cat([t for _, t in each])))
    monkeypatch.setattr("zellige.plugins.evaluations.generate.judge.LOGITS", 3 * 32 * judge.inner.vocabulary)
    agree(judge.nats(TEXTS), (nats, tokens))


def test_chunks_judge_all_and_are_the_sum_of_pieces(gpt2):
    long = [WORDS * 4]
    judge = Judge(gpt2, long="chunks", first="judged")
    (ids,) = judge.encode(long)
    assert len(ids) > 64
    pieces = [ids[i : i + 32] for i in range(0, len(ids), 32)]
    nats, tokens = judge.nats(long)
    assert int(tokens) == len(ids)
    parts = judge.nats_of(pieces)
    agree((nats, tokens), (parts[0].sum()[None], parts[1].sum()[None]))
    assert int(Judge(gpt2, first="judged").nats(long)[1]) == 32
    assert Judge(gpt2).cut(judge.encode(TEXTS)) == 1


def test_what_counts_of_eos(gpt2):
    """The first EOS counts, and what comes after it; a further one does not: MDLM's rule, on positions after the first."""
    end = "<|endoftext|>"
    text = f"the {end} value{end} of"
    both = [Judge(gpt2, eos=eos, first="judged") for eos in ("first", "all")]
    ids = both[0].encode([text])[0]
    assert ids.count(EOS) == 2
    (few, n), (every, m) = (judge.nats([text]) for judge in both)
    assert int(m) == len(ids) == int(n) + 1
    second = [i for i, token in enumerate(ids) if token == EOS][1]
    with torch.no_grad():
        logits = both[0].inner.model(torch.tensor([[BOS, *ids[:second]]])).logits[0, -1].double()
    assert float(every - few) == pytest.approx(-float(logits.log_softmax(-1)[EOS]), rel=1e-5)


def test_bos_changes_the_number_and_context_cuts(gpt2):
    given, judged = Judge(gpt2), Judge(gpt2, first="judged")
    assert (judged.nats(TEXTS)[1] - given.nats(TEXTS)[1]).tolist() == [1, 1, 1, 1, 1, 0, 1]
    assert int(Judge(gpt2, context=8).nats([WORDS])[1]) == 7
    with pytest.raises(InputError, match="takes 2 to 32 tokens"):
        Judge(gpt2, context=33)


def test_features_do_not_depend_on_the_batch(gpt2):
    judge = Judge(gpt2)
    texts = [t for t in TEXTS if t]
    together = judge.features(texts)
    assert together.shape == (6, 16)
    assert torch.allclose(together, torch.cat([judge.features([t]) for t in texts]), atol=1e-4)


def test_our_tokenizer_and_theirs_are_one(gpt2, inner):
    judge = Judge(gpt2)
    assert judge.inner.same(Tokens(inner, "bpe"))
    assert not judge.inner.same(Characters(ALPHABET))


def test_no_judge_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="the extra 'eval' is not installed")
    (tmp_path / "judge").mkdir()
    with pytest.raises(InputError, match=r"no judge at '.*jugde'; nearest in that folder: 'judge'$"):
        Judge(tmp_path / "jugde")
    with pytest.raises(InputError, match=r"no judge 'no-such/model' on this machine, and none on the Hugging Face hub"):
        Judge("no-such/model")
    (tmp_path / "judge" / "config.json").write_text('{"model_type": "bert", "vocab_size": 5}')
    with pytest.raises(InputError, match=r"holds no causal model that can be read"):
        Judge(tmp_path / "judge")
    with pytest.raises(InputError, match=r"`eos` is 'none'; it must be first or all"):
        Judge(own(), eos="none")


# ------------------------------------------------------------------------------------------------------- our own


def test_the_nats_of_ar_are_those_of_evaluate():
    model = own()
    tokens = torch.randint(0, 27, (9, L), generator=torch.Generator().manual_seed(0))

    class Rows:
        tokens_total = tokens.numel()

        def __len__(self):
            return len(tokens)

        def __getitem__(self, i):
            return i

        def collate(self, rows):
            return Batch(tokens[rows])

    result = evaluate_rows(model.method, Rows())
    judge = Judge(model, first="judged", eos="all")
    nats, counted = judge.nats_of(tokens.tolist())
    assert torch.allclose(nats, result.nats, rtol=1e-9)
    assert counted.tolist() == [L] * 9
    again, _ = judge.nats([model.tokenizer.decode(row) for row in tokens.tolist()])
    assert torch.allclose(again, nats, rtol=1e-9)


def test_ar_is_the_chain_rule_whatever_the_batch():
    model = own()
    texts = ["the value of", "a", "it is the name of a cl", "of the object"]
    judge = Judge(model)  # the first token given
    law = lambda before: model.method.next(  # noqa: E731
        model.method.hidden(torch.tensor([[27, *before]]), None, None)[0, -1]
    )
    with torch.no_grad():
        by_hand = [
            -sum(math.log(law(ids[:i])[ids[i]]) for i in range(1, len(ids)))
            for ids in map(model.tokenizer.encode, texts)
        ]
    nats, counted = judge.nats(texts)
    assert nats.tolist() == pytest.approx(by_hand, rel=1e-9)
    assert counted.tolist() == [len(t) - 1 for t in texts]
    one = torch.cat([judge.nats([t])[0] for t in texts])
    assert torch.allclose(nats, one, rtol=1e-9)


def test_features_of_ar_have_read_the_last_token():
    judge = Judge(own())
    a, b, c = judge.features(["the cat", "the car", "the cat"])
    assert torch.equal(a, c)
    assert not torch.allclose(a, b)


def test_what_is_no_judge_says_so(tmp_path):
    model = own()
    cls = zellige.METHODS["mdlm"]
    other = build(cls, 27, model.config.net, cls.Config(), L)
    with pytest.raises(InputError, match=r"holds mdlm, which says no next token; give a run of ar"):
        Judge(Model(other, model.tokenizer, Config("mdlm", cls.Config(), Data("pydocs"), model.config.net)))
    with pytest.raises(InputError, match=r"'é' at position 1 of text 2 is not in the model's vocabulary"):
        Judge(model).nats(["the", "hé"])
    with pytest.raises(InputError, match=r"token 27 is not in the judge's vocabulary of 27; leave out `tokens` own"):
        Judge(model).nats_of([[1, 2], [27]])


def test_the_folder_of_a_run_is_a_judge(tmp_path):
    model = own()
    model.method.float()
    folder = model.save(tmp_path / "ar")
    judge = Judge(folder, first="judged", eos="all")
    texts = ["the value", "of"]
    agree(judge.nats(texts), Judge(model, first="judged", eos="all").nats(texts))
    assert judge.about.judge == str(folder)


def test_a_judge_whose_config_has_changed_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(sealed({"format": 1})).replace("1", "2", 1))
    with pytest.raises(InputError, match=r"config\.json' has changed since it was written \(checksum\)"):
        causal_model(tmp_path, "cpu")
