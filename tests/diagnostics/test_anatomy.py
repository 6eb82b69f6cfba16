"""The anatomy of a loop of one's own."""

import csv
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import isotrope
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.diagnostics.anatomy import COLUMNS, Anatomy
from isotrope.diagnostics.metrics import MEASURED
from isotrope.diagnostics.observe import measure
from isotrope.objectives import DCL, InfoNCE

GRADIENT = ("gradient_alignment", "gradient_uniformity", "embedding_gradient")
COMPONENTS = ("dissipation", "dead", "hardest_share", "ratio", "above_bound")


def users_loss(anchors: Tensor, positives: Tensor, temperature: float = 0.1) -> Tensor:
    """What someone without this library writes."""
    a, b = F.normalize(anchors, dim=1), F.normalize(positives, dim=1)
    return F.cross_entropy(a @ b.T / temperature, torch.arange(len(a)))


def batch(n: int = 12, d: int = 20, *, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, n, d, generator=random, dtype=dtype)
    return (3 * x).requires_grad_(), (x + 0.9 * noise).requires_grad_()


def test_a_plain_loop_with_a_loss_of_ones_own(tmp_path: Path) -> None:
    """The example of the README: five lines around someone's own training."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 24))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    data = torch.randn(160, 16)

    anatomy = isotrope.Doctor(every=5, temperature=0.1, say=None)
    for step in range(20):
        x = data[step % 10 * 16 :][:16]
        anchors, positives = encoder(x), encoder(x + 0.5 * torch.randn(16, 16))
        loss = users_loss(anchors, positives)
        anatomy.observe(anchors, positives, loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = anatomy.save(tmp_path / "run")

    with (folder / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["step"] for row in rows] == ["0", "5", "10", "15"]
    assert all(row[name] for row in rows for name in ("loss", "misfit", *MEASURED))
    assert all(0 < float(row["dissipation"]) < 1 for row in rows)
    again = Anatomy.load(tmp_path / "run")
    assert again.rows[-1]["dissipation"] == pytest.approx(anatomy.rows[-1]["dissipation"], rel=1e-9)
    assert [row["step"] for row in again.rows] == [0, 5, 10, 15]
    assert again.diagnose().verdict == anatomy.diagnose(batch_size=16).verdict


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_a_loss_of_ones_own_has_the_numbers_of_the_same_objective(temperature: float) -> None:
    anchors, positives = batch()
    row = Anatomy(temperature=temperature).observe(
        anchors, positives, users_loss(anchors, positives, temperature)
    )
    assert row is not None
    expected = measure(InfoNCE(temperature=temperature), Views(anchors, positives))
    for name in MEASURED:
        assert row[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-12), name
    assert row["misfit"] < 1e-9


@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5])
@pytest.mark.parametrize(("n", "d"), [(12, 20), (30, 20)])
def test_the_temperature_of_a_softmax_is_found(temperature: float, n: int, d: int) -> None:
    """Also with more columns than dimensions, where a gradient does not determine all weights."""
    anchors, positives = batch(n, d)
    row = Anatomy().observe(anchors, positives, users_loss(anchors, positives, temperature))
    expected = measure(InfoNCE(temperature=temperature), Views(anchors, positives))
    assert row is not None
    assert row["temperature"] == pytest.approx(temperature, rel=1e-3)
    for name in MEASURED:
        assert row[name] == pytest.approx(expected[name], rel=1e-2, abs=1e-6), name
    assert row["misfit"] < 1e-3
    assert row["negatives"] == n - 1


def scaled(anchors: Tensor, positives: Tensor) -> Tensor:
    """A loss that is nobody's mean: its factor is in the gradient."""
    cosine = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T
    hardest = (cosine - 9 * torch.eye(len(cosine))).amax(dim=1)
    return 7 * F.relu(0.3 + hardest - cosine.diagonal()).mean()


def test_a_dissipation_in_unknown_units_is_not_judged() -> None:
    anchors, positives = batch()
    notes = {}
    for loss in (scaled, users_loss):
        anatomy = Anatomy(every=1)
        for _ in range(12):
            anatomy.observe(anchors, positives, loss(anchors, positives))
        notes[loss] = anatomy.diagnose().notes
        assert anatomy.rows[0]["dissipation"] is not None
    assert any("give the loss's temperature" in note for note in notes[scaled])
    assert not any("give the loss's temperature" in note for note in notes[users_loss])


