"""The inequalities of Nie et al. 2023, and that what was printed wrongly does fail."""

import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.views import unit
from isotrope.objectives import InfoNCE
from tests.paradigm.batches import BATCHES, batch
from tests.theorems.bound import Bound
from tests.theorems.contrastive import (
    dcl_uniformity_bound,
    infonce_bounds,
    mixed_negatives_bound,
    mixed_positive_bound,
    spread,
    uniformity_bound,
)


def random_batches(count: int):
    """Batches of all kinds: loose and tight, few and many rows, temperatures from .01 to 1."""
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        n, d = (int(torch.randint(2, high, (), generator=generator)) for high in (12, 10))
        tau = 10 ** float(-2 * torch.rand((), generator=generator))
        a, b = batch(list(BATCHES)[seed % len(BATCHES)], n, d, seed=seed)
        yield generator, unit(a), unit(b), tau


def others(generator, n: int, m: int) -> torch.Tensor:
    """N x m rows, none the anchor's own."""
    rows = torch.randint(1, n, (n, m), generator=generator)
    return (rows + torch.arange(n)[:, None]) % n


def test_a_bound_holds_up_to_rounding() -> None:
    one = torch.ones(3, dtype=torch.float64)
    bound = Bound(one + torch.tensor([-1, 1e-15, 1e-9]).double(), one)
    assert bound.holds.tolist() == [True, True, False]
    assert bound.gap[0] == 1


def test_infonce_under_dcl_plus_under_a_triplet_loss() -> None:
    """Eq. 12, notes d29: no violation in 2,000 random batches, with log(N - 1)."""
    tighter = 0
    for _, a, b, tau in random_batches(2000):
        first, second = infonce_bounds(3 * a, b, tau)
        assert first.holds.all()
        assert second.holds.all()
        assert (first.gap <= math.log(2) + 1e-9).all()
        # with N the number of negatives, as eq. 1 has it, the margin would be larger than needed
        tighter += bool((second.gap < math.log(len(a) / (len(a) - 1)) - 1e-9).any())
    assert tighter > 100


def test_both_sides_of_eq_12_by_hand() -> None:
    tau, n = 0.2, 9
    a, b = (unit(x) for x in batch("random", n, 4))
    first, second = infonce_bounds(a, b, tau)
    torch.testing.assert_close(first.left, InfoNCE(temperature=tau).per_anchor(a, b))
    s = a @ b.T
    off = s.masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
    dcl = -s.diagonal() / tau + (off / tau).logsumexp(1)
    torch.testing.assert_close(first.right, math.log(2) + dcl.clamp(min=0))
    assert first.right is second.left
    margin = tau * math.log(n - 1)
    mpt = F.relu(off.amax(1) - s.diagonal() + margin)
    torch.testing.assert_close(second.right, math.log(2) + mpt / tau)
    assert 0 < (dcl > 0).sum() < n


def test_uniformity_over_the_distances() -> None:
    """Eq. 44 and 46: Jensen's inequality, and equality where all distances are one."""
    for generator, a, b, tau in random_batches(500):
        t = 5 * float(torch.rand((), generator=generator))
        assert uniformity_bound(a, b, t).holds
        assert dcl_uniformity_bound(a, b, tau).holds
    even = torch.eye(5, dtype=torch.float64)
    assert float(spread(even, even)) == 2
    for bound in (uniformity_bound(even, even), dcl_uniformity_bound(even, even, 0.05)):
        torch.testing.assert_close(bound.left, bound.right, atol=1e-12, rtol=0)


def test_what_the_two_lower_bounds_share() -> None:
    t, tau, n = 2.0, 0.05, 12
    a, b = (unit(x) for x in batch("clustered", n, 6))
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    d = sum((a[i] - b[j]).square().sum() for i, j in pairs) / len(pairs)
    torch.testing.assert_close(spread(a, b), d)
    one, other = uniformity_bound(a, b, t), dcl_uniformity_bound(a, b, tau)
    torch.testing.assert_close(one.left, -t * d)
    torch.testing.assert_close(other.left, -d / (2 * tau) + 1 / tau)
    by_hand = sum(torch.exp(-t * (a[i] - b[j]).square().sum()) for i, j in pairs) / len(pairs)
    torch.testing.assert_close(one.right, by_hand.log())
    rows = [torch.stack([a[i] @ b[j] / tau for j in range(n) if j != i]) for i in range(n)]
    mean = torch.stack([r.exp().mean().log() for r in rows]).mean()
    torch.testing.assert_close(other.right, mean)


def test_the_printed_constant_of_eq_46_is_not_that_of_the_step_before() -> None:
    """Notes d30: 1/tau is 20, the printed 1/(2 tau M (N - 1)) is .076 with M = N = 12."""
    tau, n = 0.05, 12
    a, b = (unit(x) for x in batch("clustered", n, 6))
    off = ~torch.eye(n, dtype=torch.bool)
    mean = (a @ b.T)[off].mean() / tau  # the line before, which Jensen's inequality gives
    assert round(1 / tau, 3) == 20
    printed = 1 / (2 * tau * n * (n - 1))
    assert round(printed, 3) == 0.076
    torch.testing.assert_close(dcl_uniformity_bound(a, b, tau).left, mean)
    assert abs(-spread(a, b) / (2 * tau) + printed - mean) > 19


