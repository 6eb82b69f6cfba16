"""What the Doctor reads from pull and push of losses that resemble InfoNCE."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import isotrope
from isotrope.diagnostics.findings import Diagnosis

TAU = 0.05
Loss = Callable[[Tensor, Tensor], Tensor]


def cosines(a: Tensor, b: Tensor) -> Tensor:
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def hardest(scores: Tensor) -> Tensor:
    """The smooth maximum of the negatives, whose gradient is a softmax without 1/temperature."""
    own = torch.eye(len(scores), dtype=torch.bool)
    return TAU * (scores / TAU).masked_fill(own, -torch.inf).logsumexp(dim=1)


def infonce(a: Tensor, b: Tensor, margin: float = 0.0) -> Tensor:
    scores = cosines(a, b)
    return F.cross_entropy((scores - margin * torch.eye(len(a))) / TAU, torch.arange(len(a)))


def bounded(a: Tensor, b: Tensor) -> Tensor:
    """GD is a sigmoid that is wider than the softmax."""
    scores = cosines(a, b)
    return (0.1 * F.softplus((hardest(scores) - scores.diagonal() + 0.1) / 0.1)).mean()


def constant(a: Tensor, b: Tensor) -> Tensor:
    """GD is 1."""
    return (hardest(scores := cosines(a, b)) - scores.diagonal()).mean()


def lopsided(a: Tensor, b: Tensor) -> Tensor:
    """GD is 1, and the pull does not balance the push."""
    scores = cosines(a, b)
    return (hardest(scores) + (1 - scores.diagonal()).square()).mean()


def watched(loss: Loss, *, noise: float = 1.2, steps: int = 8, rate: float = 0.02, n: int = 32):
    torch.manual_seed(0)
    encoder = torch.nn.Linear(64, 32)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=rate)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(steps):
        x = torch.randn(n, 64)
        value = loss(encoder(x), encoder(x + noise * torch.randn(n, 64)))
        doctor.observe(value)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return doctor


@pytest.mark.parametrize("loss", [bounded, constant, lopsided])
def test_a_force_without_the_temperature_of_the_weights_has_no_known_unit(loss: Loss) -> None:
    """Times the temperature, GD would be at most 0.05, and many anchors would look done."""
    doctor = watched(loss)
    for row in doctor.rows:
        assert row["temperature"] == pytest.approx(TAU, rel=1e-3)
        assert row["dissipation"] is row["dead"] is None
        assert row["hardest_share"] is not None
    diagnosis = doctor.diagnose(batch_size=32)
    assert diagnosis.verdict[0] == "healthy"
    assert any("unknown factor" in note for note in diagnosis.notes)


@pytest.mark.parametrize("margin", [0.0, 0.2, 0.4])
def test_a_margin_of_the_positive_leaves_the_unit_known(margin: float) -> None:
    doctor = watched(lambda a, b: infonce(a, b, margin))
    assert all(row["dissipation"] is not None for row in doctor.rows)
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
    anchors, positives = x.requires_grad_(), (x + 1.2 * torch.randn(32, 64)).detach()
    scores = cosines(anchors, positives).detach()
    expected = torch.sigmoid((hardest(scores) - scores.diagonal() + margin) / TAU)
    doctor.observe(loss := infonce(anchors, positives, margin))
    loss.backward()
    assert doctor.rows[-1]["dissipation"] == pytest.approx(float(expected.mean()), rel=1e-3)


def symmetric(a: Tensor, b: Tensor) -> Tensor:
    return (infonce(a, b) + infonce(b, a)) / 2


def smoothed(a: Tensor, b: Tensor) -> Tensor:
    return F.cross_entropy(cosines(a, b) / TAU, torch.arange(len(a)), label_smoothing=0.1)


def by_hand(a: Tensor, b: Tensor) -> Tensor:
    scores = cosines(a, b) / TAU
    return (scores.logsumexp(dim=1) - scores.diagonal()).mean()


def flatter(a: Tensor, b: Tensor) -> Tensor:
    """A teacher with the same scores and a higher temperature: only the first is pushed."""
    scores = cosines(a, b) / TAU
    targets = (scores.detach() / 4).softmax(dim=1)
    return (scores.logsumexp(dim=1) - (targets * scores).sum(dim=1)).mean()


@pytest.mark.parametrize("noise", [0.3, 1.2])
@pytest.mark.parametrize("loss", [infonce, symmetric, by_hand, bounded, smoothed])
def test_a_loss_with_the_opposite_sign_pushes_positives(loss: Loss, noise: float) -> None:
    doctor = watched(lambda a, b: -loss(a, b), noise=noise)
    assert {doctor.anatomy.kind, *(x["family"] for x in doctor.losses.values())} == {"reversed"}
    assert doctor.diagnose(batch_size=32).verdict == ("pushed-positives",)
    sound = watched(loss, noise=noise).diagnose(batch_size=32)
    assert sound.verdict[0] in ("healthy", "nothing-left-to-learn")


def test_a_flatter_teacher_is_no_loss_with_the_opposite_sign() -> None:
    assert "pushed-positives" not in watched(flatter, noise=0.3).diagnose(batch_size=32).verdict


def of_sums(a: Tensor, b: Tensor, *, unit: bool = False, penalty: float = 0.0) -> Tensor:
    """Sums over tokens, of which every other text has twice as many."""
    lengths = 1.0 + torch.arange(len(a))[:, None] % 2
    a, b = (lengths * (0.1 * x + 0.5) for x in (a, b))
    scores = cosines(a, b) / TAU if unit else a @ b.T
    return F.cross_entropy(scores, torch.arange(len(a))) + penalty


@pytest.mark.parametrize("penalty", [0.0, 1000.0])
def test_a_loss_above_that_of_guessing_is_not_healthy(penalty: float) -> None:
    """Several long texts share the push on a short one, whose positive is far behind them."""
    doctor = watched(lambda a, b: of_sums(a, b, penalty=penalty), rate=1e-5)
    assert all((row["hardest_share"] or 1) < 0.5 for row in doctor.rows)
    (finding,) = doctor.diagnose(batch_size=32).findings
    assert (finding.verdict, finding.evidence[0].name) == ("not-examined", "over_guess")
    assert "normalize" in finding.change
    assert watched(lambda a, b: of_sums(a, b, unit=True)).diagnose(batch_size=32).healthy


def test_a_large_term_beside_the_pairs_is_no_loss_above_that_of_guessing() -> None:
    doctor = watched(lambda a, b: F.cross_entropy(a @ b.T, torch.arange(len(a))) + 1000.0)
    assert doctor.rows[-1]["radial"] > 0.05
    assert doctor.diagnose(batch_size=32).healthy


def queued(*, same: bool = False, shuffled: bool = False, kind: str | None = None) -> Diagnosis:
    """A momentum encoder whose keys wait in a queue."""
    torch.manual_seed(0)
    encoder = torch.nn.Linear(64, 32)
    keys = copy.deepcopy(encoder).requires_grad_(False)
    queue = F.normalize(torch.randn(256, 32), dim=1)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.3, momentum=0.9)
    doctor = isotrope.Doctor(every=4, say=None)
    for _ in range(48):
        x = torch.randn(32, 64)
        other = x.roll(1, dims=0) if shuffled else x
        x, other = (v if same else v + 0.8 * torch.randn_like(v) for v in (x, other))
        for slow, fast in zip(keys.parameters(), encoder.parameters(), strict=True):
            slow.data.mul_(0.95).add_(fast.data, alpha=0.05)
        a, b = (F.normalize(v, dim=1) for v in (encoder(x), keys(other)))
        scores = torch.cat([(a * b).sum(dim=1, keepdim=True), a @ queue.T], dim=1) / 0.1
        queue = torch.cat([queue[32:], b])
        doctor.observe(loss := F.cross_entropy(scores, torch.zeros(32, dtype=torch.long)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return doctor.diagnose(batch_size=32, kind=kind)


@pytest.mark.parametrize("kind", [None, "images", "text"])
def test_the_positives_of_a_queue_are_the_cause_of_what_they_do(kind: str | None) -> None:
    """Shuffled ones are no high learning rate, and equal ones no weak pull."""
    assert queued(kind=kind).verdict[0] == "healthy"
    assert queued(kind=kind, shuffled=True).verdict[0] == "unrelated-positives"
    assert queued(kind=kind, same=True).verdict == ("dead-views",)


@pytest.mark.parametrize("steps", [4, 40])
@pytest.mark.parametrize("wrong", [False, True])
def test_the_sign_is_that_of_the_backward_pass(steps: int, wrong: bool) -> None:
    """The loop passes the objective itself to the Doctor."""
    torch.manual_seed(0)
    encoder = torch.nn.Linear(64, 32)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(steps):
        shared = torch.randn(32, 16)
        a, b = (encoder(torch.cat([shared, torch.randn(32, 48)], dim=1)) for _ in range(2))
        doctor.observe(objective := infonce(a, b) if wrong else -infonce(a, b))
        optimizer.zero_grad()
        (-objective).backward()
        optimizer.step()
    assert doctor.rows[-1]["loss"] < doctor.rows[0]["loss"]
    assert doctor.diagnose().verdict == ("pushed-positives" if wrong else "healthy",)


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_few_steps_in_which_a_negated_loss_rises_show_no_opposite_sign(steps: int) -> None:
    torch.manual_seed(0)
    encoder = torch.nn.Linear(64, 32)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2, maximize=True)
    doctor = isotrope.Doctor(every=1, say=None)
    for _ in range(steps):
        shared = torch.randn(32, 16)
        a, b = (encoder(torch.cat([shared, torch.randn(32, 48)], dim=1)) for _ in range(2))
        doctor.observe(objective := -infonce(a, b))
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    assert doctor.diagnose(batch_size=32).verdict == ("not-examined",)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("every", "width"), [(1, 32), (5, 32), (1, 2_000), (1, 33)])
def test_the_first_step_shows_whether_an_optimizer_maximises(
    every: int, width: int, maximize: bool
) -> None:
    """The loss hardly changes, so that only the weights show it."""
    torch.manual_seed(0)
    encoder = torch.nn.Linear(64, width, bias=width < 1_000)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-5, maximize=maximize)
    doctor = isotrope.Doctor(every=every, say=None)
    skipped = width == 33  # by a scaler, because the gradient is infinite
    for step in range(6 * every):
        x = torch.randn(32, 64)
        doctor.observe(objective := -infonce(encoder(x), encoder(x + torch.randn(32, 64))))
        optimizer.zero_grad()
        objective.backward()
        if skipped and not step:
            encoder.weight.grad[0] = math.inf
        else:
            optimizer.step()
    found = doctor.diagnose(batch_size=32)
    assert doctor.anatomy.settings["maximised"] == maximize
    assert skipped or found.verdict == ("not-examined" if maximize else "pushed-positives",)


def of_several(a: Tensor, b: Tensor, *, last: bool) -> Tensor:
    """MIL-NCE: three positives of each anchor, and one negative."""
    units = [F.normalize(x, dim=1) for x in (a, b, b + 0.3 * torch.randn_like(b), 0.5 * a + b)]
    places = [*units[1:], units[1].roll(1, dims=0)]
    places = places if last else places[::-1]
    scores = torch.stack([(units[0] * x).sum(dim=1) for x in places], dim=1) / 0.1
    mine = scores[:, :3] if last else scores[:, 1:]
    return (scores.logsumexp(dim=1) - mine.logsumexp(dim=1)).mean()


@pytest.mark.parametrize("last", [False, True])
def test_one_negative_beside_several_positives_is_no_opposite_sign(last: bool) -> None:
    doctor = watched(lambda a, b: of_several(a, b, last=last))
    assert "reversed" not in {x["family"] for x in doctor.losses.values()}
    assert "pushed-positives" not in doctor.diagnose(batch_size=32).verdict


def weighted(a: Tensor, b: Tensor, *, focal: bool = False) -> Tensor:
    loss = F.cross_entropy(cosines(a, b) / TAU, torch.arange(len(a)), reduction="none")
    weights = (1 - (-loss).exp()) ** 2 if focal else torch.rand(len(a)) + 0.05
    return (weights * loss).mean()


@pytest.mark.parametrize("focal", [False, True])
def test_anchors_with_weights_are_done_if_their_positives_lead(focal: bool) -> None:
    done = watched(lambda a, b: weighted(a, b, focal=focal), noise=0.3)
    assert all(row["dissipation"] is None for row in done.rows)
    assert done.diagnose(batch_size=32).verdict[0] in ("nothing-left-to-learn", "dissipated-early")
    hard = watched(lambda a, b: weighted(a, b, focal=focal))
    diagnosis = hard.diagnose(batch_size=32)
    assert diagnosis.healthy
    missing = any("not examined: gradient dissipation" in note for note in diagnosis.notes)
    assert missing == all(row["dissipation"] is None for row in hard.rows)


def small_encoder(loss: Callable[[torch.nn.Module, int], Tensor], rate: float) -> Diagnosis:
    """Train two layers for 60 steps."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32)
    encoder = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=rate)
    doctor = isotrope.Doctor(every=1, say=None)
    for step in range(60):
        doctor.observe(value := loss(encoder, step))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return doctor.diagnose()


