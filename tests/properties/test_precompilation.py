"""`precompile` leaves no kernel to compile, also for policies under which artificial records are suppressed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.property

PROGRAM = """
import json
import sys
import numpy as np
from shoal.streams import PartitionPipeline, precompile
from shoal.policy import Policy
from shoal.formats import JsonDecoder, JsonEncoder

def compiled():
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("shoal.")]
    kernels = [thing for names in modules for thing in names.values() if hasattr(thing, "signatures")]
    return {f"{kernel.__name__}{signature}" for kernel in kernels for signature in kernel.signatures}

policy = Policy.load(sys.argv[1])
precompile(policy)
before, random = compiled(), np.random.default_rng(0)
pipeline, decoder, first = PartitionPipeline(policy, JsonEncoder(policy)), JsonDecoder(policy), 0
for count in (1, 300, 700):
    records = [{"age": int(random.integers(111)), "ward": "abbc"[random.integers(4)]} for _ in range(count)]
    block = decoder.decode([json.dumps(record).encode() for record in records])
    offsets = block.index + first
    first += count
    pipeline.push(block, np.column_stack([0 * offsets, offsets]))
pipeline.flush()
print(json.dumps([pipeline.summary.released, sorted(compiled() - before)]))
"""


def test_no_kernel_is_compiled_after_precompilation_under_l_and_t(tmp_path: Path) -> None:
    (tmp_path / "wards.csv").write_text("value,share\na,0.25\nb,0.5\nc,0.25\n")
    policy = tmp_path / "policy.json"
    document = {
        "attributes": {
            "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
            "ward": {"role": "confidential", "type": "string", "reference": "wards.csv"},
        },
        "subject": "every_record",
        "privacy": {"k": 4, "l": 2, "t": 0.3},
        "stream": {"delta": 60, "rule": "nearest"},
    }
    policy.write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(policy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    released, late = json.loads(done.stdout)
    assert released > 900
    assert late == []
