"""The pages of docs/methods, docs/samplers and docs/metrics: what the code says of each, to follow the idea that is written by
hand; and the page that lists those of a kind."""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import lists
from zellige import METHODS, SAMPLERS, Net
from zellige.base.requests import option_of, options_of
from zellige.cli.tables import table as listed_rows
from zellige.core import bound
from zellige.evaluation import conditional
from zellige.evaluation.metrics import KNOWN, METRICS, Metric
from zellige.methods import build
from zellige.plugins.evaluations.bracket import two_sides
from zellige.plugins.studies.probes import probe
from zellige.samplers.guide import Truncation
from zellige.samplers.speculative import Speculative

DOCS = Path(__file__).parents[1]
COLUMNS = (
    "*Draws from*: the distribution of its samples. *Needs*: what the method must have. *Bounded by*: the value of "
    "`zellige evaluate` that bounds the likelihood of its samples. *Evaluations*: network evaluations per sample."
)
IN_ONE_ORDER = (
    "*= in one order*: the likelihood is exact if the tokens are revealed one by one in a fixed order "
    "([any-order likelihood](../learn/glossary.md#any-order-likelihood)).\n"
)

TRUNCATES = "[`--temperature`, `--top-p` and `--top-k`](../guides/sample.md#the-options-that-matter) work as usual.\n"

LIKELIHOODS: dict[str, Any] = {  # page: the file that computes it
    "bound": bound,
    "bracket": two_sides,
    "conditional": conditional,
    "probe": probe,
}


def of_samples() -> dict[str, list[Metric]]:
    """The pages of metrics of samples, each with its rows of METRICS."""
    pages: dict[str, list[Metric]] = {}
    for metric in METRICS.all().values():
        pages.setdefault(metric.page, []).append(metric)
    return pages


def markdown(text: str) -> str:
    """A docstring as Markdown: what is indented or has columns stays as it stands, arguments are lists, the rest is prose."""
    parts: list[str] = []
    for piece in text.strip("\n").split("\n\n"):
        if piece.startswith("    ") and parts and parts[-1].startswith("    "):
            parts[-1] += f"\n\n{piece}"
        else:
            parts.append(piece)
    return "\n".join(map(part, parts))


def part(text: str) -> str:
    """A part between empty lines."""
    first, *lines = text.split("\n")
    if first in ("Args:", "Raises:", "Returns:"):
        items = [line for line in lines if line.startswith(" ")]
        named = [item.split(": ", 1) for item in re.sub(r"\n {8}", " ", "\n".join(items)).split("\n")]
        more = "\n".join(line for line in lines if not line.startswith(" "))
        listed = "\n".join(f"- `{name.strip()}`: {prose(about[0] if about else '')}" for name, *about in named)
        return f"{first}\n\n{listed}\n" + (f"\n{prose(more)}\n" if more else "")
    if text.startswith(">>>") or (not text.startswith("|") and re.search(r"^    |\S {2,}\S", text, re.M)):
        return f"```text\n{textwrap.dedent(text)}\n```\n"
    return (text if text.startswith("|") else prose(text)) + "\n"


def prose(line: str) -> str:
    """A line of a paragraph: but for `code` and **bold**, what Markdown would take for its own is escaped."""
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(
        p if i % 2 else re.sub(r"(?<!\*)\*(?!\*)|\$|<(?=[a-zA-Z/!?])", r"\\\g<0>", p) for i, p in enumerate(parts)
    )


def table(rows: Iterable[Iterable[str]], head: Iterable[str]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len([*head]) + "|", *lines, ""])


def about_fields(cls: type) -> dict[str, str]:
    """What each option of a dataclass says of itself."""
    ordered = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)  # as in the constructor
    return {field.name: option.help for field in ordered if (option := option_of(field))}


def title(module: Any) -> tuple[str, str]:
    """The first sentence of a module, and the rest of what it says."""
    text = inspect.getdoc(module) or ""
    first, _, rest = text.partition("\n\n")
    return " ".join(first.split()).removesuffix("."), rest


