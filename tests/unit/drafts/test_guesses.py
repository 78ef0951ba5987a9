"""What single fields are taken for: by their names, by their values, with which keys, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shoal.drafts import Draft, read_sample
from shoal.drafts.fields import nice_step
from shoal.drafts.guesses import Guess
from shoal.drafts.names import Kind, kind_of
from shoal.drafts.orders import find_order

pytestmark = pytest.mark.unit

ROWS = 120
COLUMNS: dict[str, tuple[str, dict[str, Any], Callable[[int], object]]] = {
    # What HIPAA lists, by name in four languages or by value; each column repeats its values.
    "Nachname": ("identifier", {}, lambda i: f"N{i % 40}"),
    "prénom": ("identifier", {}, lambda i: f"N{i % 40}"),
    "calle": ("identifier", {}, lambda i: f"Mayor {i % 9}"),
    "Telefonnummer": ("identifier", {}, lambda i: i % 30),
    "contact": ("identifier", {}, lambda i: f"a{i % 9}@b.org"),
    "source": ("identifier", {}, lambda i: f"10.0.0.{i % 20}"),
    "link": ("identifier", {}, lambda i: f"https://a.b/{i % 20}"),
    "uid": ("identifier", {}, lambda i: f"{i % 40:08x}-0000-0000-0000-000000000000"),
    "taxes": ("identifier", {}, lambda i: f"123-45-{i % 30:04}"),
    "IBAN": ("identifier", {}, lambda i: f"DE{i % 9}"),
    "call back": ("identifier", {}, lambda i: f"+49 30 12345{i % 30}"),
    "fon": ("identifier", {}, lambda i: f"555-010-{1000 + i % 30}"),
    "band": ("quasi_identifier", {"scale": "ordinal"}, lambda i: f"{1 + i % 4}0000-{2 + i % 4}0000"),
    "mrn": ("identifier", {}, lambda i: i % 50),
    "line": ("identifier", {}, lambda i: i + 7),
    "serie": ("identifier", {}, lambda i: 10_000_000 + i * 977),
    "remark": ("identifier", {}, lambda _: "short"),
    "Note": ("quasi_identifier", {"scale": "numeric", "integer": True}, lambda i: 1 + i % 6),
    "said": ("identifier", {}, lambda i: f"the patient came back on day {i % 9} of"),
    "mark": ("identifier", {}, lambda i: f"u{i}"),
    "price": ("quasi_identifier", {"thousands": ",", "symbol": "€", "integer": True}, lambda i: f"1,{100 + i} €"),
    "sum": ("quasi_identifier", {"symbol": "$"}, lambda i: f"{1 + i % 9}.{100 + i} $"),
    "share": ("quasi_identifier", {"symbol": "%", "scale": "numeric"}, lambda i: f"{i % 100 / 10}%"),
    "nothing": ("identifier", {}, lambda _: "NA"),
    # Sensitive by name, with values that many share; else a quasi-identifier.
    "Diagnose": ("confidential", {"type": "string"}, lambda i: f"D{i % 4}"),
    "sueldo": ("confidential", {"type": "integer"}, lambda i: 1000 * (i % 9)),
    "HIV": ("confidential", {"type": "string"}, lambda i: "yes" if i % 2 else "no"),
    "income": ("quasi_identifier", {"scale": "numeric"}, lambda i: i * 13.5),
    # All else.
    "Alter": ("quasi_identifier", {"scale": "numeric", "bounds": [0, 120], "integer": True}, lambda i: 20 + i % 60),
    "geburtsjahr": ("quasi_identifier", {"scale": "numeric", "bounds": [1925, 2005]}, lambda i: 1930 + i % 71),
    "born": ("quasi_identifier", {"scale": "time", "resolution": "year"}, lambda i: f"{1930 + i % 70}-03-0{1 + i % 9}"),
    "seen": ("quasi_identifier", {"scale": "time", "resolution": "h"}, lambda i: f"2024-03-{1 + i % 28:02} 10:15"),
    "created_at": ("quasi_identifier", {"scale": "time", "unit": "s"}, lambda i: 1_700_000_000 + 3600 * i),
    "dob": (
        "quasi_identifier",
        {"format": "%Y%m%d", "resolution": "year"},
        lambda i: f"{1930 + i % 70}0{1 + i % 9}11",
    ),
    "PLZ": ("quasi_identifier", {"scale": "nominal"}, lambda i: f"0{1000 + i % 30}"),
    "zip": ("quasi_identifier", {"scale": "nominal"}, lambda i: 10_000 + i % 50),
    "tiny": ("identifier", {}, lambda i: f"{i % 100 + 1}e-17"),
    "small": ("quasi_identifier", {"bounds": [0, 1.05e-06], "resolution": 5e-09}, lambda i: f"{i % 100 + 1}e-8"),
    "sex": ("quasi_identifier", {"scale": "nominal"}, lambda i: i % 2),
    "ward code": ("quasi_identifier", {"scale": "nominal"}, lambda i: i % 9),
    "ward_id": ("quasi_identifier", {"scale": "nominal"}, lambda i: i % 5),
    "patient weight": ("quasi_identifier", {"scale": "numeric", "resolution": 0.2}, lambda i: 50 + i * 7 % 500 / 10),
    "pain": ("quasi_identifier", {"scale": "ordinal", "order": ["none", "mild"]}, lambda i: ("mild", "none")[i % 2]),
    "ages": (
        "quasi_identifier",
        {"scale": "ordinal", "order": ["<18", "18-64", "65+"]},
        lambda i: ("65+", "18-64", "<18")[i % 3],
    ),
    "dose": (
        "quasi_identifier",
        {"scale": "numeric", "missing": "group"},
        lambda i: "unknown" if i % 9 == 0 else i % 50,
    ),
}


@pytest.fixture(scope="module")
def guesses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Guess]:
    path = tmp_path_factory.mktemp("drafts") / "a.csv"
    lines = [";".join(COLUMNS), *(";".join(str(make(i)) for _, _, make in COLUMNS.values()) for i in range(ROWS))]
    path.write_text("\n".join(lines), encoding="utf-8")
    return {one.field.name: one for one in Draft.of(read_sample(str(path), None), "every_record").guesses}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_field_gets_the_role_and_the_keys_that_fit(guesses: dict[str, Guess], name: str) -> None:
    role, keys, _ = COLUMNS[name]
    assert (guesses[name].role, guesses[name].keys | keys) == (role, guesses[name].keys)
    assert guesses[name].reason


def test_a_sign_that_may_stand_between_thousands_is_asked_about(guesses: dict[str, Guess]) -> None:
    asked = [name for name, one in guesses.items() if "three digits follow each decimal sign" in one.decide]
    assert asked == ["sum"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("patientId", Kind.PERSON),
        ("Patientennr", Kind.PERSON),
        ("patient_age", Kind.AGE),
        ("patient_weight", None),
        ("country_name", Kind.CODE),
        ("Straße", Kind.ADDRESS),
        ("fecha de nacimiento", Kind.BIRTH),
        ("code_postal", Kind.POSTCODE),
        ("E-Mail", Kind.CONTACT),
        ("Steuer-ID", Kind.NUMBER),
        ("creatinine", None),
        ("device_id", Kind.NUMBER),
        ("device.os", None),
    ],
)
def test_names_of_fields(name: str, kind: Kind | None) -> None:
    assert kind_of(name) is kind


def test_steps_and_orders() -> None:
    assert [nice_step(size) for size in (0.07, 1, 3.65, 999)] == [0.05, 1, 2, 500]
    assert find_order(["So", "Mo", "Mi"]) == ["Mo", "Mi", "So"]
    assert find_order(["3rd class", "1st class", "2nd class"]) == ["1st class", "2nd class", "3rd class"]
    assert [find_order(texts) for texts in (["low"], ["low", "red"], ["mon", "monday"], ["1", "2"])] == [[], [], [], []]
