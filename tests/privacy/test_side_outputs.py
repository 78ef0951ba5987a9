"""What leaves beside the records: metrics, page, quarantine, terminal; and values that try to get there."""

from __future__ import annotations

import json
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from oracle.naive_release import NaiveRelease, group, make_records
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from shoal import cli
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.observability import Health, Metrics, escape_control_characters
from shoal.observability.http import serve
from shoal.observability.http_access import HttpAccess
from shoal.streams import PartitionPipeline
from support.attack_results import impossible, measured
from support.making import policy_of, quasi
from support.partition_tasks import START_MS, Message, RecordingSink, task_of
from support.running import Stage

STEP_CLUSTERS = 20
CANARY = "xq7canary9z"
NAMES = [
    *("evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example:80", "svc.example.", ":1"),
    *("127.0.0.1:9464", "[::1]:9464", "localhost", "worker-1:9464"),
]

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table><iframe src='//x'>",
    "=cmd()",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "\u202eevil\u2066",
    "a\rb\nc\td\0e",
    "{{7*7}}${7*7}%n%s",
    "'; DROP TABLE x; --",
]

# ---------------------------------------------------------------- metrics

LABELS = {"group", "outcome", "reason", "topic", "partition", "attribute", "fingerprint", "le", "version", "python"}
OUTCOMES = {"in", "released", "suppressed", "quarantined", "dropped", "committed", "aborted"}
REASONS = {"", "undecodable", "invalid", "suppressed", "too_large", "deletes", "tombstones", "skip"}
OF_VALUES = (
    *("shoal_sse", "shoal_sst", "shoal_attribute_loss", "shoal_reordering", "shoal_delay", "shoal_values_clipped"),
)
"""Series that depend on values or delays."""
K = 3


def scraped(metrics: Metrics) -> list[Any]:
    text = generate_latest(metrics.registry).decode()
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


async def test_series_that_depend_on_values_move_once_in_twenty_clusters_and_labels_are_a_closed_list() -> None:
    policy = policy_of(
        {"who": {"role": "identifier", "subject": True}, "x": quasi(0, 1000), "note": {"role": "confidential"}},
        privacy={"k": K},
        stream={"delta": K - 1},
    )
    sink, draw = RecordingSink(), random.Random(1)
    task, metrics = task_of(policy, sink)
    before: dict[Any, float] = {}
    moves: list[int] = []
    for offset in range(150 * K):
        clipped = draw.random() < 0.3
        record = {"who": offset, "x": 5000 if clipped else draw.random() * 1000, "note": "n"}
        await task.process([Message(offset, START_MS, json.dumps(record).encode())])
        await task._commit()
        now = {}
        for one in scraped(metrics):
            assert one.labels.keys() <= LABELS, one.name
            assert one.labels.get("outcome", "in") in OUTCOMES
            assert one.labels.get("reason", "") in REASONS
            assert one.labels.get("attribute", "x") == "x", "a name of the policy"
            if one.name.startswith(OF_VALUES) and not one.name.endswith("_created"):
                now[one.name, tuple(sorted(one.labels.items()))] = one.value
        if before and any(now[key] != before.get(key, 0.0) for key in now):
            moves.append(sum(len(batch.clusters) for batch, _ in sink.published))
        before = now
    clusters = sum(len(batch.clusters) for batch, _ in sink.published)
    assert max(len(batch.clusters) for batch, _ in sink.published) == 1
    assert clusters > 100
    assert len(moves) > 3
    assert np.diff(moves).min() >= STEP_CLUSTERS
    measured(
        "R34",
        "scrapes around single clusters that show a change",
        knows="every scrape, one cluster in each transaction",
        success=len(moves) / clusters,
        bound=1 / STEP_CLUSTERS,
        source=f"steps of {STEP_CLUSTERS} clusters",
    )


