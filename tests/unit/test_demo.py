"""The demo, checked without a broker: its records, its policies, its report."""

from __future__ import annotations

import bz2
import importlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
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


def test_a_visit_is_in_the_envelope_of_debezium(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        assert set(message) == {"before", "after", "source", "op", "ts_ms", "transaction"}
        assert (message["before"], message["op"]) == (None, "c")
        assert set(message["after"]) == {"patient", "visit", "lab"}
        assert message["source"]["table"] == "visits"
    times = [message["ts_ms"] for message in messages]
    assert times == sorted(set(times))


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


def test_classes_are_counted_over_all_published_quasi_identifiers(demo: Callable[[str], ModuleType]) -> None:
    names = ("birth_date", "sex", "postcode", "admitted_at", "icd", "length_of_stay")
    assert names == demo("outside").QUASI_IDENTIFIERS
    one = dict.fromkeys(names, "a") | {"crp": 1.0}
    records = [one, one | {"crp": 2.0}, one | {"sex": None}, one | {"sex": ""}, one | {"icd": "b"}, one | {"icd": "b"}]
    assert demo("outside").class_sizes(map(json.dumps, records)) == [1, 1, 2, 2]
    assert demo("outside").class_sizes([]) == []


def test_the_policy_of_the_visits_reads_fields_of_nested_messages(demo: Callable[[str], ModuleType]) -> None:
    policy = Policy.load(DEPLOY / "demo" / "patients.yaml")
    assert policy.unwrap == "debezium"
    assert policy.subject is not None
    assert {attribute.path for attribute in policy.quasi_identifiers} == PATHS
    assert {attribute.missing for attribute in policy.quasi_identifiers} == {"group"}
    assert tuple(attribute.name for attribute in policy.quasi_identifiers) == demo("outside").QUASI_IDENTIFIERS
