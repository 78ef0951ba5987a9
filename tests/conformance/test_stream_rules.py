"""Every stream rule × every check: boundary cases in which a rule failed once or could easily fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from oracle.naive import Entry, NaiveStream, log_of
from shoal.arrays import Float64Matrix
from shoal.streams import Decisions, StreamClusterer
from shoal.streams.steering import order_keeping_weight
from shoal.tables.microaggregation import microaggregate
from support.by_night import at_night
from support.pairs import all_pairs

pytestmark = pytest.mark.conformance

RULES = ["nearest", "greedy", "awo", "block"]


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def uniform(n: int, d: int = 2, seed: int = 0) -> Float64Matrix:
    return np.random.default_rng(seed).random((n, d))


def clusters_of(calls: list[Decisions]) -> list[list[int]]:
    return [
        decided.positions[start:end].tolist()
        for decided in calls
        for start, end in pairwise(decided.cluster_bounds.tolist())
    ]


def run(
    rule: str, k: int, delta: int, coordinates: Float64Matrix, cut: int = 64, position: float = 0.0
) -> list[Decisions]:
    stream = StreamClusterer(k, delta, coordinates.shape[1], rule=rule, position=position)
    calls = [stream.push(coordinates[start : start + cut]) for start in range(0, len(coordinates), cut)]
    return [*calls, stream.flush()]


def suppressed_of(calls: list[Decisions]) -> list[int]:
    return [position for decided in calls for position in decided.suppressed.tolist()]


def test_the_smallest_delta_gives_consecutive_clusters_of_k(rule: str) -> None:
    calls = run(rule, 5, 4, uniform(50))
    assert clusters_of(calls) == [list(range(start, start + 5)) for start in range(0, 50, 5)]
    assert suppressed_of(calls) == []


def test_a_flush_releases_one_cluster_below_2k_records_and_none_below_k(rule: str) -> None:
    for n in range(25):
        calls = run(rule, 5, 100, uniform(n))
        sizes = [len(members) for members in clusters_of(calls)]
        if n < 5:
            assert (sizes, suppressed_of(calls)) == ([], list(range(n)))
        else:
            if rule == "nearest":
                assert sizes == [5] * (n // 5 - 1) + [5 + n % 5]
            assert sum(sizes) == n
            assert all(5 <= size < 10 for size in sizes)
            assert suppressed_of(calls) == []


@pytest.mark.untraced
@pytest.mark.parametrize(("k", "delta", "cuts"), [(5, 40, [1, 1023, 1024, 1025]), (40, 1500, [512, 6000])])
def test_blocks_of_any_length_around_that_of_a_slice_give_the_same_clusters(
    k: int, delta: int, cuts: list[int]
) -> None:
    coordinates = uniform(6000 if delta > 1024 else 2600, 3)
    expected = clusters_of(run("nearest", k, delta, coordinates, 100))
    for cut in cuts:
        assert clusters_of(run("nearest", k, delta, coordinates, cut)) == expected


def test_long_runs_between_members_keep_their_order() -> None:
    coordinates = uniform(1500)
    naive = NaiveStream(3, 700)
    for position, x in enumerate(coordinates.tolist()):
        naive.push(x, position, position)
    stream = StreamClusterer(3, 700, 2)
    assert log_of([stream.push(coordinates)]) == naive.log


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_distances_beyond_the_range_of_floats_are_ties(rule: str) -> None:
    coordinates = np.array([[-1e300], [1e300], [2e300], [-1e300], [1e300], [1e300]])
    clusters = clusters_of(run(rule, 3, 3, coordinates))
    assert clusters == [[0, 1, 3], [2, 4, 5]] or rule in {"greedy", "awo"}
    assert sorted(member for members in clusters for member in members) == list(range(6))


@pytest.mark.parametrize("omega_p", [0.4, 1e6, 1e200])
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_weight_above_the_bound_keeps_records_in_order(omega_p: float) -> None:
    assert omega_p > order_keeping_weight(10, [1.0, 1.0])
    calls = run("nearest", 10, 60, uniform(300), position=omega_p)
    assert clusters_of(calls) == [list(range(start, start + 10)) for start in range(0, 300, 10)]


@pytest.mark.parametrize("omega_p", [1e140, 1e150, 1e154, 1e308])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_no_weight_of_the_position_is_too_large(rule: str, omega_p: float) -> None:
    calls = run(rule, 10, 100, uniform(500), position=omega_p)
    assert all(len(members) >= 10 for members in clusters_of(calls))
    assert sorted(sum(clusters_of(calls), suppressed_of(calls))) == list(range(500))


def test_positions_stay_exact_where_floats_would_not(rule: str) -> None:
    coordinates = uniform(200)
    far = StreamClusterer(5, 30, 2, rule=rule, position=0.01)
    near = StreamClusterer(5, 30, 2, rule=rule, position=0.01)
    offset = 2**61
    expected = clusters_of([near.push(coordinates), near.flush()])
    shifted = clusters_of([far.push(coordinates, positions=np.arange(200) + offset), far.flush()])
    assert [[position - offset for position in members] for members in shifted] == expected


PROGRAM = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from oracle.naive import log_of
from shoal.streams import StreamClusterer
random = np.random.default_rng(5)
n = 160
categories = {}
if sys.argv[3] == "categories":
    categories = {"code_distances": np.array([0.3, 0.6]), "codes_must_agree": np.array([True, False])}
stream = StreamClusterer(4, 30, 3, rule=sys.argv[2], position=0.01, expiry_limits=[25], **categories)
coordinates = random.integers(0, 5, (n, 3)) / 4
subjects = random.integers(0, 9, n)
expiry_keys = np.cumsum(random.integers(0, 3, (n, 1)), axis=0)
codes = random.integers(0, 3, (n, 2)) if categories else None
print(json.dumps(log_of([stream.push(coordinates, subjects, None, expiry_keys, codes=codes), stream.flush()])))
"""


