"""Streams of records with attributes of several scales, to measure how evenly an engine keeps their attributes.

Values are those of published tables in several orders and selections, the artificial patients of the demo, and drawn
ones. Each stream has a policy whose bounds are as tight as the data; `MixedStream.policy` makes them wider.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference_data import data_folder, read_rows
from shoal.policy import Policy
from shoal.policy.schema import Document

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deploy" / "demo"))

__all__ = ["MixedStream", "mixed_streams", "unseen_streams"]

MOST = 6000
"""Most records of a stream."""
Column = Sequence[Any]
Declared = dict[str, Any]
_FIRST = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True)
class MixedStream:
    """Records in order of arrival, and what a policy says of their quasi-identifiers.

    Attributes
    ----------
    name : str
    attributes : mapping of str to dict
        The quasi-identifiers as in a policy, bounds as tight as the data.
    columns : mapping of str to sequence
        Values of each quasi-identifier and, for some streams, of ``person``.
    k, delta : int
    clocks : tuple of str
        Names of the attributes that only grow.
    """

    name: str
    attributes: Mapping[str, Declared]
    columns: Mapping[str, Column]
    k: int = 10
    delta: int = 200
    clocks: tuple[str, ...] = ("at",)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def policy(self, wider: float = 1.0, **sections: Any) -> Policy:  # noqa: ANN401 - sections of a policy
        """Return the policy with bounds ``wider`` times as wide; ``sections`` replace or add top-level keys."""
        return Policy.from_document(Document.model_validate(self.document(wider) | sections))

    def document(self, wider: float = 1.0) -> dict[str, Any]:
        """Return the policy as plain values."""
        attributes: dict[str, Declared] = {}
        for name, declared in self.attributes.items():
            attributes[name] = {"role": "quasi_identifier", **declared}
            if "bounds" in declared and declared["scale"] == "numeric":
                low, high = declared["bounds"]
                attributes[name]["bounds"] = [low, low + wider * (high - low)]
            elif "bounds" in declared:
                low, high = (datetime.fromisoformat(text) for text in declared["bounds"])
                latest = min(low + wider * (high - low), datetime(9000, 1, 1, tzinfo=UTC))
                attributes[name]["bounds"] = [low.isoformat(), latest.isoformat()]
        has_persons = "person" in self.columns
        if has_persons:
            attributes["person"] = {"role": "identifier", "subject": True, "normalize": []}
        return {
            "attributes": attributes,
            "privacy": {"k": self.k},
            "stream": {"delta": self.delta},
            **({} if has_persons else {"subject": "every_record"}),
        }

    def lines(self) -> list[bytes]:
        """Return the records as JSON lines."""
        names = list(self.columns)
        rows = zip(*(self.columns[name] for name in names), strict=True)
        return [json.dumps(dict(zip(names, row, strict=True))).encode() for row in rows]


def _number(values: NDArray[Any], decimals: int = 0, **more: object) -> tuple[Declared, Column]:
    """Return a numeric attribute, published with ``decimals`` decimals, and its values."""
    values = np.round(values, decimals)
    low, high = float(values.min()), float(values.max())
    if not decimals:
        return (
            {"scale": "numeric", "bounds": [int(low), int(high)], "integer": True, **more},
            values.astype(int).tolist(),
        )
    return {"scale": "numeric", "bounds": [low, high], "resolution": 10.0**-decimals, **more}, values.tolist()


def _nominal(values: Sequence[Any] | NDArray[Any], prefix: str = "", **more: object) -> tuple[Declared, Column]:
    return {"scale": "nominal", **more}, [f"{prefix}{value}" for value in values]


def _time(seconds: NDArray[np.float64], resolution: str = "15min") -> tuple[Declared, Column]:
    """Return a time attribute and its values, given in seconds after the first day."""
    moments = [_FIRST + timedelta(seconds=round(float(second))) for second in seconds]
    texts = [moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in moments]
    bounds = [min(moments).isoformat(), (max(moments) + timedelta(days=1)).isoformat()]
    return {"scale": "time", "resolution": resolution, "bounds": bounds}, texts


def _zipf(random: np.random.Generator, count: int, n: int = MOST, power: float = 1.0) -> NDArray[np.int64]:
    shares = 1.0 / np.arange(1, count + 1) ** power
    return random.choice(count, size=n, p=shares / shares.sum())


def _clock(random: np.random.Generator, days: float = 30, n: int = MOST) -> NDArray[np.float64]:
    """Moments of n events: few at night, more by day."""
    moments = np.arange(0, days, 1 / 24)
    rate = 1.05 + np.sin(2 * np.pi * (moments % 1 - 0.25))
    edges = np.append(0, np.cumsum(rate))
    found: NDArray[np.float64] = np.interp(np.sort(random.random(n)) * edges[-1], edges, np.arange(len(edges)) * 3600.0)
    return found


def _stream(
    name: str,
    attributes: Mapping[str, tuple[Declared, Column]],
    person: Column | None = None,
    **more: Any,  # noqa: ANN401
) -> MixedStream:
    columns = {key: column for key, (_, column) in attributes.items()}
    if person is not None:
        columns["person"] = person
    clocks = tuple(key for key in attributes if key == "at")
    return MixedStream(
        name, {key: declared for key, (declared, _) in attributes.items()}, columns, clocks=clocks, **more
    )


def _purchases(random: np.random.Generator, shops: int = 40) -> MixedStream:
    """Shops differ in what is bought there; most purchases are small."""
    shop = _zipf(random, shops)
    level = random.normal(size=shops)
    items = 1 + random.poisson(np.exp(0.8 + 0.4 * level[shop] + 0.5 * random.normal(size=MOST)))
    dollars = items * np.exp(1.5 + 0.5 * level[shop] + 0.8 * random.normal(size=MOST))
    return _stream(
        f"purchases: clock, {shops} shops",
        {
            "at": _time(_clock(random)),
            "shop": _nominal(shop, "S"),
            "items": _number(items),
            "dollars": _number(dollars, 1),
        },
    )


def _claims(random: np.random.Generator) -> MixedStream:
    """Visits to a doctor: most people have few; health and visits depend on each other."""
    health = random.normal(size=MOST)
    visits = random.poisson(np.exp(0.8 - 0.3 * health + random.normal(size=MOST) * 0.8))
    return _stream(
        "claims: clock, 300 areas, 4 plans",
        {
            "at": _time(_clock(random)),
            "area": _nominal(_zipf(random, 300, power=0.7), "A"),
            "plan": _nominal(_zipf(random, 4), "plan"),
            "visits": _number(visits),
            "health": _number(60 + 12 * health, 1),
        },
    )


def _postcodes(random: np.random.Generator) -> MixedStream:
    """Persons with four records each, 30 cities with 30 postcodes each, a date of birth."""
    persons = random.integers(0, MOST // 4, MOST)
    city, place = _zipf(random, 30), random.integers(0, 30, MOST)
    born = random.normal(size=MOST) * 20
    visits = random.geometric(0.35, size=MOST) - 1
    return _stream(
        "persons: clock, born, 900 postcodes, city",
        {
            "at": _time(_clock(random)),
            "born": _time((-40 + born[persons]) * 365.25 * 86400, "year"),
            "zip": _nominal([f"{a:02d}{b:02d}" for a, b in zip(city[persons], place[persons], strict=True)]),
            "city": _nominal(city[persons], "C"),
            "visits": _number(visits),
        },
        person=[f"P{number}" for number in persons],
    )


@cache
def _adult_rows() -> list[dict[str, str]]:
    return read_rows(data_folder(), "adult")


def _adult(name: str, rows: Sequence[dict[str, str]], numbers: Sequence[str], nominal: Sequence[str]) -> MixedStream:
    attributes = {column: _number(np.array([float(row[column]) for row in rows])) for column in numbers}
    attributes |= {column: _nominal([row[column] for row in rows]) for column in nominal}
    return _stream(f"Adult: {name}", attributes)


def _adult_streams(random: np.random.Generator) -> Iterator[MixedStream]:
    rows = _adult_rows()
    shuffled = [rows[i] for i in random.permutation(len(rows))[:MOST]]
    yield _adult(
        "order of the file, all",
        rows[:MOST],
        ("age", "education-num", "capital-gain", "hours-per-week"),
        ("workclass", "occupation", "marital-status", "sex", "native-country"),
    )
    yield _adult(
        "shuffled, 3 numbers, race, sex", shuffled, ("age", "education-num", "hours-per-week"), ("race", "sex")
    )
    by_age = sorted(shuffled, key=lambda row: int(row["age"]))
    yield _adult("by age", by_age, ("age", "education-num", "hours-per-week"), ("occupation", "marital-status"))
    jobs = [row | {"job": f"{row['occupation']} {row['education']} {row['workclass']}"} for row in shuffled]
    yield _adult("a job of hundreds, age, hours", jobs, ("age", "hours-per-week"), ("job", "sex"))
    taxonomies = {name: _taxonomy(name) for name in ("occupation", "workclass", "marital-status")}
    stream = _adult("taxonomies", shuffled, ("age", "hours-per-week"), tuple(taxonomies))
    attributes = {
        name: declared | ({"taxonomy": taxonomies[name]} if name in taxonomies else {})
        for name, declared in stream.attributes.items()
    }
    yield MixedStream("Adult: taxonomies", attributes, stream.columns, clocks=())
    missing = _adult("a fifth missing", shuffled, ("age", "hours-per-week"), ("occupation", "sex"))
    holes = {
        name: [None if hole else value for value, hole in zip(column, random.random(MOST) < 0.2, strict=True)]
        for name, column in missing.columns.items()
    }
    grouped = {name: declared | {"missing": "group"} for name, declared in missing.attributes.items()}
    yield MixedStream(missing.name, grouped, holes, clocks=())


def _taxonomy(name: str) -> dict[str, Any]:
    """Return a taxonomy of Adult as a tree, for a policy."""
    tree: dict[str, Any] = {}
    for row in read_rows(data_folder(), f"hierarchies/adult_{name}"):
        # A missing value has no group.
        levels = [row["level0"] if row[level] == "*" else row[level] for level in row][::-1][1:]
        *inner, leaf = levels
        branch = tree
        for level in inner:
            branch = branch.setdefault(level, {})
        branch[leaf] = {}
    found: dict[str, Any] = _lists(tree)
    return found


def _lists(tree: dict[str, Any]) -> Any:  # noqa: ANN401 - a tree
    return {key: _lists(below) if any(below.values()) else list(below) for key, below in tree.items()}


def _census(random: np.random.Generator) -> MixedStream:
    """Numbers of Census, two of them cut into categories; four times over, shuffled, with noise."""
    rows = read_rows(data_folder(), "census")
    table = np.array([[float(value) for value in row.values()] for row in rows])
    names = list(rows[0])
    table = table[np.concatenate([random.permutation(len(table)) for _ in range(4)])]
    attributes = {name: _number(table[:, names.index(name)]) for name in ("TAXINC", "POTHVAL", "AGI")}
    for name, parts in (("FEDTAX", 6), ("INTVAL", 25)):
        column = table[:, names.index(name)]
        edges = np.unique(np.quantile(column, np.linspace(0, 1, parts + 1)[1:-1]))
        attributes[name] = _nominal(np.searchsorted(edges, column), "q")
    return _stream("Census, two attributes cut", attributes)


def _eia(random: np.random.Generator) -> MixedStream:
    """A month's utilities after the other month's: a state, heavy tails; one utility has many records."""
    del random
    rows = read_rows(data_folder(), "eia")
    measures = [name for name in rows[0] if name not in {"UTILITYID", "UTILNAME", "STATE", "YEAR", "MONTH"}][:4]
    attributes = {name: _number(np.array([float(row[name]) for row in rows]), 1) for name in measures}
    attributes["STATE"] = _nominal([row["STATE"] for row in rows])
    return _stream("EIA, order of the file, states", attributes, person=[row["UTILITYID"] for row in rows])


def _tarragona(random: np.random.Generator) -> MixedStream:
    """Heavy tails: companies, one figure cut into categories."""
    rows = read_rows(data_folder(), "tarragona")
    table = np.array([[float(value) for value in row.values()] for row in rows])
    table = table[np.concatenate([random.permutation(len(table)) for _ in range(4)])]
    attributes = {f"figure{i}": _number(table[:, i]) for i in range(4)}
    edges = np.unique(np.quantile(table[:, 6], np.linspace(0, 1, 13)[1:-1]))
    attributes["class"] = _nominal(np.searchsorted(edges, table[:, 6]), "q")
    return _stream("Tarragona, one attribute cut", attributes)


def _patients(random: np.random.Generator) -> MixedStream:
    """The patients of the demo, in order of admission, without gaps."""
    del random
    import patients  # noqa: PLC0415 - of the demo

    found: dict[str, dict[str, Any]] = {}
    for message in patients.messages():
        visit = message.get("after") or {}
        flat = {
            "born": (visit.get("patient") or {}).get("birth_date"),
            "sex": (visit.get("patient") or {}).get("sex"),
            "postcode": ((visit.get("patient") or {}).get("address") or {}).get("postcode"),
            "at": (visit.get("visit") or {}).get("admitted_at"),
            "icd": (visit.get("visit") or {}).get("icd"),
            "days": (visit.get("visit") or {}).get("length_of_stay"),
            "person": (visit.get("patient") or {}).get("id"),
        }
        if all(flat.values()):
            found[str(len(found))] = flat
    rows = sorted(found.values(), key=lambda row: row["at"])[:MOST]
    days = _number(np.array([float(row["days"]) for row in rows]))
    born = {"scale": "time", "resolution": "year", "bounds": ["1920-01-01T00:00:00+00:00", "2025-12-31T00:00:00+00:00"]}
    at = {"scale": "time", "resolution": "day", "bounds": ["2025-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]}
    return _stream(
        "patients of the demo",
        {
            "at": (at, [row["at"] for row in rows]),
            "born": (born, [row["born"] for row in rows]),
            "sex": _nominal([row["sex"] for row in rows]),
            "postcode": _nominal([row["postcode"] for row in rows]),
            "icd": _nominal([row["icd"] for row in rows]),
            "days": days,
        },
        person=[row["person"] for row in rows],
    )


def _drifting(random: np.random.Generator) -> MixedStream:
    """Eight groups that move; a category tells the group in four cases of five."""
    centres, ways = random.random((8, 3)) * 100, random.normal(size=(8, 3)) * 60 / MOST
    which = random.integers(8, size=MOST)
    values = centres[which] + ways[which] * np.arange(MOST)[:, None] + random.normal(size=(MOST, 3)) * 4
    label = np.where(random.random(MOST) < 0.8, which, random.integers(12, size=MOST))
    return _stream(
        "drifting groups, noisy label",
        {f"x{i}": _number(values[:, i], 1) for i in range(3)} | {"label": _nominal(label, "G")},
    )


def _sensors(random: np.random.Generator) -> MixedStream:
    """Waves with a step, a clock, 12 devices."""
    hours = _clock(random, days=10) / 3600
    device = random.integers(12, size=MOST)
    load = 50 + 20 * np.sin(2 * np.pi * hours / 24) + 15 * (np.arange(MOST) > MOST / 2) + 8 * random.normal(size=MOST)
    heat = 20 + 0.2 * device + 5 * np.sin(2 * np.pi * hours / 24 + 1) + 2 * random.normal(size=MOST)
    return _stream(
        "waves with a step, clock, 12 devices",
        {
            "at": _time(hours * 3600, "15min"),
            "device": _nominal(device, "D"),
            "load": _number(load, 1),
            "heat": _number(heat, 1),
        },
    )


def _heavy(random: np.random.Generator) -> MixedStream:
    """Lognormal numbers, an ordinal grade that depends on them, a rare flag."""
    wealth = random.normal(size=MOST)
    spent = np.exp(1.2 * wealth + 0.7 * random.normal(size=MOST)) * 100
    income = np.exp(9 + wealth + 0.3 * random.normal(size=MOST))
    grade = np.clip(np.round(2 + 1.2 * wealth + 0.8 * random.normal(size=MOST)), 0, 4).astype(int)
    grades = ["E", "D", "C", "B", "A"]
    return _stream(
        "heavy tails, grade, rare flag",
        {
            "spent": _number(spent),
            "income": _number(income),
            "grade": ({"scale": "ordinal", "order": grades}, [grades[value] for value in grade]),
            "flag": _nominal(random.random(MOST) < 0.03, "is_"),
        },
    )


def mixed_streams() -> Iterator[MixedStream]:
    """Return the streams on which constants may be chosen."""
    random = np.random.default_rng(28)
    yield _purchases(random)
    yield _claims(random)
    yield _postcodes(random)
    yield from _adult_streams(random)
    for make in (_census, _eia, _tarragona, _patients, _drifting, _sensors, _heavy):
        yield make(random)


def _rides(random: np.random.Generator) -> MixedStream:
    """Rides between 60 stations: a clock, a far station costs time and money."""
    places = random.random((60, 2))
    start, end = _zipf(random, 60), _zipf(random, 60)
    way = np.hypot(*(places[start] - places[end]).T)
    minutes = 4 + 40 * way * np.exp(0.25 * random.normal(size=MOST))
    return _stream(
        "rides: clock, two of 60 stations",
        {
            "at": _time(_clock(random, days=7)),
            "from": _nominal(start, "S"),
            "to": _nominal(end, "S"),
            "minutes": _number(minutes),
            "age": _number(np.clip(random.gamma(6, 6, MOST), 16, 90)),
        },
    )


def _calls(random: np.random.Generator) -> MixedStream:
    """Calls of 700 customers: a clock, a cell of 120, seconds with heavy tails, a tariff."""
    customer = _zipf(random, 700, power=0.6)
    tariff, cell = random.integers(5, size=700), random.integers(120, size=700)
    moves = random.random(MOST) < 0.3
    seconds = np.exp(4 + 0.3 * tariff[customer] + random.normal(size=MOST))
    return _stream(
        "calls: clock, 120 cells, tariff",
        {
            "at": _time(_clock(random, days=3)),
            "cell": _nominal(np.where(moves, random.integers(120, size=MOST), cell[customer]), "Z"),
            "tariff": _nominal(tariff[customer], "T"),
            "seconds": _number(seconds),
        },
        person=[f"C{number}" for number in customer],
    )


def unseen_streams() -> Iterator[MixedStream]:
    """Return streams on which no constant was chosen."""
    random = np.random.default_rng(2028)
    yield _rides(random)
    yield _calls(random)
    yield _purchases(random, shops=90)
    rows = _adult_rows()[-MOST:]
    yield _adult("last records, all", rows, ("age", "fnlwgt", "hours-per-week"), ("education", "relationship", "race"))
