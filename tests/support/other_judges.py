"""What pycanon and anjana say of released tables: a program of an environment of its own, which has both.

anjana needs other versions of packages than Shoal is tested with. It anonymizes tables; one that it gives back whole
satisfies what was asked.

Standard input: a JSON list of tables, each with ``path``, ``quasi``, ``value`` and ``asked``, the k, l, entropy l and t
that each must have exactly. Standard output: a list with what pycanon measures, and whether anjana agrees.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

import anjana.anonymity as anjana
import pandas as pd
from pycanon import anonymity


def accepts(frame: Any, quasi: list[str], value: str, **asked: float) -> bool:
    """Whether anjana gives the table back as it is. Nothing can be generalized, and no row be left out."""
    hierarchies = {name: {0: frame[name].to_numpy()} for name in quasi}
    limit = next((name for name in asked if name != "k"), "")
    made = {
        "": anjana.k_anonymity,
        "l_div": anjana.l_diversity,
        "entropy": anjana.entropy_l_diversity,
        "t": anjana.t_closeness,
    }[limit]
    given = {"l_div" if name == "entropy" else name: number for name, number in asked.items()}
    more = {"sens_att": value} if limit else {}
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            found = made(frame, [], quasi, supp_level=0, hierarchies=hierarchies, **more, **given)
        except ValueError:  # it measures the empty table that it made
            return False
    return len(found) == len(frame) and bool((found[quasi].to_numpy() == frame[quasi].to_numpy()).all())


def judged(table: dict[str, Any]) -> dict[str, Any]:
    quasi, value, asked = table["quasi"], table["value"], table["asked"]
    frame = pd.read_csv(table["path"], dtype={value: "int64" if table["is_rank"] else str}, keep_default_na=False)
    k, distinct, entropy, t = (asked[name] for name in ("k", "l", "entropy", "t"))
    answers = {
        "k": accepts(frame, quasi, value, k=k) and not accepts(frame, quasi, value, k=k + 1),
        "l": accepts(frame, quasi, value, k=k, l_div=distinct)
        and not accepts(frame, quasi, value, k=k, l_div=distinct + 1),
        "entropy": accepts(frame, quasi, value, k=k, entropy=entropy)
        and not accepts(frame, quasi, value, k=k, entropy=entropy + 1),
        "t": accepts(frame, quasi, value, k=k, t=t + 1e-9) and not accepts(frame, quasi, value, k=k, t=t - 1e-9),
    }
    measured = {
        "k": int(anonymity.k_anonymity(frame, quasi)),
        "l": int(anonymity.l_diversity(frame, quasi, [value])),
        "entropy": int(anonymity.entropy_l_diversity(frame, quasi, [value])),
        "t": float(anonymity.t_closeness(frame, quasi, [value])),
        "share": float(anonymity.alpha_k_anonymity(frame, quasi, [value])[0]),
    }
    return {"pycanon": measured, "anjana": answers}


if __name__ == "__main__":
    json.dump([judged(table) for table in json.load(sys.stdin)], sys.stdout)
