"""Attackers that send requests from a browser in the same network, or that read the output of verification."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
from oracle.naive_release import NaiveRelease, group, make_records
from shoal.observability import Health, Metrics
from shoal.observability.http import HttpAccess, serve
from support.attack_results import impossible

pytestmark = pytest.mark.privacy

CANARY = "xq7canary9z"
NAMES = [
    *("evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example:80", "svc.example.", ":1"),
    *("127.0.0.1:9464", "[::1]:9464", "localhost", "worker-1:9464"),
]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value or "" for name, value in attrs if name in {"href", "src", "action"}}


async def answer(port: int, path: str, host: str, method: str = "GET") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, f"http://127.0.0.1:{port}{path}", headers={"Host": host}) as response,
    ):
        assert "Access-Control-Allow-Origin" not in response.headers
        return response.status, await response.text()


async def test_page_and_metrics_answer_to_no_name_without_the_token() -> None:
    access = HttpAccess(token="0123456789abcdef")  # noqa: S106 - opens nothing
    async with serve("127.0.0.1:0", Metrics(), Health(), access) as port:
        for host in NAMES:
            for path in ("/", "/metrics"):
                status, text = await answer(port, path, host)
                assert (status, "shoal_" in text, "evil" in text) == (401, False, False), host
            # A probe may ask by any name: there is nothing to see.
            assert await answer(port, "/livez", host) == (200, "alive\n")
    impossible("R38", "where a token is set, page and metrics answer 401 without it, whatever the name")


async def test_the_page_writes_nothing_loads_nothing_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Metrics, "totals", lambda _: {f"<script>{CANARY}</script>": 1})
    async with serve("127.0.0.1:0", Metrics(), Health()) as port:
        _, text = await answer(port, "/", "localhost")
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await answer(port, "/", "localhost", method))[0] == 405
    page = Page()
    page.feed(text)
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tr", "td", "a"}
    assert page.links == {"metrics", "livez", "readyz"}
    assert CANARY in text
    impossible("R38", "the page has no script, no form, nothing from elsewhere and counts only")


def test_messages_of_verify_contain_clusters_and_counts_only(tmp_path: Path) -> None:
    records = make_records(60)
    for number, record in enumerate(records):
        record |= {"patient": f"{CANARY}{number}", "diagnosis": f"{CANARY}{number}"}
    world = NaiveRelease(tmp_path, records, group(records))
    assert world.verify().exit_code == 0
    sound = world.verify(summary=True)
    world.rows[0][0] = world.rows[0][0].replace(CANARY, f"{CANARY}x")
    world.clusters[1].append(world.clusters[0][0])
    broken = world.verify(summary=True)
    assert broken.exit_code == 1
    for verdict in (sound, broken):
        assert CANARY not in verdict.text()
        assert CANARY not in json.dumps(verdict.as_dict())
    impossible("R39", "the judge's words name clusters, checks and counts; never a value, never a subject")
