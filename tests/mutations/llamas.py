"""Planted errors in the networks of large diffusion models and in how their folders are read and written."""

from .mutant import Mutant as M

NN, AN = "nn/llama.py", "nn/attention.py"
QW, LL, RD = "models/published/qwen.py", "models/published/llama.py", "models/published/reading.py"
OTHER = "verify has no published folders"
QWEN = "tests/models/published/test_qwen.py"
GP, PG, GPT2 = "nn/gpt2.py", "models/published/gpt2.py", "tests/models/published/test_gpt2.py"

LLAMAS = [
    M(
        "queries are not normalised",
        NN,
        "q, k = self.query_norm(q), self.key_norm(k)",
        "k = self.key_norm(k)",
        "networks.llama",
    ),
    M(
        "heads are normalised after they are rotated",
        NN,
        """            q, k = self.query_norm(q), self.key_norm(k)
        q, k = (rotate(y.to(torch.promote_types(y.dtype, torch.float32)), *angles).to(y.dtype) for y in (q, k))""",
        """            q, k = (rotate(y, *angles) for y in (q, k))
            q, k = self.query_norm(q), self.key_norm(k)
        else:
            q, k = (rotate(y, *angles) for y in (q, k))""",
        "networks.llama",
    ),
    M(
        "heads of queries share keys in turn, not neighbours",
        AN,
        "k, v = (y.repeat_interleave(share, 1) for y in (k, v))",
        "k, v = (y.repeat(1, share, 1, 1) for y in (k, v))",
        "networks.llama",
    ),
    M(
        "a block behind a cache counts its positions from 0",
        NN,
        "position = cache.place[:, None] + position",
        "position = 0 * cache.place[:, None] + position",
        "networks.llama",
    ),
    M(
        "a shorter prompt counts from the longer one's first token",
        NN,
        "position = (position - (~valid).sum(-1, keepdim=True)).clamp_min(0)",
        "position = position.clamp_min(0)",
        "networks.llama",
    ),
    M(
        "the first token of a block is read from the noisy one before it",
        NN,
        "at = (position % self.block == 0)[..., None]",
        "at = (position < 0)[..., None]",
        "networks.llama",
    ),
    M(
        "behind a cache the first token is read from the block's own",
        NN,
        "first = torch.zeros_like(h[:, :1]) if cache is None else cache.tails[-1]",
        "first = h[:, :1]",
        "networks.llama",
    ),
    M(
        "a row without a prompt reads its first token from what is not there",
        NN,
        "place = 0 if cache is None else cache.place[:, None]",
        "place = 0 if cache is None else 1",
        "networks.llama",
    ),
    M(
        "a tied model has a table of outputs of its own",
        NN,
        "TiedHead(self.embedding, states, bias=False) if net.tied else Head(net.hidden, states, net.rows)",
        "Head(net.hidden, states, net.rows)",
        why="the hidden states are the same; verify has no folders",
        tests=f"{QWEN} -k autoregressive_folder",
    ),
    M(
        "a head has the width that divides the hidden states",
        NN,
        "return self.width or self.hidden // self.heads",
        "return self.hidden // self.heads",
        why="verify's network has whatever width it says",
        tests=f"{QWEN} -k computes_what_qwen3",
    ),
    # ------------------------------------------------------------------------------ folders
    M(
        "the size of a block is the default, whatever the folder says",
        QW,
        "usual if config.get(block) is None else count_in(config, block)",
        "usual",
        why=OTHER,
        tests=f"{QWEN} -k begins_with_it or first_token",
    ),
    M(
        "a run in other blocks is exported with the folder's",
        QW,
        '            revised[block] = options["block"]',
        '            revised[block] = said.options["block"]',
        why=OTHER,
        tests=f"{QWEN} -k begins_with_it",
    ),
    M(
        "the base of the frequencies is not read where transformers 5 writes it",
        QW,
        'number_in(rope if "rope_theta" in rope else config, "rope_theta")',
        'float(config.get("rope_theta", 1e4))',
        why=OTHER,
        tests=f"{QWEN} -k computes_what_qwen3",
    ),
    M(
        "scaled frequencies are read as plain ones",
        QW,
        'require(rope, {"rope_type": ("default", None)}, system)',
        "require(rope, {}, system)",
        why=OTHER,
        tests=f"{QWEN} -k another_network",
    ),
    M(
        "the row of a new mask is zero",
        RD,
        "torch.cat((table, table.float().mean(0, keepdim=True).to(table)))",
        "torch.cat((table, table.new_zeros(1, table.shape[1])))",
        why=OTHER,
        tests=f"{QWEN} -k begins_with_it",
    ),
    M(
        "a mask that the tokenizer names is added once more",
        LL,
        'mask = next((i for i in map(inner.token_to_id, (name or "", *MASKS)) if i is not None), None)',
        "mask = None",
        why=OTHER,
        tests=f"{QWEN} -k a_mask_without_a_number",
    ),
    M(
        "a model in blocks begins in those of the layout, not in those that are asked for",
        RD,
        'rows=published_entries["rows"], options=asdict(config.options)',
        'rows=published_entries["rows"]',
        why=OTHER,
        tests=f"{QWEN} -k begins_with_it",
    ),
    M(
        "GPT-2 adds no vectors of positions",
        GP,
        "return self.embedding(x) + self.places(position)",
        "return self.embedding(x) + 0 * self.places(position)",
        "networks.llama",
    ),
    M(
        "GPT-2 behind a cache counts its positions from 0",
        GP,
        "return super()._positions(x, segments, cache, valid)",
        "return super()._positions(x, segments, None, valid)",
        "networks.llama",
    ),
    M(
        "GPT-2's keys and values are taken in each other's place",
        GP,
        "q, k, v = (y.view(",
        "q, v, k = (y.view(",
        "networks.llama",
    ),
    M(
        "GPT-2's MLP has another activation",
        GP,
        'approximate="tanh")), k, v',
        'approximate="none").relu()), k, v',
        "networks.llama",
    ),
    M(
        "GPT-2's matrices are read the other way round",
        GP,
        "torch.addmm(self.bias, x.flatten(0, -2), self.weight)",
        "torch.addmm(self.bias, x.flatten(0, -2), self.weight.reshape(self.weight.shape[::-1]).mT)",
        "networks.llama",
    ),
    M(
        "GPT-2 ends with a norm of root mean squares",
        GP,
        "        self.norm = nn.LayerNorm(net.hidden, net.eps)\n",
        "",
        "networks.llama",
    ),
    M(
        "a packed document counts on from the one before",
        GP,
        "position = documents(segments)[1]",
        "position = torch.arange(x.shape[1]).expand(segments.shape)",
        "networks.llama",
    ),
    M(
        "the two products of GPT-2's MLP change places in its files",
        PG,
        '"up": "mlp.c_fc", "down": "mlp.c_proj"',
        '"up": "mlp.c_proj", "down": "mlp.c_fc"',
        why=OTHER,
        tests=GPT2,
    ),
    M(
        "a GPT-2 that scales its attention otherwise is loaded",
        PG,
        '"scale_attn_by_inverse_layer_idx": (False, None), ',
        "",
        why=OTHER,
        tests=GPT2,
    ),
    M(
        "the row of ar's last state is written into GPT-2's file",
        "models/published/writing.py",
        'tensors[name] = tensors[name][: entries["vocab_size"]]',
        "tensors[name] = tensors[name]",
        why=OTHER,
        tests=GPT2,
    ),
]
