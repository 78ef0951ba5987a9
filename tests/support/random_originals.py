"""Random originals for a policy: few distinct values, several records per person, and records that cannot be used."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from pathlib import Path
from random import Random
from typing import Any

from shoal.policy import Attribute, MessagePart, Policy, Role
from support.random_policies import START_MS, value_of, values_of

Record = dict[str, Any]

_TEXTS = ("A00", "B20", 'a "b", c', "é", "e\u0301", "", " x ", "1", "true", "it's", "a;b|c\td", "-0.0", "\U0001f41f")
_SPELLINGS = (str, lambda text: f" {text}", lambda text: f"{text}\t ", lambda text: unicodedata.normalize("NFD", text))


def random_records(random: Random, policy: Policy, count: int, *, is_table: bool) -> list[Record]:
    """Return records with every declared field; fields of the envelope under the names of their attributes."""
    people = max(2, count // random.choice((1, 1, 2, 4)))
    levels = random.choice((1, 3, 20, 1000))
    drawn = values_of(random, policy, is_table=is_table)
    records = []
    for place in range(count):
        who = random.randrange(people) if random.random() < 0.8 else int(people * random.random() ** 3)
        record = {
            a.name: drawn[a.name]() if a.name in drawn else _value(random, a, who, levels, is_table=is_table)
            for a in policy.attributes
        }
        for attribute in policy.attributes:
            if attribute.source.part is MessagePart.TIMESTAMP:
                record[attribute.name] = START_MS + 100 * place
        records.append(record)
    return records


def _value(random: Random, attribute: Attribute, who: int, levels: int, *, is_table: bool) -> Any:
    if attribute.subject:
        return who if attribute.type == "integer" else f"é{who}"
    if attribute.role is Role.QUASI_IDENTIFIER:
        return _number(random, attribute, levels, is_table=is_table)
    if attribute.role is Role.IDENTIFIER:
        return f"t{random.randrange(10**6)}"
    return _passthrough(random, attribute, is_table=is_table)


def _number(random: Random, attribute: Attribute, levels: int, *, is_table: bool) -> float:
    low, high = attribute.bounds or (-20.0, 180.0)
    level = random.randrange(levels + 1) / levels
    if random.random() < 0.05 and (attribute.clip or not is_table):
        level += random.choice((-2, 2))
    number = low + (high - low) * level
    if attribute.integer:
        inside = min(max(round(number), -(-low // 1)), high // 1) if is_table and not attribute.clip else round(number)
        return int(inside)
    return round(number, random.choice((1, 3, 6))) if attribute.clip or not is_table else number


def _passthrough(random: Random, attribute: Attribute, *, is_table: bool) -> Any:
    if random.random() < 0.1 and not is_table:
        return None
    match attribute.type:
        case "integer":
            return random.choice((0, 7, -3, 10**12, random.randrange(100)))
        case "number":
            return random.choice((0.5, -1.25, 1e-7, 1e22, random.randrange(400) / 4))
        case "boolean":
            return random.random() < 0.5
        case "string":
            return random.choice(_TEXTS)
    return random.choice(_TEXTS if is_table else (*_TEXTS, 1, 1.5, True, -7))


def respelled(random: Random, records: list[Record], subject: str | None) -> list[Record]:
    """Return the records with some subjects spelled differently: blanks around, or decomposed letters."""
    if subject is None or not all(isinstance(record[subject], str) for record in records):
        return records
    return [record | {subject: random.choice(_SPELLINGS)(record[subject])} for record in records]


def spoiled(random: Random, line: str) -> str:
    """Return a line that is no record."""
    fewer = line[: random.randrange(len(line))].replace('"', "")
    return random.choice(("{", "[]", "null", "{}", "", '"text"', '{"age": NaN}', "\x00", line + line, fewer))


def message_of(policy: Policy, record: Record, *, bare: bool = False) -> Record:
    """Return a record as a message with the parts of its envelope; ``bare``: only those that the policy reads."""
    value = value_of(Random(repr(record)), policy, record)
    message: Record = {"value": None if value is None else json.dumps(value, ensure_ascii=False)}
    for attribute in policy.envelope_attributes:
        content = record[attribute.name]
        match attribute.source.part:
            case MessagePart.KEY:
                message["key"] = str(content)
            case MessagePart.HEADER:
                message["headers"] = [[attribute.source.header, str(content)]]
            case _:
                message["timestamp"] = content
    if not bare:
        message.setdefault("timestamp", START_MS)
    return message


def write_csv(policy: Policy, records: list[Record], names: list[str]) -> bytes:
    """Write records in the policy's dialect; numbers get its decimal mark."""
    dialect = policy.csv
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        doublequote=dialect.escape == "doubled",
        escapechar=None if dialect.escape == "doubled" else "\\",
        lineterminator=dialect.line_end,
    )
    writer.writerow(names)
    for record in records:
        writer.writerow([_cell(record.get(name), dialect.decimal) for name in names])
    return text.getvalue().encode(dialect.encoding)


def _cell(value: Any, decimal: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(value)
    return repr(value).replace(".", decimal) if isinstance(value, float) else str(value)


def write_parquet(path: Path, records: list[Record], names: list[str]) -> None:
    """Write records as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: [record[name] for record in records] for name in names}), path)
