"""Kubernetes manifests as objects, and what every pod of a worker must be like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

WORKER = 10001
"""User of the image."""


def read(text: str) -> list[Any]:
    return [one for one in YAML(typ="safe").load_all(text) if one is not None]


def named(objects: list[Any], kind: str, name: str | None = None) -> Any:
    """Return the only object of a kind, or the one with this name."""
    (found,) = (one for one in objects if one["kind"] == kind and name in {None, one["metadata"]["name"]})
    return found


def kinds(objects: list[Any]) -> set[str]:
    return {one["kind"] for one in objects}


def worker_of(stateful_set: Any) -> Any:
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return container


def environment_of(stateful_set: Any) -> dict[str, Any]:
    """Return the variables of a worker with their values, or with their sources."""
    variables = worker_of(stateful_set)["env"]
    names = [variable["name"] for variable in variables]
    assert len(set(names)) == len(names), names
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def assert_a_worker_is_confined(stateful_set: Any, *, is_worker: bool = True) -> None:
    """Check what a worker, or the pod of a drain, may do, how it is probed, and what it is called."""
    pod, worker = stateful_set["spec"]["template"]["spec"], worker_of(stateful_set)
    assert stateful_set["spec"].get("podManagementPolicy") == ("Parallel" if is_worker else None)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["terminationGracePeriodSeconds"] >= 20  # twice as long as a worker needs
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == WORKER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["topologySpreadConstraints"]
    assert environment_of(stateful_set)["SHOAL_KAFKA__INSTANCE_ID"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert set(worker["resources"]["requests"]) == {"cpu", "memory"}
    assert set(worker["resources"]["limits"]) == {"memory"}
    probed = {probe: worker[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probed == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    start = worker["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 120  # kernels of one processor, compiled by half of it
    assert_the_image_has_a_version(worker["image"])
    for mount in worker["volumeMounts"]:
        assert "subPath" not in mount, "a renewed file would not reach the worker"
        assert mount.get("readOnly", mount["name"] in {"tmp", "kernels"}), mount


def assert_the_image_has_a_version(image: str) -> None:
    """Check that all workers run the same version."""
    name, _, digest = image.partition("@")
    tag = Path(name).name.partition(":")[2]
    assert digest.startswith("sha256:") or tag not in {"", "latest"}, image
