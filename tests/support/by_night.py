"""What a test does by day, and what `make nightly` alone does."""

from __future__ import annotations

import os
from typing import Any

import pytest

PROFILE = os.environ.get("HYPOTHESIS_PROFILE")
IS_NIGHT = PROFILE == "nightly"


def at_night(*cases: Any) -> list[Any]:
    """Return cases for `pytest.mark.parametrize` that run at night only.

    Each is the value of a parameter, or a tuple with the values of several.
    """
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly) for case in cases]


def by_day(few: int, all_of_them: int) -> int:
    """Return how many examples of a property are drawn: few, or all of them at night and for mutants."""
    return all_of_them if PROFILE in {"nightly", "mutants"} else few
