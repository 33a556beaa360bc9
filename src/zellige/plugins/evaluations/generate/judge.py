"""A causal language model that judges texts: -log p of each, token by token. `Judge("gpt2-large").nats(texts)`.

Any causal model of `transformers`, from a folder or the hub (its own code is never run), or a Zellige model that is
exact from left to right (ar). Four choices change the number, and are part of its protocol (`Judge.about`):

    first   given: the first token of a text is read and not judged (SEDD, MDLM, BD3-LM, Duo: there is nothing before it);
            judged: BOS stands before it, or what the model itself begins a text with, and every token counts
    eos     first: the first EOS of a text counts, in chunks that of each, what comes after it too, but no further EOS (MDLM
            and what follows it); all: every token counts
    long    cut: of a text longer than the context its beginning alone is judged; chunks: it is judged in pieces of the context,
            each of which begins anew
    tokens  texts are tokenized by the judge's own tokenizer. A model's samples are decoded first, and what comes back may be
            other tokens: a sample need not be spelt as the tokenizer would spell it. `nats_of` judges tokens as they are.

Behind a judge stands a model of `transformers` or one of our own. Both offer `encode(texts)`, `same(tokenizer)`,
`nats(tokens, real, begin)` of each token (B, T), `states` (B, T, D), and what the protocol says of them, such as the
sha256 of weights and tokenizer. Rows are padded on the right; `real` (B, T) bool says where their tokens are.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.base.errors import InputError, nearest, not_installed
from zellige.base.requests import Progress
from zellige.base.schema import read_json
from zellige.core.batch import Batch, padded
from zellige.core.random import categorical, mix
from zellige.data import remote
from zellige.data.tokenizer_base import Tokenizer
from zellige.models.model import Model, fingerprint

GPT2 = "gpt2-large"
LOGITS = 2**28  # of one call at most: 1 GB in float32
CHOICES = {"first": ("given", "judged"), "eos": ("first", "all"), "long": ("cut", "chunks")}


@dataclass(frozen=True)
class JudgeIdentity:
    """All that a judge's numbers depend on, as the protocol of a result states it; see the module for the choices."""

    judge: str
    kind: str
    parameters: int
    tokenizer: str
    vocabulary: int
    network: str
    context: int
    first: str
    eos: str
    long: str
    weights_sha256: str
    tokenizer_sha256: str


