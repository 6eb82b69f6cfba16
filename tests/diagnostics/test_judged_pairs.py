"""What the doctor says of losses that pick their pairs, and of temperatures that are too low."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, distributed
from torch.distributed.fsdp import fully_shard

import isotrope
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.target import of_recording
from isotrope.diagnostics.verdicts import VERDICTS
from isotrope.objectives import MPT, BarlowTwins, InfoNCE
from isotrope.paradigm.graph_reading import GraphReading


def watched(loss: object, steps: int = 12, rate: float = 0.05) -> isotrope.Doctor:
    torch.manual_seed(0)
    encoder = torch.nn.Linear(16, 24)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=rate)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(steps):
        x = torch.randn(16, 16)
        value = loss(*(F.normalize(encoder(v), dim=1) for v in (x, x + 0.5 * torch.randn(16, 16))))
        doctor.observe(value)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return doctor


def batch_hard(x: Tensor, y: Tensor) -> Tensor:
    """The farthest row of the same label and the nearest of another; the labels mean nothing."""
    z, labels = torch.cat([x, y]), torch.randint(0, 6, (32,))
    apart, same = torch.cdist(z, z), labels[:, None] == labels
    near = apart.masked_fill(same, 9).amin(dim=1)
    return F.relu(apart.masked_fill(~same, -1).amax(dim=1) - near + 0.5).mean()


def test_labels_that_mean_nothing_are_seen_by_the_pairs_that_a_loss_picks() -> None:
    diagnosis = watched(batch_hard).diagnose()
    assert diagnosis.verdict == ("unrelated-positives",)
    assert "labels" in diagnosis.findings[0].change


def leads(x: Tensor, y: Tensor) -> Tensor:
    """How much nearer the own text of a row is than that of the next row, compared row by row."""
    return (x * y).sum(dim=1) - (x * y.roll(1, dims=0)).sum(dim=1)


TAUGHT = {
    "margins": lambda x, y: F.mse_loss(leads(x, y), 0.2 + 0.1 * torch.rand(16)),
    "distributions": lambda x, y: F.binary_cross_entropy_with_logits(
        5 * leads(x, y), 0.6 + 0.1 * torch.rand(16)
    ),
}
ORDERED = {
    "margin": lambda lead: F.relu(0.5 - lead).mean(),
    "softmax": lambda lead: F.softplus(-5 * lead).mean(),
}


@pytest.mark.parametrize("steps", [3, 12])
@pytest.mark.parametrize("name", TAUGHT)
def test_a_teacher_that_sees_a_smaller_lead_shows_no_positives(name: str, steps: int) -> None:
    """Such a loss pulls the negatives at first."""
    doctor = watched(TAUGHT[name], steps)
    assert doctor.diagnose().verdict == ("not-examined",)
    assert all(row["positive_mean"] is None for row in doctor.rows)


@pytest.mark.parametrize("steps", [3, 12])
@pytest.mark.parametrize("name", ORDERED)
def test_pairs_of_the_next_row_in_place_of_the_own_are_unrelated(name: str, steps: int) -> None:
    diagnosis = watched(lambda x, y: ORDERED[name](-leads(x, y)), steps).diagnose()
    assert diagnosis.verdict == ("unrelated-positives",)


def test_the_temperature_is_the_cause_of_what_follows_from_it() -> None:
    def cold(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x @ y.T / 0.0005, torch.randperm(16))

    assert watched(cold).diagnose().verdict[0] in ("temperature-too-low", "unrelated-positives")
    assert "diverging" not in watched(cold).diagnose().verdict


def test_pushes_by_another_path_are_not_forgotten() -> None:
    """Alignment by rows and uniformity by products: not a loss that only pulls."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        z = torch.cat([x, y])
        rest = (z @ z.T)[~torch.eye(32).bool()].view(32, 31).logsumexp(dim=1)
        return rest.mean() - (x * y).sum(dim=1).mean()

    assert "only-pulled" not in watched(loss).diagnose().verdict


