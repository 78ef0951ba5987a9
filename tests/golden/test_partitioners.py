"""Published sums of squared errors of the partitioners, on the reference tables.

Every number is marked by its kind: *printed*, as the paper has it, to its last digit; *near*, the paper's with an
unexplained difference; *ours*, without a published number.

References
----------
.. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity Through
   Microaggregation", IEEE GrC 2006, Table I.
.. [2] A. Martínez-Ballesté, A. Solanas, J. Domingo-Ferrer and J. M. Mateo-Sanz, "A Genetic Approach to Multivariate
   Microaggregation for Database Privacy", ICDE Workshops 2007, Table 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from shoal import microaggregate
from shoal.tables import refined
from shoal.tables.measures import loss_of
from support.by_night import at_night
from support.golden_tables import standardised

pytestmark = pytest.mark.golden

HALF_A_DIGIT = 0.00501
"""Of a number that is printed with two decimals."""


def loss(folder: Path, table: str, k: int, algorithm: str, **parameters: float) -> float:
    values = standardised(folder, table)
    return loss_of(values, microaggregate(values, k, algorithm, parameters=parameters))


@pytest.mark.parametrize(("table", "n", "d"), [("census", 1080, 13), ("eia", 4092, 11), ("tarragona", 834, 13)])
def test_the_total_sum_of_squares_is_the_number_of_cells(data_dir: Path, table: str, n: int, d: int) -> None:
    values = standardised(data_dir, table)
    assert values.shape == (n, d)
    assert loss_of(values, np.zeros(n, np.int32)) == pytest.approx(n * d)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "table", "k", "sse"),
    [
        ("mdav", {}, "census", 3, 799.18),  # printed in [1]
        ("mdav", {}, "census", 5, 1276.02),  # printed
        ("mdav", {}, "eia", 3, 217.38),  # printed
        ("mdav", {}, "eia", 5, 750.20),  # printed
        ("mdav", {}, "eia", 10, 1728.31),  # printed
        ("mdav", {}, "eia", 4, 302.19),  # near: printed as 302.18, cut instead of rounded
        ("mdav", {}, "census", 4, 1052.26),  # near: 1053.78 in [1]; other programs give ours
        ("mdav", {}, "census", 10, 1987.49),  # near: 1997.03 in [1]; other programs give ours
        ("mdav", {}, "tarragona", 3, 1835.83),  # ours
        ("mdav", {}, "tarragona", 5, 2435.31),  # ours
        ("mdav", {}, "tarragona", 10, 3598.77),  # ours
        ("md", {}, "census", 5, 1264.51),  # printed in [1]
        ("md", {}, "census", 10, 2021.27),  # printed
        ("md", {}, "eia", 3, 212.60),  # printed
        ("md", {}, "eia", 4, 347.45),  # printed
        ("md", {}, "eia", 10, 1671.78),  # printed
        ("md", {}, "eia", 5, 751.45),  # near: 751.44
        ("md", {}, "census", 3, 803.23),  # near: 803.09
        ("md", {}, "census", 4, 1072.29),  # near: 1072.70
        ("vmdav", {"gamma": 0.2}, "census", 3, 798.49),  # printed in [1]
        ("vmdav", {"gamma": 0.2}, "eia", 3, 240.70),  # printed
        ("vmdav", {"gamma": 0.2}, "eia", 5, 511.20),  # printed
        ("vmdav", {"gamma": 1.1}, "eia", 10, 1270.90),  # printed: the row has the better gamma of each cell
        ("vmdav", {"gamma": 0.2}, "eia", 4, 337.88),  # near: 337.87
        ("vmdav", {"gamma": 0.2}, "census", 4, 1055.53),  # near: 1055.51
        ("vmdav", {"gamma": 0.2}, "census", 5, 1261.37),  # near: 1260.56, which results if leftovers join one by one
        ("vmdav", {"gamma": 0.2}, "census", 10, 1978.22),  # near: 1974.75
    ],
)
def test_losses_are_those_of_the_literature(
    data_dir: Path, algorithm: str, parameters: dict[str, float], table: str, k: int, sse: float
) -> None:
    assert loss(data_dir, table, k, algorithm, **parameters) == pytest.approx(sse, abs=HALF_A_DIGIT)


@pytest.mark.parametrize(
    ("table", "macro", "steps", "low", "high"),
    [
        *at_night(
            ("census", 6, 2, 755.0, 780.0),  # K = 18 of [2]: 767
            ("eia", 6, 2, 180.0, 195.0),  # K = 18: 186
            ("eia", 4, 1, 405.0, 425.0),  # K = 12: 414.56
        )
    ],
)
def test_genetic_is_close_to_its_table(
    data_dir: Path, table: str, macro: int, steps: int, low: float, high: float
) -> None:
    assert low <= loss(data_dir, table, 3, "genetic", macro=macro, steps=steps) <= high


@pytest.mark.parametrize(
    ("table", "k", "sse"),
    [("census", 3, 745.0), ("census", 5, 1150.0), ("census", 10, 1730.0), ("eia", 3, 172.0), ("eia", 5, 430.0)],
)
def test_descent_after_mdav_is_below_its_limit(data_dir: Path, table: str, k: int, sse: float) -> None:
    values = standardised(data_dir, table)
    assert loss_of(values, microaggregate(values, k, "mdav", "descent")) <= sse


@pytest.mark.parametrize(
    ("table", "k", "sse"),
    [
        ("census", 3, 700.0),
        ("tarragona", 5, 2240.0),
        *at_night(
            ("census", 5, 1065.0),
            ("census", 10, 1650.0),
            ("eia", 3, 167.0),
            ("eia", 5, 350.0),
            ("eia", 10, 905.0),
            ("tarragona", 3, 1610.0),
            ("tarragona", 10, 3330.0),
        ),
    ],
)
def test_two_million_changes_of_annealing_are_below_their_limits(
    data_dir: Path, table: str, k: int, sse: float
) -> None:
    """Limits below every published figure that was accessible (Census, k = 3: 767 [2]); the seed decides the value."""
    values = standardised(data_dir, table)
    labels = microaggregate(values, k, "auto", "anneal", budget_used=lambda tried: tried / 2e6)
    assert loss_of(values, labels) <= sse


def processor_seconds(limit: float) -> Callable[[int], float]:
    """Return a budget of processor seconds of this process, which other load on the machine does not use up."""
    began = time.process_time()
    return lambda _: (time.process_time() - began) / limit


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("table", "k", "sse"),
    [
        ("census", 3, 665.0),
        ("census", 5, 1040.0),
        ("census", 10, 1640.0),
        ("eia", 3, 160.0),
        ("eia", 5, 340.0),
        ("eia", 10, 890.0),
        ("tarragona", 3, 1600.0),
        ("tarragona", 5, 2215.0),
        ("tarragona", 10, 3310.0),
    ],
)
def test_the_median_loss_after_half_a_minute_of_annealing_is_below_its_limit(
    data_dir: Path, table: str, k: int, sse: float
) -> None:
    values = standardised(data_dir, table)
    losses = [refined(values, k, "auto", "anneal", seed, budget_used=processor_seconds(30.0)).loss for seed in range(5)]
    print(f"{table}, k = {k}: {median(losses):.2f} of {', '.join(f'{loss:.2f}' for loss in losses)}")
    assert median(losses) <= sse
