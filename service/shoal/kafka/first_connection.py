"""The first connection to a broker: how long it may take."""

from __future__ import annotations

from shoal.policy import KafkaSection

__all__ = ["connection_timeout_ms"]

LONGEST_MS, SHORTEST_MS = 10_000, 1000
"""Limits of the time for one address (ms). A broker that answers does so much sooner."""


def connection_timeout_ms(settings: KafkaSection) -> int:
    """Return the time limit of one connection and of one request (ms).

    All addresses together take at most ``patience_s``, if that is at least a second for each: a broker that swallows
    packets is noticed by this time alone.
    """
    address_count = len(str(settings.bootstrap_servers).split(","))
    return int(max(SHORTEST_MS, min(LONGEST_MS, settings.patience_s * 1000 / address_count)))
