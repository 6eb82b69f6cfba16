"""Sections 2.1 to 2.5 and supplement 3 to 6: the formulas against autograd and by counting."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.paradigm import registry
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table, no_jobs
from papers.machinery.verdicts import Verdict
from papers.manna2023.closed_form import (
    VERSIONS,
    Problem,
    Way,
    gradient,
    hessian_as_printed,
    loss,
)
from papers.theorems.convergence import gradient_sum_bound, linear_rate_bound
from papers.theorems.curvature import Version, hessian_norm_bound, mio_hessian
from papers.theorems.mutual_information import miov1_bound, mutual_information

DRAWS: dict[Scale, int] = {"smoke": 2, "cpu": 8, "paper": 8}
_EXACT = 1e-10  # relative: rounding of float64
_TOY = (0.42, 0.02, 0.06, 0.05, 0.25, 0.20)  # 2 x 3 probabilities of positive pairs


def render(scale: Scale, results: Results) -> Rendered:
    """Compute all of it; nothing is trained."""
    problems = [Problem.drawn(seed) for seed in range(DRAWS[scale])]
    rows, verdicts = [], []
    for title, printed, expected in _derivatives():
        errors = {v: max(_apart(printed(p, v), expected(p, v)) for p in problems) for v in VERSIONS}
        rows.append([title, *(f"{error:.1e}" for error in errors.values())])
        exact = max(errors.values()) < _EXACT
        verdicts.append(Verdict(title, exact, f"error at most {max(errors.values()):.1e}"))
    header = ("largest error relative to autograd's largest entry", *VERSIONS)
    others = [*_pairs(), *_information(), *_surrogate(), *_descent(), *_bounded(problems)]
    return Rendered(
        tables=[Table(header, rows)],
        verdicts=[*verdicts, *others],
        notes=[
            f"{len(problems)} random problems: N = 4, 5 features, 3 outputs, tau = .5, float64",
            "a claim that fails here is a slip of the paper; the library has the form that holds "
            "(papers.theorems). Equation numbers with S are the supplement's",
        ],
    )


_Form = Callable[[Problem, Version], Tensor]


def _derivatives() -> list[tuple[str, _Form, _Form]]:
    """Claims, the closed form of each, and autograd."""

    def printed_gradient(p: Problem, v: Version) -> Tensor:
        return gradient(p, v, projected=False)

    return [
        (
            "the gradients of eq. S14, S27, S33 are those of plain products z_n . z_m",
            printed_gradient,
            lambda p, v: _auto(p, v, "product"),
        ),
        (
            "the gradients of eq. S14, S27, S33 are those of the losses, which are of cosines",
            printed_gradient,
            lambda p, v: _auto(p, v, "cosine"),
        ),
        (
            "with the derivative (I - z z^T) / |z| of the normalisation they are",
            lambda p, v: gradient(p, v, projected=True),
            lambda p, v: _auto(p, v, "cosine"),
        ),
        (
            "our MIOv1, MIOv2, MIOv3 are eq. 4, 12 and 18",
            lambda p, v: _ours(p, v),
            lambda p, v: loss(p, p.psi, v, "cosine"),
        ),
        (
            "the Hessians of eq. S19, S20, S28, S34 with B where l = k are autograd's (products)",
            lambda p, v: mio_hessian(p.h, p.psi, p.temperature, v),
            _auto_hessian,
        ),
        (
            "eq. S28 and S34 are right to put B where l differs from k",
            lambda p, v: hessian_as_printed(p, v, _auto_hessian(p, v), "reversed"),
            _auto_hessian,
        ),
        (
            "eq. S18 is right to begin B with h_m h_m^T",
            lambda p, v: hessian_as_printed(p, v, _auto_hessian(p, v), "eq. 18"),
            _auto_hessian,
        ),
    ]


def _auto(problem: Problem, version: Version, way: Way) -> Tensor:
    psi = problem.psi.clone().requires_grad_()
    (gradient_of_psi,) = torch.autograd.grad(loss(problem, psi, version, way), psi)
    return gradient_of_psi


def _auto_hessian(problem: Problem, version: Version) -> Tensor:
    p, q = problem.psi.shape
    flat = problem.psi.T.flatten().requires_grad_()
    value = loss(problem, flat.view(q, p).T, version, "product")
    (slopes,) = torch.autograd.grad(value, flat, create_graph=True)
    return torch.stack([torch.autograd.grad(s, flat, retain_graph=True)[0] for s in slopes])


def _ours(problem: Problem, version: Version) -> Tensor:
    half = len(problem.h) // 2
    z = problem.h @ problem.psi
    objective = registry.build(f"mio{version}", {"temperature": problem.temperature})
    return objective.loss(Views(z[:half], z[half:]))


def _apart(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).abs().max() / expected.abs().max())


def _pairs() -> list[Verdict]:
    """Section 2.1, by counting."""
    sizes = range(2, 9)
    counted = {n: sum(1 for i in range(2 * n) for j in range(2 * n) if (i - j) % n) for n in sizes}
    right = all(t == 4 * n * n - 4 * n == (2 * n) ** 2 - 2 * (2 * n) for n, t in counted.items())
    return [
        Verdict(
            "2N views make T_N = 4N^2 - 4N = T_P^2 - 2 T_P negative pairs",
            right,
            f"counted for N from {sizes[0]} to {sizes[-1]}",
        )
    ]


def _information() -> list[Verdict]:
    """Section 2.2, on a small joint distribution and the best critic."""
    joint = torch.tensor(_TOY, dtype=torch.float64).view(2, 3)
    product = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
    ratio = joint / product
    information = float(mutual_information(joint))
    negatives = float((product * ratio.log()).sum())
    skipped = -(joint * ratio.log()).sum() + (product * (1 + ratio).log()).sum()
    bound = miov1_bound(joint)
    return [
        Verdict(
            "the first step of eq. 10 is an equality",
            bool((skipped - bound.right).abs() < _EXACT),
            f"{float(bound.right):.4f} becomes {float(skipped):.4f}: log r/(1 + r) becomes log r",
        ),
        Verdict(
            "the last term of eq. 10 is an information, which is never negative",
            negatives >= 0,
            f"E_neg[log r] = {negatives:.4f} = -KL(p(x) p(y) || p(x, y))",
        ),
        Verdict(
            "MIOv1 is at least -I(positives) + E_neg[log r]",
            bool(bound.holds),
            f"{float(bound.right):.4f} and {float(bound.left):.4f}; I = {information:.4f}",
        ),
    ]


def _surrogate() -> list[Verdict]:
    """Sections 2.3 and 2.4.2."""
    cosine = torch.linspace(-1, 1, 2001, dtype=torch.float64, requires_grad=True)
    x = cosine / 0.2
    gap = float((x.exp() - torch.log1p(x.exp())).detach().min())
    (slope,) = torch.autograd.grad((-x + torch.log1p(x.exp())).sum(), cosine)
    problem = Problem.drawn(0)
    v2, v3 = (float(loss(problem, problem.psi, v, "cosine")) for v in VERSIONS[1:])
    return [
        Verdict(
            "MIOv3 is never below MIOv2 (eq. 16)", gap >= 0 and v3 >= v2, f"{v3:.4f}, {v2:.4f}"
        ),
        Verdict(
            "MIOv3 meets MIOv2 at the present point, as a majoriser must (eq. 14)",
            gap == 0,
            f"e^x - log(1 + e^x) is {gap:.2g} or more at tau = .2",
        ),
        Verdict(
            "MIOv1 has a net repulsion of positives for MIOv2 to remove (section 2.3)",
            bool((slope > 0).any()),
            f"the derivative of -C/tau + log(1 + e^(C/tau)) is at most {float(slope.max()):.2g}",
        ),
    ]


def _descent() -> list[Verdict]:
    """Section 2.5: gradient descent on w^2 / 2 * lambda, whose sums are known."""
    steps, rate, curvature = 60, 0.1, 1.0
    weight = 1.05 * (1 - rate * curvature) ** torch.arange(steps + 1, dtype=torch.float64)
    values = curvature * weight.square() / 2
    squares = (curvature * weight[:-1]).square()
    rates = torch.full((steps,), rate, dtype=torch.float64)
    first = gradient_sum_bound(rates, squares, float(values[0]), curvature)
    last = gradient_sum_bound(rates, squares, float(values[-1]), curvature)
    cosine = [_annealed(0.06, many) for many in (100, 1000, 10000)]
    # with a rate of 1/L = 1 along two eigenvectors; on a quadratic mu is the curvature
    curvatures = torch.tensor([[0.1], [1.0]], dtype=torch.float64)
    gaps = curvatures / 2 * (1 - curvatures) ** (2 * torch.arange(steps + 1))
    linear = linear_rate_bound(gaps.sum(dim=0), 0.1, 1.0)
    along = linear_rate_bound(gaps[0], 0.1, 0.1)
    return [
        Verdict(
            "gradient descent at a rate of 1/L is within (1 - mu/L)^k (eq. 20)",
            bool(linear.holds.all()),
            f"after 10 steps {float(linear.left[10]):.3g} and {float(linear.right[10]):.3g} on a "
            "quadratic with curvatures 0.1 and 1",
        ),
        Verdict(
            "along the eigenvector of lambda_i it is within (1 - mu_i/lambda_i)^k (eq. 21, 24)",
            bool(along.holds.all()),
            f"after a step {float(along.left[1]):.3g} and {float(along.right[1]):.3g} on the same "
            "quadratic, lambda_i = mu_i = 0.1: only a rate of 1/lambda_i would do it",
        ),
        Verdict(
            "the sum of gradients of eq. S45 is bounded by the first gap",
            bool(first.holds),
            f"{float(first.left):.3g} and {float(first.right):.3g} on a quadratic",
        ),
        Verdict(
            "it is bounded by the gap that is left, as eq. 25 has it",
            bool(last.holds),
            f"{float(last.left):.3g} and {float(last.right):.2g} on the same quadratic",
        ),
        Verdict(
            "with cosine annealing the sum of squared rates stays finite as T grows (eq. 26)",
            cosine[-1] < 2 * cosine[0],
            "100, 1000, 10000 steps: " + ", ".join(f"{total:.3g}" for total in cosine),
        ),
    ]


def _annealed(peak: float, steps: int) -> float:
    return sum((peak * (1 + math.cos(math.pi * t / steps)) / 2) ** 2 for t in range(steps))


def _bounded(problems: list[Problem]) -> list[Verdict]:
    """Supplement 3.1.3, which proves no Lipschitz constant; here is a bound at a point."""
    bounds = [hessian_norm_bound(p.h, p.psi, p.temperature, v) for p in problems for v in VERSIONS]
    most = max(float(bound.right / bound.left) for bound in bounds)
    return [
        Verdict(
            "the Hessian's norm is within the explicit bound of the triangle inequality",
            all(bool(bound.holds) for bound in bounds),
            f"{len(bounds)} cases, the bound at most {most:.3g} times the norm",
        )
    ]


ARTIFACT = Artifact(
    title="formulas behind tables and figures: gradient and Hessian of MIO against autograd",
    jobs=no_jobs,
    render=render,
)
