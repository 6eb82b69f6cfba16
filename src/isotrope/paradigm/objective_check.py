"""Runs all checks of ``isotrope.paradigm.proof`` on one objective (``isotrope check my_loss.py``).

The result has a line for each property. If a check fails or the formula raises an error, the line
names the inputs and the likely cause. :func:`mistakes` decomposes the formula to find out what is
wrong: a factor, a sign, the weights or another part.
"""

import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.paradigm.decompose import decompose
from isotrope.paradigm.forms import Symmetric
from isotrope.paradigm.objective import INVARIANCES, Objective
from isotrope.paradigm.proof import (
    BATCHES,
    DEGENERATE,
    DTYPES,
    EXACT,
    SHAPES,
    agreement,
    batch,
    degenerate,
    double_entry,
    extended_entry,
    extremes,
    further,
    infinite,
    largest,
    parts_entry,
    settings,
    variance,
)

_IGNORED = (
    "use the negatives and groups of `pairs` in formula and components, or declare takes_negatives "
    "= False and pairwise = False: formula or components ignore them (both, if the error is inf)"
)

_REDUCED = (
    "set reduction to 'sum' if the formula sums over the anchors; otherwise define attraction and "
    "repulsion so that their sum is the loss"
)
_UNCOUPLED = (
    'declare coupling = "batch", which is right for every formula that takes all statistics from '
    "`pairs`; if this does not help, correct `holds`"
)
_ONE_SIDED = (
    "declare in `holds` which inputs the formula treats as constant, or define "
    "`swapped_components`, the gradient on the vectors that anchors are compared with"
)


