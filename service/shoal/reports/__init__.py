"""Writes what a release is worth for people who read no code: `report_of` measures, `html_of` shows.

The numbers come from what the judge read and recomputed (`shoal.audit.judge`). Nothing of a single record is in them.
"""

from shoal.reports.figures import codes_of_rows, report_of, unique_records
from shoal.reports.origin import origin_of, sha256_of
from shoal.reports.page import html_of, require_page_name
from shoal.reports.signature import private_key, public_key, require_signature, signed
from shoal.reports.wording import fields_in_words, promises

__all__ = [
    "codes_of_rows",
    "fields_in_words",
    "html_of",
    "origin_of",
    "private_key",
    "promises",
    "public_key",
    "report_of",
    "require_page_name",
    "require_signature",
    "sha256_of",
    "signed",
    "unique_records",
]
