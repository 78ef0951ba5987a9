"""A stage in a Faust app: personal records in, clusters of at least k people out. The one room that names Faust."""

from shoal.stage.anonymize import Clusters, anonymize
from shoal.stage.handoff_queue import Cluster

__all__ = ["Cluster", "Clusters", "anonymize"]
