"""The corpus on which a model is evaluated, and how it differs from the training data."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, some
from ..base.requests import Progress
from ..base.trust import refuse_remote
from ..data.corpus import Corpus
from ..data.own_values import are_texts, by_split, integers
from ..models.class_names import WITHOUT_CLASS, class_names
from ..models.model import Model, fingerprint
from ..show.kinds import of


def corpus_of(model: Model, data: Any = None, progress: Progress | None = None, split: str = "test") -> Any:
    """Return the corpus to evaluate, in the model's own tokens: `data`, or what the model was trained on.

    Texts or integers without splits all belong to `split`; each text is a document. A path to another text is cut into rows
    as in the training (`Data.pack`). A `Data` is taken as it is.

    Raises:
        InputError: the data names a tokenizer that is not the model's.
    """
    from ..data import Data, require_same
    from ..data.corpus import OwnData, as_data, as_packed
    from ..data.prepare import prepare

    training_data, tokenizer, length = model.config.data, model.tokenizer, int(model.method.shape[0])
    ends = training_data.fill or 0  # of other documents, too
    if not (data is None or isinstance(data, (str, os.PathLike, Data))):
        data = _handed_over(data, model, split)
        return prepare(data, length, tokenizer=tokenizer, progress=progress, ends=ends)
    if data is None and training_data.name == "text" and not (training_data.path or training_data.mix):
        raise InputError("this model comes without its text; say which text to read with `data`")
    if data is None and training_data.remote:
        refuse_remote(training_data.remote, "the model's config")
    if data is None:
        data = training_data
    elif not isinstance(data, Data):
        data = as_packed(as_data(data), training_data)
    # of a run that began with another model, the tokenizer is that model's
    learnt = data == training_data and not model.config.train.start
    knows_tokenizer = learnt or bool(data.tokenizer) or isinstance(data, OwnData)  # the data says its tokenizer itself
    corpus = prepare(data, length, tokenizer=None if knows_tokenizer else model.tokenizer, progress=progress, ends=ends)
    require_same(model.tokenizer, corpus.tokenizer)
    return corpus


def _handed_over(data: Any, model: Model, split: str) -> Any:
    """Data of in-memory values, all in `split`: each text or sequence is a document; rows with a shape are an array."""
    from ..data import Data

    splits, tokenizer = by_split(data), model.tokenizer
    values = splits.get("all", splits.get(split))
    if values is None:
        raise InputError(f"the data has no {split} split, only {', '.join(splits)}; set `split`, or give a list")
    if are_texts(values):
        if tokenizer.shape:
            raise InputError(
                f"the data is texts, and the model makes {of(tokenizer).many}; give whole numbers (N, ...)"
            )
        return Data.of({split: values}, pack="document")
    values = integers(values)
    if not tokenizer.shape:
        return Data.of({split: [values] if np.ndim(values[0]) == 0 else values}, tokenizer.size, pack="document")
    rows = np.asarray(values)
    if rows.ndim == 2 and rows.shape[1] == math.prod(tokenizer.shape):
        rows = rows.reshape(-1, *tokenizer.shape)
    return Data.of({split: rows}, tokenizer.size, kind=tokenizer.kind)


def rows_with_classes(model: Model, corpus: Corpus, split: str, unconditional: bool) -> tuple[Any, str]:
    """Return the rows of a split, with their classes for a class-conditional model, and a description.

    The description is "given the class", "without the class" or "".

    Raises:
        InputError: the model has no classes, or others than the data.
    """
    rows, names = corpus.split(split), class_names(model)
    if rows.labels is None:
        return rows, WITHOUT_CLASS if names else ""
    if not names:
        raise InputError("the model was trained without classes, and the data has labels; leave out `data.labels`")
    if names != (data_classes := list(corpus.about.get("classes") or ())):
        raise InputError(
            f"the model knows the classes {some(names)}, the data has {some(data_classes)}; leave out `data.labels`, "
            "or use other data"
        )
    return (rows.unlabelled(), WITHOUT_CLASS) if unconditional else (rows, "given the class")


def beside_training(model: Model, corpus: Corpus) -> dict[str, Any]:
    """Compare the data of a result with that of the training.

    {"changed": whether the files of the training now have another content, "trained_sha256": the former hash, "other": a
    tag of the content if the data's name does not tell it from the run's own data or from another text}
    """
    training, now = (getattr(model, "about", {}) or {}).get("data") or {}, corpus.about
    files = [[Path(f).resolve() for f in about.get("files") or []] for about in (training, now)]
    same = training.get("name") == now["name"]
    trained_sha256, sha256 = training.get("sha256"), now.get("sha256")
    has_name = bool(files[1]) or now["name"] not in ("text", "tokens", "array")  # else it was handed over, by no name
    content_changed = (
        has_name and same and files[0] == files[1] and None not in (trained_sha256, sha256) and trained_sha256 != sha256
    )
    content, before = _content(now), _content(training)
    is_another = any(before[key] not in (None, now) for key, now in content.items()) if same else now["name"] == "text"
    tag = {"other": fingerprint(content)[:8]} if is_another else {}
    return {"changed": content_changed, **({"trained_sha256": trained_sha256} if content_changed else {}), **tag}


def _content(about: dict[str, Any]) -> dict[str, Any]:
    """Entries of a corpus that determine its texts; None for an unknown one."""
    rows = {split: (of["rows"], of["tokens"]) for split, of in (about.get("splits") or {}).items()}
    return {key: about.get(key) for key in ("sha256", "tokens_sha256", "pack", "fill")} | {"splits": rows or None}


def data_change_note(about: dict[str, Any]) -> str | None:
    """Note for data with the name of the training data and another content; `about` is that of a result."""
    if not about.get("changed"):
        return None
    then, now = (
        s[:8] if isinstance(s, str) else fingerprint(s)[:8] for s in (about["trained_sha256"], about["sha256"])
    )
    return (
        f"the data has changed since the model was trained (sha256 {then}, now {now}): "
        "what is called test may hold texts of the training"
    )
