"""The page of a report: one HTML file that loads nothing, made of the numbers of `report_of` and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from shoal.errors import ConfigError
from shoal.reports.svg import bars, heat_map

Report: TypeAlias = Mapping[str, Any]
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#59636e;--line:#c8ced4;--before:#9aa5b1;
--after:#0b5cad}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#14181d;--faint:#a0aab4;--line:#3a434d;--before:#6b7783;
--after:#6cb2ff}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:0 auto;
padding:1.5rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .2rem}
.verdict{border:2px solid var(--ink);padding:.8rem 1rem;margin:1rem 0;font-size:1.05rem}
.note{color:var(--faint);font-size:.9rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line);
overflow-wrap:break-word}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.dense table{font-size:.82rem}.dense th,.dense td{padding-right:.6rem}
svg{max-width:100%;min-width:30rem;height:auto;display:block}
.label{fill:var(--ink);font-size:13px}.small{fill:var(--faint);font-size:11px}
.line{fill:none;stroke:var(--after);stroke-width:2}.dot{fill:var(--after)}.axis{stroke:var(--line)}
pre{border:1px solid var(--line);padding:.6rem .8rem;overflow-x:auto;font-size:.9rem}
.before{fill:var(--paper);stroke:var(--before);stroke-width:1.5}.after,.heat{fill:var(--after)}
@media print{:root{--ink:#000;--paper:#fff;--faint:#444;--line:#999;--before:#777;--after:#333}
body{max-width:none;padding:0;font-size:10.5pt}h2,h3{break-after:avoid}svg,tr,.verdict{break-inside:avoid}
.dense table{font-size:7pt}.dense th,.dense td{padding-right:.3rem}@page{margin:18mm}}
"""
_COUNTS = {
    "records": "records of the original",
    "released_rows": "released rows",
    "people": "people of whom a record was released",
    "clusters": "clusters",
    "suppressed": "suppressed: they were or may have been left out for want of other people, or by a limit",
    "refused": "refused: they do not fit the policy",
    "held": "may still be held",
    "dropped": "messages that are no records",
}
_REACHED = {"diversity": "l", "closeness": "t", "value_share": "largest share of one value"}
_STATUS = {"holds": "\u2713 holds", "broken": "\u2717 BROKEN", "not examined": "? not examined"}


def require_page_name(name: str) -> None:
    """Raise ConfigError unless the name of a file is that of a page."""
    if not name.lower().endswith((".html", ".htm")):
        raise ConfigError(f"{name}: a report is a page; give a name that ends in .html")


def html_of(report: Report) -> str:
    """Return the page; every text that comes from a file is escaped."""
    k = report["policy"]["k"]
    parts = [
        "<h1>What was released, and what it is worth</h1>",
        paragraph(
            f"Made on {report['made']['date']}. This page contains statistics of raw data: keep it as its policy asks."
        ),
        f'<p class="verdict"><strong>{escaped(report["verdict"]["sentence"])}</strong></p>',
        note(
            f"Nothing of a single record is on this page. Counts of records and people of the original are rounded to "
            f"multiples of {k}, or fewer than {k}; no value is named that fewer than {k} people have."
        ),
        *_policy(report["policy"]),
        *_counts(report["counts"]),
        *_clusters(report["clusters"], k),
        *_risk(report["risk"]),
        *_attributes(report["attributes"]),
        *_correlations(report["correlations"]),
        *_judge(report["judge"]),
        *_made(report),
    ]
    return page_of("Report of a release", parts)


def page_of(title: str, parts: Iterable[str]) -> str:
    """Return a page of these parts: one file that loads nothing."""
    csp = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{csp}">'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head><body>\n"
    )
    return head + "\n".join(parts) + "\n</body></html>\n"


def _policy(policy: Report) -> Iterator[str]:
    yield "<h2>What the policy promises</h2>"
    yield bullets(policy["promises"])
    rows = ((one["name"], one["role"], one["becomes"]) for one in policy["fields"])
    yield table(("field", "role", "what becomes of it"), rows)


def _counts(counts: Report) -> Iterator[str]:
    yield "<h2>Counts</h2>"
    rows = [(text, counts[name]) for name, text in _COUNTS.items() if counts[name] is not None]
    for name, reasons in counts["stated"].items():
        rows += [(f"{name} as {reason}, as the run states", count) for reason, count in reasons.items()]
    yield table(("what", "count"), rows)


def _clusters(clusters: Report, k: int) -> Iterator[str]:
    yield "<h2>People in a cluster</h2>"
    if not clusters["are_known"]:
        yield paragraph("Not known: clusters with equal rows cannot be told apart without evidence.")
    elif clusters["sizes"]:
        numbers = [one["clusters"] if isinstance(one["clusters"], int) else 0 for one in clusters["sizes"]]
        labels = [f"{one['people']} people" for one in clusters["sizes"]]
        yield drawing(bars("Clusters by number of people", labels, [("after", "clusters", numbers)], "clusters"))
        yield note(f"The length is the number of clusters. Promised: at least {k} people.")
    if clusters["reached"]:
        rows = ((_REACHED[one["name"]], one["promised"], one["reached"], one["status"]) for one in clusters["reached"])
        yield table(("what", "promised", "worst cluster", "check"), rows)


