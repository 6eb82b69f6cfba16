"""Runs all checks of ``isotrope.paradigm.proof`` on one objective (``isotrope check my_loss.py``).

The result has a line for each property. If a check fails, it names the inputs and what was measured
there. It names a cause only if another measurement shows the cause. :func:`mistakes` decomposes
the formula to find out what is wrong: a factor, a sign, the weights or another part.
"""

import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.paradigm import proof
from isotrope.paradigm.decompose import decompose
from isotrope.paradigm.forms import Symmetric
from isotrope.paradigm.objective import INVARIANCES, Objective
from isotrope.paradigm.proof import BATCHES, DEGENERATE, DTYPES, EXACT, SHAPES, batch, settings

_ONE_SIDED = (
    "declare in `holds` which inputs the formula treats as constant, or define "
    "`swapped_components`, the gradient on the vectors that anchors are compared with"
)

_ALONE = (
    "use torch.where(pairs.count() > 0, ..., 0.0) for the part of the formula with negatives, as "
    "the logsumexp of no negatives is -inf, and isotrope.parts for weights"
)
_UNBOUNDED = (
    "apply a lower bound (clamp_min) before roots, logarithms and divisions, and an upper bound "
    "before exponentials; torch.where after them leaves gradients NaN"
)

Batch = tuple[Tensor, Tensor]
Measured = Callable[[Objective, Tensor, Tensor], str]


@dataclass(frozen=True)
class Check:
    """The result of one check: a property of an objective, and whether it holds.

    Attributes:
        name: Checked property.
        tried: Number of combinations of inputs and settings that were tried.
        worst: Largest error as text, or a few words on what was found.
        passed: Whether the property holds; None if it could not be tried.
        means: What was measured where the property does not hold, and the remedy.
        mistakes: Sentences on how push and pull differ from those of the formula, if they do; the
            first names the settings.
    """

    name: str
    tried: int
    worst: str
    passed: bool | None
    means: str = ""
    mistakes: Sequence[str] = ()


def prove(cls: type[Objective], shapes: list[tuple[int, int]] | None = None) -> Iterator[Check]:
    """Check, for every setting of a class, that formula, components and declarations agree.

    This takes from seconds to a minute.

    Args:
        cls: Class of the objective.
        shapes: Shapes (n, d) of the batches; by default ``SHAPES`` without the last three, which
            take most of the time.
    """
    shapes = SHAPES[:-3] if shapes is None else shapes
    cases = [cls(**setting) for setting in settings(cls)]
    batches = [batch(kind, *shape) for kind in BATCHES for shape in shapes]
    with_terms = [case for case in cases if case.has_terms]
    others = [case for setting in proof.numbers(cls) if (case := cls(**setting)).has_terms]
    few = [batch("random", 24, 6), batch("clustered", 24, 6)]
    name, more = "formula = components (autograd, float64)", "the same, more negatives and groups"
    yield _entries(name, proof.double_entry, _both(with_terms), batches)
    if others:
        yield _entries("the same, with other numbers", proof.double_entry, _both(others), few)
    yield _entries(more, proof.extended_error, _both(with_terms), few, proof.ignored_inputs)
    yield from _roles(with_terms + others)
    yield _used(cls)
    yield _entries("attraction + repulsion = whole", proof.parts_error, with_terms, batches, _sum)
    for name in INVARIANCES:
        yield _invariant(name, cases, batches)
    yield _coupled(cls)
    yield _finite(cls)


def _both(cases: list[Objective]) -> list[Objective]:
    return cases + [case.symmetric() for case in cases]


