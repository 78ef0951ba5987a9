"""Kernels that workers need."""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from shoal.policy import RULES, Policy
from shoal.streams import precompile


def compile_kernels() -> None:
    """Compile what workers need: after a fresh checkout that takes a minute, in which one would lose its partitions."""
    size = {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 1]}
    attributes = {"who": {"role": "identifier", "subject": True}, "size": size}
    documents: list[dict[str, Any]] = [
        {"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": delta, "rule": rule}}
        for rule, delta in product(RULES, (20, 1000))  # many records are partitioned by other kernels than few
    ]
    ward = {"role": "confidential", "type": "string", "reference": "wards.csv"}
    protected = {"attributes": attributes | {"ward": ward}, "privacy": {"k": 3, "l": 2, "t": 0.5}}
    documents.append(protected | {"stream": {"delta": 20, "rule": "awo"}})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        (Path(folder) / "wards.csv").write_text("value,share\na,0.5\nb,0.5\n", encoding="utf-8")
        for document in documents:
            path.write_text(json.dumps(document), encoding="utf-8")
            precompile(Policy.load(path))
