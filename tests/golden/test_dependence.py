"""MDAV on attributes and weighted confidential attributes: loss of each at every weight of [1]_.

The first six attributes are quasi-identifiers X, the other seven confidential Y, both z-scores; MDAV with k = 10 sees
(X, beta Y), beta² = lambda / (1 - lambda) · 6 / 7. The paper prints curves only (its Figs. 8 to 11); the numbers are
those of an independent reproduction, to five digits. What the paper says of its curves is asserted beside them.

References
----------
.. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
   Preservation of Statistical Dependence", Information Sciences 342, 2016.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golden_tables import standardised
from shoal import microaggregate
from shoal.engine.static.refinement import loss_of

pytestmark = pytest.mark.golden

WEIGHTS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
D_X = {
    "census": [0.09990, 0.11168, 0.12477, 0.13921, 0.15044, 0.16376, 0.17692, 0.19417, 0.21854, 0.25777, 0.35809],
    "tarragona": [0.25464, 0.25873, 0.27777, 0.28926, 0.30729, 0.31946, 0.32309, 0.35158, 0.38854, 0.41177, 0.44324],
}
D_Y = {
    "census": [0.37061, 0.24744, 0.17956, 0.15241, 0.13654, 0.12258, 0.11247, 0.09991, 0.09142, 0.08262, 0.07341],
    "tarragona": [0.49180, 0.42355, 0.41144, 0.40422, 0.36290, 0.34276, 0.32154, 0.31120, 0.28477, 0.27782, 0.27222],
}


@pytest.mark.parametrize("table", ["census", "tarragona"])
def test_loss_of_both_sides_at_every_weight(data_dir: Path, table: str) -> None:
    values = standardised(data_dir, table)
    known, confidential = values[:, :6], values[:, 6:]
    losses = []
    for weight in WEIGHTS:
        beta = math.sqrt(weight / (1.0 - weight) * 6.0 / 7.0) if weight < 1.0 else 0.0
        seen = np.concatenate((known, beta * confidential), axis=1) if weight < 1.0 else confidential
        labels = microaggregate(seen, 10, "mdav")
        losses.append((loss_of(known, labels) / known.size, loss_of(confidential, labels) / confidential.size))
    assert [x for x, _ in losses] == pytest.approx(D_X[table], abs=1e-5)
    assert [y for _, y in losses] == pytest.approx(D_Y[table], abs=1e-5)
    assert losses[0][0] < losses[0][1]
    assert losses[-1][1] < losses[-1][0]
    assert all(before < after for (before, _), (after, _) in pairwise(losses))
