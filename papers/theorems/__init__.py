"""The inequalities of the papers as functions that return both sides, one file per subject.

``contrastive`` is Nie et al. 2023, ``cosine`` Draganov et al. 2024; ``mutual_information``,
``curvature`` and ``convergence`` are Manna et al. 2023. Where a printed inequality is wrong, the
one here is right and says what was wrong.
"""