@dataclass(frozen=True)
class Check:
    """The result of one check: a property of an objective, and whether it holds.

    Attributes:
        name: Checked property.
        tried: Number of combinations of inputs and settings that were tried.
        worst: Largest error as text, or a few words on what was found.
        passed: Whether the property holds; None if it could not be tried.
        means: Likely cause and remedy if the property does not hold.
        mistakes: Sentences on how push and pull differ from those of the formula, if they do.
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
    forms = with_terms + [case.symmetric() for case in with_terms]
    few = [batch("random", 24, 6), batch("clustered", 24, 6)]
    reduced = _REDUCED if cls.batch_level else ""
    first = _entries("formula = components (autograd, float64)", double_entry, forms, batches)
    wrong = first.passed is False and first.tried
    yield replace(first, mistakes=mistakes(cls())) if wrong else first
    yield _entries(
        "the same, with more negatives and with groups", extended_entry, forms, few, _IGNORED
    )
    yield _entries("attraction + repulsion = whole", parts_entry, with_terms, batches, reduced)
    for name in INVARIANCES:
        yield _invariant(name, cases, batches)
    yield _coupled(cls)
    yield _finite(cls)


def _invariant(name: str, cases: list[Objective], batches: list[tuple[Tensor, Tensor]]) -> Check:
    """Whether a transformation leaves every value unchanged if, and only if, it is declared."""
    label = f"invariance: {name}"
    declared = [case for case in cases if name in case.invariances]
    others = [case for case in cases if name not in case.invariances]
    try:
        worst = largest(variance(c, name, a, b) for c in declared for a, b in batches)
        # an undeclared transformation must change the value
        still = [c for c in others if max(variance(c, name, a, b) for a, b in batches) <= EXACT]
    except Exception as error:  # whatever somebody's formula raises is the finding
        return raised(label, error)
    evidence = f"{worst:.1e}" if declared else "changes, as declared"
    if still:
        evidence = "not declared, but the loss stays the same"
    return Check(label, len(cases), evidence, worst <= EXACT and not still)


def _coupled(cls: type[Objective]) -> Check:
    """Whether all ways to compute the loss agree; the declarations choose among them."""
    name = "all backends and two processes agree"
    plain = [cls(**setting) for setting in settings(cls) if "preset" not in setting]
    cases = [form for case in plain for form in (case, case.symmetric())]
    batches = [batch(kind, n, 6) for kind in ("random", "clustered") for n in (24, 600)]
    return _entries(name, agreement, cases, batches, _UNCOUPLED)


def _entries(
    name: str,
    error: Callable[[Objective, Tensor, Tensor], float],
    cases: list[Objective],
    batches: list[tuple[Tensor, Tensor]],
    means: str = "",
) -> Check:
    if not cases:
        return Check(name, 0, "not checked: the objective does not define GD, W and R", passed=True)
    errors = []
    for case, views in itertools.product(cases, batches):
        try:
            errors.append((error(case, *views), case, views[0]))
        except WrongCoupling as wrong:
            return Check(name, len(cases) * len(batches), str(wrong), passed=False)
        except Exception as why:  # whatever somebody's formula raises is the finding
            return raised(name, why, means) if means else raised(name, why)
    worst = largest(error for error, *_ in errors)
    if passed := worst <= EXACT:
        means = ""
    else:
        wrong_cases = [(case, views) for error, case, views in errors if not error <= EXACT]
        where = _where(wrong_cases, len(errors))
        means = f"{means}; {where}" if means else where
    return Check(name, len(errors), f"{worst:.1e}", passed, means)


def _where(wrong: list[tuple[Objective, Tensor]], tried: int) -> str:
    """Say what the failed cases have in common."""
    case, views = wrong[0]
    shape = " x ".join(map(str, views.shape))
    found = f"{len(wrong)} of {tried} cases fail; the first is {case!r} on {shape} embeddings"
    if all(isinstance(case, Symmetric) for case, _ in wrong):
        return f"{_ONE_SIDED}: only the symmetric form is wrong; {found}"
    return found


def raised(name: str, error: Exception, means: str = "training would stop here") -> Check:
    """Return the result of a check in which the loss raised ``error``."""
    lines = str(error).strip().splitlines() or [""]
    libraries = (Path(__file__).parent.parent, Path(torch.__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(library) for library in libraries)
    ]
    if frames:
        means += f"; raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}"
    return Check(
        name, 0, f"{type(error).__name__}: {lines[-1].strip()}"[:80], passed=False, means=means
    )


def _finite(cls: type[Objective]) -> Check:
    inputs = [(case, dtype) for case in DEGENERATE for dtype in DTYPES]
    tried = [(setting, *where) for setting in settings(cls) for where in inputs]
    # at the ends of the ranges a gradient divided by a norm of 1e-3 overflows float16
    tried += [
        (setting, case, dtype)
        for setting in extremes(cls)
        for case, dtype in inputs
        if (case, dtype) != ("tiny norms", torch.float16)
    ]
    name, bad = "finite on degenerate input", []
    for setting, case, dtype in tried:
        where = f"at {case}, {dtype}, {setting or 'defaults'}"
        try:
            found = infinite(cls(**setting), *degenerate(case, dtype))
        except Exception as error:  # whatever somebody's formula raises is the finding
            return raised(name, error, f"training would stop here: {where}")
        bad += [f"{what} {where}" for what in found]
    return Check(name, len(tried), bad[0] if bad else "finite", not bad)


def mistakes(objective: Objective) -> list[str]:
    """Return sentences on how push and pull of the components differ from those of the formula.

    Push and pull are measured on 4 random rows in 16 dimensions, for which weights are unique. The
    measurement needs in-batch negatives, and a pull that is equal in all coordinates.
    """
    anchors, positives = batch("random", 4, 16)
    if further(objective, anchors) is not None:
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
    size = torch.cat([true_push, true_pull], dim=1).abs().max().clamp_min(1e-300)
    lines = [
        f"the push, scale x GD x W, is {_relation(push / size, true_push / size)}",
        f"the pull, scale x GD x pull, is {_relation(pull / size, true_pull / size)}",
    ]
    if measured.misfit > EXACT:
        lines.append(
            f"correct against={claimed.against!r} or the residual: {measured.misfit:.0%} of the "
            "gradient has the direction of neither the positive nor the negatives"
        )
    elif all(line.endswith("is that of the formula") for line in lines):
        lines = ["try the batch named above: push and pull are right on 4 x 16 random embeddings"]
    return lines


def _relation(claimed: Tensor, right: Tensor) -> str:
    """In words, the factor between two matrices, for all entries or row by row."""
    if _alike(claimed, right):
        return "that of the formula"
    factor = (claimed * right).sum() / right.square().sum()
    if _alike(claimed, factor * right):
        return f"{float(factor):.4g} times that of the formula"
    factors = (claimed * right).sum(dim=1, keepdim=True) / right.square().sum(dim=1, keepdim=True)
    if claimed.shape[1] > 1 and _alike(claimed, factors * right):
        return "that of the formula times a factor that is different for each anchor: check GD"
    return "not that of the formula"


def _alike(claimed: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal, if their largest push or pull is 1."""
    return bool((claimed - right).abs().max() <= EXACT)
