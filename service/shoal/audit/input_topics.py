"""Selects what evidence and quarantine state about one input topic. A service may read several inputs."""

from __future__ import annotations

from shoal.audit.evidence import EvidenceCluster, QuarantineReference
from shoal.errors import InputError
from shoal.policy import Policy

__all__ = ["require_known_input", "require_one_input", "select_clusters", "select_references"]


def require_known_input(policy: Policy, input_topic: str | None) -> None:
    """Refuse an input that is none of ``kafka.topics``, if the policy has them: the name is mistyped.

    An input of which nothing was released or refused has no line of its own, so that lines do not show the inputs.

    Raises
    ------
    InputError
        It is none of them.
    """
    known = [pair.input for pair in (policy.kafka and policy.kafka.topics) or () if pair.input]
    if input_topic is not None and known and input_topic not in known:
        raise InputError(f"--input-topic: no input of kafka.topics has this name; give one of {', '.join(known)}")


def select_clusters(clusters: list[EvidenceCluster], input_topic: str | None) -> list[EvidenceCluster]:
    """Return the clusters of an input.

    Parameters
    ----------
    clusters : list of EvidenceCluster
    input_topic : str or None
        None returns all clusters.

    Raises
    ------
    InputError
        An input is given, and a cluster names none: it could be of any input. Or no input is given, and only some
        clusters name one.
    """
    count = sum(cluster.topic is None for cluster in clusters)
    if input_topic is None:
        if 0 < count < len(clusters):
            raise InputError(
                "the evidence has clusters with and without an input topic; give the evidence topic that was written "
                "since there are several inputs"
            )
        return clusters
    if count:
        raise InputError(
            "a cluster of the evidence names no input topic; leave --input-topic out if there was one input, else give "
            "the evidence topic that was written since there are several"
        )
    return [cluster for cluster in clusters if cluster.topic == input_topic]


def select_references(references: list[QuarantineReference], input_topic: str | None) -> list[QuarantineReference]:
    """Return the references to records of an input, and all that are not well-formed; all references without an input.

    No input accounts for a malformed reference, so each verdict must.
    """
    if input_topic is None:
        return references
    return [one for one in references if one.topic == input_topic or not one.is_wellformed]


def require_one_input(
    clusters: list[EvidenceCluster] | None, references: list[QuarantineReference] | None, input_topic: str | None
) -> None:
    """Refuse evidence and references of several inputs if it is not said which of them is judged.

    Evidence that names no input is of a service with one: a reference to another topic is then false, and is left to
    the check of the references.

    Raises
    ------
    InputError
        They name several input topics.
    """
    named = {cluster.topic for cluster in clusters or [] if cluster.topic is not None}
    if clusters and not named:
        return
    named |= {reference.topic for reference in references or [] if reference.is_wellformed}
    if input_topic is None and len(named) > 1:
        raise InputError(
            "evidence and quarantine name several input topics; give the one of the original with --input-topic NAME"
        )
