"""`shoal schema`: print the JSON Schema of a policy, for editors."""

from __future__ import annotations

import argparse
import json

from shoal.policy.schema import policy_schema


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Declare no further options."""


def execute(_: argparse.Namespace) -> int:
    """Print the schema as JSON."""
    print(json.dumps(policy_schema(), indent=2, ensure_ascii=False))
    return 0
