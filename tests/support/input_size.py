"""Input of tests that run with and without compilation."""

from __future__ import annotations

import os
from typing import TypeVar

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"

T = TypeVar("T")


def sized(compiled: T, plain: T) -> T:
    """Return the input for compiled kernels, or less for plain ones, which take a hundred times as long."""
    return compiled if IS_COMPILED else plain
