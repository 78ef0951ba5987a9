"""The page on the policy is made of the schema, the command line and a template, and is not out of date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from shoal.policy.schema import AttributeSection, KafkaSection, policy_schema
from support import policy_page
from support.policy_page import PAGE, items_of, page

pytestmark = pytest.mark.unit


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "out of date: make policy-page"


def test_a_key_in_no_list_or_in_two_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "template"
    monkeypatch.setattr(policy_page, "TEMPLATE", template)
    for text, fault in (
        ("{{ PerSubjectSection: max }}", r"PerSubjectSection: \['window'\]"),
        ("{{ PerSubjectSection }}\n\n{{ PerSubjectSection: max }}", r"PerSubjectSection: \[\] in no list, or in two"),
    ):
        template.write_text(text)
        with pytest.raises(ValueError, match=fault):
            page()


def test_an_item_has_values_default_meaning_and_example() -> None:
    (item,) = items_of(KafkaSection, "commit_interval_ms")
    assert item == (
        "- `commit_interval_ms`, `SHOAL_KAFKA__COMMIT_INTERVAL_MS`: integer from 1 to 60,000; default 200. Time "
        "between the\n  transactions of a partition."
    )
    (item,) = items_of(KafkaSection, "ssl_cafile")
    assert item == (
        "- `ssl_cafile`, `SHOAL_KAFKA__SSL_CAFILE`: file; default the system's. File of the certificates that are "
        "trusted (PEM)."
    )
    (item,) = items_of(AttributeSection, "bounds")
    assert item.endswith(" Example: `[0, 110]`")


def test_every_variable_of_the_connection_is_on_the_page() -> None:
    listed = set(re.findall(r"`(SHOAL_KAFKA__[A-Z_]+)`", PAGE.read_text(encoding="utf-8")))
    assert listed == {f"SHOAL_KAFKA__{name.upper()}" for name in KafkaSection.model_fields}


def test_every_example_is_a_value_of_its_key() -> None:
    schema = policy_schema()
    wrong, count = [], 0
    for section in (schema, *schema["$defs"].values()):
        for name, part in section["properties"].items():
            checked: dict[str, Any] = {**part, "$defs": schema["$defs"]}
            for example in part.get("examples", ()):
                count += 1
                wrong += [f"{name}: {error.message}" for error in Draft202012Validator(checked).iter_errors(example)]
    assert wrong == []
    assert count > 50
