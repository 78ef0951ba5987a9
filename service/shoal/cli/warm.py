"""`shoal warm`: compile kernels ahead, as when an image is built."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from shoal.clustering.numba.kernel_cache import has_writable_cache
from shoal.errors import ConfigError
from shoal.files import BackgroundRunner
from shoal.observability import CompilationNotice, logger, stream_compile_s
from shoal.pipeline import precompile
from shoal.policy import RULES, Policy
from shoal.policy.schema import Document

__all__ = ["SUMMARY", "add_arguments", "execute"]

SUMMARY: str | None = "Compile the kernels of a policy ahead, or those of every rule of a stream without options."

ALL_RULES_S = 80
"""Processor time of the compiler for all rules (s), as measured: less than their sum, because they share kernels."""
LARGE_DELTA = 30_000
"""So large that the kernels of indexes are compiled, too."""
NO_CACHE = (
    "shoal warm: no folder for compiled kernels is writable, so that they would be lost; set NUMBA_CACHE_DIR to a "
    "folder that is"
)


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Declare no further options."""


def execute(options: argparse.Namespace) -> int:
    """Compile what is not in the cache."""
    if not has_writable_cache():
        raise ConfigError(NO_CACHE)
    policies = [Policy.load(options.policy)] if options.policy else list(_plain_policies())
    about_s = stream_compile_s(policies[0]) if options.policy else ALL_RULES_S
    log = logger("cli")
    with BackgroundRunner() as background, CompilationNotice(log, about_s) as compilation:
        for policy in policies:
            before_s = compilation.seconds
            background.run(partial(precompile, policy))
            compiled_s = round(compilation.seconds - before_s, 1)
            log.info("kernels are ready", rule=policy.require_stream().rule, compiled_s=compiled_s)
    return 0


def _plain_policies() -> Iterator[Policy]:
    """Yield a policy without options for each rule."""
    for rule in RULES:
        content = {
            "attributes": {"x": {"role": "quasi_identifier", "bounds": [0, 1]}},
            "subject": "every_record",
            "privacy": {"k": 5},
            "stream": {"delta": LARGE_DELTA, "rule": rule},
        }
        yield Policy.from_document(Document.model_validate(content))
