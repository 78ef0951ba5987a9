"""The demo, checked without a broker: its records, its policies, its report."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from shoal.policy import Policy

pytestmark = pytest.mark.unit

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


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
