"""Training on images: one file per method (SimCLR, BYOL and others), and their shared code.

``method`` is the base class, ``registry`` finds a method by its name, ``settings`` declares the
settings of a run, ``train`` performs it, and ``audit`` examines the pictures before it.
"""
