"""Barlow Twins, VICReg and their gradient-equivalent forms, against what the papers print."""

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.errors import InputError, NoTerms, Overflow
from isotrope.core.views import unit
from isotrope.objectives import (
    BarlowTwins,
    BarlowTwinsGrad,
    NTXent,
    SimCLRGrad,
    UniGrad,
    VICReg,
    VICRegGrad,
)
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.compose import Paradigm
from tests.paradigm.batches import BATCHES, batch


def views(kind: str = "random", n: int = 10, d: int = 4):
    return tuple(unit(x) for x in batch(kind, n, d))


def gradients(loss, *inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(loss(*leaves), leaves)


def gradient(objective, h, other):
    return gradients(lambda x: objective(x, other), h)[0]


def error(found, expected, points) -> float:
    """The largest difference in the tangent space."""
    return float(tangent(found - expected, points).abs().max())


# Barlow Twins


def barlow_by_hand(a, b, nu, correlated=None, compared=None):
    """Li et al. 2024, eq. 10: (2/N) (-A h'_i + nu sum_{j != i} (h'_i.h'_j / N) h_j)."""
    n, d = a.shape
    c = sum(torch.outer(a[i], (b if correlated is None else correlated)[i]) for i in range(n)) / n
    matrix = torch.eye(d, dtype=torch.float64) - (1 - nu) * torch.diag(c.diagonal())
    left = b if compared is None else compared
    return torch.stack(
        [
            2
            / n
            * (-matrix @ b[i] + nu * sum((left[i] @ b[j]) / n * a[j] for j in range(n) if j != i))
            for i in range(n)
        ]
    )


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("nu", [0.0, 0.7, 1.0, 30.0])
def test_barlow_gradient_as_printed(kind: str, nu: float) -> None:
    """With C the cross-correlation and h'_i.h'_j: exact in the tangent space (notes d6, d7)."""
    a, b = views(kind)
    found = gradient(BarlowTwins(weight=nu), a, b)
    torch.testing.assert_close(found, tangent(barlow_by_hand(a, b, nu), a), rtol=1e-9, atol=1e-14)


def test_barlow_as_the_earlier_version_prints_it_does_not_fit() -> None:
    """Notes d6, d7: the auto-correlation, and h_i.h'_j for h'_i.h'_j."""
    a, b = views()
    found = gradient(BarlowTwins(weight=0.7), a, b)
    assert error(found, barlow_by_hand(a, b, 0.7), a) < 1e-15
    assert error(found, barlow_by_hand(a, b, 0.7, correlated=a), a) > 1e-2
    assert error(found, barlow_by_hand(a, b, 0.7, compared=a), a) > 1e-2


def test_barlow_parts_are_the_diagonal_and_the_rest() -> None:
    """Its two parts: the diagonal brought to 1, the rest to 0."""
    a, b = views()
    c = a.T @ b / 10
    off = ~torch.eye(4, dtype=torch.bool)
    pull, push = BarlowTwins(weight=3.0).parts
    torch.testing.assert_close(pull(a, b), (1 - c.diagonal()).square().sum())
    torch.testing.assert_close(push(a, b), 3 * c[off].square().sum())


@pytest.mark.parametrize("nu", [0.0051, 30.0])
def test_barlow_of_standardised_columns_is_that_of_its_authors(nu: float) -> None:
    """Zbontar et al.: batch normalisation without affine parameters, then C over N."""

    def theirs(x, y):
        x, y = (F.batch_norm(z, None, None, training=True) for z in (x, y))
        c = x.T @ y / len(x)
        on = (c.diagonal() - 1).square().sum()
        return on + nu * (c - torch.diag(c.diagonal())).square().sum()

    a, b = batch("random", 12, 5)
    objective = BarlowTwins(weight=nu, space="batchnorm")
    torch.testing.assert_close(objective(3 * a, b + 7), theirs(3 * a, b + 7))
    torch.testing.assert_close(gradients(objective, a, b), gradients(theirs, a, b))
    assert objective(a, b) != BarlowTwins(weight=nu)(a, b)


# VICReg


def vicreg_by_hand(h, other, nu1, nu2, gamma):
    """Notes d9, anchor by anchor, in the ambient space; the deviation is of the sample."""
    n, d = h.shape
    x = h - h.mean(0)
    c = sum(torch.outer(row, row) for row in x) / (n - 1)
    sigma = h.std(dim=0)
    nu = 2 * nu1 * n**2 / (d * (n - 1) ** 2)
    short = (sigma < gamma).double()
    return torch.stack(
        [
            2 / n * (h[i] - other[i] + nu * sum((x[i] @ x[j]) / n * x[j] for j in range(n)))
            - 4 * nu1 / (d * (n - 1)) * c.diagonal() * x[i]
            - nu2 / (d * (n - 1)) * short / sigma * x[i]
            for i in range(n)
        ]
    )


def eleven_by_hand(h, other, nu):
    """Li et al. 2024, eq. 11."""
    n = len(h)
    rows = [sum((h[i] @ h[j]) / n * h[j] for j in range(n) if j != i) for i in range(n)]
    return 2 / n * (-other + nu * torch.stack(rows))


@pytest.mark.parametrize("kind", ["random", "clustered", "antipodal", "duplicate rows"])
@pytest.mark.parametrize(("nu1", "nu2"), [(0.7, 0.3), (0.7, 0.0), (0.0, 0.3)])
def test_vicreg_gradient_is_exact(kind: str, nu1: float, nu2: float) -> None:
    a, b = views(kind)
    gamma = float(a.std(dim=0).median()) + 1e-9  # some coordinates on either side
    settings = {"sim_coeff": 1.0, "cov_coeff": nu1, "var_coeff": nu2, "gamma": gamma}
    by_hand = vicreg_by_hand(a, b, nu1, nu2, gamma)
    on_sphere = gradient(VICReg(**settings, epsilon=0.0), a, b)
    torch.testing.assert_close(on_sphere, tangent(by_hand, a), rtol=1e-9, atol=1e-14)
    raw = gradient(VICReg(**settings, epsilon=0.0, space="raw"), a, b)
    torch.testing.assert_close(raw, by_hand, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("nu2", [0.0, 0.3])
def test_equation_11_is_not_the_gradient_of_vicreg(nu2: float) -> None:
    """Notes d9: it ignores centring, the diagonal and the hinge."""
    a, b = views()
    nu1 = 0.7
    printed = VICReg(sim_coeff=1.0, cov_coeff=nu1, var_coeff=nu2, gamma=0.6, epsilon=0.0)
    eleven = eleven_by_hand(a, b, 2 * nu1 * 100 / (4 * 81))
    assert error(gradient(printed, a, b), eleven, a) > 1e-3


def test_equation_11_is_that_of_the_whole_moment_without_centring() -> None:
    """Notes d9: alignment + (nu1 / D) sum over all entries of sum h h^T / (N - 1)."""
    a, b = views()
    n, d, nu1 = 10, 4, 0.7
    nu = 2 * nu1 * n**2 / (d * (n - 1) ** 2)

    def whole(x, y):
        moments = [(z.T @ z / (n - 1)).square().sum() for z in (x, y)]
        return (x - y).square().sum(1).mean() + nu1 / d * sum(moments)

    expected = [tangent(g, z) for g, z in zip(gradients(whole, a, b), (a, b), strict=True)]
    torch.testing.assert_close(list(gradients(VICRegGrad(weight=nu), a, b)), expected)
    torch.testing.assert_close(expected[0], tangent(eleven_by_hand(a, b, nu), a))


def test_vicreg_coefficients_are_named_by_what_they_weigh() -> None:
    """Notes d8: Li et al. 2024 swaps the letters v and c of Bardes et al."""
    a, b = batch("random", 9, 3)
    off = ~torch.eye(3, dtype=torch.bool)
    zero = {"sim_coeff": 0.0, "cov_coeff": 0.0, "var_coeff": 0.0, "space": "raw"}
    covariances = sum(torch.cov(x.T)[off].square().sum() / 3 for x in (a, b))
    torch.testing.assert_close(VICReg(**{**zero, "cov_coeff": 2.0})(a, b), 2 * covariances)
    wide = VICReg(**{**zero, "var_coeff": 2.0}, gamma=1.5, epsilon=0.0)
    missing = sum((1.5 - x.std(dim=0)).clamp_min(0).mean() for x in (a, b))
    torch.testing.assert_close(wide(a, b), 2 * missing)
    pull = VICReg(**{**zero, "sim_coeff": 2.0})
    torch.testing.assert_close(pull(a, b), 2 * (a - b).square().sum(1).mean())


def test_vicreg_leaves_coordinates_that_vary_enough() -> None:
    a, b = views()
    only = {"sim_coeff": 0.0, "cov_coeff": 0.0, "epsilon": 0.0}
    assert gradient(VICReg(**only, gamma=1e-3), a, b).abs().max() == 0
    assert gradient(VICReg(**only, gamma=1.0), a, b).abs().max() > 0


@pytest.mark.parametrize("epsilon", [0.0, 1e-4])
def test_vicreg_of_a_collapsed_batch_has_a_finite_gradient(epsilon: float) -> None:
    """The slope of the deviation is infinite at 0; at epsilon = 0 it is taken as 0."""
    a = torch.ones(5, 3, dtype=torch.float64)
    found = gradients(VICReg(epsilon=epsilon, space="raw"), a, a)
    assert all(g.abs().max() == 0 for g in found)


@pytest.mark.parametrize("nu2", [0.0, 25.0, 1e4])
def test_exchanged_components_of_vicreg_leave_its_deviations(nu2: float) -> None:
    """What dissipates is the whole gradient; a ratio changes the pull alone."""
    a, noise = views()
    b = unit(a + 0.3 * noise)
    parent = VICReg(var_coeff=nu2)
    whole = gradient(parent, a, b)
    torch.testing.assert_close(2 * gradient(parent.modify(dissipation="none"), a, b), whole)
    margin = parent.modify(dissipation="margin:0.3")
    rest = margin.terms(a, b).dissipation == 0
    assert 0 < int(rest.sum()) < len(rest)
    torch.testing.assert_close(2 * gradient(margin, a, b), whole * ~rest[:, None])
    ratio = parent.modify(ratio=1.5)
    pull = (1.5 * ratio.terms(a, b).mass - parent.terms(a, b).pull)[:, None] * b
    torch.testing.assert_close(2 * gradient(ratio, a, b), whole - tangent(pull, a))


def test_the_weight_of_vicreg_is_not_exchanged() -> None:
    for parent in (VICReg(), VICReg().modify(dissipation="margin:0.3")):
        with pytest.raises(InputError, match="a new weight would remove the push"):
            parent.modify(weight="softmax:0.05")
    with pytest.raises(NoTerms, match="no gradient components"):
        VICReg(space="raw").modify(weight="softmax:0.05")


def test_a_weight_of_its_own_replaces_the_whole_push_of_vicreg() -> None:
    """The push on variances also corrects VICReg's weights, so it does not fit other weights."""
    a, noise = views()
    edited = Paradigm(parent=VICReg(), weight="softmax:0.05")
    assert edited.terms(a, unit(a + 0.3 * noise)).extra is None
    kept = Paradigm(parent=VICReg(), dissipation="margin:0.3")
    assert kept.terms(a, unit(a + 0.3 * noise)).extra is not None


def test_vicreg_refuses_raw_float16() -> None:
    a, b = (x.half() for x in batch("random", 5, 3))
    with pytest.raises(Overflow, match=r"pass float32 .* overflows float16 at 65504"):
        VICReg(space="raw")(a, b)
    assert torch.isfinite(VICReg()(a, b))
    assert torch.isfinite(VICReg(space="raw")(a.bfloat16(), b.bfloat16()))


# gradient-equivalent forms


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("nu", [0.0, 1.0, 30.0])
def test_barlow_twins_grad_is_the_gradient_of_barlow_twins(kind: str, nu: float) -> None:
    """In both views: summed over the anchors (notes d21), not their mean."""
    a, b = views(kind)
    found = gradients(BarlowTwinsGrad(weight=nu), a, b)
    torch.testing.assert_close(found, gradients(BarlowTwins(weight=nu), a, b))


def released_surrogate(x, y, nu, barlow: bool):
    """The loss that the released code of Li et al. 2024 trains in place of either, one view."""
    n = len(x)
    moment = x.T @ y / n
    pull = (1 - (1 - nu) * moment.diagonal() if barlow else 1.0) * 2 / n
    gram = (y @ y.T if barlow else x @ x.T).detach() * 2 / n**2
    attracting = -(pull.detach() if barlow else pull) * x * y.detach()
    return attracting.sum() + nu * (gram * (x @ x.detach().T)).sum()


@pytest.mark.parametrize(("barlow", "ours"), [(True, BarlowTwinsGrad()), (False, VICRegGrad())])
def test_the_released_code_trains_the_equivalent_forms(barlow: bool, ours) -> None:
    """Notes A1: both views summed; it leaves j = i in the sum, which is radial."""
    a, b = views("clustered")
    theirs = gradients(
        lambda x, y: (
            released_surrogate(x, y, 30.0, barlow) + released_surrogate(y, x, 30.0, barlow)
        ),
        a,
        b,
    )
    expected = [tangent(g, z) for g, z in zip(theirs, (a, b), strict=True)]
    torch.testing.assert_close(list(gradients(ours, a, b)), expected)


def test_without_its_diagonal_it_is_what_tao_et_al_train() -> None:
    """Notes A5: 2 (-z2 + nu (z2 z2^T) z1 / N), mean over anchors and views: half of the sum."""
    a, b = views()

    def one(x, y, nu=50.0):
        direction = 2 * (-y + nu * (y @ y.T) @ x / len(x))
        return (x * direction.detach()).sum(1).mean()

    theirs = gradients(lambda x, y: (one(x, y) + one(y, x)) / 2, a, b)
    ours = gradients(BarlowTwinsGrad(weight=50.0, diagonal=False), a, b)
    for found, expected, points in zip(ours, theirs, (a, b), strict=True):
        torch.testing.assert_close(found, tangent(2 * expected, points))


def test_unigrad_is_its_authors_direction() -> None:
    """Notes A5: -z2 + nu z1 F with F = (z1^T z1 + z2^T z2) / 2N, mean over anchors and views."""
    a, b = views()

    def theirs(x, y, nu=100.0):
        moment = (x.T @ x + y.T @ y) / (2 * len(x))
        first = (x * (-y + nu * x @ moment).detach()).sum(1).mean()
        second = (y * (-x + nu * y @ moment).detach()).sum(1).mean()
        return (first + second) / 2

    torch.testing.assert_close(UniGrad()(a, b), theirs(a, b))
    for found, expected, points in zip(
        gradients(UniGrad(), a, b), gradients(theirs, a, b), (a, b), strict=True
    ):
        torch.testing.assert_close(found, tangent(expected, points))


def test_simclr_grad_is_ntxent_with_all_else_constant() -> None:
    a, b = views()
    tau = 0.2

    def alone(x):
        """The cross-entropy of every anchor against constants, itself excluded."""
        others = torch.cat([b, a]).detach()
        logits = x @ others.T / tau
        itself = torch.cat([torch.zeros(10, 10), torch.eye(10)], dim=1).bool()
        return F.cross_entropy(logits.masked_fill(itself, -torch.inf), torch.arange(10)) / 2

    (expected,) = gradients(alone, a)
    found = gradient(SimCLRGrad(temperature=tau), a, b)
    torch.testing.assert_close(found, tangent(expected, a))
    # NT-Xent's own gradient has what the anchors receive as negatives and positives besides
    assert error(gradient(NTXent(temperature=tau), a, b), expected, a) > 1e-3


def test_presets_of_the_originals() -> None:
    for cls in (BarlowTwins, BarlowTwinsGrad, VICRegGrad):
        bert, roberta = cls.presets["bert-base"], cls.presets["roberta-base"]
        assert (bert.learning_rate, bert.batch_size) == (1e-5, 128)
        assert (roberta.learning_rate, roberta.batch_size) == (1e-6, 512)
        assert cls(preset="roberta-base") == cls(weight=30.0)
