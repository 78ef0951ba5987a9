from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from shoal.formats import Block, JsonDecoder, JsonEncoder, Reason
from shoal.policy import Policy
from support.making import SUBJECT, encoded, message, policy_of, quasi, unchanged_field, usual_policy

pytestmark = pytest.mark.unit

UNDECODABLE, INVALID, TOO_LARGE = Reason.UNDECODABLE, Reason.INVALID, Reason.TOO_LARGE


def decode(*records: dict[str, Any], policy: Policy | None = None) -> Block:
    return JsonDecoder(policy or usual_policy()).decode(encoded(*records))


def reason(text: bytes | None, policy: Policy | None = None) -> Reason | None:
    """Return why a message is rejected among good ones, which must stay accepted."""
    good = encoded(message())[0]
    decoder = JsonDecoder(policy or usual_policy(), max_bytes=3000)
    if policy is None:
        block = decoder.decode([good, text, good, good, text])
        assert [index for index, _ in block.rejected] in ([], [1, 4])
        assert block.index.tolist() == [index for index in range(5) if index not in dict(block.rejected)]
        return dict(block.rejected).get(1)
    return dict(decoder.decode([text]).rejected).get(0)


def changed(name: str, value: str) -> bytes:
    """Return the usual message with the text of one value replaced."""
    text = json.dumps(message(**{name: "@@"}))
    return text.replace('"@@"', value, 1).encode(errors="surrogatepass")


def test_repr_of_a_block_contains_counts_only() -> None:
    block = decode(message(patient="canary", diagnosis="canary", age=200))
    assert repr(block) == "Block(records=1, rejected=0, clipped=1)"


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"{",
        json.dumps(message()).encode()[:-2],
        json.dumps(message()).encode() + b"\n" + json.dumps(message()).encode(),
        b"\xef\xbb\xbf" + json.dumps(message()).encode(),
        json.dumps(message()).encode() + b"\x00",
        changed("age", "NaN"),
        changed("age", "042"),
        changed("diagnosis", '"\x01"'),
        changed("diagnosis", '"\\x41"'),
        changed("diagnosis", '"\ud800"'),
        changed("ticket", '"\\udc00\\ud800"'),
        changed("patient", '"\\ud800 "'),
        changed("diagnosis", '"@"').replace(b"@", b"\xff"),
        changed("patient", '"@"').replace(b"@", b"\xed\xa0\x80"),
        changed("ticket", "[" * 1000 + "]" * 1000),
        changed("ticket", '{"a":' * 65 + "1" + "}" * 65),
        changed("age", "[" * 1000),
    ],
)
def test_undecodable_messages(text: bytes | None) -> None:
    assert reason(text) is UNDECODABLE


@pytest.mark.parametrize("text", [b"null", b"[]", b"[1,2]", b"7", b'"x"', b"true", b"{}", b'[{"age":1}]'])
def test_json_that_is_not_a_record_is_invalid(text: bytes) -> None:
    assert reason(text) is INVALID


@pytest.mark.parametrize("name", ["age", "income"])
@pytest.mark.parametrize(
    "value", ["null", "true", '"12"', '""', "[]", "[1]", "{}", "1e400", "-1e400", "1" * 400, '"NaN"', "1" * 2000]
)
def test_a_quasi_identifier_is_a_finite_number(name: str, value: str) -> None:
    assert reason(changed(name, value)) is INVALID


@pytest.mark.parametrize(("value", "number"), [("42.0", 42), ("4.2e1", 42), ("-0", 0), ("-0.0", 0), ("1e-400", 0)])
def test_an_integer_can_be_written_in_any_way(value: str, number: float) -> None:
    block = JsonDecoder(usual_policy()).decode([changed("age", value)])
    assert block.values[0, 0] == number
    assert not np.signbit(block.values).any()


@pytest.mark.parametrize("value", ["null", '""', '"  "', '"\\u2003"', "[]", "{}", '{"a":1}', "1e400"])
def test_a_subject_is_required(value: str) -> None:
    assert reason(changed("patient", value)) is INVALID


