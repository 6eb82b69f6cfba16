"""Components of losses that nobody registered, against what is known of them in closed form."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.errors import InputError
from isotrope.core.views import Views, unit
from isotrope.objectives import BarlowTwins, InfoNCE
from isotrope.paradigm.assemble import assemble, tangent
from isotrope.paradigm.decompose import Decomposition, decompose
from tests.paradigm.batches import BATCHES, batch

TAU = 0.2
# n x d: the smallest of both, more rows than dimensions, and the reverse
SHAPES = [(2, 2), (12, 4), (6, 20)]


def cross_entropy(similarity):
    return F.cross_entropy(similarity / TAU, torch.arange(len(similarity)))


def infonce(a, b):
    return cross_entropy(F.normalize(a) @ F.normalize(b).T)


def triplet(similarity, margin=0.3):
    off = similarity - 9 * torch.eye(len(similarity), dtype=similarity.dtype)
    return F.relu(off.amax(1) - similarity.diagonal() + margin).mean()


def arccon(similarity, margin=0.2):
    """ArcCon by hand: the positive's angle is widened before the cross-entropy."""
    own = similarity.diagonal()
    return cross_entropy(similarity + torch.diag((own.acos() + margin).cos() - own))


def uniform(a, _b):
    """Uniformity within the anchors' view, t = 2."""
    return torch.pdist(a).square().mul(-2).exp().mean().log()


def align(a, b):
    return (a - b).square().sum(1).mean()


def coordinates(a, _b):
    """Nothing to do with the other rows: does not fit the paradigm."""
    return a.sum()


def hidden(loss):
    """The loss of rows with their coordinates in another order: its pairs are not those given."""
    return lambda a, b: loss(a.flip(1), b.flip(1))


def autograd(loss, a, b):
    h = a.clone().requires_grad_()
    return tangent(torch.autograd.grad(loss(h, b), h)[0], a)


def assert_round_trip(parts: Decomposition, a, b) -> None:
    rebuilt = tangent(parts.terms.scale * assemble(parts.terms, Views(a, b)), a)
    # on collapsed rows pushes of 1e6 cancel to a gradient of 1: they are exact to their own size
    size = 1 + float((parts.terms.dissipation[:, None] * parts.terms.weight).abs().max())
    torch.testing.assert_close(rebuilt, parts.gradient, atol=1e-13 * size, rtol=1e-9)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("against", ["cross", "within", "both"])
@pytest.mark.parametrize("loss", [infonce, uniform, align, coordinates])
def test_the_parts_make_the_gradient_again(kind, shape, against, loss) -> None:
    a, b = (unit(x) for x in batch(kind, *shape))
    parts = decompose(loss, a, b, against=against)
    torch.testing.assert_close(parts.gradient, autograd(loss, a, b), atol=1e-13, rtol=1e-9)
    assert_round_trip(parts, a, b)
    assert parts.terms.against == against
    sums = parts.terms.mass[parts.normalised]
    # weights of both signs may reach 1 / sqrt(eps), 7e7, before they count as cancelling
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-7, rtol=0)
    assert (parts.terms.weight.diagonal() == 0).all(), "an anchor's own column is excluded"


def fraction(s):
    """Li et al. 2024, table 1: GD of InfoNCE, and its softmax over the negatives."""
    n = len(s)
    off = (s / TAU).masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
    return 1 / (1 + (s.diagonal() / TAU).exp() / off.exp().sum(1)), off.softmax(1)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_infonce_of_similarities_is_table_1_exactly(kind, shape) -> None:
    a, b = (unit(x) for x in batch(kind, *shape))
    parts = decompose(cross_entropy, a, b, of="similarities")
    dissipation, weight = fraction(a @ b.T)
    torch.testing.assert_close(parts.terms.dissipation * TAU, dissipation)
    torch.testing.assert_close(parts.terms.weight, weight)
    torch.testing.assert_close(parts.ratio, torch.ones_like(dissipation))
    assert parts.terms.scale == 1 / len(a)
    assert parts.rank is None
    assert parts.unique.all()
    assert parts.testable.all()
    assert parts.misfit == 0
    assert (parts.residual == 0).all()
    assert_round_trip(parts, a, b)
    torch.testing.assert_close(parts.gradient, autograd(infonce, a, b), atol=1e-12, rtol=1e-9)