def infonce_with(a, b, tau, mixtures):
    """InfoNCE with mixtures (n x M x d) as additional negatives."""
    logits = torch.cat([a @ b.T, (a[:, None] * mixtures).sum(-1)], dim=1) / tau
    return logits.logsumexp(1) - logits.diagonal()


@pytest.mark.slow
def test_mixed_negatives_of_both_kinds() -> None:
    """Eq. 50 and 51, DETAILS: 0 violations in 2,000 random batches; both cases of 51 occur."""
    by_mixture = by_negative = 0
    for generator, a, b, tau in random_batches(2000):
        n = len(a)
        m = int(torch.randint(1, 6, (), generator=generator))
        share = float(torch.rand((), generator=generator)) / 2
        first, second = others(generator, n, m), others(generator, n, m)
        assert mixed_negatives_bound(a, b, first, second, share, tau).holds.all()
        bound = mixed_positive_bound(a, b, second, share, tau)
        assert bound.holds.all()
        s = a @ b.T
        hardest = s.masked_fill(torch.eye(n, dtype=torch.bool), -9).amax(1)
        mixed = (share * s.diagonal()[:, None] + (1 - share) * s.gather(1, second)).amax(1)
        by_mixture += int((mixed > hardest).sum())
        by_negative += int((mixed < hardest).sum())
    assert min(by_mixture, by_negative) > 500


def test_both_sides_of_eq_50_and_51_by_hand() -> None:
    n, m, share, tau = 7, 4, 0.3, 0.1
    a, b = (unit(x) for x in batch("random", n, 5))
    a = unit(a + b)
    generator = torch.Generator().manual_seed(0)
    first, second = others(generator, n, m), others(generator, n, m)
    s = a @ b.T
    own, hardest = s.diagonal(), s.masked_fill(torch.eye(n, dtype=torch.bool), -9).amax(1)
    count = math.log(n - 1 + m)

    bound = mixed_negatives_bound(a, b, first, second, share, tau)
    mixtures = share * b[first] + (1 - share) * b[second]
    torch.testing.assert_close(bound.left, infonce_with(a, b, tau, mixtures))
    eq50 = math.log(2) + F.relu(hardest - own + tau * count) / tau
    torch.testing.assert_close(bound.right, eq50)

    bound = mixed_positive_bound(a, b, second, share, tau)
    mixtures = share * b[:, None] + (1 - share) * b[second]
    torch.testing.assert_close(bound.left, infonce_with(a, b, tau, mixtures))
    most = s.gather(1, second).amax(1)
    inner = most - own + tau / (1 - share) * count
    eq51 = math.log(2) + (1 - share) / tau * F.relu(inner)
    by_mixture = torch.einsum("nd,nmd->nm", a, mixtures).amax(1) > hardest
    torch.testing.assert_close(bound.right, torch.where(by_mixture, eq51, eq50))
    assert 0 < by_mixture.sum() < n


def test_eq_50_is_false_for_normalised_mixtures() -> None:
    """DETAILS: on the sphere a mixture may be closer to the anchor than either part."""
    broken = 0
    for generator, a, b, tau in random_batches(400):
        n = len(a)
        first, second = others(generator, n, 8), others(generator, n, 8)
        mixtures = unit(0.5 * b[first] + 0.5 * b[second])
        bound = mixed_negatives_bound(a, b, first, second, 0.5, tau)
        false = Bound(infonce_with(a, b, tau, mixtures), bound.right)
        broken += not bool(false.holds.all())
    assert broken > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"renormalise": True}, "found renormalise=True, for which they are false"),
        ({"share": 1.5}, "share must be between 0 and 1; found 1.5"),
        ({"rows": torch.zeros(4, 1, dtype=torch.long)}, "found an anchor's own positive among"),
        ({"rows": torch.ones(3, 1, dtype=torch.long)}, r"need 4 x M rows .* found \(3, 1\)"),
        ({"rows": torch.ones(4, 0, dtype=torch.long)}, r"need 4 x M rows .* found \(4, 0\)"),
        ({"rows": torch.ones(4, dtype=torch.long)}, r"need 4 x M rows .* found \(4,\)"),
    ],
)
def test_mixtures_that_are_refused(change, message) -> None:
    a, b = batch("random", 4, 3)
    rows = change.pop("rows", (torch.arange(4)[:, None] + 1) % 4)
    share = change.pop("share", 0.2)
    with pytest.raises(ValueError, match=message):
        mixed_negatives_bound(a, b, rows, rows, share, 0.1, **change)
    with pytest.raises(ValueError, match=message):
        mixed_positive_bound(a, b, rows, share, 0.1, **change)


def test_a_single_row_has_no_negatives() -> None:
    a, b = batch("random", 2, 3)
    with pytest.raises(ValueError, match="InfoNCE compares rows with each other; found 1"):
        infonce_bounds(a[:1], b[:1], 0.05)
