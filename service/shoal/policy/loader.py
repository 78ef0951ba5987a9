"""Parse a policy file (YAML or TOML) into a `Document`, and note the line of every field.

Each faulty field is noted and removed. Then the rest is validated, here and in `validation`, so that all faults are
reported at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from shoal.errors import Fault, InputError, PolicyError
from shoal.policy.schema import Document
from shoal.policy.schema_faults import describe_fault
from shoal.policy.toml_lines import find_long_number, toml_lines

__all__ = ["FieldPath", "Lines", "line_of", "read_document"]

FieldPath: TypeAlias = tuple[str, ...]
Lines: TypeAlias = dict[FieldPath, int]

MAX_CHARACTERS, MAX_NODES = 1 << 20, 100_000
"""Limits on a policy file, and on its values after YAML aliases are expanded. They bound time and memory."""
MAX_DIGITS = 4_300
"""Python reads no whole number of more digits."""
_LONG_NUMBER = f"a number of more than {MAX_DIGITS:,} digits; shorten it, or put it in quotes if it is a text"

_TEXT, _TIMESTAMP = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"
_INTEGER, _NUMBER, _BOOLEAN = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool"))
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
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
_TOML_REASONS = (
    ("Cannot overwrite a value", "a key occurs twice, or is a value and a section; remove one"),
    ("Duplicate inline table key", "a key occurs twice in {...}; remove one"),
    ("Cannot declare", "a section occurs twice, or has the name of a key; join or rename them"),
    ("Cannot redefine namespace", "a section occurs twice, or has the name of a key; join or rename them"),
    ("Cannot mutate immutable namespace", "a key is added to a list or a table {...} that is closed already"),
    ("Unclosed array", "a list in [...] is not closed, or a comma is missing"),
    ("Unclosed inline table", "a table in {...} is not closed on its line, or a comma is missing"),
    ("Expected '='", "'=' is missing after a key"),
    ("at the end of a table declaration", "']' is missing after the name of a section"),
    ("at the end of an array declaration", "']]' is missing after the name of a section"),
    ("Expected newline or end of document", "something follows a value; write each key on its own line"),
    ("Invalid value", "a value is missing, or a text has no quotation marks"),
    ("Invalid date", "a date or time that does not exist"),
    ("Unterminated string", "a quotation mark is not closed"),
    ("Expected \"'", "a quotation mark is not closed"),
    ("Illegal character", "a quotation mark is not closed on its line, or a control character"),
    ("Unescaped '\\'", "an unknown escape after a backslash; use single quotation marks"),
    ("Invalid initial character for a key part", "a key is missing, or has a character that needs quotation marks"),
    ("Invalid statement", "a line that does not begin with a key or a section"),
)
"""What a fault of the TOML parser means. The parser's text may quote the file, too."""


def read_document(path: Path) -> tuple[Document, list[Fault], Lines]:
    """Read a policy file.

    Returns
    -------
    document : Document
        The fields that fit the schema.
    faults : list of Fault
        One for each field that does not fit.
    lines : dict
        The line (from 1) of each field, by its path.

    Raises
    ------
    InputError
        The file cannot be opened.
    PolicyError
        The text is not valid YAML or TOML, is too large, or is not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError([Fault((), "not UTF-8; save the file as UTF-8")], str(path)) from None
    if len(text) > MAX_CHARACTERS:
        raise PolicyError([Fault((), f"longer than {MAX_CHARACTERS} characters")], str(path))
    try:
        parse = _parse_toml if path.suffix.lower() == ".toml" else _parse_yaml
        tree, lines, faults = parse(text.removeprefix("\ufeff"), path)
    except RecursionError:
        raise PolicyError([Fault((), "nested too deeply; remove levels of [...] and {...}")], str(path)) from None
    except (ValueError, OverflowError):
        raise PolicyError(
            [Fault((), "a value that does not have the form of its tag (!!name); remove the tag")], str(path)
        ) from None
    if not isinstance(tree, dict):
        raise PolicyError([Fault((), "must be a mapping with the fields attributes and privacy", 1)], str(path))
    document, schema_faults = _validate(tree, lines)
    known = {fault.path for fault in faults}
    return document, [*faults, *(fault for fault in schema_faults if fault.path not in known)], lines


def line_of(path: FieldPath, lines: Mapping[FieldPath, int]) -> int | None:
    """Return the line of a field, or of the nearest enclosing field that has a line."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _parse_yaml(text: str, path: Path) -> tuple[object, Lines, list[Fault]]:
    try:
        reader = YAML(typ="rt")
        reader.allow_duplicate_keys = True
        node = reader.compose(text)
        visitor = _NodeVisitor(str(path))
        visitor.visit(node, (), visitor.lines)
        return node and _plain(reader.constructor.construct_document(node)), visitor.lines, visitor.faults
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise PolicyError([Fault((), f"not valid YAML{_yaml_reason(error)}", line)], str(path)) from None


