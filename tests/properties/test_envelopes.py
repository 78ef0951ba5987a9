"""Keys, headers and timestamps: `shoal pipe` and `shoal verify` read them alike."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shoal.audit import verify
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from support.by_night import by_day

pytestmark = pytest.mark.property

TYPES = st.sampled_from(["any", "string", "integer", "number", "boolean"])
NUMBERS = ["7", "007", " 7.0", "+7", "7e0", "70e-1", ".5", "-0", "1e400", "7\n", "nan", "0x7", "1_0", "1,5"]
NUMBERS += ["\u00a07", "\uff17"]
NAMES = [
    "",
    " ",
    "true",
    "TRUE",
    "False",
    "null",
    "Zoe\u0308",
    "Zo\u00eb",
    "\x00",
    "\ud800",
    *(f"p{n}" for n in range(6)),
]
ODD = st.sampled_from(NUMBERS + NAMES)
TEXTS = st.none() | ODD | st.just({"base64": "/w=="}) | st.text(max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "key": TEXTS,
            "headers": st.lists(st.tuples(st.sampled_from(["x", "x", "kept", "kept", "other"]), TEXTS), max_size=4),
            "timestamp": st.integers(-2, 120),
            "value": st.sampled_from(["{}", "{}", "{}", None, "[]", '{"who":1}', "\ud800"]),
        }
    ),
    min_size=6,
    max_size=30,
)


def with_odd_space(text: str) -> list[dict[str, Any]]:
    """Messages of twelve persons; one has this text as its number."""
    one: list[dict[str, Any]] = [
        {"key": f"p{place}", "headers": [["x", "4"], ["kept", "7"]], "timestamp": 1, "value": "{}"}
        for place in range(12)
    ]
    one[6]["headers"] = [["x", text], ["kept", "7"]]
    return one


@settings(max_examples=by_day(40, 150), deadline=None)
@example(with_odd_space("\u00a07"), "any", "any", "jsonl", "quarantine")
@example(with_odd_space("7\n"), "any", "any", "jsonl", "quarantine")
@given(MESSAGES, TYPES, TYPES, st.sampled_from(["jsonl", "csv"]), st.sampled_from(["quarantine", "drop"]))
def test_pipe_and_verify_read_envelopes_alike(
    messages: list[dict[str, Any]], subject: str, kept: str, target: str, undeclared: str
) -> None:
    attributes = {
        "who": {"role": "identifier", "subject": True, "type": subject, "from": "key"},
        "x": {"role": "quasi_identifier", "bounds": [0, 10], "from": "header:x"},
        "at": {"role": "quasi_identifier", "bounds": [0, 100], "from": "timestamp"},
        "kept": {"role": "confidential", "type": kept, "from": "header:kept"},
    }
    for number, message in enumerate(messages):
        # Every second message is valid, so that records are released.
        if number % 2:
            good = "true" if kept == "boolean" else "7.0" if kept == "number" else "7"
            message |= {"headers": [["x", "4"], ["kept", good]], "value": "{}", "timestamp": number}
    with TemporaryDirectory() as name:
        folder = Path(name)
        document = {"attributes": attributes, "undeclared": undeclared, "privacy": {"k": 2}, "stream": {"delta": 4}}
        (folder / "policy.yaml").write_text(json.dumps(document))
        policy = Policy.load(folder / "policy.yaml")
        source, out = folder / "in.jsonl", folder / f"out.{target}"
        source.write_text("".join(json.dumps(message) + "\n" for message in messages))
        evidence, summary, quarantine = (str(folder / one) for one in ("evidence", "summary", "quarantine"))
        run_pipe(policy, Files(str(source), str(out), None, None, summary, evidence, quarantine))
        summary_fields = json.loads((folder / "summary").read_text())
        if summary_fields["released"]:
            verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine)
            assert verdict.exit_code == 0, verdict.text()
            assert verdict.counts["unusable"] == sum(summary_fields["quarantined"].values())
