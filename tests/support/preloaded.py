"""What the fork server of `support.forked` imports and compiles before it forks: each module and kernel once."""

from __future__ import annotations

import gc
import json
import tempfile
from importlib import import_module
from itertools import product
from pathlib import Path

from shoal.pipeline import precompile
from shoal.policy import RULES, Policy

__all__ = ["compile_kernels"]

MODULES = ("shoal.cli", "shoal.stage", "faust.cli.faust", "faust.transport.drivers.aiokafka", "structlog.dev")


def compile_kernels() -> None:
    """Compile what workers need: after a fresh checkout that takes a minute, in which one would lose its partitions."""
    size = {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 1]}
    attributes = {"who": {"role": "identifier", "subject": True}, "size": size}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        for rule, delta in product(RULES, (20, 1000)):  # many records are partitioned by other kernels than few
            document = {"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": delta, "rule": rule}}
            path.write_text(json.dumps(document), encoding="utf-8")
            precompile(Policy.load(path))


for module in MODULES:
    import_module(module)
compile_kernels()
# Pages that hold these objects stay shared with forked processes.
gc.collect()
gc.freeze()
