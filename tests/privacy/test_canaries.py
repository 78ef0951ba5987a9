"""Nothing of a record and no secret is found in anything that leaves the process but the output: logs at their
loudest, pages, metrics, references, evidence, progress, what is said at the end; with kills and with crashes."""

from __future__ import annotations

import json
import random
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from aiokafka.structs import OffsetAndMetadata
from shoal.audit import verify
from shoal.errors import ShoalError
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from support.attack_results import impossible
from support.by_night import at_night
from support.canaries import LOUD, every_logger_at_debug, forms, traces
from support.commands import run_command
from support.kafka_broker import wait_for, wait_until
from support.running import Stage

WHO, TICKET, BAD, KEY, HEADER = "whoxq7canary", "ticketxq7canary", "badxq7canary", "keyxq7canary", "headerxq7canary"
PUBLISHED, CLIPPED, ODD = "illxq7canary", 918273645918273, 43217
"""A kept text; a number far beyond its bounds; one within, whose grid is so wide that it never shows."""
WARD, PLACE, MINUTE = "wardxq7canary", "placexq7canary", "T06:07:08.917"
"""A steering value; a category of one record, which its taxonomy lacks; the end of a time whose year is published."""
HIDDEN: list[str | int] = [WHO, TICKET, BAD, KEY, HEADER, CLIPPED, WARD, PLACE, MINUTE]
SECRETS = ["userxq7secret", "hunterxq7secret", "keypassxq7secret"]
WRONG: list[Any] = [
    BAD,
    [BAD],
    {BAD: BAD},
    CLIPPED + 0.5,
    -CLIPPED,
    [CLIPPED],
    f"{BAD}\ud800",
    f"{BAD}\0\x1b[2J",
    f"<b>{BAD}</b>",
    None,
    True,
]


PLACES = {"north": ["n1", "n2"], "south": ["s1"]}
BORN = ["1950-01-01", "2020-01-01"]


def attributes() -> dict[str, Any]:
    return {
        "who": {"role": "identifier", "subject": True},
        "ticket": {"role": "identifier"},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
        "income": {"role": "quasi_identifier", "bounds": [0, 100_000], "resolution": 5000},
        "place": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": PLACES, "missing": "group"},
        "born": {"role": "quasi_identifier", "scale": "time", "resolution": "year", "bounds": BORN},
        "ward": {"role": "steering", "scale": "nominal", "missing": "group"},
        "serial": {"role": "confidential", "type": "integer"},
        "illness": {"role": "confidential", "type": "string"},
    }


def document_of() -> dict[str, Any]:
    steering = {"by": [{"attribute": "ward", "weight": 0.1}]}
    return {"attributes": attributes(), "steering": steering, "privacy": {"k": 3}, "stream": {"delta": 20}}


def good(number: int) -> dict[str, Any]:
    return {
        "who": f"{WHO} {number % 97}",
        "ticket": {TICKET: [number, TICKET]},
        "age": CLIPPED if number % 11 == 0 else number % 110,
        "income": ODD,
        "place": f"{PLACE} {number}" if number % 13 == 0 else ["n1", "n2", "s1", None][number % 4],
        "born": f"{1955 + number % 50}-04-05{MINUTE}",
        "ward": f"{WARD} {number % 3}",
        "serial": number,
        "illness": f"{PUBLISHED} {number}",
    }


def traffic(count: int) -> list[bytes]:
    """Good records, and bad ones: every field with every wrong type, broken texts, further fields."""
    draw = random.Random(5)
    messages = []
    for number in range(count):
        record = good(number)
        text = json.dumps(record)
        if number % 3 == 0:
            name = draw.choice([*record, f"{BAD} field"])
            fits = {"illness": str | None, "serial": int | None, "place": str | int | None}.get(name, type(...))
            text = json.dumps(
                record | {name: draw.choice([one for one in WRONG if not isinstance(one, fits) or one is True])}
            )
        if number % 17 == 0:
            place = draw.randrange(len(text))
            # With a quotation mark too many, so that it cannot become a part of a kept text.
            text = text[:place] + draw.choice([f'{BAD}"', f'"{BAD}', "\x00", "\udcff"]) + text[place:]
        messages.append(text.encode(errors="surrogateescape"))
    return messages


