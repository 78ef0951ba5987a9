"""Checks a release against its original, without any code of the clustering, the pipeline or the record decoders.

`verify` works in these steps:

1. Read the originals, the released rows and, if given, evidence, quarantine and summary.
2. Check each released row by itself: columns, canonical form, grid, bounds.
3. Take the clusters from the evidence, or infer them from the rows.
4. Check the members of each cluster: they exist, are used once, hold k subjects, and satisfy ``max_share`` and the
   options.
5. Recompute the rows of each cluster and compare them, and their order, with the released rows.
6. In a stream, check the delay. Examine each record that was not released.
7. Reconcile quarantine and summary with what was counted.
8. Return a `Verdict` with one `Check` per question, measures, warnings, and what could not be examined.
"""

from shoal.audit.verdict import Check, Verdict
from shoal.audit.verify import verify

__all__ = ["Check", "Verdict", "verify"]
