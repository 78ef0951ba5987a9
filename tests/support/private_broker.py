"""A broker of a test's own, which may be paused, stopped, and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.kafka_broker import load_local, wait_until

__all__ = ["PrivateBroker", "private_broker"]

QUICK = ("broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=200")


@dataclass
class PrivateBroker:
    """A broker of a test's own, which may be paused, stopped, and started again where it was."""

    home: Path
    bootstrap: str
    pid: int
    process: subprocess.Popen[bytes] | None = None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if self.process is not None:
            self.process.wait(30)

    def is_gone(self) -> bool:
        if self.process is not None:
            return self.process.poll() is not None
        return load_local().process_began(self.pid, str(self.home / "server.properties")) is None

    async def start_again(self, *settings: str) -> None:
        """Start it with the same data on the same port, which the local broker itself never does."""
        await wait_until(self.is_gone, what="the end of the broker")
        local = load_local()
        properties = self.home / "server.properties"
        with properties.open("a") as file:
            # Its former self is waited for as long as that.
            file.writelines(f"\n{setting}" for setting in (*QUICK, *settings))
        command = [local._java(), *local.JVM, f"-Dlog4j2.configurationFile={local.HERE / 'log4j2.properties'}"]
        with (self.home / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
                [*command, "-cp", f"{local._libraries()}/*", "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                start_new_session=True,
            )
        self.pid = self.process.pid
        await wait_until(lambda: local._answers(self.bootstrap), 60, "the broker")


@contextlib.contextmanager
def private_broker(home: Path) -> Iterator[PrivateBroker]:
    """Start a broker with its data in a folder, and stop it at the end, also while it is paused."""
    local = load_local()
    found = local.up(home)
    one = PrivateBroker(home, found.bootstrap, found.pid)
    try:
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            one.resume()
        one.stop(signal.SIGKILL)
        local.down(home)
