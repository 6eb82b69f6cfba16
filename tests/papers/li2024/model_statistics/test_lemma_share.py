"""The share of anchors within Lemma 1's bounds, against an objective's own count and real steps."""

import dataclasses

import pytest
import torch
from torch import Tensor

from isotrope import Views
from isotrope.core import unit
from isotrope.objectives import MET
from isotrope.paradigm import tangent
from papers.li2024.lemma import angles_of
from papers.li2024.model_statistics import STEPS, lemma_share
from tests.theorems.lemma import satisfied


def near(n: int = 40, d: int = 6) -> Views:
    """Pairs around one direction, so that many angles are acute, not all."""
    torch.manual_seed(5)
    a = 1.2 * torch.randn(1, d).double() + torch.randn(n, d).double()
    return Views(a, a + torch.randn(n, d).double())


def test_agrees_with_the_count_of_an_objective_that_never_dissipates() -> None:
    views = near()
    objective = MET().modify(dissipation="none")
    ratio = objective.terms(views.anchors, views.positives).ratio
    assert ratio is not None
    for found in lemma_share(views, ratio):
        counted = satisfied(objective, views.anchors, views.positives, found.step)
        assert counted.inactive == 0
        assert (found.satisfied, len(found.minimum)) == (counted.satisfied, counted.counted)
        assert (found.unbounded, found.obtuse) == (counted.unbounded, counted.obtuse)
        assert found.share == counted.share


def closer(views: Views, ratio: float, step: float) -> Tensor:
    """Whether a step in the tangent plane ends nearer to the positive: taken, not computed."""
    h, own = unit(views.anchors), unit(views.positives)
    s = (h @ own.T).fill_diagonal_(-9)
    p, q = tangent(own, h), tangent(own[s.argmax(dim=1)], h)
    return (step * (ratio * p - q) - p).norm(dim=1) < p.norm(dim=1)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5, 4.0])
def test_agrees_with_steps_that_are_taken(ratio: float) -> None:
    views = near()
    acute = torch.stack(angles_of(views)).cos().gt(0).all(dim=0)
    for found in lemma_share(views, ratio, steps=[0.25, 1.0]):
        assert found.satisfied == int((closer(views, ratio, found.step) & acute).sum())
        assert len(found.minimum) + found.unbounded + found.obtuse == 40
        assert found.minimum.tolist() == sorted(found.minimum.tolist())
        below = int((found.minimum < ratio).sum())
        assert below == found.satisfied + found.overshot


def test_a_larger_step_leaves_more_anchors_without_bounds() -> None:
    found = lemma_share(near())
    assert tuple(one.step for one in found) == STEPS
    unbounded = [one.unbounded for one in found]
    assert unbounded == sorted(unbounded)
    assert unbounded[0] == 0, "no root is asked for in the limit of small steps"
    assert unbounded[-1] > 0
    assert lemma_share(near(), 1e6, steps=[1.0])[0].overshot > 0


def test_further_negatives_count() -> None:
    views = near()
    hard = unit(views.anchors) + 0.1 * torch.randn(40, 6).double()
    harder = dataclasses.replace(views, negatives=hard)
    assert (angles_of(harder).negative <= angles_of(views).negative).all()
    (with_them,) = lemma_share(harder, steps=[0.0])
    (without,) = lemma_share(views, steps=[0.0])
    assert with_them.minimum.tolist() != without.minimum.tolist()


def test_nothing_to_count_has_no_share() -> None:
    opposite = Views(torch.eye(3), -torch.eye(3))
    (found,) = lemma_share(opposite, steps=[0.5])
    assert (found.share, len(found.minimum), found.obtuse) == (None, 0, 3)


def test_bad_input() -> None:
    copies = torch.ones(2, 4)
    with pytest.raises(ValueError, match="needs a negative for each anchor; found one without"):
        lemma_share(Views(copies, copies, groups=torch.zeros(2, dtype=torch.long)))
    with pytest.raises(ValueError, match="step must be 0 or more"):
        lemma_share(near(), steps=[-1.0])