def test_infonce_of_embeddings_is_table_1_where_the_solution_is_unique() -> None:
    a, b = (unit(x) for x in batch("random", 8, 32))
    parts = decompose(hidden(infonce), a, b)
    assert parts.unique.all()
    assert (parts.rank == 8).all(), "7 negatives and the positive"
    dissipation, weight = fraction(a @ b.T)
    torch.testing.assert_close(parts.terms.dissipation * TAU, dissipation)
    torch.testing.assert_close(parts.terms.weight, weight)
    torch.testing.assert_close(parts.ratio, torch.ones_like(dissipation))
    assert parts.misfit < 1e-12


def test_the_registered_objective_says_the_same() -> None:
    """Its 1/tau is in W; here it is in GD: the products agree."""
    a, b = batch("random", 8, 32)
    found = decompose(InfoNCE(temperature=TAU), a, b).terms
    known = InfoNCE(temperature=TAU).terms(a, b)
    torch.testing.assert_close(
        found.dissipation[:, None] * found.weight, known.dissipation[:, None] * known.weight
    )
    torch.testing.assert_close(found.dissipation, known.dissipation * known.mass)
    torch.testing.assert_close(found.ratio, known.ratio)
    assert found.scale == known.scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_is_called_unique_is_the_loss(dtype) -> None:
    """Random batches at the edge of what a gradient determines: n - 1 unknowns in d - 1 dimensions.

    A third of them is nearly dependent: one row is another one but for 1e-1 to 1e-9.
    """
    generator = torch.Generator().manual_seed(0)

    def number(low, high):
        return low + (high - low) * float(torch.rand((), generator=generator))

    def push(terms):
        return terms.dissipation[:, None] * terms.weight

    half = math.sqrt(torch.finfo(dtype).eps)
    seen = {True: 0, False: 0}
    for round_ in range(1_200):
        d = 3 + round_ % 5
        n = max(2, d - 2 + round_ % 6)
        a, b = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
        if round_ % 3 == 0:
            b[-1] = b[0] + 10 ** number(-9, -1) * b[-1]
        a, b = (unit(unit(x).to(dtype)) for x in (a, b))
        temperature = 10 ** number(-1.3, 0)

        def loss(a, b, temperature=temperature):
            similarity = F.normalize(a) @ F.normalize(b).T / temperature
            return F.cross_entropy(similarity, torch.arange(len(a)))

        parts = decompose(hidden(loss), a, b)
        own = decompose(
            lambda s, t=temperature: F.cross_entropy(s / t, torch.arange(len(s))),
            a.double(),
            b.double(),
            of="similarities",
        ).terms
        assert not parts.unique.any() or n <= d - 1, "more unknowns than equations"
        for found, known in (
            (push(parts.terms), push(own)),
            (parts.terms.dissipation * parts.terms.pull, own.dissipation * own.pull),
        ):
            error = (found.double() - known).reshape(n, -1).abs().amax(1)[parts.unique]
            assert (error < 2 * half / temperature).all(), (round_, n, d, float(error.max()))
        for unique in parts.unique.tolist():
            seen[unique] += 1
    assert min(seen.values()) > 500, seen


def test_more_rows_than_dimensions_fit_anything_and_say_so() -> None:
    a, b = (unit(x) for x in batch("random", 12, 4))
    parts = decompose(coordinates, a, b)
    assert (parts.rank == 3).all(), "the tangent plane has d - 1 dimensions"
    assert not parts.unique.any()
    assert not parts.testable.any()
    assert parts.misfit < 1e-12
    # the least norm is not larger than the solution of the closed form
    least = decompose(hidden(infonce), a, b).terms
    exact = decompose(cross_entropy, a, b, of="similarities").terms

    def norm(t):
        return (t.dissipation.square() * (t.weight.square().sum(1) + t.pull.square())).sqrt()

    assert (norm(least) <= norm(exact) * (1 + 1e-12)).all()
    assert (norm(least) < 0.99 * norm(exact)).any()


