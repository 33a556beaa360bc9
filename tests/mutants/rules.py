"""Mutants by rule: what could be wrong in a Python file, read from its syntax tree.

A mutant replaces one segment of the source. Positions are bytes, as in `ast`. Docstrings and other texts, annotations, `__all__`,
f-strings, `raise` statements and blocks for type checking are no sites.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

ARITHMETIC: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"), ast.Pow: ("**", "*"),
}  # fmt: skip
COMPARISON: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: (r"is", "is not"), ast.IsNot: (r"is\s+not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),  # codespell:ignore notin
}  # fmt: skip
DROPPED = ast.Add | ast.Sub | ast.Mult | ast.Div
FLIPPED = ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn  # by the comparison rule; codespell:ignore notin
SYMMETRIC = {
    "min",
    "max",
    "minimum",
    "maximum",
    "logaddexp",
    "gcd",
    "isclose",
    "allclose",
}  # exchanged arguments change nothing


class Mutant(NamedTuple):
    """`old`, at this line and column (from 1; from 0, in bytes), becomes `new`; `file` is below src/zellige."""

    file: str
    line: int
    column: int
    rule: str
    old: str
    new: str

    def start(self, source: str) -> int:
        """Byte of the source at which `old` begins."""
        return sum(map(len, source.encode().split(b"\n")[: self.line - 1])) + self.line - 1 + self.column

    def apply(self, source: str) -> str:
        """Source with the error in it."""
        data, start, old = source.encode(), self.start(source), self.old.encode()
        if data[start : start + len(old)] != old:
            raise ValueError(f"{self.file}:{self.line} has changed since the mutant was made")
        return (data[:start] + self.new.encode() + data[start + len(old) :]).decode()

    def lines(self, source: str) -> tuple[str, str]:
        """Lines that change, before and after, without the spaces around them."""
        before, after = source.split("\n"), self.apply(source).split("\n")
        stop = self.line + self.old.count("\n")
        texts = before[self.line - 1 : stop], after[self.line - 1 : stop + len(after) - len(before)]
        return tuple(" ".join(line.strip() for line in lines) for lines in texts)  # type: ignore[return-value]

    def valid(self, source: str) -> bool:
        """Whether the changed source compiles, to another syntax tree."""
        changed = self.apply(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(changed, self.file, "exec")
        except SyntaxError:
            return False
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


class _Sites:
    def __init__(self, file: str, source: str) -> None:
        self.file, self.data, self.starts = file, source.encode(), [0]
        for line in self.data.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def begin(self, node: Any) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: Any) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, start: int, stop: int) -> str:
        return self.data[start:stop].decode()

    def of(self, node: Any) -> str:
        return self.text(self.begin(node), self.end(node))

    def mutant(self, rule: str, start: int, stop: int, new: str) -> Mutant:
        line = self.data.count(b"\n", 0, start) + 1
        return Mutant(self.file, line, start - self.starts[line - 1], rule, self.text(start, stop), new)

    def replaced(self, rule: str, node: Any, new: str) -> Mutant:
        return self.mutant(rule, self.begin(node), self.end(node), new)

    def between(self, left: Any, right: Any, pattern: str) -> tuple[int, int]:
        """Where the operator between two operands begins and ends; comments are blanked."""
        start = self.end(left)
        gap = re.sub(rb"#[^\n]*", lambda found: b" " * len(found[0]), self.data[start : self.begin(right)])
        found = re.search(pattern.encode(), gap)
        assert found is not None
        return start + found.start(), start + found.end()

    def before(self, node: Any, left: Any, operator: int) -> str:
        """Text of a node up to its last operator, without comments after the operand."""
        gap = re.sub(r"#[^\n]*", "", self.text(self.end(left), operator))
        return self.text(self.begin(node), self.end(left)) + gap.rstrip()

    def visit(self, node: ast.AST) -> Iterator[Mutant]:
        """Every mutant at this node and below it."""
        if isinstance(node, ast.Raise | ast.JoinedStr):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in self.of(node.test):
            for statement in node.orelse:
                yield from self.visit(statement)
            return
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return
        name = type(node).__name__
        yield from getattr(self, name, lambda node: ())(node)
        for condition in [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else getattr(node, "ifs", ()):
            yield from self.condition(condition)
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "type_params", "type_comment"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.visit(child)

    def BinOp(self, node: ast.BinOp) -> Iterator[Mutant]:
        if type(node.op) not in ARITHMETIC or any(map(_is_text, (node.left, node.right))):
            return
        old, new = ARITHMETIC[type(node.op)]
        start, stop = self.between(node.left, node.right, re.escape(old))
        if isinstance(node.op, ast.Pow):  # brackets: * binds less than **
            left, right = self.text(self.begin(node), start), self.text(stop, self.end(node))
            yield self.replaced("arithmetic", node, f"({left}{new}{right})")
        else:
            yield self.mutant("arithmetic", start, stop, new)
        if isinstance(node.op, DROPPED):
            yield self.replaced("dropped term", node, self.before(node, node.left, start))

    def AugAssign(self, node: ast.AugAssign) -> Iterator[Mutant]:
        if type(node.op) in ARITHMETIC and not _is_text(node.value):
            old, new = ARITHMETIC[type(node.op)]
            start, stop = self.between(node.target, node.value, re.escape(old + "="))
            yield self.mutant("arithmetic", start, stop, new + "=")

    def BoolOp(self, node: ast.BoolOp) -> Iterator[Mutant]:
        left, right = node.values[-2:]
        start, _ = self.between(left, right, "and" if isinstance(node.op, ast.And) else "or")
        yield self.replaced("dropped term", node, self.before(node, left, start))

    def Compare(self, node: ast.Compare) -> Iterator[Mutant]:
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            old, new = COMPARISON[type(op)]
            yield self.mutant("comparison", *self.between(left, right, old), new)

    def Constant(self, node: ast.Constant) -> Iterator[Mutant]:
        value = node.value
        if isinstance(value, bool):
            yield self.replaced("constant", node, str(not value))
        elif isinstance(value, int):
            yield self.replaced("constant", node, str(value + 1))
        elif isinstance(value, float):
            yield self.replaced("constant", node, repr(2 * value if value else 1.0))

    def Call(self, node: ast.Call) -> Iterator[Mutant]:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for a, b in zip(node.args, node.args[1:], strict=False):
            plain = not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred)
            if plain and name not in SYMMETRIC and self.of(a) != self.of(b):
                new = self.of(b) + self.text(self.end(a), self.begin(b)) + self.of(a)
                yield self.mutant("swapped argument", self.begin(a), self.end(b), new)
        if name in ("range", "arange"):
            for argument in node.args:
                yield from self.off_by_one(argument)

    def Slice(self, node: ast.Slice) -> Iterator[Mutant]:
        for bound in filter(None, (node.lower, node.upper)):
            yield from self.off_by_one(bound)

    def off_by_one(self, node: ast.expr) -> Iterator[Mutant]:
        if not isinstance(node, ast.Constant | ast.Starred):  # the constant rule changes a constant
            plain = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.UnaryOp)
            yield self.replaced("off by one", node, f"{self.of(node)} + 1" if plain else f"({self.of(node)}) + 1")

    def condition(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self.replaced("negated condition", node, f"({self.of(node.operand)})")
        elif not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], FLIPPED)):
            yield self.replaced("negated condition", node, f"not ({self.of(node)})")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a source, in its order; a few do not compile or change nothing (see `Mutant.valid`)."""
    return list(_Sites(file, source).visit(ast.parse(source)))
