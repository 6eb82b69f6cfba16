"""Blocks of rows give what the whole matrix gives: every objective, value and every gradient."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from isotrope.core.autograd import softplus
from isotrope.core.errors import NeedsEager
from isotrope.core.views import Views, unit
from isotrope.kernels import pass_input, tiles
from isotrope.kernels.choose import pairs
from isotrope.kernels.fused import fused
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Unfused, record
from isotrope.objectives import (
    MPT,
    InfoNCE,
    MIOv1,
    MIOv3,
    MixCSE,
    MixedInfoNCE,
    NegativeCosine,
    NTXent,
)
from isotrope.paradigm import proof, registry
from isotrope.paradigm.objective import Objective
from tests.paradigm.batches import batch

NAMES = registry.names()
# a preset is the default with other numbers
CASES: list[Any] = [
    pytest.param(name, s, marks=[pytest.mark.nightly] * ("preset" in s))
    for name in NAMES
    for s in proof.settings(registry.find(name))
]
CASES += [
    ("paradigm", {"weight": f"{weight}:{by}", "dissipation": "margin:0.3", "ratio": 1.5})
    for weight in ("softmax:0.1", "energy:0.1", "power:2", "hardest:distance")
    for by in ("cross", "anchors", "positives", "both")
]
CASES += [
    (name, edit)
    for name in NAMES
    if name != "paradigm" and registry.build(name).has_terms
    for edit in ({"dissipation": "margin:0.3"}, {"weight": "softmax:0.1", "ratio": 1.5})
    if name != "vicreg" or "weight" not in edit  # whose weights cannot be exchanged
]
# what asks for embeddings: the surrogates, which are test_pushes.py's, and moments, which are small
WHOLE = {"modified", "paradigm", "simclrgrad", "unigrad", "barlowtwins", "vicreg", "mhs"}

COUPLED = ["dclw", "alignuniform"]
LINEAR = ["miov1", "miov2", "miov3"]


@pytest.fixture(params=[True, False], ids=["copied", "norms aside"])
def low_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows a block, so that a small batch needs many, the last one shorter."""
    monkeypatch.setattr(tiles, "LEAST", 8)
    monkeypatch.setattr(tiles, "MOST", 8)
    if not request.param:
        monkeypatch.setattr(pass_input, "COPIED", 0)


