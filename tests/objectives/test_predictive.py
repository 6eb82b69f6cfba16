"""NegativeCosine and DINO: what pulls without pushing."""

import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.views import unit
from isotrope.objectives import DINO, NegativeCosine
from tests.paradigm.batches import batch


def test_negative_cosine_gradient_of_raw_embeddings() -> None:
    """Draganov et al. 2024, proposition 3.1; the gradient of -cos is minus what is displayed."""
    n = 7
    z, other = batch("random", n, 5)
    x = z.clone().requires_grad_()
    (found,) = torch.autograd.grad(NegativeCosine()(x, other), x)
    for i in range(n):
        norm = z[i].norm()
        projector = torch.eye(5, dtype=torch.float64) - torch.outer(z[i], z[i]) / norm**2
        displayed = projector @ other[i] / other[i].norm() / norm
        torch.testing.assert_close(n * found[i], -displayed)
        sine = torch.sin(torch.arccos(z[i] @ other[i] / norm / other[i].norm()))
        torch.testing.assert_close(n * found[i].norm(), sine / norm)


def test_negative_cosine_is_half_of_byols_square() -> None:
    a, b = batch("random", 6, 4)
    square = (unit(a) - unit(b)).square().sum(1).mean()
    torch.testing.assert_close(2 + 2 * NegativeCosine()(a, b), square)


def test_negative_cosine_pulls_and_does_not_push() -> None:
    a, b = batch("random", 6, 4)
    terms = NegativeCosine().terms(a, b)
    assert terms.pull.tolist() == [1.0] * 6
    assert (terms.weight == 0).all()
    pull, push = NegativeCosine().parts
    torch.testing.assert_close(pull(a, b), NegativeCosine()(a, b))
    assert push(a, b) == 0


def test_negative_cosine_leaves_the_targets_to_the_method() -> None:
    a, b = batch("random", 6, 4)
    b.requires_grad_()
    NegativeCosine()(a, b).backward()
    assert b.grad.abs().max() > 0


@pytest.mark.parametrize("objective", [NegativeCosine(), DINO()], ids=str)
def test_there_is_no_place_for_negatives(objective) -> None:
    a, b = batch("random", 6, 4)
    with pytest.raises(ValueError, match="takes no additional negatives"):
        objective(a, b, a)


def test_dino_is_cross_entropy_with_soft_labels() -> None:
    student, teacher = batch("random", 6, 9)
    labels = F.softmax(teacher / 0.04, dim=1)
    expected = F.cross_entropy(student / 0.1, labels)
    torch.testing.assert_close(DINO()(student, teacher), expected)


def test_dino_gradient_is_the_difference_of_the_distributions() -> None:
    n = 6
    student, teacher = batch("random", n, 9)
    x = student.clone().requires_grad_()
    (found,) = torch.autograd.grad(DINO()(x, teacher), x)
    expected = torch.stack(
        [((student[i] / 0.1).softmax(0) - (teacher[i] / 0.04).softmax(0)) / 0.1 for i in range(n)]
    )
    torch.testing.assert_close(found, expected / n)


def test_dino_holds_the_teacher_constant() -> None:
    student, teacher = batch("random", 6, 9)
    teacher.requires_grad_()
    assert not DINO()(student, teacher).requires_grad


def test_dino_of_collapsed_outputs() -> None:
    """Both ways to collapse: the uniform distribution costs log K, one prototype nothing."""
    even = torch.zeros(4, 8, dtype=torch.float64)
    assert math.isclose(DINO()(even, even).item(), math.log(8))
    one = 1e3 * F.one_hot(torch.zeros(4, dtype=torch.long), 8).double()
    assert DINO()(one, one).item() == 0


def test_dino_sees_its_logits_as_they_are() -> None:
    """A constant added to a row changes nothing, its length does: they are not normalised."""
    student, teacher = batch("random", 6, 9)
    torch.testing.assert_close(DINO()(student + 3, teacher - 2), DINO()(student, teacher))
    assert (DINO()(2 * student, teacher) - DINO()(student, teacher)).abs() > 0.1
