"""Releases of foreign data sets, judged by other code: plain Python that reads the files and follows the definitions.

Nothing of the engine or of `shoal verify` is used but to make the release. By night `shoal verify` is compared with two
other programs. The data are those that scikit-learn ships,
and the monthly reports of companies in tests/data: a company is a subject with many records.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import math
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shoal.audit import verify
from shoal.files import Files, run_batch, run_pipe
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.tables import AlgorithmSpec
from support.privacy_table import AGREEMENT
from support.published_data import data_folder, read_rows

pytestmark = pytest.mark.privacy

Row = dict[str, str]
ALMOST = 1e-9
"""What rounding may add to a distance, an entropy or a share."""


# ---------------------------------------------------------------- the data


def shipped(name: str) -> list[list[str]]:
    """Return the cells of a file of scikit-learn. The package is not imported: that takes a second."""
    found = importlib.util.find_spec("sklearn")
    assert found is not None, "make install"
    path = Path((found.submodule_search_locations or [""])[0]) / "datasets" / "data" / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [line.replace(",", " ").split() for line in text.decode().splitlines()]


def diabetes() -> list[Row]:
    """442 patients; a disease progression of 25 to 346 in five stages is confidential."""
    stages = [int(float(cells[0])) // 75 for cells in shipped("diabetes_target.csv.gz")]
    rows = zip(shipped("diabetes_data_raw.csv.gz"), stages, strict=True)
    return [{"sex": c[1], "x": c[0], "y": c[2], "value": str(stage)} for c, stage in rows]


def cancer() -> list[Row]:
    """The first 300 biopsies; the finding is confidential."""
    names = ("malignant", "benign")
    return [{"x": c[0], "y": c[1], "value": names[int(c[-1])]} for c in shipped("breast_cancer.csv")[1:301]]


def wine() -> list[Row]:
    """178 wines of three cultivars."""
    return [{"x": c[0], "y": c[9], "value": f"cultivar {c[-1]}"} for c in shipped("wine_data.csv")[1:]]


def companies() -> list[Row]:
    """Every tenth monthly report of companies: revenue and sales; the state is confidential, in four regions."""
    found = read_rows(data_folder(), "eia")[::10]
    regions = "north", "east", "south", "west"
    return [
        {
            "company": row["UTILITYID"],
            "x": str(int(row["RESREVENUE"]) // 100),
            "y": str(int(row["RESSALES"]) // 1000),
            "value": regions[sum(row["STATE"].encode()) % 4],
        }
        for row in found
    ]


def alone(number: int) -> str:
    return f"p{number}"


def three_each(number: int) -> str:
    """Three records that follow each other are of one person."""
    return f"p{number // 3}"


def few_often(number: int) -> str:
    """Some people have dozens of records, and most have one."""
    draw = Random(number)
    return f"p{number}" if draw.random() < 0.6 else f"often {min(int(draw.paretovariate(1.0)), 25)}"


# ---------------------------------------------------------------- the releases

TREE = {"north or east": ["north", "east"], "south or west": ["south", "west"]}
STEPS = {"x": Fraction(1, 2), "y": Fraction(1)}
REFERENCE = "reference.csv"


@dataclass(frozen=True)
class Case:
    """A data set, whose records are whose, what is asked of a release, and how it is made."""

    data: Callable[[], list[Row]]
    person: Callable[[int], str] | None  # by the number of a record; None: the company
    privacy: dict[str, Any]
    stream: dict[str, Any] | None = None
    algorithm: str = "auto"
    refine: str = "none"
    value: str = "string"

    def originals(self) -> list[Row]:
        names = ("sex", "x", "y", "value")
        return [
            {"who": self.person(n) if self.person else row["company"]}
            | {name: row[name] for name in names if name in row}
            for n, row in enumerate(self.data())
        ]

    def document(self, folder: Path) -> Document:
        kinds: dict[str, dict[str, Any]] = {
            "string": {"type": "string"},
            "rank": {"type": "integer"},
            "tree": {"type": "string", "scale": "nominal", "taxonomy": TREE},
        }
        value: dict[str, Any] = {"role": "confidential", **kinds[self.value]}
        if self.stream is not None and "t" in self.privacy:
            value["reference"] = str(folder / REFERENCE)
        quasi = {name: {"role": "quasi_identifier", "resolution": float(step)} for name, step in STEPS.items()}
        sex = {"sex": {"role": "quasi_identifier", "scale": "nominal"}} if self.data is diabetes else {}
        content: dict[str, Any] = {
            "attributes": {"who": {"role": "identifier", "subject": True}, **sex, **quasi, "value": value},
            "privacy": self.privacy,
        }
        return Document.model_validate(content | ({} if self.stream is None else {"stream": self.stream}))


@dataclass(frozen=True)
class Release:
    """What an outsider has: the original, the rows that were published, the members of each cluster."""

    case: Case
    originals: list[Row]
    rows: list[Row]
    clusters: list[list[int]]
    reference: dict[str, Fraction]


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def make(case: Case, folder: Path) -> Release:
    """Release the data as a command does, and read back what it wrote."""
    original, target, evidence = (folder / name for name in ("original.csv", "released.csv", "evidence.jsonl"))
    write_csv(original, case.originals())
    shares = shares_of(case.originals())
    units = {value: round(10_000 * share) for value, share in shares.items()}
    units[max(units, key=lambda value: units[value])] += 10_000 - sum(units.values())
    write_csv(folder / REFERENCE, [{"value": value, "share": unit / 10_000} for value, unit in units.items()])
    policy = Policy.from_document(case.document(folder))
    files = Files(str(original), str(target), evidence=str(evidence))
    if case.stream is None:
        run_batch(policy, files, AlgorithmSpec(case.algorithm, case.refine))
    else:
        run_pipe(policy, files)
        shares = {value: Fraction(unit, 10_000) for value, unit in units.items()}
    return read_release(case, folder, shares)


def read_release(case: Case, folder: Path, shares: dict[str, Fraction]) -> Release:
    original, target, evidence = (folder / name for name in ("original.csv", "released.csv", "evidence.jsonl"))
    clusters = [json.loads(line)["offsets"] for line in evidence.read_text().splitlines()]
    return Release(case, read_csv(original), read_csv(target), clusters, shares)


# ---------------------------------------------------------------- the outside judge


def shares_of(records: Sequence[Row]) -> dict[str, Fraction]:
    """Return the share of each value. Each person weighs one, split over the person's records."""
    own = Counter(record["who"] for record in records)
    found: defaultdict[str, Fraction] = defaultdict(Fraction)
    for record in records:
        found[record["value"]] += Fraction(1, own[record["who"]] * len(own))
    return dict(found)


