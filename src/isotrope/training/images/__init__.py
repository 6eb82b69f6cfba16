"""Training on images: one file a method, and what all methods share.

``method`` is the base of ``simclr``, ``byol`` and the others, ``registry`` finds one by its name,
``settings`` is what a run can be told, ``train`` is the run, ``measures`` what is logged of a
batch, ``card`` the model card.
"""