async def stage_of(bootstrap: str, folder: Path, **kafka: Any) -> Stage:
    stage = await Stage.create(bootstrap, folder, partitions=2, privacy={"k": 3}, kafka=kafka)
    stage.document |= {name: document_of()[name] for name in ("attributes", "steering")}
    return stage


async def fill(stage: Stage, count: int) -> None:
    for partition in range(2):
        messages = traffic(count)
        headers = [[(HEADER, HEADER.encode()), ("traceparent", HEADER.encode())]] * count
        await stage.send(messages, partition, keys=[KEY.encode()] * count, headers=headers)


async def left(stage: Stage) -> dict[str, bytes]:
    """All that left a run, by place; the output too."""
    places: dict[str, bytes] = {}
    for name in ("output", "quarantine", "clusters", "evidence"):
        places[name] = repr(await stage.read(name)).encode()
    for partition in range(2):
        found = await stage.committed(partition)
        assert isinstance(found, OffsetAndMetadata)
        places[f"metadata {partition}"] = found.metadata.encode()
    return places | {path.name: path.read_bytes() for path in stage.folder.iterdir() if path.suffix in {".log", ".out"}}


def assert_clean(places: dict[str, bytes]) -> None:
    assert traces([*HIDDEN, *SECRETS], places) == []
    beside = {name: text for name, text in places.items() if name != "output"}
    assert traces([PUBLISHED], beside) == []
    # A short number stands in many a place by chance; in what is not about bytes and times it must not.
    assert traces([ODD], {name: text for name, text in places.items() if name in {"output", "clusters", "/"}}) == []


async def test_a_search_finds_what_it_is_to_find() -> None:
    for form in forms(BAD) | forms(CLIPPED):
        assert traces([BAD, CLIPPED], {"here": b"..." + form + b"..."})
    assert traces([BAD], {"here": b"nothing"}) == []


async def test_no_value_is_in_logs_of_a_service_that_is_killed_and_restarted(bootstrap: str, tmp_path: Path) -> None:
    stage = await stage_of(bootstrap, tmp_path, session_timeout_ms=3000)
    loud: dict[str, Any] = {"program": (sys.executable, "-X", "dev", "-W", "ignore", LOUD)}  # asyncio's debug mode too
    shown: dict[str, bytes] = {}
    await fill(stage, 600)
    async with stage.command("run", "--http", "127.0.0.1:0", "--from", "earliest", name="killed", **loud) as killed:
        await wait_until(lambda: killed.lines("partition opened") or killed.code is not None, 60, "an assignment")
        await wait_for(stage.read, lambda found: len(found) > 50, 60, "output")
        killed.kill()
    async with stage.command("run", "--http", "127.0.0.1:0", name="restarted", **loud) as restarted:
        await restarted.until_ready(60)
        await fill(stage, 300)
        await wait_for(stage.read, lambda found: len(found) > 800, 60, "more output")
        for path in ("/", "/metrics", "/livez", "/readyz", "/none"):
            shown[path] = (await restarted.get(path))[1].encode()
        assert await restarted.terminated() == 0
    async with stage.command("run", "--http", "127.0.0.1:0", "--drain", name="drained", **loud) as drained:
        assert await drained.ended(60) == 0, drained.said[-2000:]
    async with stage.command("progress", name="progress", **loud) as progress:
        assert await progress.ended(60) == 0
    shown |= await left(stage)
    assert PUBLISHED.encode() in shown["output"]
    debug = sum(b'"debug"' in shown[name] for name in ("killed.log", "restarted.log"))
    assert debug == 2, "the logs were not loud"
    assert_clean(shown)


CRASHES = {
    "decode": "shoal.formats.json.JsonDecoder.decode",
    "decide": "shoal.streams.clusterer.StreamClusterer.decide",
    "embed": "shoal.scales.Embedding.published",
    "flow": "shoal.streams.pipeline.PartitionPipeline.push",
    "encode": "shoal.formats.json.JsonEncoder.encode_clusters",
    "send": "shoal.kafka.transactions.TransactionalProducer._transact",
    "look": "shoal.observability.metrics.Metrics.totals",
}