def derivatives(
    objective: Objective, inputs: tuple[Tensor, ...], backend: str, **named: Any
) -> list[Tensor]:
    """The value and the gradients of all inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = objective(*leaves, backend=backend, **named)
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    zeros = [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]
    return [value.detach(), *zeros]


def apart(found: list[Tensor], expected: list[Tensor]) -> float:
    errors = [
        (f - e).abs().max() / e.abs().max().clamp_min(1e-9)
        for f, e in zip(found, expected, strict=True)
    ]
    return float(torch.stack(errors).max())  # NaN if one of them is, which max() would pass over


@pytest.mark.usefixtures("low_blocks")
@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
@pytest.mark.slow
def test_every_objective_as_from_the_whole_matrix(name: str, settings: dict[str, Any]) -> None:
    """Float64, with groups, additional negatives, planted duplicates; both directions too."""
    plain = registry.build(name, settings)
    kinds = ("duplicate rows",) if settings else ("random", "duplicate rows")
    groupings = (None, torch.arange(37) // 2, torch.zeros(37, dtype=torch.long))
    for objective in (plain, plain.symmetric()):
        for kind in kinds:
            a, b = batch(kind, 37, 11)
            more = batch("random", 5, 11, seed=3)[0]
            inputs = [(a, b)] if proof.additional_negatives(objective, a) is None else []
            inputs += [(a, b, more)] if objective.takes_negatives else []
            for given in inputs:
                for groups in groupings[: 2 if settings else 3]:
                    whole = derivatives(objective, given, "eager", groups=groups)
                    found = derivatives(objective, given, "rowblock", groups=groups)
                    assert apart(found, whole) < 1e-11, (kind, len(given), groups)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_fused(name: str) -> None:
    """The contrastive, hyperspherical and binary objectives never meet a whole matrix."""
    objective = registry.build(name)
    if any(name.startswith(start) for start in WHOLE) or not objective.has_terms:
        with pytest.raises(Unfused):
            record(objective.formula, torch.float64)
    else:
        record(objective.formula, torch.float64)


@pytest.mark.parametrize(
    ("name", "matrices"),
    [
        *(("infonce", 3), ("dclw", 3), ("alignuniform", 3)),
        *((name, 6) for name in LINEAR),  # 3 across, 3/2 within each view
        ("ntxent", 8),
    ],
)
def test_how_often_blocks_are_formed_and_multiplied(name: str, matrices: float) -> None:
    n, d = 2048, 8
    a, b = (x.float().requires_grad_() for x in batch("random", n, d))
    with FlopCounterMode(display=False) as counter:
        registry.build(name)(a, b, backend="rowblock").backward()
    found = counter.get_total_flops() / (2 * n * n * d)
    assert matrices <= found + 0.01
    assert found <= 1.15 * matrices  # of a triangle, the squares on the diagonal are whole


@pytest.mark.parametrize(
    "objective", [InfoNCE(), NTXent(), MPT(), MixedInfoNCE(), MIOv1()], ids=str
)
def test_no_further_negatives_are_a_matrix_without_rows(objective: Objective) -> None:
    a, b = batch("random", 30, 6)
    whole = derivatives(objective, (a, b), "eager")
    found = derivatives(objective, (a, b, a[:0]), "rowblock")
    assert found.pop().shape == (0, 6)
    assert apart(found, whole) < 1e-12


@pytest.mark.usefixtures("low_blocks")
@pytest.mark.parametrize("objective", [InfoNCE(), *map(registry.build, COUPLED)], ids=str)
def test_gathered_keys(objective: Objective) -> None:
    a, b = batch("random", 30, 6)
    whole, found = (
        torch.autograd.grad(objective.loss(Views(x, y, offset=7), backend=backend), (x, y))
        for backend in ("eager", "rowblock")
        for x, y in [(a[:19].clone().requires_grad_(), b.clone().requires_grad_())]
    )
    assert apart(list(found), list(whole)) < 1e-12


@pytest.mark.usefixtures("low_blocks")
@pytest.mark.parametrize(
    "name", ["infonce", "ntxent", "dclw", "arccon", "miov1", "miov3", "mixcse"]
)
@pytest.mark.parametrize("both", [False, True])
def test_a_learnt_temperature_gets_its_gradient(name: str, both: bool) -> None:
    a, b = batch("clustered", 30, 6)
    found = []
    for backend in ("eager", "rowblock"):
        temperature = torch.tensor(0.11, dtype=torch.float64, requires_grad=True)
        objective = registry.find(name)(temperature=temperature)
        value = (objective.symmetric() if both else objective)(a, b, backend=backend)
        found.append(torch.autograd.grad(value, temperature)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


def temperatures(logarithms: Tensor) -> tuple[Tensor, Tensor]:
    """Two numbers that one operation of autograd computes."""
    first, second = logarithms.exp().unbind()
    return first, second


@pytest.mark.parametrize("both", [False, True])
def test_a_temperature_computed_from_what_is_learnt_is_fused(both: bool) -> None:
    a, b = batch("clustered", 300, 6)
    logarithms = torch.tensor([-2.3, -1.0], dtype=torch.float64, requires_grad=True)
    objective: Objective = InfoNCE(temperature=temperatures(logarithms)[0])
    objective = objective.symmetric() if both else objective
    whole, blocks = objective(a, b, backend="eager"), objective(a, b)
    assert type(blocks.grad_fn).__name__ == "_ReadyBackward"
    found, expected = (
        torch.autograd.grad(value, logarithms, retain_graph=True)[0] for value in (blocks, whole)
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class Scaled(Objective, register=False):
    """InfoNCE times a number."""

    temperature: Any
    factor: Any
    paper = InfoNCE.paper
    name = "scaled"

    def formula(self, pairs: Pairs) -> Tensor:
        return softplus(pairs.gap(self.temperature)) * self.factor


def test_what_one_operation_computes_beside_the_temperature_is_learnt_too() -> None:
    a, b = batch("clustered", 30, 6)
    found = []
    for backend in ("eager", "rowblock"):
        logarithms = torch.tensor([-2.3, -1.0], dtype=torch.float64, requires_grad=True)
        temperature, factor = temperatures(logarithms)
        value = Scaled(temperature=temperature, factor=factor)(a, b, backend=backend)
        found.append(torch.autograd.grad(value, logarithms)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("against", ["cross", "within", "both"])
@pytest.mark.parametrize("statistic", ["logsumexp", "softplus", "hardest"])
@pytest.mark.parametrize("n", [2, 3, 513, 1031])
def test_statistics_and_their_gradients(statistic: str, against: str, n: int) -> None:
    """One statistic at a time, with a learnt temperature, in blocks of full height."""
    a, b = (unit(x) for x in batch("clustered", n, 5))
    found = []
    for backend in ("eager", "rowblock"):
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        tau = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
        seen = pairs(Views(x, y), backend)
        value = (
            seen.hardest(against)
            if statistic == "hardest"
            else getattr(seen, statistic)(tau, against)
        )
        some = torch.linspace(0.5, 1.5, n, dtype=torch.float64)
        wanted = [x, y] + [tau] * (statistic != "hardest")
        gradients = torch.autograd.grad((value * some).sum(), wanted, allow_unused=True)
        zeros = [
            torch.zeros_like(w) if g is None else g for g, w in zip(gradients, wanted, strict=True)
        ]
        found.append([value.detach(), *zeros])
    assert apart(found[1], found[0]) < 1e-11


def test_counts_and_nearest_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST", 8)
    monkeypatch.setattr(tiles, "LEAST", 8)
    a, b = (unit(x) for x in batch("random", 21, 4))
    for groups in (None, torch.arange(21) // 3):
        views = Views(a, b, groups=groups)
        for against in ("cross", "within", "both"):
            whole, blocks = pairs(views, "eager"), pairs(views, "rowblock")
            assert torch.equal(whole.count(against), blocks.count(against))
            for k in (3, 50):  # 50 are more than there are columns
                assert torch.equal(whole.nearest(k, against), blocks.nearest(k, against))


MODIFIED = ["modifiedmhe", "modifiedmhs", "modifiedbarlowtwins", "modifiedvicreg"]
SURROGATES = [
    *(
        (name, settings)
        for name in MODIFIED
        for settings in proof.settings(registry.find(name))
        if "preset" not in settings
    ),
    *((f"{name}grad", {}) for name in ("simclr", "barlowtwins", "vicreg", "uni")),
    *(
        ("paradigm", {"weight": f"{weight}:{by}", "dissipation": "margin:0.3"})
        for weight in ("softmax:0.1", "softmax:0.01", "power:2", "uniform", "hardest:distance")
        for by in ("cross", "anchors", "positives", "both")
    ),
    ("paradigm", {"variant": "released"}),
    *(
        (name, {"dissipation": "margin:0.3"})
        for name in ("infonce", "arccon", "dcl", "mpt", "mhe", "barlowtwins", "negativecosine")
    ),
]
SIZES = [(2, 1), (7, 3), (259, 33), (1031, 257), (130, 1031)]

EXACT = [InfoNCE(), NTXent(), MPT(), MIOv1(), MIOv3(), MixCSE(), *map(registry.build, COUPLED)]


@pytest.mark.parametrize("objective", EXACT, ids=str)
@pytest.mark.parametrize(("n", "d"), SIZES)
@pytest.mark.slow
def test_float32_is_as_exact_as_autograd(objective: Objective, n: int, d: int) -> None:
    as_exact_as_autograd(objective, n, d, seeds=1)


@pytest.mark.slow  # gigabytes, for the whole matrix
@pytest.mark.parametrize(
    "objective",
    [InfoNCE(), MPT(), pytest.param(MIOv3(), marks=pytest.mark.nightly)],  # minutes
    ids=str,
)
def test_of_many_rows_too(objective: Objective) -> None:
    as_exact_as_autograd(objective, 10_007, 3, seeds=1)


def as_exact_as_autograd(
    objective: Objective,
    n: int,
    d: int,
    *,
    seeds: int,
    backend: str = "rowblock",
    device: str = "cpu",
) -> None:
    """Norm-wise error against float64: at most 1.5 times eager's in float32, and one ulp."""
    found = []
    for seed in range(seeds):
        a, b = (x.to(device) for x in batch("random", n, d, seed=seed))
        a[n // 2 :: 3] = a[0] + 1e-3 * a[n // 2 :: 3]  # near-duplicates
        exact = derivatives(objective, (a, b), "eager")
        single = (a.float(), b.float())
        eager = derivatives(objective, single, "eager")
        blocks = derivatives(objective, single, backend)
        for truth, theirs, ours in zip(exact, eager, blocks, strict=True):
            errors = (theirs.double() - truth).norm(), (ours.double() - truth).norm()
            found.append(torch.stack([truth.norm(), *errors]))
    size, theirs, ours = torch.stack(found).view(seeds, 3, 3).norm(dim=0).T
    assert (ours <= 1.5 * theirs + torch.finfo(torch.float32).eps * size).all()


@pytest.mark.parametrize("name", [*MODIFIED, "paradigm", "simclrgrad", "unigrad", "vicreggrad"])
@pytest.mark.parametrize(("n", "d"), [(2, 1), (7, 3), (259, 33), (90, 257)])
@pytest.mark.slow
def test_surrogates_are_as_exact_in_float32(name: str, n: int, d: int) -> None:
    """All batches together: in a single value pull and push cancel, and chance decides."""
    for settings in ({},) if "grad" in name else ({}, {"variant": "released"}):
        as_exact_as_autograd(registry.build(name, settings), n, d, seeds=8)


@pytest.mark.parametrize(
    "name", ["infonce", "ntxent", "miov1", "mpt", "mhs", "mixcse", "mixedinfonce"]
)
def test_only_the_gradients_that_are_wanted(name: str) -> None:
    objective, (a, b) = registry.build(name), batch("random", 20, 4)
    whole = derivatives(objective, (a, b), "eager")
    x = a.clone().requires_grad_()
    (found,) = torch.autograd.grad(objective(x, b, backend="rowblock"), x)
    torch.testing.assert_close(found, whole[1])
    y = b.clone().requires_grad_()
    (found,) = torch.autograd.grad(objective(a, y, backend="rowblock"), y)
    torch.testing.assert_close(found, whole[2])
    assert not objective(a, b, backend="rowblock").requires_grad


def test_a_second_backward_computes_again() -> None:
    a, b = batch("random", 20, 4)
    x = a.clone().requires_grad_()
    value = InfoNCE()(x, b, backend="rowblock")
    (first,) = torch.autograd.grad(3 * value, x, retain_graph=True)
    (second,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(first, 3 * second)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(value, x)


@pytest.mark.parametrize("changed", ["anchors", "positives", "negatives"])
@pytest.mark.parametrize("objective", [InfoNCE(), InfoNCE().symmetric()], ids=["one", "both"])
def test_a_second_backward_of_changed_inputs_is_refused(objective: Objective, changed: str) -> None:
    """As by torch: it would be the gradient of another batch."""
    a, b = batch("random", 20, 4)
    given = {"anchors": a.clone().requires_grad_(), "positives": b, "negatives": a[:3].clone()}
    value = objective(**given, groups=torch.arange(20) // 2, backend="rowblock")
    (first,) = torch.autograd.grad(value, given["anchors"], retain_graph=True)
    (second,) = torch.autograd.grad(value, given["anchors"], retain_graph=True)
    assert torch.equal(first, second)
    with torch.no_grad():
        given[changed].neg_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value, given["anchors"])


@pytest.mark.parametrize("name", ["infonce", "ntxent", "miov1", "mixcse", "mixedinfonce"])
def test_a_second_derivative_names_the_eager_backend(name: str) -> None:
    a, b = batch("random", 20, 4)
    x = a.clone().requires_grad_()
    value = registry.build(name)(x, b, backend="rowblock")
    with pytest.raises(NeedsEager, match=r"use backend='eager': .* no second derivatives"):
        torch.autograd.grad(value, x, create_graph=True)


def test_nan_is_not_hidden() -> None:
    a, b = batch("random", 20, 4)
    a, b = a.float(), b.float()
    for broken in (math.nan, 1e30):  # the norm of the latter overflows
        a[3, 1] = broken
        surrogates = [registry.build(name, edit) for name, edit in SURROGATES]
        contrastive = (InfoNCE(), NTXent(), MPT(), MixCSE(), registry.build("mhe"))
        for objective in (*contrastive, *surrogates):
            assert torch.isnan(objective(a, b, backend="rowblock"))


def test_zero_rows_get_no_gradient() -> None:
    for d in (4, 300):
        a, b = batch("random", 20, d)
        a[5] = 0
        surrogates = [registry.build(name, edit) for name, edit in SURROGATES]
        for objective in (InfoNCE(), NTXent(), MixCSE(), MixedInfoNCE(), *surrogates):
            found = derivatives(objective, (a, b), "rowblock")
            assert (found[1][5] == 0).all()
            assert apart(found, derivatives(objective, (a, b), "eager")) < 1e-11


def test_what_compares_no_rows_forms_no_similarities() -> None:
    a, b = batch("random", 300, 5)
    with pytest.raises(Unfused, match="no row is compared"):
        fused(Views(a, b), NegativeCosine().formula, both_directions=False, mean=True)
    for objective in (NegativeCosine(), NegativeCosine().symmetric()):
        with FlopCounterMode(display=False) as counter:
            objective(a.requires_grad_(), b).backward()
        assert counter.get_total_flops() == 0  # of matrix products


def test_low_temperatures_take_a_safe_way() -> None:
    """Two passes share one shift; where it would underflow, row maxima serve."""
    a, b = batch("random", 40, 5)
    objective = NTXent(temperature=0.005)
    with pytest.raises(Unfused, match="neither one pass nor two passes"):
        fused(Views(a, b), objective.formula, both_directions=True, mean=True)
    for given in (objective, InfoNCE(temperature=0.001)):
        single = derivatives(given, (a.float(), b.float()), "rowblock")
        exact = derivatives(given, (a, b), "eager")
        assert apart([x.double() for x in single], exact) < 1e-4


class Bytes(torch.utils._python_dispatch.TorchDispatchMode):
    """The largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.numel() * x.element_size())
        return found


FUSED = ["infonce", "ntxent", "dcl", "dclw", "mpt", "mhe", "alignuniform", "miov1", "mhs"]
FUSED += ["mixcse", "mixedinfonce"]


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in FUSED), *SURROGATES], ids=str
)
@pytest.mark.slow
def test_nothing_grows_with_the_square_of_the_batch(name: str, settings: dict[str, Any]) -> None:
    """4,096 rows: no tensor is larger than two blocks, whole similarities would be 64 MB."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 4096, 16, generator=generator)
    a.requires_grad_()
    with Bytes() as seen:
        registry.build(name, settings)(a, b, backend="rowblock").backward()
    assert seen.largest <= 2 * tiles.TILE_BYTES  # 16 MB a block


def test_questions_are_remembered_unless_a_tensor_may_change() -> None:
    """A temperature that is a tensor counts as it is when the loss is called."""
    plain = InfoNCE(temperature=0.5).formula
    assert record(plain, torch.float64) is record(plain, torch.float64)
    temperature = torch.tensor(0.5, dtype=torch.float64)
    objective, (a, b) = InfoNCE(temperature=temperature), batch("random", 9, 4)
    for value in (0.5, 0.2):
        temperature.fill_(value)
        found = objective(a, b, backend="rowblock")
        torch.testing.assert_close(found, InfoNCE(temperature=value)(a, b, backend="eager"))
