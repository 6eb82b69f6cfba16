"""Alignment, uniformity, energy and separation against the printed formulas, written by hand."""

import math

import pytest
import torch

from isotrope.core.views import unit
from isotrope.measures.alignment import alignment
from isotrope.measures.uniformity import uniformity
from isotrope.objectives import MHE, MHS, AlignUniform
from isotrope.paradigm.assemble import tangent
from tests.paradigm.batches import batch


def gradient(objective, h, other, groups=None):
    h = h.clone().requires_grad_()
    return torch.autograd.grad(objective(h, other, groups=groups), h)[0]


def squares(a, b):
    return torch.cdist(a, b).square()


# AlignUniform: Nie et al. 2023


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_align_uniform_as_printed(alpha: float) -> None:
    """Nie et al. 2023, eq. 2, 3 and 29: ordered pairs across the views."""
    n, t, lam = 9, 3.0, 0.3
    a, b = (unit(x) for x in batch("random", n, 5))
    align = sum((a[i] - b[i]).norm() ** alpha for i in range(n)) / n
    energy = sum(
        torch.exp(-t * (a[i] - b[j]).norm() ** 2) for i in range(n) for j in range(n) if j != i
    )
    expected = (1 - lam) * align + lam * torch.log(energy / (n * (n - 1)))
    objective = AlignUniform(alpha=alpha, t=t, balance=lam)
    torch.testing.assert_close(objective(a, b), expected)
    torch.testing.assert_close(objective(b, a), expected)


def test_align_uniform_within_is_the_mean_of_both_views_measures() -> None:
    """Wang and Isola, and Nie et al. 2023's released code: unordered pairs within each view."""
    a, b = batch("clustered", 12, 5)
    spread = (uniformity(a, t=6.0) + uniformity(b, t=6.0)) / 2
    expected = 0.8 * alignment(a, b) + 0.2 * spread
    torch.testing.assert_close(AlignUniform(balance=0.2, pairs="within")(a, b), expected)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 2.5, 3.0])
def test_align_uniform_gradient_as_printed(alpha: float) -> None:
    """Nie et al. 2023, eq. 27 and 30 on raw embeddings: projected, and divided by their norm."""
    n, t, lam = 8, 2.0, 0.4
    z, other = batch("random", n, 4)
    a, b = unit(z), unit(other)
    e = torch.exp(-t * squares(a, b)).fill_diagonal_(0)
    rows = []
    for i in range(n):
        align = -alpha * (2 - 2 * a[i] @ b[i]) ** ((alpha - 2) / 2) * b[i] / n
        uniform = -2 * t * sum(e[i, j] * (a[i] - b[j]) for j in range(n) if j != i) / e.sum()
        rows.append((1 - lam) * align + lam * uniform)
    expected = tangent(torch.stack(rows), a) / z.norm(dim=1, keepdim=True)
    found = gradient(AlignUniform(alpha=alpha, t=t, balance=lam), z, other)
    torch.testing.assert_close(found, expected)


def test_align_uniform_norms_of_both_parts() -> None:
    """Nie et al. 2023, eq. 8 (per pair) and eq. 17, from the components."""
    n, alpha, t = 7, 3.0, 2.0
    a, b = (unit(x) for x in batch("random", n, 4))
    terms = AlignUniform(alpha=alpha, t=t, balance=0.5).terms(a, b)
    s = a @ b.T
    theta = s.arccos()
    own = theta.diagonal()
    eq_8 = alpha * (2 * torch.sin(own / 2)) ** (alpha - 2) * torch.sin(own)
    torch.testing.assert_close(n / 0.5 * terms.pull * torch.sin(own), eq_8)
    e = torch.exp(2 * t * s).fill_diagonal_(0)
    eq_17 = 2 * t * e * torch.sin(theta) / e.sum()
    torch.testing.assert_close(terms.weight / 0.5 * torch.sin(theta), eq_17)


