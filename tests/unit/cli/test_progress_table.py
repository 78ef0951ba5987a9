"""What `shoal progress` prints on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shoal.cli.progress import table

NOW = datetime(2026, 7, 14, 12, 0, 0, tzinfo=UTC)


def test_a_terminal_gets_a_table_with_units() -> None:
    commit: dict[str, Any] = {"state": "ok", "policy": "this", "key": "this", "next_offset": 9, "clusters": 3}
    lines = [
        {"partition": 0, "watermark": 1234567, "held": 1200, "last_commit": "2026-07-14T11:58:59.000+00:00", **commit},
        {"partition": 1, "watermark": 5, "held": 0, "last_commit": "2026-07-14T12:00:01.000+00:00", **commit},
        {"partition": 2, "watermark": None, "held": None, "last_commit": None, "state": "no progress"},
    ]
    assert table(lines, NOW).splitlines() == [
        "partition  state        records held  committed offset  last commit    policy  key",
        "0          ok           1,200         1,234,567         1 minute ago   this    this",
        "1          ok           0             5                 0 seconds ago  this    this",
        "2          no progress  -             -                 -              -       -",
    ]


def test_the_table_names_the_input_and_the_copy_where_the_report_has_them() -> None:
    line: dict[str, Any] = {
        "topic": "north",
        "partition": 0,
        "watermark": 5,
        "held": 2,
        "last_commit": "2026-07-12T12:00:00.000+00:00",
    }
    header, row = table([line | {"state": "ok", "copy": "same", "copy_watermark": 5}], NOW).splitlines()
    assert header == "input  partition  state  records held  committed offset  last commit  copy"
    assert row == "north  0          ok     2             5                 2 days ago   same"
