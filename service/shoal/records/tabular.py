"""What tables cannot contain: envelopes of messages, and fields inside objects."""

from __future__ import annotations

from shoal.errors import InputError
from shoal.policy import Policy
from shoal.records.record_struct import path_of

__all__ = ["require_columns"]


def require_columns(policy: Policy, name: str, format_name: str) -> None:
    """Require that every attribute can be a column of a table.

    Parameters
    ----------
    policy : Policy
    name : str
        Name of the file in errors.
    format_name : str
        Name of its format in errors.

    Raises
    ------
    InputError
        An attribute is read from an envelope, or is a field that has another name or is inside an object; or the
        policy unwraps messages.
    """
    no_file_has = f"which no {format_name} file has; give messages as JSON lines"
    for attribute in policy.envelope_attributes:
        raise InputError(
            f"{name}: attributes.{attribute.name} is read from {attribute.source}, {no_file_has} with key, headers, "
            "timestamp and value, or remove 'from' from the policy"
        )
    for attribute in policy.value_attributes:
        if path_of(attribute) != (attribute.name,):
            raise InputError(
                f"{name}: attributes.{attribute.name} is read from the field {'.'.join(path_of(attribute))} of "
                f"messages, {no_file_has}, or remove 'from' from the policy"
            )
    if policy.unwrap is not None:
        raise InputError(
            f"{name}: unwrap: {policy.unwrap} opens the envelopes of messages, {no_file_has}, or remove unwrap from "
            "the policy"
        )
