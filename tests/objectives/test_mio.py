"""The three MIO losses against Manna et al. 2023 and its supplement, written out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.errors import Overflow
from isotrope.core.views import Views, unit
from isotrope.kernels.choose import pairs
from isotrope.objectives import MIOv1, MIOv2, MIOv3
from isotrope.objectives.mio import coldest
from isotrope.paradigm.assemble import tangent
from tests.paradigm.batches import batch
from tests.theorems.curvature import mio_hessian

ALL = [MIOv1, MIOv2, MIOv3]

# the loss of a positive and of a negative pair as a function of x = C / tau, and their derivatives
POSITIVE = {
    MIOv1: lambda x: -torch.log(1 / (1 + torch.exp(-x))),
    MIOv2: lambda x: -x,
    MIOv3: lambda x: -x,
}
NEGATIVE = {
    MIOv1: lambda x: -torch.log(1 - 1 / (1 + torch.exp(-x))),
    MIOv2: lambda x: torch.log(1 + torch.exp(x)),
    MIOv3: torch.exp,
}
PULL = {
    MIOv1: lambda x: 1 - torch.sigmoid(x),
    MIOv2: torch.ones_like,
    MIOv3: torch.ones_like,
}
PUSH = {MIOv1: torch.sigmoid, MIOv2: torch.sigmoid, MIOv3: torch.exp}


def by_hand(cls, a, b, tau):
    """Manna et al. 2023, eq. 4, 12, 18: means over 2N positives and 2N (2N - 2) negatives."""
    n = len(a)
    z = torch.cat([a, b])
    x = z @ z.T / tau
    attract = sum(POSITIVE[cls](x[i, (i + n) % (2 * n)]) for i in range(2 * n)) / (2 * n)
    repel = sum(
        NEGATIVE[cls](x[k, m])
        for k in range(2 * n)
        for m in range(2 * n)
        if m not in (k, (k + n) % (2 * n))
    ) / (2 * n * (2 * n - 2))
    return attract, repel


def dot_product(objective, a, b):
    """The formula with C_nm = z_n . z_m, as the supplement differentiates it, not normalised."""
    one = pairs(Views(a, b))
    return (
        objective.formula(one).mean() + objective.formula(pairs(one.views.swapped())).mean()
    ) / 2


def slopes(cls, z, tau):
    """The table of the notes: d L / d z_n for C = z_n . z_m, all 2N rows."""
    n = len(z) // 2
    x = z @ z.T / tau
    rows = []
    for i in range(2 * n):
        other = (i + n) % (2 * n)
        push = sum(PUSH[cls](x[i, m]) * z[m] for m in range(2 * n) if m not in (i, other))
        pull = PULL[cls](x[i, other]) * z[other]
        rows.append(-pull / (n * tau) + 2 * push / (2 * n * (2 * n - 2) * tau))
    return torch.stack(rows)


@pytest.mark.parametrize("cls", ALL)
def test_as_printed(cls) -> None:
    a, b = (unit(x) for x in batch("random", 5, 4))
    attract, repel = by_hand(cls, a, b, 0.3)
    objective = cls(temperature=0.3)
    torch.testing.assert_close(objective(a, b), attract + repel)
    # supplement, table 2, with + e^{+C/tau} for v3 (notes d43)
    torch.testing.assert_close(objective.parts.attraction(a, b), attract)
    torch.testing.assert_close(objective.parts.repulsion(a, b), repel)


def test_the_printed_repulsion_of_v3_is_another() -> None:
    """Notes d43: table 2 of the supplement has -e^{-C/tau}."""
    a, b = (unit(x) for x in batch("random", 5, 4))
    z, n = torch.cat([a, b]), 5
    off = ~torch.eye(n, dtype=torch.bool).repeat(2, 2)
    printed = -torch.exp(-(z @ z.T)[off] / 0.3).mean()
    assert (MIOv3(temperature=0.3).parts.repulsion(a, b) - printed).abs() > 0.1


def test_v1_is_binary_cross_entropy() -> None:
    """Notes A8: the released code is BCE with logits, positives and negatives averaged apart."""
    n, tau = 6, 0.2
    a, b = (unit(x) for x in batch("clustered", n, 4))
    z = torch.cat([a, b])
    x = z @ z.T / tau
    positive = torch.eye(n, dtype=torch.bool).repeat(2, 2) & ~torch.eye(2 * n, dtype=torch.bool)
    negative = ~torch.eye(n, dtype=torch.bool).repeat(2, 2)
    assert negative.sum() == 4 * n**2 - 4 * n
    ones, zeros = torch.ones(2 * n), torch.zeros(int(negative.sum()))
    expected = F.binary_cross_entropy_with_logits(x[positive], ones.double())
    expected = expected + F.binary_cross_entropy_with_logits(x[negative], zeros.double())
    torch.testing.assert_close(MIOv1()(a, b), expected)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_gradient_of_plain_products_as_printed(cls, tau: float) -> None:
    n = 5
    z = 0.5 * torch.cat(batch("random", n, 4))
    x = z.clone().requires_grad_()
    (found,) = torch.autograd.grad(dot_product(cls(temperature=tau), x[:n], x[n:]), x)
    torch.testing.assert_close(found, slopes(cls, z, tau))


@pytest.mark.parametrize("cls", ALL)
def test_gradient_by_a_linear_projector_as_printed(cls) -> None:
    """Supplement, eq. 14, 27, 33: A_nm^(k) = z_n^(k) h_m + z_m^(k) h_n, for column k of psi."""
    n, tau = 4, 0.5
    h = torch.cat(batch("random", n, 3))
    psi = 0.3 * batch("random", 3, 2)[0].requires_grad_()
    z = h @ psi
    (found,) = torch.autograd.grad(dot_product(cls(temperature=tau), z[:n], z[n:]), psi)
    z = z.detach()
    x = z @ z.T / tau

    def product(i, m, k):
        return z[i, k] * h[m] + z[m, k] * h[i]

    for k in range(2):
        pull = sum(PULL[cls](x[i, i + n]) * product(i, i + n, k) for i in range(n))
        push = sum(
            PUSH[cls](x[i, m]) * product(i, m, k)
            for i in range(2 * n)
            for m in range(2 * n)
            if (m - i) % n != 0
        )
        expected = -pull / (n * tau) + push / (2 * n * (2 * n - 2) * tau)
        torch.testing.assert_close(found[:, k], expected)


@pytest.mark.parametrize("cls", ALL)
def test_gradient_of_cosines_is_projected_and_divided_by_the_norm(cls) -> None:
    """Notes d47: eq. 14, 27 and 33 without the projection are not the cosine's gradient."""
    n, tau = 5, 0.2
    raw = torch.cat(batch("random", n, 4))
    x = raw.clone().requires_grad_()
    (found,) = torch.autograd.grad(cls(temperature=tau)(x[:n], x[n:]), x)
    z, norms = unit(raw), raw.norm(dim=1, keepdim=True)
    printed = slopes(cls, z, tau)
    torch.testing.assert_close(found, tangent(printed, z) / norms)
    assert (found - printed).abs().max() > 0.1


