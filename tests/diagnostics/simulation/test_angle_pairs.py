"""Pairs without embeddings answer as the whole matrix does, and say what they cannot answer."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.terms import Terms
from isotrope.core.views import Views, unit
from isotrope.diagnostics import Angles, dissipation, gradient_norm, hardest_share, ratio
from isotrope.diagnostics.simulation.angle_pairs import AnglePairs, check_computable
from isotrope.diagnostics.simulation.averages import check
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import InfoNCE, NTXent
from isotrope.paradigm import registry
from tests.paradigm.batches import batch

N = 9


@pytest.fixture
def eager() -> EagerPairs:
    a, b = (unit(x) for x in batch("random", N, 5))
    return EagerPairs(Views(a, b))


@pytest.fixture
def angles(eager: EagerPairs) -> AnglePairs:
    """The same similarities, every row with its own negatives."""
    return AnglePairs(eager.positive, eager.similarity()[eager.negative()].view(N, N - 1))


STATISTICS = [("logsumexp", 0.05), ("softplus", 0.2), ("hardest",), ("count",)]


@pytest.mark.parametrize("asked", STATISTICS, ids=str)
def test_row_statistics_are_those_of_the_matrix(
    eager: EagerPairs, angles: AnglePairs, asked: tuple[str, ...]
) -> None:
    name, *arguments = asked
    torch.testing.assert_close(getattr(angles, name)(*arguments), getattr(eager, name)(*arguments))


def test_a_second_temperature_is_not_the_first(eager: EagerPairs, angles: AnglePairs) -> None:
    angles.logsumexp(0.05)
    torch.testing.assert_close(angles.logsumexp(0.5), eager.logsumexp(0.5))


def _of_rows(name: str) -> bool:
    """Whether an anchor's components depend on its similarities with the other view alone."""
    objective = registry.build(name)
    if not objective.has_terms or objective.batch_level or objective.reduction == "sum":
        return False
    try:
        check(objective)
    except InputError:
        return False
    return objective.terms(*batch("random", N, 5)).against == "cross"


OF_ROWS = [name for name in registry.names() if _of_rows(name)]


def test_these_at_least_are_made_of_angles() -> None:
    assert {"infonce", "arccon", "dcl", "dclplus", "mpt", "met", "mat", "paradigm"} <= set(OF_ROWS)


@pytest.mark.parametrize("name", OF_ROWS)
def test_components_are_those_of_the_batch(
    eager: EagerPairs, angles: AnglePairs, name: str
) -> None:
    objective = registry.build(name)
    found, expected = objective.components(angles), objective.components(eager)
    torch.testing.assert_close(found.dissipation, expected.dissipation)
    torch.testing.assert_close(found.pull, expected.pull)
    torch.testing.assert_close(found.mass, expected.mass)
    assert found.scale == expected.scale


@pytest.mark.parametrize("asked", STATISTICS, ids=str)
def test_several_positives_share_their_negatives(
    angles: AnglePairs, asked: tuple[str, ...]
) -> None:
    positive = torch.rand(3, N, dtype=torch.float64)
    pairs = AnglePairs(positive, angles.similarity(), whole=False)
    assert len(pairs.views.anchors) == 3 * N
    torch.testing.assert_close(pairs.positive.view(3, N), positive)
    name, *arguments = asked
    expected = getattr(angles, name)(*arguments)
    for row in getattr(pairs, name)(*arguments).view(3, N):
        torch.testing.assert_close(row, expected)


def test_the_dissipation_of_row_statistics_needs_no_matrix(angles: AnglePairs) -> None:
    pairs = AnglePairs(angles.positive, angles.similarity(), whole=False)
    assert pairs.similarity().shape == (N, 1)
    assert pairs.negative().shape == (N, 1)
    torch.testing.assert_close(
        InfoNCE().components(pairs).dissipation, InfoNCE().components(angles).dissipation
    )


def test_what_is_made_of_embeddings_is_unknown_and_no_number(angles: AnglePairs) -> None:
    for pairs in (angles, AnglePairs(angles.positive, angles.similarity(), whole=False)):
        views = pairs.views
        assert len(views.anchors) == N
        product = (pairs.columns() * views.own).sum(dim=1) + angles.positive
        for number in (float, bool, list, torch.Tensor.item, torch.Tensor.tolist):
            with pytest.raises(InputError, match="computes with the embeddings themselves"):
                number(product)
        with pytest.raises(InputError, match="a simulation has only angles"):
            check_computable(angles.positive, product)
        assert "only the angles are known" in repr(product)
    check_computable(angles.positive, angles.hardest())


def test_what_has_no_place_here_may_be_unknown(angles: AnglePairs) -> None:
    """The residual of NTXent is what an anchor receives in other roles."""
    terms = NTXent(temperature=0.2).components(angles)
    gap = angles.logsumexp(0.2) - angles.positive / 0.2
    torch.testing.assert_close(terms.dissipation, torch.sigmoid(gap))
    with pytest.raises(InputError):
        check_computable(terms.residual)


@pytest.mark.parametrize("measure", [dissipation, hardest_share, ratio, gradient_norm])
@pytest.mark.parametrize("name", registry.names())
def test_every_objective_has_a_landscape_or_says_why_not(name: str, measure) -> None:
    small = Angles([0.4, 0.6], [0.5, 0.9, 1.3], negatives=5, batches=4)
    try:
        (found,) = measure([registry.build(name)], small)
    except InputError as error:
        refusals = r"embeddings themselves|no gradient components|order of the rows|separately"
        assert re.search(refusals, str(error))  # noqa: PT017
        assert name not in (*OF_ROWS, "ntxent", "alignuniform", "mhe")
        return
    assert np.isfinite(found.value[found.defined]).all()
    if measure is dissipation:
        assert found.defined.all()
        assert ((found.value >= 0) & (found.value <= 1)).all()


class Placed(InfoNCE, register=False):
    """Its last negatives push harder than its first."""

    def components(self, pairs: Pairs) -> Terms:
        terms = super().components(pairs)
        return replace(terms, weight=terms.weight * torch.arange(terms.weight.shape[1]))


def test_places_in_the_batch_are_refused() -> None:
    with pytest.raises(InputError, match="measure Placed on embeddings"):
        dissipation([Placed()], Angles([0.4], [0.5], batches=2))
