"""Text of a policy (YAML or TOML) to plain values, with the line of every field; and to a `Document`.

A file is never read half: what does not fit is noted as a fault and taken out, and the rest is looked at
again, until a document stands on which the rules can be checked.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from shoal.errors import Fault, InputError, PolicyError
from shoal.policy.sections import Document

__all__ = ["FieldPath", "Lines", "line_of", "read_document"]

FieldPath: TypeAlias = tuple[str, ...]
Lines: TypeAlias = dict[FieldPath, int]

_WORDS = {
    "extra_forbidden": "unknown field; remove it or check its spelling",
    "missing": "missing",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
}


def read_document(path: Path) -> tuple[Document, list[Fault], Lines]:
    """Read a policy file.

    Returns
    -------
    document, faults, lines
        What could be read, what could not, and the line (from 1) of each field by its path.

    Raises
    ------
    InputError
        The file cannot be opened.
    PolicyError
        The text is not YAML or TOML at all, or a key stands twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError([Fault((), "not UTF-8 text")], str(path)) from None
    tree, lines = _parse_toml(text, path) if path.suffix == ".toml" else _parse_yaml(text, path)
    if not isinstance(tree, dict):
        raise PolicyError([Fault((), "must be a mapping with 'attributes' and 'privacy'", 1)], str(path))
    document, faults = _fit(tree, lines)
    return document, faults, lines


def line_of(path: FieldPath, lines: Lines) -> int | None:
    """Line of a field, or of the nearest mapping around it that was written down."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _parse_yaml(text: str, path: Path) -> tuple[Any, Lines]:
    try:
        tree = YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise PolicyError([Fault((), "this key stands twice", line)], str(path)) from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise PolicyError([Fault((), "not valid YAML", line)], str(path)) from None
    lines: Lines = {}
    _note_lines(tree, (), lines)
    return _plain(tree), lines


def _note_lines(tree: object, path: FieldPath, lines: Lines) -> None:
    if isinstance(tree, CommentedMap):
        for key, value in tree.items():
            here = (*path, str(key))
            lines[here] = tree.lc.key(key)[0] + 1
            _note_lines(value, here, lines)
    elif isinstance(tree, CommentedSeq):
        for index, value in enumerate(tree):
            here = (*path, str(index))
            lines[here] = tree.lc.item(index)[0] + 1
            _note_lines(value, here, lines)


def _plain(tree: object) -> object:
    """The same values as plain Python objects: the round-trip reader's own classes end here."""
    if isinstance(tree, Mapping):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    for kind in (bool, int, float, str):
        if isinstance(tree, kind):
            return kind(tree)
    return tree


_TOML_TABLE = re.compile(r"^\s*\[([^\[\]]+)\]\s*(#.*)?$")
_TOML_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _parse_toml(text: str, path: Path) -> tuple[Any, Lines]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else None
        raise PolicyError([Fault((), "not valid TOML, or a key stands twice", line)], str(path)) from None
    return tree, dict(_toml_lines(text))


def _toml_lines(text: str) -> Iterator[tuple[FieldPath, int]]:
    table: FieldPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TOML_TABLE.match(line):
            table = _dotted(header.group(1))
            yield table, number
        elif key := _TOML_KEY.match(line):
            path = (*table, *_dotted(key.group(1)))
            yield path, number
            # An inline table names its fields on the same line.
            yield from (((*path, name), number) for name in re.findall(r"[{,]\s*([\w-]+)\s*=", line))


def _dotted(name: str) -> FieldPath:
    return tuple(part.strip().strip("\"'") for part in re.findall(r"""[^."']+|"[^"]*"|'[^']*'""", name))


def _fit(tree: dict[str, Any], lines: Lines) -> tuple[Document, list[Fault]]:
    faults: list[Fault] = []
    while True:
        try:
            return Document.model_validate(tree), faults
        except ValidationError as error:
            # include_input=False: what stood in the file stays there, whatever it was.
            details = error.errors(include_input=False, include_url=False, include_context=False)
            paths = [_true_path(tuple(map(str, detail["loc"])), tree) for detail in details]
            for detail, path in zip(details, paths, strict=True):
                message = _WORDS.get(detail["type"], detail["msg"])
                if all(fault.path != path for fault in faults):
                    faults.append(Fault(path, message, line_of(path, lines)))
                _take_out(tree, path)


def _true_path(location: FieldPath, tree: object) -> FieldPath:
    """The part of pydantic's location that exists in the file (it appends names of union members)."""
    path: list[str] = []
    for step in location:
        if isinstance(tree, dict) and step in tree:
            tree = tree[step]
        elif isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            break
        path.append(step)
    return tuple(path)


def _take_out(tree: object, path: FieldPath) -> None:
    """Remove a field; one item of a list takes the whole list with it, half a list means something else."""
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        if not isinstance(tree, dict) or step not in tree:
            return
        if last or isinstance(tree[step], list):
            del tree[step]
            return
        tree = tree[step]
