"""Planted errors in blocks inside a text, and in the caches of bidirectional networks."""

from .mutant import Mutant as M

SS, AN, BK, TR, NN = (
    "samplers/semi_autoregressive.py", "nn/attention.py", "nn/block.py", "nn/transformer.py", "nn/llama.py",
)  # fmt: skip
TESTS = "tests/samplers/test_semi_autoregressive.py"

CACHED = [
    M(
        "keys of the part stand at the beginning of the text",
        AN,
        "torch.cat((old[:, :, : self.start], new, old[:, :, self.start + new.shape[2] :]), 2)",
        "torch.cat((new, old[:, :, new.shape[2] :]), 2)",
        "caches.stale",
    ),
    M(
        "keys of the part stand beside those that they replace",
        AN,
        "new, old[:, :, self.start + new.shape[2] :]), 2)",
        "new, old[:, :, self.start :]), 2)",
        "caches.network mdlm",
    ),
    M(
        "a convolution reads zeros before the part",
        AN,
        "before = self.stream[:, max(self.start - reach, 0) : self.start]",
        "before = self.stream[:, :0]",
        "caches.network mdlm",
    ),
    M(
        "a convolution reads what stands two positions after the part",
        AN,
        "self.stream[:, self.start + x.shape[1] : self.start + x.shape[1] + reach]",
        "self.stream[:, self.start + x.shape[1] + 1 : self.start + x.shape[1] + reach + 1]",
        "caches.network mdlm",
    ),
    M(
        "a part counts its positions from 0",
        TR,
        "cos, sin = self.rotary[:, start : start + x.shape[1]]",
        "cos, sin = self.rotary[:, : x.shape[1]]",
        "caches.network mdlm",
    ),
    M(
        "a part of a Llama counts its positions from 0",
        NN,
        "position = torch.arange(start, start + x.shape[1], device=x.device)",
        "position = torch.arange(x.shape[1], device=x.device)",
        "caches.stale",
    ),
    M(
        "a part forgets the position that its first one is read from",
        SS,
        "shift = int(shifts)  # of the position",
        "shift = 0  # of the position",
        "caches.stale",
    ),
    M(
        "prefix ends with the block",
        SS,
        'end = x.shape[1] if self.cache == "prefix" else begin + size',
        "end = begin + size",
        "caches.stale",
    ),
    M(
        "a block begins with the reading of the one before",
        SS,
        "due = inner.calls == 0 if self.refresh is None",
        "due = (inner.calls == 0) & (memory.begin == 0) if self.refresh is None",
        "caches.stale",
    ),
    M(
        "a refresh comes one evaluation late",
        SS,
        "else inner.calls % self.refresh == 0",
        "else inner.calls % (self.refresh + 1) == 0",
        "caches.fresh mdlm",
    ),
    M(
        "a new reading is not kept",
        SS,
        "            reading = new.into(reading, rows, len(self.x))",
        "            reading = new.into(reading, rows, len(self.x)) if reading is None else reading",
        "caches.stale",
    ),
    M(
        "a block is read without the text after it",
        SS,
        "x = torch.cat((around.x[:, :begin], x_t, around.x[:, end:]), 1)",
        "x = torch.cat((around.x[:, :begin], x_t, 0 * around.x[:, end:]), 1)",
        "caches.blocks mdlm",
    ),
    M(
        "rows that read the whole text and rows that read a part change places",
        SS,
        "return h[rows.argsort()]",
        "return h",
        why="verify's rows read together",
        tests=f"{TESTS} -k does_not_depend_on_its_batch",
    ),
    M(
        "readings of some rows are put into the first ones",
        AN,
        "return old.index_copy(0, rows, new)",
        "return old.index_copy(0, rows.argsort(), new)",
        why="verify's rows read together",
        tests=f"{TESTS} -k does_not_depend_on_its_batch",
    ),
    M(
        "a network with self-conditioning is read once",
        TR,
        "            or self.estimates is not None\n            or self.given is not None",
        "            or self.given is not None",
        why="verify asks networks that can be read in parts",
        tests=f"{TESTS} -k keeps_no_cache",
    ),
]