def test_two_towers_from_scratch_are_judged_by_the_dev_score_that_is_asked_for() -> None:
    def trained(*, dev: bool) -> Diagnosis:
        torch.manual_seed(1)  # in the first batches positives are no nearer than negatives
        relation, held = torch.randn(16, 12), torch.randn(200, 16)
        x = torch.randn(1024, 16)
        towers = torch.nn.Linear(16, 24), torch.nn.Linear(12, 24)
        optimizer = torch.optim.Adam([p for tower in towers for p in tower.parameters()], lr=3e-3)
        doctor = isotrope.Doctor(every=1, say=None)

        def cosines(rows: Tensor) -> Tensor:
            a, b = towers[0](rows), towers[1](rows @ relation)
            return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T

        for step in range(80):
            loss = F.cross_entropy(cosines(x[torch.randperm(1024)[:64]]) / 0.07, torch.arange(64))
            doctor.observe(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dev and step % 20 == 0:
                found = cosines(held).argmax(dim=1) == torch.arange(200)
                doctor.anatomy.note(dev=100 * float(found.float().mean()))
        return doctor.diagnose(batch_size=64)

    alone = trained(dev=False)
    assert alone.verdict == ("not-examined",)
    assert "doctor.anatomy.note(dev=SCORE)" in alone.findings[0].change
    assert trained(dev=True).verdict == ("healthy",)


def margins(x: Tensor, y: Tensor, *, inverted: bool = False) -> Tensor:
    """A margin for the rows of a label and one for all others, which leave most pairs alone."""
    z, labels = torch.cat([x, y]), torch.arange(16).repeat(2)
    apart, own = torch.cdist(z, z), ~torch.eye(32, dtype=torch.bool)
    same = (labels[:, None] == labels) != inverted
    terms = F.relu(apart - 0.9)[same & own], F.relu(1.3 - apart)[~same & own]
    return sum((t.sum() / (t > 0).sum().clamp_min(1) for t in terms), torch.zeros(()))


@pytest.mark.parametrize(
    ("inverted", "verdict"), [(False, "healthy"), (True, "unrelated-positives")]
)
def test_labels_are_inverted_if_they_fit_with_pull_and_push_exchanged(
    inverted: bool, verdict: str
) -> None:
    found = watched(lambda x, y: margins(x, y, inverted=inverted), 30, rate=1.0).diagnose()
    assert found.verdict[0] == verdict


def test_an_anchor_that_is_only_pushed_is_not_its_own_positive() -> None:
    """All rows are so near that the margin leaves the positives alone."""
    doctor = watched(lambda x, y: margins(x + 4 * x.mean(0).detach(), y + 4 * x.mean(0).detach()))
    assert all(row["positive_mean"] != 0 for row in doctor.rows)


def circle(x: Tensor, y: Tensor) -> Tensor:
    """Each similarity is weighted by its distance from an optimum, which no temperature does."""
    z, labels = torch.cat([x, y]), torch.arange(16).repeat(2)
    s, own = z @ z.T, ~torch.eye(32, dtype=torch.bool)
    same = labels[:, None] == labels
    near = 256 * F.relu(1.4 - s.detach()) * (0.6 - s)
    far = 256 * F.relu(s.detach() + 0.4) * (s - 0.4)
    terms = near.masked_fill(~(same & own), -1e9), far.masked_fill(same, -1e9)
    return F.softplus(terms[0].logsumexp(1) + terms[1].logsumexp(1)).mean()


def test_pushes_that_rise_with_the_similarity_are_no_softmax() -> None:
    doctor = watched(circle)
    assert all(row["temperature"] is None for row in doctor.rows)
    assert "temperature-too-low" not in doctor.diagnose().verdict


@pytest.mark.parametrize("copies", [False, True])
def test_two_encoders_from_scratch_show_copies_by_both_sides(copies: bool) -> None:
    torch.manual_seed(0)
    towers = [torch.nn.Linear(16, 24) for _ in range(2)]
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(4):
        x = torch.randn(32, 16)
        x = x[torch.arange(32) % 4] if copies else x
        a, b = (F.normalize(t(x + 0.3 * torch.randn(32, 16)), dim=1) for t in towers)
        loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(32))
        doctor.observe(loss)
        loss.backward()
    shares = [row["false_negatives"] for row in doctor.rows]
    assert all((share > 0.5) is copies for share in shares), shares
    assert ("false-negatives" in doctor.diagnose().verdict) is copies


def beyond(x: Tensor, y: Tensor) -> Tensor:
    """Positives row by row, and negatives of their own that a small margin leaves alone."""
    apart = (x - y.roll(1, dims=0)).norm(dim=1)
    return (x - y).norm(dim=1).square().mean() + F.relu(0.02 - apart).square().mean()


