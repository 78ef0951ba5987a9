"""Microaggregation of streams and tables.

`stream` decides on records as they arrive, `static` on finished tables, and `embedding` translates between attributes
and coordinates. `numba` holds the compiled code that several algorithms share. Nothing here reads a clock or does input
or output.
"""

__all__: list[str] = []