@pytest.mark.parametrize(("n", "d"), [(12, 20), (30, 20)])
@pytest.mark.parametrize("times", [0.01, 0.25, 40.0])
def test_a_factor_of_the_loss_is_no_dissipation(times: float, n: int, d: int) -> None:
    """A weight, or 1 over the accumulated batches: a tenth of the loss is not nearly learnt."""
    anchors, positives = batch(n, d)
    expected = measure(InfoNCE(temperature=0.1), Views(anchors, positives))
    anatomy = Anatomy()
    row = anatomy.observe(anchors, positives, times * users_loss(anchors, positives))
    assert row is not None
    assert anatomy.factor == pytest.approx(times, rel=1e-2)
    for name in COMPONENTS:
        assert row[name] == pytest.approx(expected[name], rel=1e-2, abs=1e-6), name
    assert any(f"{anatomy.factor:.3g} times InfoNCE" in note for note in anatomy.case().notes)


@pytest.mark.parametrize(("n", "d"), [(12, 20), (30, 20)])
@pytest.mark.parametrize("objective", [InfoNCE(temperature=0.5), DCL(temperature=0.1)])
@pytest.mark.parametrize("times", [0.009, 1.0, 40.0])
def test_a_factor_is_unknown_where_gd_is_the_same_for_all_anchors(
    times: float, objective: InfoNCE | DCL, n: int, d: int
) -> None:
    """Only a GD near that of InfoNCE or DCL is one: 0.009 of either is no anchor that is done."""
    anchors, positives = batch(n, d)
    anchors = (anchors + 9 * torch.randn(n, d, generator=torch.Generator().manual_seed(1))).detach()
    anchors.requires_grad_()
    anatomy = Anatomy(every=1)
    for _ in range(8):
        similarity = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T
        scores = similarity / objective.temperature
        others = scores - 1e9 * torch.eye(n) if isinstance(objective, DCL) else scores
        loss = (others.logsumexp(dim=1) - scores.diagonal()).mean()
        row = anatomy.observe(anchors, positives, times * loss)
    assert row is not None
    expected = measure(objective, Views(anchors, positives))
    for name in ("hardest_share", "ratio"):
        assert row[name] == pytest.approx(expected[name], rel=1e-2), name
    found = anatomy.diagnose(batch_size=n)
    assert found.verdict == ("healthy",)
    known = times == 1 or isinstance(objective, InfoNCE)  # whose GD is nearly the same, not quite
    assert any("is not known" in note for note in found.notes) is not known
    if known:
        assert anatomy.factor == pytest.approx(times, rel=0.06)
        assert row["dissipation"] == pytest.approx(expected["dissipation"], rel=0.06)
    else:
        assert anatomy.factor is row["dissipation"] is row["dead"] is None


def test_an_even_push_has_the_temperature_that_the_loss_divides_by() -> None:
    """All anchors of this loss are live; with 1/temperature in GD all looked done."""
    anchors, positives = batch(24, 32, dtype=torch.float32)
    anatomy = Anatomy(every=1)
    for _ in range(8):
        row = anatomy.observe(anchors, positives, users_loss(anchors, positives, 1e3))
    assert row is not None
    assert row["temperature"] == pytest.approx(1e3, rel=1e-2)
    assert row["dissipation"] == pytest.approx(23 / 24, rel=1e-2)
    assert row["ratio"] == pytest.approx(1, rel=1e-2)
    assert "nothing-left-to-learn" not in anatomy.diagnose(batch_size=24).verdict


def test_a_loss_near_a_softmax_has_the_unit_of_a_softmax() -> None:
    """Both directions of unequal weight leave out about 1%: 1/temperature is no dissipation."""
    anatomy, kinds = Anatomy(every=1), set()
    x, *noises = torch.randn(3, 64, 16, generator=torch.Generator().manual_seed(0))
    for size in (0.5, 1.0, 1.5):
        anchors, positives = (x + size * noise for noise in noises)
        anchors.requires_grad_()
        loss = users_loss(anchors, positives, 0.3) + 0.7 * users_loss(positives, anchors, 0.3)
        anatomy.observe(anchors, positives, loss / 1.7)
        kinds.add(anatomy.kind)
    assert kinds == {"softmax"}
    assert all(0.7 < (row["dissipation"] or 0) < 1 for row in anatomy.rows)


