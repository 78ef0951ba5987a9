"""Kernels that are called piece by piece: the pieces change no result, and what is told between them is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.errors import ParameterError
from shoal.kernels import pieces
from shoal.kernels.kd_tree import neighbours_of
from shoal.kernels.pieces import telling
from shoal.tables import ALGORITHMS, descent, microaggregate
from shoal.tables.constraints import no_constraints
from shoal.tables.mdav import mdav_by_tree
from shoal.tables.measures import linkage_share

pytestmark = pytest.mark.conformance

VALUES = np.random.default_rng(4).integers(0, 30, (70, 2)).astype(float)
ILL = (np.random.default_rng(5).integers(0, 5, 70)).astype(str)
PROTECTED: dict[str, Any] = {"confidential": ILL, "l": 3, "t": 0.4}


def partitions(algorithm: str) -> list[list[int]]:
    """Return the labels by an algorithm, plain and with l- and t-closeness after descent."""
    own: dict[str, Any] = {"parameters": {"generations": 3}} if algorithm == "genetic" else {}
    values = VALUES[:, :1] if algorithm == "optimal" else VALUES
    found = [microaggregate(values, 4, algorithm, **own)]
    found.append(microaggregate(values, 4, algorithm, "descent", **own, **PROTECTED))
    return [labels.tolist() for labels in found]


def descended() -> list[int]:
    """Return the labels after descent among neighbours, with cycles, from a random start."""
    near = neighbours_of(VALUES, 12, 4)
    start = (np.random.default_rng(6).permutation(70) % 14).astype(np.int32)
    partition = descent.build_partition_state(VALUES, start, 4, no_constraints(), near)
    descent.descend(partition, 20)
    return [*partition.labels.tolist(), *near.ravel().tolist()]


def others() -> list[float]:
    """Return the results of other kernels that are called piece by piece."""
    labels = (np.arange(70) // 5).astype(np.int32)
    published = np.stack([VALUES[labels == cluster].mean(axis=0) for cluster in range(14)])
    share = linkage_share(VALUES, published, labels, np.arange(0, 71, 5))
    line = microaggregate(VALUES[:, :1] + VALUES[:, 1:], 3, "mdav", "exact")
    return [share, *mdav_by_tree(VALUES, 3, 8).tolist(), *line.tolist(), *descended()]


@pytest.mark.parametrize("algorithm", ["auto", *sorted(ALGORITHMS), "strict", "steered"])
def test_pieces_of_one_part_give_the_same_partition(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if algorithm in {"strict", "steered"}:
        whole = microaggregate(VALUES, 4, algorithm, **PROTECTED).tolist()
        monkeypatch.setattr(pieces, "OPERATIONS", 1)
        assert microaggregate(VALUES, 4, algorithm, **PROTECTED).tolist() == whole
        return
    at_once = partitions(algorithm)
    monkeypatch.setattr(pieces, "OPERATIONS", 1)
    assert partitions(algorithm) == at_once


def test_pieces_of_one_part_change_no_other_result(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = others()
    monkeypatch.setattr(pieces, "OPERATIONS", 1)
    assert others() == at_once


def test_the_share_of_each_step_is_told_and_ascends_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "OPERATIONS", 1)
    told: list[tuple[str, float]] = []
    microaggregate(VALUES, 4, "vmdav", "descent", progress=lambda *one: told.append(one), **PROTECTED)
    steps = list(dict.fromkeys(step for step, _ in told))
    assert {"V-MDAV", "nearest neighbours", "exchanges", "descent 1"} <= set(steps)
    assert [share for step, share in told if step == "V-MDAV"] == [i / 70 for i in range(71)]
    mdav_by_tree(VALUES, 4, 8)
    assert told[-1][0] != "MDAV", "what was told to one call is not told to the next"


def test_what_the_function_itself_clusters_is_not_told() -> None:
    told: list[str] = []

    def progress(step: str, _: float) -> None:
        told.append(step)
        microaggregate(VALUES, 4, "hilbert")

    microaggregate(VALUES, 4, "vmdav", progress=progress)
    assert set(told) == {"V-MDAV"}


def test_what_the_function_raises_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "OPERATIONS", 1)

    def interrupt(step: str, share: float) -> None:
        raise KeyboardInterrupt(step, share)

    with pytest.raises(KeyboardInterrupt) as ended:
        microaggregate(VALUES, 4, "vmdav", progress=interrupt)
    assert ended.value.args == ("V-MDAV", 0.0)
    with pytest.raises(ParameterError, match="progress: must be a function of a step and a share"):
        microaggregate(VALUES, 4, progress=3)  # type: ignore[arg-type]


def test_the_function_of_the_call_around_it_is_kept() -> None:
    told: list[str] = []
    with telling(lambda step, _: told.append(step)), telling(None):
        pieces.tell("one", 0.5)
    pieces.tell("two", 0.5)
    assert told == ["one"]
