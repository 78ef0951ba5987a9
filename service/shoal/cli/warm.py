"""`shoal warm`: compile kernels ahead, as when an image is built."""

from __future__ import annotations

import argparse
from functools import partial

from shoal.clustering.numba.kernel_cache import has_cache, has_writable_cache
from shoal.errors import ConfigError
from shoal.files import BackgroundRunner
from shoal.observability import TABLE_COMPILE_S, CompilationNotice, logger, stream_compile_s
from shoal.pipeline import precompile, precompile_table
from shoal.policy import RULES, Policy
from shoal.policy.schema import Document

__all__ = ["SUMMARY", "add_arguments", "execute"]

SUMMARY: str | None = "Compile the kernels of a policy ahead, or those of tables and of every rule without options."

EVERYTHING_S = 110
"""Processor time of the compiler for all rules and tables (s), as measured: they share kernels."""
LARGE_DELTA = 30_000
"""So large that the kernels of indexes are compiled, too."""
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
    policies = [Policy.load(options.policy)] if options.policy else [_plain_policy(rule) for rule in (*RULES, None)]
    log, about_s = logger("cli"), _compile_s(policies[0]) if options.policy else EVERYTHING_S
    with BackgroundRunner() as background, CompilationNotice(log, about_s) as compilation:
        for policy in policies:
            before_s = compilation.seconds
            background.run(partial(precompile_table if policy.stream is None else precompile, policy))
            what = "tables" if policy.stream is None else f"rule {policy.stream.rule}"
            log.info("kernels are ready", kernels_of=what, compiled_s=round(compilation.seconds - before_s, 1))
    if compilation.seconds and not has_writable_cache():
        raise ConfigError(NO_CACHE)
    return 0


def _compile_s(policy: Policy) -> int:
    return TABLE_COMPILE_S if policy.stream is None else stream_compile_s(policy)


def _plain_policy(rule: str | None) -> Policy:
    """Return a policy without options: of a stream with this rule, or of a table."""
    content = {
        "attributes": {"x": {"role": "quasi_identifier", "bounds": [0, 1]}},
        "subject": "every_record",
        "privacy": {"k": 5},
    }
    stream = {} if rule is None else {"stream": {"delta": LARGE_DELTA, "rule": rule}}
    return Policy.from_document(Document.model_validate(content | stream))