class Judge:
    """A causal model as a judge of texts.

    Args:
        path: a folder (transformers, or a run or saved folder of Zellige's ar), a name on the hub, or a `Model` of ar.
        first, eos, long: see the module.
        context: tokens of a text that are judged at once; the model's own length if None, and at most.
        device: of a model that is read here.

    Raises:
        InputError: nothing there, and no hub within reach; not causal; no token to begin with where `first` is
            "judged".
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
                raise InputError(f"`{name}` is '{value}'; it must be {' or '.join(CHOICES[name])}")
        self.inner = causal_model(path, device)
        self.first, self.eos, self.long = first, eos, long
        if first == "judged" and not self.inner.begins:
            raise InputError(f"judge '{self.inner.name}' has no token that begins a text; use `first` given")
        if context is not None and not 2 <= context <= self.inner.context:
            raise InputError(f"`context` is {context:,}; this judge takes 2 to {self.inner.context:,} tokens")
        self.context = context or self.inner.context

    @cached_property
    def about(self) -> JudgeIdentity:
        """The judge and its choices, for the protocol, with the sha256 of its weights and of its tokenizer."""
        inner = self.inner
        return JudgeIdentity(
            inner.name, inner.kind, inner.parameters, inner.tokenizer_name, inner.vocabulary, "float32", self.context,
            self.first, self.eos if inner.end is not None else "none", self.long, inner.weights_sha256,
            inner.tokenizer_sha256,
        )  # fmt: skip

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
            raise InputError(f"token {largest:,} is not in the judge's vocabulary of {V:,}; leave out `tokens` own")
        pieces, of = self._pieces(rows)
        nats = torch.zeros(len(rows), dtype=torch.float64)
        counts_of_texts = torch.zeros(len(rows), dtype=torch.long)
        count = 0
        for group in self._batches(pieces):
            tokens, real = padded([pieces[i] for i in group])
            counts = real & self._counted(tokens)
            token_nats = self.inner.nats(tokens, real, self.first == "judged")  # (B, T), of each token
            where = torch.tensor([of[i] for i in group])
            nats.index_add_(0, where, torch.where(counts, token_nats, 0.0).sum(-1))
            counts_of_texts.index_add_(0, where, counts.sum(-1))
            count += len(group)
            if progress:
                progress(count, len(pieces))
        return nats, counts_of_texts

    @torch.no_grad()
    def features(self, texts: Sequence[str], progress: Progress | None = None) -> Tensor:
        """(N, D) the last hidden state after the last token of each text, cut one short of the context:
        what MAUVE compares."""
        rows = [row[: self.context - 1] for row in self.encode(texts)]
        if any(not row for row in rows):
            raise InputError("a text without tokens has no features; leave out `mauve`, or the empty texts")
        vectors: dict[int, Tensor] = {}
        for group in self._batches(rows):
            tokens, real = padded([rows[i] for i in group])
            states = self.inner.states(tokens, real)
            last = real.sum(-1) - 1
            vectors |= zip(group, states[torch.arange(len(group)), last].float().cpu())
            if progress:
                progress(len(vectors), len(rows))
        return torch.stack([vectors[i] for i in range(len(rows))])

    @torch.no_grad()
    def means(self, texts: Sequence[str]) -> Tensor:
        """(N, D) the mean over each text's tokens of the last hidden states, cut one short of the context;
        zeros of no tokens."""
        rows = [row[: self.context - 1] for row in self.encode(texts)]
        vectors: dict[int, Tensor] = {}
        for group in self._batches([row or [0] for row in rows]):
            tokens, real = padded([rows[i] or [0] for i in group])
            states = self.inner.states(tokens, real).float().cpu()
            weights = real.float() / real.sum(-1, keepdim=True)
            vectors |= zip(group, torch.einsum("btd,bt->bd", states, weights))
        return torch.stack([vectors[i] if rows[i] else torch.zeros_like(vectors[i]) for i in range(len(rows))])

    def draw(self, count: int, length: int, seed: int = 0) -> list[str]:
        """Texts of its own, of `length` tokens, or as many as it takes at once; text i has the stream of (seed, i)."""
        return self.inner.draw(count, min(length, self.context - 1), seed)

    def cut(self, rows: Sequence[Sequence[int]]) -> int:
        """Number of these rows that are longer than the context."""
        return sum(len(row) > self.context for row in rows)

    def _pieces(self, rows: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[int]]:
        """Pieces that are read at once, and the row of each."""
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
        counts = torch.ones_like(tokens, dtype=torch.bool)
        if self.first == "given":
            counts[:, 0] = False
        if self.eos == "first" and self.inner.end is not None:
            end = tokens == self.inner.end
            counts &= ~end | (end.cumsum(-1) == 1)
        return counts


@dataclass(frozen=True)
class JudgeReading:
    """N texts, judged.

    Attributes:
        rows: the tokens of each that entropy and n-grams are of: the model's own, or else the judge's.
        nats, tokens: (N,) of each by the judge, and how many of its tokens that is about.
        cut: how many are longer than the judge's context.
    """

    rows: Sequence[Sequence[int]]
    nats: Tensor
    tokens: Tensor
    cut: int

    @property
    def rates(self) -> np.ndarray:
        """(N,) nats per token of each; NaN where no token was judged."""
        tokens = self.tokens.double().numpy()
        return np.where(tokens > 0, self.nats.double().numpy() / np.maximum(tokens, 1), np.nan)


def read_texts(
    texts: Sequence[str],
    rows: Sequence[Sequence[int]] | None,
    judge: Judge,
    own: bool = False,
    progress: Progress | None = None,
) -> JudgeReading:
    """Texts as the judge reads them, tokenized again; or, if `own`, their own tokens, which must be its own too."""
    if own and rows is None:
        raise InputError("these samples come without tokens; leave out `tokens` own")
    read = rows if own and rows is not None else judge.encode(texts)
    nats, tokens = judge.nats_of(read, progress)
    return JudgeReading(rows if rows is not None else read, nats, tokens, judge.cut(read) if judge.long == "cut" else 0)


DRAWN = 64  # texts of its own at once
ROWS = 256  # whose logits are float64 at one time
_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")  # on the hub


def of_transformers(folder: Path) -> bool:
    """Return whether a folder holds a model of transformers, as its config.json says."""
    config = folder / "config.json"
    return config.is_file() and "model_type" in read_json(config)


def causal_model(path: Any, device: torch.device | str) -> Any:
    """The model behind a judge: Zellige's where the folder is its own, else one of transformers."""
    if hasattr(path, "method"):
        return Own(path, getattr(path.config, "method", "ar"))
    name = str(path)
    folder = Path(name)
    if folder.is_dir() and not of_transformers(folder):
        from zellige.models.model import load

        return Own(load(name, device=device), name)
    return Transformer(name, device)


