"""MDAV on attributes and weighted confidential attributes: loss, diversity and linkage at every weight of [1]_.

The first six attributes are quasi-identifiers X, the other seven confidential Y, both z-scores; MDAV sees (X, beta Y),
beta² = lambda / (1 - lambda) · m_X / m_Y. The paper prints curves only (its Figs. 8 to 14); the numbers in the two
files beside this one are those of an independent reproduction, to five digits. Printed, and met: how many categories
the attributes have. What the paper says of its curves is asserted beside them.

References
----------
.. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
   Preservation of Statistical Dependence", Information Sciences 342, 2016.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golden_tables import standardised
from papers.dependence import blockwise, categories, gaussian, point
from shoal.kernel.arrays import Float64Matrix

pytestmark = pytest.mark.golden

HERE = Path(__file__).parent
DIGITS = 1e-5
SIZES = (5, 10, 20, 50, 100)


def sides(folder: Path, table: str) -> tuple[Float64Matrix, Float64Matrix]:
    values = standardised(folder, table)
    return np.ascontiguousarray(values[:, :6]), np.ascontiguousarray(values[:, 6:])


def rows(file: str, **wanted: object) -> list[dict[str, float]]:
    with (HERE / file).open(encoding="utf-8", newline="") as opened:
        found = [row for row in csv.DictReader(opened) if all(row[name] == str(x) for name, x in wanted.items())]
    assert len(found) == 11
    return [{name: float(x) for name, x in row.items() if name != "table"} for row in found]


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("table", ["census", "tarragona"])
def test_loss_of_both_sides_and_diversity_at_every_weight(data_dir: Path, table: str, k: int) -> None:
    expected = rows("dependence_curves.csv", table=table, k=k)
    points = [point(*sides(data_dir, table), k, row["lambda"]) for row in expected]
    assert [p.known for p in points] == pytest.approx([row["d_x"] for row in expected], abs=DIGITS)
    assert [p.confidential for p in points] == pytest.approx([row["d_y"] for row in expected], abs=DIGITS)
    assert [p.diversity for p in points] == pytest.approx([row["l_avg"] for row in expected], abs=1e-4)
    assert points[0].known < points[0].confidential
    assert points[-1].confidential < points[-1].known


def test_loss_grows_with_k(data_dir: Path) -> None:
    for table in ("census", "tarragona"):
        for weight, side in ((0.0, 0), (1.0, 1)):
            losses = [point(*sides(data_dir, table), k, weight)[side] for k in SIZES]
            assert all(before < after for before, after in pairwise(losses))


@pytest.mark.parametrize(("table", "least", "most"), [("census", 93, 196), ("tarragona", 106, 149)])
def test_the_printed_numbers_of_categories(data_dir: Path, table: str, least: int, most: int) -> None:
    """With an interval of 0.02, rounded to the nearest; the 0.2 and the floor that are printed give neither."""
    assert categories(sides(data_dir, table)[1]) == (least, most)


@pytest.mark.parametrize("b", [2, 3, 4, 6])
def test_loss_and_linkage_of_blocks(data_dir: Path, b: int) -> None:
    """Linkage in whole records of 1080; Fig. 14 has no numbers."""
    for row in rows("dependence_blocks.csv", b=b):
        found = blockwise(*sides(data_dir, "census"), 10, row["lambda"], b)
        assert found.known == pytest.approx(row["d_x"], abs=DIGITS)
        assert found.linked * 1080 == pytest.approx(round(row["dld"] * 1080), abs=1e-6)


def test_98_of_1080_are_linked_without_blocks(data_dir: Path) -> None:
    assert round(blockwise(*sides(data_dir, "census"), 10, 0.0, 6).linked * 1080) == 98


@pytest.mark.parametrize(
    ("rho", "k", "expected"),
    [
        (0.5, 50, [(0.0146, 0.7601), (0.0331, 0.2338), (0.0979, 0.0880), (0.2179, 0.0428), (0.7677, 0.0223)]),
        (0.5, 500, [(0.3631, 0.8517), (0.3637, 0.8497), (0.5987, 0.4780), (0.8195, 0.3805), (0.8343, 0.3798)]),
        (0.9, 50, [(0.0146, 0.2082), (0.0208, 0.1056), (0.0425, 0.0467), (0.1108, 0.0228), (0.2065, 0.0166)]),
        (0.9, 200, [(0.1039, 0.2791), (0.1066, 0.2444), (0.1349, 0.1852), (0.2228, 0.1119), (0.2721, 0.1060)]),
    ],
)
def test_gaussian_points(rho: float, k: int, expected: Sequence[tuple[float, float]]) -> None:
    """Ours, of a draw of ours: the paper's was not published."""
    for weight, losses in zip((0.0, 0.1, 0.5, 0.9, 1.0), expected, strict=True):
        assert point(*gaussian(rho), k, weight)[:2] == pytest.approx(losses, abs=5.1e-5)
