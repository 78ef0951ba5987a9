"""Credentials: secrets from files, and OAuth tokens from files and programs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from shoal.errors import ConfigError
from shoal.kafka.credentials import TokenProvider, check_files, forget_token, secret_of
from shoal.policy import KafkaSection

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


@pytest.mark.parametrize("content", ["hunter2", "hunter2\n", "hunter2\r\n"])
def test_one_line_end_does_not_belong_to_a_secret(tmp_path: Path, content: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content.encode())
    assert secret_of(settings(sasl_password_file=str(path)), "sasl_password") == "hunter2"


def test_blanks_belong_to_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b" hunter2 \n\n")
    assert secret_of(settings(sasl_password_file=str(path)), "sasl_password") == " hunter2 \n"


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    given = settings(ssl_password_file=str(path))
    for secret in ("first", "second"):
        path.write_text(secret)
        assert secret_of(given, "ssl_password") == secret


def test_there_may_be_no_secret() -> None:
    assert secret_of(settings(), "sasl_username") is None


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (b"\n", "is empty"), (b"\xff", "not UTF-8")])
def test_a_bad_file_is_named_and_not_quoted(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"kafka.sasl_password_file: the file .*{words}"):
        secret_of(settings(sasl_password_file=str(path)), "sasl_password")


@pytest.mark.parametrize("name", ["sasl_username", "sasl_password", "ssl_password"])
def test_a_pipe_is_refused_and_not_read(tmp_path: Path, name: str) -> None:
    """A second client would find it empty, or wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    given = settings(**{f"{name}_file": str(tmp_path / "pipe")})
    with pytest.raises(ConfigError, match=f"kafka.{name}_file: is a pipe, which can be read only once; give a file"):
        secret_of(given, name)
    assert [(fault.field, fault.is_unread) for fault in check_files(given)] == [(f"{name}_file", False)]


async def test_a_pipe_with_a_token_is_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    given = settings(sasl_oauth_token_file=str(tmp_path / "pipe"))
    with pytest.raises(KafkaConnectionError, match="is a pipe"):
        await TokenProvider(given).token()
    assert [fault.field for fault in check_files(given)] == ["sasl_oauth_token_file"]


async def test_a_token_file_is_read_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    provider = TokenProvider(settings(sasl_oauth_token_file=str(path)))
    for token in ("a.b.c", "d.e.f"):
        path.write_text(f"{token}\n")
        assert await provider.token() == token


async def test_a_token_of_the_environment_stays_the_same() -> None:
    provider = TokenProvider(settings(sasl_oauth_token="a.b.c"))  # noqa: S106 - of a test
    assert [await provider.token() for _ in range(2)] == ["a.b.c", "a.b.c"]


async def test_a_program_runs_again_when_its_token_is_old(tmp_path: Path) -> None:
    long, short = token_until(3600), token_until(0)
    command = printing(tmp_path, f"print({short!r} if count == 1 else {long!r})")
    provider = TokenProvider(settings(sasl_oauth_command=command))
    assert [await provider.token() for _ in range(4)] == [short, long, long, long]
    assert (tmp_path / "runs").read_text() == "xx"


async def test_a_program_runs_for_each_connection_if_its_token_tells_no_lifetime(tmp_path: Path) -> None:
    provider = TokenProvider(settings(sasl_oauth_command=printing(tmp_path, "print(f'opaque-{count}')")))
    assert [await provider.token() for _ in range(2)] == ["opaque-1", "opaque-2"]


async def test_all_clients_share_the_token_of_a_program(tmp_path: Path) -> None:
    given = settings(sasl_oauth_command=printing(tmp_path, f"print({token_until(3600)!r})"))
    tokens = await asyncio.gather(*(TokenProvider(given).token() for _ in range(20)))
    assert len(set(tokens)) == 1
    assert await TokenProvider(given).token() == tokens[0]
    assert (tmp_path / "runs").read_text() == "x"


async def test_connections_that_wait_for_a_program_share_a_token_that_tells_no_lifetime(tmp_path: Path) -> None:
    given = settings(sasl_oauth_command=printing(tmp_path, "print(f'opaque-{count}')"))
    waiting = await asyncio.gather(*(TokenProvider(given).token() for _ in range(20)))
    assert set(waiting) == {"opaque-1"}
    assert await TokenProvider(given).token() == "opaque-2"


async def test_a_program_runs_again_when_its_token_was_forgotten(tmp_path: Path) -> None:
    first, second = token_until(3600), token_until(7200)
    given = settings(sasl_oauth_command=printing(tmp_path, f"print({first!r} if count == 1 else {second!r})"))
    assert await TokenProvider(given).token() == first
    forget_token(given)
    assert [await TokenProvider(given).token() for _ in range(2)] == [second, second]


async def test_two_programs_have_a_token_each(tmp_path: Path) -> None:
    command = printing(tmp_path, "import sys; print(f'{sys.argv[1]}-{count}')")
    given = [settings(sasl_oauth_command=[*command, name]) for name in ("a", "b")]
    assert [await TokenProvider(one).token() for one in given] == ["a-1", "b-2"]


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


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(KafkaConnectionError, match="the command cannot be started"):
        await TokenProvider(settings(sasl_oauth_command=[str(tmp_path / "none")])).token()


async def test_a_program_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.credentials.COMMAND_S", 0.2)
    with pytest.raises(KafkaConnectionError, match="the command did not end within 0 s"):
        await TokenProvider(settings(sasl_oauth_command=[sys.executable, "-c", "import time; time.sleep(60)"])).token()


def test_check_names_the_files_that_cannot_be_used(tmp_path: Path) -> None:
    empty, latin = tmp_path / "empty", tmp_path / "latin"
    empty.write_text("\n")
    latin.write_bytes(b"canary\xff")
    given = settings(
        sasl_username_file=str(empty), sasl_password_file=str(tmp_path / "none"), ssl_password_file=str(latin)
    )
    assert [(fault.field, fault.message) for fault in check_files(given)] == [
        ("sasl_username_file", "the file is empty"),
        ("sasl_password_file", "the file cannot be read: No such file or directory"),
        ("ssl_password_file", "the file is not UTF-8"),
    ]
