"""A reference is as public as the policy: no record of its sample shows in it, in a message or in a log."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from shoal.cli import main
from support.canaries import forms
from support.reference_samples import policy_of, smooth

K = 5
CANARIES: tuple[str | int, ...] = ("zebrafish-9", "okapi-77", 913_377_001, "subject-canary")
POLICY = {
    "attributes": {
        "id": {"role": "identifier", "subject": True, "normalize": []},
        "age": {"role": "quasi_identifier", "bounds": [0, 110]},
        "ill": {"role": "confidential", "type": "string"},
        "pay": {"role": "confidential", "type": "number"},
    },
    "privacy": {"k": K},
}


def sample() -> Iterator[dict[str, object]]:
    """Yield records of which no canary may show: rare values, an extreme number, a subject, and invalid records."""
    for number in range(60):
        yield {"id": f"s{number}", "age": 30, "ill": f"common{number % 3}", "pay": 1000 + number}
    for number in range(K - 1):
        yield {"id": f"r{number}", "age": 31, "ill": CANARIES[0], "pay": 1010}
    for _ in range(20):
        yield {"id": CANARIES[3], "age": 32, "ill": CANARIES[1], "pay": CANARIES[2]}
    for number in range(9):
        yield {"id": f"i{number}", "age": "old", "ill": CANARIES[0], "pay": 1010}


@pytest.mark.parametrize("log", ["text", "json"])
@pytest.mark.parametrize("arguments", [["--attribute", "ill"], ["--attribute", "pay"], [], ["--attribute", "id"]])
def test_no_value_of_few_subjects_shows(
    arguments: list[str], log: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    (tmp_path / "sample.jsonl").write_text("".join(json.dumps(record) + "\n" for record in sample()))
    names = [str(tmp_path / name) for name in ("policy.json", "sample.jsonl", "out.csv")]
    code = main(["reference", names[0], "-i", names[1], "-o", names[2], "--log", log, *arguments])
    told = capfd.readouterr()
    written = (tmp_path / "out.csv").read_bytes() if (tmp_path / "out.csv").exists() else b""
    assert (code == 0) == bool(written)
    assert bool(written) == (len(arguments) == 2 and arguments[1] != "id")
    for canary in CANARIES:
        for form in forms(canary):
            assert form not in written + told.out.encode() + told.err.encode()


def test_the_extreme_number_does_not_show_in_its_size() -> None:
    policy = policy_of(K, type="number")
    found = [smooth(policy, enumerate([*range(1000, 1200), 10**digits])) for digits in (6, 9, 15)]
    assert found[0] == found[1] == found[2]


def test_most_records_of_adult_make_no_difference(data_dir: Path) -> None:
    with gzip.open(data_dir / "adult.csv.gz", "rt", encoding="utf-8") as file:
        values = [record["occupation"] for record in csv.DictReader(file)][:3000]
    policy = policy_of(10, type="string")
    whole = {row.text: row.subjects for row in smooth(policy, enumerate(values)).rows}
    changed = 0
    for value, count in Counter(values).items():
        # All records of one value are alike: each is tried, and counted as often as it occurs.
        rest = [(number, other) for number, other in enumerate(values) if number != values.index(value)]
        without = {row.text: row.subjects for row in smooth(policy, rest).rows}
        difference = {text: whole[text] - without.get(text, 0) for text in whole if whole[text] != without.get(text)}
        assert difference in ({}, {value: 10})
        changed += count if difference else 0
    assert 0 < changed / len(values) < 0.5
