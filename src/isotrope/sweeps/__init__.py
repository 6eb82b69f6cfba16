"""Sweeps: many trainings that differ in some settings, and a table that ranks them.

``search_space`` reads the settings to vary (``learning-rate=1e-5..1e-4``), ``study`` lets Optuna
choose and record the values, ``plan`` finds errors before anything runs, ``sweep`` trains the
missing runs, and ``tables`` and ``plot`` show the scores and the command line of the best run.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.sweeps.train_one import trained as trained

public(__name__)
