"""Values that must not be published, in all forms, and the service with all loggers at DEBUG."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Literal
from unittest.mock import patch
from urllib.parse import quote

LOUD = __file__
"""``python LOUD run ...`` is ``shoal run ...`` with every logger at DEBUG."""


def forms(canary: str | int) -> set[bytes]:
    """All spellings of a value that a log, a page, a header or a dump could show."""
    text = str(canary)
    raw = text.encode()
    found = {raw, raw.hex().encode(), text.encode("utf-16-le"), text.encode("utf-16-be"), repr(text)[1:-1].encode()}
    found |= {json.dumps(text)[1:-1].encode(), quote(text, safe="").encode(), escape(text).encode()}
    found |= {"".join(f"{mark}{ord(c):0{n}x}" for c in text).encode() for mark, n in (("\\u", 4), ("\\x", 2), ("%", 2))}
    found.add("".join(f"&#{ord(character)};" for character in text).encode())
    for pad in range(3):
        # Wherever it begins in what was encoded, these characters are the same: those of its whole groups.
        encoded = base64.b64encode(b"\0" * pad + raw)
        inner = encoded[-(-pad * 8 // 6) : (pad + len(raw)) * 8 // 6]
        found |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    if isinstance(canary, int):
        found |= {f"{canary:_}".encode(), f"{canary:,}".encode(), hex(canary).encode(), repr(float(canary)).encode()}
        width = (canary.bit_length() + 8) // 8
        found |= {canary.to_bytes(width, order, signed=True) for order in ("little", "big")}
    return found


def traces(canaries: Iterable[str | int], texts: Mapping[str, bytes]) -> list[str]:
    """Where canaries are found: name of the text and form, never more than one of each."""
    sought = {form for canary in canaries for form in forms(canary)}
    return [f"{name}: {form!r}" for name, text in texts.items() for form in sought if form in text]


@contextmanager
def every_logger_at_debug() -> Iterator[None]:
    """Make commands that run in this process set every logger to DEBUG."""
    from shoal import observability
    from shoal.observability import set_up_logs

    def set_up_loudly(style: Literal["json", "text"], _: str) -> None:
        set_up_logs(style)
        for name in (None, "aiokafka", "aiohttp", "asyncio", "kafka"):
            logging.getLogger(name).setLevel(logging.DEBUG)

    with patch.object(observability, "set_up_logs", set_up_loudly):
        yield


def main_loudly() -> int:
    """Run a command of the process's arguments with every logger at DEBUG."""
    from shoal.cli import main

    with every_logger_at_debug():
        return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main_loudly())
