"""Tell every few seconds that something still runs: ``waiting.py WHAT COMMAND ...`` runs a command.

Lines about the time go to standard error, what the command prints goes to standard output. Standard library only: it
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
    """Print what is waited for, and every few seconds for how long; on a terminal the seconds stay in one line.

    Parameters
    ----------
    what
        What is waited for.
    every_s
        Seconds from one line to the next.
    """
    began, done, count = time.monotonic(), threading.Event(), 0
    start, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")

    def tell() -> None:
        nonlocal count
        while not done.wait(every_s):
            count += 1
            print(f"{start}  ... {time.monotonic() - began:.0f} s", end=end, file=sys.stderr, flush=True)

    print(what, file=sys.stderr, flush=True)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if count and not end:
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
