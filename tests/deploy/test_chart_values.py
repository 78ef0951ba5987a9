"""Values of the chart that cannot work: each is refused with its name and a remedy, before anything is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.chart import CHART, POLICY, options
from support.tools import run_tool

AUTOSCALED = {"autoscaling.enabled": "true", "autoscaling.prometheus": "http://p"}


def rendered(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_tool("helm", "template", "visits", CHART, "--set-file", f"policy={POLICY}", *arguments)


def variable(name: str, value: str) -> list[str]:
    return options(**{"extraEnv[0].name": name, "extraEnv[0].value": value})


def test_the_values_that_are_changed_below_can_work() -> None:
    assert rendered(*options()).returncode == 0


WRONG = {
    "a missing repository": (options(**{"image.repository": ""}), "- image.repository: missing; give where"),
    "a repository with a scheme": (
        options(**{"image.repository": "https://registry.example/shoal"}),
        "- image.repository: is no name of an image; give it in small letters, without https:// and without tag",
    ),
    "a repository with a tag": (
        options(**{"image.repository": "registry.example/shoal:0.3.0"}),
        "- image.repository: is no name of an image",
    ),
    "a missing tag": (options(**{"image.tag": ""}), "- image.tag: missing; give a version, such as 0.3.0, or"),
    "the tag latest": (
        options(**{"image.tag": "latest"}),
        "one version; give a version, such as 0.3.0, or image.digest",
    ),
    "a tag that is a number": (options(**{"image.tag": "2"}), "- image.tag: is a number, which loses zeros; quote it"),
    "a tag with a name": (options(**{"image.tag": "shoal:0.3.0"}), "- image.tag: is no tag of an image; give the"),
    "no digest": (options(**{"image.digest": "sha256:1"}), "- image.digest: is no digest; give sha256: and 64"),
    "no policy": ([*options(), "--set-file", "policy=/dev/null"], "- policy: missing; give it by --set-file policy="),
    "a policy that is no YAML": ([*options(), "--set-file", "policy=Makefile"], "- policy: is not YAML"),
    "a policy without kafka": (
        [*options(), "--set-file", "policy=deploy/prometheus/prometheus.yml"],
        "- kafka.group: missing; give it in the values or in the policy\n- kafka.input: missing; give it",
    ),
    "a file in the place of the policy": (
        [*options(), "--set", r"policyFiles.policy\.yaml=x"],
        "- policyFiles: policy.yaml is the name of the policy itself; give another name",
    ),
    "no partitions": (options(partitions=""), "- partitions: missing; give the number of partitions of all inputs"),
    "zero partitions": (options(partitions="0"), "- partitions: missing; give the number"),
    "too many workers": (options(replicas="5"), "- replicas: 5 workers for 4 partitions; at most one"),
    "too many workers of KEDA": (
        options(**AUTOSCALED, **{"autoscaling.maxReplicas": "5"}),
        "- autoscaling.maxReplicas: 5 workers for 4 partitions",
    ),
    "too many workers of KEDA at least": (
        options(**AUTOSCALED, **{"autoscaling.minReplicas": "5"}),
        "- autoscaling.minReplicas: 5 is more than partitions, which is 4",
    ),
    "more workers of KEDA at least than at most": (
        options(**{"autoscaling.enabled": "true", "autoscaling.minReplicas": "3", "autoscaling.maxReplicas": "2"}),
        "- autoscaling.minReplicas: 3 is more than autoscaling.maxReplicas, which is 2",
    ),
    "KEDA without Prometheus": (options(**{"autoscaling.enabled": "true"}), "- autoscaling.prometheus: missing; give"),
    "no worker at all times": (options(**{"autoscaling.minReplicas": "0"}), "at '/autoscaling/minReplicas'"),
    "a misspelt value": (options(replica="2"), "additional properties 'replica' not allowed"),
    "a misspelt setting": (options(**{"kafka.bootstrap_server": "kafka:9092"}), "'bootstrap_server' not allowed"),
    "no brokers": (options(**{"kafka.bootstrap_servers": ""}), "- kafka.bootstrap_servers: missing; give it in the"),
    "a port that the pods may not reach": (
        options(**{"kafka.bootstrap_servers": r"a:9092\,b:9094"}),
        "- networkPolicy.brokerPorts: lacks 9094, a port of kafka.bootstrap_servers",
    ),
    "a secret in the values": (
        options(**{"kafka.sasl_password": "canary"}),
        "put it into a Secret, and name that in kafkaSecretFiles.sasl_password_file: {name, key}",
    ),
    "a file in the values": (
        options(**{"kafka.ssl_cafile": "canary"}),
        "kafkaSecretFiles.ssl_cafile: {name, key}; or mount another volume by extraVolumes and extraVolumeMounts, and",
    ),
    "half a Secret of the token": (
        options(**{"http.tokenSecret.name": "shoal-http"}),
        "- http.tokenSecret: give both the Secret and its key, as {name: SECRET, key: KEY}",
    ),
    "a port for the pod alone": (
        options(**{"http.host": "127.0.0.1"}),
        "- http.host: 127.0.0.1 cannot be reached from outside the pod, so its probes would fail; give 0.0.0.0",
    ),
    "TLS without its probes": (
        variable("SHOAL_HTTP_CERTFILE", "/tls.crt"),
        "- extraEnv: SHOAL_HTTP_CERTFILE would change the HTTP port without its probes; give http.tlsSecret instead",
    ),
    "a member id that all workers share": (
        variable("SHOAL_KAFKA__INSTANCE_ID", "one"),
        "- extraEnv: SHOAL_KAFKA__INSTANCE_ID must differ for each worker, and the chart sets it to the name of the",
    ),
    "a variable that the chart sets": (
        variable("SHOAL_KAFKA__BOOTSTRAP_SERVERS", "kafka:9094"),
        "- extraEnv: SHOAL_KAFKA__BOOTSTRAP_SERVERS is set by the chart, from kafka.bootstrap_servers; change that",
    ),
    "a variable of a file that the chart mounts": (
        [
            *variable("SHOAL_KAFKA__SSL_CAFILE", "/ca.crt"),
            *("--set", "kafkaSecretFiles.ssl_cafile.name=ca", "--set", "kafkaSecretFiles.ssl_cafile.key=ca.crt"),
        ],
        "- extraEnv: SHOAL_KAFKA__SSL_CAFILE is set by the chart, from kafkaSecretFiles.ssl_cafile; change that",
    ),
    "a variable twice": (
        [*variable("A", "1"), "--set", "extraEnv[1].name=A", "--set", "extraEnv[1].value=2"],
        "- extraEnv: A is there twice; remove one of the two",
    ),
    "a password as text": (
        variable("SHOAL_KAFKA__SASL_PASSWORD", "canary"),
        "- extraEnv: SHOAL_KAFKA__SASL_PASSWORD is a secret, and values are stored as text; put it into a Secret",
    ),
    "a key as text": (variable("SHOAL_KAFKA__METADATA_KEY", "canary"), "SHOAL_KAFKA__METADATA_KEY is a secret"),
    "a token as text": (variable("SHOAL_HTTP_TOKEN", "canary"), "- extraEnv: SHOAL_HTTP_TOKEN is a secret"),
    "topics beside input and output": (
        options(**{"kafka.topics[0].input": "north", "kafka.topics[0].output": "north.anonymous"}),
        "remove one of the two, from the values or from the policy\n- kafka.output: contradicts kafka.topics, which",
    ),
    "TLS that Prometheus does not trust": (
        options(**{"podMonitor.enabled": "true", "http.tlsSecret": "tls", "podMonitor.tlsConfig.serverName": "shoal"}),
        "- podMonitor.tlsConfig: missing, so Prometheus trusts no worker and scrapes none; give {ca: {secret:",
    ),
    "a label of the chart": (
        options(**{r"podLabels.app\.kubernetes\.io/component": "canary"}),
        "- podLabels: app.kubernetes.io/component is set by the chart; give another name",
    ),
    "an annotation of the chart": (
        options(**{"podAnnotations.checksum/policy": "canary"}),
        "- podAnnotations: checksum/policy is set by the chart; give another name",
    ),
    "a label of the chart at a monitor": (
        options(**{r"podMonitor.labels.helm\.sh/chart": "canary"}),
        "- podMonitor.labels: helm.sh/chart is set by the chart; give another name",
    ),
    "a name that no Service may have": (
        options(fullnameOverride="visits.shoal"),
        "- fullnameOverride: is visits.shoal, which no Service may be called; give at most 50 small letters, digits",
    ),
    "a name that is too long": (options(fullnameOverride="a" * 51), "which no Service may be called; give at most 50"),
    "an interval without a unit": (
        options(**{"podMonitor.interval": "15"}),
        "- podMonitor.interval: give a number with its unit, such as 15s",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_values_that_cannot_work_are_refused_with_a_reason(kind: str) -> None:
    arguments, reason = WRONG[kind]
    done = rendered(*arguments)
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
