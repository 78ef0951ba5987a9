"""Originals that are unusable because a cell contains another record."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.naive_release import load_policy
from shoal.audit.originals import read_originals
from shoal.audit.parsing import InputFile

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
        ('p,30,"q,40,y"\n', [True]),
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


def test_subjects_are_coded_by_their_normalised_text(tmp_path: Path) -> None:
    path = tmp_path / "original.csv"
    path.write_text("who,age,note\n7,30,x\nq,30,x\n 7.0 ,30,x\n,30,x\n")
    policy = load_policy(tmp_path, POLICY)
    originals = read_originals(policy, InputFile.of(path, policy.csv), "csv")
    assert originals.subjects.tolist() == [0, 1, 0, -1]
    assert (originals.usable, originals.usable_of(2)) == (3, 2)
    assert [originals.find(0, 3), originals.find(0, 4), originals.find(1, 0), originals.find(0, -1)] == [
        3,
        None,
        None,
        None,
    ]
