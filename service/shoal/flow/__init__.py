"""One partition's way from bytes to bytes: decode, embed, engine, centroid, encode. No clock, no I/O."""

from shoal.flow.accounts import Accounts
from shoal.flow.admission import Admission
from shoal.flow.course import Course
from shoal.flow.partition import BLOCK_RECORDS, Cluster, Flow, Outcome
from shoal.flow.parts import Choice
from shoal.flow.slots import Reunion, Slot
from shoal.flow.table import Release, Table
from shoal.flow.warm import warm_up

__all__ = [
    "BLOCK_RECORDS",
    "Accounts",
    "Admission",
    "Choice",
    "Cluster",
    "Course",
    "Flow",
    "Outcome",
    "Release",
    "Reunion",
    "Slot",
    "Table",
    "warm_up",
]
