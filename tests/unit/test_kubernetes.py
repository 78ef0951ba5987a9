"""Manifests and chart for Kubernetes, checked without the tools that read them."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from shoal.policy import KafkaSection, Policy
from support.manifests import assert_a_worker_is_confined, environment_of, named, read, worker_of

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "shoal"
EXAMPLE = KUBERNETES / "overlays" / "example"
FILE_SETTINGS = {
    *("metadata_key_file", "sasl_oauth_token_file", "sasl_password_file"),
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password_file"),
}
SECRETS = {"instance_id", "metadata_key", "sasl_oauth_token", "sasl_password", "ssl_password"}
"""Settings that the values of the chart must not hold: secrets, and the name that each pod has for itself."""


def yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def folder(path: Path) -> list[Any]:
    listed = yaml(path / "kustomization.yaml")
    return [one for name in listed["resources"] for one in read((path / name).read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def base() -> list[Any]:
    return folder(KUBERNETES / "base")


def test_a_worker_of_the_manifests_is_confined_and_started_as_the_command_line_wants_it(base: list[Any]) -> None:
    from shoal.cli.command_line import build_parser

    assert_a_worker_is_confined(named(base, "StatefulSet"))
    assert named(base, "ServiceAccount")["automountServiceAccountToken"] is False
    worker = worker_of(named(base, "StatefulSet"))
    options = build_parser().parse_args(worker["args"])
    (port,) = worker["ports"]
    (mount,) = (one for one in worker["volumeMounts"] if one["name"] == "policy")
    assert options.http == f"0.0.0.0:{port['containerPort']}"
    assert options.policy == f"{mount['mountPath']}/policy.yaml"
    assert options.reset == "earliest"


def test_every_selector_selects_the_workers_of_its_installation_and_nothing_else(base: list[Any]) -> None:
    template = named(base, "StatefulSet")["spec"]["template"]
    pods = {"app.kubernetes.io/name": "shoal", "app.kubernetes.io/instance": "shoal"}
    labels = pods | {"app.kubernetes.io/component": "worker"}
    assert template["metadata"]["labels"] == labels
    assert named(base, "StatefulSet")["spec"]["selector"] == {"matchLabels": labels}
    assert named(base, "Service")["spec"]["selector"] == labels
    assert named(base, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": labels}
    assert named(base, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": pods}
    (monitor, _) = folder(KUBERNETES / "components" / "monitoring")
    assert monitor["spec"]["selector"] == {"matchLabels": pods}
    spread = template["spec"]["topologySpreadConstraints"]
    assert [one["labelSelector"]["matchLabels"] for one in spread] == [labels, labels]


def test_only_the_http_port_is_open_and_only_dns_and_brokers_are_reached(base: list[Any]) -> None:
    spec = named(base, "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]
    ports = [(port["port"], port["protocol"]) for rule in spec["egress"] for port in rule["ports"]]
    assert ports == [(53, "UDP"), (53, "TCP"), (9092, "TCP"), (9093, "TCP")]


def test_the_copies_of_the_alerts_are_up_to_date() -> None:
    rules = (DEPLOY / "prometheus" / "rules.yml").read_text(encoding="utf-8")
    written = runpy.run_path(str(DEPLOY / "prometheus" / "copy_rules.py"))["copies"]()
    assert len(written) == 2
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run deploy/prometheus/copy_rules.py"
    assert (CHART / "files" / "rules.yml").read_text(encoding="utf-8") == rules
    (_, rule) = folder(KUBERNETES / "components" / "monitoring")
    assert rule["spec"] == YAML(typ="safe").load(rules)


# ---------------------------------------------------------------- the example


def example_settings() -> dict[str, Any]:
    (patch,) = read((EXAMPLE / "connection.yaml").read_text(encoding="utf-8"))
    return {name.removeprefix("SHOAL_KAFKA__").lower(): value for name, value in environment_of(patch).items()}


def test_the_connection_of_the_example_names_settings_and_mounted_files() -> None:
    settings = example_settings()
    assert set(settings) <= set(KafkaSection.model_fields)
    (patch,) = read((EXAMPLE / "connection.yaml").read_text(encoding="utf-8"))
    (volume,) = patch["spec"]["template"]["spec"]["volumes"]
    (mount,) = worker_of(patch)["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert volume["projected"]["defaultMode"] == 0o440
    items = [item for source in volume["projected"]["sources"] for item in source["secret"]["items"]]
    mounted = {f"{mount['mountPath']}/{item['path']}" for item in items}
    assert {value for name, value in settings.items() if name in FILE_SETTINGS} == mounted
    assert mounted == {f"{mount['mountPath']}/{name}" for name in FILE_SETTINGS & set(settings)}


def test_the_policy_of_the_example_finds_its_topics_and_permissions() -> None:
    kafka = Policy.load(EXAMPLE / "policy.yaml").kafka
    assert kafka is not None
    objects = folder(KUBERNETES / "strimzi")
    topics = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "KafkaTopic"}
    copy = example_settings()["progress_copy"]
    assert set(topics) == {kafka.input, kafka.output, kafka.quarantine, copy}
    for name in (str(kafka.output), copy):
        assert topics[name]["partitions"] >= topics[str(kafka.input)]["partitions"]
    policies = {name: topics[name]["config"].get("cleanup.policy", "delete") for name in topics}
    assert policies == dict.fromkeys(topics, "delete") | {copy: "compact"}
    user = named(objects, "KafkaUser")
    granted = {
        (acl["resource"]["type"], acl["resource"].get("name"), acl["resource"].get("patternType", "literal")): set(
            acl["operations"]
        )
        for acl in user["spec"]["authorization"]["acls"]
    }
    assert granted == {
        ("group", "shoal-visits", "literal"): {"Read"},
        ("topic", "visits", "literal"): {"Read"},
        ("topic", "visits.anonymous", "literal"): {"Read", "Write", "DescribeConfigs"},
        ("topic", "visits.quarantine", "literal"): {"Write", "DescribeConfigs"},
        ("topic", "visits.progress", "literal"): {"Read", "Write", "DescribeConfigs"},
        ("transactionalId", "shoal-visits-visits-", "prefix"): {"Write", "Describe"},
        ("cluster", None, "literal"): {"DescribeConfigs"},
    }
    assert example_settings()["sasl_username"] == user["metadata"]["name"] == kafka.group
    assert example_settings()["sasl_mechanism"].lower() == user["spec"]["authentication"]["type"]


def test_keda_scales_by_the_lag_of_shoal_up_to_the_partitions() -> None:
    (scaled,) = folder(KUBERNETES / "components" / "autoscaling")
    (patch,) = read((EXAMPLE / "scaling.yaml").read_text(encoding="utf-8"))
    topics = folder(KUBERNETES / "strimzi")
    assert patch["spec"]["maxReplicaCount"] == named(topics, "KafkaTopic", "visits")["spec"]["partitions"]
    assert scaled["spec"]["minReplicaCount"] == 1
    for spec in (scaled["spec"], patch["spec"]):
        (trigger,) = spec["triggers"]
        assert trigger["type"] == "prometheus"
        assert re.findall(r"shoal_\w+", trigger["metadata"]["query"]) == ["shoal_consumer_lag_records"]
        assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert scaled["spec"]["fallback"] == {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}


# ---------------------------------------------------------------- chart


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def test_the_values_fit_their_schema_and_the_schema_knows_no_others(schema: Any) -> None:
    values = yaml(CHART / "values.yaml")
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    assert set(schema["properties"]) - {"global", "enabled"} == set(values)  # of a chart that contains this one
    for wrong in ({"replica": 2}, {"image": {"tag": True}}, {"kafka": {"sasl_passwort": "x"}}, {"from": "start"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values | wrong, schema)


def test_the_chart_takes_every_setting_of_kafka_and_no_secret(schema: Any) -> None:
    taken = set(schema["properties"]["kafka"]["properties"])
    files = set(schema["properties"]["kafkaSecretFiles"]["properties"])
    assert files == FILE_SETTINGS
    assert not taken & files
    assert taken | files == set(KafkaSection.model_fields) - SECRETS


def test_chart_and_manifests_ask_for_the_same(base: list[Any]) -> None:
    values = yaml(CHART / "values.yaml")
    pod, worker = named(base, "StatefulSet")["spec"]["template"]["spec"], worker_of(named(base, "StatefulSet"))
    assert values["image"] == {"repository": "", "tag": "", "digest": "", "pullPolicy": "IfNotPresent"}
    assert (values["policy"], values["partitions"]) == ("", None), "they are the user's"
    assert values["resources"] == worker["resources"]
    assert values["podSecurityContext"] == pod["securityContext"]
    assert values["containerSecurityContext"] == worker["securityContext"]
    assert values["terminationGracePeriodSeconds"] == pod["terminationGracePeriodSeconds"]
