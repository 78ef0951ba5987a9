"""Releases in the order of the input: correct ones hold, and each manipulation breaks a check."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from oracle.naive_release import broken
from shoal.audit import verify
from shoal.audit.verdict import Verdict
from shoal.errors import ConfigError
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from support.making import policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

COUNT = 200


def settings(*, reveal_order: bool = False) -> Policy:
    attributes = {"x": quasi(0, 1000, scale="numeric", integer=True), "n": unchanged_field("integer")}
    stream = {"delta": 20, "release": "ordered", "reveal_order": reveal_order}
    return policy_of(attributes, privacy={"k": 4}, stream=stream)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ordered")
    chance = random.Random(4)
    lines = [f"{chance.randint(0, 1000)},{chance.randint(0, 10**6)}" for _ in range(COUNT)]
    (folder / "in.csv").write_text("\n".join(["x,n", *lines]) + "\n")
    for name, reveals in (("by_bytes", False), ("own", True)):
        files = Files(str(folder / "in.csv"), str(folder / f"{name}.csv"), evidence=str(folder / f"{name}.jsonl"))
        run_pipe(settings(reveal_order=reveals), files)
    return folder


def verdict_of(folder: Path, rows: list[str], *, reveals: bool = False, partial: bool = False) -> Verdict:
    released, name = folder / "verified.csv", "own" if reveals else "by_bytes"
    released.write_text("\n".join(rows) + "\n")
    policy = settings(reveal_order=reveals)
    return verify(policy, folder / "in.csv", released, folder / f"{name}.jsonl", partial=partial)


def rows_of(folder: Path, name: str = "by_bytes") -> list[str]:
    return (folder / f"{name}.csv").read_text().splitlines()


def test_a_correct_ordered_release_holds(folder: Path) -> None:
    assert verdict_of(folder, rows_of(folder)).exit_code == 0
    assert verdict_of(folder, rows_of(folder, "own"), reveals=True).exit_code == 0


def test_the_last_clusters_of_a_part_may_be_unfinished(folder: Path) -> None:
    first_rows = rows_of(folder)[:121]
    verdict = verdict_of(folder, first_rows, partial=True)
    assert verdict.exit_code == 0
    assert any("are not yet released" in check.note for check in verdict.checks)
    assert "nothing_missing" in broken(verdict_of(folder, first_rows))


def swap_adjacent_rows(rows: list[str]) -> list[str]:
    position = next(i for i in range(1, COUNT) if rows[i].split(",")[0] != rows[i + 1].split(",")[0])
    return [*rows[:position], rows[position + 1], rows[position], *rows[position + 2 :]]


def swap_members_of_a_cluster(rows: list[str]) -> list[str]:
    """Swap two rows of one cluster: all rows are there, but not in byte order."""
    first = rows[1].split(",")[0]
    other = next(i for i in range(2, COUNT) if rows[i].split(",")[0] == first)
    return [rows[0], rows[other], *rows[2:other], rows[1], *rows[other + 1 :]]


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (swap_adjacent_rows, {"in_turn"}),
        (swap_members_of_a_cluster, {"byte_order"}),
        (lambda rows: [*rows[:50], *rows[51:]], {"in_turn"}),
        (lambda rows: [*rows[:50], rows[49], *rows[50:]], {"nothing_else"}),
        (lambda rows: [*rows, rows[-1]], {"nothing_else"}),
        (lambda rows: [*rows[:-1], rows[-1].split(",")[0] + ",5"], {"nothing_else", "nothing_missing"}),
    ],
    ids=["two rows swap_adjacent_rows", "members swapped", "one missing", "one repeated", "one more", "one changed"],
)
def test_a_tampered_ordered_release_is_broken(
    folder: Path, tamper: Callable[[list[str]], list[str]], found: set[str]
) -> None:
    verdict = verdict_of(folder, tamper(rows_of(folder)))
    assert verdict.exit_code == 1
    assert found <= broken(verdict)


def test_byte_order_and_own_positions_are_told_apart(folder: Path) -> None:
    assert "own_position" in broken(verdict_of(folder, rows_of(folder), reveals=True))
    assert "byte_order" in broken(verdict_of(folder, rows_of(folder, "own")))


def test_an_ordered_release_without_evidence_is_undecided(folder: Path) -> None:
    verdict = verify(settings(), folder / "in.csv", folder / "by_bytes.csv")
    assert verdict.exit_code == 2
    assert any("--evidence" in reason for reason in verdict.undecided)


def test_a_followed_file_cannot_be_released_in_order(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--follow: cannot keep stream\.release: ordered"):
        run_pipe(settings(), Files(str(folder / "in.csv"), str(folder / "out.csv")), Event())
    assert not (folder / "out.csv").exists()
