"""Read the taxonomies of a policy from other files than those that it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document

__all__ = ["replace_taxonomies"]


def replace_taxonomies(
    document: Document, files: Mapping[str, str | Path]
) -> tuple[Document, list[tuple[FieldPath, str]]]:
    """Return a document that reads the taxonomies of some attributes from other files, and the faults.

    Parameters
    ----------
    document : Document
    files : mapping of str to path
        Files by attribute, relative to the working directory.
    """
    changed = dict(document.attributes)
    known = [f"attributes.{name}" for name, attribute in changed.items() if attribute.taxonomy is not None]
    faults: list[tuple[FieldPath, str]] = []
    for name, file in files.items():
        path = ("attributes", name, "taxonomy")
        if f"attributes.{name}" not in known:
            remedy = f"name one of those that have one: {', '.join(known)}" if known else "no attribute has one"
            faults.append((path, f"missing, so no other file can be given for it; {remedy}"))
        elif _is_absent(file):
            faults.append((path, f"{file}: no such file"))
        else:
            changed[name] = changed[name].model_copy(update={"taxonomy": str(Path(file).absolute())})
    return document.model_copy(update={"attributes": changed}), faults


def _is_absent(file: str | Path) -> bool:
    try:
        return not Path(file).exists()
    except OSError:
        return False  # it is reported when the file is read
