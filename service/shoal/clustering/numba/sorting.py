"""Sorting in kernels: few instructions, which the compiler inlines, and no memory."""

from __future__ import annotations

from shoal.arrays import Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_inline

__all__ = ["shell_sort"]


@njit_inline
def shell_sort(values: Float64Vector | Int64Vector) -> None:
    """Sort values (n,) in place, ascending, by Shell's method with gaps 1, 4, 13, 40, ...; O(n^1.5) at worst.

    It is an insertion sort for the few records of a usual cluster.
    """
    gap = 1
    while gap < values.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, values.size):
            value, index = values[i], i
            while index >= gap and values[index - gap] > value:
                values[index] = values[index - gap]
                index -= gap
            values[index] = value
        gap //= 3
