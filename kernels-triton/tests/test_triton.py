"""The triton backend gives what the whole matrix gives: under Triton's interpreter, or on a GPU.

    TRITON_INTERPRET=1 python -m pytest kernels-triton/tests/test_triton.py  # or: make test-triton

Tiles are small here, so that a small batch needs many.
"""

import functools
import inspect
import math
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("isotrope_triton", reason="isotrope-triton is not installed: make test-triton")
import isotrope_triton
from isotrope_triton.tiles import INTERPRETED

GPU = torch.cuda.is_available() and not INTERPRETED
if not (INTERPRETED or GPU):
    pytest.skip("no GPU, and TRITON_INTERPRET is not set", allow_module_level=True)

from isotrope.core.errors import InputError, NeedsEager
from isotrope.core.views import Views, unit
from isotrope.kernels.choose import pairs
from isotrope.objectives import MPT, InfoNCE, MIOv3, MixCSE, NTXent
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope_triton import fused, passes
from isotrope_triton.operands import Factors, Rows, RowStatistics
from tests.kernels.test_rowblock import (
    COUPLED,
    SURROGATES,
    Bytes,
    apart,
    as_exact_as_autograd,
    derivatives,
)
from tests.paradigm.batches import batch

DEVICE = "cuda" if GPU else "cpu"
TILING = passes.tiling
pytestmark = [
    # NumPy's, where a GPU gives infinity without a word
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]

FUSED = [
    name
    for name in registry.names()
    if name not in ("paradigm", "negativecosine") and registry.build(name).pairwise
]
EXACT = [InfoNCE(), NTXent(), MPT(), MIOv3(), MixCSE(), *map(registry.build, COUPLED)]


def nightly(*sizes: Any) -> list[Any]:
    """Further sizes of what smaller ones show."""
    return [
        pytest.param(*size, marks=pytest.mark.nightly)
        if isinstance(size, tuple)
        else pytest.param(size, marks=pytest.mark.nightly)
        for size in sizes
    ]


def cut(monkeypatch: pytest.MonkeyPatch, rows: int, columns: int) -> None:
    """Choose other tiles, and panels of two of them."""

    def chosen(of: Rows, *, careful: bool) -> passes.Tiling:
        found, width = TILING(of, careful=careful), of.width
        depth = min(64, width)
        return replace(found, rows=rows, columns=columns, slice=depth, depth=depth)

    monkeypatch.setattr(passes, "tiling", chosen)
    monkeypatch.setattr(passes, "PANEL", 2 * rows)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, 16, 32)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """The interpreter lists the whole language for each function that a kernel calls."""
    from triton.runtime import interpreter

    plain = interpreter.inspect
    members = functools.cache(inspect.getmembers)
    interpreter.inspect = types.SimpleNamespace(**(vars(inspect) | {"getmembers": members}))
    yield
    interpreter.inspect = plain


@pytest.fixture(params=["atomic", pytest.param("in order", marks=pytest.mark.nightly)])
def sums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to add gradients up, in float64; a GPU has no atomic ones of that.

    Without this fixture they are added up in order.
    """
    if request.param == "atomic":
        if GPU:
            pytest.skip("no atomic sums of float64")
        monkeypatch.setattr(passes, "_in_order", lambda _: False)
    return request.param


def given(kind: str, n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A batch of float64 where the kernels run."""
    a, b = (x.to(DEVICE) for x in batch(kind, n, d, seed=seed))
    return a, b


def further(count: int, d: int) -> Tensor:
    return given("random", count, d, seed=3)[0]


@pytest.mark.parametrize("name", FUSED)
def test_every_objective_as_from_the_whole_matrix(name: str, sums: str) -> None:
    """Float64, values and every gradient: one direction, then both with groups and negatives."""
    plain = registry.build(name)
    (a, b), groups = given("duplicate rows", 37, 11), torch.arange(37, device=DEVICE) // 2
    more = [further(5, 11)] if plain.takes_negatives else []
    for objective, inputs, kin in (
        (plain, (a, b), None),
        (plain.symmetric(), (a, b, *more), groups),
    ):
        whole, found = (
            derivatives(objective, inputs, backend, groups=kin) for backend in ("eager", "triton")
        )
        assert apart(found, whole) < 1e-11