def test_undeclared_fields_are_rejected_or_dropped() -> None:
    strict, lenient = usual_policy(), usual_policy(undeclared="drop")
    extra = encoded(message(more="x"))[0]
    assert reason(extra, strict) is INVALID
    assert reason(extra, lenient) is None
    assert reason(encoded(message(more={"age": 1, "x": [1]}))[0], lenient) is None
    assert reason(encoded(message())[0][:-1] + b',"x":1,"x":1}', lenient) is INVALID  # type: ignore[index]
    assert reason(encoded(message())[0][:-1] + b',"x":"\xff"}', lenient) is UNDECODABLE  # type: ignore[index]
    assert reason(encoded(message(age=None, more=1))[0], lenient) is INVALID


def test_the_model_field_of_faust_is_dropped() -> None:
    plain, odd = usual_policy(), policy_of({'q"': quasi(), "n": unchanged_field("integer")})
    signed = encoded(message())[0][:-1] + b',"__faust":{"ns":"app.Visit"}}'  # type: ignore[index]
    assert reason(signed, plain) is None
    assert b"__faust" not in decode(json.loads(signed), policy=plain).unchanged_fields[0]
    assert reason(signed[:-1] + b',"__faust":null}', plain) is INVALID
    assert reason(signed[:-1] + b',"more":null}', plain) is INVALID
    assert decode({'q"': 1, "n": 2, "__faust": {}}, {'q"': 1, "n": 2, "__other": {}}, policy=odd).rejected == [
        (1, INVALID)
    ]
    declared = policy_of({"q": quasi(), "__faust": unchanged_field("string")})
    assert decode({"q": 1, "__faust": "x"}, {"q": 1}, policy=declared).rejected == [(1, INVALID)]


def test_messages_above_max_bytes_are_too_large() -> None:
    policy = usual_policy()
    fitting = encoded(message(ticket=""))[0]
    assert fitting is not None
    decoder = JsonDecoder(policy, max_bytes=len(fitting))
    block = decoder.decode([fitting, fitting + b" ", fitting])
    assert block.rejected == [(1, TOO_LARGE)]
    assert block.index.tolist() == [0, 2]
    assert JsonDecoder(policy, max_bytes=3000).decode([b"x" * 3001]).rejected == [(0, TOO_LARGE)]


def test_passthrough_fields_above_max_bytes_are_too_large() -> None:
    policy = policy_of({"x": quasi(), "y": unchanged_field()})
    block = JsonDecoder(policy, max_bytes=100).decode([b'{"x":1,"y":1e300}', b'{"x":1,"y":1e30}'])
    assert block.rejected == [(0, TOO_LARGE)]
    assert block.unchanged_fields == [b'"y":' + b"1" + b"0" * 30]


def test_values_outside_their_bounds_are_clipped_and_counted() -> None:
    block = decode(message(age=111, income=-1), message(age=110, income=0), message(age=-5, income=2e300))
    assert block.values.tolist() == [[110.0, 0.0], [110.0, 0.0], [0.0, 1e6]]
    assert block.clipped == 4


def test_values_outside_their_bounds_are_rejected_with_quarantine() -> None:
    policy = policy_of({"a": quasi(0, 10, out_of_bounds="quarantine"), "b": quasi(0, 10)})
    block = decode({"a": 11, "b": 1}, {"a": 10, "b": 11}, {"a": -1, "b": 99}, {"a": 0, "b": 10}, policy=policy)
    assert block.rejected == [(0, INVALID), (2, INVALID)]
    assert block.values.tolist() == [[10.0, 10.0], [0.0, 10.0]]
    assert block.clipped == 1


NAMES = [
    *("a.b", "two words", "größe", "名前", 'quo"te', "back\\slash", "new\nline", "__class__", "class", "f0", "f1", ""),
    *("%b", "%", "{}", '":', "a,b", "\x7f", "😀", "self"),
]


