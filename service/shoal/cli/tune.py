"""`shoal tune`: try settings of a policy on a sample, and write a page about them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack

from shoal.cli.release import add_format_arguments
from shoal.errors import ConfigError

OUT_OF_REACH = 4
"""Exit code if no setting that was tried holds the targets."""
INTERRUPTED = 130
MOST_RECORDS, LEAST_RECORDS = 20_000, 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sample, the outputs, the targets and what is tried."""
    parser.add_argument("-i", "--input", required=True, metavar="SAMPLE", help="records in the order of their arrival")
    add_format_arguments(parser, has_output=False)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page (.html)")
    parser.add_argument("--json", metavar="FILE", help="every number of the page")
    targets = (
        "what must hold, as loss<=8%%,delay<=30s,suppressed<=1%%,reordering<=50; a delay without a unit is in records"
    )
    parser.add_argument("--target", metavar="TARGETS", help=targets)
    grid = "what to try, every combination, as 'k=5,10 delta=100,500 rule=awo,block'; default: k by delta, others alone"
    parser.add_argument("--grid", metavar="GRID", help=grid)
    rows = "the first records of the sample that are used"
    parser.add_argument("--rows", type=int, default=MOST_RECORDS, metavar="N", help=rows)
    parser.add_argument("--workers", type=int, metavar="N", help="processes; default: one for each processor")


def execute(options: argparse.Namespace) -> int:
    """Write the page and print the recommendation; an interrupt keeps what is done."""
    from shoal.files import open_output, refuse_overwriting  # noqa: PLC0415 - slow; help needs none of it
    from shoal.reports import origin_of, require_page_name  # noqa: PLC0415 - as above
    from shoal.tuning import Bench, Tuned, html_of, parse_grid, parse_targets, results_of, sentence_of, sweep  # noqa: PLC0415

    require_page_name(options.output)
    if options.input == "-":
        raise ConfigError("-i -: the sample is read several times; give a file")
    if options.rows < LEAST_RECORDS or (options.workers is not None and options.workers < 1):
        raise ConfigError(f"--rows must be {LEAST_RECORDS} or more, --workers 1 or more")
    refuse_overwriting([options.output, options.json], options.input, options.policy)
    targets = [] if options.target is None else parse_targets(options.target)
    tuned = Tuned.load(options.policy)
    grid = None if options.grid is None else parse_grid(options.grid, tuned)
    bench = Bench(tuned, options.input, options.format, options.rows)
    with ExitStack() as stack:  # an output that cannot be written is refused before the work
        page = stack.enter_context(open_output(options.output))
        numbers = None if options.json is None else stack.enter_context(open_output(options.json))
        found = sweep(bench, targets, grid, options.workers or os.cpu_count() or 1)
        results = results_of(found, targets) | {"made": origin_of({"policy": options.policy, "sample": options.input})}
        page.write(html_of(results).encode())
        if numbers is not None:
            numbers.write(json.dumps(results, indent=2, ensure_ascii=False).encode() + b"\n")
    print(sentence_of(results))
    for one in results["not_possible"]:
        print(f"shoal: not possible: {one['setting']}: {one['reason']}", file=sys.stderr)
    if found.is_interrupted:
        print(f"shoal: interrupted; {options.output} shows what was done", file=sys.stderr)
        return INTERRUPTED
    return OUT_OF_REACH if results["out_of_reach"] else 0
