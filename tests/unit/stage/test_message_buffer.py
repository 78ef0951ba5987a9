"""The buffer is bounded: a sender waits while it is full."""

from __future__ import annotations

import asyncio

from shoal.stage.faust_adapter import BufferedMessage, MessageBuffer


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


def test_a_message_shows_its_offset_only() -> None:
    message = BufferedMessage(7, 5, b"xq7canary9z", b"xq7canary9z", (("name", b"xq7canary9z"),))
    assert repr(message) == "BufferedMessage(offset=7)"
