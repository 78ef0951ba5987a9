"""Creating a rule compiles all of its kernels, and so does `precompile`.

A worker that compiles while records wait may lose its partitions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from support.pairs import all_pairs

pytestmark = pytest.mark.property

COMPILED = """
import json
import sys
import numpy as np

from shoal.kernels.jit import Kernel, use_compiled

use_compiled()

def compiled():
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("shoal.")]
    kernels = [thing for names in modules for thing in names.values() if isinstance(thing, Kernel) and thing._compiled]
    return {f"{kernel.__name__}{signature}" for kernel in kernels for signature in kernel.compiled.signatures}
"""
OF_A_RULE = """
import os
import traceback
from shoal.protection.diversity import DISTINCT, EQUAL, LDiversity, ValueReference, build_diversity_rule
from shoal.streams import StreamClusterer

PROTECTIONS = {
    "": {},
    "l": {"l": LDiversity(DISTINCT, 2), "max_value_share": 0.5},
    "t": {"t": 0.4},
    "l, t": {"l": LDiversity(DISTINCT, 2), "t": 0.4},
}

def late(rule, delta, position, columns, protection):
    random = np.random.default_rng(0)
    distances = np.ones(columns) if columns else None
    protected = PROTECTIONS[protection]
    references = [ValueReference(EQUAL, np.ones(4))] if "t" in protected else []
    diversity = build_diversity_rule(references, **protected) if protected else None
    stream = StreamClusterer(
        4, delta, 3, rule=rule, position=position, code_distances=distances, diversity=diversity
    )
    def push(count, subjects):
        codes = random.integers(0, 3, (count, columns)) if columns else None
        values = random.integers(0, 4, (count, 1)) if protected else None
        return stream.push(random.random((count, 3)), subjects, codes=codes, values=values, bins=values)
    before = compiled()
    released = 0
    for _ in range(2):
        subjects = np.where(random.random(delta) < 0.1, 1, random.integers(2, 1 << 40, delta))
        released += len(push(delta, subjects).cluster_bounds) - 1
    push(2 * delta, np.zeros(2 * delta, np.int64))  # one subject only
    push(300, random.integers(0, 1 << 40, 300))
    released += len(stream.flush().cluster_bounds) - 1
    return [len(before) > 0, released > 10, *sorted(compiled() - before)]

