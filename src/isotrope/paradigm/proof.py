"""Tests whether the components of an objective give the gradient of its formula.

An objective is written twice: as a formula and as the three components of its gradient. This module
compares formula and components by autograd, in float64, on several kinds of batches. Other tests
are on what a class declares (invariances, coupling), on the sum of attraction and repulsion, and on
whether values are finite on degenerate input. ``isotrope.paradigm.objective_check`` runs all checks
on one class.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Generator, Tensor

from isotrope.core.hyper import Hyper, hypers
from isotrope.core.rounding import same
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.paradigm.anatomy import anatomy
from isotrope.paradigm.assemble import assemble, tangent
from isotrope.paradigm.forms import Part, Symmetric
from isotrope.paradigm.loss_shares import rows_loss
from isotrope.paradigm.objective import Objective

EXACT = 1e-9  # float64 autograd against a closed form, relative to push and pull

# n x d: the smallest of both, more rows than dimensions and the reverse
SHAPES = [(2, 2), (3, 5), (8, 3), (33, 16), (64, 48), (200, 8), (2, 768), (200, 768)]


def _random(n: int, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, d, generator=generator), torch.randn(n, d, generator=generator)


def _clustered(n: int, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    centre = torch.randn(1, d, generator=generator)
    a, b = _random(n, d, generator)
    return centre + 0.1 * a, centre + 0.1 * b


def _collapsed(n: int, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    line = torch.randn(1, d, generator=generator)
    length = 1 + torch.rand(n, 1, generator=generator)
    return line * length + 1e-6 * torch.randn(n, d, generator=generator), line.repeat(n, 1)


def _antipodal(n: int, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    a, b = _random(n, d, generator)
    return a, -a + 1e-3 * b


def _duplicate_rows(n: int, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    a, b = _random(n, d, generator)
    a[n // 2 :] = a[: n - n // 2].clone()
    b[n // 2 :] = b[: n - n // 2].clone()
    return a, b


BATCHES: dict[str, Callable[[int, int, Generator], tuple[Tensor, Tensor]]] = {
    "random": _random,
    "clustered": _clustered,
    "collapsed": _collapsed,
    "antipodal": _antipodal,
    "duplicate rows": _duplicate_rows,
}


def batch(kind: str, n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random anchors and positives of a kind in ``BATCHES``, n x d float64, of any norm."""
    a, b = BATCHES[kind](n, d, Generator().manual_seed(seed))
    return a.double(), b.double()


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

# degenerate input: ways to spoil a batch of 6
DEGENERATE: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "equal rows": lambda a, b: (a[:1].repeat(len(a), 1), a[:1].repeat(len(a), 1)),
    "zero rows": lambda a, b: (_without(0, a), _without(1, b)),
    "identical views": lambda a, b: (a, a.clone()),
    "opposite views": lambda a, b: (a, -a),
    "two rows": lambda a, b: (a[:2], b[:2]),
    "tiny norms": lambda a, b: (a * 1e-3, b * 1e-3),
    "huge norms": lambda a, b: (a * 1e3, b * 1e3),
    "constant column": lambda a, b: (_constant_column(a), _constant_column(b)),
}


def _without(row: int, x: Tensor) -> Tensor:
    return x.index_fill(0, torch.tensor([row]), 0.0)


def _constant_column(x: Tensor) -> Tensor:
    return torch.cat([x[:, 1:], torch.ones(len(x), 1)], dim=1)


def degenerate(case: str, dtype: torch.dtype, d: int = 5, n: int = 6) -> tuple[Tensor, Tensor]:
    """Return a degenerate batch (see ``DEGENERATE``) as n x d tensors that require gradients."""
    a, b = DEGENERATE[case](*_random(n, d, Generator().manual_seed(0)))
    return a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()


# settings to try


def settings(cls: type[Objective]) -> Iterator[dict[str, Any]]:
    """Yield the settings to test: the defaults, every other choice of a field, every preset."""
    yield {}
    for field, hyper in hypers(cls).items():
        for choice in hyper.choices:
            if choice != getattr(cls, field):
                yield {field: choice}
    for preset in cls.presets:
        yield {"preset": preset}


