"""The base of all sections of a policy file, and the description of their keys.

The description of a key is its only documentation: `docs/policy.md` and `shoal schema` are made of it. It is Markdown;
links are relative to the folder ``docs``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ONLY_ENVIRONMENT", "REQUIRED_KEY", "SHOWN_DEFAULT", "SHOWN_VALUES", "Number", "Section", "key"]

Number: TypeAlias = float

SHOWN_DEFAULT = "x-default"
"""Annotation of a key: its default in words. The model's default of most keys is null, and `resolved` fills it in."""
SHOWN_VALUES = "x-values"
"""Annotation of a key: its values in words, where the type does not tell them."""
REQUIRED_KEY = "x-required"
"""Annotation of a key without which its section is a fault."""
ONLY_ENVIRONMENT = "x-environment"
"""Annotation of a key that only the environment may set."""


class Section(BaseModel):
    """A mapping of the file. Unknown keys are faults, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def key(
    meaning: str,
    *,
    default: object = None,
    shown: str | None = None,
    values: str | None = None,
    example: object = None,
    required: bool = False,
    only_environment: bool = False,
    options: dict[str, Any] | None = None,
    **schema: Any,  # noqa: ANN401 - any JSON
) -> Any:  # noqa: ANN401 - a field of any type
    """Return a field of a section with its documentation.

    Parameters
    ----------
    meaning : str
        What the key does, in Markdown.
    default : object
        The default of the model.
    shown : str, optional
        The default in words, if a later step fills it in.
    values : str, optional
        The values in words, if the type does not tell them.
    example : object, optional
        A value as in a policy.
    required : bool
        Whether the section needs the key.
    only_environment : bool
        Whether a policy must not contain the key.
    options : dict, optional
        Further arguments of `pydantic.Field`, which check the value.
    **schema
        Keywords of JSON Schema for limits that `validation` checks, such as ``minimum``.
    """
    annotations: dict[str, Any] = {
        SHOWN_DEFAULT: shown,
        SHOWN_VALUES: values,
        REQUIRED_KEY: required or None,
        ONLY_ENVIRONMENT: only_environment or None,
    }
    extra = {name: value for name, value in (annotations | schema).items() if value is not None}
    examples = None if example is None else [example]
    return Field(default, description=meaning, examples=examples, json_schema_extra=extra, **(options or {}))
