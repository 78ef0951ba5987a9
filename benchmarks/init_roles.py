"""`make init-table`: draft policies of tables that packages ship, compare their roles with the key, run them.

The key (init_roles.yaml) was written before the code. The page is docs/reports/init.md.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from ruamel.yaml import YAML
from shoal.drafts import Draft, read_sample, write_draft
from shoal.files import run_sample
from shoal.policy import Policy

ROOT = Path(__file__).resolve().parents[1]
KEY, PAGE = ROOT / "benchmarks" / "init_roles.yaml", ROOT / "docs" / "reports" / "init.md"
MOST_RECORDS = 5_000
"""Of each table; the draft sees all of it."""
LEAST_RELEASED = 95.0
ROLES = ("identifier", "quasi_identifier", "confidential")


class Drafted(NamedTuple):
    """A table: where it is from, its rows, percent released, and the right and the guessed role of each field."""

    name: str
    rows: int
    released: float
    roles: dict[str, tuple[str, str]]


def load(package: str, name: str) -> pd.DataFrame:
    """Return a table of a package."""
    if package == "statsmodels":
        import statsmodels.api as sm  # noqa: PLC0415 - each is slow

        return getattr(sm.datasets, name).load_pandas().data
    if package == "sklearn":
        from sklearn import datasets  # noqa: PLC0415 - as above

        return getattr(datasets, f"load_{name}")(as_frame=True).frame
    if package == "vega_datasets":
        from vega_datasets import local_data  # noqa: PLC0415 - as above

        return getattr(local_data, name)()
    spec = find_spec(package)  # to import it would make a folder in the home of the user
    assert spec is not None
    assert spec.submodule_search_locations is not None
    with tarfile.open(Path(spec.submodule_search_locations[0]) / "resources.tar.gz") as archive:
        member = min(one for one in archive.getnames() if one.endswith(f"/{name}.csv") and "/csv/" in one)
        file = archive.extractfile(member)
        assert file is not None
        return pd.read_csv(io.BytesIO(file.read()), index_col=0)


def drafted(folder: Path, package: str, name: str, key: dict[str, Any]) -> Drafted:
    """Draft the policy of a table, and release the table by it."""
    sample, policy = folder / f"{name}.csv", folder / f"{name}.yaml"
    load(package, name).to_csv(sample, index=False)
    draft = Draft.of(read_sample(str(sample), None), key["subject"])
    policy.write_text(write_draft(draft), encoding="utf-8")
    report = run_sample(Policy.load(policy), str(sample), None, MOST_RECORDS)
    right = {field: role for role in ("identifier", "confidential") for field in key.get(role, [])}
    guessed = {one.field.name: one.role for one in draft.guesses}
    if missing := right.keys() - guessed.keys():
        raise ValueError(f"{name} has no {', '.join(missing)}")
    roles = {field: (right.get(field, "quasi_identifier"), role) for field, role in guessed.items()}
    return Drafted(f"{package}: {name}", draft.sample.rows, 100 * report.released / report.records_in, roles)


def page(tables: list[Drafted]) -> Iterator[str]:
    counts = Counter(pair for one in tables for pair in one.roles.values())
    fields, good = counts.total(), sum(counts[role, role] for role in ROLES)
    yield "# Roles that `shoal init` guesses"
    yield ""
    yield "Written by `make init-table`. The right roles were decided by reading the tables, before the command was"
    yield "written (`benchmarks/init_roles.yaml`). No draft was edited; the person was given by `--subject`."
    yield ""
    yield f"{len(tables)} tables, {fields} fields, {100 * good / fields:.0f} % with the right role."
    yield ""
    yield "| role | fields | found (recall) | right where guessed (precision) |"
    yield "|---|---|---|---|"
    for role in ROLES:
        true = sum(counts[role, other] for other in ROLES)
        said = sum(counts[other, role] for other in ROLES)
        recall, precision = (f"{100 * counts[role, role] / total:.0f} %" if total else "-" for total in (true, said))
        yield f"| {role} | {true} | {recall} | {precision} |"
    exposed = sum(counts[role, "confidential"] for role in ROLES[:2])
    unseen = sum(counts["identifier", other] for other in ROLES[1:])
    yield ""
    yield f"- Identifiers that a draft would publish: {unseen}."
    yield f"- Fields that a draft would wrongly publish unchanged: {exposed}."
    unnamed = counts["confidential", "quasi_identifier"]
    yield f"- Confidential fields that become quasi-identifiers: {unnamed}. Their names do not say that they are"
    yield "  sensitive, as `status` or `class`. They lose detail; give them the role `confidential` where it is meant."
    yield ""
    yield f"Released, of at most {MOST_RECORDS:,} rows of each table, by the draft as it is:"
    yield ""
    yield "| table | rows | released, % | fields | other roles than in the key |"
    yield "|---|---|---|---|---|"
    for one in tables:
        wrong = [f"{field} ({role})" for field, (right, role) in one.roles.items() if right != role]
        yield f"| {one.name} | {one.rows:,} | {one.released:.1f} | {len(one.roles)} | {', '.join(wrong)} |"


def main() -> int:
    """Write the page; 1 if a draft releases too little."""
    key = YAML(typ="safe").load(KEY.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        tables = [
            drafted(Path(folder), package, name, right) for package in key for name, right in key[package].items()
        ]
    PAGE.write_text("\n".join(page(tables)) + "\n", encoding="utf-8")
    return int(any(one.released < LEAST_RELEASED for one in tables))


if __name__ == "__main__":
    sys.exit(main())
