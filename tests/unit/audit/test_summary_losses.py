"""The losses of a summary are recomputed, also of clocks and beside equal values, or named as not examined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.cli import main
from support.judged_runs import write_lines
from support.making import SUBJECT, quasi

pytestmark = pytest.mark.unit

STREAM_FIELDS = "mse and mae in the summary, and its clipped values, displacement, excess span, delay and speed"
UNKNOWN_FIELDS = "fields of the summary that Shoal does not write"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FIELDS: dict[str, Any] = {"who": SUBJECT, "age": quasi(0, 110)}
FILES = ["--evidence", "e.jsonl", "--summary", "s.json"]


def released(
    command: str, attributes: dict[str, Any], records: list[dict[str, Any]], **document: Any
) -> dict[str, Any]:
    """Release thirty records; return the summary."""
    sections = {"attributes": FIELDS | attributes, "privacy": {"k": 3}, **document}
    write_lines(Path("policy.yaml"), [sections])
    write_lines(Path("in.jsonl"), [{"who": f"p{n}", "age": n * 7 % 50, **record} for n, record in enumerate(records)])
    assert main([command, "policy.yaml", "-i", "in.jsonl", "-o", "out.jsonl", *FILES]) == 0
    return dict(json.loads(Path("s.json").read_text()))


def release(command: str, years: list[Any], **attribute: Any) -> dict[str, Any]:
    """Release thirty records of the columns age and year; return the summary."""
    stream = {"stream": {"delta": 10}} if command == "pipe" else {}
    year = quasi(0, 1e15, resolution=1e-9, **attribute)
    return released(command, {"year": year}, [{"year": years[n % len(years)]} for n in range(30)], **stream)


def judged(summary: dict[str, Any], *options: str) -> tuple[int, list[str], list[str]]:
    """Return exit code, places that are broken, and what was not examined."""
    Path("s.json").write_text(json.dumps(summary))
    files = ["--original", "in.jsonl", "--released", "out.jsonl", *FILES, "--json", "v.json", *options]
    code = main(["verify", "policy.yaml", *files])
    verdict = json.loads(Path("v.json").read_text())
    places = [place for check in verdict["checks"] if check["status"] == "broken" for place in check["places"]]
    return code, places, verdict["not_examined"]


@pytest.mark.parametrize("command", ["pipe", "batch"])
@pytest.mark.parametrize("years", [[1996], [0.1], [None, 1996]], ids=["integers", "fractions", "missing"])
def test_losses_beside_an_attribute_of_equal_values_are_recomputed(command: str, years: list[Any]) -> None:
    summary = release(command, years, missing="group")
    assert summary["loss"]["year"] is None
    assert summary["sst"] == summary["released"]
    assert judged(summary)[0] == 0
    for field in ("sse", "sst", "information_loss"):
        assert judged(summary | {field: summary[field] * 1.01})[:2] == (1, [field])


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_attributes_of_equal_values_alone_have_no_loss(command: str) -> None:
    stream = {"stream": {"delta": 10}} if command == "pipe" else {}
    year = quasi(0, 1e15, resolution=1e-9)
    summary = released(command, {"year": year}, [{"age": 7, "year": 1996}] * 30, **stream)
    assert (summary["sse"], summary["sst"], summary["information_loss"]) == (0.0, 0.0, None)
    assert judged(summary)[0] == 0
    assert judged(summary | {"sse": 1.0})[:2] == (1, ["sse"])
    assert any("d_x" in text for text in judged(summary | {"d_x": 0.4})[2])


def test_losses_beside_an_attribute_that_hardly_varies_are_not_examined() -> None:
    summary = release("pipe", [1e14, 1e14 + 1 / 64])
    assert STREAM_FIELDS in judged(summary)[2]
    assert "sse, sst, information_loss in the summary" not in judged(summary)[2]
    code, places, not_examined = judged(summary | {"sse": 99.0})
    assert (code, places) == (0, [])
    assert "mean_loss, sse, sst and information_loss in the summary" in not_examined


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_all_fields_that_shoal_writes_are_compared_or_named(command: str) -> None:
    summary = release(command, [1996, 1997])
    code, _, not_examined = judged(summary)
    assert code == 0
    assert UNKNOWN_FIELDS not in not_examined
    assert ("dld, algorithm, refine and keep_order in the summary" in not_examined) is (command == "batch")
    assert ("widths" in summary) is (command == "pipe")
    assert "widths in the summary" not in not_examined, "nothing was learned from ten clusters"
    assert "widths in the summary" in judged(summary | {"widths": {"age": 8.5, "year": None}})[2]
    assert UNKNOWN_FIELDS in judged(summary | {"age is 41": 1})[2]
    assert "age is 41" not in Path("v.json").read_text()


# ---------------------------------------------------------------- clocks and the mean

AT = {"scale": "time", "bounds": ["2026-01-01", "2026-03-01"], "resolution": "min", "missing": "group"}
CLOCK = [None if n % 11 == 3 else f"2026-01-{n // 2 + 1:02d}T{n * 7 % 24:02d}:00:00Z" for n in range(30)]
"""Half a day passes from record to record, and the hour jumps; two of the records lack a time."""
MIXED = [CLOCK[n * 11 % 30] for n in range(30)]
"""The same without a trend."""


def released_clock(command: str, times: list[Any], **more: Any) -> dict[str, Any]:
    """Release thirty records of the columns age, shop and at."""
    attributes = {
        "shop": {"role": "quasi_identifier", "scale": "nominal"},
        "at": {"role": "quasi_identifier", **AT},
        "ill": {"role": "confidential", "type": "string"},
    }
    records = [{"shop": f"s{n % 5}", "at": times[n], "ill": f"i{n * 7 % 30}"} for n in range(30)]
    return released(command, attributes, records, **{"stream": {"delta": 6}, **more})


@pytest.mark.parametrize("rule", ["nearest", "greedy", "awo", "block"])
@pytest.mark.parametrize("release", ["cluster", "ordered"])
def test_the_loss_of_a_clock_is_recomputed(rule: str, release: str) -> None:
    summary = released_clock("pipe", CLOCK, stream={"delta": 6, "rule": rule, "release": release})
    assert summary["clocks"] == ["at"]
    assert summary["loss"]["at"] > 0.2
    code, places, not_examined = judged(summary)
    assert (code, places) == (0, [])
    assert not any("mean_loss" in text or "clocks" in text for text in not_examined)


def test_a_falsified_loss_of_a_clock_is_found() -> None:
    summary = released_clock("pipe", CLOCK)
    loss, mean = summary["loss"], summary["mean_loss"]
    for claim, place in (
        ({"loss": loss | {"at": loss["at"] * 0.9}}, "loss.at"),
        ({"loss": loss | {"at": 0.01}}, "loss.at"),  # as if the trend were an achievement
        ({"mean_loss": mean * 0.9}, "mean_loss"),
        ({"mean_loss": (loss["age"] + loss["shop"]) / 2}, "mean_loss"),  # without the clock
        ({"clocks": []}, "clocks"),
        ({"clocks": ["at", "at"]}, "clocks"),
        ({"clocks": ["at", "age"]}, "clocks"),
        ({"clocks": ["2026-01-01"]}, "clocks"),
    ):
        assert judged(summary | claim)[:2] == (1, [place]), claim
    assert "2026-01-01" not in Path("v.json").read_text()


def test_a_time_without_a_trend_is_no_clock() -> None:
    summary = released_clock("pipe", MIXED)
    assert summary["clocks"] == []
    assert judged(summary)[:2] == (0, [])
    assert judged(summary | {"clocks": ["at"]})[:2] == (1, ["clocks"])
    assert judged(summary | {"mean_loss": summary["mean_loss"] / 2})[:2] == (1, ["mean_loss"])


def test_a_table_has_no_clocks_and_a_mean(capsys: pytest.CaptureFixture[str]) -> None:
    summary = released_clock("batch", CLOCK)
    assert "clocks" not in summary
    assert judged(summary, "--table")[:2] == (0, [])
    assert judged(summary)[0] == 2
    assert "add --table if shoal batch made the release" in capsys.readouterr().err
    assert judged(summary | {"mean_loss": summary["mean_loss"] + 0.01}, "--table")[:2] == (1, ["mean_loss"])
    assert any("clocks" in text for text in judged(summary | {"clocks": ["at"]}, "--table")[2])


def test_a_summary_of_an_earlier_version_keeps_the_trend() -> None:
    summary = released_clock("pipe", CLOCK)
    earlier = {name: value for name, value in summary.items() if name not in {"clocks", "mean_loss"}}
    assert judged(earlier)[:2] == (1, ["loss.at"]), "it removed no trend"
    loss, clock = summary["loss"], [float(np.datetime64(text.rstrip("Z"), "m").astype(int)) for text in CLOCK if text]
    offsets = np.array([n for n, text in enumerate(CLOCK) if text])
    left = sum(np.var(own) * len(own) for own in (np.array(clock)[offsets // 7 == one] for one in range(5)))
    kept = loss | {"at": loss["at"] * left / (np.var(clock) * len(clock))}
    assert kept["at"] < loss["at"] / 5
    assert judged(earlier | {"loss": kept})[:2] == (0, [])
    assert judged(earlier | {"loss": kept, "clocks": []})[:2] == (1, ["loss.at", "clocks"])


def test_clocks_are_a_list_of_names() -> None:
    summary = released_clock("pipe", CLOCK)
    for wrong in ("at", {"at": 1}, [1]):
        Path("s.json").write_text(json.dumps(summary | {"clocks": wrong}))
        assert main(["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.jsonl", *FILES]) == 2


def test_losses_of_clocks_are_compared_as_far_as_records_are_known_without_evidence() -> None:
    summary = released_clock("pipe", CLOCK)
    Path("e.jsonl").unlink()
    verify = ["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.jsonl", "--summary", "s.json"]
    assert main(verify) == 0
    Path("s.json").write_text(json.dumps(summary | {"loss": summary["loss"] | {"at": 0.01}}))
    assert main(verify) == 2, "other clusters than those inferred could explain it"