def crashing(folder: Path, path: str) -> Path:
    """Write a loud `shoal` in which a function raises all that it was given, and from an error of its own."""
    module, owner, name = path.rsplit(".", 2)
    script = folder / "crashing.py"
    script.write_text(
        textwrap.dedent(f"""
        import importlib, sys
        sys.path.insert(0, {str(Path(LOUD).parents[1])!r})
        from support.canaries import main_loudly
        from shoal.cli import run
        def fail(*given, **named):
            held = [(getattr(one, "values", None), getattr(one, "unchanged_fields", None), one) for one in given]
            try:
                float(str(held) + {BAD!r})
            except ValueError as error:
                error.add_note({BAD!r})
                raise RuntimeError(str(held), {BAD!r}, {CLIPPED!r}) from error
        setattr(getattr(importlib.import_module({module!r}), {owner!r}), {name!r}, fail)
        run.precompile = print
        sys.exit(main_loudly())
        """)
    )
    return script


@pytest.mark.parametrize("where", CRASHES)
async def test_a_crash_report_contains_its_location_and_no_value(bootstrap: str, tmp_path: Path, where: str) -> None:
    stage = await stage_of(bootstrap, tmp_path)
    await fill(stage, 150)
    program = (str(crashing(tmp_path, CRASHES[where])),)
    async with stage.command(
        "run", "--http", "127.0.0.1:0", "--from", "earliest", name="crash", program=program
    ) as run:
        if where == "look":
            assert (await run.get("/"))[0] == 500
            assert await run.terminated() != 0
        else:
            assert await run.ended(60) == 1
        assert "RuntimeError" in run.said
        shown = {"said": run.said.encode(), "out": run.out.read_bytes()}
    assert traces([*HIDDEN, PUBLISHED], shown) == []
    assert b"Traceback" not in shown["said"]


# ---------------------------------------------------------------- secrets


def secret_policy(**kafka: Any) -> str:
    topics = {"input": "in", "output": "out", "group": "g", "bootstrap_servers": "127.0.0.1:1"}
    secrets = {"sasl_username": SECRETS[0], "sasl_password": SECRETS[1]}
    document = document_of()
    return json.dumps({**document, "kafka": topics | secrets | kafka}, indent=1)


SECRET_RUNS: dict[str, tuple[list[str], dict[str, Any], dict[str, str]]] = {
    "check": (["check"], {"security_protocol": "SASL_SSL"}, {}),
    "secrets without a protocol": (["check"], {}, {}),
    "a list for a password": (["check"], {"sasl_password": [SECRETS[1]]}, {}),
    "a secret that only the environment may hold": (["run"], {"ssl_password": SECRETS[2]}, {}),
    "a mapping for a password": (["run"], {"ssl_password": {SECRETS[2]: SECRETS[2]}}, {}),
    "an unknown setting": (["check"], {"sasl_passwort": SECRETS[1]}, {}),
    "a word that is not in the list": (["run"], {"sasl_mechanism": SECRETS[1]}, {}),
    "no broker, SASL": (["run"], {"security_protocol": "SASL_PLAINTEXT", "patience_s": 1}, {}),
    "no broker, SCRAM": (["progress"], {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}, {}),
    "a key that cannot be read": (["run"], {"security_protocol": "SSL", "ssl_certfile": "policy.yaml"}, {}),
    "environment": (["run"], {}, {"SHOAL_KAFKA__SASL_PASSWORD": SECRETS[1], "SHOAL_KAFKA__PATIENCE_S": SECRETS[0]}),
    "token of the port": (["run"], {"patience_s": 1}, {"SHOAL_HTTP_TOKEN": f"{SECRETS[0]}-{SECRETS[1]}"}),
    "token that is none": (["run"], {}, {"SHOAL_HTTP_TOKEN": f"{SECRETS[0]} {SECRETS[1]} é"}),
    "token for a level": (["run"], {}, {"SHOAL_LOG_LEVEL": SECRETS[1]}),
    "environment, unknown": (["run"], {}, {"SHOAL_KAFKA__PASSWORD": SECRETS[1]}),
}


