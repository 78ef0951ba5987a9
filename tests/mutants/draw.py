"""Print the mutation sites of a group in the order of a fixed seed: the first four useful ones are in mutants.toml.

Usage: ``python tests/mutants/draw.py GROUP [COUNT]``. The order was drawn once, from the modules named in `GROUPS`.
When these modules move, the list in mutants.toml is carried over by hand, and this order is no longer that of the list.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SERVICE = Path(__file__).resolve().parents[2] / "service" / "shoal"
SEED = 20260
GROUPS = {
    "rules": [f"streams/{name}.py" for name in ("nearest", "growth", "indexed", "partition", "expiry")],
    "invariants": ["streams/invariants.py"],
    "offsets": ["kafka/offsets.py", "kafka/task.py"],
    "encoder": ["formats/encoder.py", "scales/numeric.py"],
    "judge": ["audit/*.py"],
    "producer": ["kafka/transactions.py", "kafka/metadata.py"],
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
}


class Site(NamedTuple):
    """One place and what would stand there."""

    file: str
    line: int
    column: int
    operator: str
    before: str
    after: str


def sites(path: Path) -> Iterator[Site]:
    """List every mutation site of a module; annotations, decorators and docstrings hold none."""
    text = path.read_text(encoding="utf-8")
    for node in _code(ast.parse(text)):
        for operator, mutated in _mutations(node):
            before = ast.get_source_segment(text, node) or ""
            where = str(path.relative_to(SERVICE))
            yield Site(where, node.lineno, node.col_offset, operator, before, mutated)


def _code(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    skipped = {"annotation", "returns", "decorator_list", "bases"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in skipped or not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from _code(child)


def _mutations(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "negation", f"not ({ast.unparse(node.test)})"
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    else:
        yield from _of_expression(node)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.AugAssign(target, operator, value):
            yield "dropped", "pass"
            if type(operator) in ARITHMETIC:
                yield "arithmetic", f"{ast.unparse(target)} {ARITHMETIC[type(operator)]}= {ast.unparse(value)}"
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise() | ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "dropped", "pass"
        case ast.Return(value) if value is not None:
            yield "return", f"return not ({ast.unparse(value)})" if _is_truth(value) else "return None"


def _of_expression(node: ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(left, [comparison], [right]) if type(comparison) in COMPARISONS:
            yield "comparison", f"{ast.unparse(left)} {COMPARISONS[type(comparison)]} {ast.unparse(right)}"
        case ast.Constant(int(number)) if not isinstance(number, bool):
            yield "constant", str(number + 1)
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
            yield "arithmetic", f"({ast.unparse(left)}) {ARITHMETIC[type(operator)]} ({ast.unparse(right)})"
        case ast.Call(ast.Name("min" | "max" as name)):
            yield "extreme", f"{'max' if name == 'min' else 'min'}{ast.unparse(node)[3:]}"
        case ast.BoolOp(connective, values):
            word = " or " if isinstance(connective, ast.And) else " and "
            yield "connective", word.join(f"({ast.unparse(value)})" for value in values)


def _is_truth(value: ast.expr) -> bool:
    return isinstance(value, ast.Compare | ast.BoolOp) or (
        isinstance(value, ast.Constant) and isinstance(value.value, bool)
    )


def drawn(group: str) -> list[Site]:
    """Return all sites of a group in the order of the seed."""
    paths = sorted(path for pattern in GROUPS[group] for path in SERVICE.glob(pattern))
    found = sorted(site for path in paths for site in sites(path))
    random.Random(f"{SEED}-{group}").shuffle(found)
    return found


if __name__ == "__main__":
    chosen = drawn(sys.argv[1])
    print(len(chosen), "sites")
    for rank, site in enumerate(chosen[: int(sys.argv[2]) if len(sys.argv) > 2 else 12], 1):
        print(f"{rank:2} {site.file}:{site.line}:{site.column} {site.operator}: {site.before!r} -> {site.after!r}")
