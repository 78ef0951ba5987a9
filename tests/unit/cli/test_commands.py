"""The commands as a user calls them: output, exit codes, messages, files."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.by_night import at_night
from support.certificates import Authority
from support.commands import run_command

pytestmark = pytest.mark.unit

SHOAL = [sys.executable, "-m", "shoal.cli"]

POLICY = {
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


def policy_file(folder: Path, **more: Any) -> str:
    path = folder / "policy.yaml"
    path.write_text(json.dumps(POLICY | more))
    return str(path)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    return policy_file(tmp_path)


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["who", "age", "income", "ill"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records(200))
    return path


def test_check_prints_the_resolved_policy(policy: str) -> None:
    done = run_command("check", policy)
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert told["privacy"] == {"k": 3, "max_share": 0.5}
    assert len(told["fingerprint"]) == 64
    assert told["stream"]["rule"] == "awo"
    assert told["chosen"] == {"stream.rule": "auto: awo below k = 7"}


def test_check_advises_on_confidential_values_of_the_policy_of_the_readme_only() -> None:
    done = run_command("check", str(Path(__file__).parents[3] / "docs" / "quickstart" / "policy.yaml"))
    assert (done.returncode, done.stderr.count(b"warning")) == (0, 1)
    assert b"attributes.diagnosis: k alone does not protect a confidential value" in done.stderr


ADVICE = {
    "normalize": b"set normalize: [nfkc, casefold, spaces, invisible]",
    "unchanged": b"published unchanged",
    "twice": b"a record that its producer sends twice counts as two people",
    "dots": b"attributes.patient.id: the name of one field, dots included",
}


@pytest.mark.parametrize(
    ("who", "ward", "advice"),
    [
        ({"patient": {}}, {}, {"normalize"}),
        ({"name": {"type": "string"}}, {}, {"normalize"}),
        ({"patient": {"normalize": []}}, {}, set()),
        ({"patient": {"normalize": ["casefold"]}}, {}, set()),
        ({"patient": {"type": "integer"}}, {}, set()),
        ({"patient_id": {}}, {}, set()),
        ({"customerNumber": {}}, {}, set()),
        ({"patient": {"from": "key"}}, {}, set()),
        ({"patient_id": {}}, {"publish_unchanged": True}, {"unchanged"}),
        ({"patient_id": {}}, {"role": "other", "publish_unchanged": True}, {"unchanged"}),
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


def test_check_warns_of_settings_that_the_service_needs(tmp_path: Path) -> None:
    path = policy_file(tmp_path, kafka={"input": "a", "security_protocol": "SASL_SSL"})
    environment = {"SHOAL_KAFKA__GROUP": "g", "SHOAL_KAFKA__SASL_USERNAME": "canary"}
    done = run_command("check", path, environment=environment)
    assert done.returncode == 0
    names = ("bootstrap_servers", "input", "output", "group", "sasl_username", "sasl_password")
    warned = [name for name in names if f"kafka.{name}: ".encode() in done.stderr]
    assert warned == ["bootstrap_servers", "output", "sasl_password"]
    assert b"SHOAL_KAFKA__OUTPUT" in done.stderr
    assert b"canary" not in done.stderr + done.stdout


def test_check_prints_the_settings_of_policy_and_environment_without_secrets(tmp_path: Path) -> None:
    path = policy_file(tmp_path, kafka={"input": "a", "output": "b", "group": "g"})
    variables = {"SECURITY_PROTOCOL": "SASL_SSL", "OUTPUT": "c", "SASL_USERNAME": "canary", "SASL_PASSWORD": "canary"}
    done = run_command("check", path, environment={f"SHOAL_KAFKA__{name}": text for name, text in variables.items()})
    assert done.returncode == 0
    kafka = json.loads(done.stdout)["kafka"]
    assert {name: kafka[name] for name in ("input", "output", "group", "security_protocol", "patience_s")} == {
        "input": "a",
        "output": "c",
        "group": "g",
        "security_protocol": "SASL_SSL",
        "patience_s": 300,
    }
    assert (kafka["sasl_username"], kafka["sasl_password"]) == ("**********", "**********")
    assert b"canary" not in done.stderr + done.stdout


def test_check_prints_no_argument_of_a_program_of_the_environment(tmp_path: Path) -> None:
    path = policy_file(tmp_path)
    variables = {
        "SHOAL_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "SHOAL_KAFKA__SASL_MECHANISM": "OAUTHBEARER",
        "SHOAL_KAFKA__SASL_OAUTH_COMMAND": '["/bin/token", "canary"]',
    }
    done = run_command("check", path, environment=variables)
    assert done.returncode == 0
    assert json.loads(done.stdout)["kafka"]["sasl_oauth_command"] == ["/bin/token", "(1 argument)"]
    assert b"canary" not in done.stderr + done.stdout


def test_check_misses_no_input_and_output_beside_topics(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    topics = [{"input": "a", "output": "a.k"}, {"input": "b", "output": "b.k"}]
    path.write_text(json.dumps(POLICY | {"kafka": {"topics": topics}}))
    done = run_command("check", str(path))
    assert done.returncode == 0
    assert json.loads(done.stdout)["kafka"]["topics"] == topics
    warned = [name for name in ("bootstrap_servers", "input", "output", "group") if f"kafka.{name}: " in str(done)]
    assert warned == ["bootstrap_servers", "group"]


def test_check_reads_the_files_that_the_policy_names(tmp_path: Path) -> None:
    path, text = tmp_path / "policy.yaml", tmp_path / "ca.pem"
    kafka = {"input": "a", "output": "b", "security_protocol": "SSL", "ssl_cafile": str(text)}
    path.write_text(json.dumps(POLICY | {"kafka": kafka}, indent=1))
    done = run_command("check", str(path))
    assert done.returncode == 0
    assert b"kafka.ssl_cafile: the file cannot be read: No such file or directory; shoal run needs it" in done.stderr
    text.write_text("canary")
    done = run_command("check", str(path))
    line = path.read_text().splitlines().index(f'  "ssl_cafile": {json.dumps(str(text))}') + 1
    assert (done.returncode, done.stdout) == (2, b"")
    words = f"{path}: 1 fault\n  line {line}: kafka.ssl_cafile: the file holds no certificate in PEM"
    assert words in done.stderr.decode()
    named = {"SHOAL_KAFKA__SSL_CAFILE": str(text)}
    assert b"SHOAL_KAFKA__SSL_CAFILE: the file" in run_command("check", str(path), environment=named).stderr


def test_check_refuses_a_metadata_key_of_the_environment_that_is_none(tmp_path: Path) -> None:
    path = policy_file(tmp_path, kafka={"input": "a", "output": "b"})
    done = run_command("check", path, environment={"SHOAL_KAFKA__METADATA_KEY": "canary"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"  SHOAL_KAFKA__METADATA_KEY: word 1 is no key: 32 random bytes as hex or base64" in done.stderr
    assert b"canary" not in done.stderr


def test_check_warns_of_certificates_that_expired_and_of_secrets_that_others_can_read(tmp_path: Path) -> None:
    authority, path, token = Authority(tmp_path), tmp_path / "policy.yaml", tmp_path / "token"
    certificate, key = authority.issue("old", valid=dt.timedelta(hours=-1))
    token.write_text("0123456789abcdef")
    kafka = {"input": "a", "output": "b", "security_protocol": "SSL", "ssl_cafile": str(certificate)}
    path.write_text(json.dumps(POLICY | {"kafka": kafka}))
    files = {
        "SHOAL_KAFKA__SSL_CERTFILE": str(certificate),
        "SHOAL_KAFKA__SSL_KEYFILE": str(key),
        "SHOAL_HTTP_CERTFILE": str(certificate),
        "SHOAL_HTTP_KEYFILE": str(key),
        "SHOAL_HTTP_TOKEN_FILE": str(token),
    }
    for mode in (0o640, 0o644):
        key.chmod(mode)
        token.chmod(mode)
        done = run_command("check", str(path), environment=files)
        said = done.stderr.decode()
        assert done.returncode == 0
        for setting in ("kafka.ssl_cafile", "kafka.ssl_certfile", "--http-certfile (SHOAL_HTTP_CERTFILE)"):
            assert f"{setting}: has expired on " in said
        for setting in (
            "kafka.ssl_keyfile",
            "--http-keyfile (SHOAL_HTTP_KEYFILE)",
            "--http-token-file (SHOAL_HTTP_TOKEN_FILE)",
        ):
            assert (f"{setting}: other users of this machine can read or change a secret" in said) == (mode == 0o644)
        assert "0123456789abcdef" not in said
    token.unlink()
    said = run_command("check", str(path), environment=files).stderr.decode()
    assert (
        "--http-token-file (SHOAL_HTTP_TOKEN_FILE): the file cannot be read: No such file or directory; shoal" in said
    )


@pytest.mark.parametrize("command", ["run", "progress"])
def test_the_service_reads_the_files_before_it_connects(command: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    kafka = {"input": "a", "output": "b", "group": "g", "bootstrap_servers": "127.0.0.1:1", "security_protocol": "SSL"}
    path.write_text(json.dumps(POLICY | {"kafka": kafka | {"ssl_cafile": "absent.pem"}}, indent=1))
    line = path.read_text().splitlines().index('  "ssl_cafile": "absent.pem"') + 1
    done = run_command(command, str(path), environment={"SHOAL_KAFKA__METADATA_KEY_FILE": "absent.key"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [
        f"shoal: {path}: 2 faults",
        "  SHOAL_KAFKA__METADATA_KEY_FILE: the file cannot be read: No such file or directory",
        f"  line {line}: kafka.ssl_cafile: the file cannot be read: No such file or directory",
    ]


def test_check_warns_of_a_fractional_step_of_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    for step, warnings in ((0.5, 1), (2, 0), (0, 0)):
        age = {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "resolution": step}
        path.write_text(json.dumps(POLICY | {"attributes": {"age": age}, "subject": "every_record"}))
        done = run_command("check", str(path))
        assert done.returncode == 0
        assert done.stderr.count(b"the resolution is a fraction") == warnings


def test_check_tells_all_faults_and_exits_with_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("attributes:\n  a: {role: nobody}\nprivacy: {k: 1}\n")
    done = run_command("check", str(path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"line 2: attributes.a.role" in done.stderr
    assert b"line 3: privacy.k" in done.stderr
    assert b"Traceback" not in done.stderr


def test_check_tells_that_progress_under_a_policy_would_not_fit_beside_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text(json.dumps(POLICY | {"stream": {"delta": 25_000}, "kafka": {"input": "a", "output": "b"}}))
    done = run_command("check", str(path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stream.delta: 25000 does not fit into the group's metadata; at most 19590\n" in done.stderr
    path.write_text(json.dumps(POLICY | {"stream": {"delta": 25_000}}))
    assert run_command("check", str(path)).returncode == 0, "files have no such limit"


@pytest.mark.parametrize("target", ["csv", "jsonl"])
@pytest.mark.parametrize("source", ["csv", "jsonl"])
def test_pipe_and_verify_agree(policy: str, visits: Path, tmp_path: Path, source: str, target: str) -> None:
    original = visits
    if source == "jsonl":
        original = tmp_path / "visits.jsonl"
        original.write_text("".join(json.dumps(record) + "\n" for record in records(200)))
    out, evidence, summary = tmp_path / f"out.{target}", tmp_path / "evidence.jsonl", tmp_path / "summary.json"
    done = run_command(
        "pipe", policy, "-i", str(original), "-o", str(out), "--evidence", str(evidence), "--summary", str(summary)
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    told = json.loads(summary.read_text())
    assert told["records_in"] == told["released"] == 200
    assert told["held"] == 0
    assert " ".join(sorted(told)) == (
        "clipped clocks cluster_size clusters delay displacement elapsed_s excess_span held information_loss loss "
        "mae mean_loss mse policy quarantined records_in records_per_s released share sse sst subjects suppressed "
        "widths"
    )
    assert set(told["widths"]) == {"age", "income"}
    judged = run_command(
        *("verify", policy, "--original", str(original), "--released", str(out), "--evidence", str(evidence)),
        *("--summary", str(summary), "--json", str(tmp_path / "verdict.json")),
    )
    assert judged.returncode == 0, judged.stdout
    assert json.loads((tmp_path / "verdict.json").read_text())


def test_what_a_stream_learned_is_accepted_by_the_judge(visits: Path, tmp_path: Path) -> None:
    attributes = POLICY["attributes"] | {  # type: ignore[operator] # a dict it is
        "age": {"role": "quasi_identifier", "integer": True},
        "income": {"role": "quasi_identifier", "resolution": 0.5},
    }
    path, out, evidence, summary = (tmp_path / name for name in ("p.yaml", "out.csv", "evidence.jsonl", "summary.json"))
    path.write_text(json.dumps(POLICY | {"attributes": attributes, "steering": {"position": {"target_span": 3}}}))
    side = ("--evidence", str(evidence), "--summary", str(summary))
    done = run_command("pipe", str(path), "-i", str(visits), "-o", str(out), *side)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    told = json.loads(summary.read_text())
    assert told["released"] == 200
    assert told["position_weight"] > 0
    assert set(told["widths"]) == {"age", "income"}
    verdict = tmp_path / "verdict.json"
    files = ("--original", str(visits), "--released", str(out), "--json", str(verdict))
    judged = run_command("verify", str(path), *files, *side)
    assert judged.returncode == 0, judged.stdout
    assert "position_weight and widths in the summary" in json.loads(verdict.read_text())["not_examined"]


@pytest.mark.parametrize(
    ("which", "how"),
    [
        *((name, "by its name") for name in ("policy", "original", "released", "evidence", "summary", "quarantine")),
        ("original", "by a link"),
        ("original", "by a second name"),
    ],
)
def test_the_verdict_is_never_written_over_what_is_judged(policy: str, tmp_path: Path, which: str, how: str) -> None:
    files = {"policy": policy}
    for name in ("original.jsonl", "released.jsonl", "evidence.jsonl", "summary.json", "quarantine.jsonl"):
        files[name.split(".")[0]] = str(tmp_path / name)
        (tmp_path / name).write_text("{}\n")
    before = Path(files[which]).read_bytes()
    target = files[which] if how == "by its name" else str(tmp_path / "verdict.json")
    if how == "by a link":
        Path(target).symlink_to(files[which])
    elif how == "by a second name":
        Path(target).hardlink_to(files[which])
    named = [text for name in list(files)[1:] for text in (f"--{name}", files[name])]
    done = run_command("verify", policy, *named, "--json", target)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"named twice" in done.stderr
    assert Path(files[which]).read_bytes() == Path(target).read_bytes() == before


def test_two_outputs_do_not_share_standard_output(policy: str) -> None:
    done = run_command("pipe", policy, "--format", "jsonl", "--summary", "-", stdin=b"{}\n")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard output: named twice" in done.stderr


def test_a_pipe_between_pipes(policy: str) -> None:
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records(50))
    done = run_command("pipe", policy, "--format", "jsonl", stdin=lines)
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 50
    assert list(rows[0]) == ["age", "income", "ill"]
    assert {row["ill"] for row in rows} == {f"i{i}" for i in range(50)}
    assert done.stderr.count(b"\n") == 1, "one line on standard error"
    assert done.stderr.startswith(b"shoal: 50 in, 50 out, 0 suppressed, 0 refused, mean loss ")
    assert b"next:" not in done.stderr


def test_pipe_ends_with_the_command_that_judges_its_release(policy: str, visits: Path, tmp_path: Path) -> None:
    out, evidence = tmp_path / "my out.csv", tmp_path / "evidence"
    done = run_command("pipe", policy, "-i", str(visits), "-o", str(out), "--evidence", str(evidence))
    assert done.returncode == 0
    text = done.stderr.decode()
    assert text.startswith("shoal: 200 in, 200 out, 0 suppressed, 0 refused, mean loss ")
    following = shlex.split(text.partition("; next: ")[2])
    assert following[0] == "shoal"
    assert run_command(*following[1:]).returncode == 0


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_a_release_without_evidence_cannot_be_verified_and_the_last_line_says_so(
    command: str, policy: str, visits: Path, tmp_path: Path
) -> None:
    done = run_command(command, policy, "-i", str(visits), "-o", str(tmp_path / "out.csv"))
    assert done.returncode == 0
    assert done.stderr.decode().endswith(
        "; next: to get a release whose clusters can be verified, repeat the run with --evidence FILE, keep only the "
        "new release and withdraw this one\n"
    )


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_names_that_begin_with_a_dash_are_no_options_of_the_next_command(command: str, tmp_path: Path) -> None:
    (tmp_path / "-p.yaml").write_text(json.dumps(POLICY))
    rows = ["who,age,income,ill", *(f"p{i},{i},{i},x" for i in range(30))]
    (tmp_path / "-in.csv").write_text("\n".join(rows) + "\n")
    words = ["--input=-in.csv", "--output=-out.csv", "--evidence=-e.jsonl", "--", "-p.yaml"]
    done = run_command(command, *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    following = shlex.split(done.stderr.decode().partition("; next: ")[2])
    assert following[:5] == ["shoal", "verify", "./-p.yaml", "--original=-in.csv", "--released=-out.csv"]
    assert run_command(*following[1:], folder=tmp_path).returncode == 0


@pytest.mark.parametrize("has_stream", [True, False])
def test_batch_ends_with_the_command_that_judges_its_release(visits: Path, tmp_path: Path, *, has_stream: bool) -> None:
    path, out = tmp_path / "policy.json", tmp_path / "out.csv"
    path.write_text(json.dumps({name: part for name, part in POLICY.items() if has_stream or name != "stream"}))
    words = ["-i", str(visits), "-o", str(out), "--evidence", str(tmp_path / "evidence")]
    done = run_command("batch", str(path), *words, "--log", "json")
    assert done.returncode == 0
    (told,) = map(json.loads, done.stderr.splitlines())
    assert (told["event"], told["records_in"], told["released"], told["refused"]) == ("finished", 200, 200, 0)
    assert 0 < told["information_loss"] < 100
    assert run_command(*shlex.split(told["next"])[1:]).returncode == 0


def test_pipe_tells_what_it_refused_by_reason_and_field(policy: str, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    rows = [f"p{i},{'' if i % 5 == 0 else 40},{'canary' if i % 25 == 1 else 9},x" for i in range(100)]
    source.write_text("\n".join(["who,age,income,ill", *rows, "1,2"]) + "\n")
    done = run_command("pipe", policy, "-i", str(source), "-o", str(tmp_path / "out.csv"))
    assert done.returncode == 0
    text = done.stderr.decode()
    kinds = [
        "20 of 101 invalid: age: empty",
        "4 of 101 invalid: income: not a finite number",
        "1 of 101 invalid: another number of cells than the header",
    ]
    assert f"101 in, 76 out, 0 suppressed, 25 refused ({'; '.join(kinds)})" in text
    assert text.count("records refused") == 3
    assert "canary" not in text


def test_one_refused_record_in_a_hundred_is_not_logged(policy: str) -> None:
    lines = [json.dumps(record) for record in records(99)]
    done = run_command("pipe", policy, "--format", "jsonl", stdin="\n".join(["{", *lines]).encode())
    assert done.returncode == 0
    assert b"(1 of 100 undecodable: not JSON)" in done.stderr
    assert b"records refused" not in done.stderr
    done = run_command("pipe", policy, "--format", "jsonl", stdin="\n".join(["{", "{", *lines]).encode())
    assert b"records refused" in done.stderr


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_empty_release_of_records_is_exit_code_1(policy: str, tmp_path: Path, style: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    words = ["pipe", policy, "-i", str(source), "-o", str(out), "--log", style]
    source.write_text("".join(json.dumps(record | {"age": None}) + "\n" for record in records(40)))
    done = run_command(*words)
    assert (done.returncode, out.read_bytes()) == (1, b"")
    assert b"40 of 40 invalid: age: null" in done.stderr
    assert b"nothing was released" in done.stderr
    last = done.stderr.splitlines()[-1].decode()
    assert last.startswith("shoal: 40 in, 0 out, 0 suppressed, 40 refused (") or style == "json"
    assert "next" in last
    assert "age: fill the values in, remove the records, or give the field another role" in last
    source.write_text("".join(json.dumps(record | {"who": "one"}) + "\n" for record in records(40)))
    done = run_command(*words)
    assert (done.returncode, out.read_bytes()) == (1, b"")
    assert b"nothing was released" in done.stderr
    assert b"no cluster satisfied the section privacy: give more records" in done.stderr.splitlines()[-1]
    assert b"privacy.l" not in done.stderr
    source.write_text("")
    done = run_command(*words)
    assert done.returncode == 0, "there was nothing to release"
    assert b"nothing was released" not in done.stderr


def test_bad_records_are_counted_and_the_good_ones_go_on(policy: str, tmp_path: Path) -> None:
    lines = [json.dumps(record).encode() for record in records(30)]
    lines[3] = b"{"
    lines[7] = json.dumps({**records(8)[7], "age": "canary-77"}).encode()
    lines[9] = json.dumps({**records(10)[9], "age": 200}).encode()
    summary = tmp_path / "summary.json"
    done = run_command("pipe", policy, "--format", "jsonl", "--summary", str(summary), stdin=b"\n".join(lines))
    told = json.loads(summary.read_text())
    assert done.returncode == 0
    assert told["quarantined"] == {"undecodable": 1, "invalid": 1}
    assert (told["records_in"], told["released"], told["clipped"]) == (30, 28, 1)
    assert b"canary" not in done.stderr + done.stdout


def test_fewer_than_k_people_are_suppressed(policy: str, tmp_path: Path) -> None:
    lines = b"".join(json.dumps({**record, "who": "same"}).encode() + b"\n" for record in records(30))
    summary = tmp_path / "summary.json"
    done = run_command("pipe", policy, "--format", "jsonl", "--summary", str(summary), stdin=lines)
    told = json.loads(summary.read_text())
    assert (done.returncode, done.stdout) == (1, b"")
    assert (told["released"], told["suppressed"], told["mse"]) == (0, {"suppressed": 30}, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-i", "absent.csv", "-o", "out.csv"], b"absent.csv: cannot be read"),
        (["-i", "visits.csv", "-o", "no/such/folder/out.csv"], b"cannot be written"),
        (["-i", "visits.csv", "-o", "out.parquet"], b"use shoal batch"),
        (["-i", "visits.csv", "-o", "out.txt"], b"--format"),
        (["-i", "visits.csv"], b"--format"),
        (["-i", "wrong.csv", "-o", "out.csv"], b"line 1"),
    ],
)
def test_files_that_cannot_be_used_leave_nothing_behind(
    policy: str, visits: Path, tmp_path: Path, arguments: list[str], words: bytes
) -> None:
    (tmp_path / "wrong.csv").write_text("who,age\n1,2\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    full = [str(tmp_path / word) if "." in word and not word.startswith("-") else word for word in arguments]
    done = run_command("pipe", policy, *full)
    assert done.returncode == 2
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert visits.exists()


def test_an_existing_output_survives_a_failed_run(policy: str, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("precious\n")
    assert run_command("pipe", policy, "-i", str(tmp_path / "absent.csv"), "-o", str(out)).returncode == 2
    assert out.read_text() == "precious\n"


def test_pipe_needs_a_stream_section(tmp_path: Path, visits: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(json.dumps({key: value for key, value in POLICY.items() if key != "stream"}))
    done = run_command("pipe", str(path), "-i", str(visits), "-o", str(tmp_path / "o.csv"))
    assert done.returncode == 2
    assert b"stream.delta" in done.stderr


def test_run_says_what_is_missing(policy: str) -> None:
    done = run_command("run", policy)
    assert done.returncode == 2
    assert b"kafka.bootstrap_servers" in done.stderr
    assert b"kafka.group" in done.stderr


def test_tune_says_that_it_is_not_available(policy: str) -> None:
    done = run_command("tune", policy, "-i", "x.csv", "-o", "y.csv")
    assert done.returncode == 2
    assert b"not available in this version" in done.stderr
    assert ["tune", "Not", "available", "in", "this", "version."] in [
        line.split() for line in run_command("--help").stdout.decode().splitlines()
    ]


def test_an_output_without_a_name_needs_a_format(policy: str) -> None:
    done = run_command("pipe", policy, "-i", "-")
    assert done.stderr == b"shoal: standard input: has no suffix; add --format csv or --format jsonl\n"
    done = run_command("pipe", policy, "-i", "visits.csv")
    assert done.returncode == 2
    assert done.stderr == (b"shoal: standard output (no -o FILE): has no suffix; add --format csv or --format jsonl\n")


def test_wrong_words_on_the_command_line_exit_with_2(policy: str) -> None:
    assert run_command("fly", policy).returncode == 2
    assert run_command("chek", policy).stderr.endswith(b"shoal: error: unknown command; did you mean check?\n")
    assert run_command("tun", policy).stderr.endswith(b"unknown command; did you mean run?\n")
    assert run_command("run", policy, "--from", "somewhere").returncode == 2
    assert run_command().returncode == 2
    assert b"unrecognized arguments: --skip" in run_command("run", policy, "--skip").stderr


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
    command: str, style: str, count: int, policy: str
) -> None:
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records(count))
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [command, policy, "--log", style, *(["--format", "jsonl"] if command == "pipe" else [])]
    done = subprocess.run([*SHOAL, *arguments], input=lines, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    sentence = "standard output: its reader has closed the pipe; not everything was written"
    (said,) = [line for line in done.stderr.decode().splitlines() if "compiling" not in line]
    assert done.returncode == 141
    if style == "json":
        assert (json.loads(said)["code"], json.loads(said)["reason"]) == ("output_closed", sentence)
    else:
        assert said == f"shoal: {sentence}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["-i", "visits.csv", "-o", "out.csv", "--output-format", "jsonl"],
            b"out.csv: its suffix contradicts --outp",
        ),
        (["-i", "visits.csv", "-o", "out.csv", "--format", "jsonl"], b"visits.csv: its suffix contradicts --format js"),
        (["-i", "visits.csv", "-o", "-", "--format", "jsonl", "--output-format", "csv"], b"contradicts --format jsonl"),
    ],
)
@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_a_format_that_contradicts_a_suffix_is_refused(
    command: str, policy: str, visits: Path, tmp_path: Path, arguments: list[str], words: bytes
) -> None:
    full = [str(tmp_path / word) if word.endswith(".csv") else word for word in arguments]
    done = run_command(command, policy, *full)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr
    assert b"; leave out the option, or rename the file" in done.stderr
    assert not (tmp_path / "out.csv").exists()
    assert visits.exists()


@pytest.mark.parametrize(
    "named",
    [
        ["-o", "out.csv", "--evidence", "out.csv"],
        ["-o", "out.csv", "--summary", "out.csv"],
        ["-o", "visits.csv"],
        ["-o", "out.csv", "--evidence", "visits.csv"],
        ["-o", "policy.yaml", "--format", "csv"],
        ["-o", "out.csv", "--quarantine", "./out.csv"],
    ],
)
def test_no_file_is_written_over_another(policy: str, visits: Path, tmp_path: Path, named: list[str]) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    full = [str(tmp_path / word) if "." in word else word for word in named]
    done = run_command("pipe", policy, "-i", str(visits), *full)
    assert done.returncode == 2
    assert b"named twice" in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "named", [["-o", "/dev/full", "--format", "csv"], ["-o", "."], ["-o", "out.csv", "--summary", "/dev/full"]]
)
def test_places_that_take_nothing_are_said_in_one_line(
    policy: str, visits: Path, tmp_path: Path, named: list[str]
) -> None:
    full = [str(tmp_path / word) if word in {".", "out.csv"} else word for word in named]
    done = run_command("pipe", policy, "-i", str(visits), *full)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_evidence_is_its_owners_alone_and_rights_are_kept(policy: str, visits: Path, tmp_path: Path) -> None:
    out, evidence = tmp_path / "out.csv", tmp_path / "evidence.jsonl"
    out.touch(0o600)
    assert run_command("pipe", policy, "-i", str(visits), "-o", str(out), "--evidence", str(evidence)).returncode == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert evidence.stat().st_mode & 0o777 == 0o600


def test_sigterm_takes_drafts_away(policy: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with subprocess.Popen(
        [*SHOAL, "pipe", policy, "--format", "jsonl", "-o", str(out)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.jsonl.*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 143
    assert not list(tmp_path.glob(".out.jsonl.*"))
    assert not out.exists()


def test_references_balance_the_accounts_of_a_file(policy: str, tmp_path: Path) -> None:
    original = tmp_path / "visits.jsonl"
    lines = [json.dumps(record) for record in records(60)]
    lines[4] = "{"
    original.write_text("\n".join(lines) + "\n")
    names = {name: str(tmp_path / f"{name}.jsonl") for name in ("out", "evidence", "quarantine")}
    done = run_command(
        *("pipe", policy, "-i", str(original), "-o", names["out"]),
        *("--evidence", names["evidence"], "--quarantine", names["quarantine"]),
    )
    assert done.returncode == 0
    told = json.loads(Path(names["quarantine"]).read_text())
    assert told == {"topic": "visits.jsonl", "partition": 0, "offset": 4, "reason": "undecodable"}
    judged = run_command(
        *("verify", policy, "--original", str(original), "--released", names["out"]),
        *("--evidence", names["evidence"], "--quarantine", names["quarantine"]),
    )
    assert judged.returncode == 0, judged.stdout


def test_each_end_has_its_own_format_and_the_judge_is_told_both(policy: str, visits: Path, tmp_path: Path) -> None:
    original, out, evidence = tmp_path / "visits.txt", tmp_path / "out.dat", tmp_path / "evidence.jsonl"
    original.write_bytes(visits.read_bytes())
    forms = ("--format", "csv", "--output-format", "jsonl")
    done = run_command("pipe", policy, "-i", str(original), "-o", str(out), "--evidence", str(evidence), *forms)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert set(json.loads(out.read_bytes().splitlines()[0])) == {"age", "income", "ill"}
    files = ("--original", str(original), "--released", str(out), "--evidence", str(evidence))
    assert run_command("verify", policy, *files, *forms).returncode == 0
    refused = run_command("verify", policy, *files)
    assert refused.returncode == 2
    assert b"or give --format" in refused.stderr


def test_the_dialect_of_the_policy_is_that_of_both_ends(visits: Path, tmp_path: Path) -> None:
    path, out, evidence = tmp_path / "policy.yaml", tmp_path / "out.csv", tmp_path / "evidence.jsonl"
    path.write_text(json.dumps(POLICY | {"csv": {"delimiter": ";", "decimal": ",", "encoding": "cp1252"}}))
    source = tmp_path / "german.csv"
    text = visits.read_text().replace(".", "!").replace(",", ";").replace("i1\n", "Grippe ä\n")
    source.write_bytes(text.encode("cp1252"))
    done = run_command("pipe", str(path), "-i", str(source), "-o", str(out), "--evidence", str(evidence))
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader(io.StringIO(out.read_text(encoding="cp1252")), delimiter=";"))
    assert rows[0] == ["age", "income", "ill"]
    assert any(row[1].endswith(",5") for row in rows)
    assert any(row[2] == "Grippe ä" for row in rows)
    files = ("--original", str(source), "--released", str(out), "--evidence", str(evidence))
    judged = run_command("verify", str(path), *files)
    assert judged.returncode == 0, judged.stdout
