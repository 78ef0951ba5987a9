"""Data frames of pandas, polars and pyarrow in, the same kind out: `anonymize_table`.

1. Convert (`native`): the declared columns become an Arrow table, and published columns become a frame again.
2. Release (`release`): the rows of the Arrow table are read as those of a Parquet file, and released as by the commands
   `batch` and `pipe`.
"""

try:
    from shoal.frames.release import Release, anonymize_table
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"narwhals", "pyarrow"}:
        raise
    raise ImportError("data frames need narwhals and pyarrow: install shoal[frames]") from None

__all__ = ["Release", "anonymize_table"]
