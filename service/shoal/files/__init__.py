"""Files and pipes, no broker: the stream engine, tables, and the same judge."""

from shoal.files.algorithm_options import choice_of
from shoal.files.batch import run_batch
from shoal.files.outputs import Files, write_text
from shoal.files.pipe import run_pipe

__all__ = ["Files", "choice_of", "run_batch", "run_pipe", "write_text"]
