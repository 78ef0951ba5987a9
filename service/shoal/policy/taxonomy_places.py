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
    """Return a document that reads the taxonomies of some attributes from other files, and the faults."""
    changed = dict(document.attributes)
    faults: list[tuple[FieldPath, str]] = []
    for name, file in files.items():
        if name in changed and changed[name].taxonomy is not None:
            changed[name] = changed[name].model_copy(update={"taxonomy": str(Path(file).absolute())})
        else:
            faults.append((("attributes", name, "taxonomy"), "missing, so no other file can be given for it"))
    return document.model_copy(update={"attributes": changed}), faults
