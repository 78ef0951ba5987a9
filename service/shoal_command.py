"""The console script ``shoal``: what is done before the package is loaded, which takes about a second."""

from __future__ import annotations

import gc
import signal
import sys
from importlib.metadata import version

__all__ = ["main"]


def main() -> int:
    """Load the command that is asked for and run it; return the exit code."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"shoal {version('shoal')}\n")
        return 0
    if sys.argv[1:2] == ["health"]:
        from shoal.health_check import main as check_health  # noqa: PLC0415 - a second faster than the other commands

        return check_health(sys.argv[2:])
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        # Nothing has begun yet, so an interrupt ends the process without a traceback. `shoal.cli` has its own handler.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Nothing that is loaded is garbage. `shoal.cli` collects garbage from the moment it has loaded the command.
    gc.disable()
    from shoal.cli import main as run  # noqa: PLC0415 - see above

    return run()
