"""The results of Draganov et al. 2024 against autograd and real steps; printed slips fail."""

import math
import sys

import pytest
import torch

from isotrope.core.errors import MissingExtra
from isotrope.core.views import unit
from isotrope.paradigm.assemble import tangent
from papers.draganov2024.cosine import attraction
from tests.theorems.cosine import (
    attraction_norm,
    cosine_tail,
    infonce_gradient,
    norm_growth,
    progress,
)


def embeddings(n: int, d: int = 6, seed: int = 0):
    torch.manual_seed(seed)
    z, other = torch.randn(2, n, d, dtype=torch.float64).unbind()
    return 4 * torch.rand(n, 1).double() * z, other


def gradient(loss, z):
    z = z.clone().requires_grad_()
    return torch.autograd.grad(loss(z).sum(), z)[0]


def test_prop_3_1_is_the_gradient_and_the_display_its_negation() -> None:
    """Notes d33."""
    z, other = embeddings(200)
    found = gradient(lambda z: -torch.cosine_similarity(z, other), z)
    torch.testing.assert_close(attraction(z, other), found)
    length = z.norm(dim=1, keepdim=True)
    printed = tangent(unit(other), unit(z)) / length
    torch.testing.assert_close(printed, -found)
    assert (printed - found).abs().max() > 0.1
    norm = attraction_norm(z, other)
    torch.testing.assert_close(norm.left, norm.right)
    torch.testing.assert_close(norm.left, found.norm(dim=1))


def test_cor_3_2_norms_grow_by_exactly_this_much() -> None:
    """DETAILS: |z'|^2 = rho^2 + gamma^2 sin^2 / rho^2."""
    z, other = embeddings(200)
    step = 0.7
    moved = z - step * gradient(lambda z: -torch.cosine_similarity(z, other), z)
    growth = norm_growth(z, other, step)
    torch.testing.assert_close(growth.right, moved.square().sum(1), rtol=1e-12, atol=0)
    torch.testing.assert_close(growth.left, z.square().sum(1))
    assert growth.holds.all()
    assert (growth.gap > 0).all()
    # notes d36: with z_j in place of its unit vector, as the proof prints it, nothing fits
    printed = growth.left + (step * tangent(other, unit(z)).norm(dim=1)).square() / growth.left
    assert (printed - growth.right).abs().max() > 0.1


def samples(count: int = 20_000):
    """Angles in 0..pi, norms .2 to 5.2, steps 1e-3 to 10, as in the notes."""
    torch.manual_seed(0)
    phi, rho, step = torch.rand(3, count, dtype=torch.float64).unbind()
    return phi * math.pi, 0.2 + 5 * rho, 10 ** (4 * step - 3)


def both_step(phi, rho, step, *, literal=False):
    """The change of the cosine when both embeddings, at angle phi and of norm rho, take a step."""
    zi = rho[:, None] * torch.tensor([1.0, 0]).double()
    zj = rho[:, None] * torch.stack([phi.cos(), phi.sin()], dim=1)
    towards_j, towards_i = (zj, zi) if literal else (unit(zj), unit(zi))
    factor = (step / rho)[:, None]
    moved_i = zi + factor * tangent(towards_j, unit(zi))
    moved_j = zj + factor * tangent(towards_i, unit(zj))
    return torch.cosine_similarity(moved_i, moved_j) - phi.cos()


def test_thm_3_3_exact_change_and_a_bound_for_all_angles() -> None:
    """Notes d35: the exact change, 0 violations of the bound for all angles."""
    phi, rho, step = samples()
    bound = progress(phi, rho, step)
    torch.testing.assert_close(bound.left, both_step(phi, rho, step), atol=1e-13, rtol=0)
    assert bound.holds.all()


def test_thm_3_3_as_printed_is_true_for_acute_angles_only() -> None:
    phi, rho, step = samples()
    bound = progress(phi, rho, step)
    x, c, square = step / rho**2, phi.cos(), phi.sin().square()
    printed = 2 * step * square / rho**2
    acute = phi <= math.pi / 2
    torch.testing.assert_close(bound.right[acute], printed[acute])
    violated = bound.left > printed * (1 + 1e-12)
    assert not violated[acute].any()
    assert violated[~acute].double().mean() > 0.8
    # violated if and only if |c| > x s^2
    clear = (c.abs() - x * square).abs() > 1e-9
    assert torch.equal(violated[~acute & clear], (c.abs() > x * square)[~acute & clear])


