"""Choices of a published likelihood: a `Protocol`, each choice a field; those of the papers, and our own.

The authors' code settles what a paper does not say, and a copy of it was read for each: `sources` says of every choice
whether it stands there or is our reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from zellige.base.plugins import Registry

CODE, READING, OURS = "from the paper's code", "our reading", "our choice"


def means(text: str, **how: Any) -> Any:
    """A choice of a protocol, and what it means."""
    return field(metadata={"means": text}, **how)


@dataclass(frozen=True)
class Protocol:
    """The choices that make a likelihood on a data set, apart from the model."""

    name: str
    split: Literal["test", "validation"] = means(
        "which split of PTB, WikiText, PubMed and arXiv is judged; of LM1B, LAMBADA and AG News it is test"
    )
    detokenize: bool = means("the literature's detokenizers turn spaced tokens back into running text")
    lines: bool = means("each line of WikiText and PTB is a document, the blank ones of WikiText too; else all is one")
    pack: Literal["wrap", "document"] = means(
        "documents are one stream that is cut into rows, and the tail left out (wrap); or one a row, cut"
    )
    eos: bool = means("the end-of-text token follows each document, and is counted")
    begin: Literal["none", "counted", "given"] = means(
        "each row begins with a token that begins a text: counted as any other, or given and not counted"
    )
    end: bool = means("each row ends with an end-of-text token, wherever the text was cut, and it is counted")
    t_min: float = means("times are drawn from [t_min, 1]")
    ends: Literal["model", "jumps", "none", "published"] = means(
        "the bound's terms at the ends of time: the model's own, each in one jump, none, or the paper's code's"
    )
    average: Literal["corpus", "per sequence"] = means("which of the two perplexities the paper prints; both are given")
    draws: int = means("draws of each row, where `draws` does not say; the value expected is the same")
    length: int = means("tokens of a row, the context; 0: those of the model", default=0)
    about: str = ""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for the JSON: each choice, what it means, and where it is from."""
        choices = {
            f.name: {
                "value": getattr(self, f.name),
                "means": f.metadata["means"],
                "from": self.sources.get(f.name, OURS),
            }
            for f in fields(self)
            if "means" in f.metadata
        }
        return {"name": self.name, "about": self.about, "choices": choices}

    @classmethod
    def values(cls, entries: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its fields in what `to_dict` gave."""
        choices = entries["choices"]
        sources = {name: choice["from"] for name, choice in choices.items()}
        return {**entries, **{name: choice["value"] for name, choice in choices.items()}, "sources": sources}


def protocol_named(name: "str | Protocol") -> Protocol:
    """A protocol by its name."""
    return name if isinstance(name, Protocol) else PROTOCOLS[name]


_EACH = [choice.name for choice in fields(Protocol) if "means" in choice.metadata]
_MDLM = dict.fromkeys(_EACH, CODE) | {
    "draws": f"{READING}: the code draws one time a row, antithetic over the batch; two replicates of two give an interval",
    "t_min": f"{CODE}: sampling_eps = 1e-3, in evaluation too",
}

PROTOCOLS: Registry[Protocol] = Registry("protocol")
PROTOCOLS |= {
    "zellige": Protocol(
        "zellige",
        split="test", detokenize=True, lines=False, pack="wrap", eos=True, begin="none", end=False,
        t_min=0.0, ends="model", average="corpus", draws=4,
        about="a bound with all its terms, of running text, every token counted once",
    ),
    "mdlm": Protocol(
        "mdlm",
        split="validation", detokenize=True, lines=True, pack="wrap", eos=True, begin="counted", end=True,
        t_min=1e-3, ends="none", average="corpus", draws=4,
        about="MDLM (arXiv 2406.07524), table 3; rows are BOS, length - 2 tokens, EOS; the diffusion term alone. "
        "The code packs a thousand documents at a time and drops the tail of each thousand; here all are one stream",
        sources=_MDLM,
    ),
    "sedd": Protocol(
        "sedd",
        split="validation", detokenize=True, lines=True, pack="wrap", eos=True, begin="none", end=False,
        t_min=1e-3, ends="none", average="corpus", draws=4,
        about="SEDD (arXiv 2310.16834), table 1; the diffusion term alone. Its repository has no script for this table: the rows "
        "are those of its data loader, the times those of its loss; RADD's script (arXiv 2406.03736), with the same "
        "loader, gives exp of the mean loss over the length, of 1024 draws a row. It averages exp over sequences in "
        "its generative perplexity alone",
        sources=dict.fromkeys(_EACH, CODE) | {
            "split": READING, "draws": f"{READING}: RADD's script takes 1024", "average": f"{READING}, as RADD's script",
        },
    ),
    "bd3lm": Protocol(
        "bd3lm",
        split="validation", detokenize=True, lines=True, pack="wrap", eos=False, begin="given", end=True,
        t_min=1e-3, ends="none", average="corpus", draws=4,
        about="BD3-LM (arXiv 2503.09573), table 5, which also holds MDLM, SEDD and AR judged so: no end-of-text between "
        "documents, and the token that begins a row neither noised nor counted",
        sources=_MDLM | {
            "eos": f"{CODE}: data.insert_valid_eos=False in its scripts for this table (read in a copy of the repository)",
            "begin": f"{CODE}: ignore_bos, as recorded from its loss", "end": CODE,
            "t_min": f"{READING}: the loss draws from [1e-3, 1] unless set otherwise",
        },
    ),
}  # fmt: skip
