"""Sizes of records, as they are compared with the limit of the policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from oracle.naive_release import load_policy
from shoal.audit.originals import read_originals
from shoal.audit.reading import InputFile

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who:  {role: identifier, subject: true}
  note: {role: other, type: string, publish_unchanged: true}
  age:  {role: quasi_identifier, bounds: [0, 110]}
  ward: {role: other, type: any, publish_unchanged: true}
  sum:  {role: other, type: number, publish_unchanged: true}
privacy: {k: 2}
"""


def sizes(folder: Path, name: str, text: str, released: Literal["csv", "jsonl"], policy: str = POLICY) -> list[int]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    loaded = load_policy(folder, policy)
    found: list[int] = read_originals(loaded, InputFile.of(path, loaded.csv), released).sizes[0].tolist()
    return found


@pytest.mark.parametrize(
    ("cells", "released", "size"),
    [
        ("p,a,30,b,1", "csv", 5),  # a, one byte, b, one byte, 1
        ("p,ä,30,b,1", "csv", 6),
        ('p,"a,b",30,b,1', "csv", 9),  # "a,b"
        ('p,"a""b",30,b,1', "csv", 10),  # "a""b"
        ("p,,30,,", "csv", 2),
        ("p,a,30,b,1.50", "jsonl", 31),  # "note":"a" "ward":"b","sum":1.5
        ("p,a,30,b,", "jsonl", 32),  # "note":"a" "ward":"b","sum":null
    ],
)
def test_unchanged_fields_have_the_size_in_which_they_are_published(
    tmp_path: Path, cells: str, released: Literal["csv", "jsonl"], size: int
) -> None:
    assert sizes(tmp_path, "in.csv", f"who,note,age,ward,sum\n{cells}\n", released) == [size, size]


def test_a_message_has_the_size_of_its_bytes(tmp_path: Path) -> None:
    line = '{"who":"pxxxxxxxxxxxxxxxxxxxxxxxxxxx", "note":"ä", "age":30, "ward":null, "sum":1}'
    assert len(line) == 82
    assert sizes(tmp_path, "in.jsonl", f"{line}\n", "jsonl") == [83, 83]


def test_a_message_that_an_export_has_as_an_object_has_no_known_size(tmp_path: Path) -> None:
    value = '{"who":"p","note":"a","age":30,"ward":"b","sum":1}'
    exported = f'{{"partition":0,"offset":0,"value":{value}}}\n'
    assert sizes(tmp_path, "in.jsonl", exported, "csv") == [5, 46]


def test_an_unusable_record_has_no_size(tmp_path: Path) -> None:
    assert sizes(tmp_path, "in.jsonl", '{"who":"p"}\n', "jsonl") == [0, 0]


CATEGORIES = """
attributes:
  sex:  {role: quasi_identifier, scale: nominal, missing: group}
  job:  {role: quasi_identifier, scale: nominal, taxonomy: {A: [x]}}
  ward: {role: steering, scale: nominal}
subject: every_record
steering: {by: [{attribute: ward, weight: 1}]}
privacy: {k: 2}
"""


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "messages.jsonl"])
@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize(
    ("text", "is_usable"), [("!" * 998, True), ("!" * 999, False), ("é" * 499, True), ("é" * 500, False)]
)
def test_a_record_with_a_long_category_does_not_fit(
    tmp_path: Path, name: str, column: int, text: str, *, is_usable: bool
) -> None:
    row = {"sex": "", "job": "x", "ward": "w"}
    row[list(row)[column]] = text
    line = json.dumps(row)
    if name == "in.csv":
        line = "sex,job,ward\n" + ",".join(row.values())
    elif name == "messages.jsonl":
        line = json.dumps({"partition": 0, "offset": 0, "value": line})
    path = tmp_path / name
    path.write_text(f"{line}\n", encoding="utf-8")
    policy = load_policy(tmp_path, CATEGORIES)
    found = read_originals(policy, InputFile.of(path, policy.csv), "csv", is_export=name == "messages.jsonl")
    assert found.is_usable(0) is is_usable
