"""The adapter to lm-evaluation-harness: its tasks judge any Zellige model of text.

    python -m zellige.harness --model zellige --model_args path=runs/mine,draws=32,seed=0 --tasks lambada_openai

takes all options of the `lm_eval` command. That command itself knows only the models that come with it (0.4.13 looks for no
others), so a model of another package registers its class and calls the same entry; that is what this module does. In Python:

    import zellige.harness
    lm_eval.simple_evaluate(model="zellige", model_args="path=runs/mine,draws=32", tasks=["lambada_openai"])

    loglikelihood            minus the conditional bound (`conditional.bound`), so at most log p; exact for ar
    loglikelihood_rolling    the same of a whole text, in pieces of the network's length
    generate_until           what the method's own sampler writes after the prompt, cut at the first of the stop strings

Chat templates are not supported.
"""

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from .core.batch import by_length
from .core.random import Streams, mix
from .errors import InputError, check_counts, not_installed
from .evaluation import conditional
from .models.defaults import end_token
from .models.frames import Frame
from .models.model import as_model, identity, told_none
from .samplers import choose_sampler, run
from .samplers.pairing import blank, of_length
from .samplers.sampler import start_distribution
from .show.kinds import added, of
from .show.record import versions

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from tqdm import tqdm
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "lm_eval":
        raise
    sentence = not_installed("lm-evaluation-harness", "lm_eval", "harness")
    if __name__ == "__main__":
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
    raise sentence from None

TOKENS = 256  # are generated where a task names no number
KNOWN = ("until", "max_gen_toks", "do_sample", "temperature", "top_p")


