"""The inequalities of the papers as functions that return both sides, one file per subject.

``lemma`` is Li et al. 2024, ``contrastive`` Nie et al. 2023, ``cosine`` Draganov et al. 2024;
``mutual_information``, ``curvature`` and ``convergence`` are Manna et al. 2023. Where a
printed inequality is wrong, the one here is right and says what was wrong.
"""
