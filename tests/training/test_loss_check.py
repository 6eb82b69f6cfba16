"""The check of anybody's loss: seven bugs of published losses are caught, repaired ones pass."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isotrope.core.errors import InputError
from isotrope.objectives import (
    DCL,
    MET,
    MHE,
    MPT,
    AlignUniform,
    BarlowTwins,
    InfoNCE,
    NTXent,
    VICReg,
)
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.objective_check import Check
from isotrope.training.loss_check import (
    _by_margin,
    _in_chunks,
    _losses,
    check_loss,
    checks_in,
)
from isotrope.training.loss_gradient import gradient_checks
from isotrope.training.loss_subject import Subject
from tests.training import historical_losses

HISTORICAL = Path(__file__).with_name("historical_losses.py")

GRADIENT = [
    "each input changes the loss",
    "the positive attracts",
    "near negatives are pushed more",
    "mean over the batch",
]
FEWER = "gradient on fewer rows"
SETTINGS = "each setting changes the gradient"

CAUGHT = {
    "dropped_gradients": "in chunks: mini_batch_size=24",
    "guided_chunks": "in chunks: mini_batch_size=24",
    "relative_margin": "wider: margin",
    "guided_gathered": "on two processes",
    "gathered_order": "on two processes",
    "correlation": "on two processes",
    "characteristic": "on two processes",
}
"""The bugs, and the line that shows each."""


def check_file(file: Path, name: str) -> dict[str, list[Check]]:
    checks: dict[str, list[Check]] = {}
    for key, check in checks_in(file, name):
        checks.setdefault(key, []).append(check)
    return checks


def wrong(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if check.passed is False]


def infonce(anchors: Tensor, positives: Tensor) -> Tensor:
    scores = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T
    return F.cross_entropy(scores / 0.1, torch.arange(len(scores)))


@pytest.mark.slow  # each calls two losses in every way, once more in processes of their own
@pytest.mark.parametrize("bug", CAUGHT)
def test_seven_bugs_are_caught_and_their_repairs_pass(bug: str) -> None:
    (broken,) = check_file(HISTORICAL, f"{bug}_broken").values()
    assert CAUGHT[bug] in wrong(broken)
    (line,) = [check for check in broken if check.name == CAUGHT[bug]]
    assert line.means
    (repaired,) = check_file(HISTORICAL, f"{bug}_repaired").values()
    assert CAUGHT[bug] in [check.name for check in repaired]
    assert not [name for name in wrong(repaired) if not name.startswith("at the edge")], repaired


def test_a_sound_loss_passes_everything() -> None:
    checks = check_loss(infonce)
    assert not wrong(checks), checks
    assert [check.name for check in checks if not check.name.startswith("at the edge")] == [
        "rows permuted",
        *GRADIENT,
        "gradient-cached",
        "in bfloat16",
    ]
    assert "at the edge: one row" in [check.name for check in checks]


def test_weights_that_are_drawn_are_alike_in_both_processes(tmp_path: Path) -> None:
    file = tmp_path / "head.py"
    file.write_text(
        "from torch import nn\n"
        "class Head(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(16, 8)\n"
        "    def forward(self, anchors, positives):\n"
        "        return (self.layer(anchors) - self.layer(positives)).square().mean()\n"
        "head_loss = Head()\n"
    )
    for name in ("Head", "head_loss"):
        (checks,) = check_file(file, name).values()
        (line,) = [check for check in checks if check.name == "on two processes"]
        assert line.passed is True, line


class Hinge(nn.Module):
    """A margin as an attribute, of cosines."""

    margin = 0.2

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        scores = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T
        own = scores.diagonal()[:, None]
        return F.relu(scores - own + self.margin).mean()


@pytest.mark.parametrize(
    ("loss", "passed"),
    [
        (Hinge(), True),
        (historical_losses.relative_margin_broken, False),
        (historical_losses.relative_margin_repaired, True),
    ],
)
def test_a_wider_margin_is_harder_for_all_pairs_or_easier_for_all(
    loss: object, passed: bool
) -> None:
    (line,) = _by_margin(Subject(loss))  # type: ignore[arg-type]
    assert line.passed is passed
    assert ("use a constant margin" in line.means) is not passed
    assert not list(_by_margin(Subject(infonce)))


def no_edge(anchors: Tensor, positives: Tensor, margin: float = 0.2) -> Tensor:
    return infonce(anchors, positives)


def test_a_margin_that_changes_nothing_is_not_called_right() -> None:
    assert not list(_by_margin(Subject(no_edge)))
    (line,) = [check for check in check_loss(no_edge) if check.passed is None]
    assert line.name == SETTINGS
    assert line.worst == "not margin"


def scores(anchors: Tensor, positives: Tensor, temperature: float = 0.05) -> Tensor:
    return F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T / temperature


def wrong_sign(anchors: Tensor, positives: Tensor) -> Tensor:
    return -infonce(anchors, positives)


def weights_without_gradient(anchors: Tensor, positives: Tensor) -> Tensor:
    similarity = scores(anchors, positives)
    return (similarity.detach().softmax(dim=1) * similarity).sum(dim=1).mean()


def other_view_unused(anchors: Tensor, positives: Tensor) -> Tensor:
    return infonce(anchors, anchors)


def summed(anchors: Tensor, positives: Tensor) -> Tensor:
    return len(anchors) * infonce(anchors, positives)


def without_temperature(anchors: Tensor, positives: Tensor) -> Tensor:
    return F.cross_entropy(scores(anchors, positives, 1.0), torch.arange(len(anchors)))


def only_the_value(anchors: Tensor, positives: Tensor, offset: float = 0.5) -> Tensor:
    return infonce(anchors, positives) + offset


def unused_choice(anchors: Tensor, positives: Tensor, symmetric: bool = False) -> Tensor:
    return infonce(anchors, positives)


def pulls_with_hard(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    own, hard = ((anchors * x).sum(dim=1) for x in (positives, negatives))
    return F.softplus(own - hard).mean()


@pytest.mark.parametrize(
    ("loss", "line", "passed"),
    [
        (wrong_sign, "the positive attracts", False),
        (weights_without_gradient, "the positive attracts", False),
        (pulls_with_hard, "the positive attracts", False),
        (other_view_unused, "each input changes the loss", False),
        (lambda a, b, negatives: infonce(a, b), "each input changes the loss", False),
        (summed, "mean over the batch", None),
        (without_temperature, "near negatives are pushed more", None),
        (only_the_value, SETTINGS, None),
        (unused_choice, SETTINGS, None),
    ],
)
def test_the_gradient_of_a_slip_is_named(loss: object, line: str, passed: bool | None) -> None:
    found = {c.name: c for c in gradient_checks(Subject(loss)) if c.passed is not True}  # type: ignore[arg-type]
    assert found[line].passed is passed
    assert found[line].means
    assert [name for name, check in found.items() if check.passed is False] == (
        [line] if passed is False else []
    )


def of_probabilities(anchors: Tensor, positives: Tensor) -> Tensor:
    return F.cross_entropy(scores(anchors, positives).softmax(dim=1), torch.arange(len(anchors)))


def over_anchors(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    every = torch.cat([scores(anchors, positives), scores(anchors, negatives)], dim=1)
    return -every.log_softmax(dim=0)[: len(anchors)].diagonal().mean()


@pytest.mark.parametrize("loss", [of_probabilities, over_anchors])
def test_a_softmax_of_wrong_scores_is_named(loss: Callable[..., Tensor]) -> None:
    (line,) = [c for c in gradient_checks(Subject(loss)) if c.name == "softmax of the scores"]
    assert (line.passed, bool(line.means)) == (False, True)


def top(k: int) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(anchors: Tensor, positives: Tensor) -> Tensor:
        similarity = scores(anchors, positives)
        own = torch.eye(len(similarity), dtype=torch.bool)
        negatives = similarity.masked_fill(own, -torch.inf).topk(k, dim=1).values
        every = torch.cat([similarity.diagonal()[:, None], negatives], dim=1)
        return F.cross_entropy(every, torch.zeros(len(every), dtype=torch.long))

    return loss


@pytest.mark.parametrize(
    ("k", "dimensions", "absent"),
    [
        (5, 16, GRADIENT[3:]),
        (10, 16, GRADIENT[1:]),
        (10, 48, []),
    ],
)
def test_a_loss_that_needs_more_rows_is_not_called_wrong(
    k: int, dimensions: int, absent: list[str]
) -> None:
    checks = check_loss(top(k), dimensions=dimensions)
    assert not wrong(checks), checks
    names = [check.name for check in checks]
    assert [name for name in GRADIENT if name not in names] == absent
    assert [check.passed for check in checks if check.name == FEWER] == [None] * bool(absent)
    assert ("at the edge: one row", None) in [(c.name, c.passed) for c in checks]


def test_checks_that_need_more_dimensions_are_reported() -> None:
    names = {check.name: check.passed for check in check_loss(infonce, dimensions=8)}
    assert names[FEWER] is None
    assert GRADIENT[1] not in names


def in_order(anchors: Tensor, positives: Tensor) -> Tensor:
    """CoSENT of pairs in descending order of their scores."""
    similarity = 20 * F.cosine_similarity(anchors, positives)
    gaps = (similarity - similarity[:, None])[others_of(similarity).triu()]
    return F.pad(gaps, (1, 0)).logsumexp(dim=0)


OBJECTIVES = [InfoNCE(), NTXent(), DCL(), MET(), MHE(), BarlowTwins(), VICReg(), AlignUniform()]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_the_gradient_of_a_sound_loss_passes(objective: Objective) -> None:
    checks = list(gradient_checks(Subject(lambda a, b: objective(a, b))))
    assert {check.passed for check in checks} == {True}, checks


def cosines(anchors: Tensor, positives: Tensor) -> Tensor:
    return F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T


def others_of(similarity: Tensor) -> Tensor:
    return ~torch.eye(len(similarity), dtype=torch.bool)


def within_margin(a: Tensor, b: Tensor, negatives: Tensor, margin: float = 1.0) -> Tensor:
    near = F.relu(margin - F.pairwise_distance(a, negatives)).square()
    return (F.pairwise_distance(a, b).square() + near).mean()


def narrow_margin(a: Tensor, b: Tensor, negatives: Tensor, margin: float = 0.05) -> Tensor:
    gap = F.cosine_similarity(a, negatives) - F.cosine_similarity(a, b)
    return F.relu(gap + margin).mean()


def of_features(a: Tensor, b: Tensor) -> Tensor:
    a, b = ((x - x.mean(0)) / x.std(0) for x in (a, b))
    rest = a.T @ b / len(a) - torch.eye(a.shape[1], dtype=a.dtype)
    return rest.diagonal().square().sum() + 0.005 * rest.square().sum()


def hinge_of_all(a: Tensor, b: Tensor) -> Tensor:
    similarity = cosines(a, b)
    hinges = F.relu(1.0 + similarity - similarity.diagonal()[:, None])
    return (hinges * others_of(similarity)).sum(dim=1).mean()


def circle_over_the_batch(a: Tensor, b: Tensor) -> Tensor:
    similarity = cosines(a, b)
    own, other = similarity.diagonal(), similarity[others_of(similarity)]
    push = 64 * (other.detach() + 0.25).clamp_min(0) * (other - 0.25)
    pull = 64 * (1.25 - own.detach()) * (own - 0.75)
    return F.softplus(push.logsumexp(dim=0) + (-pull).logsumexp(dim=0))


def trains_the_positives(a: Tensor, b: Tensor) -> Tensor:
    return infonce(a.detach(), b)


def semi_hard(a: Tensor, b: Tensor) -> Tensor:
    similarity = cosines(a, b)
    gap = similarity.diagonal()[:, None] - similarity
    return F.relu(0.2 - gap)[(gap > 0) & (gap < 0.2)].mean().nan_to_num(0.0)


@pytest.mark.parametrize(
    "loss",
    [
        *[within_margin, narrow_margin, of_features, hinge_of_all, circle_over_the_batch],
        *[trains_the_positives, semi_hard, in_order],
    ],
)
def test_no_slip_is_named_in_a_loss_of_another_kind(loss: Callable[..., Tensor]) -> None:
    checks = list(gradient_checks(Subject(loss)))
    assert {check.passed for check in checks} == {True}, checks
    assert "attracts" in [check.worst for check in checks]


class Scaled(nn.Module):
    """A factor that a module keeps, and one that it only keeps."""

    def __init__(self, factor: float = 2.0, unused: float = 1.0, size: int = 4) -> None:
        super().__init__()
        self.factor, self.unused, self.size = factor, unused, size

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        return self.factor * infonce(anchors, positives)


def test_the_numbers_of_a_module_are_settings() -> None:
    lines = {check.name: check for check in gradient_checks(Subject(Scaled()))}
    assert lines[SETTINGS].worst == "not unused"


def test_a_queue_of_the_loss_hides_no_wrong_sign() -> None:
    class Queued(nn.Module):
        sign = 1.0

        def __init__(self) -> None:
            super().__init__()
            keys = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
            self.register_buffer("queue", F.normalize(keys, dim=1))

        def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
            a, b = (F.normalize(x, dim=1) for x in (anchors, positives))
            queue, self.queue = self.queue.to(a), b.detach()
            pushed = (a @ queue.T / 0.05).logsumexp(dim=1)
            return self.sign * F.softplus(pushed - (a * b).sum(dim=1) / 0.05).mean()

    def outcome(loss: nn.Module) -> bool | None:
        lines = {check.name: check for check in gradient_checks(Subject(loss))}
        return lines["the positive attracts"].passed

    right, wrong = Queued(), Queued()
    wrong.sign = -1.0
    assert (outcome(right), outcome(wrong)) == (True, False)


def drops_out(anchors: Tensor, positives: Tensor, margin: float = 0.1) -> Tensor:
    return infonce(F.dropout(anchors, 0.1), positives) + margin


def draws_negatives(anchors: Tensor, positives: Tensor) -> Tensor:
    other = torch.randint(len(anchors), (len(anchors),))
    return F.relu(
        (anchors - positives).norm(dim=1) - (anchors - positives[other]).norm(dim=1)
    ).sum()


NUMBERS = random.Random(0)


def draws_elsewhere(anchors: Tensor, positives: Tensor) -> Tensor:
    return infonce(anchors + NUMBERS.random(), positives)


@pytest.mark.parametrize(
    ("loss", "says", "others"),
    [
        (
            drops_out,
            "not checked with permuted rows",
            ["wider: margin", GRADIENT[0], SETTINGS, *GRADIENT[1:], "gradient-cached"],
        ),
        (
            draws_negatives,
            "not checked with permuted rows",
            [*GRADIENT[:2], GRADIENT[3], "gradient-cached"],
        ),
        (draws_elsewhere, "checked only for finite values", []),
    ],
)
def test_a_loss_that_draws_is_compared_where_its_numbers_are_the_same(
    loss: Callable[..., Tensor], says: str, others: list[str]
) -> None:
    first, *rest = check_loss(loss)
    assert (first.name, first.passed) == ("called again", None)
    assert first.means.startswith(says)
    assert [check.name for check in rest if not check.name.startswith("at the edge")] == others
    assert not wrong(rest)


def never_finite(anchors: Tensor, positives: Tensor) -> Tensor:
    return infonce(anchors, positives) / 0


def by_length(anchors: Tensor, positives: Tensor) -> Tensor:
    unit = anchors / anchors.norm(dim=1, keepdim=True)
    return (unit * positives).sum(dim=1).neg().mean()


def first_row(anchors: Tensor, positives: Tensor) -> Tensor:
    return infonce(anchors, positives) + (anchors[0] * positives[0]).sum()


def drawn_by_itself(anchors: Tensor, positives: Tensor) -> Tensor:
    weights = torch.rand(len(anchors), generator=torch.Generator().manual_seed(0))
    return (weights.to(anchors) * (anchors - positives).square().sum(dim=1)).mean()


def test_numbers_of_a_seed_of_its_own_are_a_reason_that_is_named() -> None:
    (line,) = [check for check in check_loss(drawn_by_itself) if check.passed is False]
    assert line.name == "rows permuted"
    assert "a fixed seed" in line.means


def in_sums(anchors: Tensor, positives: Tensor, chunk_size: int = 24) -> Tensor:
    parts = zip(anchors.split(chunk_size), positives.split(chunk_size), strict=True)
    return torch.stack([(a - b).square().sum(dim=1).mean() for a, b in parts]).sum()


def test_a_difference_is_measured() -> None:
    subject = Subject(in_sums)
    (one, eight, _) = _in_chunks(subject, subject.run())
    assert (one.passed, one.means) == (True, "")
    assert eight.means.endswith("; the gradient is 3 times that of the plain call)")
    (edge,) = [line for line in check_loss(by_length) if line.name == "at the edge: zero rows"]
    assert edge.means.partition("norms: ")[2].startswith(
        "the loss is nan, the gradient of the anchors is not finite in ro"
    )


def test_a_third_parameter_takes_negatives_only_by_its_name() -> None:
    def triplets(anchors: Tensor, positives: Tensor, hard_negatives: Tensor) -> Tensor:
        return F.relu(0.3 + (anchors * (hard_negatives - positives)).sum(dim=1)).mean()

    def scored(anchors: Tensor, positives: Tensor, scores: Tensor) -> Tensor:
        return ((anchors * positives).sum(dim=1) - scores[:, 0]).square().mean()

    assert "one call" not in wrong(check_loss(triplets))
    with pytest.raises(InputError, match="call the parameter scores of scored"):
        check_loss(scored)


def small_difference(anchors: Tensor, positives: Tensor) -> Tensor:
    """The difference of large numbers, which cancel."""
    return (
        ((anchors + 300).square().sum(1) - (positives + 300).square().sum(1)).square().mean().sqrt()
    )


def goes_backward_alone(anchors: Tensor, positives: Tensor) -> Tensor:
    value = infonce(anchors, positives)
    value.backward()  # type: ignore[no-untyped-call]
    return value.detach()


def test_a_loss_may_call_backward_itself() -> None:
    names = [check.name for check in check_loss(goes_backward_alone) if check.passed]
    assert {"rows permuted", "in bfloat16"} <= {*names}


def goes_backward(anchors: Tensor, positives: Tensor) -> Tensor:
    value = infonce(anchors, positives)
    value.backward()  # type: ignore[no-untyped-call]
    return value


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (by_length, "at the edge: zero rows"),
        (first_row, "rows permuted"),
        (never_finite, "one call"),
        (small_difference, "in bfloat16"),
        (goes_backward, "one call"),
        (lambda anchors, positives: anchors @ positives.T, "one call"),
        (lambda anchors, positives: infonce(anchors, positives).detach(), "one call"),
        (
            lambda anchors, positives: infonce(anchors, positives).detach().requires_grad_(),
            "one call",
        ),
    ],
)
def test_what_is_wrong_is_on_its_line(loss: object, line: str) -> None:
    assert line in wrong(check_loss(loss))  # type: ignore[arg-type]


class Learnt(nn.Module):
    """A temperature that is learnt, and a size of chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        self.chunk_size = 6
        self.calls = 0

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        self.calls += 1  # what a module keeps does not reach the next call
        scores = F.normalize(anchors, dim=1) @ F.normalize(positives, dim=1).T
        scores = scores * self.log_scale.exp()
        own = torch.arange(len(scores))
        parts = zip(scores.split(self.chunk_size), own.split(self.chunk_size), strict=True)
        return sum(F.cross_entropy(s, i, reduction="sum") for s, i in parts) / len(scores)  # type: ignore[return-value]


