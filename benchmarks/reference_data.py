"""The published data sets that benchmarks and ``make papers`` use, read as the tests read them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import published_data
from support.published_data import read_rows

__all__ = ["data_folder", "read_rows"]


def data_folder() -> Path:
    """Return the folder of the data sets: ``tests/data``, or the folder that ``SHOAL_DATA`` names.

    Raises
    ------
    SystemExit
        A data set is missing there.
    """
    try:
        return published_data.data_folder(sorted([*published_data.NEEDED, "hierarchies/adult_education"]))
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None
