"""Parse a policy file (YAML or TOML) into a `Document`, and note the line of every field.

Each faulty field is noted and removed. Then the rest is validated, here and in `validation`, so that all faults are
reported at once.

Plain sentences for fields that do not fit the schema, without any value of the file.

The library that validates has sentences of its own ("Input should be ..."). They name Python types, so none of them is
passed on.

The line of every field of a TOML file. The standard reader gives lines for faults of the syntax only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from shoal.errors import Fault, InputError, PolicyError
from shoal.policy.schema import Document

__all__ = [
    "FieldPath",
    "Lines",
    "describe_fault",
    "did_you_mean",
    "find_long_number",
    "line_of",
    "read_document",
    "toml_lines",
]

_KINDS = {
    "string": "text",
    "int": "an integer",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "mapping": "a mapping",
    "l": "an integer, {distinct: L}, {p_sensitive: L}, {entropy: L} or {recursive: [C, L]}",
}
"""What a field must be, by the first word of the library's error type."""
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "above"),
    "less_than": ("lt", "below"),
}
_NUMERIC = "did you mean numeric?"
_SCALE = (
    "unknown scale; give numeric (numbers whose differences have a meaning), ordinal (categories with an order), "
    "nominal (categories without an order) or time; a field of another kind is an identifier, which leaves it out of "
    "the output"
)


def describe_fault(details: Sequence[Mapping[str, Any]], model: type[BaseModel], tree: object) -> str:
    """Return what is wrong with one field, and what it must be.

    Parameters
    ----------
    details : sequence of mapping
        Errors of pydantic for this field, one for each type that it may have.
    model : type
        Model of the whole content.
    tree : object
        The content. Its names are compared with those of the model; its values are compared with words that a field
        allows, and never repeated.
    """
    location = tuple(map(str, details[0]["loc"]))
    if details[0]["type"] == "extra_forbidden":
        hint = did_you_mean(location[-1], _names_at(model, location[:-1]))
        return f"unknown field; {hint or 'remove it or check its spelling'}"
    if details[0]["type"] == "missing":
        return "missing"
    allowed = list(dict.fromkeys(text for detail in details for text in _allowed(detail, model, location)))
    if not allowed:
        return "has a value of the wrong kind; see the documentation of this field"
    hint = did_you_mean(_value_at(tree, location), allowed) if details[0]["type"] == "literal_error" else ""
    if details[0]["type"] == "literal_error" and location[-1] == "scale" and hint in {"", _NUMERIC}:
        # Words for categories, such as categorical, are similar to numeric, too.
        return _SCALE
    return f"must be {_joined(allowed)}" + (f"; {hint}" if hint else "")


def did_you_mean(name: object, known: Sequence[str]) -> str:
    """Return a question that names the most similar known word; an empty text if none is similar."""
    spellings = {word.lower(): word for word in known}
    found = get_close_matches(name.lower(), spellings, 1) if isinstance(name, str) else []
    return f"did you mean {spellings[found[0]]}?" if found else ""


def _allowed(detail: Mapping[str, Any], model: type[BaseModel], location: tuple[str, ...]) -> Iterator[str]:
    """Yield what a field may be."""
    kind = detail["type"]
    if kind == "literal_error":
        yield from _words(_annotation_at(model, location))
    elif kind in _LIMITS:
        name, words = _LIMITS[kind]
        yield f"{words} {detail['ctx'][name]:g}"
    elif (word := kind.partition("_")[0]) in _KINDS:
        yield _KINDS[word]


def _words(annotation: object) -> Iterator[str]:
    """Yield the words of all literals of an annotation."""
    for part in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield part if part.isalnum() or (part.isprintable() and len(part) > 1) else repr(part)
        else:
            yield from _words(part)


