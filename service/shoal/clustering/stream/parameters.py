"""What is wrong with the parameters of a stream, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from shoal.clustering.stream.rules import rule_faults
from shoal.clustering.stream.steering import is_finite_number, position_faults
from shoal.policy import MAX_DELTA

__all__ = ["are_widths", "is_whole", "parameter_faults"]


def parameter_faults(
    k: int, delta: int, rule: str, position: object, max_share: float, *, has_dominance: bool = False
) -> list[str]:
    """Say all that is wrong with the parameters of a stream; empty if nothing is."""
    faults = [f"{name}: must be a whole number" for name, value in (("k", k), ("delta", delta)) if not is_whole(value)]
    if faults:
        return [*faults, *position_faults(position), *rule_faults(rule, has_dominance=has_dominance)]
    if k < 2:  # noqa: PLR2004 - one person alone is no cluster
        faults.append("k: must be at least 2")
    if max(k, delta) > MAX_DELTA:
        faults.append(f"k, delta: must be at most {MAX_DELTA}")
    if delta < max(k - 1, 1):
        faults.append("delta: must be at least k - 1, or no cluster could ever be filled")
    if not is_finite_number(max_share) or not 0 < max_share <= 1:
        faults.append("max_share: must be above 0 and at most 1")
    elif k >= 2 and max_share * min(k, MAX_DELTA) < 1 - 1e-9:  # noqa: PLR2004
        faults.append("max_share: must be at least 1/k, or k people could not share a cluster")
    return [*faults, *position_faults(position), *rule_faults(rule, has_dominance=has_dominance)]


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a parameter, whatever its kind, is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def are_widths(reach: object) -> bool:
    """Whether a parameter is a sequence of whole numbers, 0 or more, that fit 62 bits."""
    if not isinstance(reach, Sequence) or isinstance(reach, bytes):
        return False
    return all(is_whole(width) and 0 <= width < 1 << 62 for width in reach)
