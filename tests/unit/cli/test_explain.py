"""`shoal explain`: every code that a user meets has its text."""

from __future__ import annotations

import re

import pytest
from shoal import errors
from shoal.audit.findings import WEIGHTS
from shoal.cli.command_line import main
from shoal.cli.explain import CHECKS, ERRORS, EXIT_CODES, FINDINGS, REASONS
from shoal.formats.faults import DropReason, Reason
from shoal.kafka.client import no_descriptor
from support.house import ROOT

pytestmark = pytest.mark.unit


def test_every_code_is_explained() -> None:
    source = "".join(path.read_text() for path in (ROOT / "service" / "shoal" / "audit").glob("*.py"))
    assert set(re.findall(r'CheckCounter\(\s*"([a-z_]+)"', source)) <= set(CHECKS)
    assert set(re.findall(r'Finding\(\s*"([a-z_]+)"', source)) <= set(FINDINGS)
    assert set(WEIGHTS) <= set(FINDINGS)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ShoalError)]
    of_commands = {no_descriptor().code, "output_closed", "unexpected"}
    assert {kind.code for kind in kinds} - {"error"} | of_commands == set(ERRORS)
    assert {*Reason, *DropReason} == set(REASONS)
    assert {"0", "1", "2", "3"} <= set(EXIT_CODES)


def test_a_code_of_several_kinds_is_explained_in_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "suppressed", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "2 (exit code)",
        "suppressed (reason)",
        "suppressed (check of `shoal verify`)",
    ]


def test_an_unknown_code_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "undecodeable"]) == 2
    assert "did you mean undecodable?" in capsys.readouterr().err
    assert main(["explain", "undecodable", "nothing"]) == 2
    assert "CODE 2: no code has this name" in capsys.readouterr().err
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 83
