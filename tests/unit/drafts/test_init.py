"""`shoal init`: what the draft of a sample says, that it runs as it is, and that it holds no rare value."""

from __future__ import annotations

import gzip
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.drafts import Draft, read_sample, write_draft
from shoal.files import run_sample
from shoal.policy import DECIDE, Policy
from support.commands import Ended, run_command

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parents[2] / "data"
ILLNESSES, LEVELS = ("I10", "E11", "J45", "F32"), ("niedrig", "mittel", "hoch")


def german(path: Path) -> Path:
    """A table of a hospital: semicolons, decimal commas, cp1252, German dates, `NA`."""
    lines = ["Patientennr;Name;Geburtsdatum;PLZ;Größe;Diagnose;Zufriedenheit;Aufnahme"]
    for i in range(600):
        height = "NA" if i % 30 == 0 else f"{150 + i * 7 % 50},{i % 10}"
        born, seen = (
            f"{i % 28 + 1:02}.{i % 12 + 1:02}.{1930 + i % 80}",
            f"{2023 + i % 3}-{i % 12 + 1:02}-{i % 28 + 1:02}",
        )
        level = "hoch" if i == 77 else LEVELS[i % 2]
        lines.append(f"P{i};Müller {i};{born};{('01067', '20095')[i % 2]};{height};{ILLNESSES[i % 4]};{level};{seen}")
    path.write_bytes("\n".join(lines).encode("cp1252"))
    return path


def nested(path: Path) -> Path:
    """Messages of visits, with an object, a list, and a field that some lack."""
    with path.open("w", encoding="utf-8") as file:
        for i in range(400):
            person: dict[str, Any] = {
                "id": f"u{i % 200}",
                "birthDate": f"{1940 + i % 60}-0{i % 9 + 1}-11",
                "sex": "fm"[i % 2],
            }
            record: dict[str, Any] = {"patient": person, "wage": 1000 + i % 20, "tags": [i], "is_new": i % 3 == 0}
            record |= {"note": "called"} if i % 2 else {}
            file.write(json.dumps(record | {"at": 1_700_000_000_000 + i * 60_000, "bmi": 20 + i % 90 / 10}) + "\n")
    return path


def parquet(path: Path) -> Path:
    columns = {
        "client_id": range(300),
        "age": [20 + i % 60 for i in range(300)],
        "income": [i % 30 + 0.5 for i in range(300)],
    }
    pq.write_table(pa.table(columns | {"blob": [b"x"] * 300, "city": ["A", "B", "C"] * 100}), path)
    return path


def drafted(sample: Path, subject: str) -> dict[str, Any]:
    """Return the document of the draft, which must be a policy that releases at least 95 % of the sample."""
    path = sample.with_name("policy.yaml")
    path.write_text(write_draft(Draft.of(read_sample(str(sample), None), subject)), encoding="utf-8")
    policy = Policy.load(path)
    report = run_sample(policy, str(sample), None, 10_000)
    assert report.released >= 0.95 * report.records_in > 0
    return policy.resolved()


def said(document: dict[str, Any], *keys: str) -> dict[str, list[Any]]:
    return {name: [one.get(key) for key in keys] for name, one in document["attributes"].items()}


def test_a_german_table_of_a_hospital(tmp_path: Path) -> None:
    document = drafted(german(tmp_path / "a.csv"), "Patientennr")
    found = said(document, "role", "scale")
    assert found == {
        "Patientennr": ["identifier", None],
        "Name": ["identifier", None],
        "Geburtsdatum": found["Geburtsdatum"],  # below
        "PLZ": ["quasi_identifier", "nominal"],
        "Größe": ["quasi_identifier", "numeric"],
        "Diagnose": ["confidential", None],
        "Zufriedenheit": ["quasi_identifier", "ordinal"],
        "Aufnahme": ["quasi_identifier", "time"],
    }
    of_height = document["attributes"]["Größe"]
    assert (of_height["bounds"], of_height["missing"]) == ([148, 200], "group")
    assert document["attributes"]["Zufriedenheit"]["order"] == ["niedrig", "mittel"]
    assert (document["missing_values"], document["privacy"]["k"]) == (["", "NA"], 10)
    dialect = document["csv"]
    assert (dialect["delimiter"], dialect["decimal"], dialect["encoding"]) == (";", ",", "cp1252")
    born = found["Geburtsdatum"]
    assert born in (["identifier", None], ["quasi_identifier", "time"])  # by what the reader of dates can do


