"""Lines in verdicts: the lines that an editor shows, and that `shoal batch` names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal.audit import Verdict, verify
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit

ATTRIBUTES = {
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "resolution": 1},
    "note": {"role": "other", "type": "string", "publish_unchanged": True},
}


def judged(
    folder: Path, original: str, released: str, suffix: str = "csv", members: list[int] | None = None
) -> Verdict:
    """The verdict on a release of a table."""
    (folder / "policy.json").write_text(
        json.dumps({"attributes": ATTRIBUTES, "privacy": {"k": 2}, "subject": "every_record"})
    )
    for name, text in (("original", original), ("released", released)):
        (folder / f"{name}.{suffix}").write_text(text, newline="")
    policy = Policy.load(folder / "policy.json")
    cluster = {"partition": 0, "cluster": 0, "offsets": members}
    (folder / "evidence").write_text(json.dumps(cluster) + "\n")
    evidence = folder / "evidence" if members else None
    return verify(policy, folder / f"original.{suffix}", folder / f"released.{suffix}", evidence)


def test_rows_of_csv_are_told_by_their_lines(tmp_path: Path) -> None:
    original = 'age,note\n1,"a\nb"\n1,c\n1,"d\n\ne"\n1,f\n'
    released = original.replace("1,f", "1.5,f").replace("1,c", "1.25,c")
    grid = judged(tmp_path, original, released)["grid"]
    assert (grid.places, grid.lines) == ((2, 4), (4, 8))
    assert released.split("\n")[3].startswith("1.25")
    assert released.split("\n")[7].startswith("1.5")
    assert grid.as_dict()["lines"] == [4, 8]


def test_records_of_an_original_are_told_by_their_lines(tmp_path: Path) -> None:
    original = 'age,note\n1,"a\nb"\n\n1,c\n1,d\n1,e\n'
    verdict = judged(tmp_path, original, 'age,note\n1,"a\nb"\n1,c\n1,d\n', members=[0, 2, 3])
    complete = verdict["complete"]
    assert (complete.places, complete.lines) == ((4,), (7,))
    assert "; line 7" in verdict.text(verbose=True)


def test_batch_and_verify_name_the_same_line(tmp_path: Path) -> None:
    original = 'age,note\r\n1,"a\r\nb"\r\n1,c\r\n-,d\r\n'
    verdict = judged(tmp_path, original, 'age,note\n1,"a\r\nb"\n1,c\n-,d\n')
    assert verdict["grid"].lines == (5,)
    done = run_command("batch", "policy.json", "-i", "original.csv", "-o", "out.csv", folder=tmp_path)
    assert done.returncode == 2
    assert b"original.csv, line 5, column 1 (age)" in done.stderr


def test_a_broken_header_is_told_beside_the_lines(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "age,note\n1,a\n1,b\n", "age,nota\n1,a\n1,b\n")
    assert verdict["columns"].places == ("header", 1, 2)
    assert verdict["columns"].lines == (2, 3)
    assert "; header, line 2, 3" in verdict.text(verbose=True)