def _joined(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _annotation_at(model: type[BaseModel], location: tuple[str, ...]) -> object:
    """Return the annotation of a field by its path in the file."""
    annotation: object = model
    for step in location:
        section = _model_in(annotation)
        if section is None:
            annotation = _entry_type(annotation)
            continue
        fields = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
        annotation = fields.get(step)
    return annotation


def _entry_type(annotation: object) -> object:
    """Return the type of the entries of a mapping or a list, also of one that may be missing; None without entries."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) in {dict, list}:
            return get_args(part)[-1]
    return None


def _names_at(model: type[BaseModel], location: tuple[str, ...]) -> list[str]:
    """Return the fields that the section at a path may have."""
    section = _model_in(_annotation_at(model, location))
    return [] if section is None else [field.alias or name for name, field in section.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model of a section that may be missing; None for mappings, lists and single values."""
    for part in (annotation, *(() if get_origin(annotation) in {dict, list} else get_args(annotation))):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _value_at(tree: object, location: tuple[str, ...]) -> object:
    for step in location:
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return None
    return tree


_Path: TypeAlias = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    (?P<blank> [^\S\n]+ | \#[^\n]* )
    | (?P<quoted> \"{3} (?: \\. | [^\\] )*? \"{3,5} (?!\") | '{3} .*? '{3,5} (?!')
        | " (?: \\. | [^"\\\n] )* " | ' [^'\n]* ' )
    | (?P<mark> [\[\]{}=,\n] )
    | (?P<word> [^\s\[\]{}=,\#"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    """A token: its kind, text and line. The last token is empty."""

    kind: str
    text: str
    line: int


def toml_lines(text: str) -> dict[_Path, int]:
    """Return the line (from 1) of each field and of each item of a list, by its path.

    Parameters
    ----------
    text : str
        Valid TOML, as read by `tomllib`.

    Notes
    -----
    Cost: O(n) time and memory in the length of the text.
    """
    return _Reader(text).read()


def find_long_number(text: str, max_digits: int) -> int | None:
    """Return the line (from 1) of the first number of more than ``max_digits`` digits; None without one.

    The text must be valid TOML up to the end of this number.
    """
    words = (token for token in _tokens(text) if token.kind == "word" and len(token.text) > max_digits)
    return next((token.line for token in words if token.text.strip("+-").replace("_", "").isdigit()), None)


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        if kind != "blank":
            yield _Token(kind, found.group(), line)
        line += found.group().count("\n")
    yield _Token("end", "", line)


class _Reader:
    """Reads the tokens of a valid file from first to last."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._token = next(self._tokens)
        self._lines: dict[_Path, int] = {}
        self._item_counts: dict[_Path, int] = {}
        """Number of tables read so far of each list that is written as ``[[name]]``."""

    def read(self) -> dict[_Path, int]:
        table: _Path = ()
        while self._token.kind != "end":
            if self._token.text == "[" and self._token.kind == "mark":
                table = self._read_header()
            elif self._token.text == "\n":
                self._take()
            else:
                self._read_field(table)
        return self._lines

    def _take(self) -> _Token:
        taken = self._token
        self._token = next(self._tokens, taken)
        return taken

    def _is_at(self, *marks: str) -> bool:
        return self._token.kind == "end" or (self._token.kind == "mark" and self._token.text in marks)

    def _read_header(self) -> _Path:
        line = self._take().line
        is_item = self._is_at("[")
        if is_item:
            self._take()
        path: _Path = ()
        names = self._read_names()
        for number, name in enumerate(names, 1):
            path = (*path, name)
            if is_item and number == len(names):
                self._item_counts[path] = self._item_counts.get(path, 0) + 1
            self._note((), path, line)
            if path in self._item_counts:
                # A table within a list belongs to its last item.
                path = (*path, str(self._item_counts[path] - 1))
        self._note((), path, line)
        while not self._is_at("\n"):
            self._take()
        return path

    def _read_names(self) -> list[str]:
        """Return the parts of a name, which ends before a bracket or an equals sign."""
        names: list[str] = []
        while not self._is_at("]", "="):
            token = self._take()
            if token.kind == "quoted":
                names.append(str(tomllib.loads(f"name = {token.text}")["name"]))
            else:
                names += filter(None, token.text.split("."))
        return names

    def _read_field(self, table: _Path) -> None:
        line = self._token.line
        path = (*table, *self._read_names())
        self._note(table, path, line)
        self._take()
        self._read_value(path)

    def _note(self, table: _Path, path: _Path, line: int) -> None:
        """Note the line of a field, and of the tables that its name creates within ``table``."""
        for length in range(len(table) + 1, len(path) + 1):
            self._lines.setdefault(path[:length], line)

    def _read_value(self, path: _Path) -> None:
        if self._is_at("["):
            self._read_list(path)
        elif self._is_at("{"):
            self._read_table(path)
        else:
            # A date and its time can be two tokens.
            while not self._is_at(",", "]", "}", "\n"):
                self._take()

    def _read_list(self, path: _Path) -> None:
        self._take()
        count = 0
        while not self._is_at("]"):
            if self._is_at(",", "\n"):
                self._take()
                continue
            item = (*path, str(count))
            self._lines[item] = self._token.line
            self._read_value(item)
            count += 1
        self._take()

    def _read_table(self, path: _Path) -> None:
        self._take()
        while not self._is_at("}"):
            if self._is_at(",", "\n"):
                self._take()
            else:
                self._read_field(path)
        self._take()


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
