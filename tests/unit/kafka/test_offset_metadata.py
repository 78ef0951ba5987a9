"""Offset metadata: round trips, sizes, and what is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import InputError
from shoal.kafka.metadata import CommittedState, decode, encode, largest_span, pack
from shoal.kafka.offsets import OffsetState, ReferenceRecord

pytestmark = pytest.mark.unit

LIMIT_BYTES = 4096
ENCRYPTED_BYTES = 3008
UNLIMITED = 1 << 60
MAX_FUTURE_TIMESTAMPED = 64

FINGERPRINT = "0123456789abcdef" * 4


@st.composite
def snapshots(draw: st.DrawFn) -> OffsetState:
    start = draw(st.integers(0, 2**40))
    gaps = draw(st.lists(st.integers(1, 3000), max_size=60))
    held = tuple(start + sum(gaps[:i]) for i in range(len(gaps)))
    end = (held[-1] if held else start) + draw(st.integers(1, 10_000))
    future = tuple(sorted(draw(st.sets(st.integers(start + 1, start + 5000), max_size=MAX_FUTURE_TIMESTAMPED))))
    reference = draw(
        st.none() | st.builds(ReferenceRecord, st.integers(max(0, start - 5), start), st.integers(-1, 2**42))
    )
    return OffsetState(
        committed_offset=start,
        next_offset=end if held else start,
        incomplete=held,
        future_timestamped=future,
        stream_time=draw(st.integers(-1, 2**42)),
        next_cluster_number=draw(st.integers(0, 2**50)),
        flush_at_offset=draw(st.none() | st.just(end)),
        reference=reference,
        released_from=draw(st.integers(0, start)),
        adaptive_state=draw(st.binary(max_size=200)),
        handed_over_uncommitted=draw(st.booleans()),
    )


@given(snapshots())
def test_encoded_values_can_be_decoded(snapshot: OffsetState) -> None:
    text = encode(CommittedState(snapshot, FINGERPRINT, 1_790_000_000_000), "t", 5)
    found = decode(text, "t", 5, snapshot.committed_offset)
    assert found.state == snapshot
    assert found.has_policy(FINGERPRINT)
    assert not found.has_policy("f" * 64)
    assert found.at_ms == 1_790_000_000_000


@pytest.mark.parametrize("step", [1, 2, 3, 8, 9, 50, 1000])
def test_incomplete_offsets_are_packed_as_bitmap_or_gaps(step: int) -> None:
    held = tuple(range(100, 100 + 400 * step, step))
    snapshot = OffsetState(committed_offset=100, next_offset=held[-1] + 1, incomplete=held)
    assert decode(encode(CommittedState(snapshot, FINGERPRINT, 0), "t", 0), "t", 0, 100).state.incomplete == held


@pytest.mark.parametrize("delta", [2, 100, 600, 1000, 5000, 20_000])
def test_within_the_span_metadata_always_fit(delta: int) -> None:
    slack = 512
    span = largest_span(delta, slack)
    count = delta + 1 + slack
    future = tuple(range(2**40 + 1, 2**40 + 1 + MAX_FUTURE_TIMESTAMPED))
    widest = min(span, 2**44)
    for held in (
        tuple(range(2**40, 2**40 + count)),
        tuple(2**40 + (widest * i) // (count - 1) for i in range(count)) if widest >= count else (),
        tuple(2**40 + widest + slack - count + 1 + i if i else 2**40 for i in range(count)),
    ):
        if not held or len(set(held)) != len(held):
            continue
        snapshot = OffsetState(
            2**40, held[-1] + 1, held, future, 2**42, 2**50, held[-1] + 1, ReferenceRecord(2**40, 2**42)
        )
        # 6560 is the partition count with the longest padding.
        assert len(encode(CommittedState(snapshot, FINGERPRINT, 2**42, 6560), "t", 0)) <= LIMIT_BYTES


@pytest.mark.parametrize(("delta", "state_bytes"), [(2, 1), (600, 17), (5000, 500), (16_000, 500), (100, 2300)])
def test_within_the_span_metadata_with_adaptive_state_fit(delta: int, state_bytes: int) -> None:
    slack = 512
    span = min(largest_span(delta, slack, state_bytes), 2**44)
    assert span <= largest_span(delta, slack)
    count = delta + 1 + slack
    future = tuple(range(2**40 + 1, 2**40 + 1 + MAX_FUTURE_TIMESTAMPED))
    for width in {count - 1, max(count - 1, span)}:
        held = tuple(2**40 + (width * i) // (count - 1) for i in range(count))
        reference = ReferenceRecord(2**40, 2**42)
        snapshot = OffsetState(
            2**40, held[-1] + 1, held, future, 2**42, 2**50, None, reference, adaptive_state=b"\xff" * state_bytes
        )
        assert len(pack(CommittedState(snapshot, FINGERPRINT, 2**42, 6560))) < ENCRYPTED_BYTES


@pytest.mark.parametrize(
    ("delta", "adaptive_bytes", "smallest_unfinished", "span"),
    [(1000, 0, 0, 135_691), (5000, 0, 0, 20_075), (1000, 100, 0, 122_763), (1000, 0, 100, 4445)],
)
def test_the_largest_span_uses_all_free_bytes(
    delta: int, adaptive_bytes: int, smallest_unfinished: int, span: int
) -> None:
    assert largest_span(delta, 500, adaptive_bytes, smallest_unfinished) == span


def test_an_adaptive_state_that_leaves_no_bytes_is_refused() -> None:
    with pytest.raises(InputError, match=r"spreads of so many attributes .* set steering\.scaling: bounds"):
        largest_span(100, 512, 3000)
    with pytest.raises(InputError, match="at most"):
        largest_span(20_000, 512, 500)


def test_metadata_without_adaptive_state_have_the_older_version() -> None:
    assert pack(CommittedState(OffsetState(5, 5), FINGERPRINT, 0))[0] == 2
    assert pack(CommittedState(OffsetState(5, 5, adaptive_state=b"x"), FINGERPRINT, 0))[0] == 3


OLDER = "shoal1:AgAEAAMAEQAABQEjRWeJq83vAAVuIJbp"
"""What a version without adaptive state wrote of `good`."""


def test_metadata_of_an_older_version_can_be_decoded() -> None:
    commit = decode(OLDER, "t", 0, 5)
    assert commit.state == OffsetState(5, 9, (5, 7), next_cluster_number=3)
    assert (commit.at_ms, commit.first_partition_count) == (17, 0)
    assert encode(commit, "t", 0) == OLDER


STORED = {
    "shoal1:AwEpgdjBoow0wMQHKqDlx6KMNALot4PFmGjAhD0BI0VniavN7wMBAoABBQADI2dsPUU=": OffsetState(
        committed_offset=7_000_000_000,
        next_offset=7_000_000_041,
        incomplete=(7_000_000_000, 7_000_000_003, 7_000_000_038),
        future_timestamped=(7_000_000_005,),
        stream_time=1_790_000_000_000,
        next_cluster_number=123_456,
        flush_at_offset=7_000_000_041,
        reference=ReferenceRecord(6_999_999_999, 1_790_000_000_500),
        released_from=6_999_000_000,
        adaptive_state=b"\x01\x02\x80",
    ),
    "shoal1:AgYogdjBoow0CQCg5ceijDQC6LeDxZhoCgEjRWeJq83vAAkDCZwMAALbAAAqRtsgnQ==": OffsetState(
        committed_offset=100,
        next_offset=140,
        incomplete=(110, 115),
        stream_time=1_790_000_000_000,
        next_cluster_number=9,
        reference=ReferenceRecord(99, 1_790_000_000_500),
        released_from=90,
        unfinished_clusters=((100, 111, 118), (103, 112, 119)),
        released_up_to=95,
        handed_over_uncommitted=True,
    ),
}
"""What the last version without the partition count wrote for partition 3 of topic ``visits``."""

PADDED = [
    ("shoal1:AwEpgdjBooy0AMDEhwAqoOXHoow0Aui3g8WYaMCEPQEjRWeJq83vAwECgAEFAAMjfG7+Xg==", 12),
    ("shoal1:AgaogACB2MGijLSAAImAAICAAKDlx6KMtIAAgoAA6LeDxZjogACKgAABI0VniavN7wAJAwmcDAAC2wAAKjZM8wg=", 6560),
]
"""The same states with a partition count; that version reads them with these results."""


@pytest.mark.parametrize("text", STORED)
def test_metadata_without_the_partition_count_are_read_and_written_as_before(text: str) -> None:
    state = STORED[text]
    commit = decode(text, "visits", 3, state.committed_offset)
    assert commit == CommittedState(state, "0123456789abcdef", 1_790_000_100_000, 0)
    assert encode(commit, "visits", 3) == text


@pytest.mark.parametrize(("text", "count", "state"), [(*PADDED[0], 0), (*PADDED[1], 1)])
def test_metadata_with_the_partition_count_have_these_bytes(text: str, count: int, state: int) -> None:
    commit = CommittedState(list(STORED.values())[state], "0123456789abcdef", 1_790_000_100_000, count)
    assert encode(commit, "visits", 3) == text
    assert decode(text, "visits", 3, commit.state.committed_offset) == commit


@pytest.mark.parametrize("count", [1, 2, 3, 12, 100, 6560])
def test_the_partition_count_of_the_first_start_is_kept_and_changes_no_other_number(count: int) -> None:
    state = OffsetState(5, 9, (5, 7), next_cluster_number=3, reference=ReferenceRecord(5, 1_790_000_000_000))
    commit = CommittedState(state, FINGERPRINT[:16], 17, count)
    assert decode(encode(commit, "t", 0), "t", 0, 5) == commit
    body, without = pack(commit), pack(CommittedState(state, FINGERPRINT[:16], 17))
    assert len(without) < len(body) <= len(without) + 16
    # A reader that knows of no padding reads the same eight numbers.
    assert plain_numbers(body) == plain_numbers(without)


def plain_numbers(body: bytes) -> tuple[list[int], bytes]:
    """Read eight numbers of seven bits a byte, lowest first, up to a byte without the top bit; return the rest too."""
    numbers, index = [], 2
    for _ in range(8):
        number = shift = 0
        while True:
            byte, index = body[index], index + 1
            number, shift = number | (byte % 128) << shift, shift + 7
            if byte < 128:
                break
        numbers.append(number)
    return numbers, body[:2] + body[index:]


def test_a_partition_count_that_does_not_fit_is_not_kept() -> None:
    commit = CommittedState(OffsetState(5, 9, (5, 7)), FINGERPRINT[:16], 17, 6561)
    assert decode(encode(commit, "t", 0), "t", 0, 5).first_partition_count == 0


def test_a_small_delta_needs_no_limit_and_a_huge_one_is_refused() -> None:
    assert largest_span(10, 512) > 2**30
    assert largest_span(10, 512) <= UNLIMITED
    with pytest.raises(InputError, match="at most"):
        largest_span(25_000, 512)


def test_metadata_that_are_too_long_are_an_error() -> None:
    held = tuple(range(0, 90_000, 3))
    with pytest.raises(InputError, match="does not fit"):
        encode(CommittedState(OffsetState(0, 90_001, held), FINGERPRINT, 0), "t", 0)


def good() -> str:
    return encode(CommittedState(OffsetState(5, 9, (5, 7), next_cluster_number=3), FINGERPRINT, 17), "t", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "something else",
        "shoal1:",
        "shoal1:????",
        "shoal2:" + good()[7:],
        good()[:-4],
        good() + "AAAA",
        good()[:20] + ("A" if good()[20] != "A" else "B") + good()[21:],
    ],
)
def test_foreign_or_invalid_metadata_are_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InputError, match=r"--import.*--skip-to-end"):
        decode(text, "t", 0, 5)


@pytest.mark.parametrize(("topic", "partition", "offset"), [("u", 0, 5), ("t", 1, 5), ("t", 0, 6)])
def test_metadata_copied_to_another_partition_or_offset_are_refused(topic: str, partition: int, offset: int) -> None:
    with pytest.raises(InputError):
        decode(good(), topic, partition, offset)


def test_every_flipped_bit_is_detected() -> None:
    body = bytearray(base64.b64decode(good()[7:]))
    for place in range(len(body)):
        for bit in range(8):
            body[place] ^= 1 << bit
            with pytest.raises(InputError):
                decode("shoal1:" + base64.b64encode(bytes(body)).decode(), "t", 0, 5)
            body[place] ^= 1 << bit