def test_how_long_a_record_is_held_is_shown_in_few_steps() -> None:
    metrics, held_s = Metrics("visits"), [0.0]
    metrics.watch_oldest_held("t", 0, lambda: held_s[0])
    shown = {}
    for age_s in range(3, 86_400, 60):
        held_s[0] = age_s
        (one,) = next(iter(metrics.oldest_held.collect())).samples
        assert one.labels == {"topic": "t", "partition": "0"}
        assert one.value <= age_s < 2.5 * one.value, "an age is known to a factor of 2.5"
        shown[age_s] = one.value
    assert sorted(set(shown.values())) == [2, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000]
    assert len(shown) == 1440, "at 10 of so many scrapes a reader sees the moment of a step"


# ---------------------------------------------------------------- the page and the terminal


class Elements(HTMLParser):
    """Which elements a page has, which of their attributes, and what text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.targets: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        assert not any(name.startswith("on") for name, _ in attrs)
        self.targets |= {value or "" for name, value in attrs if name in {"href", "src", "action"}}

    def handle_data(self, data: str) -> None:
        self.text += data


def elements(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    found.close()
    return found


async def fetched(metrics: Metrics) -> dict[str, tuple[int, str, dict[str, str]]]:
    answers = {}
    async with serve("127.0.0.1:0", metrics, Health()) as port, aiohttp.ClientSession() as client:
        for path in ("/", "/metrics", "/livez", "/readyz", "/<script>"):
            async with client.get(f"http://127.0.0.1:{port}{path}") as answer:
                answers[path] = answer.status, await answer.text(), dict(answer.headers)
    return answers


async def test_no_text_makes_an_element_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, hostile = Metrics(), Metrics()
    for text in HOSTILE:
        hostile.records.labels("in", "", text, text).inc()
        hostile.policy.labels(text).set(1)
    usual = elements((await fetched(plain))["/"][1])
    # Rows of names that no release has, as if a value had been used as a label.
    monkeypatch.setattr(hostile, "totals", lambda: dict.fromkeys(HOSTILE, 1))
    answers = await fetched(hostile)
    shown = elements(answers["/"][1])
    rows = len(HOSTILE) - len(plain.totals())
    assert shown.found - usual.found == Counter(tr=rows, td=2 * rows)
    assert shown.targets == usual.targets == {"metrics", "livez", "readyz"}
    for _, text, headers in answers.values():
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "script-src" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "<script" not in text or headers["Content-Type"].startswith("text/plain")
    assert answers["/<script>"][0] == 404


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
    page = elements(text)
    assert set(page.found) <= {"html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tr", "td", "a"}
    assert page.targets == {"metrics", "livez", "readyz"}
    assert CANARY in text
    impossible("R38", "the page has no script, no form, nothing from elsewhere and counts only")


async def test_metrics_show_no_time_of_a_first_record() -> None:
    metrics = Metrics()
    metrics.records.labels("in", "", "t", "0").inc()
    metrics.clusters.labels("t", "0").inc()
    text = (await fetched(metrics))["/metrics"][1]
    assert 'shoal_records_total{outcome="in",partition="0",reason="",topic="t"} 1.0' in text
    assert "shoal_clusters_released_total" in text
    assert "_created" not in text


@pytest.mark.parametrize("name", [text for text in HOSTILE if not text.isprintable()])
def test_a_name_cannot_command_the_terminal(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    attributes = {"who": {"role": "identifier", "subject": True}, "x": quasi(), name: {"role": "confidential"}}
    document = {"attributes": attributes, "privacy": {"k": 2}, "stream": {"delta": 50}}
    policy, table = tmp_path / "policy.yaml", tmp_path / "in.csv"
    policy.write_text(json.dumps(document))
    header = '"' + name.replace("\0", "").replace('"', "") + 'x"'
    table.write_text(f"who,x,{header}\n1,2,3\n")
    codes = [
        cli.main(["check", str(policy)]),
        cli.main(["pipe", str(policy), "-i", str(table), "-o", str(tmp_path / "out.csv")]),
        cli.main(["verify", str(policy), "--original", str(table), "--released", str(table)]),
    ]
    assert codes[1] == 2
    out, err = capsys.readouterr()
    assert all(character.isprintable() or character == "\n" for character in out + err)


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert escape_control_characters("a\x1b[2Jé\n\u202e") == "a\\u001b[2Jé\n\\u202e"
    impossible("R33", "texts are escaped on the page, on terminals and in CSV's quotation")


def test_messages_of_verify_contain_clusters_and_counts_only(tmp_path: Path) -> None:
    records = make_records(60)
    for number, record in enumerate(records):
        record |= {"patient": f"{CANARY}{number}", "diagnosis": f"{CANARY}{number}"}
    world = NaiveRelease(tmp_path, records, group(records))
    assert world.verify().exit_code == 0
    sound = world.verify(summary=True)
    world.rows[0][0] = world.rows[0][0].replace(CANARY, f"{CANARY}x")
    world.rows[1].append(f'{world.rows[1][0][:-1]},"{CANARY}":"{CANARY}"}}')
    world.clusters[1].append(world.clusters[0][0])
    world.original_lines = [*map(json.dumps, records), f'{{"{CANARY}', f'{{"{CANARY}": 1}}']
    broken = world.verify(summary=True)
    assert broken.exit_code == 1
    for verdict in (sound, broken):
        assert CANARY not in verdict.text()
        assert CANARY not in json.dumps(verdict.as_dict())
    impossible("R39", "the judge's words name clusters, checks and counts; never a value, never a subject")


# ---------------------------------------------------------------- missing values


NOTHING: list[Any] = [None, "", " ", "NaN", "null", "?", [], {}]


def test_a_record_without_a_quasi_identifier_is_never_released() -> None:
    policy = policy_of(
        {
            "who": {"role": "identifier", "subject": True},
            "a": quasi(),
            "b": quasi(),
            "c": quasi(),
            "n": {"role": "other", "publish_unchanged": True},
        },
        privacy={"k": 4},
        stream={"delta": 20},
    )
    draw = random.Random(4)
    records = []
    for number in range(600):
        record: dict[str, Any] = {"who": number, **{name: draw.randrange(101) for name in "abc"}, "n": number}
        if number % 5 == 0:
            record[draw.choice("abc")] = draw.choice(NOTHING)
        if number % 35 == 0:
            del record[draw.choice("abc")]
        records.append(record)
    block = JsonDecoder(policy).decode([json.dumps(record).encode() for record in records])
    assert {index for index, _ in block.rejected} == set(range(0, 600, 5)) | set(range(0, 600, 35))
    flow = PartitionPipeline(policy, JsonEncoder(policy))
    outcomes = [flow.push(block, np.stack((np.zeros_like(block.index), block.index), axis=1)), flow.flush()]
    clusters = [cluster for outcome in outcomes for cluster in outcome.clusters]
    assert len(clusters) > 50
    for cluster in clusters:
        quasis = {row[: row.index(b',"n":')] for row in cluster.rows}
        assert len(quasis) == 1
        assert b"null" not in quasis.pop()
    impossible(
        "R18", "with `missing: quarantine`, the default, a record without one of its quasi-identifiers is invalid"
    )


# ---------------------------------------------------------------- subjects and the quarantine, through the service


SPELLINGS: dict[str, list[Any]] = {
    "a number": [7, 7.0, "7", "7 ", " 7", "007", "+7", "7.0", "0.7e1", "70e-1", "\u00a07\u2003", "\t7\n"],
    "a name": ["Zoë", "Zoe\u0308", " Zoë", "Zoë\u00a0", "Zoe\u0308\t"],
    "a truth": [True, "true"],
}
"""Ways to write three people."""


async def test_all_spellings_of_a_person_count_once_in_the_service(bootstrap: str, tmp_path: Path) -> None:
    # Three people under nineteen spellings: with k = 4 nothing may leave, with k = 3 it does.
    many = [spelling for ways in SPELLINGS.values() for spelling in ways] * 3
    random.Random(2).shuffle(many)
    left = {}
    for k in (4, 3):
        stage = await Stage.create(bootstrap, tmp_path, privacy={"k": k})
        await stage.send([stage.record(who=spelling) for spelling in many])
        await stage.drained()
        left[k] = len(await stage.read())
        references = await stage.objects("quarantine")
        assert {one["reason"] for one in references} <= {"suppressed"}
        assert left[k] + len(references) == len(many)
    assert left[3] > 0
    measured(
        "R26",
        "records released in clusters of fewer than k people",
        knows="how to spell himself in nineteen ways",
        success=left[4] / len(many),
        bound=0.0,
        source="one text per person before people are counted",
    )


async def test_a_quarantine_entry_contains_offset_and_one_of_four_reasons(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, kafka={"commit_interval_ms": 1000, "max_record_bytes": 200})
    good = [stage.record() for _ in range(40)]
    alone = [stage.record(who="alone") for _ in range(2)]
    bad = [b"{", stage.record(age=CANARY), stage.record(who="x" * 300), stage.record(age=None), None]
    places = await stage.send([*good, *bad], keys=[b"k"] * (len(good) + len(bad)))
    await stage.drained()
    places += await stage.send(alone)
    await stage.drained(places)
    messages = await stage.read("quarantine")
    for message in messages:
        entries = json.loads(message.value or b"")
        assert list(entries) == ["topic", "partition", "offset", "reason"]
        assert entries["topic"] == stage.topics["input"]
        assert {type(entries["partition"]), type(entries["offset"])} == {int}
        assert message.key is None
        assert message.headers == ()
        assert message.timestamp_ms % 1000 == 0
    reasons = Counter(json.loads(message.value or b"")["reason"] for message in messages)
    assert reasons == {"undecodable": 2, "invalid": 2, "too_large": 1, "suppressed": 2}
    impossible(
        "R35", "topic, partition, offset and one of four reasons; no key, no headers, the time of the transaction"
    )


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    """Commands set up the logs of the process: what was there before comes back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


