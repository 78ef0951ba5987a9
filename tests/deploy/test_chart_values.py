"""Values of the chart that cannot work: each is refused with its name and a remedy, before anything is installed."""

from __future__ import annotations

import re
import subprocess

import pytest
from support.tools import run_tool

POLICY = "deploy/kubernetes/overlays/example/policy.yaml"
REQUIRED = {
    "image.repository": "registry.example/shoal",
    "image.tag": "0.2.0",
    "partitions": "4",
    "kafka.bootstrap_servers": "kafka:9092",
}


def options(**changed: str) -> list[str]:
    values = {name: value for name, value in (REQUIRED | changed).items() if value}
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


def rendered(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_tool("helm", "template", "visits", "deploy/helm/shoal", "--set-file", f"policy={POLICY}", *arguments)


def test_the_values_that_are_changed_below_can_work() -> None:
    assert rendered(*options()).returncode == 0


WRONG = {
    "a missing repository": (options(**{"image.repository": ""}), "- image.repository: missing; give where"),
    "a repository with a scheme": (
        options(**{"image.repository": "https://registry.example/shoal"}),
        "- image.repository: is no name of an image; give it in small letters, without https:// and without tag",
    ),
    "a repository with a tag": (
        options(**{"image.repository": "registry.example/shoal:0.2.0"}),
        "- image.repository: is no name of an image",
    ),
    "a missing tag": (options(**{"image.tag": ""}), "- image.tag: missing; give a version, such as 0.2.0, or"),
    "the tag latest": (
        options(**{"image.tag": "latest"}),
        "one version; give a version, such as 0.2.0, or image.digest",
    ),
    "a tag that is a number": (options(**{"image.tag": "2"}), "- image.tag: is a number, which loses zeros; quote it"),
    "a tag with a name": (options(**{"image.tag": "shoal:0.2.0"}), "- image.tag: is no tag of an image; give the"),
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
    "no workers": (options(replicas="0"), "- replicas: 0 workers read nothing; give at least 1, or drain=true"),
    "too many workers": (options(replicas="5"), "- replicas: 5 workers for 4 partitions; at most one"),
    "too many workers of KEDA": (
        options(
            **{"autoscaling.enabled": "true", "autoscaling.maxReplicas": "5", "autoscaling.prometheus": "http://p"}
        ),
        "- autoscaling.maxReplicas: 5 workers for 4 partitions",
    ),
    "too many workers of KEDA at least": (
        options(
            **{"autoscaling.enabled": "true", "autoscaling.minReplicas": "5", "autoscaling.prometheus": "http://p"}
        ),
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
        "is a file; put it into a Secret, and name that in kafkaSecretFiles.ssl_cafile: {name, key}",
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
        options(**{"extraEnv[0].name": "SHOAL_HTTP_CERTFILE", "extraEnv[0].value": "/tls.crt"}),
        "- extraEnv: SHOAL_HTTP_CERTFILE would change the HTTP port without its probes; give http.tlsSecret instead",
    ),
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


def test_all_values_that_cannot_work_are_named_at_once() -> None:
    wrong = options(**{"image.tag": "latest", "replicas": "0", "http.host": "localhost"})
    done = rendered(*wrong)
    assert re.findall(r"^- (\S+):", done.stderr, re.MULTILINE) == ["image.tag", "replicas", "http.host"]