def method_page(name: str) -> Iterator[str]:
    cls = METHODS[name]
    module = sys.modules[cls.__module__]
    yield listed("methods", name)
    if lists.in_one_order(cls):
        yield IN_ONE_ORDER
    yield "Check its formulas on a small space (`verify` prints the largest error of each), and train it:\n"
    yield shell(f"zellige verify {name}", f"zellige train {name} --run runs/{name}")
    yield docstring(module)
    texts = about_fields(cls.Config)
    defaults = cls.Config()
    rows = [[f"`{field}`", f"`{getattr(defaults, field)}`", prose(about)] for field, about in texts.items()]
    if rows:
        yield f"## Options\n\n`{cls.__name__}.Config`; on the command line `--{next(iter(texts)).replace('_', '-')}` and so on.\n"
        yield table(rows, ["field", "default", ""])
    yield source(module)


def sampler_page(name: str) -> Iterator[str]:
    cls = SAMPLERS[name]
    module = sys.modules[cls.__module__]
    yield listed("samplers", name)
    fits = [method for method in METHODS if cls().reason_against(small(method)) is None]
    yield f"{COLUMNS}\n"
    yield f"Works with {', '.join(f'[{method}](../methods/{method}.md)' for method in fits)} (with default options).\n"
    method = "mdlm" if "mdlm" in fits else fits[0]
    yield "Check its distribution on a small space, and sample with it:\n"
    head = f" --head runs/{method}-head" if issubclass(cls, Speculative) else ""
    yield shell(f"zellige verify {method} --sampler {name}", f"zellige sample runs/{method} --sampler {name}{head}")
    yield docstring(module)
    yield f"## Options\n\n{option_table(cls)}"
    yield source(module)


def metric_page(name: str) -> Iterator[str]:
    if name in LIKELIHOODS:
        yield docstring(LIKELIHOODS[name])
        yield source(LIKELIHOODS[name])
        return
    rows = of_samples()[name]
    better = {True: "higher", False: "lower", None: "like real data"}
    if name == "perplexity":
        better[False] = "lower, at equal entropy"
    if name in ("distinct", "entropy", "seq-rep"):  # samples can be more varied than text
        better |= {True: "higher, up to that of real text", False: "lower, down to that of real text"}
    cells: dict[tuple[str, ...], list[str]] = {}
    for m in rows:
        cells.setdefault((m.unit or "-", better[m.higher], m.interval, m.paper or "-"), []).append(f"`{m.name}`")
    heads = ["name in the JSON", "unit", "better", "95% interval", "paper"]
    yield table([[", ".join(names), *alike] for alike, names in cells.items()], heads)
    takes = dict.fromkeys(name for m in rows for name in m.takes)
    yield "Input:\n\n" + "\n".join(f"- `{name}`: {prose(KNOWN[name])}" for name in takes) + "\n"
    functions = [m.function.func if isinstance(m.function, partial) else m.function for m in rows]
    for function in dict.fromkeys(functions):
        first, _, more = (inspect.getdoc(function) or "").partition("\n\n")
        code = without_docstring(inspect.getsource(function))
        run = f"<!-- not run: a part of its file -->\n```python\n{code}\n```\n"
        yield folded(f"The function {function.__name__}", f"{prose(first)}\n\n{markdown(more)}\n{run}")
    yield source(inspect.getmodule(functions[0]))


def docstring(module: Any) -> str:
    """The docstring of a module, folded: formulas, and the differences from the paper."""
    first, more = title(module)
    return folded("The formulas, from the docstring", f"**{first}.**\n\n{markdown(more)}")


