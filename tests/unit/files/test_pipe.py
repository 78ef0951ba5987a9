"""`shoal pipe` with unusual and invalid files: outputs are complete or absent, and the judge agrees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import Verdict, verify
from shoal.errors import ConfigError, InputError
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from support.by_night import at_night
from support.commands import on_full_disk

pytestmark = pytest.mark.unit

ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
    "note": {"role": "confidential", "type": "string"},
}


def policy_of(folder: Path, **more: Any) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"attributes": ATTRIBUTES, "privacy": {"k": 2}, "stream": {"delta": 4}} | more))
    return Policy.load(path)


def run(folder: Path, policy: Policy, text: bytes) -> tuple[str, list[tuple[int, str]], Verdict]:
    """Release a CSV file, which the judge accepts; return the release, the references and the verdict."""
    names = [folder / name for name in ("in.csv", "out.csv", "summary", "evidence", "quarantine")]
    source, out, summary, evidence, quarantine = names
    source.write_bytes(text)
    run_pipe(policy, Files(str(source), str(out), None, None, str(summary), str(evidence), str(quarantine)))
    references = [json.loads(line) for line in quarantine.read_text().splitlines()]
    verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine)
    assert verdict.exit_code == 0, verdict.text()
    return out.read_text(), [(one["offset"], one["reason"]) for one in references], verdict


def test_utf_16_without_a_byte_order_mark_is_reported_with_the_remedy(tmp_path: Path) -> None:
    policy, source, out = policy_of(tmp_path, csv={"encoding": "utf-16"}), tmp_path / "in.csv", tmp_path / "out.csv"
    text = "who,age,note\n" + "".join(f"p{i},40,x\n" for i in range(4))
    source.write_bytes(text.encode("utf-16-le"))
    words = r"in\.csv, line 1: no byte order mark, which utf-16 needs; give csv\.encoding .*utf-16-le or utf-16-be"
    with pytest.raises(InputError, match=words):
        run_pipe(policy, Files(str(source), str(out)))
    out.write_text("")
    with pytest.raises(InputError, match=words):
        verify(policy, source, out)
    source.write_bytes(text.encode("utf-16"))
    out.write_bytes("age,note\n".encode("utf-16-le"))
    with pytest.raises(InputError, match=words.replace("in", "out", 1)):
        verify(policy, source, out)


HEAD = "who,age,note\n"
OTHERS = "".join(f"p{number},{30 + number},well {number}\n" for number in range(6))


@pytest.mark.parametrize(
    ("record", "secret"),
    [
        # A quote that is opened in one record and closed in another.
        ('bert,31,"recovered\nclara,32,positive\nemil,34,screen 5"\n', "clara"),
        ('bert,31,"recovered\r\nclara, 32 ,positive"\n', "clara"),
        ('bert,31,"recovered\rclara,32,positive"\n', "clara"),
        ('bert,31,"see ""x""\n""clara"",""32"",""a, b"""\n', "clara"),
    ],
)
def test_a_cell_that_contains_a_record_is_refused_by_pipe_and_judge(tmp_path: Path, record: str, secret: str) -> None:
    text = (HEAD + record + OTHERS).encode()
    out, quarantined, verdict = run(tmp_path, policy_of(tmp_path), text)
    assert secret not in out
    assert quarantined == [(0, "invalid")]
    assert verdict.counts["unusable"] == 1
    allowed = policy_of(tmp_path, csv={"multiline": True})
    out, quarantined, verdict = run(tmp_path, allowed, text)
    assert secret in out
    assert quarantined == []
    # The judge finds a release that contains it.
    source, release, evidence = (tmp_path / name for name in ("in.csv", "out.csv", "evidence"))
    assert verify(policy_of(tmp_path), source, release, evidence).exit_code == 1


@pytest.mark.parametrize("note", ["two\nlines", "x,31\r\ny", "clara,31\nbert,32", "\n", "a,b,c\nd,e,f"])
def test_a_cell_with_line_ends_but_no_record_is_accepted(tmp_path: Path, note: str) -> None:
    _, quarantined, _ = run(tmp_path, policy_of(tmp_path), (f'{HEAD}bert,31,"{note}"\n' + OTHERS).encode())
    assert quarantined == []
    assert f'"{note}"'.encode() in (tmp_path / "out.csv").read_bytes()


