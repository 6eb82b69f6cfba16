"""Steps to convergence: closed forms in float64, and the paper's released numbers."""

import pytest
import torch

from isotrope.core import unit
from isotrope.objectives import NegativeCosine
from papers.draganov2024.convergence import (
    ANGLES,
    NORMS,
    ConvergenceProtocol,
    Start,
    convergence,
    least_steps,
    starts,
)
from tests.theorems.cosine import progress

SMALL = ConvergenceProtocol(pairs=40, dimension=6, rate=0.8, limit=500)  # .02 for each pair


def cosines(z: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (unit(z) * unit(other)).sum(dim=-1)


def recursion(c: torch.Tensor, norm: float, protocol: ConvergenceProtocol) -> int:
    """Both embeddings of a pair step alike, so its cosine and norm follow without any vector.

    The change of the cosine is the left side of theorem 3.3, that of the squared norm is
    gamma^2 sin^2 / norm^2 (corollary 3.2).
    """
    gamma = protocol.rate / protocol.pairs
    rho = torch.full_like(c, norm)
    steps = 0
    while c.mean() <= protocol.target:
        phi = c.acos()
        c = c + progress(phi, rho, gamma).left
        rho = (rho.square() + (gamma * phi.sin() / rho).square()).sqrt()
        steps += 1
    return steps


@pytest.mark.parametrize(
    "start", [Start(0.3), Start(), Start(1.7), Start(lean=0.8), Start(2, -0.5)]
)
def test_the_exact_recursion(start: Start) -> None:
    z, other = starts(SMALL, [start])
    (found,) = convergence([start], SMALL)
    assert found.steps == recursion(cosines(z, other)[0], start.norm, SMALL)


def test_the_first_gradient_is_inverse_to_the_norm() -> None:
    """Prop. 3.1: sin(phi) / norm, so that one step of rate g moves a row by g sin(phi) / norm."""
    for norm in (0.5, 4.0):
        z, other = starts(SMALL, [Start(norm)])
        leaf = z[0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(NegativeCosine()(leaf, other[0]), leaf)
        sine = (1 - cosines(z, other)[0].square()).sqrt()
        torch.testing.assert_close(SMALL.pairs * gradient.norm(dim=1), sine / norm)


def test_a_larger_norm_is_a_smaller_rate() -> None:
    """What moves a direction is the rate over the squared norm."""
    (large,) = convergence([Start(3.0)], ConvergenceProtocol(40, 6, 9 * 2.0, 0.99, 200))
    (small,) = convergence([Start(1.0)], ConvergenceProtocol(40, 6, 2.0, 0.99, 200))
    assert large.steps == small.steps
    assert large.steps is not None


def test_the_released_numbers() -> None:
    """Of the notebook behind figure 2: norms .25 to 2, and the largest angle; other draws."""
    places = [*NORMS[:5], ANGLES[-1]]
    found = [one.steps for one in convergence(places, ConvergenceProtocol())]
    assert found == [pytest.approx(n, rel=0.02) for n in (6, 24, 54, 96, 385)] + [
        pytest.approx(187, rel=0.08)  # of pairs that are almost opposite, a few decide
    ]


def test_the_theorem_is_a_lower_bound_and_close() -> None:
    places = [Start(norm) for norm in (0.25, 0.5, 1.0, 2.0)] + [Start(lean=t) for t in (-0.5, 0.9)]
    for one in convergence(places, SMALL):
        assert one.steps is not None
        assert one.at_least is not None
        assert one.at_least <= one.steps
        if one.start.norm >= 0.5:
            assert one.at_least >= 0.8 * one.steps


def test_the_bound_of_one_obtuse_pair_and_beyond_the_limit() -> None:
    c = torch.tensor([-0.9], dtype=torch.float64)
    assert least_steps(c, 1.0, 0.02, -0.95, 10) == 0
    assert least_steps(c, 1.0, 0.02, 0.999, 10) is None
    # a step so large that the bound promises everything at once
    assert least_steps(torch.zeros(1, dtype=torch.float64), 0.1, 0.02, 0.999, 10) == 1


def test_starts_are_what_they_say() -> None:
    z, other = starts(
        ConvergenceProtocol(), [Start(2.5), Start(lean=-0.96), Start(lean=0.96), Start(2.5)]
    )
    torch.testing.assert_close(z[0].norm(dim=1), torch.full((500,), 2.5).double())
    torch.testing.assert_close(other[0].norm(dim=1), torch.full((500,), 2.5).double())
    mean = cosines(z, other).mean(dim=1)
    # the notebook's own mean angles at the two ends: .0406 and 3.1010
    assert float(mean[1].acos()) == pytest.approx(0.0406, abs=0.001)
    assert float(mean[2].acos()) == pytest.approx(3.1010, abs=0.001)
    assert abs(float(mean[0])) < 0.05
    assert not torch.equal(z[0], z[3]), "each start has draws of its own"
    assert [start.norm for start in NORMS] == [0.25, 0.5, 0.75, *range(1, 11)]
    assert len(ANGLES) == 49


def test_the_seed_decides_and_starts_do_not_disturb_each_other() -> None:
    places = [Start(0.5), Start(2.0), Start(lean=0.9)]
    protocol = ConvergenceProtocol(20, 6, 0.4, 0.9, 60)
    one, two = (convergence(places, protocol) for _ in range(2))
    assert one == two
    (alone,) = convergence(places[:1], protocol)
    assert alone == one[0]
    other = convergence(places, ConvergenceProtocol(20, 6, 0.4, 0.9, 60, seed=1))
    assert [x.angle for x in other] != [x.angle for x in one]


def test_what_does_not_arrive_says_so() -> None:
    (short,) = convergence([Start(10.0)], ConvergenceProtocol(20, 6, 0.4, limit=3))
    assert short.steps is None
    assert short.at_least is None
