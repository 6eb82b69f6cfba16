"""Sweep: many trainings that differ in some settings, and which of them is best.

``varied`` reads what to vary (``learning-rate=1e-5..1e-4``), ``samplers`` choose the values of
trials, ``checks`` finds what is wrong before anything runs, ``sweep`` trains what has not been
trained, ``shown`` and ``drawn`` make the table and the picture, ``command`` the command line of the
best.
"""
