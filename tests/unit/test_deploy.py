"""What is deployed, checked without an engine to run it: image, compose, alerts, dashboard, local Kafka."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from shoal.observability import Metrics
from shoal.observability.metrics import ConfidentialMetrics
from shoal.policy import KafkaSection, Policy
from support.kafka_broker import LOCAL, load_local

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

METRICS = {
    *("shoal_records_total", "shoal_records_held", "shoal_clusters_released_total", "shoal_cluster_size"),
    *("shoal_cluster_subjects", "shoal_reordering_positions", "shoal_delay_positions", "shoal_delay_seconds"),
    *("shoal_sse_total", "shoal_sst_total", "shoal_attribute_loss", "shoal_position_weight"),
    *("shoal_transaction_seconds", "shoal_transactions_total", "shoal_consumer_lag_records", "shoal_policy_info"),
    *("shoal_ready", "shoal_protects_values", "shoal_cluster_values_min", "shoal_cluster_value_share_max"),
    *("shoal_cluster_distance_max", "shoal_confidential_sse_total", "shoal_confidential_sst_total"),
    *("shoal_oldest_held_seconds", "shoal_clusters_early_total", "shoal_records_skipped_total"),
    *("shoal_records_dated_ahead_total", "shoal_published_offsets_lost_total", "shoal_partitions_opening"),
    *("shoal_partitions_unreachable", "shoal_policy_changes_total", "shoal_delta_records"),
    *("shoal_partitions_waiting", "shoal_records_refused_total"),
    *("shoal_clock_timestamp_seconds", "shoal_certificate_expiry_timestamp_seconds", "shoal_build_info"),
}
"""The metrics that other programs may count on."""
HISTOGRAMS = {
    *("shoal_cluster_size", "shoal_cluster_subjects", "shoal_reordering_positions", "shoal_delay_positions"),
    *("shoal_delay_seconds", "shoal_transaction_seconds"),
}
SERIES = (METRICS - HISTOGRAMS) | {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}
OUTCOMES = {"in", "released", "suppressed", "quarantined", "dropped", "committed", "aborted"}

SERVICE_KEYS = {
    *("build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "healthcheck", "image", "ports"),
    *("read_only", "restart", "security_opt", "stop_grace_period", "tmpfs", "ulimits", "volumes"),
}
"""Keys of the compose specification in use here: a misspelt one would be an error only where compose runs."""
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml(ROOT / "docker-compose.yml")


def workers(compose: Any) -> dict[str, Any]:
    return {name: service for name, service in compose["services"].items() if service.get("image") == "shoal"}


def assert_queries_known_metrics(expression: str) -> None:
    assert expression.count("(") == expression.count(")")
    assert set(re.findall(r"(?<![:\w])shoal_\w+", expression)) <= SERIES
    assert set(re.findall(r"\bpipeline:\w+:\w+", expression)) <= {rule["record"] for rule in rules("record")}
    assert "job=" not in expression, "a job may have any name"
    for outcomes in re.findall(r'outcome=~?"([^"]*)"', expression):
        assert set(outcomes.split("|")) <= OUTCOMES


# ---------------------------------------------------------------- image


def dockerfile() -> list[list[str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def stages() -> dict[str, list[list[str]]]:
    """Instructions by stage; the last one, nameless, under ''."""
    found: dict[str, list[list[str]]] = {}
    name = ""
    for words in dockerfile():
        if words[0] == "FROM":
            name = words[3] if len(words) > 2 else ""
            found[name] = []
        if found:  # an argument may stand before the first stage
            found[name].append(words)
    return found


def test_the_image_runs_without_root_pip_and_core_dumps_and_compiles_for_any_processor() -> None:
    service = {words[0]: " ".join(words) for words in stages()["service"]}
    assert service["USER"] == "USER 10001:10001"
    assert service["HEALTHCHECK"].endswith('CMD ["shoal", "health"]')
    assert "ulimit -c 0 && exec shoal" in service["ENTRYPOINT"]
    assert "pip uninstall --quiet --yes pip" in service["RUN"]
    assert "SHOAL_HTTP=0.0.0.0:9464" in service["ENV"]
    assert "://" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    installed = stages()["installed"]
    assert "venv --without-pip /opt/shoal" in " ".join(word for words in installed for word in words)
    assert " ".join(installed[-1]).endswith("/opt/shoal/bin/shoal warm")
    for stage in (installed, stages()["service"]):
        assert ["NUMBA_CPU_NAME=generic" in words for words in stage if words[0] == "ENV"] == [True]


def test_what_the_image_installs_is_named_by_hash() -> None:
    installs = [
        part
        for words in dockerfile()
        for part in " ".join(words).split(" && ")
        if re.search(r"pip .*\b(install|wheel|download)\b", part) and "uninstall" not in part
    ]
    assert len(installs) == 4
    for one in installs:
        is_own_wheel = "--no-deps" in one and ("--no-index" in one or "--no-build-isolation" in one)
        assert is_own_wheel or "--require-hashes -r deploy/image/" in one, one


def test_what_is_copied_into_the_image_reaches_the_builder() -> None:
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    ]
    for words in dockerfile():
        if words[0] == "COPY" and not words[1].startswith("--from="):
            for source in words[1:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


# ---------------------------------------------------------------- compose


def test_compose_is_spelt_right_mounts_files_that_are_there_and_opens_ports_to_this_machine_only(compose: Any) -> None:
    assert set(compose) <= {"name", "services", "volumes"} | {key for key in compose if key.startswith("x-")}
    ports = []
    for name, service in compose["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        assert re.fullmatch(r"shoal(-demo)?|[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert service.get("build", {}).get("target", "service") in stages(), name
        needed = service.get("depends_on", {})
        assert set(needed) <= set(compose["services"]), name
        if isinstance(needed, dict):
            assert {how["condition"] for how in needed.values()} <= CONDITIONS, name
        for mount in service.get("volumes", []):
            source, target, *mode = mount.split(":")
            assert target.startswith("/")
            if source.startswith("."):
                assert (ROOT / source).exists(), source
                assert mode == ["ro"], source
            else:
                assert source in compose["volumes"]
        ports += service.get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.rpartition(":")[0] for port in ports}) == len(ports)


def test_workers_differ_in_their_instance_alone_and_are_started_as_the_command_line_wants_it(compose: Any) -> None:
    from shoal.cli.command_line import build_parser

    assert len(workers(compose)) == 2
    for name, service in workers(compose).items():
        assert service["environment"]["SHOAL_KAFKA__INSTANCE_ID"] == name
        names = {name.removeprefix("SHOAL_KAFKA__").lower() for name in service["environment"]}
        assert names <= set(KafkaSection.model_fields)
        assert (service["ulimits"], service["read_only"], service["cap_drop"]) == ({"core": 0}, True, ["ALL"])
        options = build_parser().parse_args(service["command"])
        assert options.policy in {mount.split(":")[1] for mount in service["volumes"]}
        assert options.http is None, "the health check asks the address in SHOAL_HTTP of the image"
    (job,) = yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    (group,) = job["static_configs"]
    assert set(group["targets"]) == {f"{name}:9464" for name in workers(compose)}


def test_all_topics_of_the_policy_are_created() -> None:
    kafka = Policy.load(DEPLOY / "demo" / "policy.yaml").kafka
    assert kafka is not None
    script = (DEPLOY / "demo" / "topics.sh").read_text(encoding="utf-8")
    created = set(re.findall(r"^create (\S+)", script, re.MULTILINE))
    assert created == {kafka.input, kafka.output, kafka.quarantine, kafka.clusters, kafka.evidence}


# ---------------------------------------------------------------- prometheus and grafana


def test_the_metrics_that_others_count_on_are_exported() -> None:
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in families()}
    assert exported >= METRICS
    assert {family.name for family in families() if family.type == "histogram"} >= HISTOGRAMS


def test_the_guides_name_each_metric_and_only_metrics_that_exist() -> None:
    operate, runbook = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("operate.md", "runbook.md"))
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families()}
    assert {name for name in names if name.startswith("shoal_") and f"`{name}" not in operate} == set()
    assert set(re.findall(r"(?<![:\w])shoal_\w+", runbook)) <= SERIES | HISTOGRAMS
    assert set(re.findall(r"pipeline:\w+:\w+", runbook)) <= {rule["record"] for rule in rules("record")}
    sections = re.findall(r"^## (Shoal\w+)$", runbook, re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules("alert")]


def families() -> Iterator[Any]:
    metrics = Metrics()
    ConfidentialMetrics(metrics.registry)
    yield from metrics.registry.collect()
    yield from metrics.certificates.describe()


def rules(kind: str) -> list[Any]:
    groups = yaml(DEPLOY / "prometheus" / "rules.yml")["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    alerts = rules("alert")
    assert len({rule["alert"] for rule in alerts}) == len(alerts) == 27
    for rule in alerts:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "action", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
        assert_queries_known_metrics(rule["expr"])
    for rule in rules("record"):
        assert set(rule) == {"record", "expr"}
        assert_queries_known_metrics(rule["expr"])


def dashboard() -> Any:
    return json.loads((DEPLOY / "grafana" / "dashboards" / "shoal.json").read_text(encoding="utf-8"))


def test_the_dashboard_shows_known_metrics_from_the_chosen_source() -> None:
    (source,) = yaml(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "group", "topic"]
    assert variables["datasource"]["query"] == source["type"]
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert_queries_known_metrics(target["expr"])
            assert 'group=~"$group"' in target["expr"], panel["title"]
            assert "increase(" not in target["expr"], (
                f"{panel['title']}: the recorded counts have the first commit, too"
            )
    shown = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    assert {name for name in METRICS if name.removesuffix("_total") not in shown} <= {
        *("shoal_position_weight", "shoal_protects_values", "shoal_delta_records", "shoal_build_info"),
    }


# ---------------------------------------------------------------- local Kafka


def local(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    names = {"SHOAL_KAFKA__BOOTSTRAP_SERVERS", "SHOAL_TEST_BROKER"}
    clean = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, str(LOCAL), "--home", str(home), *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_process_that_only_has_the_broker_s_id_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            note = {"pid": stranger.pid, "began": "1", "bootstrap": "127.0.0.1:1", "kept": True}
            (tmp_path / "broker.json").write_text(json.dumps(note), encoding="utf-8")
            assert local(tmp_path, "status").returncode == 1
            assert local(tmp_path, "down").returncode == 0
            assert stranger.poll() is None
            assert not (tmp_path / "broker.json").exists()
            began = load_local().process_began
            assert began(stranger.pid, "60") == began(stranger.pid, "60") is not None
            assert began(stranger.pid, "another") is None
        finally:
            stranger.kill()
    assert began(stranger.pid, "60") is None


# ---------------------------------------------------------------- CI


@pytest.mark.parametrize(("ci", "failed"), [("true", 2), ("", 0)])
def test_what_is_skipped_in_ci_has_failed(tmp_path: Path, ci: str, failed: int) -> None:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", folder.parent)
    for name, text in {
        "test_runs.py": "def test_runs(): pass\n",
        "test_a_test.py": "import pytest\ndef test_it(): pytest.skip('later')\n",
        "test_a_file.py": "import pytest\npytest.skip('later', allow_module_level=True)\n",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    options = ["-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = os.environ | {"CI": ci, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'service'}"}  # of conftest.py
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if failed else 0), done.stdout
    assert done.stdout.count("\nskipped in CI") == failed, done.stdout
    assert "1 passed" in done.stdout


def test_ci_runs_make_check_in_a_clone_with_nothing_beside_it(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$@"; pwd; ls -A ..; git rev-parse HEAD; git status --porcelain; exit 7\n')
    fake.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert done.returncode == 7, done.stderr
    target, folder, *rest = done.stdout.splitlines()
    assert target == "check"
    assert Path(folder).is_relative_to(tmp_path / "tmp")
    assert rest == ["shoal", head.strip()], "one folder there, and in it what is committed"
    assert list((tmp_path / "tmp").iterdir()) == []
