"""InfoNCE, NTXent, ArcCon and the decoupled losses against the printed gradients and misprints."""

import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.views import Views, unit
from isotrope.objectives import DCL, DCLW, ArcCon, DCLPlus, InfoNCE, NTXent
from isotrope.paradigm.assemble import assemble, tangent
from tests.paradigm.batches import batch

BACKBONES = ("bert-base", "bert-large", "roberta-base", "roberta-large")


def spread(n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Positives at all angles, so that gradients dissipate for some anchors only."""
    a, b = batch("random", n, d, seed)
    mix = torch.linspace(0.1, 4, n, dtype=torch.float64)[:, None]
    return unit(a), unit(a + mix * b)


def gradient(objective, h, other):
    h = h.clone().requires_grad_()
    return torch.autograd.grad(objective(h, other), h)[0]


def ambient(loss, h):
    """The gradient of a loss of similarities by the normalised anchors, not projected."""
    h = h.clone().requires_grad_()
    return torch.autograd.grad(loss(h), h)[0]


# InfoNCE: Nie et al. 2023, eq. 6, 7, 16 and C.1


def both_parts_by_hand(a, b, tau):
    """Eq. 6 of Nie et al. 2023 before the projection: what pulls and what pushes, n x d each."""
    n, e = len(a), (a @ b.T / tau).exp()
    pull, push = [], []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        pull.append(-sum(e[i, j] for j in others) * (b[i] - a[i]) / (tau * e[i].sum()))
        push.append(-sum(e[i, j] * (a[i] - b[j]) for j in others) / (tau * e[i].sum()))
    return torch.stack(pull), torch.stack(push)


def test_infonce_splits_into_a_pull_and_pushes() -> None:
    """Nie et al. 2023, eq. 6 (with hats on h'_j, notes d24): the terms are exactly these two."""
    tau, (a, b) = 0.1, spread(14, 5)
    pull, push = both_parts_by_hand(a, b, tau)
    terms = InfoNCE(temperature=tau).terms(a, b)
    gd = terms.dissipation[:, None]
    torch.testing.assert_close(gd * -terms.pull[:, None] * (b - a), pull)
    mass = terms.mass[:, None]
    torch.testing.assert_close(gd * (terms.weight @ b - mass * a), push)
    found = 14 * gradient(InfoNCE(temperature=tau), a, b)
    torch.testing.assert_close(found, tangent(pull + push, a))


def test_first_line_of_the_derivation() -> None:
    """C.1 prints -(1/tau)(h'_i + ...); right is minus (notes d31), exact in the ambient space."""
    tau, n = 0.1, 14
    a, b = spread(n, 5)
    softmax = (a @ b.T / tau).softmax(dim=1)
    found = n * ambient(lambda h: F.cross_entropy(h @ b.T / tau, torch.arange(n)), a)
    torch.testing.assert_close(found, -(b - softmax @ b) / tau)
    assert (found + (b + softmax @ b) / tau).abs().max() > 1
    terms = InfoNCE(temperature=tau).terms(a, b)
    torch.testing.assert_close(assemble(terms, Views(a, b)), found, rtol=0, atol=1e-12)


def test_gradient_norms_of_infonce_and_dcl() -> None:
    """Nie et al. 2023, eq. 7, 9, 16, 18 on embeddings of norm 3 (denominator of 7 as in d25)."""
    tau, n = 0.2, 14
    a, b = spread(n, 5)
    s = a @ b.T
    own, sines = torch.arccos(s.diagonal()).sin(), torch.arccos(s).sin()
    e = (s / tau).exp().fill_diagonal_(0)
    total = e.sum(dim=1)
    whole = total + (s.diagonal() / tau).exp()

    terms, project = InfoNCE(temperature=tau).terms(a, b), lambda i, x: tangent(x, a[i : i + 1])
    for i in range(n):
        pull = terms.dissipation[i] * terms.pull[i] * project(i, b[i : i + 1]) / 3
        torch.testing.assert_close(pull.norm(), total[i] * own[i] / (tau * whole[i] * 3))
        for j in set(range(n)) - {i}:
            push = terms.dissipation[i] * terms.weight[i, j] * project(i, b[j : j + 1]) / 3
            torch.testing.assert_close(push.norm(), e[i, j] * sines[i, j] / (tau * whole[i] * 3))
    # the decoupled form never dissipates
    pull = n * gradient(DCL(temperature=tau).parts.attraction, 3 * a, b).norm(dim=1)
    torch.testing.assert_close(pull, own / (tau * 3))
    weight = DCL(temperature=tau).terms(a, b).weight
    torch.testing.assert_close(weight * sines, e * sines / (tau * total[:, None]))


def test_parts_are_those_of_the_paper() -> None:
    """Manna et al. 2023, supplement, table 2, SimCLR row, with e^{+C/tau} (notes d43)."""
    tau, (a, b) = 0.5, spread(9, 5)
    s = a @ b.T
    attraction, repulsion = InfoNCE(temperature=tau).parts
    torch.testing.assert_close(attraction(a, b), -s.diagonal().mean() / tau)
    torch.testing.assert_close(repulsion(a, b), (s / tau).exp().sum(dim=1).log().mean())
    wrong = (-s / tau).exp().sum(dim=1).log().mean()
    assert abs(repulsion(a, b) - wrong) > 0.1
    assert gradient(repulsion, a, b).abs().max() > 0


# additional negatives


def test_only_a_queue_pushes() -> None:
    """MoCo: the positive against the queue, nothing of the batch."""
    a, b = spread(6, 5)
    queue = unit(batch("random", 4, 5, seed=3)[0])
    logits = torch.cat([(a * b).sum(1, keepdim=True), a @ queue.T], dim=1) / 0.05
    expected = F.cross_entropy(logits, torch.zeros(6, dtype=torch.long))
    objective = InfoNCE(in_batch=False)
    torch.testing.assert_close(objective(a, b, queue), expected)
    terms = objective.terms(a, b, queue)
    assert (terms.weight[:, :6] == 0).all()
    assert (terms.weight[:, 6:] > 0).all()
    one = InfoNCE(in_batch=False)(a[:1], b[:1], queue)  # a batch of one is enough
    torch.testing.assert_close(one, F.cross_entropy(logits[:1], torch.zeros(1, dtype=torch.long)))


def test_a_queue_is_asked_for() -> None:
    a, b = spread(6, 5)
    message = r"pass a queue .*: InfoNCE with in_batch=False needs additional negatives"
    with pytest.raises(ValueError, match=message):
        InfoNCE(in_batch=False)(a, b)
    with pytest.raises(ValueError, match=message):
        InfoNCE(in_batch=False).symmetric()(a, b)


@pytest.mark.parametrize("objective", [ArcCon(), DCL(), DCLW(), DCLPlus(), NTXent()], ids=repr)
def test_further_negatives_are_more_columns(objective) -> None:
    """A further negative counts as a row of the other view would that is no one's positive."""
    a, b = spread(8, 5)
    queue = unit(batch("random", 3, 5, seed=3)[0])
    if objective.two_directions:
        s = torch.cat([a, b]) @ torch.cat([a, b, queue]).T / objective.temperature
        s[range(16), range(16)] = -torch.inf
        expected = F.cross_entropy(s, torch.arange(16).roll(8))
        torch.testing.assert_close(objective(a, b, queue), expected)
    else:
        gathered = objective.formula(objective.compare(Views(a, torch.cat([b, queue]))))
        torch.testing.assert_close(objective.per_anchor(a, b, queue), gathered)


# NTXent


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_ntxent_is_cross_entropy_over_all_views(tau: float) -> None:
    a, b = spread(11, 6)
    views = torch.cat([a, b])
    s = (views @ views.T / tau).fill_diagonal_(-torch.inf)
    expected = F.cross_entropy(s, torch.arange(22).roll(11))
    torch.testing.assert_close(NTXent(temperature=tau)(a, b), expected)
    assert NTXent().symmetric() == NTXent()


def test_ntxent_gradient_by_hand() -> None:
    """Anchor, target and negative: the three roles of each of the 2N views."""
    tau, n = 0.2, 5
    a, b = spread(n, 4)
    views = torch.cat([a, b])
    partner = torch.arange(2 * n).roll(n)
    p = (views @ views.T / tau).fill_diagonal_(-torch.inf).softmax(dim=1)
    rows = []
    for i in range(n):
        as_anchor = sum(p[i, j] * views[j] for j in range(2 * n)) - views[partner[i]]
        as_column = sum(p[k, i] * views[k] for k in range(2 * n)) - views[partner[i]]
        rows.append((as_anchor + as_column) / (2 * n * tau))
    found = gradient(NTXent(temperature=tau), a, b)
    torch.testing.assert_close(found, tangent(torch.stack(rows), a))


# ArcCon


@pytest.mark.parametrize("u", [1e-3, math.pi / 18, 1.0, math.pi])
def test_arccon_value_and_gradient_as_printed(u: float) -> None:
    """Li et al. 2024, eq. 2, exact in the ambient space while theta + u < pi."""
    tau, n = 0.1, 16
    a, b = spread(n, 6)
    s = a @ b.T
    theta = torch.arccos(s.diagonal())
    inside = theta + u <= math.pi
    held = torch.cos((theta + u).clamp_max(math.pi))
    logits = s.clone()
    logits[range(n), range(n)] = held
    objective = ArcCon(margin=u, temperature=tau)
    torch.testing.assert_close(objective(a, b), F.cross_entropy(logits / tau, torch.arange(n)))
    e = (s / tau).exp()
    rows = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        ratio = torch.sin(theta[i] + u) / torch.sin(theta[i]) * inside[i]
        total = torch.exp(held[i] / tau) + sum(e[i, k] for k in others)
        rows.append(sum(e[i, j] * (b[j] - ratio * b[i]) for j in others) / (tau * total))
    expected = torch.stack(rows)
    terms = objective.terms(a, b)
    torch.testing.assert_close(assemble(terms, Views(a, b)), expected)
    torch.testing.assert_close(n * gradient(objective, a, b), tangent(expected, a))


def test_arccon_ratio_of_the_exact_fact() -> None:
    """sin(pi/6 + pi/18) / sin(pi/6) = 1.2856 (Li et al. 2024, table 1)."""
    rows = [[1.0, 0.0], [math.cos(math.pi / 6), 0.5], [0.0, 1.0]]
    h = torch.tensor(rows, dtype=torch.float64)
    ratio = ArcCon().terms(h[[0, 0]], h[[1, 2]]).ratio
    assert float(ratio[0]) == pytest.approx(1.2856, abs=5e-5)


def test_arccon_without_an_angle_is_infonce() -> None:
    a, b = spread(9, 5)
    torch.testing.assert_close(ArcCon(margin=1e-13)(a, b), InfoNCE()(a, b))
    with pytest.raises(ValueError, match=r"margin of ArcCon .* must be > 0, <= 3\.14159; found 0"):
        ArcCon(margin=0)


def test_arccon_holds_the_angle_at_both_ends() -> None:
    """At theta = 0 the printed ratio is infinite; beyond pi - u the cosine would pull backwards."""
    a, _ = spread(6, 4)
    assert (ArcCon().terms(a, a).pull == 0).all()
    assert torch.isfinite(gradient(ArcCon(), a, a)).all()
    opposite = unit(-a + 0.05 * batch("random", 6, 4, seed=4)[0])
    theta = torch.arccos((a * opposite).sum(dim=1))
    assert (theta + math.pi / 18 > math.pi).all()
    assert (ArcCon().terms(a, opposite).pull == 0).all()
    assert (ArcCon().terms(a, opposite).dissipation > 0.99).all()


# DCL, DCLPlus


@pytest.mark.parametrize("tau", [0.03, 0.5])
def test_dcl_gradient_as_printed(tau: float) -> None:
    """(sum_j q_ij h'_j - h'_i) / tau, q the softmax over k != i: exact in the ambient space."""
    n = 12
    a, b = spread(n, 5)
    s = a @ b.T / tau
    q = s.clone().fill_diagonal_(-torch.inf).softmax(dim=1)
    value = (-s.diagonal() + s.clone().fill_diagonal_(-torch.inf).logsumexp(dim=1)).mean()
    torch.testing.assert_close(DCL(temperature=tau)(a, b), value)
    expected = (q @ b - b) / tau
    terms = DCL(temperature=tau).terms(a, b)
    torch.testing.assert_close(assemble(terms, Views(a, b)), expected)
    torch.testing.assert_close(n * gradient(DCL(temperature=tau), a, b), tangent(expected, a))


def test_dcl_without_the_hats_and_the_bracket_is_another_loss() -> None:
    """Nie et al. 2023 prints exp(.)/tau (notes d24): the weights would not know the temperature."""
    a, b = spread(12, 5)
    e = (a @ b.T).exp().fill_diagonal_(0)
    printed = (e / e.sum(dim=1, keepdim=True) @ b - b) / 0.03
    found = 12 * gradient(DCL(), a, b)
    assert (found - tangent(printed, a)).abs().max() > 1


def test_dcl_of_both_views() -> None:
    """Yeh et al.: 2N - 2 negatives; both directions by symmetric()."""
    tau, n = 0.1, 9
    a, b = spread(n, 5)
    views = torch.cat([a, b])
    s = views @ views.T / tau
    own = s[range(2 * n), torch.arange(2 * n).roll(n)]
    mask = torch.eye(n, dtype=torch.bool).repeat(2, 2)
    losses = -own + s.masked_fill(mask, -torch.inf).logsumexp(dim=1)
    objective = DCL(temperature=tau, views="both")
    torch.testing.assert_close(objective.per_anchor(a, b), losses[:n])
    torch.testing.assert_close(objective.symmetric()(a, b), losses.mean())


@pytest.mark.parametrize("objective", [DCL(), DCL(views="both"), DCLW()], ids=repr)
def test_decoupled_losses_without_negatives_only_pull(objective) -> None:
    a, b = spread(5, 4)
    groups = torch.zeros(5, dtype=torch.long)
    h = a.clone().requires_grad_()
    value = objective(h, b, groups=groups)
    (found,) = torch.autograd.grad(value, h)
    torch.testing.assert_close(value, objective.parts.attraction(a, b))
    torch.testing.assert_close(found, gradient(objective.parts.attraction, a, b))


@pytest.mark.parametrize("tau", [0.02, 0.17, 1.0, 5.0])
def test_dclplus_is_active_where_infonce_keeps_more_than_half(tau: float) -> None:
    active = 0.0
    for seed in range(20):
        a, b = spread(24, 12, seed)
        dclplus = DCLPlus(temperature=tau).terms(a, b).dissipation
        infonce = InfoNCE(temperature=tau).terms(a, b).dissipation
        assert torch.equal(dclplus, (infonce > 0.5).double())
        active += float(dclplus.mean()) / 20
    assert 0 < active < 1 or tau > 0.5


def test_dclplus_is_dcl_cut_at_zero() -> None:
    """Mean over all anchors; Nie et al. 2023, eq. 11 (d26: sin theta_ii', not of a negative)."""
    n, (a, b) = 24, spread(24, 12)
    dcl = DCL(temperature=0.17).per_anchor(a, b)
    torch.testing.assert_close(DCLPlus()(a, b), dcl.clamp_min(0).sum() / n)
    active = (dcl > 0).double()
    assert 0 < active.mean() < 1
    torch.testing.assert_close(
        n * gradient(DCLPlus(), a, b),
        active[:, None] * n * gradient(DCL(temperature=0.17), a, b),
    )
    pull = n * gradient(DCLPlus().parts.attraction, 2 * a, b).norm(dim=1)
    theta = torch.arccos((a * b).sum(dim=1))
    torch.testing.assert_close(pull, active * theta.sin() / (0.17 * 2))


def test_dclplus_bounds_infonce() -> None:
    """Nie et al. 2023, eq. 12: InfoNCE <= log 2 + DCL+, with equality where the loss is log 2."""
    for tau in (0.05, 0.17, 1.0):
        a, b = spread(24, 6)
        slack = math.log(2) + DCLPlus(temperature=tau).per_anchor(a, b)
        slack = slack - InfoNCE(temperature=tau).per_anchor(a, b)
        assert (slack >= -1e-12).all()
        assert (slack <= math.log(2) + 1e-12).all()


# DCLW


def test_dclw_value_by_loops() -> None:
    tau, sigma, n = 0.1, 0.5, 8
    a, b = spread(n, 5)
    s = a @ b.T
    mean = sum(math.exp(s[k, k] / sigma) for k in range(n)) / n
    losses, weights = [], []
    for i in range(n):
        weights.append(2 - math.exp(s[i, i] / sigma) / mean)
        push = math.log(sum(math.exp(s[i, j] / tau) for j in range(n) if j != i))
        losses.append(-weights[i] * float(s[i, i]) / tau + push)
    found = DCLW(temperature=tau, sigma=sigma).per_anchor(a, b)
    torch.testing.assert_close(found, torch.tensor(losses, dtype=torch.float64))
    assert sum(weights) == pytest.approx(n)


def test_dclw_gradient_goes_through_its_weights() -> None:
    """Held constant, as lightly does, they give another gradient."""
    n, (a, b) = 8, spread(8, 5)
    objective = DCLW()
    weights = objective.positive_weights(objective.compare(Views(a, b)))
    negatives = gradient(DCL(temperature=0.1).parts.repulsion, a, b)
    constant = negatives - tangent(weights[:, None] * b, a) / (0.1 * n)
    assert (gradient(objective, a, b) - constant).abs().max() > 1e-2
    held = DCLW(weights="constant")
    torch.testing.assert_close(gradient(held, a, b), constant)
    torch.testing.assert_close(held(a, b), objective(a, b))
    torch.testing.assert_close(held.terms(a, b).ratio, weights)
    s = (a * b).sum(dim=1).requires_grad_()
    p = (s / 0.5).softmax(dim=0)
    (slope,) = torch.autograd.grad((-(2 - n * p) * s / 0.1).sum(), s)
    torch.testing.assert_close(objective.terms(a, b).pull, -slope)


def test_dclw_pushes_a_positive_that_is_much_closer_than_the_rest() -> None:
    a, b = batch("random", 32, 8)
    b[0] = a[0]
    terms = DCLW().terms(a, b)
    assert float(terms.ratio[0]) < 0
    assert (terms.ratio[1:] > 0).any()


def test_dclw_of_equal_positives_is_dcl() -> None:
    a, _ = spread(6, 4)
    torch.testing.assert_close(DCLW(temperature=0.2)(a, a), DCL(temperature=0.2)(a, a))


# presets, derivatives


@pytest.mark.parametrize(
    ("cls", "temperatures"),
    [
        (InfoNCE, (0.05, 0.05, 0.05, 0.05)),
        (DCL, (0.03, 0.01, 0.02, 0.02)),
        (DCLPlus, (0.17, 0.18, 0.15, 0.17)),
    ],
)
def test_presets_of_table_2(cls, temperatures) -> None:
    assert tuple(cls(preset=b).temperature for b in BACKBONES) == temperatures
    assert cls().temperature == temperatures[0], "BERT-base is the default"
    rates = {"InfoNCE": [1e-5] * 4, "DCL": [1e-5, 5e-5, 1e-5, 1e-5]}
    rates["DCLPlus"] = [3e-5, 5e-5, 1e-5, 1e-5]
    assert [cls.presets[b].learning_rate for b in BACKBONES] == rates[cls.__name__]
    sizes = [64, 64, 128, 128] if cls is InfoNCE else [64] * 4
    assert [cls.presets[b].batch_size for b in BACKBONES] == sizes


@pytest.mark.parametrize(
    "objective",
    [ArcCon(temperature=0.5), NTXent(temperature=0.5), DCL(temperature=0.5), DCLW(temperature=0.5)],
    ids=repr,
)
def test_second_derivatives(objective) -> None:
    a, b = batch("random", 4, 3)
    assert torch.autograd.gradgradcheck(objective, (a.requires_grad_(), b.requires_grad_()))


@pytest.mark.parametrize("cls", [ArcCon, NTXent, DCL, DCLW, DCLPlus])
def test_the_temperature_can_be_learnt(cls) -> None:
    a, b = batch("random", 6, 4)
    tau = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: cls(temperature=t)(a, b), (tau,))
    terms = cls(temperature=tau).terms(a, b)
    torch.testing.assert_close(terms.weight, cls(temperature=0.5).terms(a, b).weight)
