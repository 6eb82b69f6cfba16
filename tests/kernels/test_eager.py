"""The eager backend against loops over single pairs, for every shape that views can have."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views, unit
from isotrope.kernels.choose import pairs
from isotrope.kernels.eager import EagerPairs

AGAINST: list[Against] = ["cross", "within", "both"]


def rows(n: int, seed: int, d: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return unit(torch.randn(n, d, generator=generator, dtype=torch.float64))


def integers(*values: int) -> Tensor:
    return torch.tensor(values)


VIEWS = {
    "square": Views(rows(5, 0), rows(5, 1)),
    "two rows": Views(rows(2, 0), rows(2, 1)),
    "negatives": Views(rows(5, 0), rows(5, 1), rows(3, 2)),
    "rectangular": Views(rows(3, 0), rows(7, 1)),
    "offset": Views(rows(3, 0), rows(7, 1), offset=4),
    "groups": Views(rows(5, 0), rows(5, 1), groups=integers(0, 1, 0, 2, 1)),
    "everything": Views(
        rows(3, 0), rows(7, 1), rows(2, 2), offset=2, groups=integers(5, 1, 0, 0, 1, 5, 5)
    ),
}


def candidates(views: Views, i: int, against: Against) -> Iterator[tuple[Tensor, bool]]:
    """Each column of anchor i with whether it is a negative, one at a time."""
    own = views.offset + i
    group = views.groups
    if against in ("cross", "both"):
        for j in range(len(views.positives)):
            known = group is not None and bool(group[j] == group[own])
            yield views.positives[j], j != own and not known
    if against in ("within", "both"):
        for j in range(len(views.anchors)):
            known = group is not None and bool(group[views.offset + j] == group[own])
            yield views.anchors[j], j != i and not known
    if views.negatives is not None:
        for vector in views.negatives:
            yield vector, True


def by_loops(views: Views, against: Against) -> list[list[tuple[float, bool]]]:
    """For each anchor and column, the similarity and whether the column is a negative."""
    return [
        [
            (sum(float(x * y) for x, y in zip(anchor, vector, strict=True)), allowed)
            for vector, allowed in candidates(views, i, against)
        ]
        for i, anchor in enumerate(views.anchors)
    ]


@pytest.fixture(params=VIEWS, ids=str)
def views(request: pytest.FixtureRequest) -> Views:
    return VIEWS[request.param]


@pytest.fixture(params=AGAINST)
def against(request: pytest.FixtureRequest) -> Against:
    return request.param


def close(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0
    )


def test_similarities_and_columns(views: Views, against: Against) -> None:
    found = EagerPairs(views)
    table = by_loops(views, against)
    assert found.similarity(against).shape == (len(table), len(table[0]))
    assert found.columns(against).shape == (len(table[0]), 4)
    for i, line in enumerate(table):
        close(found.similarity(against)[i], [s for s, _ in line])


def test_which_columns_are_negatives(views: Views, against: Against) -> None:
    found = EagerPairs(views).negative(against)
    assert found.dtype == torch.bool
    assert found.tolist() == [[allowed for _, allowed in line] for line in by_loops(views, against)]


def test_the_positive_of_each_anchor(views: Views) -> None:
    found = EagerPairs(views)
    table = by_loops(views, "cross")
    close(found.positive, [line[views.offset + i][0] for i, line in enumerate(table)])
    assert not found._matrices, "the positive needs no matrix"


@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
def test_logsumexp_over_the_negatives(views: Views, against: Against, temperature: float) -> None:
    expected = [
        math.log(sum(math.exp(s / temperature) for s, allowed in line if allowed))
        for line in by_loops(views, against)
    ]
    close(EagerPairs(views).logsumexp(temperature, against), expected)


def test_the_hardest_negative(views: Views, against: Against) -> None:
    expected = [max(s for s, allowed in line if allowed) for line in by_loops(views, against)]
    close(EagerPairs(views).hardest(against), expected)


def test_the_nearest_negatives(views: Views, against: Against) -> None:
    found = EagerPairs(views).nearest(3, against)
    for line, columns in zip(by_loops(views, against), found.tolist(), strict=True):
        ranked = sorted((-s, j) for j, (s, allowed) in enumerate(line) if allowed)
        expected = [j for _, j in ranked] + [-1] * len(line)
        assert columns == expected[: min(3, len(line))]
    assert not found.is_floating_point()


def test_the_nearest_negatives_go_by_index_at_ties() -> None:
    anchor = rows(1, 0)
    b = torch.cat([anchor, *[rows(1, 3)] * 3, anchor])
    assert EagerPairs(Views(anchor, b)).nearest(9).tolist() == [[4, 1, 2, 3, -1]]


def test_an_anchor_without_negatives() -> None:
    """All of its batch is one group: -inf, and no NaN in the gradient of anybody."""
    a, b = rows(3, 0).requires_grad_(), rows(3, 1).requires_grad_()
    found = EagerPairs(Views(a, b, groups=integers(1, 1, 1)))
    assert found.logsumexp(0.05).tolist() == [-math.inf] * 3
    assert found.hardest().tolist() == [-math.inf] * 3
    loss = torch.nn.functional.softplus(found.logsumexp(0.05) - found.positive / 0.05).sum()
    for gradient in torch.autograd.grad(loss, (a, b)):
        assert torch.equal(gradient, torch.zeros(3, 4, dtype=torch.float64))


def test_one_anchor_without_negatives_beside_others_with_some() -> None:
    a = rows(3, 0).requires_grad_()
    # rows 0 and 1 know each other; for row 2 both are negatives, and it is one of theirs
    found = EagerPairs(Views(a, rows(3, 1), groups=integers(1, 1, 2)))
    assert found.negative().sum(dim=1).tolist() == [1, 1, 2]
    (gradient,) = torch.autograd.grad(found.logsumexp(0.05).sum(), a)
    assert gradient.isfinite().all()


def test_logsumexp_does_not_overflow() -> None:
    value = EagerPairs(Views(rows(3, 0), rows(3, 0))).logsumexp(1e-6)
    assert value.isfinite().all()


def test_ties_of_the_hardest_negative_send_the_gradient_to_the_first() -> None:
    anchor = rows(1, 0)
    b = torch.cat([anchor, *[rows(1, 3)] * 3]).requires_grad_()
    (gradient,) = torch.autograd.grad(EagerPairs(Views(anchor, b)).hardest().sum(), b)
    torch.testing.assert_close(gradient[1], anchor[0])
    assert not gradient[[0, 2, 3]].any()


def test_gradients_of_the_statistics(against: Against) -> None:
    base = VIEWS["everything"]

    def statistics(a: Tensor, b: Tensor, negatives: Tensor, temperature: Tensor) -> Tensor:
        found = EagerPairs(Views(a, b, negatives, offset=base.offset, groups=base.groups))
        columns = [found.positive, found.logsumexp(temperature, against), found.hardest(against)]
        return torch.stack(columns)

    assert base.negatives is not None
    inputs = (base.anchors, base.positives, base.negatives, torch.tensor(0.5).double())
    inputs = tuple(x.detach().clone().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(statistics, inputs)
    assert torch.autograd.gradgradcheck(statistics, inputs)


def test_matrices_are_formed_once() -> None:
    found = pairs(VIEWS["square"])
    assert found.similarity() is found.similarity()
