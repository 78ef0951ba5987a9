"""The commands of `shoal`, one module per command.

Only this package prints to standard output, and only this package combines the other packages. `command_line.main`
reads the arguments, sets up logs and signals, runs one command and returns the exit code of the process.
"""

from shoal.cli.command_line import main

__all__ = ["main"]
