"""What pushes the anchors, from shared sweeps: every weight, both directions, any columns."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels import tiles
from isotrope.kernels.choose import surrogate_pairs
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.rowblock import RowBlockPairs
from isotrope.kernels.statistics import Unfused
from isotrope.kernels.surrogate_sums import Exponent, LazyWeights, SurrogatePairs
from isotrope.objectives import InfoNCE, ModifiedMHE, NTXent, Paradigm, SimCLRGrad
from isotrope.paradigm import registry
from isotrope.paradigm.compose import part
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Weight, products
from isotrope.paradigm.surrogate import Surrogate
from tests.paradigm.batches import batch

BYS = ("cross", "anchors", "positives", "both")
WEIGHTS = [
    form.format(by=by)
    for form in (
        "softmax:0.1:{by}",
        "softmax:0.1:{by}:batch",
        "softmax:0.01:{by}",  # too low to be shared
        "softmax:0.001:{by}:batch",
        "energy:0.2:{by}",
        "power:2:{by}",
        "power:20:{by}",
        "uniform:{by}",
        "hardest:dot:{by}",
        "hardest:angle:{by}",
    )
    for by in BYS
]
SURROGATES = [n for n in registry.names() if issubclass(registry.find(n), Surrogate)]


def _lean(views: Views) -> SurrogatePairs:
    pairs = surrogate_pairs(RowBlockPairs(views))
    assert pairs is not None
    return pairs


@pytest.fixture
def low_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows a block: several of them, the last one shorter."""
    monkeypatch.setattr(tiles, "LEAST", 8)
    monkeypatch.setattr(tiles, "MOST", 8)


def inputs() -> dict[str, Views]:
    """Unit views of every layout; rows 3, 12 and 20 of one view are equal, so there are ties."""
    a, b = batch("clustered", 29, 5)
    a[[12, 20]] = a[3].clone()
    b[[12, 20]] = b[3].clone()
    more = batch("random", 9, 5, seed=1)[0]
    groups = torch.arange(29) % 19
    plain = Views(a, b).unit()
    return {
        "plain": plain,
        "groups": replace(plain, groups=groups),
        "one group": replace(plain, groups=torch.zeros(29, dtype=torch.long)),
        "negatives": Views(a, b, more, groups=groups).unit(),
        "no negatives of that name": Views(a, b, more[:0]).unit(),
        "only negatives": Views(a, b, more, in_batch=False).unit(),
        "gathered": Views(a[4:15], b, more, offset=4, groups=groups).unit(),
        "two rows": Views(a[:2], b[:2]).unit(),
        "one coordinate": Views(a[:, :1], b[:, :1]).unit(),
    }


@pytest.mark.usefixtures("low_blocks")
@pytest.mark.parametrize("layout", inputs())
@pytest.mark.parametrize("form", WEIGHTS)
def test_every_weight_does_what_its_matrix_does(form: str, layout: str) -> None:
    """Of both directions, whichever comes first, where there are two."""
    views, weight = inputs()[layout], part(Weight, form)
    square = len(views.anchors) == len(views.positives)
    for order in ([0, 1], [1, 0]) if square else ([0],):
        whole = RowBlockPairs(views)
        lean = _lean(views)
        for swap in order:
            eager = whole.swapped() if swap else whole
            pushing = lean.swapped() if swap else lean
            matrix, acting = weight(eager), weight(pushing)
            assert acting.shape == matrix.shape
            columns = eager.columns(weight.against)
            close(acting @ columns, matrix @ columns)
            close(acting.sum(dim=1), matrix.sum(dim=1))
            assert bool(acting.any()) == bool(matrix.any())


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.usefixtures("low_blocks")
@pytest.mark.parametrize("layout", inputs())
@pytest.mark.parametrize("against", ["cross", "within", "both"])
@pytest.mark.parametrize("temperature", [0.1, 0.004])
def test_statistics_are_those_of_the_matrix(layout: str, against: Any, temperature: float) -> None:
    """Asked for alone, and after a weight whose sweep has found them already."""
    views = inputs()[layout]
    whole = RowBlockPairs(views)
    by = {"cross": "cross", "within": "anchors", "both": "both"}[against]
    for first in (None, Exponent(temperature), "hardest"):
        lean = _lean(views)
        if isinstance(first, Exponent):
            lean.shares(by, first)
        elif first:
            lean.hardest_negatives(by)
        close(lean.hardest(against), whole.hardest(against))
        close(lean.logsumexp(temperature, against), whole.logsumexp(temperature, against))
        close(
            lean.logsumexp(torch.tensor(0.3).double(), against),
            whole.logsumexp(float(torch.tensor(0.3)), against),
        )
        close(lean.positive, whole.positive)


@pytest.mark.usefixtures("low_blocks")
@pytest.mark.parametrize("by", BYS)
def test_the_first_of_equals_is_the_hardest(by: Any) -> None:
    """Each of ten vectors three times in both views and among the negatives, in many blocks."""
    h = torch.eye(10, dtype=torch.float64).repeat(3, 1)
    at, top = _lean(Views(h, h, h)).hardest_negatives(by)
    assert at.tolist() == [*range(10, 20), *range(10), *range(10)]
    assert (top == 1).all()


