"""Mixtures of columns in blocks of rows: as from the whole matrix, and in linear memory."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isotrope.core.views import Views, unit
from isotrope.kernels import tiles
from isotrope.kernels.choose import pairs
from isotrope.kernels.mixed_negatives import MixingRule
from isotrope.kernels.statistics import Unfused, record
from isotrope.objectives import MixCSE, MixedInfoNCE
from isotrope.paradigm.objective import Objective
from tests.kernels.test_rowblock import Bytes, apart
from tests.paradigm.batches import batch

TAU = 0.2
Mixed = MixedInfoNCE | MixCSE
ALL: list[Mixed] = [
    MixedInfoNCE(temperature=TAU),
    MixedInfoNCE(temperature=TAU, renormalise=False),
    MixedInfoNCE(temperature=TAU, mix="positive", share=0.4),
    MixCSE(temperature=TAU, share=0.3),
]


def views_of(kind: str, n: int = 600, d: int = 7) -> Views:
    """More columns than are searched as they are, near-duplicates among them."""
    a, b = batch("random", n, d)
    b[n // 2 :: 3] = b[0] + 1e-3 * b[n // 2 :: 3]
    more = torch.cat([a[:40] + 0.01, b[:3]])
    views = Views(a, b, more)
    return {
        "square": Views(a, b),
        "further": views,
        "groups": replace(views, groups=torch.arange(n) // 2),
        "one group": Views(a, b, groups=torch.zeros(n, dtype=torch.long)),
        "gathered": Views(a[: n // 2], b, offset=n // 2, groups=torch.arange(n) // 3),
        "queue": replace(views, in_batch=False),
        "one in the queue": Views(a, b, more[:1], in_batch=False),
        "pairs": Views(a[:2], b[:2]),
    }[kind]


KINDS = ["square", "further", "groups", "one group", "gathered", "queue", "one in the queue"]


def derivatives(objective: Objective, views: Views, backend: str) -> list[Tensor]:
    """The value and the gradients of all embeddings."""
    leaves = views.map(lambda x: x.clone().requires_grad_())
    inputs = [leaves.anchors, leaves.positives]
    inputs += [] if leaves.negatives is None else [leaves.negatives]
    value = objective.loss(leaves, backend=backend)
    found = torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
    return [value.detach(), *found]


@pytest.mark.parametrize("kind", [*KINDS, "pairs"])
@pytest.mark.parametrize("objective", ALL, ids=repr)
@pytest.mark.slow
def test_as_from_the_whole_matrix(
    monkeypatch: pytest.MonkeyPatch, objective: Mixed, kind: str
) -> None:
    """Value and all gradients, of the whole and of its repelling part, in blocks of 128 rows."""
    monkeypatch.setattr(tiles, "MOST", 128)
    views = views_of(kind)
    for form in (objective, objective.parts.repulsion, objective.parts.attraction):
        whole = derivatives(form, views, "eager")
        assert apart(derivatives(form, views, "rowblock"), whole) < 1e-11
    if len(views.anchors) == len(views.positives):
        whole = derivatives(objective.symmetric(), views, "eager")
        assert apart(derivatives(objective.symmetric(), views, "rowblock"), whole) < 1e-11


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_mixtures_one_by_one(monkeypatch: pytest.MonkeyPatch, objective: Mixed, kind: str) -> None:
    """What is not fused, losses of single anchors and components, from blocks of rows too."""
    monkeypatch.setattr(tiles, "MOST", 128)
    views = views_of(kind, n=530).unit()
    whole, blocks = pairs(views, "eager"), pairs(views, "rowblock")
    expected, found = (seen.mixture(objective.mixing) for seen in (whole, blocks))
    assert torch.equal(found.columns, expected.columns)
    assert torch.equal(found.exists, expected.exists)
    torch.testing.assert_close(found.vectors, expected.vectors)
    torch.testing.assert_close(objective.formula(blocks), objective.formula(whole))
    terms, theirs = objective.components(blocks), objective.components(whole)
    torch.testing.assert_close(terms.weight, theirs.weight)
    torch.testing.assert_close(terms.pull, theirs.pull)


def test_who_has_a_mixture() -> None:
    """None without enough negatives, of rows of one's group, or where the two parts cancel."""
    hardest, following = ALL[0].mixing, ALL[-1].mixing
    a, b = batch("random", 6, 4)

    def exists(mixing: MixingRule, views: Views) -> list[bool]:
        found = [pairs(views.unit(), x).mixture(mixing).exists for x in ("eager", "rowblock")]
        assert torch.equal(*found)
        return found[0].tolist()

    groups = torch.tensor([0, 0, 1, 2, 2, 2])
    assert exists(following, Views(a, b, groups=groups)) == [False, True, True, False, False, True]
    queued = Views(a, b, b[:1] + 0.1, in_batch=False)
    assert exists(following, queued) == exists(hardest, queued) == [False] * 6
    assert exists(ALL[2].mixing, queued) == [True] * 6
    assert exists(hardest, replace(queued, negatives=torch.cat([a, b]))) == [True] * 6
    # four of a group have the other two, those all four others
    assert exists(hardest, Views(a, b, groups=torch.tensor([0, 0, 0, 0, 0, 1]))) == [False] * 5 + [
        True
    ]
    for mixing in (hardest, following):
        assert exists(mixing, Views(a[:1], b[:1])) == [False]
        assert exists(mixing, Views(a[1:3], b, offset=4)) == [True] * 2
    opposite = Views(a[:2], torch.stack([a[0], -a[0]]))
    assert exists(replace(following, share=0.5), opposite) == [False] * 2
    assert exists(replace(following, share=0.5, renormalise=False), opposite) == [True] * 2


