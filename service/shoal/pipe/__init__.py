"""The stream engine over files and pipes: no broker, the same flow and the same judge."""

from shoal.pipe.files import Files, write_text
from shoal.pipe.run import run_pipe

__all__ = ["Files", "run_pipe", "write_text"]
