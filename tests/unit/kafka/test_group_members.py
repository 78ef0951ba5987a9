"""Before a drain: it waits for members that the broker will remove, and is refused beside members that stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import errors as kafka_errors
from shoal.errors import BrokerError, InputError
from shoal.kafka import consumer_loop
from shoal.kafka.consumer_loop import wait_until_no_members
from shoal.policy import KafkaSection
from structlog.testing import capture_logs

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(input="in", output="out", group="g", session_timeout_ms=6000, patience_s=60)
LOADING = 14
NOT_AUTHORIZED = 30


class Coordinator:
    """Answers of an admin client, one after the other; each is a number of members, a code, or an error."""

    def __init__(self, *answers: tuple[int, str, int] | Exception) -> None:
        self.answers = list(answers)

    async def describe_consumer_groups(self, groups: list[str]) -> list[Any]:
        assert groups == ["g"]
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        code, state, count = answer
        members = [(f"m{number}", "client", "/host", b"", b"") for number in range(count)]
        return [SimpleNamespace(groups=[(code, "g", state, "consumer", "sticky", members, 0)])]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time (s) of the module under test; it passes only while it sleeps."""
    now_s = [0.0]

    async def sleep(time_s: float) -> None:
        now_s[0] += time_s

    monkeypatch.setattr(consumer_loop, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(consumer_loop, "asyncio", SimpleNamespace(sleep=sleep))
    return now_s


async def wait(*answers: tuple[int, str, int] | Exception) -> None:
    await wait_until_no_members(cast("Any", Coordinator(*answers)), SETTINGS)


@pytest.mark.parametrize("state", ["Dead", "Empty"])
async def test_a_group_without_members_is_drained_at_once(clock: list[float], state: str) -> None:
    await wait((0, state, 0))
    assert clock == [0.0]


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
async def test_members_that_stay_are_refused_after_the_session_timeout(clock: list[float], state: str) -> None:
    refusal = r"^--drain: group g has 2 members: .*Stop all workers .*session timeout"
    with capture_logs() as lines, pytest.raises(InputError, match=refusal):
        await wait((0, state, 2))
    assert clock == [21.0]
    assert [line["at_most_s"] for line in lines] == [21.0, 11.0, 1.0]


async def test_one_member_is_not_called_members() -> None:
    with pytest.raises(InputError, match="group g has 1 member:"):
        await wait((0, "Stable", 1))


async def test_a_member_that_was_killed_is_waited_for(clock: list[float]) -> None:
    await wait((0, "Stable", 2), (0, "PreparingRebalance", 1), (0, "Empty", 0))
    assert clock == [1.0]


async def test_a_coordinator_that_loads_or_is_just_created_is_asked_again(clock: list[float]) -> None:
    await wait(kafka_errors.GroupCoordinatorNotAvailableError(), (LOADING, "", 0), (0, "Empty", 0))
    assert clock == [1.0]


async def test_a_coordinator_without_an_answer_does_not_mean_an_empty_group(clock: list[float]) -> None:
    silence = r"coordinator of group g did not say for 60 s .*Drain again"
    with capture_logs() as lines, pytest.raises(BrokerError, match=silence) as raised:
        await wait((LOADING, "", 0))
    assert clock == [60.0]
    assert not raised.value.retriable
    assert raised.value.exit_code == 3
    assert [line["event"] for line in lines] == ["--drain waits for the coordinator of the group"] * 6


async def test_a_missing_permission_is_raised_at_once(clock: list[float]) -> None:
    with pytest.raises(kafka_errors.GroupAuthorizationFailedError):
        await wait((NOT_AUTHORIZED, "", 0))
    assert clock == [0.0]
