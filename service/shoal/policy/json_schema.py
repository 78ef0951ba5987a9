"""The JSON Schema of a policy file, for editors: keys, types, limits, defaults and descriptions.

It accepts every policy that Shoal accepts. Rules that involve several keys are not in it: `shoal check` reports them.
"""

from __future__ import annotations

import re
from typing import Any

from shoal.policy.schema import Document
from shoal.policy.section import ONLY_ENVIRONMENT, REQUIRED_KEY, SHOWN_DEFAULT, SHOWN_VALUES

__all__ = ["policy_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_REFERENCE = re.compile(rf" \({_LINK.pattern}(?:, {_LINK.pattern})*\)")
"""Links in parentheses, which say where to read more."""
_VALUES = {"const", "default", "enum", "examples"}
"""Keywords that hold values of a policy."""
_DROPPED = {SHOWN_DEFAULT, SHOWN_VALUES, REQUIRED_KEY, "title"}


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a policy as plain JSON."""
    return {"$schema": DIALECT, "title": "Shoal policy", **_cleaned(Document.model_json_schema())}


def _cleaned(node: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    """Return a part of pydantic's schema without its titles and null defaults, with the annotations of keys applied."""
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if not isinstance(node, dict):
        return node
    cleaned: dict[str, Any] = {}
    for name, value in node.items():
        if name in {"properties", "$defs"}:
            cleaned[name] = {key: _cleaned(part) for key, part in value.items() if not part.get(ONLY_ENVIRONMENT)}
        elif name == "description":
            cleaned[name] = _plain(value, node.get(SHOWN_DEFAULT))
        elif name not in _DROPPED and (name, value) != ("default", None):
            cleaned[name] = value if name in _VALUES else _cleaned(value)
    if required := [key for key, value in node.get("properties", {}).items() if value.get(REQUIRED_KEY)]:
        cleaned["required"] = required
    return cleaned


def _plain(description: str, default: str | None) -> str:
    """Return a description as one paragraph without links, and with the default in words."""
    text = " ".join(_LINK.sub(r"\1", _REFERENCE.sub("", description.replace("``", "`"))).split())
    return text if default is None or default.startswith("required") else f"{text} Default: {default}."