@pytest.mark.parametrize(("name", "temperature"), [("NTXentLoss", 0.07), ("SupConLoss", 0.2)])
def test_losses_of_pytorch_metric_learning_are_softmaxes_of_both_directions(
    name: str, temperature: float
) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    loss = losses.SelfSupervisedLoss(getattr(losses, name)(temperature=temperature))
    anchors, positives = batch(24, 32, dtype=torch.float32)
    anatomy = Anatomy(every=1)
    row = anatomy.observe(anchors, positives, loss(anchors, positives))
    assert row is not None
    assert (anatomy.kind, anatomy.factor) == ("softmax", 1.0)
    assert row["temperature"] == pytest.approx(temperature, rel=1e-3)
    views = Views(anchors.detach(), positives.detach())
    expected = measure(isotrope.objectives.NTXent(temperature=temperature), views)
    for column in ("dissipation", "dead", "hardest_share", "ratio", "negatives"):
        # rows of both views are anchors
        assert row[column] == pytest.approx(expected[column], rel=0.15), column


def pairs_loss(anchors: Tensor, positives: Tensor) -> Tensor:
    """Half of the pairs belong together, as scored pairs have it."""
    wanted = torch.arange(len(anchors)) % 2
    return (F.cosine_similarity(anchors, positives) - wanted).square().mean()


def test_no_negatives_is_not_an_anchor_that_is_done() -> None:
    anchors, positives = batch(16, 20, dtype=torch.float32)
    anatomy = Anatomy(every=1)
    for _ in range(8):
        row = anatomy.observe(anchors, positives, pairs_loss(anchors, positives))
    assert row is not None
    assert row["negatives"] == 0
    assert row["misfit"] < 1e-5
    assert all(row[name] is None for name in COMPONENTS)
    assert row["positive_mean"] is None  # half of the pairs are to be apart
    assert row["uniformity"] is not None is not row["embedding_gradient"]
    found = anatomy.diagnose(batch_size=16)
    assert found.verdict == ("healthy",)
    assert any("no in-batch negatives" in note for note in found.notes)


def test_pairs_that_belong_together_have_angles() -> None:
    anchors, positives = batch()
    row = Anatomy().observe(anchors, positives, 1 - F.cosine_similarity(anchors, positives).mean())
    assert row is not None
    assert row["negatives"] == 0
    assert row["dissipation"] is None is not row["positive_mean"]


@pytest.mark.parametrize("objective", [None, InfoNCE(temperature=0.1)])
def test_a_batch_of_one_has_no_negatives(objective: InfoNCE | None) -> None:
    anchors, positives = batch(1, 20)
    anatomy = Anatomy(objective, every=1)
    for _ in range(8):
        row = anatomy.observe(anchors, positives, users_loss(anchors, positives))
    assert row is not None
    assert row["negatives"] == 0
    assert row["dissipation"] is row["dead"] is None
    assert anatomy.diagnose(batch_size=1).verdict == ("no-negatives",)
    pairs = Anatomy(every=1)
    for _ in range(8):
        pairs.observe(anchors, positives, 1 - F.cosine_similarity(anchors, positives).mean())
    assert "no-negatives" not in pairs.diagnose(batch_size=1).verdict


def test_a_batch_of_one_group_has_no_negatives() -> None:
    anchors, positives = batch(6, 20)
    anatomy = Anatomy(InfoNCE(), every=1)
    for _ in range(8):
        row = anatomy.observe(anchors, positives, groups=torch.zeros(6, dtype=torch.long))
    assert row is not None
    assert row["negatives"] == 0
    assert row["dissipation"] is row["dead"] is None
    found = anatomy.diagnose(batch_size=6)
    assert found.verdict[0] == "no-negatives"
    assert "more than one group" in found.findings[0].change


def test_a_loss_of_dot_products_is_not_one_of_cosines() -> None:
    anchors, positives = batch()
    loss = F.cross_entropy(anchors @ positives.T, torch.arange(len(anchors)))
    row = Anatomy().observe(anchors, positives, loss)
    assert row is not None
    assert (row["radial"] or 0) > 0.05
    assert row["temperature"] == pytest.approx(1, rel=1e-3)
    assert row["norm"] is not None is not row["effective_rank"]
    unit = F.normalize(anchors.detach(), dim=1).requires_grad_(), F.normalize(positives, dim=1)
    loss = F.cross_entropy(10 * unit[0] @ unit[1].T, torch.arange(len(anchors)))
    row = Anatomy().observe(*unit, loss)
    assert row is not None
    assert row["temperature"] == pytest.approx(0.1, rel=1e-3)


