"""What is logged of a batch, against loops and autograd in float64."""

import math

import pytest
import torch
from torch import Tensor

from isotrope.core.views import Views, unit
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.metrics import MEASURED
from isotrope.diagnostics.observe import measure, measure_unpaired
from isotrope.diagnostics.readings import negative_count
from isotrope.objectives import DCL, DINO, MPT, ArcCon, BarlowTwins, InfoNCE, NTXent
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from tests.measures.test_spread import entropy_rank
from tests.theorems.lemma import lemma1_of

OF_COMPONENTS = ("dissipation", "dead", "hardest_share", "ratio", "above_bound")


def distance_gap(anchors: Tensor, positives: Tensor) -> Tensor:
    """How much farther an anchor's negatives are than its positive, on average."""
    distance = torch.cdist(unit(anchors), unit(positives))
    own = distance.diagonal()
    return ((distance.sum(dim=1) - own) / (len(own) - 1) - own).mean()


def batch(n: int = 7, d: int = 5, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs that are nearer to each other than to the rest, of different lengths."""
    random = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(2, n, d, generator=random, dtype=torch.float64)
    return 3 * x, x + 0.7 * noise


def angle(x: Tensor, y: Tensor) -> float:
    return math.acos(float(x @ y / x.norm() / y.norm()))


@pytest.mark.parametrize("name", registry.names())
def test_the_embedding_gradient_is_autograds(name: str) -> None:
    objective = registry.build(name)
    anchors, positives = batch()
    leaf = anchors.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(leaf, positives), leaf)
    found = measure(objective, Views(anchors, positives))
    expected = len(anchors) * float(gradient.norm(dim=1).mean())
    assert found["embedding_gradient"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert tuple(found) == MEASURED


def test_a_loss_without_components_is_measured_in_inference_mode() -> None:
    expected = measure(DINO(), Views(*batch()))
    with torch.inference_mode():
        assert measure(DINO(), Views(*batch())) == expected


@pytest.mark.parametrize("objective", [MPT(), MPT(margin=2.0), ArcCon(), DCL()])
def test_the_parts_of_the_gradient_are_autograds(objective: Objective) -> None:
    anchors, positives = batch()
    found = measure(objective, Views(anchors, positives))
    names = ("gradient_alignment", "gradient_uniformity")
    for name, part in zip(names, objective.parts, strict=True):
        leaf = anchors.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(part(leaf, positives), leaf)
        at_unit = gradient * anchors.norm(dim=1, keepdim=True)
        expected = len(anchors) * float(at_unit.norm(dim=1).mean())
        assert found[name] == pytest.approx(expected, rel=1e-9)


def test_the_parts_of_infonce_are_the_printed_ones() -> None:
    """Nie et al. 2023, eq. 7; and of the push the length of the sum, not the sum of the lengths."""
    anchors, positives = batch()
    h, other, tau, n = unit(anchors), unit(positives), 0.4, len(anchors)
    pull = push = 0.0
    for i in range(n):
        e = (h[i] @ other.T / tau).exp()
        pull += float((e.sum() - e[i]) / e.sum() / tau * math.sin(angle(h[i], other[i]))) / n
        away = sum(e[j] * (other[j] - h[i] @ other[j] * h[i]) for j in range(n) if j != i)
        push += float((away / e.sum() / tau).norm()) / n
    found = measure(InfoNCE(temperature=tau), Views(anchors, positives))
    assert found["gradient_alignment"] == pytest.approx(pull, rel=1e-12)
    assert found["gradient_uniformity"] == pytest.approx(push, rel=1e-12)


def test_angles_gaps_and_ranks_are_those_of_a_double_loop() -> None:
    anchors, positives = batch()
    n = len(anchors)
    near = torch.tensor([angle(anchors[i], positives[i]) for i in range(n)])
    far = torch.tensor(
        [angle(anchors[i], positives[j]) for i in range(n) for j in range(n) if j != i]
    )
    found = measure(None, Views(anchors, positives))
    assert found["positive_mean"] == pytest.approx(float(near.mean()), rel=1e-6)
    assert found["positive_std"] == pytest.approx(float(near.std(correction=0)), rel=1e-6)
    assert found["negative_mean"] == pytest.approx(float(far.mean()), rel=1e-6)
    assert found["negative_std"] == pytest.approx(float(far.std(correction=0)), rel=1e-6)
    assert found["opposite_halves"] == int((near > math.pi / 2).sum()) / n
    expected = float(distance_gap(anchors, positives))
    assert found["distance_gap"] == pytest.approx(expected, rel=1e-9)
    assert found["effective_rank"] == pytest.approx(entropy_rank(anchors), rel=1e-6)


def test_rows_of_a_group_are_no_negatives() -> None:
    anchors, positives = batch(4)
    groups = torch.tensor([0, 0, 1, 2])
    pairs = [(0, 2), (0, 3), (1, 2), (1, 3), *((i, j) for i in (2, 3) for j in range(4) if j != i)]
    far = torch.tensor([angle(anchors[i], positives[j]) for i, j in pairs])
    found = measure(None, Views(anchors, positives, groups=groups))
    assert found["negative_mean"] == pytest.approx(float(far.mean()), rel=1e-6)
    assert found["negatives"] == (2 + 2 + 3 + 3) / 4
    alone = measure(InfoNCE(), Views(anchors, positives, groups=groups * 0))
    assert alone["negative_mean"] is alone["false_negatives"] is alone["above_bound"] is None
    assert alone["positive_mean"] is not None


@pytest.mark.parametrize(
    ("objective", "further", "expected"),
    [
        ("infonce", 0, 16),
        ("infonce", 16, 16 + 16),
        ("ntxent", 0, 2 * 16),
        ("ntxent", 17, 2 * 16 + 17),
        ("miov1", 17, 2 * 16 + 17),
        ("mpt", 17, 16 + 17),
        ("mhe", 0, 16),
        ("negativecosine", 0, 0),
    ],
)
def test_negatives_are_counted_once(objective: str, further: int, expected: int) -> None:
    """As many as there are columns with a weight, or candidates for the hardest."""
    anchors, positives = batch(17)
    negatives = batch(further)[0] if further else None
    views = Views(anchors, positives, negatives)
    loss = registry.build(objective)
    row = measure(loss, views)
    assert row["negatives"] == expected
    weighted = int((loss.terms(anchors, positives, negatives).weight[0] != 0).sum())
    assert weighted == (1 if objective == "mpt" else expected)
    if expected:
        case = RunEvidence(rows=[{**row, "step": 0}], objective=loss, settings={"batch-size": 17})
        assert negative_count(case) == expected


def test_groups_are_left_out_of_both_views() -> None:
    anchors, positives = batch(4)
    groups = torch.tensor([0, 0, 1, 2])
    row = measure(NTXent(), Views(anchors, positives, anchors, groups=groups))
    assert row["negatives"] == 2 * (2 + 2 + 3 + 3) / 4 + 4


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5])
def test_above_bound_counts_the_ratios_over_lemma_1(ratio: float) -> None:
    anchors, positives = batch(40)
    objective = InfoNCE(temperature=0.5).modify(ratio=ratio)
    active = objective.terms(anchors, positives).dissipation >= 0.01
    above = ratio > lemma1_of(anchors, positives, 0.0).lower
    found = measure(objective, Views(anchors, positives))["above_bound"]
    assert 0 < found == float(above[active].double().mean()) < 1
    assert measure(BarlowTwins(), Views(anchors, positives))["above_bound"] is None


def test_a_copy_of_the_positive_is_a_false_negative_however_far_the_anchor_is() -> None:
    numbers = torch.Generator().manual_seed(0)
    anchors, positives = (torch.randn(32, 64, generator=numbers) for _ in range(2))
    assert measure(None, Views(anchors, positives))["false_negatives"] == 0
    dropout = positives + 0.1 * torch.randn(32, 64, generator=numbers)
    assert measure(None, Views(anchors, positives, dropout))["false_negatives"] == 1
    positives[16:] = positives[:16]  # a batch with each text twice
    assert measure(None, Views(anchors, positives))["false_negatives"] == 1
    groups = torch.arange(32) % 16
    assert measure(None, Views(anchors, positives, groups=groups))["false_negatives"] == 0


def test_false_negatives_are_near_duplicates_and_not_a_collapse() -> None:
    x, noise, again = torch.randn(
        3, 32, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    views = x + 0.2 * noise, x + 0.2 * again
    assert measure(None, Views(*views))["false_negatives"] == 0
    x[8:16] = x[:8]  # eight texts come twice, and the views differ by noise
    twice = measure(None, Views(x + 0.2 * noise, x + 0.2 * again))["false_negatives"]
    assert twice == 0.5
    exact = measure(None, Views(x, x.clone()))["false_negatives"]
    assert exact == 0.5
    offset = 100 * torch.ones(64)
    assert measure(None, Views(noise + offset, again + offset))["false_negatives"] == 0


def test_without_an_objective_there_is_no_component() -> None:
    found = measure(None, Views(*batch()))
    about = {*OF_COMPONENTS, "gradient_alignment", "gradient_uniformity", "embedding_gradient"}
    assert {name for name, value in found.items() if value is None} == about


def test_of_logits_there_are_norms_rank_and_gradient() -> None:
    found = measure(DINO(), Views(*batch()))
    some = {name for name, value in found.items() if value is not None}
    assert some == {"norm", "effective_rank", "embedding_gradient"}


def test_rows_without_direction_and_single_rows_are_no_error() -> None:
    anchors, positives = batch(4)
    anchors[0] = 0
    assert all(
        value is None or math.isfinite(value)
        for value in measure(InfoNCE(), Views(anchors, positives)).values()
    )
    assert measure(None, Views(*batch(1)))["uniformity"] is None


def test_of_a_large_batch_the_first_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors, positives = batch(20)
    few = measure(InfoNCE(), Views(anchors[:8], positives[:8]))
    whole = measure(InfoNCE(), Views(anchors, positives))
    for module in ("paradigm.anatomy", "diagnostics.observe"):
        monkeypatch.setattr(f"isotrope.{module}.MOST", 8)
    found = measure(InfoNCE(), Views(anchors, positives))
    of_all = {"alignment", "norm", "opposite_halves", "std", "effective_rank"}
    for name in MEASURED:
        assert found[name] == (whole if name in of_all else few)[name], name
    alone = measure_unpaired(anchors)
    assert alone["uniformity"] == pytest.approx(few["uniformity"])
    assert alone["effective_rank"] == whole["effective_rank"]


def test_half_precision_is_measured_in_float32() -> None:
    anchors, positives = (x.bfloat16() for x in batch())
    found = measure(InfoNCE(), Views(anchors, positives))
    assert found == measure(InfoNCE(), Views(anchors.float(), positives.float()))


@pytest.mark.parametrize("short", [0.0, 1e-20])
def test_rows_without_direction(short: float) -> None:
    """Nothing reaches them; they are orthogonal to everything, and so to each other."""
    anchors, positives = batch()
    anchors[0] *= short
    objective = InfoNCE(temperature=0.5)
    found = measure(objective, Views(anchors, positives))
    leaf = anchors.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(leaf, positives), leaf)
    expected = len(anchors) * float(gradient.norm(dim=1).mean())
    assert found["embedding_gradient"] == pytest.approx(expected, rel=1e-9)
    assert found["distance_gap"] == pytest.approx(float(distance_gap(anchors, positives)))
    gone = measure(None, Views(short * anchors, short * positives))
    assert gone["positive_mean"] == pytest.approx(math.pi / 2)
    assert gone["negative_mean"] == pytest.approx(math.pi / 2)
    assert gone["distance_gap"] == 0


def test_a_batch_with_nan_has_no_rank() -> None:
    anchors, positives = batch()
    anchors[0, 0] = torch.nan
    assert math.isnan(measure(InfoNCE(), Views(anchors, positives))["effective_rank"] or 0)
