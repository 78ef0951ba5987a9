"""The arithmetic: numba over arrays and scalars. Nothing here checks its arguments; the engine does, once per block."""
