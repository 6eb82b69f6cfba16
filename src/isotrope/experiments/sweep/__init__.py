"""Sweep: many trainings that differ in some settings, and which of them is best.

``varied`` reads what to vary (``learning-rate=1e-5..1e-4``), ``samplers`` choose the values of
trials, ``sweep`` trains what has not been trained, ``shown`` makes the table, the picture and the
command line of the best.
"""
