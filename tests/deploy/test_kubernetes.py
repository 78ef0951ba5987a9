"""Chart and manifests as helm and kustomize render them, against the schemas of Kubernetes and of the operators."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from shoal.policy import Policy
from shoal.settings import kafka_settings
from support.chart import CHART, KUBERNETES, POLICY, assert_valid, build, conform, options, template
from support.manifests import assert_a_worker_is_confined, environment_of, kinds, named, read, worker_of
from support.tools import output_of

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "0" * 64
EVERYTHING: dict[str, Any] = YAML(typ="safe").load(f"""
image: {{repository: registry.example/shoal, digest: {DIGEST}}}
imagePullSecrets: [{{name: registry}}]
policyFiles: {{icd.csv: "code,parent\\n"}}
partitions: 6
from: latest
kafka:
  bootstrap_servers: kafka-1:9093,kafka-2:9093
  security_protocol: SASL_SSL
  sasl_mechanism: SCRAM-SHA-512
  sasl_username: shoal
  quarantine: visits.refused
kafkaSecretFiles:
  sasl_password_file: {{name: shoal-kafka, key: password}}
  metadata_key_file: {{name: shoal-metadata-key, key: keys}}
http: {{host: "[::]", port: 9000, tokenSecret: {{name: shoal-http, key: token}}, tlsSecret: shoal-http-tls}}
topologySpreadConstraints: [{{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}}]
nodeSelector: {{kubernetes.io/arch: amd64}}
tolerations: [{{key: kafka, operator: Exists}}]
affinity: {{nodeAffinity: {{}}}}
priorityClassName: high
serviceAccount: {{annotations: {{owner: privacy}}}}
networkPolicy:
  from: [{{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: monitoring}}}}}}]
  to: [{{ipBlock: {{cidr: 192.0.2.0/24}}}}]
  brokerPorts: [9093]
  extraEgress: [{{ports: [{{port: 443, protocol: TCP}}]}}]
podMonitor:
  enabled: true
  labels: {{release: prometheus}}
  tlsConfig: {{ca: {{secret: {{name: shoal-http-tls, key: ca.crt}}}}, serverName: shoal.hospital.svc}}
prometheusRule: {{enabled: true, labels: {{release: prometheus}}}}
autoscaling:
  enabled: true
  prometheus: http://prometheus-operated.monitoring.svc:9090
  lagPerWorker: 5000000
  authentication: prometheus
