"""Stream microaggregation with bounded delay: blocks of records in, decisions on clusters out.

The steps of a block: `validation` checks it, `invariants` registers its records, `buffer` stages them behind the held
records, and a rule appends them one by one and decides on each expiring record. `invariants` verifies the
decisions before `clusterer` returns them. One module per rule: `nearest`, `growth` (greedy and awo), `block`, and
`indexed` for large buffers.
"""

from shoal.clustering.stream.aggregator import Released, StreamAggregator
from shoal.clustering.stream.clusterer import Decisions, StreamClusterer

__all__ = ["Decisions", "Released", "StreamAggregator", "StreamClusterer"]
