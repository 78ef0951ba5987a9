"""Write docs/policy.md: the text of docs/policy.template, with tables made of the schema."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from shoal.policy import schema
from shoal.policy.schema import ONLY_ENVIRONMENT, REQUIRED_KEY, SHOWN_DEFAULT, values_in_words
from shoal.settings import PREFIX

ROOT = Path(__file__).resolve().parents[2]
PAGE, TEMPLATE = ROOT / "docs" / "policy.md", ROOT / "docs" / "policy.template"
DIRECTIVE = re.compile(r"^\{\{ (\w+)(?::((?: \w+)+))? \}\}$", re.MULTILINE)
"""``{{ Section }}`` or ``{{ Section: key key }}``."""
HEAD = "| key | values | default | meaning |\n|---|---|---|---|\n"


def page() -> str:
    shown: dict[str, list[str]] = {}

    def table(found: re.Match[str]) -> str:
        name, keys = found[1], (found[2] or "").split()
        model: type[BaseModel] = getattr(schema, name)
        shown.setdefault(name, []).extend(keys or map(str, key_names(model)))
        return HEAD + "\n".join(row for key in keys or key_names(model) for row in rows_of(model, key))

    text = DIRECTIVE.sub(table, TEMPLATE.read_text(encoding="utf-8"))
    for name, keys in shown.items():
        model = getattr(schema, name)
        if sorted(keys) != sorted(key_names(model)):
            raise ValueError(f"{name}: {sorted(set(keys) ^ set(key_names(model)))} in no table, or in two")
    return text


def key_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def rows_of(model: type[BaseModel], key: str, prefix: str = "") -> Iterator[str]:
    """Yield the row of a key, and below it those of the section that it holds."""
    (field,) = [field for name, field in model.model_fields.items() if (field.alias or name) == key]
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    name = f"`{prefix}{key}`"
    if model is schema.KafkaSection:
        name = f"`{PREFIX}{key.upper()}`" if extra.get(ONLY_ENVIRONMENT) else f"{name}<br>`{PREFIX}{key.upper()}`"
    yield row(name, values_in_words(field), default_of(field, extra), meaning_of(field))
    below = section_in(field.annotation)
    if below is not None and not issubclass(model, below) and model is not schema.Document:
        for inner in key_names(below):
            yield from rows_of(below, inner, f"{key}.")


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def section_in(annotation: object) -> type[BaseModel] | None:
    """Return the section that a key holds, also in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := section_in(part))), None)


def default_of(field: FieldInfo, extra: dict[str, Any]) -> str:
    if extra.get(REQUIRED_KEY):
        return "required"
    if SHOWN_DEFAULT in extra:
        return str(extra[SHOWN_DEFAULT])
    value = field.get_default()
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else f"`{in_yaml(value)}`"


def meaning_of(field: FieldInfo) -> str:
    """Return the description, with the example if there is one and the values are not listed."""
    assert field.description is not None
    if not field.examples or any(get_origin(part) is Literal for part in get_args(field.annotation)):
        return field.description
    return f"{field.description} Example: `{in_yaml(field.examples[0])}`"


def in_yaml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {in_yaml(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(in_yaml, value))}]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z0-9/._-][A-Za-z0-9/._:-]*", value) else json.dumps(value)
    return json.dumps(value)


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