def test_the_counterexample_to_thm_3_3() -> None:
    """Notes d35: phi = 2.5, rho = 1, gamma = .1: .0771 > .0716."""
    phi = torch.tensor([2.5], dtype=torch.float64)
    bound = progress(phi, 1.0, 0.1)
    assert round(float(bound.left), 4) == 0.0771
    assert round(2 * 0.1 * math.sin(2.5) ** 2, 4) == 0.0716
    assert bound.right > bound.left


def test_thm_3_3_with_the_printed_step_fails_even_for_acute_angles() -> None:
    """Notes d34: the statement moves by the orthogonal parts of z_j, not of its unit vector."""
    phi, rho, step = samples()
    acute = phi <= math.pi / 2
    change = both_step(phi, rho, step, literal=True)
    assert (change > progress(phi, rho, step).right)[acute].double().mean() > 0.2


def test_the_tighter_bound_of_the_appendix_fails_on_both_sides() -> None:
    """Notes d35: gamma sin^2 / rho^2 (2 - gamma c / rho^2)."""
    phi, rho, step = samples()
    x = step / rho**2
    tighter = x * phi.sin().square() * (2 - x * phi.cos())
    violated = both_step(phi, rho, step) > tighter + 1e-12
    acute = phi <= math.pi / 2
    assert violated[acute].sum() > 100
    assert violated[~acute].sum() > 1000


def test_cor_b_1_signs() -> None:
    """Notes d37: the printed sum of two plus signs is neither the gradient nor its negation."""
    z, other = embeddings(20)
    negatives = torch.randn(15, 6, dtype=torch.float64)

    def loss(z):
        repulsion = (unit(z) @ unit(negatives).T).logsumexp(1)
        return -torch.cosine_similarity(z, other) + repulsion

    found = gradient(loss, z)
    torch.testing.assert_close(infonce_gradient(z, other, negatives), found)
    weight = (unit(z) @ unit(negatives).T).softmax(1)
    printed = tangent(unit(other) + weight @ unit(negatives), unit(z)) / z.norm(dim=1, keepdim=True)
    assert (printed - found).abs().max() > 0.01
    assert (printed + found).abs().max() > 0.01


def test_prop_c_1_on_the_grid_of_the_notes() -> None:
    """Notes d38: d = 2..399, eps = .01...99: no violation; vacuous where 2 d (1 - eps)^2 < 1."""
    vacuous = 0
    for d in range(2, 400, 7):
        for hundredths in range(1, 100, 2):
            eps = hundredths / 100
            bound = cosine_tail(d, eps)
            assert bound.holds
            vacuous += 2 * d * (1 - eps) ** 2 < 1
            assert (bound.right > 1) == (2 * d * (1 - eps) ** 2 < 1)
    assert vacuous > 0


def test_the_tail_is_that_of_random_directions_on_either_side() -> None:
    torch.manual_seed(0)
    d, eps, count = 4, 0.4, 200_000
    x, y = torch.randn(2, count, d, dtype=torch.float64).unbind()
    cosine = torch.cosine_similarity(x, y)
    exact = float(cosine_tail(d, eps).left)
    spread = 5 * math.sqrt(exact * (1 - exact) / count)
    for shares in (cosine >= 1 - eps, -cosine >= 1 - eps):
        assert abs(float(shares.double().mean()) - exact) < spread
    # two dimensions: the angle is uniform
    assert abs(float(cosine_tail(2, 0.5).left) - 1 / 3) < 1e-12


@pytest.mark.parametrize(("d", "eps"), [(1, 0.5), (3, 0.0), (3, 1.0)])
def test_tails_that_are_refused(d: int, eps: float) -> None:
    with pytest.raises(ValueError, match=f"epsilon in .0, 1.; found {d}, {eps:g}"):
        cosine_tail(d, eps)


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(MissingExtra, match=r"\.\[train\].*needs the package 'scipy'"):
        cosine_tail(3, 0.5)
