"""How a command ends that nobody expected to end so."""

from __future__ import annotations

import pytest
from shoal.cli import main

pytestmark = pytest.mark.unit


def test_an_unexpected_error_says_what_holds_for_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("canary")

    monkeypatch.setattr("shoal.cli.schema.execute", fail)
    assert main(["schema"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("shoal: unexpected RuntimeError")
    assert told.endswith(": outputs that are written as a whole were not changed\n")
    assert "canary" not in told
