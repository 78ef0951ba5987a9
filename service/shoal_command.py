"""The console script ``shoal``: an interrupt before the package is loaded ends the process without a traceback."""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> int:
    """Load the commands and run one; return the exit code."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        # Nothing has begun yet. `shoal.cli` installs its own handler.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from shoal.cli import main as run  # noqa: PLC0415 - loading takes about a second

    return run()
