"""What every registered objective must be, with every choice of its settings and every preset.

The checks themselves are ``isotrope.paradigm.proof``. ``--plugin FILE`` adds a file's objectives.
"""

import copy
import dataclasses
import doctest
import gc
import importlib
import inspect
import math
import pickle
import pkgutil
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isotrope.core.errors import InputError, NoPerAnchor, NoTerms
from isotrope.core.hyper import hypers
from isotrope.core.views import Views
from isotrope.kernels import statistics
from isotrope.paradigm import proof, registry
from isotrope.paradigm.objective import INVARIANCES, Objective
from isotrope.paradigm.parts import Dissipation, Ratio, Weight
from isotrope.paradigm.proof import BATCHES, DEGENERATE, DTYPES, EXACT, SHAPES, batch


def spelled(settings: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in settings.items()) or "defaults"


def short_forms(kind: type) -> list[str]:
    """Every part of a kind, with every choice of its settings."""
    forms = []
    for name, cls in kind.by_name.items():
        fields = hypers(cls)
        for at, hyper in enumerate(fields.values()):
            before = [str(getattr(cls, f)) for f in list(fields)[:at]]
            forms += [":".join([name, *before, str(c)]) for c in hyper.choices]
        forms.append(name)
    return forms


NAMES = registry.names()
ALL = [(name, s) for name in NAMES for s in proof.settings(Objective.registered[name])]
PRESETS = [case for case in ALL if "preset" in case[1]]  # the defaults with other numbers
CASES = [case for case in ALL if case not in PRESETS]
FORMS = [
    ("paradigm", {kind.__name__.lower(): form})
    for kind in (Dissipation, Weight, Ratio)
    for form in short_forms(kind)
]
EDITED, EDITED_OTHERWISE = (
    [
        (name, {"dissipation": "margin:0.3"} | edit)
        for name in NAMES
        if name != "paradigm" and Objective.registered[name]().has_terms
        for edit in edits
        if name != "vicreg" or "weight" not in edit  # whose weights cannot be exchanged
    ]
    for edits in ([{"weight": "energy:0.5", "ratio": 1.5}], [{}, {"weight": "softmax:0.05"}])
)


def over(*cases: tuple[str, dict[str, Any]]) -> pytest.MarkDecorator:
    """Over these in every run of the suite, and nightly over presets and part forms too.

    Edited objectives come three times nightly, and else once: with everything edited.
    """
    often = [*PRESETS, *FORMS, *(EDITED_OTHERWISE if EDITED[0] in cases else [])]
    params = [
        pytest.param(*case, id=f"{case[0]}-{spelled(case[1])}", marks=marks)
        for some, marks in ((cases, []), (often, [pytest.mark.nightly]))
        for case in some
        if not (marks and case in cases)
    ]
    return pytest.mark.parametrize(("name", "settings"), params)


def random_views(objective: Objective, n: int, d: int) -> Views:
    a, b = batch("random", n, d)
    return Views(a, b, proof.additional_negatives(objective, a))


def built(name: str, settings: dict[str, Any]) -> Objective:
    objective = registry.build(name, settings)
    if not objective.has_terms:
        pytest.skip("no components off the sphere")
    return objective


@over(*CASES, *FORMS, *EDITED)
def test_double_entry(name: str, settings: dict[str, Any]) -> None:
    """Autograd of the formula equals scale x assembled terms, projected as autograd projects."""
    objective = built(name, settings)
    for kind in BATCHES:
        large = 4 if kind != "random" or name == "paradigm" else 6 if settings else len(SHAPES)
        for shape in SHAPES[:large]:
            error = proof.double_entry(objective, *batch(kind, *shape))
            assert error <= EXACT, (kind, shape)


@pytest.mark.parametrize("kind", BATCHES)
def test_double_entry_of_presets(kind: str) -> None:
    for name, settings in PRESETS:
        objective = registry.build(name, settings)
        error = proof.double_entry(objective, *batch(kind, 8, 3))
        assert error <= EXACT, (name, settings)


