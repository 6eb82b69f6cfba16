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

SIDES = (0, 0), (1, 1), (0, 1), (1, 0)  # the four similarities: views (0: anchor) of two rows
NEAREST = 20  # nearest rows that are searched for each row
_EXACT = 30_000  # up to this number of rows, each pair is compared
_BLOCK = 512  # rows that are compared with all rows at once
_CLUSTER, _VISITED = 512, 12  # mean rows in a cluster; clusters that a row is compared with
_COLUMNS = 8192  # most columns of a comparison with a cluster
_PIECE = 4096  # most rows that are compared with a cluster at once
_SAMPLE, _ROUNDS = 32, 8  # rows of each cluster that place its centre, and rounds of k-means
_GATHERED = 256  # rows whose near rows are in memory at once


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


def compares_all(embedded: Embedded) -> bool:
    """Return whether there are at most 30,000 rows, so that all pairs of rows are compared."""
    return len(embedded) <= _EXACT


@torch.no_grad()
def nearest(embedded: Embedded, k: int = NEAREST, *, seed: int = 0) -> Near:
    """Return the nearest rows of each row; among more than 30,000 rows, a few may be missed."""
    views = embedded.anchors, embedded.positives
    cosines = views[0].new_full((4, len(embedded), min(k, len(embedded) - 1)), -torch.inf)
    numbers = torch.full(cosines.shape, -1, dtype=torch.int32)
    for side, (one, other) in enumerate(SIDES):
        blocks = list(_blocks(views[one], views[other], seed, exact=compares_all(embedded)))
        parts = sum(len(pieces) for _, pieces in blocks)
        with bar(parts, f"neighbours {side + 1} of 4", "parts") as advance:
            for columns, pieces in blocks:
                others = unit(views[other][columns]).T
                for rows in pieces:
                    tile = unit(views[one][rows]) @ others
                    tile.masked_fill_(embedded.same(rows, columns), -torch.inf)
                    _keep_nearest(cosines[side], numbers[side], rows, columns, tile)
                    advance(1)
    return Near(cosines, numbers.masked_fill_(cosines == -torch.inf, -1))


def near_rows(embedded: Embedded, near: Near) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield tuples: numbers of b rows, numbers of q rows near each (b x q), cosines (4 x b x q).

    The near rows are those in ``near`` for any of the four similarities. If a row has fewer than q
    near rows, the remaining numbers are -1 and the remaining cosines -inf.
    """
    views = embedded.anchors, embedded.positives
    for rows in torch.arange(len(embedded)).split(_GATHERED):
        others = near.rows[:, rows].transpose(0, 1).flatten(1).long().sort(dim=1).values
        others[:, 1:].masked_fill_(others[:, 1:] == others[:, :-1], -1)  # found by two similarities
        place, slot = (others >= 0).nonzero().unbind(dim=1)
        of_row = [unit(view[rows])[place] for view in views]
        of_other = [unit(view[others[place, slot]]) for view in views]
        cosines = views[0].new_full((4, *others.shape), -torch.inf)
        for side, (one, other) in enumerate(SIDES):
            cosines[side, place, slot] = (of_row[one] * of_other[other]).sum(dim=1)
        yield rows, others, cosines


def _keep_nearest(
    cosines: Tensor, numbers: Tensor, rows: Tensor, columns: Tensor, tile: Tensor
) -> None:
    """Merge the cosines of ``rows`` with ``columns`` (``tile``) into the nearest rows so far."""
    k = cosines.shape[1]
    has_nearer = tile.amax(dim=1) > cosines[rows, -1]
    rows, tile = rows[has_nearer], tile[has_nearer]
    topk = chunked_topk if len(columns) > _COLUMNS else torch.topk  # faster for a wide tile
    values, places = topk(tile, min(k, len(columns)))
    merged = torch.cat([cosines[rows], values], dim=1).topk(k, dim=1)
    candidates = torch.cat([numbers[rows], columns[places.clamp_min(0)].int()], dim=1)
    cosines[rows] = merged.values
    numbers[rows] = candidates.gather(1, merged.indices)


def _blocks(
    queries: Tensor, others: Tensor, seed: int, *, exact: bool
) -> Iterator[tuple[Tensor, Sequence[Tensor]]]:
    """Yield rows of ``others``, and pieces of the rows of ``queries`` to compare with them."""
    # A row is compared with all rows if ``exact``, else with the clusters of the nearest centres.
    every = torch.arange(len(queries))
    if exact:
        yield every, every.split(_BLOCK)
        return
    centres = _centres(others, seed)
    visited = min(_VISITED, len(centres))
    clusters = _places(_nearest_centres(others, centres, 1), len(centres))
    visits = _places(_nearest_centres(queries, centres, visited), len(centres))
    for cluster, places in zip(clusters, visits, strict=True):
        if len(cluster):
            visitors = (places // visited).split(_PIECE)  # each row has ``visited`` places
            for columns in cluster.split(_COLUMNS):
                yield columns, visitors


def _nearest_centres(points: Tensor, centres: Tensor, count: int) -> Tensor:
    """Return the numbers of the ``count`` nearest centres of each point, one after another."""
    pieces = points.split(_PIECE)
    return torch.cat([(unit(x) @ centres.T).topk(count).indices for x in pieces]).flatten()


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
    """Return for each number below ``count`` its places in ``numbers``."""
    counts = numbers.bincount(minlength=count).tolist()
    places: Sequence[Tensor] = numbers.argsort(stable=True).split(counts)
    return places
