"""The inequalities of the papers as functions that return both sides, one file per subject.

``contrastive`` is paper 001, ``cosine`` paper 003; ``mutual_information``, ``curvature`` and
``convergence`` are paper 004. Where a printed inequality is wrong, the one here is right and says
what was wrong.
"""