def _roles(cases: list[Objective]) -> Iterator[Check]:
    """Whether GD, W and R mean what Li et al. (2024, section 2.3) define; all is in a product."""
    kinds = [batch(kind, 24, 6) for kind in BATCHES]

    def beyond(*case: Any) -> float:
        low, high = proof.dissipation(*case).aminmax()
        return float(torch.stack([-low, high - 1]).clamp_min(0).max())

    def extent(*case: Any) -> str:
        low, high = map(float, proof.dissipation(*case).aminmax())
        bound = "divide GD by its upper bound, and multiply weight and pull by it"
        remedy = "change the sign of GD, weight and pull" if low < 0 else bound
        return f"{remedy}: GD is {low:.4g} to {high:.4g}"

    def outside(*case: Any) -> str:
        most = proof.weight_outside(*case)
        remedy = "set these weights to 0, for example by pairs.negative()"
        return f"{remedy}: the largest is {most:.2g} times the largest weight"

    def moved(*case: Any) -> str:
        factor, i = proof.common_factor(*case)
        remedy = "move the factor that weight and pull share into GD"
        return f"{remedy}: if only positive {i} moves, both become {factor:.4g} times as large"

    yield _entries("W is 0 outside the negatives", proof.weight_outside, cases, kinds, outside)
    yield _entries("GD is from 0 to 1", beyond, cases, kinds, extent)
    shared, small = "GD has all that weight and pull share", [batch("random", 6, 4)]
    yield _entries(shared, lambda *own: abs(proof.common_factor(*own)[0] - 1), cases, small, moved)


def _sum(case: Objective, anchors: Tensor, positives: Tensor) -> str:
    """Return how to make the parts add up; by default, they are the components without scale."""
    if not proof.double_entry(case, anchors, positives) <= EXACT:
        return "correct the components first"
    scale = case.terms(anchors, positives, proof.additional_negatives(case, anchors)).scale
    rest = scale * (len(anchors) if case.reduction == "mean" else 1)
    if type(case).attraction is not Objective.attraction or abs(rest - 1) <= EXACT:
        return "define attraction and repulsion so that their sum is the formula"
    if abs(scale - 1) <= EXACT:  # the reduction is mean
        return "move the factor 1 / (number of rows) from weight and pull into scale"
    return f"move the factor {rest:.4g} from scale into weight and pull"


def _used(cls: type[Objective]) -> Check:
    """Whether the loss changes with each of its numbers, with some choice of the others."""
    name, views = "each number changes the loss", [batch(kind, 24, 6) for kind in BATCHES]
    names = {field for setting in proof.numbers(cls) if len(setting) == 1 for field in setting}
    try:
        unused = ", ".join(n for n in sorted(names) if not proof.changes(cls, n, views))
    except Exception as error:  # whatever somebody's formula raises is the finding
        return raised(name, error)
    means = f"use {unused} in formula, or remove the field" if unused else ""
    return Check(name, len(names), f"not {unused}" if unused else "changes", not unused, means)


def _invariant(name: str, cases: list[Objective], batches: list[tuple[Tensor, Tensor]]) -> Check:
    """Whether a transformation leaves every value unchanged if, and only if, it is declared."""
    label = f"invariance: {name}"
    declared = [case for case in cases if name in case.invariances]
    rest = [case for case in cases if name not in case.invariances]
    try:
        worst = proof.largest(proof.change_by(c, name, a, b) for c in declared for a, b in batches)
        # an undeclared transformation must change the value
        same = [c for c in rest if max(proof.change_by(c, name, a, b) for a, b in batches) <= EXACT]
    except Exception as error:  # whatever somebody's formula raises is the finding
        return raised(label, error)
    evidence = f"{worst:.1e}" if declared else "changes, as declared"
    if same:
        evidence = "not declared, but the loss stays the same"
    return Check(label, len(cases), evidence, worst <= EXACT and not same)


def _coupled(cls: type[Objective]) -> Check:
    """Whether all ways to compute the loss agree; the declarations choose among them."""
    name = "all backends and two processes agree"
    plain = [cls(**setting) for setting in settings(cls) if "preset" not in setting]
    batches = [batch(kind, n, 6) for kind in ("random", "clustered") for n in (24, 600)]

    def declared(case: Objective, *views: Tensor) -> str:
        body = {"coupling": "batch", "presets": {}}
        careful: Any = type(cls.__name__, (cls,), body, register=False)
        form = careful(**getattr(case, "objective", case).hyperparameters())
        form = form.symmetric() if isinstance(case, Symmetric) else form
        if case.coupling == "batch" or proof.disagreement(form, *views) > EXACT:
            return ""
        return f'declare coupling = "batch", with which all agree, in place of {case.coupling!r}'

    return _entries(name, proof.disagreement, _both(plain), batches, declared)