def numbers(cls: type[Objective]) -> Iterator[dict[str, Any]]:
    """Yield settings with other numbers: one lower or higher, then all, with every choice."""
    others = {f.name: found for f in fields(cls) if (found := _beside(cls, f.name))}
    yield from ({name: value} for name, values in others.items() for value in values)
    every = {name: values[-1] for name, values in others.items()}
    cases = [setting for setting in settings(cls) if every and "preset" not in setting]
    yield from (setting | every for setting in cases if setting or len(every) > 1)


def _beside(cls: type[Objective], name: str) -> list[float]:
    """Two numbers around a default, within the bounds of the field; none for a choice."""
    default, hyper = getattr(cls, name), hypers(cls).get(name, Hyper("", ""))
    if hyper.choices or isinstance(default, bool) or not isinstance(default, (int, float)):
        return []
    around = (0.6 * default, 1.7 * default) if default else (-0.3, 0.3)
    low, high = hyper.at_least, hyper.at_most
    clamped = (max(x, x if low is None else low) for x in around)
    values = (min(x, x if high is None else high) for x in clamped)
    return [x for x in values if x != default and hyper.allows(x)]


def extremes(cls: type[Objective]) -> Iterator[dict[str, float]]:
    """Yield settings in which one number is the lowest or the highest that its field allows."""
    for field, hyper in hypers(cls).items():
        if not hyper.choices:
            yield {field: _lowest(hyper)}
            yield {field: 1e4 if hyper.at_most is None else hyper.at_most}


def _lowest(hyper: Hyper) -> float:
    if hyper.at_least is not None:
        return hyper.at_least
    return -1e4 if hyper.above is None else hyper.above + 1e-4


# comparisons of formula and components


def additional_negatives(objective: Objective, anchors: Tensor) -> Tensor | None:
    """Return 4 random negatives (4 x d) if the objective has ``in_batch=False``, else None."""
    if objective.hyperparameters().get("in_batch", True):
        return None
    generator = Generator().manual_seed(2)
    more = torch.randn(4, anchors.shape[1], dtype=torch.float64, generator=generator)
    return more.to(anchors.dtype)


def _gradients(loss: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = tuple(x.clone().requires_grad_() for x in inputs)
    gradients = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
    both = zip(inputs, gradients, strict=True)
    return tuple(torch.zeros_like(x) if g is None else g for x, g in both)


def _strength(terms: Terms) -> float:
    """The largest push plus pull on an anchor; the two do not cancel here."""
    pull = terms.pull.abs() if terms.pull.ndim == 1 else terms.pull.abs().amax(dim=1)
    moved = terms.dissipation.abs() * (terms.weight.abs().sum(dim=1) + pull)
    return float(abs(terms.scale) * moved.max())


def _largest_entry(*tensors: Tensor) -> float:
    return max(float(x.abs().max()) for x in tensors)


def largest(errors: Iterable[float]) -> float:
    """Return the largest error: NaN if any error is NaN, and 0 if there are no errors."""
    values = list(errors)
    return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)


def double_entry(
    objective: Objective,
    anchors: Tensor,
    positives: Tensor,
    *,
    negatives: Tensor | None = None,
    groups: Tensor | None = None,
) -> float:
    """Compare the components' gradient with autograd of the formula; return the largest error.

    The error is the largest difference, divided by the larger of two sizes: the largest push plus
    pull on an anchor, and the largest gradient. Push, pull and gradient contain the 1/n of a mean.

    Args:
        objective: Objective with gradient components.
        anchors: Embeddings of the anchors, n x d, of any norm.
        positives: Embeddings of the positives, n x d.
        negatives: Additional negatives, q x d; by default those of :func:`additional_negatives`.
        groups: Group of each row, n integers, or None.
    """
    more = additional_negatives(objective, anchors) if negatives is None else negatives
    views = Views(anchors, positives, more, groups=groups).unit()
    a, b, more = views.anchors, views.positives, views.negatives
    terms = objective.terms(a, b, more, groups=groups)
    # components use the whole matrix: another order of summation could resolve ties differently
    (gradient,) = _gradients(lambda x: objective(x, b, more, groups=groups, backend="eager"), a)
    error = float((gradient - tangent(terms.scale * assemble(terms, views), a)).abs().max())
    return error / (max(_strength(terms), _largest_entry(gradient)) or 1)


