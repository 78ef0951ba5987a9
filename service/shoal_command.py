"""The command ``shoal`` before anything is loaded: who interrupts it now gets silence, not a traceback."""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> int:
    """Load the commands and run one."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is begun yet; `shoal.cli` listens again
    from shoal.cli import main as run  # noqa: PLC0415 - it takes a second to load

    return run()
