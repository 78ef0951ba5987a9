"""Each field with a canary in each wrong type: only indexes and coarse reasons leave the decoders."""

from __future__ import annotations

import gc
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shoal.errors import GuaranteeError
from shoal.formats import Block, CsvEncoder, JsonDecoder, JsonEncoder, Reason
from shoal.formats.csv import CsvDecoder, CsvReader
from shoal.formats.format import JsonLinesReader
from support.by_night import by_day
from support.making import SUBJECT, message, policy_of, quasi, unchanged_field, usual_policy

CANARY = "xq7canary9z"
NUMBER = 918273645918273
REASONS = {Reason.UNDECODABLE, Reason.INVALID, Reason.TOO_LARGE}
WRONG: list[tuple[str, str]] = [
    (name, value.replace("@", CANARY).replace("#", str(NUMBER)))
    for name, values in {
        "patient": ["[@]", '["@"]', '{"@":"@"}', '{"a":#}', "@", '"@', '"@\\ud800"', "null"],
        "ticket": ["@", '"@', '"\\ud800@"', '"@\x01"', "[" * 70 + '"@"' + "]" * 70],
        "age": ['"@"', '"#"', '["@"]', '{"@":#}', "#.5", "-#e400", "true", "@", '"@', "0#", "#" + "0" * 400],
        "income": ['"@"', '"#"', "[#]", '{"@":#}', "#e400", "NaN@", "@", '"@', "+#", "#."],
        "diagnosis": ["#", "#.5", '["@"]', '{"@":"@"}', '"@', "@", '"@\\ud800"', '"@\x00"', "true"],
        "ward": ['["@"]', '{"@":"@"}', "#e400", '"@', "@", '"@\\x"'],
        "@": ['"@"', "#"],
    }.items()
    for value in values
]


def text_with(name: str, value: str, *, encoding: str = "utf-8") -> bytes:
    record = {field: content for field, content in message().items() if field != name}
    return f"{json.dumps(record)[:-1]},{json.dumps(name.replace('@', CANARY))}:{value}}}".encode(encoding)


def is_clean(text: object) -> bool:
    return CANARY not in str(text).lower() and str(NUMBER) not in str(text)


def reachable(root: object) -> Iterator[object]:
    """Everything an object holds on to, but for modules and classes."""
    seen, todo = set(), [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | type(sys)) or thing is sys.modules:
            continue
        seen.add(id(thing))
        yield thing
        if not callable(thing) or hasattr(thing, "__self__") or hasattr(thing, "__closure__"):
            referents = gc.get_referents(thing)
            todo += [referent for referent in referents if referent is not getattr(thing, "__globals__", None)]


def assert_nothing_of_it(block: Block, expected_rejected: int) -> None:
    """Only indexes and reasons tell of a refused message."""
    assert len(block.rejected) == expected_rejected
    for index, reason in block.rejected:
        assert type(index) is int
        assert type(reason) is Reason
        assert reason in REASONS
    assert is_clean(repr(block))
    assert is_clean(block.rejected)
    assert is_clean(b"".join(block.unchanged_fields))
    assert NUMBER not in block.values


