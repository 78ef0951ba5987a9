"""The last check of a table, on clusters at the limits of the policy."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.errors import AnonymityViolation
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.tables import ConfidentialAttribute
from shoal.tables.table import verify_subjects, verify_values

pytestmark = pytest.mark.unit


def policy_of(privacy: dict[str, object]) -> Policy:
    document = {
        "subject": "every_record",
        "attributes": {"age": {"role": "quasi_identifier"}, "ill": {"role": "confidential"}},
        "privacy": {"k": 2, **privacy},
    }
    return Policy.from_document(Document.model_validate(document))


def attribute_of(clusters: list[list[int]]) -> tuple[ConfidentialAttribute, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Return an unordered attribute with these counts of its values in each cluster, and the labels."""
    bins = [bin_ for counts in clusters for bin_, count in enumerate(counts) for _ in range(count)]
    labels = [label for label, counts in enumerate(clusters) for _ in range(sum(counts))]
    return ConfidentialAttribute(np.array(bins, np.int64), ordered=False), np.array(labels, np.int32)


@pytest.mark.parametrize(
    ("c", "violated", "kept"),
    [(1.1, [11, 10], [10, 10]), (2.2, [22, 10], [21, 10]), (2, [4, 2], [3, 2]), (0.1, [1] * 11, [1] * 12)],
)
def test_recursive_diversity_is_violated_at_equality(c: float, violated: list[int], kept: list[int]) -> None:
    """1.1 * 10 and 2.2 * 10 are above 11 and 22 in float64."""
    policy = policy_of({"l": {"recursive": [c, 2]}})
    attribute, labels = attribute_of([kept, kept])
    verify_values(policy, (attribute,), labels)
    attribute, labels = attribute_of([kept, violated])
    with pytest.raises(AnonymityViolation, match=r"privacy\.l"):
        verify_values(policy, (attribute,), labels)


def test_subjects_and_largest_shares_are_counted_per_cluster() -> None:
    found = verify_subjects(policy_of({}), np.array([7, 8, 7, 9]), np.array([0, 1, 3, 2]), np.array([0, 2, 4]))
    assert found.tolist() == [[2, 2], [1, 1]]
    found = verify_subjects(policy_of({}), np.array([7, 8, 7, 9]), np.arange(4), np.array([0, 4]))
    assert found.tolist() == [[3], [2]]


@pytest.mark.parametrize(
    ("subjects", "order", "bounds", "fault"),
    [
        ([1, 2, 3, 3], [0, 1, 2, 3], [0, 2, 4], "fewer than 2 subjects"),
        ([1, 2, 2, 2], [0, 1, 2, 3], [0, 4], "a share above 0.5"),
        ([1, 2, 3, 4], [0, 1, 2, 2], [0, 2, 4], "not in exactly one cluster"),
        ([1, 2, 3, 4], [0, 1, 2], [0, 3], "not in exactly one cluster"),
        ([1, 2, 3, 4], [0, 1, 2, 3], [0, 3], "not in exactly one cluster"),
    ],
)
def test_a_partition_that_breaks_k_or_a_share_or_loses_a_record_is_refused(
    subjects: list[int], order: list[int], bounds: list[int], fault: str
) -> None:
    with pytest.raises(AnonymityViolation, match=fault):
        verify_subjects(policy_of({}), np.array(subjects), np.array(order), np.array(bounds))