def _entries(
    name: str,
    error: Callable[[Objective, Tensor, Tensor], float],
    cases: list[Objective],
    batches: list[Batch],
    measured: Measured | None = None,
) -> Check:
    """Try all cases on all batches; where the first fails, call ``measured``."""
    if not cases:
        return Check(name, 0, "not checked: the objective does not define GD, W and R", passed=True)
    errors = []
    for case, views in itertools.product(cases, batches):
        try:
            errors.append((error(case, *views), case, views))
        except WrongCoupling as declared:
            return Check(name, len(cases) * len(batches), str(declared), passed=False)
        except Exception as why:  # whatever somebody's formula raises is the finding
            return raised(name, why)
    worst = proof.largest(error for error, *_ in errors)
    wrong = [(case, views) for error, case, views in errors if not error <= EXACT]
    if not wrong:
        return Check(name, len(errors), f"{worst:.1e}", passed=True)
    case, views = wrong[0]
    shape = " x ".join(map(str, views[0].shape))
    where = f"{len(wrong)} of {len(errors)} cases failed, first {case!r} on {shape} embeddings"
    reason = measured(case, *views) if measured else ""
    if all(isinstance(case, Symmetric) for case, _ in wrong) and error is proof.double_entry:
        reason = f"{_ONE_SIDED}: only the symmetric form is wrong"
    means = f"{reason}; {where}" if reason else where
    said = [f"{case!r}:", *mistakes(case)] if error is proof.double_entry else []
    return Check(name, len(errors), f"{worst:.1e}", passed=False, means=means, mistakes=said)


def raised(name: str, error: Exception, means: str = "") -> Check:
    """Return the result of a check in which the loss raised ``error``."""
    lines = str(error).strip().splitlines() or [""]
    libraries = (Path(__file__).parent.parent, Path(torch.__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(library) for library in libraries)
    ]
    if frames:
        place = f"raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}"
        means = f"{means}; {place}" if means else place
    return Check(
        name, 0, f"{type(error).__name__}: {lines[-1].strip()}"[:80], passed=False, means=means
    )


def _finite(cls: type[Objective]) -> Check:
    inputs = [(case, dtype) for case in DEGENERATE for dtype in DTYPES]
    tried = [(setting, *where) for setting in settings(cls) for where in inputs]
    # at the ends of the ranges a gradient divided by a norm of 1e-3 overflows float16
    tried += [
        (setting, case, dtype)
        for setting in proof.extremes(cls)
        for case, dtype in inputs
        if (case, dtype) != ("tiny norms", torch.float16)
    ]
    name, bad = "finite on degenerate input", []
    for setting, case, dtype in tried:
        where = f"on {case} in {dtype} with {setting or 'defaults'}"
        try:
            found = proof.not_finite(cls(**setting), *proof.degenerate(case, dtype))
        except Exception as error:  # whatever somebody's formula raises is the finding
            return raised(name, error, where)
        bad += [f"{what} {where}" for what in found]
    if not bad:
        return Check(name, len(tried), "finite", passed=True)
    remedy = _ALONE if all("without negatives" in what for what in bad) else _UNBOUNDED
    means = f"{remedy}; numbers that are not finite: {len(bad)}, first the {bad[0]}"
    return Check(name, len(tried), "not finite", passed=False, means=means)


