"""Compiled code that several clustering algorithms share. Callers validate arguments; the kernels do not."""
