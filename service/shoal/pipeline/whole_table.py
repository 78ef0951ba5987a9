"""The check before a table is partitioned: whether the table as one cluster satisfies the policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.clustering.static import ClusterConstraints, ConfidentialAttribute
from shoal.clustering.static.constraints import violating_clusters
from shoal.errors import AnonymityViolation
from shoal.pipeline.value_index import l_diversity_of
from shoal.policy import Policy

__all__ = ["require_feasible"]

_REMEDIES = {
    "privacy.l": "lower privacy.l",
    "privacy.max_value_share": "raise privacy.max_value_share (with distinct l it is 0.5 unless it is given)",
    "privacy.t": "raise privacy.t, or make the reference anew",
}


def require_feasible(policy: Policy, protected: tuple[ConfidentialAttribute, ...]) -> None:
    """Require that the values of the whole table satisfy the policy: otherwise those of some cluster do not, either.

    Parameters
    ----------
    policy : Policy
    protected : tuple of ConfidentialAttribute
        The values of n records, in the order of ``policy.protected``.

    Raises
    ------
    AnonymityViolation
        The message names the settings and the attributes that the table violates.
    """
    stated = {
        "privacy.l": ClusterConstraints(l=l_diversity_of(policy)),
        "privacy.max_value_share": ClusterConstraints(max_value_share=policy.max_value_share),
        "privacy.t": ClusterConstraints(t=policy.t),
    }
    violated: dict[str, list[str]] = {}
    for attribute, values in zip(policy.protected, protected, strict=True):
        labels = np.zeros(len(values.codes), np.int32)
        for setting, constraints in stated.items():
            if violating_clusters(labels, 1, replace(constraints, confidential=(values,))).any():
                violated.setdefault(setting, []).append(attribute.name)
    if violated:
        found = " and ".join(f"{setting} ({', '.join(names)})" for setting, names in violated.items())
        remedies = ", ".join(_REMEDIES[setting] for setting in violated)
        raise AnonymityViolation(
            f"the table as a whole violates {found}, so no clusters of it can satisfy the policy; {remedies}, "
            "or add records with other values; nothing is released"
        )
