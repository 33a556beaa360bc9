"""The literature's detokenizers: from the spaced tokens of a corpus back to running text, as SEDD, MDLM and BD3-LM do
it.

    DETOKENIZERS["wikitext2"](" He 's 1 @.@ 8 m ( tall ) . \\n") -> " He's 1.8 m (tall).\\n"

Each is a table of rules, applied in order: (what, by what), a plain text or a pattern. They came with GPT-2's zero-shot
protocol (PTB, WikiText, LM1B) and have been copied ever since, with their blemishes, which are kept, since the numbers
depend on them: WikiText's ` N ` becomes ` 1 ` although N is a letter there, and two quotation marks that belong to two
quotations lose the spaces between them. One rule of WikiText's is left out: it looks for `/' [0-9]/` with the slashes,
and would write the pattern itself.
"""

import re
from collections.abc import Callable, Sequence

Rule = tuple[str | re.Pattern[str], str]


def _inside(opening: str, closing: str) -> Rule:
    """No spaces just inside a pair: `( so )` -> `(so)`."""
    o, c = re.escape(opening), re.escape(closing)
    return re.compile(rf"{o}\s*([^{c}]*?)\s*{c}"), rf"{opening}\1{closing}"


def _spaced(opening: str, closing: str, never: str) -> Rule:
    """As `_inside`, for exactly one space on each side."""
    o, c = re.escape(opening), re.escape(closing)
    return re.compile(rf"{o} ([^{never}]+) {c}"), rf"{opening}\1{closing}"


def _before(marks: str) -> list[Rule]:
    """No space before these marks where one follows."""
    return [(f" {mark} ", f"{mark} ") for mark in marks]


WIKITEXT: Sequence[Rule] = (
    ("s '", "s'"),
    *((f" @{mark}@ ", mark) for mark in "-,."),
    *_before(":;.!?,"),
    *(_inside(o, c) for o, c in ("()", "[]", "{}", '""', "''")),
    ("= = = =", "===="),
    ("= = =", "==="),
    ("= =", "=="),
    (" ° ", "°"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
)

PTB: Sequence[Rule] = (
    (" 's", "'s"),
    ("s ' ", "s' "),
    (" n't", "n't"),
    (" \n ", "\n"),
    ("\\/", "/"),
    *[(" N ", " 1 ")] * 2,  # twice: neighbours share a space
    ("$ 1", "$1"),
    ("# 1", "#1"),
    ("<unk>", "?"),
)

LM1B: Sequence[Rule] = (
    ("http : / / ", "http://"), ("https : / / ", "https://"),
    (re.compile(r" '(\w+)"), r"'\1"),
    (re.compile(r" (\w+) \. "), r" \1. "), (re.compile(r" (\w+) \.$"), r" \1."),
    (" ? ", "? "), (re.compile(r" \?$"), "?"),
    (" ! ", "! "), (re.compile(r" !$"), "!"),
    *_before(",:;"),
    (" / ", "/"),
    _spaced('"', '"', '"'), _spaced("'", "'", "'"), _spaced("(", ")", "()"), _spaced("[", "]", r"\[\]"),
    ("$ ", "$"), ("£ ", "£"),
)  # fmt: skip


def apply(rules: Sequence[Rule], text: str) -> str:
    """The text after all the rules, in order."""
    for pattern, by in rules:
        text = text.replace(pattern, by) if isinstance(pattern, str) else pattern.sub(by, text)
    return text


def lambada(text: str) -> str:
    """Straight quotes, and a line end before each passage."""
    return "\n" + text.replace("“", '"').replace("”", '"').strip()


def _of(*tables: Sequence[Rule]) -> Callable[[str], str]:
    return lambda text: apply([rule for table in tables for rule in table], text)


DETOKENIZERS: dict[str, Callable[[str], str]] = {
    "ptb": _of(PTB),
    "wikitext2": _of(WIKITEXT),
    "wikitext103": _of(WIKITEXT),
    "lm1b": _of(LM1B),
    "lambada": lambada,
    "pubmed": _of(WIKITEXT, LM1B),
    "arxiv": _of(WIKITEXT, LM1B),
}
