"""Credentials: secrets, tokens and certificates, what is wrong with their files, and their rotation."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError
from shoal.errors import BrokerError, BrokerUnavailableError, ConfigError, InputError, ShoalError
from shoal.kafka import StartOptions, WorkerContext, check_files, open_secret_files
from shoal.kafka.client import consumer
from shoal.kafka.credentials import (
    TokenProvider,
    UsedCredentials,
    credential_fault,
    secret_of,
)
from shoal.kafka.metadata import NO_ENCRYPTION
from shoal.kafka.retries import BrokerLiveness
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Scale
from structlog.testing import capture_logs
from support.certificates import Authority
from support.scales import attribute, policy_with

pytestmark = pytest.mark.unit


def settings(**given: Any) -> KafkaSection:
    return KafkaSection.model_validate(given, strict=False)


def token_until(seconds: float) -> str:
    """A token that was issued now and expires in so many seconds."""
    claims = {"iat": time.time(), "exp": time.time() + seconds}
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{part}.x"


def printing(folder: Path, code: str) -> list[str]:
    """A command that runs this code, with `count`: how often it has run."""
    program = folder / "token.py"
    counter = f"import pathlib; runs = pathlib.Path({str(folder / 'runs')!r}); open(runs, 'a').write('x')\n"
    program.write_text(f"{counter}count = len(runs.read_text())\n{code}")
    return [sys.executable, str(program)]


def test_one_line_end_does_not_belong_to_a_secret_and_its_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    given = settings(sasl_password_file=str(path))
    for content, secret in ((b"hunter2", "hunter2"), (b"hunter3\r\n", "hunter3"), (b" hunter4 \n\n", " hunter4 \n")):
        path.write_bytes(content)
        assert secret_of(given, "sasl_password") == secret


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (b"\n", "is empty"), (b"\xff", "not UTF-8")])
def test_a_bad_file_is_named_and_not_quoted(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    given = settings(sasl_password_file=str(path))
    with pytest.raises(ConfigError, match=f"kafka.sasl_password_file: the file .*{words}"):
        secret_of(given, "sasl_password")
    (fault,) = check_files(given)
    assert (fault.field, words in fault.message, fault.is_unread) == ("sasl_password_file", True, content is None)


@pytest.mark.parametrize("name", ["sasl_password", "ssl_password", "sasl_oauth_token"])
def test_a_pipe_is_refused_and_not_read(tmp_path: Path, name: str) -> None:
    """A second client would find it empty, or wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    given = settings(**{f"{name}_file": str(tmp_path / "pipe")})
    with pytest.raises(ConfigError, match=f"kafka.{name}_file: is a pipe, which can be read only once; give a file"):
        secret_of(given, name)
    assert [(fault.field, fault.is_unread) for fault in check_files(given)] == [(f"{name}_file", False)]


async def test_a_token_file_is_read_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    provider = TokenProvider(settings(sasl_oauth_token_file=str(path)))
    for token in ("a.b.c", "d.e.f"):
        path.write_text(f"{token}\n")
        assert await provider.token() == token


async def test_a_program_runs_again_when_its_token_is_old(tmp_path: Path) -> None:
    long, short = token_until(3600), token_until(0)
    command = printing(tmp_path, f"print({short!r} if count == 1 else {long!r})")
    provider = TokenProvider(settings(sasl_oauth_command=command))
    assert [await provider.token() for _ in range(4)] == [short, long, long, long]
    assert (tmp_path / "runs").read_text() == "xx"


async def test_connections_that_wait_for_a_program_share_a_token_that_tells_no_lifetime(tmp_path: Path) -> None:
    given = settings(sasl_oauth_command=printing(tmp_path, "print(f'opaque-{count}')"))
    waiting = await asyncio.gather(*(TokenProvider(given).token() for _ in range(20)))
    assert set(waiting) == {"opaque-1"}
    assert await TokenProvider(given).token() == "opaque-2"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(7)", "ended with exit code 7"),
        ("print('canary two words')", "must print the token, and nothing else"),
        ("print()", "must print the token, and nothing else"),
    ],
)
async def test_a_program_that_prints_no_token_is_told(tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(KafkaConnectionError, match=words) as caught:
        await TokenProvider(settings(sasl_oauth_command=printing(tmp_path, code))).token()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/absent/program"], "the command cannot be started"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "the command did not end within 0 s"),
    ],
)
async def test_a_program_that_cannot_be_started_or_does_not_end_is_told(
    monkeypatch: pytest.MonkeyPatch, command: list[str], words: str
) -> None:
    monkeypatch.setattr("shoal.kafka.credentials.COMMAND_S", 0.2)
    with pytest.raises(KafkaConnectionError, match=words):
        await TokenProvider(settings(sasl_oauth_command=command)).token()


