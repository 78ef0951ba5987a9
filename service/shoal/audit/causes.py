"""Why checks are broken, where one fault of the files breaks many of them: a person reads this first.

Evidence, original and release may not belong together though each is sound. What the files do not decide is said as an
alternative: a cause never says that a release is sound.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shoal.audit.clusters import AdmissionLimits, check_clusters
from shoal.audit.evidence import StatedFiles
from shoal.audit.originals import Originals
from shoal.audit.reading import InputFile, is_parquet
from shoal.audit.releases import ReleasedRows
from shoal.audit.scales import PublishedValues
from shoal.audit.summary import read_records
from shoal.audit.verdict import Check, Finding, counted, percent
from shoal.policy import Policy

MOST = 0.9  # if a larger share of the clusters or rows is wrong, one cause is looked for
MAX_FOREIGN = 0.05  # a larger share of rows with the texts of no record: the original is not the one of the run
MIN_UNKNOWN = 0.01  # if a larger share of the records of the evidence does not exist, the original was cut
_TRIED = 20  # clusters by which it is tried whether all records were moved by a few lines
_SHIFTS = (0, 1, -1, 2, -2)
_AGAIN = "give the file that the run read, byte for byte"
_EVIDENCE = "give the evidence of this release"


@dataclass(frozen=True, slots=True)
class JudgedFiles:
    """What was judged."""

    policy: Policy
    originals: Originals
    release: ReleasedRows
    target: InputFile
    published: Sequence[PublishedValues]
    limits: AdmissionLimits
    stated: StatedFiles


def find_causes(files: JudgedFiles, checks: Sequence[Check]) -> tuple[Finding, ...]:
    """Return the causes of broken checks; empty if none is known. Cost: O(n), only if a check is broken."""
    broken = {check.name: check for check in checks if check.status == "broken"}
    if not broken:
        return ()
    return (*_policy(broken), *_rewritten(files, broken), *(list(_cut(files)) or _strangers(files, broken)))


def _policy(broken: Mapping[str, Check]) -> Iterator[Finding]:
    if "policy" in broken:
        yield Finding("other_policy", f"evidence or summary are of another policy: {broken['policy'].note}")


def _rewritten(files: JudgedFiles, broken: Mapping[str, Check]) -> Iterator[Finding]:
    """Find traces of a program that wrote the release again: a byte order mark, and line ends."""
    target, dialect = files.target, files.target.dialect
    if is_parquet(target.path) or broken.keys().isdisjoint({"columns", "spelling", "hidden"}):
        return
    remedy = "give the file as the run wrote it: a program has saved it again"
    has_mark, has_cr_lf = _traces(target)
    if has_mark and (target.form != "csv" or dialect.encoding.startswith("utf-8")):
        text = "the release begins with a byte order mark, which Shoal does not write"
        yield Finding("byte_order_mark", text, remedy)
    if has_cr_lf and (target.form != "csv" or dialect.line_end == "\n"):
        yield Finding("line_ends", "lines of the release end with CR LF, where Shoal writes LF", remedy)


def _traces(file: InputFile) -> tuple[bool, bool]:
    """Return whether a file begins with a byte order mark, and whether its first line ends with CR LF."""
    with file.path.open("rb") as lines:
        line = lines.readline()
    return line.startswith(codecs.BOM_UTF8), line.endswith(b"\r\n")


def _cut(files: JudgedFiles) -> Iterator[Finding]:
    """Find records that the run read and the original lacks."""
    originals, stated = files.originals, files.stated
    records_in = read_records(stated.summary_fields or {}) or 0
    clusters = stated.evidence_clusters or []
    if clusters and originals.by_partition.keys().isdisjoint(one.partition for one in clusters):
        yield Finding("other_evidence", "evidence and original have no partition in common", _EVIDENCE)
        return
    unknown = sum(int((originals.find_all(one.partition, one.offsets) < 0).sum()) for one in clusters)
    if records_in > originals.records:
        text = f"the original has {originals.records} of the {counted(records_in, 'record')} that the summary counts"
    elif unknown > MIN_UNKNOWN * sum(len(one.offsets) for one in clusters):
        text = f"the evidence names {counted(unknown, 'record')} that the original does not have"
    else:
        return
    text += ": it was cut since the run, or the files are of several runs"
    figures = {"records": originals.records, "records_in": records_in, "unknown": unknown}
    yield Finding("original_cut", text, _AGAIN, figures)


def _strangers(files: JudgedFiles, broken: Mapping[str, Check]) -> Iterator[Finding]:
    """Find out which file is of another run, if most of what the evidence says is not in the release."""
    clusters, rows = files.stated.evidence_clusters, len(files.release)
    worst = _worst(broken, "nothing_missing", "nothing_else")
    # Rows of another form are no rows of any original: the checks on single rows tell the cause.
    if clusters is None or worst <= MOST or _worst(broken, "columns", "spelling", "grid", "values") > MOST:
        return
    members = sum(len(cluster.offsets) for cluster in clusters)
    if members != rows:
        text = (
            f"the evidence has {counted(members, 'record')} and the release {counted(rows, 'row')}: one of them is cut"
        )
        yield Finding("other_evidence", f"{text}, or of another run", _EVIDENCE, {"records": members, "rows": rows})
        return
    shift = _shift(files)
    if shift is not None:
        lines = counted(abs(shift), "record")
        text = f"{lines} {'more' if shift > 0 else 'fewer'} at the beginning of the original than when it was released"
        yield Finding("original_moved", text, _AGAIN, {"records": shift})
        return
    foreign = _foreign_share(files)
    if foreign is not None and foreign > MAX_FOREIGN:
        text = f"the original lacks unchanged values of {percent(foreign)} of the rows: it or the release is another"
        text += " file" + _saved_again(files.originals.file)
        yield Finding("original_changed", text, _AGAIN, {"share": foreign})
        return
    text = (
        "most clusters do not give the released rows: evidence or original are of another run, or the values are wrong"
    )
    yield Finding("no_agreement", text, f"{_EVIDENCE}; if this is it, the release is wrong", {"share": worst})


def _saved_again(source: InputFile | None) -> str:
    """Return what it means that an original has a byte order mark or CR LF; empty if it has neither."""
    if source is None or is_parquet(source.path) or not any(_traces(source)):
        return ""
    return ", or a program has saved the original again, with a byte order mark or CR LF"


def _worst(broken: Mapping[str, Check], *names: str) -> float:
    """Return the largest share of failed cases of some checks."""
    found = (broken[name] for name in names if name in broken)
    return max((check.failed / max(check.examined, 1) for check in found), default=0.0)


def _shift(files: JudgedFiles) -> int | None:
    """Return by how many records a plain original has moved, if the first clusters give released rows then."""
    if files.originals.is_export:
        return None
    known = {
        row for rows in files.release.by_partition.values() for row in zip(rows.quasi, rows.unchanged, strict=True)
    }
    first = (files.stated.evidence_clusters or [])[:_TRIED]
    for shift in _SHIFTS:
        moved = [replace(cluster, offsets=cluster.offsets + shift) for cluster in first]
        found = check_clusters(files.policy, files.originals, moved, files.published, files.limits).clusters
        fitting = sum(all((one.quasi, unchanged) in known for unchanged in one.unchanged) for one in found)
        if fitting > MOST * len(first):
            return shift or None
    return None


def _foreign_share(files: JudgedFiles) -> float | None:
    """Return the share of released rows with unchanged fields of no record; None if no field is published unchanged."""
    if not files.policy.unchanged_fields:
        return None
    known = set(map(hash, files.originals.unchanged))
    texts = [hash(text) for rows in files.release.by_partition.values() for text in rows.unchanged]
    return sum(text not in known for text in texts) / max(len(texts), 1)