@pytest.mark.parametrize("odd", [NAMES, NAMES[:3] + NAMES[7:10] + NAMES[11:14]], ids=["escaped", "plain"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_any_name_is_supported(odd: list[str], ascii_only: bool) -> None:  # noqa: FBT001
    attributes = {name: unchanged_field() if number % 2 else quasi() for number, name in enumerate(odd)}
    policy = policy_of({**attributes, "who.is": SUBJECT})
    record = {name: number for number, name in enumerate(odd)}
    text = json.dumps({"who.is": "p", **record}, ensure_ascii=ascii_only).encode()
    block = JsonDecoder(policy).decode([text, text[:-1] + b',"more":1}', text[:-1] + b',"":"y"}'])
    assert block.rejected == [(1, INVALID), (2, INVALID)]
    assert block.values[0].tolist() == [float(n) for n in range(len(odd)) if n % 2 == 0]
    encoder = JsonEncoder(policy)
    row = encoder.encode_clusters([[str(n) for n in range(len(odd)) if n % 2 == 0]], block.unchanged_fields, [0, 1])[0]
    assert json.loads(row) == record
    assert list(json.loads(row)) == odd


def test_every_record_can_be_a_subject_of_its_own() -> None:
    policy = policy_of({"x": quasi()})
    decoder = JsonDecoder(policy)
    blocks = [decoder.decode(encoded(*[{"x": 1}] * n)) for n in (3, 600, 1)]
    assert len({number for block in blocks for number in block.subjects.tolist()}) == 604


TEXTS: dict[str, dict[str, Any]] = {
    "ticket": {"role": "identifier"},
    "id": {"role": "identifier", "subject": True},
    "sex": {"role": "quasi_identifier", "scale": "nominal"},
    "ill": unchanged_field("string"),
    "notes": unchanged_field("json"),
}
HEADER = {name: name for name in TEXTS}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(HEADER),
        json.dumps(dict(reversed(HEADER.items()))),
        json.dumps(HEADER | {"__faust": {"ns": "x"}}),
        json.dumps(HEADER).replace('"id"', '"\\u0069d"').replace('"ticket"', ' "\\u0074icket"'),
    ],
)
def test_a_record_with_the_name_of_each_field_as_its_value_is_invalid(text: str) -> None:
    other = json.dumps(HEADER | {"id": "p"})
    block = JsonDecoder(policy_of(TEXTS)).decode([other.encode(), text.encode(), other.encode()])
    assert block.rejected == [(1, INVALID)]


NUMBERS = {"1": {"role": "quasi_identifier", "scale": "nominal"}, "1.5": unchanged_field()}
NESTED = {name: fields | {"from": f"value.row.{name}"} for name, fields in TEXTS.items()}


@pytest.mark.parametrize(
    ("policy", "record", "rejected"),
    [
        (policy_of(TEXTS, undeclared="drop"), HEADER | {"more": "x"}, [(0, INVALID)]),
        (policy_of(NESTED), {"row": HEADER}, [(0, INVALID)]),
        (policy_of(NESTED), {"row": HEADER | {"id": "p"}}, []),
        (policy_of({"sex": TEXTS["sex"]}), {"sex": "sex"}, []),
        (policy_of(NUMBERS), {"1": "1", "1.5": "1.5"}, [(0, INVALID)]),
        (policy_of(NUMBERS), {"1": 1, "1.5": 1.5}, []),
    ],
)
def test_two_or_more_declared_fields_are_compared_with_their_names(
    policy: Policy, record: dict[str, Any], rejected: list[tuple[int, Reason]]
) -> None:
    assert decode(record, policy=policy).rejected == rejected


@pytest.mark.parametrize("changes", [{"sex": "x"}, {"ill": None}, {"notes": ["notes"]}, {"id": "ID"}])
def test_a_record_with_another_value_than_the_names_of_its_fields_is_accepted(changes: dict[str, Any]) -> None:
    assert decode(HEADER | changes, policy=policy_of(TEXTS)).rejected == []


@pytest.mark.parametrize("value", ["1e999", "[1e999]", "-0", "true", "null", '"\\u0000"'])
def test_any_value_of_a_dropped_identifier_can_be_compared_with_its_name(value: str) -> None:
    text = json.dumps(HEADER).replace('"ticket": "ticket"', f'"ticket":\t{value}')
    assert JsonDecoder(policy_of(TEXTS)).decode([text.encode()]).rejected == []


def test_rows_of_parquet_are_not_compared_with_names() -> None:
    decoder = JsonDecoder(policy_of(TEXTS), refuses_headers=False)
    assert decoder.decode(encoded(HEADER)).rejected == []