def test_nested_messages(tmp_path: Path) -> None:
    document = drafted(nested(tmp_path / "a.jsonl"), "patient.id")
    assert said(document, "role", "scale", "resolution", "type") == {
        "patient.id": ["identifier", None, None, "any"],
        "patient.birthDate": ["quasi_identifier", "time", "year", None],
        "patient.sex": ["quasi_identifier", "nominal", None, None],
        "wage": ["confidential", None, None, "integer"],
        "tags": ["identifier", None, None, "any"],
        "is_new": ["quasi_identifier", "nominal", None, None],
        "at": ["quasi_identifier", "time", "day", None],
        "bmi": ["quasi_identifier", "numeric", "0.05", None],
    }
    assert document["undeclared"] == "drop"  # `note`, which some records lack
    assert document["attributes"]["patient.sex"]["from"] == "value.patient.sex"


def test_fields_of_an_object_that_is_sometimes_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [
        {"id": f"u{i}", "stay": {"days": i % 9} if i % 4 else {}, "other": {}, "tag": {"a": i % 5} if i % 2 else "x"}
        for i in range(400)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    document = drafted(path, "id")
    assert said(document, "role", "scale", "missing", "type") == {
        "id": ["identifier", None, None, "any"],
        "stay.days": ["quasi_identifier", "numeric", "group", None],
        "other": ["identifier", None, None, "any"],
        "tag": ["identifier", None, None, "any"],
    }


def test_a_parquet_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    policy = tmp_path / "policy.yaml"
    policy.write_text(write_draft(Draft.of(read_sample(str(path), None), "client_id")), encoding="utf-8")
    assert said(Policy.load(policy).resolved(), "role") == {
        "client_id": ["identifier"],
        "age": ["quasi_identifier"],
        "income": ["confidential"],
        "blob": ["identifier"],
        "city": ["quasi_identifier"],
    }
    done = run_command("batch", str(policy), "-i", str(path), "-o", str(tmp_path / "out.parquet"))
    assert (done.returncode, pq.read_table(tmp_path / "out.parquet").num_rows) == (0, 300)


def test_adult_without_an_edit(tmp_path: Path) -> None:
    with gzip.open(DATA / "adult.csv.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "a.csv").write_text("".join(islice(file, 1_001)), encoding="utf-8")
    document = drafted(tmp_path / "a.csv", "every_record")
    sensitive = [name for name, one in document["attributes"].items() if one["role"] == "confidential"]
    assert sensitive == ["capital-gain", "capital-loss", "salary-class"]
    assert document["missing_values"] == ["", "?"]


def test_no_bound_and_no_word_of_a_draft_is_a_value_of_fewer_than_k_people(tmp_path: Path) -> None:
    lines = ["person,grade,fee,level,town"]
    lines += [f"{i},{i % 40},{i % 25 * 1.5},{['low', 'high'][i % 2]},Town{i % 6}" for i in range(2000)]
    # One person has all extremes and the rare words, in many rows.
    lines += ["777,-10,-5,medium,Atlantis", "777,1234567,40,medium,Atlantis", "777,0,0,medium,NA"] * 4
    lines += [f"777,{n},0,low,Atlantis" for n in range(1234500, 1234520)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    text = write_draft(Draft.of(read_sample(str(path), None), "person"))
    assert re.findall(r"bounds: \[(.*?)\]", text) == ["0, 40", "-2, 36"]
    assert "order: [low, high]" in text
    draft = Draft.of(read_sample(str(path), None), "person").with_settings(2_001, 4_000)
    fee = next(one for one in draft.guesses if one.field.name == "fee")
    assert (fee.keys["bounds"], fee.decide[:43]) == ([0.0, 1.0], "fewer than 2001 people have a number, and n")
    assert "order lacks words that fewer than 10 people have, and 12 rows with them are refused" in text
    assert not re.search(r"medium|Atlantis|Town|777", text)


def test_a_code_of_two_letters_that_reads_na_is_no_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["pid,age,land", *(f"p{i},{20 + i % 50},{('NA', 'DE', 'ZA', 'BW')[i % 4]}" for i in range(60))]
    path.write_text("\n".join(lines), encoding="utf-8")
    text = write_draft(Draft.of(read_sample(str(path), None), "pid"))
    assert "missing_values: [" not in text
    assert f"{DECIDE}missing_values: NA is a value, and may be a code of two letters" in text
    assert "missing" not in drafted(path, "pid")["attributes"]["land"]


def test_a_date_stays_one_if_a_category_has_the_same_text_for_not_known(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["pid;seen;cost;illness;pain"]
    for i in range(200):
        seen, cost = f"{i % 28 + 1:02}.{i % 12 + 1:02}.2025", "none" if i % 20 == 1 else f"{i}"
        unknown, pain = "unbekannt" if i % 20 == 0 else "", ("none", "mild")[i % 2]
        lines.append(f"p{i};{unknown or seen};{cost};{unknown or ILLNESSES[i % 4]};{pain}")
    path.write_text("\n".join(lines), encoding="utf-8")
    document = drafted(path, "pid")
    seen = document["attributes"]["seen"]
    assert (seen["scale"], seen["format"], seen["missing"]) == ("time", ["%d.%m.%Y"], "group")
    assert document["missing_values"] == ["", "unbekannt"]  # none is a value where no pain is meant


def test_names_that_meet_or_are_not_printable_make_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"a.b": i % 9, "a": {"b": i, "c": i % 7}, "x\U0001d173\u2028": i % 5} for i in range(60)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    assert list(drafted(path, "every_record")["attributes"]) == ["a.b", "a.c", "x\U0001d173\u2028"]
    text = write_draft(Draft.of(read_sample(str(path), None), "every_record"))
    assert "# 1 of the fields in objects are dropped: another field has the name of their path" in text


def test_a_compressed_file_and_the_first_of_a_folder_are_read(tmp_path: Path) -> None:
    plain = german(tmp_path / "a.csv").read_bytes()
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "parts").mkdir()
    for name in ("1.csv", "2.csv"):
        (tmp_path / "parts" / name).write_bytes(plain)
    columns = read_sample(str(tmp_path / "a.csv"), None).columns
    for name, is_cut in (("b.csv.gz", False), ("parts", True), ("parts/*.csv", True)):
        sample = read_sample(str(tmp_path / name), None)
        assert (sample.rows, sample.is_cut, sample.columns == columns) == (600, is_cut, True)


@pytest.mark.parametrize("person", ["who", "patient"])
def test_no_order_is_written_until_the_person_is_known(tmp_path: Path, person: str) -> None:
    lines = [f"{person},age,grade", *(f"w{i % 60},{20 + i % 50},{('mild', 'moderate')[i % 2]}" for i in range(600))]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([*lines, *["w7,30,severe"] * 12]), encoding="utf-8")
    text = write_draft(Draft.of(read_sample(str(path), None)))
    assert ("order: [" in text, "severe" in text) == (False, False)
    assert f"{DECIDE}grade: the words have an order: say who the person is" in text
    assert "severe" not in write_draft(Draft.of(read_sample(str(path), None), person))


def init(path: Path, *more: str, stdin: bytes = b"") -> Ended:
    return run_command("init", str(path), *more, stdin=stdin)


def test_without_a_subject_check_asks_who_the_person_is_and_repeats_what_is_open(tmp_path: Path) -> None:
    path, policy = german(tmp_path / "a.csv"), tmp_path / "policy.yaml"
    assert init(path, "-o", str(policy)).returncode == 0
    text = policy.read_text(encoding="utf-8")
    assert f"{DECIDE}say who the person is" in text
    assert "#   --subject Patientennr (600 different in 600 rows)" in text
    done = run_command("check", str(policy))
    assert (done.returncode, b"no subject: say who the person is" in done.stderr) == (2, True)
    policy.write_text(text.replace("# subject: every_record", "subject: every_record"), encoding="utf-8")
    done = run_command("check", str(policy))
    assert (done.returncode, b"decide, and remove the mark: Diagnose: may each value" in done.stderr) == (0, True)
    before = policy.read_bytes()
    done = init(path, "-o", str(policy))
    assert (done.returncode, policy.read_bytes()) == (2, before)
    assert f"{policy}: exists, and may hold decisions; give a new file, or remove it".encode() in done.stderr
    done = init(path, "--subject", "Patientenr")
    assert (done.returncode, b"did you mean Patientennr" in done.stderr) == (2, True)


def test_answers_line_by_line(tmp_path: Path) -> None:
    path, policy = german(tmp_path / "a.csv"), tmp_path / "policy.yaml"
    answers = b"nobody\n1\nd\n\n1\n7\n50\n"  # the person, Diagnose, Zufriedenheit, a wrong k and k, delta
    assert init(path, "--interactive", "-o", str(policy), stdin=answers).returncode == 0
    resolved = Policy.load(policy).resolved()
    assert resolved["attributes"]["Patientennr"]["subject"] is True
    assert resolved["attributes"]["Diagnose"]["role"] == "identifier"
    assert (resolved["privacy"]["k"], resolved["stream"]["delta"]) == (7, 50)
    assert f"{DECIDE}privacy: k does not hide" not in policy.read_text(encoding="utf-8"), "no field is confidential"
    protected = init(path, "--interactive", stdin=b"1\n\n\nnone\n3\n").stdout.decode()  # Diagnose stays confidential
    assert ("privacy: {k: 10, l: 3}" in protected, f"{DECIDE}privacy" in protected) == (True, False)
    confirmed = init(path, "--interactive", stdin=b"every_record\n\n").stdout.decode()
    silent = init(path, "--interactive").stdout.decode()
    assert [f"{DECIDE}Diagnose" in text for text in (confirmed, silent)] == [False, True]
    assert ["\nsubject: every_record" in text for text in (confirmed, silent)] == [True, False]


def test_what_no_policy_can_declare_or_publish_is_dropped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"a": {"b.c": 1, "d": i % 5, "7": 2}, "memo": "x" * (1 + i % 2 * 900)} for i in range(60)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    document = drafted(path, "every_record")
    assert said(document, "role") == {"a.d": ["quasi_identifier"], "memo": ["identifier"]}
    assert document["undeclared"] == "drop"
    text = init(path).stdout.decode()
    assert "# 2 fields are dropped: no path leads to names with dots or of digits in objects" in text
    path.write_text("".join(json.dumps({"name": str(i)}) + "\n" for i in range(60)), encoding="utf-8")
    assert f"{DECIDE}no field is left to make alike" in init(path).stdout.decode()


