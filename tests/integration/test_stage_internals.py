"""The parts of Faust and its client that the stage uses are unchanged; a new version of them fails here first."""

from __future__ import annotations

import ast
import re
from importlib.metadata import version
from pathlib import Path

import aiokafka
from faust.types import TP
from shoal.stage.faust_adapter import USED_FAUST_API

ROOT = Path(__file__).resolve().parents[2]


def test_the_stage_uses_no_private_name_outside_the_list() -> None:
    listed = set(re.findall(r"\w+", " ".join(USED_FAUST_API)))
    used = {
        node.attr
        for path in (ROOT / "service" / "shoal" / "stage").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) != "self"
    }
    assert used
    assert used <= listed


def test_the_versions_of_faust_and_its_client_are_pinned() -> None:
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"
    )
    for name in ("faust-streaming", "aiokafka", "mode-streaming"):
        assert version(name) == pinned[name], f"{name}: run the tests of this file before you pin another version"


def test_partitions_of_faust_and_of_the_client_are_equal() -> None:
    assert TP("topic", 3) == aiokafka.TopicPartition("topic", 3)
    assert hash(TP("topic", 3)) == hash(aiokafka.TopicPartition("topic", 3))
