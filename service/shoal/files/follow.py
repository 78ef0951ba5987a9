"""A file that still grows, or a pipe that is written to now and then."""

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

__all__ = ["Followed", "followed"]

POLL_S = 0.1
"""How often is looked whether a file has grown."""

_TAIL_BYTES = 4096
"""So much of what was read must stand before what comes: a file may be cut short and filled between two looks."""


class Followed:
    """Bytes as they are written, until somebody stops it; the end of a file is no end.

    Parameters
    ----------
    descriptor : int
        Of a file, a FIFO or standard input; read, not closed.
    path : str
        Its name, to see whether it is still the same file; ``-`` for standard input.
    stop : Event
        Set when nothing more shall be read.

    Attributes
    ----------
    idle : callable
        Called some times a second while there is nothing to read.
    fault : InputError or None
        Why reading ended, if not because it was stopped.
    """

    def __init__(self, descriptor: int, path: str, stop: Event) -> None:
        self._descriptor, self._path, self._stop = descriptor, path, stop
        self._name = "standard input" if path == PIPE else path
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._position = os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_file else 0
        self._tail = b""
        self.idle: Callable[[], None] = lambda: None
        self.fault: InputError | None = None

    def read1(self, size: int) -> bytes:
        """Some bytes, as soon as there are any; none when nobody can write to standard input any more.

        Raises
        ------
        StoppedReading
            It was stopped, or the file is not what it was: see ``fault``.
        """
        while not self._stop.is_set():
            chunk = self._chunk(size)
            if chunk:
                self._require_same_tail()
                self._position += len(chunk)
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
                return chunk
            if chunk is not None and self._path == PIPE and not self._is_file:
                return b""
            self._require_same_file()
            self.idle()
            self._stop.wait(POLL_S)
        raise StoppedReading

    def _chunk(self, size: int) -> bytes | None:
        """What is there; nothing at an end; None if it is not known yet."""
        if not self._is_file and not select([self._descriptor], [], [], 0)[0]:
            return None
        try:
            return os.read(self._descriptor, size)
        except BlockingIOError:
            return None
        except OSError as error:
            raise InputError(f"{self._name}: cannot be read: {error.strerror}") from None

    def _require_same_tail(self) -> None:
        """What was read last must still stand where it stood, or what follows it was never meant to follow it."""
        if self._is_file and self._tail:
            place = self._position - len(self._tail)
            if os.pread(self._descriptor, len(self._tail), place) != self._tail:
                self._end("was cut short and written anew")

    def _require_same_file(self) -> None:
        if not self._is_file:
            return
        here = os.fstat(self._descriptor)
        if here.st_size < self._position:
            self._end("was cut short")
        if self._path != PIPE:
            try:
                there = os.stat(self._path)  # noqa: PTH116 - the same call as above
            except OSError:
                self._end("is gone")
            else:
                if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                    self._end("was put in the place of another file")

    def _end(self, what: str) -> None:
        self.fault = InputError(
            f"{self._name}: {what} while it was followed; what was read before has left, begin anew with what came "
            "after it"
        )
        raise StoppedReading


@contextmanager
def followed(path: str, stop: Event) -> Iterator[Followed]:
    """Open a file, a FIFO or standard input to be followed.

    Raises
    ------
    InputError
        It cannot be opened.
    """
    if path == PIPE:
        yield Followed(standard_input().fileno(), path, stop)
        return
    try:
        # A FIFO without a writer must not keep anybody from stopping.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        yield Followed(descriptor, path, stop)
    finally:
        os.close(descriptor)