@pytest.mark.parametrize("cls", ALL)
def test_components(cls) -> None:
    n, tau = 5, 0.2
    a, b = (unit(x) for x in batch("random", n, 4))
    terms = cls(temperature=tau).terms(a, b)
    assert terms.against == "both"
    x = a @ torch.cat([b, a]).T / tau
    off = ~torch.eye(n, dtype=torch.bool).repeat(1, 2)
    torch.testing.assert_close(terms.weight, PUSH[cls](x) * off / (tau * (2 * n - 2)))
    torch.testing.assert_close(terms.pull, PULL[cls](x.diagonal()) / tau)
    assert terms.dissipation.tolist() == [1.0] * n
    assert terms.scale == 1 / (2 * n)
    # every pair is seen from both sides, so an anchor receives as much as it is given
    direction = terms.weight @ torch.cat([b, a]) - terms.pull[:, None] * b
    torch.testing.assert_close(terms.residual, direction)


def test_each_version_is_an_upper_bound_of_the_one_before() -> None:
    """log(1 + e^x) < e^x, and never equal: v3 touches v2 nowhere (notes d46)."""
    for kind in ("random", "clustered", "antipodal"):
        a, b = batch(kind, 7, 4)
        assert MIOv3()(a, b) > MIOv2()(a, b)
        difference = F.softplus((unit(a) * unit(b)).sum(1) / 0.2).mean()
        torch.testing.assert_close(MIOv1()(a, b) - MIOv2()(a, b), difference)


def test_v1_never_repels_positives() -> None:
    """Notes d50: the expanded attraction -x + log(1 + e^x) falls wherever it is looked at."""
    angles = torch.linspace(0, math.pi, 50, dtype=torch.float64)
    a = torch.stack([angles.cos(), angles.sin()], dim=1)
    b = torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(50, 1)
    terms = MIOv1().terms(a, b)
    assert (terms.pull > 0).all()
    assert (terms.pull.diff() > 0).all()  # and the farther the positive, the harder the pull


@pytest.mark.parametrize("cls", ALL)
def test_groups_leave_pairs_out_of_the_mean(cls) -> None:
    a, b = (unit(x) for x in batch("random", 4, 4))
    groups = torch.tensor([0, 0, 1, 2])
    z, label = torch.cat([a, b]), torch.cat([groups, groups])
    x = z @ z.T / 0.2
    rows = [NEGATIVE[cls](x[k])[label != label[k]].mean() for k in range(8)]
    found = cls().parts.repulsion(a, b, groups=groups)
    torch.testing.assert_close(found, torch.stack(rows).mean())


