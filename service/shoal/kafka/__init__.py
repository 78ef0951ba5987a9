"""Kafka to Kafka, exactly once: source, progress, transactions."""

from shoal.kafka.checks import check_policy
from shoal.kafka.start import Start
from shoal.kafka.transfer import export_progress, import_progress, report_progress
from shoal.kafka.transformer import Transformer

__all__ = ["Start", "Transformer", "check_policy", "export_progress", "import_progress", "report_progress"]
