"""Text in another encoding as UTF-8, so that one reader is enough."""

from __future__ import annotations

import codecs
from typing import BinaryIO

__all__ = ["Recoded"]

_BROKEN = "shoal.broken"
codecs.register_error(_BROKEN, lambda error: ("\udcff", getattr(error, "end", 1)))


class Recoded:
    """A stream's bytes as UTF-8; what cannot be decoded becomes the byte FF, which no UTF-8 text holds.

    Parameters
    ----------
    stream : binary file object
        Read as it arrives, not closed.
    encoding : str
        Of a codec of the standard library.
    """

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._read = getattr(stream, "read1", stream.read)
        self._decoder = codecs.getincrementaldecoder(encoding)(_BROKEN)
        self._is_over = False

    def read1(self, size: int) -> bytes:
        """Some bytes, at least one, as soon as there are any; none at the end."""
        text = ""
        while not (text or self._is_over):
            chunk = self._read(size)
            self._is_over = not chunk
            text = self._decoder.decode(chunk, final=self._is_over)
        return text.encode("utf-8", "surrogateescape")
