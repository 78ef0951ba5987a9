"""The commands as a user calls them: output, exit codes, messages, files."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from shoal.cli import warm
from support.by_night import at_night
from support.certificates import Authority
from support.commands import Ended, run_command

pytestmark = pytest.mark.unit

SHOAL = [sys.executable, "-m", "shoal.cli"]
QUICKSTART = Path(__file__).parents[3] / "docs" / "quickstart" / "policy.yaml"

POLICY: dict[str, Any] = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
        "income": {"role": "quasi_identifier", "bounds": [0, 1000], "resolution": 0.5},
        "ill": {"role": "confidential", "type": "string"},
    },
    "privacy": {"k": 3},
    "stream": {"delta": 10},
}


def records(count: int) -> list[dict[str, Any]]:
    return [{"who": f"p{i % 40}", "age": i * 7 % 111, "income": i * 13 % 1001, "ill": f"i{i}"} for i in range(count)]


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def write_policy(folder: Path, **more: Any) -> None:
    (folder / "policy.yaml").write_text(json.dumps(POLICY | more, indent=1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a policy, and 200 records as CSV and as JSON lines."""
    write_policy(tmp_path)
    with (tmp_path / "visits.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["who", "age", "income", "ill"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records(200))
    (tmp_path / "visits.jsonl").write_bytes(lines_of(records(200)))
    return tmp_path


def shoal(folder: Path, words: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Ended:
    """Run a command with the policy in the folder: ``pipe -i visits.csv``."""
    command, _, more = words.partition(" ")
    return run_command(command, "policy.yaml", *more.split(), stdin=stdin, folder=folder, environment=environment)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- check


def test_check_prints_the_resolved_policy(folder: Path) -> None:
    done = shoal(folder, "check")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert told["privacy"] == {"k": 3, "max_share": 0.5}
    assert len(told["fingerprint"]) == 64
    assert told["stream"]["rule"] == "awo"
    assert told["chosen"] == {"stream.rule": "auto: awo below k = 7"}
    lines = [line.partition("left open: ")[2] for line in done.stderr.decode().splitlines() if "left open: " in line]
    assert [line.removesuffix(" [shoal.cli]") for line in lines] == told["left_open"] != []


def test_check_says_in_words_what_becomes_of_each_field_and_what_is_open(folder: Path) -> None:
    done = shoal(folder, "check --text")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert re.match(r"fields of policy [0-9a-f]{16}:", lines[0])
    assert "  identifier        who: left out; people are counted by it" in lines
    assert any(line.startswith("  delta = ") for line in lines)
    assert [line for line in lines if line.endswith(":")][1:] == ["promised:", "left open:", "to decide:"]
    assert json.loads(shoal(folder, "check --json").stdout)["privacy"]["k"] == 3


def test_check_advises_on_confidential_values_of_the_policy_of_the_readme_only() -> None:
    done = run_command("check", str(QUICKSTART))
    assert (done.returncode, done.stderr.count(b"warning")) == (0, 1)
    assert b"attributes.diagnosis: k alone does not protect a confidential value" in done.stderr


ADVICE = {
    "normalize": b"set normalize: [nfkc, casefold, spaces, invisible]",
    "unchanged": b"published unchanged. Fields with few values",
    "twice": b"a record that its producer sends twice counts as two people",
    "dots": b"attributes.patient.id: the name of one field, dots included",
}


@pytest.mark.parametrize(
    ("who", "ward", "advice"),
    [
        ({"patient": {}}, {}, {"normalize"}),
        ({"name": {"type": "string"}}, {}, {"normalize"}),
        ({"patient": {"normalize": ["casefold"]}}, {}, set()),
        ({"patient": {"type": "integer"}}, {}, set()),
        ({"patient_id": {}}, {}, set()),
        ({"patient": {"from": "key"}}, {}, set()),
        ({"patient_id": {}}, {"publish_unchanged": True}, {"unchanged"}),
        ({"patient.id": {}}, {}, {"dots"}),
        ({"patient.id": {"from": "key"}}, {}, set()),
        (None, {}, {"twice"}),
    ],
)
def test_check_advises_on_names_unchanged_fields_and_copies(
    tmp_path: Path, who: dict[str, dict[str, Any]] | None, ward: dict[str, Any], advice: set[str]
) -> None:
    subject = {name: {"role": "identifier", "subject": True} | more for name, more in (who or {}).items()}
    attributes = subject | {
        "age": {"role": "quasi_identifier", "bounds": [0, 110]},
        "ward": {"role": "confidential"} | ward,
    }
    privacy = {"k": 3} | ({} if "role" in ward else {"t": 0.5})
    document = {"attributes": attributes, "privacy": privacy} | ({} if who else {"subject": "every_record"})
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(document))
    done = run_command("check", str(path))
    assert done.returncode == 0
    assert json.loads(done.stdout)["privacy"]["k"] == 3
    assert {name for name, text in ADVICE.items() if text in done.stderr} == advice
    assert done.stderr.count(b"warning") == len(advice)


def test_check_prints_the_settings_of_policy_and_environment_without_secrets_and_names_what_is_missing(
    folder: Path,
) -> None:
    write_policy(folder, kafka={"input": "a", "output": "b", "security_protocol": "SASL_SSL"})
    environment = {"GROUP": "g", "OUTPUT": "c", "SASL_USERNAME": "canary"}
    done = shoal(folder, "check", environment={f"SHOAL_KAFKA__{name}": text for name, text in environment.items()})
    assert done.returncode == 0
    kafka = json.loads(done.stdout)["kafka"]
    shown = ("input", "output", "group", "security_protocol", "patience_s", "sasl_username")
    assert [kafka[name] for name in shown] == ["a", "c", "g", "SASL_SSL", 300, "**********"]
    names = ("bootstrap_servers", "input", "output", "group", "sasl_username", "sasl_password")
    warned = [name for name in names if f"kafka.{name}: ".encode() in done.stderr]
    assert warned == ["bootstrap_servers", "sasl_password"]
    assert b"SHOAL_KAFKA__SASL_PASSWORD" in done.stderr
    assert b"canary" not in done.stderr + done.stdout


def test_check_prints_no_argument_of_a_program_of_the_environment(folder: Path) -> None:
    variables = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER"}
    variables["SASL_OAUTH_COMMAND"] = '["/bin/token", "canary"]'
    done = shoal(folder, "check", environment={f"SHOAL_KAFKA__{name}": text for name, text in variables.items()})
    assert done.returncode == 0
    assert json.loads(done.stdout)["kafka"]["sasl_oauth_command"] == ["/bin/token", "(1 argument)"]
    assert b"canary" not in done.stderr + done.stdout


def line_of(folder: Path, text: str) -> int:
    (number,) = [n for n, line in enumerate((folder / "policy.yaml").read_text().splitlines(), 1) if text in line]
    return number


def test_check_reads_the_files_that_the_policy_names(folder: Path) -> None:
    write_policy(folder, kafka={"input": "a", "output": "b", "security_protocol": "SSL", "ssl_cafile": "ca.pem"})
    done = shoal(folder, "check")
    assert done.returncode == 0
    assert b"kafka.ssl_cafile: the file cannot be read: No such file or directory; shoal run needs it" in done.stderr
    (folder / "ca.pem").write_text("canary")
    done = shoal(folder, "check")
    assert (done.returncode, done.stdout) == (2, b"")
    fault = f"line {line_of(folder, 'ssl_cafile')}: kafka.ssl_cafile: the file holds no certificate in PEM"
    assert f"policy.yaml: 1 fault\n  {fault}" in done.stderr.decode()
    assert (
        b"SHOAL_KAFKA__SSL_CAFILE: the file"
        in shoal(folder, "check", environment={"SHOAL_KAFKA__SSL_CAFILE": "ca.pem"}).stderr
    )


def test_check_refuses_a_metadata_key_of_the_environment_that_is_none(folder: Path) -> None:
    write_policy(folder, kafka={"input": "a", "output": "b"})
    done = shoal(folder, "check", environment={"SHOAL_KAFKA__METADATA_KEY": "canary"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"  SHOAL_KAFKA__METADATA_KEY: word 1 is no key: 32 random bytes as hex or base64" in done.stderr
    assert b"canary" not in done.stderr


def test_check_warns_of_certificates_that_expired_and_of_secrets_that_others_can_read(folder: Path) -> None:
    certificate, key = Authority(folder).issue("old", valid=dt.timedelta(hours=-1))
    token = folder / "token"
    token.write_text("0123456789abcdef")
    kafka = {"input": "a", "output": "b", "security_protocol": "SSL", "ssl_cafile": str(certificate)}
    write_policy(folder, kafka=kafka)
    files = {"SHOAL_HTTP_TOKEN_FILE": str(token)}
    for prefix in ("SHOAL_KAFKA__SSL_", "SHOAL_HTTP_"):
        files |= {f"{prefix}CERTFILE": str(certificate), f"{prefix}KEYFILE": str(key)}
    for mode in (0o640, 0o644):
        key.chmod(mode)
        token.chmod(mode)
        done = shoal(folder, "check", environment=files)
        said = done.stderr.decode()
        assert done.returncode == 0
        for setting in ("kafka.ssl_cafile", "kafka.ssl_certfile", "--http-certfile (SHOAL_HTTP_CERTFILE)"):
            assert f"{setting}: has expired on " in said
        secrets = (
            "kafka.ssl_keyfile",
            "--http-keyfile (SHOAL_HTTP_KEYFILE)",
            "--http-token-file (SHOAL_HTTP_TOKEN_FILE)",
        )
        for setting in secrets:
            assert (f"{setting}: other users of this machine can read or change a secret" in said) == (mode == 0o644)
        assert "0123456789abcdef" not in said
    token.unlink()
    refused = "--http-token-file (SHOAL_HTTP_TOKEN_FILE): the file cannot be read: No such file or directory; shoal"
    assert refused in shoal(folder, "check", environment=files).stderr.decode()


@pytest.mark.parametrize("command", ["run", "progress"])
def test_the_service_reads_the_files_before_it_connects(command: str, folder: Path) -> None:
    kafka = {"input": "a", "output": "b", "group": "g", "bootstrap_servers": "127.0.0.1:1", "security_protocol": "SSL"}
    write_policy(folder, kafka=kafka | {"ssl_cafile": "absent.pem"})
    done = shoal(folder, command, environment={"SHOAL_KAFKA__METADATA_KEY_FILE": "absent.key"})
    assert (done.returncode, done.stdout) == (2, b"")
    absent = "the file cannot be read: No such file or directory"
    assert done.stderr.decode().splitlines() == [
        "shoal: policy.yaml: 2 faults",
        f"  SHOAL_KAFKA__METADATA_KEY_FILE: {absent}",
        f"  line {line_of(folder, 'ssl_cafile')}: kafka.ssl_cafile: {absent}",
    ]


def test_check_warns_of_a_fractional_step_of_whole_numbers(folder: Path) -> None:
    for step, warnings in ((0.5, 1), (2, 0), (0, 0)):
        age = {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "resolution": step}
        write_policy(folder, attributes={"age": age}, subject="every_record")
        done = shoal(folder, "check")
        assert done.returncode == 0
        assert done.stderr.count(b"the resolution is a fraction") == warnings


def test_check_tells_that_progress_under_a_policy_would_not_fit_beside_an_offset(folder: Path) -> None:
    write_policy(folder, stream={"delta": 25_000}, kafka={"input": "a", "output": "b"})
    done = shoal(folder, "check")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stream.delta: 25000 does not fit into the group's metadata; at most 19590\n" in done.stderr
    write_policy(folder, stream={"delta": 25_000})
    assert shoal(folder, "check").returncode == 0, "files have no such limit"


# ---------------------------------------------------------------- pipe, batch and verify


@pytest.mark.parametrize(("source", "target"), [("csv", "jsonl"), ("jsonl", "csv")])
def test_pipe_and_verify_agree(folder: Path, source: str, target: str) -> None:
    beside = "--evidence evidence.jsonl --summary summary.json"
    done = shoal(folder, f"pipe -i visits.{source} -o out.{target} {beside}")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    told = json.loads((folder / "summary.json").read_text())
    assert told["records_in"] == told["released"] == 200
    assert told["held"] == 0
    assert " ".join(sorted(told)) == (
        "clipped clocks cluster_size clusters delay displacement elapsed_s excess_span held information_loss loss "
        "mae mean_loss mse policy quarantined records_in records_per_s released share sse sst subjects suppressed "
        "widths"
    )
    assert set(told["widths"]) == {"age", "income"}
    files = f"--original visits.{source} --released out.{target} {beside} --json verdict.json"
    judged = shoal(folder, f"verify {files}")
    assert judged.returncode == 0, judged.stdout
    assert json.loads((folder / "verdict.json").read_text())


def test_each_end_has_its_own_format_and_the_judge_is_told_both(folder: Path) -> None:
    (folder / "visits.csv").rename(folder / "visits.txt")
    forms = "--format csv --output-format jsonl"
    done = shoal(folder, f"pipe -i visits.txt -o out.dat --evidence evidence.jsonl {forms}")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert set(json.loads((folder / "out.dat").read_bytes().splitlines()[0])) == {"age", "income", "ill"}
    files = "--original visits.txt --released out.dat --evidence evidence.jsonl"
    assert shoal(folder, f"verify {files} {forms}").returncode == 0
    refused = shoal(folder, f"verify {files}")
    assert refused.returncode == 2
    assert b"or give --format" in refused.stderr


@pytest.mark.parametrize(
    ("which", "how"),
    [
        *((name, "by its name") for name in ("policy", "original", "released", "evidence", "summary", "quarantine")),
        ("original", "by a link"),
        ("original", "by a second name"),
    ],
)
def test_the_verdict_is_never_written_over_what_is_judged(folder: Path, which: str, how: str) -> None:
    names = ("original", "released", "evidence", "summary", "quarantine")
    for name in names:
        (folder / name).write_text("{}\n")
    judged = folder / ("policy.yaml" if which == "policy" else which)
    target, before = judged if how == "by its name" else folder / "verdict.json", judged.read_bytes()
    if how == "by a link":
        target.symlink_to(judged)
    elif how == "by a second name":
        target.hardlink_to(judged)
    done = shoal(folder, f"verify {' '.join(f'--{name} {name}' for name in names)} --json {target.name}")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"named twice" in done.stderr
    assert judged.read_bytes() == target.read_bytes() == before


def test_a_pipe_between_pipes(folder: Path) -> None:
    done = shoal(folder, "pipe --format jsonl", lines_of(records(50)))
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 50
    assert list(rows[0]) == ["age", "income", "ill"]
    assert {row["ill"] for row in rows} == {f"i{i}" for i in range(50)}
    assert done.stderr.count(b"\n") == 1, "one line on standard error"
    assert done.stderr.startswith(b"shoal: 50 in, 50 out, 0 suppressed, 0 refused, mean loss ")
    assert b"next:" not in done.stderr


# ---------------------------------------------------------------- the last line


def test_pipe_ends_with_the_command_that_judges_its_release(folder: Path) -> None:
    words = ["-i", "visits.csv", "-o", "my out.csv", "--evidence", "evidence"]
    done = run_command("pipe", "policy.yaml", *words, folder=folder)
    assert done.returncode == 0
    text = done.stderr.decode()
    assert text.startswith("shoal: 200 in, 200 out, 0 suppressed, 0 refused, mean loss ")
    following = shlex.split(text.partition("; next: ")[2])
    assert following[0] == "shoal"
    assert run_command(*following[1:], folder=folder).returncode == 0


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_a_release_without_evidence_cannot_be_verified_and_the_last_line_says_so(command: str, folder: Path) -> None:
    done = shoal(folder, f"{command} -i visits.csv -o out.csv")
    assert done.returncode == 0
    assert done.stderr.decode().endswith("; with --evidence FILE, the next run can be verified member by member\n")


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_names_that_begin_with_a_dash_are_no_options_of_the_next_command(command: str, folder: Path) -> None:
    (folder / "policy.yaml").rename(folder / "-p.yaml")
    (folder / "visits.csv").rename(folder / "-in.csv")
    words = ["--input=-in.csv", "--output=-out.csv", "--evidence=-e.jsonl", "--", "-p.yaml"]
    done = run_command(command, *words, folder=folder)
    assert done.returncode == 0, done.stderr
    following = shlex.split(done.stderr.decode().partition("; next: ")[2])
    assert following[:5] == ["shoal", "verify", "./-p.yaml", "--original=-in.csv", "--released=-out.csv"]
    assert run_command(*following[1:], folder=folder).returncode == 0


@pytest.mark.parametrize("has_stream", [True, False])
def test_batch_ends_with_the_command_that_judges_its_release(folder: Path, *, has_stream: bool) -> None:
    if not has_stream:
        write_policy(folder, stream=None)
    done = shoal(folder, "batch -i visits.csv -o out.csv --evidence evidence --log json")
    assert done.returncode == 0
    (told,) = map(json.loads, done.stderr.splitlines())
    assert (told["event"], told["records_in"], told["released"], told["refused"]) == ("finished", 200, 200, 0)
    assert 0 < told["information_loss"] < 100
    assert 0 < told["mean_loss"] < told["worst"]["loss"] < 1
    assert told["mean_loss"] == float(f"{told['mean_loss']:.3g}"), "more digits could reveal a value"
    assert run_command(*shlex.split(told["next"])[1:], folder=folder).returncode == 0


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_empty_release_of_records_is_exit_code_1(folder: Path, style: str) -> None:
    words = f"pipe --format jsonl -o out.jsonl --log {style}"
    done = shoal(folder, words, lines_of([record | {"age": None} for record in records(40)]))
    assert (done.returncode, (folder / "out.jsonl").read_bytes()) == (1, b"")
    assert b"40 of 40 invalid: age: null" in done.stderr
    assert b"nothing was released" in done.stderr
    last = done.stderr.splitlines()[-1].decode()
    assert last.startswith("shoal: 40 in, 0 out, 0 suppressed, 40 refused (") or style == "json"
    assert "next" in last
    assert "age: fill the values in, remove the records, or give the field another role" in last
    same = lines_of([record | {"who": "one"} for record in records(40)])
    done = shoal(folder, f"{words} --summary summary.json", same)
    told = json.loads((folder / "summary.json").read_text())
    assert (done.returncode, (folder / "out.jsonl").read_bytes()) == (1, b"")
    assert (told["released"], told["suppressed"], told["mse"]) == (0, {"suppressed": 40}, None)
    assert b"nothing was released" in done.stderr
    assert b"no cluster satisfied the section privacy: give more records" in done.stderr.splitlines()[-1]
    assert b"privacy.l" not in done.stderr
    done = shoal(folder, words)
    assert done.returncode == 0, "there was nothing to release"
    assert b"nothing was released" not in done.stderr


# ---------------------------------------------------------------- files and options that cannot be used


@pytest.mark.parametrize(
    "words", ["pipe -i visits.csv -o /dev/full --format csv", "pipe -i visits.csv -o out.csv --summary /dev/full"]
)
def test_a_full_device_is_told_and_no_file_changes(folder: Path, words: str) -> None:
    (folder / "out.csv").write_text("precious\n")
    before = contents(folder)
    done = shoal(folder, words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"/dev/full: No space left" in done.stderr
    assert contents(folder) == before


def test_a_command_needs_its_name() -> None:
    assert run_command().returncode == 2


@pytest.mark.parametrize(
    ("command", "style", "count"),
    [
        ("check", "text", 60),
        ("pipe", "json", 60),
        ("pipe", "text", 20_000),
        *at_night(("check", "json", 60), ("pipe", "text", 60)),
    ],
)
def test_a_reader_that_closes_the_output_ends_a_command_with_141_and_a_sentence(
    command: str, style: str, count: int, folder: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [
        command,
        str(folder / "policy.yaml"),
        "--log",
        style,
        *(["--format", "jsonl"] if command == "pipe" else []),
    ]
    given = lines_of(records(count))
    done = subprocess.run([*SHOAL, *arguments], input=given, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    sentence = "standard output: its reader has closed the pipe; not everything was written"
    (said,) = [line for line in done.stderr.decode().splitlines() if "compiling" not in line]
    assert done.returncode == 141
    if style == "json":
        assert (json.loads(said)["code"], json.loads(said)["reason"]) == ("output_closed", sentence)
    else:
        assert said == f"shoal: {sentence}"


def test_an_output_keeps_its_rights(folder: Path) -> None:
    (folder / "out.csv").touch(0o600)
    assert shoal(folder, "pipe -i visits.csv -o out.csv").returncode == 0
    assert (folder / "out.csv").stat().st_mode & 0o777 == 0o600


def test_sigterm_takes_drafts_away(folder: Path) -> None:
    command = [*SHOAL, "pipe", "policy.yaml", "--format", "jsonl", "-o", "out.jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder) as process:
        assert process.stdin is not None
        deadline = time.monotonic() + 60
        while not list(folder.glob(".out.jsonl.*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 143
    assert not list(folder.glob("*out.jsonl*"))


@pytest.mark.parametrize(("solver", "expected"), [(None, ["anneal"]), (object(), ["anneal", "exact"])])
def test_warm_compiles_no_refinement_whose_solver_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, solver: object, expected: list[str]
) -> None:
    """The image has no extras."""
    called: list[str] = []
    monkeypatch.setattr(warm, "find_spec", {"highspy": solver}.get)
    monkeypatch.setattr(warm, "microaggregate", lambda *_, refine="none": called.append(refine))
    warm._compile_choices()
    assert sorted(set(called) - {"none"}) == expected
