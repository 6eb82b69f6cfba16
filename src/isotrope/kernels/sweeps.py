"""One or two passes over blocks of similarities: the value and the gradients of an objective.

*One pass*, where the loss of a row needs nothing but its own statistics: a block of rows meets all
columns, is reduced, the formula is called and differentiated there, and two matrix products turn
the block into gradients; 6 n c d floating-point operations.

*Two passes*, where rows are coupled, or both views are anchors: the first collects every
log-sum-exp, the second forms the blocks again; 8 n^2 d across the views, 4 n^2 d for a view against
itself, of whose symmetric matrix only the upper triangle is formed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.asked import Asking, Formula, Key, Known, Unfused
from isotrope.kernels.rowblock import Layout, add_product

__all__ = ["Gradients", "Job", "check_two_passes", "one_pass", "two_passes"]

# of anchors, positives, further negatives and temperature
Gradients = list[Tensor | None]

TILE_BYTES = 1 << 24  # of one block of similarities: nearly the cache of a core
LEAST, MOST = 64, 512  # rows of a block: under 128 the products slow down, over 512 nothing gains
SHORT = 256  # embeddings shorter than that are copied once with unit length
_UNSHIFTED = 30.0  # 1 / tau up to which e^{s/tau} needs no shift: e^30 N fits, so does its inverse


@dataclass(frozen=True)
class Job:
    """What is to be computed: raw views, a formula, what it asks, and how values are reduced."""

    views: Views
    formula: Formula
    asked: Asking
    mean: bool
    learnt: Tensor | None

    @property
    def temperature(self) -> float:
        """The one of all exponentials.

        Raises:
            Unfused: there are two.
        """
        found = {t for (kind, _), t in self.asked.temperatures.items() if kind != "hardest"}
        if len(found) > 1:
            raise Unfused("two temperatures")
        return found.pop() if found else 1.0

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return self.views.anchors.element_size()

    @property
    def shift(self) -> float:
        """What exponents are lowered by in two passes: their largest possible value."""
        return 1 / self.temperature if "logsumexp" in self.asked.kinds else 0.0

    def evaluate(self, known: Known, rows: int) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Return value and derivatives by positive, by the statistics in order, by temperature."""
        leaves = [known.positive, *known.values.values()]
        with torch.enable_grad():
            for leaf in leaves:
                leaf.requires_grad_()
            values = self.formula(known)
            value = values.sum() / rows if self.mean and values.ndim else values.sum()
        wanted = leaves if self.learnt is None else [*leaves, self.learnt]
        found = torch.autograd.grad(value, wanted, allow_unused=True)
        filled = [
            torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)
        ]
        last = None if self.learnt is None else filled.pop()
        return value.detach(), filled, last


class _Vectors:
    """Rows of raw embeddings as unit vectors: copied if short, norms kept aside if long."""

    def __init__(self, raw: Tensor) -> None:
        norm = torch.linalg.vector_norm(raw, dim=1, keepdim=True)
        dead = norm <= max(1e-12, torch.finfo(raw.dtype).tiny)  # as core.views.unit
        # divided by, as core.views.unit does: a factor 1/norm would round once more
        self.norm = norm.masked_fill(norm == torch.inf, torch.nan).masked_fill(dead, torch.inf)
        self.lean = raw.shape[1] >= SHORT
        self.data = raw if self.lean else raw / self.norm

    def __len__(self) -> int:
        return len(self.data)

    def rows(self, where: slice | Tensor) -> Tensor:
        found = self.data[where]
        return found / self.norm[where] if self.lean else found

    def against(self, rows: Tensor, out: Tensor, start: int = 0) -> None:
        """Write the products of unit rows with these vectors, from ``start`` on, into ``out``."""
        torch.mm(rows, self.data[start:].T, out=out)
        if self.lean:
            out.div_(self.norm[start:].T)

    def push(self, tile: Tensor, start: int = 0) -> Tensor:
        """Return ``tile`` times these unit vectors, from ``start`` on; the tile is used up."""
        if self.lean:
            tile.div_(self.norm[start:].T)
        return tile @ self.data[start:]

    def by_raw(self, gradient: Tensor, rows: slice | None = None) -> Tensor:
        """Turn the gradient of (some of) the unit vectors, in place, into that of the raw ones."""
        every = slice(0, len(self)) if rows is None else rows
        for block in _blocks(every.start, every.stop, 2048):
            part = gradient[block.start - every.start : block.stop - every.start]
            unit = self.rows(block)
            part.sub_(unit * (part * unit).sum(dim=1, keepdim=True)).div_(self.norm[block])
        return gradient


