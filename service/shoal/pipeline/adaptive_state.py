"""Adaptive state: values learned from earlier decisions that must survive a restart.

A restart reads the held records again, but not the records of earlier decisions. The values that these decisions
changed are therefore committed by the transaction that releases their clusters: the weight of the position where it
follows a target, and the spreads of attributes. The same decisions give the same state, to the bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.arrays import Float64Vector
from shoal.errors import InputError
from shoal.pipeline.spreads import SpreadState, learned_attributes
from shoal.policy import Policy, Scale

__all__ = ["AdaptiveState"]

_VERSION = 2
_WEIGHT = struct.Struct(">d")
_COUNTS = struct.Struct(">qq")
_LONG, _SHORT = 8, 4
"""Bytes of a value that has all bits of a float64, and of one that has the upper half of them."""


@dataclass(frozen=True, slots=True)
class AdaptiveState:
    """State that each decision may change. The policy determines which of the values exist.

    Attributes
    ----------
    position_weight : float or None
        Weight of the position under ``steering.position.target_span``. None: initial, or fixed by the policy.
    spreads : SpreadState or None
        Spreads of the attributes. None: initial, or nothing is learned under the policy.
    """

    position_weight: float | None = None
    spreads: SpreadState | None = None

    @staticmethod
    def size(policy: Policy) -> int:
        """Return the number of bytes that `to_bytes` needs under a policy; 0 if the policy has no adaptive state."""
        size = 0 if policy.target_span is None else _WEIGHT.size
        if learned := learned_attributes(policy):
            times, centers = _numbers_of_times(policy), _numbers_with_centers(policy)
            size += _COUNTS.size + len(learned) * (_LONG + 2 * _SHORT)
            size += len(centers) * _LONG + len(times) * (_LONG + 2 * _SHORT)
        return 1 + size if size else 0

    def to_bytes(self, policy: Policy) -> bytes:
        """Return the state as bytes; none for the initial state.

        Notes
        -----
        Format, big-endian: version (1 byte); the weight (float64) if the policy has a target span; then, if spreads are
        learned, epoch and number of clusters (int64), the means of all learned attributes, the centers of those that
        may be missing and the last values of times (float64 each), then variances and widths of all, step variances
        and drifts of times (upper half of a float64 each).
        """
        data = b"" if self.position_weight is None else _WEIGHT.pack(self.position_weight)
        if (spreads := self.spreads) is not None:
            centers = spreads.centers[_numbers_with_centers(policy)]
            data += _COUNTS.pack(spreads.epoch, spreads.clusters_seen)
            data += np.concatenate([spreads.means, centers, spreads.last]).astype(">f8").tobytes()
            short = spreads.variances, spreads.widths, spreads.step_variances, spreads.drifts
            data += (np.concatenate(short).view(np.int64) >> 32).astype(">i4").tobytes()
        return bytes([_VERSION]) + data if data else b""

    @classmethod
    def from_bytes(cls, data: bytes, policy: Policy) -> AdaptiveState:
        """Return the state that `to_bytes` wrote under the same policy; no bytes give the initial state.

        Raises
        ------
        InputError
            The bytes have another length or version, or a value that is not possible.
        """
        if not data:
            return cls()
        if len(data) != cls.size(policy) or data[0] != _VERSION:
            raise InputError(
                "the committed adaptive state was written by another version; run shoal run --drain with that version "
                "first"
            )
        weight, start = None, 1
        if policy.target_span is not None:
            (weight,) = _WEIGHT.unpack_from(data, start)
            start += _WEIGHT.size
        spreads = _spreads_of(data, start, policy) if start < len(data) else None
        state = cls(weight, spreads)
        if not state._is_valid():
            raise InputError("the committed adaptive state is corrupt")
        return state

    def as_dict(self, policy: Policy) -> dict[str, Any]:
        """Return the weight and the widths of attributes by name, for the summary of the policy's owner.

        A width that is not yet learned is None.
        """
        state: dict[str, Any] = {} if self.position_weight is None else {"position_weight": self.position_weight}
        if self.spreads is not None:
            names = [attribute.name for attribute in learned_attributes(policy)]
            widths = [width or None for width in self.spreads.widths.tolist()]
            state["widths"] = dict(zip(names, widths, strict=True))
        return state

    def _is_valid(self) -> bool:
        positive = np.array([1.0 if self.position_weight is None else self.position_weight])
        if not (np.isfinite(positive) & (positive > 0)).all():
            return False
        if (spreads := self.spreads) is None:
            return True
        finite = spreads.variances, spreads.widths, spreads.step_variances, spreads.drifts, spreads.centers
        return (
            spreads.epoch >= -1
            and spreads.clusters_seen >= 0
            and not np.isinf(np.concatenate([spreads.means, spreads.last])).any()
            and bool(np.isfinite(np.concatenate(finite)).all())
            and bool((np.concatenate([spreads.variances, spreads.widths, spreads.step_variances]) >= 0).all())
        )


def _numbers_of_times(policy: Policy) -> list[int]:
    """Return the places of times among the learned attributes."""
    return [i for i, attribute in enumerate(learned_attributes(policy)) if attribute.scale is Scale.TIME]


def _numbers_with_centers(policy: Policy) -> list[int]:
    """Return the places of attributes that may be missing among the learned ones: only they need a center."""
    return [i for i, attribute in enumerate(learned_attributes(policy)) if attribute.may_be_missing]


def _spreads_of(data: bytes, start: int, policy: Policy) -> SpreadState:
    """Return the spreads that begin at ``start`` of the bytes of a state."""
    count = len(learned_attributes(policy))
    times, centers = len(_numbers_of_times(policy)), _numbers_with_centers(policy)
    epoch, clusters_seen = _COUNTS.unpack_from(data, start)
    start += _COUNTS.size
    long = np.frombuffer(data, ">f8", count + len(centers) + times, start).astype(np.float64)
    start += long.nbytes
    short: Float64Vector = (np.frombuffer(data, ">i4", offset=start).astype(np.int64) << 32).view(np.float64)
    means, known_centers, last = np.split(long, [count, count + len(centers)])
    variances, widths, step_variances, drifts = np.split(short, [count, 2 * count, 2 * count + times])
    all_centers = np.zeros(count)
    all_centers[centers] = known_centers
    return SpreadState(epoch, clusters_seen, means, variances, widths, all_centers, last, step_variances, drifts)
