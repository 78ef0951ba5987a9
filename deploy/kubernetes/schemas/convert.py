"""Write the JSON schemas beside this file from the descriptions that Kubernetes and the operators publish.

Run it after a change of a version below: ``.venv/bin/python deploy/kubernetes/schemas/convert.py``. It needs Go, Maven
and Java 21. kubeconform reads the schemas; nothing is fetched while tests run. What a description says to readers is
left out. Properties that a description does not list are refused, as ``kubectl apply --validate=strict`` does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).resolve().parent

KUBERNETES = "k8s.io/kubernetes@v1.37.2"
KINDS = {
    "io.k8s.api.apps.v1.StatefulSet": "statefulset-apps-v1",
    "io.k8s.api.batch.v1.Job": "job-batch-v1",
    "io.k8s.api.core.v1.ConfigMap": "configmap-v1",
    "io.k8s.api.core.v1.Secret": "secret-v1",
    "io.k8s.api.core.v1.Service": "service-v1",
    "io.k8s.api.core.v1.ServiceAccount": "serviceaccount-v1",
    "io.k8s.api.networking.v1.NetworkPolicy": "networkpolicy-networking-v1",
    "io.k8s.api.policy.v1.PodDisruptionBudget": "poddisruptionbudget-policy-v1",
}
"""Kinds of Kubernetes, and the names of their files: those that kubeconform looks for."""
OPERATORS = {
    "github.com/prometheus-operator/prometheus-operator@v0.93.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "github.com/kedacore/keda/v2@v2.21.0": (
        "config/crd/bases/keda.sh_scaledobjects.yaml",
        "config/crd/bases/keda.sh_triggerauthentications.yaml",
    ),
}
STRIMZI = "1.2.0"
STRIMZI_KINDS = {"KafkaTopic": "io.strimzi.api.kafka.model.topic", "KafkaUser": "io.strimzi.api.kafka.model.user"}

KEPT = {
    *("$ref", "additionalProperties", "allOf", "anyOf", "default", "enum", "exclusiveMaximum", "exclusiveMinimum"),
    *("items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties"),
    *("minimum", "multipleOf", "not", "oneOf", "pattern", "properties", "required", "type", "uniqueItems"),
}
"""Keywords that a validator uses."""
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
LOOSE = {
    INT_OR_STRING: {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
}
"""Types that are strings in Kubernetes' description and may be numbers, too."""


def closed(schema: Any) -> Any:  # noqa: ANN401 - a part of a JSON schema
    """Return a schema without its texts, in which objects have no other properties than the listed ones."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return LOOSE[INT_OR_STRING]
    kept = {key: value for key, value in schema.items() if key in KEPT}
    result = {
        key: closed(value) if key not in {"properties", "enum", "default"} else value for key, value in kept.items()
    }
    if "properties" in kept:
        result["properties"] = {name: closed(value) for name, value in kept["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    return result


def write(name: str, schema: dict[str, Any]) -> None:
    """Write a schema, one definition a line."""
    definitions = schema.pop("definitions", {})
    lines = [f'"{key}":{json.dumps(value, sort_keys=True, separators=(",", ":"))}' for key, value in schema.items()]
    if definitions:
        inner = ",\n".join(
            f'"{key}":{json.dumps(value, sort_keys=True, separators=(",", ":"))}'
            for key, value in sorted(definitions.items())
        )
        lines.append(f'"definitions":{{\n{inner}\n}}')
    (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def references(schema: Any) -> set[str]:  # noqa: ANN401 - a part of a JSON schema
    """Return the names of the definitions that a schema refers to."""
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].rpartition("/")[2]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(references, schema.values()))


def convert_kubernetes(folder: Path) -> None:
    """Write one file for each kind, with the definitions that it needs."""
    described = json.loads((folder / "api" / "openapi-spec" / "swagger.json").read_text(encoding="utf-8"))[
        "definitions"
    ]
    for kind, name in KINDS.items():
        root = described[kind]
        (identity,) = (one for one in root["x-kubernetes-group-version-kind"] if one["kind"] == kind.split(".")[-1])
        schema = closed(root)
        group = f"{identity['group']}/" if identity["group"] else ""
        schema["properties"]["apiVersion"] = {"enum": [f"{group}{identity['version']}"]}
        schema["properties"]["kind"] = {"enum": [identity["kind"]]}
        schema["required"] = sorted({*schema.get("required", ()), "apiVersion", "kind", "metadata"})
        needed: dict[str, Any] = {}
        missing = references(schema)
        while missing:
            needed |= {one: LOOSE.get(one) or closed(described[one]) for one in missing}
            missing = set().union(*map(references, needed.values())) - needed.keys()
        write(name, schema | {"definitions": needed})


def convert_definition(definition: dict[str, Any]) -> None:
    """Write one file for each served version of a custom resource."""
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    for version in definition["spec"]["versions"]:
        if version["served"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {
                "apiVersion": {"enum": [f"{group}/{version['name']}"]},
                "kind": {"enum": [kind]},
                "metadata": {"type": "object"},
            }
            schema["required"] = sorted({*schema.get("required", ()), "apiVersion", "kind", "metadata"})
            write(f"{kind.lower()}-{group.partition('.')[0]}-{version['name']}", schema)


def module(name: str) -> Path:
    """Return the folder of a Go module, downloaded by Go."""
    told = subprocess.run(["go", "mod", "download", "-json", name], capture_output=True, text=True, check=True).stdout
    return Path(json.loads(told)["Dir"])


def strimzi(folder: Path) -> list[Path]:
    """Let Strimzi's own generator write the descriptions of its resources."""
    artefacts = "".join(
        f"<dependency><groupId>io.strimzi</groupId><artifactId>{name}</artifactId><version>{STRIMZI}</version></dependency>"
        for name in ("api", "crd-generator")
    )
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>shoal</groupId><artifactId>schemas</artifactId>"
        f"<version>1</version><dependencies>{artefacts}</dependencies></project>",
        encoding="utf-8",
    )
    maven = ["mvn", "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'libraries'}"]
    subprocess.run(maven, cwd=folder, check=True)
    files = {kind: folder / f"{kind}.yaml" for kind in STRIMZI_KINDS}
    classes = [f"{package}.{kind}={files[kind]}" for kind, package in STRIMZI_KINDS.items()]
    generator = "io.strimzi.crdgenerator.CrdGenerator"
    subprocess.run(["java", "-cp", f"{folder / 'libraries'}/*", generator, "--yaml", *classes], check=True)
    return list(files.values())


def main() -> int:
    """Write all schemas, and the licence and notice of their origins."""
    for old in HERE.glob("*.json"):
        old.unlink()
    kubernetes = module(KUBERNETES)
    convert_kubernetes(kubernetes)
    shutil.copyfile(kubernetes / "LICENSE", HERE / "LICENSE")
    load = YAML(typ="safe").load
    for name, paths in OPERATORS.items():
        folder = module(name)
        for path in paths:
            convert_definition(load((folder / path).read_text(encoding="utf-8")))
        if (folder / "NOTICE").exists():
            shutil.copyfile(folder / "NOTICE", HERE / "NOTICE")
    with tempfile.TemporaryDirectory() as written:
        for file in strimzi(Path(written)):
            convert_definition(load(file.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