def values_of_different_people(records: Sequence[Row]) -> int:
    """Return how many values can be given to different people who have them: augmenting paths."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for record in records:
        owners[record["value"]].add(record["who"])
    given: dict[str, str] = {}

    def give(value: str, tried: set[str]) -> bool:
        for person in owners[value] - tried:
            tried.add(person)
            if person not in given or give(given[person], tried):
                given[person] = value
                return True
        return False

    return sum(give(value, set()) for value in owners)


def most_people_with_one_value(records: Sequence[Row]) -> Fraction:
    """Return the largest share of people who have one value."""
    pairs = {(record["value"], record["who"]) for record in records}
    holders = Counter(value for value, _ in pairs)
    return Fraction(max(holders.values()), len({person for _, person in pairs}))


def distance(shares: Mapping[str, Fraction], reference: Mapping[str, Fraction], kind: str) -> Fraction:
    """Return the earth mover's distance: by rank, by a tree of two levels, or with all values equally far apart."""

    def apart(groups: Mapping[str, str]) -> Fraction:
        gap: defaultdict[str, Fraction] = defaultdict(Fraction)
        for value, group in groups.items():
            gap[group] += shares.get(value, Fraction(0)) - reference.get(value, Fraction(0))
        return sum(map(abs, gap.values()), Fraction(0)) / 2

    values = sorted({*shares, *reference})
    if kind == "rank":
        ranked = sorted(reference, key=int)
        assert set(shares) <= set(ranked)
        sums = accumulate(shares.get(value, Fraction(0)) - reference[value] for value in ranked)
        return sum(map(abs, sums), Fraction(0)) / (len(ranked) - 1)
    if kind == "tree":
        parents = {leaf: group for group, leaves in TREE.items() for leaf in leaves}
        return (apart({value: value for value in values}) + apart(parents)) / 2
    return apart({value: value for value in values})


