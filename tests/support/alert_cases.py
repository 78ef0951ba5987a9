"""Series of workers, minute by minute, for the unit tests of the alert rules by promtool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from support.tools import run_tool

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"

Series = dict[str, str]
Firing = tuple[str, str]
"""Name of an alert, and the group it is about; an empty text if it is about none."""


@dataclass(frozen=True)
class Case:
    """Series, one sample a minute in promtool's notation; which alerts fire when, and what the last shows."""

    series: Series
    firing: Mapping[int, str]
    shown: tuple[Mapping[str, str], str] | None = None


def quiet(series: Series, minutes: Iterable[int]) -> Case:
    """Return a case in which no alert fires."""
    return Case(series, dict.fromkeys(minutes, ""))


def said(severity: str, summary: str, group: str = "visits", **labels: str) -> tuple[Mapping[str, str], str]:
    """Return the labels and the summary of an alert."""
    return ({"group": group} if group else {}) | labels | {"severity": severity}, summary


def fired_by(text: str) -> set[Firing]:
    """Return the alerts of a minute of a case."""
    parts = [one.partition("@") for one in text.split()]
    return {(name, group if at else "visits") for name, at, group in parts}


def worker(
    instance: str = "w1:9464", group: str = "visits", job: str = "shoal", minutes: int = 240, **changed: str | None
) -> Series:
    """Return the series of a healthy worker with one partition, started long ago.

    ``changed`` gives other samples by the short name below; None takes the series away.
    """
    target = f'job="{job}",instance="{instance}"'
    process = f'{target},group="{group}"'
    partition = f'{process},topic="in",partition="0"'
    steady: dict[str, tuple[str, str | None]] = {
        "up": (f"up{{{target}}}", f"1x{minutes}"),
        "started": (f"process_start_time_seconds{{{process}}}", f"-900000x{minutes}"),
        "ready": (f"shoal_ready{{{process}}}", f"1x{minutes}"),
        "build": (f'shoal_build_info{{{process},version="1",python="3"}}', f"1x{minutes}"),
        "policy": (f'shoal_policy_info{{{process},fingerprint="a"}}', f"1x{minutes}"),
        "delta": (f"shoal_delta_records{{{process}}}", f"100x{minutes}"),
        "clock": (f"shoal_clock_timestamp_seconds{{{process}}}", f"0+60x{minutes}"),
        "ca": (f'shoal_certificate_expiry_timestamp_seconds{{{process},certificate="ca"}}', f"9000000x{minutes}"),
        "client": (f'shoal_certificate_expiry_timestamp_seconds{{{process},certificate="client"}}', None),
        "protects": (f"shoal_protects_values{{{process}}}", None),
        "loss": (f'shoal_attribute_loss{{{process},attribute="shop"}}', f"0.4x{minutes}"),
        "other_loss": (f'shoal_attribute_loss{{{process},attribute="age"}}', f"0.2x{minutes}"),
        "committed": (f'shoal_transactions_total{{{process},outcome="committed"}}', f"5+100x{minutes}"),
        "aborted": (f'shoal_transactions_total{{{process},outcome="aborted"}}', f"0x{minutes}"),
        "read": (_records(partition, "in", ""), f"700+600x{minutes}"),
        "released": (_records(partition, "released", ""), f"600+600x{minutes}"),
        "suppressed": (_records(partition, "suppressed", "suppressed"), f"0x{minutes}"),
        "quarantined": (_records(partition, "quarantined", "invalid"), f"0x{minutes}"),
        "dropped": (_records(partition, "dropped", "deletes"), f"0x{minutes}"),
        "held": (f"shoal_records_held{{{partition}}}", f"100x{minutes}"),
        "oldest": (f"shoal_oldest_held_seconds{{{partition}}}", f"10x{minutes}"),
        "lag": (f"shoal_consumer_lag_records{{{partition}}}", f"50x{minutes}"),
        "early": (f"shoal_clusters_early_total{{{partition}}}", f"0x{minutes}"),
        "skipped": (f"shoal_records_skipped_total{{{partition}}}", f"0x{minutes}"),
        "lost": (f"shoal_published_offsets_lost_total{{{partition}}}", f"0x{minutes}"),
        "ahead": (f"shoal_records_dated_ahead_total{{{partition}}}", f"0x{minutes}"),
        "changes": (f"shoal_policy_changes_total{{{partition}}}", f"0x{minutes}"),
    }
    assert changed.keys() <= steady.keys(), "no such series"
    found = {series: changed.get(name, samples) for name, (series, samples) in steady.items()}
    return {series: samples for series, samples in found.items() if samples is not None}


def new_worker(at: int, instance: str = "w1:9464", **first: int) -> Series:
    """Return the series of a worker that started at this minute and had counted this before its first scrape."""
    changed: dict[str, Any] = {name: f"{count}x200" for name, count in first.items()}
    changed |= {"started": f"{60 * at - 5}x200", "clock": f"{60 * at}+60x200"}
    return {series: f"_x{at} {samples}" for series, samples in worker(instance, **changed).items()}


def restarted_worker(at: int, **counts: int) -> Series:
    """Return the series of a worker that was restarted at this minute and has the counts again that it had before."""
    changed: dict[str, Any] = {name: f"{count}x240" for name, count in counts.items()}
    return worker(**changed, started=f"-900000x{at - 1} {60 * at - 5}x200")


def stopped_worker(
    minute: int, instance: str = "w1:9464", group: str = "visits", minutes_down: int = 200, **changed: str
) -> Series:
    """Return the series of a worker that is gone from this minute on: each ends, and its target is down."""
    found = worker(instance, group, minutes=minute - 1, **changed)
    up = f'up{{job="shoal",instance="{instance}"}}'
    down = f"1x{minute - 1} 0x{minutes_down}"
    return {series: f"{samples} stale" for series, samples in found.items()} | {up: down}


def _records(partition: str, outcome: str, reason: str) -> str:
    return f'shoal_records_total{{{partition},outcome="{outcome}",reason="{reason}"}}'


def promtool_test(case: Case, annotations: Mapping[str, Mapping[str, str]]) -> str:
    """Return the test of a case as promtool reads it; JSON is YAML.

    ``annotations`` are those of each alert in the rules.
    """
    expressions = [
        {
            "expr": 'count by (alertname, group) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": _labels(alertname=name, group=group), "value": 1} for name, group in sorted(fired_by(firing))
            ],
        }
        for minute, firing in case.firing.items()
    ]
    alerts = []
    if case.shown is not None:
        minute = max(case.firing)
        ((name, _),) = fired_by(case.firing[minute])
        labels, summary = case.shown
        shown = {"exp_labels": labels, "exp_annotations": {**annotations[name], "summary": summary}}
        alerts.append({"alertname": name, "eval_time": f"{minute}m", "exp_alerts": [shown]})
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "promql_expr_test": expressions,
        "alert_rule_test": alerts,
    }
    return json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]})


def rules() -> list[Any]:
    """Return the rules, those that record and the alerts."""
    groups = YAML(typ="safe").load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def assert_fires(case: Case, folder: Path) -> None:
    """Let promtool evaluate a case; the folder takes its file."""
    annotations = {rule["alert"]: rule["annotations"] for rule in rules() if "alert" in rule}
    path = folder / "test.yml"
    path.write_text(promtool_test(case, annotations), encoding="utf-8")
    done = run_tool("promtool", "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items() if value) + "}"
