"""Write docs/policy.md: the text of docs/policy.template, with lists made of the schema."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

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
COLUMNS = 120


def page() -> str:
    shown: dict[str, list[str]] = {}

    def items(found: re.Match[str]) -> str:
        name, keys = found[1], (found[2] or "").split()
        model: type[BaseModel] = getattr(schema, name)
        shown.setdefault(name, []).extend(keys or map(str, key_names(model)))
        return "\n".join(item for key in keys or key_names(model) for item in items_of(model, key))

    text = DIRECTIVE.sub(items, TEMPLATE.read_text(encoding="utf-8"))
    for name, keys in shown.items():
        model = getattr(schema, name)
        if sorted(keys) != sorted(key_names(model)):
            raise ValueError(f"{name}: {sorted(set(keys) ^ set(key_names(model)))} in no list, or in two")
    return text


def key_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def items_of(model: type[BaseModel], key: str, prefix: str = "") -> Iterator[str]:
    """Yield the item of a key, and below it those of the section that it holds."""
    (field,) = [field for name, field in model.model_fields.items() if (field.alias or name) == key]
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    names = [f"`{prefix}{key}`"]
    if model is schema.KafkaSection:
        names = [*([] if extra.get(ONLY_ENVIRONMENT) else names), f"`{PREFIX}{key.upper()}`"]
    yield item(names, "; ".join([values_in_words(field), *default_of(field, extra)]), meaning_of(field))
    below = section_in(field.annotation)
    if below is not None and not issubclass(model, below) and model is not schema.Document:
        for inner in key_names(below):
            yield from items_of(below, inner, f"{key}.")


def item(names: list[str], values: str, meaning: str) -> str:
    """Return an item of a list, broken into lines."""
    text = f"{', '.join(names)}: {'. '.join(filter(None, [values, meaning]))}"
    return textwrap.fill(
        text, COLUMNS, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def section_in(annotation: object) -> type[BaseModel] | None:
    """Return the section that a key holds, also in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := section_in(part))), None)


def default_of(field: FieldInfo, extra: dict[str, Any]) -> Iterator[str]:
    """Yield the default in words, or nothing if there is none."""
    value = field.get_default()
    if extra.get(REQUIRED_KEY):
        yield "required"
    elif SHOWN_DEFAULT in extra:
        shown = str(extra[SHOWN_DEFAULT])
        if shown not in {"none", "see below"}:
            yield shown if shown.startswith("required") else f"default {shown}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"default {value:,}"
    elif value is not None:
        yield f"default `{in_yaml(value)}`"


def meaning_of(field: FieldInfo) -> str:
    """Return the description, with the example of a list."""
    assert field.description is not None
    example = in_yaml(field.examples[0]) if field.examples else ""
    return f"{field.description} Example: `{example}`" if example.startswith(("[", '"')) else field.description


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
