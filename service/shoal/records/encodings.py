"""Text in another encoding as UTF-8, so that one reader is enough."""

from __future__ import annotations

import codecs
from typing import BinaryIO

from shoal.errors import InputError

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
    name : str
        What to call the stream in messages.
    """

    def __init__(self, stream: BinaryIO, encoding: str, name: str = "input") -> None:
        # A stream that is followed has no read.
        self._read = stream.read1 if hasattr(stream, "read1") else stream.read
        self._encoding, self._name = encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)(_BROKEN)
        self._is_over = False

    def read1(self, size: int) -> bytes:
        """Some bytes, at least one, as soon as there are any; none at the end.

        Raises
        ------
        InputError
            There is no byte order mark where the encoding needs one to say which byte comes first.
        """
        text = ""
        while not (text or self._is_over):
            chunk = self._read(size)
            self._is_over = not chunk
            try:
                text = self._decoder.decode(chunk, final=self._is_over)
            except UnicodeError:
                raise InputError(
                    f"{self._name}, line 1: no byte order mark, which {self._encoding} needs; give csv.encoding "
                    "utf-16-le or utf-16-be"
                ) from None
        return text.encode("utf-8", "surrogateescape")
