"""Which paths in a file of this repository lead out of it: a clone may have nothing beside it."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TypeAlias

PATH_WORDS = ("__file__", "ROOT", "home", "expanduser")
"""A Python file without any of them has no path that `_climbs` could find."""
Parts: TypeAlias = tuple[str, ...]
"""A path inside the repository, from its root on."""

UP = re.compile(r"(?<![.\w])\.\.(?:/\.\.)*(?=[/\"'`)\s]|$)", re.MULTILINE)
ABSOLUTE = re.compile(
    r"(?<![\w./>~)}-])/(?:home|Users|root|work|mnt|media|srv|data|tmp)\b(?=/|[\"'`)\s]|$)", re.MULTILINE
)
HOME = re.compile(r"(?<![\w~/])~[/]|\$\{?HOME\b")
PASSED_ON = {"resolve", "absolute"}


class _LeftRepositoryError(Exception):
    """A path has more parents than folders between it and the root."""


def outside(name: str, text: str) -> list[str]:
    """Return what in a file names a path outside the repository, as ``FILE:LINE: TEXT``.

    Found are ``..`` beyond the root, absolute paths of one machine, home folders, and in Python the parents of
    ``__file__`` beyond the root, also by way of a constant of the module.
    """
    depth = len(PurePosixPath(name).parts) - 1
    found = [(m.start(), m.group()) for m in UP.finditer(text) if m.group().count("..") > depth]
    found += [(m.start(), m.group()) for pattern in (ABSOLUTE, HOME) for m in pattern.finditer(text)]
    lines = [(text.count("\n", 0, start) + 1, shown) for start, shown in found]
    if name.endswith(".py") and any(word in text for word in PATH_WORDS):
        lines += _climbs(ast.parse(text), PurePosixPath(name).parts)
    return [f"{name}:{line}: {shown}" for line, shown in sorted(lines)]


def _climbs(module: ast.Module, here: Parts) -> list[tuple[int, str]]:
    """Lines of a Python file whose path expressions leave the repository."""
    known = _constants(module, here)
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and _is_home(node):
            found.append((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.expr):
            try:
                _parts(node, here, known)
            except _LeftRepositoryError:
                found.append((node.lineno, ast.unparse(node)))
    return found


def _is_home(node: ast.Attribute) -> bool:
    return node.attr == "expanduser" or (node.attr == "home" and ast.unparse(node) == "Path.home")


def _constants(module: ast.Module, here: Parts) -> dict[str, Parts]:
    """Paths inside the repository that have a name in a module; ``ROOT`` is its root wherever it was imported from."""
    known: dict[str, Parts] = {"ROOT": ()}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            with suppress(_LeftRepositoryError):  # `_climbs` comes to it again
                value = _parts(statement.value, here, known)
                if value is not None:
                    known[statement.targets[0].id] = value
    return known


def _parts(node: ast.expr, here: Parts, known: dict[str, Parts]) -> Parts | None:  # noqa: PLR0911 - one for each form
    """Path that an expression stands for; None if it is not known."""
    match node:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]):
            return here
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in PASSED_ON:
            return _parts(inner, here, known)
        case ast.Attribute(value=inner, attr="parent"):
            return _above(_parts(inner, here, known), 1)
        case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(levels))):
            return _above(_parts(inner, here, known), levels + 1)
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(right))):
            return _joined(_parts(left, here, known), right)
    return None


def _above(parts: Parts | None, levels: int) -> Parts | None:
    if parts is None:
        return None
    if levels > len(parts):
        raise _LeftRepositoryError
    return parts[: len(parts) - levels]


def _joined(parts: Parts | None, right: str) -> Parts | None:
    for part in PurePosixPath(right).parts:
        parts = _above(parts, 1) if part == ".." else parts if parts is None else (*parts, part)
    return parts
