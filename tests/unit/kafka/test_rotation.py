"""Files with credentials that were replaced since the clients of a consumer loop were built."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError
from shoal.errors import BrokerError, BrokerUnavailableError, InputError, ShoalError
from shoal.kafka.client import TlsRefusedError
from shoal.kafka.credentials import CredentialFileError, TokenProvider, UsedCredentials
from shoal.kafka.retries import BrokerLiveness
from shoal.observability import Health
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

FIELDS = ["ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password_file", "sasl_username_file", "sasl_password_file"]
REPLACED = "files with credentials have changed: connecting with the new ones"


def settings(**given: Any) -> KafkaSection:
    return KafkaSection.model_validate(given, strict=False)


def has_changed(credentials: UsedCredentials) -> bool:
    try:
        credentials.renew()
    except BrokerUnavailableError:
        return True
    return False


@pytest.mark.parametrize("field", FIELDS)
def test_a_file_that_is_written_again_or_removed_has_changed(tmp_path: Path, field: str) -> None:
    path = tmp_path / "file"
    path.write_text("first")
    given = settings(**{field: str(path)})
    credentials = UsedCredentials(given)
    assert not has_changed(credentials)
    path.write_text("another")
    assert has_changed(credentials)
    credentials = UsedCredentials(given)
    assert not has_changed(credentials)
    path.unlink()
    assert has_changed(credentials)


def test_a_file_that_is_made_later_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    credentials = UsedCredentials(settings(sasl_password_file=str(path)))
    assert not has_changed(credentials)
    path.write_text("now")
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


def test_a_file_with_a_token_is_read_for_each_connection_and_needs_no_new_client(tmp_path: Path) -> None:
    path = tmp_path / "token"
    credentials = UsedCredentials(settings(sasl_oauth_token_file=str(path)))
    path.write_text("renewed")
    assert not has_changed(credentials)


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


async def test_a_check_that_is_answered_goes_on_when_a_file_has_changed(tmp_path: Path) -> None:
    answered = 0

    async def answer() -> None:
        nonlocal answered
        answered += 1

    path, liveness = tmp_path / "password", BrokerLiveness(Health(), 300.0)
    credentials = UsedCredentials(settings(sasl_password_file=str(path)))
    path.write_text("second")
    checking = asyncio.create_task(liveness.check_broker(answer, credentials, 0.001))
    await asyncio.wait({checking}, timeout=0.05)
    assert not checking.done()
    assert answered > 1
    checking.cancel()


def is_retried(liveness: BrokerLiveness, error: ShoalError) -> bool:
    context = SimpleNamespace(bootstrap_servers="a:1")
    try:
        liveness.raise_if_fatal(error, cast("Any", context), asyncio.Event())
    except ShoalError:
        return False
    return True


@pytest.mark.parametrize("kind", [CredentialFileError, TlsRefusedError])
def test_faults_of_a_rotation_are_final_at_the_first_start_and_retried_later(kind: type[ShoalError]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    assert not is_retried(liveness, kind("the file is empty"))
    liveness.note_answer()
    assert is_retried(liveness, kind("the file is empty"))


def test_other_faults_stay_final_after_the_first_start() -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    liveness.note_answer()
    assert not is_retried(liveness, BrokerError("the broker refused the credentials"))
    assert not is_retried(liveness, InputError("the progress"))


def test_faults_of_a_rotation_are_final_when_the_patience_is_over() -> None:
    liveness = BrokerLiveness(Health(), 0.0)
    liveness.note_answer()
    context = SimpleNamespace(bootstrap_servers="a:1")
    with pytest.raises(BrokerError, match=r"giving up; last: kafka.sasl_password_file: the file is empty") as caught:
        liveness.raise_if_fatal(
            CredentialFileError("kafka.sasl_password_file: the file is empty"), cast("Any", context), asyncio.Event()
        )
    assert caught.value.exit_code == 3
