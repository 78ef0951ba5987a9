"""Show that a command still runs: ``waiting.py WHAT COMMAND ...`` prints a dot every few seconds.

The dots go to standard error, all output of the command goes to standard output. Standard library only: this runs
before any package is installed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["progress_dots"]

EVERY_S = 8.0


@contextmanager
def progress_dots(what: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Print ``what``, and on the same line a dot every few seconds and the time every minute.

    Parameters
    ----------
    what
        Description of the work in the body of the context.
    every_s
        Time between two dots (s).
    """
    began, done = time.monotonic(), threading.Event()

    def print_dots() -> None:
        minutes = 0
        while not done.wait(every_s):
            passed = int((time.monotonic() - began) // 60)
            print("." if passed == minutes else f" {passed} min ", end="", file=sys.stderr, flush=True)
            minutes = passed

    print(what, end=" ", file=sys.stderr, flush=True)
    thread = threading.Thread(target=print_dots, daemon=True)
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
    with progress_dots(what):
        return subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
