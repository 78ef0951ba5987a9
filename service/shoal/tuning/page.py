"""The page of `shoal tune`: one HTML file, made of the numbers of `results_of` and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from shoal.reports.page import bullets, drawing, escaped, note, origin_rows, page_of, paragraph, percent, table
from shoal.reports.svg import bars, curves

Results: TypeAlias = Mapping[str, Any]
_COLUMNS = (
    ("mean loss", "loss"),
    ("suppressed", "suppressed_share"),
    ("delay, records", "delay"),
    ("delay, time", "delay_s"),
    ("reordering, records", "reordering"),
    ("people, smallest", "smallest_cluster"),
    ("l", "l"),
    ("t", "t"),
    ("prosecutor", "prosecutor_largest"),
    ("journalist", "journalist_largest"),
    ("marketer", "marketer"),
    ("linkage", "linkage"),
    ("guess", "guess"),
)
_SHARES = {
    "loss",
    "suppressed_share",
    "prosecutor_largest",
    "prosecutor_mean",
    "journalist_largest",
    "marketer",
    "linkage",
    "guess",
    "single_value",
}
_FIGURES = {
    "loss": "mean loss of the quasi-identifiers",
    "suppressed_share": "records that are suppressed, rounded up to multiples of k records",
    "delay": "delay in records, mean",
    "delay_s": "delay by the time of events, mean",
    "reordering": "places by which a record moves, mean",
    "smallest_cluster": "people in the smallest cluster",
    "mean_cluster": "people in a cluster, mean",
    "l": "fewest confidential values in a cluster (l)",
    "t": "largest distance of a cluster from all people in confidential values (t)",
    "prosecutor_largest": "prosecutor, who knows the cluster of a person: largest risk",
    "prosecutor_mean": "the same: mean of all records",
    "journalist_largest": "journalist, who finds all equal rows: largest risk",
    "marketer": "marketer, who links all records: share of right links",
    "linkage": "rows that are nearest to their own original, in numbers, ranks and times",
    "guess": "chance to guess a confidential value of a person whose cluster is known",
    "single_value": "records in clusters of a single confidential value",
    "unique": "released rows that no other row equals",
}


def html_of(results: Results) -> str:
    """Return the page."""
    own, chosen = results["policy"]["figures"], results["recommended"]["figures"]
    parts = [
        "<h1>What other settings of this policy would keep, and risk</h1>",
        paragraph(
            f"Made on {results['made']['date']}. This page contains statistics of raw data: keep it as its policy asks."
        ),
        f'<p class="verdict"><strong>{escaped(sentence_of(results))}</strong></p>',
        note("Nothing of a single record is on this page: no value of the sample, and no exact count of its records."),
        *_recommended(results),
        *_beside(own, chosen, "nearest" if results["out_of_reach"] else "recommended"),
        *_curves(results["curves"]),
        *_attributes(own, chosen),
        *_settings(results),
        *_weights(results["weights"]),
        *_made(results),
    ]
    return page_of("Settings of a policy", parts)


def sentence_of(results: Results) -> str:
    """Return the recommendation in one sentence."""
    recommended = results["recommended"]
    figures = recommended["figures"]
    keys = "the policy as it is" if not recommended["setting"] else recommended["words"]
    facts = [f"mean loss {percent(figures['loss'])}", f"{percent(figures['suppressed_share'])} suppressed"]
    if figures["delay"] is not None:
        facts.append(f"delay {figures['delay']['mean']:g} records")
    if figures["delay_s"] is not None:
        facts.append(duration(figures["delay_s"]["mean"]))
    before = "Stopped early. " if results["is_interrupted"] else ""
    if not figures["released"]:
        return f"{before}No setting released a record: give a longer sample, or a smaller k."
    if recommended["protects_less"]:
        facts.append("protects less than the policy itself")
    if results["out_of_reach"]:
        return f"{before}Out of reach: {', '.join(results['out_of_reach'])}. Nearest: {keys} ({', '.join(facts)})."
    return f"{before}Recommended: {keys} ({', '.join(facts)})."


def _recommended(results: Results) -> Iterator[str]:
    recommended = results["recommended"]
    if results["out_of_reach"]:
        yield "<h2>Nearest to the targets</h2>"
        yield paragraph("No setting that was tried holds the targets. This is the nearest one, and no recommendation.")
    else:
        yield "<h2>Recommended</h2>"
    yield paragraph(f"Why: {recommended['reason']}.")
    if recommended["protects_less"]:
        yield paragraph(
            "It protects less than the policy itself: it promises less, or its smallest cluster has fewer people."
        )
    whole, half = recommended["figures"]["loss"], recommended["loss_of_first_half"]
    if whole is not None and half is not None:
        yield paragraph(
            f"On the first half of the sample alone it loses {percent(half)}, on the whole {percent(whole)}: expect as "
            "much difference from later records. A target that is held narrowly needs a margin."
        )
    if recommended["block"]:
        yield note("Set these keys in the policy; all others stay.")
        yield f"<pre>{escaped(recommended['block'])}</pre>"
    if results["targets"]:
        rows = (
            (
                one["target"],
                _of_unit(one["reached"], one["unit"]),
                ("\u2713 holds" if one["is_held"] else "\u2717 NOT HELD") + (", narrowly" if one["is_narrow"] else ""),
                _of_unit(one["least"], one["unit"]),
            )
            for one in results["targets"]
        )
        yield table(("target", "reached", "result", "least of all settings"), rows)


def _of_unit(value: float | None, unit: str) -> str:
    if value is None or unit == "share":
        return percent(value)
    return duration(value) if unit == "s" else f"{value:g} records"


def duration(seconds: float) -> str:
    """Return a time for people.

    >>> duration(0.25), duration(90), duration(5400), duration(950000)
    ('0.25 s', '90 s', '1.5 h', '11 days')
    """
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit == "h" and seconds >= length):
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _beside(own: Results, chosen: Results, name_of_chosen: str) -> Iterator[str]:
    yield f"<h2>The policy beside the {name_of_chosen} setting</h2>"
    names = [name for name in _FIGURES if own[name] is not None or chosen[name] is not None]
    rows = ((_FIGURES[name], _cell(name, own), _cell(name, chosen)) for name in names)
    yield table(("what", "the policy", name_of_chosen), rows)


def _cell(name: str, figures: Results) -> object:
    value = figures[name]
    if isinstance(value, Mapping):
        mean, late = (_part(name, value[part]) for part in ("mean", "p95"))
        return f"{mean} (95 of 100: {late})" if late else mean
    return "" if value is None else percent(value) if name in _SHARES else value


def _part(name: str, value: float | None) -> str:
    return "" if value is None else duration(value) if name == "delay_s" else f"{value:g}"


def _curves(found: Results) -> Iterator[str]:
    yield "<h2>What is traded for what</h2>"
    for name, title, label in (
        ("delay", "Loss against delay", "mean delay, records"),
        ("reordering", "Loss against reordering", "mean number of places by which a record moves"),
        ("k", "Loss against k, and the price of streaming", "k"),
    ):
        if not any(len(line["points"]) > 1 for line in found[name]) and len(found[name]) < 2:  # noqa: PLR2004
            continue
        lines = [(line["name"], [(one["x"], 100 * one["loss"]) for one in line["points"]]) for line in found[name]]
        yield f"<h3>{title}</h3>"
        yield drawing(curves(title, label, "mean loss, %", lines))
    if any(line["name"] == "one table" for line in found["k"]):
        yield note(
            "One table: the same records in one piece, after the end. The distance to it is the price of streaming."
        )


def _attributes(own: Results, chosen: Results) -> Iterator[str]:
    names = [name for name, loss in own["loss_by_attribute"].items() if loss is not None]
    names.sort(key=lambda name: -own["loss_by_attribute"][name])
    if not names:
        return
    yield "<h2>Loss of each attribute</h2>"
    series = [
        (style, title, [round(100 * (figures["loss_by_attribute"][name] or 0.0), 2) for name in names])
        for style, title, figures in (("before", "the policy", own), ("after", "chosen", chosen))
    ]
    yield drawing(bars("Loss of each attribute", names, series, "%"))
    yield note("In percent. The outlined bar is the policy, the filled bar the chosen setting.")


def _settings(results: Results) -> Iterator[str]:
    yield "<h2>All settings: risk beside utility</h2>"
    lines = [(one, "") for one in results["settings"]]
    lines += [(one, ", one table") for one in results["tables"]]
    columns = [(title, name) for title, name in _COLUMNS if any(one["figures"][name] is not None for one, _ in lines)]
    all_settings = table(
        ("setting", *(title for title, _ in columns)),
        ((one["words"] + kind, *(_short(name, one["figures"]) for _, name in columns)) for one, kind in lines),
    )
    yield f'<div class="dense">{all_settings}</div>'
    sample = results["sample"]
    guess = "" if sample["guess"] is None else f" The most frequent confidential value has {percent(sample['guess'])}."
    share = "" if sample["unique_share"] is None else f" ({percent(sample['unique_share'])})"
    yield note(
        f"Before any release: records that are unique in their quasi-identifiers: {sample['unique']}{share}.{guess}"
    )
    if results["not_possible"]:
        yield "<h3>Settings that are not possible</h3>"
        yield bullets(f"{one['setting']}: {one['reason']}" for one in results["not_possible"])


def _short(name: str, figures: Results) -> object:
    value = figures[name]
    if not isinstance(value, Mapping):
        return _cell(name, figures)
    return _part(name, value["mean"])


def _weights(weighted: Sequence[Results]) -> Iterator[str]:
    if not weighted:
        return
    yield "<h2>Weights of attributes</h2>"
    start = weighted[0]["figures"]["loss"]
    better = sorted(
        (one for one in weighted[1:] if one["figures"]["loss"] < start), key=lambda one: one["figures"]["loss"]
    )
    yield paragraph(
        f"{len(weighted) - 1} changes of weights were tried; before them the mean loss is {percent(start)}. "
        f"{'Those that lose less:' if better else 'None loses less.'}"
    )
    if better:
        yield table(
            ("weights", "mean loss", "suppressed"),
            (
                (one["words"], percent(one["figures"]["loss"]), percent(one["figures"]["suppressed_share"]))
                for one in better[:10]
            ),
        )


def _made(results: Results) -> Iterator[str]:
    yield "<h2>How it was made</h2>"
    sample = results["sample"]
    cut = f", the first {sample['most_records']} of the file" if sample["is_cut"] else ""
    rows: list[tuple[str, object]] = [
        ("records of the sample", f"{sample['records']}{cut}"),
        ("accepted by the policy", sample["accepted"]),
        ("refused", sample["refused"]),
        ("people", sample["people"]),
        ("time of events", sample["event_time"] or "none: delays are in records"),
        ("settings", len(results["settings"]) + len(results["tables"]) + max(0, len(results["weights"]) - 1)),
        ("policy, fingerprint", results["policy"]["fingerprint"]),
    ]
    yield table(("what", "which"), [*rows, *origin_rows(results["made"])])
    yield paragraph(
        "Each setting released the sample with the engine of `shoal pipe`, one table with that of `shoal batch`. "
        "A loss is the lost part of the variation of a number, or the mean distance of a category from its published "
        "one. Counts are rounded to multiples of k."
    )
    yield "<h3>Not examined</h3>"
    yield bullets(results["not_examined"])