def value_faults(release: Release, records: Sequence[Row]) -> Iterator[str]:
    """Yield each limit of confidential values that the records of a cluster exceed."""
    privacy, shares = release.case.privacy, shares_of(records)
    rule, weights = privacy.get("l"), sorted(shares.values(), reverse=True)
    if isinstance(rule, int) and values_of_different_people(records) < rule:
        yield "l"
    if isinstance(rule, dict) and "entropy" in rule:
        entropy = math.fsum(-float(share) * math.log(share) for share in weights)
        yield from ["l"] if entropy < math.log(rule["entropy"]) - ALMOST else []
    if isinstance(rule, dict) and "recursive" in rule:
        c, least = rule["recursive"]
        rest = sum(weights[least - 1 :], Fraction(0))
        yield from ["l"] if len(weights) < least or most_people_with_one_value(records) >= c * rest else []
    limit = privacy.get("max_value_share", 0.5 if isinstance(rule, int) else 1)
    if most_people_with_one_value(records) > limit + ALMOST:
        yield "max_value_share"
    if "t" in privacy and distance(shares, release.reference, release.case.value) > privacy["t"] + ALMOST:
        yield "t"


def published(release: Release, records: Sequence[Row]) -> dict[str, str | float]:
    """Return what a cluster must publish: means on a grid, and the most frequent category."""
    shown: dict[str, str | float] = {}
    for name, step in STEPS.items():
        mean = sum((Fraction(float(record[name])) for record in records), Fraction(0)) / len(records)
        shown[name] = float(round(mean / step) * step)
    if "sex" in records[0]:
        counts, whole = Counter(record["sex"] for record in records), Counter(r["sex"] for r in release.originals)
        is_table = release.case.stream is None
        shown["sex"] = min(counts, key=lambda one: (-counts[one], -whole[one] if is_table else 0, one))
    return shown