def test_a_cell_with_parts_of_two_records_is_refused(tmp_path: Path) -> None:
    others = "".join(f"p{number},well {number},{30 + number}\n" for number in range(6))
    text = f'who,note,age\nbert,"fine,31\nclara,positive",32\ndora,"two\nlines",33\n{others}'
    out, quarantined, _ = run(tmp_path, policy_of(tmp_path), text.encode())
    assert "clara" not in out
    assert "two\nlines" in out
    assert quarantined == [(0, "invalid")]


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        (r"C:\temp\new", r"C:\temp\new"),
        ('"x\\\\"', "x\\"),
        (r'"say \"hi\" \n ok"', '"say ""hi"" \\n ok"'),
        ('"x\\\ny"', '"x\\\ny"'),
        (r"a\"b", '"a\\""b"'),
        *((cell, None) for cell in ('"a""b"', '"a" ', r'"a"\"', '"a"b"c')),
    ],
)
def test_a_backslash_escapes_a_quotation_mark_in_quotes_and_text_after_a_closing_quote_is_undecodable(
    tmp_path: Path, cell: str, note: str | None
) -> None:
    policy = policy_of(tmp_path, csv={"escape": "backslash", "output": {"escape": "doubled"}})
    out, quarantined, _ = run(tmp_path, policy, f"{HEAD}q,35,{cell}\n{OTHERS}".encode())
    assert quarantined == ([(0, "undecodable")] if note is None else [])
    assert note is None or f",{note}\n" in out
    assert out.count("well") == 6


@pytest.mark.parametrize("room", [2000, *at_night(12_000)])
def test_a_full_disk_leaves_no_output(tmp_path: Path, room: int) -> None:
    policy_of(tmp_path)
    text = HEAD + "".join(f"p{number},{number % 100},{'x' * 200}\n" for number in range(300))
    (tmp_path / "in.csv").write_text(text)
    names = ["out.csv", "evidence", "summary", "quarantine"]
    for name in names:
        (tmp_path / name).write_text("old")
    flags = ["-o", "out.csv", "--evidence", "evidence", "--summary", "summary", "--quarantine", "quarantine"]
    command = [sys.executable, "-m", "shoal.cli", "pipe", "policy.yaml", "-i", "in.csv", *flags]
    limited = [*on_full_disk(room), *command]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, timeout=150, check=False)
    assert (done.returncode, done.stderr) == (2, b"shoal: out.csv: File too large\n")
    assert [(tmp_path / name).read_text() for name in names] == ["old"] * 4
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", "policy.yaml", *names}


def test_a_summary_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    run(tmp_path, policy_of(tmp_path), (HEAD + OTHERS).encode())
    modes = {name: (tmp_path / name).stat().st_mode & 0o077 for name in ("summary", "evidence", "quarantine")}
    assert modes == dict.fromkeys(modes, 0)


def test_two_paths_of_one_file_are_refused(tmp_path: Path) -> None:
    out, evidence = tmp_path / "out.csv", tmp_path / "evidence"
    out.touch()
    evidence.hardlink_to(out)
    with pytest.raises(ConfigError, match="named twice"):
        Files("-", str(out), evidence=str(evidence)).check(str(tmp_path / "policy.yaml"))


def test_lines_that_end_with_carriage_returns_are_reported_with_the_remedy(tmp_path: Path) -> None:
    text = (HEAD + OTHERS).replace("\n", "\r").encode()
    with pytest.raises(InputError, match=r"in\.csv, line 1: lines end with carriage returns; .*csv\.line_end: cr"):
        run(tmp_path, policy_of(tmp_path), text)
    _, quarantined, _ = run(tmp_path, policy_of(tmp_path, csv={"line_end": "cr"}), text)
    assert quarantined == []


def test_max_record_bytes_applies_to_files(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, kafka={"max_record_bytes": 100})
    long = f"q,35,{'x' * 101}\n"
    out, quarantined, _ = run(tmp_path, policy, (HEAD + long + OTHERS).encode())
    assert quarantined == [(0, "too_large")]
    assert "xxx" not in out
    source, refused = tmp_path / "in.jsonl", tmp_path / "quarantine"
    lines = [json.dumps({"who": f"p{n}", "age": 30, "note": "y" * (100 if n == 3 else 1)}) for n in range(8)]
    source.write_text("\n".join(lines))
    run_pipe(policy, Files(str(source), str(tmp_path / "out.jsonl"), quarantine=str(refused)))
    assert [(one["offset"], one["reason"]) for one in map(json.loads, refused.read_text().splitlines())] == [
        (3, "too_large")
    ]
