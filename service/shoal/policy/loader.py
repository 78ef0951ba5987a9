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
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from shoal.errors import Fault, InputError, PolicyError
from shoal.policy.schema import Document

__all__ = ["FieldPath", "Lines", "line_of", "read_document"]

FieldPath: TypeAlias = tuple[str, ...]
Lines: TypeAlias = dict[FieldPath, int]

LARGEST_TEXT, LARGEST_NODES = 1 << 20, 100_000
"""More characters, or more values with aliases put in, are no policy but an attack on whoever reads it."""

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
    if len(text) > LARGEST_TEXT:
        raise PolicyError([Fault((), "too long for a policy")], str(path))
    try:
        parse = _parse_toml if path.suffix.lower() == ".toml" else _parse_yaml
        tree, lines, faults = parse(text.removeprefix("\ufeff"), path)
    except (ValueError, RecursionError, OverflowError):
        raise PolicyError([Fault((), "too deep, too large, or a number out of all bounds")], str(path)) from None
    if not isinstance(tree, dict):
        raise PolicyError([Fault((), "must be a mapping with 'attributes' and 'privacy'", 1)], str(path))
    document, misfits = _fit(tree, lines)
    known = {fault.path for fault in faults}
    return document, [*faults, *(fault for fault in misfits if fault.path not in known)], lines


def line_of(path: FieldPath, lines: Lines) -> int | None:
    """Line of a field, or of the nearest mapping around it that was written down."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _parse_yaml(text: str, path: Path) -> tuple[object, Lines, list[Fault]]:
    try:
        lines: Lines = {}
        faults: list[Fault] = []
        _walk(YAML().compose(text), (), lines, faults, [LARGEST_NODES])
        reader = YAML(typ="rt")
        reader.allow_duplicate_keys = True
        return _plain(reader.load(text)), lines, faults
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise PolicyError([Fault((), "not valid YAML", line)], str(path)) from None


def _walk(node: object, path: FieldPath, lines: Lines, faults: list[Fault], left: list[int]) -> None:
    """Note the line of every field, and keys that stand twice or are no text; aliases are walked where they stand."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError
    if isinstance(node, MappingNode):
        _walk_mapping(node, path, lines, faults, left)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            lines[*path, str(index)] = value.start_mark.line + 1
            _walk(value, (*path, str(index)), lines, faults, left)


def _walk_mapping(node: MappingNode, path: FieldPath, lines: Lines, faults: list[Fault], left: list[int]) -> None:
    seen: set[str] = set()
    for key, value in node.value:
        line, name = key.start_mark.line + 1, str(key.value)
        if name == "<<":
            _walk(value, path, {}, faults, left)
            continue
        here = (*path, name)
        if str(key.tag) != "tag:yaml.org,2002:str":
            faults.append(Fault(here, "a name must be text: put it in quotes", line))
        elif name in seen:
            faults.append(Fault(here, "this key stands twice", line))
        seen.add(name)
        lines.setdefault(here, line)
        _walk(value, here, lines, faults, left)


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


def _parse_toml(text: str, path: Path) -> tuple[object, Lines, list[Fault]]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else None
        raise PolicyError([Fault((), "not valid TOML, or a key stands twice", line)], str(path)) from None
    return tree, dict(_toml_lines(text)), []


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
