"""Parse a policy file: YAML or JSON to plain values, with the line of every field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from shoal.errors import Fault, InputError, PolicyError
from shoal.policy.schema import FieldPath

Lines: TypeAlias = Mapping[FieldPath, int]
"""The line (from 1) of each field, by its path."""

MAX_CHARACTERS, MAX_NODES = 1 << 20, 100_000
"""Limits on a policy file, and on its values after YAML aliases are expanded. They bound time and memory."""
DECIDE = "# DECIDE: "
"""Marks in the comments of a draft what only a person can decide; `shoal check` repeats these lines."""
MAX_DIGITS = 4_300
"""Python reads no whole number of more digits."""


def read_document(path: Path) -> tuple[dict[str, Any], list[Fault], Lines]:
    """Return the content of a policy file, the faults of its text, and the line of each field."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError([Fault((), "not UTF-8; save the file as UTF-8")], str(path)) from None
    if path.suffix.lower() == ".toml":
        raise PolicyError([Fault((), "a policy is YAML or JSON, not TOML; write it as YAML")], str(path))
    if path.suffix.lower() == ".json":
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML not; no text of JSON holds one
    return parse_document(text.removeprefix("\ufeff"), str(path))


def parse_document(text: str, name: str) -> tuple[dict[str, Any], list[Fault], Lines]:
    """Return the content of a text, its faults, and the line of each field; ``name`` is that of the file for errors."""
    if len(text) > MAX_CHARACTERS:
        raise PolicyError([Fault((), f"longer than {MAX_CHARACTERS} characters")], name)
    try:
        reader = YAML(typ="rt")
        reader.allow_duplicate_keys = True
        node = reader.compose(text)
        visitor = _NodeVisitor(name)
        visitor.visit(node, (), visitor.lines)
        tree = node and _plain(reader.constructor.construct_document(node))
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PolicyError(
            [Fault((), f"not valid YAML{_reason(error)}", mark.line + 1 if mark else None)], name
        ) from None
    except RecursionError:
        raise PolicyError([Fault((), "nested too deeply; remove levels of [...] and {...}")], name) from None
    except (ValueError, OverflowError):
        fault = "a value that does not have the form of its tag (!!name); remove the tag"
        raise PolicyError([Fault((), fault)], name) from None
    if not isinstance(tree, dict):
        raise PolicyError([Fault((), "must be a mapping with the fields attributes and privacy", 1)], name)
    return tree, visitor.faults, visitor.lines


def line_of(path: FieldPath, lines: Lines) -> int | None:
    """Return the line of a field, or of the nearest enclosing field that has a line."""
    outer = (path[:length] for length in range(len(path), 0, -1))
    return next((lines[place] for place in outer if place in lines), None)


_YAML_REASONS = (
    ("'\\t'", "a tab; YAML indents with blanks"),
    ("expected ',' or ']'", "a list in [...] is not closed, or a comma is missing"),
    ("expected ',' or '}'", "a mapping in {...} is not closed, or a comma is missing"),
    ("expected <block end>", "this line is not indented like the lines of its section"),
    ("could not find expected ':'", "a colon is missing after the name of a field"),
    (
        "mapping values are not allowed",
        "a second colon in one line, or a line that is indented too far; put texts with a colon in quotes",
    ),
    ("expected the node content", "a value is missing"),
    ("unexpected end of stream", "a quotation mark or a bracket is not closed"),
    ("undefined alias", "an alias (*name) without an anchor (&name) before it"),
    ("duplicate anchor", "an anchor (&name) occurs twice"),
    ("cannot start any token", "a character that no value begins with; put the text in quotes"),
    ("special characters are not allowed", "a control character"),
    ("expected a single document", "more than one document; remove the line ---"),
    ("unknown escape character", "an unknown escape after a backslash; use single quotation marks"),
    ("undefined tag handle", "an unknown tag (!name); put the text in quotes"),
    ("could not determine a constructor", "an unknown tag (!name); remove it"),
)
"""What a fault of the YAML parser means. The parser's text is not shown: it may quote a password."""


