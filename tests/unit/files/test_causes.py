"""Each usual kind of input that holds no records: the message names the cause, and its remedy leads to a release."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import struct
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.errors import InputError
from shoal.files import files as files_module
from shoal.files import run_sample
from shoal.formats import values as values_module
from shoal.policy import Policy
from support.commands import Ended, run_command

pytestmark = pytest.mark.unit

ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "ward": {"role": "quasi_identifier", "scale": "nominal"},
    "ill": {"role": "confidential", "type": "string"},
}
POLICY: dict[str, Any] = {"attributes": ATTRIBUTES, "privacy": {"k": 3}, "stream": {"delta": 6}}
PEOPLE = [{"who": f"p{i}", "ward": "ns"[i // 3 % 2], "ill": f"xq7canary{i}"} for i in range(12)]
LINES = ["who,ward,ill", *(",".join(one.values()) for one in PEOPLE)]
RECORDS = [json.dumps(one) for one in PEOPLE]
OUT = "12 in, 12 out, 0 suppressed, 0 refused"


def write(folder: Path, text: str | bytes, name: str = "in.csv", **more: Any) -> None:
    (folder / "policy.yaml").write_text(json.dumps(POLICY | more))
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def pipe(folder: Path, name: str = "in.csv", *words: str) -> Ended:
    (folder / "out.jsonl").unlink(missing_ok=True)
    out = ["-o", "out.jsonl"] if "jsonl" in name else ["-o", "out.csv"]
    return run_command("pipe", "policy.yaml", "-i", name, *out, *words, folder=folder)


def refused(ended: Ended) -> str:
    """What a command says, of which no value of a record is a part."""
    text = ended.stderr.decode()
    assert ended.returncode != 0, text
    assert "canary" not in text
    return text


def follow(command: str, folder: Path) -> None:
    """Run the command of a remedy."""
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, check=True)


def csv_of(*lines: str, end: str = "\n") -> str:
    return "".join(line + end for line in lines)


HEADER_CAUSES = {
    "preamble": (csv_of("Report of ward", "", "made by x,y", *LINES), "the header is on line 4"),
    "one line before": (csv_of("Report", *LINES), "the header is on line 2"),
    "blank line": (csv_of("", *LINES), "the header is on line 2"),
    "sep line": (csv_of("sep=,", *LINES), "a line sep= for Excel stands before the header"),
    "quoted sep line": ("\ufeff" + csv_of('"sep=,"', *LINES, end="\r\n"), "a line sep= for Excel"),
    "no header": (csv_of(*LINES[1:]), "no declared column is named here"),
    "comma at the end": (csv_of(LINES[0] + ",", *LINES[1:]), "has one cell more than the lines below"),
    "comma and carriage return": (csv_of(LINES[0] + ",", *LINES[1:], end="\r\n"), "one cell more than the lines below"),
    "commas below": (csv_of(LINES[0], *(line + "," for line in LINES[1:])), "the lines below end with a delimiter"),
}


@pytest.mark.parametrize(("text", "cause"), HEADER_CAUSES.values(), ids=HEADER_CAUSES)
def test_a_command_mends_what_is_not_the_header(tmp_path: Path, text: str, cause: str) -> None:
    write(tmp_path, text)
    message = refused(pipe(tmp_path))
    assert f"in.csv, line 1: {cause}" in message or cause in message
    command = re.search(r"((?:tail|sed) .* FILE > NEW)", message)
    assert command is not None, message
    follow(command[1].replace("FILE", "in.csv").replace("NEW", "new.csv"), tmp_path)
    assert OUT in pipe(tmp_path, "new.csv").stderr.decode()


@pytest.mark.parametrize(
    ("text", "cause", "more"),
    [
        (csv_of(*LINES).replace(",", ";"), "set csv.delimiter: ';'", {"csv": {"delimiter": ";"}}),
        (csv_of(*LINES).replace(",", "\t"), "set csv.delimiter: tab", {"csv": {"delimiter": "tab"}}),
        (csv_of(*(line + ",x" for line in LINES)), "set undeclared: drop", {"undeclared": "drop"}),
        (
            csv_of(*(line + f",{number // 13}" for number, line in enumerate(LINES))).replace("ill,0", "ill,__deleted"),
            'set skip: {__deleted: ["true"]}',
            {"skip": {"__deleted": [True]}},
        ),
    ],
)
def test_a_key_mends_columns_that_are_not_those_of_the_policy(
    tmp_path: Path, text: str, cause: str, more: dict[str, Any]
) -> None:
    write(tmp_path, text)
    assert cause in refused(pipe(tmp_path))
    write(tmp_path, text, **more)
    assert OUT in pipe(tmp_path).stderr.decode()


def test_row_names_of_r_are_named(tmp_path: Path) -> None:
    write(tmp_path, csv_of(LINES[0], *(f"{number},{line}" for number, line in enumerate(LINES[1:]))), undeclared="drop")
    message = refused(pipe(tmp_path))
    assert "one cell more than the header, as files of R with row names" in message
    command = re.search(r"(sed .* FILE > NEW)", message)
    assert command is not None
    follow(command[1].replace("FILE", "in.csv").replace("NEW", "new.csv"), tmp_path)
    assert OUT in pipe(tmp_path, "new.csv").stderr.decode()


LAYOUTS = {
    "array on one line": json.dumps(PEOPLE),
    "array on several lines": "\ufeff\n" + json.dumps(PEOPLE, indent=2).replace("\n", "\r\n"),
    "array of lines": "[\n" + ",\n".join(RECORDS) + "\n]\n",
    "array that begins with a record": "[" + ",\n".join(RECORDS) + "]\n",
    "objects on several lines": "\n".join(json.dumps(one, indent=2) for one in PEOPLE),
    "objects on several lines, one after the other": "".join(json.dumps(one, indent=2) for one in PEOPLE),
}


@pytest.mark.parametrize("command", ["pipe", "batch"])
@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_json_in_another_layout_is_read_and_judged(tmp_path: Path, text: str, command: str) -> None:
    write(tmp_path, text, "in.json")
    beside = ["-o", "out.jsonl", "--evidence", "e.jsonl", "--summary", "s.json"]
    assert OUT in run_command(command, "policy.yaml", "-i", "in.json", *beside, folder=tmp_path).stderr.decode()
    policy, paths = Policy.load(tmp_path / "policy.yaml"), ["in.json", "out.jsonl", "e.jsonl", "s.json"]
    verdict = verify(policy, *(tmp_path / path for path in paths), table=command == "batch" or None)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["records"] == 12


@pytest.mark.parametrize("text", ["[1, {}", "[{}, ]", "{\n", "[{]", '[{"a": "x\ny"}]', "[\xff]", "[01]", "[" * 10_000])
def test_json_in_another_layout_that_is_broken_is_refused_as_a_whole(tmp_path: Path, text: str) -> None:
    write(tmp_path, text.encode("latin-1"), "in.json")
    assert "not JSON (RFC 8259) in UTF-8, in an array or in objects on several lines" in refused(
        pipe(tmp_path, "in.json")
    )


def test_json_in_another_layout_is_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_module, "MAX_VALUES_BYTES", 500)
    write(tmp_path, json.dumps(PEOPLE), "in.json")
    with pytest.raises(InputError, match=re.escape("jq -c '.[]' FILE > NEW.jsonl")):
        run_sample(Policy.load(tmp_path / "policy.yaml"), str(tmp_path / "in.json"), None, 100)


def test_lines_after_an_array_are_lines(tmp_path: Path) -> None:
    write(tmp_path, "\n".join(["[1]", *RECORDS]), "in.json")
    ended = run_command("pipe", "policy.yaml", "-i", "in.json", "-o", "out.jsonl", folder=tmp_path)
    assert "13 in, 12 out, 0 suppressed, 1 refused (1 of 13 invalid: a JSON array" in ended.stderr.decode()
    policy = Policy.load(tmp_path / "policy.yaml")
    assert verify(policy, tmp_path / "in.json", tmp_path / "out.jsonl").counts["records"] == 13


@pytest.mark.parametrize(
    ("line", "cause", "remedy"),
    [
        (RECORDS[0].replace('"n"', "NaN"), "NaN or Infinity, which JSON does not have", "write null in their place"),
        (RECORDS[0].replace('"n"', "-Infinity"), "NaN or Infinity", "write null in their place"),
        (json.dumps(RECORDS[0]), "a text that holds JSON: the record was encoded twice", "jq -c fromjson FILE"),
        (str(PEOPLE[0]), "a dict as Python prints it, not JSON", "json.dumps"),
        (b"\0" + struct.pack(">I", 7) + RECORDS[0].encode(), "five bytes of a schema registry", "JsonConverter"),
        (gzip.compress(RECORDS[0].encode(), mtime=0), "compressed bytes", "uncompress a file"),
        (RECORDS[0].encode("utf-16"), "UTF-16 or binary, not UTF-8", "iconv -f utf-16 -t utf-8"),
        (RECORDS[0].encode().replace(b"canary", b"\xe9"), "not UTF-8", "write the records in UTF-8"),
        ("7", "not a JSON object", "write each record as one JSON object"),
        ("who,ward,ill", "not JSON", "name it by the suffix or --format"),
    ],
)
def test_what_is_in_place_of_a_json_object_is_named(tmp_path: Path, line: str | bytes, cause: str, remedy: str) -> None:
    write(tmp_path, (line if isinstance(line, bytes) else line.encode()).replace(b"\n", b" "), "in.jsonl")
    message = refused(pipe(tmp_path, "in.jsonl"))
    assert cause in message
    assert remedy in message


def test_an_undeclared_field_is_named_if_k_records_have_it(tmp_path: Path) -> None:
    lines = [json.dumps(one | {"ward.no": 1, "b" * 50: 2}) for one in PEOPLE]
    lines[:2] = [line.replace("ward.no", "Eve canary") for line in lines[:2]]
    lines[2] = lines[2].replace('"ward.no"', '"Ann canary": 1, "ward.no"')
    write(tmp_path, "\n".join(lines), "in.jsonl")
    named = f"12 of 12 invalid: a field that the policy does not declare ('{'b' * 40}...', 'ward.no')"
    message = refused(pipe(tmp_path, "in.jsonl"))
    assert named in message
    assert "declare it, or set undeclared: drop" in message
    assert "ward.no" in refused(pipe(tmp_path, "in.jsonl", "--log", "json"))
    checked = run_command("check", "policy.yaml", "-i", "in.jsonl", folder=tmp_path).stdout.decode()
    assert "canary" not in checked
    assert f"{named}; declare it, or set undeclared: drop" in checked
    table = run_command("batch", "policy.yaml", "-i", "in.jsonl", "-o", "out.jsonl", folder=tmp_path)
    assert named in refused(table)
    write(tmp_path, "\n".join(lines), "in.jsonl", undeclared="drop")
    assert OUT in pipe(tmp_path, "in.jsonl").stderr.decode()


def test_a_sample_of_a_table_without_a_usable_record_tells_why(tmp_path: Path) -> None:
    write(tmp_path, json.dumps([PEOPLE]), "in.jsonl")
    policy = {name: part for name, part in POLICY.items() if name != "stream"}
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    message = refused(run_command("check", "policy.yaml", "-i", "in.jsonl", folder=tmp_path))
    assert "1 of 1 invalid: a JSON array, or a part of one; write each object as a record of its own" in message


def test_a_field_with_dots_in_its_name_is_no_path(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"who": one["who"], "a.b": one["ward"], "ill": one["ill"]}) for one in PEOPLE)
    ward = ATTRIBUTES["ward"]
    write(tmp_path, lines, "in.jsonl", attributes=ATTRIBUTES | {"ward": ward | {"from": "a.b"}})
    message = refused(pipe(tmp_path, "in.jsonl"))
    assert "12 of 12 invalid: ward: missing; the records have its path as one name with dots" in message
    assert "name the attribute as the field, with its dots, and remove 'from'" in message
    mended = {"who": ATTRIBUTES["who"], "a.b": ward, "ill": ATTRIBUTES["ill"]}
    write(tmp_path, lines, "in.jsonl", attributes=mended)
    assert OUT in pipe(tmp_path, "in.jsonl").stderr.decode()


DELETED = [json.dumps(one | {"__deleted": "true" if number < 3 else "false"}) for number, one in enumerate(PEOPLE * 2)]


@pytest.mark.parametrize(
    ("command", "form"),
    [("pipe", "jsonl"), ("batch", "jsonl"), ("pipe", "csv"), ("batch", "csv"), ("batch", "parquet")],
)
def test_skipped_records_are_dropped_and_counted_and_the_judge_agrees(tmp_path: Path, command: str, form: str) -> None:
    people = [one | {"test": "no" if number < 12 else [1, "yes"][number % 2]} for number, one in enumerate(PEOPLE * 2)]
    rows = [json.dumps(one) for one in people]
    if form == "csv":
        rows = ["who,ward,ill,test", *(",".join(map(str, one.values())) for one in people)]
    write(tmp_path, "\n".join(rows) + "\n", f"in.{form}", skip={"test": [1, "yes"]})
    if form == "parquet":
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        table = arrow.Table.from_pylist([one | {"test": str(one["test"])} for one in people])
        parquet.write_table(table, tmp_path / "in.parquet")
    names = ["out.csv", "e.jsonl", "s.json", "q.jsonl"]
    beside = ["--evidence", "e.jsonl", "--summary", "s.json", "--quarantine", "q.jsonl"]
    ended = run_command(command, "policy.yaml", "-i", f"in.{form}", "-o", names[0], *beside, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert OUT in ended.stderr.decode()
    assert json.loads((tmp_path / "s.json").read_text())["dropped"]["skip"] == 12
    assert (tmp_path / "q.jsonl").read_text() == ""
    policy = Policy.load(tmp_path / "policy.yaml")
    source, out, evidence, summary = (tmp_path / name for name in [f"in.{form}", *names[:3]])
    verdict = verify(policy, source, out, evidence, summary, table=command == "batch" or None)
    assert verdict.exit_code == 0, verdict.text()
    assert (verdict.counts["records"], verdict.counts["dropped"]) == (12, 12)


def test_deleted_rows_are_left_out_by_skip_and_a_policy_that_ignores_the_field_is_warned(tmp_path: Path) -> None:
    write(tmp_path, "\n".join(DELETED), "in.jsonl")
    assert "24 of 24 invalid: a field __deleted, which the policy does not declare" in refused(
        pipe(tmp_path, "in.jsonl")
    )
    write(tmp_path, "\n".join(DELETED), "in.jsonl", undeclared="drop")
    warned = pipe(tmp_path, "in.jsonl").stderr.decode()
    assert "24 in, 24 out" in warned
    assert "deleted rows are published" in warned
    write(tmp_path, "\n".join(DELETED), "in.jsonl", skip={"__deleted": ["true"]})
    ended = pipe(tmp_path, "in.jsonl").stderr.decode()
    assert "21 in, 21 out" in ended
    assert "deleted rows are published" not in ended


def test_skip_has_texts_and_no_repeated_field_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, RECORDS[0], "in.jsonl", skip={"a": []})
    assert "skip.a: has no text" in run_command("check", "policy.yaml", folder=tmp_path).stderr.decode()
    twice = RECORDS[0].replace("{", '{"a": "x", "a": "y", ')
    write(tmp_path, twice + "\n" + "\n".join(RECORDS), "in.jsonl", skip={"a": ["y"]})
    assert "13 in, 12 out, 0 suppressed, 1 refused (1 of 13 invalid: a field occurs twice" in pipe(
        tmp_path, "in.jsonl"
    ).stderr.decode().replace("\n", " ")
    write(tmp_path, csv_of(*LINES), skip={"a": ["y"]})
    assert "column 'a' is missing" in refused(pipe(tmp_path))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: bytes(pytest.importorskip("pyarrow").compress(content, "zstd")),
}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read_and_judged(tmp_path: Path, suffix: str) -> None:
    for name, text in (("in.csv", csv_of(*LINES)), ("in.jsonl", "\n".join(RECORDS))):
        write(tmp_path, COMPRESS[suffix](text.encode()), name + suffix)
        ended = pipe(tmp_path, name + suffix, "--evidence", "e.jsonl")
        assert OUT in ended.stderr.decode()
        policy, out = Policy.load(tmp_path / "policy.yaml"), tmp_path / f"out.{name[3:]}"
        verdict = verify(policy, tmp_path / (name + suffix), out, tmp_path / "e.jsonl")
        assert verdict.exit_code == 0, verdict.text()
        whole = COMPRESS[suffix](text.encode())
        write(tmp_path, whole[: len(whole) // 2], name + suffix)
        assert f"not a whole {suffix} file" in refused(pipe(tmp_path, name + suffix))


def test_a_file_that_grows_too_much_when_uncompressed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_FREE_BYTES", 1 << 16)
    write(tmp_path, gzip.compress(csv_of(*LINES).encode() + b" " * (1 << 20)), "in.csv.gz")
    assert "in.csv.gz: more than 200 times as large when uncompressed" in refused(pipe(tmp_path, "in.csv.gz"))
    assert not (tmp_path / "out.csv").exists()


def test_files_that_are_not_read_or_written_are_refused_with_a_command(tmp_path: Path) -> None:
    write(tmp_path, "", "in.csv.zip")
    assert "use a pipe: unzip -p in.csv.zip | shoal ... --format csv" in refused(pipe(tmp_path, "in.csv.zip"))
    write(tmp_path, csv_of(*LINES))
    assert "compressed files are not written" in refused(
        run_command("pipe", "policy.yaml", "-i", "in.csv", "-o", "out.csv.gz", folder=tmp_path)
    )
    (tmp_path / "hive" / "day=1").mkdir(parents=True)
    (tmp_path / "hive" / "day=1" / "a.csv").write_text(csv_of(*LINES))
    assert "has folders in it; give the files as a pattern" in refused(pipe(tmp_path, "hive"))


PARTS = {
    "csv": (
        csv_of(LINES[0], *LINES[1:7]),
        csv_of("ill,who,ward", *(f"{o['ill']},{o['who']},{o['ward']}" for o in PEOPLE[6:])),
    ),
    "jsonl": ("\n".join(RECORDS[:6]), "\n".join(RECORDS[6:])),
}


@pytest.mark.parametrize(
    ("command", "form", "source"),
    [("pipe", "csv", "parts"), ("batch", "csv", "parts"), ("pipe", "jsonl", "parts"), ("batch", "parquet", "parts/*")],
)
def test_parts_are_read_as_one_input_by_the_bytes_of_their_paths(
    tmp_path: Path, command: str, form: str, source: str
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    names = [f"part-Z.{form}", f"part-a.{form}" if form != "csv" else "part-a.csv.gz"]
    for number, name in enumerate(names):
        if form == "parquet":
            parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
            parquet.write_table(arrow.Table.from_pylist(PEOPLE[6 * number : 6 + 6 * number]), parts / name)
        else:
            text = PARTS[form][number].encode()
            (parts / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    if source == "parts":
        for name in ("_SUCCESS", ".part.crc", "part-0.csv"):
            (parts / name).write_text("" if name == "part-0.csv" else "x")
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    beside = ["-o", "out.csv", "--evidence", "e.jsonl", "--summary", "s.json"]
    ended = run_command(command, "policy.yaml", "-i", source, *beside, folder=tmp_path)
    assert OUT in ended.stderr.decode(), ended.stderr
    clusters = [json.loads(line)["offsets"] for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert sorted(offset for offsets in clusters for offset in offsets) == list(range(12))
    ill = {line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]}
    assert ill == {one["ill"] for one in PEOPLE}
    paths = [tmp_path / name for name in (source, "out.csv", "e.jsonl", "s.json")]
    verdict = verify(Policy.load(tmp_path / "policy.yaml"), *paths, table=command == "batch" or None)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["records"] == 12


def test_parts_of_two_forms_are_refused(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text(PARTS["csv"][0])
    (parts / "b.jsonl").write_text(PARTS["jsonl"][1])
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    assert "have two formats" in refused(pipe(tmp_path, "parts"))
    (parts / "b.jsonl").rename(parts / "b.csv")
    assert "parts/b.csv, line 1: no declared column is named here" in refused(pipe(tmp_path, "parts"))


AGE: dict[str, Any] = {"role": "quasi_identifier"}
DAY = AGE | {"scale": "time"}
TIME = DAY | {"resolution": "year"}
NUMBER = AGE | {"bounds": [0, 3000]}


@pytest.mark.parametrize(
    ("attribute", "value", "cause", "mended", "new"),
    [
        (DAY, "1957", "a year, but the resolution is finer", TIME, "1957"),
        (DAY, "1957-03", "a month without a day, but the resolution is finer", TIME, "1957-03"),
        (TIME, "1720000000", "a number, perhaps of seconds since 1970", TIME | {"unit": "s"}, "1720000000"),
        (TIME, "1720000000000", "perhaps of milliseconds", TIME | {"unit": "ms"}, "1720000000000"),
        (TIME, "1720000000000000", "perhaps of microseconds", TIME | {"unit": "us"}, "1720000000000000"),
        (TIME, "1720000000000000000", "perhaps of nanoseconds", TIME | {"unit": "ns"}, "1720000000000000000"),
        (TIME | {"unit": "us"}, "1720000000000000000", "nanoseconds", TIME | {"unit": "ns"}, "1720000000000000000"),
        (TIME, "03/12/1987", "a date in another form than ISO 8601", TIME | {"format": "%d/%m/%Y"}, "03/12/1987"),
        (TIME | {"unit": "s"}, "2026-07-14", "a text of a time, not a number as unit says", TIME, "2026-07-14"),
    ],
)
def test_the_form_of_a_value_tells_the_remedy(
    tmp_path: Path, attribute: dict[str, Any], value: str, cause: str, mended: dict[str, Any], new: str
) -> None:
    write(tmp_path, csv_of("who,age,ill", *(f"p{i},{value},x" for i in range(12))), attributes=without_ward(attribute))
    assert "12 of 12 invalid: age: " in (message := refused(pipe(tmp_path)))
    assert cause in message
    write(tmp_path, csv_of("who,age,ill", *(f"p{i},{new},x" for i in range(12))), attributes=without_ward(mended))
    assert OUT in pipe(tmp_path).stderr.decode()


def without_ward(age: dict[str, Any]) -> dict[str, Any]:
    return {"who": ATTRIBUTES["who"], "age": age, "ill": ATTRIBUTES["ill"]}


@pytest.mark.parametrize(
    ("attribute", "published"),
    [
        (AGE | {"scale": "ordinal", "order": [1, 2, 3]}, "2"),
        (AGE | {"scale": "nominal", "taxonomy": {"a": [1, 2], "b": [3]}, "unknown": "quarantine"}, "2"),
        (AGE | {"scale": "nominal", "taxonomy": {"a": [1, 2], "b": [3]}}, "2"),
        (AGE | {"scale": "ordinal", "order": ["1", "2", "2.0"]}, "2.0"),
        (AGE | {"scale": "nominal"}, "2.0"),
    ],
)
def test_a_whole_number_with_a_point_is_the_declared_category(
    tmp_path: Path, attribute: dict[str, Any], published: str
) -> None:
    write(tmp_path, csv_of("who,age,ill", *(f"p{i},2.0,x" for i in range(12))), attributes=without_ward(attribute))
    ended = pipe(tmp_path, "in.csv", "--evidence", "e.jsonl")
    assert OUT in ended.stderr.decode()
    assert (tmp_path / "out.csv").read_text() == "age,ill\n" + f"{published},x\n" * 12
    policy = Policy.load(tmp_path / "policy.yaml")
    verdict = verify(policy, *(tmp_path / name for name in ("in.csv", "out.csv", "e.jsonl")))
    assert verdict.exit_code == 0, verdict.text()


@pytest.mark.parametrize("value", ["AfCH", {"scale": 2, "value": "AfCH"}])
def test_decimals_of_debezium_are_named(tmp_path: Path, value: object) -> None:
    def lines(age: object) -> str:
        return "\n".join(json.dumps({"op": "c", "after": {"who": f"p{i}", "age": age, "ill": "x"}}) for i in range(12))

    write(tmp_path, lines(value), "in.jsonl", attributes=without_ward(NUMBER), unwrap="debezium")
    message = refused(pipe(tmp_path, "in.jsonl"))
    assert "12 of 12 invalid: age: a decimal as bytes" in message
    assert "set decimal.handling.mode=double" in message
    write(tmp_path, lines(12.5), "in.jsonl", attributes=without_ward(NUMBER), unwrap="debezium")
    assert OUT in pipe(tmp_path, "in.jsonl").stderr.decode()


def test_the_placeholder_of_debezium_is_not_published_and_the_judge_agrees(tmp_path: Path) -> None:
    rows = [*PEOPLE, PEOPLE[0] | {"ill": "__debezium_unavailable_value"}]
    write(tmp_path, "\n".join(json.dumps({"op": "u", "after": one}) for one in rows), "in.jsonl", unwrap="debezium")
    ended = pipe(tmp_path, "in.jsonl", "--evidence", "e.jsonl", "--summary", "s.json")
    kind = "1 of 13 invalid: ill: Debezium's placeholder for a value that it did not read"
    assert f"13 in, 12 out, 0 suppressed, 1 refused ({kind})" in ended.stderr.decode()
    assert "REPLICA IDENTITY FULL" in ended.stderr.decode()
    assert "unavailable" not in (tmp_path / "out.jsonl").read_text()
    policy = Policy.load(tmp_path / "policy.yaml")
    verdict = verify(policy, *(tmp_path / name for name in ("in.jsonl", "out.jsonl", "e.jsonl", "s.json")))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["unusable"] == 1


def message_line(key: object, person: dict[str, Any]) -> str:
    return json.dumps({"key": key, "value": json.dumps({"ward": person["ward"], "ill": person["ill"]})})


def test_keys_that_are_numbers_are_refused_alike_and_named(tmp_path: Path) -> None:
    # Numbers of 8 bytes: those below 128 would be texts.
    keys = [struct.pack(">q", i * 20).decode("latin-1") for i in range(12)]
    attributes = ATTRIBUTES | {"who": ATTRIBUTES["who"] | {"from": "key"}}
    lines = "\n".join(message_line(key, one) for key, one in zip(keys, PEOPLE, strict=True))
    write(tmp_path, lines, "in.jsonl", attributes=attributes)
    message = refused(pipe(tmp_path, "in.jsonl"))
    assert "12 of 12 undecodable: who: a key that is no text" in message
    assert "StringSerializer" in message
    lines = "\n".join(message_line(one["who"] if number < 12 else None, one) for number, one in enumerate(PEOPLE * 2))
    write(tmp_path, lines.replace('"key": "p3"', '"key": "\\u0003"'), "in.jsonl", attributes=attributes)
    ended = pipe(tmp_path, "in.jsonl", "--evidence", "e.jsonl", "--summary", "s.json").stderr.decode()
    kinds = (
        "12 of 24 invalid: who: the message has no key",
        "1 of 24 undecodable: who: a key that is no text",
    )
    assert all(kind in ended for kind in kinds), ended
    policy = Policy.load(tmp_path / "policy.yaml")
    verdict = verify(policy, *(tmp_path / name for name in ("in.jsonl", "out.jsonl", "e.jsonl", "s.json")))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["unusable"] == 13


def test_one_cluster_names_its_cause(tmp_path: Path) -> None:
    people = [*PEOPLE[:6], *[PEOPLE[6]] * 20]
    write(tmp_path, "\n".join(map(json.dumps, people)), "in.jsonl")
    batch = ("batch", "policy.yaml", "-i", "in.jsonl", "-o", "out.jsonl")
    warned = run_command(*batch, folder=tmp_path).stderr.decode()
    assert "ONE CLUSTER" in warned
    assert "privacy.max_share; limit the records of a person, as with privacy.per_subject" in warned
    assert "privacy.t" not in warned
    quota = {"k": 3, "per_subject": {"max": 1, "window": 1000000}}
    write(tmp_path, "\n".join(map(json.dumps, people)), "in.jsonl", privacy=quota)
    assert "ONE CLUSTER" not in run_command(*batch, folder=tmp_path).stderr.decode()


@pytest.mark.parametrize("age", [NUMBER, AGE | {"scale": "nominal"}, {"role": "confidential", "type": "any"}])
def test_a_column_of_durations_is_refused_with_what_to_write(tmp_path: Path, age: dict[str, Any]) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    write(tmp_path, "", attributes=ATTRIBUTES | {"age": age})
    for name, value in (("in.parquet", timedelta(seconds=7)), ("new.parquet", 7)):
        parquet.write_table(arrow.Table.from_pylist([one | {"age": value} for one in PEOPLE]), tmp_path / name)
    batch = ("batch", "policy.yaml", "-o", "out.parquet", "-i")
    message = refused(run_command(*batch, "in.parquet", folder=tmp_path))
    assert "in.parquet, column 'age': durations are not supported; write a number" in message
    assert OUT in run_command(*batch, "new.parquet", folder=tmp_path).stderr.decode()


def test_events_of_debezium_without_a_row_are_refused_by_name_and_rows_are_released(tmp_path: Path) -> None:
    odd = [{"ts_ms": 1}, {"op": "m", "message": {}}, {"op": "t", "after": None}, {"status": "BEGIN", "id": "1"}]
    lines = [json.dumps(one) for one in [*odd, *({"op": "c", "before": None, "after": one} for one in PEOPLE)]]
    write(tmp_path, "\n".join(lines), "in.jsonl", unwrap="debezium", deletes="drop")
    said = pipe(tmp_path, "in.jsonl").stderr.decode()
    assert "14 in, 12 out, 0 suppressed, 2 refused (2 of 14 invalid: not a message of Debezium" in said


def test_whole_numbers_that_a_program_wrote_with_a_point_are_those_of_the_order(tmp_path: Path) -> None:
    grade = {"role": "quasi_identifier", "scale": "ordinal", "order": [1, 2]}
    attributes = {"who": ATTRIBUTES["who"], "ward": grade, "ill": ATTRIBUTES["ill"]}
    write(tmp_path, csv_of(*LINES).replace(",n,", ",1.0,").replace(",s,", ",2.0,"), attributes=attributes)
    assert OUT in pipe(tmp_path).stderr.decode()
    assert {line[0] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]} == {"1", "2"}