# ---------------------------------------------------------------- rotation


FIELDS = ["ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password_file", "sasl_password_file"]
REPLACED = "files with credentials have changed: connecting with the new ones"


def has_changed(credentials: UsedCredentials) -> bool:
    try:
        credentials.renew()
    except BrokerUnavailableError:
        return True
    return False


@pytest.mark.parametrize("field", FIELDS)
def test_a_file_that_is_made_written_again_or_removed_has_changed(tmp_path: Path, field: str) -> None:
    path = tmp_path / "file"
    given = settings(**{field: str(path)})
    for change in (lambda: path.write_text("first"), lambda: path.write_text("another"), path.unlink):
        credentials = UsedCredentials(given)
        assert not has_changed(credentials)
        change()
        assert has_changed(credentials)


def test_a_file_behind_a_link_that_names_another_one_has_changed(tmp_path: Path) -> None:
    """As Kubernetes renews a mounted Secret: size and time may be the same."""
    for name in ("old", "new"):
        (tmp_path / name).write_text("secret")
        os.utime(tmp_path / name, ns=(7, 7))
    link = tmp_path / "link"
    link.symlink_to("old")
    credentials = UsedCredentials(settings(ssl_keyfile=str(link)))
    assert not has_changed(credentials)
    link.unlink()
    link.symlink_to("new")
    assert has_changed(credentials)


async def test_a_program_prints_another_token_after_a_request_without_an_answer(tmp_path: Path) -> None:
    program = tmp_path / "token.py"
    program.write_text("import time; print('e30.eyJpYXQiOjAsImV4cCI6OTk5OTk5OTk5OX0.%d' % time.time_ns())")
    given = settings(sasl_oauth_command=[sys.executable, str(program)])
    first = await TokenProvider(given).token()
    assert await TokenProvider(given).token() == first
    assert not has_changed(UsedCredentials(given))
    assert await TokenProvider(given).token() != first


async def refuse() -> None:
    raise KafkaConnectionError


async def test_a_check_without_an_answer_ends_when_a_file_has_changed(tmp_path: Path) -> None:
    path, liveness = tmp_path / "password", BrokerLiveness(Health(), 300.0)
    path.write_text("first")
    credentials = UsedCredentials(settings(sasl_password_file=str(path)))
    checking = asyncio.create_task(liveness.check_broker(refuse, credentials, 0.001))
    done, _ = await asyncio.wait({checking}, timeout=0.05)
    assert not done
    path.write_text("second one")
    with pytest.raises(BrokerUnavailableError, match=REPLACED):
        await asyncio.wait_for(checking, 20)


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (credential_fault("the file is empty"), True),
        (BrokerError("the broker refused the credentials"), False),
        (InputError("the progress"), False),
    ],
)
def test_faults_of_a_rotation_alone_are_retried_after_the_first_start(error: ShoalError, *, is_retried: bool) -> None:
    liveness, context = BrokerLiveness(Health(), 300.0), cast("Any", SimpleNamespace(bootstrap_servers="a:1"))
    with pytest.raises(type(error)):
        liveness.raise_if_fatal(error, context, asyncio.Event())
    liveness.note_answer()
    with nullcontext() if is_retried else pytest.raises(type(error)):
        liveness.raise_if_fatal(error, context, asyncio.Event())


def test_faults_of_a_rotation_are_final_when_the_patience_is_over() -> None:
    liveness = BrokerLiveness(Health(), 0.0)
    liveness.note_answer()
    context = SimpleNamespace(bootstrap_servers="a:1")
    with pytest.raises(BrokerError, match=r"giving up; last: kafka.sasl_password_file: the file is empty") as caught:
        liveness.raise_if_fatal(
            credential_fault("kafka.sasl_password_file: the file is empty"), cast("Any", context), asyncio.Event()
        )
    assert caught.value.exit_code == 3


# ---------------------------------------------------------------- certificates


NO_CERTIFICATE = "the file holds no certificate in PEM"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    for name, password in (("one", None), ("two", None), ("secret", "hunter2")):
        authority.issue(name, password=password)
    (folder / "text").write_text("canary")
    (folder / "metadata").write_text("7f3c19d2a85be0461f9d2c7e4ab850361c6fe27d90b3485ad17e62c40f9b38a5")
    for name in ("text", "metadata"):
        (folder / name).chmod(0o600)
    return folder