@pytest.mark.parametrize(("name", "settings"), SURROGATES, ids=str)
def test_what_only_anchors_move(name: str, settings: dict[str, Any]) -> None:
    """The objectives out of components, modified ones among them, both directions at once."""
    objective = registry.build(name, settings)
    (a, b), groups = given("random", 35, 9), torch.arange(35, device=DEVICE) // 3
    more = [further(4, 9)] if objective.takes_negatives and objective.pairwise else []
    whole, found = (
        derivatives(objective, (a, b, *more), backend, groups=groups)
        for backend in ("eager", "triton")
    )
    assert apart(found, whole) < 1e-11


@pytest.mark.parametrize("objective", [InfoNCE(), NTXent(), MPT(), MIOv3()], ids=str)
@pytest.mark.parametrize(("n", "d"), [(2, 3), (7, 130), (33, 48), *nightly((65, 16), (65, 130))])
def test_any_number_of_rows_and_any_width(objective: Objective, n: int, d: int) -> None:
    a, b = given("random", n, d)
    whole, found = (derivatives(objective, (a, b), name) for name in ("eager", "triton"))
    assert apart(found, whole) < 1e-11


@pytest.mark.parametrize("objective", EXACT, ids=str)
@pytest.mark.parametrize(("n", "d", "seeds"), [(7, 48, 8), (33, 16, 4), *nightly((65, 130, 2))])
def test_float32_is_as_exact_as_autograd(objective: Objective, n: int, d: int, seeds: int) -> None:
    """The bound of the row blocks: 1.5 times eager's error against float64, and one ulp."""
    as_exact_as_autograd(objective, n, d, seeds=seeds, backend="triton", device=DEVICE)


def _heavier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors a hundred thousandth too large."""
    plain = RowStatistics.factors

    def factors(*given: Any, **named: Any) -> Factors:
        right = plain(*given, **named)
        return right._replace(factor=right.factor * (1 + 1e-5))

    monkeypatch.setattr(RowStatistics, "factors", factors)


def _next_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each row the wrong column is left out."""
    plain = passes._arguments
    monkeypatch.setattr(
        passes, "_arguments", lambda *x: (found := plain(*x)) | {"offset": found["offset"] + 1}
    )


def _rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tiles do to their columns is lost."""
    plain = fused.spread
    monkeypatch.setattr(fused, "spread", lambda *given: plain(*given[:-1], None))


@pytest.mark.parametrize("breaks", [_heavier, _next_to_it, _rows_only])
def test_what_is_broken_is_seen(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of float64 and of float32 are there to fail."""
    breaks(monkeypatch)
    (a, b), objective = given("random", 33, 16), InfoNCE()
    whole, found = (derivatives(objective, (a, b), name) for name in ("eager", "triton"))
    assert apart(found, whole) > 1e-8
    with pytest.raises(AssertionError):
        as_exact_as_autograd(objective, 33, 16, seeds=4, backend="triton", device=DEVICE)


@pytest.mark.parametrize("name", ["modifiedmhe", "modifiedmhs", "simclrgrad"])
@pytest.mark.parametrize(("n", "d", "seeds"), [(7, 3, 16), *nightly((33, 16, 4))])
def test_surrogates_are_as_exact_in_float32(name: str, n: int, d: int, seeds: int) -> None:
    objective = registry.build(name)
    as_exact_as_autograd(objective, n, d, seeds=seeds, backend="triton", device=DEVICE)


def test_one_row_against_further_negatives() -> None:
    (a, b), more = given("random", 1, 16), further(3, 16)
    for objective in (InfoNCE(), InfoNCE(in_batch=False), MPT()):
        whole, found = (
            derivatives(objective, (a, b, more), backend) for backend in ("eager", "triton")
        )
        assert apart(found, whole) < 1e-12


def test_no_column_at_all() -> None:
    """Everything is of one group: nothing pushes, nothing is NaN."""
    (a, b), groups = given("random", 20, 5), torch.zeros(20, device=DEVICE, dtype=torch.long)
    for objective in (InfoNCE(), NTXent(), InfoNCE(temperature=0.005), MIOv3()):
        whole, found = (
            derivatives(objective, (a, b), backend, groups=groups)
            for backend in ("eager", "triton")
        )
        assert all(torch.isfinite(x).all() for x in whole)
        assert apart(found, whole) < 1e-11