@over(*CASES)
def test_the_symmetric_form_keeps_double_entry(name: str, settings: dict[str, Any]) -> None:
    objective = built(name, settings).symmetric()
    for kind in BATCHES:
        a, b = batch(kind, 9, 5)
        assert proof.double_entry(objective, a, b) <= EXACT, kind
        assert proof.change_by(objective, "view swap", a, b) <= EXACT
        one = registry.build(name, settings)
        more = proof.additional_negatives(one, a)
        mean = (one(a, b, more) + one(b, a, more)) / 2
        torch.testing.assert_close(objective(a, b, more), mean)


@over(*CASES, *EDITED)
def test_every_way_to_the_loss_is_the_same(name: str, settings: dict[str, Any]) -> None:
    """What is declared of the anchors decides how value and gradients are computed."""
    objective = registry.build(name, settings)
    parts = [*objective.parts] if objective.has_terms else []
    for form in (objective, objective.symmetric(), *parts):
        assert proof.disagreement(form, *batch("random", 24, 6)) <= EXACT
    if settings == {}:  # more than one block of rows
        assert proof.disagreement(objective, *batch("clustered", 600, 6)) <= EXACT


@over(*CASES, *FORMS)
def test_further_negatives_and_groups_are_known_to_both(
    name: str, settings: dict[str, Any]
) -> None:
    objective = built(name, settings)
    if not objective.has_terms:
        pytest.skip("no components")
    for kind in ("random", "clustered"):
        assert proof.extended_error(objective, *batch(kind, 24, 6)) <= EXACT, kind


@over(*CASES, *FORMS)
def test_the_parts_add_up(name: str, settings: dict[str, Any]) -> None:
    objective = built(name, settings)
    for kind in BATCHES:
        for shape in SHAPES[: 2 if settings else 4]:
            error = proof.parts_error(objective, *batch(kind, *shape))
            assert error <= EXACT, (kind, shape)
    assert not objective.parts.attraction.has_terms


@over(*CASES, *FORMS)
@pytest.mark.nightly
def test_the_parts_add_up_in_larger_batches(name: str, settings: dict[str, Any]) -> None:
    objective = built(name, settings)
    for kind in BATCHES:
        for shape in SHAPES[2:4]:
            error = proof.parts_error(objective, *batch(kind, *shape))
            assert error <= EXACT, (kind, shape)


@over(*CASES)
@pytest.mark.slow
def test_invariances_are_as_declared(name: str, settings: dict[str, Any]) -> None:
    objective = registry.build(name, settings)
    batches = [batch(kind, *shape) for kind in BATCHES for shape in SHAPES[:4]]
    for invariance in INVARIANCES:
        changes = [proof.change_by(objective, invariance, a, b) for a, b in batches]
        if invariance in objective.invariances:
            assert max(changes) <= EXACT, invariance
        else:
            assert max(changes) > EXACT, f"{invariance}: not declared, but nothing changes"


@over(*CASES)
def test_terms_have_the_settled_shapes(name: str, settings: dict[str, Any]) -> None:
    objective = registry.build(name, settings)
    views = random_views(objective, 7, 4)
    if not objective.has_terms:
        with pytest.raises(NoTerms, match="has no gradient components: compute them"):
            objective.terms(views.anchors, views.positives)
        return
    terms = objective.terms(views.anchors, views.positives, views.negatives)
    width = {"cross": 7, "within": 7, "both": 14}[terms.against]
    assert terms.weight.shape == (7, width + (0 if views.negatives is None else 4))
    assert terms.dissipation.shape == (7,)
    assert terms.pull.shape in {(7,), (7, 4)}
    assert (terms.ratio is None) == (terms.pull.ndim == 2)
    for value in (terms.dissipation, terms.weight, terms.pull):
        assert value.dtype == torch.float64
        assert not value.requires_grad
    assert (terms.weight[:, :7].diagonal() == 0).all(), "the anchor's own column is excluded"
    if terms.against == "both":
        assert (terms.weight[:, 7:14].diagonal() == 0).all()


