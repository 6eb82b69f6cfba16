"""Reproductions of the papers' tables and figures beside the printed numbers: ``python -m papers``.

CONTRIBUTING.md says how to add a table. The settings of trainings are in ``recipes.toml``; the
rules for verdicts are in ``machinery.verdicts`` and ``machinery.rule``; the measurements of a
training are in ``measurements``; the appearance of charts is in ``plots``; the commands' flags are
in ``reproduce`` and ``stages``; the claims that trainings decide are in ``claims.toml``, and the
errata in ``errata.toml``.

======================  ==================  ===============================================
folder                  command             paper
======================  ==================  ===============================================
``li2024``              unified-gradient    Li et al. 2024, A Unified Paradigm for Gradient
``nie2023``             align-uniform       Nie et al. 2023, On the Inadequacy of Optimizing
                                            Alignment and Uniformity
``draganov2024``        cosine-pitfalls     Draganov et al. 2024, The Hidden Pitfalls of the
                                            Cosine Similarity Loss
``manna2023``           mio                 Manna et al. 2023, Mutual Information Optimization
======================  ==================  ===============================================

The folder uses isotrope like any other program, by public names, and is not part of the package.
"""
