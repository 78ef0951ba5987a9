"""What operators do with an installed chart: scale, stop, drain, repair, and install it several times."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from shoal.policy import Policy
from shoal.settings import kafka_settings
from support.chart import CHART, POLICY, assert_valid, notes, options, template
from support.manifests import assert_a_worker_is_confined, environment_of, kinds, named, read, worker_of
from support.tools import output_of

ROOT = Path(__file__).resolve().parents[2]
AUTOSCALED = {"autoscaling.enabled": "true", "autoscaling.prometheus": "http://prometheus:9090"}
PAUSED = {"autoscaling.keda.sh/paused-replicas": "0"}


def strings(values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("--set-string", f"{name}={value}")]


def notes_of_an_upgrade(folder: Path, *arguments: str) -> str:
    """Return what an upgrade says: without a cluster, helm prints notes of installations only."""
    shutil.copytree(ROOT / CHART, folder)
    (folder / "templates" / "NOTES.txt").rename(folder / "files" / "NOTES.txt")
    text = '{{ dict "said" (tpl (.Files.Get "files/NOTES.txt") .) | toYaml }}'
    (folder / "templates" / "said.yaml").write_text(text, encoding="utf-8")
    command = ("template", "visits", folder, "--is-upgrade", "--show-only", "templates/said.yaml")
    (one,) = read(output_of("helm", *command, "--set-file", f"policy={POLICY}", *options(), *arguments))
    return str(one["said"])


# ---------------------------------------------------------------- the number of workers


@pytest.mark.parametrize("drain", ["false", "true"])
def test_with_keda_the_chart_never_sets_the_number_of_workers(drain: str) -> None:
    objects = template(*options(**AUTOSCALED, drain=drain))
    assert "replicas" not in named(objects, "StatefulSet")["spec"], "two owners of a field are a conflict"
    annotations = named(objects, "ScaledObject")["metadata"].get("annotations")
    assert annotations == (PAUSED if drain == "true" else None)
    words = "KEDA needs metrics with the labels namespace and pod"
    assert words in notes(*options(**AUTOSCALED))
    assert words not in notes(*options(**AUTOSCALED, **{"podMonitor.enabled": "true"}))


# ---------------------------------------------------------------- drain and repair


def test_a_drain_has_a_job_in_place_of_workers() -> None:
    objects = template(*options(drain="true"))
    workers, job = named(objects, "StatefulSet"), named(objects, "Job")
    assert workers["spec"]["replicas"] == 0
    assert_a_worker_is_confined(job, is_worker=False)
    assert worker_of(job)["args"] == [*worker_of(workers)["args"], "--drain"]
    assert_other_pods_are_no_workers(objects, job)
    assert job["metadata"]["name"] == "visits-shoal-drain-1", "each revision has a job of its own"
    assert job["metadata"]["labels"]["app.kubernetes.io/component"] == "drain"
    assert "job/visits-shoal-drain-1" in notes(*options(drain="true"))
    assert "Job" not in kinds(template(*options()))


def assert_other_pods_are_no_workers(objects: list[Any], controller: Any) -> None:
    workers = named(objects, "StatefulSet", "visits-shoal")
    labels = controller["spec"]["template"]["metadata"]["labels"]
    for selector in (workers["spec"]["selector"], named(objects, "PodDisruptionBudget")["spec"]["selector"]):
        assert not selector["matchLabels"].items() <= labels.items()
    assert not named(objects, "Service")["spec"]["selector"].items() <= labels.items()
    assert named(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_refused_start_may_skip_to_the_end() -> None:
    skipping = template(*options(skipToEnd="true"))
    assert worker_of(named(skipping, "StatefulSet"))["args"][-2:] == ["--log=json", "--skip-to-end"]
    assert "Take it out as soon as" in notes(*options(skipToEnd="true"))
    assert "--skip-to-end" not in worker_of(named(template(*options()), "StatefulSet"))["args"]
    draining = template(*options(skipToEnd="true", drain="true"))
    assert "--skip-to-end" not in worker_of(named(draining, "Job"))["args"]


def test_the_progress_is_repaired_in_a_pod_that_has_all_of_a_worker_and_runs_nothing() -> None:
    secret = {"kafkaSecretFiles.ssl_cafile.name": "ca", "kafkaSecretFiles.ssl_cafile.key": "ca.crt"}
    objects = template(*options(maintenance="true", **secret))
    workers, idle = (named(objects, "StatefulSet", name) for name in ("visits-shoal", "visits-shoal-maintenance"))
    assert idle["spec"]["replicas"] == 1
    pods = [one["spec"]["template"]["spec"] for one in (workers, idle)]
    containers = [pod["containers"][0] for pod in pods]
    for key in ("image", "env", "volumeMounts", "securityContext", "resources"):
        assert containers[0][key] == containers[1][key]
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert containers[1]["command"] == ["sleep", "infinity"]
    assert not {"args", "ports", "startupProbe", "livenessProbe", "readinessProbe"} & set(containers[1])
    assert_other_pods_are_no_workers(objects, idle)
    command = "exec visits-shoal-maintenance-0 -- shoal progress /etc/shoal/policy.yaml"
    assert command in notes(*options(maintenance="true"))


def test_an_upgrade_warns_of_a_start_that_could_be_a_second_one(tmp_path: Path) -> None:
    words = "from=earliest without kafka.progress_copy"
    assert words not in notes(*options())
    assert words in notes_of_an_upgrade(tmp_path / "as-it-is")
    assert words not in notes_of_an_upgrade(tmp_path / "copied", "--set", "kafka.progress_copy=visits.progress")
    assert "without kafka.progress_copy" not in notes_of_an_upgrade(tmp_path / "nowhere", "--set", "from=")


# ---------------------------------------------------------------- settings


def in_pod(objects: list[Any]) -> dict[str, str]:
    variables = environment_of(named(objects, "StatefulSet"))
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def test_several_topics_reach_the_worker_as_it_reads_them(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    text = (ROOT / POLICY).read_text(encoding="utf-8")
    policy.write_text(text.replace("input: visits, output: visits.anonymous, ", ""), encoding="utf-8")
    topics = {"kafka.topics[0].input": "north", "kafka.topics[0].output": "north.anonymous"}
    objects = template("--set-file", f"policy={policy}", *options(**topics))
    settings = kafka_settings(Policy.load(policy), in_pod(objects))
    assert [(pair.input, pair.output) for pair in settings.topics or ()] == [("north", "north.anonymous")]


def test_the_policy_may_choose_the_session_timeout(tmp_path: Path) -> None:
    name = "SHOAL_KAFKA__SESSION_TIMEOUT_MS"
    assert in_pod(template(*options()))[name] == "45000"
    assert in_pod(template(*options(**{"kafka.session_timeout_ms": "60000"})))[name] == "60000"
    policy = tmp_path / "policy.yaml"
    text = (ROOT / POLICY).read_text(encoding="utf-8")
    policy.write_text(text.replace("kafka: {", "kafka: {session_timeout_ms: 30000, "), encoding="utf-8")
    objects = template("--set-file", f"policy={policy}", *options())
    assert name not in in_pod(objects)
    assert kafka_settings(Policy.load(policy), in_pod(objects)).session_timeout_ms == 30_000
    variable = strings({"extraEnv[0].name": name, "extraEnv[0].value": "20000"})
    assert in_pod(template(*options(), *variable))[name] == "20000"


# ---------------------------------------------------------------- names


def test_a_name_that_looks_like_a_number_or_a_boolean_stays_a_text() -> None:
    values = {
        "priorityClassName": "1e3",
        "http.tokenSecret.name": "true",
        "http.tokenSecret.key": "12",
        "kafkaSecretFiles.ssl_cafile.name": "1e3",
        "kafkaSecretFiles.ssl_cafile.key": "12",
        "autoscaling.authentication": "1e3",
    }
    monitored = {"podMonitor.enabled": "true"}
    objects = template(
        *options(**AUTOSCALED, **monitored), *strings(values | {"fullnameOverride": "null"}), release="12"
    )
    assert {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in objects} == {"12"}
    assert {one["metadata"]["name"] for one in objects} == {"null", "null-policy"}


def test_long_names_differ_after_they_are_cut() -> None:
    names = set()
    for last in ("north", "south"):
        release = f"visits-of-all-hospitals-and-of-their-branches-{last}"[:53]
        objects = template(*options(maintenance="true"), release=release)
        names |= {one["metadata"]["name"] for one in objects if one["kind"] == "StatefulSet"}
    assert len(names) == 4
    assert {len(name) <= 50 for name in names} == {True}, "a label of the pods has the name and eleven characters"
    assert named(template(*options()), "Service")["metadata"]["name"] == "visits-shoal"
    override = template(*options(fullnameOverride="wages"))
    assert {one["metadata"]["name"] for one in override} == {"wages", "wages-policy"}


def test_a_chart_may_contain_this_one_twice(tmp_path: Path) -> None:
    shutil.copytree(ROOT / CHART, tmp_path / "charts" / "shoal")
    dependencies = "".join(
        f"  - {{name: shoal, version: 0.3.0, alias: {alias}, condition: {alias}.enabled}}\n"
        for alias in ("north", "south")
    )
    chart = f"apiVersion: v2\nname: all\nversion: 1.0.0\ndependencies:\n{dependencies}"
    (tmp_path / "Chart.yaml").write_text(chart, encoding="utf-8")
    arguments = ["--set", "north.enabled=true", "--set", "south.enabled=true"]
    for alias in ("north", "south"):
        arguments += ["--set-file", f"{alias}.policy={POLICY}"]
        arguments += [word if word == "--set" else f"{alias}.{word}" for word in options()]
    text = output_of("helm", "template", "visits", tmp_path, *arguments)
    assert_valid(text)
    objects = read(text)
    workers = [one for one in objects if one["kind"] == "StatefulSet"]
    assert [one["metadata"]["name"] for one in workers] == ["visits-north", "visits-south"]
    selectors = [one["spec"]["selector"]["matchLabels"] for one in workers]
    assert selectors[0] != selectors[1]
    ids = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(ids)) == len(ids)
