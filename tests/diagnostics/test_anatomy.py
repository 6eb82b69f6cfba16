"""The anatomy of a loop of one's own."""

import csv
import functools
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import isotrope
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.diagnostics.anatomy import COLUMNS, Anatomy, Row, evidence
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.metrics import MEASURED
from isotrope.diagnostics.observe import measure
from isotrope.diagnostics.readings import rank_limit
from isotrope.diagnostics.target import of_recording
from isotrope.objectives import DCL, InfoNCE, NTXent
from isotrope.reports.html import write_report
from isotrope.reports.runs import read_runs

GRADIENT = ("gradient_alignment", "gradient_uniformity", "embedding_gradient")
# a graph keeps unit rows, and the norms in float32, in any order
OF_UNIT_ROWS = {"norm": 1e-6, "effective_rank": 0.05, "embedding_gradient": 0.4}
COMPONENTS = ("dissipation", "dead", "hardest_share", "ratio", "above_bound")


def users_loss(anchors: Tensor, positives: Tensor, temperature: float = 0.1) -> Tensor:
    """What someone without this library writes."""
    a, b = F.normalize(anchors, dim=1), F.normalize(positives, dim=1)
    return F.cross_entropy(a @ b.T / temperature, torch.arange(len(a)))


Doctor = functools.partial(isotrope.Doctor, say=None)


def observed(doctor: isotrope.Doctor, loss: Tensor, step: int | None = None) -> Row | None:
    """A step of a loop: the newest row, if the step was measured."""
    before = len(doctor.rows)
    doctor.observe(loss, step=step)
    loss.backward(retain_graph=True)
    assert not doctor.off
    return doctor.rows[-1] if len(doctor.rows) > before else None


def batch(n: int = 12, d: int = 20, *, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, n, d, generator=random, dtype=dtype)
    return (3 * x).requires_grad_(), (x + 0.9 * noise).requires_grad_()


def test_embeddings_before_the_loss_change_nothing() -> None:
    rows = []
    for by_name in (None, True, False):
        anchors, positives = batch()
        loss = users_loss(anchors, positives)
        doctor = Doctor()
        if by_name is None:
            doctor.observe(loss)
        elif by_name:
            doctor.observe(anchors, positives, loss=loss)
        else:
            doctor.observe(anchors, positives, loss)
        loss.backward()
        rows += doctor.rows
    assert rows == [rows[0]] * 3
    assert rows[0]["dissipation"] is not None