def _blocks(first: int, last: int, height: int) -> Iterator[slice]:
    for start in range(first, last, height):
        yield slice(start, min(start + height, last))


class _Tiles:
    """Blocks of e^{(s - shift)/tau}, in one buffer."""

    def __init__(self, job: Job, columns: int) -> None:
        self.job = job
        self.height = min(MOST, max(LEAST, TILE_BYTES // (columns * job.size)))
        self._buffer = job.views.anchors.new_empty(0)

    def empty(self, rows: int, columns: int) -> Tensor:
        """Return room for a block; the one before is gone."""
        if self._buffer.numel() < rows * columns:
            self._buffer = self._buffer.new_empty(rows * columns)
        return self._buffer[: rows * columns].view(rows, columns)


def one_pass(job: Job) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula whose rows need their own statistics only.

    The columns are the positives and the further negatives.
    """
    views, tau = job.views, job.temperature
    anchors, n = _Vectors(views.anchors), len(views.anchors)
    sources = [_Vectors(x) for x in (views.positives, views.negatives) if x is not None]
    columns = sum(len(x) for x in sources)
    gradients = [torch.empty_like(views.anchors), *(torch.zeros_like(x.data) for x in sources)]
    layout = Layout(views, "cross")
    tiles = _Tiles(job, columns)
    total = torch.zeros((), dtype=torch.float64, device=views.anchors.device)
    learnt = None if job.learnt is None else torch.zeros_like(job.learnt)
    for rows in _blocks(0, n, tiles.height):
        a = anchors.rows(rows)
        own = slice(views.offset + rows.start, views.offset + rows.stop)
        p = sources[0].rows(own)
        tile, at = tiles.empty(len(a), columns), 0
        for x in sources:
            x.against(a / tau, tile[:, at : at + len(x)])
            at += len(x)
        layout.exclude(tile, rows)
        values: dict[Key, Tensor] = {}
        if "hardest" in job.asked.kinds:
            first = tile.argmax(dim=1, keepdim=True)  # the first index at ties
            values["hardest", "cross"] = tile.gather(1, first).squeeze(1) * tau
        mass = a.new_ones(len(a))
        if "logsumexp" in job.asked.kinds:
            mass, values["logsumexp", "cross"] = _exponentials(tile, tau)
        elif "softplus" in job.asked.kinds:
            values["softplus", "cross"] = torch.logaddexp(tile, tile.new_zeros(())).sum(dim=1)
            tile.sigmoid_()
        values = {key: values[key] for key in job.asked.temperatures}
        known = Known((a * p).sum(dim=1), values, counts(job, rows))
        value, (by_positive, *by), last = job.evaluate(known, n)
        total += value
        if learnt is not None and last is not None:
            learnt += last
        mine = by_positive[:, None] * p
        gradients[1][own].add_(by_positive[:, None] * a)
        for (kind, _), g in zip(values, by, strict=True):
            if kind == "hardest":
                _one_column(first.squeeze(1), g, a, sources, mine, gradients[1:])
                continue
            g = torch.where(mass > 0, g / mass.where(mass > 0, 1.0), 0.0)
            scaled, at = g[:, None] / tau, 0
            for x, into in zip(sources, gradients[1:], strict=True):
                part = tile[:, at : at + len(x)]
                at += len(x)
                add_product(into, part, scaled * a)
                pushed = scaled * x.push(part)
                mine += pushed
                if learnt is not None:  # sum_j W_ij s_ij is what the push has along the anchor
                    learnt -= (pushed * a).sum() / tau
        gradients[0][rows] = anchors.by_raw(mine, rows)
    for x, gradient in zip(sources, gradients[1:], strict=True):
        x.by_raw(gradient)
    found: Gradients = [gradients[0], gradients[1], gradients[2] if len(sources) > 1 else None]
    return total.to(views.anchors.dtype), [*found, learnt]


def _exponentials(tile: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """Turn s / tau into e^{s/tau - shift}, in place; return the rows' sums and log-sum-exps."""
    if 1 / tau <= _UNSHIFTED:
        mass = tile.exp_().sum(dim=1)
        return mass, mass.log()
    top = tile.amax(dim=1, keepdim=True)
    top = top.where(top > -torch.inf, 0.0)
    mass = tile.sub_(top).exp_().sum(dim=1)
    return mass, mass.log() + top.squeeze(1)


def _one_column(
    chosen: Tensor,
    by: Tensor,
    anchors: Tensor,
    sources: list[_Vectors],
    mine: Tensor,
    others: list[Tensor],
) -> None:
    """Add the gradient of the hardest similarity: each row meets one column."""
    at = 0
    for x, into in zip(sources, others, strict=True):
        (rows,) = ((chosen >= at) & (chosen < at + len(x))).nonzero(as_tuple=True)
        which, g = chosen[rows] - at, by[rows, None]
        at += len(x)
        mine.index_add_(0, rows, g * x.rows(which))
        into.index_add_(0, which, g * anchors[rows])


def _exponential(tile: Tensor) -> Tensor:
    return tile.exp_()


def _softplus(tile: Tensor) -> Tensor:
    return tile.exp_().log1p_()


def check_two_passes(job: Job) -> None:
    """Raise ``Unfused`` where two passes are not for this job."""
    views = job.views
    if job.asked.kinds not in ({"logsumexp"}, {"softplus"}):
        raise Unfused("two passes collect sums of one function")
    if len(views.anchors) != len(views.positives) or views.negatives is not None:
        raise Unfused("two passes compare two views of one batch")
    if 2 / job.temperature > _UNSHIFTED * 2.5:
        raise Unfused("so low a temperature needs a maximum for each row")


def two_passes(job: Job, *, sides: int) -> tuple[Tensor, Gradients]:
    """Return value and gradients of a formula of the whole batch, of one view as anchors or both.

    With sides = 2 the value is the mean of both directions.
    """
    views, tau, n = job.views, job.temperature, len(job.views.anchors)
    both = [_Vectors(views.anchors), _Vectors(views.positives)]
    tiles = _Tiles(job, n)
    softplus = job.asked.kinds == {"softplus"}
    summed, slope = (_softplus, Tensor.sigmoid_) if softplus else (_exponential, _exponential)
    spans = {against for _, against in job.asked.temperatures}
    across, inside = bool(spans & {"cross", "both"}), bool(spans & {"within", "both"})
    zero = views.anchors.new_zeros(n)
    # sums over the negatives of every row, as anchors of each side
    cross, within = ([zero.clone() for _ in range(sides)] for _ in range(2))
    for rows, _, tile in _across(job, both, tiles) if across else ():
        summed(tile)
        cross[0][rows] += tile.sum(dim=1)
        if sides == 2:
            cross[1] += tile.sum(dim=0)
    for side in range(sides if inside else 0):
        for rows, _, tile in _triangle(job, both[side], tiles):
            summed(tile)
            within[side][rows] += tile.sum(dim=1)
            within[side][rows.stop :] += tile[:, len(tile) :].sum(dim=0)
    positive = torch.cat(
        [(both[0].rows(r) * both[1].rows(r)).sum(dim=1) for r in _blocks(0, n, 2048)]
    )
    number = counts(job, slice(0, n))
    gradients = [torch.zeros_like(x.data) for x in both]
    total = zero.new_zeros((), dtype=torch.float64)
    learnt = None if job.learnt is None else torch.zeros_like(job.learnt)
    by_positive = zero.clone()
    # derivatives of the value by s, as factors of the slope of what is summed
    u = {"cross": [zero.clone() for _ in range(2)], "within": [zero.clone() for _ in range(2)]}
    for side in range(sides):
        masses = {"cross": cross[side], "within": within[side], "both": cross[side] + within[side]}
        values: dict[Key, Tensor] = {
            key: masses[key[1]].clone() if softplus else masses[key[1]].log() + job.shift
            for key in job.asked.temperatures
        }
        known = Known(positive.clone(), values, number)
        value, (first, *by), last = job.evaluate(known, n)
        total += value / sides
        if learnt is not None and last is not None:
            learnt += last / sides
        by_positive += first / sides
        for (_, against), g in zip(values, by, strict=True):
            mass = masses[against]
            if not softplus:
                g = torch.where(mass > 0, g / mass.where(mass > 0, 1.0), 0.0)
            share = g / (tau * sides)
            for where in ("cross", "within"):
                if against in (where, "both"):
                    u[where][side] += share
    for rows, a, tile in _across(job, both, tiles) if across else ():
        slope(tile).mul_(torch.add(u["cross"][0][rows, None], u["cross"][1]))
        add_product(gradients[1], tile, a)
        pushed = both[1].push(tile)
        gradients[0][rows] += pushed
        if learnt is not None:  # sum_ij W_ij s_ij is what the push has along the anchors
            learnt -= (pushed * a).sum() / tau
    for side in range(sides if inside else 0):
        for rows, a, tile in _triangle(job, both[side], tiles):
            weight = torch.add(u["within"][side][rows, None], u["within"][side][rows.start :])
            slope(tile).mul_(weight)
            # the square on the diagonal holds both orders of its pairs
            add_product(gradients[side][rows.stop :], tile[:, len(tile) :], a)
            if learnt is not None:
                learnt += (tile[:, : len(tile)] @ a * a).sum() / (2 * tau)
            pushed = both[side].push(tile, rows.start)
            gradients[side][rows] += pushed
            if learnt is not None:
                learnt -= (pushed * a).sum() / tau
    for rows in _blocks(0, n, 2048):
        g = by_positive[rows, None]
        gradients[0][rows] += g * both[1].rows(rows)
        gradients[1][rows] += g * both[0].rows(rows)
    for x, gradient in zip(both, gradients, strict=True):
        x.by_raw(gradient)
    return total.to(views.anchors.dtype), [*gradients, None, learnt]


def _across(
    job: Job, both: list[_Vectors], tiles: _Tiles
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows, unit anchors and s/tau - shift of each block of anchors against positives."""
    layout, tau, n = Layout(job.views, "cross"), job.temperature, len(both[0])
    for rows in _blocks(0, n, tiles.height):
        a = both[0].rows(rows)
        tile = tiles.empty(len(a), n)
        both[1].against(a / tau, tile)
        layout.exclude(tile, rows)
        yield rows, a, tile.sub_(job.shift)


def _triangle(job: Job, view: _Vectors, tiles: _Tiles) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the same of a view against itself, from the block's own first column on."""
    tau, n, groups = job.temperature, len(view), job.views.groups
    for rows in _blocks(0, n, tiles.height):
        a = view.rows(rows)
        tile = tiles.empty(len(a), n - rows.start)
        view.against(a / tau, tile, rows.start)
        tile.fill_diagonal_(-torch.inf)
        if groups is not None:
            tile.masked_fill_(groups[rows, None] == groups[rows.start :], -torch.inf)
        yield rows, a, tile.sub_(job.shift)


def counts(job: Job, rows: slice) -> dict[Against, Tensor]:
    """Return the number of negatives of each of the rows, by what is asked."""
    return {
        against: (~Layout(job.views, against).excluded(rows)).sum(dim=1).to(job.views.anchors.dtype)
        for against in job.asked.counts
    }