def _extended(objective: Objective, anchors: Tensor, positives: Tensor) -> dict[str, list[Any]]:
    """Return the batches with additional negatives and with groups that the objective declares."""
    half, batches = len(anchors) // 2, {}
    near = anchors + 0.1 * positives  # closer to its own anchor than to all others
    if objective.takes_negatives:
        batches["additional negatives"] = [anchors, positives, near[:half], None]
    # without in-batch negatives groups have no meaning
    if objective.pairwise and additional_negatives(objective, anchors) is None:
        a, b = (torch.cat([x[:half], x[:half] + 0.01 * x[-half:]]) for x in (anchors, near))
        batches["groups"] = [a, b, None, torch.arange(2 * half) % half]
    return batches


def extended_error(objective: Objective, anchors: Tensor, positives: Tensor) -> float:
    """Run :func:`double_entry` with additional negatives and with groups; return the larger error.

    The result is infinite if :func:`ignored_inputs` finds that the formula ignores one of them.
    """
    if "formula" in ignored_inputs(objective, anchors, positives):
        return math.inf
    batches = _extended(objective, anchors, positives).values()
    return largest(double_entry(objective, a, b, negatives=m, groups=g) for a, b, m, g in batches)


def ignored_inputs(objective: Objective, anchors: Tensor, positives: Tensor) -> str:
    """Say whether formula or components stay the same with negatives, or with groups."""
    usual, found = additional_negatives(objective, anchors), []

    def by_formula(a: Tensor, b: Tensor, more: Tensor | None, groups: Tensor | None) -> Tensor:
        return _gradients(lambda x: objective(x, b, more, groups=groups), a)[0]

    def by_terms(a: Tensor, b: Tensor, more: Tensor | None, groups: Tensor | None) -> Tensor:
        terms = objective.terms(a, b, more, groups=groups)
        return assemble(terms, Views(a, b, more, groups=groups).unit())

    for name, (a, b, more, groups) in _extended(objective, anchors, positives).items():
        for what, gradient in (("formula is", by_formula), ("components are", by_terms)):
            if same(gradient(a, b, more, groups), gradient(a, b, usual, None)):
                found.append(f"the {what} the same with {name} and without")
    declare = "take them from `pairs`, or declare takes_negatives = False or pairwise = False: "
    return declare + " and ".join(found) if found else ""


def changes(cls: type[Objective], field: str, batches: list[tuple[Tensor, Tensor]]) -> bool:
    """Return whether the gradient changes with a number, for any choice of the other fields."""

    def gradient(setting: dict[str, Any], a: Tensor, b: Tensor) -> Tensor:
        form = cls(**setting)
        return _gradients(lambda x: form(x, b, additional_negatives(form, a)), a)[0]

    return any(
        not same(gradient(setting, *views), gradient(setting | {field: value}, *views))
        for setting, value in itertools.product(settings(cls), _beside(cls, field))
        for views in batches
    )


