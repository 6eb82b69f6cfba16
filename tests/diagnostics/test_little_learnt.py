"""What the Doctor says of loops that learn nothing or too little, beside loops that learn."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import isotrope
from isotrope.core.distributed import local_norm
from isotrope.diagnostics import anatomy
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.verdicts.outcome import nothing_learnt

Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


def encoder() -> nn.Linear:
    """An encoder whose embeddings have nearly the same direction at first."""
    torch.manual_seed(0)
    model = nn.Linear(16, 24)
    nn.init.orthogonal_(model.weight)
    nn.init.constant_(model.bias, 1.0)
    return model


def trained(
    loss: Loss, model: nn.Module, weights: list[nn.Parameter] | None = None, rate: float = 0.02
) -> isotrope.Doctor:
    """Train on pairs (x, y) whose cosines are the scores, of which the loss gets the third."""
    chosen = list(model.parameters()) if weights is None else weights
    optimizer = torch.optim.Adam(chosen, lr=rate)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(24):
        x, noise, score = torch.randn(32, 16), torch.randn(32, 16), torch.rand(32)
        y = score[:, None] * x + (1 - score[:, None] ** 2).sqrt() * noise
        value = loss(model, x, y, score)
        doctor.observe(value)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return doctor


LABELS: dict[str, Callable[[Tensor], Tensor]] = {
    "right": lambda score: score,
    "shuffled": lambda score: score[torch.randperm(len(score))],
    "inverted": lambda score: 1 - score,
    "from 0 to 5": lambda score: 5 * score,
}
ERRORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": F.mse_loss,
    "sum": lambda cosine, label: F.mse_loss(cosine, label, reduction="sum"),
    "half": lambda cosine, label: ((cosine - label) ** 2).mean() / 2,
}


def scored(labels: str, error: str = "mean", rate: float = 0.02) -> Diagnosis:
    def loss(model: nn.Module, x: Tensor, y: Tensor, score: Tensor) -> Tensor:
        return ERRORS[error](F.cosine_similarity(model(x), model(y)), LABELS[labels](score))

    return trained(loss, encoder(), rate=rate).diagnose(batch_size=32)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        ("right", "healthy"),
        ("shuffled", "unrelated-positives"),
        ("inverted", "unrelated-positives"),
        ("from 0 to 5", "not-examined"),
    ],
)
def test_the_labels_of_a_squared_error_are_read_from_its_gradient(
    labels: str, verdict: str, error: str
) -> None:
    found = scored(labels, error)
    assert found.verdict == (verdict,)
    if labels == "inverted":
        assert "1 - LABEL" in found.findings[0].change


@pytest.mark.parametrize("rate", [1e-3, 0.02])
def test_labels_outside_the_cosines_are_not_learnt_although_the_loss_falls(rate: float) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor, score: Tensor) -> Tensor:
        return F.mse_loss(F.cosine_similarity(model(x), model(y)), 5 * score)

    torch.manual_seed(0)
    doctor = trained(loss, nn.Sequential(nn.Linear(16, 24, bias=False)), rate=rate)
    assert doctor.diagnose(batch_size=32).verdict == ("not-examined",)


def test_a_squared_error_of_equal_labels_is_not_called_inverted() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor, score: Tensor) -> Tensor:
        return F.mse_loss(F.cosine_similarity(model(x), model(y)), torch.full_like(score, 0.8))

    doctor = trained(loss, encoder())
    assert "unrelated-positives" not in doctor.diagnose(batch_size=32).verdict
    assert all(row["unexplained"] is None for row in doctor.rows)


def test_a_squared_error_that_ends_like_the_mean_label_is_not_healthy() -> None:
    found = scored("right", rate=1e-6)
    assert found.verdict == ("not-examined",)
    assert found.findings[0].evidence[0].name == "unexplained"
    assert found.findings[0].evidence[0].number > 1


def test_one_batch_does_not_show_that_labels_are_inverted() -> None:
    calls: list[int] = []

    def loss(model: nn.Module, x: Tensor, y: Tensor, score: Tensor) -> Tensor:
        calls.append(len(calls))
        label = score if len(calls) > 1 else 1 - score
        return F.mse_loss(F.cosine_similarity(model(x), model(y)), label)

    doctor = trained(loss, encoder())
    assert doctor.rows[0]["label_gap"] < -1
    assert "unrelated-positives" not in doctor.diagnose(batch_size=32).verdict


def test_another_loss_may_have_the_size_of_a_squared_error_in_some_batches() -> None:
    calls: list[int] = []

    def loss(model: nn.Module, x: Tensor, y: Tensor, score: Tensor) -> Tensor:
        calls.append(len(calls))
        cosine = F.cosine_similarity(model(x), model(y))
        value = (cosine * (1 - 2 * (score > 0.5).float())).mean()
        return value + (0.25 - value).detach() if len(calls) % 8 == 1 else value

    doctor = trained(loss, encoder())
    assert sum(row["unexplained"] is not None for row in doctor.rows) == 3
    assert not doctor.anatomy.case().series("unexplained")


@pytest.mark.parametrize(
    "label", [lambda s: 2 * s - 1, lambda s: s + 0.7 * torch.randn(len(s))], ids=["offset", "noise"]
)
def test_much_of_the_labels_may_be_unexplained_while_a_model_learns(
    label: Callable[[Tensor], Tensor],
) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor, score: Tensor) -> Tensor:
        return F.mse_loss(F.cosine_similarity(model(x), model(y)), label(score))

    doctor = trained(loss, encoder(), rate=0.005)
    assert doctor.anatomy.case().end("unexplained") > 0.9
    found = doctor.diagnose(batch_size=32).findings
    assert not any(e.name == "unexplained" for f in found for e in f.evidence)


def scored_rows(
    gaps: list[float], unexplained: float, rise: float, loss: float = 1.0
) -> RunEvidence:
    """The evidence of a squared error of labels, with a pair of gaps again and again."""
    gaps = [gaps[0], *(gaps[1:] * 30)[:29]]
    rows = [
        {"step": float(i), "loss": loss + rise * i, "label_gap": gap, "unexplained": unexplained}
        for i, gap in enumerate(gaps)
    ]
    return RunEvidence(rows=rows, losses=({"family": "pairs"},))


@pytest.mark.parametrize(
    ("unexplained", "gaps", "loss", "verdict"),
    [
        (1.05, (0.2, -0.2), 1.0, "not-examined"),  # much noise
        (5.0, (0.02, -0.02), 0.02, "not-examined"),  # labels that vary little
        (1.9, (0.2, -0.2), 1.0, "unrelated-positives"),
        (1.15, (0.2, -0.2), 0.28, "unrelated-positives"),  # labels of 0 and 1
        (2.6, (-0.9, -0.5), 1.0, "unrelated-positives"),  # opposite
    ],
)
def test_labels_that_vary_little_or_are_noisy_are_not_called_wrong(
    unexplained: float, gaps: tuple[float, float], loss: float, verdict: str
) -> None:
    case = scored_rows([0.0, *gaps], unexplained, 0.0, loss)
    assert diagnose(case).verdict == (verdict,)


@pytest.mark.parametrize(("gaps", "lost"), [([0.9, 0.0, 0.6], False), ([2.0, 0.0, 0.6], True)])
def test_a_gap_that_falls_by_chance_is_not_lost(gaps: list[float], lost: bool) -> None:
    verdict = diagnose(scored_rows(gaps, 1.05, 0.001, 0.3)).verdict
    assert ("diverging" in verdict) is lost


def contrast(model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
    a, b = F.normalize(model(x), dim=1), F.normalize(model(y), dim=1)
    return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))


@pytest.mark.parametrize(("rate", "verdict"), [(0.02, "healthy"), (1e-6, "not-examined")])
def test_a_rate_at_which_nothing_changes(rate: float, verdict: str) -> None:
    found = trained(contrast, encoder(), rate=rate).diagnose(batch_size=32)
    assert found.verdict[0] == verdict
    if verdict == "not-examined":
        assert found.findings[0].change.startswith("more steps")
        assert found.findings[0].evidence[0].name == "logged_steps"


@pytest.mark.parametrize(("fall", "learns"), [(0.02, True), (0.0, False)])
def test_batches_of_two_sources_in_turn_hide_no_learning(fall: float, learns: bool) -> None:
    """The losses of the sources differ much more than training changes either of them."""
    noise = (0.05 * torch.randn(36, generator=torch.Generator().manual_seed(0))).tolist()
    losses = [(0.6, 2.5)[i % 2] - fall * i + noise[i] for i in range(36)]
    rows = [{"step": float(i), "loss": loss, "dead": 0.0} for i, loss in enumerate(losses)]
    assert (nothing_learnt(RunEvidence(rows=rows)) is None) is learns


def test_norms_of_weights_that_have_changed_are_not_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes: list[tuple[int, ...]] = []

    def counted(weight: Tensor) -> float:
        shapes.append(tuple(weight.shape))
        return local_norm(weight)

    monkeypatch.setattr(anatomy, "local_norm", counted)
    model = nn.Sequential(encoder(), nn.Linear(24, 12, bias=False))
    doctor = trained(contrast, model, [*model[0].parameters()])
    # the optimizer lacks the last weight, so only a norm shows whether it changes
    assert [shapes.count(shape) for shape in ((24, 16), (24,), (12, 24))] == [2, 2, 24]
    assert len(doctor.anatomy.settings["unchanged"]) == 1


def test_a_teacher_that_is_as_sure_as_its_student_shows_no_positives() -> None:
    """At first, nearly all of each target is on the row itself."""
    teacher = nn.Linear(16, 24)

    def imitation(model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
        student, aim = F.normalize(model(x), dim=1), F.normalize(teacher(x).detach(), dim=1)
        near = 40.0 if not seen else 4.0
        seen.append(near)
        wanted = (near * aim @ aim.T).softmax(dim=1)
        return F.kl_div((near * student @ student.T).log_softmax(1), wanted, reduction="batchmean")

    seen: list[float] = []
    model = encoder()
    teacher.load_state_dict(model.state_dict())
    doctor = trained(imitation, model)
    assert doctor.diagnose().verdict == ("not-examined",)
    assert all(row["positive_mean"] is None for row in doctor.rows)


def test_a_sure_teacher_beside_the_pairs_shows_no_positives() -> None:
    """Nearly all of each target is on the row itself, so that each other target is small."""

    def loss(model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
        a, b = F.normalize(model(x), dim=1), F.normalize(model(x + 0.3 * y), dim=1)
        wanted = (6 * F.normalize(x, dim=1) @ F.normalize(x, dim=1).T).softmax(dim=1)
        own = F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))
        taught = F.kl_div((a @ b.T / 0.1).log_softmax(1), wanted, reduction="batchmean")
        return own + taught

    doctor = trained(loss, encoder())
    assert doctor.diagnose().verdict == ("not-examined",)


@pytest.mark.parametrize("forgotten", [True, False])
def test_weights_that_the_optimizer_lacks_are_named(forgotten: bool) -> None:
    model = nn.Sequential(encoder(), nn.Linear(24, 12, bias=False))
    parts = model[0] if forgotten else model
    notes = trained(contrast, model, list(parts.parameters())).diagnose(batch_size=32).notes
    assert any("(12, 24)" in note for note in notes) is forgotten


def test_a_healthy_verdict_lists_what_was_not_examined() -> None:
    doctor = trained(contrast, encoder())
    (covered,) = [n for n in doctor.diagnose(batch_size=32).notes if n.startswith("not examined")]
    assert {"held-out scores", "frozen weights"} <= {*covered.partition(": ")[2].split(", ")}
    doctor.know([("0.weight", torch.ones(2)), ("1.weight", nn.Parameter(torch.ones(2)))])
    for step in (0, 20):
        doctor.anatomy.note(step, dev=50.0)
    notes = doctor.diagnose(batch_size=32).notes
    assert not any(note.startswith("not examined") for note in notes)
    assert any("frozen weights (0.weight)" in note for note in notes)


def test_one_negative_says_little_about_the_push() -> None:
    def pairs(model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
        return contrast(model, x[:2], y[:2], _)

    doctor = trained(pairs, encoder())
    for step in (0, 20):
        doctor.anatomy.note(step, dev=50.0 + step)
    notes = doctor.diagnose(batch_size=2).notes
    assert any("an anchor has only 1" in note.partition("not examined")[2] for note in notes)


def test_the_first_step_with_nan_is_named_and_no_rate_is_invented() -> None:
    calls: list[int] = []

    def broken(model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
        calls.append(len(calls))
        return contrast(model, x, y, _) * (float("nan") if len(calls) > 7 else 1.0)

    finding = trained(broken, encoder()).diagnose(batch_size=32).findings[0]
    assert finding.verdict == "diverging"
    assert "NaN or infinity is 7:" in finding.detail
    assert finding.change == "a tenth of the learning rate"


def test_a_folder_of_the_doctor_is_read_without_embedding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(contrast, encoder()).save(tmp_path)
    isotrope.diagnose(tmp_path)
    assert capsys.readouterr().err == f"reading {tmp_path}\n"
    isotrope.diagnose(tmp_path, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("end", "verdict"), [(3.0, "healthy"), (0.5, "diverging")])
def test_labelled_pairs_that_stay_apart_do_not_diverge(end: float, verdict: str) -> None:
    """The first batch had a large gap and a small loss by chance."""
    rows = [
        {"step": float(i), "loss": 0.05, "label_gap": end + 0.1 * (i % 2), "uniformity": -2.0}
        for i in range(12)
    ]
    rows[0] |= {"loss": 0.01, "label_gap": 20.0}
    case = RunEvidence(kind="text", rows=rows, losses=({"name": "loss", "family": "pairs"},))
    assert diagnose(case).verdict[0] == verdict
