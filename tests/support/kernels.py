"""Kernels that workers need."""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path

from shoal.pipeline import precompile
from shoal.policy import RULES, Policy

__all__ = ["compile_kernels"]


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