def mistakes(objective: Objective) -> list[str]:
    """Return sentences on how push and pull of the components differ from those of the formula.

    Push and pull are measured on 4 random rows in 16 dimensions, for which weights are unique. The
    measurement needs in-batch negatives, and a pull that is equal in all coordinates.
    """
    anchors, positives = batch("random", 4, 16)
    if proof.additional_negatives(objective, anchors) is not None:
        return ["check the gradient yourself: this analysis needs in-batch negatives"]
    claimed = objective.terms(anchors, positives)
    if claimed.pull.ndim == 2:
        return ["check the gradient yourself: the pull is different in each coordinate"]
    rest = torch.zeros_like(anchors) if claimed.residual is None else claimed.residual
    if claimed.extra is not None:
        rest = rest + claimed.dissipation[:, None] * claimed.extra
    try:
        measured = decompose(
            lambda x, y: objective(x, y) - claimed.scale * (x * rest).sum(),
            anchors,
            positives,
            against=claimed.against,
            reduction="sum",
        )
    except ValueError as error:
        return [str(error)]
    (push, pull), (true_push, true_pull) = (
        [t.scale * t.dissipation[:, None] * part for part in (t.weight, t.pull[:, None])]
        for t in (claimed, measured.terms)
    )
    size = float(torch.cat([true_push, true_pull], dim=1).abs().max().clamp_min(1e-300))
    pushes, of_push = _relation(push, true_push, size)
    pulls, of_pull = _relation(pull, true_pull, size)
    lines = [f"the push, scale x GD x W, is {pushes}", f"the pull, scale x GD x pull, is {pulls}"]
    if measured.misfit > EXACT:
        lines.append(
            f"correct against={claimed.against!r} or the residual: {measured.misfit:.0%} of the "
            "gradient has the direction of neither the positive nor the negatives"
        )
    elif pushes == pulls == _SAME:
        lines = ["try the batch named above: push and pull are right on 4 x 16 random embeddings"]
    elif pushes == _SAME:
        lines.append(
            _remedy(objective, "the pull (R)", "pull", "GD and W are the same in both", of_pull)
        )
    elif pulls == _SAME:
        lines.append(
            _remedy(objective, "W", "weight", "GD and the pull are the same in both", of_push)
        )
    elif of_push is not None and of_pull is not None and torch.allclose(of_push, of_pull):
        part, agree = "GD or scale", "push and pull have one factor"
        if len(of_push) > 1:
            part, agree = "GD", f"{agree}, which is different for each anchor"
        lines.append(_remedy(objective, part, "weight and pull", agree, of_push))
    return lines


def _remedy(objective: Objective, part: str, terms: str, agree: str, factor: Tensor | None) -> str:
    """Return what to change in components that have ``factor`` times the ``part`` of the formula.

    All settings with the value of the factor are named, as any of them may be missing.
    """
    act, formula = f"correct {part}", "the formula"
    if factor is None:
        formula += ", which may have a detach() too many or too few"
    elif bool((factor + 1).abs().max() <= EXACT):
        act = f"change the sign of {part}"
    else:
        own = {n: v for n, v in objective.hyperparameters().items() if isinstance(v, float) and v}
        lacks = {f"1 / {n}": v for n, v in own.items()} | {n: 1 / v for n, v in own.items()}
        near = [lack for lack, v in lacks.items() if (factor / v - 1).abs().max() <= EXACT]
        act = f"multiply {terms} by {' or '.join(near)}" if near else act
    return f"{act} in the components, or correct {formula}: {agree}"


_SAME = "that of the formula"


def _relation(claimed: Tensor, right: Tensor, size: float) -> tuple[str, Tensor | None]:
    """Return in words how two n x c matrices differ, and the factor, one or n, if there is one."""

    def alike(factor: Tensor) -> bool:
        return bool((claimed - factor * right).abs().max() <= EXACT * size)

    products, squares = claimed * right, right.square()
    one = (products.sum() / squares.sum())[None]
    if alike(torch.ones_like(one)):
        return _SAME, torch.ones_like(one)
    if bool(right.abs().max() <= EXACT * size):
        return f"up to {float(claimed.abs().max()):.4g}, but 0 in the formula", None
    if alike(one):
        return f"{float(one):.4g} times {_SAME}", one
    each = products.sum(dim=1) / squares.sum(dim=1)
    if alike(each[:, None]):
        return f"{float(each.min()):.4g} to {float(each.max()):.4g} times {_SAME}", each
    place = int((claimed - right).abs().argmax())
    i, j = divmod(place, claimed.shape[1])
    return (
        f"not in proportion to {_SAME}: {float(claimed[i, j]):.4g} in place of "
        f"{float(right[i, j]):.4g} for anchor {i} and candidate {j}"
    ), None
