"""Makes aiokafka read messages whose header names are not UTF-8.

Kafka allows any bytes in a header name, and aiokafka fails at such a message: it would block its partition for ever.
Once one was met, batches are read by the classes below: in the usual way first, and if that fails, with names decoded
by ``surrogateescape``, which no policy can name. They depend on internals of the client:
`memory_records._MemoryRecordsPy`, `default_records._DefaultRecordBatchPy`, and `consumer.fetcher.MemoryRecords`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records

__all__ = ["tolerate_invalid_header_names"]

_NEW_FORMAT = 2
"""First version of the record format that has headers."""


def tolerate_invalid_header_names() -> bool:
    """Tolerate such names in all consumers made from now on in this process; return False if that is so already."""
    if fetcher.MemoryRecords is _TolerantRecords:
        return False
    fetcher.MemoryRecords = _TolerantRecords
    return True


class _TolerantRecords(memory_records._MemoryRecordsPy):  # type: ignore[misc]  # noqa: SLF001 - the client has no public interface for this
    def next_batch(self, *sizes: int) -> Any:  # noqa: ANN401 - the client's type, or `_Batch`
        batch_bytes = self._next_slice
        batch = super().next_batch(*sizes)
        is_new = batch_bytes is not None and batch_bytes[self.MAGIC_OFFSET] >= _NEW_FORMAT
        return _Batch(bytes(batch_bytes), batch) if is_new else batch


class _Batch:
    """A batch of the client that is read again where a header name is not UTF-8."""

    def __init__(self, batch_bytes: bytes, batch: Any) -> None:  # noqa: ANN401 - the client has no types
        self._batch_bytes, self._batch = batch_bytes, batch
        self._records: Iterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._batch, name)

    def __iter__(self) -> _Batch:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        if self._records is None:
            self._records = iter(self._read())
        return next(self._records)

    def _read(self) -> list[Any]:
        try:
            return list(self._batch)
        except UnicodeDecodeError:
            return list(_EscapingBatch(self._batch_bytes))


class _EscapingBatch(default_records._DefaultRecordBatchPy):  # type: ignore[misc]  # noqa: SLF001 - see above
    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Bytes(self._buffer)


class _Bytes(bytearray):
    """Bytes whose slices decode to text in any case."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        part = super().__getitem__(key)
        return _Bytes(part) if isinstance(part, bytearray) else part

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)
