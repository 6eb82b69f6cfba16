"""Mixed negatives by loops over anchors, and what mixing does to the ratio."""

import math

import pytest
import torch

from isotrope.core.views import Views, unit
from isotrope.objectives import InfoNCE, MixCSE, MixedInfoNCE
from isotrope.paradigm.assemble import assemble, tangent
from tests.paradigm.batches import batch
from tests.theorems.contrastive import mixed_negatives_bound, mixed_positive_bound

TAU = 0.2
ALL = [
    MixedInfoNCE(temperature=TAU),
    MixedInfoNCE(temperature=TAU, renormalise=False),
    MixedInfoNCE(temperature=TAU, mix="positive", share=0.4),
    MixedInfoNCE(temperature=TAU, mix="positive", share=0.4, renormalise=False),
    MixCSE(temperature=TAU, share=0.3),
]


def spread(n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = batch("random", n, d, seed)
    mix = torch.linspace(0.1, 4, n, dtype=torch.float64)[:, None]
    return unit(a), unit(a + mix * b)


def parts(objective, a, b, i) -> tuple[int, int]:
    """Which rows the mixture of anchor i is made of: the guest and the host."""
    if isinstance(objective, MixCSE):
        return i, (i + 1) % len(b)
    ranked = sorted((k for k in range(len(b)) if k != i), key=lambda k: -(a[i] @ b[k]).item())
    return (i if objective.mix == "positive" else ranked[1]), ranked[0]


def by_hand(objective, a, b):
    """Losses, and the ambient gradient of each anchor's loss with the mixture on its own."""
    losses, rows = [], []
    for i in range(len(a)):
        guest, host = parts(objective, a, b, i)
        x = objective.share * b[guest] + (1 - objective.share) * b[host]
        x = (x if not getattr(objective, "renormalise", True) else x / x.norm()).detach()
        others = [b[j] for j in range(len(b)) if j != i] + [x]
        e = [torch.exp(a[i] @ y / TAU) for y in others]
        total = torch.exp(a[i] @ b[i] / TAU) + sum(e)
        losses.append(-torch.log(torch.exp(a[i] @ b[i] / TAU) / total))
        rows.append(sum(w * (y - b[i]) for w, y in zip(e, others, strict=True)) / (TAU * total))
    return torch.stack(losses), torch.stack(rows)


@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_value_and_gradient_by_loops(objective) -> None:
    """Absorbed into W and R, the mixture leaves the gradient as it is; ambient, too."""
    n, (a, b) = 10, spread(10, 6)
    losses, rows = by_hand(objective, a, b)
    torch.testing.assert_close(objective.per_anchor(a, b), losses)
    terms = objective.terms(a, b)
    torch.testing.assert_close(assemble(terms, Views(a, b)), rows)
    assert terms.residual is None
    h, other = a.clone().requires_grad_(), b.clone().requires_grad_()
    found = torch.autograd.grad(objective(h, other), (h, other))
    torch.testing.assert_close(n * found[0], tangent(rows, a))
    # the mixtures are constant for what they are made of
    live = b.clone().requires_grad_()
    (expected,) = torch.autograd.grad(by_hand(objective, a, live)[0].mean(), live)
    torch.testing.assert_close(found[1], tangent(expected, b))


@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_what_mixing_does_to_the_ratio(objective) -> None:
    """Without renormalising R = 1; on the sphere a mixture pushes more than it takes away."""
    a, b = spread(12, 6)
    ratio = objective.terms(a, b).ratio
    if getattr(objective, "renormalise", True):
        assert (ratio < 1).all()
        assert ratio.min() < 0.99
    else:
        torch.testing.assert_close(ratio, torch.ones(12, dtype=torch.float64))


def test_the_dynamic_ratio_of_one_negative() -> None:
    """R = (Z + c (Z - lambda) / (1 - lambda)) / (Z + c), c = (1 - lambda) e^{(h.x - h.h_j)/tau}.

    Notes A4: a released statistic has (1 + c) / (Z + c), which exceeds 1.
    """
    share, (a, b) = 0.3, spread(2, 5)
    for i, j in ((0, 1), (1, 0)):
        x = share * b[i] + (1 - share) * b[j]
        z = x.norm()
        c = torch.exp(a[i] @ (x / z - b[j]) / TAU) * (1 - share)
        ratio = MixCSE(temperature=TAU, share=share).terms(a, b).ratio[i]
        torch.testing.assert_close(ratio, (z + c * (z - share) / (1 - share)) / (z + c))
        assert (1 + c) / (z + c) > 1 > ratio


def test_without_a_guest_the_host_counts_twice() -> None:
    """share = 0: the mixture is the negative itself."""
    a, b = spread(7, 5)
    doubled = torch.stack(
        [InfoNCE(temperature=TAU)(a[i : i + 1], b[i : i + 1], torch.cat([b[:i], b[i + 1 :], x]))
         for i in range(7) for x in [b[[(i + 1) % 7]]]]
    )  # fmt: skip
    torch.testing.assert_close(MixCSE(temperature=TAU, share=0.0).per_anchor(a, b), doubled)


def test_the_value_of_mixcse_depends_on_the_order_of_the_batch() -> None:
    a, b = spread(7, 5)
    order = torch.tensor([1, 0, 2, 3, 4, 5, 6])
    assert abs(float(MixCSE()(a, b) - MixCSE()(a[order], b[order]))) > 1e-6


@pytest.mark.parametrize("tau", [0.05, 0.2])
def test_the_bounds_of_nie_et_al(tau: float) -> None:
    """Eq. 50 and 51 with M = 1: their left sides are these losses."""
    n, (a, b) = 24, spread(24, 12)
    nearest = (a @ b.T).fill_diagonal_(-9).argsort(dim=1, descending=True)
    host, guest = nearest[:, :1], nearest[:, 1:2]
    bound = mixed_negatives_bound(a, b, guest, host, 0.2, tau)
    losses = MixedInfoNCE(temperature=tau, renormalise=False).per_anchor(a, b)
    torch.testing.assert_close(bound.left, losses)
    assert (losses <= bound.right).all()
    bound = mixed_positive_bound(a, b, host, 0.4, tau)
    losses = MixedInfoNCE(temperature=tau, mix="positive", share=0.4, renormalise=False).per_anchor(
        a, b
    )
    torch.testing.assert_close(bound.left, losses)
    assert (losses <= bound.right).all()
    # where both sides are close, InfoNCE alone is well below: the mixture matters
    assert (losses - InfoNCE(temperature=tau).per_anchor(a, b)).max() > 0.1
    assert n == len(losses)


def test_too_few_negatives_leave_infonce() -> None:
    a, b = spread(2, 5)
    torch.testing.assert_close(MixedInfoNCE()(a, b), InfoNCE()(a, b))
    a, b = spread(6, 5)
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    values = MixCSE().per_anchor(a, b, groups=groups)
    plain = InfoNCE().per_anchor(a, b, groups=groups)
    # the next row of 0, 2 and 4 is one of their group
    torch.testing.assert_close(values[::2], plain[::2])
    assert (values[1::2] > plain[1::2]).all()


def test_a_mixture_of_opposites_has_no_direction() -> None:
    a, _ = spread(2, 4)
    b = torch.stack([a[0], -a[0]])
    halves = MixedInfoNCE(mix="positive", share=0.5)
    torch.testing.assert_close(halves(a, b), InfoNCE()(a, b))
    torch.testing.assert_close(MixCSE(share=0.5)(a, b), InfoNCE()(a, b))


def test_further_negatives_are_mixed_too() -> None:
    a, b = spread(8, 5)
    queue = unit(a + 0.01)  # row i of it is the hardest negative of anchor i
    mixed = MixedInfoNCE(temperature=TAU, mix="positive").terms(a, b, queue).weight
    plain = InfoNCE(temperature=TAU).terms(a, b, queue).weight
    gain = (mixed / plain).nan_to_num(nan=0.0)  # 0/0 at the positives
    assert torch.equal(gain.argmax(dim=1), torch.arange(8, 16))


def test_gathered_keys_keep_their_own_positive() -> None:
    a, b = spread(9, 5)
    for objective in ALL:
        whole = objective.formula(objective.compare(Views(a, b)))
        local = objective.formula(objective.compare(Views(a[3:6], b, offset=3)))
        torch.testing.assert_close(local, whole[3:6])
        mine = objective.components(objective.compare(Views(a[3:6], b, offset=3)))
        torch.testing.assert_close(mine.weight, objective.terms(a, b).weight[3:6])


@pytest.mark.parametrize("cls", [MixedInfoNCE, MixCSE])
def test_a_mixture_is_mostly_negative(cls) -> None:
    with pytest.raises(ValueError, match=r"share of .* must be >= 0, <= 0\.5; found 0\.6"):
        cls(share=0.6)


def test_symmetric_mixcse_is_the_mean_of_its_directions() -> None:
    a, b = spread(6, 5)
    both = MixCSE().symmetric()
    torch.testing.assert_close(both(a, b), (MixCSE()(a, b) + MixCSE()(b, a)) / 2)
    assert both.hyperparameters() == {"temperature": 0.05, "share": 0.2, "symmetric": True}
    x = a.clone().requires_grad_()
    (found,) = torch.autograd.grad(both(x, b), x)
    terms = both.terms(a, b)
    expected = tangent(terms.scale * assemble(terms, Views(a, b)), a)
    torch.testing.assert_close(found, expected)


def test_the_example_value() -> None:
    """log(e + 1 + e^{1/sqrt 2}) - 1: the mixture halfway between two orthogonal rows."""
    h = torch.eye(2, dtype=torch.float64)
    expected = math.log(math.e + 1 + math.exp(0.5**0.5)) - 1
    assert float(MixCSE(share=0.5, temperature=1.0)(h, h)) == pytest.approx(expected, rel=1e-14)
