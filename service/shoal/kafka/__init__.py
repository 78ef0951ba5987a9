"""Kafka to Kafka, exactly once: source, progress, transactions."""

from shoal.kafka.checks import check_policy
from shoal.kafka.connection import CLIENT_ERRORS
from shoal.kafka.endings import ours
from shoal.kafka.hosted import Hosted, WithdrawnError
from shoal.kafka.identity import cluster_of, cluster_of_client
from shoal.kafka.lanes import Handing, Plan
from shoal.kafka.leniency import read_leniently
from shoal.kafka.outgoing import Sink
from shoal.kafka.patience import Contact, repeat
from shoal.kafka.publisher import Outbox
from shoal.kafka.seal import Seal
from shoal.kafka.start import Start
from shoal.kafka.transfer import export_progress, import_progress, report_progress
from shoal.kafka.transformer import Transformer

__all__ = [
    "CLIENT_ERRORS",
    "Contact",
    "Handing",
    "Hosted",
    "Outbox",
    "Plan",
    "Seal",
    "Sink",
    "Start",
    "Transformer",
    "WithdrawnError",
    "check_policy",
    "cluster_of",
    "cluster_of_client",
    "export_progress",
    "import_progress",
    "ours",
    "read_leniently",
    "repeat",
    "report_progress",
]
