"""Run the command line: ``python -m shoal.cli``."""

from __future__ import annotations

import sys

from shoal.cli.command_line import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
