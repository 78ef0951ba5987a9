"""A stage in a Faust app: personal records in, clusters of at least k people out. Only this package imports Faust.

The steps: `anonymize` checks stream, policy and app and returns an iterator. When the iterator is first used, a
`StageSupervisor` connects to the app's signals (`faust_adapter`), buffers what the stream delivers (`MessageBuffer`)
and runs a `shoal.kafka.ExternalLoop` for each assignment. Clusters go through a `HandoffQueue` to the iterator.
"""

from shoal.stage.anonymize import Clusters, anonymize
from shoal.stage.handoff_queue import Cluster

__all__ = ["Cluster", "Clusters", "anonymize"]
