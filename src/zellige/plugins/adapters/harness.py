"""The adapter to lm-evaluation-harness: its tasks evaluate any Zellige model of text.

    python -m zellige.plugins.adapters.harness --model zellige --model_args path=runs/mine,draws=32,seed=0 --tasks
    lambada_openai

takes all options of the `lm_eval` command. That command itself knows only its own models (0.4.13 looks for no others),
so a package of another model registers its class and calls the same entry, as this module does. In Python:

    import zellige.plugins.adapters.harness
    lm_eval.simple_evaluate(model="zellige", model_args="path=runs/mine,draws=32", tasks=["lambada_openai"])

    loglikelihood            minus the conditional bound (`conditional.bound`), so at most log p; exact for ar
    loglikelihood_rolling    the same of a whole text, in pieces of the network's length
    generate_until           a continuation of the prompt by the method's own sampler, cut at the first of the stop strings

Chat templates are not supported.
"""

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from zellige.base.errors import InputError, check_counts, not_installed
from zellige.core.batch import by_length, usable
from zellige.core.random import Streams, mix
from zellige.evaluation import conditional
from zellige.models.class_names import told_none
from zellige.models.decoding import Decoding
from zellige.models.ends import end_token, trained_on_documents
from zellige.models.model import as_model, identity
from zellige.samplers import Sampler, run
from zellige.samplers.sampler import start_distribution
from zellige.show.kinds import added, of
from zellige.show.record import versions

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


