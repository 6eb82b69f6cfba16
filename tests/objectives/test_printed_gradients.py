"""The objectives of this room against the gradients that the papers print, written out by hand."""

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.views import unit
from isotrope.objectives import BarlowTwins, InfoNCE, ModifiedBarlowTwins, Paradigm
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
    """Paper 000, eq. 1: sum_{j != i} e_ij (h'_j - h'_i) / (tau sum_k e_ik), mean over anchors."""
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


def test_barlow_gradient_as_printed() -> None:
    """Paper 000, eq. 10 with C the cross-correlation (notes d6, d7): exact in the tangent space."""
    nu, n = 0.7, 10
    a, b = (unit(x) for x in batch("random", n, 4))
    c = sum(torch.outer(a[i], b[i]) for i in range(n)) / n
    matrix = torch.eye(4, dtype=torch.float64) - (1 - nu) * torch.diag(c.diagonal())
    expected = torch.stack(
        [
            2
            / n
            * (-matrix @ b[i] + nu * sum((b[i] @ b[j]) / n * a[j] for j in range(n) if j != i))
            for i in range(n)
        ]
    )
    found = gradient(BarlowTwins(weight=nu), a, b)
    torch.testing.assert_close(found, tangent(expected, a))


def test_barlow_with_the_wrong_correlation_does_not_fit() -> None:
    """Notes d6: paper 002 prints the auto-correlation, which is not the gradient."""
    nu, n = 0.7, 10
    a, b = (unit(x) for x in batch("random", n, 4))
    c = a.T @ a / n
    matrix = torch.eye(4, dtype=torch.float64) - (1 - nu) * torch.diag(c.diagonal())
    gram = (b @ b.T).fill_diagonal_(0)
    wrong = 2 / n * (-b @ matrix.T + nu * gram @ a / n)
    found = gradient(BarlowTwins(weight=nu), a, b)
    assert (found - tangent(wrong, a)).abs().max() > 1e-3


def modified_by_hand(a, b, m, tau, r):
    """Paper 000, eq. 18, anchor by anchor, gradient of h_i in the direction (H, H')."""
    n = len(a)
    s, same = a @ b.T, b @ b.T
    total = sum(torch.exp(same[k, j] / tau) for k in range(n) for j in range(n) if j != k)
    rows = []
    for i in range(n):
        hardest = max(s[i, k] for k in range(n) if k != i)
        d = float(s[i, i] - hardest < m)
        w = [torch.exp(same[i, j] / tau) / total for j in range(n)]
        rows.append(d * sum(w[j] * (a[j] - r * b[i]) for j in range(n) if j != i))
    return torch.stack(rows)


@pytest.mark.parametrize("margin", [0.0, 0.3, 3.0])
def test_modified_barlow_gradient_as_printed(margin: float) -> None:
    n, tau, r = 9, 0.05, 1.5
    a, b = (unit(x) for x in batch("random", n, 6))
    objective = ModifiedBarlowTwins(margin=margin, temperature=tau, ratio=r)
    by_hand = modified_by_hand(a, b, margin, tau, r)
    torch.testing.assert_close(gradient(objective, a, b), tangent(by_hand, a) / 2)
    # the other view serves as anchors in the other direction
    mirrored = b.clone().requires_grad_()
    (found,) = torch.autograd.grad(objective(a, mirrored), mirrored)
    torch.testing.assert_close(found, tangent(modified_by_hand(b, a, margin, tau, r), b) / 2)


def test_modified_barlow_survives_small_temperatures_in_float32() -> None:
    """exp(1/tau) overflows float32 below tau = .0113 (notes A1); the softmax must not."""
    a, b = (x.float() for x in batch("clustered", 16, 8))
    value = ModifiedBarlowTwins(temperature=0.005, margin=2.0)(a.requires_grad_(), b)
    value.backward()
    assert torch.isfinite(a.grad).all()
    assert a.grad.abs().max() > 0


def test_the_three_edits_take_barlow_to_its_modified_form() -> None:
    from isotrope.paradigm.dissipation import Margin
    from isotrope.paradigm.weight import Softmax

    a, b = batch("random", 8, 5)
    edited = (
        BarlowTwins()
        .modify(dissipation=Margin(margin=0.3))
        .modify(weight=Softmax(by="positives", normaliser="batch"))
        .modify(ratio=1.5)
    )
    torch.testing.assert_close(gradient(edited, a, b), gradient(ModifiedBarlowTwins(), a, b))


def test_paradigm_composes_the_empirical_baseline() -> None:
    """Paper 000, eq. 5: GD a margin, W a softmax over the row, R static; mean over anchors."""
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


def test_modified_objectives_keep_their_ratio_where_weights_vanish() -> None:
    a, b = (x.float() for x in batch("random", 8, 5))
    edited = ModifiedBarlowTwins(temperature=0.002).modify(weight="hardest")
    torch.testing.assert_close(edited.terms(a, b).ratio, torch.full((8,), 1.5))


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
    from isotrope.paradigm.dissipation import Fraction

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
    from isotrope.paradigm.weight import Softmax

    a, b = (unit(x) for x in batch("random", 9, 4))
    groups = torch.arange(9)
    weight = Softmax(by="positives")
    inner = weight(pairs(Views(a[3:6], b, offset=3, groups=groups)))
    torch.testing.assert_close(inner, weight(pairs(Views(a[3:6], b[3:6]))))
