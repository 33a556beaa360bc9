"""One sentence for every wrong input: what was wrong; what would be right."""

import difflib
import re
from collections.abc import Iterable

_LONG = re.compile(r"\S{200,}")


class InputError(ValueError):
    """The input was wrong. `str()` is the sentence that the command line prints after `error: ` (exit code 2).

    It is one line, and a value of thousands of characters in it is cut to its ends. An argument or a field stands in
    backquotes, as Python spells it: `steps`, `net.length`, `checksums=False`. The command line prints its options there
    (`cli/options.py`).
    """

    def __init__(self, sentence: str):
        # half a character as `\\ud800`
        line = sentence.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()
        super().__init__(_LONG.sub(lambda word: f"{word[0][:60]}...{word[0][-20:]}", line))


SYNONYMS = {  # what other libraries call an argument -> what it is called here
    name: ours
    for ours, names in {
        "count": "n num_samples n_samples num_return_sequences",
        "rate": "lr",
        "lr": "rate learning_rate",
        "batch": "batch_size",
        "length": "max_length seq_len max_new_tokens",
        "steps": "num_inference_steps epochs max_steps num_steps iterations",
        "seed": "random_state",
        "precision": "torch_dtype dtype",
        "device": "device_map",
        "layers": "num_layers n_layers",
        "hidden": "hidden_size",
        "heads": "num_heads n_heads",
        "data": "dataset",
        "model": "model_name",
        "options": "config",
        "out": "output",
    }.items()
    for name in names.split()
}

_LOAD = "zellige.load(path) reads any model, with its tokenizer"
_SAMPLE = "zellige.sample(model, prompt=...) draws texts"
_LOGITS = "model.method.predict(tokens, t) gives the network's answer, zellige.embed(model, texts) its vectors"
_WEIGHTS = "the weights are those of a torch module, `model.method`"
_MOVE = 'model.to("cuda") moves a model, zellige.load(path, device="cuda") loads it there'
_TRAIN = 'zellige.train("mdlm", data=...) trains a model'
_TOKENS = "model.tokenizer.encode(text) and model.text(tokens) go from text to tokens and back"
_SCORE = 'zellige.evaluate(model, texts) bounds the likelihood, zellige.pipeline("score", model) that of each text'

ELSEWHERE: dict[str, dict[str, str]] = {  # asked of what -> name in other libraries -> what to do here
    of: {name: advice for advice, names in table.items() for name in names.split()}
    for of, table in {
        "zellige": {
            _LOAD: (
                "AutoModel AutoModelForCausalLM AutoModelForMaskedLM AutoConfig AutoTokenizer "
                "DiffusionPipeline from_pretrained load_model"
            ),
            _SAMPLE: "generate GenerationConfig",
            _TRAIN: "Trainer TrainingArguments Seq2SeqTrainer fit",
            _TOKENS: "Tokenizer PreTrainedTokenizer encode decode",
            'zellige.pipeline("sample" | "infill" | "score", model) makes one': (
                "Pipeline TextGenerationPipeline FillMaskPipeline"
            ),
            "whatever draws takes `seed`, and draws the same for the same one": "set_seed manual_seed",
            "`data=` takes texts, arrays, a path or a name of `zellige list data`": "load_dataset Dataset",
            _SCORE: "score perplexity log_prob",
        },
        "Model": {
            _SAMPLE: "generate sample sample_text",
            "zellige.infill(model, text) fills gaps": "infill fill",
            _LOGITS: "__call__ forward logits predict embed get_input_embeddings",
            _WEIGHTS: "parameters named_parameters state_dict load_state_dict modules num_parameters",
            f"{_TRAIN}, Train(start=...) begins with a saved one": "train fit",
            _SCORE: "evaluate score log_prob log_likelihood perplexity loss",
            _TOKENS: "encode decode",
            _MOVE: "cuda cpu",
            'zellige.load(path, precision="bfloat16") computes in it': "half bfloat16 float dtype",
            "a Model is always in eval mode": "eval",
            "a Model is to be used; zellige.train trains one": "requires_grad_",
            "torch.compile takes `model.method`": "compile",
            "next(model.method.parameters()).device has it": "device",
            "model.defaults holds the sampling defaults": "generation_config",
        },
        "pipeline": {
            "infill": "fill-mask infilling infill-text",
            "sample": "text-generation text2text-generation generate unconditional-image-generation text-to-image",
            "score": "perplexity text-classification scoring evaluate",
        },
    }.items()
}


