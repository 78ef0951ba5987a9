"""Records of an original: which are unusable, and their sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from oracle.naive_release import load_policy
from shoal.audit.originals import read_originals
from shoal.audit.reading import InputFile
from shoal.errors import InputError
from shoal.policy import Policy

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who:  {role: identifier, subject: true}
  age:  {role: quasi_identifier, bounds: [0, 110]}
  note: {role: other, type: string, publish_unchanged: true}
privacy: {k: 2}
"""


def usable(folder: Path, text: str, policy: str = POLICY, header: str = "who,age,note") -> list[bool]:
    path = folder / "original.csv"
    path.write_bytes(f"{header}\n{text}".encode())
    loaded = load_policy(folder, policy)
    originals = read_originals(loaded, InputFile.of(path, loaded.csv), "csv")
    return [originals.is_usable(index) for index in range(len(originals))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('p,30,"first line\nsecond line"\n', [True]),
        ('p,30,"x\nq,40,y"\nr,50,z\n', [False, True]),
        ('p,30,"x\rq,40,y"\n', [False]),
        ('p,30,"x\n""q"",40,""y, z"""\n', [False]),
        ('p,30,"x\nq,forty,y"\n', [True]),
        ('p,30,"x\nq,40"\n', [True]),
    ],
)
def test_a_record_with_another_one_in_a_cell_is_unusable(tmp_path: Path, text: str, expected: list[bool]) -> None:
    assert usable(tmp_path, text) == expected


def test_a_cell_with_the_end_of_one_record_and_the_start_of_the_next_makes_it_unusable(tmp_path: Path) -> None:
    header = "who,note,age"
    assert usable(tmp_path, 'p,"x,30\nq,y",40\n', header=header) == [False]
    assert usable(tmp_path, 'p,"x,thirty\nq,y",40\n', header=header) == [True]
    assert usable(tmp_path, 'p,"x,30\nq",40\n', header=header) == [True]


def test_a_policy_may_allow_such_cells(tmp_path: Path) -> None:
    text = 'p,30,"x\nq,40,y"\n'
    assert usable(tmp_path, text, POLICY + "csv: {multiline: true}\n") == [True]


def usable_in(policy: Policy, path: Path) -> list[bool]:
    originals = read_originals(policy, InputFile.of(path, policy.csv), "jsonl")
    return [originals.is_usable(index) for index in range(len(originals))]


NAMES = """
attributes:
  who:  {role: identifier, subject: true}
  sex:  {role: quasi_identifier, scale: nominal}
  ill:  {role: confidential, type: json}
privacy: {k: 2}
undeclared: drop
"""


@pytest.mark.parametrize(
    ("record", "is_usable"),
    [
        ({"who": "who", "sex": "sex", "ill": "ill"}, False),
        ({"ill": "ill", "sex": "sex", "who": "who", "more": 1}, False),
        ({"who": "p", "sex": "sex", "ill": "ill"}, True),
        ({"who": "who", "sex": "f", "ill": "ill"}, True),
        ({"who": "who", "sex": "sex", "ill": None}, True),
        ({"who": "who", "sex": "sex", "ill": ["ill"]}, True),
    ],
)
@pytest.mark.parametrize("is_export", [False, True])
def test_a_json_record_with_the_name_of_each_field_as_its_value_is_invalid(
    tmp_path: Path, record: dict[str, object], *, is_usable: bool, is_export: bool
) -> None:
    path, text = tmp_path / "original.jsonl", json.dumps(record)
    path.write_text((json.dumps({"partition": 0, "offset": 7, "value": text}) if is_export else text) + "\n")
    policy = load_policy(tmp_path, NAMES)
    assert usable_in(policy, path) == [is_usable]


def test_a_field_is_compared_with_the_name_that_it_has_in_the_message(tmp_path: Path) -> None:
    paths = NAMES.replace("true}", "true, from: value.row.id}").replace("nominal}", "nominal, from: value.row.s}")
    path, policy = tmp_path / "original.jsonl", load_policy(tmp_path, paths)
    path.write_text('{"row": {"id": "id", "s": "s"}, "ill": "ill"}\n{"row": {"id": "who", "s": "sex"}, "ill": "ill"}\n')
    assert usable_in(policy, path) == [False, True]


def test_numbers_are_not_compared_with_names(tmp_path: Path) -> None:
    policy = load_policy(tmp_path, NAMES.replace("sex: ", '"1": ').replace("ill: ", '"2": ').replace("who: ", '"3": '))
    path = tmp_path / "original.jsonl"
    path.write_text('{"1": 1, "2": 2, "3": 3}\n{"1": "1", "2": "2", "3": "3"}\n')
    assert usable_in(policy, path) == [True, False]


# ---------------------------------------------------------------- sizes


SIZES = """
attributes:
  who:  {role: identifier, subject: true}
  note: {role: other, type: string, publish_unchanged: true}
  age:  {role: quasi_identifier, bounds: [0, 110]}
  ward: {role: other, type: any, publish_unchanged: true}
  sum:  {role: other, type: number, publish_unchanged: true}
privacy: {k: 2}
"""


def has_size(folder: Path, name: str, text: str, size: int, released: Literal["csv", "jsonl"]) -> bool:
    """Return whether a record is just not above a limit of so many bytes, for certain."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    loaded, found = load_policy(folder, SIZES), []
    for limit in (size - 1, size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shoal.audit.originals.DEFAULT_MAX_BYTES", limit)
            found.append(read_originals(loaded, InputFile.of(path, loaded.csv), released).is_above_limit[0].tolist())
    return found == [[True, True], [False, False]]


@pytest.mark.parametrize(
    ("cells", "released", "size"),
    [
        ("p,ä,30,b,1", "csv", 6),  # two bytes, one byte, b, one byte, 1
        ('p,"a""b",30,b,1', "csv", 10),  # "a""b"
        ("p,,30,,", "csv", 2),
        ("p,a,30,b,1.50", "jsonl", 31),  # "note":"a" "ward":"b","sum":1.5
        ("p,a,30,b,", "jsonl", 32),  # "note":"a" "ward":"b","sum":null
    ],
)
def test_unchanged_fields_have_the_size_in_which_they_are_published(
    tmp_path: Path, cells: str, released: Literal["csv", "jsonl"], size: int
) -> None:
    assert has_size(tmp_path, "in.csv", f"who,note,age,ward,sum\n{cells}\n", size, released)


def test_a_message_has_the_size_of_its_bytes(tmp_path: Path) -> None:
    line = '{"who":"pxxxxxxxxxxxxxxxxxxxxxxxxxxx", "note":"ä", "age":30, "ward":null, "sum":1}'
    assert len(line) == 82
    assert has_size(tmp_path, "in.jsonl", f"{line}\n", 83, "jsonl")


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


def test_more_records_than_32_bits_count_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.audit.originals.MOST_RECORDS", 2)
    assert usable(tmp_path, "p,30,a\nq,30,b\n") == [True, True]
    with pytest.raises(InputError, match=r"original\.csv: more than 2 records; verify them in parts"):
        usable(tmp_path, "p,30,a\nq,30,b\nr,30,c\n")
