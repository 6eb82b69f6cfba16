"""The objectives of this room against the gradients that the papers print, written out by hand."""

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.views import unit
from isotrope.objectives import BarlowTwins, InfoNCE, Paradigm
from isotrope.paradigm.assemble import tangent
from tests.paradigm.batches import batch


def gradient(objective, h, other):
    h = h.clone().requires_grad_()
    return torch.autograd.grad(objective(h, other), h)[0]


@pytest.mark.parametrize("tau", [0.02, 0.05, 1.0])
def test_infonce_is_cross_entropy(tau: float) -> None:
    a, b = (unit(x) for x in batch("clustered", 16, 6))
    expected = F.cross_entropy(a @ b.T / tau, torch.arange(16))
    torch.testing.assert_close(InfoNCE(temperature=tau)(a, b), expected)


def test_infonce_with_hard_negatives_is_cross_entropy_over_all_columns() -> None:
    a, b = (unit(x) for x in batch("random", 8, 6))
    hard = unit(torch.randn(5, 6, dtype=torch.float64))
    logits = torch.cat([a @ b.T, a @ hard.T], dim=1) / 0.05
    torch.testing.assert_close(InfoNCE()(a, b, hard), F.cross_entropy(logits, torch.arange(8)))


def test_infonce_gradient_as_printed() -> None:
    """Li et al. 2024, eq. 1: sum_{j != i} e_ij (h'_j - h'_i) / (tau sum_k e_ik), averaged."""
    tau, n = 0.1, 12
    a, b = (unit(x) for x in batch("random", n, 5))
    e = (a @ b.T / tau).exp()
    expected = torch.stack(
        [
            sum(e[i, j] * (b[j] - b[i]) for j in range(n) if j != i) / (tau * e[i].sum())
            for i in range(n)
        ]
    )
    found = gradient(InfoNCE(temperature=tau), a, b)
    torch.testing.assert_close(found, tangent(expected / n, a))


def test_infonce_learns_its_temperature() -> None:
    a, b = batch("random", 6, 4)
    tau = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    value = InfoNCE(temperature=tau)(a, b)
    (found,) = torch.autograd.grad(value, tau)
    step = 1e-6
    numeric = (InfoNCE(temperature=0.1 + step)(a, b) - InfoNCE(temperature=0.1 - step)(a, b)) / (
        2 * step
    )
    torch.testing.assert_close(found, numeric, rtol=1e-6, atol=1e-8)


def test_infonce_has_second_derivatives() -> None:
    a, b = batch("random", 4, 3)
    assert torch.autograd.gradgradcheck(
        lambda x, y: InfoNCE()(x, y), (a.requires_grad_(), b.requires_grad_())
    )


def test_paradigm_composes_the_empirical_baseline() -> None:
    """Li et al. 2024, eq. 5: GD a margin, W a softmax over the row, R static; mean over anchors."""
    n, m, tau, r = 8, 0.3, 0.05, 1.25
    a, b = (unit(x) for x in batch("random", n, 6))
    s = a @ b.T
    off = ~torch.eye(n, dtype=torch.bool)
    active = (s.diagonal() - s.masked_fill(~off, -9).amax(1) < m).double()
    w = (s / tau).masked_fill(~off, -torch.inf).softmax(1)
    expected = active[:, None] * (w @ b - r * b)
    objective = Paradigm(dissipation=f"margin:{m}", weight=f"softmax:{tau}", ratio=r)
    torch.testing.assert_close(gradient(objective, a, b), tangent(expected, a) / (2 * n))
    assert not objective.batch_level


@pytest.mark.parametrize("weight", ["softmax:0.05", "hardest"])
def test_an_exchanged_weight_leaves_the_parents_pull(weight: str) -> None:
    """Barlow's pull holds its 1/n; a weight normalised by rows moves the 1/n into the mean."""
    n = 7
    a, b = (unit(x) for x in batch("random", n, 5))
    parent = BarlowTwins()
    edited = parent.modify(weight=weight)
    own, other = parent.terms(a, b), edited.terms(a, b)
    torch.testing.assert_close(2 * other.scale * other.pull, own.scale * own.pull)


def test_infonce_keeps_its_derivatives_far_from_the_boundary() -> None:
    """softplus rounds log(1 + e^x) to x from 20 on, where the second derivative is e^-x."""
    a = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    b = a.flip(0)  # the positive is orthogonal, the negative identical: x = 1/tau = 25
    h = a.clone().requires_grad_()
    objective = InfoNCE(temperature=0.04)
    (first,) = torch.autograd.grad(objective(h, b), h, create_graph=True)
    terms = objective.terms(a, b)
    from isotrope.core.views import Views
    from isotrope.paradigm.assemble import assemble

    expected = tangent(terms.scale * assemble(terms, Views(a, b)), a)
    torch.testing.assert_close(first, expected, rtol=1e-13, atol=0)
    assert terms.dissipation[0] < 1


def test_a_detached_look_first_does_not_cut_the_gradient() -> None:
    from isotrope.core.views import Views
    from isotrope.kernels.choose import pairs
    from isotrope.paradigm.parts import Fraction

    a, b = batch("random", 5, 4)
    stats = pairs(Views(a.requires_grad_(), b).unit())
    with torch.no_grad():
        Fraction()(stats)
    assert stats.logsumexp(0.05).requires_grad


def test_nan_is_not_hidden() -> None:
    a, b = batch("random", 4, 3)
    a[1, 2] = torch.nan
    assert torch.isnan(InfoNCE()(a, b))


def test_anatomy_of_gathered_keys_and_half_precision() -> None:
    from isotrope.core.views import Views
    from isotrope.paradigm.anatomy import anatomy

    a, b = batch("random", 9, 4)
    rolled = anatomy(InfoNCE(), Views(a[3:6], b, offset=3))
    front = anatomy(InfoNCE(), Views(a[3:6], torch.cat([b[3:6], b[:3], b[6:]])))
    assert rolled == pytest.approx(front)
    half = Views(a.bfloat16(), b.bfloat16())
    assert anatomy(Paradigm(weight="hardest"), half)["hardest_share"] == 1.0


def test_positives_similarity_of_gathered_keys() -> None:
    from isotrope.core.views import Views
    from isotrope.kernels.choose import pairs
    from isotrope.paradigm.parts import Softmax

    a, b = (unit(x) for x in batch("random", 9, 4))
    groups = torch.arange(9)
    weight = Softmax(by="positives")
    inner = weight(pairs(Views(a[3:6], b, offset=3, groups=groups)))
    torch.testing.assert_close(inner, weight(pairs(Views(a[3:6], b[3:6]))))
