"""The modified objectives: printed gradients, misprints, table 5, and the released code."""

import importlib
import math

import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.views import Views, unit
from isotrope.kernels.eager import EagerPairs
from isotrope.objectives import (
    MHE,
    MHS,
    BarlowTwins,
    ModifiedBarlowTwins,
    ModifiedMHE,
    ModifiedMHS,
    ModifiedVICReg,
    Paradigm,
    VICRegGrad,
)
from isotrope.paradigm import proof, registry
from isotrope.paradigm.assemble import tangent
from isotrope.paradigm.authors_code import WithinViewMargin
from isotrope.paradigm.parts import Energy, Margin, Softmax
from tests.paradigm.batches import batch

TAU, R = 0.1, 1.5
MODIFIED = [ModifiedMHE, ModifiedMHS, ModifiedBarlowTwins, ModifiedVICReg]
DIRECT = [ModifiedMHE, ModifiedMHS]
STEPS = ["GD", "GD+W", "GD+W+R"]


def views(n: int = 9, d: int = 6, noise: float = 0.5, seed: int = 0):
    """Positives that are closer than most negatives: some anchors active, some not."""
    torch.manual_seed(seed)
    a = torch.randn(n, d, dtype=torch.float64)
    return unit(a), unit(a + noise * torch.randn(n, d, dtype=torch.float64))


