"""Checks a release against its original, without any code of the engine or of the record decoders.

It finds faults of the engine, of a policy and of operation, and careless releases. It does not look for messages that
an operator hides in what he publishes (ADR 20).

1. Read (`reading`, `scales`, `fields`): the originals, the released rows and, if given, evidence, quarantine and
   summary. Each row is checked by itself: columns, canonical form, grid, bounds.
2. Recompute (`clusters`, `confidential`, `rows`): the clusters of the evidence, or those that the rows show,
   are checked for their members, k subjects and the options of the policy. Their rows are compared with the released
   ones.
3. Account (`arrivals`, `unpublished`, `summary`): the delay, each record that was not released, and what the run states
   of both.
4. Judge (`verify`, `measures`, `verdict`): one `Check` per question, measures, warnings, and what was not examined.
"""

from shoal.audit.verdict import Check, Verdict
from shoal.audit.verify import JudgedRelease, judge, verify

__all__ = ["Check", "JudgedRelease", "Verdict", "judge", "verify"]
