"""The judge of a release in the order of the input: what he lets pass, and every cheat that he does not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from shoal.audit import verify
from shoal.audit.verdict import Verdict
from shoal.errors import ConfigError
from shoal.files import run_pipe
from shoal.files.outputs import Files
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

COUNT = 200


def policy_of(*, reveal_order: bool = False) -> Policy:
    document = {
        "attributes": {
            "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 1000], "integer": True},
            "n": {"role": "confidential", "type": "integer"},
        },
        "subject": "every_record",
        "privacy": {"k": 4},
        "stream": {"delta": 20, "release": "ordered", "reveal_order": reveal_order},
    }
    return Policy.from_document(Document.model_validate(document))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turns")
    chance = random.Random(4)
    lines = [f"{chance.randint(0, 1000)},{chance.randint(0, 10**6)}" for _ in range(COUNT)]
    (folder / "in.csv").write_text("\n".join(["x,n", *lines]) + "\n")
    for name, reveals in (("dealt", False), ("own", True)):
        files = Files(str(folder / "in.csv"), str(folder / f"{name}.csv"), evidence=str(folder / f"{name}.jsonl"))
        run_pipe(policy_of(reveal_order=reveals), files)
    return folder


def judged(folder: Path, rows: list[str], *, reveals: bool = False, complete: bool = False) -> Verdict:
    released, name = folder / "judged.csv", "own" if reveals else "dealt"
    released.write_text("\n".join(rows) + "\n")
    policy = policy_of(reveal_order=reveals)
    return verify(policy, folder / "in.csv", released, folder / f"{name}.jsonl", complete=complete)


def rows_of(folder: Path, name: str = "dealt") -> list[str]:
    return (folder / f"{name}.csv").read_text().splitlines()


def broken(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if check.status == "broken"}


def test_what_left_in_turn_holds(folder: Path) -> None:
    assert judged(folder, rows_of(folder), complete=True).exit_code == 0
    assert judged(folder, rows_of(folder, "own"), reveals=True, complete=True).exit_code == 0


def test_the_last_clusters_may_have_yet_to_leave_unless_all_must_have(folder: Path) -> None:
    part = rows_of(folder)[:121]
    verdict = judged(folder, part)
    assert verdict.exit_code == 0
    assert any("have yet to leave" in check.note for check in verdict.checks)
    assert "nothing_missing" in broken(judged(folder, part, complete=True))


def swapped(rows: list[str]) -> list[str]:
    place = next(i for i in range(1, COUNT) if rows[i].split(",")[0] != rows[i + 1].split(",")[0])
    return [*rows[:place], rows[place + 1], rows[place], *rows[place + 2 :]]


def redealt(rows: list[str]) -> list[str]:
    """Two members of one cluster change places: everything is there, and the fields stand where they do not belong."""
    first = rows[1].split(",")[0]
    other = next(i for i in range(2, COUNT) if rows[i].split(",")[0] == first)
    return [rows[0], rows[other], *rows[2:other], rows[1], *rows[other + 1 :]]


@pytest.mark.parametrize(
    ("cheat", "found"),
    [
        (swapped, {"in_turn"}),
        (redealt, {"byte_order"}),
        (lambda rows: [*rows[:50], *rows[51:]], {"in_turn"}),
        (lambda rows: [*rows[:50], rows[49], *rows[50:]], {"nothing_else"}),
        (lambda rows: [*rows, rows[-1]], {"nothing_else"}),
        (lambda rows: [*rows[:-1], rows[-1].split(",")[0] + ",5"], {"nothing_else", "nothing_missing"}),
    ],
    ids=["two rows swapped", "dealt otherwise", "one left out", "one twice", "one more", "one changed"],
)
def test_no_cheat_passes(folder: Path, cheat: Callable[[list[str]], list[str]], found: set[str]) -> None:
    verdict = judged(folder, cheat(rows_of(folder)))
    assert verdict.exit_code == 1
    assert found <= broken(verdict)


def test_dealt_fields_do_not_pass_for_revealed_ones_nor_the_other_way(folder: Path) -> None:
    assert "own_place" in broken(judged(folder, rows_of(folder), reveals=True))
    assert "byte_order" in broken(judged(folder, rows_of(folder, "own")))


def test_without_evidence_nobody_can_say_who_belongs_together(folder: Path) -> None:
    verdict = verify(policy_of(), folder / "in.csv", folder / "dealt.csv")
    assert verdict.exit_code == 2
    assert any("--evidence" in doubt for doubt in verdict.undecided)


def test_a_file_that_is_followed_cannot_leave_in_order(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--follow: cannot keep stream\.release: ordered"):
        run_pipe(policy_of(), Files(str(folder / "in.csv"), str(folder / "out.csv")), Event())
    assert not (folder / "out.csv").exists()
