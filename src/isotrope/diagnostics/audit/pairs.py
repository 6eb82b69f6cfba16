"""Finds rows that training will not learn from as intended, without a label.

- *apart*: the positive is farther from the anchor than most other rows' positives are;
- *solved*: the objective is done with the row already (GD < 0.01) at the batch size of training;
- *cut*: a text is longer than the tokens that training reads;
- *repeated*: another row before it has the same texts, up to case and punctuation;
- *lengths* that stand out: a text far longer or shorter than the middle half of its column.

Columns that are swapped, or lines out of step, show as many rows apart.
"""
