"""Type aliases of arrays, and the largest coordinate. Shapes are given in the docstrings of functions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float64Cube: TypeAlias = NDArray[np.float64]
Float64Matrix: TypeAlias = NDArray[np.float64]
Float64Vector: TypeAlias = NDArray[np.float64]
Int64Matrix: TypeAlias = NDArray[np.int64]
Int64Vector: TypeAlias = NDArray[np.int64]
Int32Matrix: TypeAlias = NDArray[np.int32]
Int32Vector: TypeAlias = NDArray[np.int32]
Int8Vector: TypeAlias = NDArray[np.int8]
BoolVector: TypeAlias = NDArray[np.bool_]
BoolMatrix: TypeAlias = NDArray[np.bool_]

LARGEST = 1e150
"""Largest absolute value of a coordinate; squares of larger values may overflow."""