@pytest.mark.parametrize("name", ["infonce", "mpt", "mixcse", *COUPLED])
def test_gathered_keys(name: str, sums: str) -> None:
    """The anchors of one process against the keys of all."""
    (a, b), objective = given("random", 50, 6), registry.build(name)
    whole, found = (
        torch.autograd.grad(objective.loss(Views(x, y, offset=7), backend=backend), (x, y))
        for backend in ("eager", "triton")
        for x, y in [(a[:35].clone().requires_grad_(), b.clone().requires_grad_())]
    )
    assert apart(list(found), list(whole)) < 1e-12


@pytest.mark.parametrize("temperature", [0.02, 0.002])
@pytest.mark.parametrize("objective", [InfoNCE, NTXent], ids=lambda cls: cls.__name__)
def test_low_temperatures_have_a_maximum_for_each_row(
    objective: type[Objective], temperature: float, sums: str
) -> None:
    (a, b), more = given("clustered", 40, 5), further(5, 5)
    loss = objective(temperature=temperature).symmetric()  # type: ignore[call-arg]
    whole, found = (derivatives(loss, (a, b, more), name) for name in ("eager", "triton"))
    assert apart(found, whole) < 1e-11
    single = derivatives(loss, (a.float(), b.float(), more.float()), "triton")
    assert apart([x.double() for x in single], whole) < 1e-4


