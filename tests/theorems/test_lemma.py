"""Lemma 1 of Li et al. 2024: both bounds, against steps that are really taken."""

import math

import pytest
import torch

from isotrope.core.views import unit
from isotrope.objectives import BarlowTwins, InfoNCE, Paradigm
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.parts import Margin
from papers.li2024.lemma import angles, lemma1
from tests.paradigm.batches import batch
from tests.theorems.lemma import lemma1_of, satisfied

SIXTH, THIRD = math.pi / 6, math.pi / 3


@pytest.mark.parametrize(
    ("step", "lower"), [(0.5, 1.7006), (1.0, 1.9628), (1e-9, 1.5200), (0.0, 1.5200)]
)
def test_the_lower_bound_at_known_points(step: float, lower: float) -> None:
    found = lemma1(SIXTH, THIRD, 0.5, step)
    assert round(float(found.lower), 4) == lower
    assert found.discriminant > 0


def test_small_steps_do_not_cancel() -> None:
    """1/step - sqrt(1/step^2 - x), as printed, loses every digit."""
    limit = math.sqrt(3) * math.cos(0.5)
    x = 3 * math.sin(0.5) ** 2
    step = 1e-8
    found = float(lemma1(SIXTH, THIRD, 0.5, step).lower)
    assert abs(found - (limit + step * x / 2)) < 1e-15
    printed = 1 / step + limit - math.sqrt(1 / step**2 - x)
    assert abs(printed - limit) > 1e-9
    assert lemma1(SIXTH, THIRD, 0.5, 0.0).upper == math.inf


def test_no_ratio_helps_without_a_root() -> None:
    lower, upper, discriminant = lemma1(SIXTH, THIRD, alpha=1.0, step=1.0)
    assert lower.isnan()
    assert upper.isnan()
    torch.testing.assert_close(discriminant, torch.tensor(1 - 3 * math.sin(1) ** 2).double())


