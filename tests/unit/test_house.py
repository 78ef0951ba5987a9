"""The structure of the package stays what a reader can find the way in."""

from __future__ import annotations

import pytest
from support.house import files_on_the_way, floors, lines_and_files

pytestmark = pytest.mark.unit


def test_twenty_messages_pass_few_files_from_process_to_the_commit() -> None:
    way = files_on_the_way()
    assert {"kafka/task.py", "kafka/transactions.py", "streams/pipeline.py", "formats/json.py"} <= set(way)
    assert len(way) <= 35


def test_packages_have_few_files_and_few_floors() -> None:
    assert sum(files for _, files in lines_and_files().values()) <= 151
    assert max(floors().values()) <= 8
