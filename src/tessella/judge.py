"""A causal language model that judges texts: -log p of each, token by token. `Judge("gpt2-large").nats(texts)`.

Any causal model of `transformers`, from a folder or the hub (its own code is never run), or a Tessella model that is exact from
left to right (ar). Four choices change the number, and are part of its protocol (`Judge.about`):

    first   given: the first token of a text is read and not judged (SEDD, MDLM, BD3-LM, Duo: there is nothing before it);
            judged: BOS stands before it, or what the model itself begins a text with, and every token counts
    eos     first: the first EOS of a text counts, what comes after it too, but no further EOS (MDLM and what follows it);
            all: every token counts
    long    cut: of a text longer than the context its beginning alone is judged; chunks: it is judged in pieces of the context,
            each of which begins anew
    tokens  texts are tokenized by the judge's own tokenizer. A model's samples are decoded first, and what comes back may be
            other tokens: a sample need not be spelt as the tokenizer would spell it. `nats_of` judges tokens as they are.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .batch import Batch
from .errors import InputError, nearest

GPT2 = "gpt2-large"
LOGITS = 2**28  # of one call at most: 1 GB in float32
ROWS = 256  # whose logits are float64 at one time
CHOICES = {"first": ("given", "judged"), "eos": ("first", "all"), "long": ("cut", "chunks")}

Progress = Callable[[int, int], None]


class Judge:
    """A causal model as a judge of texts.

    Args:
        path: a folder (transformers, or a run or saved folder of Tessella's ar), a name on the hub, or a `Model` of ar.
        first, eos, long: see the module.
        context: tokens of a text that are judged at once; the model's own length if None, and at most.
        device: of a model that is read here.

    Attributes:
        about: everything that was chosen, for the protocol.

    Raises:
        InputError: nothing there, and no hub within reach; not causal; no token to begin with where `first` is "judged".
    """

    def __init__(
        self,
        path: Any = GPT2,
        *,
        first: str = "given",
        eos: str = "first",
        long: str = "cut",
        context: int | None = None,
        device: torch.device | str = "cpu",
    ):
        for name, value in (("first", first), ("eos", eos), ("long", long)):
            if value not in CHOICES[name]:
                raise InputError(f"--{name} is '{value}'; it must be {' or '.join(CHOICES[name])}")
        self.inner = _open(path, device)
        self.first, self.eos, self.long = first, eos, long
        if first == "judged" and not self.inner.begins:
            raise InputError(f"judge '{self.inner.name}' has no token that begins a text; use --first given")
        if context is not None and not 2 <= context <= self.inner.context:
            raise InputError(f"--context is {context:,}; this judge takes 2 to {self.inner.context:,} tokens")
        self.context = context or self.inner.context

    @property
    def about(self) -> dict[str, Any]:
        """What the protocol says of it."""
        inner = self.inner
        return {
            "judge": inner.name, "kind": inner.kind, "parameters": inner.parameters, "tokenizer": inner.tokenizer_name,
            "vocabulary": inner.vocabulary, "network": "float32", "context": self.context, "first": self.first,
            "eos": self.eos if inner.end is not None else "none", "long": self.long,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------------ texts
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text in the judge's tokens, without any that begin or end it."""
        return self.inner.encode(texts)

    def nats(self, texts: Sequence[str], progress: Progress | None = None) -> tuple[Tensor, Tensor]:
        """-log p of each text in nats (N,) float64, and how many of its tokens were judged (N,) long."""
        return self.nats_of(self.encode(texts), progress)

    # ------------------------------------------------------------------------------------------------ tokens
    @torch.no_grad()
    def nats_of(self, rows: Sequence[Sequence[int]], progress: Progress | None = None) -> tuple[Tensor, Tensor]:
        """The same of rows of the judge's own tokens, as they are. InputError where one is not in its vocabulary."""
        largest, V = max((max(row) for row in rows if row), default=0), self.inner.vocabulary
        if largest >= V:
            raise InputError(f"token {largest:,} is not in the judge's vocabulary of {V:,}; leave out --tokens own")
        pieces, of = self._pieces(rows)
        nats = torch.zeros(len(rows), dtype=torch.float64)
        judged = torch.zeros(len(rows), dtype=torch.long)
        done = 0
        for group in self._batches(pieces):
            tokens, real = _padded([pieces[i] for i in group])
            counts = real & self._counted(tokens)
            found = self.inner.nats(tokens, real, self.first == "judged")  # (B, T), of each token
            where = torch.tensor([of[i] for i in group])
            nats.index_add_(0, where, torch.where(counts, found, 0.0).sum(-1))
            judged.index_add_(0, where, counts.sum(-1))
            done += len(group)
            if progress:
                progress(done, len(pieces))
        return nats, judged

    @torch.no_grad()
    def features(self, texts: Sequence[str], progress: Progress | None = None) -> Tensor:
        """(N, D) the last hidden state after the last token of each text, cut one short of the context: what MAUVE compares."""
        rows = [row[: self.context - 1] for row in self.encode(texts)]
        if any(not row for row in rows):
            raise InputError("a text without tokens has no features; leave out --mauve, or the empty texts")
        found: dict[int, Tensor] = {}
        for group in self._batches(rows):
            tokens, real = _padded([rows[i] for i in group])
            states = self.inner.states(tokens, real)
            last = real.sum(-1) - 1
            found |= zip(group, states[torch.arange(len(group)), last].float().cpu())
            if progress:
                progress(len(found), len(rows))
        return torch.stack([found[i] for i in range(len(rows))])

    def cut(self, rows: Sequence[Sequence[int]]) -> int:
        """How many of these rows are longer than the context."""
        return sum(len(row) > self.context for row in rows)

    def _pieces(self, rows: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[int]]:
        """What is read at once, and the row each piece is of."""
        pieces, of = [], []
        for number, row in enumerate(rows):
            end = len(row) if self.long == "chunks" else self.context
            for at in range(0, min(len(row), end), self.context):
                pieces.append(row[at : at + self.context])
                of.append(number)
        return pieces, of

    def _batches(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Rows of about the same length together, so many that their logits have room."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches: list[list[int]] = []
        for i in order:
            room = max(1, LOGITS // (self.inner.vocabulary * max(len(rows[i]), 1)))
            if batches and len(batches[-1]) < room:
                batches[-1].append(i)
            else:
                batches.append([i])
        return batches

    def _counted(self, tokens: Tensor) -> Tensor:
        """(B, T) bool, which tokens count."""
        counted = torch.ones_like(tokens, dtype=torch.bool)
        if self.first == "given":
            counted[:, 0] = False
        if self.eos == "first" and self.inner.end is not None:
            end = tokens == self.inner.end
            counted &= ~end | (end.cumsum(-1) == 1)
        return counted


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows as (B, T) tokens, filled up with 0 on the right, and where they are (B, T) bool."""
    T = max(len(row) for row in rows)
    tokens = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows])
    return tokens, torch.arange(T) < torch.tensor([[len(row)] for row in rows])


# ------------------------------------------------------------------------------------------------------------- whose model
def _open(path: Any, device: torch.device | str) -> Any:
    """The model behind a judge: Tessella's where the folder is its own, else one of transformers."""
    if hasattr(path, "method"):
        return _Own(path, getattr(path.config, "method", "ar"))
    name = str(path)
    folder = Path(name)
    config = folder / "config.json"
    try:
        theirs = config.is_file() and "model_type" in json.loads(config.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"'{config}' is not JSON; copy it again from where it was trained") from None
    if folder.is_dir() and not theirs:
        from .checkpoint import load

        return _Own(load(name, device=device), name)
    return _Transformer(name, device)


class _Own:
    """A Tessella model that is exact from left to right."""

    kind, begins = "tessella", True

    def __init__(self, model: Any, name: str):
        method = self.method = model.method.eval()
        if not (method.exact and method.predicts == "next"):
            raise InputError(f"judge '{name}' holds {method.name}, which says no next token; give a run of ar")
        self.name, self.tokenizer = name, model.tokenizer
        self.tokenizer_name, self.vocabulary = self.tokenizer.name, self.tokenizer.size
        by_tokens = self.tokenizer.unit == "token"  # of characters the separator is a space or a line end, and text
        self.end = self.tokenizer.separator if by_tokens else None
        self.context, self.parameters = int(method.window), sum(p.numel() for p in method.parameters())
        self.device = next(method.parameters()).device

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

    def _hidden(self, tokens: Tensor, real: Tensor) -> Tensor:
        batch = Batch(tokens, real).to(self.device)
        return self.method._features(self.method.inputs(batch), None, batch)


class _Transformer:
    """A causal model of transformers."""

    kind = "transformers"

    def __init__(self, name: str, device: torch.device | str):
        try:
            import transformers
        except ImportError:
            raise InputError(f"--judge {name} needs 'transformers'; pip install 'tessella[eval]'") from None
        from transformers import AutoModelForCausalLM, AutoTokenizer

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
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
        found = _cross_entropy(lambda i: logits[i], tokens[:, 1:], known)
        return found if begin else F.pad(found, (1, 0))

    def states(self, tokens: Tensor, real: Tensor) -> Tensor:
        mask = real.long().to(self.device)
        out = self.model(tokens.to(self.device), attention_mask=mask, output_hidden_states=True, use_cache=False)
        return out.hidden_states[-1]


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
        said = (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")[:120]
        return InputError(f"'{name}' holds no causal model that can be read ({said}); give another --judge")
    where = folder.parent
    if name.startswith((".", "/")) or (where.is_dir() and str(where) != "."):
        near = nearest(folder.name, [p.name for p in where.iterdir() if p.is_dir()] if where.is_dir() else [])
        hint = f"nearest in that folder: '{near}'" if near else "give a folder, or a name on the Hugging Face hub"
        return InputError(f"no judge at '{name}'; {hint}")
    return InputError(
        f"no judge '{name}' on this machine, and none on the Hugging Face hub within reach; "
        "give --judge a folder that holds a causal model, or a run of ar"
    )
