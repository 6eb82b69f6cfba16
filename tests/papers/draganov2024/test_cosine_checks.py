"""Random opposite halves against their probability, and push over pull against a loop."""

import math

import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.views import Views, unit
from isotrope.objectives import DCL, MPT, BarlowTwins, NegativeCosine
from isotrope.paradigm.assemble import tangent
from papers.draganov2024.check_opposite import FAR, random_halves
from papers.draganov2024.check_theorem import push_over_pull


@pytest.mark.parametrize("dimension", [2, 3, 8, 128])
def test_random_directions_are_as_often_opposite_as_they_should(dimension: int) -> None:
    """Proposition C.1: below the bound; and as the Beta distribution has it."""
    half, far = random_halves(dimension, pairs=20_000)
    assert half.exact == 0.5
    assert half.bound is None
    assert half.share == pytest.approx(0.5, abs=0.015)  # 4 standard deviations
    spread = math.sqrt(far.exact * (1 - far.exact) / 20_000)
    assert far.share == pytest.approx(far.exact, abs=4 * spread + 1e-9)
    assert far.bound == pytest.approx(1 / (2 * dimension * math.cos(math.pi / 8) ** 2))
    assert far.exact <= far.bound
    if dimension == 2:  # the angle itself is uniform
        assert far.exact == pytest.approx(1 / 8)
    if dimension == 3:  # its cosine is
        assert far.exact == pytest.approx((1 - math.cos(math.pi / 8)) / 2)


def test_where_the_bound_says_nothing() -> None:
    (found,) = random_halves(2, [0.6 * math.pi], pairs=100)
    assert found.bound is None
    assert found.exact == pytest.approx(0.4)
    assert random_halves(4, [FAR], pairs=100, seed=1) == random_halves(4, [FAR], pairs=100, seed=1)


@pytest.mark.parametrize(("dimension", "angle"), [(1, FAR), (3, 1.0), (3, math.pi)])
def test_halves_out_of_range(dimension: int, angle: float) -> None:
    with pytest.raises(InputError, match="2 or more dimensions and angles from pi/2 on"):
        random_halves(dimension, [angle], pairs=10)


def draws(n: int, d: int, noise: float) -> Views:
    random = torch.Generator().manual_seed(0)
    z = torch.randn(n, d, generator=random, dtype=torch.float64)
    return Views(z, z + noise * torch.randn(n, d, generator=random, dtype=torch.float64))


def test_push_over_pull_is_the_ratio_of_two_lengths() -> None:
    views = draws(7, 5, 0.6)
    found = push_over_pull(DCL(temperature=1.0), views)
    h, other = unit(views.anchors), unit(views.positives)
    for i in range(7):
        similar = torch.stack([(h[i] @ other[j]).exp() for j in range(7) if j != i])
        rest = torch.stack([other[j] for j in range(7) if j != i])
        mean = (similar / similar.sum()) @ rest
        push, pull = (tangent(x[None], h[i : i + 1]).norm() for x in (mean, other[i]))
        assert float(found[i]) == pytest.approx(float(push / pull), rel=1e-12)


def test_footnote_4_depends_on_how_near_positives_are() -> None:
    """The paper has the repulsion smaller; near its positive an anchor is pushed the harder."""
    random = torch.Generator().manual_seed(0)
    above, medians = [], []
    for noise in (0.1, 0.25, 0.5, 1.0, 2.0):
        found = []
        for _ in range(50):
            z, e = (torch.randn(100, 20, generator=random, dtype=torch.float64) for _ in range(2))
            found.append(push_over_pull(DCL(temperature=1.0), Views(z, z + noise * e)))
        ratios = torch.cat(found)
        above.append(int((ratios > 1).sum()))
        medians.append(float(ratios.median()))
    assert above == pytest.approx([2403, 2, 0, 0, 0], abs=3)
    assert medians == pytest.approx([0.98, 0.42, 0.23, 0.14, 0.12], abs=0.006)


def test_push_over_pull_of_others() -> None:
    views = draws(6, 4, 0.5)
    assert (push_over_pull(NegativeCosine(), views) == 0).all()
    assert push_over_pull(BarlowTwins(), views).isfinite().all(), "a matrix-valued pull, too"
    assert push_over_pull(MPT(), views).isfinite().all(), "GD is in both"
    with pytest.raises(TypeError, match="Part has no gradient components"):
        push_over_pull(DCL().parts.attraction, views)
