"""The words of the field: a variable is named after what it holds, and a public name means one thing in the whole house."""

import ast
from collections import defaultdict
from pathlib import Path

from zellige.cli.help import COMMANDS

SOURCE = Path(__file__).resolve().parents[1] / "src" / "zellige"
DIALECT = {"found", "said", "kept", "told", "plain", "given"}  # each says that something happened, not what is there
DOCUMENTED = {("report/compare/comparison.py", "plain")}  # a field that people read: what compare.json holds

# A name that two packages share: why both are called so.
SHARED_NAMES = {
    "Bracket": "the options of the mode, and the result of the verb",
    "Grid": "CSM's neighbourhood along each position, and the modality of grids such as Sudokus",
    "Law": "which one a sampler draws from, and one by which a comparison judges",
    "Probe": "the options of the mode, and the result of the verb",
    "Report": "the options of the command, and the rows that `verify` gives back",
    "Source": "of random numbers, and of a corpus: the usual word for both",
    "Steps": "the options of the mode, and D3PM's Q_1..Q_T",
    "absorbing": "the process, D3PM's matrix and tauLDR's rates of the same noise",
    "uniform": "the process, D3PM's matrix and tauLDR's rates of the same noise; and a draw in [0, 1)",
    "again": "a variant of an identity once more; which texts are drawn again",
    "both": "the sum of the two terms of tauLDR's bound; the times of the two streams of a network of blocks",
    "bracket": "a mode of the command, and the verb",
    "check": "options that were typed; a sampler and a method",
    "continuous_law": "whose law it is, in words; that law, enumerated",
    "discrete": "the bound of a step; whether time has steps only",
    "embed": "texts as vectors; a law on V^L as one on K^L",
    "ends": "the terms at the ends of time; where the rows of frames end; a schedule with coarse ends",
    "entropy": "of texts, of a law that is enumerated, of the tokens of a text that grows",
    "enumerable": "why a method's states cannot be; a method whose states can be",
    "find": "the class of a method, and of a sampler, by its name",
    "free": "a folder's name; positions that a step may change",
    "heading": "the first lines of a training, and of a result",
    "load": "a model, a tokenizer; and a model for a command",
    "main": "the entries of command lines",
    "near": "a value that must be near another; the head that is near the noisy level",
    "nearest": "the nearest word to a misspelt one; D3PM's rates between nearest neighbours",
    "of_rows": "the randomness of some rows; a method's answer, after a look at its rows",
    "one_alpha": "of the method of an identity, and of a process",
    "pairs": "a mode of the command; clean and noisy sequences of an identity",
    "parse": "a command line, and a JSON text",
    "parts": "of a quadrature, and of the queries of attention",
    "pieces": "of a text as a page shows it, and as it is read while it grows",
    "prior": "the KL of one position, and the term of a batch",
    "probe": "a mode of the command, and the verb",
    "quoted": "a text, and any value, in an error",
    "report": "the command; the line that says what Metropolis' chains did",
    "reverses": "whether an identity has a process to reverse; why a sampler has none",
    "settled": "a way of sampling with all its numbers; whether a run has nothing left to do",
    "shown": "a measure with its interval; a path in an error",
    "steps": "a mode of the command; the checkpoints of a run",
    "table": "of the demo, of a list, of D3PM's schedules",
    "writable": "for an option's path, and for any path",
    "write": "the page of a run; results and lists of commands",
}


def trees() -> dict[str, ast.Module]:
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def test_no_variable_is_called_by_what_happened_to_it():
    names = {
        (place, node.id if isinstance(node, ast.Name) else node.arg)
        for place, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    assert {entry for entry in names if entry[1] in DIALECT} == DOCUMENTED


def test_two_packages_share_a_public_name_for_a_reason():
    """A command is called as the verb that it runs; any other name that stands in two packages is in the table."""
    packages = defaultdict(set)
    for place, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                packages[node.name].add(place.split("/")[0])
    shared = {name for name, homes in packages.items() if len(homes - {"cli"} if name in COMMANDS else homes) > 1}
    missing, needless = (
        shared - set(SHARED_NAMES) - set(COMMANDS),
        set(SHARED_NAMES) - {n for n, h in packages.items() if len(h) > 1},
    )
    assert (missing, needless) == (set(), set())
