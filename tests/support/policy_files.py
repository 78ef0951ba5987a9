"""Policy files for tests, and what loading them gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy

GOOD = """\
attributes:
  patient: {role: identifier, subject: true}
  age: {role: quasi_identifier, scale: numeric, bounds: [0, 110], integer: true}
  income: {role: quasi_identifier, bounds: [0, 1000000], resolution: 500, weight: 2.0}
  diagnosis: {role: confidential, type: string}
  ward: {role: other, type: string, publish_unchanged: true}
privacy: {k: 10}
stream: {delta: 100}
"""


def load(text: str, folder: Path, name: str = "policy.yaml") -> Policy:
    path = folder / name
    path.write_text(text)
    return Policy.load(path)


def faults(text: str, folder: Path, name: str = "policy.yaml") -> dict[str, tuple[int | None, str]]:
    with pytest.raises(PolicyError) as caught:
        load(text, folder, name)
    return {".".join(fault.path): (fault.line, fault.message) for fault in caught.value.faults}


SOURCES = """\
attributes:
  patient: {{role: identifier, subject: true, from: key}}
  age: {{role: quasi_identifier, bounds: [0, 110], {age}}}
  ward: {{role: other, publish_unchanged: true, {ward}}}
privacy: {{k: 3}}
"""


def with_sources(tmp_path: Path, age: str = "integer: true", ward: str = "type: any") -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(SOURCES.format(age=age, ward=ward))
    return path