def test_the_pairs_in_the_graph_are_read_where_the_gradient_does_not_determine_them() -> None:
    a, b = (unit(x) for x in batch("random", 12, 4))
    parts = decompose(lambda a, b: infonce(3 * a, b), a, b)
    assert parts.rank is None
    assert parts.unique.all()
    assert parts.testable.all()
    assert parts.misfit < 1e-12
    dissipation, weight = fraction(a @ b.T)
    torch.testing.assert_close(parts.terms.dissipation * TAU, dissipation)
    torch.testing.assert_close(parts.terms.weight, weight)
    torch.testing.assert_close(parts.ratio, torch.ones_like(dissipation))

    def both_views(a, b):
        rows = torch.cat([a, b])
        own = torch.eye(len(rows), dtype=torch.bool)
        scores = (rows @ rows.T / TAU).masked_fill(own, -torch.inf)
        return F.cross_entropy(scores[: len(a)], torch.arange(len(a)) + len(a))

    scores = torch.cat([a @ b.T, a @ a.T], dim=1) / TAU
    scores[:, 12:].fill_diagonal_(-torch.inf)
    share = scores.softmax(dim=1)
    share[:, :12].fill_diagonal_(0)
    share[:, 12:] += share[:, 12:].clone().T  # an anchor is a negative of other anchors, too
    joint = decompose(both_views, a, b, against="both")
    torch.testing.assert_close(joint.terms.weight, share / share.sum(1, keepdim=True))
    assert joint.rank is None
    # the pairs within the view are not among the columns asked for, and nothing stands in for them
    assert decompose(both_views, a, b).misfit > 0.1


QUEUE = unit(torch.randn(9, 32, generator=torch.Generator().manual_seed(5), dtype=torch.float64))


def queued(a, b):
    """InfoNCE with the negatives of a queue."""
    own = (a * b).sum(1, keepdim=True)
    return F.cross_entropy(torch.cat([own, a @ QUEUE.T], 1) / TAU, torch.zeros(len(a)).long())


@pytest.mark.parametrize("noise", [1e-3, 1.0], ids=["small push", "large push"])
def test_negatives_outside_the_batch_make_the_reading_unreliable(noise) -> None:
    a, b = (unit(x) for x in batch("random", 8, 32))
    b = unit(a + noise * b)
    found = decompose(lambda a, b: 1e-6 * queued(a, b) + align(a, b), a, b)
    assert not found.is_reliable
    assert "(misfit)" in repr(found)
    assert "ratio" not in repr(found), "no numbers are shown as if they were right"
    rows = torch.cat([b, QUEUE])
    read = decompose(lambda a, b: queued(a, b[:8]), a, rows)
    assert read.is_reliable
    torch.testing.assert_close(read.ratio, torch.ones(8).double())
    assert read.temperature == pytest.approx(TAU)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("tau", [0.02, 0.1, 10.0])
def test_a_sigmoid_is_no_softmax_also_where_it_is_nearly_one(tau, dtype) -> None:
    def sigmoid(similarity):
        sign = 2 * torch.eye(len(similarity)) - 1
        return -F.logsigmoid(sign * (10 * similarity - 10)).sum() / len(similarity)

    def softmax(similarity):
        return F.cross_entropy(similarity / tau, torch.arange(len(similarity)))

    a, b = (unit(x).to(dtype) for x in batch("random", 16, 32))
    for loss in (
        lambda a, b: softmax(a @ b.T),
        lambda a, b: softmax(-(torch.cdist(a, b) ** 2) / 2),
    ):
        assert decompose(loss, a, b).temperature == pytest.approx(tau, rel=1e-4)
    assert decompose(lambda a, b: sigmoid(a @ b.T), a, b).temperature is None
    few = [unit(x).to(dtype) for x in batch("random", 12, 1024)]
    assert decompose(lambda a, b: sigmoid(a @ b.T), *few).temperature is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_summary_is_short_and_names_temperature_and_direction(dtype) -> None:
    a, b = (unit(x).to(dtype) for x in batch("random", 40, 64))
    parts = decompose(infonce, a, b)
    lines = repr(parts).splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) < 100
    assert "attract 40 anchors, repel 0" in repr(parts)
    assert "temperature 0.2" in repr(parts)
    assert "attract 0 anchors, repel 40" in repr(decompose(lambda a, b: -infonce(a, b), a, b))
    hinge = decompose(triplet, a, b, of="similarities")
    assert hinge.temperature is None
    assert hinge.is_reliable
    pull = decompose(align, a, b)
    assert pull.is_reliable
    assert pull.temperature is None
    few = decompose(hidden(infonce), a[:, :8], b[:, :8])
    assert "unique: other W give the same gradient for 40 anchors" in repr(few)


