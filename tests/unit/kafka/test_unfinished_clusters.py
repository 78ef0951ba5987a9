"""Unfinished clusters: records are released once, in order, and only after they were read again."""

from __future__ import annotations

import pytest
from shoal.errors import GuaranteeError
from shoal.kafka.offsets import UnfinishedClusters

pytestmark = pytest.mark.unit


def test_records_are_released_once_and_in_order() -> None:
    clusters = UnfinishedClusters()
    clusters.add([1, 4], [(10, 9, 100), (40, 39, 400)])
    clusters.add([2, 3], [(20, 19, 200), (30, 29, 300)])
    assert clusters.release([1, 2]) == [100, 200]
    assert (clusters.oldest_member, clusters.oldest_unreleased, len(clusters)) == (1, 3, 2)
    for offset in (1, 2, 9):
        with pytest.raises(GuaranteeError, match="out of order"):
            clusters.release([offset])
    assert clusters.release([3, 4]) == [300, 400]
    assert (clusters.oldest_member, clusters.oldest_unreleased, len(clusters)) == (None, None, 0)


def test_an_offset_is_in_one_cluster() -> None:
    clusters = UnfinishedClusters()
    clusters.add([1, 4], [(0, 0, 0), (0, 0, 0)])
    with pytest.raises(GuaranteeError, match="two clusters"):
        clusters.add([4, 5], [(0, 0, 0), (0, 0, 0)])


def test_no_record_is_released_before_the_members_were_read_again() -> None:
    clusters = UnfinishedClusters.restore([(1, 4)], 2)
    with pytest.raises(GuaranteeError, match="out of order"):
        clusters.release([4])
    clusters.read_again([1, 2, 4], [10, 20, 40], [9, 19, 39], 700)
    assert not clusters.is_restoring
    assert clusters.release([4]) == [700]