def weight_outside(objective: Objective, anchors: Tensor, positives: Tensor) -> float:
    """Return the largest weight of a row that is not a negative; the largest of all weights is 1.

    An anchor's negatives are neither the anchor, nor its positive, nor a row of its group.
    """
    more = additional_negatives(objective, anchors)
    grouped = objective.pairwise and more is None
    groups = torch.arange(len(anchors)) % (2 * len(anchors) // 3) if grouped else None
    views = Views(anchors, positives, more, groups=groups)
    terms = objective.terms(anchors, positives, more, groups=groups)
    outside = terms.weight.masked_fill(objective.compare(views).negative(terms.against), 0)
    return _largest_entry(outside) / (_largest_entry(terms.weight) or 1)


def dissipation(objective: Objective, anchors: Tensor, positives: Tensor) -> Tensor:
    """Return GD of each anchor (Li et al., 2024, table 1: from 0, no gradient, to 1)."""
    return objective.terms(anchors, positives, additional_negatives(objective, anchors)).dissipation


def common_factor(objective: Objective, anchors: Tensor, positives: Tensor) -> tuple[float, int]:
    """Return by which factor weights and pull both change if one positive moves, and whose it is.

    Such a factor belongs to GD, the factor on the whole gradient of an anchor (Li et al., 2024,
    section 2.3). The factor is 1 if weights and pull do not change in proportion.
    """
    more, changes = additional_negatives(objective, anchors), [(1.0, 0)]
    before = objective.terms(anchors, positives, more)
    for i in range(len(anchors)):
        nearer = positives.clone()
        nearer[i] += 0.3 * nearer[i].norm() * anchors[i] / anchors[i].norm()
        after = objective.terms(anchors, nearer, more)
        old, new = (torch.cat([t.weight[i], t.pulls[i]]) for t in (before, after))
        if bool(before.weight[i].any() and before.pulls[i].any()):
            factor = (old * new).sum() / old.square().sum()
            if _largest_entry(new - factor * old) <= EXACT * _largest_entry(old):
                changes.append((float(factor), i))
    return max(changes, key=lambda change: abs(change[0] - 1))


def parts_error(objective: Objective, anchors: Tensor, positives: Tensor) -> float:
    """Compare the gradients of attraction + repulsion with those of the loss; return the error.

    The error is relative, as in :func:`double_entry`.
    """
    views = Views(anchors, positives, additional_negatives(objective, anchors)).unit()
    a, b, more = views.anchors, views.positives, views.negatives
    inputs = (a, b) if more is None else (a, b, more)
    whole, pull, push = (torch.cat(_gradients(f, *inputs)) for f in (objective, *objective.parts))
    moved = [_strength(objective.terms(*both, more)) for both in ((a, b), (b, a))]
    size = max(*moved, _largest_entry(whole, pull, push)) or 1
    return float((pull + push - whole).abs().max()) / size


# comparisons of the ways to compute a loss, and of declarations


def disagreement(objective: Objective, anchors: Tensor, positives: Tensor) -> float:
    """Compute a loss in all faster ways; return the largest difference from ``eager``.

    The ways are the default, the row blocks and, if ``coupling="none"``, the sum of the shares of
    two processes. Each way is tried with and without groups and additional negatives. The gradients
    on both views, the negatives and a temperature are compared too. The bfloat16 backend is left
    out.

    Args:
        objective: Any objective.
        anchors: Embeddings of the anchors, n x d, in float64; for several blocks, n > 512.
        positives: Embeddings of the positives, n x d.
    """
    n = len(anchors)
    more = additional_negatives(objective, anchors)
    plain = [anchors, positives] if more is None else [anchors, positives, more]
    batches: list[tuple[list[Tensor], Tensor | None]] = [(plain, None)]
    if objective.takes_negatives:
        batches.append(([anchors, positives, anchors[: n // 4] - positives[: n // 4]], None))
    if objective.pairwise:
        batches.append((batches[-1][0], torch.arange(n) % (n - n // 3)))
    errors = []
    for inputs, groups in batches:
        truth, ways = _ways(objective, inputs, groups)
        size = max(1e-9, _largest_entry(*truth[1:]))
        sizes = [1 + float(truth[0].abs()), *[size] * (len(truth) - 1)]
        for gradients in ways:
            pairs = zip(gradients, truth, sizes, strict=False)
            errors += [float((f - t).abs().max()) / s for f, t, s in pairs]
    return largest(errors)


def _ways(
    objective: Objective, inputs: list[Tensor], groups: Tensor | None
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Compute value and gradients with the eager backend, and in each other way."""
    n = len(inputs[0])
    temperature = objective.hyperparameters().get("temperature")
    constant = objective.space != "sphere" or objective.holds == "everything"
    learns = isinstance(temperature, float) and not constant
    rows = [slice(0, n // 3), slice(n // 3, n)]

    def value_and_gradients(way: Callable[[Objective, Views], Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        more = leaves[2] if len(leaves) > 2 else None
        views, learnt = Views(leaves[0], leaves[1], more, groups=groups), objective
        if learns:
            leaves.append(leaves[0].new_tensor(temperature).requires_grad_())
            learnt = _at_temperature(objective, leaves[-1])
        value = way(learnt, views)
        return [value.detach(), *torch.autograd.grad(value, leaves, materialize_grads=True)]

    ways: list[Callable[[Objective, Views], Tensor]] = [lambda o, v: o.loss(v, backend="rowblock")]
    if objective.coupling == "none":
        ways.append(lambda o, v: torch.stack([rows_loss(o, v, r) for r in rows]).sum())
    eager = value_and_gradients(lambda o, v: o.loss(v, backend="eager"))
    # the default in training, which a temperature that requires a gradient may change
    default = value_and_gradients(lambda _, v: objective.loss(v))[: 1 + len(inputs)]
    return eager, [default, *(value_and_gradients(way) for way in ways)]


def _at_temperature(objective: Objective, temperature: Tensor) -> Objective:
    """The objective, or a form of it, with another temperature."""
    if isinstance(objective, (Symmetric, Part)):
        return replace(objective, objective=_at_temperature(objective.objective, temperature))
    return replace(objective, temperature=temperature)


def change_by(objective: Objective, name: str, anchors: Tensor, positives: Tensor) -> float:
    """Return how much the loss changes under a transformation, one of ``INVARIANCES``.

    ``rotation`` multiplies all rows by one orthogonal matrix. ``permutation`` reorders both views
    alike. ``view swap`` exchanges anchors and positives. ``scale`` multiplies every row by a
    different number.
    """
    n, d = anchors.shape
    more = additional_negatives(objective, anchors)
    changed_more = more
    generator = Generator().manual_seed(1)
    if name == "rotation":
        turn = torch.linalg.qr(torch.randn(d, d, dtype=anchors.dtype, generator=generator))[0]
        changed = (anchors @ turn, positives @ turn)
        changed_more = None if more is None else more @ turn
    elif name == "permutation":
        order = torch.randperm(n, generator=generator)
        changed = (anchors[order], positives[order])
    elif name == "view swap":
        changed = (positives, anchors)
    else:
        factors = 0.5 + torch.rand(2, n, 1, dtype=anchors.dtype, generator=generator)
        changed = (anchors * factors[0], positives * factors[1])
    before = objective(anchors, positives, more)
    return float((objective(*changed, changed_more) - before).abs() / (1 + before.abs()))


def not_finite(objective: Objective, anchors: Tensor, positives: Tensor) -> list[str]:
    """Return the names of values, gradients and components that are not finite.

    The batch is also tried with all rows in one group, so that nothing is pushed. The list is empty
    if the objective raises an ``OverflowError``.
    """
    names = []
    more = additional_negatives(objective, anchors)
    try:
        objective(anchors, positives, more)
    except OverflowError:
        return []
    for groups in (None, torch.zeros(len(positives), dtype=torch.long)):
        value = objective(anchors, positives, more, groups=groups)
        gradients = torch.autograd.grad(value, (anchors, positives), allow_unused=True)
        where = "" if groups is None else " without negatives"
        names += [f"value{where}"] * (not bool(torch.isfinite(value)))
        for name, gradient in zip(("anchors", "positives"), gradients, strict=True):
            if gradient is not None and not bool(torch.isfinite(gradient).all()):
                names.append(f"gradient of the {name}{where}")
        columns = anatomy(objective, Views(anchors, positives, more, groups=groups))
        names += [k + where for k, v in columns.items() if v is not None and not math.isfinite(v)]
    return names