def test_equal_rows_are_not_told_apart() -> None:
    a, b = (unit(x) for x in batch("random", 8, 32))
    b[3] = b[2]
    parts = decompose(infonce, a, b)
    assert parts.rank is not None
    assert not parts.unique.any()


def test_a_triplet_loss_by_hand() -> None:
    """GD is the indicator, W the hardest negative, R = 1 (Li et al. 2024, table 1, MPT)."""
    a, b = (unit(x) for x in batch("random", 16, 4))
    a = unit(b + 0.5 * a)
    parts = decompose(triplet, a, b, of="similarities")
    s = a @ b.T
    off = s.masked_fill(torch.eye(16, dtype=torch.bool), -9)
    active = s.diagonal() - off.amax(1) < 0.3
    assert 0 < active.sum() < 16, "the batch shows both cases"
    torch.testing.assert_close(parts.terms.dissipation, active.double())
    hardest = F.one_hot(off.argmax(1), 16).double() * active[:, None]
    torch.testing.assert_close(parts.terms.weight, hardest)
    assert torch.equal(parts.normalised, active)
    torch.testing.assert_close(parts.ratio[active], torch.ones(int(active.sum())).double())
    assert parts.ratio[~active].isnan().all()


def test_arccon_by_hand_has_its_ratio() -> None:
    """R = sin(theta + u) / sin theta (Li et al. 2024, table 1)."""
    a, b = (unit(x) for x in batch("random", 10, 6))
    parts = decompose(arccon, a, b, of="similarities")
    theta = (a * b).sum(1).acos()
    torch.testing.assert_close(parts.ratio, (theta + 0.2).sin() / theta.sin())
    torch.testing.assert_close(parts.terms.weight, fraction(a @ b.T)[1])


def test_uniformity_fits_within_its_view_and_not_across() -> None:
    a, b = (unit(x) for x in batch("random", 8, 32))
    within = decompose(uniform, a, b, against="within", reduction="sum")
    assert within.misfit < 1e-12
    assert within.unique.all()
    # L = log mean e^{4 h.h' - 4}: W_ij = e^{4 s_ij}, normalised; GD = 4 x its share; no pull
    mass = (4 * a @ a.T).exp().fill_diagonal_(0)
    torch.testing.assert_close(within.terms.weight, mass / mass.sum(1, keepdim=True))
    torch.testing.assert_close(within.terms.dissipation, 8 * mass.sum(1) / mass.sum())
    torch.testing.assert_close(within.ratio, torch.zeros(8).double(), atol=1e-12, rtol=0)
    across = decompose(uniform, a, b, reduction="sum")
    assert across.misfit > 0.5
    assert decompose(uniform, a, b, against="both", reduction="sum").misfit < 1e-12


def test_a_loss_that_does_not_fit_reports_what_is_left() -> None:
    a, b = (unit(x) for x in batch("random", 4, 64))
    parts = decompose(coordinates, a, b, reduction="sum")
    assert parts.misfit > 0.9
    assert parts.testable.all()
    gradient = tangent(torch.ones_like(a), a)
    spanned = [tangent(b, h) for h in a]
    left = [
        g - s.T @ torch.linalg.lstsq(s.T, g).solution
        for g, s in zip(gradient, spanned, strict=True)
    ]
    expected = torch.stack([torch.linalg.vector_norm(v) for v in left])
    torch.testing.assert_close(parts.residual, expected)


def test_reduction_moves_between_scale_and_dissipation_only() -> None:
    a, b = (unit(x) for x in batch("random", 8, 16))
    mean = decompose(infonce, a, b)
    total = decompose(infonce, a, b, reduction="sum")
    assert (mean.terms.scale, total.terms.scale) == (1 / 8, 1.0)
    torch.testing.assert_close(mean.terms.dissipation, 8 * total.terms.dissipation)
    torch.testing.assert_close(mean.terms.weight, total.terms.weight)
    torch.testing.assert_close(mean.ratio, total.ratio)
    torch.testing.assert_close(mean.gradient, total.gradient)
    torch.testing.assert_close(mean.residual, total.residual, atol=1e-14, rtol=0)


# masses of no or both signs


def weighted(coefficients):
    return lambda similarity: (similarity * coefficients).sum()


