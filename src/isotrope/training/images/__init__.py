"""Training on images: one file per method (SimCLR, BYOL and others), and their shared code.

``method`` is the base class, ``registry`` finds a method by its name, ``settings`` declares the
settings of a run, ``train`` is the run, and ``audit`` looks at the pictures before it.
"""
