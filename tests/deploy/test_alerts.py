"""Each alert fires when it is true and only then; promtool evaluates the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.alert_cases import (
    RULES,
    Case,
    assert_fires,
    new_worker,
    restarted_worker,
    rules,
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
DOWN = {("ShoalDown", "visits"), ("ShoalNotReady", "visits")}

CASES = {
    # ------------------------------------------------------------ several pipelines
    "two healthy pipelines in one job": Case(
        worker("w1:9464", "visits") | worker("w2:9464", "visits") | with_policy(worker("w3:9464", "rides"), "b"),
        {minute: set() for minute in (0, 1, 5, 30, 90, 239)},
    ),
    "one pipeline is not ready beside one that is": Case(
        worker("w1:9464", "visits") | worker("w2:9464", "rides", ready="1x60 0x200"),
        {60: set(), 62: set(), 63: {("ShoalNotReady", "rides")}},
        ({"group": "rides", "severity": "critical"}, "no worker of group rides is ready"),
    ),
    "one pipeline is down beside one that is ready": Case(
        worker("w1:9464", "visits") | stopped_worker(61, "w2:9464", "rides"),
        {60: set(), 62: set(), 63: {("ShoalDown", "rides"), ("ShoalNotReady", "rides")}},
    ),
    "a pipeline is still down after more than a day": Case(
        worker("w1:9464", "visits", minutes=1600) | stopped_worker(31, "w2:9464", "rides", minutes_down=1600),
        {
            230: {("ShoalDown", "rides"), ("ShoalNotReady", "rides")},
            1600: {("ShoalDown", "rides"), ("ShoalNotReady", "rides")},
        },
    ),
    "a pipeline never came up beside one that is ready": Case(
        worker() | {'up{job="shoal",instance="w2:9464"}': "0x240"},
        {9: set(), 11: {("ShoalNeverScraped", "")}, 200: {("ShoalNeverScraped", "")}},
        (
            {"job": "shoal", "instance": "w2:9464", "severity": "warning"},
            "w2:9464 of job shoal is not scraped and was not within a week; the other targets are workers",
        ),
    ),
    "a target never came up in a job that has other targets than workers": Case(
        worker() | {'up{job="shoal",instance="w2:9464"}': "0x240", 'up{job="shoal",instance="web:80"}': "1x240"},
        {11: set(), 200: set()},
    ),
    "a worker starts eight minutes after its target is known": Case(
        worker("w1:9464") | new_worker(8, "w2:9464") | {'up{job="shoal",instance="w2:9464"}': "0x7 1x230"},
        {7: set(), 11: set(), 30: set()},
    ),
    "the name of the job is another": Case(
        worker(job="pipelines", ready="0x240", oldest="1000x240"),
        {20: {(name, "visits") for name in ("ShoalNotReady", "ShoalWorkerNotReady", "ShoalHeldLong")}},
    ),
    # ------------------------------------------------------------ ShoalDown, ShoalNotReady, ShoalNotScraped
    "a worker is down beside another of its group": Case(
        worker("w1:9464") | stopped_worker(61, "w2:9464"),
        {62: set(), 63: {("ShoalDown", "visits")}},
        (
            {"group": "visits", "job": "shoal", "instance": "w2:9464", "severity": "warning"},
            "w2:9464 of group visits is not scraped",
        ),
    ),
    "a worker ends every ten minutes and is back within one": Case(
        worker("w1:9464") | worker("w2:9464", started="-900000x59 3600x9 4200x9 4800x160"),
        {60: set(), 79: set(), 81: {("ShoalRestarting", "visits")}, 118: {("ShoalRestarting", "visits")}},
        (
            {"group": "visits", "job": "shoal", "instance": "w2:9464", "severity": "warning"},
            "w2:9464 of group visits was started 3 times within an hour",
        ),
    ),
    "a worker is started twice within an hour": Case(
        worker(started="-900000x59 3600x29 5400x160"), {61: set(), 91: set(), 200: set()}
    ),
    "a target that is no worker starts again and again": Case(
        worker() | {'process_start_time_seconds{job="node",instance="n1:9100"}': "0+60x240"}, {60: set(), 200: set()}
    ),
    "a target that is no worker is down": Case(
        worker() | {OTHER_TARGET: "1x10 0x200"}, {minute: set() for minute in (20, 200)}
    ),
    "a worker is not ready beside another of its group": Case(
        worker("w1:9464") | worker("w2:9464", ready="1x59 0x180"),
        {60: set(), 69: set(), 71: {("ShoalWorkerNotReady", "visits")}, 200: {("ShoalWorkerNotReady", "visits")}},
        (
            {"group": "visits", "job": "shoal", "instance": "w2:9464", "severity": "warning"},
            "w2:9464 of group visits is scraped and has not been ready for ten minutes",
        ),
    ),
    "a worker compiles for two minutes beside another of its group": Case(
        worker("w1:9464") | worker("w2:9464", ready="1x59 0x2 1x180"), {61: set(), 71: set(), 200: set()}
    ),
    "no broker answers for one partition of a worker": Case(
        worker("w1:9464")
        | worker("w2:9464")
        | {
            'shoal_partitions_unreachable{job="shoal",instance="w1:9464",group="visits"}': "0x240",
            'shoal_partitions_unreachable{job="shoal",instance="w2:9464",group="visits"}': "0x59 1x180",
        },
        {64: set(), 66: {("ShoalPartitionsUnreachable", "visits")}, 200: {("ShoalPartitionsUnreachable", "visits")}},
        (
            {"group": "visits", "job": "shoal", "instance": "w2:9464", "severity": "warning"},
            "1 partitions of w2:9464 of group visits have no leader that answers",
        ),
    ),
    "a leader moves to another broker": Case(
        worker() | {'shoal_partitions_unreachable{job="shoal",instance="w1:9464",group="visits"}': "0x59 3x2 0x180"},
        {61: set(), 66: set(), 200: set()},
    ),
    "no worker is scraped": Case(
        {OTHER_TARGET: "1x240"},
        {4: set(), 6: {("ShoalNotScraped", "")}},
        ({"severity": "critical"}, "Prometheus scrapes no worker"),
    ),
    # ------------------------------------------------------------ ShoalAttributeLost
    "an attribute loses nearly all": Case(
        worker("w1:9464", loss="0.5x59 0.97x180") | worker("w2:9464", loss="0.5x59 0.95x180"),
        {60: set(), 125: set(), 131: {("ShoalAttributeLost", "visits")}, 200: {("ShoalAttributeLost", "visits")}},
        (
            {"group": "visits", "attribute": "shop", "severity": "warning"},
            "shop loses 96% in the output of group visits",
        ),
    ),
    "an attribute loses nearly all for half an hour": Case(
        worker(loss="0.5x59 0.97x29 0.5x150"), {70: set(), 100: set(), 150: set(), 200: set()}
    ),
    "a single step in which an attribute loses more than all": Case(
        worker(loss="0.3x59 1.4 0.3x180"), {60: set(), 130: set()}
    ),
    "an attribute loses nearly all in all steps but one": Case(
        worker(loss="0.97x100 0.7 0.97x139"),
        {59: set(), 99: {("ShoalAttributeLost", "visits")}, 200: {("ShoalAttributeLost", "visits")}},
    ),
    "an attribute keeps more than a tenth": Case(worker(loss="0.89x240"), {70: set(), 200: set()}),
    # ------------------------------------------------------------ ShoalNotReading, ShoalLagGrowing
    "records wait and none is read": Case(
        worker(read="700+600x30 18700x200", released="600+600x30 18600x200"),
        {39: set(), 45: {("ShoalNotReading", "visits")}},
        (
            {"group": "visits", **PARTITION, "severity": "critical"},
            "in-0 of group visits has records that are not read",
        ),
    ),
    "an input is quiet": Case(worker(read="700x240", released="600x240", lag="0x240"), {45: set(), 200: set()}),
    "only deletes arrive": Case(worker(read="700x240", released="600x240", dropped="0+9x240"), {45: set(), 200: set()}),
    "a partition falls behind": Case(
        worker(lag="0+1000x240"),
        {25: set(), 27: {("ShoalLagGrowing", "visits")}},
        (
            {"group": "visits", **PARTITION, "severity": "warning"},
            "in-0 of group visits has a lag of 27000 records, and it grows",
        ),
    ),
    "a large lag shrinks": Case(worker(lag="200000-500x240"), {45: set(), 200: set()}),
    # ------------------------------------------------------------ ShoalNothingReleased, ShoalHeldLong
    "records are read and none is released": Case(
        worker(released="600x240"),
        {3: set(), 40: {("ShoalNothingReleased", "visits")}},
        (
            {"group": "visits", **PARTITION, "severity": "critical"},
            "in-0 of group visits took more than delta records and released none",
        ),
    ),
    "delta records arrive at once on a quiet input": Case(  # `increase` makes 103 of them
        worker(read="700x59 800x180", released="600x240", lag="0x240"), {61: set(), 75: set(), 88: set(), 200: set()}
    ),
    "a worker is killed twice and reads the waiting records again": Case(
        worker(read="0x59 90x7 0 90x7 0 90x160", released="0x240", lag="0x240"), {68: set(), 80: set(), 200: set()}
    ),
    "the waiting records of a worker are read again by another": Case(
        stopped_worker(66, read="0x59 90x6", released="0x66", lag="0x66")
        | new_worker(66, "w2:9464", read=0, released=0, lag=0)
        | {READ_BY_SECOND: "_x66 0 90x160"},
        {67: set(), 80: {("ShoalDown", "visits")}},
    ),
    "records are read and none is released, also after a restart": Case(
        worker(read="0x59 0+20x20 0+20x160", released="0x240"),
        {67: set(), 75: {("ShoalNothingReleased", "visits")}, 120: {("ShoalNothingReleased", "visits")}},
    ),
    "a slow input fills delta": Case(worker(read="0+3x240", released="0x240", lag="0x240"), {45: set(), 200: set()}),
    "records are held on a quiet input": Case(
        worker(read="700x240", released="600x240", lag="0x240", oldest="10x9 500x9 1000x220"),
        {34: set(), 36: {("ShoalHeldLong", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "a record of in is held by group visits for 16m 40s or longer",
        ),
    ),
    "records are held for less than the threshold": Case(worker(oldest="500x240"), {45: set(), 200: set()}),
    # ------------------------------------------------------------ ShoalSuppressing, with and without protected values
    "half of the first commit is suppressed before the first scrape": Case(
        new_worker(90, **FIRST_COMMIT),
        {89: {("ShoalNotScraped", "")}, 94: set(), 96: {("ShoalSuppressing", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "50% of the records of in are suppressed by group visits",
        ),
    ),
    "half of the first commit is suppressed where a partition was assigned later": Case(
        worker(suppressed="_x60 5000x180", released="_x60 5000x180", read="_x60 10100x180", lag="0x240"),
        {59: set(), 67: {("ShoalSuppressing", "visits")}, 110: {("ShoalSuppressing", "visits")}, 130: set()},
    ),
    "half of the first commit is suppressed by a worker that was restarted": Case(
        restarted_worker(100, **FIRST_COMMIT),
        {99: set(), 107: {("ShoalSuppressing", "visits")}},
    ),
    "one record in a hundred and twenty is suppressed": Case(worker(suppressed="0+5x240"), {45: set(), 200: set()}),
    "one record in ten is suppressed under protected values": Case(
        worker(protects="1x240", suppressed="0+60x240", released="0+540x240"),
        {1: set(), 70: {("ShoalSuppressingForDiversity", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "10% of the records of in are suppressed by group visits, which protects values",
        ),
    ),
    "one record in thirty is suppressed by a pipeline with protected values and by one without": Case(
        worker(protects="1x240", suppressed="0+20x240", released="0+580x240")
        | worker("w2:9464", "rides", suppressed="0+20x240", released="0+580x240"),
        {70: {("ShoalSuppressing", "rides")}},
    ),
    "a pipeline with protected values stops, in which one record in thirty was suppressed": Case(
        worker("w1:9464", "rides")
        | stopped_worker(100, "w2:9464", protects="1x99", suppressed="0+20x99", released="0+580x99"),
        {99: set(), 110: DOWN, 157: DOWN, 170: DOWN},
    ),
    "nine records of sixty in an hour are suppressed": Case(
        worker(**QUIET, suppressed="0x60 9x180"), {70: set(), 100: set(), 200: set()}
    ),
    "ten records of sixty in an hour are suppressed": Case(
        worker(**QUIET, suppressed="0x60 10x180"), {65: set(), 100: {("ShoalSuppressing", "visits")}, 200: set()}
    ),
    "nine records of sixty in an hour are suppressed under protected values": Case(
        worker(**QUIET, protects="1x240", suppressed="0x60 9x180"), {70: set(), 100: set(), 200: set()}
    ),
    # ------------------------------------------------------------ ShoalQuarantining, ShoalAborting
    "nine records of sixty in an hour are quarantined": Case(
        worker(**QUIET, quarantined="0x60 9x180"), {70: set(), 100: set(), 200: set()}
    ),
    "one record in twenty is quarantined": Case(
        worker(quarantined="0+30x240", released="0+570x240"),
        {1: set(), 70: {("ShoalQuarantining", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "5% of the records of in do not fit the policy of group visits",
        ),
    ),
    "one record in two hundred is quarantined": Case(worker(quarantined="0+3x240"), {45: set(), 200: set()}),
    "one transaction in five is aborted": Case(
        worker(aborted="0+25x240"),
        {8: set(), 30: {("ShoalAborting", "visits")}},
        (
            {"group": "visits", "severity": "warning"},
            "20% of the transactions of group visits are aborted or of unknown outcome",
        ),
    ),
    "four transactions of fourteen are aborted in ten minutes, again and again": Case(
        worker(committed="5+1x240", aborted="0x59 " + "0+1x4 4x5 4+1x4 8x5 8+1x4 12x150"),
        {70: set(), 80: set(), 90: set()},
    ),
    "one transaction was aborted": Case(worker(aborted="0x99 1x140"), {101: set(), 105: set(), 115: set()}),
    # ------------------------------------------------------------ policies
    "workers of one group have different policies": Case(
        worker("w1:9464") | with_policy(worker("w2:9464"), "b"),
        {9: set(), 11: {("ShoalPoliciesDiffer", "visits")}},
        ({"group": "visits", "severity": "critical"}, "workers of group visits run 2 different policies"),
    ),
    "workers of different groups have different policies": Case(
        worker("w1:9464") | with_policy(worker("w2:9464", "rides"), "b"), {11: set(), 200: set()}
    ),
    "a worker starts under a changed policy": Case(
        new_worker(90, changes=1),
        {89: {("ShoalNotScraped", "")}, 91: {("ShoalPolicyChanged", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "partitions of in continue under another policy in group visits",
        ),
    ),
    "a worker is restarted under a policy that was changed again": Case(
        restarted_worker(100, changes=1), {99: set(), 101: {("ShoalPolicyChanged", "visits")}, 165: set()}
    ),
    "a policy was changed hours ago": Case(worker(changes="1x240"), {61: set(), 200: set()}),
    # ------------------------------------------------------------ ShoalSkipped
    "offsets were skipped at the start": Case(
        new_worker(90, skipped=37),
        {91: {("ShoalSkipped", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "critical"},
            "group visits skipped 37 offsets of in: their records are never published",
        ),
    ),
    "offsets of a partition that was assigned later were skipped": Case(
        worker(skipped="_x70 37x170"), {69: set(), 71: {("ShoalSkipped", "visits")}, 135: set()}
    ),
    "offsets were skipped hours ago": Case(worker(skipped="37x240"), {61: set(), 200: set()}),
    # ------------------------------------------------------------ ShoalOutputLost
    "brokers have lost published records of one pipeline": Case(
        worker("w1:9464", "visits", lost="0x60 37x180") | worker("w2:9464", "rides"),
        {60: set(), 62: {("ShoalOutputLost", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "critical"},
            "brokers have lost 37 published offsets of group visits, from the input in",
        ),
    ),
    "published records were lost when a worker opened the partition again": Case(
        worker(lost="_x70 37x170"), {69: set(), 71: {("ShoalOutputLost", "visits")}, 135: set()}
    ),
    "published records were lost before the first scrape after a restart": Case(
        restarted_worker(100, lost=5), {99: set(), 101: {("ShoalOutputLost", "visits")}, 165: set()}
    ),
    "published records were lost hours ago": Case(worker(lost="37x240"), {61: set(), 200: set()}),
    # ------------------------------------------------------------ ShoalReleasingEarly
    "clusters are released early": Case(
        worker(early="0x60 0+1x180"),
        {70: set(), 80: {("ShoalReleasingEarly", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "group visits releases clusters of in early so that its progress fits",
        ),
    ),
    "clusters were released early hours ago": Case(worker(early="7x240"), {61: set(), 200: set()}),
    # ------------------------------------------------------------ clocks
    "records are dated ahead": Case(
        worker(ahead="0x60 3x180"),
        {60: set(), 62: {("ShoalDatedAhead", "visits")}},
        (
            {"group": "visits", "topic": "in", "severity": "warning"},
            "records of in are dated more than an hour ahead of the clock of group visits",
        ),
    ),
    "records were dated ahead hours ago": Case(worker(ahead="3x240"), {61: set(), 200: set()}),
    "the clock of a worker is wrong": Case(
        worker(clock="100+60x240"),
        {4: set(), 6: {("ShoalClockWrong", "visits")}},
        (
            {"group": "visits", "job": "shoal", "instance": "w1:9464", "severity": "warning"},
            "the clock of w1:9464 differs by 1m 40s from that of Prometheus",
        ),
    ),
    "the clock of a worker is late by half a minute": Case(worker(clock="-30+60x240"), {10: set(), 200: set()}),
    # ------------------------------------------------------------ certificates
    "a certificate expires in two weeks": Case(
        worker(ca=f"{14 * DAY + HOUR}x240"),
        {119: set(), 122: {("ShoalCertificateExpires", "visits")}},
        (
            {"group": "visits", "certificate": "ca", "severity": "warning"},
            "the certificate ca of group visits expires in 13d 22h 58m 0s",
        ),
    ),
    "a certificate expires in a month": Case(worker(client=f"{31 * DAY}x240"), {10: set(), 200: set()}),
    "a certificate expires in less than a day": Case(
        worker(client=f"{DAY + 1800}x240"),
        {30: set(), 31: {("ShoalCertificateExpired", "visits")}},
        (
            {"group": "visits", "certificate": "client", "severity": "critical"},
            "the certificate client of group visits expires in less than a day or has expired",
        ),
    ),
    "a certificate expires in two days": Case(
        worker(client=f"{2 * DAY}x240"), {59: set(), 200: {("ShoalCertificateExpires", "visits")}}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_alerts_that_fire_are_those_that_are_true(name: str, tmp_path: Path) -> None:
    assert_fires(CASES[name], tmp_path)


def test_each_alert_fires_in_one_case_and_its_text_is_compared() -> None:
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    fired = {name for case in CASES.values() for firing in case.firing.values() for name, _ in firing}
    shown = {name for case in CASES.values() if case.shown for name, _ in case.firing[max(case.firing)]}
    assert fired == shown == alerts
    assert sum(not any(case.firing.values()) for case in CASES.values()) >= 15, "cases in which nothing fires"


def test_the_rules_are_valid() -> None:
    done = run_tool("promtool", "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
