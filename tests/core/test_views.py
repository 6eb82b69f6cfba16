"""Views: shapes that do not fit, the positive of each anchor, and the unit sphere."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from isotrope.core.errors import InputError
from isotrope.core.moments import moments_across, moments_within
from isotrope.core.terms import Terms
from isotrope.core.views import Views, unit


def rows(n: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"anchors": torch.ones(3)}, r"must be matrices \(n x d\); found shapes \(3,\) and"),
        ({"positives": torch.ones(1, 4, 3)}, r"must be matrices .* and \(1, 4, 3\)"),
        (
            {"positives": torch.ones(4, 2)},
            r"positives must have 3 columns, .* the shape \(4, 2\) and offset 0",
        ),
        (
            {"positives": torch.ones(3, 3)},
            r"offset \+ 4 rows; found the shape \(3, 3\) and offset 0",
        ),
        ({"offset": 1}, r"offset \+ 4 rows; found the shape \(4, 3\) and offset 1"),
        (
            {"negatives": torch.ones(2, 5)},
            r"negatives must be a matrix with 3 columns, .* found the shape \(2, 5\)",
        ),
        (
            {"negatives": torch.ones(3)},
            r"negatives must be a matrix with 3 columns, .* found the shape \(3,\)",
        ),
        (
            {"groups": torch.ones(3)},
            r"one integer for each positive, shape \(4,\); found shape \(3,\)",
        ),
        ({"groups": torch.ones(4, 1)}, r"found shape \(4, 1\)"),
        ({"groups": [0, 1]}, r"one integer for each positive, shape \(4,\); found shape \(2,\)"),
        ({"groups": [*"aabc"]}, r"number groups by numpy.unique.*must be integers"),
        (
            {"groups": torch.ones(4)},
            r"give groups.long\(\): groups must be integers; found torch.float32",
        ),
        (
            {"anchors": torch.ones(4, 3, dtype=torch.long)},
            r"convert embeddings with \.float\(\); found torch.int64",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit(arguments: dict[str, object], message: str) -> None:
    fitting = {"anchors": torch.ones(4, 3), "positives": torch.ones(4, 3)}
    with pytest.raises(ValueError, match=message):
        Views(**{**fitting, **arguments})


@pytest.mark.parametrize("name", ["anchors", "positives", "negatives"])
@pytest.mark.parametrize("view", [np.ones((4, 3), np.float32), [[1.0] * 3] * 4, "text"], ids=repr)
def test_what_is_no_tensor(name: str, view: object) -> None:
    given = {"anchors": torch.ones(4, 3), "positives": torch.ones(4, 3), name: view}
    with pytest.raises(InputError, match=f"^{name} must be a tensor, n x d; found [a-z]+: convert"):
        Views(**given)


@pytest.mark.parametrize("name", ["anchors", "positives", "negatives"])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_beside_float32_becomes_float32(name: str, half: torch.dtype) -> None:
    given = {view: torch.ones(4, 3, dtype=half) for view in ("anchors", "positives", "negatives")}
    given[name] = torch.ones(4, 3)
    views = Views(**given)
    assert {getattr(views, view).dtype for view in given} == {torch.float32}


@pytest.mark.parametrize("name", ["anchors", "positives", "negatives"])
@pytest.mark.parametrize("other", [torch.bfloat16, torch.float32])
def test_float64_beside_another_dtype_is_refused(name: str, other: torch.dtype) -> None:
    given = {v: torch.ones(4, 3).double() for v in ("anchors", "positives", "negatives")}
    given[name] = torch.ones(4, 3, dtype=other)
    with pytest.raises(ValueError, match=r"convert the views to one dtype; found torch\.[bf]"):
        Views(**given)


@pytest.mark.parametrize("name", ["anchors", "positives", "negatives"])
def test_what_is_sparse(name: str) -> None:
    given = {"anchors": torch.ones(4, 3), "positives": torch.ones(4, 3)}
    given[name] = torch.ones(4, 3).to_sparse()
    with pytest.raises(InputError, match=f"^{name} must be dense; found torch.sparse_coo: call"):
        Views(**given)


def test_arrays_for_both_views() -> None:
    array = np.ones((4, 3), np.float32)
    with pytest.raises(InputError, match="anchors must be a tensor, n x d; found ndarray"):
        Views(array, array)  # type: ignore[arg-type]


def test_the_positive_of_each_anchor_counts_from_the_offset() -> None:
    views = Views(rows(2), rows(5, seed=1), offset=2)
    assert views.rows == slice(2, 4)
    assert torch.equal(views.own, views.positives[2:4])


@pytest.mark.parametrize("as_given", [list, tuple, np.asarray], ids=lambda f: f.__name__)
def test_groups_may_be_a_list_or_an_array(as_given: Callable[[list[int]], object]) -> None:
    groups = [0, 0, 1, 2]
    views = Views(rows(4), rows(4, seed=1), groups=as_given(groups))  # type: ignore[arg-type]
    assert torch.equal(views.groups, torch.tensor(groups))  # type: ignore[arg-type]


def test_groups_are_moved_to_the_device_of_the_embeddings() -> None:
    a = torch.empty(4, 3, device="meta")
    views = Views(a, a, groups=torch.tensor([0, 0, 1, 2]))
    assert views.groups is not None
    assert views.groups.device == a.device
    groups = torch.tensor([0, 0, 1, 2])
    assert Views(rows(4), rows(4), groups=groups).groups is groups


def test_unit_views_have_rows_of_length_one_and_keep_the_rest() -> None:
    groups = torch.arange(5)
    views = Views(rows(2), rows(5, seed=1), rows(3, seed=2), offset=1, groups=groups).unit()
    assert views.negatives is not None
    for part in (views.anchors, views.positives, views.negatives):
        torch.testing.assert_close(part.norm(dim=1), torch.ones(len(part), dtype=torch.float64))
    assert views.offset == 1
    assert views.groups is groups
    assert Views(rows(2), rows(2)).unit().negatives is None


def test_a_norm_beyond_the_dtype_is_not_a_dead_row() -> None:
    x = torch.tensor([[1e20, 1e20], [3, 4], [0, 0], [torch.inf, 1]])
    found = unit(x)
    assert found[[0, 3]].isnan().all()
    torch.testing.assert_close(found[1:3], torch.tensor([[0.6, 0.8], [0, 0]]))


def test_swapped_is_the_other_direction() -> None:
    views = Views(rows(3), rows(3, seed=1), rows(2, seed=2))
    other = views.swapped()
    assert other.anchors is views.positives
    assert other.positives is views.anchors
    assert other.negatives is views.negatives


def test_rectangular_views_have_no_other_direction() -> None:
    with pytest.raises(ValueError, match="as anchors; found 2 anchors and 5 positives"):
        Views(rows(2), rows(5)).swapped()


def test_detached_views_have_the_numbers_without_history() -> None:
    views = Views(rows(2).requires_grad_(), rows(2).requires_grad_(), rows(2).requires_grad_())
    detached = views.detached()
    assert detached.negatives is not None
    for part in (detached.anchors, detached.positives, detached.negatives):
        assert not part.requires_grad
    assert torch.equal(detached.anchors, views.anchors)
    assert Views(rows(2), rows(2)).detached().negatives is None


def test_views_are_values() -> None:
    with pytest.raises(FrozenInstanceError):
        Views(rows(2), rows(2)).offset = 1  # type: ignore[misc]


def test_unit_agrees_with_the_definition() -> None:
    x = rows(4)
    expected = torch.stack([row / row.square().sum().sqrt() for row in x])
    torch.testing.assert_close(unit(x), expected)
    torch.testing.assert_close(unit(1e-9 * x), expected)
    torch.testing.assert_close(unit(1e100 * x), expected)


def test_unit_of_a_zero_row_is_zero_with_zero_gradient() -> None:
    x = rows(3)
    x[1] = 0
    x.requires_grad_()
    y = unit(x)
    assert torch.equal(y[1], torch.zeros(3, dtype=torch.float64))
    (gradient,) = torch.autograd.grad((y * rows(3, seed=1)).sum(), x)
    assert torch.equal(gradient[1], torch.zeros(3, dtype=torch.float64))
    assert gradient[[0, 2]].abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_unit_of_rows_too_short_for_their_dtype(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 4, dtype=dtype)
    x[0, 0] = torch.finfo(dtype).tiny / 4
    x.requires_grad_()
    y = unit(x)
    assert (y == 0).all()
    y.sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()


def test_the_gradient_of_unit_is_tangent_to_the_sphere() -> None:
    x = rows(5).requires_grad_()
    assert torch.autograd.gradcheck(unit, x)
    (gradient,) = torch.autograd.grad((unit(x) * rows(5, seed=1)).sum(), x)
    torch.testing.assert_close((gradient * x).sum(dim=1), torch.zeros(5, dtype=torch.float64))


@pytest.mark.parametrize("n", [3, 20])
def test_moments_from_the_smaller_matrix(n: int) -> None:
    """Few rows of many coordinates, and more."""
    x, y = rows(n, 2 * n + 255), rows(n, 2 * n + 255, seed=1)
    for few in (x, x[:, :5], torch.cat([x, y], dim=1)):
        centred = few - few.mean(dim=0)
        for found, product in (
            (moments_within(few, 0.5), centred.T @ centred / 2),
            (moments_across(few, few.flip(0), 0.5), few.T @ few.flip(0) / 2),
        ):
            torch.testing.assert_close(found, (product.diagonal(), product.square().sum()))


@pytest.mark.parametrize(("n", "d"), [(3, 257), (5, 3)], ids=["smaller", "whole"])
def test_derivatives_of_moments(n: int, d: int) -> None:
    """First and second, backward and forward, of one view, of two, and of one as both."""
    x, y = rows(n, d).requires_grad_(), rows(n, d, seed=1).requires_grad_()

    def within(x: Tensor) -> tuple[Tensor, Tensor]:
        return moments_within(x, 0.5)

    def across(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return moments_across(x, y, 0.5)

    for function, inputs in ((within, (x,)), (across, (x, y)), (lambda x: across(x, x), (x,))):
        assert gradcheck(function, inputs, fast_mode=True, check_forward_ad=True)
        assert gradgradcheck(function, inputs, fast_mode=True)
    assert gradcheck(lambda y: across(x.detach(), y), (y,), fast_mode=True)
    assert gradgradcheck(lambda y: across(x.detach(), y), (y,), fast_mode=True)
    for found, right in zip(torch.func.vmap(within)(x[None]), within(x), strict=True):
        torch.testing.assert_close(found[0], right)


def test_the_ratio_of_terms_is_pull_over_mass() -> None:
    weight = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    pull = torch.tensor([3.0, 5.0], dtype=torch.float64)
    terms = Terms(torch.ones(2), weight, pull)
    assert terms.mass.tolist() == [2.0, 0.0]
    assert terms.ratio is not None
    assert terms.ratio.tolist() == [1.5, 0.0], "no weight, no ratio: 0 and not 5/0"
    assert Terms(torch.ones(2), weight, pull[:, None]).ratio is None


def test_derivatives_of_unit() -> None:
    """First and second, backward and forward, by differences; and under torch.func."""
    x = rows(4).requires_grad_()
    assert gradcheck(unit, x, check_forward_ad=True)
    assert gradgradcheck(unit, x)

    def cubed(y: Tensor) -> Tensor:
        return unit(y).pow(3).sum()

    twice = torch.autograd.functional.hessian(cubed, x.detach())
    torch.testing.assert_close(torch.func.hessian(cubed)(x.detach()), twice)
    many = torch.stack([x.detach(), rows(4, seed=1)])
    torch.testing.assert_close(torch.func.vmap(unit)(many)[1], unit(many[1]))


def test_second_derivatives_at_a_row_of_zeros_are_zero() -> None:
    x = rows(3)
    x[1] = 0
    x.requires_grad_()
    (once,) = torch.autograd.grad(unit(x).pow(3).sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad(once.square().sum(), x)
    assert (once[1] == 0).all()
    assert (twice[1] == 0).all()
    assert twice.isfinite().all()
