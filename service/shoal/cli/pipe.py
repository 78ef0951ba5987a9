"""`shoal pipe`: the stream clusterer over a file or a pipe, without a broker."""

from __future__ import annotations

import argparse
import signal
from threading import Event

from shoal.cli.release import add_file_arguments, checked_files, print_report
from shoal.files import run_pipe
from shoal.policy import Policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare files, formats and what the run writes beside its output."""
    add_file_arguments(parser, ".csv or .jsonl", "figures of the run")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="go on while the input grows, until SIGINT or SIGTERM; write clusters as they are decided",
    )


def execute(options: argparse.Namespace) -> int:
    """Anonymize the input as a stream; the exit code is 1 if nothing was released of a non-empty input."""
    policy = Policy.load(options.policy)
    policy.require_stream(options.policy)
    files = checked_files(options)
    report = run_pipe(policy, files, _stop_on_signal() if options.follow else None)
    print_report(options, report)
    return 1 if report.is_empty else 0


def _stop_on_signal() -> Event:
    """Return an event that the first SIGINT or SIGTERM sets; the second signal ends the process as usual."""
    stop = Event()
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(*_: object) -> None:
        stop.set()
        for number, handler in usual.items():
            signal.signal(number, handler)

    for number in usual:
        signal.signal(number, on_signal)
    return stop
