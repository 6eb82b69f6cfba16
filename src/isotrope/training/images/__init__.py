"""Training on images: one file per method (SimCLR, BYOL and others), and their shared code.

``method`` has the base class, ``registry`` finds a method by its name, ``settings`` declares the
settings of a run, ``train`` performs the run, and ``audit`` audits the pictures before it.
"""
