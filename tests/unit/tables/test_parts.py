"""Tables with many categories are partitioned in parts, at a bounded cost per record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shoal.arrays import BoolVector, Int32Vector
from shoal.cli.command_line import main
from shoal.kernels.sums import frequent_coordinates
from shoal.tables.parts import has_many_codes, split_by_codes

pytestmark = pytest.mark.unit


POLICY = """
attributes:
  who: {{role: identifier, subject: true, type: integer}}
  age: {{role: quasi_identifier, bounds: [0, 100]}}
  zip: {{role: quasi_identifier, scale: nominal}}
  ill: {{role: confidential}}
privacy: {{k: 3{protection}}}
csv: {{}}
"""


def all_fine(labels: Int32Vector) -> BoolVector:
    return np.zeros(labels.max() + 1, np.bool_)


def postcodes(n: int, leaves: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Codes of n records in a taxonomy of two levels: the leaf, and one of ten regions."""
    leaf = np.random.default_rng(5).integers(0, leaves, n)
    return np.column_stack([leaf, leaf * 10 // leaves])


@pytest.mark.parametrize(("n", "leaves", "many"), [(20_000, 200, False), (5_000, 600, False), (20_000, 600, True)])
def test_a_table_is_cut_only_if_records_and_categories_are_many(n: int, leaves: int, *, many: bool) -> None:
    assert has_many_codes(postcodes(n, leaves)) is many


def test_parts_are_cut_between_high_branches_and_hold_each_record_once() -> None:
    codes = postcodes(20_000, 4_000)
    parts = split_by_codes(codes, np.array([0, 0]), 1, 5, all_fine)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(20_000))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert 8 <= len(parts) <= 40
    assert np.mean([len(np.unique(codes[part, 1])) for part in parts]) < 1.5


def test_a_part_that_cannot_hold_a_cluster_is_joined_with_its_neighbour() -> None:
    codes = postcodes(20_000, 4_000)
    apart = np.arange(20_000) < 10_000  # a part must have records of both halves of the table and 2,500 in all

    def violates(labels: Int32Vector) -> BoolVector:
        is_violating: BoolVector = (np.bincount(labels) < 2_500) | (np.bincount(labels, apart) == 0)
        return is_violating

    parts = split_by_codes(codes, np.array([0, 0]), 1, 5, violates)
    assert 1 < len(parts) <= 8
    assert all(len(part) >= 2_500 for part in parts)
    assert [part.tolist() for part in split_by_codes(codes, np.array([0, 0]), 1, 5, lambda x: ~all_fine(x))] == [
        list(range(20_000))
    ]


def test_only_frequent_codes_have_a_coordinate() -> None:
    codes, nothing = np.array([[7, 1], [7, 1], [7, 1], [8, 1], [8, 2], [9, 2]]), np.zeros((6, 0))
    apart = np.array([2.0, 8.0])
    assert frequent_coordinates(nothing, codes, apart, 3, 2).T.tolist() == [[1, 1, 1, 0, 0, 0], [2, 2, 2, 2, 0, 0]]
    assert frequent_coordinates(nothing, codes, apart, 3, 1).T.tolist() == [[2, 2, 2, 2, 0, 0]]
    assert frequent_coordinates(nothing, codes, apart, 5, 9).T.tolist() == [[0] * 6]


@pytest.mark.parametrize("protection", ["", ", l: 2, max_value_share: 0.6", ", t: 0.3"])
@pytest.mark.parametrize("algorithm", ["auto", "mdav"])
def test_a_table_in_parts_holds(
    protection: str, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"MAX_CODES": 16, "LARGE_ENTRIES": 1_000, "MAX_ENTRIES": 1_000}.items():
        monkeypatch.setattr(f"shoal.tables.parts.{name}", value)
    policy, source, target = tmp_path / "policy.yaml", tmp_path / "in.csv", tmp_path / "out.csv"
    policy.write_text(POLICY.format(protection=protection), encoding="utf-8")
    random = np.random.default_rng(3)
    rows = [
        f"{who},{age},z{post},{'abc'[ill]}" for who, age, post, ill in random.integers(0, [250, 99, 80, 3], (400, 4))
    ]
    source.write_text("\n".join(["who,age,zip,ill", *rows]) + "\n", encoding="utf-8")
    evidence = tmp_path / "evidence.jsonl"
    files = ["--evidence", str(evidence)]
    assert main(["batch", str(policy), "-i", str(source), "-o", str(target), *files, "--algorithm", algorithm]) == 0
    assert len({line.split(",")[0] for line in target.read_text(encoding="utf-8").splitlines()}) > 40
    files += ["--original", str(source), "--released", str(target), "--table"]
    assert main(["verify", str(policy), *files]) == 0
    assert "holds" in capsys.readouterr().out
