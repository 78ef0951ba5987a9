"""Sound releases that the judge accused once, made by Shoal itself, and originals without records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.cli import main
from shoal.errors import InputError
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.judged_runs import SIDE_FILES, judged, released, write_lines
from support.making import SUBJECT

pytestmark = pytest.mark.unit

STREAM = {"delta": 2, "rule": "nearest"}
WHOLE = {"bounds": [0, 1000], "resolution": 1}


def document_of(x: dict[str, Any], *, person: dict[str, Any] | None = None, k: int = 2, **more: Any) -> dict[str, Any]:
    attributes = {"p": SUBJECT | (person or {}), "x": {"role": "quasi_identifier", **x}}
    return {"attributes": attributes | more.pop("fields", {}), "privacy": {"k": k}, **more}


def policy_of(x: dict[str, Any], **more: Any) -> Policy:
    return Policy.from_document(Document.model_validate(document_of(x, **more)))


@pytest.mark.parametrize(
    ("release", "suffix"), [(None, ".csv"), (None, ".parquet"), ("cluster", ".csv"), ("ordered", ".csv")]
)
def test_equal_values_publish_their_value(tmp_path: Path, release: str | None, suffix: str) -> None:
    stream = {} if release is None else {"stream": STREAM | {"release": release}}
    policy = policy_of({"bounds": [0, 0.1], "resolution": 0}, k=3, **stream)
    paths = released(tmp_path, policy, "p,x\na,0.1\nb,0.1\nc,0.1\n", "original.csv", suffix)
    assert judged(policy, paths, "evidence").text().startswith("holds: ")
    if suffix == ".csv":
        assert paths["released"].read_text() == "x\n0.1\n0.1\n0.1\n"


@pytest.mark.parametrize(
    ("original", "text"),
    [("original.csv", "p,x\na,1\nb,2\na,3"), ("original.jsonl", '{"p":"a","x":1}\n{"p":"b","x":2}\n{"p":"a","x":3}')],
)
def test_a_suppressed_last_record_without_line_end_is_accounted_for(tmp_path: Path, original: str, text: str) -> None:
    policy = policy_of(WHOLE, stream=STREAM)
    paths = released(tmp_path, policy, text, original)
    for given in (("evidence",), SIDE_FILES):
        assert judged(policy, paths, *given).exit_code == 0
    verdict = judged(policy, paths, "evidence", "summary")
    assert verdict.exit_code == 0, verdict.text()
    assert (verdict.counts["suppressed"], verdict.counts["claimed"]) == (1, 0)
    # A summary that does not count the record as suppressed still fails.
    stated = json.loads(paths["summary"].read_text())
    paths["summary"].write_text(json.dumps(stated | {"suppressed": {"suppressed": 2}, "records_in": 4}))
    assert judged(policy, paths, "evidence", "summary").exit_code == 1


def test_a_last_record_without_line_end_that_was_read_can_be_missing(tmp_path: Path) -> None:
    policy = policy_of(WHOLE, stream=STREAM)
    paths = released(tmp_path, policy, "p,x\na,1\nb,1\nc,3\nd,4", "original.csv")
    evidence = paths["evidence"].read_text().splitlines()
    rows = paths["released"].read_text().splitlines()
    assert (len(evidence), rows) == (2, ["x", "1", "1", "4", "4"])
    paths["evidence"].write_text(evidence[0] + "\n")
    paths["released"].write_text("x\n1\n1\n")
    for suppressed in (1, 2):
        stated = {"records_in": 4, "released": 2, "suppressed": suppressed, "quarantined": 2 - suppressed, "held": 0}
        paths["summary"].write_text(json.dumps(stated))
        assert judged(policy, paths, "evidence", "summary", table=False).exit_code == 1


@pytest.mark.parametrize(("suffix", "reason"), [(".csv", "invalid"), (".jsonl", "suppressed")])
def test_a_character_that_the_output_encoding_lacks_is_invalid_in_csv_only(
    tmp_path: Path, suffix: str, reason: str
) -> None:
    output = {"output": {"encoding": "latin-1"}}
    fields = {"c": {"role": "confidential", "type": "string"}}
    policy = policy_of({"bounds": [0, 9], "resolution": 1}, stream=STREAM, csv=output, fields=fields)
    paths = released(tmp_path, policy, "p,x,c\na,1,u\nb,1,v\nc,2,€\n", "original.csv", suffix)
    (reference,) = map(json.loads, paths["quarantine"].read_text().splitlines())
    assert reference["reason"] == reason
    for given in (("evidence", "summary"), SIDE_FILES):
        verdict = judged(policy, paths, *given)
        assert verdict.exit_code == 0, verdict.text()
        assert verdict.counts["unusable"] == (1 if reason == "invalid" else 0)


def messages(*lines: tuple[int, int, str, int]) -> str:
    names = ("partition", "offset", "key")
    return "".join(
        json.dumps(dict(zip(names, line[:3], strict=True)) | {"value": {"x": line[3]}}) + "\n" for line in lines
    )


KEYED = {"role": "identifier", "subject": True, "from": "key"}


def keyed_document() -> dict[str, Any]:
    return document_of(WHOLE, person=KEYED, stream=STREAM)


def keyed_policy() -> Policy:
    return Policy.from_document(Document.model_validate(keyed_document()))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("given", [("evidence", "summary"), SIDE_FILES])
def test_messages_with_offsets_of_which_none_is_released_are_judged_by_line(
    tmp_path: Path, suffix: str, given: tuple[str, ...]
) -> None:
    paths = released(tmp_path, keyed_policy(), messages((0, 17, "a", 1)), "original.jsonl", suffix)
    verdict = judged(keyed_policy(), paths, *given)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["suppressed"] == 1


def test_an_empty_release_of_messages_asks_which_command_made_it(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("original", "released", "quarantine", "evidence")}
    paths["evidence"].write_text("")
    paths["original"].write_text(messages((0, 0, "a", 1), (0, 1, "b", 1), (0, 2, "c", 1)))
    paths["released"].write_text("")
    reference = '{"topic": "t", "partition": 0, "offset": %d, "reason": "suppressed"}\n'
    paths["quarantine"].write_text("".join(reference % offset for offset in range(3)))
    # A service may have been drained after each record; `shoal pipe` would have released the three.
    with pytest.raises(InputError, match=r"does not show which command made it.* Give --topic .*--summary"):
        judged(keyed_policy(), paths, "evidence", "quarantine")
    original, nothing, quarantine, evidence = paths.values()
    for given in (None, evidence):
        verdict = verify(keyed_policy(), original, nothing, given, quarantine=quarantine, is_export=True)
        assert verdict.exit_code == 0, verdict.text()
        assert (verdict.counts["suppressed"], verdict.early_decisions) == (3, 2)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(keyed_document()))
    files = ["--original", str(original), "--released", str(nothing), "--quarantine", str(quarantine)]
    assert main(["verify", str(policy), *files]) == 2
    assert main(["verify", str(policy), *files, "--topic"]) == 0
    summary = tmp_path / "summary.json"
    summary.write_text(
        '{"records_in": 3, "released": 0, "suppressed": {"suppressed": 3}, "quarantined": {}, "held": 0}'
    )
    assert main(["verify", str(policy), *files, "--summary", str(summary)]) == 1
    quarantine.write_text(reference % 1)
    for given in (None, evidence):
        verdict = verify(keyed_policy(), original, nothing, given, quarantine=quarantine, is_export=True)
        assert [check.name for check in verdict.checks if check.failed] == ["complete"]


@pytest.mark.parametrize("count", [1, 5])
def test_an_empty_topic_without_its_quarantine_is_undecided_and_the_verdict_names_it(
    tmp_path: Path, count: int
) -> None:
    original, nothing = tmp_path / "original.jsonl", tmp_path / "released.jsonl"
    original.write_text(messages(*((0, 17 + n, f"p{n}", 1) for n in range(count))))
    nothing.write_text("")
    verdict = verify(keyed_policy(), original, nothing, is_export=True)
    assert verdict.exit_code == 2
    assert [("--quarantine" in question, "--evidence" in question) for question in verdict.undecided] == [
        (True, False)
    ] * len(verdict.undecided)


def test_a_topic_of_which_all_is_dropped_is_broken(tmp_path: Path) -> None:
    policy = policy_of(WHOLE, stream=STREAM)
    lines = [{"partition": 0, "offset": 17 + x, "value": {"p": str(x), "x": x}} for x in range(5)]
    original, nothing, evidence = (tmp_path / f"{name}.jsonl" for name in ("original", "released", "evidence"))
    original.write_text("".join(json.dumps(line) + "\n" for line in lines))
    nothing.write_text("")
    evidence.write_text("")
    verdict = verify(policy, original, nothing, evidence, quarantine=evidence, is_export=True)
    assert [check.name for check in verdict.checks if check.failed] == ["complete"]
    with pytest.raises(InputError, match="does not show which command made it"):
        verify(policy, original, nothing, evidence, quarantine=evidence)


def test_lines_that_are_no_export_are_judged_by_line(tmp_path: Path) -> None:
    text = messages((0, 17, "a", 1)) + "{}\n" + messages((0, 17, "a", 1))
    paths = released(tmp_path, keyed_policy(), text, "original.jsonl")
    verdict = judged(keyed_policy(), paths, *SIDE_FILES)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["records"] == 3


def test_a_line_of_an_empty_topic_that_is_of_no_export_is_refused(tmp_path: Path) -> None:
    nothing = write_lines(tmp_path / "released.jsonl", [])
    original = tmp_path / "original.jsonl"
    original.write_text("not an export\n" + messages((0, 17, "a", 1)))
    with pytest.raises(InputError, match="line 1"):
        verify(keyed_policy(), original, nothing, is_export=True)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_input_holds_where_the_policy_reads_keys(tmp_path: Path, text: str) -> None:
    paths = released(tmp_path, keyed_policy(), text, "original.jsonl")
    assert judged(keyed_policy(), paths, "evidence", "summary").text().startswith("holds: ")


@pytest.mark.parametrize(
    ("resolution", "values"),
    [
        (0.3, [1e16, 1e16, 1e16 + 4, 1e16 + 6, 3e16, 3e16 + 4, 7e17, 7e17 + 128]),
        (0.3, [4e15 + 0.5, 4e15 + 1, 4e15 + 7.5, 4e15 + 9, 2.0**52, 2.0**52 + 1]),
        (1, [2.0**53, 2.0**53 + 2, 3e17, 3e17 + 64]),
    ],
)
def test_large_means_in_parquet_are_compared_as_its_numbers(
    tmp_path: Path, resolution: float, values: list[float]
) -> None:
    policy = policy_of({"resolution": resolution})
    text = "p,x\n" + "".join(f"{number},{value!r}\n" for number, value in enumerate(values))
    paths = released(tmp_path, policy, text, "original.csv", ".parquet")
    assert judged(policy, paths, "evidence").text().startswith("holds: ")


def test_a_row_of_one_column_without_a_value_is_an_empty_line(tmp_path: Path) -> None:
    policy = policy_of({"scale": "nominal", "missing": "group"}, k=2)
    paths = released(tmp_path, policy, "p,x\na,M\nb,M\nc,\nd,\n", "original.csv")
    assert paths["released"].read_text() == "x\n\n\nM\nM\n"
    assert judged(policy, paths, "evidence").text().startswith("holds: ")


def test_a_line_that_is_no_json_is_no_message_without_a_value(tmp_path: Path) -> None:
    policy = policy_of({"bounds": [0, 10]}, person={"from": "key"}, stream=STREAM, tombstones="drop")
    lines = [json.dumps({"key": f"p{number}", "value": {"x": number}}) for number in range(4)]
    lines[2:2] = ["{", json.dumps({"key": "p", "value": None})]
    paths = released(tmp_path, policy, "".join(f"{line}\n" for line in lines), "original.jsonl")
    verdict = judged(policy, paths, "evidence", "quarantine", "summary")
    assert verdict.exit_code == 0, verdict.text()
    summary = json.loads(paths["summary"].read_text())
    assert (summary["dropped"], summary["quarantined"]) == ({"deletes": 0, "tombstones": 1}, {"undecodable": 1})
    assert "counted: 5 records, 1 dropped, 4 usable, 1 unusable, 4 rows, " in verdict.text(verbose=True)
    assert not [told for told in verdict.warnings if "dropped" in told.text]
    del summary["dropped"]
    paths["summary"].write_text(json.dumps(summary))
    verdict = judged(policy, paths, "evidence", "quarantine", "summary")
    assert verdict.exit_code == 0, verdict.text()
    assert "does not state dropped.tombstones, though the policy drops such messages" in "".join(
        warning.text for warning in verdict.warnings
    )


# ---------------------------------------------------------------- originals without records


def policy_of_four(release: str | None) -> Policy:
    stream = {} if release is None else {"stream": {"delta": 20, "release": release}}
    return policy_of({"bounds": [0, 1000], "integer": True}, k=4, **stream)


@pytest.mark.parametrize("release", ["cluster", "ordered"])
@pytest.mark.parametrize(("suffix", "text"), [("csv", "p,x\n"), ("csv", "p,x"), ("jsonl", ""), ("jsonl", "\n")])
def test_no_rows_of_no_records_hold(tmp_path: Path, release: str, suffix: str, text: str) -> None:
    policy = policy_of_four(release)
    paths = released(tmp_path, policy, text, f"original.{suffix}")
    for given in ((), ("evidence",), SIDE_FILES):
        verdict = judged(policy, paths, *given)
        assert verdict.exit_code == 0, verdict.text()
        assert verdict.text().startswith("holds: k is unknown, promised 4; 0 of 0 records released, of 0 people; ")


@pytest.mark.parametrize("release", ["cluster", None])
def test_rows_of_no_records_and_tables_without_records_are_refused(tmp_path: Path, release: str | None) -> None:
    original = write_lines(tmp_path / "original.jsonl", [])
    rows = write_lines(tmp_path / "released.jsonl", [] if release is None else ['{"x":5}'])
    with pytest.raises(InputError, match="no records, so there is nothing to compare with; give the original"):
        verify(policy_of_four(release), original, rows)
