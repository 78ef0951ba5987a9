"""Policies whose attributes are read from fields inside objects."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shoal.policy import Policy


def with_paths(policy: Policy, missing: Collection[str] = (), **paths: str | tuple[str, ...]) -> Policy:
    """Return a policy with other paths; the attributes in ``missing`` may be absent."""
    split = {name: tuple(path.split(".")) if isinstance(path, str) else path for name, path in paths.items()}
    attributes = tuple(
        replace(one, path=split.get(one.name, one.path), missing="group" if one.name in missing else one.missing)
        for one in policy.attributes
    )
    return replace(policy, attributes=attributes)