@pytest.mark.parametrize("n", [40, 600])
def test_ties_go_to_the_lower_column(n: int) -> None:
    """Columns at one cosine, 3/5, in three directions: the two lowest make the mixture.

    A further negative at the same cosine comes last. All is exact in floating point.
    """
    a = torch.zeros(n, 4, dtype=torch.float64)
    a[:, 0] = 1.0
    b = torch.tensor([[-1.0, 0, 0, 0]], dtype=torch.float64).repeat(n, 1)
    tied = torch.tensor([[0.6, 0.8, 0, 0], [0.6, 0, 0.8, 0], [0.6, 0, 0, 0.8]]).double()
    b[[5, n // 2, n - 1]] = tied
    more = torch.tensor([[0.6, -0.8, 0, 0]], dtype=torch.float64)
    mixing = MixingRule("second and hardest", 0.2, renormalise=False)
    expected = (0.2 * tied[1] + 0.8 * tied[0]).repeat(n, 1)
    expected[5] = 0.2 * tied[2] + 0.8 * tied[1]
    expected[n // 2] = 0.2 * tied[2] + 0.8 * tied[0]
    for backend in ("eager", "rowblock"):
        found = pairs(Views(a, b, more), backend).mixture(mixing)
        torch.testing.assert_close(found.vectors, expected)
    # in one pass: the tied columns push alike, the second part of the mixture more than the first
    objective = MixedInfoNCE(temperature=0.5)
    pushed = derivatives(objective, Views(a, b), "rowblock")[1][0]
    assert pushed[1] > 1.2 * pushed[2] > 1.2 * 1.2 * pushed[3] > 0
    whole = derivatives(objective, Views(a, b, more), "eager")
    assert apart(derivatives(objective, Views(a, b, more), "rowblock"), whole) < 1e-12


@pytest.mark.parametrize("tau", [0.05, 0.02, 0.001])
@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_low_temperatures_in_single_precision(objective: Mixed, tau: float) -> None:
    """From 1/30 on each row has its own maximum; the mixture may exceed it."""
    a, b = batch("random", 300, 20)
    cold = replace(objective, temperature=tau)
    exact = derivatives(cold, Views(a, b), "eager")
    single = derivatives(cold, Views(a.float(), b.float()), "rowblock")
    assert apart([x.double() for x in single], exact) < 1e-6 / tau


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["groups", "one group", "square"])
@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_a_learnt_temperature(objective: Mixed, kind: str, both: bool) -> None:
    """Also where some or all anchors have no mixture: none of them makes it NaN."""
    views, found = views_of(kind, n=40), []
    for backend in ("eager", "rowblock"):
        temperature = torch.tensor(0.11, dtype=torch.float64, requires_grad=True)
        learning = replace(objective, temperature=temperature)
        value = (learning.symmetric() if both else learning).loss(views, backend=backend)
        found.append(torch.autograd.grad(value, temperature)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


def test_nothing_flows_into_what_mixtures_are_made_of() -> None:
    """Without in-batch negatives and with one anchor, additional ones get only their own push."""
    a, b = (unit(x) for x in batch("random", 1, 5))
    more = unit(batch("random", 2, 5, seed=4)[0])
    views = Views(a, b, more, in_batch=False)
    objective = MixedInfoNCE(temperature=1.0)
    found = derivatives(objective, views, "rowblock")[3]
    mixture = pairs(views, "eager").mixture(objective.mixing).vectors[0]
    exponents = torch.stack([a[0] @ b[0], *(more @ a[0]), a[0] @ mixture]).softmax(0)
    along = (more @ a[0])[:, None] * more
    torch.testing.assert_close(found, exponents[1:3, None] * (a - along))


def test_two_mixtures_are_not_fused() -> None:
    first, second = ALL[0].mixing, ALL[-1].mixing
    with pytest.raises(Unfused, match="two mixtures"):
        record(lambda seen: seen.mixed(first, TAU) + seen.mixed(second, TAU), torch.float64)


@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_linear_memory(objective: Mixed) -> None:
    """4,096 rows: both directions in one call, and single losses; similarities would be 64 MB."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 4096, 16, generator=generator)
    a.requires_grad_()
    with Bytes() as seen:
        objective.symmetric()(a, b, backend="rowblock").backward()
        objective.formula(objective.compare(Views(a, b), "rowblock")).sum().backward()
    assert seen.largest <= 2 * tiles.TILE_BYTES