class Own:
    """A Zellige model that is exact from left to right."""

    kind, begins = "zellige", True

    def __init__(self, model: Model, name: str):
        method = self.method = model.method.eval()
        if not (method.exact and method.parameterization == "next"):
            raise InputError(f"judge '{name}' holds {method.name}, which says no next token; give a run of ar")
        self.name, self.tokenizer, self.model = name, model.tokenizer, model
        self.tokenizer_name, self.vocabulary = self.tokenizer.name, self.tokenizer.size
        by_tokens = self.tokenizer.unit == "token"  # of characters the separator is a space or a line end, and text
        self.end = self.tokenizer.separator if by_tokens else None
        self.context, self.parameters = int(method.window), method.parameter_count
        self.device = next(method.parameters()).device
        self.tokenizer_sha256 = self.tokenizer.fingerprint

    @property
    def weights_sha256(self) -> str:
        return fingerprint(self.method)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.tokenizer.encode(text, f"text {i + 1:,}") for i, text in enumerate(texts)]

    def same(self, tokenizer: Tokenizer) -> bool:
        return self.tokenizer.fingerprint == tokenizer.fingerprint

    def nats(self, tokens: Tensor, real: Tensor, begin: bool) -> Tensor:
        """It reads what begins a text in either case; where the first token is given it is not counted."""
        h = self._hidden(tokens, real)
        return _cross_entropy(lambda i: self.method.network.head(h[i]), tokens, real)

    def states(self, tokens: Tensor, real: Tensor) -> Tensor:
        """Hidden state after each token: the input of the next position."""
        return self._hidden(F.pad(tokens, (0, 1)), F.pad(real, (0, 1)))[:, 1:]

    def draw(self, count: int, length: int, seed: int) -> list[str]:
        """Its own texts."""
        from zellige.sampling.sample import watch
        from zellige.sampling.samples import collect

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
        limit = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        self.name, self.device = name, torch.device(device)
        self.tokenizer_name = type(self.tokenizer).__name__
        self.vocabulary, self.context = int(config.vocab_size), int(min(limit, 2**20))
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

    def same(self, tokenizer: Tokenizer) -> bool:
        inner = getattr(tokenizer, "inner", None)
        return inner is not None and inner.get_vocab() == self.tokenizer.get_vocab()

    def nats(self, tokens: Tensor, real: Tensor, begin: bool) -> Tensor:
        """Where the first token is given there is nothing before it, and its own nats are not asked for: 0."""
        if begin:
            tokens, real = F.pad(tokens, (1, 0), value=self.first), F.pad(real, (1, 0), value=True)
        if tokens.shape[1] == 1:
            return torch.zeros(tokens.shape, dtype=torch.float64)
        read, real_inputs = tokens[:, :-1].to(self.device), real[:, 1:]
        logits = self.model(read, attention_mask=real_inputs.long().to(self.device), use_cache=False).logits
        nats = _cross_entropy(lambda i: logits[i], tokens[:, 1:], real_inputs)
        return nats if begin else F.pad(nats, (1, 0))

    def states(self, tokens: Tensor, real: Tensor) -> Tensor:
        mask = real.long().to(self.device)
        out = self.model(tokens.to(self.device), attention_mask=mask, output_hidden_states=True, use_cache=False)
        return out.hidden_states[-1]

    @torch.no_grad()
    def draw(self, count: int, length: int, seed: int) -> list[str]:
        """Its own texts, each draw in float64 from the whole distribution. InputError:
        it has no token to begin with."""
        if not self.begins:
            raise InputError(f"judge '{self.name}' has no token that begins a text, so it writes none of its own")
        texts: list[str] = []
        for batch in torch.arange(count).split(DRAWN):
            streams = [torch.Generator().manual_seed(mix(seed, "judge", int(i))) for i in batch]
            last, columns, cache = torch.full((len(batch), 1), self.first), [], None
            for _ in range(length):
                out = self.model(last.to(self.device), past_key_values=cache, use_cache=True)
                cache, probabilities = out.past_key_values, out.logits[:, -1].double().softmax(-1).cpu()
                last = categorical(probabilities[:, None], streams)
                columns.append(last)
            texts += self.tokenizer.batch_decode(torch.cat(columns, 1), skip_special_tokens=True)
        return texts


def _read(name: str, local: bool) -> tuple[Any, Any]:
    """Tokenizer and model, from this machine alone (a folder, the hub's cache) or from the hub.
    Its own code is never run."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    how: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    return AutoTokenizer.from_pretrained(name, **how), AutoModelForCausalLM.from_pretrained(
        name, dtype=torch.float32, **how
    )


def _on_the_hub(name: str) -> bool:
    """Return whether the hub has it, by one quick request: without a network the library would try for a minute."""
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
