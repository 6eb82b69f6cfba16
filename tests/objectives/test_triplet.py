"""MPT, MET and MAT against what Li et al. 2024 and Nie et al. 2023 print, misprints included."""

import math

import pytest
import torch

from isotrope.core.views import Views, unit
from isotrope.objectives import MAT, MET, MPT, InfoNCE
from isotrope.paradigm import proof
from isotrope.paradigm.assemble import assemble, tangent
from tests.paradigm.batches import batch

CLASSES = [MPT, MET, MAT]

# rho(s): what each class measures its margin in, and minus its derivative by s
APART = {
    MPT: (lambda s: -s, lambda s: torch.ones_like(s)),
    MET: (lambda s: (2 - 2 * s).sqrt(), lambda s: (2 - 2 * s).rsqrt()),
    MAT: (torch.arccos, lambda s: (1 - s**2).rsqrt()),
}


def spread(n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Positives at all angles, so that some anchors are active and others are not."""
    a, b = batch("random", n, d, seed)
    mix = torch.linspace(0.1, 4, n, dtype=torch.float64)[:, None]
    return unit(a), unit(a + mix * b)


def gradient(objective, h, other):
    h = h.clone().requires_grad_()
    return torch.autograd.grad(objective(h, other), h)[0]


def by_hand(cls, a, b, margin, *, hardest=max, active=lambda p, n, m: n - p < m):
    """The loss and the gradient, anchor by anchor: eq. 3 of Li et al. 2024, mean over all anchors.

    ``hardest`` picks a negative by its similarity; ``active`` is the condition on rho of the
    positive, rho of that negative, and the margin.
    """
    rho, steep = APART[cls]
    n, s = len(a), a @ b.T
    losses, rows = [], []
    for i in range(n):
        j = hardest((k for k in range(n) if k != i), key=lambda k: float(s[i, k]))
        p, q = rho(s[i, i]), rho(s[i, j])
        losses.append(torch.relu(margin + p - q))
        step = steep(s[i, j]) * b[j] - steep(s[i, i]) * b[i]
        rows.append(float(active(p, q, margin)) * step)
    return torch.stack(losses).mean(), torch.stack(rows) / n


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("margin", [0.0, 0.2, 0.4, 4.0])
def test_value_and_gradient_as_printed(cls, margin: float) -> None:
    a, b = spread(24, 12)
    value, rows = by_hand(cls, a, b, margin)
    torch.testing.assert_close(cls(margin=margin)(a, b), value)
    torch.testing.assert_close(gradient(cls(margin=margin), a, b), tangent(rows, a))
    active = float(cls(margin=margin).terms(a, b).dissipation.mean())
    assert 0 < active < 1 or margin == 4.0, "both branches occur, but nothing is 4 apart"


def test_met_gradient_in_the_ambient_space() -> None:
    """Notes d4: by the distance itself there is a radial part h_i (1/d_p - 1/d_n) besides."""
    a, b = spread(12, 5)
    h = a.clone().requires_grad_()
    s = (a @ b.T).fill_diagonal_(-9)
    j = s.argmax(dim=1)
    near, far = (h - b).norm(dim=1), (h - b[j]).norm(dim=1)
    (ambient,) = torch.autograd.grad((0.45 + near - far).relu().sum(), h)
    p, n = near.detach()[:, None], far.detach()[:, None]
    active = (n - p < 0.45).double()
    torch.testing.assert_close(ambient, active * (b[j] / n - b / p + a * (1 / p - 1 / n)))
    terms = MET().terms(a, b)
    ours = assemble(terms, Views(a, b))
    torch.testing.assert_close(tangent(ambient, a), tangent(ours, a))
    torch.testing.assert_close(ours, active * (b[j] / n - b / p))


@pytest.mark.parametrize("cls", CLASSES)
def test_the_hardest_negative_is_the_nearest(cls) -> None:
    """Notes d1: the printed - max d would take the farthest, and errs by .38."""
    a, b = spread(24, 12)
    margin = cls().margin
    farthest, _ = by_hand(cls, a, b, margin, hardest=min)
    assert abs(float(cls()(a, b) - farthest)) > 0.1


@pytest.mark.parametrize("margin", [0.0, 0.2, 0.45, 0.7])
def test_met_is_active_while_the_negative_is_not_far_enough(margin: float) -> None:
    """Notes d3: appendix D of Li et al. 2024 reverses the difference of the condition."""
    a, b = spread(24, 12)
    _, wrong = by_hand(MET, a, b, margin, active=lambda p, n, m: p - n < m)
    found = gradient(MET(margin=margin), a, b)
    assert (found - tangent(wrong, a)).norm(dim=1).max() * len(a) > 0.5


@pytest.mark.parametrize(
    ("cls", "printed"),
    [
        # in similarities eq. 20 prints s_p + s_n < m; p = -s_p and n = -s_n here
        (MPT, lambda p, n, m: -p - n < m),
        (MET, lambda p, n, m: p - n < m),
        (MAT, lambda p, n, m: p - n < m),
    ],
)
def test_conditions_that_nie_et_al_misprint(cls, printed) -> None:
    """Notes d27: eq. 20-22 of Nie et al. 2023."""
    a, b = spread(24, 12)
    _, wrong = by_hand(cls, a, b, cls().margin, active=printed)
    assert (gradient(cls(), a, b) - tangent(wrong, a)).norm(dim=1).max() * len(a) > 0.3


@pytest.mark.parametrize(
    ("cls", "attraction", "repulsion"),
    [
        (MPT, torch.sin, torch.sin),
        (MET, lambda t: torch.cos(t / 2), lambda t: torch.cos(t / 2)),
        (MAT, torch.ones_like, torch.ones_like),
    ],
)
def test_gradient_norms_of_both_parts(cls, attraction, repulsion) -> None:
    """Nie et al. 2023, eq. 20-22 and 39-40, the condition the right way round (d27, d28)."""
    a, b = spread(24, 12)
    raw = 3 * a
    s = a @ b.T
    hardest = s.clone().fill_diagonal_(-9).amax(dim=1)
    terms = cls().terms(a, b)
    pull = gradient(cls().parts.attraction, raw, b).norm(dim=1) * len(a)
    push = gradient(cls().parts.repulsion, raw, b).norm(dim=1) * len(a)
    near, far = torch.arccos(s.diagonal()), torch.arccos(hardest)
    torch.testing.assert_close(pull, terms.dissipation * attraction(near) / 3)
    torch.testing.assert_close(push, terms.dissipation * repulsion(far) / 3)


@pytest.mark.parametrize("cls", CLASSES)
def test_the_gradient_stops_at_the_margin_exactly(cls) -> None:
    """At equality the subgradient is 0, as that of torch's relu (strict <)."""
    a, b = torch.eye(2, dtype=torch.float64).repeat_interleave(5, dim=0).split(5)
    # every positive and every negative orthogonal to the anchor, without rounding
    assert float(cls(margin=0.0).terms(a, b).dissipation.sum()) == 0
    assert float(cls(margin=1e-9).terms(a, b).dissipation.sum()) == 5
    assert (cls(margin=0.0).per_anchor(a, b) == 0).all()


@pytest.mark.parametrize("cls", CLASSES)
def test_ties_take_the_first_negative(cls) -> None:
    a = torch.tensor([[1.0, 0], [0, 1], [0, 1]], dtype=torch.float64)
    b = torch.tensor([[0.6, 0.8], [0.8, 0.6], [0.8, 0.6]], dtype=torch.float64)
    weight = cls(margin=1.0).terms(a, b).weight
    assert weight[0, 1] > 0
    assert weight[0, 2] == 0


@pytest.mark.parametrize("cls", [MET, MAT])
def test_clamped_pairs_neither_pull_nor_push(cls) -> None:
    """Closer than .01 the distance and the angle are held: the papers' codes give inf or NaN."""
    a, _ = batch("random", 6, 4)
    terms = cls(margin=4.0).terms(a, a)
    assert (terms.pull == 0).all()
    assert (terms.ratio == 0).all()
    assert (terms.mass > 0).all()
    assert torch.isfinite(gradient(cls(margin=4.0), a, a)).all()
    twins = torch.cat([a[:1], a])  # rows 0 and 1 are each other's hardest negative, at distance 0
    shifted = unit(twins) + 0.3 * torch.randn(7, 4, dtype=torch.float64)
    shifted[1] = twins[0]
    terms = cls(margin=4.0).terms(twins, shifted)
    assert float(terms.mass[0]) == 0
    assert float(terms.pull[0]) > 0, "the positive of a clamped negative still pulls"


def test_met_ratio_of_the_exact_fact() -> None:
    """R = sqrt((1 - cos pi/3) / (1 - cos pi/6)) = 1.9319 (Li et al. 2024, table 1)."""
    plane = [0.0, math.pi / 6, -math.pi / 3]
    rows = torch.tensor([[math.cos(t), math.sin(t)] for t in plane], dtype=torch.float64)
    a, b = rows[[0, 0]], rows[[1, 2]]
    terms = MET().terms(a, b)
    assert float(terms.ratio[0]) == pytest.approx(1.9319, abs=5e-5)
    angles = MAT(margin=2.0).terms(a, b)
    expected = math.sin(math.pi / 3) / math.sin(math.pi / 6)
    assert float(angles.ratio[0]) == pytest.approx(expected, rel=1e-12)


def test_no_active_anchor_is_zero_and_not_nan() -> None:
    a = torch.eye(4, dtype=torch.float64)
    for cls in CLASSES:
        h = a.clone().requires_grad_()
        value = cls(margin=0.1)(h, a)
        (found,) = torch.autograd.grad(value, h)
        assert value.item() == 0
        assert (found == 0).all()


def test_mpt_bounds_infonce() -> None:
    """Nie et al. 2023, eq. 12: InfoNCE <= log 2 + MPT(tau log(N - 1)) / tau, anchor by anchor."""
    tau = 0.05
    for n in (2, 3, 17, 64):
        a, b = spread(n, 6)
        bound = math.log(2) + MPT(margin=tau * math.log(n - 1)).per_anchor(a, b) / tau
        loss = InfoNCE(temperature=tau).per_anchor(a, b)
        assert (loss <= bound + 1e-12).all()
    # two rows: tau log(N - 1) = 0 and one negative, so the second relaxation is an equality
    a, b = spread(2, 6)
    h = MPT(margin=0.0).per_anchor(a, b) / tau
    loss = InfoNCE(temperature=tau).per_anchor(a, b)
    assert (loss >= h).all()


@pytest.mark.parametrize(
    ("cls", "margins"),
    [
        (MPT, (0.23, 0.24, 0.29, 0.31)),
        (MET, (0.45, 0.50, 0.43, 0.45)),
        (MAT, (0.15 * math.pi, 0.17 * math.pi, 0.14 * math.pi, 0.13 * math.pi)),
    ],
)
def test_presets_of_table_2(cls, margins) -> None:
    backbones = ("bert-base", "bert-large", "roberta-base", "roberta-large")
    assert tuple(cls(preset=b).margin for b in backbones) == margins
    assert cls().margin == margins[0], "BERT-base is the default"
    assert {cls.presets[b].batch_size for b in backbones} == {64 if cls is MPT else 128}


def test_further_negatives_can_be_the_hardest() -> None:
    a, b = spread(8, 5)
    queue = unit(a[:3] + 0.05)
    for cls in CLASSES:
        terms = cls(margin=4.0).terms(a, b, queue)
        assert terms.weight.shape == (8, 11)
        assert (terms.weight[:3, 8:] > 0).any(dim=1).all()


# what the authors' released code computes (notes A2)


def by_column(cls, a, b, margin):
    """h'_i is the anchor; its positive is covered by a cosine of 0, for MET by a distance of 2."""
    rho, _ = APART[cls]
    s = a @ b.T
    eye = torch.eye(len(a), dtype=torch.bool)
    distances = rho(s.masked_fill(eye, -1.0 if cls is MET else 0.0))
    losses = margin + rho(s.diagonal()) - distances.amin(dim=0)
    return torch.where(losses > 0, losses, 0.0).mean()


def obtuse() -> tuple[torch.Tensor, torch.Tensor]:
    """All negatives farther than orthogonal: a simplex, and positives at all angles up to 70."""
    corners = unit(torch.eye(4, dtype=torch.float64) - 0.25)
    return corners, unit(corners + 0.1 * batch("random", 4, 4)[1])


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("margin", [0.0, 0.2, 0.4, 1.2, 4.0])
@pytest.mark.parametrize("views", ["spread", "obtuse"])
def test_released_is_the_released_procedure(cls, margin: float, views: str) -> None:
    """Value and the gradients of both views, to the last digits."""
    a, b = spread(24, 12) if views == "spread" else obtuse()
    found, expected = [], []
    objective = cls(margin=margin, variant="released")
    for loss, into in (
        (objective, found),
        (lambda x, y: by_column(cls, x, y, margin), expected),
    ):
        leaves = [x.clone().requires_grad_() for x in (a, b)]
        value = loss(*leaves)
        into += [value.detach(), *torch.autograd.grad(value, leaves, materialize_grads=True)]
    expected[1:] = [tangent(g, x) for g, x in zip(expected[1:], (a, b), strict=True)]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for x, y in ((a, b), (b, a)):
        assert proof.double_entry(objective, x, y) < 1e-12
        assert proof.parts_error(objective, x, y) < 1e-12


@pytest.mark.parametrize("cls", CLASSES)
def test_released_exchanges_the_views_unless_all_negatives_are_obtuse(cls) -> None:
    a, b = spread(24, 12)
    released = cls(variant="released")
    torch.testing.assert_close(released(a, b), cls()(b, a))
    assert abs(float(released(a, b) - cls()(a, b))) > 1e-3
    margin = {MPT: 1.1, MET: 1.4, MAT: 1.5}[cls]
    a, b = obtuse()
    found = cls(margin=margin, variant="released")(a, b)
    if cls is MET:  # no distance is above 2
        torch.testing.assert_close(found, cls(margin=margin)(b, a))
    else:
        assert float(found - cls(margin=margin)(b, a)) > 0.1


@pytest.mark.parametrize("cls", CLASSES)
def test_released_components_are_of_the_columns(cls) -> None:
    """An anchor is pushed by the columns of which it is the hardest negative."""
    a, b = spread(24, 12)
    objective = cls(variant="released")
    terms = objective.terms(a, b)
    rho, steep = APART[cls]
    s = a @ b.T
    masked = s.clone().fill_diagonal_(-9)
    top, at = masked.max(dim=0)
    live = (rho(top.clamp_min(-1)) - rho(s.diagonal()) < objective.margin).double()
    weight = torch.zeros_like(s)
    weight[at, torch.arange(24)] = live * steep(top)
    torch.testing.assert_close(terms.weight, weight)
    torch.testing.assert_close(terms.pull, live * steep(s.diagonal()))
    moved = ((weight > 0).any(dim=1) | (live > 0)).double()
    assert torch.equal(terms.dissipation, moved)
    assert 0 < float(live.mean()) < float(moved.mean()) <= 1


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("grouped", [False, True])
def test_released_in_large_batches(cls, grouped: bool) -> None:
    """Blocks of rows give what the matrix gives, by default too."""
    a, b = spread(600, 24)
    groups = torch.arange(600) % 450 if grouped else None
    objective = cls(variant="released")
    found = []
    for backend in ("eager", "rowblock", "auto"):
        x, y = (z.clone().requires_grad_() for z in (a, b))
        value = objective(x, y, groups=groups, backend=backend)
        found.append([value.detach(), *torch.autograd.grad(value, (x, y))])
    for blocks in found[1:]:
        torch.testing.assert_close(blocks, found[0], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("cls", CLASSES)
def test_released_by_finite_differences(cls) -> None:
    a, b = (x.requires_grad_() for x in spread(9, 5))
    assert torch.autograd.gradcheck(cls(variant="released"), (a, b))


@pytest.mark.parametrize("cls", CLASSES)
def test_released_takes_no_further_negatives(cls) -> None:
    a, b = spread(8, 5)
    with pytest.raises(ValueError, match=f"{cls.__name__} takes no additional negatives"):
        cls(variant="released")(a, b, a[:3])
