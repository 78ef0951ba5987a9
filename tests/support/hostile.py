"""Malformed and merely odd messages of every kind, each with its outcome in `docs/reports/malformed.md`.

`python tests/support/hostile.py > docs/reports/malformed.md` writes that page.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

Outcome = Literal["released", "undecodable", "invalid", "too_large"]
CANARY = "xq7canary9z"
"""In every subject and every ticket: it must not leave."""
MAX_BYTES = 2000
"""What ``kafka.max_record_bytes`` must be for the kinds that are too large."""

POLICY: dict[str, Any] = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "ticket": {"role": "identifier"},
        "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
        "income": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100_000], "resolution": 50},
        "serial": {"role": "confidential", "type": "integer"},
        "illness": {"role": "confidential", "type": "string"},
        "score": {"role": "confidential", "type": "number"},
        "smokes": {"role": "confidential", "type": "boolean"},
        "ward": {"role": "other", "type": "any", "publish_unchanged": True},
    },
    "privacy": {"k": 5},
    "stream": {"delta": 100},
}
QUASI, UNCHANGED = ("age", "income"), ("serial", "illness", "score", "smokes", "ward")


class Sent(NamedTuple):
    """A message with what goes with it; ``ahead_ms`` moves its timestamp from now on."""

    value: bytes | None
    ahead_ms: int = 0


Make = Callable[[dict[str, Any], Random], "Sent | bytes | None"]


@dataclass(frozen=True)
class Kind:
    """A sort of message: made from a good record, of which it keeps the serial number where it can."""

    name: str
    outcome: Outcome
    make: Make

    def message(self, record: dict[str, Any], random: Random) -> Sent:
        made = self.make(record, random)
        return made if isinstance(made, Sent) else Sent(made)


def good(number: int) -> dict[str, Any]:
    """Return a record that the policy accepts; 3,001 people."""
    return {
        "who": f"{CANARY} {number * 7919 % 3001}",
        "ticket": f"{CANARY} {number}",
        "age": number * 31 % 111,
        "income": number * 977 % 100_000,
        "serial": number,
        "illness": f"i{number % 13}",
        "score": number % 7 / 4,
        "smokes": number % 3 == 0,
        "ward": f"w{number % 5}",
    }


# ---------------------------------------------------------------- how they are made


def text(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def spelt(**fields: str) -> Make:
    """Fields with a spelling of their own: the text that stands for the value, as it is."""

    def make(record: dict[str, Any], _: Random) -> bytes:
        members = [f"{json.dumps(name)}:{fields.get(name, json.dumps(value))}" for name, value in record.items()]
        members += [f"{json.dumps(name)}:{value}" for name, value in fields.items() if name not in record]
        return ("{" + ",".join(members) + "}").encode(errors="surrogateescape")

    return make


def added(members: str) -> Make:
    """The record with more members at its end."""
    return lambda record, _: text(record)[:-1] + b"," + members.encode() + b"}"


def changed(change: Callable[[bytes], bytes | None]) -> Make:
    return lambda record, _: change(text(record))


def without(name: str) -> Make:
    return lambda record, _: text({field: value for field, value in record.items() if field != name})


def fixed(value: bytes | None) -> Make:
    return lambda *_: value


def renamed(old: str, new: str) -> Make:
    return lambda record, _: text({new if name == old else name: value for name, value in record.items()})


def respelt_names(record: dict[str, Any], _: Random) -> bytes:
    names = {name: "".join(f"\\u{ord(character):04x}" for character in name) for name in record}
    return ("{" + ",".join(f'"{names[name]}":{json.dumps(value)}' for name, value in record.items()) + "}").encode()


def shuffled(record: dict[str, Any], random: Random) -> bytes:
    return text(dict(random.sample(list(record.items()), len(record))))


def spaced(record: dict[str, Any], _: Random) -> bytes:
    return b"\r\n\t " + json.dumps(record, indent=3, separators=(" ,\t", "\n: ")).encode() + b"\n \r"


def cut(record: dict[str, Any], random: Random) -> bytes:
    whole = text(record)
    return whole[: random.randrange(1, len(whole))]


def long_tail(record: dict[str, Any], _: Random) -> bytes:
    """Shorter than the limit as it came, longer as it would leave: 1e308 has 309 digits."""
    bare = record | {"score": 0, "illness": ""}
    room = MAX_BYTES - len(text(bare)) - 10
    return text(bare | {"illness": "x" * room}).replace(b'"score": 0', b'"score": 1e308')


def at(ahead_ms: int) -> Make:
    return lambda record, _: Sent(text(record), ahead_ms)


NOT_JSON: dict[str, Make] = {
    "no value (a tombstone)": fixed(None),
    "empty": fixed(b""),
    "white space only": fixed(b" \t\r\n"),
    "plain text": fixed(b"no record at all"),
    "NUL bytes only": fixed(bytes(40)),
    "binary (gzip)": changed(lambda whole: gzip.compress(whole, mtime=0)),
    "a schema registry's prefix before the record": changed(lambda whole: b"\0\0\0\0\x07" + whole),
    "NUL bytes after the record": changed(lambda whole: whole + bytes(3)),
    "a NUL byte inside a text": spelt(illness='"a\0b"'),
    "a raw line end inside a text": spelt(illness='"a\nb"'),
    "cut off anywhere": cut,
    "one brace too many": changed(lambda whole: whole + b"}"),
    "something after the record": changed(lambda whole: whole + b" x"),
    "two records in one message": changed(lambda whole: whole + whole),
    "two records on two lines": changed(lambda whole: whole + b"\n" + whole),
    "a comma before the closing brace": changed(lambda whole: whole[:-1] + b",}"),
    "single quotes": changed(lambda whole: whole.replace(b'"', b"'")),
    "names without quotes": changed(lambda whole: whole.replace(b'"age"', b"age")),
    "a comment": changed(lambda whole: whole + b"/* a */"),
    "CSV": fixed(b"p1,t1,41,1000,7,flu,0.5,true,w"),
    "XML": fixed(b"<record><age>41</age></record>"),
    "NaN": spelt(age="NaN"),
    "Infinity": spelt(income="Infinity"),
    "-Infinity": spelt(score="-Infinity"),
    "a number with a plus": spelt(age="+41"),
    "a number with zeros in front": spelt(age="041"),
    "a number without digits before its point": spelt(score=".5"),
    "a number without digits after its point": spelt(score="5."),
    "a hexadecimal number": spelt(age="0x29"),
    "a number with a thousands separator": spelt(income="10_000"),
    "True for true": spelt(smokes="True"),
    "None for null": spelt(ward="None"),
    "a text that is not closed": spelt(ward='"w'),
    "an unknown escape": spelt(ward='"\\x41"'),
    "a broken \\u escape": spelt(ward='"\\u00g0"'),
    "half a surrogate pair": spelt(illness='"\\ud800"'),
    "surrogates in the wrong order": spelt(illness='"\\udc00\\ud800"'),
    "half a surrogate pair in the subject": spelt(who='"\\ud83d"'),
    "bytes that are not UTF-8": spelt(illness='"\udcff\udcfe"'),
    "bytes that are not UTF-8 in a field that is dropped": spelt(ticket='"\udcff"'),
    "bytes that are not UTF-8 in a name": changed(lambda whole: whole.replace(b"ward", b"w\xe4rd")),
    "overlong UTF-8": spelt(illness='"\udcc0\udcaf"'),
    "surrogates in UTF-8": spelt(illness='"\udced\udca0\udc80"'),
    "Latin-1": changed(lambda whole: whole.replace(b'"w', b'"\xe9w')),
    "UTF-16": changed(lambda whole: whole.decode().encode("utf-16")),
    "UTF-32": changed(lambda whole: whole.decode().encode("utf-32")),
    "a byte order mark": changed(lambda whole: b"\xef\xbb\xbf" + whole),
    "EBCDIC": changed(lambda whole: whole.decode().encode("cp500")),
    "nested more than 64 deep": spelt(ticket="[" * 70 + "]" * 70),
    "nested a thousand deep": fixed(b"[" * 1000 + b"]" * 1000),
    "opened a thousand times, never closed": fixed(b'{"a":' * 390),
}
"""Nothing can be read of them."""
NOT_A_RECORD: dict[str, Make] = {
    "an empty object": fixed(b"{}"),
    "an array": changed(lambda whole: b"[" + whole + b"]"),
    "a text": fixed(b'"p1"'),
    "a record in a text": changed(lambda whole: json.dumps(whole.decode()).encode()),
    "a number": fixed(b"41"),
    "a number of 400 digits": fixed(b"4" * 400),
    "true": fixed(b"true"),
    "null": fixed(b"null"),
    "a record inside an object": changed(lambda whole: b'{"record":' + whole + b"}"),
    "an undeclared field": added('"sex":"f"'),
    "an undeclared field without a name": added('"":1'),
    "a name in capitals": renamed("age", "AGE"),
    "a name with a blank": renamed("age", "age "),
    "a name in another Unicode form": renamed("illness", "ı̇llness"),
    "a name in Cyrillic letters": renamed("age", "аge"),
    "the name of each field as its value": fixed(text({name: name for name in POLICY["attributes"]})),
    "a doubled field": added('"age":42'),
    "a doubled field, equal both times": changed(lambda w: w[:-1] + b"," + w[1 : w.index(b",")] + b"}"),
    "a doubled field, its name spelt with escapes": added('"a\\u0067e":42'),
    "a doubled unchanged field": added('"illness":"none"'),
    "a doubled field that is dropped": added('"ticket":1'),
    **{f"without {name}": without(name) for name in POLICY["attributes"]},
}
"""JSON, but not an object of exactly the declared fields."""


def wrong_values() -> Iterator[tuple[str, Make]]:
    """Objects of the declared fields, one of which holds what it must not."""
    anything = {"a text": '"41"', "an array": "[41]", "an object": '{"a":41}', "true": "true"}
    anything |= {"null": "null", "an empty text": '""', "1e999": "1e999", "-1e999": "-1e999"}
    anything["an integer of 400 digits"] = "7" * 400
    containers = {"an array": "[]", "an object": "{}"}
    subject = {"null": "null", "an array": '["p1"]', "an object": '{"id":"p1"}', "an empty text": '""'}
    values: list[tuple[str, dict[str, str]]] = [
        *((name, anything) for name in QUASI),
        ("age", {"a fraction": "41.5"}),
        ("subject", {**subject, "blanks": '" \\t\\u00a0"', "1e999": "1e999"}),
        ("serial", {"a text": '"7"', "a fraction": "7.5", "true": "true", **containers}),
        ("illness", {"a number": "7", "true": "true", **containers}),
        ("score", {"a text": '"0.5"', "true": "true", "1e999": "1e999", **containers}),
        ("smokes", {"a text": '"true"', "a number": "1", **containers}),
        ("ward", {"1e999": "1e999", **containers}),
    ]
    for name, wrong in values:
        for what, value in wrong.items():
            yield f"{name}: {what}", spelt(**{"who" if name == "subject" else name: value})
    yield "a timestamp two hours ahead", at(2 * 3600 * 1000)
    yield "a timestamp a thousand years ahead", at(1000 * 365 * 86400 * 1000)


TOO_LARGE: dict[str, Make] = {
    "a record with a very long text": spelt(illness='"' + "x" * MAX_BYTES + '"'),
    "a record with very much white space": changed(lambda whole: whole + b" " * MAX_BYTES),
    "no JSON, and too long": fixed(b"\xff" * (MAX_BYTES + 1)),
    "a record that would leave too long": long_tail,
}
"""Larger than ``kafka.max_record_bytes``, as it came or as it would leave."""
ODD_BUT_GOOD: dict[str, Make] = {
    "fields in another order": shuffled,
    "white space and line ends between fields": spaced,
    "names spelt with escapes": respelt_names,
    "texts spelt with escapes": spelt(illness='"\\u0066\\u006c\\u0075\\/"'),
    "a text beyond the basic plane": spelt(illness='"\\ud83d\\ude00😀"'),
    "an escaped NUL in a text": spelt(illness='"a\\u0000b"'),
    "markup, formulas and control characters": spelt(illness='"<script>=1+1\\u001b[31m\\u202e"', ward='"=cmd()"'),
    "a number with a point": spelt(age="41.0"),
    "a number with an exponent": spelt(age="4.1E+1", income="1e4"),
    "minus zero": spelt(age="-0", income="-0.0"),
    "a number of 400 digits after the point": spelt(income="7." + "3" * 400),
    "a number too small for float64": spelt(income="1e-999"),
    "beyond the bounds (put to the bound, counted)": spelt(age="-5", income="1e300"),
    "null where it is allowed": spelt(illness="null", score="null", smokes="null", ward="null"),
    "an unchanged integer of 400 digits": spelt(score="7" * 400, ward="8" * 400),
    "a subject that is a number": spelt(who="7"),
    "a subject that is a number in a text, with blanks": spelt(who='" 007 "'),
    "a subject of 400 digits": spelt(who="9" * 400),
    "a subject that is true": spelt(who="true"),
    "anything in a field that is dropped": spelt(ticket='{"a":[1,{"b":null}],"a":1e999}'),
    "nested 60 deep in a field that is dropped": spelt(ticket="[" * 60 + "]" * 60),
    "a timestamp half an hour ahead": at(1800 * 1000),
    "a timestamp of 1970": at(-(10**15)),
}
"""Strange, and as good as any other."""
STATED: list[tuple[Outcome, dict[str, Make]]] = [
    ("undecodable", NOT_JSON),
    ("invalid", NOT_A_RECORD | dict(wrong_values())),
    ("too_large", TOO_LARGE),
    ("released", ODD_BUT_GOOD),
]
KINDS = [Kind(name, outcome, make) for outcome, sorts in STATED for name, make in sorts.items()]
assert len({kind.name for kind in KINDS}) == len(KINDS)


# ---------------------------------------------------------------- CSV


class Cells(NamedTuple):
    """A sort of CSV line, made by changes of the text of a good line's cells."""

    name: str
    outcome: Outcome
    cells: dict[str, str]
    line: Callable[[bytes], bytes] = bytes


