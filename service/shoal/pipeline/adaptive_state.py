"""Adaptive state: values learned from earlier decisions that must survive a restart.

A restart reads the held records again, but not the records of earlier decisions. The values that these decisions
changed are therefore committed by the transaction that releases their clusters: the weight of the position where it
follows a target, and the ranges of attributes without bounds. The same decisions give the same state, to the bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.pipeline.online_scaler import ScalerState, unbounded_columns
from shoal.policy import Policy

__all__ = ["AdaptiveState"]

_VERSION = 1
_WEIGHT = struct.Struct(">d")
_COUNTS = struct.Struct(">qq")
_RANGE_BYTES = 3 * 8


@dataclass(frozen=True, slots=True)
class AdaptiveState:
    """State that each decision may change. The policy determines which of the values exist.

    Attributes
    ----------
    position_weight : float or None
        Weight of the position under ``steering.position.target_span``. None: initial, or fixed by the policy.
    scaler : ScalerState or None
        Ranges of attributes without bounds. None: initial, or all attributes have bounds.
    """

    position_weight: float | None = None
    scaler: ScalerState | None = None

    @staticmethod
    def size(policy: Policy) -> int:
        """Return the number of bytes that `to_bytes` needs under a policy; 0 if the policy has no adaptive state."""
        size = 0 if policy.target_span is None else _WEIGHT.size
        if columns := len(unbounded_columns(policy.quasi_identifiers)):
            size += _COUNTS.size + columns * _RANGE_BYTES
        return 1 + size if size else 0

    def to_bytes(self) -> bytes:
        """Return the state as bytes; none for the initial state.

        Notes
        -----
        Format, big-endian: version (1 byte); the weight (float64) if the policy has a target span; then, if there are
        attributes without bounds, epoch and number of clusters (int64), followed by the last means, mean distances and
        widths (float64 each) of these attributes.
        """
        data = b"" if self.position_weight is None else _WEIGHT.pack(self.position_weight)
        if self.scaler is not None:
            columns = (self.scaler.last_means, self.scaler.mean_distances, self.scaler.widths)
            data += _COUNTS.pack(self.scaler.epoch, self.scaler.clusters_seen)
            data += np.concatenate(columns).astype(">f8").tobytes()
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
            raise InputError("the committed adaptive state does not fit this policy and version")
        weight, start = None, 1
        if policy.target_span is not None:
            (weight,) = _WEIGHT.unpack_from(data, start)
            start += _WEIGHT.size
        scaler = None
        if start < len(data):
            epoch, clusters_seen = _COUNTS.unpack_from(data, start)
            numbers = np.frombuffer(data, ">f8", offset=start + _COUNTS.size).astype(np.float64)
            scaler = ScalerState(epoch, clusters_seen, *numbers.reshape(3, -1))
        state = cls(weight, scaler)
        if not state._is_valid():
            raise InputError("the committed adaptive state is corrupt")
        return state

    def as_dict(self, policy: Policy) -> dict[str, Any]:
        """Return the weight and the widths of ranges by name, for the summary of the policy's owner."""
        state: dict[str, Any] = {} if self.position_weight is None else {"position_weight": self.position_weight}
        if self.scaler is not None:
            names = [policy.quasi_identifiers[column].name for column in unbounded_columns(policy.quasi_identifiers)]
            state["ranges"] = dict(zip(names, self.scaler.widths.tolist(), strict=True))
        return state

    def _is_valid(self) -> bool:
        numbers = [np.array([1.0 if self.position_weight is None else self.position_weight])]
        if self.scaler is not None:
            scaler = self.scaler
            if scaler.epoch < -1 or scaler.clusters_seen < 0 or not np.isfinite(scaler.last_means).all():
                return False
            numbers += [scaler.mean_distances, scaler.widths]
        return all(bool((np.isfinite(part) & (part > 0)).all()) for part in numbers)
