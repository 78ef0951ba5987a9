"""Tell every few seconds that something still runs: ``waiting.py WHAT COMMAND ...`` runs a command.

The time goes to standard error, what the command prints goes to standard output. Standard library only: it
runs before anything is installed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["told"]

EVERY_S = 8.0


@contextmanager
def told(what: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Print what is waited for; a dot every few seconds and the time every minute follow on the same line.

    Parameters
    ----------
    what
        What is waited for.
    every_s
        Seconds from one dot to the next.
    """
    began, done = time.monotonic(), threading.Event()

    def tell() -> None:
        minutes = 0
        while not done.wait(every_s):
            passed = int((time.monotonic() - began) // 60)
            print("." if passed == minutes else f" {passed} min ", end="", file=sys.stderr, flush=True)
            minutes = passed

    print(what, end=" ", file=sys.stderr, flush=True)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print(file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    what, *command = arguments
    with told(what):
        return subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
