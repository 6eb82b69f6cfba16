"""Floor 2: what an objective is, its three components, and how to edit, compose or find them.

To define one: ``objective`` is the base class, ``registry`` finds its subclasses, ``forms``
has the mean of both directions and the two parts of one, ``assemble`` turns components back into a
gradient, ``proof`` holds every class against what it declares, and ``mistakes`` says what is wrong.

To edit one: ``dissipation``, ``weight`` and ``ratio`` hold the named parts, in the distances of
``metric``; ``compose`` turns parts (and a parent objective) into an objective, whose loss is a
``surrogate``; ``ablation`` leads to the modified objectives of Li et al. 2024, and ``authors_code``
has what its authors' code computes instead.

To look at one: ``anatomy`` sums up a batch, ``portrait`` shows a scene of known angles,
``decompose`` finds the components of any loss, ``lemma`` and ``bounds`` are what the papers prove.
"""
