"""A progress bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from tqdm import tqdm

__all__ = ["bar"]


def bar(**about: Any) -> tqdm[NoReturn]:  # noqa: ANN401 - tqdm's own words
    """Return a bar on standard error; it is not drawn where that is no terminal."""
    return tqdm(**about, disable=not sys.stderr.isatty(), file=sys.stderr)