@register_model("zellige")
class Zellige(LM):
    """A Zellige model as lm-evaluation-harness sees it; the arguments are those of `--model_args`.

    Args:
        path: a run, a saved folder or a hub id.
        draws: of the bound of each request.
        seed: of everything that is drawn.
        batch_size: requests in one call of the network, of as many rows as draws each; the likelihoods do not depend on it.
        device: "cpu" or "cuda"; a GPU if there is one.
        prefix: the token that ends documents stands before each context.
        steps, sampler: of generation; the method's own if not given.
        max_batch_size: the harness hands it over; not used.
        options: of the sampler.
    """

    def __init__(
        self,
        path: str = "",
        draws: int = conditional.DRAWS,
        seed: int = 0,
        batch_size: int | str = 1,
        device: str | None = None,
        prefix: bool = False,
        steps: int | None = None,
        sampler: str | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ):
        super().__init__()
        if not path:
            raise InputError("the harness needs a model; e.g. --model_args path=runs/demo")
        self.model = as_model(str(path))
        kind = of(self.model.tokenizer)
        if not kind.running:
            raise InputError(f"the tasks are texts, and '{path}' makes {kind.many}; use a model of text")
        requests = 1 if str(batch_size).startswith("auto") else int(batch_size)
        check_counts(draws=draws, batch_size=requests)
        self.requests, self.draws, self.seed, self.prefix = requests, draws, seed, prefix
        self.steps, self.sampler, self.options = steps, sampler, options
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model.to(self._device)
        self._write([], {}, [])  # a wrong sampler or option is said now
        if self.told:
            logging.getLogger(__name__).warning(
                "the model was trained with classes; every task is %s", self.told["class"]
            )

    @property
    def tokenizer_name(self) -> str:
        return self.model.tokenizer.name.replace("/", "__")

    @property
    def told(self) -> dict[str, str]:
        """Of a model with classes: that the tasks tell it none."""
        return told_none(self.model)

    def get_model_info(self) -> dict[str, Any]:
        """What the harness writes into the `config` of its results: which model, by its hashes too, what it is told, on
        what."""
        return {"identity": identity(self.model), **self.told, "versions": versions()}

    # ---------------------------------------------------------------------------------- likelihoods
    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Of each (context, continuation): minus the conditional bound, and whether greedy decoding from the left gives it."""
        pairs = [request.args[:2] for request in requests]
        nats = self._nats(pairs, disable_tqdm)
        tokens = [conditional.tokenize_pair(self.model.tokenizer, pair[0], pair[1], self.prefix) for pair in pairs]
        same = conditional.greedy(self.model.method, tokens, self.requests * self.draws)
        return self._into_cache("loglikelihood", requests, [(-n, s) for n, s in zip(nats, same)])

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Of each text: minus the bound of all of it, in pieces of the network's length."""
        nats = self._nats([("", request.args[0]) for request in requests], disable_tqdm)
        return self._into_cache("loglikelihood_rolling", requests, [-n for n in nats])

    def _nats(self, pairs: Sequence[tuple[str, str]], quiet: bool) -> list[float]:
        with tqdm(total=1, disable=quiet, desc="zellige: bounds") as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            rows = self.requests * self.draws
            bounds = conditional.bound(
                self.model, pairs, self.draws, self.seed, rows, prefix=self.prefix, progress=progress
            )
        return bounds.nats.tolist()

    def _into_cache(self, name: str, requests: Sequence[Any], answers: list[Any]) -> list[Any]:
        """The answers, also put into the harness's cache where it has one."""
        for request, value in zip(requests, answers):
            self.cache_hook.add_partial(name, request.args, value)
        return answers

    # ---------------------------------------------------------------------------------- generation
    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What is written after each (prompt, options): until one of `until`, or `max_gen_toks` tokens.

        The temperature is 0 unless the options say `do_sample` or a temperature. Of a prompt that leaves too little room the
        beginning is lost, unless the sampler writes texts of any length. A text has its own random numbers, a function of the
        seed, its prompt and its options.
        """
        texts = [""] * len(requests)
        prompts = [self._prompt(*request.args[:2]) for request in requests]
        same = [repr(sorted(request.args[1].items(), key=str)) for request in requests]
        seen: Counter[tuple] = Counter()
        seeds = []
        for prompt, how in zip(prompts, same):  # a task may ask for several texts after one prompt
            key = (*prompt, how)
            seeds.append(mix(self.seed, seen[key], *key))
            seen[key] += 1
        kinds = {how: number for number, how in enumerate(dict.fromkeys(same))}
        lengths = [len(prompt) * len(kinds) + kinds[how] for prompt, how in zip(prompts, same)]  # alike in both
        with tqdm(total=len(requests), disable=disable_tqdm, desc="zellige: texts") as bar:
            for group in by_length(lengths, max(self.requests, 1)):
                how = requests[group[0]].args[1]
                drawn = self._write([prompts[i] for i in group], how, [seeds[i] for i in group])
                for i, text in zip(group, drawn):
                    texts[i] = text
                bar.update(len(group))
        return self._into_cache("generate_until", requests, texts)

    def _prompt(self, context: str, how: dict[str, Any]) -> list[int]:
        """The tokens of the prompt, of which the beginning is left out where the text would not fit."""
        tokenizer, length = self.model.tokenizer, int(self.model.method.shape[0])
        tokens = [tokenizer.separator] * self.prefix + (tokenizer.encode(context, "the prompt") if context else [])
        if self._chosen(how).grows:
            return tokens
        return tokens[-(length - min(_most(how), length // 2)) :] if len(tokens) + _most(how) > length else tokens

    def _chosen(self, how: dict[str, Any]) -> Any:
        """The sampler for these options."""
        unknown = [name for name in how if name not in KNOWN]
        if unknown:
            logging.getLogger(__name__).warning("ignored in generation: %s", ", ".join(unknown))
        heat = (
            0.0
            if how.get("do_sample") is False
            else float(how.get("temperature", 1.0 if how.get("do_sample") else 0.0))
        )
        end = end_token(self.model.tokenizer, self._documents)
        return choose_sampler(
            self.sampler, self.model.method, heat, float(how.get("top_p", 1.0)), dict(self.options), end
        )

    @property
    def _documents(self) -> bool:
        """Whether the model was trained on documents, so that a token that ends one ends a text."""
        return getattr(getattr(self.model.config, "data", None), "pack", "wrap") != "wrap"

    def _write(self, prompts: list[list[int]], how: dict[str, Any], seeds: list[int]) -> list[str]:
        """What is written after prompts of one length."""
        sampler = self._chosen(how)
        if not prompts:
            return []
        tokenizer, method, prefix_length = self.model.tokenizer, self.model.method, len(prompts[0])
        most = _most(how) if sampler.grows else min(_most(how), int(method.shape[0]) - prefix_length)
        fixed = torch.tensor([prompt + [-1] * most for prompt in prompts], device=self._device)
        sampler.admit(method, fixed)
        streams = Streams(seeds, start_distribution(method).device)
        *_, state = run(sampler, method, tuple(fixed.shape), self.steps, fixed=fixed, generator=streams)  # pyright: ignore
        end = end_token(tokenizer, True) if self._documents else None
        rows, mask = state.x.tolist(), blank(of_length(method, fixed.shape[1]))
        ends = Frame(state, 1, 1, 0.0, state.x, 0, len(rows), 0.0, tokenizer, mask, end).ends
        texts = [added(tokenizer, row[:prefix_length], row[prefix_length:stop]) for row, stop in zip(rows, ends)]
        return [_cut(text, how.get("until")) for text in texts]


def _most(how: dict[str, Any]) -> int:
    """How many tokens are written."""
    return int(how.get("max_gen_toks", TOKENS))


def _cut(text: str, until: Sequence[str] | str | None) -> str:
    """The text before the first of the stop strings."""
    for stop in [until] if isinstance(until, str) else until or []:
        text = text.partition(stop)[0] if stop else text
    return text


def main() -> int:
    """Run lm-evaluation-harness's own command line with the model `zellige`; wrong input is one line and exit code 2."""
    from lm_eval.__main__ import cli_evaluate

    from .show.numbers import escape

    try:
        cli_evaluate()
    except InputError as error:
        print(f"error: {escape(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from zellige import harness  # under this name the model is registered once

    sys.exit(harness.main())