def gradients(loss, *inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(loss(*leaves), leaves)


def gradient(objective, h, other):
    return gradients(lambda x: objective(x, other), h)[0]


def assert_gradients(objective, by_hand, a, b) -> None:
    """Of both views, the second as anchors of the other direction, in the tangent space."""
    found = gradients(objective, a, b)
    expected = [tangent(by_hand(a, b), a), tangent(by_hand(b, a), b)]
    torch.testing.assert_close(list(found), expected, rtol=1e-9, atol=1e-13)


# the printed gradients, anchor by anchor


def active(a, b, m):
    """Li et al. 2024, section 4: s_ii' - max_{k != i} s_ik' < m."""
    s, n = a @ b.T, len(a)
    return [float(s[i, i] - max(s[i, k] for k in range(n) if k != i) < m) for i in range(n)]


def weights(name: str, a, b, tau=TAU, total="k!=l", nearest=min):
    """W_ij of Li et al. 2024, table 2, lower half."""
    n = len(a)
    x = b if name == "mB" else a
    e = torch.exp(x @ x.T / tau)
    pairs = [(k, j) for k in range(n) for j in range(n) if k != j]
    w = torch.zeros(n, n, dtype=torch.float64)
    for i, j in pairs:
        if name == "mMHE":
            w[i, j] = e[i, j] / (tau * sum(e[pair] for pair in pairs if pair[0] < pair[1]))
        elif name == "mMHS":
            distances = {k: float((a[i] - a[k]).norm()) for k in range(n) if k != i}
            at = nearest(distances, key=distances.get)
            w[i, j] = 1 / distances[at] if j == at else 0.0
        elif total == "k!=l":
            w[i, j] = e[i, j] / sum(e[pair] for pair in pairs)
        else:
            w[i, j] = e[i, j] / sum(e[i, k] for k in range(n) if k != i)
    return w


def by_hand(name: str, a, b, m, r, **how):
    """d_i sum_{j != i} W_ij (h_j - r h'_i): eq. 16 to 19."""
    d, w = active(a, b, m), weights(name, a, b, **how)
    n = len(a)
    rows = [d[i] * sum(w[i, j] * (a[j] - r * b[i]) for j in range(n) if j != i) for i in range(n)]
    return torch.stack(rows)


def build(name: str, m: float, r: float = R, **settings):
    cls = dict(zip(("mMHE", "mMHS", "mB", "mV"), MODIFIED, strict=True))[name]
    temperature = {} if name == "mMHS" else {"temperature": TAU}
    return cls(margin=m, ratio=r, **temperature, **settings)


@pytest.mark.parametrize("margin", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("name", ["mMHE", "mMHS", "mB", "mV"])
def test_gradient_as_printed(name: str, margin: float) -> None:
    """Both directions averaged; mMHS is a mean over anchors, the others hold their 1/n."""
    a, b = views()
    assert 0 < sum(active(a, b, 0.3)) < 9
    factor = 0.5 / 9 if name == "mMHS" else 0.5
    assert_gradients(
        build(name, margin), lambda x, y: factor * by_hand(name, x, y, margin, R), a, b
    )


@pytest.mark.parametrize("name", ["mB", "mV"])
def test_row_normaliser(name: str) -> None:
    """Notes d11: 002 normalises over k != i; then every row's weights sum to 1."""
    a, b = views()
    row = build(name, 0.3, normaliser="row")
    assert_gradients(row, lambda x, y: 0.5 / 9 * by_hand(name, x, y, 0.3, R, total="k!=i"), a, b)
    torch.testing.assert_close(row.terms(a, b).mass, torch.ones(9, dtype=torch.float64))
    mass = build(name, 0.3).terms(a, b).mass
    torch.testing.assert_close(mass.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert mass.max() > 1.1 * mass.min()


def test_the_farthest_does_not_fit() -> None:
    """Notes d10: appendix E prints max_{j != i} ||h_i - h_j|| in mMHS; the gradient has the min."""
    a, b = views()
    found = gradient(build("mMHS", 3.0), a, b)
    for pick, fits in ((min, True), (max, False)):
        wrong = 0.5 / 9 * by_hand("mMHS", a, b, 3.0, R, nearest=pick)
        assert ((found - tangent(wrong, a)).abs().max() < 1e-12) == fits


@pytest.mark.parametrize("name", ["mMHE", "mB", "mV"])
def test_the_pull_has_the_ratio(name: str) -> None:
    """Notes d12: w_p = r sum_j w_n; the expression between lacks r."""
    a, b = views()
    terms = build(name, 3.0).terms(a, b)
    torch.testing.assert_close(terms.pull, R * terms.weight.sum(dim=1))
    found = gradient(build(name, 3.0), a, b)
    assert (found - tangent(0.5 * by_hand(name, a, b, 3.0, 1.0), a)).abs().max() > 1e-3


def energy(h, tau):
    upper = torch.triu_indices(len(h), len(h), 1).unbind()
    return ((h @ h.T)[upper] / tau).logsumexp(0)


def test_the_energy_counts_once() -> None:
    """Notes d14: L_i = d_i (L_i^a + L^u), summed literally, has L^u once per active anchor."""
    a, b = views()
    d = torch.tensor(active(a, b, 0.3), dtype=torch.float64)
    align = R / 2 * weights("mMHE", a, b).sum(1) * d
    frozen = d[:, None] == 0

    def once(x):
        held = torch.where(frozen, x.detach(), x)
        return (align * (x - b).square().sum(1)).sum() + energy(held, TAU)

    def literal(x):
        return (align * (x - b).square().sum(1)).sum() + d.sum() * energy(x, TAU)

    expected = tangent(by_hand("mMHE", a, b, 0.3, R), a)
    torch.testing.assert_close(tangent(gradients(once, a)[0], a), expected)
    assert (tangent(gradients(literal, a)[0], a) - expected).abs().max() > 1
    torch.testing.assert_close(2 * gradient(build("mMHE", 0.3), a, b), expected)


def test_separation_needs_constant_negatives() -> None:
    """Notes d15: with live negatives, summed over the anchors, the gradient is another."""
    a, b = views()
    expected = tangent(by_hand("mMHS", a, b, 3.0, R), a)

    def loss(x, others):
        distance = (torch.cdist(x, others) + 9 * torch.eye(9)).amin(1)
        align = R / 2 / distance.detach() * (x - b).square().sum(1)
        return (align - distance).sum()

    held = tangent(gradients(lambda x: loss(x, a), a)[0], a)
    live = tangent(gradients(lambda x: loss(x, x), a)[0], a)
    torch.testing.assert_close(held, expected)
    assert (live - expected).abs().max() > 0.1


def test_the_originals_ratio_of_mhs_has_no_further_1_over_n() -> None:
    """Notes d16: table 2 mixes an averaged alignment with a separation that is not."""
    a, b = views()
    terms = MHS(weight=0.5).terms(a, b)
    nearest = torch.cdist(a, a).fill_diagonal_(9).amin(1)
    torch.testing.assert_close(terms.ratio, 2 * nearest / 0.5)


def test_scales_at_the_papers_temperature() -> None:
    """Notes A1: mMHE's gradient is 2/tau = 40 times that of mV, by unordered pairs and 1/tau."""
    a, b = views()
    mhe, vicreg = ModifiedMHE(ratio=1.5), ModifiedVICReg(ratio=1.5)
    assert gradient(mhe, a, b).abs().max() > 0
    torch.testing.assert_close(gradient(mhe, a, b), 40 * gradient(vicreg, a, b))


@pytest.mark.parametrize("cls", MODIFIED)
def test_no_active_anchor_gives_no_gradient(cls) -> None:
    a, b = views(noise=0.0)
    for variant in ("paper", "released", "direct")[: 3 if cls in DIRECT else 2]:
        objective = cls(margin=0.0, variant=variant)
        assert float(objective.terms(a, b).dissipation.sum()) == 0
        assert all(g.abs().max() == 0 for g in gradients(objective, a, b))


@pytest.mark.parametrize("cls", [ModifiedMHE, ModifiedBarlowTwins, ModifiedVICReg])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_small_temperatures_in_float32(cls, variant: str) -> None:
    """exp(1/tau) overflows float32 below tau = .0113 (notes A1); the softmax must not."""
    a, b = (x.float() for x in batch("clustered", 16, 8))
    found = gradient(cls(temperature=0.005, margin=2.0, variant=variant), a, b)
    assert torch.isfinite(found).all()
    assert found.abs().max() > 0


# table 5


def test_presets_are_tables_6_and_7() -> None:
    bert = {ModifiedMHE: 1.75, ModifiedMHS: 1.75, ModifiedBarlowTwins: 1.5, ModifiedVICReg: 1.5}
    roberta = {
        ModifiedMHE: (0.30, 1.25),
        ModifiedMHS: (0.27, 1.00),
        ModifiedBarlowTwins: (0.37, 1.25),
        ModifiedVICReg: (0.37, 1.25),
    }
    for cls in MODIFIED:
        assert cls() == cls(preset="bert-base") == cls(margin=0.3, ratio=bert[cls])
        margin, ratio = roberta[cls]
        assert cls(preset="roberta-base") == cls(margin=margin, ratio=ratio)
        sizes = [cls.presets[name].batch_size for name in ("bert-base", "roberta-base")]
        rates = [cls.presets[name].learning_rate for name in ("bert-base", "roberta-base")]
        assert (sizes, rates) == ([128, 512], [1e-5, 1e-5])
        assert cls().hyperparameters().get("temperature", 0.05) == 0.05


@pytest.mark.parametrize(
    ("cls", "original", "balanced", "weight"),
    [
        (ModifiedMHE, MHE(weight=10.0), MHE(weight=1.0), Energy(temperature=0.05)),
        (ModifiedMHS, MHS(weight=1.0), MHS(weight=1.0), None),
        (
            ModifiedBarlowTwins,
            BarlowTwins(weight=30.0),
            BarlowTwins(weight=1.0),
            Softmax(by="positives", normaliser="batch"),
        ),
        (
            ModifiedVICReg,
            VICRegGrad(weight=30.0),
            VICRegGrad(weight=1.0),
            Softmax(by="anchors", normaliser="batch"),
        ),
    ],
)
def test_every_step_keeps_what_it_does_not_exchange(cls, original, balanced, weight) -> None:
    a, b = views()
    first, second, third = (cls(step=step).terms(a, b) for step in STEPS)
    pairs = cls().compare(Views(a, b))
    mask = Margin(margin=0.3)(pairs)
    before, unit_nu = original.terms(a, b), balanced.terms(a, b)
    exchanged = unit_nu.weight if weight is None else weight(pairs)
    for terms in (first, second, third):
        torch.testing.assert_close(terms.dissipation, mask)
    torch.testing.assert_close((first.weight, first.pull), (before.weight, before.pull))
    torch.testing.assert_close((second.weight, second.pull), (exchanged, unit_nu.pull))
    expected = cls().ratio * exchanged.sum(1)
    torch.testing.assert_close((third.weight, third.pull), (exchanged, expected))
    torch.testing.assert_close(third.ratio, torch.full_like(mask, cls().ratio))


def test_the_three_edits_take_barlow_to_its_modified_form() -> None:
    a, b = batch("random", 8, 5)
    edited = (
        BarlowTwins()
        .modify(dissipation=Margin(margin=0.3))
        .modify(weight=Softmax(by="positives", normaliser="batch"))
        .modify(ratio=1.5)
    )
    assert edited.parent == BarlowTwins()
    torch.testing.assert_close(gradient(edited, a, b), gradient(ModifiedBarlowTwins(), a, b))


def test_modified_objectives_keep_their_ratio_where_weights_vanish() -> None:
    a, b = (x.float() for x in batch("random", 8, 5))
    edited = ModifiedBarlowTwins(temperature=0.002).modify(weight="hardest")
    torch.testing.assert_close(edited.terms(a, b).ratio, torch.full((8,), 1.5))


def test_editing_a_released_objective_keeps_it_released() -> None:
    a, b = views()
    edited = ModifiedVICReg(variant="released", margin=0.3).modify(ratio=1.0)
    expected = ModifiedVICReg(variant="released", margin=0.3, ratio=1.0)
    torch.testing.assert_close(gradients(edited, a, b), gradients(expected, a, b))


# the losses themselves: eq. 14 and 15, with what is printed as constant held by a second batch


def printed_loss(name: str, a, b, live, fixed, m, r=R, tau=TAU):
    """The loss of one direction; ``live`` are the anchors that move, ``fixed`` the same numbers."""
    n = len(a)
    d = torch.tensor(active(a, b, m), dtype=torch.float64)
    align = (live - b).square().sum(1)
    if name == "mMHE":
        live = torch.where(d[:, None] > 0, live, fixed)
        e = torch.exp(fixed @ fixed.T / tau)
        upper = [(k, j) for k in range(n) for j in range(k + 1, n)]
        total = sum(e[pair] for pair in upper)
        c = torch.stack([r * (e[i].sum() - e[i, i]) / (2 * tau * total) for i in range(n)])
        squares = torch.stack([(live[k] - live[j]).square().sum() for k, j in upper])
        energy = torch.log(2 * torch.exp(-squares / (2 * tau)).sum() / (n * (n - 1)))
        return (d * c * align).sum() + energy
    far = 9 * torch.eye(n, dtype=torch.float64)
    c = r / (2 * (torch.cdist(fixed, fixed) + far).amin(1))
    distance = ((live[:, None] - fixed[None]).square().sum(2) + far).amin(1).sqrt()
    return (d * (c * align - distance)).mean()


@pytest.mark.parametrize("margin", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("name", ["mMHE", "mMHS"])
def test_the_direct_loss_is_the_printed_one(name: str, margin: float) -> None:
    """Its value, and the gradients of both views: as an anchor each, its positive constant."""
    a, b = views()
    objective = build(name, margin, variant="direct")
    x, y = (z.clone().requires_grad_() for z in (a, b))
    expected = (printed_loss(name, a, b, x, a, margin) + printed_loss(name, b, a, y, b, margin)) / 2
    torch.testing.assert_close(objective(a, b), expected.detach(), rtol=1e-12, atol=1e-12)
    printed = torch.autograd.grad(expected, (x, y), materialize_grads=True)
    projected = [tangent(g, z) for g, z in zip(printed, (a, b), strict=True)]
    found = list(gradients(objective, a, b))
    torch.testing.assert_close(found, projected, rtol=1e-12, atol=1e-12)
    surrogate = list(gradients(build(name, margin), a, b))
    torch.testing.assert_close(found, surrogate, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", DIRECT)
@pytest.mark.parametrize("step", STEPS)
def test_the_direct_loss_has_the_components_of_the_surrogate(cls, step: str) -> None:
    a, b = views(33, 16)
    objective = cls(variant="direct", step=step)
    assert 0 < float(objective.terms(a, b).dissipation.mean()) < 1
    assert proof.double_entry(objective, a, b) < 1e-12
    assert proof.parts_error(objective, a, b) < 1e-12
    found, surrogates = gradients(objective, a, b), gradients(cls(step=step), a, b)
    torch.testing.assert_close(found, surrogates, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", DIRECT)
@pytest.mark.parametrize("row", [0, 4])
def test_the_direct_loss_by_finite_differences(cls, row: int, monkeypatch) -> None:
    """Of one anchor that moves, with the coefficients as they were before."""
    a, b = views()
    objective = cls(margin=3.0, variant="direct")
    constant = objective.terms(a, b)
    patched = importlib.import_module("isotrope.objectives.modified")
    monkeypatch.setattr(patched, "constant_components", lambda *_: constant)

    def loss(h):
        values = objective.formula(EagerPairs(Views(torch.cat([a[:row], h, a[row + 1 :]]), b)))
        return values[row] if cls is ModifiedMHS else values.sum()  # the energy is of the batch

    assert torch.autograd.gradcheck(loss, a[row : row + 1].clone().requires_grad_())


@pytest.mark.parametrize("cls", DIRECT)
@pytest.mark.parametrize("grouped", [False, True])
def test_the_direct_loss_of_large_batches(cls, grouped: bool) -> None:
    """Blocks of rows give what the matrix gives, by default too."""
    a, b = views(600, 24, noise=0.8)
    groups = torch.arange(600) % 450 if grouped else None
    objective = cls(margin=0.3, variant="direct")
    assert 0.1 < float(objective.terms(a, b, groups=groups).dissipation.mean()) < 0.9
    found = []
    for backend in ("eager", "rowblock", "auto"):
        x, y = (z.clone().requires_grad_() for z in (a, b))
        value = objective(x, y, groups=groups, backend=backend)
        found.append([value.detach(), *torch.autograd.grad(value, (x, y))])
    for blocks in found[1:]:
        torch.testing.assert_close(blocks, found[0], rtol=1e-11, atol=1e-13)


def test_direct_losses_of_the_steps_are_the_parents() -> None:
    """Where every anchor is active, what is not exchanged yet is MHE's or MHS's own loss."""
    a, b = views()
    parents = {
        (ModifiedMHE, "GD"): MHE(weight=10.0),
        (ModifiedMHE, "GD+W"): MHE(t=1 / (2 * TAU)),
        (ModifiedMHS, "GD"): MHS(),
        (ModifiedMHS, "GD+W"): MHS(),
    }
    for (cls, step), parent in parents.items():
        temperature = {"temperature": TAU} if cls is ModifiedMHE else {}
        objective = cls(margin=3.0, step=step, variant="direct", **temperature)
        torch.testing.assert_close(objective(a, b), parent.symmetric()(a, b))


def test_the_direct_separation_of_each_anchor_ends_with_its_gradient() -> None:
    a, b = views()
    objective = ModifiedMHS(variant="direct")
    both = [torch.tensor(active(x, y, 0.3)) for x, y in ((a, b), (b, a))]
    ended = (both[0] == 0) & (both[1] == 0)
    assert ended.any()
    assert ((objective.per_anchor(a, b) == 0) == ended).all()


def test_the_direct_energy_is_shared_among_the_anchors() -> None:
    a, b = views(noise=0.0)
    found = ModifiedMHE(variant="direct", margin=0.0).per_anchor(a, b)  # no anchor is active
    spread = energy(a, 0.05) - 1 / 0.05 - math.log(9 * 8 / 2)
    torch.testing.assert_close(found, (spread / 9).expand(9))


@pytest.mark.parametrize("cls", DIRECT)
def test_editing_a_direct_objective_gives_the_surrogate(cls) -> None:
    assert cls(variant="direct").modify(ratio=1.0) == cls().modify(ratio=1.0)


@pytest.mark.parametrize("name", ["modifiedbarlowtwins", "modifiedvicreg"])
def test_the_other_two_have_no_direct_loss(name: str) -> None:
    """Appendix E changes their gradients, by its first method."""
    with pytest.raises(InputError, match="variant must be one of paper, released; found 'direct'"):
        registry.build(name, {"variant": "direct"})


# what the released code computes (notes A1), written down as its procedure and left to autograd


def crowded(h, m):
    """Anchors that stay live: 1 - max_{k != i} h_i.h_k < m within the view."""
    gram = (h @ h.T).detach().fill_diagonal_(-9)
    return 1 - gram.amax(1) < m


def procedure(cls, step: str, a, b, *, m, tau, r, nu):
    """The loss of both views; masked anchors are constants in every role."""
    n = len(a)
    a, b = (torch.where(crowded(h, m)[:, None], h, h.detach()) for h in (a, b))
    align = 2 - 2 * (a * b).sum(1)
    off = ~torch.eye(n, dtype=torch.bool)
    if cls is ModifiedMHE:
        t = 1.0 if step == "GD" else tau
        total = 0
        for h in (a, b):
            s = h @ h.T / t
            u = s[torch.triu_indices(n, n, 1).unbind()].logsumexp(0)
            shares = (s.masked_fill(~off, -torch.inf).logsumexp(1) - u).exp().detach() / tau
            pull = {"GD": torch.full_like(shares, 1 / n), "GD+W": shares}.get(step, r * shares)
            total = total + nu * u + (align * pull).sum() / 2
        return total
    if cls is ModifiedMHS:
        total = 0
        for h, other in ((a, b), (b, a)):
            square = 2 - 2 * h @ other.detach().T
            nearest = (square + 1e-4).masked_fill(~off, 9).amin(1).sqrt()
            pull = r / nearest.detach() if step == "GD+W+R" else 1.0
            total = total + (align * pull / 2 - nu * nearest).mean()
        return total
    total = 0
    for h, other in ((a, b), (b, a)):
        x = (h if cls is ModifiedVICReg else other).detach()
        if step == "GD":
            w = 2 / n**2 * x @ x.T
        else:
            w = (x @ x.T / tau).exp()
            w = w / w[off].sum()
        push = nu * (w * (h @ h.detach().T)).sum()
        if step == "GD+W+R":
            pull = r * (w * off).sum(1) @ (h * other).sum(1)
        else:
            barlow = cls is ModifiedBarlowTwins
            moment = (h.T @ other / n).diagonal().detach()
            coordinate = 1 - (1 - nu) * moment if barlow else torch.ones_like(moment)
            pull = 2 / n * (h * other.detach() @ coordinate).sum()
        total = total + push - pull
    return total


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("cls", MODIFIED)
@pytest.mark.parametrize("margin", [0.3, 0.4, 3.0])
def test_released_is_the_released_procedure(cls, step: str, margin: float) -> None:
    a, b = views(12, 6, noise=0.4)
    masks = [crowded(h, margin) for h in (a, b)]
    if margin < 1:  # some live, some not, and pairs of which one half is
        assert all(0 < int(mask.sum()) < 12 for mask in masks)
        assert bool((masks[0] != masks[1]).any())
    original = {ModifiedMHE: 10.0, ModifiedMHS: 1.0}.get(cls, 30.0)
    nu = original if step == "GD" else 1.0
    temperature = {} if cls is ModifiedMHS else {"temperature": TAU}
    objective = cls(margin=margin, ratio=R, step=step, variant="released", **temperature)
    theirs = gradients(lambda x, y: procedure(cls, step, x, y, m=margin, tau=TAU, r=R, nu=nu), a, b)
    expected = [tangent(g, z) for g, z in zip(theirs, (a, b), strict=True)]
    torch.testing.assert_close(list(gradients(objective, a, b)), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cls", MODIFIED)
def test_released_ratio_is_about_twice_what_was_set(cls) -> None:
    """Notes d18: r (A_i + B_i) / A_i; on average 2.005 to 2.02 r at N = 128, D = 768."""
    torch.manual_seed(1)
    content, noise = torch.randn(2, 128, 768, dtype=torch.float64)
    common = 0.7 * torch.randn(1, 768, dtype=torch.float64)  # mean cosine of negatives .3
    a, b = unit(content + common), unit(content + common + 0.7 * noise)
    objective = cls(margin=3.0, variant="released")
    one = cls(margin=3.0)
    own, other = (objective.terms(x, y).mass for x, y in ((a, b), (b, a)))
    found = objective.terms(a, b).ratio
    torch.testing.assert_close(found, objective.ratio * (own + other) / own)
    multiplier = float((found / objective.ratio).mean())
    low, high = (1.99, 2.01) if cls is ModifiedMHS else (2.005, 2.02)
    assert low < multiplier < high
    torch.testing.assert_close(one.terms(a, b).ratio, torch.full_like(found, one.ratio))


def test_released_dissipation_is_stricter() -> None:
    """Notes d17: 1 stands where the similarity with the positive should."""
    a, b = views(64, 16, noise=0.2)
    pairs = ModifiedVICReg().compare(Views(a, b))
    for m in (0.3, 0.4, 0.5):
        paper, code = Margin(margin=m)(pairs), WithinViewMargin(margin=m)(pairs)
        gaps = 1 - (a @ a.T).fill_diagonal_(-9).amax(1)
        assert torch.equal(code.bool(), gaps < m)
        assert float(code.mean()) < float(paper.mean())


def test_at_070_the_paper_moves_all_and_the_code_half() -> None:
    """Notes A1: positives at .95, hardest negatives about .70, m = .30: 100% and 55% active."""
    n, d = 128, 768
    torch.manual_seed(0)
    noise = [unit(torch.randn(n, d, dtype=torch.float64)) for _ in range(2)]
    centre = unit(torch.randn(1, d, dtype=torch.float64))
    common = math.sqrt(0.67)
    content = unit(noise[0] - (noise[0] @ centre.T) * centre)
    a = common * centre + math.sqrt(1 - 0.67) * content
    side = unit(noise[1] - (noise[1] * a).sum(1, keepdim=True) * a)
    b = 0.95 * a + math.sqrt(1 - 0.95**2) * side
    hardest = (a @ a.T).fill_diagonal_(-9).amax(1)
    assert abs(float(hardest.mean()) - 0.70) < 0.02
    torch.testing.assert_close((a * b).sum(1), torch.full((n,), 0.95, dtype=torch.float64))
    pairs = ModifiedVICReg().compare(Views(a, b))
    assert float(Margin(margin=0.3)(pairs).mean()) == 1
    assert 0.4 < float(WithinViewMargin(margin=0.3)(pairs).mean()) < 0.7


# the baseline of section 3.2


def baseline(a, b, *, m, tau, r):
    """Both directions summed, each a mean over its active rows x all columns, positive live."""
    s = (a @ b.T).detach()
    off = ~torch.eye(len(a), dtype=torch.bool)
    total = 0
    for h, other, t in ((a, b, s), (b, a, s.T)):
        live = t.diagonal() - t.masked_fill(~off, -9).amax(1) < m
        w = (t / tau).masked_fill(~off, -torch.inf).softmax(1)
        positive = (a * b).sum(1)
        target = h @ other.detach().T - r * positive[:, None]
        rows = (w * target)[live]
        total = total + (rows.mean() if len(rows) else 0 * positive.sum())
    return total


@pytest.mark.parametrize("margin", [0.2, 0.5, 3.0])
def test_released_baseline_is_the_released_procedure(margin: float) -> None:
    a, b = views(12, 6, noise=0.6)
    d = [sum(active(x, y, margin)) for x, y in ((a, b), (b, a))]
    if margin < 1:
        assert 0 < d[0] < 12
        assert active(a, b, margin) != active(b, a, margin)
    objective = Paradigm(
        dissipation=f"margin:{margin}", weight=f"softmax:{TAU}", ratio=R, variant="released"
    )
    theirs = gradients(lambda x, y: baseline(x, y, m=margin, tau=TAU, r=R), a, b)
    expected = [tangent(g, z) for g, z in zip(theirs, (a, b), strict=True)]
    torch.testing.assert_close(list(gradients(objective, a, b)), expected, rtol=1e-9, atol=1e-13)


def test_released_baseline_doubles_the_ratio() -> None:
    """Notes A1: sum_j W h'_j - 2 r h'_i where both halves of a pair are active."""
    a, b = views()
    terms = Paradigm(dissipation="none", ratio=1.25, variant="released").terms(a, b)
    torch.testing.assert_close(terms.ratio, torch.full((9,), 2.5, dtype=torch.float64))
    assert terms.scale == 1 / 81


def test_released_baseline_without_active_anchors_is_zero() -> None:
    """The released code takes the mean of nothing there, NaN."""
    a, b = views(noise=0.0)
    objective = Paradigm(dissipation="margin:0", variant="released")
    assert float(objective(a, b)) == 0
    assert all(g.abs().max() == 0 for g in gradients(objective, a, b))


def test_the_papers_baseline_is_the_default_with_a_margin() -> None:
    """Li et al. 2024, section 3.2: m = .30, tau = .05, r = 1."""
    assert Paradigm(dissipation="margin") == Paradigm(
        dissipation="margin:0.30", weight="softmax:0.05", ratio=1
    )
