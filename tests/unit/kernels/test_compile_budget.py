"""What the compiler has to do before the first cluster: kernels per rule, and instructions per kernel.

The time to compile a kernel is about proportional to its instructions after optimization, and unlike the time their
number is the same on every run. It differs a little between processors, so limits are about a third above it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

PROGRAM = """
import gc, json
import numpy as np
from numba.core.dispatcher import Dispatcher
from shoal import StreamAggregator
from shoal.kernels.jit import use_compiled

use_compiled()

def instructions(overload):
    module = overload.library._get_module_for_linking()
    return sum(1 for function in module.functions for block in function.blocks for _ in block.instructions)

def kernels():
    for found in gc.get_objects():
        if isinstance(found, Dispatcher) and found.overloads and not found.targetoptions.get("no_cpython_wrapper"):
            if found.py_func.__module__.startswith("shoal."):
                yield found.py_func.__name__, [instructions(overload) for overload in found.overloads.values()]

known, printed = set(), {}
for rule in ("nearest", "greedy", "awo", "block"):
    stream = StreamAggregator(k=5, delta=100, rule=rule)
    stream.push(np.random.default_rng(0).random((300, 4)))
    stream.flush()
    printed[rule] = {name: counts for name, counts in kernels() if name not in known}
    known.update(printed[rule])
print(json.dumps(printed))
"""

LIMITS = {
    "nearest": {"check_decisions": 1_500, "decide_all_by_distance": 29_000, "divide_sums": 1_000, "sum_clusters": 500},
    "greedy": {
        "decide_due_by_growth": 34_000,
        "held_as_table": 2_200,
        "merge_infeasible": 3_900,
        "partition_dense": 46_000,
        "release_partition": 3_600,
    },
    "awo": {},
    "block": {"decide_due_by_partition": 83_000},
}
"""Largest number of instructions of the kernels that a rule needs beside those of the rules before it."""
NESTED = {
    "cluster_size": 600,
    "descend_dense": 14_000,
    "exchange_categories": 11_500,
    "mdav_by_scan": 2_700,
    "pair_squares": 3_600,
    "repair_subjects": 10_000,
}
"""The same of kernels that other kernels call. They are not loaded where a cache has those that call them."""


@pytest.mark.own_interpreter
def test_each_rule_compiles_few_kernels_once_within_their_budgets() -> None:
    variables = {**os.environ, "NUMBA_DISABLE_JIT": "0"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    called = {rule: set(kernels) - set(NESTED) for rule, kernels in found.items()}
    assert called == {rule: set(one) for rule, one in LIMITS.items()}
    counts = {name: counts for kernels in found.values() for name, counts in kernels.items()}
    assert {name: len(one) for name, one in counts.items()} == dict.fromkeys(counts, 1), "signatures"
    limits = {name: limit for kernels in (*LIMITS.values(), NESTED) for name, limit in kernels.items()}
    assert {name: one[0] for name, one in counts.items() if not 0 < one[0] <= limits[name]} == {}