@over(*CASES, *FORMS)
@pytest.mark.slow
def test_finite_on_degenerate_input(name: str, settings: dict[str, Any]) -> None:
    objective = registry.build(name, settings)
    for case in DEGENERATE:
        for dtype in DTYPES:
            found = proof.not_finite(objective, *proof.degenerate(case, dtype))
            assert not found, (case, dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_finite_over_the_declared_ranges(name: str) -> None:
    cls = Objective.registered[name]
    for setting in proof.extremes(cls):
        for case in DEGENERATE:
            # float16 cannot hold such a gradient divided by a norm of 1e-3
            for dtype in DTYPES if case != "tiny norms" else DTYPES[:-1]:
                found = proof.not_finite(cls(**setting), *proof.degenerate(case, dtype))
                assert not found, (setting, case, dtype)


@over(*CASES)
def test_groups_are_never_negatives(name: str, settings: dict[str, Any]) -> None:
    """With all rows in one group nothing pushes: no weight."""
    objective = built(name, settings)
    a, b = batch("random", 5, 4)
    more = proof.additional_negatives(objective, a)
    terms = objective.terms(a, b, more, groups=torch.zeros(5, dtype=torch.long))
    if objective.pairwise:
        assert (terms.weight[:, :5] == 0).all()
    else:  # a statistic of coordinates: it has no negatives to exclude
        torch.testing.assert_close(terms.weight, objective.terms(a, b).weight)


@over(*CASES)
def test_gradient_scales_with_the_inverse_norm(name: str, settings: dict[str, Any]) -> None:
    """The papers' norm effect: the gradient on a raw embedding dies with its norm."""
    objective = registry.build(name, settings)
    if objective.space != "sphere":
        pytest.skip("its embeddings are not normalised by rows")
    views = random_views(objective, 6, 5)
    x = views.anchors.clone().requires_grad_()
    y = (3 * views.anchors).requires_grad_()
    (once,) = torch.autograd.grad(objective(x, views.positives, views.negatives), x)
    (thrice,) = torch.autograd.grad(objective(y, views.positives, views.negatives), y)
    torch.testing.assert_close(thrice, once / 3)


@over(*CASES)
def test_per_anchor_is_what_the_scalar_reduces(name: str, settings: dict[str, Any]) -> None:
    a, b = batch("random", 9, 5)
    objective = registry.build(name, settings)
    if objective.batch_level:
        with pytest.raises(NoPerAnchor, match="one number for the whole batch"):
            objective.per_anchor(a, b)
        return
    more = proof.additional_negatives(objective, a)
    values = objective.per_anchor(a, b, more)
    assert values.shape == (9,)
    reduced = values.sum() if objective.reduction == "sum" else values.mean()
    torch.testing.assert_close(reduced, objective(a, b, more))


# the teacher of DINO gets no gradient
CONSTANT_TARGETS = {"dino"}


@over(*CASES)
def test_the_temperature_may_be_learnt(name: str, settings: dict[str, Any]) -> None:
    """A 0-dim tensor gets its gradient, unless everything but the anchor is constant."""
    objective = registry.build(name, settings)
    if "temperature" not in hypers(type(objective)) or objective.holds == "everything":
        pytest.skip("no temperature in its value")
    views = random_views(objective, 7, 5)

    def value(temperature: float | torch.Tensor) -> torch.Tensor:
        form = dataclasses.replace(objective, temperature=temperature).symmetric()  # type: ignore[call-arg]
        return form(views.anchors, views.positives, views.negatives)

    learnt = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    found = value(learnt)
    (slope,) = torch.autograd.grad(found, learnt)
    torch.testing.assert_close(found.detach(), value(0.3))
    expected = (value(0.3 + 1e-6) - value(0.3 - 1e-6)) / 2e-6
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rows", [7, 600])
@pytest.mark.parametrize("name", registry.names())
def test_a_number_is_learnt_or_refused(name: str, rows: int) -> None:
    """A 0-dim tensor that wants a gradient gets it; where nothing reaches it, it is refused."""
    objective = registry.build(name)
    views = random_views(objective, rows, 5)

    def value(field: str, number: float | torch.Tensor) -> torch.Tensor:
        form = dataclasses.replace(objective, **{field: number})
        return form(views.anchors, views.positives)

    for field, hyper in hypers(type(objective)).items():
        number = getattr(objective, field)
        if hyper.choices or not isinstance(number, int | float):
            continue
        learnt = torch.tensor(float(number), dtype=torch.float64, requires_grad=True)
        if hyper.constant or objective.holds == "everything":
            with pytest.raises(ValueError, match=f"{field} of .* cannot be learnt, because"):
                value(field, learnt)
            continue
        (slope,) = torch.autograd.grad(value(field, learnt), learnt)
        # from below, and forward where that is out of bounds
        step = -1e-6 if hyper.allows(number - 1e-6) else 1e-6
        expected = (value(field, number + step) - value(field, float(number))) / step
        torch.testing.assert_close(slope, expected, rtol=1e-3, atol=1e-4, msg=field)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", registry.names())
def test_batches_with_groups_of_their_own_go_through_vmap(name: str) -> None:
    objective = registry.build(name)
    views = random_views(objective, 12, 4)
    a, p = (x.reshape(2, 6, 4) for x in (views.anchors, views.positives))
    groups = torch.tensor([[0, 0, 1, 2, 3, 4], [0, 1, 2, 2, 2, 3]])

    def value(a: torch.Tensor, p: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        return objective(a, p, groups=groups)

    expected = torch.stack([value(*batch) for batch in zip(a, p, groups, strict=True)])
    torch.testing.assert_close(torch.func.vmap(value)(a, p, groups), expected)


@pytest.mark.parametrize("name", registry.names())
def test_more_positives_than_anchors_are_refused(name: str) -> None:
    """Some objectives would ignore the rest, and others push it away as negatives."""
    objective = registry.build(name)
    a, p = batch("random", 9, 4)
    per_anchor = [] if objective.batch_level else [objective.per_anchor]
    for ask in (objective, objective.terms, *per_anchor):
        with pytest.raises(InputError, match="found 6 anchors and 9 positives"):
            ask(a[:6], p)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in registry.names()),
        ("met", {"weight": "softmax:0.1"}),
        ("infonce", {"weight": "hardest"}),
    ],
)
def test_batches_of_anchors_alone_go_through_vmap(name: str, settings: dict[str, Any]) -> None:
    objective = registry.build(name, settings)
    a, p = batch("random", 6, 4)
    anchors = torch.stack([a, a.flip(0)])
    expected = torch.stack([objective(x, p) for x in anchors])
    # a new one: nothing of it has been computed before
    value = registry.build(name, settings)
    torch.testing.assert_close(torch.func.vmap(lambda x: value(x, p))(anchors), expected)