def test_embeddings_without_positives_show_how_they_lie() -> None:
    anchors, _ = batch()
    row = Anatomy().observe(anchors, None, F.normalize(anchors, dim=1).sum(dim=0).norm())
    assert row is not None
    assert row["positive_mean"] is row["dissipation"] is None
    assert all(row[n] is not None for n in ("norm", "uniformity", "std", "embedding_gradient"))


def test_a_sum_is_no_mean() -> None:
    anchors, positives = batch()
    loss = len(anchors) * users_loss(anchors, positives)
    row = Anatomy(reduction="sum").observe(anchors, positives, loss)
    mean = Anatomy().observe(anchors, positives, users_loss(anchors, positives))
    assert row is not None
    assert mean is not None
    for name in (*COMPONENTS, *GRADIENT):
        assert row[name] == pytest.approx(mean[name], rel=1e-9), name


def test_negatives_and_both_views() -> None:
    anchors, positives = batch(4, 20)
    negatives = torch.randn(3, 20, generator=torch.Generator().manual_seed(1)).double()
    loss = DCL(temperature=0.3)(anchors, positives, negatives)
    row = Anatomy(temperature=0.3).observe(anchors, positives, loss, negatives=negatives)
    assert row is not None
    expected = measure(DCL(temperature=0.3), Views(anchors, positives, negatives))
    assert row["hardest_share"] == pytest.approx(expected["hardest_share"], rel=1e-6)
    assert row["negative_mean"] == pytest.approx(expected["negative_mean"], rel=1e-6)
    row = Anatomy("ntxent").observe(anchors, positives, users_loss(anchors, positives))
    assert row is not None
    assert row["negatives"] == 2 * (len(anchors) - 1)


def test_an_objective_tells_its_own_components() -> None:
    anchors, positives = batch(30, 5)  # a gradient in 5 dimensions determines no 30 weights
    objective = InfoNCE(temperature=0.2)
    row = Anatomy(objective).observe(anchors, positives, objective(anchors, positives))
    assert row is not None
    assert row["dissipation"] == measure(objective, Views(anchors, positives))["dissipation"]
    assert row["misfit"] is None
    # of a loss of one's own the graph shows the weights, however few dimensions there are
    seen = Anatomy().observe(anchors, positives, users_loss(anchors, positives, 0.2))
    assert seen is not None
    assert seen["hardest_share"] == pytest.approx(row["hardest_share"])


def test_half_precision_is_good_for_two_digits() -> None:
    anchors, positives = batch(16, 64, dtype=torch.float32)
    half = anchors.detach().bfloat16().requires_grad_(), positives.detach().bfloat16()
    row = Anatomy(temperature=0.5).observe(*half, users_loss(*half, 0.5))
    exact = Anatomy(temperature=0.5).observe(
        anchors, positives, users_loss(anchors, positives, 0.5)
    )
    assert row is not None
    assert exact is not None
    for name in ("dissipation", "ratio", *GRADIENT):
        assert row[name] == pytest.approx(exact[name], rel=0.02), name


def test_what_is_not_due_is_not_looked_at() -> None:
    anatomy = Anatomy(every=3)
    anchors, positives = batch()
    loss = users_loss(anchors, positives)
    wrong = torch.ones(3, 3)  # would be refused
    assert anatomy.observe(anchors, positives, loss) is not None
    assert anatomy.observe(wrong, wrong.flatten(), wrong) is None
    assert not anatomy.due()
    assert anatomy.observe(wrong, wrong.flatten(), wrong) is None
    assert anatomy.due()
    assert len(anatomy.rows) == 1
    assert anatomy.calls == 3


def test_a_step_is_looked_at_once() -> None:
    """Gradient accumulation: several batches of one step."""
    anatomy = Anatomy(every=2)
    for step in (0, 0, 1, 1, 2, 2):
        anatomy.observe(*batch(), step=step)
    assert [row["step"] for row in anatomy.rows] == [0, 2]


