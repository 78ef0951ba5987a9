"""The demo, checked without a broker: its records, its policies, its report."""

from __future__ import annotations

import bz2
import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from shoal.observability import Health, Metrics
from shoal.observability.http import serve
from shoal.policy import Policy

pytestmark = pytest.mark.unit

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


@pytest.fixture(scope="module")
def fetch() -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("deploy_demo_fetch", DEPLOY / "demo" / "fetch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel_of(folder: Path, table: str) -> None:
    with zipfile.ZipFile(folder / "linearmodels-7.1-py3-none-any.whl", "w") as archive:
        archive.writestr("linearmodels/datasets/wage_panel/wage_panel.csv.bz2", bz2.compress(table.encode()))


def test_the_demo_s_records_come_in_order_of_year_and_other_data_are_refused(
    fetch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    table = "nr,year,lwage\n17,1981,1\n13,1981,0.5\n17,1980,2.25\n"
    wheel_of(tmp_path, table)
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(table.encode()).hexdigest())
    assert list(fetch.records(tmp_path)) == [
        {"nr": 17, "year": 1980, "lwage": 2.25},
        {"nr": 13, "year": 1981, "lwage": 0.5},
        {"nr": 17, "year": 1981, "lwage": 1.0},
    ]
    wheel_of(tmp_path, table.replace("13", "14"))
    with pytest.raises(SystemExit, match="unexpected checksum"):
        list(fetch.records(tmp_path))


def test_the_demo_s_policy_declares_every_field_of_its_records() -> None:
    policy = Policy.load(DEPLOY / "demo" / "policy.yaml")
    record = "nr year black exper hisp hours married educ union lwage expersq occupation"
    assert {attribute.name for attribute in policy.attributes} == set(record.split())
    assert [attribute.name for attribute in policy.published] == ["educ", "exper", "hours", "lwage", "occupation"]
    assert policy.subject is not None
    assert policy.subject.name == "nr"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(DEPLOY)
    monkeypatch.syspath_prepend(DEPLOY / "demo")
    return importlib.import_module


def test_the_demo_prints_numbers_as_people_write_them(demo: Callable[[str], ModuleType]) -> None:
    shown = {1.7314169999999998: "1.7314", 4360: "4,360", 0.05: "0.05", 12: "12", 2360.0: "2,360", -0.00001: "0"}
    assert {value: demo("report").number(value) for value in shown} == shown


async def test_a_worker_that_compiles_is_not_late(demo: Callable[[str], ModuleType]) -> None:
    workers, metrics = demo("workers"), Metrics()
    limit = workers.WaitLimit()
    async with serve("127.0.0.1:0", metrics, Health()) as port:
        await limit.is_exceeded(port)
        assert limit.waited_s == 0.0
        metrics.policy.labels("fingerprint").set(1)
        await limit.is_exceeded(port)
        assert 0.2 <= limit.waited_s < workers.WAIT_LIMIT_S
    assert not workers.is_compiling(port), "a worker that does not answer is late"


def test_a_long_wait_prints_a_dot_every_few_seconds(
    demo: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    with demo("waiting").progress_dots("a long thing", every_s=0.01):
        assert not Event().wait(0.2)
    text = capsys.readouterr().err
    assert text.startswith("a long thing ...")
    assert set(text.removeprefix("a long thing ")) == {".", "\n"}
    assert text.endswith(".\n")


def test_the_waiting_command_returns_the_exit_code_and_prints_to_standard_output() -> None:
    waiting = [sys.executable, str(DEPLOY / "waiting.py"), "a thing"]
    done = subprocess.run(
        [*waiting, "sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\nerr\n", "a thing \n")


# ---------------------------------------------------------------- the second half: artificial visits

PATHS = {
    ("patient", "birth_date"),
    ("patient", "sex"),
    ("patient", "address", "postcode"),
    ("visit", "admitted_at"),
    ("visit", "icd"),
    ("visit", "length_of_stay"),
}


@pytest.fixture
def messages(demo: Callable[[str], ModuleType]) -> list[dict[str, Any]]:
    drawn: list[dict[str, Any]] = demo("patients").messages(400, 3)
    return drawn


def value_at(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        row = row.get(name)
    return row


def test_a_visit_is_in_the_envelope_of_debezium(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        assert set(message) == {"before", "after", "source", "op", "ts_ms", "transaction"}
        assert (message["before"], message["op"]) == (None, "c")
        assert set(message["after"]) == {"patient", "visit", "lab"}
        assert message["source"]["table"] == "visits"
    times = [message["ts_ms"] for message in messages]
    assert times == sorted(set(times))


def test_one_value_in_ten_is_missing_in_each_of_three_ways(messages: list[dict[str, Any]]) -> None:
    found = [value_at(message["after"], path) for message in messages for path in PATHS]
    assert 0.08 < sum(value in {None, ""} for value in found) / len(found) < 0.12
    sexes = [message["after"]["patient"].get("sex", "absent") for message in messages]
    assert {"absent", None, ""} <= set(sexes)


def test_patients_come_again_and_keep_what_they_are(
    demo: Callable[[str], ModuleType], messages: list[dict[str, Any]]
) -> None:
    known: dict[str, set[str]] = {}
    for message in messages:
        patient = message["after"]["patient"]
        known.setdefault(patient["id"], set()).update({patient["sex"]} if patient.get("sex") else ())
    assert len(known) == 400
    assert len(messages) > 500
    assert all(len(sexes) <= 1 for sexes in known.values())
    patients = demo("patients")
    assert patients.messages(400, 3) == messages, "the seed decides"
    assert patients.messages(400, 4) != messages


def test_a_diagnosis_depends_on_sex_and_age_and_one_in_a_hundred_is_not_in_the_taxonomy(
    demo: Callable[[str], ModuleType],
) -> None:
    rows = [message["after"] for message in demo("patients").messages(1500, 5)]
    chapters = {row[0]: row[2] for row in demo("patients").leaves("icd")}
    codes = [code for row in rows if (code := row["visit"].get("icd"))]
    assert {code for code in codes if code not in chapters} == {"U07"}
    assert 0.005 < codes.count("U07") / len(codes) < 0.015
    of_chapter: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_chapter.setdefault(chapters.get(row["visit"].get("icd") or "", "none"), []).append(row["patient"])
    assert {patient["sex"] for patient in of_chapter["XV"] if patient.get("sex")} == {"F"}
    born = {
        chapter: [int(patient["birth_date"][:4]) for patient in people if patient.get("birth_date")]
        for chapter, people in of_chapter.items()
    }
    assert min(born["XVI"]) >= 2023
    assert sum(born["IX"]) / len(born["IX"]) + 25 < sum(born["XV"]) / len(born["XV"])


def test_the_taxonomies_of_the_demo_are_trees_of_four_levels(demo: Callable[[str], ModuleType]) -> None:
    for name, leaves, roots in (("icd", 98, {"*"}), ("postcode", 60, {"*****"})):
        rows = demo("patients").leaves(name)
        assert len({row[0] for row in rows}) == len(rows) == leaves
        assert {len(row) for row in rows} == {4}
        assert {row[3] for row in rows} == roots
        for level in (1, 2):
            assert len({(row[level], row[level + 1]) for row in rows}) == len({row[level] for row in rows})


def test_classes_are_counted_over_all_published_quasi_identifiers(demo: Callable[[str], ModuleType]) -> None:
    names = ("birth_date", "sex", "postcode", "admitted_at", "icd", "length_of_stay")
    assert names == demo("outside").QUASI_IDENTIFIERS
    one = dict.fromkeys(names, "a") | {"crp": 1.0}
    records = [one, one | {"crp": 2.0}, one | {"sex": None}, one | {"sex": ""}, one | {"icd": "b"}, one | {"icd": "b"}]
    assert demo("outside").class_sizes(map(json.dumps, records)) == [1, 1, 2, 2]
    assert demo("outside").class_sizes([]) == []


def test_published_diagnoses_are_counted_by_level(demo: Callable[[str], ModuleType]) -> None:
    codes = ["I21", "I20-I25", "I21", "IX", "*", None, "U07", "U07"]
    found = demo("patients_report").codes_by_level(json.dumps({"icd": code}) for code in codes)
    assert found == {"code": 4 / 7, "block": 1 / 7, "chapter": 1 / 7, "any": 1 / 7}


def test_the_policy_of_the_visits_reads_fields_of_nested_messages(demo: Callable[[str], ModuleType]) -> None:
    policy = Policy.load(DEPLOY / "demo" / "patients.yaml")
    assert policy.unwrap == "debezium"
    assert policy.subject is not None
    assert {attribute.path for attribute in policy.quasi_identifiers} == PATHS
    assert {attribute.missing for attribute in policy.quasi_identifiers} == {"group"}
    assert tuple(attribute.name for attribute in policy.quasi_identifiers) == demo("outside").QUASI_IDENTIFIERS


def test_a_cluster_is_found_in_the_output_by_its_confidential_values(
    demo: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    policy, line = Policy.load(DEPLOY / "demo" / "patients.yaml"), demo("topics").Line
    known: dict[str, Any] = {"birth_date": "1950-01-01", "sex": "F", "postcode": None, "admitted_at": "2025-03-01"}
    known["icd"] = "IX"
    visit = {"patient": {"id": "P1", "address": {}, "sex": ""}, "visit": {"icd": "I21", "length_of_stay": 4}}
    before = [{"after": visit | {"lab": {"crp": value}}} for value in (45.0, None, 7.5)]
    published = [known | {"length_of_stay": 4, "crp": value} for value in (45, 7.5, None)]
    other = published[0] | {"icd": "*"}
    lines = {
        "input": [line(0, 2 * offset, json.dumps(message)) for offset, message in enumerate(before)],
        "output": [line(0, offset, json.dumps(row)) for offset, row in enumerate([other, *published, other])],
        "evidence": [line(0, 0, json.dumps({"partition": 0, "cluster": 0, "offsets": [0, 2, 4]}))],
    }
    demo("patients_report").compare(policy, lines)
    shown = [text.split() for text in capsys.readouterr().err.splitlines()]
    assert ["-", "-", "-", "-", "I21", "4", "7.5"] in shown
    assert shown.count(["1950-01-01", "F", "-", "2025-03-01", "IX", "4", "45"]) == 1