@pytest.mark.parametrize("n", [4, 30])
def test_products_leave_out_the_diagonal(n: int) -> None:
    """By the matrix where the batch is small, by the moments where it is large."""
    views = Views(*batch("random", n, 7)).unit()
    a, b = views.anchors, views.positives
    lean, whole = _lean(views), RowBlockPairs(views)
    for against, rows, compared in (("within", b, (b,)), ("both", a, (b, a))):
        found = products(lean, rows, *compared, against=against)
        matrix = products(whole, rows, *compared, against=against)
        assert isinstance(found, LazyWeights) == (n > 7)
        assert (matrix[:, :n].diagonal() == 0).all()
        close(found @ lean.columns(against), matrix @ whole.columns(against))
        close(found.sum(dim=1), matrix.sum(dim=1))
        assert found.any()


def test_scaled_weights_do_what_a_scaled_matrix_does() -> None:
    views = Views(*batch("random", 9, 4)).unit()
    weight = part(Weight, "softmax:0.2")
    matrix, acting = weight(RowBlockPairs(views)), weight(_lean(views))
    rows = torch.linspace(-1, 2, 9, dtype=torch.float64)[:, None]
    for scale in (lambda w: w / 4, lambda w: -3.0 * w, lambda w: 2 * (w * rows) / 3):
        close(scale(acting) @ views.positives, scale(matrix) @ views.positives)
        close(scale(acting).sum(dim=1), scale(matrix).sum(dim=1))
    assert len(acting) == 9


def test_weights_without_a_matrix_say_so() -> None:
    views = Views(*batch("random", 9, 4)).unit()
    acting = part(Weight, "uniform")(_lean(views))
    with pytest.raises(Unfused, match="the weights have no argmax"):
        acting.argmax(dim=1)
    with pytest.raises(Unfused, match="a torch function is called with the weights"):
        torch.sqrt(acting)


class Tempered(Surrogate, Objective, register=False):
    """Components that need the entries of a weight."""

    takes_negatives = True
    pairwise = True

    def components(self, pairs: Any) -> Terms:
        weight = torch.sqrt(part(Weight, "softmax:0.1")(pairs))
        return Terms(
            dissipation=torch.ones_like(pairs.positive),
            weight=weight,
            pull=weight.sum(dim=1),
            scale=0.5 / len(weight),
        )


@pytest.mark.parametrize(
    "objective",
    [Tempered(), NTXent().modify(ratio=1.5), registry.build("dcl", {"views": "both", "ratio": 2})],
    ids=["entries", "ntxent", "dcl"],
)
def test_components_that_want_the_matrix_get_it(objective: Objective) -> None:
    a, b = batch("random", 21, 6)
    whole, found = (gradients(objective, a, b, backend) for backend in ("eager", "rowblock"))
    close(torch.cat(found), torch.cat(whole))


def gradients(objective: Objective, a: Tensor, b: Tensor, backend: str) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in (a, b)]
    return list(torch.autograd.grad(objective(*leaves, backend=backend), leaves))


# how much is computed, in units of 2 n^2 d: a similarity matrix
OPERATIONS = [
    (InfoNCE(), 3),
    (Paradigm(), 3),
    (Paradigm(dissipation="margin:0.3"), 3),  # the hardest negatives come with the pushes
    (Paradigm(dissipation="fraction:0.05"), 3),
    (Paradigm(dissipation="margin:0.3", variant="released"), 3),
    (Paradigm(weight="softmax:0.05:positives"), 3),
    (Paradigm(weight="hardest"), 2),
    (ModifiedMHE(), 4),
    (SimCLRGrad(), 6),
    (Paradigm(weight="softmax:0.01"), 4),
    (registry.build("barlowtwinsgrad"), 0),
    (registry.build("unigrad"), 0),
]


@pytest.mark.parametrize(("objective", "matrices"), OPERATIONS, ids=str)
def test_what_is_computed_for_both_directions(objective: Objective, matrices: int) -> None:
    n, d = 2048, 8
    a, b = (x.float().requires_grad_() for x in batch("random", n, d))
    counter = FlopCounterMode(display=False)
    with counter:
        objective(a, b, backend="rowblock").backward()
    found = counter.get_total_flops() / (2 * n * n * d)
    assert matrices <= found + 0.01
    assert found <= 1.1 * matrices + 0.1


@pytest.mark.parametrize("name", SURROGATES)
def test_large_batches_are_shared_without_asking(name: str) -> None:
    """Far below where a matrix would be held for others: 300 rows are 0.4 MB."""
    a, b = (x.float() for x in batch("random", 300, 4))
    seen: list[type] = []
    objective = registry.build(name)
    plain = type(objective).components

    class Watched(type(objective), register=False):  # type: ignore[misc]
        def components(self, pairs: Any) -> Terms:
            if isinstance(pairs, EagerPairs | SurrogatePairs):  # not what only asks
                seen.append(type(pairs))
            return plain(self, pairs)

    Watched()(a, b)
    assert seen == [SurrogatePairs, SurrogatePairs]
    Watched()(a[:100], b[:100])
    assert seen[2:] == [EagerPairs, EagerPairs]
