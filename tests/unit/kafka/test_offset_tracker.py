"""The offset tracker and unfinished clusters by examples, and which offset state covers another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import GuaranteeError
from shoal.kafka.offsets import OffsetState, OffsetTracker, UnfinishedClusters

pytestmark = pytest.mark.unit


def test_the_committed_offset_stays_at_the_oldest_member_until_its_cluster_has_left() -> None:
    progress = OffsetTracker(0)
    progress.mark_read(range(5), [10] * 5, [9] * 5, 1)
    progress.add_unfinished_cluster([0, 4])
    progress.release([0])
    progress.complete([1, 2, 3])
    assert (progress.offset_to_commit, progress.waiting_count) == (0, 1)
    snapshot = progress.snapshot()
    assert (snapshot.unfinished_clusters, snapshot.released_up_to, snapshot.waiting_count) == (((0, 4),), 1, 1)
    again = OffsetTracker.restore(snapshot)
    assert again.is_restoring
    assert not again.can_commit
    progress.release([4])
    assert progress.offset_to_commit == 5
    assert progress.snapshot().released_up_to == 0


def test_an_offset_is_completed_once() -> None:
    progress = OffsetTracker(0)
    progress.mark_read([0], [0], [-1], 0)
    progress.complete([0])
    with pytest.raises(GuaranteeError, match="not incomplete"):
        progress.complete([0])
    with pytest.raises(GuaranteeError):
        progress.complete([4])


def test_incomplete_offsets_not_read_again_survive_a_commit() -> None:
    progress = OffsetTracker(0)
    progress.mark_read(range(10), range(10), [-1] * 10, 0)
    progress.complete([1, 2, 8])
    again = OffsetTracker.restore(progress.snapshot())
    again.mark_read([0], [0], [-1], 0)
    middle = again.snapshot()
    assert middle.next_offset == 10
    assert middle.incomplete == (0, 3, 4, 5, 6, 7, 9)
    assert OffsetTracker.restore(middle).are_incomplete(np.array([7, 8, 9])).tolist() == [True, False, True]
    with pytest.raises(GuaranteeError, match="read again"):
        OffsetTracker.restore(middle).mark_read([7, 8], [7, 8], [-1, -1], 0)


def test_a_flood_of_future_timestamps_takes_bounded_memory() -> None:
    """One record is held, so that the committed offset stays."""
    progress, count = OffsetTracker(0), 20_000
    progress.mark_read(range(count), [10] * count, [-1] * count, 0)
    progress.future_timestamps.note(range(1, count, 2), [3000] * (count // 2))
    progress.future_timestamps.note(range(2, count, 2), range(9000, 9000 - count // 2 + 1, -1))
    assert progress.snapshot(latest_accepted_ms=-1000).future_timestamped == ()
    assert len(progress.future_timestamps._timestamps) == 1024
    assert min(progress.future_timestamps._timestamps.values()) == -998
    progress.future_timestamps.note(range(1, count, 2), [3000] * (count // 2))
    assert progress.snapshot(latest_accepted_ms=3000).future_timestamped[:3] == (1, 3, 5)
    assert len(progress.future_timestamps._timestamps) == 1024
    progress.complete(range(200))
    assert progress.snapshot(latest_accepted_ms=3000).future_timestamped[:3] == (201, 203, 205)


@st.composite
def snapshots(draw: st.DrawFn) -> OffsetState:
    """States of up to eight offsets, each complete, incomplete, or a member of one of two unfinished clusters."""
    next_offset, released_up_to = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    kinds = draw(st.lists(st.sampled_from(["complete", "incomplete", "a", "b"]), min_size=8, max_size=8))
    of_kind = {kind: tuple(n for n in range(next_offset) if kinds[n] == kind) for kind in kinds}
    unfinished = sorted(of_kind[name] for name in ("a", "b") if any(n >= released_up_to for n in of_kind.get(name, ())))
    incomplete = of_kind.get("incomplete", ())
    return OffsetState(
        committed_offset=min([*incomplete, *(members[0] for members in unfinished), next_offset]),
        next_offset=next_offset,
        incomplete=incomplete,
        unfinished_clusters=tuple(unfinished),
        released_up_to=released_up_to if unfinished else 0,
    )


def decision(state: OffsetState, offset: int) -> tuple[str, tuple[int, ...]]:
    """What a state says of an offset: open, decided or released in an unfinished cluster, or complete."""
    for members in state.unfinished_clusters:
        if offset in members:
            return "released" if offset < state.released_up_to else "decided", members
    return "open" if offset >= state.next_offset or offset in state.incomplete else "complete", ()


def is_kept(here: tuple[str, tuple[int, ...]], there: tuple[str, tuple[int, ...]]) -> bool:
    """Return whether nothing is decided there that is not decided in the same way here."""
    if there[0] == "open" or here[0] == "complete":
        return True
    return here[1] == there[1] and here[0] in (("decided", "released") if there[0] == "decided" else ("released",))


@given(snapshots(), snapshots())
def test_a_state_covers_another_if_it_has_decided_all_that_the_other_has(a: OffsetState, b: OffsetState) -> None:
    assert a.covers(b) == all(is_kept(decision(a, offset), decision(b, offset)) for offset in range(8))


# ---------------------------------------------------------------- unfinished clusters


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