@pytest.mark.parametrize("cls", ALL)
def test_further_negatives_are_pairs_like_others(cls) -> None:
    a, b = (unit(x) for x in batch("random", 4, 4))
    queue = unit(batch("random", 3, 4, seed=1)[0])
    rows = []
    for own, other in ((a, b), (b, a)):
        x = own @ torch.cat([other, own, queue]).T / 0.2
        keep = torch.cat([~torch.eye(4, dtype=torch.bool)] * 2 + [torch.ones(4, 3) > 0], dim=1)
        rows.append(torch.stack([NEGATIVE[cls](x[i])[keep[i]].mean() for i in range(4)]).mean())
    found = cls().parts.repulsion(a, b, queue)
    torch.testing.assert_close(found, (rows[0] + rows[1]) / 2)


@pytest.mark.parametrize("cls", ALL)
def test_second_derivatives(cls) -> None:
    a, b = batch("random", 3, 3)
    objective = cls(temperature=0.5)
    assert torch.autograd.gradgradcheck(objective, (a.requires_grad_(), b.requires_grad_()))


@pytest.mark.parametrize(("cls", "version"), [(MIOv1, "v1"), (MIOv2, "v2"), (MIOv3, "v3")])
def test_hessian_by_a_linear_projector(cls, version: str) -> None:
    """Supplement, eq. 25, 28, 34, with B where l = k (notes d48), from the registered formula."""
    n, tau = 3, 0.5
    h = torch.cat(batch("random", n, 3))
    psi = 0.3 * batch("random", 3, 2)[0]

    def loss(columns):
        z = h @ columns.reshape(2, 3).T
        return dot_product(cls(temperature=tau), z[:n], z[n:])

    found = torch.autograd.functional.hessian(loss, psi.T.flatten())
    torch.testing.assert_close(found, mio_hessian(h, psi, tau, version))


# MIOv3 at the end of a dtype's range


def equal_rows(n, dtype):
    x = torch.tensor([[0.6, 0.8, 0.0]], dtype=dtype).repeat(n, 1)
    return x.clone().requires_grad_(), x.clone().requires_grad_()


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 0.01188), (torch.float64, 0.00143)], ids=str
)
def test_a_temperature_that_overflows_is_refused_with_its_bound(dtype, bound: float) -> None:
    assert coldest(dtype) == bound
    # e^{1/tau} overflows below 1 / log(max), .01127 in float32; its slope e^{1/tau} / tau first
    greatest = math.log(torch.finfo(dtype).max)
    assert 1 / greatest < bound < 1.06 / greatest
    assert 1 / bound - math.log(bound) < greatest
    a, b = equal_rows(2, dtype)
    cold = MIOv3(temperature=math.nextafter(bound, 0))
    match = rf"raise the temperature to at least {bound}, .* derivative overflows {dtype}"
    with pytest.raises(Overflow, match=match):
        cold(a, b)
    with pytest.raises(Overflow, match="use MIOv2, which does not overflow"):
        cold.terms(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [2, 3, 64])
def test_at_the_bound_everything_is_finite(dtype, n: int) -> None:
    objective = MIOv3(temperature=coldest(dtype))
    a, b = equal_rows(n, dtype)
    value = objective(a, b)
    value.backward()
    terms = objective.terms(a, b)
    for x in (value, a.grad, b.grad, terms.weight, terms.residual):
        assert torch.isfinite(x).all()
    assert value > 1e30
    # and where the steepest descent is: a little off the equal rows
    x = (a + 0.05 * torch.eye(3, dtype=dtype)[torch.arange(n) % 3]).detach().requires_grad_()
    (found,) = torch.autograd.grad(objective(x, b), x)
    assert torch.isfinite(found).all()
    assert found.abs().max() > 1e30


def test_half_precision_has_the_bound_of_float32() -> None:
    a, b = equal_rows(3, torch.bfloat16)
    assert torch.isfinite(MIOv3(temperature=0.01188)(a, b))
    with pytest.raises(Overflow, match=r"overflows torch\.float32"):
        MIOv3(temperature=0.0113)(a, b)


def test_the_attraction_of_v3_has_no_bound() -> None:
    a, b = batch("random", 3, 3)
    assert torch.isfinite(MIOv3(temperature=1e-4).parts.attraction(a.float(), b.float()))


@pytest.mark.parametrize("cls", ALL)
def test_the_temperature_may_be_learnt(cls) -> None:
    a, b = batch("random", 4, 3)
    tau = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: cls(temperature=t)(a, b), tau)