def faults(release: Release) -> set[str]:
    """Return the promises that a release breaks; the judge knows the policy and the files, and believes nothing."""
    case, found = release.case, set()
    members = [member for cluster in release.clusters for member in cluster]
    if len(set(members)) < len(members) or not set(members) <= set(range(len(release.originals))):
        return {"once"}
    expected: Counter[tuple[tuple[str, str | float], ...]] = Counter()
    for cluster in release.clusters:
        records = [release.originals[member] for member in cluster]
        own = Counter(record["who"] for record in records)
        found |= {"k"} if len(own) < case.privacy["k"] else set()
        found |= {"max_share"} if max(own.values()) > case.privacy.get("max_share", 0.5) * len(records) else set()
        found |= set(value_faults(release, records))
        shown = published(release, records)
        expected.update(tuple(sorted((shown | {"value": record["value"]}).items())) for record in records)
    rows = ({name: float(cell) if name in STEPS else cell for name, cell in row.items()} for row in release.rows)
    found |= {"rows"} if Counter(tuple(sorted(row.items())) for row in rows) != expected else set()
    if (quota := case.privacy.get("per_subject")) is not None:
        windows = Counter((release.originals[member]["who"], member // quota["window"]) for member in members)
        found |= {"per_subject"} if max(windows.values()) > quota["max"] else set()
    return found


def alike(release: Release) -> int:
    """Return on how few rows some published combination of quasi-identifiers is."""
    return min(Counter(tuple(cell for name, cell in row.items() if name != "value") for row in release.rows).values())


# ---------------------------------------------------------------- cases

L3, ENTROPY, RECURSIVE = {"l": 3}, {"l": {"entropy": 2.5}}, {"l": {"recursive": [2, 2]}}
CASES = {
    "nearest, k alone": Case(wine, alone, {"k": 4}, {"delta": 40, "rule": "nearest"}),
    "nearest, shares": Case(cancer, three_each, {"k": 3, "max_value_share": 0.7}, {"delta": 60, "rule": "nearest"}),
    "greedy, l": Case(diabetes, few_often, {"k": 5} | L3, {"delta": 60, "rule": "greedy"}),
    "awo, entropy": Case(companies, None, {"k": 4} | ENTROPY, {"delta": 80, "rule": "awo"}),
    "awo, ranks": Case(diabetes, few_often, {"k": 4, "t": 0.3}, {"delta": 80, "rule": "awo"}, value="rank"),
    "block, l and shares": Case(
        diabetes, three_each, {"k": 5, "max_share": 0.4, "max_value_share": 0.6} | L3, {"delta": 60}
    ),
    "block, recursive": Case(wine, few_often, {"k": 5} | RECURSIVE, {"delta": 50, "rule": "block"}),
    "block, tree": Case(companies, None, {"k": 5, "t": 0.4}, {"delta": 80, "rule": "block"}, value="tree"),
    "quota": Case(companies, None, {"k": 3, "per_subject": {"max": 1, "window": 40}}, {"delta": 30, "rule": "awo"}),
    "ordered, l": Case(wine, three_each, {"k": 3, "l": 2}, {"delta": 40, "release": "ordered"}),
    "mdav, k alone": Case(companies, None, {"k": 5}, algorithm="mdav"),
    "mdav, l": Case(diabetes, few_often, {"k": 5} | L3, algorithm="mdav"),
    "vmdav, shares": Case(cancer, few_often, {"k": 4, "max_value_share": 0.75}, algorithm="vmdav"),
    "md, equal distances": Case(wine, alone, {"k": 4, "t": 0.4}, algorithm="md"),
    "hilbert, entropy": Case(companies, None, {"k": 4} | ENTROPY, algorithm="hilbert"),
    "approximate, recursive": Case(wine, three_each, {"k": 3} | RECURSIVE, algorithm="approximate"),
    "genetic, l": Case(wine, alone, {"k": 6, "l": 2}, algorithm="genetic"),
    "steered, equal distances": Case(cancer, alone, {"k": 5, "t": 0.4}, algorithm="steered"),
    "strict, ranks": Case(diabetes, three_each, {"k": 4, "t": 0.25}, algorithm="strict", value="rank"),
    "auto, tree": Case(companies, few_often, {"k": 4, "t": 0.35}, refine="descent", value="tree"),
    "auto, all limits": Case(
        diabetes, few_often, {"k": 5, "t": 0.3, "max_value_share": 0.5} | L3, refine="descent", value="rank"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_other_code_finds_that_a_release_keeps_what_its_policy_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    release = make(case, tmp_path)
    assert faults(release) == set()
    assert alike(release) >= case.privacy["k"]
    assert len(release.rows) >= (1 if "per_subject" in case.privacy else 0.5 * len(release.originals))
    assert case.stream is not None or len(release.rows) == len(release.originals)


def moved(release: Release, cell: str, value: str) -> Release:
    """Return a release with another value in the first row."""
    return replace(release, rows=[release.rows[0] | {cell: value}, *release.rows[1:]])


def renamed(release: Release, count: int) -> Release:
    """Return a release whose first cluster has one person in place of some."""
    originals = list(release.originals)
    for member in release.clusters[0][:count]:
        originals[member] = originals[member] | {"who": "one"}
    return replace(release, originals=originals)


def merged(release: Release) -> Release:
    first, second, *others = release.clusters
    return replace(release, clusters=[first + second, *others])


WRONG: dict[str, tuple[Callable[[Release], Release], str]] = {
    "one person in place of most": (lambda one: renamed(one, len(one.clusters[0]) - 1), "k"),
    "one person in place of many": (lambda one: renamed(merged(one), len(one.clusters[0]) + 1), "max_share"),
    "a record in two clusters": (
        lambda one: replace(one, clusters=[one.clusters[0] + one.clusters[1][:1], *one.clusters[1:]]),
        "once",
    ),
    "a record that does not exist": (lambda one: replace(one, clusters=[[*one.clusters[0], 10**6]]), "once"),
    "a row left out": (lambda one: replace(one, rows=one.rows[1:]), "rows"),
    "another mean": (lambda one: moved(one, "x", "7.5"), "rows"),
    "another category": (lambda one: moved(one, "sex", "3"), "rows"),
    "another value": (lambda one: moved(one, "value", "9"), "rows"),
    "two clusters as one": (merged, "rows"),
}


def test_the_outside_judge_finds_what_is_wrong(tmp_path: Path) -> None:
    case = Case(diabetes, alone, {"k": 4}, algorithm="mdav")
    release = make(case, tmp_path)
    assert faults(release) == set()
    for what, (spoil, fault) in WRONG.items():
        assert fault in faults(spoil(release)), what
    # Each limit excludes releases that k alone allows.
    limits: list[dict[str, Any]] = [L3, ENTROPY, RECURSIVE, {"max_value_share": 0.7}, {"t": 0.3}]
    for limit in limits:
        asked = replace(release, case=replace(case, privacy={"k": 4} | limit, value="rank"))
        assert set(limit) <= faults(asked), limit
    window = {"per_subject": {"max": 1, "window": 1000}}
    assert faults(replace(renamed(release, 2), case=replace(case, privacy={"k": 3} | window))) == {"per_subject"}


def test_t_alone_allows_clusters_of_one_value_and_a_largest_share_does_not(tmp_path: Path) -> None:
    people = [{"x": str(10 * n), "y": "0", "value": "often" if n < 13 else "rare"} for n in range(20)]
    for privacy, most in (({"t": 0.35}, 1), ({"t": 0.35, "max_value_share": 0.7}, Fraction(7, 10))):
        release = make(Case(lambda: people, alone, {"k": 3} | privacy, algorithm="mdav"), tmp_path)
        assert faults(release) == set()
        found = [most_people_with_one_value([release.originals[m] for m in one]) for one in release.clusters]
        assert max(found) <= most
        assert most < 1 or max(found) == 1


ONE_EACH = [
    Case(data, alone, privacy, algorithm=algorithm, value=value)
    for data, value, entropy in (
        *((wine, "string", 2.2), (cancer, "string", 1.8)),
        *((companies, "string", 2.2), (diabetes, "rank", 3.1)),
    )
    for privacy, algorithm in (
        ({"k": 3}, "auto"),
        ({"k": 5, "l": 2, "max_value_share": 0.7}, "mdav"),
        ({"k": 8, "l": {"entropy": entropy}}, "hilbert"),
    )
]
"""Tables with one record of each person: pycanon and anjana count records."""
ASKED: dict[str, dict[str, Any]] = {
    "l": {"l": 2},
    "entropy": {"l": {"entropy": 1.5}},
    "t": {"t": 0.5},
    "share": {"max_value_share": 0.5},
}
OTHERS = ("anjana==1.2.3", "pycanon==1.3.5")
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "other_judges.py"
CHECKS = {"l": "diversity", "entropy": "diversity", "t": "closeness", "share": "value_share"}


def by_verify(case: Case, folder: Path) -> dict[str, float]:
    """Return what `shoal verify` finds in a release: the fewest rows that are alike, and the worst by each limit.

    Like the others it gets no evidence, and rows that are alike are one class.
    """
    found: dict[str, float] = {}
    for name, limit in ASKED.items():
        policy = Policy.from_document(replace(case, privacy={"k": case.privacy["k"]} | limit).document(folder))
        verdict = verify(policy, folder / "original.csv", folder / "released.csv")
        worst = verdict[CHECKS[name]].worst
        found["k"] = int(verdict["alone"].worst or 0)
        assert worst is not None
        found[name] = int(worst + ALMOST) if name in {"l", "entropy"} else worst
    return found


@pytest.mark.nightly
def test_pycanon_and_anjana_agree_where_they_can_judge(tmp_path: Path) -> None:
    """Their own environment is made by pip: anjana needs other versions of numpy and pandas."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *OTHERS], check=True)
    tables: list[dict[str, Any]] = []
    for number, case in enumerate(ONE_EACH):
        folder = tmp_path / str(number)
        folder.mkdir()
        release = make(case, folder)
        found = by_verify(case, folder)
        quasi = [name for name in release.rows[0] if name != "value"]
        tables.append({"path": str(folder / "released.csv"), "quasi": quasi, "value": "value", "asked": found})
        tables[-1]["is_rank"] = case.value == "rank"
    done = subprocess.run([python, PROGRAM], input=json.dumps(tables), capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)
    assert [one["pycanon"] for one in answers] == [pytest.approx(table["asked"], abs=ALMOST) for table in tables]
    assert all(all(one["anjana"].values()) for one in answers)
    figures = sum(len(one["pycanon"]) for one in answers)
    assert f"{len(tables)} tables, all {figures} figures" in AGREEMENT
    assert all(name.replace("==", " ") in AGREEMENT for name in OTHERS)


def test_records_of_one_person_are_no_other_people() -> None:
    """Ten records of one person with ten values hide nobody: the guess is right for 10 of 11 people."""
    one = [{"who": "one", "value": str(n)} for n in range(10)]
    records = one + [{"who": f"p{n}", "value": "hiv"} for n in range(10)]
    assert most_people_with_one_value(records) == Fraction(10, 11)
    assert values_of_different_people(records) == 2
    assert values_of_different_people(one) == 1
    assert shares_of(records)["hiv"] == Fraction(10, 11)
