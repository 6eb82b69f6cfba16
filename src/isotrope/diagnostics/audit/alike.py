"""Finds rows that belong together, from all similarities of two rows.

Two rows have four similarities: of their anchors, of their positives, and of either anchor with the
other positive. Each counts as twice its cosine, minus the mean cosine of each row with its 20
nearest others. A text that is near to everything is therefore not evidence, and copies of a row
weaken its push but not its evidence. The *evidence* of two rows joins the four: 0.05 log of the
mean of exp(each / 0.05), almost their maximum. It is 0 if two rows are as near to each other as to
their nearest rows. ``benchmarks/audit.py`` compares the evidence with its parts and with the push.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.diagnostics.audit.push import NEAREST, Ledger, Near, beside, between, compares_all
from isotrope.diagnostics.audit.rows import Embedded

_TEMPERATURE = 0.05


@dataclass(frozen=True)
class Alike:
    """Pairs of rows that may belong together, the most likely first.

    Attributes:
        rows: int64 (m x 2), the lower row first.
        evidence: m, in units of the cosine.
        push: m, the reciprocal push; 0 if one row is not among the other's partners.
        share: m, share of the force that all pairs of rows have.
    """

    rows: NDArray[np.int64]
    evidence: NDArray[np.float64]
    push: NDArray[np.float64]
    share: NDArray[np.float64]


@torch.no_grad()
def alike(embedded: Embedded, near: Near, book: Ledger) -> Alike:
    """Return pairs of each row and its nearest rows by any similarity, with their evidence.

    Rows of one group are left out, because they are known to belong together. If there are too many
    rows to compare all, pairs with evidence below 0 are left out too, to save memory.
    """
    n, least = len(embedded), -math.inf if compares_all(embedded) else 0.0
    finite = (cosines := near.cosines[..., :NEAREST]).isfinite()
    usual = cosines.where(finite, 0).sum(dim=2) / finite.sum(dim=2).clamp_min(1)
    room = near.rows.numel()
    # in place: small parts that stay, between large ones that go, would fill the memory with holes
    keys, found, count = torch.empty(room, dtype=torch.long), cosines.new_empty(room), 0
    for rows, others, cosines in beside(embedded, near):
        above = 2 * cosines - usual[:, rows, None] - usual[[0, 1, 3, 2]][:, others]
        joined = (above / _TEMPERATURE).logsumexp(dim=0) - math.log(len(above))
        some = (others >= 0) & ((evidence := _TEMPERATURE * joined) >= least)
        rows = rows[:, None].expand_as(others)
        new = slice(count, count := count + int(some.sum()))
        keys[new] = (torch.minimum(rows, others) * n + torch.maximum(rows, others))[some]
        found[new] = evidence[some]
    key, first = np.unique(keys[:count].numpy(), return_index=True)
    evidence = found[torch.from_numpy(first)]
    order = evidence.argsort(descending=True, stable=True).numpy()
    chosen = np.stack([key[order] // n, key[order] % n], axis=1)
    return Alike(chosen, evidence.double().numpy()[order], *between(book, chosen))
