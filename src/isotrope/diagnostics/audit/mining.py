"""Mines hard negatives from the push ledger: for each anchor the rows that push it most.

The hardness of a negative is its share of the push on the anchor, from 0 to 1, among all rows that
the anchor was compared with. The hardest candidates are often not true negatives. So the share has
an upper limit, and likely false negatives (rows that push each other from both sides) and rows of
the anchor's group are never used. Each negative is a record of its own (anchor, positive, hard
negative), which ``isotrope train`` and sentence-transformers read as three columns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isotrope.diagnostics.audit.push import Ledger


@dataclass(frozen=True)
class Mined:
    """Hard negatives in the order of the rows; for each row, the hardest first.

    Attributes:
        rows: int64 (m x 2): the row of the anchor, and the row whose positive is its negative.
        hardness: m, share of the push on the anchor.
        short: Number of rows with fewer negatives than requested.
    """

    rows: NDArray[np.int64]
    hardness: NDArray[np.float64]
    short: int


def mine(book: Ledger, groups: NDArray[np.int64], count: int, *, hardness: float = 0.3) -> Mined:
    """Return up to ``count`` hard negatives of each row.

    Args:
        book: The ledger, with enough partners of each row.
        groups: n integers, equal for rows that are likely to belong together.
        count: Number of negatives for each row.
        hardness: the largest share of the push on an anchor that a negative may have.
    """
    partners = book.partners
    share = book.force / np.maximum(book.row_force, 1e-300)[:, None]
    usable = (partners >= 0) & (share <= hardness) & (groups[partners] != groups[:, None])
    taken = usable & (np.cumsum(usable, axis=1) <= count)
    row, place = np.nonzero(taken)
    return Mined(
        np.stack([row, partners[row, place]], axis=1),
        share[row, place].astype(np.float64),
        int((taken.sum(axis=1) < count).sum()),
    )
