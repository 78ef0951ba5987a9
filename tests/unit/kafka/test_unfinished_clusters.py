"""Partial releases: assigned records leave once, in order, and only after they were read again."""

from __future__ import annotations

import pytest
from shoal.errors import GuaranteeError
from shoal.kafka.unfinished_clusters import UnfinishedClusters

pytestmark = pytest.mark.unit


def test_assigned_records_leave_once_and_in_order() -> None:
    partial = UnfinishedClusters()
    partial.add([1, 4], [(10, 9, 100), (40, 39, 400)])
    partial.add([2, 3], [(20, 19, 200), (30, 29, 300)])
    assert partial.release([1, 2]) == [100, 200]
    assert (partial.oldest_member, partial.oldest_unreleased, len(partial)) == (1, 3, 2)
    for offset in (1, 2, 9):
        with pytest.raises(GuaranteeError, match="out of order"):
            partial.release([offset])
    assert partial.release([3, 4]) == [300, 400]
    assert (partial.oldest_member, partial.oldest_unreleased, len(partial)) == (None, None, 0)


def test_an_offset_is_in_one_cluster() -> None:
    partial = UnfinishedClusters()
    partial.add([1, 4], [(0, 0, 0), (0, 0, 0)])
    with pytest.raises(GuaranteeError, match="two clusters"):
        partial.add([4, 5], [(0, 0, 0), (0, 0, 0)])


def test_no_record_leaves_before_the_members_were_read_again() -> None:
    partial = UnfinishedClusters.restore([(1, 4)], 2)
    with pytest.raises(GuaranteeError, match="out of order"):
        partial.release([4])
    partial.read_again([1, 2, 4], [10, 20, 40], [9, 19, 39], 700)
    assert not partial.is_restoring
    assert partial.release([4]) == [700]