def tls_settings(folder: Path, **given: str) -> KafkaSection:
    named = {name: value if name == "ssl_password" else str(folder / value) for name, value in given.items()}
    return KafkaSection.model_validate({"security_protocol": "SSL", "bootstrap_servers": "a:1"} | named, strict=False)


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, {}),
        ({"ssl_cafile": "one.pem", "ssl_certfile": "one.pem", "ssl_keyfile": "one.key"}, {}),
        ({"ssl_cafile": "text"}, {"ssl_cafile": NO_CERTIFICATE}),
        ({"ssl_cafile": "one.key"}, {"ssl_cafile": NO_CERTIFICATE}),
        ({"ssl_certfile": "one.key", "ssl_keyfile": "one.key"}, {"ssl_certfile": NO_CERTIFICATE}),
        ({"ssl_certfile": "one.pem", "ssl_keyfile": "one.pem"}, {"ssl_keyfile": "no private key in PEM"}),
        ({"ssl_certfile": "one.pem", "ssl_keyfile": "two.key"}, {"ssl_keyfile": "fits the certificate"}),
        ({"ssl_certfile": "one.pem"}, {"ssl_certfile": "no private key that can be read; give kafka.ssl_keyfile"}),
        ({"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key"}, {}),
        ({"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key", "ssl_password": "hunter2"}, {}),
        (
            {"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key", "ssl_password": "canary"},
            {"ssl_keyfile": "SHOAL_KAFKA__SSL_PASSWORD is missing or wrong"},
        ),
        (
            {"ssl_cafile": "absent", "ssl_certfile": ".", "ssl_keyfile": "text"},
            {"ssl_cafile": "cannot be read: No such file", "ssl_certfile": "cannot be read: Is a directory"},
        ),
        ({"metadata_key_file": "absent"}, {"metadata_key_file": "cannot be read: No such file"}),
        ({"metadata_key_file": "text"}, {"metadata_key_file": "32 random bytes"}),
        ({"metadata_key_file": "metadata"}, {}),
    ],
)
def test_what_is_wrong_with_a_file_is_told_by_field(files: Path, given: dict[str, str], faults: dict[str, str]) -> None:
    found = {fault.field: fault for fault in check_files(tls_settings(files, **given), has_secrets=False)}
    assert found.keys() == faults.keys()
    for field, words in faults.items():
        assert words in found[field].message
        assert "canary" not in found[field].message
        assert found[field].is_unread == ("cannot be read" in words)


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o440, False), (0o640, False), (0o644, True), (0o660, True), (0o604, True)]
)
def test_a_secret_that_others_can_read_or_change_is_found(files: Path, mode: int, is_open: bool) -> None:  # noqa: FBT001
    secret = files / "shared"
    secret.write_text("canary")
    secret.chmod(mode)
    fields = ("sasl_password_file", "ssl_password_file", "ssl_keyfile")
    given = tls_settings(files, ssl_cafile="one.pem", ssl_certfile="one.pem", **dict.fromkeys(fields, "shared"))
    assert open_secret_files(given) == (list(fields) if is_open else [])


def test_a_certificate_without_a_file_of_its_key_holds_the_key(files: Path) -> None:
    assert open_secret_files(tls_settings(files, ssl_certfile="one.pem")) == ["ssl_certfile"]
    assert open_secret_files(tls_settings(files, ssl_certfile="absent")) == []


def test_a_worker_warns_of_files_when_it_starts(files: Path) -> None:
    given = tls_settings(files, ssl_cafile="one.pem", ssl_certfile="one.pem", ssl_keyfile="one.key")
    context = WorkerContext(
        policy_with(attribute("city", Scale.NOMINAL), k=2, delta=6),
        given,
        Metrics(),
        Health(),
        StartOptions(),
        NO_ENCRYPTION,
    )
    (files / "one.key").chmod(0o644)
    with capture_logs() as logs:
        context.report_settings()
    assert [(line["event"], line["setting"]) for line in logs] == [
        ("other users of this machine can read or change a secret: chmod 640, or 600", "kafka.ssl_keyfile")
    ]


def test_a_pipe_is_not_read(files: Path) -> None:
    os.mkfifo(files / "pipe")
    assert list(check_files(tls_settings(files, ssl_cafile="pipe"))) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl_cafile": "absent"}, "kafka.ssl_cafile: the file cannot be read: No such file or directory"),
        ({"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key"}, "SHOAL_KAFKA__SSL_PASSWORD is missing or wrong"),
    ],
)
async def test_a_client_names_the_file_and_asks_for_no_password(files: Path, given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer(tls_settings(files, **given))
    assert words in str(caught.value)


async def test_two_programs_have_a_token_each(tmp_path: Path) -> None:
    command = printing(tmp_path, "import sys; print(f'{sys.argv[1]}-{count}')")
    given = [settings(sasl_oauth_command=[*command, name]) for name in ("a", "b")]
    assert [await TokenProvider(one).token() for one in given] == ["a-1", "b-2"]
