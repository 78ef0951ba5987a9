"""A consumed message as the partition task needs it, without a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """Offset, broker timestamp (ms), value, key and headers of one message."""

    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