@pytest.mark.parametrize(
    ("noise", "verdict"), [(0.02, "nothing-left-to-learn"), (4.0, "only-pulled")]
)
def test_pairs_beyond_a_margin_are_judged_by_their_distances(noise: float, verdict: str) -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return beyond(x, F.normalize(x + noise * (y - x), dim=1))

    assert watched(loss).diagnose().verdict == (verdict,)


def test_a_step_moves_a_table_of_embeddings_of_which_it_changes_few_rows() -> None:
    table, draws = torch.nn.Embedding(20_000, 16), torch.Generator().manual_seed(0)
    optimizer, doctor = torch.optim.SGD(table.parameters(), lr=0.1), isotrope.Doctor(every=1)
    for _ in range(4):
        ids = torch.randint(0, 20_000, (2, 8), generator=draws)
        anchors, positives = (torch.nn.functional.normalize(table(side)) for side in ids)
        loss = torch.nn.functional.cross_entropy(anchors @ positives.T / 0.05, torch.arange(8))
        doctor.observe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert doctor.anatomy.settings["moved"] is True


@pytest.mark.parametrize(("rate", "moved"), [(1.0, True), (0.0, False)])
def test_weights_that_never_move_are_seen_in_a_loop(rate: float, moved: bool) -> None:
    torch.manual_seed(0)
    encoder, doctor = torch.nn.Linear(16, 24), isotrope.Doctor(every=1, say=None)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=rate)
    for _ in range(12):
        x = torch.randn(16, 16)
        a, b = (F.normalize(encoder(v), dim=1) for v in (x, x + 0.3 * torch.randn(16, 16)))
        loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(16))
        doctor.observe(loss)
        loss.backward()
        optimizer.step()
    diagnosis = doctor.diagnose(kind="text")
    assert doctor.anatomy.settings["moved"] is moved
    assert diagnosis.healthy is moved
    if not moved:
        assert "No trained weight has changed" in diagnosis.findings[0].detail
        assert "optimizer.step()" in diagnosis.findings[0].change


def test_a_temperature_alone_trains_no_encoder() -> None:
    torch.manual_seed(0)
    encoder, scale = torch.nn.Linear(16, 24), torch.nn.Parameter(torch.tensor(10.0))
    optimizer, doctor = torch.optim.SGD([scale], lr=0.1), isotrope.Doctor(every=1, say=None)
    for _ in range(12):
        x = torch.randn(16, 16)
        a, b = (F.normalize(encoder(v), dim=1) for v in (x, x + 0.3 * torch.randn(16, 16)))
        loss = F.cross_entropy(scale * a @ b.T, torch.arange(16))
        doctor.observe(loss)
        loss.backward()
        optimizer.step()
    assert scale != 10
    assert doctor.anatomy.settings["moved"] is False
    assert doctor.diagnose().verdict == ("not-examined",)


@pytest.mark.parametrize("dev", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.02])
def test_a_gradient_cache_hides_the_weights(rate: float, dev: bool) -> None:
    torch.manual_seed(0)
    encoder, doctor = torch.nn.Linear(16, 24), isotrope.Doctor(every=1, say=None)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=rate)
    signal = torch.cat([torch.ones(8), torch.zeros(8)])
    for step in range(30):
        x = torch.randn(16, 16)
        views = x, signal * x + (1 - signal) * torch.randn(16, 16)
        cache = [encoder(v).detach().requires_grad_() for v in views]
        a, b = (F.normalize(v, dim=1) for v in cache)
        loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(16))
        doctor.observe(loss)
        loss.backward()
        optimizer.zero_grad()
        for view, stored in zip(views, cache, strict=True):
            encoder(view).backward(stored.grad)
        optimizer.step()
        if dev and step % 10 == 0:
            doctor.anatomy.note(dev=50.0 + step * (rate > 0))
    assert "moved" not in doctor.anatomy.settings
    assert doctor.diagnose(kind="text").healthy is (rate > 0)


