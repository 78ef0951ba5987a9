"""The last line of `shoal pipe` and `shoal batch`: the next command, or what to change."""

from __future__ import annotations

from argparse import Namespace

import pytest
from shoal.cli.closing import print_report
from shoal.files import RunReport

pytestmark = pytest.mark.unit


def options(**more: object) -> Namespace:
    given = {
        "command": "pipe",
        "policy": "policy.yaml",
        "input": "in.csv",
        "output": "out.csv",
        "evidence": None,
        "quarantine": None,
        "summary": None,
        "format": None,
        "output_format": None,
        "follow": True,
        "log": "text",
    }
    return Namespace(**given | more)


def test_a_followed_run_without_evidence_has_no_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(options(), RunReport(9, 9, 0))
    assert capsys.readouterr().err == "shoal: 9 in, 9 out, 0 suppressed, 0 refused\n"


def test_a_followed_run_with_evidence_names_the_command_that_judges_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(options(evidence="evidence.jsonl"), RunReport(9, 9, 0))
    assert capsys.readouterr().err == (
        "shoal: 9 in, 9 out, 0 suppressed, 0 refused; next: shoal verify policy.yaml --original in.csv "
        "--released out.csv --evidence evidence.jsonl\n"
    )