@pytest.mark.own_interpreter
@pytest.mark.parametrize("attributes", ["numbers", "categories"])
@pytest.mark.parametrize("rule", ["awo", "block", *at_night("nearest", "greedy")])
def test_compiled_and_plain_kernels_decide_alike(rule: str, attributes: str) -> None:
    logs = []
    for disabled in ("0", "1"):
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1]), rule, attributes]
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        logs.append(json.loads(done.stdout))
    assert len(logs[0]) > 20
    assert logs[0] == logs[1]


@pytest.mark.untraced
def test_a_whole_stream_in_one_block_is_the_partition_of_a_table() -> None:
    for n, k in ((60, 3), (120, 10), (270, 7)):
        values = uniform(n, 3, seed=n)
        labels = microaggregate(values, k, "mdav", "descent")
        table = sorted(np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1))
        assert sorted(clusters_of(run("block", k, n, values))) == table


@pytest.mark.parametrize("k", [30, 50, 90])
def test_growing_clusters_keep_enough_records_for_the_next(k: int) -> None:
    lost = {rule: len(suppressed_of(run(rule, k, 100, uniform(500, 4)))) for rule in RULES}
    assert lost.pop("nearest") > 0
    # Only records left at the end of the stream are suppressed.
    assert max(lost.values()) < k


SUBJECTS = {
    "one record each": np.arange(110),
    "a dozen subjects": np.random.default_rng(13).integers(0, 12, 110),
    "one frequent subject": np.random.default_rng(14).zipf(1.4, 110) % 40,
    "one subject": np.zeros(110, np.int64),
}


def log_of_run(rule: str, k: int, distribution: str, position: float, share: float) -> list[Entry]:
    values = np.round(uniform(110, seed=12), 1)  # some records are equal
    stream = StreamClusterer(k, 24, 2, rule=rule, position=position, max_share=share)
    return log_of([stream.push(values, SUBJECTS[distribution]), stream.flush()])


@pytest.mark.parametrize(
    ("rule_at_k", "distribution", "position", "share"),
    all_pairs(list(product(RULES, [3, 8])), list(SUBJECTS), [0.0, 0.02, 1.0], ["1/k", "half", "all"]),
)
def test_every_rule_satisfies_every_invariant(
    rule_at_k: tuple[str, int], distribution: str, position: float, share: str
) -> None:
    rule, k = rule_at_k
    largest = {"1/k": 1 / k, "half": 0.5, "all": 1.0}[share]
    log, subjects = log_of_run(rule, k, distribution, position, largest), SUBJECTS[distribution]
    assert sorted(position for _, members, _, _ in log for position in members) == list(range(110))
    left: set[int] = set()
    for kind, members, _, newest in log:
        owners = subjects[list(members)].tolist()
        held = set(range(newest + 1)) - left
        assert newest - members[0] <= 24
        if kind == "suppressed":
            assert len(set(subjects[sorted(held)].tolist())) < k
        else:
            assert len(set(owners)) >= k
            assert max(map(owners.count, owners)) <= largest * len(owners) + 1e-9
            assert len(members) < 2 * k or distribution != "one record each"
        left.update(members)


@pytest.mark.parametrize(("k", "rule"), [(3, "awo"), (6, "awo"), (7, "block"), (8, "block")])
def test_auto_decides_as_the_rule_that_it_selects(k: int, rule: str) -> None:
    case = (k, "a dozen subjects", 0.02, 0.5)
    assert log_of_run("auto", *case) == log_of_run(rule, *case)
