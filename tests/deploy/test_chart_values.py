"""Values of the chart that cannot work: each is refused with its name and a remedy, before anything is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.chart import CHART, POLICY, options
from support.tools import run_tool


def rendered(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_tool("helm", "template", "visits", CHART, "--set-file", f"policy={POLICY}", *arguments)


def variable(name: str, value: str) -> str:
    return f"extraEnv[0].name={name} extraEnv[0].value={value}"


def test_the_values_that_are_changed_below_can_work() -> None:
    assert rendered(*options()).returncode == 0


WRONG = [
    ("image.repository=", "- image.repository: missing; give where"),
    ("image.repository=https://registry.example/shoal", "- image.repository: is no name of an image; give it in"),
    ("image.repository=registry.example/shoal:0.3.0", "- image.repository: is no name of an image"),
    ("image.tag=", "- image.tag: missing; give a version, such as 0.3.0, or"),
    ("image.tag=latest", "one version; give a version, such as 0.3.0, or image.digest"),
    ("image.tag=2", "- image.tag: is a number, which loses zeros; quote it"),
    ("image.tag=shoal:0.3.0", "- image.tag: is no tag of an image; give the"),
    ("image.digest=sha256:1", "- image.digest: is no digest; give sha256: and 64"),
    (["--set-file", "policy=/dev/null"], "- policy: missing; give it by --set-file policy="),
    (["--set-file", "policy=Makefile"], "- policy: is not YAML"),
    (
        ["--set-file", "policy=deploy/prometheus/prometheus.yml"],
        "- kafka.group: missing; give it in the values or in the policy\n- kafka.input: missing; give it",
    ),
    (r"policyFiles.policy\.yaml=x", "- policyFiles: policy.yaml is the name of the policy itself; give another name"),
    ("partitions=", "- partitions: missing; give the number of partitions of all inputs"),
    ("partitions=0", "- partitions: missing; give the number"),
    ("replicas=5", "- replicas: 5 workers for 4 partitions; at most one"),
    (
        "autoscaling.enabled=true autoscaling.prometheus=http://p autoscaling.maxReplicas=5",
        "- autoscaling.maxReplicas: 5 workers for 4 partitions",
    ),
    (
        "autoscaling.enabled=true autoscaling.prometheus=http://p autoscaling.minReplicas=5",
        "- autoscaling.minReplicas: 5 is more than partitions, which is 4",
    ),
    (
        "autoscaling.enabled=true autoscaling.minReplicas=3 autoscaling.maxReplicas=2",
        "- autoscaling.minReplicas: 3 is more than autoscaling.maxReplicas, which is 2",
    ),
    ("autoscaling.enabled=true", "- autoscaling.prometheus: missing; give"),
    ("autoscaling.minReplicas=0", "at '/autoscaling/minReplicas'"),
    ("replica=2", "additional properties 'replica' not allowed"),
    ("kafka.bootstrap_server=kafka:9092", "'bootstrap_server' not allowed"),
    ("kafka.bootstrap_servers=", "- kafka.bootstrap_servers: missing; give it in the"),
    (r"kafka.bootstrap_servers=a:9092\,b:9094", "- networkPolicy.brokerPorts: lacks 9094, a port of"),
    ("kafka.sasl_password=canary", "put it into a Secret, and name that in kafkaSecretFiles.sasl_password_file:"),
    ("kafka.ssl_cafile=canary", "kafkaSecretFiles.ssl_cafile: {name, key}; or mount another volume by extraVolumes"),
    ("http.tokenSecret.name=shoal-http", "- http.tokenSecret: give both the Secret and its key, as {name: SECRET,"),
    ("http.host=127.0.0.1", "- http.host: 127.0.0.1 cannot be reached from outside the pod, so its probes would"),
    (variable("SHOAL_HTTP_CERTFILE", "/tls.crt"), "- extraEnv: SHOAL_HTTP_CERTFILE would change the HTTP port"),
    (variable("SHOAL_KAFKA__INSTANCE_ID", "one"), "- extraEnv: SHOAL_KAFKA__INSTANCE_ID must differ for each"),
    (variable("SHOAL_KAFKA__BOOTSTRAP_SERVERS", "kafka:9094"), "- extraEnv: SHOAL_KAFKA__BOOTSTRAP_SERVERS is set"),
    (
        variable("SHOAL_KAFKA__SSL_CAFILE", "/ca.crt")
        + " kafkaSecretFiles.ssl_cafile.name=ca kafkaSecretFiles.ssl_cafile.key=ca.crt",
        "- extraEnv: SHOAL_KAFKA__SSL_CAFILE is set by the chart, from kafkaSecretFiles.ssl_cafile; change that",
    ),
    (variable("A", "1") + " extraEnv[1].name=A extraEnv[1].value=2", "- extraEnv: A is there twice; remove one of"),
    (variable("SHOAL_KAFKA__SASL_PASSWORD", "canary"), "- extraEnv: SHOAL_KAFKA__SASL_PASSWORD is a secret, and"),
    (variable("SHOAL_KAFKA__METADATA_KEY", "canary"), "SHOAL_KAFKA__METADATA_KEY is a secret"),
    (variable("SHOAL_HTTP_TOKEN", "canary"), "- extraEnv: SHOAL_HTTP_TOKEN is a secret"),
    (
        "kafka.topics[0].input=north kafka.topics[0].output=north.anonymous",
        "remove one of the two, from the values or from the policy\n- kafka.output: contradicts kafka.topics, which",
    ),
    (
        "podMonitor.enabled=true http.tlsSecret=tls podMonitor.tlsConfig.serverName=shoal",
        "- podMonitor.tlsConfig: missing, so Prometheus trusts no worker and scrapes none; give {ca: {secret:",
    ),
    (r"podLabels.app\.kubernetes\.io/component=canary", "- podLabels: app.kubernetes.io/component is set by the"),
    ("podAnnotations.checksum/policy=canary", "- podAnnotations: checksum/policy is set by the chart; give another"),
    (r"podMonitor.labels.helm\.sh/chart=canary", "- podMonitor.labels: helm.sh/chart is set by the chart; give"),
    ("fullnameOverride=visits.shoal", "- fullnameOverride: is visits.shoal, which no Service may be called; give at"),
    (f"fullnameOverride={'a' * 51}", "which no Service may be called; give at most 50"),
    ("podMonitor.interval=15", "- podMonitor.interval: give a number with its unit, such as 15s"),
]


@pytest.mark.parametrize(("values", "reason"), WRONG)
def test_values_that_cannot_work_are_refused_with_a_reason(values: str | list[str], reason: str) -> None:
    """``values``: those that are changed, as NAME=VALUE; or further options."""
    if isinstance(values, str):
        done = rendered(*options(**dict(value.split("=", 1) for value in values.split())))
    else:
        done = rendered(*options(), *values)
    assert done.returncode == 1, done.stdout
    assert reason in done.stderr, done.stderr
    assert "canary" not in done.stderr


@pytest.mark.parametrize("setting", ["sasl_password", "sasl_oauth_token", "ssl_password", "metadata_key"])
def test_a_secret_in_the_policy_is_refused(setting: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"kafka: {{group: g, input: i, output: o, {setting}: canary}}\n", encoding="utf-8")
    done = rendered(*options(), "--set-file", f"policy={policy}")
    assert done.returncode == 1
    assert (
        f"- policy: kafka.{setting} is a secret, and a ConfigMap is stored as text; remove it from the policy, put it "
        f"into a Secret, and name that in kafkaSecretFiles.{setting}_file: {{name, key}}\n"
    ) in done.stderr
    assert "canary" not in done.stderr


def test_files_that_no_config_map_holds_are_refused(tmp_path: Path) -> None:
    taxonomy = tmp_path / "icd.csv"
    files = [part for name in ("one", "two") for part in ("--set-file", f"policyFiles.{name}={taxonomy}")]
    taxonomy.write_text("é" * 245_000, encoding="utf-8")
    assert rendered(*options(), *files).returncode == 0
    taxonomy.write_text("é" * 250_000, encoding="utf-8")
    refused = rendered(*options(), *files)
    assert refused.returncode == 1
    assert "bytes with the policy, and a ConfigMap holds 1 MiB; mount large files by extraVolumes" in refused.stderr


def test_all_values_that_cannot_work_are_named_at_once() -> None:
    wrong = options(**{"image.tag": "latest", "replicas": "5", "http.host": "localhost"})
    done = rendered(*wrong)
    assert re.findall(r"^- (\S+):", done.stderr, re.MULTILINE) == ["image.tag", "replicas", "http.host"]


def test_a_release_whose_name_no_service_may_have_needs_another_name() -> None:
    command = ("helm", "template", "visits.north", CHART, "--set-file", f"policy={POLICY}", *options())
    done = run_tool(*command)
    assert "- fullnameOverride: missing, and the release makes visits.north-shoal, which no Service may" in done.stderr
    assert run_tool(*command, "--set", "fullnameOverride=visits-north").returncode == 0


def test_a_monitor_that_trusts_the_workers_or_checks_nothing_is_accepted() -> None:
    has_tls = options(**{"podMonitor.enabled": "true", "http.tlsSecret": "tls"})
    trusted = [
        *("--set", "podMonitor.tlsConfig.serverName=shoal"),
        *("--set", "podMonitor.tlsConfig.ca.secret.name=tls", "--set", "podMonitor.tlsConfig.ca.secret.key=ca.crt"),
    ]
    for arguments in (trusted, ["--set", "podMonitor.tlsConfig.insecureSkipVerify=true"]):
        assert rendered(*has_tls, *arguments).returncode == 0


def test_a_secret_may_come_from_a_variable_that_names_its_secret() -> None:
    arguments = [
        *("--set", "extraEnv[0].name=SHOAL_KAFKA__SASL_PASSWORD"),
        *("--set", "extraEnv[0].valueFrom.secretKeyRef.name=shoal"),
        *("--set", "extraEnv[0].valueFrom.secretKeyRef.key=password"),
    ]
    assert rendered(*options(), *arguments).returncode == 0