def test_weights_that_cancel_are_scaled_by_their_magnitudes() -> None:
    a, b = (unit(x) for x in batch("random", 3, 5))
    loss = weighted(torch.tensor([[-2.0, 1, -1], [1, -2, 1], [-1, 1, 1]]).double())
    parts = decompose(loss, a, b, of="similarities", reduction="sum")
    assert parts.normalised.tolist() == [False, True, False]
    assert parts.terms.dissipation.tolist() == [2, 2, 2]
    assert parts.terms.weight[0].tolist() == [0, 0.5, -0.5]
    assert parts.terms.pull.tolist() == [1, 1, -0.5]
    assert parts.ratio[1] == 1
    assert parts.ratio[[0, 2]].isnan().all()
    assert_round_trip(parts, a, b)


def test_negatives_that_attract_have_a_negative_dissipation() -> None:
    a, b = (unit(x) for x in batch("random", 2, 5))
    parts = decompose(
        weighted(torch.tensor([[1.0, -3], [-3, 1]]).double()), a, b, of="similarities"
    )
    assert parts.terms.dissipation.tolist() == [-6, -6], "the mean over 2 rows is undone"
    assert parts.terms.weight.tolist() == [[0, 1], [1, 0]]
    assert_round_trip(parts, a, b)


def test_barlow_twins_has_weights_of_both_signs_and_no_trouble() -> None:
    a, b = (unit(x) for x in batch("random", 8, 32))
    objective = BarlowTwins()
    parts = decompose(objective, a, b, against="both", reduction="sum")
    assert (parts.terms.weight < 0).any()
    assert_round_trip(parts, a, b)
    assert 0.01 < parts.misfit < 1, "its pull acts on each coordinate, which one number cannot"


@pytest.mark.parametrize("of", ["similarities", "embeddings"])
def test_only_a_pull(of) -> None:
    a, b = (unit(x) for x in batch("random", 5, 16))
    loss = (lambda s: (2 - 2 * s.diagonal()).mean()) if of == "similarities" else align
    parts = decompose(loss, a, b, of=of)
    ones = torch.ones(5).double()
    torch.testing.assert_close(parts.terms.dissipation, ones)
    torch.testing.assert_close(parts.terms.pull, 2 * ones)
    assert parts.terms.weight.abs().max() < 1e-14
    assert not parts.normalised.any()


# what goes in


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of", ["similarities", "embeddings"])
def test_dtypes(dtype, of) -> None:
    a, b = (x.to(dtype) for x in batch("random", 6, 12))
    loss = cross_entropy if of == "similarities" else infonce
    parts = decompose(loss, a, b, of=of)
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    for value in (parts.terms.weight, parts.terms.pull, parts.gradient, parts.residual):
        assert value.dtype == computed
    exact = decompose(loss, a.double(), b.double(), of=of)
    torch.testing.assert_close(parts.terms.weight.double(), exact.terms.weight, atol=1e-4, rtol=0)
    assert torch.equal(parts.normalised, exact.normalised)


def test_raw_rows_are_normalised_and_history_stays_outside() -> None:
    a, b = batch("random", 6, 9)
    temperature = torch.tensor(TAU, dtype=torch.float64, requires_grad=True)

    def loss(similarity):
        return F.cross_entropy(similarity / temperature, torch.arange(6))

    lengths = torch.rand(6, 1).double() + 0.1
    plain = decompose(loss, a, b, of="similarities")
    a.requires_grad_()
    with torch.no_grad():
        scaled = decompose(loss, lengths * a, b, of="similarities")
    traced = decompose(loss, a, b, of="similarities")
    for other in (scaled, traced):
        torch.testing.assert_close(other.terms.weight, plain.terms.weight)
        torch.testing.assert_close(other.gradient, plain.gradient)
        assert not other.gradient.requires_grad
        assert not other.terms.pull.requires_grad
    assert a.grad is None
    assert temperature.grad is None


@pytest.mark.parametrize("of", ["similarities", "embeddings"])
def test_a_loss_may_mask_in_place(of) -> None:
    def masked(s):
        own = s.diagonal().clone()
        s.fill_diagonal_(-torch.inf)
        return (s.logsumexp(1) - own).mean()

    a, b = batch("random", 5, 9)
    before = a.clone(), b.clone()
    parts = decompose(masked if of == "similarities" else lambda x, y: masked(x @ y.T), a, b, of=of)
    torch.testing.assert_close(parts.ratio, torch.ones(5).double())
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