def _risk(risk: Report) -> Iterator[str]:
    yield "<h2>Risk that a person is found</h2>"
    unit, before = risk["journalist_unit"], risk["unique_before_share"]
    unique = risk["unique_before"] if before is None else f"{risk['unique_before']} ({percent(before)})"
    rows = [
        ("prosecutor, who knows that a person is in a cluster: largest risk", "", percent(risk["prosecutor_largest"])),
        ("the same: mean of all records", "", percent(risk["prosecutor_mean"])),
        (f"journalist, who finds all equal rows: largest risk, by {unit}", "", percent(risk["journalist_largest"])),
        (
            "marketer, who links all records: share of right links",
            percent(risk["marketer_before"]),
            percent(risk["marketer"]),
        ),
        ("records that are unique in their quasi-identifiers", unique, risk["unique_after"]),
    ]
    if risk["dld"] is not None:
        rows.append(("linkage with the nearest record: share of right links", "", percent(risk["dld"])))
    if risk["l_avg"] is not None:
        rows.append(("fewest different values of a confidential number in a cluster: mean", "", risk["l_avg"]))
    for name, value in risk["single_value"].items():
        rows.append((f"clusters in which all have the same value of {name}", "", percent(value)))
    yield table(("an attacker who knows the quasi-identifiers", "original", "release"), rows)


def _attributes(attributes: Sequence[Report]) -> Iterator[str]:
    yield "<h2>Before and after</h2>"
    yield note(
        "Quasi-identifiers, that with the largest loss first. The outlined bar is the original, the filled bar the "
        "release, in records. Neighbouring or rare values share a bar until it has enough people."
    )
    for one in attributes:
        loss = "loss not known" if one["loss"] is None else f"loss {percent(one['loss'])}"
        yield f"<h3>{escaped(one['name'])} ({escaped(one['scale'])}): {loss}</h3>"
        cells = one["cells"]
        if not cells:
            yield paragraph("No distribution: too few people.")
            continue
        series = [
            (style, name, [float(cell[style]) if isinstance(cell[style], int) else 0.0 for cell in cells])
            for style, name in (("before", "original"), ("after", "release"))
        ]
        yield drawing(bars(f"{one['name']} before and after", [cell["label"] for cell in cells], series, "records"))


def _correlations(found: Report | None) -> Iterator[str]:
    if found is None:
        return
    change = found["change"]
    yield "<h3>Correlations of numbers and times: release less original</h3>"
    yield drawing(heat_map("Change of correlations", found["names"], change))
    rows = [
        (f"{first} and {second}", found["before"][i][j], found["after"][i][j], change[i][j])
        for i, first in enumerate(found["names"])
        for j, second in enumerate(found["names"])
        if i < j
    ]
    yield table(("pair", "original", "release", "change"), rows)


def _judge(judge: Report) -> Iterator[str]:
    yield "<h2>Checks of the judge</h2>"
    yield note("The judge recomputes the release from the original, with code of its own.")
    rows = (
        (_STATUS[one["status"]], one["claim"] + (f" ({one['note']})" if one["note"] else ""), *_cases(one))
        for one in judge["checks"]
    )
    yield table(("result", "claim", "examined", "failed", "worst"), rows)
    warnings = [f"{', '.join(one['fields'])}: {one['text']}".removeprefix(": ") for one in judge["warnings"]]
    for title, texts in (
        ("Causes", judge["causes"]),
        ("Warnings", warnings),
        ("Claimed by the run alone", judge["claimed"]),
        ("Undecided", judge["undecided"]),
        ("Not examined", judge["not_examined"]),
    ):
        if texts:
            yield f"<h3>{title}</h3>{bullets(texts)}"


def _cases(check: Report) -> tuple[object, object, object]:
    return f"{check['examined']} ({check['unit']})", check["failed"], check["worst"]


def _made(report: Report) -> Iterator[str]:
    yield "<h2>How it was made</h2>"
    fingerprint = ("policy, fingerprint", report["policy"]["fingerprint"])
    yield table(("what", "which"), [fingerprint, *origin_rows(report["made"])])


def origin_rows(made: Report) -> list[tuple[str, str]]:
    """Return what `origin_of` found as rows of a table."""
    rows = [(f"{one['what']}: {one['name']}, SHA-256", one["sha256"]) for one in made["files"]]
    rows += [(f"version of {name}", version) for name, version in made["versions"].items()]
    return [*rows, ("date", made["date"])]


def percent(value: float | None) -> str:
    """Return a share in percent, in words if it is not known."""
    return "not known" if value is None else f"{100 * value:.3g} %"


def escaped(value: object) -> str:
    """Return a text for HTML."""
    return escape("" if value is None else str(value))


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escaped(text)}</p>"


def note(text: str) -> str:
    """Return a paragraph in small, faint letters."""
    return f'<p class="note">{escaped(text)}</p>'


def drawing(svg: str) -> str:
    """Return a drawing that can be scrolled on a narrow screen."""
    return f'<div class="wide">{svg}</div>'


def bullets(texts: Iterable[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{escaped(text)}</li>" for text in texts) + "</ul>"


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; a column in which a number stands is aligned to the right."""
    body = list(rows)
    styles = [
        ' class="number"' if any(isinstance(row[place], int | float) for row in body) else ""
        for place in range(len(names))
    ]
    head = "".join(f"<th{style}>{escaped(name)}</th>" for name, style in zip(names, styles, strict=True))
    lines = ("".join(map(_table_cell, row, styles)) for row in body)
    text = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><tr>{head}</tr>{text}</table></div>'


def _table_cell(value: object, style: str) -> str:
    return f"<td{style}>{escaped(f'{value:,}' if isinstance(value, int) else value)}</td>"
