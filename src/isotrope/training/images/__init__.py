"""Training on images: one file for each training method (SimCLR, BYOL, ...), and shared code.

``method`` has the base class, ``settings`` declares the settings of a run and finds its method,
``train`` performs the run, and ``audit`` audits the pictures before a run.
"""