def test_a_module_keeps_nothing_and_shows_its_own_gradients() -> None:
    loss = Learnt()
    checks = check_loss(loss)
    assert not wrong(checks), checks
    assert loss.calls == 0
    assert loss.log_scale.grad is None
    assert [c.name for c in checks if "chunk_size" in c.name] == [
        f"in chunks: chunk_size={size}" for size in (24, 8, 7)
    ]


class Head(nn.Module):
    """A projection, and a queue of projected negatives, of embeddings of one width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 8)
        self.register_buffer("queue", torch.eye(9, 8))

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        one, two = (F.normalize(self.head(x), dim=1) for x in (anchors, positives))
        queued = (one @ self.queue.T).exp().mean()
        self.queue = torch.cat([two.detach(), self.queue])[:9]
        return infonce(one, two) + queued


def test_a_loss_of_one_width_is_called_on_that_width_alone() -> None:
    assert not wrong(check_loss(Head(16)))
    assert not wrong(check_loss(Head(768), dimensions=768))
    (line,) = check_loss(Head(768))
    assert (line.name, line.passed) == ("one call", False)
    assert "--dimensions N" in line.means
    assert "24 rows of 16" in line.means


OWN = """
import torch
from torch.nn.functional import cross_entropy, normalize

def _hidden_loss(anchors, positives):
    raise ValueError