def _reason(error: YAMLError) -> str:
    """Return what a fault of the parser means, after a colon; an empty text if that is not known."""
    text = " ".join(str(part) for part in (getattr(error, "problem", None), getattr(error, "context", None)) if part)
    text = text or type(error).__name__ + str(error).partition("\n")[0]
    return next((f": {reason}" for words, reason in _YAML_REASONS if words in text), "")


_TEXT, _TIMESTAMP = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"
_INTEGER, _NUMBER, _BOOLEAN = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool"))
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


class _NodeVisitor:
    """Notes the line of every field, repeated keys, and keys that are not text. An alias visits its nodes again."""

    def __init__(self, name: str) -> None:
        self.lines: dict[FieldPath, int] = {}
        self.faults: list[Fault] = []
        self._name = name
        self._nodes_left = MAX_NODES
        self._open: set[int] = set()
        """Identities of the nodes around the one that is visited."""

    def visit(self, node: object, path: FieldPath, lines: dict[FieldPath, int]) -> None:
        """Visit a node and all nodes in it, and add their lines to ``lines``; `PolicyError` if a limit is exceeded."""
        self._nodes_left -= 1
        if id(node) in self._open:
            raise self._error(path, "an alias (*name) refers to the value that it is part of; write the value instead")
        if self._nodes_left < 0:
            raise self._error(path, f"the file has more than {MAX_NODES:,} values; use fewer aliases (*name)")
        if isinstance(node, ScalarNode):
            self._visit_scalar(node, path)
            return
        self._open.add(id(node))
        if isinstance(node, MappingNode):
            self._visit_mapping(node, path, lines)
        elif isinstance(node, SequenceNode):
            for index, value in enumerate(node.value):
                lines[*path, str(index)] = value.start_mark.line + 1
                self.visit(value, (*path, str(index)), lines)
        self._open.discard(id(node))

    def _visit_scalar(self, node: ScalarNode, path: FieldPath) -> None:
        """Keep the text of a date and of what stands for a text, or note that it would be lost."""
        tag, node.value = str(node.tag), _joined(str(node.value))
        if tag == _TIMESTAMP:
            # The reader would convert a date to UTC and drop the zone.
            node.tag = _TEXT
        elif path[:1] == ("missing_values",) and tag in {_INTEGER, _NUMBER, _BOOLEAN}:
            node.tag = _TEXT
        elif tag == _INTEGER and len(str(node.value)) > MAX_DIGITS:
            message = f"a number of more than {MAX_DIGITS:,} digits; shorten it, or put it in quotes if it is a text"
            raise self._error(path, message, node.start_mark.line + 1)
        is_category = path[:1] == ("attributes",) and path[2:3] in {("order",), ("taxonomy",)}
        if is_category and tag == _INTEGER and not _PLAIN_INTEGER.fullmatch(str(node.value)):
            message = "has a number with another text than that of its value, such as 01 for 1; put it in quotes"
            if all(fault.path != path[:3] for fault in self.faults):
                self.faults.append(Fault(path[:3], message, node.start_mark.line + 1))

    def _visit_mapping(self, node: MappingNode, path: FieldPath, lines: dict[FieldPath, int]) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            key.value = _joined(str(key.value))
            line, name = key.start_mark.line + 1, key.value
            if name == "<<":
                self.visit(value, path, {})
                continue
            child = (*path, name)
            if str(key.tag) != _TEXT:
                self.faults.append(Fault(child, "a name must be text; put it in quotes", line))
            elif name in seen:
                self.faults.append(Fault(child, "this key occurs twice; remove one", line))
            seen.add(name)
            lines.setdefault(child, line)
            self.visit(value, child, lines)

    def _error(self, path: FieldPath, message: str, line: int | None = None) -> PolicyError:
        return PolicyError([Fault(path, message, line or line_of(path, self.lines))], self._name)


def _joined(text: str) -> str:
    """Return a text with one character for both halves of it, as which JSON may write it; a lone half stays."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _plain(tree: object) -> object:
    """Convert values to plain Python objects. The YAML reader wraps them to keep the formatting of the file."""
    if isinstance(tree, Mapping):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    for kind in (bool, int, float, str):
        if isinstance(tree, kind):
            return kind(tree)
    return tree
