"""The model behind a judge: one of `transformers`, or Zellige's own where it is exact from left to right.

Both have the same face: `encode(texts)`, `same(tokenizer)`, `nats(tokens, real, begin)` of each token (B, T), `states` (B, T, D),
and what the protocol says of them, the sha256 of weights and tokenizer among it. Rows are filled up on the right; `real` (B, T)
bool says where they are.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.batch import Batch
from ..core.random import categorical, mix
from ..data import remote
from ..errors import InputError, nearest, not_installed
from ..models.identity import fingerprint
from ..schema import read_json

DRAWN = 64  # texts of its own at once
ROWS = 256  # whose logits are float64 at one time
_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")  # on the hub


def causal_model(path: Any, device: torch.device | str) -> Any:
    """The model behind a judge: Zellige's where the folder is its own, else one of transformers."""
    if hasattr(path, "method"):
        return Own(path, getattr(path.config, "method", "ar"))
    name = str(path)
    folder = Path(name)
    config = folder / "config.json"
    theirs = config.is_file() and "model_type" in read_json(config)
    if folder.is_dir() and not theirs:
        from ..models.model import load

        return Own(load(name, device=device), name)
    return Transformer(name, device)


class Own:
    """A Zellige model that is exact from left to right."""

    kind, begins = "zellige", True

    def __init__(self, model: Any, name: str):
        method = self.method = model.method.eval()
        if not (method.exact and method.parameterization == "next"):
            raise InputError(f"judge '{name}' holds {method.name}, which says no next token; give a run of ar")
        self.name, self.tokenizer, self.model = name, model.tokenizer, model
        self.tokenizer_name, self.vocabulary = self.tokenizer.name, self.tokenizer.size
        by_tokens = self.tokenizer.unit == "token"  # of characters the separator is a space or a line end, and text
        self.end = self.tokenizer.separator if by_tokens else None
        self.context, self.parameters = int(method.window), sum(p.numel() for p in method.parameters())
        self.device = next(method.parameters()).device
        self.tokenizer_sha256 = self.tokenizer.fingerprint

    @property
    def weights_sha256(self) -> str:
        return fingerprint(self.method)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.tokenizer.encode(text, f"text {i + 1:,}") for i, text in enumerate(texts)]

    def same(self, tokenizer: Any) -> bool:
        return self.tokenizer.fingerprint == tokenizer.fingerprint

    def nats(self, tokens: Tensor, real: Tensor, begin: bool) -> Tensor:
        """It reads what begins a text in either case; where the first token is given it is not counted."""
        h = self._hidden(tokens, real)
        return _cross_entropy(lambda i: self.method.network.head(h[i]), tokens, real)

    def states(self, tokens: Tensor, real: Tensor) -> Tensor:
        """What it knows once it has read each token: the input of the place after it."""
        return self._hidden(F.pad(tokens, (0, 1)), F.pad(real, (0, 1)))[:, 1:]

    def draw(self, count: int, length: int, seed: int) -> list[str]:
        """Its own texts."""
        from ..models.frames import collect
        from ..models.watch import watch

        return collect(watch(self.model, count=count, length=length, seed=seed, defaults=False)).texts

    def _hidden(self, tokens: Tensor, real: Tensor) -> Tensor:
        batch = Batch(tokens, real).to(self.device)
        return self.method.hidden(self.method.inputs(batch), None, batch)


