"""Training on images: one file per method (SimCLR, BYOL and others), and their shared code.

``method`` has the base class, ``settings`` declares the settings of a run and finds its method,
``train`` performs the run, and ``audit`` audits the pictures before it.
"""
