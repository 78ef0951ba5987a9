"""What the recorded series count as the last hour; promtool evaluates them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.alert_cases import ROOT, RULES, new_worker, restarted_worker, worker
from support.tools import run_tool

pytestmark = pytest.mark.deploy_tools

DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "shoal.json"
OLD = "-900000"
"""Start of a process that runs for days already at minute 0 (s)."""


def unscraped(begin: int, length: int, count: int) -> dict[str, str]:
    """Return the series of an old worker without samples for some minutes; it had skipped offsets long before."""
    samples = f"x{begin - 1} stale _x{length - 1} "
    return worker(skipped=f"{count}{samples}{count}x240", started=f"{OLD}{samples}{OLD}x240")


CASES: dict[str, tuple[dict[str, str], dict[int, float | None]]] = {
    "a scrape failed": (unscraped(60, 1, 5), {30: 0, 61: 0, 119: 0, 120: 0, 121: 0, 180: 0}),
    "Prometheus was stopped for two hours": (unscraped(60, 120, 5), {182: 0, 239: 0, 241: 0, 300: 0}),
    "Prometheus began to scrape an old worker": (
        {series: f"_x30 {samples}" for series, samples in worker(skipped="5x240").items()},
        {32: 0, 89: 0, 91: 0, 150: 0},
    ),
    "a new worker had skipped offsets before its first scrape": (
        new_worker(90, skipped=5),
        {90: 5, 120: 5, 149: 5, 151: 0},
    ),
    "a worker that was gone soon had skipped offsets before its first scrape": (
        {series: samples.replace("x200", "x9 stale") for series, samples in new_worker(90, skipped=5).items()},
        {90: 5, 101: 5, 149: 5, 151: 0, 180: None},
    ),
    "a worker was restarted and skipped as many offsets as before": (
        restarted_worker(100, skipped=5),
        {99: 0, 101: 5, 159: 5, 165: 0},
    ),
    "a worker was restarted after it had skipped offsets": (
        worker(skipped="0x69 5x4 0x160", started=f"{OLD}x74 4495x160"),
        {69: 0, 71: 5, 74: 5, 76: 5, 129: 5, 131: 0},
    ),
}


def assert_values(series: dict[str, str], expected: list[tuple[str, int, float | None]], folder: Path) -> None:
    """Compare expressions at a minute with their value; None: they have none."""
    asked = [
        {
            "expr": expression,
            "eval_time": f"{minute}m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expression, minute, value in expected
    ]
    scraped = [{"series": name, "values": samples} for name, samples in series.items()]
    test = {"interval": "1m", "input_series": scraped, "promql_expr_test": asked}
    path = folder / "test.yml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    path.write_text(json.dumps(content), encoding="utf-8")
    done = run_tool("promtool", "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_an_event_counts_for_an_hour_and_no_longer(name: str, tmp_path: Path) -> None:
    series, expected = CASES[name]
    recorded = "round(sum(pipeline:shoal_records_skipped:increase1h))"  # increase extrapolates to a full hour
    assert_values(series, [(recorded, minute, value) for minute, value in expected.items()], tmp_path)


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Suppressed, last hour", {"": 0.5}),
        (
            "Events in an hour",
            {
                "offsets skipped": 37,
                "records dated ahead": 3,
                "clusters released early": 2,
                "starts under another policy": 1,
                "published offsets lost": 5,
            },
        ),
    ],
)
def test_the_dashboard_shows_what_a_worker_did_before_its_first_scrape(
    title: str, shown: dict[str, float], tmp_path: Path
) -> None:
    (panel,) = (one for one in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"] if one["title"] == title)
    queries = {
        target["legendFormat"]: target["expr"].replace("$group", ".*").replace("$topic", ".*")
        for target in panel["targets"]
    }
    assert queries.keys() == shown.keys()
    series = new_worker(
        90, read=10_100, released=5000, suppressed=5000, skipped=37, ahead=3, early=2, changes=1, lost=5
    )
    assert_values(series, [(queries[legend], 96, value) for legend, value in shown.items()], tmp_path)
