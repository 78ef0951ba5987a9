"""Memberships in clusters as bytes, and of unfinished clusters."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import InputError
from shoal.kafka.metadata import (
    CommittedState,
    MetadataCipher,
    decode,
    decode_membership,
    encode,
    encode_membership,
    largest_span,
    max_membership_bytes,
)
from shoal.kafka.offsets import OffsetState

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
        listed[0],
        listed[-1] + 1,
        alone,
        unfinished_clusters=clusters,
        released_up_to=listed[0] + 3,
        next_cluster_number=9,
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


@pytest.mark.parametrize(("k", "delta"), [(2, 1), (2, 800), (3, 865), (5, 100), (10, 1000), (50, 1266)])
def test_partial_clusters_of_the_most_records_fit_with_and_without_a_key(k: int, delta: int) -> None:
    slack = 512
    step = max(1, largest_span(delta, slack, smallest_unfinished=k) // (delta + 1)) if delta > 600 else 1
    places = [place * step for place in range(2 * (delta + 1))]
    count = max(1, len(places) // k)
    unfinished_clusters = tuple(tuple(places[number::count]) for number in range(count))
    held = tuple(range(places[-1] + 1, places[-1] + 1 + slack))
    state = OffsetState(
        0,
        held[-1] + 1,
        held,
        unfinished_clusters=unfinished_clusters,
        released_up_to=places[-1],
        stream_time=1 << 41,
        next_cluster_number=1 << 40,
    )
    commit = CommittedState(state, FINGERPRINT, 1 << 41, 6560)
    for seal in (MetadataCipher("g"), MetadataCipher("g", (b"k" * 32,))):
        text = seal.encode(commit, "t", 0)
        assert len(text) <= LIMIT_BYTES
        assert seal.decode(text, "t", 0, 0).state == state


def test_a_delta_whose_partial_clusters_do_not_fit_is_refused_with_the_largest_that_does() -> None:
    with pytest.raises(InputError, match=r"at most 1002 with stream\.release: ordered"):
        largest_span(1003, 512, smallest_unfinished=10)
    assert largest_span(1002, 512, smallest_unfinished=10) >= 1002
