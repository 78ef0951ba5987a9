"""Compiled functions that tables and streams share. Callers validate arguments; the kernels do not."""

__all__: list[str] = []
