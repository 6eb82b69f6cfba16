"""Sweep: many trainings that differ in some settings, and which of them is best.

``search_space`` reads what to vary (``learning-rate=1e-5..1e-4``), ``study`` choose the values of
trials, ``checks`` finds what is wrong before anything runs, ``sweep`` trains what has not been
trained, ``tables`` and ``plot`` make the table and the picture, ``command`` the command line of the
best.
"""
