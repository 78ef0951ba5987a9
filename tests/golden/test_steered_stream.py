"""Fig. 3 of [1]_: loss and reordering of Algorithm 3 on Census, as the weight of the position grows.

Setting of the figure: attributes TAXINC and POTHVAL of the 1080 records of Census, scaled to [0, 1] by their own
range, in the order of the file; k = 10, delta = 100. The paper prints no table. The numbers below are those of an
independent reproduction of Algorithms 2 and 3, to four digits or two decimals. Its cluster is the expiring record and
its k - 1 nearest; at the end of the stream the oldest expires until fewer than 2k are left, which are one cluster.

At omega_p = 0 the paper states a displacement of 80 at most and 25 on average; here it is 81 and 26.9. **At omega_p =
0.02 it states 12 and 0.7, which is not reproduced**: here it is 18 and 3.2, and 0.7 is reached at 0.06 only. No reading
of distance, displacement, scaling or order that was tried gives it; a horizontal axis stretched about threefold would.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section VI, Fig. 3. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shoal.arrays import Float64Matrix
from shoal.streams import StreamAggregator
from support.published_data import read_rows

pytestmark = pytest.mark.golden

LOSS = 0.005
"""Relative: the reference has four digits, and sums are computed in another order."""
PLACES = 0.005
"""Absolute: average displacements are printed with two decimals."""


@pytest.fixture(scope="module")
def census(data_dir: Path) -> Float64Matrix:
    values = np.array([[float(row["TAXINC"]), float(row["POTHVAL"])] for row in read_rows(data_dir, "census")])
    assert values.shape == (1080, 2)
    low, high = values.min(axis=0), values.max(axis=0)
    scaled: Float64Matrix = (values - low) / (high - low)
    return scaled


@pytest.mark.parametrize(
    ("omega_p", "mse", "most", "average"),
    [
        (0.0, 0.00801, 81, 26.86),
        (0.0025, 0.00839, 66, 16.23),
        (0.005, 0.01137, 79, 10.22),
        (0.01, 0.01709, 32, 6.08),
        (0.02, 0.02645, 18, 3.23),
        (0.03, 0.03262, 14, 2.28),
        (0.04, 0.03882, 12, 1.74),
        (0.05, 0.04982, 8, 1.06),
        (0.06, 0.05517, 9, 0.67),
        (0.07, 0.05995, 9, 0.44),
        (0.1, 0.06527, 2, 0.07),
    ],
)
def test_loss_grows_and_reordering_falls_with_the_weight_of_the_position(
    census: Float64Matrix, omega_p: float, mse: float, most: int, average: float
) -> None:
    stream = StreamAggregator(k=10, delta=100, rule="nearest", position=omega_p)
    calls = [*(stream.push(census[start : start + 128]) for start in range(0, 1080, 128)), stream.flush()]
    positions = np.concatenate([out.positions for out in calls])
    centroids = np.concatenate([out.centroids.repeat(np.diff(out.offsets), axis=0) for out in calls])
    displacement = np.abs(np.arange(1080) - positions)
    assert sum(len(out.suppressed) for out in calls) == 0
    assert ((census[positions] - centroids) ** 2).sum(axis=1).mean() == pytest.approx(mse, rel=LOSS)
    assert displacement.max() == most
    assert displacement.mean() == pytest.approx(average, abs=PLACES)
