"""Finds rows that seem to belong together, by the similarities of their anchors and positives.

Two rows have four cosines: of their anchors, of their positives, and of the anchor of one row with
the positive of the other row, in both directions. Each cosine gives a difference: twice the cosine,
minus the mean cosine of the first row with its 20 nearest rows, minus the mean cosine of the second
row with its 20 nearest rows. The *evidence* that two rows belong together is nearly the largest of
the four differences: 0.05 log(mean(exp(difference / 0.05))). At evidence 0, two rows are as near to
each other as to their nearest rows. A text that is near to all texts gets low evidence.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.diagnostics.audit.neighbours import NEAREST, SIDES, Near, compares_all, near_rows
from isotrope.diagnostics.audit.push import Ledger, mutual_push
from isotrope.diagnostics.audit.rows import Embedded

_TEMPERATURE = 0.05
# for each side of two rows, the same side seen from the second row
_FROM_THE_OTHER = [SIDES.index((other, one)) for one, other in SIDES]


@dataclass(frozen=True)
class Alike:
    """The m pairs of rows that may belong together, the most likely pair first.

    Attributes:
        rows: Numbers of the two rows, the lower number first, int64 (m x 2).
        evidence: Evidence that the two rows belong together (see the module), m values.
        push: How strongly the two rows push each other, m values. The *partners* of a row are the
            rows that push it most. 0 if one of the two rows is not a partner of the other.
        share: Push between the two rows, divided by the push between all pairs of rows, m values.
    """

    rows: NDArray[np.int64]
    evidence: NDArray[np.float64]
    push: NDArray[np.float64]
    share: NDArray[np.float64]


@torch.no_grad()
def alike(embedded: Embedded, near: Near, book: Ledger) -> Alike:
    """Return the pairs of near rows, and for each pair the evidence that its rows belong together.

    Rows of the same group are known to belong together, so their pairs are left out. If there are
    more than 30,000 rows, pairs with evidence below 0 are left out too, to save memory.
    """
    n, least = len(embedded), -math.inf if compares_all(embedded) else 0.0
    nearest = near.cosines[..., :NEAREST]
    finite = nearest.isfinite()
    usual = nearest.where(finite, 0).sum(dim=2) / finite.sum(dim=2).clamp_min(1)
    usual_of_other = usual[_FROM_THE_OTHER]
    room = near.rows.numel()
    # one array for all results: many small ones between large temporary ones would fragment memory
    keys, values, count = torch.empty(room, dtype=torch.long), nearest.new_empty(room), 0
    for rows, others, cosines in near_rows(embedded, near):
        above = 2 * cosines - usual[:, rows, None] - usual_of_other[:, others]
        evidence = _TEMPERATURE * ((above / _TEMPERATURE).logsumexp(dim=0) - math.log(len(above)))
        some = (others >= 0) & (evidence >= least)
        rows = rows[:, None].expand_as(others)
        new = slice(count, count + int(some.sum()))
        count = new.stop
        # one number for a pair, whichever of its rows found it
        keys[new] = (torch.minimum(rows, others) * n + torch.maximum(rows, others))[some]
        values[new] = evidence[some]
    key, first = np.unique(keys[:count].numpy(), return_index=True)
    evidence = values[torch.from_numpy(first)]
    order = evidence.argsort(descending=True, stable=True).numpy()
    pairs = np.stack([key[order] // n, key[order] % n], axis=1)
    push, share = mutual_push(book, pairs)
    return Alike(pairs, evidence.double().numpy()[order], push, share)
