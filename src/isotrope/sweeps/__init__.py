"""Sweep: many trainings that differ in some settings, and which of them is best.

``search_space`` reads what to vary (``learning-rate=1e-5..1e-4``), ``study`` leaves the choice of
values and their record to Optuna, ``checks`` finds what is wrong before anything runs, ``sweep``
trains what has not been trained, ``tables`` and ``plot`` show the scores and the command line of
the best.
"""
