"""Algorithm 1 of [1]_: risk and loss as the weight of the bucket attribute grows (its Fig. 1 and 2, Proposition 1).

The paper prints weights (199, 99, 215) and draws the rest. Its 99 is met here; the others depend on the order in which
the records of a bucket are visited, which it does not state: *ours* is the order of the file. PCD has 1000 records, as
its bounds of 200 and 100 imply, not the 1001 of its text. Numbers are those of an independent reproduction.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section IV and VI. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from papers import reference, steered
from papers.reference import Risk

pytestmark = pytest.mark.golden


@cache
def risks(folder: Path, name: str, t: float) -> list[Risk]:
    return steered.risks_of(*steered.table_of(folder, name), t)


@pytest.mark.parametrize(
    ("name", "t", "number", "largest", "weight"),
    [
        ("PCD", 0.05, 10, 100, 99),  # the weight is printed
        ("PCD", 0.1, 5, 200, 160),  # ours: 199 is printed, and no order that was tried gives it
        ("MCD", 0.1, 5, 216, 203),  # ours: 215 is printed
    ],
)
def test_buckets_and_the_least_weight_that_keeps_t(
    data_dir: Path, name: str, t: float, number: int, largest: int, weight: int
) -> None:
    """The size of the largest bucket is printed."""
    buckets = reference.buckets_of(steered.table_of(data_dir, name)[1], t)
    assert (len(buckets), len(buckets[0])) == (number, largest)
    assert steered.threshold(risks(data_dir, name, t), t) == weight