def test_whole_numbers_beyond_every_float_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"key": 10**400 + i, "age": 20 + i % 40}) + "\n" for i in range(60)))
    assert said(drafted(path, "every_record"), "role") == {"key": ["identifier"], "age": ["quasi_identifier"]}


def test_a_key_that_few_people_have_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records: list[dict[str, Any]] = [
        {"pid": i % 60, "age": 20 + i % 50, "scores": {f"Anna{i % 60} Huber": {"x": 1}}} for i in range(720)
    ]
    records = [record | ({"Eve Muster": 1} if record["pid"] == 7 else {}) for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    for subject, k in (("pid", 5), ("", 10)):
        text = write_draft(Draft.of(read_sample(str(path), None), subject))
        assert not re.search(r"Huber|Muster", text)
        assert f"# 1 field is dropped and not named here: fewer than {k} people have it" in text
        assert f"{DECIDE}scores: to publish it whole" in text
    assert said(drafted(path, "pid"), "role") == {
        "pid": ["identifier"],
        "age": ["quasi_identifier"],
        "scores": ["identifier"],
    }
    done = init(path, "--subject", "nobody")
    assert (done.returncode, re.search(rb"Huber|Muster", done.stderr)) == (2, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty; give at least a header"),
        (b"a,b\n", "has no rows; give a sample with records"),
        (
            b"1,2\n3,4\n",
            "line 1: looks like a record, as column 1 has a number, a date, an e-mail address or a value of",
        ),
        (b"Ann Muster,1950-01-11,A\nBob Beispiel,1960-02-12,B\n", "line 1: looks like a record, as column 2 has"),
        (b"Ann Muster,ann@a.org\nBob Beispiel,bob@a.org\n", "line 1: looks like a record, as column 2 has"),
        (b"Ann Muster,F\nBob Beispiel,M\nEve Exempel,F\n", "line 1: looks like a record, as column 2 has"),
        (b"a,b\n1,2,3\n2,4,5\n", "no line has as many cells as the header, 2; give each column a name"),
        (b"a,b,\n1,2,\n", "line 1: the header ends with a delimiter; remove it from all lines"),
        (b"a,,c\n1,2,3\n", "line 1: column 2 has no name; add one"),
        (b"a,b,a\n1,2,3\n", "line 1: columns 1 and 3 have one name; rename one of them"),
        (b"sep=;\na;b\n1;2\n", "the header is in line 2, and must be in line 1; remove the lines before it"),
        (b"Report\nof May\na,b\n1,2\n3,4\n", "the header is in line 3, and must be in line 1"),
        (b'a,b\n1,"' + b"x" * 140_000, "a cell of more than 131,072 characters, as one is that is never closed"),
        (b"\x1f\x8b\x08", "no text: the file is compressed or binary"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    done = init(tmp_path / "a.csv")
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"a.csv{', ' if message.startswith('line') else ': '}{message}" in done.stderr.decode()


def test_written_numbers_of_a_german_table_and_of_messages_get_their_keys(tmp_path: Path) -> None:
    rows = [(f"p{i}", f"{1 + i % 9}.{i * 7 % 1000:03},{i % 100:02} €", f"{i % 100},5 %") for i in range(300)]
    table, messages = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text("\n".join(["id;cost;rate", *(";".join(row) for row in rows)]), encoding="utf-8")
    messages.write_text("\n".join(json.dumps(dict(zip(("id", "cost", "rate"), row, strict=True))) for row in rows))
    for path in (table, messages):
        document = drafted(path, "id")
        assert said(document, "thousands", "symbol") == {"id": [None] * 2, "cost": [".", "€"], "rate": [None, "%"]}
        assert document["csv"]["decimal"] == ","


def changes(count: int) -> list[dict[str, Any]]:
    rows = [
        {"id": f"u{i % 150}", "age": 20 + i % 50, "seen_at": (1_700_000_000 + 60 * i) * 10**9} for i in range(count)
    ]
    return [{"op": "c", "before": None, "after": row, "ts_ms": 1} for row in rows]


@pytest.mark.parametrize(("unwrap", "is_export"), [("debezium", True), ("debezium", False), ("", True)])
def test_exported_messages_and_envelopes_are_opened(tmp_path: Path, *, unwrap: str, is_export: bool) -> None:
    records = [one if unwrap else one["after"] for one in changes(300)]
    if unwrap:
        records += [{"op": "d", "before": {"id": "u1"}, "after": None, "ts_ms": 1}, {"ts_ms": 1}]
    if is_export:
        names = ("topic", "partition", "offset", "key", "value")
        records = [
            dict(zip(names, ("t", 0, i, f"k{i % 150}", json.dumps(one) if i % 2 else one), strict=True))
            for i, one in enumerate(records)
        ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    document = drafted(tmp_path / "a.jsonl", "key" if is_export else "id")
    assert document.get("unwrap", "") == unwrap
    found = said(document, "role", "scale", "unit")
    assert (found["age"], found["seen_at"]) == (
        ["quasi_identifier", "numeric", None],
        ["quasi_identifier", "time", "ns"],
    )
    assert found.keys() == {"id", "age", "seen_at"} | ({"key"} if is_export else set())
    if is_export:
        assert document["attributes"]["key"]["from"] == "key"


def test_exported_messages_without_keys_are_drafted_and_a_file_of_them_is_named(tmp_path: Path) -> None:
    lines = [{"partition": 0, "offset": i, "key": None, "value": one["after"]} for i, one in enumerate(changes(300))]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    sample = read_sample(str(tmp_path / "a.jsonl"), None)
    assert "jq -c '.value|fromjson?//.'" in sample.notes[0]
    (tmp_path / "policy.yaml").write_text(write_draft(Draft.of(sample, "id")))
    checked = run_command("check", "policy.yaml", "-i", "a.jsonl", folder=tmp_path)
    assert "a line of an exported topic, which holds the record in its field value" in checked.stdout.decode()


def test_a_count_of_fewer_than_k_rows_is_not_written(tmp_path: Path) -> None:
    lines = ["person,score,seen,faith,grade"]
    for i in range(500):
        score = {9: "secret", 11: ""}.get(i, str(i % 90))
        seen = "N/A" if i == 13 else f"2024-0{1 + i % 8}-1{i % 10}"
        faith, grade = "rare" if i == 14 else f"F{i % 3}", "very high" if i == 15 else ("low", "medium", "high")[i % 3]
        lines.append(f"P{i},{score},{seen},{faith},{grade}")
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    text = write_draft(Draft.of(read_sample(str(path), None), "person"))
    assert "fewer than 10 rows have no number and are refused; fewer than 10 rows lack it" in text
    assert "to the day; no bounds, so that later times are not clipped; fewer than 10 rows lack it" in text
    assert "order lacks words that fewer than 10 people have, and fewer than 10 rows with them are refused" in text
    assert not re.search(r"\b1 rows?\b", text)


def test_records_in_a_list_of_one_object_are_asked_for_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"exported": "2025-03-05", "events": [{"id": 1}, {"id": 2}]}')
    ended = init(path)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert (
        "a.json: one record, which holds a list of others (events): if these are the records, " in ended.stderr.decode()
    )


@pytest.mark.parametrize("answer", [b"d", b""])
def test_a_list_that_is_confirmed_as_dropped_is_decided(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(f'{{"person": "p{i}", "age": {20 + i % 40}, "basket": [{i}]}}' for i in range(60)))
    ended = init(path, "--interactive", stdin=b"person\n" + answer + b"\n\n\n")
    assert (ended.returncode, b"DECIDE: basket" in ended.stdout) == (0, False)
    assert b"  # basket: not published, as you said\n  basket: {role: identifier}" in ended.stdout
