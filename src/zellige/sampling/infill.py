"""`zellige.Infill`: fill the masked spans of texts or rows; given tokens stay. Also as the function `infill`.

    zellige.infill(model, "the quick _____ fox")            # ["the quick brown fox"]
    zellige.Infill(text="the quick _____ fox").run(model)   # Samples: texts, tokens, network evaluations, ...
    zellige.infill(model, "the quick __* fox")              # a span of any length (flexmdm, ar, bd3lm)

**The distribution.** The text is the beginning of a text of the model's own length. If the noise is a mask, positions
after the text stay masked. A mask carries no information, so the spans have their conditional distribution given the
text, by the network's own predictions, at one network evaluation per masked token at most. With the exact network this
is the same as if the positions after the text were sampled, too.

If the noise is random tokens, the network would read noise after the text as tokens. So these positions are sampled,
too, and cut off. Then the distribution given the text is approximate.

Importing this file imports no torch.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack, overload

from ..base.arguments import checked
from ..base.errors import InputError
from ..base.requests import declared, option, takes
from .choices import InfillChoices, SamplerChoices
from .request import Sampling
from .sample import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike
    from torch import Tensor

    from ..models.model import Model, ModelSource
    from ..show.kinds import Modality
    from .masked_text import MaskedText
    from .samples import Samples
    from .trajectory import Frame


@declared
class Infill(Sampling):
    """Texts or rows with their masked spans filled, `count` times each; everything else stays exactly as it is."""

    returns = "zellige.sampling.samples:Samples"

    text: str | Sequence[str] | None = option(
        "the text with masked spans, or several: each is filled as it would be alone; of a grid the puzzle: 53..7....",
        default=None,
        hidden=True,
    )
    fixed: Any = option(
        "instead of a text (L,) or (N, L) tokens, -1 where one is sampled: half an image, some voices",
        default=None,
        hidden=True,
    )
    mask_token: str = option(
        "sign for one missing token (a character or a subword); __* stands for a span of any length (flexmdm, ar, bd3lm)",
        default="_",
    )

    @property
    def infills(self) -> bool:
        return True

    def run(self, model: "ModelSource", see: "Callable[[Frame], None] | None" = None) -> "Samples":
        """Fill the spans; each frame of the trajectory is shown to `see`.

        Returns:
            The filled texts or rows: `count` of the first one (with classes, of each class), then of the second, and so
            on.

        Raises:
            InputError: as `Sample.trajectory`; nothing to fill, or a text that is too long or not in the vocabulary.
        """
        from ..models.model import as_model
        from ..show.kinds import of

        model = as_model(model)
        kind = of(model.tokenizer)
        if (self.text is None) == (self.fixed is None):
            raise InputError("infill needs a text with gaps, or fixed tokens; give one of the two")
        request = self.with_defaults(model)
        if kind.running and self.text is not None:
            samples = request._fill_texts(model, see).some_allowed()
        else:
            rows = kind.rows(self.rows(kind))
            samples = request._sample(fixed=rows, count=self.count * len(rows)).run(model, see)
        return replace(samples, request=request.saved())

    def rows(self, kind: "Modality") -> "Tensor":
        """The given tokens (L,) or (N, L) of what is no running text, -1 where one is free."""
        import numpy as np

        from ..core.batch import whole_numbers
        from ..show.kinds import Modality
        from .tokens import flat_rows

        if self.text is not None and type(kind).read is Modality.read:
            raise InputError(
                f"this model makes {kind.many}, and no text is one; give `fixed`: tokens, -1 where one is to be drawn"
            )
        tokens = self.fixed if self.text is None else np.stack([kind.read(text) for text in self.given_texts()])
        return flat_rows(whole_numbers("fixed", tokens), kind.shape)

    def given_texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else list(self.text or ())

    def masked_texts(self, model: "Model") -> "list[MaskedText]":
        """The texts, read for a model."""
        from ..models.model import as_model
        from .masked_text import masked_text
        from .tokens import length_of

        model = as_model(model)
        length = length_of(model, self.length)
        return [masked_text(model, text, length, self.mask_token) for text in self.given_texts()]

    def _sample(self, **changes: Any) -> Sample:
        """The request for samples with the same fields, and these."""
        return Sample(**{field.name: getattr(self, field.name) for field in fields(Sampling)} | changes)

    def _fill_texts(self, model: "Model", see: "Callable[[Frame], None] | None") -> "Samples":
        """The filled texts. Sample number k of a text has the random numbers of (seed, k), whatever stands beside it; a
        text that stands in the list again goes on counting."""
        from ..core.batch import by_length
        from .gap import fill_gap
        from .samples import joined

        texts_with_masks = self.masked_texts(model)
        classes = 1 if self.labels is None else len(self.labels)
        per_text = self.count * classes
        occurrences: Counter[str] = Counter()
        first: list[int] = []
        for text in self.given_texts():
            first.append(occurrences[text] * per_text)
            occurrences[text] += 1
        parts, numbers = [], []
        any_cut = any(text.cut for text in texts_with_masks)
        if any_cut and (self.best_of or 1) == 1:
            raise InputError(
                "a span of any length is chosen among candidates by what stands after it; give `best_of`, e.g. 32"
            )
        most = 1 if classes > 1 or any_cut else len(texts_with_masks)
        for group in by_length([len(text.fixed) for text in texts_with_masks], most):
            seed = [(self.seed, first[i] + k) for i in group for k in range(per_text)]
            fixed = [texts_with_masks[i].fixed for i in group]
            request = self._sample(fixed=fixed, alone=True, count=self.count * len(group), seed=seed)
            first_text = texts_with_masks[group[0]]
            samples = fill_gap(request, model, see) if first_text.cut else request.run(model, see)
            length = first_text.length(model)
            texts = [
                texts_with_masks[group[k // per_text]].fill(row, model.tokenizer)
                for k, row in enumerate(samples.tokens)
            ]
            parts.append(replace(samples, texts=texts, tokens=[row[:length] for row in samples.tokens]))
            numbers += [i * per_text + k for i in group for k in range(per_text)]
        return joined(parts, numbers)


@overload
def infill(model: "ModelSource", text: str, **choices: Unpack[InfillChoices]) -> "list[str] | np.ndarray": ...
@overload
def infill(
    model: "ModelSource", text: Sequence[str], **choices: Unpack[InfillChoices]
) -> "list[list[str]] | np.ndarray": ...
@overload
def infill(
    model: "ModelSource", text: None = None, *, fixed: "ArrayLike", **choices: Unpack[InfillChoices]
) -> "list[str] | np.ndarray": ...
@checked
@takes(Infill, SamplerChoices)
def infill(
    model: "ModelSource",
    text: str | Sequence[str] | None = None,
    *,
    fixed: Any = None,
    **choices: Unpack[InfillChoices],
) -> Any:
    """Fill the masked spans of `text`, `count` times; everything else stays exactly as it is.

    Args:
        model: a `Model`, or the path or id of one.
        text: one, or several: each is then filled as it would be alone, those of one length in the same network
            evaluations. A text that stands in the list again has random numbers of its own. For a grid it is a puzzle:
            a dot is a blank.
        fixed: instead of a text (L,) or (N, L) tokens, or rows in their own shape, -1 where one is sampled; of a grid
            its symbols, of a Sudoku digits, and there a 0 is a blank too.
        choices: the fields of `zellige.Infill`, and the options of the sampler.

    Returns:
        The texts, of several a list of them for each; of images, music and grids an array (count, *shape), or (N,
        count, *shape) for N rows or texts, as `zellige.sample` gives it. With several `classes` there are `count` of
        each.
    """
    from ..models.model import as_model
    from ..show.kinds import of
    from ..show.notebook import Texts, shown

    model = as_model(model)
    kind = of(model.tokenizer)
    if text is not None and not isinstance(text, str) and not text and fixed is None:
        return []
    request = Infill.of(text=text, fixed=None if fixed is None else kind.tokens(fixed), **choices)
    samples = request.run(model)
    if kind.running:
        texts = kind.values(samples.tokens) if request.text is None else samples.texts
        if text is None or isinstance(text, str):
            return Texts(texts)
        size = len(texts) // len(text)  # samples of each text
        return [Texts(texts[first : first + size]) for first in range(0, len(texts), size)]
    rows = request.rows(kind)
    if rows.ndim == 1 or isinstance(text, str):
        return shown(kind, samples.tokens)
    return kind.values(samples.tokens).reshape(len(rows), -1, *kind.shape)
