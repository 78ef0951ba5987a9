"""What passes between app and partition tasks: clusters one by one, and messages through a bounded buffer."""

from __future__ import annotations

import asyncio
import json

import pytest
from shoal.errors import GuaranteeError, InputError
from shoal.stage.faust_adapter import BufferedMessage, MessageBuffer
from shoal.stage.handoff_queue import HandoffQueue
from shoal.streams import DecidedCluster

CANARY = "xq7canary9z"


def decided(number: int) -> DecidedCluster:
    return DecidedCluster(number, [number, number + 1], [b'{"age":1}', b'{"age":2}'], ("1",), 2, "ab12")


async def test_a_cluster_is_acknowledged_when_the_next_one_is_asked_for() -> None:
    queue = HandoffQueue()
    first = asyncio.create_task(queue.hand_over(3, decided(0)))
    cluster = await queue.next()
    assert (cluster.partition, cluster.number, cluster.size, cluster.subjects) == (3, 0, 2, 2)
    assert cluster.records == ({"age": 1}, {"age": 2})
    assert cluster.policy == "ab12"
    await asyncio.sleep(0)
    assert not first.done()
    second = asyncio.create_task(queue.hand_over(3, decided(1)))
    assert (await queue.next()).number == 1
    assert await first
    assert not second.done()
    second.cancel()


async def test_a_cancelled_hand_over_is_not_acknowledged_by_a_later_request() -> None:
    queue = HandoffQueue()
    first = asyncio.create_task(queue.hand_over(0, decided(0)))
    await queue.next()
    queue.cancel_handover()
    assert not await first
    assert not await queue.hand_over(0, decided(1))
    queue.resume()
    again = asyncio.create_task(queue.hand_over(0, decided(0)))
    assert (await queue.next()).number == 0
    assert not again.done()
    again.cancel()


async def test_a_closed_queue_ends_the_iteration_with_the_first_error_or_without_one() -> None:
    queue = HandoffQueue()
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    queue.close(GuaranteeError("first"))
    queue.close(InputError("second"))
    with pytest.raises(GuaranteeError, match="first"):
        await waiting
    ended = HandoffQueue()
    ended.close()
    with pytest.raises(StopAsyncIteration):
        await ended.next()


async def test_committed_clusters_are_returned_in_order_and_bounded() -> None:
    queue = HandoffQueue()
    queue.put_committed(0, [decided(number) for number in range(1023)])
    assert not queue.is_full()
    queue.put_committed(0, [decided(1023)])
    assert queue.is_full()
    assert [(await queue.next()).number for _ in range(1024)] == list(range(1024))
    assert not queue.is_full()
    await queue.wait_until_empty(0)


# ---------------------------------------------------------------- the buffer


async def no_rewind(_: int, __: int) -> None:
    raise AssertionError


async def test_put_waits_while_the_buffer_is_full() -> None:
    buffer = MessageBuffer(no_rewind, limit=3)
    buffer.assign([0, 1])
    messages = [BufferedMessage(offset, 0, None, b"", ()) for offset in range(5)]

    async def put_all() -> None:
        for message in messages:
            await buffer.put(0, message)

    putting = asyncio.create_task(put_all())
    await buffer.wait(1)
    assert (putting.done(), buffer.is_full) == (False, True)
    assert buffer.take(0, 2) == messages[:2]
    await buffer.wait(1)
    assert buffer.take(0, 9) == messages[2:]
    assert (putting.done(), buffer.is_full) == (True, False)


async def test_messages_of_revoked_partitions_are_dropped() -> None:
    buffer = MessageBuffer(no_rewind, limit=3)
    buffer.assign([0, 1])
    message = BufferedMessage(7, 0, None, b"", ())
    await buffer.put(1, message)
    buffer.assign([0])
    await buffer.put(1, message)
    assert buffer.take(1, 9) == []
    assert len(buffer) == 0


async def test_the_texts_of_clusters_and_messages_show_no_record() -> None:
    queue, row = HandoffQueue(), json.dumps({"note": CANARY}).encode()
    queue.put_committed(0, [DecidedCluster(0, [0], [row], ("1",), 1, "ab12")])
    assert CANARY not in repr(await queue.next())
    message = BufferedMessage(7, 5, CANARY.encode(), row, (("name", row),))
    assert repr(message) == "BufferedMessage(offset=7)"