def folded(summary: str, text: str) -> str:
    """A text that a reader unfolds. No heading stands in it: a section would end before the fold does."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n</details>\n"


def option_table(cls: Any) -> str:
    """The options of a sampler, as its fields declare them; those of every sampler are named in a sentence."""
    entries, shared = options_of(cls), options_of(Truncation)
    rows = [
        [
            f"`--{(entry.flag or entry.name).replace('_', '-')}`",
            "" if entry.default is None else f"`{entry.default}`",
            prose(entry.help),
        ]
        for entry in entries.values()
        if entry != shared.get(entry.name)
    ]
    options = table(rows, ["option", "default", ""]) if rows else ""
    return options + (f"\n{TRUNCATES}" if shared.keys() <= entries.keys() else "")


def without_docstring(code: str) -> str:
    """The source of a function without its docstring."""
    first: Any = ast.parse(code).body[0]
    about, lines = first.body[0], code.rstrip().split("\n")
    return "\n".join([*lines[: about.lineno - 1], *lines[about.end_lineno :]])


def listed(kind: str, name: str) -> str:
    """The row of `zellige list`."""
    (row,) = (row for row in listed_rows(kind) if row["name"] == name)
    row.pop("name")
    return table([row.values()], row)


@cache
def small(method: str) -> Any:
    """A method with its usual choices and hardly a network, and a head that verifies drafts."""
    made = build(method, 5, Net(layers=1, hidden=16, heads=2))
    return made.verified_by(lambda h, x, turn: h)


def shell(*lines: str) -> str:
    return "\n".join(["```sh", *lines, "```", ""])


def source(module: Any) -> str:
    return f"In `{module.__name__.replace('.', '/')}.py`; [the reference](../reference/api.md) has all names.\n"


HEADS = {  # kind: the sentence above its list
    "methods": "The name in code style is that of the command: `zellige train mdlm`. "
    "[Choose a method](../learn/choose.md) compares them.",
    "samplers": "Begin with one of the first three: `zellige sample MODEL --sampler confidence`, or for a model of blocks "
    "(`bd3lm`) `--block-sampler confidence`. Models of `ar`, `flexmdm` and `csm` have one sampler each. [Choose a "
    "sampler](../guides/choose_sampler.md) compares all.",
    "metrics": "`zellige evaluate MODEL` gives the bound, `zellige evaluate MODEL --generate` the metrics of samples.",
}

SAMPLER_GROUPS = {  # heading of the list: its samplers
    "Try these first": ("ancestral", "confidence", "first_hitting"),
    "For long texts, and with caches": ("blockwise", "semi_autoregressive"),
    "To correct mistakes": ("remasking", "p2", "psi", "informed"),
    "To steer samples": ("smc",),
    "To save network evaluations": ("klass", "speculative"),
    "For one method or kind of data": ("left_to_right", "insertion", "metropolis", "tau_leaping"),
    "For studies and comparisons": ("any_order", "fixed_order", "euler", "uniformisation"),
}

KINDS: dict[str, tuple[str, Iterable[str], Callable[[str], Iterator[str]]]] = {
    "methods": ("Methods", METHODS, method_page),
    "samplers": ("Samplers", SAMPLERS, sampler_page),
    "metrics": ("Metrics", [*LIKELIHOODS, *of_samples()], metric_page),
}


def rest(kind: str, name: str) -> str:
    """What follows the written part of a page."""
    return "\n" + "\n".join(KINDS[kind][2](name))


def index(kind: str) -> str:
    """The page that lists those of a kind: the first sentences of what each is, when to use it and what it costs."""
    caption = KINDS[kind][0]
    names = in_order(kind)
    if kind == "metrics":
        images = [name for name in names if name in of_samples() and of_samples()[name][0].of_images]
        texts = [name for name in names if name in of_samples() and name not in images]
        groups = {"Likelihoods and features": [*LIKELIHOODS], "Samples of text": texts, "Samples of images": images}
    elif kind == "samplers":
        groups = SAMPLER_GROUPS
    else:
        groups = {"": names}
    lines = [f"# {caption}", "", HEADS[kind], ""]
    for title, members in groups.items():
        lines += [f"## {title}", ""] if title else []
        typed = "" if kind == "metrics" else " `{}`"
        rows = [[f"[{heading(kind, name)}]({name}.md){typed.format(name)}", *summary(kind, name)] for name in members]
        lines += [table(rows, ["", "what it is", "use it", "it costs"])]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *names, "```", ""])


def in_order(kind: str) -> list[str]:
    """The names of a kind, in the order of its list: methods as in the guide that helps to choose one."""
    if kind == "samplers":
        order = [name for members in SAMPLER_GROUPS.values() for name in members]
    elif kind == "methods":
        guide = (DOCS / "learn" / "choose.md").read_text(encoding="utf-8")
        order = re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE)
    else:
        order = [*KINDS[kind][1]]
    return sorted(KINDS[kind][1], key=order.index)


def heading(kind: str, name: str) -> str:
    return paths(kind)[name].read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def summary(kind: str, name: str) -> list[str]:
    """The first sentence of a page, of its "Use it" and of its "It costs"."""
    idea = paths(kind)[name].read_text(encoding="utf-8").partition("\n")[2]
    paragraphs = [" ".join(part.split()) for part in idea.strip().split("\n\n")]
    starts = ["", "**Use it** ", "**It costs** "]
    found = (next(part.removeprefix(start) for part in paragraphs if part.startswith(start)) for start in starts)
    return [re.split(r"(?<=[.]) (?=[A-Z(*`])", text)[0] for text in found]


def paths(kind: str) -> dict[str, Path]:
    return {name: DOCS / kind / f"{name}.md" for name in KINDS[kind][1]}
