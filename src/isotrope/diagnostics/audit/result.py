"""The result of an audit: as text, as JSON, and as files for a training.

The files are JSON lines, one record each, which ``isotrope train`` and the ``datasets`` library
read:

- ``cleaned.jsonl``: the rows without those apart and repeated, and of each group of likely false
  negatives the first;
- ``grouped.jsonl``: all rows with an integer ``label``, equal for rows that are likely to belong
  together. sentence-transformers has no loss that takes a mask; it hands ``label`` to the loss, and
  ``ObjectiveLoss(..., groups=True)`` does not push apart what shares one;
- ``mined.jsonl``: with hard negatives, where they were asked for;
- ``audit.json`` and ``audit.html``: the audit itself.
"""
