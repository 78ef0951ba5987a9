"""The artificial records of the demo's second half: hospital visits as Debezium writes them to a topic.

No record is about a real person. A generator with a fixed seed draws patients and visits such that fields depend on
each other as in real data: the diagnosis on age, sex and region, the length of stay and the laboratory value on the
diagnosis and on age. Each quasi-identifier is missing in one visit of ten. The figures that it draws from are invented.

The taxonomy ``patients/icd.csv`` has 98 codes of the International Classification of Diseases (ICD-10, version of 2019,
World Health Organization), with the ranges of their blocks and the numbers of their chapters. These are facts; it has
none of the classification's text. The postcodes are invented.

As a program this module prints one message per line as JSON, in order of admission.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

__all__ = ["MISSING_SHARE", "Message", "leaves", "messages"]

Message: TypeAlias = dict[str, Any]

FOLDER = Path(__file__).resolve().parent / "patients"
PATIENTS = 3_000
MISSING_SHARE = 0.1
"""Share of the visits in which a quasi-identifier is missing, each by itself."""
SEED = 15
FIRST_DAY = date(2025, 1, 1)
DAYS = 365
UNLISTED = "U07"
"""A code of ICD-10 that the taxonomy of the demo lacks."""
FIELDS = (
    ("patient", "birth_date"),
    ("patient", "sex"),
    ("patient", "address", "postcode"),
    ("visit", "admitted_at"),
    ("visit", "icd"),
    ("visit", "length_of_stay"),
)
"""The quasi-identifiers, each by its path."""
ABSENT = object()
VISITS = (0.62, 0.84, 0.95, 1.0)
"""Share of the patients with at most 1, 2, 3 and 4 visits in the year."""


class Chapter(NamedTuple):
    """Invented figures of a chapter of ICD-10: how often it occurs, in whom, and what it does.

    ``age`` and ``spread`` are years, ``women`` a share, ``days`` the median length of stay, ``crp`` the median of
    C-reactive protein in mg/l.
    """

    weight: float
    age: float
    spread: float
    women: float
    days: float
    crp: float


CHAPTERS = {
    "I": Chapter(4, 45, 30, 0.50, 5, 90),
    "II": Chapter(11, 66, 14, 0.48, 6, 15),
    "III": Chapter(2, 65, 20, 0.55, 4, 10),
    "IV": Chapter(4, 58, 22, 0.55, 5, 8),
    "V": Chapter(6, 42, 18, 0.48, 16, 3),
    "VI": Chapter(5, 50, 22, 0.50, 4, 4),
    "VII": Chapter(3, 70, 12, 0.55, 2, 3),
    "IX": Chapter(18, 72, 12, 0.46, 6, 12),
    "X": Chapter(8, 50, 32, 0.45, 6, 60),
    "XI": Chapter(11, 54, 20, 0.48, 4, 40),
    "XII": Chapter(2, 52, 22, 0.45, 5, 35),
    "XIII": Chapter(10, 60, 15, 0.58, 5, 6),
    "XIV": Chapter(6, 60, 20, 0.50, 4, 25),
    "XV": Chapter(7, 31, 5, 1.00, 3, 12),
    "XVI": Chapter(3, 0, 0.3, 0.50, 12, 5),
    "XVIII": Chapter(5, 50, 24, 0.55, 2, 6),
    "XIX": Chapter(9, 48, 27, 0.48, 4, 20),
}
WOMEN = {"C50": 0.99, "C61": 0.0, "D25": 1.0, "I83": 0.65, "M81": 0.85, "N40": 0.0, "N80": 1.0, "N81": 1.0}
"""Share of women of codes that differ from their chapter."""
AGES = {"E10": 28.0, "F20": 34.0, "G20": 74.0, "G35": 38.0, "J06": 6.0, "J35": 12.0, "K35": 24.0, "S72": 79.0}
"""Mean age of codes that differ from their chapter (years)."""
REGIONS = {"2": {"XV": 1.6, "XVI": 1.6}, "5": {"X": 2.2}, "7": {"IX": 1.4, "IV": 1.5}, "9": {"XIII": 1.7}}
"""How much more often a chapter occurs in the zone of a postcode."""
ZONES = {"2": 4.0, "5": 3.0, "7": 2.0, "9": 1.0}
"""Relative number of patients per zone."""


class Patient(NamedTuple):
    """An artificial patient; ``age`` in years on the first day."""

    name: str
    born: date
    age: float
    sex: str
    postcode: str


def leaves(taxonomy: str) -> list[list[str]]:
    """Return the rows of a taxonomy of the demo, ``icd`` or ``postcode``: the leaf and its ancestors up to the root."""
    with (FOLDER / f"{taxonomy}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def messages(patients: int = PATIENTS, seed: int = SEED) -> list[Message]:
    """Return the visits of a year in order of admission, each in Debezium's envelope.

    Parameters
    ----------
    patients
        Number of patients; each has one visit to four.
    seed
        Of all draws: the same number gives the same messages.
    """
    random = Random(seed)  # noqa: S311 - artificial records
    codes = [(row[0], row[2]) for row in leaves("icd")]
    postcodes = [row[0] for row in leaves("postcode")]
    visits = []
    for number in range(patients):
        patient = _patient(random, number, postcodes)
        weights = list(accumulate(_likelihood(code, chapter, patient) for code, chapter in codes))
        count = 1 + _index(random, VISITS)
        visits += [_visit(random, patient, codes[_index(random, weights)]) for _ in range(count)]
    visits.sort(key=lambda visit: str(visit["visit"]["admitted_at"]))
    return [_envelope(number, _with_gaps(random, visit)) for number, visit in enumerate(visits)]


def _index(random: Random, sums: Sequence[float]) -> int:
    """Draw an index; ``sums`` are the cumulative weights."""
    return bisect(sums, random.random() * sums[-1], hi=len(sums) - 1)


def _patient(random: Random, number: int, postcodes: Sequence[str]) -> Patient:
    newborn = random.random() < 0.03
    age = -random.random() if newborn else min(abs(random.gauss(0.0, 1.0) * 22 + 55), 101.0)
    sums = list(accumulate(ZONES[postcode[0]] for postcode in postcodes))
    return Patient(
        name=f"P{number:05d}",
        born=FIRST_DAY - timedelta(days=round(age * 365.25)),
        age=age,
        sex="F" if random.random() < 0.52 else "M",
        postcode=postcodes[_index(random, sums)],
    )


def _likelihood(code: str, chapter: str, patient: Patient) -> float:
    """Return how likely a visit of the patient has this code, up to a factor."""
    figures = CHAPTERS[chapter]
    women = WOMEN.get(code, figures.women)
    distance = (max(patient.age, 0.0) - AGES.get(code, figures.age)) / figures.spread
    return (
        figures.weight
        * exp(-distance * distance / 2)
        * (women if patient.sex == "F" else 1 - women)
        * REGIONS[patient.postcode[0]].get(chapter, 1.0)
        # Every visit needs some code, at any age.
        + (1e-6 if women == figures.women and chapter == "XVIII" else 0.0)
    )


def _visit(random: Random, patient: Patient, diagnosis: tuple[str, str]) -> Message:
    code, chapter = diagnosis
    figures = CHAPTERS[chapter]
    born_in_the_year = (patient.born - FIRST_DAY).days
    day = max(born_in_the_year, 0) if chapter == "XVI" else random.randrange(max(born_in_the_year, 0), DAYS)
    admitted = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=day, minutes=random.randrange(24 * 60))
    older = 1.0 + max(patient.age - 40, 0.0) / 80
    days = exp(log(figures.days * older) + 0.6 * random.gauss(0.0, 1.0))
    crp = exp(log(figures.crp) + 0.7 * random.gauss(0.0, 1.0))
    return {
        "patient": {
            "id": patient.name,
            "birth_date": patient.born.isoformat(),
            "sex": patient.sex,
            "address": {"postcode": patient.postcode},
        },
        "visit": {
            "admitted_at": admitted.isoformat().replace("+00:00", "Z"),
            "icd": UNLISTED if random.random() < 0.01 else code,
            "length_of_stay": min(round(days), 60),
        },
        "lab": {"crp": None if random.random() < MISSING_SHARE else round(crp, 1)},
    }


def _with_gaps(random: Random, visit: Message) -> Message:
    """Remove each quasi-identifier from one visit of ten: null, an empty text, or no field at all."""
    for path in FIELDS:
        if random.random() >= MISSING_SHARE:
            continue
        parent: Message = visit
        for name in path[:-1]:
            parent = parent[name]
        form = random.choice((None, "", ABSENT))
        if form is ABSENT:
            del parent[path[-1]]
        else:
            parent[path[-1]] = form
    return visit


def _envelope(number: int, visit: Message) -> Message:
    """Wrap a row as Debezium's connector for PostgreSQL does when the row is inserted."""
    ts_ms = 1_735_689_600_000 + 1_000 * number
    source = {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "hospital",
        "ts_ms": ts_ms,
        "snapshot": "false",
        "db": "hospital",
        "schema": "public",
        "table": "visits",
        "txId": 1_000 + number,
        "lsn": 20_000_000 + 100 * number,
    }
    return {"before": None, "after": visit, "source": source, "op": "c", "ts_ms": ts_ms + 40, "transaction": None}


if __name__ == "__main__":
    for message in messages():
        print(json.dumps(message))
