"""The report of a release: what it shows, and that nothing of a single record is in it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from shoal.audit import judge
from shoal.audit.scales import published_values
from shoal.audit.verdict import Verdict, Worth
from shoal.cli.command_line import main
from shoal.policy import Policy
from shoal.reports import html_of, report_of
from shoal.reports.cells import Cell, cells_of, coarse, in_words, merge_neighbours, merge_rare, share, without_counts
from shoal.reports.distributions import _bins
from shoal.reports.figures import _with_coarse_counts

POLICY = """
attributes:
  person: {role: identifier, subject: true}
  age: {role: quasi_identifier, scale: numeric, bounds: [0, 110], integer: true}
  job: {role: quasi_identifier, scale: nominal}
  ill: {role: confidential, type: string}
privacy: {k: 3}
"""
CANARIES = ("p-canary", "job-canary", "ill-canary")
"""A person who is unique in every field, and was left out."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a release of four clusters of 3 to 5 people, and one record that was left out."""
    clusters: list[tuple[tuple[int, ...], str]] = [
        ((30, 31, 32), "clerk"),
        ((40, 41, 42), "cook"),
        ((50, 51, 52, 53, 54), "clerk"),
        ((60, 61, 62), "cook"),
    ]
    original, released, evidence = ["person,age,job,ill"], [], []
    for number, (ages, job) in enumerate(clusters):
        first = len(original) - 1
        original += [f"p{number}{age},{age},{job},flu" for age in ages]
        released += [f"{round(sum(ages) / len(ages))},{job},flu"] * len(ages)
        evidence.append({"partition": 0, "cluster": number, "offsets": [first + place for place in range(len(ages))]})
    original.append("p-canary,107,job-canary,ill-canary")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "original.csv").write_text("\n".join(original) + "\n")
    (tmp_path / "released.csv").write_text("\n".join(["age,job,ill", *sorted(released)]) + "\n")
    (tmp_path / "evidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evidence))
    return tmp_path


def command(folder: Path, *more: str) -> int:
    files = ["--original", str(folder / "original.csv"), "--released", str(folder / "released.csv")]
    outputs = ["-o", str(folder / "report.html"), "--json", str(folder / "report.json")]
    return main(["report", str(folder / "policy.yaml"), *files, *outputs, *more])


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def numbers_of(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_of(one)
    else:
        yield value


@pytest.mark.parametrize(
    ("rows", "records", "words"),
    [
        (10, 10, "10 of 10 records released"),
        (10, 11, "10 of about 18 records released"),
        (10, 40, "10 of about 36 records released"),
    ],
)
def test_the_records_of_a_sentence_are_no_fewer_than_its_rows(rows: int, records: int, words: str) -> None:
    verdict = Verdict((), {}, {}, worth=Worth(9, k=9, people=10, rows=rows, records=records))
    assert words in _with_coarse_counts(verdict, 9).headline(lambda count: in_words(count, 9))


def test_the_page_says_what_the_release_is_worth_and_nothing_of_a_single_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command(folder, "--evidence", str(folder / "evidence.jsonl"))
    said = capsys.readouterr().out
    page, report = (folder / "report.html").read_text(), json.loads((folder / "report.json").read_text())
    assert report["verdict"]["sentence"] == said.strip()
    assert "k is 3, promised 3; 14 of about 15 records released, of about 15 people" in said
    assert code == {"holds": 0, "broken": 1, "undecided": 2}[report["verdict"]["outcome"]]
    assert report["clusters"]["sizes"] == [{"people": "3", "clusters": 3}, {"people": "5", "clusters": 1}]
    assert report["risk"]["prosecutor_largest"] == report["risk"]["journalist_largest"] == 0.33
    assert report["risk"]["prosecutor_mean"] == report["risk"]["marketer"] == 0.29
    assert (report["risk"]["dld"], report["risk"]["l_avg"]) == (0.29, None)  # one of each cluster; no numbers
    assert report["risk"]["unique_before"] == 15
    assert report["risk"]["unique_after"] == 0
    (job,) = (one["cells"] for one in report["attributes"] if one["name"] == "job")
    assert job == [
        {"label": "clerk", "before": 9, "after": 9},
        {"label": "other values", "before": 6, "after": 6},
    ]
    assert [one["what"] for one in report["made"]["files"]] == ["policy", "original", "released", "evidence"]
    for canary in CANARIES:
        assert canary not in page + json.dumps(report)
    labels = [cell["label"] for one in report["attributes"] for cell in one["cells"]]
    assert not [label for label in labels if "107" in label]
    tags = Tags()
    tags.feed(page)
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert not tags.found.keys() & {"script", "link", "img", "iframe", "object"}
    assert tags.found["svg"] == 3
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page
    shown = " ".join(tags.texts)
    for number in numbers_of({name: report[name] for name in ("policy", "counts", "clusters", "made")}):
        assert number is None or isinstance(number, bool) or number == "holds" or str(number) in shown


def test_of_a_stream_it_says_how_many_records_are_linked_and_how_diverse_clusters_are(folder: Path) -> None:
    """The row of 2 is nearest to three records, two of its own; the row of 10 to one of its own."""
    (folder / "policy.yaml").write_text(
        POLICY.replace(
            "ill: {role: confidential, type: string}", "dose: {role: confidential}\n  days: {role: confidential}"
        )
        .replace("  job: {role: quasi_identifier, scale: nominal}\n", "")
        .replace("privacy:", "stream: {delta: 5}\nprivacy:")
    )
    records = ["1,5,1", "1,5.0001,2", "4,7,3", "1,1,4", "11,2e200,4", "18,,4"]
    rows = [f"{2 if number < 3 else 10},{record.split(',', 1)[1]}" for number, record in enumerate(records)]
    originals = ["person,age,dose,days", *(f"p{number},{record}" for number, record in enumerate(records))]
    (folder / "original.csv").write_text("\n".join(originals) + "\n")
    (folder / "released.csv").write_text("\n".join(["age,dose,days", *sorted(rows)]) + "\n")
    evidence = [{"partition": 0, "cluster": one, "offsets": [3 * one, 3 * one + 1, 3 * one + 2]} for one in range(2)]
    (folder / "evidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evidence))
    command(folder, "--evidence", str(folder / "evidence.jsonl"))
    report = json.loads((folder / "report.json").read_text())
    assert report["risk"]["dld"] == 0.28  # (2/3 + 1) / 6
    assert report["risk"]["l_avg"] == 1.5  # the fewest are two doses (a number beyond 1e150 is missing) and one of days
    linked = 'share of right links</td><td></td><td class="number">28 %'
    assert linked in (folder / "report.html").read_text()


def test_without_evidence_it_says_what_it_cannot_say(folder: Path) -> None:
    # Two people with one illness have equal rows in two clusters: they cannot be told apart.
    text = (folder / "released.csv").read_text().replace("41,cook", "31,cook").replace("31,clerk", "31,cook")
    (folder / "released.csv").write_text("\n".join([text.split("\n")[0], *sorted(text.split("\n")[1:-1])]) + "\n")
    command(folder)
    report = json.loads((folder / "report.json").read_text())
    assert not report["clusters"]["are_known"]
    assert report["risk"]["prosecutor_largest"] is report["risk"]["dld"] is report["risk"]["l_avg"] is None
    assert report["risk"]["journalist_unit"] == "rows"
    assert any("without evidence" in text for text in report["judge"]["not_examined"])
    assert any("why records were suppressed" in text for text in report["judge"]["not_examined"])


def test_missing_values_of_the_release_stand_beside_those_of_the_original(tmp_path: Path) -> None:
    """Of six people without an age, four are in a cluster of five that lacks it, two in one that has it."""
    ages = ["", "", "", "", "30", "", "", "40", "41", "42"]
    original = ["person,age,job,ill", *(f"p{number},{age},cook,flu" for number, age in enumerate(ages))]
    (tmp_path / "policy.yaml").write_text(POLICY.replace("integer: true", "integer: true, missing: group"))
    (tmp_path / "original.csv").write_text("\n".join(original) + "\n")
    (tmp_path / "released.csv").write_text("age,job,ill\n" + ",cook,flu\n" * 5 + "41.0,cook,flu\n" * 5)
    clusters = [{"partition": 0, "cluster": one, "offsets": list(range(5 * one, 5 * one + 5))} for one in (0, 1)]
    (tmp_path / "evidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in clusters))
    assert command(tmp_path, "--evidence", str(tmp_path / "evidence.jsonl")) == 0
    (age,) = (one for one in json.loads((tmp_path / "report.json").read_text())["attributes"] if one["name"] == "age")
    assert age["cells"][-1] == {"label": "no value", "before": 6, "after": 6}
    assert age["cells"][0]["after"] == 6, "5 rows, as a multiple of k"


def test_values_are_escaped_and_a_file_is_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("original.csv", "released.csv"):
        (folder / name).write_text((folder / name).read_text().replace("clerk", "<b onload=x>"))
    command(folder, "--evidence", str(folder / "evidence.jsonl"))
    tags = Tags()
    tags.feed((folder / "report.html").read_text())
    assert tags.found["b"] == 0
    before = (folder / "original.csv").read_bytes()
    assert command(folder, "--summary", str(folder / "report.html")) == 2
    assert main(["report", "policy.yaml", "--original", "a", "--released", "b", "-o", "page.txt"]) == 2
    assert "ends in .html" in capsys.readouterr().err
    assert (folder / "original.csv").read_bytes() == before


def test_counts_are_multiples_of_k() -> None:
    assert [coarse(count, 4) for count in (None, 0, 1, 3, 4, 5, 6, 9)] == [
        *(None, 0, "fewer than 4", "fewer than 4", 4, 4, 8, 8),
    ]
    assert in_words(0, 4) == "0"
    assert share(3, 100, 4) is None
    text = "1 record is missing: give the policy with k 1, and 17 of 20 rows (--partial)"
    assert without_counts(text, 4) == (
        "fewer than 4 record is missing: give the policy with k 1, and about 16 of about 20 rows (--partial)"
    )


def cells(values: tuple[int, ...], most: int) -> list[Cell]:
    """Return cells of one record of each person, where the release shows no rows."""
    return cells_of(np.array(values), np.arange(len(values)), np.zeros(most, np.int64))


@pytest.mark.parametrize("k", [2, 3])
def test_no_table_can_be_reconstructed_as_far_as_a_single_person(k: int, folder: Path) -> None:
    """Of all small tables that give one report, some disagree on each count of a value that 1 to k - 1 people have."""
    most, n = 5, 2 * k + 1
    (age, _) = published_values(Policy.load(folder / "policy.yaml"), "csv", table=True, has_table_grids=True)
    by_report: dict[str, list[Counter[int]]] = defaultdict(list)
    for values in combinations_with_replacement(range(most), n):
        own = cells(values, most)
        ordered = [(first, last, coarse(cell.before, k)) for first, last, cell in merge_neighbours(own, k)]
        by_report[f"ranks {ordered}"].append(Counter(values))
        bins = _bins(age, np.array(values, np.float64), np.arange(n), Counter(), k)
        by_report[f"bins {[(label, coarse(cell.before, k)) for label, cell in bins]}"].append(Counter(values))
        named = [(str(place), cell) for place, cell in enumerate(own) if cell.before]
        rare = [(name, coarse(cell.before, k)) for name, cell in merge_rare(named, k, 15)]
        by_report[f"names {sorted(rare, key=str)}"].append(Counter(values))
        shown = {int(name) for name, _ in rare if name is not None}
        assert all(Counter(values)[value] >= k for value in shown)
    known = [
        (report, value, tables[0][value])
        for report, tables in by_report.items()
        for value in range(most)
        if 0 < tables[0][value] < k and len({table[value] for table in tables}) == 1
    ]
    assert known == []


def test_a_cell_has_k_people_and_not_k_records() -> None:
    codes, people = np.array([0, 0, 0, 1, 2, 2]), np.array([7, 7, 7, 1, 2, 3])
    own = cells_of(codes, people, np.array([0, 2, 4]))
    assert [(first, last, cell.before) for first, last, cell in merge_neighbours(own, 3)] == [(0, 2, 6)]
    assert merge_neighbours(own, 5) == []


def test_the_page_shows_nothing_but_the_report(folder: Path) -> None:
    policy = Policy.load(folder / "policy.yaml")
    judged = judge(policy, folder / "original.csv", folder / "released.csv", folder / "evidence.jsonl")
    report = report_of(policy, judged) | {"made": {"date": "2026-01-02", "versions": {}, "files": []}}
    assert html_of(json.loads(json.dumps(report))) == html_of(report)
    assert not re.search(r"line \d", html_of(report))


@pytest.fixture
def keys(folder: Path) -> Path:
    for name in ("officer", "other"):
        key = Ed25519PrivateKey.generate()
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(secret)
        (folder / f"{name}.pem").chmod(0o600)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


def check(folder: Path, *more: str, key: str = "officer.pub") -> int:
    page, public = str(folder / "report.html"), str(folder / key)
    return main(["verify", str(folder / "policy.yaml"), "--report", page, "--public-key", public, *more])


def test_a_signed_report_is_checked_with_the_public_key(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(keys, "--sign", str(keys / "officer.pem")) == 1  # the verdict on the release
    assert "report.html says what is broken or not examined" in capsys.readouterr().err
    assert check(keys, "--released", str(keys / "released.csv")) == 0
    assert capsys.readouterr().out == "signed with this key, unchanged since, and about POLICY, --released\n"
    assert check(keys, key="other.pub") == 1
    assert "was changed after it was signed, or was signed with another key" in capsys.readouterr().err
    assert check(keys, "--released", str(keys / "original.csv")) == 1
    assert "is about another file than --released" in capsys.readouterr().err
    page = keys / "report.html"
    page.write_bytes(page.read_bytes().replace(b"broken", b"holds!", 1))
    assert check(keys) == 1


@pytest.mark.parametrize(
    ("sign", "key", "message"),
    [
        (
            None,
            "officer.pub",
            "its last line is no signature: it was never signed (shoal report --sign KEY), or was changed since",
        ),
        ("officer.pem", "officer.pem", "--public-key: the file holds no public key of Ed25519"),
        ("officer.pub", None, "--sign: the file holds no private key in PEM"),
        ("absent.pem", None, "--sign: the file cannot be read"),
    ],
)
def test_what_cannot_be_signed_or_checked_says_why(
    keys: Path, capsys: pytest.CaptureFixture[str], sign: str | None, key: str | None, message: str
) -> None:
    made = command(keys, *(() if sign is None else ("--sign", str(keys / sign))))
    assert (made if key is None else check(keys, key=key)) == 2
    assert message in capsys.readouterr().err


def test_a_report_to_check_needs_the_key_and_a_release_its_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(folder / "policy.yaml"), "--report", "report.html"]) == 2
    assert "needs --public-key FILE" in capsys.readouterr().err
    assert main(["verify", str(folder / "policy.yaml")]) == 2
    assert "--original and --released: missing" in capsys.readouterr().err
