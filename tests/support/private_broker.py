"""A broker of a test's own, which may be paused, stopped, and started again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.kafka_broker import load_local, wait_until

QUICK = ("broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=200")


@dataclass
class PrivateBroker:
    """A broker of a test's own, which may be paused, stopped, and started again where it was."""

    home: Path
    bootstrap: str
    pid: int

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def is_gone(self) -> bool:
        return load_local().running(self.home) is None

    async def start_again(self, *settings: str) -> None:
        """Start it with the same data on the same port, which the local broker itself never does."""
        await wait_until(self.is_gone, what="the end of the broker")

        def is_back() -> bool:
            # It ends at once if the port is that of a connection of another process at this moment.
            if self.is_gone():
                self.pid = load_local().again(self.home, (*QUICK, *settings)).pid
            return bool(load_local().answers(self.bootstrap))

        # Its former process is waited for as long as that.
        await wait_until(is_back, 60, "the broker")


@contextlib.contextmanager
def private_broker(home: Path, *settings: str) -> Iterator[PrivateBroker]:
    """Start a broker with its data in a folder, and stop it at the end, also while it is paused."""
    local = load_local()
    found = local.up(home, settings=settings)
    one = PrivateBroker(home, found.bootstrap, found.pid)
    try:
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            one.resume()
        one.stop(signal.SIGKILL)
        local.down(home)
