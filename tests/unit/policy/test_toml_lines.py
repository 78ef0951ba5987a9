"""The line of every field of a TOML policy."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from shoal.policy.document import toml_lines
from support.policy_files import faults

pytestmark = pytest.mark.unit

TEXT = '''\
# no = "field"
[attributes.age]  # [not.this]
role = "x"
bounds = [0, 110]  # low = 0
[ attributes . "the \\u006eame" . 'x.y' ]
role="a"
[[kafka.topics]]
input = "a]"
[kafka.topics.more]
deep = 2026-01-01 10:00:00
[[kafka.topics]]
output = 'd"'
[csv]
a = { b = 1, c = { d = [ { e = 1 } ] }, "q r" = 2 }
text = """
[not.a.table]
x = 1 \\""" ""\"""
lines = \'\'\'
y = """
\'\'\'
order = [
  "a",  # "b",

  [ 1,
    2 ],
]
"a.b" . c.d = 1
'''
LINES = {
    "attributes": 2,
    "attributes/age": 2,
    "attributes/age/role": 3,
    "attributes/age/bounds": 4,
    "attributes/age/bounds/0": 4,
    "attributes/age/bounds/1": 4,
    "attributes/the name": 5,
    "attributes/the name/x.y": 5,
    "attributes/the name/x.y/role": 6,
    "kafka": 7,
    "kafka/topics": 7,
    "kafka/topics/0": 7,
    "kafka/topics/0/input": 8,
    "kafka/topics/0/more": 9,
    "kafka/topics/0/more/deep": 10,
    "kafka/topics/1": 11,
    "kafka/topics/1/output": 12,
    "csv": 13,
    "csv/a": 14,
    "csv/a/b": 14,
    "csv/a/c": 14,
    "csv/a/c/d": 14,
    "csv/a/c/d/0": 14,
    "csv/a/c/d/0/e": 14,
    "csv/a/q r": 14,
    "csv/text": 15,
    "csv/lines": 18,
    "csv/order": 21,
    "csv/order/0": 22,
    "csv/order/1": 24,
    "csv/order/1/0": 24,
    "csv/order/1/1": 25,
    "csv/a.b": 27,
    "csv/a.b/c": 27,
    "csv/a.b/c/d": 27,
}


def paths(tree: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all fields and items of what was read."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, child in items:
        yield (*path, str(name))
        yield from paths(child, (*path, str(name)))


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n")])
def test_every_field_and_item_has_the_line_on_which_it_begins(text: str) -> None:
    found = toml_lines(text)
    assert {"/".join(path): line for path, line in found.items()} == LINES
    assert set(found) == set(paths(tomllib.loads(text)))


@pytest.mark.parametrize("text", ["", "\n", "# a = 1", "a = 1", "[a]", "a = []", "a = {}", "a = [\n]\n# end"])
def test_short_files_are_read_to_their_end(text: str) -> None:
    assert set(toml_lines(text)) == set(paths(tomllib.loads(text)))


def test_a_fault_in_a_list_or_a_nested_table_names_its_line(tmp_path: Path) -> None:
    text = '''\
subject = "every_record"
[attributes]
age = { role = "quasi_identifier", bounds = [0, 110] }
[attributes."year of birth"]
role = """
no role"""
bounds = [
  1900,
  2000,
]
integer = "yes"
[privacy]
k = 3
[[kafka.topics]]
input = "a"
output = "b"
[[kafka.topics]]
input = "c"
output = 4
'''
    found = faults(text, tmp_path, "p.toml")
    assert found["attributes.year of birth.role"][0] == 5
    assert found["attributes.year of birth.integer"][0] == 11
    assert found["kafka.topics.1.output"][0] == 19