@pytest.mark.parametrize("name", SECRET_RUNS)
@pytest.mark.parametrize("style", ["json", "text"])
def test_no_secret_is_in_a_message(tmp_path: Path, name: str, style: str) -> None:
    arguments, kafka, environment = SECRET_RUNS[name]
    (tmp_path / "policy.yaml").write_text(secret_policy(**kafka))
    http = ["--http", "127.0.0.1:0", "--from", "earliest"] if arguments == ["run"] else []
    environment = {"SHOAL_KAFKA__SSL_PASSWORD": SECRETS[2]} | environment
    with every_logger_at_debug():
        done = run_command(*arguments, "policy.yaml", "--log", style, *http, folder=tmp_path, environment=environment)
    assert done.returncode in {0, 2, 3}
    assert traces(SECRETS, {"said": done.stderr, "out": done.stdout}) == []


# ---------------------------------------------------------------- the judge


BROKEN = ["null", '"@"', "[]", "{}", '["@"]', '{"@":"@"}', "-1", "1e999", "9" * 5000, '"\\ud800"', "NaN", "[" * 3000]


def bent(text: str, draw: random.Random) -> str:
    """A file with one line cut, one value of it replaced, or something thrown in."""
    lines = text.split("\n")
    number = draw.randrange(max(1, len(lines) - 1))
    value = draw.choice(BROKEN).replace("@", BAD)
    try:
        content = json.loads(text if text.startswith("{\n") else lines[number])
    except ValueError:
        content = None
    sort = draw.randrange(3)
    if sort == 0 and isinstance(content, dict) and content:
        marked = json.dumps(content | {draw.choice(list(content)): "@mark@"}).replace('"@mark@"', value)
        return marked if text.startswith("{\n") else "\n".join([*lines[:number], marked, *lines[number + 1 :]])
    place = draw.randrange(len(lines[number]) + 1)
    rest = lines[number][place + draw.randrange(3) :] if sort == 1 else ""
    lines[number] = lines[number][:place] + draw.choice([BAD, f'"{BAD}', f'{{"{BAD}":', "\x00", value]) + rest
    return "\n".join(lines)


@pytest.mark.parametrize(("turns", "fewest"), [(125, 17), *at_night((500, 70), (1500, 200))])
def test_the_judge_names_file_and_remedy_of_a_broken_file_and_no_value(tmp_path: Path, turns: int, fewest: int) -> None:
    document = document_of()
    (tmp_path / "policy.yaml").write_text(json.dumps(document))
    policy = Policy.load(tmp_path / "policy.yaml")
    names = {name: tmp_path / f"{name}.jsonl" for name in ("original", "released", "evidence", "quarantine")}
    names["summary"] = tmp_path / "summary.json"
    names["original"].write_text("".join(json.dumps(good(number)) + "\n" for number in range(80)) + '{"x\n')
    named = {name: str(path) for name, path in names.items()}
    run_pipe(
        policy,
        Files(
            source=named["original"],
            target=named["released"],
            summary=named["summary"],
            evidence=named["evidence"],
            quarantine=named["quarantine"],
        ),
    )
    draw = random.Random(6)
    refused, told_wrongly = 0, list[str]()
    for turn in range(turns):
        victim = list(names)[turn % len(names)]
        broken = tmp_path / f"broken{names[victim].suffix}"
        broken.write_bytes(bent(names[victim].read_text(), draw).encode(errors="surrogatepass"))
        given: dict[str, Any] = names | {victim: broken}
        try:
            verdict = verify(policy, **given)
            said = verdict.text() + json.dumps(verdict.as_dict())
        except ShoalError as error:
            refused += 1
            said = f"{error} {error.args} {vars(error)}"
            is_helpful = error.exit_code == 2 and (broken.name in said or "two exports" in said) and ";" in said
            told_wrongly += [] if is_helpful and error.__cause__ is error.__context__ is None else [said]
        assert traces([*HIDDEN, PUBLISHED], {"said": said.encode()}) == []
    assert told_wrongly == []
    assert refused > fewest
    impossible(
        "R36",
        "canaries in every field and every wrong type, at kills and crashes: none in logs, pages, topics, progress",
    )
