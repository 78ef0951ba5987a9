"""Kafka to Kafka, exactly once: records of an input topic are released to an output topic in transactions.

The steps, for each partition: fence the previous owner, read the committed state and check it (`start`); read messages
(`consumer_loop`, or `external_loop` for Faust); decide on them (`task`, with a pipeline of `shoal.streams`); note which
offsets are completed (`offsets`); collect what is released and send it with the committed offset in one transaction
(`transactions`, `metadata`). A failure ends the loop, and the next one begins at the committed state (`retries`).
"""

from shoal.kafka.aiokafka_compat import tolerate_invalid_header_names
from shoal.kafka.checks import check_policy
from shoal.kafka.client import CLIENT_ERRORS, broker_cluster_id, client_cluster_id, to_shoal_error
from shoal.kafka.consumer_loop import Worker
from shoal.kafka.credentials import certificate_files, check_files, open_secret_files
from shoal.kafka.external_loop import ExternalLoop
from shoal.kafka.metadata import MetadataCipher
from shoal.kafka.progress import export_progress, import_progress, report_progress
from shoal.kafka.retries import BrokerLiveness, run_with_retries
from shoal.kafka.start import StartOptions
from shoal.kafka.task_manager import WorkerContext
from shoal.kafka.topic_sample import sample_topic
from shoal.kafka.transactions import ClusterListener, TransactionBatch, TransactionSink

__all__ = [
    "CLIENT_ERRORS",
    "BrokerLiveness",
    "ClusterListener",
    "ExternalLoop",
    "MetadataCipher",
    "StartOptions",
    "TransactionBatch",
    "TransactionSink",
    "Worker",
    "WorkerContext",
    "broker_cluster_id",
    "certificate_files",
    "check_files",
    "check_policy",
    "client_cluster_id",
    "export_progress",
    "import_progress",
    "open_secret_files",
    "report_progress",
    "run_with_retries",
    "sample_topic",
    "to_shoal_error",
    "tolerate_invalid_header_names",
]
