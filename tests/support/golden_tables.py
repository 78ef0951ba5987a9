"""The reference tables of the literature on microaggregation, as it standardises them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shoal.arrays import Float64Matrix
from support.published_data import read_rows


def standardised(folder: Path, name: str) -> Float64Matrix:
    """Return a table as z-scores, divided by the population's standard deviation.

    All 13 attributes of ``census`` and ``tarragona``; of ``eia`` UTILITYID and the ten of revenue and sales: with
    these, and with this deviation, the published figures come out.
    """
    rows = read_rows(folder, name)
    names = list(rows[0])
    if name == "eia":
        names = ["UTILITYID", *names[names.index("RESREVENUE") :]]
    values = np.array([[float(row[column]) for column in names] for row in rows])
    scaled: Float64Matrix = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled
