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
from torch import Tensor

from isotrope.core.views import unit
from isotrope.diagnostics.audit.push import Ledger, between, compares_all
from isotrope.diagnostics.audit.rows import Embedded
from isotrope.kernels.tiles import chunked_topk

_NEAREST = 20  # others of a row that say what is usual, and that may belong to it
_TEMPERATURE, _ROWS, _PAIRS = 0.05, 512, 8192  # rows and pairs looked at together


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
def alike(embedded: Embedded, book: Ledger) -> Alike:
    """Return pairs of each row and its nearest rows by any similarity, with their evidence.

    If there are too many rows to compare all, the row's partners in the ledger replace its nearest
    rows. Rows of one group are left out, because they are known to belong together.
    """
    n, a, p = len(embedded), embedded.anchors, embedded.positives
    near = None if compares_all(embedded) else torch.from_numpy(book.partners)
    if near is None:
        a, p = unit(a), unit(p)  # of many rows, that are in a file, only parts are in memory
    usual, keys = torch.empty(4, n), []
    for rows in torch.arange(n).split(_ROWS):
        for side, (mine, others) in enumerate(((a, a), (p, p), (a, p), (p, a))):
            values, places = _nearest(embedded, mine, others, rows, near)
            finite = values.isfinite()
            usual[side, rows] = values.where(finite, 0).sum(dim=1) / finite.sum(dim=1).clamp_min(1)
            first, second = rows[:, None].expand_as(places)[finite], places[finite]
            keys.append(torch.minimum(first, second) * n + torch.maximum(first, second))
        keys[-4:] = [torch.cat(keys[-4:]).unique()]
    key = torch.cat(keys).unique()
    pairs = torch.stack([key // n, key % n], dim=1)
    evidence = torch.empty(len(pairs))
    for part in torch.arange(len(pairs)).split(_PAIRS):
        i, j = pairs[part].unbind(dim=1)
        ai, pi, aj, pj = unit(a[i]), unit(p[i]), unit(a[j]), unit(p[j])
        cosines = torch.stack([ai * aj, pi * pj, ai * pj, pi * aj]).sum(dim=2)
        above = 2 * cosines - usual[:, i] - usual[[0, 1, 3, 2]][:, j]
        joined = (above / _TEMPERATURE).logsumexp(dim=0) - math.log(len(above))
        evidence[part] = _TEMPERATURE * joined
    order = evidence.argsort(descending=True, stable=True)
    chosen = pairs[order].numpy()
    return Alike(chosen, evidence[order].double().numpy(), *between(book, chosen))


def _nearest(
    embedded: Embedded, mine: Tensor, others: Tensor, rows: Tensor, near: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the cosines of some rows with their nearest others, and those; -inf for none."""
    if near is not None:
        own = near[rows]
        cosines = torch.einsum("nd,nkd->nk", unit(mine[rows]), unit(others[own]))
        first = cosines.masked_fill_(own < 0, -torch.inf).topk(min(_NEAREST, own.shape[1]), dim=1)
        return first.values, own.gather(1, first.indices)
    same = embedded.groups[rows, None] == embedded.groups
    cosines = (mine[rows] @ others.T).masked_fill_(same, -torch.inf)
    return chunked_topk(cosines, min(_NEAREST, len(others) - 1))