@pytest.mark.parametrize("name", ["infonce", "ntxent", "arccon", "miov3", "mixcse"])
@pytest.mark.parametrize("both", [False, True])
def test_a_learnt_temperature_gets_its_gradient(name: str, both: bool, sums: str) -> None:
    (a, b), more = given("clustered", 36, 6), further(5, 6)
    inputs, found = (a, b, more) if registry.build(name).takes_negatives else (a, b), []
    for backend in ("eager", "triton"):
        temperature = torch.tensor(0.11, dtype=torch.float64, requires_grad=True, device=DEVICE)
        objective = registry.find(name)(temperature=temperature)  # type: ignore[call-arg]
        value = (objective.symmetric() if both else objective)(*inputs, backend=backend)
        found.append(torch.autograd.grad(value, temperature)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("against", ["cross", "within", "both"])
@pytest.mark.parametrize("statistic", ["logsumexp", "softplus", "hardest"])
def test_statistics_one_by_one_and_their_gradients(statistic: str, against: str) -> None:
    (a, b), more, n = given("clustered", 37, 5), further(6, 5), 37
    found: list[list[Tensor]] = []
    for backend in ("eager", "triton"):
        x, y, z = (unit(v).clone().requires_grad_() for v in (a, b, more))
        tau = torch.tensor(0.02, dtype=torch.float64, requires_grad=True, device=DEVICE)
        seen = pairs(Views(x, y, z), backend)
        for direction in (seen, seen.swapped()):
            asked = getattr(direction, statistic)
            value = asked(against) if statistic == "hardest" else asked(tau, against)
            some = torch.linspace(0.5, 1.5, n, dtype=torch.float64, device=DEVICE)
            wanted = [x, y, z] + [tau] * (statistic != "hardest")
            gradients = torch.autograd.grad((value * some).sum(), wanted, allow_unused=True)
            zeros = [
                torch.zeros_like(w) if g is None else g
                for g, w in zip(gradients, wanted, strict=True)
            ]
            found.append([value.detach(), *zeros])
    assert apart(found[2], found[0]) < 1e-11
    assert apart(found[3], found[1]) < 1e-11


def test_counts_and_nearest() -> None:
    a, b = (unit(x) for x in given("random", 35, 4))
    for groups in (None, torch.arange(35, device=DEVICE) // 3):
        views = Views(a, b, unit(further(3, 4)), groups=groups)
        for against in ("cross", "within", "both"):
            whole, tiles = pairs(views, "eager"), pairs(views, "triton")
            assert torch.equal(whole.count(against), tiles.count(against))
            assert torch.equal(whole.nearest(3, against), tiles.nearest(3, against))
    few = Views(a[:3], b[:3])
    assert torch.equal(pairs(few, "eager").nearest(9), pairs(few, "triton").nearest(9))


@pytest.mark.parametrize("objective", [InfoNCE(), InfoNCE().symmetric(), NTXent(), MPT()], ids=str)
@pytest.mark.parametrize("d", [16, *nightly(130)])
def test_bfloat16_goes_in_as_it_is(objective: Objective, d: int) -> None:
    """Similarities of bfloat16 numbers are exact, and so is the value; weights are rounded."""
    a, b = (x.bfloat16() for x in given("random", 65, d))
    exact = derivatives(objective, (a.double(), b.double()), "eager")
    found = derivatives(objective, (a, b), "triton")
    assert found[0].dtype == torch.float32
    assert all(x.dtype == torch.bfloat16 for x in found[1:])
    torch.testing.assert_close(found[0].double(), exact[0], rtol=3e-6, atol=3e-6)
    for truth, ours in zip(exact[1:], found[1:], strict=True):
        assert (ours.double() - truth).norm() <= 2**-8 * truth.norm()


def test_bfloat16_beside_the_same_formula_in_torch() -> None:
    a, b = (x.bfloat16() for x in given("random", 65, 48))

    def plain(x: Tensor, y: Tensor) -> Tensor:
        s = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T
        return F.cross_entropy(s / 0.05, torch.arange(len(x), device=x.device))

    leaves = [x.clone().requires_grad_() for x in (a, b)]
    value = plain(*leaves)
    theirs = [value.detach(), *torch.autograd.grad(value, leaves)]
    exact = derivatives(InfoNCE(), (a.double(), b.double()), "eager")
    ours = derivatives(InfoNCE(), (a, b), "triton")
    for truth, x, y in zip(exact, theirs, ours, strict=True):
        assert (y.double() - truth).norm() < 0.5 * (x.double() - truth).norm()


@pytest.mark.parametrize("name", ["modifiedmhe", "modifiedmhs", "simclrgrad"])
def test_surrogates_of_bfloat16(name: str) -> None:
    a, b = (x.bfloat16() for x in given("random", 40, 48))
    objective = registry.build(name)
    exact = derivatives(objective, (a.double(), b.double()), "eager")
    for truth, ours in zip(exact[1:], derivatives(objective, (a, b), "triton")[1:], strict=True):
        assert (ours.double() - truth).norm() <= 2**-7 * truth.norm()


@pytest.mark.parametrize("length", [1e-30, 1e-15, 1e15, 1e18])
def test_lengths_far_from_one(length: float) -> None:
    """Norms are taken off before anything is multiplied; a dead row stays dead."""
    (a, b), objective = (x.float() for x in given("random", 20, 6)), InfoNCE()
    a[3:9] *= length
    whole, found = (derivatives(objective, (a, b), name) for name in ("eager", "triton"))
    torch.testing.assert_close(found[0], whole[0])
    for ours, theirs in zip(found[1:], whole[1:], strict=True):
        size = theirs.norm(dim=1, keepdim=True).clamp_min(1e-30)
        torch.testing.assert_close(ours / size, theirs / size, rtol=0, atol=1e-5)


def test_zero_rows_get_no_gradient() -> None:
    a, b = given("random", 20, 4)
    a[5] = 0
    for objective in (InfoNCE(), NTXent(), MixCSE(), registry.build("modifiedmhe")):
        found = derivatives(objective, (a, b), "triton")
        assert (found[1][5] == 0).all()
        assert apart(found, derivatives(objective, (a, b), "eager")) < 1e-11


def test_nan_is_not_hidden() -> None:
    for broken in (math.nan, 1e30):  # the norm of the latter overflows
        a, b = (x.float() for x in given("random", 20, 4))
        a[3, 1] = broken
        for objective in (
            *(InfoNCE(), InfoNCE(temperature=0.005), NTXent(), MPT(), MIOv3(), MixCSE()),
            *(registry.build("mhe"), registry.build("modifiedmhe"), registry.build("modifiedmhs")),
        ):
            assert torch.isnan(objective(a, b, backend="triton")), objective
    a, b = (x.float() for x in given("random", 20, 4))
    more = further(3, 4).float()
    more[1, 1] = math.nan
    for objective in (InfoNCE(), MPT()):
        assert torch.isnan(objective(a, b, more, backend="triton"))


@pytest.mark.parametrize("name", ["infonce", "ntxent", "mpt", "mixcse", "modifiedmhe"])
def test_only_the_gradients_that_are_wanted(name: str, sums: str) -> None:
    objective, (a, b) = registry.build(name), given("random", 20, 4)
    whole = derivatives(objective, (a, b), "eager")
    for place in (0, 1):
        inputs = [a, b]
        inputs[place] = inputs[place].clone().requires_grad_()
        value = objective(*inputs, backend="triton")
        (found,) = torch.autograd.grad(value, inputs[place])
        torch.testing.assert_close(found, whole[1 + place])
    assert not objective(a, b, backend="triton").requires_grad


def test_a_second_backward_computes_again() -> None:
    a, b = given("random", 20, 4)
    x = a.clone().requires_grad_()
    value = InfoNCE()(x, b, backend="triton")
    (first,) = torch.autograd.grad(3 * value, x, retain_graph=True)
    (second,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(first, 3 * second)


def test_no_second_derivatives() -> None:
    a, b = given("random", 9, 4)
    x = a.clone().requires_grad_()
    seen = pairs(Views(unit(x), unit(b)), "triton")
    for value in (InfoNCE()(x, b, backend="triton"), seen.logsumexp(0.1).sum()):
        with pytest.raises(NeedsEager, match=r"backend='eager': the triton backend has no second"):
            torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(NeedsEager, match=r"the triton backend does not support torch\.func"):
        torch.func.grad(InfoNCE())(a, b, backend="triton")


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Floating-point operations of the products of all tiles so far."""
    from triton.runtime import interpreter

    builder, found = interpreter.interpreter_builder, [0]
    plain = builder.create_dot

    def counting(a: Any, b: Any, *rest: Any) -> Any:
        (m, k), n = a.data.shape, b.data.shape[1]
        found[0] += 2 * m * n * k
        return plain(a, b, *rest)

    monkeypatch.setattr(builder, "create_dot", counting)
    return found


@pytest.mark.skipif(GPU, reason="products are counted by the interpreter")
@pytest.mark.parametrize(
    ("name", "both", "matrices"),
    [
        *(("infonce", both, 4) for both in (False, True)),  # 8 n^2 d
        *(("dclw", False, 4), ("alignuniform", False, 4)),
        *(("mpt", both, 1) for both in (False, True)),  # the hardest are found, no more
        *((name, False, 8) for name in ("ntxent", "miov3")),  # 16 n^2 d are 4 M^2 d, M = 2n
        ("mhe", False, 2),  # inside one view
        ("modifiedmhe", False, 5),  # inside both, and the hardest across
        ("simclrgrad", False, 8),
    ],
)
def test_how_often_tiles_are_formed_and_multiplied(
    name: str, both: bool, matrices: float, multiplied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    n, d = 512, 16
    cut(monkeypatch, 64, 64)
    a, b = (x.float().requires_grad_() for x in given("random", n, d))
    objective = registry.build(name)
    (objective.symmetric() if both else objective)(a, b, backend="triton").backward()
    found = multiplied[0] / (2 * n * n * d)
    assert matrices <= found + 0.01
    assert found <= 1.15 * matrices  # of a triangle, the tiles on the diagonal are whole


@pytest.mark.skipif(GPU, reason="products are counted by the interpreter")
def test_what_is_not_wanted_is_not_multiplied(multiplied: list[int]) -> None:
    """MoCo: only the anchors move; and a loss that is looked at is summed, no more."""
    n, d, m = 64, 16, 128
    (a, b), more = (x.float() for x in given("random", n, d)), further(m, d).float()
    objective = InfoNCE(in_batch=False)
    objective(a.requires_grad_(), b, more, backend="triton")
    assert multiplied[0] == 3 * 2 * n * m * d
    with torch.no_grad():
        objective(a, b, more, backend="triton")
    assert multiplied[0] == 4 * 2 * n * m * d


def test_nothing_grows_with_the_square_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,024 rows: no tensor is larger than the copies of the views; similarities were 4 MB."""
    cut(monkeypatch, 128, 128)
    a, b = (x.float().requires_grad_() for x in given("random", 1024, 8))
    for objective in (InfoNCE(), NTXent(), MPT(), registry.build("modifiedmhe")):
        with Bytes() as seen:
            objective(a, b, backend="triton").backward()
        assert seen.largest <= 4 * 1024 * 16


def test_embeddings_that_the_kernels_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(is_cuda=True, device=torch.device("cuda"))
    monkeypatch.setattr(isotrope_triton, "INTERPRETED", False)
    with pytest.raises(InputError, match=r"GPU; found embeddings on cpu: .*TRITON_INTERPRET"):
        InfoNCE()(torch.eye(2), torch.eye(2), backend="triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    refusal = str(isotrope_triton.refusal(there))
    assert refusal.endswith("8.0 (Ampere) or more; found 7.5: use backend='rowblock'")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert isotrope_triton.refusal(there) is None
