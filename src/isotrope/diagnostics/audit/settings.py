"""Tells how an objective begins with a setting, over a grid of settings, and which to begin with.

Rows are drawn into batches as training draws them; of each batch come the mean GD, the share of
anchors done (GD < 0.01), the hardest negative's share of the push and the share of live anchors
above the bound of Lemma 1 (Li et al., 2024), averaged over the batches by their anchors. One
setting is changed at a time. The values to begin with follow three rules:

- a temperature at which the hardest negative has 40% to 70% of the push, and at most 30% of the
  anchors are done: above, a batch pushes as one negative would, below, all negatives push alike;
- the smallest margin that leaves at most 30% of the anchors done;
- the smallest ratio with which 95% of the live anchors are above the bound.

The rules say at which setting an objective is neither done nor blind at the first step. That the
score after training is highest there has not been shown.
"""
