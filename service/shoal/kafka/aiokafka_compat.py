"""Messages whose headers have names that are not UTF-8: the client cannot read them, nor anything behind them.

Kafka takes any bytes for a name, and one such message would hold up its partition for ever. Once one was met, batches
are read by the classes below: as ever, and where that fails, with those names mangled into what no policy can name.
They lean on the insides of the client: `memory_records._MemoryRecordsPy`, `default_records._DefaultRecordBatchPy`
and the name by which `consumer.fetcher` makes them, all in this room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records

__all__ = ["tolerate_invalid_header_names"]

_NEW_FORMAT = 2
"""Headers came with this version of the format."""


def tolerate_invalid_header_names() -> bool:
    """Read so from the next consumer on, in this process; False if it is so already."""
    if fetcher.MemoryRecords is _Records:
        return False
    fetcher.MemoryRecords = _Records
    return True


class _Records(memory_records._MemoryRecordsPy):  # type: ignore[misc]  # noqa: SLF001 - the client has no door for this
    def next_batch(self, *sizes: int) -> Any:  # noqa: ANN401 - the client's own type, or ours in its place
        piece = self._next_slice
        batch = super().next_batch(*sizes)
        is_new = piece is not None and piece[self.MAGIC_OFFSET] >= _NEW_FORMAT
        return _Batch(bytes(piece), batch) if is_new else batch


class _Batch:
    """A batch of the client that is read once more where its names are not UTF-8."""

    def __init__(self, piece: bytes, batch: Any) -> None:  # noqa: ANN401 - the client has no types
        self._piece, self._batch = piece, batch
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
            return list(_Mangling(self._piece))


class _Mangling(default_records._DefaultRecordBatchPy):  # type: ignore[misc]  # noqa: SLF001 - see above
    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Bytes(self._buffer)


class _Bytes(bytearray):
    """Bytes whose parts become text whatever they are."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        part = super().__getitem__(key)
        return _Bytes(part) if isinstance(part, bytearray) else part

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)
