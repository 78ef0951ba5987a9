"""What the given files cannot show about a release, as texts of the verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shoal.audit.evidence import Summary
from shoal.audit.options import unobservable_options
from shoal.audit.releases import ReleasedRows
from shoal.audit.scope import AuditScope, StatedFiles
from shoal.policy import Policy

__all__ = ["unexamined_questions"]

_NAMED = {"mse", "mae", "clipped", "displacement", "excess_span", "delay", "elapsed_s", "records_per_s", "unknown"}
"""Fields of a summary that are never compared, and are named in any case."""
_MEASURES = (
    *("loss", "mean_loss", "clocks", "sse", "sst", "information_loss", "d_x", "d_y", "emd", "emd_of", "l"),
    *("value_share", "dropped", "dld", "l_avg", "bound", "gap", "mdav", "algorithm", "refine", "keep_order"),
    *("blocks", "jointly_k_anonymous"),
)
"""Other fields, in the order in which they are named. Those that could not be compared are not examined."""
_LEARNED = ("position_weight", "widths")
"""What a stream has learned."""
NOT_COMPLETE = "whether every record was released or had to be suppressed, because only a part was judged"


def unexamined_questions(
    policy: Policy,
    scope: AuditScope,
    release: ReleasedRows,
    *,
    is_export: bool,
    stated: StatedFiles,
    compared: Collection[str],
    is_end_known: bool,
) -> tuple[str, ...]:
    """Return what these files cannot show. Questions that do not concern such a release are left out.

    Parameters
    ----------
    policy : Policy
    scope : AuditScope
    release : ReleasedRows
    is_export : bool
        Whether original and release are exports of topics.
    stated : StatedFiles
    compared : collection of str
        Fields of the summary that were compared (`AuditedCounts.compared`).
    is_end_known : bool
        Whether it was checked how many subjects were held at the end of the input.
    """
    found, summary = [NOT_COMPLETE] if scope.is_partial else [], stated.summary_fields
    if is_export and not scope.is_ordered:
        found.append("whether each cluster was published in one transaction")
    if is_export:
        missing = [name for name, field in (("keys", "key"), ("headers", "headers")) if field not in release.envelope]
        found.append(f"{_listed([*missing, 'timestamps'])} of released messages")
    if not scope.is_table:
        found.append("when anything was released, and delays in seconds")
    if is_export:
        found.append("aborted messages, which a read_uncommitted reader can see")
    if summary is not None and "unknown" in summary:
        found.append("how many values are not in their taxonomy, as the summary states")
    if summary is not None:
        found.append("mse and mae in the summary, and its clipped values, displacement, excess span, delay and speed")
        found += _other_fields(summary, compared)
    if any(a.reference or a.taxonomy for a in policy.protected) and not _names_policy(stated):
        found.append(
            "whether references and taxonomies of confidential attributes are those of the run, because the evidence "
            "and the summary do not name its policy"
        )
    found.append("earlier or other releases of the same records")
    return (*found, *unobservable_options(policy, is_end_known=is_end_known))


def _other_fields(summary: Summary, compared: Collection[str]) -> list[str]:
    """Return what else a summary states that was not compared. Names that Shoal does not write are not shown."""
    others = [name for name, value in summary.items() if name not in compared and _is_stated(value)]
    known = [[name for name in names if name in others] for names in (_MEASURES, _LEARNED)]
    found = [f"{_listed(names)} in the summary" for names in known if names]
    if not set(others) <= {*_MEASURES, *_LEARNED, *_NAMED}:
        found.append("fields of the summary that Shoal does not write")
    return found


def _is_stated(value: object) -> bool:
    """Whether a field has a value; of a group of fields, whether one of them has."""
    return any(map(_is_stated, value.values())) if isinstance(value, Mapping) else value is not None


def _names_policy(stated: StatedFiles) -> bool:
    """Whether the summary, or every line of the evidence, states a fingerprint. A wrong one is a fault."""
    clusters = stated.evidence_clusters
    return "policy" in (stated.summary_fields or {}) or bool(clusters and all(one.fingerprint for one in clusters))


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
