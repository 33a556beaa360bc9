"""Counts four things that slow a reader of the sources down; a figure to watch, no limit.

    python benchmarks/reading.py [FOLDER]      of src/zellige, by package and in all

- parameters annotated `Any`: what may be handed over stands nowhere;
- reads by a string key, `result["nats"]`: what there is to read stands nowhere;
- local variables named by a pronoun or a participle (`it`, `theirs`, `asked`, `drawn`), as a share of all that are assigned;
- docstrings that begin with What, How or Whether, as a share of all.
"""

import argparse
import ast
import re
from collections import Counter
from pathlib import Path

PRONOUNS = """
it its they their them theirs he she we us our ours you your yours one ones each every this that these those what who
whom whose which some any all both others other another none here there own mine"""
PARTICIPLES = """
given taken made done seen drawn held kept chosen found written read said told known shown left met cut put set sent
brought gone begun spent built bound lost thought bought worn split shut"""
NOUNS = "seed speed feed need bed red reed embed shared_embed set read cut bound split left"
VAGUE = {*PRONOUNS.split(), *PARTICIPLES.split()} - {*NOUNS.split()}
PARTICIPLE = re.compile(r"[a-z]{3,}ed$")
WORDS = ("What", "How", "Whether")
TYPES = ("Request", "SamplesRequest", "Literal", "type")  # `Request["Result"]` is a type, and reads nothing


def vague(name: str) -> bool:
    """Whether a variable's name is a pronoun or a participle."""
    name = name.strip("_")
    return name in VAGUE or (name not in NOUNS.split() and bool(PARTICIPLE.match(name)))


def counts(source: str) -> Counter[str]:
    """The counts of one file."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found["Any"] += sum(isinstance(a.annotation, ast.Name) and a.annotation.id == "Any" for a in arguments)
            names = {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
            found["variables"] += len(names)
            found["vague"] += sum(map(vague, names))
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            is_key = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
            found["keys"] += is_key and not (isinstance(node.value, ast.Name) and node.value.id in TYPES)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            found["docstrings"] += text is not None
            found["questions"] += text is not None and text.startswith(WORDS)
    return found


def row(title: str, of: Counter[str]) -> str:
    """A line of the table."""
    share = lambda part, whole: f"{of[part] / max(of[whole], 1):7.1%}"  # noqa: E731
    vague_share, questions = share("vague", "variables"), share("questions", "docstrings")
    return f"{title:<14}{of['files']:>6}{of['lines']:>8,}{of['Any']:>7,}{of['keys']:>7,}  {vague_share}  {questions}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=Path(__file__).parents[1] / "src" / "zellige", type=Path)
    folder = parser.parse_args().folder
    whole, parts = Counter[str](), dict[str, Counter[str]]()
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        found = counts(source) + Counter(files=1, lines=source.count("\n"))
        package = file.relative_to(folder).parts[0] if len(file.relative_to(folder).parts) > 1 else "(ground)"
        parts.setdefault(package, Counter()).update(found)
        whole.update(found)
    print(f"{'package':<14}{'files':>6}{'lines':>8}{'Any':>7}{'keys':>7}  {'vague':>7}  {'What/How':>7}")
    for name, found in parts.items():
        print(row(name, found))
    print(row("in all", whole))


if __name__ == "__main__":
    main()
