"""Defaults, the fingerprint and the plain form of a resolved policy."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy, Role
from support.policy_files import GOOD, load

pytestmark = pytest.mark.unit


def test_a_policy_is_resolved_with_its_defaults(tmp_path: Path) -> None:
    policy = load(GOOD, tmp_path)
    assert [a.name for a in policy.quasi_identifiers] == ["age", "income"]
    assert [a.name for a in policy.unchanged_fields] == ["diagnosis", "ward"]
    assert [a.name for a in policy.published] == ["age", "income", "diagnosis", "ward"]
    assert policy.subject is not None
    assert (policy.subject.name, policy.subject.role) == ("patient", Role.IDENTIFIER)
    assert (policy.k, policy.max_share, policy.position) == (10, 0.5, 0.0)
    assert policy.stream is not None
    assert (policy.stream.delta, policy.stream.rule, policy.stream.max_delay_s) == (100, "block", None)
    assert policy.quasi_identifiers[1].weight == 2.0


@pytest.mark.parametrize(
    ("k", "name", "rule", "reason"),
    [
        (6, "auto", "awo", "auto: awo below k = 7"),
        (7, "auto", "block", "auto: block from k = 7 on"),
        (7, "awo", "awo", ""),
    ],
)
def test_auto_is_resolved_by_k_and_only_the_resolved_rule_counts(
    tmp_path: Path, k: int, name: str, rule: str, reason: str
) -> None:
    def policy_of(written: str) -> Policy:
        text = "subject: every_record\nattributes: {age: {role: quasi_identifier, bounds: [0, 1]}}\n"
        text += f"privacy: {{k: {k}}}\nstream: {{delta: 50, rule: {written}}}\n"
        return load(text, tmp_path)

    stream = policy_of(name).require_stream()
    assert (stream.rule, stream.reason) == (rule, reason)
    assert policy_of(name).fingerprint == policy_of(rule).fingerprint


def test_options_are_resolved_and_change_the_fingerprint(tmp_path: Path) -> None:
    plain = load(GOOD, tmp_path)
    assert (plain.per_subject, plain.min_population) == (None, None)
    assert plain.resolved()["privacy"] == {"k": 10, "max_share": 0.5}
    prints = {plain.fingerprint}
    for option, resolved in (
        ("per_subject: {max: 3, window: 1000}", {"per_subject": {"max": 3, "window": 1000}}),
        ("min_population: 20", {"min_population": 20}),
    ):
        policy = load(GOOD.replace("{k: 10}", f"{{k: 10, {option}}}"), tmp_path)
        assert policy.resolved()["privacy"] == {"k": 10, "max_share": 0.5, **resolved}
        prints.add(policy.fingerprint)
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ("bounds: [0, 110], integer: true", "1"),
        ("bounds: [0, 110]", "0.5"),
        ("bounds: [0, 1000000]", "5000"),
        ("bounds: [-4, 5]", "0.02"),
        ("bounds: [0, 1]", "0.005"),
        ("bounds: [0, 0.003]", "0.00001"),
        ("bounds: [0, 200]", "1"),
        ("bounds: [0, 399]", "1"),
        ("bounds: [0, 110], resolution: 0", "0"),
        ("bounds: [0, 110], resolution: 0.25", "0.25"),
        ("bounds: [0, 1000], resolution: 500", "500"),
        ("bounds: [0, 1000], resolution: 1e2", "100"),
        ("bounds: [0, 110], integer: true, resolution: 0.5", "0.5"),
    ],
)
def test_the_publication_step_comes_from_the_policy_alone(about: str, expected: str, tmp_path: Path) -> None:
    policy = load(GOOD.replace("scale: numeric, bounds: [0, 110], integer: true", about), tmp_path)
    grid = policy.quasi_identifiers[0].publication_step()
    assert grid == Decimal(expected)
    assert "E" not in str(grid) or grid < Decimal("1e-6")
    assert policy.quasi_identifiers[0].publication_step(table=True) == (
        Decimal(expected) if "resolution" in about else 0
    )


def test_the_fingerprint_covers_what_affects_the_release_only(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        return load(text, tmp_path).fingerprint

    plain = fingerprint(GOOD)
    assert fingerprint(GOOD + "kafka: {input: a, output: b, group: c}\n") == plain
    assert fingerprint(GOOD + "# a remark\n") == plain
    assert fingerprint(GOOD.replace("bounds: [0, 110]", "bounds: [0.0, 110.0]")) == plain
    for old, new in [
        ("{k: 10}", "{k: 11}"),
        ("{k: 10}", "{k: 10, max_share: 0.4}"),
        ("{delta: 100}", "{delta: 101}"),
        ("{delta: 100}", "{delta: 100, max_delay_s: 9}"),
        ("[0, 110]", "[0, 111]"),
        ("weight: 2.0", "weight: 3.0"),
        ("stream:", "steering: {position: 0.1}\nstream:"),
        ("stream:", "out_of_bounds: quarantine\nstream:"),
        ("diagnosis", "illness"),
    ]:
        assert fingerprint(GOOD.replace(old, new)) != plain, new
    swapped = GOOD.splitlines(keepends=True)
    swapped[2], swapped[3] = swapped[3], swapped[2]
    assert fingerprint("".join(swapped)) != plain, "the order of attributes is the output's order"


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    secrets = "sasl_username: hunter1, sasl_password: hunter2, ssl_password: hunter3, sasl_oauth_token: hunter4"
    text = GOOD + f"kafka: {{input: a, output: b, group: c, {secrets}}}\n"
    policy = load(text, tmp_path)
    assert "hunter" not in json.dumps(policy.resolved())
    assert "hunter" not in repr(policy)
    assert policy.kafka is not None
    assert policy.kafka.sasl_password is not None
    assert policy.kafka.sasl_password.get_secret_value() == "hunter2"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("[/bin/token, --client-secret, hunter2]", ["/bin/token", "(2 arguments)"]),
        ("[/bin/token, hunter2]", ["/bin/token", "(1 argument)"]),
        ("[/bin/token]", ["/bin/token", "(0 arguments)"]),
    ],
)
def test_arguments_of_a_program_are_not_shown(tmp_path: Path, command: str, shown: list[str]) -> None:
    policy = load(GOOD + f"kafka: {{input: a, output: b, group: c, sasl_oauth_command: {command}}}\n", tmp_path)
    assert policy.resolved()["kafka"]["sasl_oauth_command"] == shown
    assert "hunter" not in repr(policy)


def test_a_table_needs_neither_stream_nor_bounds(tmp_path: Path) -> None:
    text = GOOD.replace("stream: {delta: 100}\n", "").replace("bounds: [0, 110], ", "")
    policy = load(text, tmp_path)
    assert policy.quasi_identifiers[0].bounds is None
    with pytest.raises(PolicyError, match="stream"):
        policy.require_stream()


def test_out_of_bounds_can_be_set_for_all_or_for_one(tmp_path: Path) -> None:
    policy = load(GOOD.replace("integer: true", "integer: true, out_of_bounds: quarantine"), tmp_path)
    assert [a.clip for a in policy.quasi_identifiers] == [False, True]
    policy = load(
        GOOD.replace("integer: true", "integer: true, out_of_bounds: clip") + "out_of_bounds: quarantine\n", tmp_path
    )
    assert [a.clip for a in policy.quasi_identifiers] == [True, False]


def test_the_resolved_policy_consists_of_plain_values(tmp_path: Path) -> None:
    assert json.loads(json.dumps(load(GOOD, tmp_path).resolved()))["attributes"]["income"] == {
        "role": "quasi_identifier",
        "scale": "numeric",
        "bounds": [0.0, 1000000.0],
        "out_of_bounds": "clip",
        "integer": False,
        "resolution": "500",
        "weight": 2.0,
    }
