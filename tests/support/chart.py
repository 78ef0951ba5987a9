"""The chart and the manifests, rendered by helm and kustomize and compared with the schemas of Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.manifests import read
from support.tools import output_of, run_tool

CHART = "deploy/helm/shoal"
KUBERNETES = "deploy/kubernetes"
POLICY = f"{KUBERNETES}/overlays/example/policy.yaml"
SCHEMAS = f"{KUBERNETES}/schemas/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
REQUIRED = {
    "image.repository": "registry.example/shoal",
    "image.tag": "0.3.0",
    "partitions": "4",
    "kafka.bootstrap_servers": "kafka:9092",
}


def options(**changed: str) -> list[str]:
    """Return the required values as options of helm, with changes; an empty one is left out."""
    values = {name: value for name, value in (REQUIRED | changed).items() if value}
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


def template(*arguments: str | Path, release: str = "visits") -> list[Any]:
    """Return the objects of the chart; all fit their schemas."""
    command = ("template", release, CHART, "--namespace", "hospital", "--set-file", f"policy={POLICY}", *arguments)
    text = output_of("helm", *command)
    assert_valid(text)
    return read(text)


def notes(*arguments: str) -> str:
    install = ("install", "visits", CHART, "--namespace", "hospital", "--dry-run=client")
    said = output_of("helm", *install, "--set-file", f"policy={POLICY}", *arguments)
    return said.partition("NOTES:\n")[2]


def build(folder: str | Path) -> list[Any]:
    """Return the objects of a folder for kustomize, given below deploy/kubernetes; all fit their schemas."""
    text = output_of("kustomize", "build", Path(KUBERNETES) / folder)
    assert_valid(text)
    return read(text)


def conform(text: str) -> tuple[int, list[Any]]:
    """Return the exit code of kubeconform, and the objects that do not fit their schemas."""
    done = run_tool("kubeconform", "-strict", "-output", "json", "-schema-location", SCHEMAS, given=text)
    return done.returncode, json.loads(done.stdout)["resources"]


def assert_valid(text: str) -> None:
    """Check that all objects of a YAML stream fit their schemas."""
    code, wrong = conform(text)
    assert (code, wrong) == (0, []), wrong
