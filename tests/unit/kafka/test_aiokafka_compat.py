"""Batches with header names that are not UTF-8, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records
from shoal.kafka import aiokafka_compat as leniency

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client as it is before invalid names are tolerated; importing a stage changes that."""
    monkeypatch.setattr(fetcher, "MemoryRecords", memory_records.MemoryRecords)


class Odd(str):
    """A name as a client without manners would send it."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff" + str.encode(self)


def batch(names: list[str], *, transactional: bool = False) -> bytes:
    builder = default_records._DefaultRecordBatchBuilderPy(2, 0, int(transactional), 7, 0, 0, 1 << 20)
    for number, name in enumerate(names):
        builder.append(number, 1000 + number, b"k", b"v%d" % number, [(name, b"1")])
    return bytes(builder.build())


def read(data: bytes) -> list[Any]:
    records, found = leniency._TolerantRecords(data), []
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        found.append((one.base_offset, one.is_transactional, one.is_control_batch, list(one)))
    return found


def test_a_header_name_that_is_not_utf8_matches_no_name_in_a_policy() -> None:
    data = batch(["ward", Odd("ward"), "ward"])
    with pytest.raises(UnicodeDecodeError):
        list(fetcher.MemoryRecords(data).next_batch())
    ((_, _, _, records),) = read(data)
    names = [record.headers[0][0] for record in records]
    assert names[::2] == ["ward", "ward"]
    with pytest.raises(UnicodeEncodeError):
        names[1].encode()
    assert [record.value for record in records] == [b"v0", b"v1", b"v2"]
    assert [record.timestamp for record in records] == [1000, 1001, 1002]


def test_other_batches_are_read_as_before() -> None:
    data = batch(["a"], transactional=True) + batch([Odd("b")], transactional=True) + batch(["c"])
    assert [(one[1], one[3][0].headers[0][0]) for one in read(data)][::2] == [(True, "a"), (False, "c")]
    assert [one[1] for one in read(data)] == [True, True, False]


def test_invalid_names_are_tolerated_once_and_for_all() -> None:
    assert leniency.tolerate_invalid_header_names()
    assert not leniency.tolerate_invalid_header_names()
