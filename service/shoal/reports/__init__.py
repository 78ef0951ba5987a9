"""Writes what a release is worth for people who read no code: `report_of` measures, `html_of` shows.

The numbers come from what the judge read and recomputed (`shoal.audit.judge`). Nothing of a single record is in them.
"""

from shoal.reports.figures import codes_of_rows, report_of, unique_records
from shoal.reports.page import html_of

__all__ = ["codes_of_rows", "html_of", "report_of", "unique_records"]
