"""The pairs that a loss compares, read off its graph, however it is written."""

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from isotrope.objectives import InfoNCE
from isotrope.paradigm import loss_graph
from isotrope.paradigm.compared import Compared, SoftmaxEvidence, joined, stacked
from isotrope.paradigm.graph_reading import GraphReading

N, D, TAU = 16, 32, 0.05
ROWS = torch.arange(N)
SINGLE = torch.zeros(N, dtype=torch.long)


class Batch:
    """Embeddings of an encoder: anchors a, positives p, and others n."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, D))
        x = torch.randn(N, 20)
        self.a, self.p = self.encoder(x), self.encoder(x + 0.8 * torch.randn(N, 20))
        self.n = self.encoder(torch.randn(3 * N, 20))
        self.classes = nn.Parameter(torch.randn(10, D))
        self.scale = nn.Parameter(torch.tensor(1 / TAU))


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def read(loss: Tensor) -> GraphReading:
    reading = GraphReading(loss)
    loss.backward()
    reading.end()
    assert reading.error is None
    return reading


def table(reading: GraphReading) -> Compared:
    return stacked(joined(reading.compared))


def groups(b: Batch) -> Tensor:
    return torch.cat([b.p[:, None], b.n.view(N, 3, D)], dim=1)


def cross_entropy(scores: Tensor, own: Tensor = ROWS) -> Tensor:
    return F.cross_entropy(scores / TAU, own)


def symmetric(s: Tensor) -> Tensor:
    return (F.cross_entropy(s, ROWS) + F.cross_entropy(s.T, ROWS)) / 2


def one_pull(b: Batch, tau: float = TAU) -> Tensor:
    """Both directions take the positive once, as sentence-transformers writes it."""
    s, t = (unit(b.a) @ unit(b.p).T / tau for _ in range(2))
    return -(s[ROWS, ROWS] - (s.logsumexp(1) + t.T.logsumexp(1)) / 2).mean()


def interleaved(b: Batch) -> Tensor:
    h = torch.stack([b.a, b.p], dim=1).flatten(0, 1)
    return cross_entropy(unit(h)[0::2] @ unit(h)[1::2].T)


def both_views(b: Batch) -> Tensor:
    x, y, other = unit(b.a), unit(b.p), ~torch.eye(N, dtype=torch.bool)
    aa, ab, ba, bb = (torch.einsum("nc,mc->nm", u, v) for u in (x, y) for v in (x, y))
    rows = torch.cat([ab, aa[other].view(N, -1)], 1), torch.cat([ba, bb[other].view(N, -1)], 1)
    return cross_entropy(torch.cat(rows), ROWS.repeat(2))


def queue(b: Batch) -> Tensor:
    q, k = unit(b.a), unit(b.p).detach()
    keys = unit(torch.randn(64, D)).T
    return cross_entropy(torch.cat([(q * k).sum(1, keepdim=True), q @ keys], 1), SINGLE)


def cached(b: Batch) -> Tensor:
    a, p = (unit(x).detach().requires_grad_() for x in (b.a, b.p))
    return cross_entropy(a @ p.T)


def row_by_row(b: Batch) -> Tensor:
    a, p = unit(b.a), unit(b.p)
    return torch.stack([cross_entropy((p @ a[i])[None], ROWS[i : i + 1]) for i in range(N)]).mean()


def log_sum_exps(s: Tensor) -> Tensor:
    return sum(((s.logsumexp(dim) - s.diagonal()).mean() for dim in (0, 1)), torch.tensor(0.0))


def repeated(x: Tensor, y: Tensor) -> Tensor:
    """Each anchor is repeated for its own four candidates."""
    x, y = (v.flatten(0, 1) if v.ndim == 3 else v.repeat_interleave(4, dim=0) for v in (x, y))
    return cross_entropy((x * y).sum(dim=-1).view(N, 4), SINGLE)


def prefixes(b: Batch) -> Tensor:
    parts = [cross_entropy(unit(b.a[:, :k]) @ unit(b.p[:, :k]).T) for k in (D, 16, 8)]
    return torch.stack(parts).sum()


SOFTMAX: dict[str, tuple[Callable[[Batch], Tensor], float]] = {
    "rows with rows": (lambda b: cross_entropy(unit(b.a) @ unit(b.p).T), N - 1),
    "groups": (lambda b: cross_entropy(unit(b.a) @ unit(groups(b)).flatten(0, 1).T, 4 * ROWS), 63),
    "own groups": (
        lambda b: cross_entropy((unit(b.a)[:, None] @ unit(groups(b)).mT)[:, 0], SINGLE),
        3,
    ),
    "interleaved": (interleaved, N - 1),
    "positives first": (lambda b: F.cross_entropy((unit(b.p) @ unit(b.a).T).T / TAU, ROWS), N - 1),
    "two directions": (lambda b: symmetric(b.scale * unit(b.a) @ unit(b.p).T), N - 1),
    "two directions, one pull": (one_pull, N - 1),
    "two directions of an einsum": (
        lambda b: symmetric(torch.einsum("id,jd->ij", unit(b.a), unit(b.p)) * b.scale),
        N - 1,
    ),
    "two directions, bounded": (
        lambda b: symmetric((b.scale * (unit(b.a) @ unit(b.p).T)).clamp(max=100) - 3),
        N - 1,
    ),
    "two directions by their log-sum-exps": (
        lambda b: log_sum_exps(unit(b.a) @ unit(b.p).T / TAU),
        N - 1,
    ),
    "repeated anchors": (lambda b: repeated(unit(b.a), unit(groups(b))), 3),
    "repeated anchors on the right": (lambda b: repeated(unit(groups(b)), unit(b.a)), 3),
    "two directions, two products": (
        lambda b: (
            F.cross_entropy(b.scale * unit(b.a) @ unit(b.p).T, ROWS)
            + F.cross_entropy(b.scale * unit(b.p) @ unit(b.a).T, ROWS)
        ),
        N - 1,
    ),
    "both views": (both_views, 2 * N - 2),
    "a queue": (queue, 64),
    "cached gradients": (cached, N - 1),
    "cosines by broadcasting": (
        lambda b: cross_entropy(F.cosine_similarity(b.a[:, None], b.p[None], dim=-1)),
        N - 1,
    ),
    "row by row": (row_by_row, N - 1),
    "by keyword": (
        lambda b: cross_entropy(torch.matmul(input=unit(b.a), other=unit(b.p).T)),
        N - 1,
    ),
    "the temperature as alpha": (
        lambda b: F.cross_entropy(
            torch.addmm(torch.zeros(N, N), unit(b.a), unit(b.p).T, alpha=1 / TAU), ROWS
        ),
        N - 1,
    ),
    "nested prefixes": (prefixes, N - 1),
    "a penalty of the scores": (
        lambda b: (
            cross_entropy(unit(b.a) @ unit(b.p).T) + (unit(b.a) @ unit(b.a).T).square().mean()
        ),
        N - 1,
    ),
    "halved": (lambda b: 0.5 * cross_entropy(unit(b.a) @ unit(b.p).T), N - 1),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_a_softmax_is_seen_with_its_temperature_and_its_negatives(name: str) -> None:
    loss, negatives = SOFTMAX[name]
    reading = read(loss(Batch()))
    assert reading.explained == 1
    whole = joined(reading.compared)
    assert all(one.is_balanced for one in whole)
    seen = stacked(whole)
    assert bool((seen.pulled.sum(dim=1) == 1).all())
    assert seen.mask.sum(dim=1).double().mean() == negatives + 1
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(TAU, rel=1e-3)


def by_broadcasting(x: Tensor, y: Tensor) -> Tensor:
    return (unit(x) * unit(y)).sum(dim=-1)


ORDERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "in order": lambda a, p: by_broadcasting(a[:, None], p[None]),
    "broadcast": lambda a, p: by_broadcasting(p[None], a[:, None]),
    "repeated": lambda a, p: F.cosine_similarity(p[None], a[:, None], dim=-1),
    "rows of one matrix": lambda a, p: by_broadcasting(p.view(N, 3, D), a[:, None]),
    "bmm": lambda a, p: (unit(p).view(N, 3, D) @ unit(a)[..., None])[..., 0],
    "baddbmm": lambda a, p: torch.baddbmm(
        torch.zeros(N, 3, 1), unit(p).view(N, 3, D), unit(a)[..., None]
    )[..., 0],
    "mv": lambda a, p: (unit(p) @ unit(a)[0])[None],
}


@pytest.mark.parametrize("name", ORDERS)
def test_anchors_keep_their_norms_and_roots_whichever_operand_they_are(name: str) -> None:
    b = Batch()
    scores = ORDERS[name](b.a, b.n)
    (seen,) = read(cross_entropy(scores, SINGLE[: len(scores)])).compared
    assert torch.allclose(seen.anchors, unit(b.a)[: len(scores)])
    assert seen.roots == ({b.a.grad_fn}, {b.n.grad_fn})
    assert seen.lengths is not None
    assert torch.allclose(seen.lengths.mean(), b.a.norm(dim=1).mean())


def test_both_directions_are_seen_at_a_high_temperature() -> None:
    """Where rows and columns have nearly equal pushes."""
    seen = table(read(one_pull(Batch(), tau=1.0)))
    assert bool((seen.mask.sum(dim=1) == N).all())
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(1, rel=1e-3)


def test_under_bfloat16_the_temperature_is_that_of_the_loss() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = Batch()
        loss = cross_entropy(unit(b.a) @ unit(b.p).T)
    seen = table(read(loss))
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(TAU, rel=0.02)


@pytest.mark.parametrize("tau", [0.001, 0.003, 0.3, 5.0])
@pytest.mark.parametrize("rows", [8, 16])
def test_any_temperature_is_recognised(tau: float, rows: int) -> None:
    """At the lowest ones single batches may have too few pairs whose weight is a number."""
    evidence = SoftmaxEvidence()
    for seed in range(6):
        torch.manual_seed(seed)
        a, p = (torch.randn(rows, D, requires_grad=True) for _ in range(2))
        mixed = 0.2 * a + p
        loss = F.cross_entropy(unit(a) @ unit(mixed).T / tau, torch.arange(rows))
        evidence = evidence + SoftmaxEvidence.of(table(read(loss)))
    assert evidence.temperature == pytest.approx(tau, rel=0.01)


def test_distances_are_similarities_with_the_sign_turned() -> None:
    b = Batch()
    seen = table(read(F.triplet_margin_loss(b.a, b.p, b.n[:N], margin=9.0)))
    assert seen.has_distances
    assert bool((seen.gradient[ROWS, ROWS] < 0).all())
    assert bool((seen.gradient[ROWS, ROWS + N] > 0).all())
    b = Batch()
    seen = table(read(F.cross_entropy(-((b.a[:, None] - b.p) ** 2).sum(-1), ROWS)))
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(1, rel=1e-3)


TOKENS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one product": lambda q, p: torch.einsum("ash,bth->abst", q, p),
    "a product for each pair": lambda q, p: q[:, None] @ p[None].mT,
    "repeated queries": lambda q, p: (q.repeat_interleave(4, dim=0) @ p.repeat(4, 1, 1).mT).view(
        4, 4, 4, 4
    ),
    "own texts": lambda q, p: torch.einsum("ash,abth->abst", q, p.expand(4, 4, 4, D).clone()),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_are_summed_to_texts(name: str) -> None:
    b = Batch()
    q, p = (unit(x).view(4, 4, D) for x in (b.a, b.p))
    scores = TOKENS[name](q, p)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0, 3] = False
    scores.masked_fill_(~mask[None, :, None], -1e9)
    loss = F.cross_entropy(scores.max(-1).values.sum(-1), ROWS[:4])
    seen = table(read(loss))
    assert len(seen.gradient) == 4
    assert seen.mask.sum(dim=1).tolist() == [4, 4, 4, 4]
    assert (seen.gradient.argmin(dim=1) % 4).tolist() == [0, 1, 2, 3]
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(1, rel=1e-3)
    assert seen.summed == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("turned", [False, True])
def test_texts_that_no_gradient_reaches_have_a_score(turned: bool) -> None:
    """The gradient of a positive that is far ahead is 0, and still it is the nearest."""
    q = unit(Batch().a).view(4, 4, D)
    scores = torch.einsum("ash,bth->abst", q, q)
    scores = (scores.mT if turned else scores).max(-2 if turned else -1).values.sum(-1)
    seen = table(read(F.cross_entropy(scores / 0.01, ROWS[:4])))
    assert not bool(seen.pulled.any())
    assert (seen.scores.argmax(dim=1) % 4).tolist() == [0, 1, 2, 3]


def test_tokens_of_pairs_are_texts_of_one_query() -> None:
    """As ColBERT is trained: queries are repeated for their passages, and padding is masked."""
    b = Batch()
    q, p = unit(b.a).view(4, 4, D).repeat_interleave(4, dim=0), unit(b.n)[: 4 * N].view(-1, 3, D)
    scores = p[:N] @ q.permute(0, 2, 1)
    scores[:, 2:][torch.arange(N) % 3 == 0] = -9999
    loss = F.cross_entropy(scores.max(1).values.sum(-1).view(4, 4), SINGLE[:4])
    seen = table(read(loss))
    assert seen.mask.sum(dim=1).tolist() == [4, 4, 4, 4]
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(1, rel=1e-3)


def lengths(b: Batch) -> Tensor:
    return b.a.pow(2).sum(1, keepdim=True) + b.p.pow(2).sum(1)


def of_one_product(b: Batch) -> Tensor:
    z = torch.cat([b.a, b.p])
    own = (s := z @ z.T).diagonal()
    return (own[:, None] + own - 2 * s)[:N, N:]


SQUARES: dict[str, Callable[[Batch], Tensor]] = {
    "a product with lengths": lambda b: lengths(b) - 2 * torch.mm(b.a, b.p.T),
    "lengths under addmm": lambda b: torch.addmm(lengths(b), b.a, b.p.T, alpha=-2),
    "lengths of the diagonal": of_one_product,
    "differences times themselves": lambda b: (d := b.a[:, None] - b.p).mul(d).sum(-1),
    "means": lambda b: D * (b.a[:, None] - b.p).square().mean(-1),
}


@pytest.mark.parametrize("name", SQUARES)
def test_squared_distances_are_read_however_they_are_written(name: str) -> None:
    """Without the lengths, a product alone explains too little, or pulls what is pushed."""
    b = Batch()
    expected = -torch.cdist(b.a, b.p).detach().square()
    reading = read(F.cross_entropy(-SQUARES[name](b) / 3, ROWS))
    assert reading.explained == pytest.approx(1, abs=1e-3)
    seen = table(reading)
    assert seen.has_distances
    some = (slice(None), slice(-N, None)) if len(seen.scores) == N else (slice(N), slice(N, None))
    assert torch.allclose(seen.scores[some], expected, atol=1e-3)
    assert seen.gradient[some].argmin(dim=1).equal(ROWS)
    assert SoftmaxEvidence.of(seen).temperature == pytest.approx(3, rel=1e-2)


def test_l1_distances_are_read() -> None:
    b = Batch()
    seen = table(read(F.cross_entropy(-(b.a[:, None] - b.p).abs().sum(-1), ROWS)))
    assert torch.allclose(seen.scores, -torch.cdist(b.a, b.p, p=1), atol=1e-3)


def test_pairs_that_a_loss_takes_twice_count_once() -> None:
    """A positive that is also taken for a negative looks like a copy."""
    b = Batch()
    a, p = unit(b.a), unit(b.p)
    own = ((a * p).sum(1) / TAU).exp()
    (seen,) = joined(read(-(own / (a @ p.T / TAU).exp().sum(1)).log().mean()).compared)
    assert seen.gradient.shape == (N, N)
    assert seen.pulled.equal(torch.eye(N, dtype=torch.bool))


PULLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": F.mse_loss,
    "sum of mse": lambda a, p: F.mse_loss(a, p, reduction="sum") / N,
    "l1": F.l1_loss,
    "smooth l1": F.smooth_l1_loss,
    "mean of squares": lambda a, p: ((a - p) ** 2).mean(),
    "sum of squares": lambda a, p: (a - p).square().sum() / N,
    "squares of unit rows": lambda a, p: F.mse_loss(unit(a), unit(p)),
}


@pytest.mark.parametrize("name", PULLS)
def test_a_mean_of_all_differences_pulls_each_row(name: str) -> None:
    b = Batch()
    reading = read(PULLS[name](b.a, b.p))
    assert reading.explained == pytest.approx(1.0)
    seen = table(reading)
    assert seen.has_single_pairs
    assert len(seen.gradient) == N
    assert bool((seen.pulled == seen.mask).all())


def test_the_gradient_of_a_mean_of_squares_is_that_of_each_squared_distance() -> None:
    one, other = Batch(), Batch()
    whole = table(read(F.mse_loss(unit(one.a), unit(one.p))))
    rows = table(read((unit(other.a) - unit(other.p)).square().sum(1).mean() / D))
    assert torch.allclose(whole.gradient, rows.gradient)


def test_a_pair_whose_similarity_is_computed_twice_is_one_pair() -> None:
    b = Batch()
    labels = (ROWS % 2).float()
    other = torch.where(labels[:, None] > 0, b.p, b.p.roll(1, 0))
    near, far = (F.cosine_similarity(b.a, other) for _ in range(2))
    seen = table(read((labels * (1 - near).square() + (1 - labels) * F.relu(far + 1)).mean()))
    assert seen.has_single_pairs
    assert int(seen.pulled.sum()) == int(seen.pushed.sum()) == N // 2


NOTHING: dict[str, Callable[[Batch], Tensor]] = {
    "a classifier": lambda b: F.cross_entropy(F.linear(b.a, b.classes), ROWS % 10),
    "prototypes": lambda b: F.cross_entropy(16 * F.linear(unit(b.a), unit(b.classes)), ROWS % 10),
    "dimensions": lambda b: (((b.a - b.a.mean(0)).T @ (b.p - b.p.mean(0))) - torch.eye(D)).norm(),
    "targets": lambda b: F.mse_loss(b.a, torch.randn(N, D)),
    "correlations": lambda b: F.mse_loss(b.a.T @ b.p, b.p.T @ b.p),
    "variances": lambda b: (b.a - b.a.mean(0)).square().mean(),
    "a surrogate": lambda b: torch.dot(b.a.flatten(), torch.randn(N * D)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_compares_no_pairs_is_not_examined(name: str) -> None:
    reading = read(NOTHING[name](Batch()))
    assert reading.explained is None
    assert not reading.compared
    assert "does not compare embeddings" in reading.reason


def test_what_acts_beside_the_pairs_is_counted() -> None:
    for loss in (
        lambda b, s: cross_entropy(s) + 0.5 * b.a.norm(dim=1).mean(),
        lambda b, s: cross_entropy(s) + 50 * F.mse_loss(unit(b.a), unit(torch.randn(N, D))),
        lambda b, _: cross_entropy(torch.addmm(b.a.norm(dim=1), unit(b.a), unit(b.p).T)),
    ):
        b = Batch()
        explained = read(loss(b, unit(b.a) @ unit(b.p).T)).explained
        assert explained is not None
        assert explained < 0.98


def test_a_function_of_its_own_is_named() -> None:
    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, a: Tensor, p: Tensor) -> Tensor:
            return (a * p).sum()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, Tensor]:
            return torch.ones(N, D), torch.ones(N, D)

    b = Batch()
    reading = read(Fused.apply(b.a, b.p))
    assert "a custom autograd function (FusedBackward)" in reading.reason


def test_a_graph_that_is_not_read_to_its_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Batch()
    assert read(cross_entropy(unit(b.a) @ unit(b.p).T)).compared
    monkeypatch.setattr(loss_graph, "MOST_NODES", 3)
    b = Batch()
    reading = read(cross_entropy(unit(b.a) @ unit(b.p).T))
    assert not reading.compared
    assert "only 3 operations" in reading.reason


def test_attention_in_an_encoder_is_not_compared_with_anything() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, 2, 32, batch_first=True, dropout=0.1)
    tokens = torch.randn(N, 5, D)
    a, p = (layer(tokens).mean(dim=1) for _ in range(2))
    (seen,) = read(cross_entropy(unit(a) @ unit(p).T)).compared
    assert seen.gradient.shape == (N, N)
    assert not read(layer(tokens).mean(dim=1).square().mean()).compared


def test_our_own_losses_say_what_they_were_computed_from() -> None:
    b = Batch()
    ((objective, views),) = read(2 * InfoNCE()(b.a, b.p)).known
    assert objective.name == "infonce"
    assert views.anchors is b.a


def test_large_batches_are_sampled() -> None:
    torch.manual_seed(0)
    a, p = (torch.randn(4096, 8, requires_grad=True) for _ in range(2))
    (seen, other) = read(
        F.cross_entropy(s := unit(a) @ unit(p).T, torch.arange(4096))
        + F.cross_entropy(s.T, torch.arange(4096))
    ).compared
    assert seen.rows == other.rows == 4096
    assert seen.gradient.numel() == 1 << 20
    assert SoftmaxEvidence.of(stacked([seen, other])).temperature == pytest.approx(1, rel=1e-3)


def queue_of_keys(q: Tensor, p: Tensor) -> Tensor:
    scores = [(q * p.detach()).sum(1, keepdim=True), q @ unit(torch.randn(8192, 8)).T]
    return F.cross_entropy(torch.cat(scores, dim=1) / TAU, torch.zeros(len(q)).long())


def positives_row_by_row(q: Tensor, p: Tensor) -> Tensor:
    others = (q @ p.T / TAU).masked_fill(torch.eye(len(q)).bool(), -1e9)
    return (others.logsumexp(1) - (q * p).sum(1) / TAU).mean()


def seven_negatives(q: Tensor, p: Tensor) -> Tensor:
    n = unit(torch.randn(7 * len(q), 8, requires_grad=True))
    return F.cross_entropy(torch.cat([q @ p.T, q @ n.T], 1) / TAU, torch.arange(len(q)))


def joint_directions(q: Tensor, p: Tensor) -> Tensor:
    docs = torch.cat([p, unit(torch.randn(len(q), 8, requires_grad=True))])
    among = (q @ q.T).masked_fill(torch.eye(len(q)).bool(), -torch.inf)
    return F.cross_entropy(torch.cat([q @ docs.T, among], 1) / TAU, torch.arange(len(q)))


@pytest.mark.parametrize(
    ("loss", "n", "rows"),
    [
        (queue_of_keys, 256, 128),
        (positives_row_by_row, 1024, 512),
        (seven_negatives, 512, 292),
        (joint_directions, 1024, 512),
    ],
)
def test_large_tables_of_one_softmax_are_sampled_alike(
    loss: Callable[[Tensor, Tensor], Tensor], n: int, rows: int
) -> None:
    torch.manual_seed(0)
    q, p = (unit(torch.randn(n, 8, requires_grad=True)) for _ in range(2))
    (whole,) = joined(read(loss(q, p)).compared)
    assert whole.is_balanced
    assert whole.rows == n
    assert len(whole.anchors) == int(whole.pulled.sum()) == rows
    assert SoftmaxEvidence.of(whole).temperature == pytest.approx(TAU, rel=1e-3)


def test_the_gradient_reaches_the_leaves_as_without_a_reading() -> None:
    gradients = []
    for reads in (False, True):
        b = Batch()
        loss = symmetric(b.scale * unit(b.a) @ unit(b.p).T)
        if reads:
            read(loss)
        else:
            loss.backward()
        gradients.append([x.grad for x in b.encoder.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert one is not None is not other
        assert torch.equal(one, other)


def test_a_reading_ends_with_the_backward_pass() -> None:
    b, seen = Batch(), list[GraphReading]()
    loss = cross_entropy(unit(b.a) @ unit(b.p).T) / 4 / 1
    reading = GraphReading(loss, seen.append)
    loss.backward()
    assert seen == [reading]
    assert reading.divisors == (1, 4)
    assert reading.loss == pytest.approx(float(loss.detach()))
    assert len(reading.compared) == 1
    assert math.isfinite(reading.loss)


def test_a_loss_of_zero_says_that_nothing_is_compared() -> None:
    x = torch.randn(2, 8, requires_grad=True)
    reading = GraphReading((x * 0).sum())
    assert "one row" in reading.reason


def hinge(a: Tensor, p: Tensor, margin: float) -> Tensor:
    """Squared distances of positives, and of other rows within a margin, by separate operations."""
    near = (a - p).norm(dim=1).square().mean()
    return near + F.relu(margin - (a - p.roll(1, 0)).norm(dim=1)).square().mean()


def test_pairs_beyond_a_margin_do_not_hide_those_that_a_loss_pulls() -> None:
    b = Batch()
    a, p = unit(b.a), unit(b.p)
    seen = table(read(hinge(a, p, 0.01)))
    assert bool(seen.pulled.any(dim=1).all())
    assert not bool(seen.pushed.any())


def test_only_tables_of_the_same_anchors_share_a_row() -> None:
    """Queries and documents compete with each other in one softmax, as in the loss of GTE."""
    b = Batch()
    a, p = unit(b.a), unit(b.p)
    itself = torch.eye(N, dtype=torch.bool)
    blocks = [a @ p.T, (a @ a.T).masked_fill(itself, -9), p @ a.T]
    blocks += [(p @ p.T).masked_fill(itself, -9)]
    seen = joined(read(cross_entropy(torch.cat(blocks, dim=1))).compared)
    assert {len(t.columns) for t in seen} == {2 * N}


@pytest.mark.parametrize("tau", [0.1, 0.01])
def test_two_equal_views_are_pairs_and_no_squared_distances(tau: float) -> None:
    """At a low temperature, a softmax rounds the pull of each positive to 0."""
    b, x = Batch(), torch.randn(N, 20)
    seen = table(read(F.cross_entropy(unit(b.encoder(x)) @ unit(b.encoder(x)).T / tau, ROWS)))
    assert bool(seen.mask.all())
    assert not bool(seen.pushed.diagonal().any())


@pytest.mark.parametrize("dim", [0, 1])
def test_a_softmax_over_the_anchors_of_concatenated_scores_is_named(dim: int) -> None:
    b = Batch()
    a, p = unit(b.a), unit(b.p)
    scores = torch.cat([(a * p).sum(dim=1, keepdim=True), a @ unit(b.n).detach().T], dim=1)
    reading = read(-F.log_softmax(scores / TAU, dim=dim)[:, 0].mean())
    assert bool(reading.compared) == bool(dim)
    assert reading.reason.startswith("the softmax needs dim=1") == (dim == 0)


PROBABILITIES: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "cross entropy": (lambda s: F.cross_entropy(s.softmax(dim=1), ROWS), True),
    "both directions": (lambda s: symmetric(s.softmax(dim=1)), True),
    "nll": (lambda s: F.nll_loss(s.softmax(dim=1), ROWS), True),
    "logarithms": (lambda s: F.nll_loss(s.softmax(dim=1).log(), ROWS), False),
    "weights": (lambda s: F.cross_entropy(s * s.softmax(dim=0), ROWS), False),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_probabilities_in_place_of_scores_are_named(name: str) -> None:
    b, (loss, wrong) = Batch(), PROBABILITIES[name]
    reading = read(loss(unit(b.a) @ unit(b.p).T / TAU))
    assert bool(reading.compared) != wrong
    assert reading.reason.startswith("cross_entropy needs") == wrong


FROZEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "regression": lambda x, _: (x - 1).square().mean(),
    "classes": lambda x, _: F.cross_entropy(x, ROWS),
    "dimensions": lambda x, y: ((x - x.mean(0)).T @ (y - y.mean(0)) - torch.eye(48)).norm(),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_layer_is_no_batch_under_autocast(name: str, bias: bool) -> None:
    """Autocast copies its weight."""
    b, last = Batch(), nn.Linear(D, 48, bias=bias).requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        loss = FROZEN[name](*(last(x).float() for x in (b.a, b.p)))
    assert not read(loss).compared


@pytest.mark.parametrize("keys", ["queue", "batch"])
def test_keys_without_a_gradient_are_read_under_autocast(keys: str) -> None:
    b = Batch()
    others = unit(torch.randn(40, D)) if keys == "queue" else b.p.detach()
    with torch.autocast("cpu", torch.bfloat16):
        scores = F.linear(unit(b.a), others)
        seen = table(read(F.cross_entropy(scores, ROWS)))
    assert seen.mask.sum(dim=1).eq(len(others)).all()


@pytest.mark.parametrize("autocast", [True, False])
def test_frozen_documents_are_read_if_their_scores_are_computed_in_float32(autocast: bool) -> None:
    """In half precision, 48 uneven rows without a gradient may be the layer of ``FROZEN``."""
    b = Batch()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores = b.a @ b.n.detach().T
    reading = read(F.cross_entropy(scores.float(), ROWS))
    assert bool(reading.compared) is not autocast
    if not autocast:
        assert table(reading).mask.sum(dim=1).eq(3 * N).all()


@pytest.mark.parametrize("joint", [True, False])
def test_scores_of_positives_among_anchors_are_not_scores_of_the_anchors(joint: bool) -> None:
    """Li et al. (2023) concatenate the scores of four directions, two of them transposed."""
    b = Batch()
    a, p, own = unit(b.a), unit(b.p), torch.arange(N)
    directions = [a @ p.T, a @ a.T, (a @ p.T).T, (p @ p.T).T]
    for scores in directions[1::2]:
        scores[own, own] = -torch.inf
    directions = [scores / TAU for scores in directions]
    sums = [torch.logsumexp(scores, dim=1) for scores in directions]
    whole = torch.logsumexp(torch.cat(directions, dim=1), dim=1) if joint else sum(sums) / 4
    seen = table(read((whole - directions[0][own, own]).mean()))
    assert seen.anchors.allclose(a.detach())
    assert seen.pulled.sum(dim=1).eq(1).all()
    assert seen.mask.sum(dim=1).eq(2 * N - 1).all()


def test_negatives_weighted_by_their_own_scores_are_read() -> None:
    """Robinson et al. (2021) weight each negative by a power of its score."""
    b = Batch()
    a, p = unit(b.a), unit(b.p)
    others = (a @ p.T / TAU).exp()[~torch.eye(N, dtype=torch.bool)].view(N, N - 1)
    weight = others.sqrt()
    push = (weight * others).sum(dim=1) / weight.mean(dim=1)
    own = ((a * p).sum(dim=1) / TAU).exp()
    reading = read(-(own / (own + push)).log().mean())
    assert reading.explained == pytest.approx(1.0)
    assert table(reading).mask.sum(dim=1).eq(N).all()


@pytest.mark.parametrize("done", [None, lambda _: None])
def test_a_loss_without_a_backward_pass_is_released(done: Callable[..., None] | None) -> None:
    b = Batch()
    a, alive = unit(b.a), weakref.ref(b.a)
    loss = symmetric(a @ unit(b.p).T / TAU) + 0.1 * b.a.square().mean()
    reading = GraphReading(loss, done)
    del b, a, loss, reading
    gc.collect()
    assert alive() is None
