"""The last line of `shoal pipe` and `shoal batch`: the loss, and the next command or what to change."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest
from shoal.cli.options import print_report
from shoal.files import LossReport, RunReport
from shoal.observability import set_up_logs
from shoal.policy import Scale
from support.scales import attribute, policy_with

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


POLICY = policy_with(
    attribute("age", Scale.NUMERIC), attribute("sh\x1bop", Scale.NOMINAL), attribute("at", Scale.TIME), delta=200
)
WITHOUT_LOSS = RunReport(9, 9, 0, LossReport(POLICY, {}, {}))


def report_of(age: float, shop: float, information_loss: float) -> RunReport:
    losses = LossReport(POLICY, {"age": age, "sh\x1bop": shop, "at": None}, {"sh\x1bop": 400})
    return RunReport(9, 8, 1, losses, information_loss=information_loss)


def test_a_followed_run_without_evidence_has_no_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(options(), WITHOUT_LOSS)
    assert capsys.readouterr().err == "shoal: 9 in, 9 out, 0 suppressed, 0 refused\n"


def test_a_followed_run_with_evidence_names_the_command_that_judges_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(options(evidence="evidence.jsonl"), WITHOUT_LOSS)
    assert capsys.readouterr().err == (
        "shoal: 9 in, 9 out, 0 suppressed, 0 refused; next: shoal verify policy.yaml --original in.csv "
        "--released out.csv --evidence evidence.jsonl\n"
    )


def test_the_line_names_the_mean_loss_and_the_worst_attribute(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(options(), report_of(0.1234, 0.6789, 12.34))
    assert capsys.readouterr().err == (
        "shoal: 9 in, 8 out, 1 suppressed, 0 refused, mean loss 40 %; worst sh\\u001bop 68 %: 400 values, delta 200 "
        "keeps few (docs/numbers.md)\n"
    )


def test_the_log_line_has_the_losses_with_three_digits(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json", "info")
    print_report(options(log="json"), report_of(0.12344, 0.67891, 12.345))
    print_report(options(log="json"), WITHOUT_LOSS)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert {name: first[name] for name in ("information_loss", "mean_loss", "worst")} == {
        "information_loss": 12.3,
        "mean_loss": 0.401,
        "worst": {"attribute": "sh\x1bop", "loss": 0.679},
    }
    assert "mean_loss" not in second