@pytest.mark.parametrize("name", registry.names())
def test_forward_mode_holds_the_same_constant_as_backward_mode(name: str) -> None:
    """Whole objectives and their parts: first derivatives, and the Hessian of the whole."""
    whole = registry.build(name)
    views = random_views(whole, 5, 3)
    a, p, change = views.anchors, views.positives, views.anchors.flip(0).cos()
    for objective in (whole, *(whole.parts if whole.has_terms else ())):

        def value(x: torch.Tensor, objective: Objective = objective) -> torch.Tensor:
            return objective(x, p, views.negatives)

        _, forward = torch.func.jvp(value, (a,), (change,))
        torch.testing.assert_close(forward, (torch.func.grad(value)(a) * change).sum())
        if objective is whole:
            twice = torch.func.jacrev(torch.func.grad(value))(a)
            torch.testing.assert_close(torch.func.hessian(value)(a), twice)


@over(*CASES)
def test_second_derivatives(name: str, settings: dict[str, Any]) -> None:
    """Of everything that flows, the temperature too."""
    objective = registry.build(name, settings)
    if objective.holds in ("negatives", "everything") or settings.get("weights") == "constant":
        pytest.skip("something is constant")
    a, b = batch("random", 4, 3)
    inputs = {"anchors": a, "positives": b, "negatives": proof.additional_negatives(objective, a)}
    live = [k for k, v in inputs.items() if v is not None]
    live = live[:1] if name in CONSTANT_TARGETS or objective.holds == "mixtures" else live
    if "temperature" in hypers(type(objective)):
        inputs["temperature"] = torch.tensor(0.3, dtype=torch.float64)
        live.append("temperature")

    def value(*given: torch.Tensor) -> torch.Tensor:
        now = inputs | dict(zip(live, given, strict=True))
        tau = {k: now.pop(k) for k in ("temperature",) if k in now}
        return dataclasses.replace(objective, **tau)(**now)  # type: ignore[arg-type]

    leaves = [inputs[k].requires_grad_() for k in live]  # type: ignore[union-attr]
    assert torch.autograd.gradcheck(value, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(value, leaves, fast_mode=True)


@over(*CASES)
def test_nan_is_never_hidden(name: str, settings: dict[str, Any]) -> None:
    objective = registry.build(name, settings)
    for side in range(2):
        views = random_views(objective, 6, 4)
        (views.anchors, views.positives)[side][1, 2] = torch.nan
        views.anchors.requires_grad_()
        value = objective(views.anchors, views.positives, views.negatives)
        assert value.isnan()
        (gradient,) = torch.autograd.grad(value, views.anchors)
        assert gradient.isnan().any()


@over(*CASES)
def test_autocast_rounds_nothing(name: str, settings: dict[str, Any]) -> None:
    objective = registry.build(name, settings)
    views = random_views(objective, 6, 4)
    given = [x if x is None else x.float() for x in (views.anchors, views.positives)]
    more = None if views.negatives is None else views.negatives.float()
    plain = objective(*given, more)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert objective(*given, more) == plain
        if objective.has_terms:
            assert objective.terms(*given, more).weight.dtype == torch.float32
        if not objective.batch_level:
            assert objective.per_anchor(*given, more).dtype == torch.float32


@pytest.mark.parametrize("rows", [6, 200])
@pytest.mark.parametrize("name", registry.names())
def test_a_backward_pass_within_autocast_rounds_nothing(name: str, rows: int) -> None:
    objective = registry.build(name)
    views = random_views(objective, rows, 4).map(Tensor.float)

    def gradient() -> Tensor:
        leaf = views.anchors.clone().requires_grad_()
        objective(leaf * 2, views.positives, views.negatives).backward()
        assert leaf.grad is not None
        return leaf.grad

    plain = gradient()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(gradient(), plain)
        if not objective.batch_level:
            leaf = views.anchors.clone().requires_grad_()
            value = objective.per_anchor(leaf, views.positives, views.negatives).sum()
            (got,) = torch.autograd.grad(value, leaf, retain_graph=True)
    if not objective.batch_level:
        assert torch.equal(got, torch.autograd.grad(value, leaf)[0])


class Made(TorchDispatchMode):
    """Remembers the memory of every tensor of more than one row that an operation made."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.storages = least, list[StorageWeakRef]()

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        result = function(*given, **(named or {}))
        self.storages += [
            StorageWeakRef(x.untyped_storage())
            for x in tree_leaves(result)
            if isinstance(x, Tensor) and x.numel() >= self.least
        ]
        return result


@pytest.mark.parametrize("rows", [12, 200])
@pytest.mark.parametrize("name", registry.names())
def test_a_loss_that_is_kept_keeps_no_batch(name: str, rows: int) -> None:
    """As plain PyTorch's: a list of losses has their values, not their graphs' tensors."""
    objective = registry.build(name)
    views = random_views(objective, rows, 8)
    leaf = views.anchors.requires_grad_()
    with Made(least=8 * rows) as made:
        loss = objective(leaf * 2, views.positives * 2, views.negatives)
        loss.backward()
    leaf.grad = None
    gc.collect()
    assert made.storages
    assert all(x.expired() for x in made.storages)
    assert loss.isfinite()


@pytest.mark.parametrize("rows", [8, 600])
@pytest.mark.parametrize("name", registry.names())
def test_the_first_call_may_be_in_inference_mode(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a validation before the first step of a training, which comes after it."""
    monkeypatch.setattr(statistics, "_REMEMBERED", {})
    plain = registry.build(name)
    views = random_views(plain, rows, 5)
    learnt = [
        dataclasses.replace(plain, **{field: torch.tensor(0.3, dtype=torch.float64)})
        for field in {"temperature"} & {*hypers(type(plain))}
    ]
    for objective in (plain, *learnt):
        with torch.inference_mode():
            found = objective(views.anchors.clone(), views.positives, views.negatives)
        anchors = views.anchors.clone().requires_grad_()
        value = objective(anchors, views.positives, views.negatives)
        torch.testing.assert_close(found.clone(), value.detach())
        value.backward()
        assert anchors.grad is not None


@over(*CASES)
def test_objectives_are_values(name: str, settings: dict[str, Any]) -> None:
    """Equal copies, also of both forms and of an edited one, that say and do the same."""
    one = registry.build(name, settings)
    forms = [one, one.symmetric(), *one.parts]
    edited = one.modify(dissipation="margin:0.3") if one.has_terms else one
    forms += [edited, edited.symmetric()]
    views = random_views(one, 6, 4)
    for form in forms:
        if one.has_terms or form in forms[:2]:
            form(views.anchors, views.positives, views.negatives)  # what is cached may not count
        for twin in (
            copy.deepcopy(form),
            pickle.loads(pickle.dumps(form)),
            dataclasses.replace(form),
        ):
            assert twin == form
            assert hash(twin) == hash(form)
            assert repr(twin) == repr(form)
            assert twin.invariances == form.invariances
            assert twin.holds == form.holds


@pytest.mark.parametrize("name", NAMES)
def test_card_is_complete(name: str) -> None:
    cls = Objective.registered[name]
    text = inspect.getdoc(cls) or ""
    for heading in ("Loss", "Gradient:", "Shapes:", "Reference:", "Example:"):
        assert heading in text, f"{name} lacks {heading!r}"
    declared = hypers(cls)
    if name != "paradigm":
        assert {f.name for f in dataclasses.fields(cls)} == set(declared)  # type: ignore[arg-type]
    for hyper in declared.values():
        assert hyper.symbol or hyper.choices
        assert hyper.help
    for preset in cls.presets.values():
        assert set(preset.values) <= set(declared)
        assert preset.source
    assert cls().invariances <= set(INVARIANCES)
    assert cls.paper.title
    assert cls.paper.reference
    assert cls.paper.equation


def test_doctests_of_the_mathematical_rooms() -> None:
    import isotrope.measures
    import isotrope.paradigm

    tried = 0
    for room in (isotrope.objectives, isotrope.measures, isotrope.paradigm):
        for info in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            result = doctest.testmod(importlib.import_module(info.name))
            assert result.failed == 0, info.name
            tried += result.attempted
    assert tried >= 10


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_enforced(name: str) -> None:
    cls = Objective.registered[name]
    for field, hyper in hypers(cls).items():
        with pytest.raises(ValueError, match=f"{field} of .* must be"):
            cls(**{field: [1]})
        if hyper.choices:
            with pytest.raises(ValueError, match=f"{field} of .* must be one of"):
                cls(**{field: "none of them"})
            continue
        with pytest.raises(ValueError, match=f"{field} of .* must be"):
            cls(**{field: math.nan})
        low = hyper.above if hyper.above is not None else hyper.at_least
        beyond = [] if low is None else [low - 1]  # those of one's own may have none
        beyond += [] if hyper.at_most is None else [math.nextafter(hyper.at_most, math.inf)]
        for value in beyond:
            with pytest.raises(ValueError, match=f"{field} of .* must be .*; found"):
                cls(**{field: value})


def test_presets_fill_in_what_is_not_given() -> None:
    some = [cls for cls in Objective.registered.values() if cls.presets]
    assert some
    for cls in some:
        for name, preset in cls.presets.items():
            objective = cls(preset=name)
            assert preset.values.items() <= objective.hyperparameters().items()
            field = next(iter(preset.values))
            assert getattr(cls(preset=name, **{field: 0.4321}), field) == 0.4321
        with pytest.raises(ValueError, match=f"{cls.__name__} has no preset 'gpt'; known: "):
            cls(preset="gpt")


def test_terms_of_views_with_further_negatives_count_them() -> None:
    a, b = batch("random", 6, 5)
    more = batch("random", 3, 5, seed=1)[0]
    for name, settings in CASES:
        objective = registry.build(name, settings)
        if not (objective.has_terms and objective.takes_negatives):
            continue
        terms = objective.terms(a, b, more)
        assert terms.weight.shape[1] == {"cross": 9, "within": 9, "both": 15}[terms.against]
        # the additional negatives push, or the hardest one is another
        x = a.clone().requires_grad_()
        (found,) = torch.autograd.grad(objective(x, b, more), x)
        views = objective.compare(Views(a, b, more)).views
        from isotrope.paradigm.assemble import assemble, tangent

        expected = tangent(terms.scale * assemble(terms, views), views.anchors)
        norms = a.norm(dim=1, keepdim=True)
        torch.testing.assert_close(found * norms, expected, atol=1e-9, rtol=0, msg=name)
