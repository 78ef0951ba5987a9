"""An outside count of a release: how many records have the same published quasi-identifiers.

Nothing of Shoal is used here, neither code nor policy: a record is a JSON object, and the names of the
quasi-identifiers are written below. As a program: ``outside.py OUTPUT.jsonl``, the file that the demo writes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

__all__ = ["QUASI_IDENTIFIERS", "class_sizes"]

QUASI_IDENTIFIERS = ("birth_date", "sex", "postcode", "admitted_at", "icd", "length_of_stay")


def class_sizes(records: Iterable[str]) -> list[int]:
    """Return the number of records of each equivalence class: equal values of all quasi-identifiers, null included."""
    rows = [json.loads(record) for record in records]
    return sorted(Counter(tuple(json.dumps(row[name]) for name in QUASI_IDENTIFIERS) for row in rows).values())


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    sizes = class_sizes(json.loads(line)["value"] for line in lines)
    print(f"{len(lines)} records in {len(sizes)} classes; the smallest has {min(sizes, default=0)}")
