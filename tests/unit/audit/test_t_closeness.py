"""Distances of clusters from the release, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracle.naive_release import load_policy
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.t_closeness import check_closeness
from shoal.audit.verdict import Check

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who: {{role: identifier, subject: true}}
  age: {{role: quasi_identifier, bounds: [0, 110]}}
  pay: {{role: confidential, type: {kind}}}
privacy: {{k: 2}}
"""


def closeness(folder: Path, kind: str, t: float, *clusters: list[str]) -> Check:
    unchanged = [text for cluster in clusters for text in cluster]
    n, numbers = len(unchanged), np.arange(len(unchanged))
    originals = Originals(np.zeros((n, 1)), numbers, list(unchanged), np.zeros(n, np.int64), numbers, is_export=False)
    found = [RecomputedCluster(0, number, (), "", cluster) for number, cluster in enumerate(clusters)]
    return check_closeness(load_policy(folder, POLICY.format(kind=kind)), t, originals, found).result()


@pytest.mark.parametrize(
    ("kind", "clusters", "distance"),
    [
        # Cumulative shares 1/2, 1, 1 against 1/4, 1/2, 3/4: differences 1/4, 1/2, 1/4 over three steps.
        ("integer", (["1", "2"], ["3", "4"]), 1 / 3),
        ("integer", (["1", "4"], ["2", "3"]), 1 / 6),
        ("number", (["0.5", "1e3"], ["0.5", "1e3"]), 0.0),
        ("integer", (["7", "7"], ["7"]), 0.0),
        ("integer", (["null", "1"], ["1", "1"]), 0.25),
        ("integer", (["9007199254740992"] * 2, ["9007199254740993"] * 2), 0.5),
        ("any", (["1", "2"], ["3", "4"]), 1 / 3),
        ("any", (['"1"', '" 2"'], ['"3"', '"4"']), 1 / 3),
        ("any", (["1", "2"], ['"x"', "4"]), 0.5),
        ("any", (["true", "true"], ["1", "1"]), 0.5),
        ("string", (['"a"', '"a"'], ['"b"', '"b"']), 0.5),
        ("string", (['"a"', '"b"'], ['"a"', '"b"', '"c"', '"c"']), 1 / 3),
        ("boolean", (["true", "false"], ["true", "false"]), 0.0),
    ],
)
def test_the_worst_distance_is_the_largest_of_a_cluster(
    tmp_path: Path, kind: str, clusters: tuple[list[str], ...], distance: float
) -> None:
    check = closeness(tmp_path, kind, 0.9, *clusters)
    assert check.worst == pytest.approx(distance, abs=1e-12)
    assert (check.status, check.examined) == ("holds", len(clusters))


def test_a_cluster_farther_than_t_is_listed(tmp_path: Path) -> None:
    clusters = ["1", "2"], ["1", "2"], ["2", "2"]
    # 1 has a share of 1/3 in the release, 1/2 in the first two clusters and none in the last.
    check = closeness(tmp_path, "integer", 0.2, *clusters)
    assert (check.status, check.failed, check.places) == ("broken", 1, (2,))
    assert closeness(tmp_path, "integer", 1 / 3, *clusters).status == "holds"
    assert closeness(tmp_path, "integer", 0.33, *clusters).status == "broken"


def test_without_clusters_nothing_is_examined(tmp_path: Path) -> None:
    assert closeness(tmp_path, "integer", 0.2).status == "not examined"
