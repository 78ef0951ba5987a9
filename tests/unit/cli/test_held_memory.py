"""What `shoal check` says about memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from shoal.cli.check import held_memory

CAPPED = "is 180 MB; beyond stream.max_held_bytes, 67 MB, records are decided early. A worker can need 67 MB"


@pytest.mark.parametrize(("delta", "words"), [(200, CAPPED), (20, "is 18 MB. A worker can need 18 MB")])
def test_check_says_what_large_records_can_need(delta: int, words: str) -> None:
    stream: Any = SimpleNamespace(delta=delta, max_held_bytes=67_108_864)
    begin, end = (
        f"memory: delta {delta} x kafka.max_record_bytes 900,000",
        "for each of its partitions, beside some 300 MB",
    )
    assert held_memory(stream, 900_000) == f"{begin} {words} {end}"
