"""`shoal warm`: compile kernels ahead, as when an image is built."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from shoal.errors import ConfigError
from shoal.files import BackgroundRunner, ProgressDisplay
from shoal.kernels.cache import EVERYTHING, cache_fault, has_cache, has_writable_cache, mark_compiled
from shoal.kernels.jit import with_compiled
from shoal.observability import CompilationNotice, logger
from shoal.policy import RULES, Policy
from shoal.policy.schema import Document
from shoal.streams import precompile
from shoal.tables import ALGORITHMS, microaggregate
from shoal.tables.microaggregation import SLOW_REFINEMENTS
from shoal.tables.precompilation import precompile_table

EVERYTHING_S = 100
"""Processor time of the compiler for all rules and tables (s), as measured: they share kernels."""
POLICY_S = 30
"""The same for one policy: 10 s for rule nearest, 50 s where confidential values are protected."""
TABLES = "tables"
LARGE_DELTA = 30_000
"""So large that the kernels of indexes are compiled, too."""
REFERENCE = "shares.csv"
NUMBER = {"role": "quasi_identifier", "bounds": [0, 1]}
VARIANTS: tuple[Mapping[str, Mapping[str, Any]], ...] = (
    {},
    {"attributes": {"category": {"role": "quasi_identifier", "scale": "nominal"}}},
    {"attributes": {"value": {"role": "confidential"}}, "privacy": {"l": 2}},
    {"attributes": {"value": {"role": "confidential", "reference": REFERENCE}}, "privacy": {"t": 0.5}},
)
"""Changes of a policy without options such that other kernels are needed."""
NO_CACHE = (
    "shoal warm: no folder for compiled kernels is writable, so that they would be lost; set NUMBA_CACHE_DIR to a "
    "folder that is"
)


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Declare no further options."""


def execute(options: argparse.Namespace) -> int:
    """Compile what is not in the cache: for the rule of a policy, or for tables if the policy has no stream."""
    if not has_cache():
        raise ConfigError(NO_CACHE)
    policies = [Policy.load(options.policy)] if options.policy else list(_policies_of_every_rule())
    log, about_s = logger("cli"), POLICY_S if options.policy else EVERYTHING_S
    with (
        BackgroundRunner() as background,
        CompilationNotice(log, about_s) as compilation,
        ProgressDisplay("preparing kernels"),
    ):
        for what, of_one_rule in groupby(policies, _kernels_of):
            before_s = compilation.seconds
            for policy in of_one_rule:
                background.run(partial(_compile, policy))
            if what == TABLES and not options.policy:
                background.run(_compile_choices)
            log.info("kernels are ready", kernels_of=what, compiled_s=round(compilation.seconds - before_s, 1))
    if compilation.seconds and not has_writable_cache():
        raise ConfigError(NO_CACHE)
    if fault := cache_fault():
        raise ConfigError(f"shoal warm: kernels were compiled, but not written: {fault}")
    mark_compiled(policies[0].fingerprint if options.policy else EVERYTHING)
    return 0


def _kernels_of(policy: Policy) -> str:
    return TABLES if policy.stream is None else f"rule {policy.stream.rule}"


def _compile(policy: Policy) -> None:
    with with_compiled():
        (precompile_table if policy.stream is None else precompile)(policy)


def _compile_choices() -> None:
    """Compile the kernels of the refinements and algorithms that a table gets only if they are asked for.

    Without its solver, refinement `exact` cannot be asked for.
    """
    refinements = SLOW_REFINEMENTS if find_spec("highspy") else SLOW_REFINEMENTS - {"exact"}
    rows = np.random.default_rng(0).random((30, 2))
    with with_compiled():
        for refine in sorted(refinements):
            microaggregate(rows, 3, refine=refine)
        for algorithm in ALGORITHMS:
            microaggregate(rows[:, :1] if algorithm == "optimal" else rows, 3, algorithm)


def _policies_of_every_rule() -> Iterator[Policy]:
    """Yield policies that together need every kernel of streams, by rule; then a table without options."""
    with TemporaryDirectory() as folder:
        (Path(folder) / REFERENCE).write_text("value,share\na,0.5\nb,0.5\n", encoding="utf-8")
        for rule in RULES:
            for changes in VARIANTS:
                yield _artificial_policy(rule, changes, folder)
        yield _artificial_policy(None, {}, folder)


def _artificial_policy(rule: str | None, changes: Mapping[str, Mapping[str, Any]], folder: str) -> Policy:
    """Return the policy of a stream with this rule and these options, or of a table."""
    stream = {} if rule is None else {"stream": {"delta": LARGE_DELTA, "rule": rule}}
    content: dict[str, Any] = {"attributes": {"x": NUMBER}, "subject": "every_record", "privacy": {"k": 5}} | stream
    for section, change in changes.items():
        content[section] = content[section] | change
    return Policy.from_document(Document.model_validate(content), source=str(Path(folder) / "policy"))
