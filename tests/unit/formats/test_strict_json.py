from __future__ import annotations

import json

import pytest
from shoal.formats import Reason
from shoal.formats.json_text import prescreen, validate_strictly

pytestmark = pytest.mark.unit

CLEAN = b'{"a":1,"b":"x"}'


def unclear(*messages: bytes, keys: int = 2) -> list[int]:
    return list(prescreen(messages, keys))


@pytest.mark.parametrize(
    "message",
    [
        CLEAN,
        b'{"a": 1, "b": "x"}',
        b'{"a" :1,"b"\t:\n"x"}',
        b' {\r\n "a"\r\n:1,"b":"12:30:00"} \n',
        '{"a":1,"b":"é: ü"}'.encode(),
        b'{"a":[[{}]],"b":"[["}',
    ],
)
def test_usual_messages_are_cleared_by_the_prescreen(message: bytes) -> None:
    assert unclear(message) == []
    assert unclear(CLEAN, message, CLEAN) == []
    assert validate_strictly(message) is None


def test_no_messages_need_no_check() -> None:
    assert unclear() == []


@pytest.mark.parametrize(
    "message",
    [
        *(b'{"a":1,"b":2,"a":1}', b'{"a":1,"b":2,"\\u0061":1}', b'{"a" :1,"a" : 2,"b":3}', b'{"a":1,"a":2,"b" :3}'),
        *(b'{"a":1,"a":2,"b"\n:"\\":"}', b'{"a":{"x":1},"b":2,"a":{"x":1}}', b'{"a":1,"b":2,"c":3,"c":4}'),
        *(b'{"a":1,"b":2,"":3,"":4}', b'{"a":1,"b":"\\":","b":2}'),
    ],
)
def test_a_repeated_key_is_found(message: bytes) -> None:
    assert unclear(CLEAN, message, CLEAN) == [1]
    assert validate_strictly(message) is Reason.INVALID


@pytest.mark.parametrize(
    "message",
    [
        b'{"a":1,"b":"\\":\\":"}',
        b'{"a":1,"b":"x :y"}',
        b'{"a":{"x":1,"y":{"x":2}},"b":2}',
        b'{"a":1,"b":2,"c":3}',
        b'{"a":{"x":1,"x":1},"b":2}',
        b'{"a":1,"b":2,"x\\":y":3}',
        b'{"a":' + b"1" * 5000 + b',"b":2,"c\\":":1}',
        b'{"a":1e999999,"b":-0.0,"c\\":":1}',
    ],
)
def test_unusual_valid_messages_pass_the_strict_check(message: bytes) -> None:
    assert unclear(CLEAN, message, CLEAN) == [1]
    assert validate_strictly(message) is None


def test_invalid_utf8_is_found_anywhere() -> None:
    broken = b'{"a":"\xff","b":1}'
    assert 1 in unclear(CLEAN, broken)
    assert validate_strictly(broken) is Reason.UNDECODABLE
    assert validate_strictly(CLEAN) is None


@pytest.mark.parametrize(
    ("depth", "reason"), [(63, None), (64, None), (65, Reason.UNDECODABLE), (500, Reason.UNDECODABLE)]
)
def test_nesting_depth_is_limited_exactly(depth: int, reason: Reason | None) -> None:
    inner = b"[" * (depth - 1) + b"]" * (depth - 1)
    message = b'{"a":' + inner + b',"b":"]]]]{{{{\\"[["}'
    assert unclear(CLEAN, message, CLEAN) == [1]
    assert validate_strictly(message) is reason


def test_brackets_in_text_and_siblings_do_not_count_as_depth() -> None:
    assert validate_strictly(b'{"a":"' + b"[" * 1000 + b'","b":1}') is None
    assert validate_strictly(json.dumps({"a": [[]] * 500, "b": 1}).encode()) is None


@pytest.mark.parametrize("message", [b"", b"[1,2]", b"7", b'{"a":1', b"\x00"])
def test_a_message_that_is_not_an_object_is_rejected_without_an_exception(message: bytes) -> None:
    assert validate_strictly(message) is Reason.INVALID


@pytest.mark.parametrize(
    ("message", "repeats"),
    [
        (b'{"a":{"b":1},"c":{"b":1}}', False),
        (b'{"a":{"b":1,"b":1}}', True),
        (b'{"a":[[{"b":1},{"b":1,"\\u0062":2}]]}', True),
        (b'{"a":"\\":","a":1}', True),
        (b'{"a\\\\":1,"a\\\\":1,"b":"\\":"}', True),
        (b'{"a\\\\":1,"b":"\\":"}', False),
        (b'{"a\\"":1,"a\\"":2}', True),
        (b'{"a\\"":1,"b\\"":2}', False),
        (b'{"a":{"n":' + b"9" * 5000 + b',"n":1}}', True),
        (b'{"a":{"n":' + b"9" * 5000 + b'},"n":1}', False),
    ],
)
def test_keys_are_compared_at_every_depth(message: bytes, repeats: bool) -> None:  # noqa: FBT001
    assert validate_strictly(message, checks_nested_keys=True) is (Reason.INVALID if repeats else None)
    flat = json.loads(message, object_pairs_hook=list, parse_int=len)
    assert validate_strictly(message) is (Reason.INVALID if len({key for key, _ in flat}) < len(flat) else None)


@pytest.mark.parametrize("message", [b"[]", b'[{"a":1,"a":1}]', b"1", b'"x"', b"null"])
def test_what_is_no_object_is_invalid_at_every_depth(message: bytes) -> None:
    assert validate_strictly(message, checks_nested_keys=True) is Reason.INVALID
