"""Anonymize files and pipes without a broker: `run_pipe` for streams, `run_batch` for finished tables.

Both decode the records of a source, pass them through `shoal.streams` or `shoal.tables`, and write the released rows.
If asked, they write evidence, references to suppressed records and a summary. `run_sample` writes nothing.
"""

from shoal.files.batch import parse_algorithm_options, run_batch
from shoal.files.files import Files, open_input, open_output, refuse_overwriting
from shoal.files.pipe import run_pipe
from shoal.files.run import BackgroundRunner, LossReport, ProgressDisplay, RunReport
from shoal.files.sample import SampleBlocks, choose_attribute, read_blocks, run_reference, run_sample

__all__ = [
    "BackgroundRunner",
    "Files",
    "LossReport",
    "ProgressDisplay",
    "RunReport",
    "SampleBlocks",
    "choose_attribute",
    "open_input",
    "open_output",
    "parse_algorithm_options",
    "read_blocks",
    "refuse_overwriting",
    "run_batch",
    "run_pipe",
    "run_reference",
    "run_sample",
]
