"""`shoal batch`: anonymize a finished table."""

from __future__ import annotations

import argparse

from shoal.cli.release import add_file_arguments, checked_files, print_report
from shoal.files import parse_algorithm_options, run_batch
from shoal.policy import Policy
from shoal.tables import ALGORITHMS, REFINEMENTS, T_CLOSE_ALGORITHMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare files, algorithm and refinement."""
    add_file_arguments(parser, ".csv, .jsonl or .parquet", "figures of the table and its clusters", read_only=".xlsx")
    names = ", ".join([*ALGORITHMS, *T_CLOSE_ALGORITHMS])
    parser.add_argument("--algorithm", default="auto", metavar="A", help=f"auto (default), {names}")
    refine = "default: descent after auto, none after a named algorithm"
    parser.add_argument("--refine", choices=REFINEMENTS, help=refine)
    several = "of the algorithm; may be given several times"
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help=several)
    parser.add_argument("--keep-order", action="store_true", help="rows in the order of the input, not of their bytes")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random numbers")


def execute(options: argparse.Namespace) -> int:
    """Anonymize the whole input as one table."""
    policy = Policy.load(options.policy)
    files = checked_files(options)
    algorithm = parse_algorithm_options(options.algorithm, options.refine, options.param, options.seed)
    print_report(options, run_batch(policy, files, algorithm, keep_order=options.keep_order))
    return 0
