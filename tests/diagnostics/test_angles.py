"""Pairs without embeddings answer as the whole matrix does, and say what they cannot answer."""

import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.views import Views, unit
from isotrope.diagnostics.angles import AnglePairs, RowPairs
from isotrope.kernels.eager import EagerPairs
from isotrope.objectives import BarlowTwins, InfoNCE, Paradigm
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
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


NAMES = [
    name
    for name in registry.names()
    if registry.build(name).has_terms and not registry.build(name).batch_level
]


@pytest.mark.parametrize("name", NAMES)
def test_components_are_those_of_the_batch(
    eager: EagerPairs, angles: AnglePairs, name: str
) -> None:
    objective = registry.build(name)
    expected = objective.components(eager)
    if expected.against != "cross" or objective.reduction == "sum":
        pytest.skip("its negatives are other vectors, or its weights are shared by the batch")
    found = objective.components(angles)
    torch.testing.assert_close(found.dissipation, expected.dissipation)
    torch.testing.assert_close(found.pull, expected.pull)
    torch.testing.assert_close(found.mass, expected.mass)
    assert found.scale == expected.scale


@pytest.mark.parametrize("asked", STATISTICS, ids=str)
def test_several_positives_share_their_negatives(
    angles: AnglePairs, asked: tuple[str, ...]
) -> None:
    positive = torch.rand(3, N, dtype=torch.float64)
    pairs = RowPairs(positive, angles)
    assert len(pairs.views.anchors) == 3 * N
    torch.testing.assert_close(pairs.positive.view(3, N), positive)
    name, *arguments = asked
    expected = getattr(angles, name)(*arguments)
    for row in getattr(pairs, name)(*arguments).view(3, N):
        torch.testing.assert_close(row, expected)


def test_the_dissipation_of_row_statistics_needs_no_matrix(angles: AnglePairs) -> None:
    pairs = RowPairs(angles.positive[None], angles)
    assert pairs.similarity().shape == (N, 1)
    assert pairs.negative().shape == (N, 1)
    torch.testing.assert_close(
        InfoNCE().components(pairs).dissipation, InfoNCE().components(angles).dissipation
    )


def test_embeddings_are_refused(angles: AnglePairs) -> None:
    for objective in (BarlowTwins(), Paradigm(weight="softmax:0.05:positives")):
        with pytest.raises(InputError, match=r"computes with the embeddings themselves"):
            objective.components(angles)
    for pairs in (angles, RowPairs(angles.positive[None], angles)):
        with pytest.raises(InputError, match=r"a simulation has only their angles"):
            pairs.columns()
        assert "only the angles are known" in repr(pairs.views)


@pytest.mark.parametrize("name", registry.names())
def test_every_objective_works_on_angles_or_says_why_not(angles: AnglePairs, name: str) -> None:
    objective: Objective = registry.build(name)
    if not objective.has_terms:
        return
    try:
        terms = objective.components(angles)
    except InputError as error:
        assert "computes with the embeddings themselves" in str(error)  # noqa: PT017
        return
    assert terms.weight.shape == (N, N - 1)
    assert torch.isfinite(terms.dissipation).all()


@pytest.mark.parametrize("shapes", [((3, 1), (3, 2)), ((3,), (2, 2)), ((3,), (3,))], ids=str)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="b positives and b x k negatives; found shapes"):
        AnglePairs(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("shapes", [((0,), (0, 2)), ((3,), (3, 0))], ids=str)
def test_nobody_to_simulate(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="at least one anchor and one negative"):
        AnglePairs(*(torch.zeros(shape) for shape in shapes))
