"""Where the time goes: a sampling profile by package, with next to no cost to what is measured."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["PACKAGES", "sampled"]

PACKAGES = {
    "/aiokafka/consumer/": "client: fetch",
    "/aiokafka/record": "client: fetch",
    "/aiokafka/producer/": "client: produce",
    "/aiokafka/": "client: protocol and sockets",
    "/shoal/formats/": "decode and encode",
    "/shoal/streams/pipeline.py": "flow (composition, figures)",
    "/shoal/streams/release.py": "flow (composition, figures)",
    "/shoal/streams/spreads.py": "flow (composition, figures)",
    "/shoal/streams/stats.py": "flow (composition, figures)",
    "/shoal/scales/": "flow (composition, figures)",
    "/shoal/protection/": "flow (composition, figures)",
    "/shoal/streams/": "engine",
    "/shoal/kernels/": "engine",
    "/shoal/tables/": "engine",
    "/shoal/kafka/": "progress and transactions",
    "/shoal/observability/": "metrics",
    "/prometheus_client/": "metrics",
    "/asyncio/": "event loop",
    "selectors.py": "event loop",
}
"""Path of a source file to what it is for; the first that fits, from the innermost frame outwards."""

INTERVAL_S = 0.001


def _package_of(frame: FrameType | None) -> str:
    while frame is not None:
        path = frame.f_code.co_filename
        for part, package in PACKAGES.items():
            if part in path:
                return package
        frame = frame.f_back
    return "other"


@contextmanager
def sampled() -> Iterator[Counter[str]]:
    """Count the package of the running frame every millisecond of processor time."""
    counts: Counter[str] = Counter()

    def note(_: int, frame: FrameType | None) -> None:
        counts[_package_of(frame)] += 1

    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        yield counts
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
