"""Runs a command of `shoal` in this process, and writes how much memory it uses: ``memory_in_use.py FILE run ...``.

Resident memory includes what the process has freed and the allocator keeps for later. It grows whenever the process
needs more at one moment than ever before. Memory in use grows only if the process keeps more and more.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from pathlib import Path

__all__ = ["in_use_mb", "last_mb"]

WRITE_S = 2.0
LARGEST_SMALL_OBJECT_BYTES = 512
"""Python allocates objects up to this size (bytes) in memory of its own, and others by malloc."""


class _MallocInfo(ctypes.Structure):
    """The struct ``mallinfo2`` of glibc 2.33 and newer: ten sizes (bytes)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks"),
            *("fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def in_use_mb() -> float:
    """Return the memory in use (MB of 10^6 bytes), at most.

    It is what malloc has given, and for each object of Python the size of the largest small one.
    """
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    found = mallinfo2()
    return float(found.uordblks + found.hblkhd + LARGEST_SMALL_OBJECT_BYTES * sys.getallocatedblocks()) / 1e6


def last_mb(file: Path) -> float:
    """Return the last figure that a process has written (MB); NaN before the first."""
    with contextlib.suppress(OSError, ValueError):
        return float(file.read_text(encoding="utf-8"))
    return float("nan")


def _write_for_ever(file: Path) -> None:
    partial_file = file.with_suffix(".part")
    while True:
        partial_file.write_text(f"{in_use_mb():.6f}", encoding="utf-8")
        partial_file.replace(file)
        time.sleep(WRITE_S)


def main() -> int:
    """Write the memory in use to the first argument from now on, and run the command that the others give."""
    threading.Thread(target=_write_for_ever, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    from shoal_command import main as run  # noqa: PLC0415 - as the console script: signals first

    return run()


if __name__ == "__main__":
    sys.exit(main())