def test_uniformity_of_one_view_has_twice_the_norm() -> None:
    """Notes d25: h_i is in two of the pairs; the mean over the views takes it back."""
    n, t = 8, 2.0
    a, b = (unit(x) for x in batch("random", n, 4))
    e = torch.exp(2 * t * a @ a.T).fill_diagonal_(0)
    ordered = 2 * t * e @ a / e.sum()
    x = a.clone().requires_grad_()
    (one_view,) = torch.autograd.grad(uniformity(x, t=t), x)
    torch.testing.assert_close(one_view, 2 * tangent(ordered, a))
    both = gradient(AlignUniform(t=t, balance=1.0, pairs="within"), a, b)
    torch.testing.assert_close(both, tangent(ordered, a))


def turned(angle: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two orthogonal anchors, whose positives are at the given angle to them."""
    a = torch.eye(3, dtype=torch.float64)[:2]
    b = math.cos(angle) * a + math.sin(angle) * torch.eye(3, dtype=torch.float64)[2]
    return a, b


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.9])
def test_align_uniform_does_not_pull_what_is_closer_than_a_hundredth(alpha: float) -> None:
    objective = AlignUniform(alpha=alpha, balance=0.0)
    near, far = turned(0.0099), turned(0.0101)
    assert gradient(objective, *near).abs().max() == 0
    assert objective.terms(*near).pull.abs().max() == 0
    torch.testing.assert_close(objective(*near).item(), 0.01**alpha)
    distance = 2 * math.sin(0.0101 / 2)
    slope = alpha * distance ** (alpha - 2) * math.sin(0.0101) / 2
    torch.testing.assert_close(gradient(objective, *far).norm(dim=1)[0].item(), slope)


def test_align_uniform_with_equal_views_and_a_power_above_two() -> None:
    """Rounding puts some similarities above 1, where a power of 2 - 2s would be NaN."""
    a, _ = batch("random", 200, 3)
    assert (unit(a).square().sum(1) > 1).any()
    assert gradient(AlignUniform(alpha=2.2, balance=0.0), a, a.clone()).abs().max() < 1e-12


def test_align_uniform_parts_are_its_two_terms() -> None:
    a, b = batch("random", 8, 4)
    pull, push = AlignUniform(t=2.0, balance=0.25, pairs="within").parts
    torch.testing.assert_close(pull(a, b), 0.75 * alignment(a, b))
    torch.testing.assert_close(push(a, b), 0.25 * (uniformity(a) + uniformity(b)) / 2)


def test_align_uniform_leaves_rows_of_one_group_out_of_the_mean() -> None:
    a, b = (unit(x) for x in batch("random", 5, 4))
    groups = torch.tensor([0, 0, 1, 2, 3])
    d = squares(a, b)
    apart = [(i, j) for i in range(5) for j in range(5) if groups[i] != groups[j]]
    energy = torch.stack([torch.exp(-6 * d[i, j]) for i, j in apart]).mean()
    found = AlignUniform(balance=1.0)(a, b, groups=groups)
    torch.testing.assert_close(found, energy.log())


@pytest.mark.parametrize(
    "objective",
    [AlignUniform(pairs=v) for v in ("cross", "within")]
    + [cls(variant=v) for cls in (MHE, MHS) for v in ("paper", "released")],
    ids=str,
)
def test_without_negatives_there_is_the_pull_alone(objective) -> None:
    a, b = batch("random", 5, 4)
    one = torch.zeros(5, dtype=torch.long)
    pull, push = objective.parts
    torch.testing.assert_close(objective(a, b, groups=one), pull(a, b))
    assert push(a, b, groups=one) == 0
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        found = gradient(objective, a, b, groups=one)
    torch.testing.assert_close(found, gradient(pull, a, b))


@pytest.mark.parametrize(
    ("backbone", "balance"),
    [("bert-base", 0.1), ("bert-large", 0.1), ("roberta-base", 0.2), ("roberta-large", 0.4)],
)
def test_align_uniform_presets(backbone: str, balance: float) -> None:
    """Nie et al. 2023, table 2."""
    assert AlignUniform(preset=backbone) == AlignUniform(alpha=2.0, t=6.0, balance=balance)
    preset = AlignUniform.presets[backbone]
    assert (preset.learning_rate, preset.batch_size) == (1e-5, 64)


# MHE: Li et al. 2024


def test_mhe_as_printed() -> None:
    """Li et al. 2024, section 4: unordered pairs of the anchors' view, t = 1."""
    n, nu = 8, 0.7
    a, b = (unit(x) for x in batch("random", n, 4))
    d = squares(a, a)
    energy = sum(torch.exp(-d[k, i]) for i in range(n) for k in range(i))
    expected = (a - b).square().sum(1).mean() + nu * torch.log(2 * energy / (n * (n - 1)))
    torch.testing.assert_close(MHE(weight=nu)(a, b), expected)


def mhe_by_hand(a, b, nu, unordered=True):
    """Li et al. 2024, eq. 7 and 8."""
    n = len(a)
    e = torch.exp(2 * a @ a.T).fill_diagonal_(0)
    total = e.sum() / 2 if unordered else e.sum()
    rows = [sum(2 * e[i, j] * a[j] for j in range(n) if j != i) / total for i in range(n)]
    return tangent(-2 / n * b + nu * torch.stack(rows), a)


def test_mhe_gradient_as_printed() -> None:
    nu = 0.7
    a, b = (unit(x) for x in batch("random", 9, 4))
    found = gradient(MHE(weight=nu), a, b)
    torch.testing.assert_close(found, mhe_by_hand(a, b, nu))
    # the anchor is in a pair as h_k and as h_l, which the sum over k < l accounts for
    assert (found - mhe_by_hand(a, b, nu, unordered=False)).abs().max() > 1e-3


def test_mhe_components_as_in_table_2() -> None:
    n, nu = 9, 0.7
    a, b = (unit(x) for x in batch("random", n, 4))
    terms = MHE(weight=nu).terms(a, b)
    e = torch.exp(2 * a @ a.T).fill_diagonal_(0)
    total = sum(e[k, i] for i in range(n) for k in range(i))
    torch.testing.assert_close(terms.weight, 2 * nu * e / total)
    torch.testing.assert_close(terms.ratio, total / (nu * n * e.sum(1)))


def test_mhe_as_released() -> None:
    """Notes A1, a19: e^{h.h} below the diagonal of both views, no constants, weight 10."""
    n = 8
    a, b = (unit(x) for x in batch("random", n, 4))
    below = torch.ones(n, n, dtype=torch.bool).tril(-1)
    energies = [(x @ x.T)[below].logsumexp(0) for x in (a, b)]
    expected = (a - b).square().sum(1).mean() + 10 * sum(energies)
    torch.testing.assert_close(MHE(weight=10.0, variant="released")(a, b), expected)


def test_the_released_energy_is_that_of_half_the_inverse_temperature() -> None:
    a, b = batch("random", 8, 4)
    released = gradient(MHE(variant="released"), a, b)
    torch.testing.assert_close(released, gradient(MHE(t=0.5), a, b))
    assert (released - gradient(MHE(), a, b)).abs().max() > 1e-3


# MHS: Li et al. 2024


def mhs_by_hand(a, b, nu, pick=min):
    """Li et al. 2024, section 4: values, and gradients of the anchors with negatives constant."""
    n, values, rows = len(a), [], []
    for i in range(n):
        j = pick((j for j in range(n) if j != i), key=lambda j: (a[i] - a[j]).norm().item())
        d = (a[i] - a[j]).norm()
        values.append((a[i] - b[i]).square().sum() - nu * d)
        rows.append(-2 * b[i] + nu * a[j] / d)
    return torch.stack(values), tangent(torch.stack(rows), a)


def test_mhs_as_printed() -> None:
    """Li et al. 2024, eq. 7 and 9: j = arg min of the distance; arg max is not its gradient."""
    n, nu = 9, 0.7
    a, b = (unit(x) for x in batch("random", n, 4))
    values, by_hand = mhs_by_hand(a, b, nu)
    objective = MHS(weight=nu)
    torch.testing.assert_close(objective.per_anchor(a, b), values)
    found = gradient(objective, a, b)
    torch.testing.assert_close(found, by_hand / n)
    _, farthest = mhs_by_hand(a, b, nu, pick=max)
    assert (found - farthest / n).abs().max() > 1e-2


def test_mhs_holds_the_negatives_constant() -> None:
    """Notes d15: with live negatives the sum over anchors has another gradient."""
    n = 9
    a, b = (unit(x) for x in batch("random", n, 4))
    _, by_hand = mhs_by_hand(a, b, 1.0)
    x = a.clone().requires_grad_()
    live, _ = mhs_by_hand(x, b, 1.0)
    (mutual,) = torch.autograd.grad(live.mean(), x)
    found = gradient(MHS(), a, b)
    torch.testing.assert_close(found, by_hand / n)
    assert (n * (found - tangent(mutual, a))).abs().max() > 0.1
    # the positive is no negative: it is live
    y = b.clone().requires_grad_()
    (pulled,) = torch.autograd.grad(MHS()(a, y), y)
    torch.testing.assert_close(pulled, tangent(-2 * a / n, b))


def test_mhs_components_as_in_table_2() -> None:
    """Notes d16: R is 2 d / nu, as the mean over anchors gives it; table 2 divides by N too."""
    n, nu = 9, 0.7
    a, b = (unit(x) for x in batch("random", n, 4))
    terms = MHS(weight=nu).terms(a, b)
    d = torch.cdist(a, a).fill_diagonal_(9)
    nearest, j = d.min(dim=1)
    expected = torch.zeros(n, n, dtype=torch.float64)
    expected[torch.arange(n), j] = nu / nearest
    torch.testing.assert_close(terms.weight, expected)
    torch.testing.assert_close(terms.ratio, 2 * nearest / nu)
    assert terms.against == "within"
    assert terms.scale == 1 / n


def test_mhs_pushes_nothing_that_is_closer_than_a_hundredth() -> None:
    a, b = batch("random", 6, 4)
    a[1] = a[0]
    terms = MHS().terms(a, b)
    assert terms.mass[:2].tolist() == [0, 0]
    assert (terms.mass[2:] > 0).all()
    torch.testing.assert_close(gradient(MHS(), a, b)[:2], gradient(MHS(weight=0.0), a, b)[:2])


def test_mhs_as_released() -> None:
    """Notes A1: across the views, the other constant, sqrt(d^2 + 1e-4), for both as anchors."""
    n, nu = 8, 0.7
    a, b = (unit(x) for x in batch("random", n, 4))
    views = [x.clone().requires_grad_() for x in (a, b)]
    total = 0
    for own, other in (views, views[::-1]):
        s = own @ other.detach().T
        d = (2 - 2 * s + 1e-4).sqrt() + 9 * torch.eye(n)
        align = 2 - 2 * (own * other).sum(1)
        total = total - nu * d.amin(dim=1).mean() + align.mean() / 2
    expected = torch.autograd.grad(total, views)
    objective = MHS(weight=nu, variant="released")
    torch.testing.assert_close(objective(a, b), total)
    x, y = (v.clone().requires_grad_() for v in (a, b))
    found = torch.autograd.grad(objective(x, y), (x, y))
    for mine, theirs, point in zip(found, expected, (a, b), strict=True):
        torch.testing.assert_close(mine, tangent(theirs, point))


def test_mhs_groups_are_not_nearest() -> None:
    a, b = batch("clustered", 6, 4)
    a[1] = a[0] + 0.02
    groups = torch.tensor([0, 0, 1, 2, 3, 4])
    weight = MHS().terms(a, b, groups=groups).weight
    assert weight[0, 1] == 0
    assert weight[0].sum() > 0


@pytest.mark.parametrize(
    ("alpha", "coefficient", "length"), [(0.5, 1, 1), (1.5, 1, -1), (3, -1, -1)]
)
def test_what_grows_as_a_positive_comes_closer(alpha: float, coefficient: int, length: int) -> None:
    """The pull is a coefficient: its limit is at alpha = 2, that of the gradient's length at 1."""
    objective = AlignUniform(alpha=alpha, balance=0.0)
    pulls, norms = [], []
    for angle in (0.1, 0.05):
        a = torch.eye(2, dtype=torch.float64)
        turn = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        b = torch.tensor(turn, dtype=torch.float64)
        pulls.append(float(objective.terms(a, b).pull[0]))
        norms.append(float(gradient(objective, a, b)[0].norm()))
    assert math.copysign(1, pulls[1] - pulls[0]) == coefficient
    assert math.copysign(1, norms[1] - norms[0]) == length
