"""Prometheus as a process on loopback, with the rules of this repository."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from support.alert_cases import RULES
from support.kafka_broker import wait_until
from support.tools import tool


@dataclass
class Prometheus:
    address: str

    async def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its interface."""
        url = f"{self.address}/api/v1/{path}"
        async with aiohttp.ClientSession() as client, client.get(url, params=parameters) as answer:
            found = await answer.json()
        assert found["status"] == "success", f"{parameters}: {found}"
        return found["data"]

    async def numbers(self, expression: str) -> list[float]:
        result = (await self.ask("query", query=expression))["result"]
        values = [float(one["value"][1]) for one in result]
        return [value for value in values if not math.isnan(value)]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def prometheus(folder: Path, jobs: Mapping[str, list[int]]) -> AsyncIterator[Prometheus]:
    """Run Prometheus while the context is open. It scrapes these ports of each job once a second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in jobs.items()
        ],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config), encoding="utf-8")
    address = f"127.0.0.1:{_free_port()}"
    command = [tool("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
            [*command, f"--web.listen-address={address}"], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        found = Prometheus(f"http://{address}")

        async def answers() -> bool:
            assert process.poll() is None, (folder / "prometheus.log").read_text()[-2000:]
            try:
                return bool(await found.ask("query", query="vector(1)"))
            except aiohttp.ClientError:
                return False

        await wait_until(answers, what="Prometheus")
        yield found
    finally:
        process.terminate()
        process.wait(30)