def test_autocast_does_not_reach_the_measures() -> None:
    anchors, positives = batch(dtype=torch.float32)
    objective = InfoNCE()
    with torch.autocast("cpu", torch.bfloat16):
        found = Anatomy(objective).observe(anchors, positives)
    assert found == Anatomy(objective).observe(anchors, positives)


def test_the_graph_and_the_gradients_of_parameters_are_left_alone() -> None:
    layer = nn.Linear(8, 20).double()
    x, other = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0)).double()
    gradients = []
    for looked in (False, True):
        layer.zero_grad()
        anchors, positives = layer(x), layer(other)
        loss = users_loss(anchors, positives)
        if looked:
            Anatomy().observe(anchors, positives, loss)
            assert layer.weight.grad is None
        loss.backward()
        gradients.append(layer.weight.grad.clone())
    assert torch.equal(*gradients)


def test_nan_is_a_row_without_measurements() -> None:
    anchors, positives = batch()
    with torch.no_grad():
        anchors[0, 0] = torch.nan
    row = Anatomy().observe(anchors, positives, users_loss(anchors, positives))
    assert row is not None
    assert math.isnan(row["loss"] or 0)
    assert all(row[name] is None for name in MEASURED)


def test_without_a_loss_or_a_history_there_is_no_gradient() -> None:
    anchors, positives = batch()
    row = Anatomy().observe(anchors, positives)
    with torch.no_grad():
        also = Anatomy().observe(anchors, positives, users_loss(anchors, positives))
    assert row is not None
    assert also is not None
    assert row["loss"] is None is not also["loss"]
    assert row["embedding_gradient"] is also["embedding_gradient"] is None
    assert row["positive_mean"] == also["positive_mean"] is not None


def test_notes_join_the_row_of_their_step(tmp_path: Path) -> None:
    anatomy = Anatomy(every=2)
    with pytest.raises(ValueError, match="no row to add to"):
        anatomy.note(dev=1.0)
    for _ in range(3):
        anatomy.observe(*batch())
    anatomy.note(gradient_norm=2.0)
    anatomy.note(1, dev=70.5)
    anatomy.note(0, dev=70.0, learning_rate=1e-3)
    anatomy.note(4, dev=71.0)  # before the step is looked at
    anatomy.observe(*batch(), step=4)
    rows = Anatomy.load(anatomy.save(tmp_path / "a.csv")).rows
    assert [row["step"] for row in rows] == [0, 1, 2, 4]
    assert [row["dev"] for row in rows] == [70, 70.5, None, 71]
    assert [row["gradient_norm"] for row in rows] == [None, None, 2, None]
    assert [row["norm"] is None for row in rows] == [False, True, False, False]


def test_a_resumed_loop_keeps_the_score_of_its_checkpoint(tmp_path: Path) -> None:
    """It is not computed again; what else was measured there, is."""
    anchors, positives = batch(8, 16)
    whole, resumed = Anatomy(every=2), Anatomy(every=2)
    for step in range(6):
        if step == 4:
            whole.note(4, dev=80.0)
            whole.note(5, dev=70.0)
        whole.observe(anchors, positives, users_loss(anchors, positives))
    whole.save(tmp_path)
    resumed.resume(tmp_path, 4)
    assert [row["step"] for row in resumed.rows] == [0, 2, 4]
    assert resumed.rows[-1]["dev"] == 80.0
    assert resumed.rows[-1]["dissipation"] is None
    resumed.observe(anchors, positives, users_loss(anchors, positives))
    assert [row["step"] for row in resumed.rows] == [0, 2, 4]
    assert resumed.rows[-1]["dissipation"] == pytest.approx(whole.rows[2]["dissipation"])


def test_a_resumed_loop_adds_rows(tmp_path: Path) -> None:
    """The steps of the loop are counted by the calls, and these go on."""
    before = isotrope.Doctor(every=10, say=None)
    for _ in range(25):
        before.observe(*batch())
    state = before.state_dict()
    before.save(tmp_path)

    resumed, older = (isotrope.Doctor(every=10, say=None) for _ in range(2))
    resumed.load_state_dict(state)
    older.load_state_dict({"rows": state["rows"]})  # a checkpoint that did not count the calls
    from_file = Anatomy(every=10)
    from_file.resume(tmp_path, 25)
    for continued in (resumed, older, from_file):
        for _ in range(25):
            continued.observe(*batch())
        assert [row["step"] for row in continued.rows] == [0, 10, 20, 30, 40]


