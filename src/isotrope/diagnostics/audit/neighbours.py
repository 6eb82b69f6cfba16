"""Finds the nearest rows of each row, by four similarities of the two rows' views.

Among up to 30,000 rows, all pairs of rows are compared. With more rows, a row is compared with the
rows of a few clusters, so a few of its nearest rows may be missed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.progress import bar
from isotrope.core.views import unit
from isotrope.diagnostics.audit.rows import Embedded
from isotrope.kernels.tiles import chunked_topk

_ROWS, _COLUMNS = 512, 8192  # rows to compare with all rows at once; columns in a cluster's block
_EXACT = 30_000  # up to this number of rows, each pair is compared
SIDES = (0, 0), (1, 1), (0, 1), (1, 0)  # the four similarities: views (0: anchor) of two rows
NEAREST = 20  # nearest rows that are searched for each row
_CLUSTER, _VISITED = 512, 12  # mean rows in a cluster; clusters in which a row's nearest are sought
_GATHERED = 256  # rows whose nearest rows are in memory at once
_SAMPLE, _ROUNDS = 32, 8  # rows of each cluster that place its centre, and rounds of k-means
_PIECE = 4096  # rows in memory at once


@dataclass(frozen=True)
class Near:
    """The k nearest rows of each row, by each of four similarities.

    The similarities of a row to another row: anchor to anchor, positive to positive, anchor to
    positive, and positive to anchor. Rows of the same group are left out.

    Attributes:
        cosines: Cosines, the largest first, 4 x n x k; -inf in place of missing rows.
        rows: Numbers of the nearest rows, int32 (4 x n x k); -1 in place of missing rows.
    """

    cosines: Tensor
    rows: Tensor


@torch.no_grad()
def nearest(embedded: Embedded, k: int = NEAREST, *, seed: int = 0) -> Near:
    """Return the nearest rows of each row; among more than 30,000 rows, a few may be missed."""
    n, k = len(embedded), min(k, len(embedded) - 1)
    views = embedded.anchors, embedded.positives
    cosines = views[0].new_full((4, n, k), -torch.inf)
    found = torch.full(cosines.shape, -1, dtype=torch.int32)
    for number, (one, other) in enumerate(SIDES):
        visits = list(_blocks(views[one], views[other], seed, exact=compares_all(embedded)))
        best, near, last = cosines[number], found[number], None
        with bar(len(visits), f"neighbours {number + 1} of 4", "parts") as done:
            for columns, rows in visits:
                if columns is not last:
                    right, last = unit(views[other][columns]).T, columns
                tile = unit(views[one][rows]) @ right
                tile.masked_fill_(embedded.same(rows, columns), -torch.inf)
                nearer = tile.amax(dim=1) > best[rows, -1]
                rows, tile = rows[nearer], tile[nearer]
                # for a wide tile, this is faster
                topk = chunked_topk if len(columns) > _COLUMNS else torch.topk
                values, where = topk(tile, min(k, len(columns)))
                chosen = torch.cat([best[rows], values], dim=1).topk(k, dim=1)
                best[rows] = chosen.values
                numbers = torch.cat([near[rows], columns[where.clamp_min(0)].int()], dim=1)
                near[rows] = numbers.gather(1, chosen.indices)
                done(1)
    return Near(cosines, found.masked_fill_(cosines == -torch.inf, -1))


def near_rows(embedded: Embedded, near: Near) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield tuples: numbers of b rows, numbers of q rows near each (b x q), cosines (4 x b x q).

    The near rows are those in ``near`` for any of the four similarities. If a row has fewer than q
    near rows, the remaining numbers are -1 and the remaining cosines -inf.
    """
    views = embedded.anchors, embedded.positives
    for rows in torch.arange(len(embedded)).split(_GATHERED):
        others = near.rows[:, rows].transpose(0, 1).flatten(1).long().sort(dim=1).values
        others[:, 1:].masked_fill_(others[:, 1:] == others[:, :-1], -1)
        place, slot = (others >= 0).nonzero().unbind(dim=1)
        of_row = [unit(view[rows])[place] for view in views]
        of_other = [unit(view[others[place, slot]]) for view in views]
        cosines = views[0].new_full((4, *others.shape), -torch.inf)
        for side, (one, other) in enumerate(SIDES):
            cosines[side, place, slot] = (of_row[one] * of_other[other]).sum(dim=1)
        yield rows, others, cosines


def compares_all(embedded: Embedded) -> bool:
    """Return whether there are at most 30,000 rows, so that all pairs of rows are compared."""
    return len(embedded) <= _EXACT


def _blocks(
    queries: Tensor, others: Tensor, seed: int, *, exact: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows of ``others``, and rows of ``queries`` to compare with them."""
    # A row is compared with all rows if ``exact``, else with the clusters of the nearest centres.
    every = torch.arange(len(queries))
    if exact:
        yield from ((every, rows) for rows in every.split(_ROWS))
        return
    centres = _centres(others, seed)

    def near(x: Tensor, count: int) -> Tensor:
        found = torch.empty(len(x), count, dtype=torch.long)
        for part in every.split(_PIECE):
            found[part] = (unit(x[part]) @ centres.T).topk(count).indices
        return found

    members = _places(near(others, 1).flatten(), len(centres))
    visited = min(_VISITED, len(centres))
    visits = _places(near(queries, visited).flatten(), len(centres))
    for cluster, visit in zip(members, visits, strict=True):
        for columns in cluster.split(_COLUMNS) if len(cluster) else ():
            yield from ((columns, rows) for rows in (visit // visited).split(_PIECE))


def _centres(points: Tensor, seed: int) -> Tensor:
    """Return the centres of clusters of points, by their directions: k-means on a sample."""
    draw = torch.Generator().manual_seed(seed)
    count = -(-len(points) // _CLUSTER)
    sample = unit(points[torch.randint(len(points), (count * _SAMPLE,), generator=draw)])
    centres = sample[:count]
    for _ in range(_ROUNDS):
        own = torch.cat([(x @ centres.T).argmax(dim=1) for x in sample.split(_PIECE)])
        centres = unit(torch.zeros_like(centres).index_add_(0, own, sample))
    return centres


def _places(numbers: Tensor, count: int) -> Sequence[Tensor]:
    """Return for each number below ``count`` the places where it stands in ``numbers``."""
    counts = numbers.bincount(minlength=count).tolist()
    places: Sequence[Tensor] = numbers.argsort(stable=True).split(counts)
    return places
