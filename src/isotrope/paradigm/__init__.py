"""Floor 2: what an objective is, its three components, and how to edit or compose them.

``objective`` is the base class and ``registry`` finds its subclasses; ``dissipation``, ``weight``
and ``ratio`` hold the named parts; ``compose`` turns parts (and a parent objective) into an
objective; ``assemble`` turns components back into a gradient; ``anatomy`` sums them up.
"""
