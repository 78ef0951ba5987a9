"""Files and pipes, no broker: the stream engine, tables, and the same judge."""

from shoal.pipe.batch import run_batch
from shoal.pipe.choices import choice_of
from shoal.pipe.files import Files, write_text
from shoal.pipe.run import run_pipe

__all__ = ["Files", "choice_of", "run_batch", "run_pipe", "write_text"]