assert not compiled()
for case in json.loads(sys.argv[1]):
    # Each case begins without a compiled kernel, in a process of its own.
    if not (child := os.fork()):
        try:
            print(json.dumps([case, late(*case)]), flush=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, case
"""

# Kernels depend on the rule and on the delta (few records or many), and on the rule and the position or the number of
# category columns: pairs suffice. With l-diversity or t-closeness rules have kernels of their own.
Case: TypeAlias = tuple[str, int, float, int, str]

UNPROTECTED: list[Case] = [
    (*pair, "") for pair in all_pairs(["nearest", "greedy", "awo", "block"], [100, 700], [0, 0.001], [0, 2])
]
BY_DAY: list[Case] = [*{case[0]: case for case in UNPROTECTED}.values(), ("awo", 100, 0, 0, "l, t")]
"""One case of each rule, and one of protected values."""
AT_NIGHT: list[Case] = [
    *(case for case in UNPROTECTED if case not in BY_DAY),
    ("block", 1020, 0, 2, ""),
    *(("awo", 8000, position, 0, "") for position in (0, 0.001)),
    ("nearest", 100, 0.001, 2, "t"),
    ("block", 100, 0, 0, "l"),
    ("block", 700, 0, 2, "l"),
]


@pytest.fixture(scope="module")
def compiled_late(request: pytest.FixtureRequest) -> dict[Case, list[object]]:
    """Return for each case: whether a kernel was compiled first, whether clusters left, and what was compiled later."""
    chosen = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    cases = [item.callspec.params["case"] for item in chosen if hasattr(item, "callspec")]
    command = [sys.executable, "-c", COMPILED + OF_A_RULE, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {tuple(case): found for case, found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("case", [*BY_DAY, *(pytest.param(case, marks=pytest.mark.nightly) for case in AT_NIGHT)])
def test_no_kernel_is_compiled_after_the_rule_was_created(compiled_late: dict[Case, list[object]], case: Case) -> None:
    assert compiled_late[case] == [True, True]


OF_A_POLICY = """
from shoal.streams import PartitionPipeline, precompile
from shoal.policy import Policy
from shoal.formats import JsonDecoder, JsonEncoder

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
    command = [sys.executable, "-c", COMPILED + OF_A_POLICY, str(policy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    released, late = json.loads(done.stdout)
    assert released > 900
    assert late == []


OF_ALL = """
import os
from contextlib import suppress
from itertools import product
from pathlib import Path
from shoal.errors import ConfigError
from shoal.kernels.compiler import on_compilation
from shoal.kernels.jit import use_compiled
from shoal.formats import JsonEncoder
from shoal.policy import RULES, Policy
from shoal.streams import precompile
from shoal.tables import ALGORITHMS, REFINEMENTS, T_CLOSE_ALGORITHMS, AlgorithmSpec, TablePipeline, microaggregate
from shoal.tables.precompilation import artificial_block, precompile_table

use_compiled()
folder, late, case = Path(sys.argv[1]), set(), ""
NUMBER = {"role": "quasi_identifier", "bounds": [0, 1]}
ILL = {"role": "confidential", "type": "string", "protect": True}
COST = {"role": "confidential", "bounds": [0, 1]}
TAXONOMY = {"taxonomy": "t.csv"}
PLAIN = {
    "one number": {"attributes": {"x": NUMBER}},
    "three": {"attributes": {"x": NUMBER, "y": NUMBER, "z": NUMBER}},
    "resolution": {"attributes": {"x": NUMBER | {"resolution": 0.1}, "y": NUMBER}},
    "nominal": {"attributes": {"x": NUMBER, "c": {"role": "quasi_identifier", "scale": "nominal"}}},
    "taxonomy": {"attributes": {"x": NUMBER, "c": {"role": "quasi_identifier", "scale": "nominal", **TAXONOMY}}},
    "subjects": {"attributes": {"who": {"role": "identifier", "subject": True}, "x": NUMBER}, "subject": None},
    "l": {"attributes": {"x": NUMBER, "ill": ILL}, "privacy": {"k": 3, "l": 2}},
    "entropy": {"attributes": {"x": NUMBER, "ill": ILL}, "privacy": {"k": 3, "l": {"entropy": 2}}},
    "recursive": {"attributes": {"x": NUMBER, "ill": ILL}, "privacy": {"k": 3, "l": {"recursive": [2, 3]}}},
    "share": {"attributes": {"x": NUMBER, "ill": ILL}, "privacy": {"k": 3, "max_value_share": 0.5}},
    "t": {"attributes": {"x": NUMBER, "ill": ILL | {"reference": "s.csv"}}, "privacy": {"k": 3, "t": 0.9}},
    "l, t": {"attributes": {"x": NUMBER, "ill": ILL | {"reference": "s.csv"}}, "privacy": {"k": 3, "l": 2, "t": 0.9}},
    "bounds": {"attributes": {"x": NUMBER, "y": NUMBER}, "steering": {"scaling": "bounds"}},
    "dependence": {"attributes": {"x": NUMBER, "y": COST}, "steering": {"dependence": 0.5}},
}
STREAMS = [{}, {"release": "ordered"}, {"delta": 200}, {"delta": 5_000}]
PER_SUBJECT = {"k": 3, "per_subject": {"max": 1, "window": 9}}

(folder / "s.csv").write_text(os.linesep.join(["value,share", "a,0.5", "b,0.5", ""]))
(folder / "t.csv").write_text(os.linesep.join(["value,group", "a,all", "b,all", ""]))

def made(content):
    whole = {"subject": "every_record", "privacy": {"k": 3}} | content
    if whole["subject"] is None:
        del whole["subject"]
        whole["privacy"] = PER_SUBJECT
    (folder / "p.json").write_text(json.dumps(whole))
    return Policy.load(folder / "p.json")

def ended():
    late.add(case)

def try_all():
    global case
    for (name, content), rule, stream in product(PLAIN.items(), RULES, STREAMS):
        case = f"{name}, {rule}, {stream}"
        precompile(made(content | {"stream": {"delta": 60, "rule": rule} | stream}))
        tried.append(case)
    for name, content in PLAIN.items():
        if "steering" in content:
            continue  # for streams only
        content["attributes"].get("ill", {}).pop("reference", None)  # the table has values of its own
        case = f"table of {name}"
        policy = made(content)
        precompile_table(policy)
        tried.append(case)
        names = [*ALGORITHMS, *(T_CLOSE_ALGORITHMS if "t" in name.split(", ") else [])]
        for algorithm in names:
            if (algorithm == "optimal") != (name == "one number"):
                continue
            case = f"table of {name} by {algorithm}"
            table = TablePipeline(policy, JsonEncoder(policy))
            table.add(artificial_block(policy, np.arange(60)))
            with suppress(ConfigError):  # an algorithm that refuses such a table
                table.release(AlgorithmSpec(algorithm))
                tried.append(case)
    for refine, columns in product(REFINEMENTS, (1, 2)):
        case = f"refine {refine}, {columns}"
        microaggregate(np.random.default_rng(0).random((600 if refine != "exact" else 30, columns)), 3, refine=refine)
        tried.append(case)

tried = []
with on_compilation(lambda: None, ended):
    try_all()
print(json.dumps([len(tried), sorted(late)]))
"""


@pytest.mark.nightly
def test_after_warm_nothing_is_ever_compiled(tmp_path: Path) -> None:
    variables = os.environ | {"NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def said_by(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said_by("-m", "shoal.cli", "warm")
    count, late = json.loads(said_by("-c", COMPILED + OF_ALL, str(tmp_path)).splitlines()[-1])
    assert count > 300
    assert late == []
