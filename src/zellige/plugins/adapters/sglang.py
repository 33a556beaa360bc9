"""The adapter to SGLang: Zellige's samplers of blocks unmask what SGLang's engine computes.

SGLang finds its algorithms among the modules of its package `sglang.srt.dllm.algorithm` that have an `Algorithm`. So
one line in a module there makes this one known, in every process of the engine:

    echo "from zellige.plugins.adapters.sglang import Algorithm" > "$(python -c \
        'import sglang.srt.dllm.algorithm as a; print(a.__path__[0])')/zellige.py"
    python -m sglang.launch_server --model-path JetLM/SDAR-8B-Chat --trust-remote-code --dllm-algorithm Zellige \
        --dllm-algorithm-config zellige.yaml

zellige.yaml has the sampler inside a block, and its options: `sampler: confidence`, `threshold: 0.9`, `temperature: 0`.
Two more are the engine's `block_size`, and `tokens`: how many tokens the tokenizer has, since tables may have more
rows.

The interface, as read in SGLang's sources and faked in the tests; SGLang itself was not run:

    __init__(config)                             `block_size`, `mask_id`, and `algorithm_config`, the YAML
    init_step_state(batch) -> [None] * B         what `step` keeps of each block
    max_steps(block_size) -> int                 calls of `step` for a block, at most
    step(batch, output, states) -> [bool] * B    after an evaluation: write tokens into the batch's input_ids, (B * block,), and
                                                 say of which blocks this evaluation has read the last token

`output` has logits (B * block, rows), itself or as `full_logits`. The evaluation that reads a block's last token writes
the keys and values of its clean tokens, as Zellige's own `extend` does: so samples have the distribution that
`blockwise` has here. Random numbers are torch's, of no seed. The samplers need a network without a time input.
"""

from typing import Any

import torch
from torch import Tensor, nn

from zellige.base.errors import InputError, unknown
from zellige.methods import MDLM
from zellige.samplers import State
from zellige.samplers.choice import choose_sampler

try:
    from sglang.srt.dllm.algorithm.base import DllmAlgorithm  # pyright: ignore[reportMissingImports]
except ImportError:
    DllmAlgorithm = None
Base: Any = DllmAlgorithm or object

INSIDE = ("ancestral", "first_hitting", "any_order", "fixed_order", "confidence", "klass")  # none takes a token back
OURS = ("block_size", "sampler", "temperature", "top_p", "steps", "tokens")  # entries that are no option of a sampler


class Computed(nn.Module):
    """A network that has been evaluated: its hidden states are the logits (1, L, K) that it is given,
    its head does nothing."""

    def __init__(self):
        super().__init__()
        self.head, self.computed = nn.Identity(), torch.empty(0)

    def features(self, x: Tensor, time: Tensor | None = None, **_: Any) -> Tensor:
        """The logits, of whichever tokens."""
        return self.computed


class Zellige(Base):
    """One of Zellige's samplers as an algorithm of SGLang."""

    def __init__(self, config: Any):
        if DllmAlgorithm is None:
            raise InputError("this is a part of SGLang's engine, and 'sglang' is not installed; see docs.sglang.io")
        super().__init__(config)
        self.block, self.mask = int(config.block_size), int(config.mask_id)
        self.entries = dict(config.algorithm_config or {})
        tokens = self.entries.get("tokens")
        self.method = None if tokens is None else self._of(int(tokens))

    def _of(self, states: int) -> MDLM:
        """Blocks of so many states, the mask among them, under a network that has been evaluated; makes the sampler,
        too."""
        if not self.mask < states:
            raise InputError(
                f"`tokens` is {states:,}, and the mask is token {self.mask:,}; give the tokenizer's number"
            )
        method = MDLM(Computed(), states, (self.block,), MDLM.Config(mask=self.mask)).eval()
        options = {name: value for name, value in self.entries.items() if name not in OURS}
        entries = self.entries.get
        if (name := entries("sampler", "confidence")) not in INSIDE:
            raise unknown("sampler of a block", name, INSIDE)
        self.sampler = choose_sampler(name, method, entries("temperature"), entries("top_p"), options, beside=OURS)
        self.times = self.sampler.times(method, entries("steps", self.block))
        self.sampled = self.sampler.truncated(method)
        return method

    def init_step_state(self, forward_batch: Any) -> list[Any]:
        """Nothing yet of each block."""
        return [None] * forward_batch.batch_size

    def max_steps(self, block_size: int) -> int:
        """One for each token, and one that reads the last."""
        return block_size + 1

    @torch.no_grad()
    def step(self, forward_batch: Any, logits_output: Any, states: list[Any]) -> list[bool]:
        """Unmask tokens of each block by its logits; whether it had no mask when they were computed."""
        logits: Tensor = getattr(logits_output, "full_logits", logits_output)
        method = self.method = self.method or self._of(logits.shape[-1])
        ids = forward_batch.input_ids.view(-1, self.block)
        logits = logits.view(len(ids), self.block, -1)[..., : method.process.K]
        done = (ids != self.mask).all(-1).tolist()
        for i in range(len(ids)):
            if not done[i]:
                states[i] = self._unmask(method, ids[i : i + 1].long(), logits[i : i + 1], states[i])
                ids[i] = states[i][0].x[0].to(ids.dtype)  # in place: a captured graph reads this tensor
        return done

    def _unmask(self, method: MDLM, x: Tensor, logits: Tensor, before: tuple[State, int] | None) -> tuple[State, int]:
        """The sampler's state, and the number of its steps, after the first step that unmasks any: steps that do not
        would only compute the same logits once more."""
        method.to(x.device).network.computed = logits.float()
        if before is None:
            fixed = torch.where(x == self.mask, -1, x)
            before = self.sampler.init(method, (1, self.block), fixed=fixed), 0
        state, n = before
        times = self.times.to(x.device)
        while n + 1 < len(times) and torch.equal(state.x, x):
            state, n = self.sampler.step(self.sampled, state, times[n], times[n + 1]), n + 1
        return state, n


Algorithm = Zellige