def test_a_plain_loop_with_a_loss_of_ones_own(tmp_path: Path) -> None:
    """The example of the README: five lines around someone's own training."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 24))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    data = torch.randn(160, 16)

    anatomy = Doctor(every=5, temperature=0.1)
    for step in range(20):
        x = data[step % 10 * 16 :][:16]
        anchors, positives = encoder(x), encoder(x + 0.5 * torch.randn(16, 16))
        loss = users_loss(anchors, positives)
        anatomy.observe(loss)
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
    assert diagnose(again.case()).verdict == anatomy.diagnose(batch_size=16).verdict


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_a_loss_of_ones_own_has_the_numbers_of_the_same_objective(temperature: float) -> None:
    anchors, positives = batch()
    row = observed(Doctor(temperature=temperature), users_loss(anchors, positives, temperature))
    assert row is not None
    expected = measure(InfoNCE(temperature=temperature), Views(anchors, positives))
    for name in MEASURED:
        near = OF_UNIT_ROWS.get(name, 1e-9)
        assert row[name] == pytest.approx(expected[name], rel=near, abs=1e-12), name
    assert row["misfit"] < 1e-9


@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5])
@pytest.mark.parametrize(("n", "d"), [(12, 20), (30, 20)])
def test_the_temperature_of_a_softmax_is_found(temperature: float, n: int, d: int) -> None:
    """Also with more columns than dimensions, where a gradient does not determine all weights."""
    anchors, positives = batch(n, d)
    row = observed(Doctor(), users_loss(anchors, positives, temperature))
    expected = measure(InfoNCE(temperature=temperature), Views(anchors, positives))
    assert row is not None
    assert row["temperature"] == pytest.approx(temperature, rel=1e-3)
    for name in MEASURED:
        near = OF_UNIT_ROWS.get(name, 1e-2)
        assert row[name] == pytest.approx(expected[name], rel=near, abs=1e-6), name
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
        anatomy = Doctor(every=1)
        for _ in range(12):
            observed(anatomy, loss(anchors, positives))
        notes[loss] = anatomy.diagnose().notes
        assert anatomy.rows[0]["dissipation"] is not None
    assert any("the loss's temperature to the Doctor" in note for note in notes[scaled])
    assert not any("the loss's temperature to the Doctor" in note for note in notes[users_loss])


@pytest.mark.parametrize(("n", "d"), [(12, 20), (30, 20)])
@pytest.mark.parametrize("times", [0.01, 0.25, 40.0])
def test_a_factor_of_the_loss_is_no_dissipation(times: float, n: int, d: int) -> None:
    """A weight, or 1 over the accumulated batches: a tenth of the loss is not nearly learnt."""
    anchors, positives = batch(n, d)
    expected = measure(InfoNCE(temperature=0.1), Views(anchors, positives))
    anatomy = Doctor()
    row = observed(anatomy, times * users_loss(anchors, positives))
    assert row is not None
    assert anatomy.anatomy.factor == pytest.approx(times, rel=1e-2)
    for name in COMPONENTS:
        assert row[name] == pytest.approx(expected[name], rel=1e-2, abs=1e-6), name
    assert any(
        f"InfoNCE times {anatomy.anatomy.factor:.3g}" in note
        for note in anatomy.anatomy.case().notes
    )


@pytest.mark.parametrize(("n", "d"), [(12, 20), (30, 20)])
@pytest.mark.parametrize("objective", [InfoNCE(temperature=0.4), DCL(temperature=0.1)])
@pytest.mark.parametrize("times", [0.009, 1.0, 40.0])
def test_a_factor_is_unknown_where_gd_is_the_same_for_all_anchors(
    times: float, objective: InfoNCE | DCL, n: int, d: int
) -> None:
    """Only a GD near that of InfoNCE or DCL is one: 0.009 of either is no anchor that is done."""
    anchors, positives = batch(n, d)
    anchors = (anchors + 9 * torch.randn(n, d, generator=torch.Generator().manual_seed(1))).detach()
    anchors.requires_grad_()
    anatomy = Doctor(every=1)
    for _ in range(8):
        similarity = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T
        scores = similarity / objective.temperature
        others = scores - 1e9 * torch.eye(n) if isinstance(objective, DCL) else scores
        loss = (others.logsumexp(dim=1) - scores.diagonal()).mean()
        row = observed(anatomy, times * loss)
    assert row is not None
    expected = measure(objective, Views(anchors, positives))
    for name in ("hardest_share", "ratio"):
        assert row[name] == pytest.approx(expected[name], rel=1e-2), name
    anatomy.anatomy.settings["moved"] = True  # embeddings without weights
    found = anatomy.diagnose(batch_size=n)
    assert found.verdict == ("healthy",)
    known = times == 1 or isinstance(objective, InfoNCE)  # whose GD is nearly the same, not quite
    assert any("an unknown factor" in note for note in found.notes) is not known
    if known:
        assert anatomy.anatomy.factor == pytest.approx(times, rel=0.06)
        assert row["dissipation"] == pytest.approx(expected["dissipation"], rel=0.06)
    else:
        assert anatomy.anatomy.factor is row["dissipation"] is row["dead"] is None


def test_an_even_push_has_the_temperature_that_the_loss_divides_by() -> None:
    """All anchors of this loss are live; with 1/temperature in GD all looked done."""
    anchors, positives = batch(24, 32, dtype=torch.float32)
    anatomy = Doctor(every=1)
    for _ in range(8):
        row = observed(anatomy, users_loss(anchors, positives, 1e3))
    assert row is not None
    assert row["temperature"] == pytest.approx(1e3, rel=1e-2)
    assert row["dissipation"] == pytest.approx(23 / 24, rel=1e-2)
    assert row["ratio"] == pytest.approx(1, rel=1e-2)
    assert "nothing-left-to-learn" not in anatomy.diagnose(batch_size=24).verdict


def test_a_loss_near_a_softmax_has_the_unit_of_a_softmax() -> None:
    """Both directions of unequal weight leave out about 1%: 1/temperature is no dissipation."""
    anatomy, kinds = Doctor(every=1), set()
    x, *noises = torch.randn(3, 64, 16, generator=torch.Generator().manual_seed(0))
    for size in (0.5, 1.0, 1.5):
        anchors, positives = (x + size * noise for noise in noises)
        anchors.requires_grad_()
        loss = users_loss(anchors, positives, 0.3) + 0.7 * users_loss(positives, anchors, 0.3)
        observed(anatomy, loss / 1.7)
        kinds.add(anatomy.anatomy.kind)
    assert kinds == {"softmax"}
    assert all(0.7 < (row["dissipation"] or 0) < 1 for row in anatomy.rows)


@pytest.mark.parametrize(("name", "temperature"), [("NTXentLoss", 0.07), ("SupConLoss", 0.2)])
def test_losses_of_pytorch_metric_learning_are_softmaxes_of_both_directions(
    name: str, temperature: float
) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    loss = losses.SelfSupervisedLoss(getattr(losses, name)(temperature=temperature))
    anchors, positives = batch(24, 32, dtype=torch.float32)
    anatomy = Doctor(every=1)
    row = observed(anatomy, loss(anchors, positives))
    assert row is not None
    assert (anatomy.anatomy.kind, anatomy.anatomy.factor) == ("softmax", 1.0)
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
    anatomy = Doctor(every=1)
    for _ in range(8):
        row = observed(anatomy, pairs_loss(anchors, positives))
    assert row is not None
    assert row["negatives"] == 0
    assert row["misfit"] < 1e-5
    assert all(row[name] is None for name in COMPONENTS)
    assert row["positive_mean"] is None  # half of the pairs are to be apart
    assert row["uniformity"] is not None is not row["embedding_gradient"]
    anatomy.anatomy.settings["moved"] = True  # embeddings without weights
    found = anatomy.diagnose(batch_size=16)
    assert found.verdict == ("healthy",)
    assert any("need negatives: some steps have none" in note for note in found.notes)


def test_pairs_that_belong_together_have_angles() -> None:
    anchors, positives = batch()
    row = observed(Doctor(), 1 - F.cosine_similarity(anchors, positives).mean())
    assert row is not None
    assert row["negatives"] == 0
    assert row["dissipation"] is None is not row["positive_mean"]


def test_a_batch_of_one_has_no_negatives() -> None:
    anchors, positives = batch(1, 20)
    anatomy = Doctor(every=1)
    for _ in range(8):
        row = observed(anatomy, users_loss(anchors, positives))
    assert row is not None
    assert row["negatives"] == 0
    assert row["dissipation"] is row["dead"] is None
    assert anatomy.diagnose(batch_size=1).verdict == ("no-negatives",)
    pairs = Doctor(every=1)
    for _ in range(8):
        observed(pairs, 1 - F.cosine_similarity(anchors, positives).mean())
    assert "no-negatives" not in pairs.diagnose(batch_size=1).verdict


def test_a_batch_of_one_group_has_no_negatives() -> None:
    anchors, positives = batch(6, 20)
    anatomy = Doctor(every=1)
    for _ in range(8):
        groups = torch.zeros(6, dtype=torch.long)
        row = observed(anatomy, InfoNCE()(anchors, positives, groups=groups))
    assert row is not None
    assert row["negatives"] == 0
    assert row["dissipation"] is row["dead"] is None
    found = anatomy.diagnose(batch_size=6)
    assert found.verdict[0] == "no-negatives"
    assert "a batch of 64 rows" in found.findings[0].change


def test_a_loss_of_dot_products_is_not_one_of_cosines() -> None:
    anchors, positives = batch()
    loss = F.cross_entropy(anchors @ positives.T, torch.arange(len(anchors)))
    row = observed(Doctor(), loss)
    assert row is not None
    assert (row["radial"] or 0) > 0.05
    assert row["temperature"] == pytest.approx(1, rel=1e-3)
    assert row["norm"] is not None is not row["effective_rank"]
    unit = F.normalize(anchors.detach(), dim=1).requires_grad_(), F.normalize(positives, dim=1)
    loss = F.cross_entropy(10 * unit[0] @ unit[1].T, torch.arange(len(anchors)))
    row = observed(Doctor(), loss)
    assert row is not None
    assert row["temperature"] == pytest.approx(0.1, rel=1e-3)


def test_the_scores_of_a_single_query() -> None:
    queries, documents = batch(6, 20)
    row = observed(Doctor(), F.cross_entropy(documents @ queries[0] / 0.1, torch.tensor(0)))
    assert row is not None  # the scores have one dimension


def test_dimensions_may_be_counted_from_the_end() -> None:
    anchors, positives = batch(5, 20)
    rows = []
    for dims in ((1, 0), (-1, 0)):
        scores = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T / 0.1
        rows.append(observed(Doctor(), F.cross_entropy(scores.permute(dims), torch.arange(5))))
    assert rows[0] is not None
    assert rows[0] == rows[1]


def test_negatives_and_both_views() -> None:
    anchors, positives = batch(4, 20)
    negatives = torch.randn(3, 20, generator=torch.Generator().manual_seed(1)).double()
    loss = DCL(temperature=0.3)(anchors, positives, negatives)
    row = observed(Doctor(temperature=0.3), loss)
    assert row is not None
    expected = measure(DCL(temperature=0.3), Views(anchors, positives, negatives))
    assert row["hardest_share"] == pytest.approx(expected["hardest_share"], rel=1e-6)
    assert row["negative_mean"] == pytest.approx(expected["negative_mean"], rel=1e-6)
    row = observed(Doctor(), NTXent()(anchors, positives))
    assert row is not None
    assert row["negatives"] == 2 * (len(anchors) - 1)


def test_an_objective_tells_its_own_components() -> None:
    anchors, positives = batch(30, 5)  # a gradient in 5 dimensions determines no 30 weights
    objective = InfoNCE(temperature=0.2)
    doctor = Doctor()
    row = observed(doctor, objective(anchors, positives))
    assert row is not None
    assert row["dissipation"] == measure(objective, Views(anchors, positives))["dissipation"]
    assert doctor.anatomy.objective == objective
    # of a loss of one's own the graph shows the weights, however few dimensions there are
    seen = observed(Doctor(), users_loss(anchors, positives, 0.2))
    assert seen is not None
    assert seen["hardest_share"] == pytest.approx(row["hardest_share"])


@pytest.mark.parametrize("shortest_first", [False, True])
def test_of_nested_prefixes_of_an_objective_the_longest_is_measured(shortest_first: bool) -> None:
    anchors, positives = batch()
    widths = [5, 20] if shortest_first else [20, 5]
    terms = [InfoNCE()(anchors[:, :width], positives[:, :width]) for width in widths]
    rows = [observed(Doctor(), loss) for loss in (InfoNCE()(anchors, positives), sum(terms))]
    for name in (*COMPONENTS, "norm", "effective_rank"):
        assert rows[1][name] == pytest.approx(rows[0][name]), name


def test_half_precision_is_good_for_two_digits() -> None:
    anchors, positives = batch(16, 64, dtype=torch.float32)
    half = anchors.detach().bfloat16().requires_grad_(), positives.detach().bfloat16()
    row = observed(Doctor(temperature=0.5), users_loss(*half, 0.5))
    exact = observed(Doctor(temperature=0.5), users_loss(anchors, positives, 0.5))
    assert row is not None
    assert exact is not None
    for name in ("dissipation", "ratio", *GRADIENT):
        assert row[name] == pytest.approx(exact[name], rel=0.02), name


def test_what_is_not_due_is_not_looked_at() -> None:
    doctor = Doctor(every=3)
    loss = users_loss(*batch())
    assert observed(doctor, loss) is not None
    assert observed(doctor, loss) is None
    assert not doctor.anatomy.due()
    assert observed(doctor, loss) is None
    assert doctor.anatomy.due()
    assert len(doctor.rows) == 1
    assert doctor.anatomy.calls == 3


def test_a_step_is_looked_at_once() -> None:
    """Gradient accumulation: several batches of one step."""
    doctor = Doctor(every=2)
    for step in (0, 0, 1, 1, 2, 2):
        observed(doctor, users_loss(*batch()), step)
    assert [row["step"] for row in doctor.rows] == [0, 2]


def test_a_step_that_falls_begins_another_pass(tmp_path: Path) -> None:
    """The steps of ``enumerate(loader)``, also in a training that is resumed."""
    doctor = Doctor(every=2)
    for step in (0, 1, 2, 0, 1, 2, 0, 1, 2):
        observed(doctor, users_loss(*batch()), step)
    assert [row["step"] for row in doctor.rows] == [0, 2, 4, 6, 8]
    doctor.save(tmp_path)
    resumed = Doctor(every=2)
    resumed.anatomy.resume(tmp_path, 6)
    for step in range(3):
        observed(resumed, users_loss(*batch()), step)
    assert [row["step"] for row in resumed.rows] == [0, 2, 4, 6, 8]


def test_an_evaluation_is_no_step() -> None:
    doctor = Doctor(every=2)
    for _ in range(4):
        observed(doctor, users_loss(*batch()))
        with torch.no_grad():
            doctor.observe(users_loss(*batch()))
    assert not doctor.off
    assert [row["step"] for row in doctor.rows] == [0, 2]


def test_a_doctor_that_has_stopped_says_until_when_it_measured(tmp_path: Path) -> None:
    doctor = Doctor(every=1)
    for _ in range(3):
        observed(doctor, users_loss(*batch()))
    doctor.stop("an error of the measuring")
    assert doctor.off
    note = "the Doctor measured until step 2 only: an error of the measuring"
    doctor.save(tmp_path)
    for diagnosis in (doctor.diagnose(), isotrope.diagnose(tmp_path)):
        assert any(text.startswith(note) for text in diagnosis.notes)


@pytest.mark.parametrize(("n", "d", "limit"), [(2048, 600, 511), (512, 16, 16)])
def test_a_large_batch_of_few_dimensions_is_no_collapse(
    tmp_path: Path, n: int, d: int, limit: int
) -> None:
    """The rank is at most d, and the anchors are a sample of large batches."""
    doctor = Doctor(every=1)
    for _ in range(3):
        observed(doctor, users_loss(*batch(n, d, dtype=torch.float32)))
    diagnosis = doctor.diagnose(batch_size=100 * n)
    doctor.save(tmp_path)
    for found in (diagnosis, isotrope.diagnose(tmp_path)):
        assert "dimensional-collapse" not in found.verdict
    (case,) = evidence(doctor.anatomy, []).values()
    assert rank_limit(case) == limit


def test_token_ids_show_that_the_inputs_are_texts() -> None:
    table = nn.EmbeddingBag(40, 16)
    ids = torch.randint(40, (2, 12, 5), generator=torch.Generator().manual_seed(0))
    for texts in (True, False):
        doctor = Doctor(every=1)
        observed(doctor, users_loss(*map(table, ids)) if texts else users_loss(*batch()))
        assert doctor.anatomy.case().kind == ("text" if texts else "")
        assert doctor.anatomy.case(kind="images").kind == "images"


@pytest.mark.parametrize("numbered", [False, True])
def test_each_loss_of_a_loop_is_measured_and_judged_by_itself(
    tmp_path: Path, numbered: bool
) -> None:
    said: list[str] = []
    doctor = isotrope.Doctor(every=3, say=said.append)
    for i in range(10):
        step = i if numbered else None
        loss = users_loss(*batch(32))
        doctor.observe(loss, step=step)
        loss.backward()
        flat = users_loss(*batch(32), temperature=3.0)
        doctor.observe(flat, step=step)
        flat.backward()
    first, second = ([r["step"] for r in doctor.rows if r["series"] == i] for i in (None, 1))
    assert len(first) == len(second) >= 4
    assert "the loss is a softmax over the batch, temperature 0.1 " in said[0]
    assert re.search(r"the loss in line \d+ \(\w+\) is a softmax .*, temperature 3 ", said[1])
    diagnosis = doctor.diagnose(kind="text", batch_size=32)
    doctor.save(tmp_path)
    for found in (diagnosis, isotrope.diagnose(tmp_path)):
        high = [f.detail for f in found.findings if f.verdict == "negatives-not-hard"]
        assert len(high) == 1
        assert re.match(r"Data set of the loss in line \d+ \(\w+\): .* temperature of 3 ", high[0])


def test_data_sets_that_take_turns_are_all_measured() -> None:
    anatomy = Anatomy(every=2)
    anatomy.settings["mixed"] = 2
    assert [step for step in range(8) if anatomy.due(step)] == [0, 1, 4, 5]
    assert "2 data sets that this process saw are judged as one" in anatomy.case().notes[0]


def test_a_data_set_without_a_measured_batch_is_named() -> None:
    doctor = Doctor()
    doctor.anatomy.settings["series"] = ["qa", "nli"]
    for step in range(3):
        doctor.record("loss", doctor.anatomy.of("qa")._row(step, new=True), "qa")
        doctor.rows[-1]["loss"] = 1.0
    assert "nli is not judged: this process measured no batch of it" in doctor.diagnose().notes


def test_a_batch_without_a_graph_does_not_end_the_measuring() -> None:
    doctor = Doctor(every=1)
    pairs = [users_loss(*batch()) for _ in range(2)]
    for loss in (pairs[0], torch.zeros((), requires_grad=True), torch.zeros(()), pairs[1]):
        doctor.observe(loss)
        if loss.requires_grad:
            loss.backward()
    assert not doctor.off
    assert [row["step"] for row in doctor.rows] == [0, 3]


def test_two_objectives_in_one_training_are_restored_from_the_folder(tmp_path: Path) -> None:
    doctor = Doctor(every=1)
    for _ in range(4):
        for objective in (InfoNCE(), isotrope.objectives.MPT(margin=2.0)):
            anchors, positives = batch(dtype=torch.float32)
            loss = objective(anchors, positives)
            if objective.name == "infonce":
                doctor.observe(loss)  # at another line than the other loss
            else:
                doctor.observe(loss)
            loss.backward()
    live = {name: case.objective for name, case in evidence(doctor.anatomy, []).items()}
    kept = {name: case.objective for name, case in of_recording(doctor.save(tmp_path)).items()}
    assert [x.name for x in live.values() if x is not None] == ["infonce", "mpt"]
    assert [x.name for x in kept.values() if x is not None] == ["infonce", "mpt"]
    assert {key.split("/")[1] for key in doctor.numbers()} == set(live)
    runs = read_runs(tmp_path)
    assert len(runs) == 2
    assert all(np.isfinite(run.series["loss"]).sum() == 4 for run in runs)
    page = write_report([tmp_path], tmp_path / "page.html").read_text()
    assert all(run.name in page for run in runs)
    assert "not diagnosed" not in page  # both losses have one diagnosis together


def test_only_the_first_of_several_processes_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        observed(isotrope.Doctor(say=said.append), users_loss(*batch()))
    assert len(said) == 1


def test_autocast_does_not_reach_the_measures() -> None:
    anchors, positives = batch(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = observed(Doctor(), InfoNCE()(anchors, positives))
    assert found == observed(Doctor(), InfoNCE()(anchors, positives))


def test_the_graph_and_the_gradients_of_parameters_are_left_alone() -> None:
    layer = nn.Linear(8, 20).double()
    x, other = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0)).double()
    gradients = []
    for looked in (False, True):
        layer.zero_grad()
        anchors, positives = layer(x), layer(other)
        loss = users_loss(anchors, positives)
        if looked:
            Doctor().observe(loss)
            assert layer.weight.grad is None
        loss.backward()
        gradients.append(layer.weight.grad.clone())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("loss_of", [users_loss, InfoNCE()])
def test_nan_is_a_row_without_measurements(loss_of) -> None:
    anchors, positives = batch()
    with torch.no_grad():
        anchors[0, 0] = torch.nan
    row = observed(Doctor(), loss_of(anchors, positives))
    assert row is not None
    assert math.isnan(row["loss"] or 0)
    assert not any(math.isfinite(row[name] or math.nan) for name in GRADIENT)


def test_notes_join_the_row_of_their_step(tmp_path: Path) -> None:
    doctor = Doctor(every=2)
    anatomy = doctor.anatomy
    with pytest.raises(ValueError, match="the log has no row yet"):
        anatomy.note(gradient_norm=1.0)
    for _ in range(3):
        observed(doctor, users_loss(*batch()))
    anatomy.note(gradient_norm=2.0)
    anatomy.note(1, dev=70.5)
    anatomy.note(0, dev=70.0, learning_rate=1e-3)
    anatomy.note(4, dev=71.0)  # before the step is looked at
    observed(doctor, users_loss(*batch()), step=4)
    rows = Anatomy.load(anatomy.save(tmp_path / "a.csv")).rows
    assert [row["step"] for row in rows] == [0, 1, 2, 4]
    assert [row["dev"] for row in rows] == [70, 70.5, None, 71]
    assert [row["gradient_norm"] for row in rows] == [None, None, 2, None]
    assert [row["norm"] is None for row in rows] == [False, True, False, False]


@pytest.mark.parametrize("numbered", [False, True])
def test_a_noted_score_has_the_number_of_steps_so_far(numbered: bool) -> None:
    """Also between measured steps, and before the first."""
    doctor = Doctor(every=10)
    doctor.anatomy.note(dev=50.0)
    for epoch in range(3):
        for step in range(8):
            observed(doctor, users_loss(*batch()), step if numbered else None)
        doctor.anatomy.note(dev=60.0 + epoch)
    doctor.anatomy.note(gradient_norm=2.0)
    assert doctor.anatomy.case().scores == [(0, 50.0), (8, 60.0), (16, 61.0), (24, 62.0)]
    assert [row["step"] for row in doctor.anatomy.measured] == [0, 10, 20]
    assert doctor.rows[-1]["gradient_norm"] == 2.0


def test_rows_of_notes_alone_are_no_logged_steps() -> None:
    """A trainer logs the norm of the gradient, or a score, at steps that are not measured."""
    doctor, plain = Doctor(every=2), Doctor(every=2)
    for step in range(3):
        observed(doctor, users_loss(*batch()), step=10 * step)
        doctor.anatomy.note(10 * step + 9, gradient_norm=2.0)
        doctor.anatomy.note(10 * (2 - step) + 10, dev=72.0 - step)
    for step in range(3):
        observed(plain, users_loss(*batch()), step=10 * step)
    case, expected = doctor.anatomy.case(), plain.anatomy.case()
    assert [row["step"] for row in case.rows] == [0, 10, 20]
    assert case.scores == [(10, 70.0), (20, 71.0), (30, 72.0)]
    assert [row["loss"] for row in case.rows] == [row["loss"] for row in expected.rows]
    assert repr(doctor) == "Doctor(every=2), 3 steps measured"
    assert diagnose(case).verdict == diagnose(expected).verdict


def test_a_verdict_waits_for_three_measured_steps() -> None:
    said: list[str] = []
    doctor = isotrope.Doctor(every=1, say=said.append)
    still = torch.ones(12, 20, dtype=torch.float64, requires_grad=True)
    for step in range(3):
        observed(doctor, users_loss(still, still))
        assert (len(said) > 1) == (step == 2), said
        doctor.anatomy.note(step + 100, dev=1.0)
        doctor.anatomy.note(step + 200, dev=1.0)


def test_a_resumed_loop_keeps_the_score_of_its_checkpoint(tmp_path: Path) -> None:
    """It is not computed again; what else was measured there, is."""
    anchors, positives = batch(8, 16)
    whole, resumed = Doctor(every=2), Doctor(every=2)
    for step in range(6):
        if step == 4:
            whole.anatomy.note(4, dev=80.0)
            whole.anatomy.note(5, dev=70.0)
        observed(whole, users_loss(anchors, positives))
    whole.save(tmp_path)
    resumed.anatomy.resume(tmp_path, 4)
    assert [row["step"] for row in resumed.rows] == [0, 2, 4]
    assert resumed.rows[-1]["dev"] == 80.0
    assert resumed.rows[-1]["dissipation"] is None
    observed(resumed, users_loss(anchors, positives))
    assert [row["step"] for row in resumed.rows] == [0, 2, 4]
    assert resumed.rows[-1]["dissipation"] == pytest.approx(whole.rows[2]["dissipation"])


def test_a_resumed_loop_adds_rows(tmp_path: Path) -> None:
    """The steps of the loop are counted by the calls, and these go on."""
    before = Doctor(every=10)
    for _ in range(25):
        observed(before, users_loss(*batch()))
    state = before.state_dict()
    before.save(tmp_path)

    resumed = Doctor(every=10)
    resumed.load_state_dict(state)
    from_file = Doctor(every=10)
    from_file.anatomy.resume(tmp_path, 25)
    for continued in (resumed, from_file):
        for _ in range(25):
            observed(continued, users_loss(*batch()))
        assert [row["step"] for row in continued.rows] == [0, 10, 20, 30, 40]


def test_what_a_diagnosis_is_given_is_saved(tmp_path: Path) -> None:
    doctor = Doctor(every=1)
    for _ in range(3):
        observed(doctor, users_loss(*batch()))
    doctor.diagnose(batch_size=12, learning_rate=1e-3, kind="images")
    doctor.save(tmp_path)
    case = of_recording(tmp_path)[""]
    assert (case.kind, case.batch_size, case.settings["learning-rate"]) == ("images", 12, 1e-3)


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


def test_mistakes_are_named() -> None:
    loss = users_loss(*batch())
    with pytest.raises(ValueError, match="every must be positive; found 0"):
        Doctor(every=0)
    with pytest.raises(ValueError, match="temperature must be positive; found -1"):
        Doctor(temperature=-1.0)
    with pytest.raises(InputError, match=r"^pass the scalar tensor .* found 1.5 \(float\)"):
        Doctor().observe(1.5)
    with pytest.raises(InputError, match=r"pass the scalar tensor"):
        Doctor().observe(loss.expand(12, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_no_ratio(dtype: torch.dtype) -> None:
    """Of an anchor with GD 1e-4 a gradient in half precision holds the push, not the pull."""
    anchors, positives = batch(16, 64, dtype=torch.float32)
    given = anchors.detach().to(dtype).requires_grad_(), positives.detach().to(dtype)
    row = observed(Doctor(temperature=0.1), users_loss(*given, 0.1))
    assert row is not None
    assert 0 < (row["dead"] or 0) < 1
    rounded = 0.06 if dtype == torch.bfloat16 else 0.02  # of the pull, at a GD of 0.03
    assert row["ratio"] == pytest.approx(1, abs=rounded)
    row = observed(Doctor(temperature=0.07), users_loss(*given, 0.07))
    assert row is not None
    assert row["dead"] == 1
    assert row["ratio"] is None


@pytest.mark.parametrize("seed", [0, 3, 4])
@pytest.mark.parametrize("times", [1.0, 0.25])
def test_rounding_is_no_factor(times: float, seed: int) -> None:
    """A cosine in bfloat16 has an error of 0.4%, and over a temperature of 0.05 one of 8%."""
    x, noise = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(seed))
    anchors, positives = x.bfloat16().requires_grad_(), (x + 0.5 * noise).bfloat16()
    anatomy = Doctor()
    observed(anatomy, times * users_loss(anchors, positives, 0.05))
    assert anatomy.anatomy.kind == "softmax"
    assert anatomy.anatomy.factor == (1 if times == 1 else pytest.approx(times, rel=0.2))


def picked(anchors: Tensor, positives: Tensor, pairs: int) -> Tensor:
    """A loss that compares some rows only."""
    a, b = (F.normalize(x, dim=1)[:pairs] for x in (anchors, positives))
    return F.relu(0.9 - (a * b).sum(dim=1) + (a * b.roll(1, 0)).sum(dim=1)).mean()


def hinge(anchors: Tensor, positives: Tensor) -> Tensor:
    return picked(anchors, positives, len(anchors))


@pytest.mark.parametrize("rest", [1, 2, 7])
@pytest.mark.parametrize("loss", [users_loss, hinge, InfoNCE(temperature=0.1)])
def test_the_rest_of_an_epoch_is_not_measured(
    rest: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Two rows have an effective rank of 1: taken for that of a batch, the encoder collapsed."""
    if rest == 1 and isinstance(loss, InfoNCE):
        return  # refused
    doctor = Doctor(every=1)
    for step in range(3):
        observed(doctor, loss(*batch(16)), step)
    before = list(doctor.rows), str(doctor.losses)
    observed(doctor, loss(*batch(rest)), 3)
    assert (doctor.rows, str(doctor.losses)) == before


def test_a_loss_that_picks_fewer_pairs_is_still_measured() -> None:
    doctor = Doctor(every=1)
    for step, pairs in enumerate((16, 3)):
        observed(doctor, picked(*batch(16), pairs), step)
    assert [row["negatives"] for row in doctor.rows] == [1, 1]


def test_a_scaled_gradient_beyond_half_precision_is_not_measured() -> None:
    """A GradScaler skips the step and lowers its scale: no embedding is NaN."""
    doctor = Doctor(every=1)
    given = [x.detach().half().requires_grad_() for x in batch(16, 64, dtype=torch.float32)]
    for step, scale in enumerate((2.0**24, 1.0)):
        observed(doctor, scale * users_loss(*given).float(), step)
    assert [row["step"] for row in doctor.rows] == [1]
    assert "diverging" not in doctor.diagnose(batch_size=16).verdict
