"""The input topics of a worker, each with its output (``kafka.topics``, or ``kafka.input`` and ``kafka.output``).

A partition belongs to one pair of topics. Everything that concerns a partition gets the settings of its pair: there
``input`` and ``output`` are the topics of the pair. Only what concerns the whole worker handles several pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from shoal.policy import KafkaSection

__all__ = ["has_several_inputs", "input_name", "member_id", "settings_by_input"]


def settings_by_input(settings: KafkaSection) -> dict[str, KafkaSection]:
    """Return the settings of each pair of topics, by its input topic, in the order of ``kafka.topics``."""
    if not settings.topics:
        return {str(settings.input): settings}
    return {
        str(pair.input): settings.model_copy(update={"input": pair.input, "output": pair.output})
        for pair in settings.topics
    }


def has_several_inputs(settings: KafkaSection) -> bool:
    """Return whether the side topics hold messages about several inputs. Evidence and clusters then name the input."""
    return settings.topics is not None and len(settings.topics) > 1


def member_id(settings: KafkaSection) -> str | None:
    """Return the ``group.instance.id`` of this worker; None without static membership.

    The coordinator gives a static member that restarts the partitions that it had, without a new assignment. A topic
    that was added to ``kafka.topics`` would then be read by no worker. So the id depends on the inputs, if there are
    several: after a change the worker is a new member.
    """
    if settings.instance_id is None or not has_several_inputs(settings):
        return settings.instance_id
    inputs = "\n".join(sorted(settings_by_input(settings)))
    return f"{settings.instance_id}-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}"


def input_name(topic: str, inputs: Collection[str]) -> str:
    """Return how messages name an input: by its topic if there are several."""
    return f"input {topic}" if len(inputs) > 1 else "the input"
