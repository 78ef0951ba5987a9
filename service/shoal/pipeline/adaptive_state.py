"""What earlier decisions leave to later ones, as bytes to commit with them.

A restart reads held records again, and nothing else of what has been decided; what decisions have moved must therefore
be committed by the transaction that releases them: the weight of the position, where it follows a target, and the
ranges of attributes without bounds. Both are the same after the same decisions, to the bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.pipeline.online_scaler import ScalerState, learned
from shoal.policy import Policy

__all__ = ["AdaptiveState"]

_VERSION = 1
_WEIGHT = struct.Struct(">d")
_COUNTS = struct.Struct(">qq")
_RANGE_BYTES = 3 * 8


@dataclass(frozen=True, slots=True)
class AdaptiveState:
    """State that is carried from decision to decision. What of it there is, the policy says.

    Attributes
    ----------
    weight : float or None
        Of the position, where it follows ``steering.position.target_span``; None: at its beginning, or fixed.
    ranges : RangesState or None
        Of attributes without bounds; None: at their beginning, or all have bounds.
    """

    weight: float | None = None
    ranges: ScalerState | None = None

    @staticmethod
    def size(policy: Policy) -> int:
        """Bytes it needs under a policy; 0 where nothing is carried."""
        size = 0 if policy.target_span is None else _WEIGHT.size
        if ranges := len(learned(policy.quasi_identifiers)):
            size += _COUNTS.size + ranges * _RANGE_BYTES
        return 1 + size if size else 0

    def pack(self) -> bytes:
        """Write it; nothing where there is nothing."""
        text = b"" if self.weight is None else _WEIGHT.pack(self.weight)
        if self.ranges is not None:
            columns = (self.ranges.last, self.ranges.distances, self.ranges.widths)
            text += _COUNTS.pack(self.ranges.epoch, self.ranges.seen) + np.concatenate(columns).astype(">f8").tobytes()
        return bytes([_VERSION]) + text if text else b""

    @classmethod
    def unpack(cls, text: bytes, policy: Policy) -> AdaptiveState:
        """Read back what `pack` wrote under this policy; nothing stands for the beginning.

        Raises
        ------
        InputError
            It is nothing of the kind.
        """
        if not text:
            return cls()
        if len(text) != cls.size(policy) or text[0] != _VERSION:
            raise InputError("the committed course of the stream is not of this policy and version")
        weight, place = None, 1
        if policy.target_span is not None:
            (weight,) = _WEIGHT.unpack_from(text, place)
            place += _WEIGHT.size
        ranges = None
        if place < len(text):
            epoch, seen = _COUNTS.unpack_from(text, place)
            numbers = np.frombuffer(text, ">f8", offset=place + _COUNTS.size).astype(np.float64)
            ranges = ScalerState(epoch, seen, *numbers.reshape(3, -1))
        course = cls(weight, ranges)
        if not course._is_sound():
            raise InputError("the committed course of the stream is broken")
        return course

    def told(self, policy: Policy) -> dict[str, Any]:
        """Return it as plain values by name, for those who may see what the policy's owner sees."""
        about: dict[str, Any] = {} if self.weight is None else {"position_weight": self.weight}
        if self.ranges is not None:
            names = [policy.quasi_identifiers[column].name for column in learned(policy.quasi_identifiers)]
            about["ranges"] = dict(zip(names, self.ranges.widths.tolist(), strict=True))
        return about

    def _is_sound(self) -> bool:
        numbers = [np.array([1.0 if self.weight is None else self.weight])]
        if self.ranges is not None:
            if self.ranges.epoch < -1 or self.ranges.seen < 0 or not np.isfinite(self.ranges.last).all():
                return False
            numbers += [self.ranges.distances, self.ranges.widths]
        return all(bool((np.isfinite(part) & (part > 0)).all()) for part in numbers)
