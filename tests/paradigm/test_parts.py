"""Named parts by themselves: exact values, clamps, and what is left without negatives."""

import math

import pytest
import torch
from torch import Tensor

from isotrope.core.hyper import hypers
from isotrope.core.views import Views, unit
from isotrope.kernels.choose import pairs
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import DCL, BarlowTwins, DCLPlus, InfoNCE, NegativeCosine
from isotrope.paradigm import anatomy, compose
from isotrope.paradigm.assemble import assemble, tangent
from isotrope.paradigm.authors_code import WithinViewMargin
from isotrope.paradigm.loss_shares import rows_loss
from isotrope.paradigm.metric import CLOSE, angle, dissimilarity, shifted, slope
from isotrope.paradigm.parts import (
    ArcRatio,
    Dissipation,
    Energy,
    Fraction,
    Hardest,
    Margin,
    MetricRatio,
    Power,
    Ratio,
    Softmax,
    Uniform,
    Weight,
)
from tests.paradigm.batches import batch

METRICS = ["dot", "distance", "angle"]


def at_angles(near: float, far: float) -> Pairs:
    """One anchor, its positive at `near`, one negative at `far` (row 1 is only a column)."""
    anchors = torch.tensor([[1.0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    positives = torch.tensor(
        [[math.cos(near), math.sin(near), 0], [math.cos(far), 0, math.sin(far)]],
        dtype=torch.float64,
    )
    return pairs(Views(anchors, positives))


@pytest.mark.parametrize("dissipation", [*METRICS, WithinViewMargin(), Fraction()])
def test_nan_is_no_reached_margin(dissipation: str | Dissipation) -> None:
    """An anchor that is NaN does not count as one whose gradient has dissipated."""
    gd = Margin(metric=dissipation) if isinstance(dissipation, str) else dissipation  # type: ignore[arg-type]
    anchors, positives = batch("random", 4, 3)
    anchors[1] = torch.nan
    assert gd(pairs(Views(anchors, positives).unit())).isnan()[1]
    assert bool(DCLPlus().terms(anchors, positives).dissipation.isnan()[1])


def test_a_normaliser_of_nan_leaves_no_weight() -> None:
    """One NaN in the sum of the batch makes every weight NaN, also those of other rows."""
    anchors, positives = batch("random", 4, 3)
    anchors[1] = torch.nan
    seen = pairs(Views(anchors, positives).unit())
    negative = seen.negative()
    assert Softmax(normaliser="batch")(seen)[negative].isnan().all()
    by_row = Softmax()(seen)
    assert by_row[1][negative[1]].isnan().all()
    assert by_row[[0, 2, 3]].isfinite().all()


def test_ratios_at_the_papers_angles() -> None:
    """Li et al. 2024, table 1: ArcCon at pi/6, u = 10 degrees; MET at (pi/6, pi/3)."""
    seen = at_angles(math.pi / 6, math.pi / 3)
    assert float(ArcRatio()(seen)[0]) == pytest.approx(1.2856, abs=5e-5)
    assert float(MetricRatio()(seen)[0]) == pytest.approx(1.9319, abs=5e-5)
    assert float(MetricRatio(metric="angle")(seen)[0]) == pytest.approx(math.sqrt(3))
    assert float(MetricRatio(metric="dot")(seen)[0]) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_slope_is_the_derivative_clamps_included(metric: str) -> None:
    s = torch.tensor([-1, -1 + 1e-6, -0.5, 0, 0.9, 1 - 1e-3, 1 - 1e-6, 1], dtype=torch.float64)
    x = s.clone().requires_grad_()
    (found,) = torch.autograd.grad(dissimilarity(x, metric).sum(), x)
    torch.testing.assert_close(-found, slope(s, metric))
    if metric == "distance":
        assert slope(s, metric)[0] == 0.5  # only close pairs are clamped
        assert slope(s, metric)[-2:].tolist() == [0, 0]
    assert float(dissimilarity(torch.tensor(-torch.inf), metric)) == torch.inf


def test_the_clamp_is_a_distance_of_a_hundredth() -> None:
    one = torch.tensor(1.0, dtype=torch.float64)
    assert float(dissimilarity(one, "distance")) == pytest.approx(0.01)
    assert float(angle(one)) == pytest.approx(0.01, rel=1e-4)
    assert CLOSE == 5e-5


def test_shifted_is_held_at_pi() -> None:
    s = torch.tensor([0.5, -0.99, 0.3], dtype=torch.float64, requires_grad=True)
    moved = shifted(s, 0.5)
    assert float(moved.detach()[0]) == pytest.approx(math.cos(math.pi / 3 + 0.5))
    assert float(moved.detach()[1]) == -1  # 171.9 + 28.6 degrees is beyond pi
    (found,) = torch.autograd.grad(moved.sum(), s)
    assert found[1] == 0
    assert shifted(s, 0.0) is s


@pytest.mark.parametrize(("metric", "gap"), [("dot", 0.366), ("distance", 0.482), ("angle", 0.524)])
def test_a_margin_in_every_metric(metric: str, gap: float) -> None:
    seen = at_angles(math.pi / 6, math.pi / 3)
    assert float(Margin(margin=gap + 1e-3, metric=metric)(seen)[0]) == 1
    assert float(Margin(margin=gap - 1e-3, metric=metric)(seen)[0]) == 0


def test_fraction_with_a_margin_is_arccons() -> None:
    near, far, tau, u = 0.6, 1.0, 0.05, math.pi / 18
    e = math.exp(math.cos(near + u) / tau) / math.exp(math.cos(far) / tau)
    found = Fraction(temperature=tau, margin=u)(at_angles(near, far))[0]
    assert float(found) == pytest.approx(1 / (1 + e), rel=1e-12)


def test_arccon_without_a_margin_is_infonce() -> None:
    same = at_angles(0.0, 1.0)  # the positive is the anchor: clamped for every other margin
    assert ArcRatio(margin=0.0)(same).tolist() == [1, 1]
    assert float(ArcRatio(margin=0.1)(same)[0]) == 0


@pytest.mark.parametrize("metric", METRICS)
def test_hardest_pushes_by_the_slope_at_the_first_of_ties(metric: str) -> None:
    a = unit(torch.tensor([[1.0, 0.2], [0.1, 1], [0.1, 1], [0.1, 1]], dtype=torch.float64))
    seen = pairs(Views(a, a.clone()))
    weight = Hardest(metric=metric, by="anchors")(seen)
    assert (weight[0] != 0).tolist() == [False, True, False, False]
    expected = slope(a[0] @ a[1], metric)
    torch.testing.assert_close(weight[0, 1], expected)
    close = weight[1]  # rows 1 to 3 are equal: clamped unless it is the dot product
    assert close.tolist() == ([0, 0, 1, 0] if metric == "dot" else [0, 0, 0, 0])


def test_power_uniform_and_energy_by_hand() -> None:
    a, b = (unit(x) for x in batch("random", 5, 4))
    seen = pairs(Views(a, b))
    off = ~torch.eye(5, dtype=torch.bool)
    raised = (a @ b.T).clamp_min(1e-4).pow(3) * off
    torch.testing.assert_close(Power(power=3.0)(seen), raised / raised.sum(1, keepdim=True))
    torch.testing.assert_close(Uniform()(seen), off.double() / 4)
    tau = 0.3
    h = a.clone().requires_grad_()
    upper = torch.triu_indices(5, 5, 1)
    log_energy = torch.logsumexp((h @ h.T)[upper[0], upper[1]] / tau, 0)
    (found,) = torch.autograd.grad(log_energy, h)
    torch.testing.assert_close(Energy(temperature=tau)(seen) @ a, found)


@pytest.mark.parametrize("kind", [Dissipation, Weight, Ratio])
def test_every_part_without_any_negative(kind: type) -> None:
    """All rows in one group: nothing pushes, margins have nothing left to do, no NaN."""
    a, b = (unit(x) for x in batch("random", 4, 3))
    seen = pairs(Views(a, b, groups=torch.zeros(4, dtype=torch.long)))
    for name, cls in kind.by_name.items():
        for choice in [{}, *({f: c} for f, h in hypers(cls).items() for c in h.choices)]:
            value = cls(**choice)(seen)
            assert torch.isfinite(value).all(), (name, choice)
            if kind is Weight:
                assert (value == 0).all(), (name, choice)
            if name == "margin":
                assert (value == 0).all(), choice


def test_further_negatives_are_columns_of_every_weight() -> None:
    a, b = (unit(x) for x in batch("random", 4, 3))
    more = unit(batch("random", 2, 3, seed=1)[0])
    for name, cls in Weight.by_name.items():
        for by, columns in (("cross", 6), ("anchors", 6), ("positives", 6), ("both", 10)):
            weight = cls(by=by)(pairs(Views(a, b, more)))
            assert weight.shape == (4, columns), (name, by)


def one_row(objective, views: Views, row: int) -> Tensor:
    """The gradient on one anchor of a batch with gathered keys, everything else constant."""
    h = views.anchors.clone().requires_grad_()
    moved = Views(h, views.positives, views.negatives, views.offset)
    return torch.autograd.grad(objective.loss(moved), h)[0][row]


@pytest.mark.parametrize("objective", [InfoNCE(), DCL(views="both")], ids=["cross", "both"])
def test_components_of_gathered_keys(objective) -> None:
    """Three anchors against nine keys, the first of which is row 4."""
    a, b = (unit(x) for x in batch("random", 9, 5))
    views = Views(a[4:7], b, offset=4)
    with torch.no_grad():
        terms = objective.components(pairs(views))
    expected = tangent(terms.scale * assemble(terms, views), views.anchors)
    for row in range(3):
        torch.testing.assert_close(one_row(objective, views, row), expected[row])


def test_symmetric_forms_and_parts_are_objectives() -> None:
    a, b = batch("random", 6, 4)
    both = InfoNCE(temperature=0.1).symmetric()
    assert both.hyperparameters()["symmetric"] is True
    assert both.symmetric() is both, "it does not tell its views apart any more"
    assert BarlowTwins().symmetric() == BarlowTwins()
    values = (InfoNCE(temperature=0.1).per_anchor(a, b), InfoNCE(temperature=0.1).per_anchor(b, a))
    torch.testing.assert_close(both.per_anchor(a, b), sum(values) / 2)
    pull, push = InfoNCE(temperature=0.1).parts
    torch.testing.assert_close(pull(a, b) + push(a, b), InfoNCE(temperature=0.1)(a, b))
    torch.testing.assert_close(pull(a, b), -torch.cosine_similarity(a, b).mean() / 0.1)
    assert pull.hyperparameters()["part"] == "attraction"


def test_a_batch_of_one_where_nothing_is_compared() -> None:
    a, b = batch("random", 2, 3)
    value = NegativeCosine()(a[:1], b[:1])
    torch.testing.assert_close(value, -torch.cosine_similarity(a[:1], b[:1])[0])


def test_softmax_stays_finite_where_the_exponential_would_not() -> None:
    a, b = (x.float() for x in batch("random", 6, 4))
    weight = Softmax(temperature=1e-4, by="anchors", normaliser="batch")(pairs(Views(a, b).unit()))
    assert torch.isfinite(weight).all()
    assert float(weight.sum()) == pytest.approx(1)


def test_an_edit_keeps_what_the_parent_is() -> None:
    """No negatives from the batch, or a pull without any push: an exchange changes neither."""
    a, b = batch("random", 5, 4)
    more = batch("random", 3, 4, seed=1)[0]
    queue = InfoNCE(in_batch=False).modify(ratio=1.0)
    assert (queue.terms(a, b, more).weight[:, :5] == 0).all()
    with pytest.raises(ValueError, match="in_batch=False needs additional negatives"):
        queue(a, b)
    pushed = NegativeCosine().modify(weight="softmax:0.05")
    assert pushed.terms(a, b).pull.tolist() == [1] * 5


def test_an_edit_of_the_mean_of_both_directions_is_one_of_a_direction() -> None:
    """An edit averages both directions itself. Each of several processes computes its part."""
    edited = InfoNCE().symmetric().modify(dissipation="margin:0.3")
    assert edited == InfoNCE().modify(dissipation="margin:0.3")
    assert edited.coupling == "none"
    views = Views(*batch("random", 8, 4))
    parts = [rows_loss(edited, views, rows) for rows in (slice(0, 5), slice(5, 8))]
    torch.testing.assert_close(sum(parts), edited.loss(views))


def test_a_composition_learns_no_temperature() -> None:
    """Neither its own nor its parent's: its components are constant."""
    learnt = torch.tensor(0.1, requires_grad=True)
    with pytest.raises(ValueError, match="temperature of InfoNCE: it cannot be learnt"):
        InfoNCE(temperature=learnt).modify(dissipation="margin:0.3")
    with pytest.raises(ValueError, match="temperature of Softmax: it cannot be learnt"):
        InfoNCE().modify(weight=Softmax(temperature=learnt))
    assert DCL(temperature=learnt).parts.repulsion.objective == DCL(temperature=learnt)


@pytest.mark.parametrize("kind", [Dissipation, Weight, Ratio])
def test_the_short_form_names_the_part(kind: type) -> None:
    for cls in kind.by_name.values():
        again = compose.part(kind, cls().short())
        assert type(again) is cls
        assert again.short() == cls().short()
    assert Margin(margin=0.25, metric="angle").short() == "margin:0.25:angle"


def test_a_composition_reports_what_was_given() -> None:
    edited = InfoNCE().modify(weight="hardest", ratio=1.5)
    assert edited.hyperparameters() == {
        "weight": "hardest:dot:cross",
        "ratio": "static:1.5",
        "parent": InfoNCE(),
        "variant": "paper",
    }


def test_the_anatomy_of_a_large_batch_is_that_of_its_first_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = batch("random", 30, 4)
    groups = torch.arange(30) // 2
    few = anatomy.anatomy(InfoNCE(), Views(a[:8], b[:8], groups=groups[:8]))
    monkeypatch.setattr(anatomy, "MOST", 8)
    assert anatomy.anatomy(InfoNCE(), Views(a, b, groups=groups)) == few


def test_a_part_of_another_module_keeps_its_name() -> None:
    part = {"__module__": "somebody.elses"}
    with pytest.raises(TypeError, match=r"rename Margin: isotrope\.paradigm\.parts also defines"):
        type("Margin", (Dissipation,), part)
    assert Dissipation.by_name["margin"].__module__ == "isotrope.paradigm.parts"
