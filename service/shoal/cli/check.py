"""`shoal check`: print the resolved policy, or all of its faults; advice goes to standard error."""

from __future__ import annotations

import argparse
import json

from shoal.kafka import check_policy
from shoal.observability import escape_control_characters, logger
from shoal.policy import Policy, advise
from shoal.settings import kafka_settings

__all__ = ["SUMMARY", "add_arguments", "execute"]

SUMMARY: str | None = "Print the resolved policy, or all of its faults."


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Declare no further options."""


def execute(options: argparse.Namespace) -> int:
    """Print the policy with every default filled in, as JSON, and log what its author should decide on."""
    policy = Policy.load(options.policy)
    check_policy(policy, options.policy)
    kafka_settings(policy, required=(), has_secrets=False)
    resolved = policy.resolved() | {"fingerprint": policy.fingerprint}
    if policy.stream is not None and policy.stream.reason:
        resolved["chosen"] = {"stream.rule": policy.stream.reason}
    print(escape_control_characters(json.dumps(resolved, indent=2, ensure_ascii=False)))
    for advice in advise(policy):
        logger("cli").warning(escape_control_characters(advice))
    return 0
