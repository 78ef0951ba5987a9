"""Memberships in clusters as bytes, and partial releases."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import GuaranteeError, InputError
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.membership_codec import decode_membership, encode_membership, max_membership_bytes
from shoal.kafka.offset_metadata import CommittedState, decode, encode, largest_span
from shoal.kafka.offset_tracker import OffsetState, OffsetTracker
from shoal.kafka.partial_releases import PartialReleases

pytestmark = pytest.mark.unit

LIMIT_BYTES = 4096

FINGERPRINT = "ab" * 32


@st.composite
def labelled(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    labels = draw(st.lists(st.integers(0, 9), min_size=1, max_size=80))
    labels[0] = labels[0] or 1
    offsets = list(itertools.accumulate(draw(st.lists(st.integers(1, 50), min_size=len(labels), max_size=len(labels)))))
    together: dict[int, list[int]] = {}
    for offset, label in zip(offsets, labels, strict=True):
        together.setdefault(label, []).append(offset)
    alone = tuple(together.pop(0, []))
    return alone, tuple(sorted(map(tuple, together.values())))


@given(labelled())
def test_encoded_values_can_be_decoded(given_labels: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]) -> None:
    alone, clusters = given_labels
    listed = sorted((*alone, *itertools.chain(*clusters)))
    packed = encode_membership(alone, clusters)
    assert decode_membership(packed, listed) == (alone, clusters)
    smallest = min(map(len, clusters))
    assert len(packed) <= max_membership_bytes(len(listed), len(listed) - len(alone), smallest)
    state = OffsetState(
        listed[0], listed[-1] + 1, alone, partial_clusters=clusters, released_up_to=listed[0] + 3, clusters=9
    )
    text = encode(CommittedState(state, FINGERPRINT, 5), "t", 1)
    assert decode(text, "t", 1, listed[0]).state == state


@given(labelled(), st.data())
def test_changed_bytes_are_refused_or_read_as_clusters(
    given_labels: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], data: st.DataObject
) -> None:
    alone, clusters = given_labels
    listed = sorted((*alone, *itertools.chain(*clusters)))
    packed = bytearray(encode_membership(alone, clusters))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decode_membership(bytes(packed), listed)
    except (ValueError, IndexError):
        return
    assert sorted((*found[0], *itertools.chain(*found[1]))) == listed
    assert all(found[1])


@pytest.mark.parametrize(("k", "delta"), [(2, 1), (2, 800), (3, 871), (5, 100), (10, 1000), (50, 1273)])
def test_partial_clusters_of_the_most_records_fit_with_and_without_a_key(k: int, delta: int) -> None:
    slack = 512
    step = max(1, largest_span(delta, slack, min_partial=k) // (delta + 1)) if delta > 600 else 1
    places = [place * step for place in range(2 * (delta + 1))]
    count = max(1, len(places) // k)
    promised = tuple(tuple(places[number::count]) for number in range(count))
    held = tuple(range(places[-1] + 1, places[-1] + 1 + slack))
    state = OffsetState(
        0,
        held[-1] + 1,
        held,
        partial_clusters=promised,
        released_up_to=places[-1],
        stream_time=1 << 41,
        clusters=1 << 40,
    )
    commit = CommittedState(state, FINGERPRINT, 1 << 41)
    for seal in (MetadataCipher("g"), MetadataCipher("g", (b"k" * 32,))):
        text = seal.encode(commit, "t", 0)
        assert len(text) <= LIMIT_BYTES
        assert seal.decode(text, "t", 0, 0).state == state


def test_a_delta_whose_partial_clusters_do_not_fit_is_refused_with_the_largest_that_does() -> None:
    with pytest.raises(InputError, match=r"at most 1009 with stream\.release: ordered"):
        largest_span(1010, 512, min_partial=10)
    assert largest_span(1009, 512, min_partial=10) >= 1009


# ---------------------------------------------------------------- promises


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


def test_the_committed_offset_stays_at_the_oldest_member_until_its_cluster_has_left() -> None:
    progress = OffsetTracker(0)
    progress.read(range(5), [10] * 5, [9] * 5, 1)
    progress.assign([0, 4])
    progress.release([0])
    progress.complete([1, 2, 3])
    assert (progress.committed_offset, progress.incomplete) == (0, 1)
    snapshot = progress.snapshot()
    assert (snapshot.partial_clusters, snapshot.released_up_to, snapshot.waiting) == (((0, 4),), 1, 1)
    again = OffsetTracker.restore(snapshot)
    assert again.is_restoring
    assert not again.can_commit
    progress.release([4])
    assert progress.committed_offset == 5
    assert progress.snapshot().released_up_to == 0


HELD = OffsetState(0, 4, (0, 1, 2, 3))
PROMISED = OffsetState(0, 4, (1, 2), partial_clusters=((0, 3),), released_up_to=0)
LEFT = OffsetState(0, 4, (1, 2), partial_clusters=((0, 3),), released_up_to=1)
OTHERWISE = OffsetState(0, 4, (2, 3), partial_clusters=((0, 1),), released_up_to=1)
DONE = OffsetState(1, 4, (1, 2))


@pytest.mark.parametrize(
    ("saved", "current", "covers"),
    [
        (PROMISED, HELD, True),
        (LEFT, PROMISED, True),
        (DONE, LEFT, True),
        (HELD, PROMISED, False),
        (PROMISED, LEFT, False),
        (LEFT, DONE, False),
        (OTHERWISE, LEFT, False),
        (LEFT, OTHERWISE, False),
    ],
)
def test_an_import_reverts_no_decision(saved: OffsetState, current: OffsetState, *, covers: bool) -> None:
    assert saved.covers(current) is covers
