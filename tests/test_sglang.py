"""The adapter to SGLang, inside a fake of the interface that its docstring states: SGLang itself is not installed."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from zellige.base.errors import InputError
from zellige.methods import BD3LM, build
from zellige.plugins.published.nn import Llama, LlamaNet
from zellige.samplers import Blockwise, run
from zellige.samplers.choice import choose_sampler

BLOCK, V, ROWS = 4, 11, 14  # the mask is token V; two more rows of the table are no token


class FakeAlgorithm:
    """SGLang's base class as far as the adapter uses it, and its loop over a block's evaluations."""

    def __init__(self, config):
        self.block_size, self.mask_id = config.block_size, config.mask_id

    def run(self, forward, batch):
        """Evaluate and step until all blocks are read; how many evaluations that took."""
        states = self.init_step_state(batch)
        for n in range(1, self.max_steps(self.block_size) + 2):
            if all(self.step(batch, forward(batch), states)):
                return n
        raise AssertionError("a block was not finished in max_steps")


@pytest.fixture
def adapter(monkeypatch):
    """The module, imported where there is an SGLang."""
    base: object = ModuleType("sglang.srt.dllm.algorithm.base")
    base.DllmAlgorithm = FakeAlgorithm
    names = ["sglang", "sglang.srt", "sglang.srt.dllm", "sglang.srt.dllm.algorithm"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.dllm.algorithm.base", base)
    monkeypatch.delitem(sys.modules, "zellige.plugins.adapters.sglang", raising=False)
    yield importlib.import_module("zellige.plugins.adapters.sglang")
    sys.modules.pop("zellige.plugins.adapters.sglang", None)


@pytest.fixture(scope="module")
def method():
    torch.manual_seed(0)
    net = Llama(LlamaNet(2, 16, 2, 1, 24, ROWS, 16, width=6, head_norms=True), V + 1, BLOCK)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(2 * torch.randn_like(p) * p.shape[-1] ** -0.5 if p.ndim > 1 else 1 + 0.2 * torch.randn_like(p))
    return build(BD3LM, V + 1, net, BD3LM.Config(block=BLOCK, mask=V), 16).eval()


def served(algorithm, method, blocks: int, whole: bool, prompt=()):
    """A text of so many blocks by the engine, and its evaluations of each block. whole: logits come in an object."""
    text, cache, counts = torch.tensor([prompt], dtype=torch.long), None, []
    for _ in range(blocks):
        ids = torch.full((BLOCK,), V)
        ids[: text.shape[1] % BLOCK] = text[0, text.shape[1] // BLOCK * BLOCK :]
        batch = SimpleNamespace(batch_size=1, input_ids=ids)

        def forward(batch, cache=cache):
            h = method.network.features(batch.input_ids[None], cache=cache)
            logits = (h @ method.network.head.rows.mT)[0]  # the padding of the table, too
            return SimpleNamespace(full_logits=logits) if whole else logits

        counts.append(algorithm.run(forward, batch))
        cache = method.extend(cache, ids[None])
        text = torch.cat((text[:, : text.shape[1] // BLOCK * BLOCK], ids[None]), 1)
    return text[0].tolist(), counts


@torch.no_grad()
@pytest.mark.parametrize(
    ("entries", "whole"),
    [
        ({"sampler": "confidence", "threshold": 0.5, "temperature": 0}, True),
        ({"sampler": "confidence", "per_step": 2, "temperature": 0.5}, False),
        ({"sampler": "fixed_order", "per_step": 2, "given": "counted"}, False),
        ({"sampler": "ancestral", "steps": 8}, True),
        ({"sampler": "klass", "top_p": 0.9}, True),
    ],
)
def test_texts_are_those_of_blockwise(entries, whole, method, adapter):
    """With the same random numbers token for token; each block's evaluations, and one that reads its last token."""
    config = SimpleNamespace(block_size=BLOCK, mask_id=V, algorithm_config=entries | {"tokens": V + 1})
    torch.manual_seed(3)
    blocks = 1 if "steps" in entries else 3  # the steps after a block's last token draw numbers, too
    got, counts = served(adapter.Algorithm(config), method, blocks, whole, prompt=(1, 2))
    options = {
        name: value for name, value in entries.items() if name not in ("sampler", "steps", "temperature", "top_p")
    }
    inside = entries["sampler"]
    ours = choose_sampler(
        None, method, entries.get("temperature"), entries.get("top_p"), options | {"block_sampler": inside}
    )
    torch.manual_seed(3)
    fixed = torch.tensor([[1, 2] + [-1] * (4 * blocks - 2)])
    *_, last = run(ours, method, (1, 4 * blocks), entries.get("steps", BLOCK), fixed=fixed)
    assert isinstance(ours, Blockwise)
    assert got == last.x[0].tolist()
    assert sum(counts) == int(last.calls) + 1  # `blockwise` does not read the last block, which nothing follows


@torch.no_grad()
def test_blocks_in_a_batch_are_finished_one_by_one(adapter):
    """A block that is done stays as it is; only the evaluation after its last token says so; nothing outside the tokens."""
    config = SimpleNamespace(block_size=2, mask_id=V, algorithm_config={"sampler": "confidence", "per_step": 1})
    algorithm = adapter.Algorithm(config)
    ids = torch.tensor([V, V, 3, V, 5, 6], dtype=torch.int32)
    batch, states = (
        SimpleNamespace(batch_size=3, input_ids=ids),
        algorithm.init_step_state(SimpleNamespace(batch_size=3)),
    )
    logits = torch.zeros(6, V + 1)
    logits[:, V], logits[0, 7], logits[1, 8], logits[3, 9] = 99.0, 60.0, 50.0, 50.0  # a mask is never drawn
    seen = []
    for _ in range(3):
        seen.append((algorithm.step(batch, logits, states), ids.tolist()))
    assert [done for done, _ in seen] == [[False, False, True], [False, True, True], [True, True, True]]
    assert [tokens for _, tokens in seen] == [[7, V, 3, 9, 5, 6], [7, 8, 3, 9, 5, 6], [7, 8, 3, 9, 5, 6]]
    assert batch.input_ids is ids


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"sampler": "remasking", "tokens": 12}, "unknown sampler of a block 'remasking'"),
        ({"sampler": "confidence", "limit": 0.9, "tokens": 12}, "no argument is called 'limit'"),
        ({"tokens": 5}, "`tokens` is 5, and the mask is token 11"),
    ],
)
def test_a_wrong_entry_stops_the_engine_when_it_starts(entries, said, adapter):
    config = SimpleNamespace(block_size=2, mask_id=V, algorithm_config=entries)
    with pytest.raises((InputError, TypeError), match=said):
        adapter.Algorithm(config)


def test_without_sglang_it_says_so():
    sys.modules.pop("zellige.plugins.adapters.sglang", None)
    module = importlib.import_module("zellige.plugins.adapters.sglang")
    with pytest.raises(InputError, match="'sglang' is not installed"):
        module.Algorithm(SimpleNamespace(block_size=2, mask_id=3, algorithm_config={}))