def test_sharded_weights_whose_memory_is_freed_are_left_alone() -> None:
    """FSDP frees the gathered weights of a layer before the backward pass ends."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        encoder = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Linear(24, 24))
        fully_shard(encoder[1])
        fully_shard(encoder)
        optimizer, doctor = torch.optim.SGD(encoder.parameters(), 0.05), isotrope.Doctor(every=1)
        for _ in range(4):
            x = torch.randn(16, 16)
            a, b = F.normalize(encoder(torch.cat([x, x + 0.3])), dim=1).split(16)
            loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(16))
            doctor.observe(loss)
            loss.backward()
            optimizer.step()
    finally:
        distributed.destroy_process_group()
    assert len(doctor.rows) == 4
    assert doctor.anatomy.settings.get("moved") is not False


def test_distances_with_a_small_temperature_are_not_judged_as_cosines() -> None:
    rows = [
        {"step": float(i), "loss": 1.0, "temperature": 0.009, "hardest_share": 0.7, "dead": 0.0}
        | {"dissipation": 0.5, "uniformity": -2.0, "negatives": 31.0}
        for i in range(12)
    ]
    losses = ({"name": "loss", "family": "softmax"},)
    given = RunEvidence(kind="text", rows=rows, losses=losses)
    assert "temperature-too-low" not in diagnose(given).verdict
    cosines = replace(given, rows=[{**row, "radial": 0.0} for row in rows])
    assert "temperature-too-low" in diagnose(cosines).verdict


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, lambda x, y: ((x - y) ** 2).mean()])
def test_a_mean_of_differences_only_pulls(loss: object) -> None:
    assert watched(loss).diagnose().verdict == ("only-pulled",)


def filtered(x: Tensor, y: Tensor) -> Tensor:
    """Negatives that are nearer than the positive are left out, as GISTEmbedLoss does."""
    scores = x @ y.T
    nearer = scores.detach() > scores.detach().diagonal()[:, None]
    return F.cross_entropy(scores.masked_fill(nearer, -torch.inf) / 0.05, torch.arange(len(x)))


def test_few_steps_may_be_too_few_for_an_encoder_with_random_weights() -> None:
    def detail(first: int) -> str:
        near = {
            "positive_mean": 1.5,
            "positive_std": 0.1,
            "negative_mean": 1.5,
            "negative_std": 0.1,
        }
        rows = [{"step": first + i, "loss": 4.0, **near} for i in range(12)]
        case = RunEvidence(kind="text", rows=rows, losses=({"name": "loss", "family": "softmax"},))
        (finding,) = (f for f in diagnose(case).findings if f.verdict == "unrelated-positives")
        return finding.detail

    assert "random weights" in detail(0)
    assert "random weights" not in detail(300)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_filter_of_negatives_makes_no_positive_near(shuffled: bool) -> None:
    found = watched(lambda x, y: filtered(x, y.roll(5, 0) if shuffled else y)).diagnose()
    assert (found.verdict[0] == "unrelated-positives") == shuffled


class Words(torch.nn.Module):
    """A mean of word vectors, and of positions, which are the same in each batch."""

    def __init__(self, *, bag: bool) -> None:
        super().__init__()
        kind = torch.nn.EmbeddingBag if bag else torch.nn.Embedding
        self.words, self.places = kind(500, 16, padding_idx=0), torch.nn.Embedding(9, 16)

    def forward(self, ids: Tensor) -> Tensor:
        found = self.words(ids)
        found = found.mean(dim=1) if found.ndim == 3 else found
        return F.normalize(found + self.places(torch.arange(9)).mean(dim=0), dim=1)


@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_a_loop_shows_by_its_texts_when_its_first_epoch_ends(bag: bool, every: int) -> None:
    torch.manual_seed(0)
    texts, model = torch.randint(1, 500, (64, 7)), Words(bag=bag)
    doctor = isotrope.Doctor(every=every, say=None)
    for step in range(24):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(step // 8))
        ids = F.pad(texts[order[8 * (step % 8) :][:8]], (0, 1 + step % 2))  # as long as the longest
        ids = F.pad(ids, (0, 9 - ids.shape[1])) if bag else ids
        loss = F.cross_entropy(model(ids) @ model(ids.flip(1)).T / 0.1, torch.arange(8))
        doctor.observe(loss)
        loss.backward()
    epochs = [row["epoch"] for row in doctor.rows]
    assert epochs[: 8 // every] == [0.0] * (8 // every)
    assert epochs[-1] in (1.0, 2.0)


def test_the_epochs_that_a_loop_reports_count() -> None:
    doctor = isotrope.Doctor(every=1, say=None)
    model = Words(bag=True)
    for step in range(3):
        ids = torch.randint(1, 500, (8, 9))
        loss = F.cross_entropy(model(ids) @ model(ids.flip(1)).T / 0.1, torch.arange(8))
        doctor.observe(loss)
        loss.backward()
        doctor.anatomy.note(epoch=step + 5.0)
    assert [row["epoch"] for row in doctor.rows] == [5.0, 6.0, 7.0]


def smoothed(scores: Tensor, smoothing: float, *, by_hand: bool) -> Tensor:
    rows = torch.arange(len(scores))
    if by_hand:
        targets = (1 - smoothing) * torch.eye(len(scores)) + smoothing / len(scores)
        return -(targets * scores.log_softmax(dim=1)).sum(dim=1).mean()
    return F.cross_entropy(scores, rows, label_smoothing=smoothing)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("by_hand", [False, True])
def test_smoothed_labels_leave_the_pairs_as_they_are(by_hand: bool, directions: int) -> None:
    """Their pull on all candidates is neither a pull of positives nor a push of negatives."""
    torch.manual_seed(0)
    x = F.normalize(torch.randn(16, 24), dim=1)
    y = F.normalize(x + 0.02 * torch.randn(16, 24), dim=1)  # far ahead: pushed away by smoothing
    rows = []
    for smoothing in (0.0, 0.1):
        doctor = isotrope.Doctor(every=1, say=None)
        a, b = (v.clone().requires_grad_() for v in (x, y))
        scores = a @ b.T / 0.05
        loss = smoothed(scores, smoothing, by_hand=by_hand)
        loss = loss + smoothed(scores.T, smoothing, by_hand=by_hand) if directions > 1 else loss
        doctor.observe(loss)
        loss.backward()
        rows.append(doctor.rows[-1])
    plain, other = rows
    for name in ("positive_mean", "negative_mean", "negatives", "dissipation", "temperature"):
        assert other[name] == pytest.approx(plain[name], rel=1e-2, abs=1e-5), name
    assert "unrelated-positives" not in doctor.diagnose(batch_size=16).verdict


def test_targets_of_mixed_rows_show_no_positives() -> None:
    def mixed(x: Tensor, y: Tensor) -> Tensor:
        targets = 0.6 * torch.eye(16) + 0.4 * torch.eye(16)[torch.randperm(16)]
        return F.cross_entropy(x @ y.T / 0.05, targets, label_smoothing=0.1)

    doctor = watched(mixed)
    assert doctor.anatomy.kind == "scores"
    assert all(row["positive_mean"] is None for row in doctor.rows)
    assert "unrelated-positives" not in doctor.diagnose().verdict


def test_the_second_direction_of_a_loss_with_a_constant_side_shows_no_copies() -> None:
    """Both tables have the same vectors; an anchor is not compared with those of the other."""
    fixed = torch.randn(16, 24)

    def of_both(x: Tensor, _: Tensor) -> Tensor:
        scores = x @ F.normalize(x.detach() + 0.1 * fixed, dim=1).T / 0.1
        rows = torch.arange(16)
        return F.cross_entropy(scores, rows) + F.cross_entropy(scores.T, rows)

    doctor = watched(of_both)
    assert max(row["false_negatives"] for row in doctor.rows) < 0.3


@pytest.mark.parametrize("temperature", [3.0, 0.001])
def test_an_objective_has_the_verdict_of_the_same_loss_by_hand(
    temperature: float, tmp_path: Path
) -> None:
    def by_hand(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x @ y.T / temperature, torch.arange(16))

    one, other = watched(by_hand), watched(InfoNCE(temperature=temperature))
    found = [doctor.diagnose(kind="text").findings[0] for doctor in (one, other)]
    assert found[0].verdict == found[1].verdict
    assert found[0].change == found[1].change
    other.save(tmp_path)
    saved = of_recording(tmp_path)[""]
    assert saved.objective == InfoNCE(temperature=temperature)
    assert diagnose(replace(saved, kind="text")).verdict == other.diagnose(kind="text").verdict


def test_a_learnt_temperature_of_an_objective_is_read(tmp_path: Path) -> None:
    doctor = watched(InfoNCE(temperature=torch.nn.Parameter(torch.tensor(3.0))))
    doctor.save(tmp_path)
    assert doctor.rows[0]["temperature"] == 3.0
    assert doctor.diagnose(kind="text").verdict == ("negatives-not-hard",)
    assert isotrope.diagnose(tmp_path).verdict == doctor.diagnose().verdict


def test_an_objective_is_read_also_after_an_earlier_gradient() -> None:
    """Such as that of a layer, by which several losses are weighed."""
    x = torch.randn(2, 16, 24).requires_grad_()
    doctor, loss = isotrope.Doctor(every=1, say=None), InfoNCE()(*x)
    torch.autograd.grad(loss, x, retain_graph=True)
    doctor.observe(loss)
    loss.backward()
    assert doctor.anatomy.objective == InfoNCE()
    assert doctor.rows[0]["temperature"] == InfoNCE().temperature


@pytest.mark.parametrize(("first", "later"), [(3.0, 0.1), (0.1, 3.0)])
def test_an_objective_with_another_temperature_at_each_step_is_judged_by_the_newest(
    first: float, later: float
) -> None:
    values = iter([first] * 2 + [later] * 10)
    doctor = watched(lambda x, y: InfoNCE(temperature=next(values))(x, y))
    assert ("(now 3)" in str(doctor.diagnose(kind="text"))) == (later == 3.0)


def test_a_margin_is_proposed_only_for_an_objective_that_has_one() -> None:
    without = RunEvidence(losses=({"name": "loss"},), objective=BarlowTwins())
    assert "margin" not in VERDICTS["never-dissipating"].change.loop(without)
    with_one = replace(without, objective=MPT(margin=2.0))
    assert VERDICTS["never-dissipating"].change.loop(with_one).endswith("(now 2)")


@pytest.mark.parametrize("grouped", [False, True])
def test_equal_texts_of_a_group_are_not_pushed_apart(grouped: bool) -> None:
    anatomy = Anatomy()
    x, groups = torch.randn(2, 16, 24).requires_grad_(), torch.arange(16) // 2
    loss = InfoNCE()(x[0], x[1], groups=groups if grouped else None)
    reading = GraphReading(loss)
    loss.backward()
    row = anatomy.see([reading], 0, copies=1.0)
    assert row is not None
    assert row["false_negatives"] == (0.0 if grouped else 1.0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("hard", [0, 16])
@pytest.mark.parametrize("directions", [1, 2])
def test_copies_that_a_loss_masks_are_not_pushed_apart(
    masked: bool, hard: int, directions: int
) -> None:
    """However many other negatives there are."""
    torch.manual_seed(0)
    x, negatives = torch.randn(2, 16, 24).requires_grad_(), torch.randn(hard, 24)
    copy = (torch.arange(16)[:, None] // 2 == torch.arange(16) // 2) & ~torch.eye(16).bool()
    loss = torch.zeros(())
    for a, b in (x, x.flip(0))[:directions]:
        scores = F.normalize(a, dim=1) @ F.normalize(torch.cat([b, negatives]), dim=1).T / 0.1
        mask = F.pad(copy & masked, (0, hard))
        loss = loss + F.cross_entropy(scores.masked_fill(mask, -torch.inf), torch.arange(16))
    reading, anatomy = GraphReading(loss), Anatomy()
    loss.backward()
    row = anatomy.see([reading], 0, copies=1.0)
    assert row is not None
    assert row["false_negatives"] == (0.0 if masked else 1.0)


@pytest.mark.parametrize("times", [1 / 128, 65536.0])
def test_a_multiple_of_the_observed_loss_has_its_numbers(times: float) -> None:
    x = torch.randn(2, 16, 24).requires_grad_()
    rows = []
    for factor in (1.0, times):
        doctor = isotrope.Doctor(every=1, say=None)
        scores = F.normalize(x[0], dim=1) @ F.normalize(x[1], dim=1).T
        loss = F.relu(0.3 + (scores - 9 * torch.eye(16)).amax(dim=1) - scores.diagonal()).mean()
        doctor.observe(loss)
        (factor * loss).backward()
        rows.append(doctor.rows[0])
    for name in ("loss", "dissipation", "dead", "embedding_gradient", "ratio"):
        assert rows[1][name] == pytest.approx(rows[0][name], rel=1e-4), name


@pytest.mark.parametrize("ours", [False, True])
def test_an_objective_with_other_terms_that_compare_pairs_is_not_judged(ours: bool) -> None:
    def with_others(x: Tensor, y: Tensor) -> Tensor:
        z = y.roll(1, dims=0)
        rest = (
            InfoNCE(temperature=3.0)(x, z) if ours else F.cross_entropy(x @ z.T, torch.arange(16))
        )
        return InfoNCE(temperature=0.1)(x, y) + rest

    doctor = watched(with_others)
    assert all(row["misfit"] > 0.02 for row in doctor.rows)
    assert doctor.diagnose().verdict == ("not-examined",)


@pytest.mark.parametrize(
    ("labelled", "third"),
    [(True, ""), (True, "drawn anew"), (False, "drawn anew"), (False, "of the same texts")],
)
def test_an_epoch_ends_when_rows_of_two_columns_occur_again(labelled: bool, third: str) -> None:
    """Labels repeat within an epoch. Random negatives never do, or early if they are few."""
    torch.manual_seed(0)
    doctor, model = isotrope.Doctor(every=1, say=None), torch.nn.Embedding(500, 24)
    texts, others = torch.randint(20, 500, (2, 96, 6))
    labels = torch.randint(0, 20, (96, 1))
    for step in range(24):
        some = slice(8 * (step % 12), 8 * (step % 12) + 8)
        columns = [texts[some], labels[some] if labelled else others[some]]
        if third:
            fresh = torch.randint(20, 500, (8, 6))
            columns.append(fresh if third == "drawn anew" else others[torch.randperm(96)[:8]])
        a, *rest = (model(ids).mean(dim=1) for ids in columns)
        loss = F.cross_entropy(a @ torch.cat(rest).T, torch.arange(8))
        doctor.observe(loss)
        loss.backward()
    assert [row["epoch"] for row in doctor.rows] == [0.0] * 12 + [1.0] * 12


def test_a_matrix_that_is_a_plain_tensor_is_a_weight() -> None:
    x, weights = torch.randn(16, 20), torch.randn(2, 20, 24).requires_grad_()
    a, b = (x @ w.detach().requires_grad_() for w in weights)
    reading = GraphReading(F.cross_entropy(a @ b.T, torch.arange(16)))
    assert reading.encoders == 2


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("inverted", [False, True])
def test_small_batches_show_together_whether_labels_are_inverted(size: int, inverted: bool) -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        own = torch.arange(size) % 2 == 0
        other = torch.where(own[:, None], y[:size], y[:size].roll(2, dims=0))
        return F.mse_loss((x[:size] * other).sum(dim=1), (own != inverted).float())

    doctor = watched(loss)
    gaps = [row["label_gap"] for row in doctor.rows if row["label_gap"] is not None]
    assert bool(gaps and gaps[0] < 0) is inverted
    assert ("unrelated-positives" in doctor.diagnose().verdict) is inverted


def in_order(cosine: Tensor, label: Tensor) -> Tensor:
    """A pair with a higher label must be nearer, as in CoSENT."""
    lead = 20 * (cosine[:, None] - cosine)[label[:, None] < label]
    return torch.cat([torch.zeros(1), lead]).logsumexp(dim=0)


@pytest.mark.parametrize("graded", [in_order, F.mse_loss])
@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize(("correlation", "inverted"), [(0.4, False), (0.7, False), (-0.95, True)])
def test_graded_labels_are_inverted_only_if_the_encoder_says_so(
    graded: Callable[[Tensor, Tensor], Tensor],
    size: int,
    correlation: float,
    inverted: bool,
) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(32, 32, bias=False)
    torch.nn.init.eye_(head.weight)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(40):
        label = torch.randint(0, 11, (size,)) / 10
        noise = (1 - correlation**2) ** 0.5 * torch.randn(size)
        cosine = (0.55 + 0.25 * (correlation * (label - 0.5) / 0.32 + noise)).clamp(-0.99, 0.99)
        a, other = (F.normalize(torch.randn(size, 32), dim=1) for _ in range(2))
        across = F.normalize(other - (a * other).sum(dim=1, keepdim=True) * a, dim=1)
        b = cosine[:, None] * a + (1 - cosine.square()).sqrt()[:, None] * across
        x, y = (F.normalize(head(z), dim=1) for z in (a, b))
        loss = graded((x * y).sum(dim=1), label)
        doctor.observe(loss)
        head.zero_grad()
        loss.backward()
    assert ("unrelated-positives" in doctor.diagnose().verdict) is inverted


def supervised(score: Tensor, same: Tensor) -> Tensor:
    """A softmax over the memory whose positives are all rows of the label, as in SupCon."""
    rows = same.any(dim=1)
    log = (score / 0.1).log_softmax(dim=1)[rows]
    return -(log * same[rows]).sum(dim=1).div(same[rows].sum(dim=1)).mean()


def hardest(score: Tensor, same: Tensor) -> Tensor:
    """The farthest row of the label, and the nearest of another."""
    rows = same.any(dim=1)
    far, near = score.masked_fill(~same, 9).amin(dim=1), score.masked_fill(same, -9).amax(dim=1)
    return F.relu(near - far + 0.2)[rows].mean()


def one_by_one(score: Tensor, same: Tensor) -> Tensor:
    """Each positive of a row by itself against all rows of other labels."""
    rest = (score / 0.1).masked_fill(same, -1e9).logsumexp(dim=1, keepdim=True)
    return F.softplus(rest - score / 0.1)[same].mean()


@pytest.mark.parametrize("classes", [8, 50])
@pytest.mark.parametrize("loss", [supervised, hardest, one_by_one])
def test_rows_of_a_label_are_no_false_negatives_of_a_memory(
    loss: Callable[[Tensor, Tensor], Tensor], classes: int
) -> None:
    torch.manual_seed(0)
    encoder, doctor = torch.nn.Linear(32, 48), isotrope.Doctor(every=1, say=None)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    centres, memory = torch.randn(classes, 32), list[tuple[Tensor, Tensor]]()
    for _ in range(20):
        label = torch.randint(0, classes, (32,))
        z = F.normalize(encoder(centres[label] + 0.4 * torch.randn(32, 32)), dim=1)
        if len(memory) > 1:
            rows, labels = (torch.cat(parts) for parts in zip(*memory[-8:], strict=True))
            value = loss(z @ rows.T, label[:, None] == labels)
            doctor.observe(value)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        memory.append((z.detach(), label))
    assert "false-negatives" not in doctor.diagnose().verdict


@pytest.mark.parametrize("seed", range(4))
def test_half_precision_does_not_change_a_temperature_that_the_loss_states(seed: int) -> None:
    torch.manual_seed(seed)
    encoder, doctor = torch.nn.Linear(32, 64), isotrope.Doctor(every=1, say=None)
    for _ in range(4):
        x = torch.randn(16, 32)
        with torch.autocast("cpu", torch.bfloat16):
            rows = [F.normalize(encoder(v), dim=1) for v in (x, x + 0.4 * torch.randn(16, 32))]
            loss = F.cross_entropy(rows[0] @ rows[1].T / 0.01, torch.arange(16))
        doctor.observe(loss)
        loss.backward()
    assert [row["temperature"] for row in doctor.rows] == pytest.approx([0.01] * 4, rel=1e-5)


SIGMOIDS = {
    "logsigmoid": lambda scores, signs: -F.logsigmoid(signs * scores).sum() / len(scores),
    "cross-entropy": lambda scores, signs: (
        F.binary_cross_entropy_with_logits(scores.float(), (signs + 1) / 2, reduction="sum")
        / len(scores)
    ),
}


@pytest.mark.parametrize("loss", SIGMOIDS)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("scale", "bias", "near"), [(117.0, -12.9, 0.12), (112.0, -16.5, 0.14), (10.0, -10.0, 0.6)]
)
def test_a_sigmoid_of_each_pair_is_no_softmax_of_a_low_temperature(
    loss: str, half: bool, scale: float, bias: float, near: float
) -> None:
    """Its pushes are far from 0; a full pull is not dead."""
    torch.manual_seed(0)
    head, doctor = torch.nn.Linear(768, 768, bias=False), isotrope.Doctor(every=1, say=None)
    torch.nn.init.eye_(head.weight)
    for _ in range(6):
        x, other = (F.normalize(torch.randn(32, 768), dim=1) for _ in range(2))
        y = near * x + (1 - near**2) ** 0.5 * other
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            rows = [F.normalize(head(v), dim=1) for v in (x, y)]
            scores = rows[0] @ rows[1].T * torch.tensor(scale) + bias
            value = SIGMOIDS[loss](scores, 2 * torch.eye(32) - 1)
        doctor.observe(value)
        value.backward()
    assert doctor.diagnose().verdict[0] in ("healthy", "not-examined")
    assert all(row["temperature"] is None and (row["dead"] or 0) < 0.5 for row in doctor.rows)