def test_positives_of_other_processes_are_negatives() -> None:
    a, b = (unit(x) for x in batch("random", 6, 9))
    parts = decompose(
        lambda s: F.cross_entropy(s / TAU, torch.arange(4)), a[:4], b, of="similarities"
    )
    assert parts.terms.weight.shape == (4, 6)
    torch.testing.assert_close(parts.terms.dissipation * TAU, fraction(a @ b.T)[0][:4])


@pytest.mark.parametrize("place", ["anchors", "positives"])
def test_an_embedding_without_a_direction_is_refused(place) -> None:
    views = {"anchors": torch.ones(4, 3), "positives": torch.ones(4, 3)}
    views[place][3] = 0
    with pytest.raises(ValueError, match=f"leave out row 3 of the {place}: it is zero"):
        decompose(InfoNCE(), **views)


def test_inference_tensors_are_decomposed_like_others() -> None:
    anchors, positives = batch("random", 5, 8)
    with torch.inference_mode():
        found = decompose(InfoNCE(), anchors.clone(), positives.clone())
    usual = decompose(InfoNCE(), anchors, positives)
    torch.testing.assert_close(found.terms.dissipation, usual.terms.dissipation)


def test_modules_and_partials_are_losses() -> None:
    class Loss(torch.nn.Module):
        def forward(self, similarity):
            return cross_entropy(similarity)

    a, b = batch("random", 5, 9)
    module = decompose(Loss(), a, b, of="similarities")
    partial = decompose(functools.partial(triplet, margin=0.1), a, b, of="similarities")
    torch.testing.assert_close(module.ratio, torch.ones(5).double())
    assert partial.terms.weight.shape == (5, 5)
    assert decompose(lambda *views: infonce(*views), a, b).misfit < 1e-12


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (cross_entropy, {}, "passes 2 arguments, but loss_fn requires 1"),
        (triplet, {}, "passes 2 arguments, but loss_fn requires 1"),
        (infonce, {"of": "similarities"}, "passes 1 argument, but loss_fn requires 2"),
        (lambda a, b, *, margin: a.sum(), {}, "wrap loss_fn, so that it needs no keyword"),
        (infonce, {"of": "distances"}, "give of as one of embeddings, similarities; found 'dist"),
        (infonce, {"against": "self"}, "give against as one of cross, within, both; found 'self'"),
        (infonce, {"reduction": "max"}, "give reduction as one of mean, sum; found 'max'"),
        (
            cross_entropy,
            {"of": "similarities", "against": "within"},
            "leave out against='within', or use of='embeddings'",
        ),
        (lambda a, b: (a * b).sum(1), {}, r"must return a scalar tensor; found \(4,\)"),
        (lambda _a, _b: 1.0, {}, "must return a scalar tensor; found float"),
        (lambda _a, b: b.sum(), {}, "does not depend on the anchors"),
        (lambda a, _b: a.detach().sum(), {}, "does not depend on the anchors"),
        (lambda _a, _b: torch.ones((), requires_grad=True), {}, "does not depend on the anchors"),
        (
            lambda a, _b: (a[1:] - a[1:].detach()).norm(dim=1).sqrt().sum(),
            {},
            "in loss_fn: its gradient is not finite for 3 of 4 anchors, first for anchor 1",
        ),
    ],
)
def test_what_is_refused(loss, options, message) -> None:
    a, b = batch("random", 4, 6)
    with pytest.raises(ValueError, match=message):
        decompose(loss, a, b, **options)


def test_a_loss_of_texts_is_refused_and_its_function_of_embeddings_is_read() -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    loss = losses.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / TAU)
    a, b = batch("random", 6, 16)
    with pytest.raises(InputError, match="compute_loss_from_embeddings"):
        decompose(loss, a, b)
    parts = decompose(lambda a, b: loss.compute_loss_from_embeddings([a, b], None), a, b)
    assert parts.temperature == pytest.approx(TAU)


def test_a_loss_written_in_c_hides_its_arguments() -> None:
    a, b = (unit(x) for x in batch("random", 4, 9))
    parts = decompose(torch.dist, a, b, reduction="sum")
    torch.testing.assert_close(parts.terms.pull, (1 / torch.dist(a, b)).expand(4))
