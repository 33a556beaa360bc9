"""`zellige.Sample`: samples of a model, free or continuing a prompt; also as the functions `sample` and `watch`.

    zellige.sample(model, count=4, seed=0)                # ["...", "...", "...", "..."]
    zellige.Sample(count=4, seed=0).run(model)            # Samples: texts, tokens, network evaluations, ...
    for frame in zellige.watch(model, steps=8): ...       # every step of the sampling trajectory

Importing this file imports no torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack

from ..base.arguments import checked
from ..base.errors import InputError
from ..base.requests import declared, option, takes
from .choices import SampleChoices, SamplerChoices
from .request import Sampling

if TYPE_CHECKING:
    import numpy as np

    from ..base.processes import Place
    from ..data.tokenizer_base import Tokenizer
    from ..models.model import Model, ModelSource
    from ..samplers import Sampler
    from .samples import Samples
    from .tokens import Start
    from .trajectory import Frame, Trajectory


@declared
class Sample(Sampling):
    """Samples of a model, free or continuing a prompt."""

    returns = "zellige.sampling.samples:Samples"

    prompt: str | Sequence[str] | None = option(
        "beginning of each sample; in Python also a list, of which each is continued by equally many samples",
        default=None,
        typed=str | None,
    )
    chat: bool = option(
        "treat the prompt as a question in a chat: put it into the model's chat template, or a plain one", default=False
    )
    fixed: Any = option(
        "given tokens (L,) or (N, L), -1 where one is free; of N rows the first has the first samples, then the second",
        default=None,
        hidden=True,
    )
    reconstruct: Any = option(
        "vary this text: add noise up to `noise`, then remove it; in Python also a list of texts of equal length, or "
        "tokens (L,) or (N, L)",
        default=None,
        typed=str | None,
    )
    noise: float = option(
        "for `reconstruct`: amount of noise, above 0 and up to 1 (all)", default=0.5, above=0, maximum=1
    )
    alone: bool = option(
        "of `fixed` shorter than a sample: sample nothing after it, where the noise is a mask or the sampler writes "
        "left to right; see `zellige.infill`",
        default=False,
        hidden=True,
    )

    @property
    def infills(self) -> bool:
        return self.fixed is not None

    @property
    def begins_noisy(self) -> bool:
        return self.reconstruct is not None

    def given_texts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else list(self.prompt or ())

    def _prompts(self, tokenizer: "Tokenizer") -> list[str]:
        """The prompts, as the model reads them."""
        if not self.chat:
            return self.given_texts()
        from ..data import chat

        return [chat.prompt_of(tokenizer, [{"role": "user", "content": text}]) for text in self.given_texts()]

    def trajectory(self, model: "ModelSource", candidates: int = 1) -> "Trajectory":
        """The request resolved for a model.

        Args:
            candidates: of each sample, one after another; `best_of` then chooses (`run`).

        Raises:
            InputError: unknown sampler, one that the method does not support, an option that it does not take, a number
                out of its range, a prompt that is too long or not in the vocabulary, a class that the model does not
                know.
        """
        from ..models.model import as_model

        model = as_model(model)
        trajectory = self._trajectory(model, candidates > 1)
        return trajectory if candidates == 1 else self._candidates(candidates)._trajectory(model, True)

    def _candidates(self, number: int) -> Self:
        """The request for `number` candidates of each sample: those of sample k are `number` k and the next ones."""
        seed = self.seed
        if not isinstance(seed, int):
            seed = [(of, number * k + j) for of, k in seed for j in range(number)]
        return replace(self, count=number * self.count, seed=seed)

    def _trajectory(self, model: "Model", ahead: bool) -> "Trajectory":
        """The request resolved. `ahead`: tokens may be given where the sampler does not see them."""
        from ..models.class_names import class_names, text_classes
        from ..models.ends import end_token, trained_on_documents
        from ..samplers.growing import Growing
        from ..samplers.sampler import check
        from .trajectory import Trajectory, wrapped

        request = self.with_defaults(model).steered()
        if request.symmetries not in (None, 1):
            from ..models.averaged import averaged

            model = averaged(model, request.symmetries)
        documents = trained_on_documents(model)
        end = None if self.fixed is not None else end_token(model.tokenizer, documents)
        text_end = end if documents else None
        wrappers, conditional = request.guided(model, text_end, self._width() if self.alone else None)
        condition = None if self.labels is None else text_classes(conditional, self.labels, self.count, self.fixed)
        count = self.count if condition is None else len(condition)
        if not isinstance(self.seed, int) and len(self.seed) != count:
            raise InputError(
                f"`seed` has {len(self.seed):,} pairs, and there are {count:,} texts; give one for each, or a number"
            )
        sampler = request.sampler_for(model.method, end)
        if ahead and self.fixed is not None and isinstance(sampler, Growing):
            sampler = replace(sampler, ahead=True)
        if self.reward is not None or getattr(sampler, "particles", None) is not None:
            from .reward import check_particles

            check_particles(sampler, self.reward)
        if wrappers:
            check(sampler, wrapped(model.method, wrappers))
        start = self._start(model, sampler, count)
        sampler.admit(model.method, start.fixed)
        return Trajectory(
            model,
            sampler,
            request.steps,
            self.seed,
            count,
            start.length,
            self.batch,
            fixed=start.fixed,
            condition=condition,
            names=() if condition is None else tuple(class_names(conditional)),
            end=text_end,
            wrappers=wrappers,
            lengths=start.lengths,
            begin=start.begin,
            noise=self.noise,
        )

    def _start(self, model: "Model", sampler: "Sampler", count: int) -> "Start":
        """What `count` samples begin with: the tokens that are given, or the texts that are reconstructed."""
        from ..models.ends import counts_of_lengths, drawn_lengths
        from ..samplers.predict import hides
        from ..samplers.sampler import HIDDEN
        from .tokens import Start, begin_tokens, fixed_tokens, length_of, prompt_tokens
        from .trajectory import seed_pairs

        tokenizer, tokens, length, begin = model.tokenizer, self.fixed, self.length, None
        name = "prompt" if tokens is None else "fixed"
        if self.reconstruct is not None:
            if self.prompt or tokens is not None:
                raise InputError("`reconstruct` begins with a whole text; leave out the prompt and the given tokens")
            begin = begin_tokens(tokenizer, self.reconstruct, length, model, count)
            length = begin.shape[1]
        if self.alone and sampler.grows and length is None:
            length = self._width()
        length = length_of(model, length, sampler.grows)
        if tokens is None and self.prompt:
            most = int(model.method.shape[0])
            tokens = prompt_tokens(tokenizer, self._prompts(tokenizer), length, sampler.grows, most)
        elif self.chat:
            raise InputError("`chat` writes a question by the chat template; give it by `prompt`")
        if tokens is not None:
            beyond = HIDDEN if self.alone and not sampler.grows and hides(model.method) else -1
            tokens = fixed_tokens(
                tokens, tokenizer, length, count, beyond, model.method.parameterization == "insertion", name
            )
        lengths, counts = (), counts_of_lengths(model)
        if counts and self.length is None and self.fixed is begin is None:
            begun = [0] * count if tokens is None else (tokens >= 0).sum(-1).repeat_interleave(count // len(tokens))
            lengths = drawn_lengths(counts, seed_pairs(self.seed, range(count)), begun, length)
        return Start(length, tokens, begin, lengths)

    def _width(self) -> int:
        """Tokens of a row of `fixed`."""
        import torch

        return int(torch.as_tensor(self.fixed).shape[-1])

    def run(self, model: "ModelSource", see: "Callable[[Frame], None] | None" = None) -> "Samples":
        """Draw the samples; each frame of the trajectory is shown to `see`.

        Raises:
            InputError: as `Sample.trajectory`; or the reward forbids all of them.
        """
        from ..models.model import as_model
        from ..samplers import Sampler
        from .best_of import best_of, check_choice
        from .samples import collect

        model = as_model(model)
        request = self.with_defaults(model)
        number = request.best_of or 1
        trajectory = request.trajectory(model, number)
        if number > 1:
            check_choice(model, trajectory.sampler)
        samples = collect(trajectory.frames(), see)
        free = not self.prompt and self.fixed is self.reconstruct is None and self.length is None
        distribution = trajectory.distribution if free and isinstance(trajectory.sampler, Sampler) else None
        if isinstance(self.seed, int):  # else they may be a part of other samples
            samples.some_allowed()
        samples = replace(samples, distribution=distribution)
        samples = samples if number == 1 else best_of(number, trajectory, samples)
        return replace(samples, request=request.saved())


def share(here: "Place", request: Sample) -> Sample | None:
    """The part of a request that a process draws: every sample whose number leaves its rank; None where none is left for
    it."""
    from ..samplers.sampler import ordered

    classes = request.labels or ()
    total = request.count * max(len(classes), 1)
    numbers = range(here.rank, total, here.world)
    if not numbers:
        return None
    own = replace(request, seed=[(request.seed, number) for number in numbers])
    if len(request.given_texts()) > 1:
        own = replace(own, prompt=ordered(numbers, request.prompts(total)))
    if not classes:
        return replace(own, count=len(numbers))
    return replace(own, count=1, classes=[classes[number // request.count] for number in numbers])


@checked
@takes(Sample, SamplerChoices)
def watch(model: "ModelSource", **choices: Unpack[SampleChoices]) -> "Iterator[Frame]":
    """Draw samples and return every step: frames of one batch after another, from the first state to the last.

    `best_of` chooses among finished samples, so this function takes none, and leaves that of the model's defaults aside.

    Args:
        model: a `Model`, or the path or id of one.
        choices: the fields of `zellige.Sample`, and the options of the sampler.

    Raises:
        InputError: as `Sample.trajectory`, before the first frame.
    """
    request = Sample.of(**choices)
    if request.best_of is not None:
        raise InputError("`best_of` chooses among finished samples; leave it out, or use zellige.sample")
    return request.trajectory(model).frames()


@checked
@takes(Sample, SamplerChoices)
def sample(model: "ModelSource", **choices: Unpack[SampleChoices]) -> "list[str] | np.ndarray":
    """Draw samples: `sample(model, count=4, steps=64, seed=0)`.

    Args:
        model: a `Model`, or the path or id of one.
        choices: the fields of `zellige.Sample`, and the options of the sampler. `fixed` of a grid has its symbols.

    Returns:
        A list of texts; of images and music an array (count, *shape) of their tokens, of grids one of their symbols: of
        a Sudoku its digits. A notebook shows either as paragraphs or pictures.

    Raises:
        InputError: as `Sample.trajectory`.
    """
    from ..models.model import as_model
    from ..show import kinds
    from ..show.notebook import shown

    model = as_model(model)
    request = Sample.of(**choices)
    if request.fixed is not None:
        request = replace(request, fixed=kinds.of(model.tokenizer).tokens(request.fixed))
    return shown(kinds.of(model.tokenizer), request.run(model).tokens)


def watch_some(model: "Model", count: int, steps: int | None = None, seed: int = 0) -> "Iterator[Frame]":
    """The trajectory of `count` samples; with classes one of each in turn, from the first on."""
    from ..models.class_names import class_names

    if not (names := class_names(model)):
        return watch(model, count=count, steps=steps, seed=seed)
    classes = [number % len(names) for number in range(count)]
    return watch(model, classes=classes, steps=steps, seed=seed)