def test_a_run_of_ours_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,dissipation,samples_per_second\n3,1.5,,9\n")
    (row,) = Anatomy.load(tmp_path).rows
    assert row == {**dict.fromkeys(COLUMNS), "step": 3, "loss": 1.5}


@pytest.mark.parametrize(
    "content", [None, "steps\n1\n", "step\nx\n", 'step\n"' + "1," * 100_000], ids=range(4)
)
def test_what_is_no_anatomy_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(InputError, match=r"metrics\.csv"):
        Anatomy.load(tmp_path)


def test_a_named_objective_is_built() -> None:
    anchors, positives = batch()
    objective = InfoNCE()
    loss = objective(anchors, positives)
    named = Anatomy("InfoNCE")
    assert named.observe(anchors, positives, loss) == Anatomy(objective).observe(
        anchors, positives, loss
    )
    assert named.kind == "known"


def test_mistakes_are_named() -> None:
    anchors, positives = batch()
    loss = users_loss(anchors, positives)
    with pytest.raises(ValueError, match="every must be positive; found 0"):
        Anatomy(every=0)
    with pytest.raises(ValueError, match="temperature must be positive; found -1"):
        Anatomy(temperature=-1.0)
    for wrong, message in (
        ({"reduction": "avg"}, "reduction must be 'mean' or 'sum'; found 'avg'"),
        ({"reduction": "Mean"}, "reduction must be 'mean' or 'sum'; found 'Mean'"),
        ({"objective": "infonse"}, r"unknown objective 'infonse' \(did you mean 'infonce'\?\)"),
        (
            {"objective": InfoNCE},
            "objective must be an objective of isotrope, such as InfoNCE\\(\\), or",
        ),
    ):
        with pytest.raises(InputError, match=message):
            Anatomy(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^the loss must be the tensor .* found 1.5 \(float\)"):
        Anatomy().observe(anchors, positives, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be a scalar; found shape \(12, 1\)"):
        Anatomy().observe(anchors, positives, loss.expand(12, 1))
    with pytest.raises(ValueError, match="does not depend on these anchors"):
        Anatomy().observe(anchors.detach(), positives, loss)
    with pytest.raises(ValueError, match="does not depend on these anchors"):
        Anatomy().observe(anchors * 1, positives, loss)


def test_nan_among_further_negatives_is_no_error() -> None:
    anchors, positives = batch()
    negatives = torch.full((2, 20), torch.nan, dtype=torch.float64)
    loss = users_loss(anchors, torch.cat([positives, negatives]))
    row = Anatomy().observe(anchors, positives, loss, negatives=negatives)
    assert row is not None
    assert math.isnan(row["loss"] or 0)
    assert row["norm"] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_no_ratio(dtype: torch.dtype) -> None:
    """Of an anchor with GD 1e-4 a gradient in half precision holds the push, not the pull."""
    anchors, positives = batch(16, 64, dtype=torch.float32)
    given = anchors.detach().to(dtype).requires_grad_(), positives.detach().to(dtype)
    row = Anatomy(temperature=0.1).observe(*given, users_loss(*given, 0.1))
    assert row is not None
    assert 0 < (row["dead"] or 0) < 1
    rounded = 0.06 if dtype == torch.bfloat16 else 0.02  # of the pull, at a GD of 0.03
    assert row["ratio"] == pytest.approx(1, abs=rounded)
    row = Anatomy(temperature=0.07).observe(*given, users_loss(*given, 0.07))
    assert row is not None
    assert row["dead"] == 1
    assert row["ratio"] is None


@pytest.mark.parametrize("seed", [0, 3, 4])
@pytest.mark.parametrize("times", [1.0, 0.25])
def test_rounding_is_no_factor(times: float, seed: int) -> None:
    """A cosine in bfloat16 has an error of 0.4%, and over a temperature of 0.05 one of 8%."""
    x, noise = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(seed))
    anchors, positives = x.bfloat16().requires_grad_(), (x + 0.5 * noise).bfloat16()
    anatomy = Anatomy()
    anatomy.observe(anchors, positives, times * users_loss(anchors, positives, 0.05))
    assert anatomy.kind == "softmax"
    assert anatomy.factor == (1 if times == 1 else pytest.approx(times, rel=0.2))
