"""The container of the chart, run as a process of this machine: its arguments, variables, files and probes work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.certificates import Authority
from support.kafka_broker import wait_until
from support.manifests import environment_of, named, read, worker_of
from support.running import SHOAL, Stage
from support.tools import output_of

POD = "visits-shoal-0"
LAG = "shoal_consumer_lag_records"
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 - of a test


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def rendered(stage: Stage, port: int, *arguments: str) -> list[Any]:
    """Render the chart for the topics of a stage, and write the files that a pod mounts below its folder."""
    values = {
        "image": {"repository": "registry.example/shoal", "tag": "0.3.0"},
        "partitions": 2,
        "kafka": {"bootstrap_servers": stage.bootstrap},
        "networkPolicy": {"brokerPorts": [int(stage.bootstrap.rpartition(":")[2])]},
        "kafkaSecretFiles": {"metadata_key_file": {"name": "shoal-metadata-key", "key": "keys"}},
        "http": {
            "host": "0.0.0.0",  # noqa: S104 - the chart refuses what no kubelet would reach
            "port": port,
            "tokenSecret": {"name": "shoal-http", "key": "token"},
            "tlsSecret": "shoal-http-tls",
        },
    }
    path = stage.folder / "values.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    given = ["--values", str(path), "--set-file", f"policy={stage.policy_file()}", *arguments]
    objects = read(output_of("helm", "template", "visits", "deploy/helm/shoal", *given))
    (stage.folder / "shoal").mkdir(exist_ok=True)
    for name, text in named(objects, "ConfigMap")["data"].items():
        (stage.folder / "shoal" / name).write_text(text, encoding="utf-8")
    return objects


def write_secrets(folder: Path, authority: Authority) -> None:
    """Write what the Secrets hold, with the mode of the mount."""
    certificate, key = authority.issue("worker")
    content = {
        "shoal-secrets/metadata_key_file": os.urandom(32).hex(),
        "shoal-http/token": f"{TOKEN}\n",
        "shoal-http/tls.crt": certificate.read_text(encoding="utf-8"),
        "shoal-http/tls.key": key.read_text(encoding="utf-8"),
    }
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o440)


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


@dataclass(frozen=True)
class Pod:
    """The HTTP port of a container, asked as Kubernetes and Prometheus ask it."""

    controller: Any
    port: int
    trust: ssl.SSLContext

    async def answers(self, probe: str) -> bool:
        """Return whether a probe succeeds. A kubelet checks no certificate and has no token."""
        request = worker_of(self.controller)[probe]["httpGet"]
        address = f"{request['scheme'].lower()}://127.0.0.1:{self.port}{request['path']}"
        try:
            async with aiohttp.ClientSession() as session, session.get(address, ssl=False) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def scrape(self, **headers: str) -> tuple[int, list[float]]:
        """Return the status of the metrics, and the lag of each partition."""
        address = f"https://127.0.0.1:{self.port}/metrics"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(address, ssl=self.trust) as response,
        ):
            lines = (await response.text()).splitlines()
        return response.status, [float(one.split()[-1]) for one in lines if one.startswith(f"{LAG}{{")]


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
    authority = Authority(tmp_path / "authority")
    write_secrets(tmp_path, authority)
    workers = named(rendered(stage, port), "StatefulSet")
    grace_s = workers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    pod = Pod(workers, port, ssl.create_default_context(cafile=str(authority.file)))
    with started(stage, workers) as process:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            await wait_until(partial(pod.answers, probe), 120, f"the {probe}")
        record_ids = [*await stage.put(60, 0), *await stage.put(60, 1)]
        await wait_until(stage.read, 60, "released records")

        async def has_read_all() -> bool:
            return await pod.scrape(Authorization=f"Bearer {TOKEN}") == (200, [0, 0])

        # What KEDA scales by. Its scaler for Kafka would count the records that wait, after the committed offset.
        await wait_until(has_read_all, 60, "no lag")
        assert (await offset(stage)) < 60
        assert await pod.scrape() == (401, [])
        process.send_signal(signal.SIGTERM)
        assert await ended(process, grace_s) == 0
    with started(stage, named(rendered(stage, port, "--set", "drain=true"), "Job")) as process:
        assert await ended(process, 120) == 0
    await stage.until_completed(record_ids)
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert [json.loads(line)["event"] for line in said.splitlines()].count("stopped") == 2
    assert await offset(stage) == 60
