"""Sweeps: many trainings that differ in some settings, and a table that ranks them.

``search_space`` reads the settings to vary (``learning-rate=1e-5..1e-4``). ``spec`` declares the
settings of a sweep. ``plan`` finds errors before the first training. In ``study``, Optuna chooses
and records values. ``sweep`` trains missing runs. ``trials`` compares their scores, and ``tables``
writes them with the best command.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.training.run import trained as trained

public(__name__)