def cells() -> Iterator[Cells]:
    yield Cells("bytes that are not UTF-8", "undecodable", {"illness": "\udcff"})
    yield Cells("text after a closing quotation mark", "undecodable", {"illness": '"a"b'})
    yield Cells("one cell too few", "invalid", {}, lambda line: line[: line.rindex(b",")])
    yield Cells("one cell too many", "invalid", {}, lambda line: line + b",x")
    yield Cells("a blank line among others", "invalid", {}, lambda _: b"")
    yield Cells("the header again", "invalid", {}, lambda _: ",".join(POLICY["attributes"]).encode())
    for name in QUASI:
        for what in ("", " ", "abc", "NaN", "inf", "1e999", "0x29", "1_0", "٤١", "true", "7" * 400):
            shown = "an integer of 400 digits" if len(what) == 400 else repr(what or "an empty cell")
            yield Cells(f"{name}: {shown}", "invalid", {name: what})
    yield Cells("age: a fraction", "invalid", {"age": "41.5"})
    for what in ("", "  ", '""'):
        yield Cells(f"subject: {what!r}", "invalid", {"who": what})
    yield Cells("serial: a fraction", "invalid", {"serial": "7.5"})
    yield Cells("serial: a text", "invalid", {"serial": "seven"})
    yield Cells("score: a text", "invalid", {"score": "half"})
    yield Cells("score: 1e999", "invalid", {"score": "1e999"})
    yield Cells("smokes: a number", "invalid", {"smokes": "1"})
    yield Cells("a quoted cell with commas and line ends", "released", {"illness": '"a,""b""\nc"'})
    yield Cells("numbers with blanks, plus and zeros", "released", {"age": " +041 ", "income": "1e3"})
    yield Cells("empty cells where null is allowed", "released", {"score": "", "smokes": ""})
    yield Cells(
        "formulas, markup and control characters", "released", {"illness": "=cmd()\x1b[31m<script>", "ward": "@x"}
    )
    yield Cells("beyond the bounds (put to the bound, counted)", "released", {"age": "-5"})


CELLS = list(cells())


# ---------------------------------------------------------------- the page


HEAD = """# Malformed messages and lines

Written by `python tests/support/hostile.py`; do not edit. The [outcomes](../bad-input.md) of messages that tests send
among valid ones: 2,000 in `make test`, 50,000 in `make nightly`. The policy has a subject of any type (`who`); another
identifier (`ticket`); two numeric quasi-identifiers, `age`, an integer, and `income`; and unchanged fields of type
integer (`serial`), string (`illness`), number (`score`), boolean (`smokes`) and any (`ward`)."""


def page() -> str:
    """Return the text of docs/reports/malformed.md."""
    parts = [HEAD]
    for title, rows in (
        ("JSON messages and lines", [(kind.name, kind.outcome) for kind in KINDS]),
        ("CSV lines", [(kind.name, kind.outcome) for kind in CELLS]),
    ):
        lines = [
            f"| {outcome} | {'; '.join(name.replace('|', '/') for name, found in rows if found == outcome)} |"
            for outcome in dict.fromkeys(outcome for _, outcome in rows)
        ]
        parts.append("\n".join([f"## {title}", "", "| what becomes of it | what comes |", "|---|---|", *lines]))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