class Transformer:
    """A causal model of transformers."""

    kind = "transformers"

    def __init__(self, name: str, device: torch.device | str):
        try:
            import transformers
        except ImportError:
            raise not_installed(f"`judge` {name}", "transformers", "eval") from None
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        try:
            self.tokenizer, model = _read(name, True)
        except Exception as problem:
            if not _on_the_hub(name):
                raise _absent(name, problem) from problem
            try:
                self.tokenizer, model = _read(name, False)
            except Exception as problem:
                raise _absent(name, problem) from problem
        self.model, config = model.eval().to(device), model.config
        own = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        self.name, self.device = name, torch.device(device)
        self.tokenizer_name = type(self.tokenizer).__name__
        self.vocabulary, self.context = int(config.vocab_size), int(min(own, 2**20))
        self.end = self.tokenizer.eos_token_id
        first = self.tokenizer.bos_token_id
        self.first = self.end if first is None else first
        self.begins = self.first is not None
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.tokenizer_sha256 = fingerprint(self.tokenizer.get_vocab())

    @property
    def weights_sha256(self) -> str:
        return fingerprint(self.model)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return [list(row) for row in self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    def same(self, tokenizer: Any) -> bool:
        inner = getattr(tokenizer, "inner", None)
        return inner is not None and inner.get_vocab() == self.tokenizer.get_vocab()

    def nats(self, tokens: Tensor, real: Tensor, begin: bool) -> Tensor:
        """Where the first token is given there is nothing before it, and its own nats are not asked for: 0."""
        if begin:
            tokens, real = F.pad(tokens, (1, 0), value=self.first), F.pad(real, (1, 0), value=True)
        if tokens.shape[1] == 1:
            return torch.zeros(tokens.shape, dtype=torch.float64)
        read, known = tokens[:, :-1].to(self.device), real[:, 1:]
        logits = self.model(read, attention_mask=known.long().to(self.device), use_cache=False).logits
        nats = _cross_entropy(lambda i: logits[i], tokens[:, 1:], known)
        return nats if begin else F.pad(nats, (1, 0))

    def states(self, tokens: Tensor, real: Tensor) -> Tensor:
        mask = real.long().to(self.device)
        out = self.model(tokens.to(self.device), attention_mask=mask, output_hidden_states=True, use_cache=False)
        return out.hidden_states[-1]

    @torch.no_grad()
    def draw(self, count: int, length: int, seed: int) -> list[str]:
        """Its own texts, each draw in float64 from the whole law. InputError: it has no token to begin with."""
        if not self.begins:
            raise InputError(f"judge '{self.name}' has no token that begins a text, so it writes none of its own")
        texts: list[str] = []
        for batch in torch.arange(count).split(DRAWN):
            streams = [torch.Generator().manual_seed(mix(seed, "judge", int(i))) for i in batch]
            last, drawn, cache = torch.full((len(batch), 1), self.first), [], None
            for _ in range(length):
                out = self.model(last.to(self.device), past_key_values=cache, use_cache=True)
                cache, law = out.past_key_values, out.logits[:, -1].double().softmax(-1).cpu()
                last = categorical(law[:, None], streams)
                drawn.append(last)
            texts += self.tokenizer.batch_decode(torch.cat(drawn, 1), skip_special_tokens=True)
        return texts


def _read(name: str, local: bool) -> tuple[Any, Any]:
    """Tokenizer and model, from this machine alone (a folder, the hub's cache) or from the hub. Its own code is never run."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    how: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    return AutoTokenizer.from_pretrained(name, **how), AutoModelForCausalLM.from_pretrained(
        name, dtype=torch.float32, **how
    )


def _on_the_hub(name: str) -> bool:
    """Whether the hub has it, by one quick question: where there is no network the library would try for a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or not _NAME.fullmatch(name) or Path(name).is_dir():
        return False
    if remote.silence(constants.ENDPOINT):
        return False
    try:
        with urllib.request.urlopen(f"{constants.ENDPOINT}/{name}/resolve/main/config.json", timeout=10):
            return True
    except urllib.error.HTTPError as refusal:
        return refusal.code in (401, 403)  # it asks who one is, which the library may know
    except OSError:
        return False


def _cross_entropy(logits: Callable[[Any], Tensor], target: Tensor, real: Tensor) -> Tensor:
    """-log softmax of the logits (n, V) at the positions that are real, in float64, a few rows at a time: (B, T)."""
    out = torch.zeros(target.shape, dtype=torch.float64)
    for rows in real.nonzero().split(ROWS):
        at = (rows[:, 0], rows[:, 1])
        z = logits(at).double()
        out[at] = F.cross_entropy(z, target[at].to(z.device), reduction="none").cpu()
    return out


def _absent(name: str, problem: Exception) -> InputError:
    """Why there is no judge of that name, in one line."""
    folder = Path(name)
    if folder.is_dir():
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")[:120]
        return InputError(f"'{name}' holds no causal model that can be read ({reason}); give another `judge`")
    where = folder.parent
    if not _NAME.fullmatch(name) or (where.is_dir() and str(where) != "."):
        near = nearest(folder.name, [p.name for p in where.iterdir() if p.is_dir()] if where.is_dir() else [])
        hint = f"nearest in that folder: '{near}'" if near else "give a folder, or a name on the Hugging Face hub"
        return InputError(f"no judge at '{name}'; {hint}")
    return InputError(
        f"no judge '{name}' on this machine, and none on the Hugging Face hub within reach; "
        "give `judge` a folder that holds a causal model, or a run of ar"
    )
