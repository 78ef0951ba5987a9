"""The dashboard and the rules over a real Prometheus that scrapes the workers of two pipelines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.alert_cases import ROOT, rules
from support.kafka_broker import wait_until
from support.prometheus import Prometheus, prometheus
from support.running import Process, Stage
from support.secured_broker import GROUP, TOPIC, TRANSACTIONAL_ID, Grant, SecuredBroker, secured_broker

pytestmark = [pytest.mark.deploy_tools, pytest.mark.usefixtures("kernels")]

WARDS = ("eye", "eye", "ear", "eye", "ear", "nose", "eye")
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "shoal.json"
WAIT_S = 90


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def queries() -> list[tuple[str, str]]:
    """Return title and expression of each query of the dashboard."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


def substituted(expression: str, group: str, topic: str) -> str:
    return expression.replace("$group", group).replace("$topic", topic).replace("$__rate_interval", "10s")


def write_reference(folder: Path) -> None:
    folder.mkdir()
    (folder / "wards.csv").write_text("value,share\neye,0.5\near,0.3\nnose,0.2\n")


async def stage_of(secured: SecuredBroker, folder: Path, **changes: Any) -> Stage:
    """Return a stage whose user, of the name of the folder, may use its topics."""
    write_reference(folder)
    stage = await Stage.create(secured.plain, folder, partitions=2, **changes)
    topics = [Grant(TOPIC, name, operation) for name in stage.topics.values() for operation in ("READ", "WRITE")]
    ids = Grant(TRANSACTIONAL_ID, f"{stage.group}-", "WRITE", is_prefix=True)
    await secured.allow(folder.name, [*topics, Grant(GROUP, stage.group, "READ"), ids])
    return stage


def worker(secured: SecuredBroker, stage: Stage) -> Process:
    """Start a worker that knows itself to the broker by a certificate."""
    certificate, key = secured.authority.issue(stage.folder.name)
    files = {"CAFILE": secured.authority.file, "CERTFILE": certificate, "KEYFILE": key}
    return stage.process(
        *("--from", "earliest"),
        BOOTSTRAP_SERVERS=secured.addresses["SSL"],
        SECURITY_PROTOCOL="SSL",
        **{f"SSL_{name}": str(path) for name, path in files.items()},
    )


async def feed(stages: list[Stage], enough: asyncio.Event) -> None:
    """Append records until it is enough. A task that is cancelled could leave a producer open."""
    while not enough.is_set():
        for stage in stages:
            for partition in range(2):
                await stage.send([stage.record(ward=WARDS[stage.serial * 37 % 101 % 7]) for _ in range(40)], partition)
        await asyncio.sleep(0.2)


async def assert_all_have_data(server: Prometheus, group: str, topic: str) -> None:
    """Wait until each query of the dashboard has a number."""
    missing = queries()

    async def have_data() -> bool:
        missing[:] = [one for one in missing if not await server.numbers(substituted(one[1], group, topic))]
        return not missing

    try:
        await wait_until(have_data, WAIT_S)
    except TimeoutError:
        raise AssertionError(f"no data: {missing}") from None


async def assert_rules_are_evaluated(server: Prometheus) -> None:
    found = [rule for group in (await server.ask("rules"))["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in found} == {rule.get("alert") or rule["record"] for rule in rules()}
    assert len(found) == len(rules())
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []
    firing = [one["labels"] for one in (await server.ask("alerts"))["alerts"] if one["state"] == "firing"]
    assert firing == []


async def assert_counts_of_the_hour_are_recorded(server: Prometheus) -> None:
    """Wait until both pipelines have counts: the rules may be evaluated before the second worker is scraped."""

    async def have_released() -> bool:
        recorded = await server.numbers('pipeline:shoal_records:increase1h{outcome="released"}')
        return len(recorded) == 2 and min(recorded) > 100

    await wait_until(have_released, WAIT_S)


async def test_every_query_of_the_dashboard_has_data_and_no_alert_fires(secured: SecuredBroker, tmp_path: Path) -> None:
    protected = {"k": 4, "l": 2, "t": 0.4, "max_value_share": 0.8}
    visits = await stage_of(secured, tmp_path / "visits", privacy=protected, stream={"delta": 40, "rule": "awo"})
    ward = {"role": "confidential", "type": "string", "protect": True, "reference": "wards.csv"}
    visits.document["attributes"]["ward"] = ward
    rides = await stage_of(secured, tmp_path / "rides", steering={"dependence": 0.5}, stream={"delta": 40})
    rides.document["attributes"]["serial"]["bounds"] = [0, 100_000]
    rides.document["attributes"]["ward"] = {"role": "identifier"}
    async with AsyncExitStack() as stack:
        ports = []
        for stage in (visits, rides):
            process = await stack.enter_async_context(worker(secured, stage))
            await process.until_ready(60)
            ports.append(await process.port())
        enough = asyncio.Event()
        feeding = asyncio.create_task(feed([visits, rides], enough))
        stack.push_async_callback(asyncio.wait, {feeding})
        stack.callback(enough.set)
        server = await stack.enter_async_context(prometheus(tmp_path, {"pipelines": ports}))
        await assert_all_have_data(server, ".*", ".*")
        for title, expression in queries():
            if not title.startswith("Confidential values"):  # the other group protects them
                found = await server.numbers(substituted(expression, rides.group, rides.topics["input"]))
                assert found, f"{title}: of one group"
        groups = await server.ask("label/group/values", **{"match[]": "shoal_build_info"})
        topics = await server.ask("label/topic/values", **{"match[]": f'shoal_records_total{{group="{visits.group}"}}'})
        assert (groups, topics) == (sorted([visits.group, rides.group]), [visits.topics["input"]])
        await assert_rules_are_evaluated(server)
        await assert_counts_of_the_hour_are_recorded(server)
        assert not feeding.done(), "records arrive until the end"