def _yaml_reason(error: YAMLError) -> str:
    """Return what a fault of the parser means, after a colon; an empty text if that is not known."""
    text = " ".join(str(part) for part in (getattr(error, "problem", None), getattr(error, "context", None)) if part)
    return _reason_in(text or type(error).__name__ + str(error).partition("\n")[0], _YAML_REASONS)


def _reason_in(text: str, reasons: Sequence[tuple[str, str]]) -> str:
    return next((f": {reason}" for words, reason in reasons if words in text), "")


class _NodeVisitor:
    """Notes the line of every field of YAML nodes, repeated keys, and keys that are not text.

    Each use of an alias visits its nodes again.

    Attributes
    ----------
    lines : dict
        The line of each field.
    faults : list of Fault
    """

    def __init__(self, name: str) -> None:
        self.lines: Lines = {}
        self.faults: list[Fault] = []
        self._name = name
        self._nodes_left = MAX_NODES
        self._open: set[int] = set()
        """Identities of the nodes around the one that is visited."""

    def visit(self, node: object, path: FieldPath, lines: Lines) -> None:
        """Visit a node and all nodes in it; add their lines to ``lines``.

        Raises
        ------
        PolicyError
            An alias stands within the value that it names, there are too many values, or a number is too long.
        """
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
        tag = str(node.tag)
        if tag == _TIMESTAMP:
            # The reader would convert a date to UTC and drop the zone.
            node.tag = _TEXT
        elif path[:1] == ("missing_values",) and tag in {_INTEGER, _NUMBER, _BOOLEAN}:
            node.tag = _TEXT
        elif tag == _INTEGER and len(str(node.value)) > MAX_DIGITS:
            raise self._error(path, _LONG_NUMBER, node.start_mark.line + 1)
        is_category = path[:1] == ("attributes",) and path[2:3] in {("order",), ("taxonomy",)}
        if is_category and tag == _INTEGER and not _PLAIN_INTEGER.fullmatch(str(node.value)):
            message = "has a number with another text than that of its value, such as 01 for 1; put it in quotes"
            if all(fault.path != path[:3] for fault in self.faults):
                self.faults.append(Fault(path[:3], message, node.start_mark.line + 1))

    def _visit_mapping(self, node: MappingNode, path: FieldPath, lines: Lines) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            line, name = key.start_mark.line + 1, str(key.value)
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


def _parse_toml(text: str, path: Path) -> tuple[object, Lines, list[Fault]]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else len(text.splitlines()) or None
        reason = _reason_in(str(error), _TOML_REASONS)
        raise PolicyError([Fault((), f"not valid TOML{reason}", line)], str(path)) from None
    except ValueError:
        line = find_long_number(text, MAX_DIGITS)
        if line is None:
            raise
        raise PolicyError([Fault((), _LONG_NUMBER, line)], str(path)) from None
    return _with_dates_as_text(tree), toml_lines(text), []


def _with_dates_as_text(tree: object) -> object:
    """Convert dates and times of TOML to texts, which they are in YAML, too."""
    if isinstance(tree, dict):
        return {key: _with_dates_as_text(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_dates_as_text(value) for value in tree]
    return tree.isoformat() if isinstance(tree, date | time) else tree


def _validate(tree: dict[str, Any], lines: Lines) -> tuple[Document, list[Fault]]:
    """Validate against the schema. Fields with faults are removed from ``tree`` until the rest is valid."""
    faults: list[Fault] = []
    while True:
        try:
            return Document.model_validate(tree), faults
        except ValidationError as error:
            # include_input=False: a message must not contain a value of the file.
            by_path: dict[FieldPath, list[Any]] = {}
            for detail in error.errors(include_input=False, include_url=False):
                by_path.setdefault(_path_in_file(tuple(map(str, detail["loc"])), tree), []).append(detail)
            # Describe all faults before a field is removed: a description reads the fields of the file.
            messages = {path: describe_fault(details, Document, tree) for path, details in by_path.items()}
            for path, message in messages.items():
                if all(fault.path != path for fault in faults):
                    faults.append(Fault(path, message, line_of(path, lines)))
                _remove(tree, path)


def _path_in_file(location: FieldPath, tree: object) -> FieldPath:
    """Return the part of pydantic's location that exists in the file. Pydantic appends names of union members."""
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


def _remove(tree: object, path: FieldPath) -> None:
    """Remove a field. For an item of a list, remove the whole list: a shorter list would mean something else."""
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        if not isinstance(tree, dict) or step not in tree:
            return
        if last or isinstance(tree[step], list):
            del tree[step]
            return
        tree = tree[step]
