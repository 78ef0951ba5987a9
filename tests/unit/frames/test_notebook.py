"""The notebook of the documentation: its cells run, and print what it shows."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unit

NOTEBOOK = Path(__file__).resolve().parents[3] / "docs" / "frames.ipynb"


def printed_by(cells: list[dict[str, Any]]) -> list[str]:
    """Run the cells one after the other in one namespace; return what each prints."""
    names: dict[str, Any] = {}
    found = []
    for cell in cells:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec("".join(cell["source"]), names)  # noqa: S102 - a file of the repository
        found.append(text.getvalue())
    return found


def test_the_cells_print_what_the_notebook_shows() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    shown = ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells]
    assert printed_by(cells) == shown
    assert "each of at least 10 people" in shown[0]
    assert shown[2].startswith("holds: k is 10, promised 10; 442 of 442 records released")