class Zellige(LM):
    """A Zellige model for lm-evaluation-harness; the arguments are those of `--model_args`.

    Args:
        path: a run, a saved folder or a hub id.
        draws: Monte Carlo samples of the bound of each request.
        seed: of all random numbers.
        batch_size: requests in one network evaluation, of `draws` rows each; the likelihoods do not depend on it.
        device: "cpu" or "cuda"; a GPU if there is one, else the CPU, whatever GPU is named: the harness names "cuda:0"
            by itself.
        prefix: put the token that ends documents before each context.
        max_batch_size: given by the harness; not used.
        decoding: of generation, the fields of `models.decoding.Decoding` and the options of the sampler; by default the
            method's own sampler.
    """

    def __init__(
        self,
        path: str = "",
        draws: int = conditional.DRAWS,
        seed: int = 0,
        batch_size: int | str = 1,
        device: str | None = None,
        prefix: bool = False,
        max_batch_size: int | None = None,
        **decoding: Any,
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
        self.decoding = Decoding.of(**decoding)
        if self.decoding.guidance is not None:
            raise InputError("`guidance` needs a class, and a task gives none; leave it out")
        if self.decoding.best_of is not None:
            raise InputError("`best_of` chooses among finished samples, and a task takes each as it is; leave it out")
        self._device = usable(_device(device))
        self.model.to(self._device)
        self._sampler({})  # raises at once where a sampler or an option is wrong
        if self.class_note:
            logging.getLogger(__name__).warning(
                "the model was trained with classes; every task is %s", self.class_note["class"]
            )

    @property
    def tokenizer_name(self) -> str:
        return self.model.tokenizer.name.replace("/", "__")

    @property
    def class_note(self) -> dict[str, str]:
        """The entry of a protocol for a model with classes: the tasks give it none."""
        return told_none(self.model)

    def get_model_info(self) -> dict[str, Any]:
        """The entries of the `config` of the harness's results: the model and its hashes, the class, the versions."""
        return {"identity": identity(self.model), **self.class_note, "versions": versions()}

    # ---------------------------------------------------------------------------------- likelihoods
    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Minus the conditional bound of each (context, continuation),
        and whether greedy decoding from the left gives it."""
        pairs = [request.args[:2] for request in requests]
        nats = self._nats(pairs, disable_tqdm)
        tokens = [conditional.tokenize_pair(self.model.tokenizer, pair[0], pair[1], self.prefix) for pair in pairs]
        same = conditional.greedy(self.model.method, tokens, self.requests * self.draws)
        return self._into_cache("loglikelihood", requests, [(-n, s) for n, s in zip(nats, same)])

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Minus the bound of each whole text, in pieces of the network's length."""
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
        """Return the answers, and put them into the harness's cache where it has one."""
        for request, value in zip(requests, answers):
            self.cache_hook.add_partial(name, request.args, value)
        return answers

    # ---------------------------------------------------------------------------------- generation
    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continue each (prompt, options) until one of `until`, or for `max_gen_toks` tokens.

        The temperature is 0 unless the options have `do_sample` or a temperature. A prompt that leaves too little room
        loses its beginning, unless the sampler writes texts of any length. Each text has its own random numbers, a
        function of the seed, its prompt and its options.
        """
        texts = [""] * len(requests)
        prompts = [self._prompt(*request.args[:2]) for request in requests]
        groups = [repr(sorted(request.args[1].items(), key=str)) for request in requests]
        counts: Counter[tuple] = Counter()
        seeds = []
        for prompt, group in zip(prompts, groups):  # a task may ask for several texts after one prompt
            key = (*prompt, group)
            seeds.append(mix(self.seed, counts[key], *key))
            counts[key] += 1
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        lengths = [
            len(prompt) * len(numbers) + numbers[group] for prompt, group in zip(prompts, groups)
        ]  # alike in both
        with tqdm(total=len(requests), disable=disable_tqdm, desc="zellige: texts") as bar:
            for batch in by_length(lengths, max(self.requests, 1)):
                options = requests[batch[0]].args[1]
                continuations = self._continue([prompts[i] for i in batch], options, [seeds[i] for i in batch])
                for i, text in zip(batch, continuations):
                    texts[i] = text
                bar.update(len(batch))
        return self._into_cache("generate_until", requests, texts)

    def _prompt(self, context: str, options: dict[str, Any]) -> list[int]:
        """The tokens of the prompt, without its beginning where the text would not fit."""
        tokenizer, length, most = self.model.tokenizer, int(self.model.method.shape[0]), _most(options)
        tokens = [tokenizer.separator] * self.prefix + (tokenizer.encode(context, "the prompt") if context else [])
        if self._sampler(options).grows:
            return tokens
        return tokens[-(length - min(most, length // 2)) :] if len(tokens) + most > length else tokens

    def _sampler(self, options: dict[str, Any]) -> Sampler:
        """The sampler for the options of a task."""
        unknown = [name for name in options if name not in KNOWN]
        if unknown:
            logging.getLogger(__name__).warning("ignored in generation: %s", ", ".join(unknown))
        temperature = float(options.get("temperature", 1.0 if options.get("do_sample") else 0.0))
        temperature = 0.0 if options.get("do_sample") is False else temperature
        decoding = replace(self.decoding, temperature=temperature, top_p=float(options.get("top_p", 1.0)))
        end = end_token(self.model.tokenizer, trained_on_documents(self.model))
        return decoding.sampler_for(self.model.method, end)

    def _continue(self, prompts: list[list[int]], options: dict[str, Any], seeds: list[int]) -> list[str]:
        """Continue prompts of one length."""
        sampler = self._sampler(options)
        tokenizer, method, prefix_length = self.model.tokenizer, self.model.method, len(prompts[0])
        most = _most(options) if sampler.grows else min(_most(options), int(method.shape[0]) - prefix_length)
        tokens = torch.tensor([prompt + [-1] * most for prompt in prompts], device=self._device)
        sampler.admit(method, tokens)
        streams, steps = Streams(seeds, start_distribution(method).device), self.decoding.steps
        shape, around = (len(prompts), tokens.shape[1]), self.decoding.around
        *_, state = run(sampler, method, shape, steps, fixed=tokens, generator=streams, around=around)
        end = end_token(tokenizer, True) if trained_on_documents(self.model) else None
        rows, ends = state.x.tolist(), state.lengths(end).tolist()
        texts = [added(tokenizer, row[:prefix_length], row[prefix_length:stop]) for row, stop in zip(rows, ends)]
        return [_cut(text, options.get("until")) for text in texts]


def _device(name: str | None) -> str:
    """The device that is named, a GPU where none is; the CPU for a GPU that is not there, which a line says."""
    if torch.cuda.is_available():
        return name or "cuda"
    if name is not None and name.startswith("cuda"):
        logging.getLogger(__name__).warning("no GPU that torch can use here; the tasks run on the CPU")
        return "cpu"
    return name or "cpu"


def _most(options: dict[str, Any]) -> int:
    """The number of tokens to generate."""
    return int(options.get("max_gen_toks", TOKENS))


def _cut(text: str, until: Sequence[str] | str | None) -> str:
    """The text before the first of the stop strings."""
    ends = (text.find(stop) for stop in ([until] if isinstance(until, str) else until or []) if stop)
    return text[: min((at for at in ends if at >= 0), default=len(text))]


def main() -> int:
    """Run lm-evaluation-harness's own command line with the model `zellige`;
    wrong input is one line and exit code 2."""
    from lm_eval.__main__ import cli_evaluate

    from zellige.show.numbers import escape

    try:
        cli_evaluate()
    except InputError as error:
        print(f"error: {escape(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from zellige.plugins.adapters import harness  # under this name alone the model is registered

    sys.exit(harness.main())
register_model("zellige")(Zellige)
