"""Follow a source: read a growing file, a FIFO or standard input until the command is stopped."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select
from threading import Event

from shoal.errors import InputError
from shoal.files.outputs import PIPE, standard_input
from shoal.records import StoppedReading

__all__ = ["FollowedFile", "open_followed"]

POLL_S = 0.1
"""Time between two checks whether a file has grown."""

_TAIL_BYTES = 4096
"""Last bytes read, compared before new ones are read: a file may be truncated and filled between two checks."""


class FollowedFile:
    """Reads bytes as they are written, until ``stop`` is set; the end of a file does not end it.

    Parameters
    ----------
    descriptor : int
        Of a file, a FIFO or standard input; not closed.
    path : str
        Path of the file, to detect that it was replaced; ``-`` for standard input.
    stop : Event
        Set to end reading.

    Attributes
    ----------
    on_idle : callable
        Called about ten times a second while there is no data.
    fault : InputError or None
        Why reading ended without ``stop``.
    """

    def __init__(self, descriptor: int, path: str, stop: Event) -> None:
        self._descriptor, self._path, self._stop = descriptor, path, stop
        self._name = "standard input" if path == PIPE else path
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._offset = os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_file else 0
        self._tail = b""
        self.on_idle: Callable[[], None] = lambda: None
        self.fault: InputError | None = None

    def read1(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``, as soon as there are any; none at the end of a pipe.

        Raises
        ------
        StoppedReading
            ``stop`` was set, or the file was changed; see ``fault``.
        """
        while not self._stop.is_set():
            chunk = self._chunk(size)
            if chunk:
                self._require_same_tail()
                self._offset += len(chunk)
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
                return chunk
            if chunk is not None and self._path == PIPE and not self._is_file:
                return b""
            self._require_same_file()
            self.on_idle()
            self._stop.wait(POLL_S)
        raise StoppedReading

    def _chunk(self, size: int) -> bytes | None:
        """Return the available bytes; none at the end; None if that is not known yet."""
        if not self._is_file and not select([self._descriptor], [], [], 0)[0]:
            return None
        try:
            return os.read(self._descriptor, size)
        except BlockingIOError:
            return None
        except OSError as error:
            raise InputError(f"{self._name}: cannot be read: {error.strerror}") from None

    def _require_same_tail(self) -> None:
        """Stop if the bytes before the new ones are not those that were read: the file was replaced."""
        if self._is_file and self._tail:
            start = self._offset - len(self._tail)
            if os.pread(self._descriptor, len(self._tail), start) != self._tail:
                self._end("was truncated and written again")

    def _require_same_file(self) -> None:
        if not self._is_file:
            return
        opened = os.fstat(self._descriptor)
        if opened.st_size < self._offset:
            self._end("was truncated")
        if self._path != PIPE:
            try:
                current = os.stat(self._path)  # noqa: PTH116 - the same call as above
            except OSError:
                self._end("was removed")
            else:
                if (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino):
                    self._end("was replaced")

    def _end(self, event: str) -> None:
        self.fault = InputError(
            f"{self._name}: {event} while it was followed; all records read before are written, start again with the "
            "records after them"
        )
        raise StoppedReading


@contextmanager
def open_followed(path: str, stop: Event) -> Iterator[FollowedFile]:
    """Open a file, a FIFO or standard input to follow it.

    Raises
    ------
    InputError
        The source cannot be opened.
    """
    if path == PIPE:
        yield FollowedFile(standard_input().fileno(), path, stop)
        return
    try:
        # Opening a FIFO without a writer must not block: the command could not be stopped.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        yield FollowedFile(descriptor, path, stop)
    finally:
        os.close(descriptor)
