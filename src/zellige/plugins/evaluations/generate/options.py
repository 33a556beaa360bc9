"""Options of `zellige evaluate --generate`, about a model's samples. It imports no torch."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from zellige.base.errors import InputError
from zellige.base.requests import Request, aside, data_of_json, declared, option
from zellige.data import Data
from zellige.models.decoding import Decoding
from zellige.show.terminal import Terminal

R = TypeVar("R")


@declared
class SamplesRequest(Decoding, Request[R]):
    """The fields of `request.EvaluateSamples`, which runs it."""

    judge: str = option(
        "autoregressive model that scores text; a folder or hub id of transformers, or a run of ar",
        default="gpt2-large",
    )
    tokens: Literal["retokenized", "own"] = option(
        "tokens that the judge reads: the samples' texts, tokenized again, or the samples' own, if it has the same tokens",
        default="retokenized",
    )
    first: Literal["given", "judged"] = option(
        "first token of a text: read only (given), or judged after BOS", default="given"
    )
    eos: Literal["first", "all"] = option(
        "which EOS of a text (of a piece, with `long` chunks) are scored", default="first"
    )
    long: Literal["cut", "chunks"] = option(
        "for a text longer than the judge's context: judge its beginning (cut), or all of it in pieces (chunks)",
        default="cut",
    )
    context: int | None = option("context of the judge, in tokens (default: its length)", default=None)
    count: int = option(
        "number of samples (at each point of a curve)", default=256, minimum=2, why="an interval needs two"
    )
    sampler: str | None = option(
        "how tokens are sampled (default: the method's own); all: zellige list samplers", default=None
    )
    options: Mapping[str, Any] | None = option("options of the sampler by name", default=None, hidden=True)
    temperature: float = option("below 1 favours likely tokens, 0 takes the likeliest", default=1.0, minimum=0)
    top_p: float = option("keep the likeliest tokens up to this total probability", default=1.0, above=0, maximum=1)
    length: int | None = option("tokens per sample (default: the model's length)", default=None)
    prompt_tokens: int | None = option(
        "begin each sample with this many tokens of a real text; compare with its true continuation (default: the "
        "part that data.given gave in training)",
        default=None,
        minimum=0,
    )
    suffix_tokens: int | None = option(
        "also end each sample with this many tokens of that text", default=None, minimum=0
    )
    samples_per_text: int = option(
        "samples of each real text of which a part is given; `count` is then the number of texts", default=1, minimum=1
    )
    classes: tuple[str, ...] = option(
        "for a model with classes: sample these in turn, by name or number, or all (default: none)",
        default=(),
        flag="class",
    )
    guidances: tuple[float, ...] = option(
        "curve of quality against guidance to the class, at these strengths: 0 1 2 4",
        default=(),
        minimum=0,
        maximum=1000,
    )
    frontier: bool = option("curve of perplexity against entropy, over usual temperatures and top-p", default=False)
    temperatures: tuple[float, ...] = option("the frontier at these temperatures: 0.7 0.8 0.9 1", default=())
    top_ps: tuple[float, ...] = option("the frontier at these top-p: 0.8 0.9 0.95", default=())
    calls: tuple[int, ...] = option(
        "curve of quality against network evaluations; at these steps: 8 16 32 64 128", default=()
    )
    samplers: tuple[str, ...] = option(
        "samplers to compare with `calls`; with options: confidence:entropy_bound=0.1 (default: the model's own, "
        "first_hitting, confidence, remasking)",
        default=(),
    )
    samples: str | None = option(
        "judge the samples of this file; JSON lines with the field text, or one text per line", default=None
    )
    reference: str = option(
        "real data to compare with; a split of the data, a file of texts, or none; for images a split", default="test"
    )
    data: Data | None = option(
        "another data set than the run's own", default=None, hidden=True, read=partial(data_of_json, Data)
    )
    features: str | None = option(
        "network whose features are compared; for images (FID) inception, the file of its weights, or a folder of "
        "zellige evaluate --train-features; for texts (energy distance, MMD) judge, ngrams, or a model: a run, a "
        "folder or a hub id",
        default=None,
    )
    distances: bool = option(
        "distances to real text, compared with those of other real text, and memorisation", default=True
    )
    cheats: bool = option(
        "measure degenerate samplers too: repeated and copied text, unigrams, cold samples, the judge's own",
        default=False,
    )
    mauve: bool = option("also compute MAUVE against the real text; on the judge's features", default=False)
    batch: int | None = option("samples drawn at once", default=None)
    seed: int = option("random seed of the samples", default=0)
    device: str = aside("where the judge works when there is no model", default="cpu")
    terminal: Terminal | None = aside("where progress and notes are shown", default=None)
    keep: Callable[..., object] | None = aside(
        "called with the sets of samples that were drawn, before they are judged", default=None
    )

    def __post_init__(self) -> None:
        drawing = ("frontier", "temperatures", "top_ps", "calls", "samplers", "classes", "guidances")
        if self.samples and (name := next((name for name in drawing if getattr(self, name)), None)):
            raise InputError(f"`{name}` says how samples are drawn, and `samples` gives them; leave one of the two out")
        if self.samplers and not self.calls:
            raise InputError("`samplers` goes with `calls`; e.g. `calls` 8 16 32 64, or `sampler` for a single one")

        if self.guidances and not self.classes:
            raise InputError("`guidances` is the strength of guidance to a class; name it by `classes`")
