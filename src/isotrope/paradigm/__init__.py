"""The base class of objectives, the three components of their gradient, and tools for both.

To define an objective: ``objective`` is the base class, ``registry`` finds its subclasses,
``forms`` has the mean of both directions and the two parts of one direction, ``assemble`` turns
components back into a gradient, ``proof`` checks every class against its declarations, and
``mistakes`` explains the usual errors.

To edit an objective: ``dissipation``, ``weight`` and ``ratio`` hold the named components, in the
distances of ``metric``; ``compose`` turns components (and a parent objective) into an objective,
whose loss is a ``surrogate``; ``ablation`` leads to the modified objectives of Li et al. 2024; and
``authors_code`` has the formulas of their published code where they differ from the paper.

To analyse an objective: ``anatomy`` summarises a batch, ``portrait`` shows a scene of known angles,
and ``decompose`` finds the components of any loss.
"""