@pytest.mark.parametrize(("name", "value"), WRONG)
@pytest.mark.parametrize("undeclared", ["quarantine", "drop"])
def test_an_invalid_value_is_in_no_message(
    name: str, value: str, undeclared: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    good = json.dumps(message()).encode()
    decoder = JsonDecoder(usual_policy(undeclared=undeclared))
    block = decoder.decode([good, text_with(name, value), good])
    is_dropped = undeclared == "drop" and name == "@"
    assert_nothing_of_it(block, 0 if is_dropped else 1)
    assert all(is_clean(thing) for thing in reachable(decoder) if isinstance(thing, str | bytes))
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert sys.exc_info() == (None, None, None)


def test_identifiers_are_never_published() -> None:
    records = [message(patient=f"{CANARY} {n}", ticket={CANARY: [CANARY, NUMBER]}) for n in range(20)]
    messages = [json.dumps(record).encode() for record in records]
    policy = usual_policy()
    for encoder in (JsonEncoder(policy), CsvEncoder(policy)):
        decoder = JsonDecoder(policy, encoder=encoder)
        block = decoder.decode(messages)
        assert len(block) == 20
        assert_nothing_of_it(block, 0)
        assert all(map(is_clean, encoder.encode_clusters([["1", "2"]], block.unchanged_fields, [0, 20])))
        held = [thing for thing in reachable((decoder, block)) if isinstance(thing, str | bytes)]
        assert all(map(is_clean, held))


CELLS = [CANARY, f'"{CANARY}', f'"{CANARY}"x', f"{NUMBER}.5x", f"{CANARY}\x00", f"{CANARY},{CANARY}", f"{NUMBER}e400"]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("place", range(4))
def test_an_invalid_cell_is_in_no_message(place: int, cell: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    policy = policy_of(
        {
            "age": quasi(integer=True),
            "income": quasi(),
            "n": unchanged_field("integer"),
            "ok": unchanged_field("boolean"),
        }
    )
    cells = ["42", "1", "1", "true"]
    cells[place] = cell
    text = f"age,income,n,ok\n{','.join(cells)}\n"
    reader = CsvReader(io.BytesIO(text.encode()), policy)
    decoder = CsvDecoder(policy, reader.columns)
    for part in reader:
        assert_nothing_of_it(decoder.decode(part), 1)
    assert not caplog.records
    assert all(is_clean(thing) for thing in reachable((decoder, reader)) if isinstance(thing, str | bytes))


@pytest.mark.parametrize("text", [CANARY, f"{NUMBER}e400", f"0{NUMBER}", f"{NUMBER},1", f'1,"x":"{CANARY}"'])
def test_a_refused_centroid_is_in_no_message(text: str) -> None:
    policy = policy_of({"age": quasi(), "n": unchanged_field()})
    for encoder in (JsonEncoder(policy), CsvEncoder(policy)):
        with pytest.raises(GuaranteeError) as caught:
            encoder.encode_clusters([[text]], [CANARY.encode()], [0, 1])
        assert_quiet(caught.value)
        with pytest.raises(GuaranteeError) as caught:
            encoder.encode_clusters([["1"]], [CANARY.encode()], [0, 2])
        assert_quiet(caught.value)


def assert_quiet(error: BaseException) -> None:
    """No value in an exception, nor in one that it would be printed with."""
    assert is_clean((str(error), error.args, vars(error)))
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(CANARY) | st.just(NUMBER) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.just(CANARY) | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from([*message(), CANARY]), ANYTHING, st.binary(max_size=5), st.integers(0, 200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=by_day(50, 200))
def test_only_published_fields_are_released_for_any_content(name: str, value: Any, noise: bytes, place: int) -> None:
    text = json.dumps(message(**{name: value})).encode()
    messages = [text, text[:place] + noise + text[place:], text[:place]]
    block = JsonDecoder(usual_policy()).decode(messages)
    assert all(reason in REASONS for _, reason in block.rejected)
    assert is_clean(block.rejected)
    assert is_clean(repr(block))
    if name not in {"diagnosis", "ward"}:
        assert is_clean(b"".join(block.unchanged_fields))
    lines = [line for part in JsonLinesReader(io.BytesIO(b"\n".join(messages))) for line in part]
    assert is_clean(JsonDecoder(usual_policy()).decode(lines).rejected)


class Around:
    """An envelope in which everything that can be a text is the canary."""

    def __init__(self, key: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int = NUMBER) -> None:
        self.key, self.headers, self.timestamp = key, headers, timestamp


BROKEN = CANARY.encode() + b"\xff"
AROUND = [
    Around(None, [("age", b"1"), ("at", b"1")]),
    Around(BROKEN, [("age", b"1"), ("at", b"1")]),
    Around(CANARY.encode(), [("age", CANARY.encode())]),
    Around(CANARY.encode(), [("age", BROKEN)]),
    Around(CANARY.encode(), [("age", b"%d.5x" % NUMBER)]),
    Around(CANARY.encode(), [("age", b"1"), ("age", CANARY.encode())]),
    Around(CANARY.encode(), [(CANARY, CANARY.encode())]),
    Around(CANARY.encode(), [("age", b"1")], -NUMBER),
]


@pytest.mark.parametrize("around", AROUND)
def test_an_invalid_envelope_is_in_no_message(around: Around, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    policy = policy_of(
        {
            "who": SUBJECT | {"from": "key"},
            "age": quasi() | {"from": "header:age"},
            "at": {"role": "identifier", "from": "timestamp"},
        }
    )
    good = Around(CANARY.encode(), [("age", b"1"), (CANARY, BROKEN)])
    decoder = JsonDecoder(policy)
    block = decoder.decode([b"{}"] * 3, [good, around, good])
    assert_nothing_of_it(block, 1)
    assert all(is_clean(thing) for thing in reachable((decoder, block)) if isinstance(thing, str | bytes))
    assert not caplog.records
