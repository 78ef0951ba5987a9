"""Overlays of the manifests: a second installation in one namespace, a drain, and the repair of the progress."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.chart import KUBERNETES, build
from support.manifests import assert_a_worker_is_confined, environment_of, kinds, named, worker_of

ROOT = Path(__file__).resolve().parents[2]
EAST = {
    "app.kubernetes.io/name": "shoal",
    "app.kubernetes.io/instance": "east",
    "app.kubernetes.io/component": "worker",
}


def overlay(folder: Path, text: str, *, of: Path, components: tuple[str, ...] = ()) -> Path:
    """Write an overlay, with paths as kustomize wants them."""
    folder.mkdir()
    used = [os.path.relpath(ROOT / KUBERNETES / "components" / name, folder) for name in components]
    lines = [f"resources: [{os.path.relpath(of, folder)}]", f"components: [{', '.join(used)}]", text]
    (folder / "kustomization.yaml").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def east(tmp_path: Path) -> Path:
    """An overlay as the page describes the second installation of a namespace."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (text,) = (block for block in page.split("```text\n")[1:] if block.startswith("namePrefix"))
    return overlay(tmp_path / "east", text.partition("```")[0], of=ROOT / KUBERNETES / "overlays" / "example")


def test_two_installations_in_one_namespace_select_their_own_pods(east: Path) -> None:
    objects = build(east)
    workers = named(objects, "StatefulSet")
    assert workers["spec"]["template"]["metadata"]["labels"] == EAST
    assert workers["spec"]["selector"] == {"matchLabels": EAST}
    assert named(objects, "Service")["spec"]["selector"] == EAST
    assert named(objects, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": EAST}
    pods = {name: value for name, value in EAST.items() if not name.endswith("component")}
    assert named(objects, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": pods}
    assert named(objects, "PodMonitor")["spec"]["selector"] == {"matchLabels": pods}
    assert named(objects, "ScaledObject")["spec"]["scaleTargetRef"]["name"] == "east-shoal"
    assert workers["spec"]["template"]["spec"]["serviceAccountName"] == "east-shoal"
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert not names & {(one["kind"], one["metadata"]["name"]) for one in build("overlays/example")}


def assert_it_has_all_of_a_worker(objects: list[Any], controller: Any) -> None:
    workers = named(objects, "StatefulSet", "east-shoal")
    assert environment_of(controller) == environment_of(workers)
    pods = [one["spec"]["template"]["spec"] for one in (controller, workers)]
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert pods[0]["serviceAccountName"] == "east-shoal"
    labels = controller["spec"]["template"]["metadata"]["labels"]
    assert not workers["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert named(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert controller["metadata"]["namespace"] == "visits"


def test_a_drain_copies_the_pod_of_the_overlay_and_pauses_keda(east: Path, tmp_path: Path) -> None:
    objects = build(overlay(tmp_path / "drain", "namespace: visits", of=east, components=("drain",)))
    job = named(objects, "Job")
    assert job["metadata"]["name"] == "east-shoal-drain"
    assert_a_worker_is_confined(job, is_worker=False)
    assert_it_has_all_of_a_worker(objects, job)
    workers = named(objects, "StatefulSet")
    assert worker_of(job)["args"] == [*worker_of(workers)["args"], "--drain"]
    assert "replicas" not in workers["spec"], "KEDA sets it"
    annotations = named(objects, "ScaledObject")["metadata"]["annotations"]
    assert annotations == {"autoscaling.keda.sh/paused-replicas": "0"}


def test_a_drain_without_keda_sets_the_number_of_workers(tmp_path: Path) -> None:
    plain = overlay(tmp_path / "plain", "namespace: visits", of=ROOT / KUBERNETES / "base")
    objects = build(overlay(tmp_path / "drain", "namespace: visits", of=plain, components=("drain",)))
    assert named(objects, "StatefulSet")["spec"]["replicas"] == 0
    assert named(objects, "Job")["metadata"]["name"] == "shoal-drain"
    assert "ScaledObject" not in kinds(objects)


def test_the_progress_is_repaired_in_a_pod_that_runs_nothing(east: Path, tmp_path: Path) -> None:
    objects = build(overlay(tmp_path / "repair", "namespace: visits", of=east, components=("maintenance",)))
    idle = named(objects, "StatefulSet", "east-shoal-maintenance")
    assert_it_has_all_of_a_worker(objects, idle)
    assert idle["spec"]["serviceName"] == "east-shoal"
    assert idle["spec"]["selector"]["matchLabels"] == EAST | {"app.kubernetes.io/component": "maintenance"}
    assert worker_of(idle)["command"] == ["sleep", "infinity"]
    assert not {"args", "ports", "startupProbe", "livenessProbe", "readinessProbe"} & set(worker_of(idle))
    assert "--from=earliest" in worker_of(named(objects, "StatefulSet", "east-shoal"))["args"]


def test_a_refused_start_may_skip_to_the_end(east: Path, tmp_path: Path) -> None:
    objects = build(overlay(tmp_path / "skip", "namespace: visits", of=east, components=("skip-to-end",)))
    assert worker_of(named(objects, "StatefulSet"))["args"][-2:] == ["--log=json", "--skip-to-end"]
