"""Each alert fires when it is true and only then; promtool evaluates the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.alert_cases import (
    RULES,
    Case,
    assert_fires,
    fired_by,
    new_worker,
    quiet,
    restarted_worker,
    rules,
    said,
    stopped_worker,
    worker,
)
from support.tools import run_tool

pytestmark = pytest.mark.deploy_tools

OTHER_TARGET = 'up{job="node",instance="n1:9100"}'
PARTITION = {"topic": "in", "partition": "0"}
HOUR, DAY = 3600, 86_400


def with_policy(series: dict[str, str], fingerprint: str) -> dict[str, str]:
    return {name.replace('fingerprint="a"', f'fingerprint="{fingerprint}"'): values for name, values in series.items()}


READ_BY_SECOND = (
    'shoal_records_total{job="shoal",instance="w2:9464",group="visits",topic="in",partition="0",outcome="in",reason=""}'
)
FIRST_COMMIT: dict[str, Any] = {"read": 10_100, "released": 5000, "suppressed": 5000, "lag": 0}

QUIET: dict[str, Any] = {"read": "0+1x240", "released": "0+1x240", "lag": "0x240"}
"""Sixty records in an hour."""

WAITING = 'shoal_partitions_waiting{{job="shoal",instance="w1:9464",group="visits",reason="{reason}"}}'

CASES = {
    # ------------------------------------------------------------ several pipelines
    "two healthy pipelines in one job": quiet(
        worker("w1:9464", "visits") | worker("w2:9464", "visits") | with_policy(worker("w3:9464", "rides"), "b"),
        [0, 1, 5, 30, 90, 239],
    ),
    "one pipeline is not ready beside one that is": Case(
        worker("w1:9464", "visits") | worker("w2:9464", "rides", ready="1x60 0x200"),
        {60: "", 62: "", 63: "ShoalNotReady@rides"},
        said("critical", "no worker of group rides is ready", group="rides"),
    ),
    "one pipeline is down beside one that is ready": Case(
        worker("w1:9464", "visits") | stopped_worker(61, "w2:9464", "rides"),
        {60: "", 62: "", 63: "ShoalDown@rides ShoalNotReady@rides"},
    ),
    "a pipeline never came up beside one that is ready": Case(
        worker() | {'up{job="shoal",instance="w2:9464"}': "0x240"},
        {9: "", 11: "ShoalNeverScraped@", 200: "ShoalNeverScraped@"},
        said(
            "warning",
            "w2:9464 of job shoal is not scraped and was not within a week; the other targets are workers",
            group="",
            job="shoal",
            instance="w2:9464",
        ),
    ),
    "a target never came up in a job that has other targets than workers": quiet(
        worker() | {'up{job="shoal",instance="w2:9464"}': "0x240", 'up{job="shoal",instance="web:80"}': "1x240"},
        [11, 200],
    ),
    "the name of the job is another": Case(
        worker(job="pipelines", ready="0x240", oldest="1000x240"),
        {20: "ShoalNotReady ShoalWorkerNotReady ShoalHeldLong"},
    ),
    # ------------------------------------------------------------ ShoalDown, ShoalNotReady, ShoalNotScraped
    "a worker is down beside another of its group": Case(
        worker("w1:9464") | stopped_worker(61, "w2:9464"),
        {62: "", 63: "ShoalDown"},
        said("warning", "w2:9464 of group visits is not scraped", job="shoal", instance="w2:9464"),
    ),
    "a worker ends every ten minutes and is back within one": Case(
        worker("w1:9464") | worker("w2:9464", started="-900000x59 3600x9 4200x9 4800x160"),
        {60: "", 79: "", 81: "ShoalRestarting", 118: "ShoalRestarting"},
        said("warning", "w2:9464 of group visits was started 3 times within an hour", job="shoal", instance="w2:9464"),
    ),
    "a target that is no worker starts again and again": quiet(
        worker() | {'process_start_time_seconds{job="node",instance="n1:9100"}': "0+60x240"}, [60, 200]
    ),
    "a worker is not ready beside another of its group": Case(
        worker("w1:9464") | worker("w2:9464", ready="1x59 0x180"),
        {60: "", 69: "", 71: "ShoalWorkerNotReady", 200: "ShoalWorkerNotReady"},
        said(
            "warning",
            "w2:9464 of group visits is scraped and has not been ready for ten minutes",
            job="shoal",
            instance="w2:9464",
        ),
    ),
    "no broker answers for one partition of a worker": Case(
        worker("w1:9464")
        | worker("w2:9464")
        | {
            'shoal_partitions_unreachable{job="shoal",instance="w1:9464",group="visits"}': "0x240",
            'shoal_partitions_unreachable{job="shoal",instance="w2:9464",group="visits"}': "0x59 1x180",
        },
        {64: "", 66: "ShoalPartitionsUnreachable", 200: "ShoalPartitionsUnreachable"},
        said(
            "warning",
            "1 partitions of w2:9464 of group visits have no leader that answers",
            job="shoal",
            instance="w2:9464",
        ),
    ),
    "partitions stay closed": Case(
        worker() | {'shoal_partitions_opening{job="shoal",instance="w1:9464",group="visits"}': "0x9 4 0x48 2x180"},
        {11: "", 59: "", 62: "ShoalPartitionsNotOpen", 200: "ShoalPartitionsNotOpen"},
        said(
            "warning",
            "2 partitions of w1:9464 of group visits have not been opened for a minute",
            job="shoal",
            instance="w1:9464",
        ),
    ),
    "a leader moves to another broker": quiet(
        worker() | {'shoal_partitions_unreachable{job="shoal",instance="w1:9464",group="visits"}': "0x59 3x2 0x180"},
        [61, 66, 200],
    ),
    "no worker is scraped": Case(
        {OTHER_TARGET: "1x240"},
        {4: "", 6: "ShoalNotScraped@"},
        said("critical", "Prometheus scrapes no worker", group=""),
    ),
    # ------------------------------------------------------------ ShoalAttributeLost
    "an attribute loses nearly all": Case(
        worker("w1:9464", loss="0.5x59 0.97x180") | worker("w2:9464", loss="0.5x59 0.95x180"),
        {60: "", 125: "", 131: "ShoalAttributeLost", 200: "ShoalAttributeLost"},
        said("warning", "shop loses 96% in the output of group visits", attribute="shop"),
    ),
    "a single step in which an attribute loses more than all": quiet(worker(loss="0.3x59 1.4 0.3x180"), [60, 130]),
    "an attribute loses nearly all in all steps but one": Case(
        worker(loss="0.97x100 0.7 0.97x139"), {59: "", 99: "ShoalAttributeLost", 200: "ShoalAttributeLost"}
    ),
    "an attribute keeps more than a tenth": quiet(worker(loss="0.89x240"), [70, 200]),
    # ------------------------------------------------------------ ShoalNotReading, ShoalLagGrowing
    "records wait and none is read": Case(
        worker(read="700+600x30 18700x200", released="600+600x30 18600x200"),
        {39: "", 45: "ShoalNotReading"},
        said("critical", "in-0 of group visits has records that are not read", **PARTITION),
    ),
    "an input is quiet": quiet(worker(read="700x240", released="600x240", lag="0x240"), [45, 200]),
    "a partition falls behind": Case(
        worker(lag="0+1000x240"),
        {25: "", 27: "ShoalLagGrowing"},
        said("warning", "in-0 of group visits has a lag of 27000 records, and it grows", **PARTITION),
    ),
    "a large lag shrinks": quiet(worker(lag="200000-500x240"), [45, 200]),
    # ------------------------------------------------------------ ShoalNothingReleased, ShoalHeldLong
    "records are read and none is released": Case(
        worker(released="600x240"),
        {3: "", 40: "ShoalNothingReleased"},
        said("critical", "in-0 of group visits took more than delta records and released none", **PARTITION),
    ),
    # `increase` makes 103 of them.
    "delta records arrive at once on a quiet input": quiet(
        worker(read="700x59 800x180", released="600x240", lag="0x240"), [61, 75, 88, 200]
    ),
    "the waiting records of a worker are read again by another": Case(
        stopped_worker(66, read="0x59 90x6", released="0x66", lag="0x66")
        | new_worker(66, "w2:9464", read=0, released=0, lag=0)
        | {READ_BY_SECOND: "_x66 0 90x160"},
        {67: "", 80: "ShoalDown"},
    ),
    "records are read and none is released, also after a restart": Case(
        worker(read="0x59 0+20x20 0+20x160", released="0x240"),
        {67: "", 75: "ShoalNothingReleased", 120: "ShoalNothingReleased"},
    ),
    "records are held on a quiet input": Case(
        worker(read="700x240", released="600x240", lag="0x240", oldest="10x9 500x9 1000x220"),
        {34: "", 36: "ShoalHeldLong"},
        said("warning", "a record of in is held by group visits for 16m 40s or longer", topic="in"),
    ),
    "records are held for less than the threshold": quiet(worker(oldest="500x240"), [45, 200]),
    # ------------------------------------------------------------ ShoalSuppressing, with and without protected values
    "half of the first commit is suppressed before the first scrape": Case(
        new_worker(90, **FIRST_COMMIT),
        {89: "ShoalNotScraped@", 94: "", 96: "ShoalSuppressing"},
        said("warning", "50% of the records of in are suppressed by group visits", topic="in"),
    ),
    "half of the first commit is suppressed where a partition was assigned later": Case(
        worker(suppressed="_x60 5000x180", released="_x60 5000x180", read="_x60 10100x180", lag="0x240"),
        {59: "", 67: "ShoalSuppressing", 110: "ShoalSuppressing", 130: ""},
    ),
    "half of the first commit is suppressed by a worker that was restarted": Case(
        restarted_worker(100, **FIRST_COMMIT), {99: "", 107: "ShoalSuppressing"}
    ),
    "one record in ten is suppressed under protected values": Case(
        worker(protects="1x240", suppressed="0+60x240", released="0+540x240"),
        {1: "", 70: "ShoalSuppressingForDiversity"},
        said("warning", "10% of the records of in are suppressed by group visits, which protects values", topic="in"),
    ),
    "one record in thirty is suppressed by a pipeline with protected values and by one without": Case(
        worker(protects="1x240", suppressed="0+20x240", released="0+580x240")
        | worker("w2:9464", "rides", suppressed="0+20x240", released="0+580x240"),
        {70: "ShoalSuppressing@rides"},
    ),
    "nine records of sixty in an hour are suppressed": quiet(worker(**QUIET, suppressed="0x60 9x180"), [70, 100, 200]),
    "ten records of sixty in an hour are suppressed": Case(
        worker(**QUIET, suppressed="0x60 10x180"), {65: "", 100: "ShoalSuppressing", 200: ""}
    ),
    # ------------------------------------------------------------ ShoalQuarantining, ShoalAborting
    "nine records of sixty in an hour are quarantined": quiet(
        worker(**QUIET, quarantined="0x60 9x180"), [70, 100, 200]
    ),
    "one record in twenty is quarantined": Case(
        worker(quarantined="0+30x240", released="0+570x240"),
        {1: "", 70: "ShoalQuarantining"},
        said("warning", "5% of the records of in do not fit the policy of group visits", topic="in"),
    ),
    "one record in two hundred is quarantined": quiet(worker(quarantined="0+3x240"), [45, 200]),
    "one transaction in five is aborted": Case(
        worker(aborted="0+25x240"),
        {8: "", 30: "ShoalAborting"},
        said("warning", "20% of the transactions of group visits are aborted or of unknown outcome"),
    ),
    "four transactions of fourteen are aborted in ten minutes, again and again": quiet(
        worker(committed="5+1x240", aborted="0x59 " + "0+1x4 4x5 4+1x4 8x5 8+1x4 12x150"), [70, 80, 90]
    ),
    # ------------------------------------------------------------ policies
    "workers of one group have different policies": Case(
        worker("w1:9464") | with_policy(worker("w2:9464"), "b"),
        {9: "", 11: "ShoalPoliciesDiffer"},
        said("critical", "workers of group visits run 2 different policies"),
    ),
    "a worker starts under a changed policy": Case(
        new_worker(90, changes=1),
        {89: "ShoalNotScraped@", 91: "ShoalPolicyChanged"},
        said("warning", "partitions of in continue under another policy in group visits", topic="in"),
    ),
    "a worker is restarted under a policy that was changed again": Case(
        restarted_worker(100, changes=1), {99: "", 101: "ShoalPolicyChanged", 165: ""}
    ),
    # ------------------------------------------------------------ ShoalSkipped
    "offsets were skipped at the start": Case(
        new_worker(90, skipped=37),
        {91: "ShoalSkipped"},
        said("critical", "group visits skipped 37 offsets of in: their records are never published", topic="in"),
    ),
    "offsets of a partition that was assigned later were skipped": Case(
        worker(skipped="_x70 37x170"), {69: "", 71: "ShoalSkipped", 135: ""}
    ),
    # ------------------------------------------------------------ ShoalOutputLost
    "brokers have lost published records of one pipeline": Case(
        worker("w1:9464", "visits", lost="0x60 37x180") | worker("w2:9464", "rides"),
        {60: "", 62: "ShoalOutputLost"},
        said("critical", "brokers have lost 37 published offsets of group visits, from the input in", topic="in"),
    ),
    "published records were lost hours ago": quiet(worker(lost="37x240"), [61, 200]),
    # ------------------------------------------------------------ ShoalReleasingEarly
    "clusters are released early": Case(
        worker(early="0x60 0+1x180"),
        {70: "", 80: "ShoalReleasingEarly"},
        said("warning", "group visits releases clusters of in early", topic="in"),
    ),
    # ------------------------------------------------------------ clocks
    "records are dated ahead": Case(
        worker(ahead="0x60 3x180"),
        {60: "", 62: "ShoalDatedAhead"},
        said("warning", "records of in are dated more than an hour ahead of the clock of group visits", topic="in"),
    ),
    "records wait for the clock of a worker": Case(
        worker() | {WAITING.format(reason="clock"): "0x59 2x180", WAITING.format(reason="delta"): "3x240"},
        {60: "", 62: "ShoalClockBehind"},
        said(
            "critical",
            "2 partitions of w1:9464 of group visits wait: its clock is behind that of the brokers",
            job="shoal",
            instance="w1:9464",
        ),
    ),
    "the clock of a worker is wrong": Case(
        worker(clock="100+60x240"),
        {4: "", 6: "ShoalClockWrong"},
        said(
            "warning", "the clock of w1:9464 differs by 1m 40s from that of Prometheus", job="shoal", instance="w1:9464"
        ),
    ),
    "the clock of a worker is late by half a minute": quiet(worker(clock="-30+60x240"), [10, 200]),
    # ------------------------------------------------------------ certificates
    "a certificate expires in two weeks": Case(
        worker(ca=f"{14 * DAY + HOUR}x240"),
        {119: "", 122: "ShoalCertificateExpires"},
        said("warning", "the certificate ca of group visits expires in 13d 22h 58m 0s", certificate="ca"),
    ),
    "a certificate expires in less than a day": Case(
        worker(client=f"{DAY + 1800}x240"),
        {30: "", 31: "ShoalCertificateExpired"},
        said(
            "critical",
            "the certificate client of group visits expires in less than a day or has expired",
            certificate="client",
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_alerts_that_fire_are_those_that_are_true(name: str, tmp_path: Path) -> None:
    assert_fires(CASES[name], tmp_path)


def test_each_alert_fires_in_one_case_and_its_text_is_compared() -> None:
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    fired = {name for case in CASES.values() for text in case.firing.values() for name, _ in fired_by(text)}
    shown = {name for case in CASES.values() if case.shown for name, _ in fired_by(case.firing[max(case.firing)])}
    assert fired == shown == alerts
    assert sum(not any(case.firing.values()) for case in CASES.values()) >= 15, "cases in which nothing fires"


def test_the_rules_are_valid() -> None:
    done = run_tool("promtool", "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
