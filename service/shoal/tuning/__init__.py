"""Tries settings of a policy on a sample: what each would lose, delay and reorder, and what an attacker could hope for.

`sweep` measures and chooses, `results_of` rounds what is shown, `html_of` shows it.
"""

from shoal.tuning.page import html_of, sentence_of
from shoal.tuning.pool import Bench
from shoal.tuning.results import results_of
from shoal.tuning.settings import Tuned, parse_grid
from shoal.tuning.sweep import Sweep, sweep
from shoal.tuning.targets import parse_targets

__all__ = ["Bench", "Sweep", "Tuned", "html_of", "parse_grid", "parse_targets", "results_of", "sentence_of", "sweep"]