def test_classes_that_a_softmax_has_learnt_are_no_copies() -> None:
    """Such a loss pushes the nearest rows of a class, and pulls only some of the others."""
    centres = torch.randn(8, 16, generator=torch.Generator().manual_seed(5))
    label, itself = torch.arange(32) % 8, torch.eye(32, dtype=torch.bool)
    same = (label[:, None] == label) & ~itself

    def loss(encoder: torch.nn.Module, step: int) -> Tensor:
        shared = centres[label] + 0.5 * torch.randn(32, 16)
        z = F.normalize(encoder(torch.cat([shared, 0.5 * torch.randn(32, 48)], dim=1)), dim=1)
        share = (z @ z.T / 0.1).masked_fill(itself, -1e9).log_softmax(dim=1)
        return -((share * same).sum(dim=1) / same.sum(dim=1)).mean()

    assert small_encoder(loss, 3e-3).healthy


def test_a_growing_penalty_is_no_high_learning_rate() -> None:
    def loss(encoder: torch.nn.Module, step: int) -> Tensor:
        shared = torch.randn(32, 16)
        x, y = (torch.cat([shared, 0.6 * torch.randn(32, 48)], dim=1) for _ in range(2))
        again = F.normalize(encoder(x), dim=1)  # the pairs have no gradient of the penalty
        centred = again - again.mean(dim=0)
        spread = centred.T @ centred / 32
        penalty = (spread - spread.diagonal().diag()).square().sum()
        infonce = F.cross_entropy(cosines(encoder(x), encoder(y)) / 0.1, torch.arange(32))
        return infonce + 5 * (step + 1) * penalty

    assert small_encoder(loss, 1e-3).healthy


@pytest.mark.parametrize(
    ("rows", "inverted", "verdict"), [(16, True, "unrelated-positives"), (8, False, "healthy")]
)
def test_batches_with_one_label_do_not_hide_the_others(
    rows: int, inverted: bool, verdict: str
) -> None:
    """Four of five pairs have a label of 1, so some batches lack labels of 0."""

    def loss(encoder: torch.nn.Module, step: int) -> Tensor:
        label, shared = (torch.rand(rows, 1) > 0.2).float(), torch.randn(rows, 16)
        other = label * shared + (1 - label) * torch.randn(rows, 16)
        inputs = (torch.cat([v, 0.6 * torch.randn(rows, 48)], dim=1) for v in (shared, other))
        wanted = 1 - label if inverted else label
        return F.mse_loss(F.cosine_similarity(*map(encoder, inputs)), wanted[:, 0])

    assert small_encoder(loss, 3e-3).verdict == (verdict,)