podAnnotations: {{note: workers}}
podLabels: {{team: privacy}}
extraEnv: [{{name: SHOAL_LOG_LEVEL, value: info}}]
extraVolumes: [{{name: extra, emptyDir: {{}}}}]
extraVolumeMounts: [{{name: extra, mountPath: /extra, readOnly: true}}]
""")


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps(EVERYTHING), encoding="utf-8")
    return path


# ---------------------------------------------------------------- helm


def test_the_chart_passes_the_strict_linter(everything: Path) -> None:
    for arguments in (options(), ["--values", str(everything)]):
        said = output_of("helm", "lint", "--strict", CHART, "--set-file", f"policy={POLICY}", *arguments)
        assert "1 chart(s) linted, 0 chart(s) failed" in said
        assert "[WARNING]" not in said


def test_the_smallest_installation_needs_no_operator() -> None:
    objects = template(*options())
    assert kinds(objects) == {
        *("ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet")
    }
    workers = named(objects, "StatefulSet")
    assert_a_worker_is_confined(workers)
    assert workers["spec"]["replicas"] == 2
    assert worker_of(workers)["image"] == "registry.example/shoal:0.3.0"
    assert worker_of(workers)["args"] == [
        *("run", "/etc/shoal/policy.yaml", "--from=earliest", "--http=0.0.0.0:9464", "--log=json")
    ]
    labels = workers["spec"]["selector"]["matchLabels"]
    assert labels == {
        "app.kubernetes.io/name": "shoal",
        "app.kubernetes.io/instance": "visits",
        "app.kubernetes.io/component": "worker",
    }
    assert named(objects, "Service")["spec"]["selector"] == labels
    assert named(objects, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": labels}
    del labels["app.kubernetes.io/component"]  # the pod that drains is confined, too
    assert named(objects, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": labels}
    policy = named(objects, "ConfigMap")["data"]["policy.yaml"]
    assert policy == (ROOT / POLICY).read_text(encoding="utf-8")


def test_everything_that_the_chart_can_do_is_rendered(everything: Path, tmp_path: Path) -> None:
    objects = template("--values", everything)
    assert {"PodMonitor", "PrometheusRule", "ScaledObject"} < kinds(objects)
    workers = named(objects, "StatefulSet")
    worker, pod = worker_of(workers), workers["spec"]["template"]["spec"]
    assert "replicas" not in workers["spec"], "KEDA sets it"
    assert worker["image"] == f"registry.example/shoal@{DIGEST}"
    assert worker["args"][2:4] == ["--from=latest", "--http=[::]:9000"]
    variables = environment_of(workers)
    assert variables["SHOAL_KAFKA__QUARANTINE"] == "visits.refused"
    assert variables["SHOAL_KAFKA__SESSION_TIMEOUT_MS"] == "45000"
    assert variables["SHOAL_KAFKA__SASL_PASSWORD_FILE"] == "/etc/shoal-secrets/sasl_password_file"  # noqa: S105 - a path
    assert variables["SHOAL_LOG_LEVEL"] == "info"
    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
    assert secrets == {
        "defaultMode": 0o440,
        "sources": [
            {"secret": {"name": "shoal-metadata-key", "items": [{"key": "keys", "path": "metadata_key_file"}]}},
            {"secret": {"name": "shoal-kafka", "items": [{"key": "password", "path": "sasl_password_file"}]}},
        ],
    }
    assert (
        {mount["name"] for mount in worker["volumeMounts"]}
        == {volume["name"] for volume in pod["volumes"]}
        == {"extra", "http", "kernels", "policy", "secrets", "tmp"}
    )
    assert pod["topologySpreadConstraints"] == EVERYTHING["topologySpreadConstraints"]
    (endpoint,) = named(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": "shoal-http", "key": "token"}}
    for name, text in named(objects, "ConfigMap")["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    in_pod = {name: value for name, value in variables.items() if isinstance(value, str)}
    settings = kafka_settings(Policy.load(tmp_path / "policy.yaml"), in_pod)
    assert (settings.input, settings.quarantine, settings.session_timeout_ms) == ("visits", "visits.refused", 45_000)
    assert (tmp_path / "icd.csv").read_text(encoding="utf-8") == "code,parent\n"


def test_a_platform_may_choose_the_user_and_a_variable_the_brokers() -> None:
    nothing = {f"podSecurityContext.{name}": "null" for name in ("runAsUser", "runAsGroup", "fsGroup")}
    variable = {"extraEnv[0].name": "SHOAL_KAFKA__BOOTSTRAP_SERVERS", "extraEnv[0].value": "kafka:9094"}
    workers = named(template(*options(**{"kafka.bootstrap_servers": ""}, **nothing, **variable)), "StatefulSet")
    assert workers["spec"]["template"]["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert environment_of(workers)["SHOAL_KAFKA__BOOTSTRAP_SERVERS"] == "kafka:9094"


def test_the_rules_and_the_monitor_of_the_chart_fit_each_other_and_name_pages_of_the_publisher(
    everything: Path,
) -> None:
    objects = template("--values", everything)
    rules = YAML(typ="safe").load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))
    assert named(objects, "PrometheusRule")["spec"] == rules
    monitor = named(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    address = "https://shoal.example/"
    groups = named(
        template(*options(**{"prometheusRule.enabled": "true", "prometheusRule.runbook": address})), "PrometheusRule"
    )["spec"]["groups"]
    pages = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert len(pages) > 10
    assert {page.partition("#")[0] for page in pages} == {f"{address}docs/runbook.md"}
    label = monitor["spec"]["jobLabel"]
    assert named(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"][label] == "shoal"


def test_workers_are_scaled_by_the_lag_of_this_installation_alone(everything: Path, tmp_path: Path) -> None:
    spec = named(template("--values", everything), "ScaledObject")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 6)
    # Without metrics the number stays. After a drain there are neither workers nor metrics: the least number starts.
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert trigger["authenticationRef"] == {"name": "prometheus"}
    series = {
        'shoal_consumer_lag_records{namespace="hospital", pod="visits-shoal-0", partition="0"}': "7",
        'shoal_consumer_lag_records{namespace="hospital", pod="visits-shoal-10", partition="1"}': "5",
        'shoal_consumer_lag_records{namespace="hospital", pod="wages-shoal-0", partition="0"}': "100",
        'shoal_consumer_lag_records{namespace="other", pod="visits-shoal-0", partition="0"}': "1000",
        'shoal_records_held{namespace="hospital", pod="visits-shoal-0"}': "10000",
    }
    given = [{"series": name, "values": value} for name, value in series.items()]
    expected = [{"labels": "{}", "value": 12}]
    asked = [{"expr": trigger["metadata"]["query"], "eval_time": "0", "exp_samples": expected}]
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"tests": [{"input_series": given, "promql_expr_test": asked}]}), encoding="utf-8")
    assert "SUCCESS" in output_of("promtool", "test", "rules", path)


def test_only_a_changed_policy_restarts_the_workers(tmp_path: Path) -> None:
    other = tmp_path / "policy.yaml"
    other.write_text((ROOT / POLICY).read_text(encoding="utf-8").replace("k: 5", "k: 6"), encoding="utf-8")

    def pods(*arguments: str) -> Any:
        return named(template(*options(), *arguments), "StatefulSet")["spec"]["template"]

    assert pods() == pods("--set", "replicas=3", "--set", "podMonitor.enabled=true")
    assert pods() != pods("--set-file", f"policy={other}")
    assert pods() != pods("--set", "policyFiles.a=b")


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("has_token", [False, True])
def test_probes_speak_the_protocol_of_the_port_and_never_need_the_token(*, has_tls: bool, has_token: bool) -> None:
    token = {"http.tokenSecret.name": "shoal-http", "http.tokenSecret.key": "token"} if has_token else {}
    worker = worker_of(
        named(template(*options(**token, **{"http.tlsSecret": "tls" if has_tls else ""})), "StatefulSet")
    )
    asked = [probe["httpGet"] for name, probe in worker.items() if name.endswith("Probe")]
    assert len(asked) == 3
    for request in asked:
        assert request.get("scheme", "HTTP") == ("HTTPS" if has_tls else "HTTP")
        assert request["path"] in {"/livez", "/readyz"}  # the pages without a token
        assert request["port"] == "http"
    given = {variable["name"] for variable in worker["env"] if variable["name"].startswith("SHOAL_HTTP")}
    of_tls = {"SHOAL_HTTP_CERTFILE", "SHOAL_HTTP_KEYFILE"} if has_tls else set()
    assert given == of_tls | ({"SHOAL_HTTP_TOKEN_FILE"} if has_token else set())


# ---------------------------------------------------------------- kustomize


def test_chart_and_manifests_start_the_same_worker() -> None:
    charted = named(template(*options()), "StatefulSet")["spec"]["template"]["spec"]
    plain = named(build("base"), "StatefulSet")["spec"]["template"]["spec"]
    for pod in (charted, plain):
        pod["containers"][0].pop("image")
        pod.pop("serviceAccountName")
        pod.pop("topologySpreadConstraints")  # their labels differ
        pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "policy"]  # its name differs
    # The manifests take the address of the brokers from an overlay.
    charted["containers"][0]["env"].remove({"name": "SHOAL_KAFKA__BOOTSTRAP_SERVERS", "value": "kafka:9092"})
    assert charted == plain


# ---------------------------------------------------------------- the schemas refuse mistakes

MISTAKES = {
    "StatefulSet": ("readOnlyRootFilesystem:", "readOnlyRootFileSystem:"),  # deep in the pod
    "PodMonitor": ("podMetricsEndpoints:", "endpoints:"),
    "PrometheusRule": ("  - name: shoal", "  - nam: shoal"),
    "ScaledObject": ("minReplicaCount:", "minReplicas:"),
    "KafkaTopic": ("  partitions:", "  partition:"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_in_an_object_is_found(kind: str) -> None:
    folders = ("overlays/example", "strimzi")
    documents = [
        one for name in folders for one in output_of("kustomize", "build", f"{KUBERNETES}/{name}").split("\n---\n")
    ]
    text = next(one for one in documents if f"\nkind: {kind}\n" in f"\n{one}\n")
    right, wrong = MISTAKES[kind]
    assert right in text
    assert conform(text) == (0, [])
    code, found = conform(text.replace(right, wrong))
    assert code == 1
    assert [(one["kind"], one["status"]) for one in found] == [(kind, "statusInvalid")]


# ---------------------------------------------------------------- the page


def fences(language: str) -> list[str]:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_page_install_what_it_says(tmp_path: Path) -> None:
    (values,) = fences("yaml")
    (tmp_path / "values.yaml").write_text(values, encoding="utf-8")
    rendered: dict[str, list[Any]] = {}
    for line in "".join(fences("sh")).replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        if words[0] == "helm":
            files = {"values.yaml": str(tmp_path / "values.yaml"), "policy=policy.yaml": f"policy={POLICY}"}
            given = ["install", *(files.get(word, word) for word in words[2:]), "--dry-run=client"]  # no cluster
            text = output_of("helm", *given).partition("\nMANIFEST:\n")[2].partition("\nNOTES:\n")[0]
            assert_valid(text)
            rendered[words[1]] = read(text)
        elif words[:3] == ["kubectl", "apply", "--kustomize"]:
            assert_valid(output_of("kustomize", "build", words[3]))
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    installed = rendered["install"]
    workers = named(installed, "StatefulSet")["metadata"]["name"]
    assert set(re.findall(r"\bstatefulset/([a-z-]+)", page)) == {workers}
    drain = named(rendered["upgrade"], "Job")["metadata"]["labels"]
    (selector,) = set(re.findall(r" job --selector (\S+)", page))
    assert dict(pair.split("=") for pair in selector.split(",")).items() <= drain.items()
    assert {"PodMonitor", "PrometheusRule"} <= kinds(installed)
    mounted = named(installed, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    (secrets,) = (volume["projected"]["sources"] for volume in mounted if volume["name"] == "secrets")
    assert {"name": "shoal-metadata-key", "items": [{"key": "keys", "path": "metadata_key_file"}]} in [
        source["secret"] for source in secrets
    ]
