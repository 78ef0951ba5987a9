"""What earlier decisions leave to later ones, as bytes to commit with them: the weight that follows a target.

A restart reads held records again, and nothing else of what has been decided; what decisions have moved must therefore
be committed by the transaction that releases them. It is the same after the same decisions, to the bit.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from shoal.errors import InputError
from shoal.policy import Policy

__all__ = ["Course"]

_VERSION = 1
_NUMBER = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class Course:
    """State that is carried from decision to decision. What of it there is, the policy says.

    Attributes
    ----------
    weight : float or None
        Of the position, where it follows ``steering.position.target_span``; None: at its beginning.
    """

    weight: float | None = None

    @staticmethod
    def size(policy: Policy) -> int:
        """Most bytes it needs under a policy; 0 where nothing is carried."""
        return 0 if policy.target_span is None else 1 + _NUMBER.size

    def pack(self, policy: Policy) -> bytes:
        """Write it."""
        if self.weight is None or not self.size(policy):
            return b""
        return bytes([_VERSION]) + _NUMBER.pack(self.weight)

    @classmethod
    def unpack(cls, text: bytes, policy: Policy) -> Course:
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
        (weight,) = _NUMBER.unpack(text[1:])
        if not (math.isfinite(weight) and weight > 0):
            raise InputError("the committed course of the stream is broken")
        return cls(weight)