def meant(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: by its meaning, or else by its letters.

    >>> meant("num_samples", ["count", "seed"]), meant("sede", ["count", "seed"])
    ('count', 'seed')
    """
    names = list(names)
    synonym = SYNONYMS.get(name, name)
    return next((candidate for candidate in (synonym, SYNONYMS.get(synonym)) if candidate in names), None) or nearest(
        name, names
    )


def quoted(text: str) -> str:
    """A text in quotation marks, cut where it is long: `'the value of ...'`"""
    return f"'{text if len(text) <= 60 else text[:57] + '...'}'"


def either(names: Iterable[object]) -> str:
    """`a, b or c`; of what is there twice the first."""
    *others, last = dict.fromkeys(map(str, names))
    return f"{', '.join(others)} or {last}" if others else last


def some(names: Iterable[str], most: int = 5) -> str:
    """The first names of a list.

    >>> some("abc"), some("abc", 2)
    ('a, b, c', 'a, b, ...')
    """
    names = [*names]
    return ", ".join(names[:most] + ["..."] * (len(names) > most))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None if nothing is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


def unknown(kind: str, name: str, names: Iterable[str], see: str = "") -> InputError:
    """The error for a name that is not in a table, with the nearest one that is; `see` shows all, or they stand there.

    >>> str(unknown("method", "mdml", ["mdlm", "md4"], "zellige list methods"))
    "unknown method 'mdml'; did you mean 'mdlm'? (all: zellige list methods)"
    """
    near = nearest(name, names)
    see = see or ", ".join(names)
    hint = f"did you mean '{near}'? (all: {see})" if near else f"all of them: {see}"
    return InputError(f"unknown {kind} '{name}'; {hint}")


def not_installed(what: str, package: str, extra: str, otherwise: str = "") -> InputError:
    """The error for a package that comes with an extra of Zellige's and is not there, with what to type.

    >>> str(not_installed("`out` x.mid", "mido", "music"))
    "`out` x.mid needs 'mido'; pip install 'zellige[music]'"
    """
    return InputError(f"{what} needs '{package}'; pip install 'zellige[{extra}]'{otherwise}")


def at_least(name: str, value: float, least: int) -> None:
    """InputError where the value of an argument or a field is below the least that it may be.

    >>> at_least("steps", 0, 1)
    Traceback (most recent call last):
    zellige.base.errors.InputError: `steps` is 0; it must be 1 or more
    """
    if value < least:
        text = f"{value:g}" if isinstance(value, float) else value
        raise InputError(f"`{name}` is {text}; it must be {least} or more")


def between(name: str, value: float, least: int, most: int) -> None:
    """InputError where the value of an argument or a field is not between the least and the most that it may be.

    >>> between("corrector", 10**9, 0, 1000)
    Traceback (most recent call last):
    zellige.base.errors.InputError: `corrector` is 1,000,000,000; it must be 1,000 or less
    """
    at_least(name, value, least)
    if value > most:
        raise InputError(f"`{name}` is {value:,}; it must be {most:,} or less")


def check_counts(**counts: int) -> None:
    """Each of these must be 1 or more."""
    for name, value in counts.items():
        at_least(name, value, 1)


def no_attribute(of: str, name: str) -> str:
    """Message of the AttributeError where `name` is asked of "zellige", one of its modules or "Model", and is not
    there.

    >>> no_attribute("zellige", "AutoModel")
    "module 'zellige' has no attribute 'AutoModel'; zellige.load(path) reads any model, with its tokenizer"
    """
    owner = f"module '{of}'" if of.startswith("zellige") else f"'{of}' object"
    hint = ELSEWHERE.get(of, {}).get(name)
    return f"{owner} has no attribute '{name}'" + (f"; {hint}" if hint else "")


class Diverged(RuntimeError):
    """The loss or the gradient is not finite. `str()` says at which step, what is safe, and the likely causes."""