def test_a_page_about_settings_has_no_value_of_its_sample(tmp_path: Path) -> None:
    """One person is unique in every field; texts and amounts of all others are looked for, too."""
    draw = random.Random(3)
    rows = [
        (f"person{n:03}", f"{draw.randrange(10_000, 99_999)}", f"town{draw.randrange(9)}", f"ill{n % 4}")
        for n in range(150)
    ]
    rows.append((f"{CANARY}1", "98765", f"{CANARY}2", f"{CANARY}3"))
    (tmp_path / "in.csv").write_text("\n".join(",".join(row) for row in [("who", "sum", "town", "ill"), *rows]) + "\n")
    attributes = {
        "who": {"role": "identifier", "subject": True},
        "sum": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100_000]},
        "town": {"role": "quasi_identifier", "scale": "nominal"},
        "ill": {"role": "confidential", "type": "string"},
    }
    document = {"attributes": attributes, "privacy": {"k": K}, "stream": {"delta": 20}}
    (tmp_path / "policy.json").write_text(json.dumps(document))
    outputs = [tmp_path / "tune.html", tmp_path / "tune.json"]
    options = ["-o", str(outputs[0]), "--json", str(outputs[1]), "--workers", "1", "--grid", "k=3,900 l=none,2"]
    assert cli.main(["tune", str(tmp_path / "policy.json"), "-i", str(tmp_path / "in.csv"), *options]) == 0
    for output in outputs:
        words = set(re.findall(r"[\w.]+", output.read_text()))
        assert not words & {value for row in rows for value in row}
    counts = json.loads(outputs[1].read_text())["sample"]
    assert {counts[name] % K for name in ("records", "accepted", "people", "unique")} == {0}
    impossible("R37", "no value of the sample, no extreme, counts as multiples of k")
