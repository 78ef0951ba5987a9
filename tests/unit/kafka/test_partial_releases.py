"""Partial releases: assigned records leave once, in order, and only after they were read again."""

from __future__ import annotations

import pytest
from shoal.errors import GuaranteeError
from shoal.kafka.partial_releases import PartialReleases

pytestmark = pytest.mark.unit


def test_assigned_records_leave_once_and_in_order() -> None:
    promises = PartialReleases()
    promises.add([1, 4], [(10, 9, 100), (40, 39, 400)])
    promises.add([2, 3], [(20, 19, 200), (30, 29, 300)])
    assert promises.release([1, 2]) == [100, 200]
    assert (promises.oldest, promises.next_to_leave, len(promises)) == (1, 3, 2)
    for offset in (1, 2, 9):
        with pytest.raises(GuaranteeError, match="out of order"):
            promises.release([offset])
    assert promises.release([3, 4]) == [300, 400]
    assert (promises.oldest, promises.next_to_leave, len(promises)) == (None, None, 0)


def test_an_offset_is_in_one_cluster() -> None:
    promises = PartialReleases()
    promises.add([1, 4], [(0, 0, 0), (0, 0, 0)])
    with pytest.raises(GuaranteeError, match="two clusters"):
        promises.add([4, 5], [(0, 0, 0), (0, 0, 0)])


def test_no_record_leaves_before_the_members_were_read_again() -> None:
    promises = PartialReleases.restore([(1, 4)], 2)
    with pytest.raises(GuaranteeError, match="out of order"):
        promises.release([4])
    promises.read_again([1, 2, 4], [10, 20, 40], [9, 19, 39], 700)
    assert not promises.is_restoring
    assert promises.release([4]) == [700]
