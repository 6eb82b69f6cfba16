"""Steps to convergence: closed forms in float64, the paper's released numbers, bad input."""

import math

import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.terms import Terms
from isotrope.core.views import unit
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import DINO, MPT, BarlowTwins, InfoNCE, NegativeCosine
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from papers.draganov2024.convergence import (
    ANGLES,
    NORMS,
    ConvergenceProtocol,
    Start,
    convergence,
    least_steps,
    starts,
)
from papers.draganov2024.cosine import progress

SMALL = ConvergenceProtocol(pairs=40, dimension=6, rate=0.8, limit=500)  # .02 for each pair
COSINE = NegativeCosine()


def cosines(z: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (unit(z) * unit(other)).sum(dim=-1)


def recursion(
    c: torch.Tensor, norm: float, protocol: ConvergenceProtocol
) -> tuple[int, float, float]:
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
    return steps, float(c.mean()), float(rho.mean()) / norm


@pytest.mark.parametrize(
    "start", [Start(0.3), Start(), Start(1.7), Start(lean=0.8), Start(2, -0.5)]
)
def test_the_exact_recursion(start: Start) -> None:
    z, other = starts(SMALL, [start])
    expected = recursion(cosines(z, other)[0], start.norm, SMALL)
    (found,) = convergence(COSINE, [start], SMALL)
    assert found.steps == expected[0]
    assert (found.cosine, found.growth) == pytest.approx(expected[1:], rel=1e-10)
    assert found.growth > 1


def test_the_first_gradient_is_inverse_to_the_norm() -> None:
    """Prop. 3.1: sin(phi) / norm, so that one step of rate g moves a row by g sin(phi) / norm."""
    for norm in (0.5, 4.0):
        z, other = starts(SMALL, [Start(norm)])
        leaf = z[0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(COSINE(leaf, other[0]), leaf)
        sine = (1 - cosines(z, other)[0].square()).sqrt()
        torch.testing.assert_close(SMALL.pairs * gradient.norm(dim=1), sine / norm)


def test_a_larger_norm_is_a_smaller_rate() -> None:
    """What moves a direction is the rate over the squared norm, whatever the objective."""
    for objective in (COSINE, InfoNCE(temperature=1.0)):
        (large,) = convergence(
            objective, [Start(3.0)], ConvergenceProtocol(40, 6, 9 * 2.0, 0.99, 200)
        )
        (small,) = convergence(objective, [Start(1.0)], ConvergenceProtocol(40, 6, 2.0, 0.99, 200))
        assert large.steps == small.steps
        assert large.steps is not None
        assert large.cosine == pytest.approx(small.cosine, rel=1e-9)


def test_the_released_numbers() -> None:
    """Of the notebook behind figure 2: norms .25 to 2, and the largest angle; other draws."""
    places = [*NORMS[:5], ANGLES[-1]]
    found = [one.steps for one in convergence(COSINE, places)]
    assert found == [pytest.approx(n, rel=0.02) for n in (6, 24, 54, 96, 385)] + [
        pytest.approx(187, rel=0.08)  # of pairs that are almost opposite, a few decide
    ]


def test_the_theorem_is_a_lower_bound_and_close() -> None:
    places = [Start(norm) for norm in (0.25, 0.5, 1.0, 2.0)] + [Start(lean=t) for t in (-0.5, 0.9)]
    for one in convergence(COSINE, places, SMALL):
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
    for objective in (COSINE, InfoNCE(temperature=1.0)):
        protocol = ConvergenceProtocol(20, 6, 0.4, 0.9, 60)
        one, two = (convergence(objective, places, protocol) for _ in range(2))
        assert one == two
        (alone,) = convergence(objective, places[:1], protocol)
        assert alone.steps == one[0].steps
        assert alone.cosine == pytest.approx(one[0].cosine, rel=1e-12)
        other = convergence(objective, places, ConvergenceProtocol(20, 6, 0.4, 0.9, 60, seed=1))
        assert [x.angle for x in other] != [x.angle for x in one]


def test_what_does_not_arrive_says_so() -> None:
    mpt, again = convergence(MPT(margin=0.1), [Start(), Start()], SMALL)
    assert mpt.steps is None, "beyond the margin nothing moves, and nothing will"
    assert mpt.at_least is None
    assert 0 < mpt.cosine < 0.999
    assert again.steps is None
    (short,) = convergence(COSINE, [Start(10.0)], ConvergenceProtocol(20, 6, 0.4, limit=3))
    assert short.steps is None
    assert short.at_least is None


def test_every_objective_can_be_trained() -> None:
    protocol = ConvergenceProtocol(pairs=8, dimension=5, rate=0.08, limit=2)
    for name in registry.names():
        (found,) = convergence(registry.build(name), [Start()], protocol)
        assert math.isfinite(found.cosine), name
    part = registry.build("infonce", {"part": "attraction"})
    edited = BarlowTwins().modify(ratio=1.5)
    for objective in (part, edited, InfoNCE().symmetric(), DINO()):
        (found,) = convergence(objective, [Start()], protocol)
        assert math.isfinite(found.growth)


class Wordless(Objective, register=False):
    """Components, and no formula."""

    def components(self, pairs: Pairs) -> Terms:
        weight = torch.ones_like(pairs.similarity())
        return Terms(pairs.positive, weight, weight.sum(dim=1))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="Wordless has components but no formula"):
        convergence(Wordless(), [Start()], SMALL)
    for start in (Start(0.0), Start(math.inf), Start(lean=1.0)):
        with pytest.raises(InputError, match="a norm above 0 and leans between -1 and 1; found"):
            convergence(COSINE, [start], SMALL)
    for wrong, says in (
        ({"pairs": 1}, "pairs must be at least 2; found 1"),
        ({"dimension": 1}, "dimension must be at least 2"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"pairs": 10**15}, "pairs times dimension must be at most 10,000,000; found 10000"),
        ({"rate": 0.0}, "the learning rate must be above 0; found 0"),
        ({"target": 1.0}, r"the target is a cosine in \(-1, 1\); found 1"),
    ):
        with pytest.raises(InputError, match=says):
            ConvergenceProtocol(**wrong)