def my_loss(anchors, positives):
    scores = normalize(anchors, dim=1) @ normalize(positives, dim=1).T
    return cross_entropy(20 * scores, torch.arange(len(scores)))

def needs_more_loss(anchors, positives, negatives, labels):
    return anchors.sum()

def cosine(a, b):
    return a @ b.T
"""


LABELLED = """
def by_class(embeddings, labels):
    return embeddings.sum()

def scored(a, b, scores):
    return ((a * b).sum(1) - scores).square().mean()

def aimed(a, b, target):
    return a.sum()

def at_a(a, b, *, temperature):
    return a.sum() / temperature
"""


def test_an_objective_of_a_file_may_refuse_a_batch_of_one_row() -> None:
    (loss,) = _losses({"loss": MPT(margin=0.3), "MPT": MPT}, "my_loss", "").values()
    *_, alone = check_loss(loss)
    assert (alone.name, alone.passed) == ("at the edge: one row", None)
    assert "pass at least 2 rows" in alone.worst
    assert "not a fault if no batch has one row" in alone.means


@pytest.mark.slow  # processes of its own
def test_a_loss_that_gathers_nothing_is_not_called_wrong(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    (checks,) = check_file(file, "my_loss").values()
    (line,) = [check for check in checks if check.name == "on two processes"]
    assert line.passed is None
    assert line.means.endswith("so each process compares only the rows that it has")


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (OWN, "", "needs_more_loss must take anchors and positives"),
        (OWN, "no_loss", "has no no_loss"),
        (LABELLED, "by_class", r"calls by_class, .*: no check passes labels"),
        (LABELLED, "scored", r"call the parameter scores of scored\(a, b, scores\) negatives if"),
        (LABELLED, "aimed", r"calls aimed, .*: no check passes target"),
        (LABELLED, "at_a", r"give the parameter temperature of at_a.* a default"),
        ("x = 1", "", "no name that contains loss"),
        ("raise OSError('gone')", "", "failed: OSError: gone"),
        (
            "import torch\nclass ALoss(torch.nn.Module):\n  def __init__(self, x): pass",
            "",
            r"such as loss = ALoss\(\.\.\.\), and check .*own\.py:loss: ALoss cannot be built",
        ),
        (
            "def my_loss(a, b): return (a * b).mean()\ndef plot_loss(history): pass",
            "",
            r"found plot_loss\(history\)",
        ),
    ],
)
def test_a_file_without_a_loss_is_refused(tmp_path: Path, text: str, name: str, says: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        check_file(file, name)


def test_only_who_checks_a_whole_file_learns_how_to_check_one_loss(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def plot_loss(history): pass")
    errors = []
    for name in ("", "plot_loss"):
        with pytest.raises(InputError) as refused:
            check_file(file, name)
        errors.append(str(refused.value))
    assert errors[0] == f"{errors[1]}; {file}:NAME checks only the loss NAME"