def test_the_printed_formula_where_it_is_well_conditioned() -> None:
    torch.manual_seed(0)
    pos, neg, alpha = (torch.rand(3, 1000, dtype=torch.float64) * 3 + 0.05).unbind()
    step = 0.05 + torch.rand(1000, dtype=torch.float64)
    q = neg.sin() / pos.sin()
    root = (1 / step**2 - q**2 * alpha.sin() ** 2).sqrt()
    centre = 1 / step + q * alpha.cos()
    found = lemma1(pos, neg, alpha, step)
    torch.testing.assert_close(found.lower, centre - root, equal_nan=True, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(found.upper, centre + root, equal_nan=True, atol=1e-9, rtol=1e-9)
    assert 0 < found.lower.isnan().sum() < 1000


def test_between_the_bounds_if_and_only_if_closer() -> None:
    """Notes d20: 20,000 steps in the tangent plane, no mismatch; both bounds are needed."""
    torch.manual_seed(0)
    n, d = 20_000, 6
    h, p, q = (unit(torch.randn(n, d, dtype=torch.float64)) for _ in range(3))
    p, q = tangent(p, h), tangent(q, h)  # of lengths sin theta_ii', sin theta_ij'
    step = torch.rand(n, dtype=torch.float64) * 2
    ratio = torch.rand(n, dtype=torch.float64) * 5
    moved = step[:, None] * (ratio[:, None] * p - q)
    closer = (moved - p).norm(dim=1) < p.norm(dim=1)
    alpha = torch.cosine_similarity(p, q).acos()
    lower, upper, discriminant = lemma1(p.norm(dim=1).asin(), q.norm(dim=1).asin(), alpha, step)
    inside = (lower < ratio) & (ratio < upper)
    assert torch.equal(inside, closer)
    assert (discriminant < 0).sum() > 1000
    assert (closer & (discriminant < 0)).sum() == 0
    # the printed condition is the lower bound alone
    assert ((lower < ratio) != closer).sum() > 1000


def test_angles_of_a_batch() -> None:
    a, b = (unit(x) for x in batch("random", 9, 5))
    found = angles(2 * a, 3 * b)
    s = a @ b.T
    off = s.masked_fill(torch.eye(9, dtype=torch.bool), -9)
    torch.testing.assert_close(found.positive, s.diagonal().acos())
    torch.testing.assert_close(found.negative, off.amax(1).acos())
    cosine = torch.cosine_similarity(tangent(b, a), tangent(b[off.argmax(1)], a))
    torch.testing.assert_close(found.dihedral.cos(), cosine)
    for one, other in zip(lemma1_of(a, b, 0.5), lemma1(*found, 0.5), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_tiny_angles_keep_their_digits() -> None:
    """arccos of a cosine loses them: 1 - 5e-21 is 1."""
    a = torch.eye(3, dtype=torch.float64)[:2]
    b = a + 1e-10 * torch.eye(3, dtype=torch.float64)[2]
    found = angles(a, b).positive
    torch.testing.assert_close(found, torch.full_like(found, 1e-10), rtol=1e-12, atol=0)


def test_an_anchor_on_its_positive_has_no_range() -> None:
    lower, upper, _ = lemma1_of(torch.eye(4), torch.eye(4), 0.5)
    assert lower.isnan().all()
    assert upper.isnan().all()
    counts = satisfied(InfoNCE(temperature=5.0), torch.eye(4), torch.eye(4), 0.5)
    assert counts.share is None
    assert counts.counted == 0


def test_who_counts() -> None:
    """The four groups are those of the released statistic and make up the batch."""
    torch.manual_seed(5)
    a = torch.randn(1, 4).double() + torch.randn(20, 4).double()
    b = a + torch.randn(20, 4).double()
    objective, step = InfoNCE().modify(dissipation="margin:0.2", ratio=1.2), 1.0
    counts = satisfied(objective, a, b, step)
    groups = (counts.counted, counts.unbounded, counts.obtuse, counts.inactive)
    assert sum(groups) == 20
    assert min(*groups, counts.satisfied, counts.counted - counts.satisfied) > 0
    assert counts.share == counts.satisfied / counts.counted
    pos, neg, alpha = angles(a, b)
    active = pos.cos() - neg.cos() < 0.2
    assert counts.inactive == int((~active).sum())
    acute = (pos.cos() > 0) & (neg.cos() > 0) & (alpha.cos() > 0)
    assert counts.obtuse == int((active & ~acute).sum())
    lower, upper, discriminant = lemma1(pos, neg, alpha, step)
    assert counts.unbounded == int((active & acute & (discriminant < 0)).sum())
    assert counts.satisfied == int((active & acute & (lower < 1.2) & (upper > 1.2)).sum())


def test_a_larger_ratio_satisfies_it_more_often_for_small_steps() -> None:
    """Li et al. 2024, figure 8a: with a step of .1 the upper bound is out of reach."""
    torch.manual_seed(0)
    centre = torch.randn(1, 64).double()
    a = centre + 0.7 * torch.randn(64, 64).double()
    b = a + 0.4 * torch.randn(64, 64).double()
    shares = [
        satisfied(Paradigm(dissipation=Margin(margin=1.0), ratio=r), a, b, 0.1).share
        for r in (0.25, 0.5, 1.0, 2.0)
    ]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_what_is_refused() -> None:
    a, b = batch("random", 4, 6)
    with pytest.raises(ValueError, match="step must be 0 or more; found -1"):
        lemma1(SIXTH, THIRD, 0.5, -1.0)
    with pytest.raises(ValueError, match="InfoNCE compares rows with each other; found 1"):
        lemma1_of(a[:1], b[:1], 0.5)
    with pytest.raises(ValueError, match="found BarlowTwins, whose pull acts on each coordinate"):
        satisfied(BarlowTwins(), a, b, 0.5)
