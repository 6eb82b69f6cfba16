"""The papers' tables and figures, measured anew beside what was printed: ``python -m papers``.

``machinery`` is what all of them share, ``measurements`` what takes time; each paper has a folder,
with a file for each of its tables and figures. It uses isotrope as any other program would, and is
no part of the package: it runs in a checkout.
"""
