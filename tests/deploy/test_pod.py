"""The container of the chart, run as a process of this machine: its arguments, variables, files and probes work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.kafka_broker import wait_until
from support.manifests import environment_of, named, read, worker_of
from support.running import SHOAL, Stage
from support.tools import output_of

POD = "visits-shoal-0"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def rendered(stage: Stage, port: int, *arguments: str) -> list[Any]:
    """Render the chart for the topics of a stage, and write the files that a pod mounts below its folder."""
    values = {
        "image": {"repository": "registry.example/shoal", "tag": "0.2.0"},
        "partitions": 2,
        "kafka": {"bootstrap_servers": stage.bootstrap},
        "kafkaSecretFiles": {"metadata_key_file": {"name": "shoal-metadata-key", "key": "keys"}},
        "http": {"host": "127.0.0.1", "port": port},
    }
    path = stage.folder / "values.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    given = ["--values", str(path), "--set-file", f"policy={stage.policy_file()}", *arguments]
    objects = read(output_of("helm", "template", "visits", "deploy/helm/shoal", *given))
    (stage.folder / "shoal").mkdir(exist_ok=True)
    for name, text in named(objects, "ConfigMap")["data"].items():
        (stage.folder / "shoal" / name).write_text(text, encoding="utf-8")
    key = stage.folder / "shoal-secrets" / "metadata_key_file"
    if not key.exists():
        key.parent.mkdir()
        key.write_text(os.urandom(32).hex(), encoding="utf-8")
        key.chmod(0o440)
    return objects


@contextlib.contextmanager
def started(stage: Stage, controller: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the container of a StatefulSet or Job; a folder of this test is in the place of /etc."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    for name, value in environment_of(controller).items():
        assert isinstance(value, str) or value == {"fieldRef": {"fieldPath": "metadata.name"}}
        given[name] = value.replace("/etc/", f"{stage.folder}/") if isinstance(value, str) else POD
    arguments = [word.replace("/etc/", f"{stage.folder}/") for word in worker_of(controller)["args"]]
    with (stage.folder / "log").open("ab") as log:
        process = subprocess.Popen([SHOAL, *arguments], env=given, stdin=subprocess.DEVNULL, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def answers(controller: Any, probe: str, port: int) -> bool:
    request = worker_of(controller)[probe]["httpGet"]
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{request['path']}") as response,
        ):
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def lags(port: int) -> list[float]:
    """Return the lag of each partition as the worker exports it."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        lines = (await response.text()).splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith("shoal_consumer_lag_records{")]


async def offset(stage: Stage) -> int:
    """Return the committed offset of the first partition."""
    committed = await stage.committed()
    assert committed is not None
    return int(committed.offset)


async def ended(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    return await asyncio.wait_for(asyncio.to_thread(process.wait), timeout_s)


@pytest.mark.usefixtures("kernels")
async def test_workers_of_the_chart_release_records_stop_and_are_drained(bootstrap: str, tmp_path: Path) -> None:
    stage, port = await Stage.create(bootstrap, tmp_path, partitions=2), free_port()
    workers = named(rendered(stage, port), "StatefulSet")
    grace_s = workers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    with started(stage, workers) as process:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            await wait_until(partial(answers, workers, probe, port), 120, f"the {probe}")
        record_ids = [*await stage.put(60, 0), *await stage.put(60, 1)]
        await wait_until(stage.read, 60, "released records")

        async def has_read_all() -> bool:
            return await lags(port) == [0, 0]

        # What KEDA scales by. Its scaler for Kafka would count the records that wait, after the committed offset.
        await wait_until(has_read_all, 60, "no lag")
        assert (await offset(stage)) < 60
        process.send_signal(signal.SIGTERM)
        assert await ended(process, grace_s) == 0
    with started(stage, named(rendered(stage, port, "--set", "drain=true"), "Job")) as process:
        assert await ended(process, 120) == 0
    await stage.until_completed(record_ids)
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert [json.loads(line)["event"] for line in said.splitlines()].count("stopped") == 2
    assert await offset(stage) == 60
