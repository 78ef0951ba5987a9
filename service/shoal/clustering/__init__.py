"""Microaggregation: stream and static clustering, and the numba code they share. No clock, no input or output."""

__all__: list[str] = []
