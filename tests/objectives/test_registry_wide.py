"""What every registered objective must be: double entry, finite on degenerate input, a card."""

import dataclasses
import doctest
import importlib
import inspect
import pkgutil

import pytest
import torch

from isotrope.core.errors import NoPerAnchor
from isotrope.core.hyper import hypers
from isotrope.core.views import Views, unit
from isotrope.paradigm import registry
from isotrope.paradigm.anatomy import anatomy
from isotrope.paradigm.assemble import assemble, tangent
from isotrope.paradigm.objective import Objective
from tests.paradigm.batches import BATCHES, SHAPES, batch

NAMES = registry.names()
BUILTIN = [n for n in NAMES if Objective.registered[n].__module__.startswith("isotrope.")]


def gradient(objective: Objective, h: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    h = h.clone().requires_grad_()
    return torch.autograd.grad(objective(h, positives), h)[0]


@pytest.mark.parametrize("name", BUILTIN)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_double_entry(name: str, kind: str, shape: tuple[int, int]) -> None:
    """Autograd of the formula equals scale x assembled terms, projected as autograd projects."""
    objective = registry.build(name)
    a, b = (unit(x) for x in batch(kind, *shape))
    terms = objective.terms(a, b)
    expected = tangent(terms.scale * assemble(terms, Views(a, b)), a)
    found = gradient(objective, a, b)
    torch.testing.assert_close(found, expected, atol=1e-9 * float(1 + expected.abs().max()), rtol=0)


@pytest.mark.parametrize("name", BUILTIN)
def test_terms_have_the_settled_shapes(name: str) -> None:
    a, b = batch("random", 7, 4)
    terms = registry.build(name).terms(a, b)
    width = {"cross": 7, "within": 7, "both": 14}[terms.against]
    assert terms.weight.shape == (7, width)
    assert terms.dissipation.shape == (7,)
    assert terms.pull.shape in {(7,), (7, 4)}
    assert (terms.ratio is None) == (terms.pull.ndim == 2)
    for value in (terms.dissipation, terms.weight, terms.pull):
        assert value.dtype == torch.float64
        assert not value.requires_grad
    assert (terms.weight.diagonal() == 0).all(), "the anchor's own column is excluded"


@pytest.mark.parametrize("name", BUILTIN)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["equal", "zero", "same", "two", "tiny norms", "huge norms"])
def test_finite_on_degenerate_input(name: str, dtype: torch.dtype, case: str) -> None:
    torch.manual_seed(0)
    a = torch.randn(6, 5)
    b = torch.randn(6, 5)
    if case == "equal":
        a, b = a[:1].repeat(6, 1), a[:1].repeat(6, 1)
    elif case == "zero":
        a[0] = 0
        b[1] = 0
    elif case == "same":
        b = a.clone()
    elif case == "two":
        a, b = a[:2], b[:2]
    elif case == "tiny norms":
        a, b = a * 1e-3, b * 1e-3
    elif case == "huge norms":
        a, b = a * 1e3, b * 1e3
    a, b = a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()
    objective = registry.build(name)
    value = objective(a, b)
    value.backward()
    assert torch.isfinite(value)
    assert a.grad is not None
    assert torch.isfinite(a.grad).all()
    if b.grad is not None:
        assert torch.isfinite(b.grad).all()
    for number in anatomy(objective, Views(a, b)).values():
        assert number is None or number == number


@pytest.mark.parametrize("name", BUILTIN)
def test_groups_are_never_negatives(name: str) -> None:
    """With all rows in one group nothing pushes: no weight, no active margin, no NaN."""
    objective = registry.build(name)
    a, b = batch("random", 5, 4)
    groups = torch.zeros(5, dtype=torch.long)
    terms = objective.terms(a, b, groups=groups)
    if name == "barlowtwins":  # a correlation of coordinates: it has no negatives to exclude
        torch.testing.assert_close(terms.weight, objective.terms(a, b).weight)
        return
    assert (terms.weight == 0).all()
    h = a.clone().requires_grad_()
    value = objective(h, b, groups=groups)
    grad = torch.autograd.grad(value, h)[0]
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("name", BUILTIN)
def test_gradient_scales_with_the_inverse_norm(name: str) -> None:
    """The papers' norm effect: the gradient on a raw embedding dies with its norm."""
    a, b = batch("random", 6, 5)
    once = gradient(registry.build(name), a, b)
    thrice = gradient(registry.build(name), 3 * a, b)
    torch.testing.assert_close(thrice, once / 3)


@pytest.mark.parametrize("name", BUILTIN)
def test_permutation_of_the_batch_changes_nothing(name: str) -> None:
    a, b = batch("random", 9, 5)
    order = torch.randperm(9)
    objective = registry.build(name)
    torch.testing.assert_close(objective(a, b), objective(a[order], b[order]))


@pytest.mark.parametrize("name", BUILTIN)
def test_per_anchor_is_what_the_scalar_reduces(name: str) -> None:
    a, b = batch("random", 9, 5)
    objective = registry.build(name)
    if objective.batch_level:
        with pytest.raises(NoPerAnchor, match="one number for the whole batch"):
            objective.per_anchor(a, b)
        return
    values = objective.per_anchor(a, b)
    assert values.shape == (9,)
    reduced = values.sum() if objective.reduction == "sum" else values.mean()
    torch.testing.assert_close(reduced, objective(a, b))


@pytest.mark.parametrize("name", BUILTIN)
def test_card_is_complete(name: str) -> None:
    cls = Objective.registered[name]
    text = inspect.getdoc(cls) or ""
    for heading in ("Loss", "Gradient:", "Shapes:", "Reference:", "Example:"):
        assert heading in text, f"{name} lacks {heading!r}"
    declared = hypers(cls)
    if name != "paradigm":
        assert {f.name for f in dataclasses.fields(cls)} == set(declared)  # type: ignore[arg-type]
    for hyper in declared.values():
        assert hyper.symbol
        assert hyper.help


def test_doctests_of_the_mathematical_rooms() -> None:
    import isotrope.measures
    import isotrope.paradigm

    tried = 0
    for room in (isotrope.objectives, isotrope.measures, isotrope.paradigm):
        for info in pkgutil.iter_modules(room.__path__):
            module = importlib.import_module(f"{room.__name__}.{info.name}")
            result = doctest.testmod(module)
            assert result.failed == 0, module.__name__
            tried += result.attempted
    assert tried >= 10


@pytest.mark.parametrize("name", BUILTIN)
def test_bounds_are_enforced(name: str) -> None:
    for field, hyper in hypers(Objective.registered[name]).items():
        low = hyper.above if hyper.above is not None else hyper.at_least
        if low is None:
            continue
        with pytest.raises(ValueError, match=f"{field} of .* must be {hyper.bounds}; found"):
            Objective.registered[name](**{field: low - 1})
        with pytest.raises(ValueError, match=f"{field} of .* must be"):
            Objective.registered[name](**{field: float("nan")})
        with pytest.raises(ValueError, match=f"{field} of .* must be a number"):
            Objective.registered[name](**{field: [1]})
