"""The proof of objectives finds the mistakes that one makes when writing them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isotrope.core.errors import WrongCoupling
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import (
    DCLW,
    MAT,
    MET,
    MHE,
    MPT,
    ArcCon,
    BarlowTwins,
    DCLPlus,
    InfoNCE,
    MIOv1,
    NTXent,
    VICReg,
)
from isotrope.paradigm import objective_check
from isotrope.paradigm.objective import INVARIANCES, Objective
from isotrope.paradigm.objective_check import Check, prove
from isotrope.paradigm.proof import (
    BATCHES,
    EXACT,
    batch,
    disagreement,
    double_entry,
    extended_error,
    numbers,
    settings,
)

Edit = Callable[[Any, Pairs, Terms], Terms]

SHAPES = [(2, 2), (3, 5), (33, 16)]


def written(parent: type[Objective], **body: object) -> type[Objective]:
    """The objective with some of its class exchanged, outside the registry."""
    return type("Mistaken", (parent,), {"presets": {}, **body}, register=False)  # type: ignore[call-overload,no-any-return]


def mistaken(parent: type[Objective], edit: Edit) -> type[Objective]:
    """The objective with its components falsified."""

    def components(self: Objective, pairs: Pairs) -> Terms:
        return edit(self, pairs, parent.components(self, pairs))

    return written(parent, components=components)


def with_its_own_column(_: Objective, pairs: Pairs, terms: Terms) -> Terms:
    return replace(terms, weight=(pairs.similarity() / 0.05).softmax(dim=1) / 0.05)


def of_the_other_moment(objective: BarlowTwins, pairs: Pairs, terms: Terms) -> Terms:
    """With h_i.h'_j in place of h'_i.h'_j."""
    n, views = len(pairs.views.anchors), pairs.views
    weight = 2 * objective.weight / n**2 * (views.anchors @ views.own.T)
    return replace(terms, weight=weight.fill_diagonal_(0))


MISTAKES: dict[str, tuple[type[Objective], Edit]] = {
    "wrong sign": (InfoNCE, lambda o, p, t: replace(t, pull=-t.pull)),
    "twice": (InfoNCE, lambda o, p, t: replace(t, weight=2 * t.weight, pull=2 * t.pull)),
    "no 1/tau": (
        InfoNCE,
        lambda o, p, t: replace(t, weight=t.weight * o.temperature, pull=t.pull * o.temperature),
    ),
    "never dissipates": (
        InfoNCE,
        lambda o, p, t: replace(t, dissipation=torch.ones_like(t.dissipation)),
    ),
    "no 1/n": (InfoNCE, lambda o, p, t: replace(t, scale=1.0)),
    "the positive pushes": (InfoNCE, with_its_own_column),
    "margin the wrong way": (MPT, lambda o, p, t: replace(t, dissipation=1 - t.dissipation)),
    "no ratio": (MET, lambda o, p, t: replace(t, pull=t.mass)),
    "a pull inside the clamp": (
        MAT,
        lambda o, p, t: replace(t, pull=(1 - p.positive.square()).clamp_min(1e-12).rsqrt()),
    ),
    "static ratio": (ArcCon, lambda o, p, t: replace(t, pull=t.mass)),
    "weights held constant": (
        DCLW,
        lambda o, p, t: replace(t, pull=o.positive_weights(p) / o.temperature),
    ),
    "no residual": (NTXent, lambda o, p, t: replace(t, residual=None)),
    "no residual of its own": (MIOv1, lambda o, p, t: replace(t, residual=None)),
    "unordered pairs": (MHE, lambda o, p, t: replace(t, weight=t.weight / 2)),
    "the other moment": (BarlowTwins, of_the_other_moment),
    "no hinge": (VICReg, lambda o, p, t: replace(t, extra=None)),
    "a millionth of W": (VICReg, lambda o, p, t: replace(t, weight=t.weight * (1 + 1e-6))),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str) -> None:
    cls = mistaken(*MISTAKES[name])
    errors = [double_entry(cls(), *batch(kind, *shape)) for kind in BATCHES for shape in SHAPES]
    assert not all(error <= EXACT for error in errors)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the last two checks, which take the longest and are not what fails."""
    for name in ("_coupled", "_finite"):
        passed = Check(name, 1, "not tried", passed=True)
        monkeypatch.setattr(objective_check, name, lambda _, passed=passed: passed)


FIRST = "formula = components (autograd, float64)"
NUMBERS = "the same, with other numbers"
MORE = "the same, more negatives and groups"
PARTS = "attraction + repulsion = whole"


def proved(cls: type[Objective]) -> dict[str, Check]:
    return {check.name: check for check in prove(cls, SHAPES)}


def failed(lines: dict[str, Check]) -> set[str]:
    return {name for name, line in lines.items() if not line.passed}


@pytest.mark.usefixtures("briefly")
def test_mistakes_fail_the_first_check() -> None:
    first, *_ = prove(mistaken(*MISTAKES["a millionth of W"]), SHAPES)
    assert not first.passed
    assert first.name.startswith("formula = components")


@pytest.mark.slow
def test_a_small_loss_is_held_to_the_same() -> None:
    """Errors are relative: what is tiny can be wrong too."""

    def tiny(self: InfoNCE, pairs: Pairs) -> Tensor:
        return 1e-12 * InfoNCE.formula(self, pairs)

    def right(self: InfoNCE, pairs: Pairs) -> Terms:
        terms = InfoNCE.components(self, pairs)
        return replace(terms, scale=1e-12 * terms.scale)

    def wrong(self: InfoNCE, pairs: Pairs) -> Terms:
        terms = right(self, pairs)
        return replace(terms, pull=terms.pull * (1 + 1e-6))

    pair = {"attraction": Objective.attraction, "repulsion": Objective.repulsion}
    assert next(prove(written(InfoNCE, formula=tiny, components=right, **pair), SHAPES)).passed
    assert not next(prove(written(InfoNCE, formula=tiny, components=wrong, **pair), SHAPES)).passed


@pytest.mark.usefixtures("briefly")
def test_nan_fails_wherever_it_comes() -> None:
    def in_large_batches(_: Objective, pairs: Pairs, terms: Terms) -> Terms:
        return replace(terms, pull=terms.pull * (math.nan if len(terms.pull) > 6 else 1))

    first, *_ = prove(mistaken(InfoNCE, in_large_batches), SHAPES)
    assert not first.passed
    assert first.worst == "nan"


@pytest.mark.usefixtures("briefly")
def test_parts_that_do_not_add_up_are_found() -> None:
    def half(self: InfoNCE, pairs: Pairs) -> Tensor:
        return InfoNCE.attraction(self, pairs) / 2

    lines = proved(written(InfoNCE, attraction=half))
    assert failed(lines) == {PARTS}
    assert lines[PARTS].means.startswith("define attraction and repulsion")


@pytest.mark.usefixtures("briefly")
def test_default_parts_that_do_not_add_up_have_a_hint() -> None:
    plain = {"attraction": Objective.attraction, "repulsion": Objective.repulsion}

    def hint(edit: Edit) -> str:
        return proved(written(mistaken(InfoNCE, edit), **plain))[PARTS].means

    assert hint(MISTAKES["no 1/tau"][1]).startswith("correct the components first")
    moved = hint(lambda o, p, t: replace(MISTAKES["no 1/tau"][1](o, p, t), scale=20 * t.scale))
    assert moved.startswith("move the factor 20 from scale into weight and pull")
    unscaled = hint(
        lambda o, p, t: replace(t, scale=1.0, weight=t.scale * t.weight, pull=t.scale * t.pull)
    )
    assert unscaled.startswith("move the factor 1 / (number of rows) from weight and pull into")


@pytest.mark.usefixtures("briefly")
def test_what_a_formula_raises_is_a_line_with_its_place() -> None:
    def at_least_three(self: InfoNCE, pairs: Pairs) -> Tensor:
        if len(pairs.positive) < 3:
            raise ValueError("at least three rows")
        return InfoNCE.formula(self, pairs)

    lines = proved(written(InfoNCE, formula=at_least_three))
    assert failed(lines) == {FIRST, PARTS, *(f"invariance: {name}" for name in INVARIANCES)}
    for name in failed(lines):  # the others have no batch of two
        assert (lines[name].tried, lines[name].passed) == (0, False)
        assert lines[name].worst == "ValueError: at least three rows"
        assert lines[name].means.startswith("raised in test_proof.py, line")


@pytest.mark.usefixtures("briefly")
def test_a_constant_that_is_not_declared_fails_in_the_symmetric_form_only() -> None:
    def one_sided(self: DCLPlus, pairs: Pairs) -> Tensor:
        logits = pairs.views.anchors @ pairs.views.positives.detach().T / self.temperature
        negatives = logits.where(pairs.negative(), -math.inf)
        return (negatives.logsumexp(dim=1) - logits.diagonal()).relu()

    first, *_ = prove(written(DCLPlus, formula=one_sided), SHAPES)
    assert not first.passed
    assert first.means.startswith("declare in `holds`")
    assert "form is wrong; 12 of 30 cases failed" in first.means
    assert "cases failed, first Symmetric(objective=Mistaken(" in first.means
    everywhere, *_ = prove(mistaken(*MISTAKES["twice"]), SHAPES)
    assert everywhere.means.startswith("52 of 60 cases failed, first Mistaken("), everywhere
    assert everywhere.mistakes[0].startswith("Mistaken(")


@pytest.mark.usefixtures("briefly")
def test_a_sum_that_is_declared_a_mean_fails_in_its_parts() -> None:
    def total(self: InfoNCE, pairs: Pairs) -> Tensor:
        return InfoNCE.formula(self, pairs).sum()

    def components(self: InfoNCE, pairs: Pairs) -> Terms:
        return replace(InfoNCE.components(self, pairs), scale=1.0)

    plain = {"attraction": Objective.attraction, "repulsion": Objective.repulsion}
    body = {"formula": total, "components": components, "batch_level": True, **plain}
    assert failed(proved(written(InfoNCE, **body, reduction="sum"))) == set()
    assert failed(proved(written(InfoNCE, **body, reduction="mean"))) == {PARTS}


def at(number: str, value: float, **others: float) -> Edit:
    """The components with another number in place of the setting."""

    def edit(self: Any, pairs: Pairs, terms: Terms) -> Terms:
        form = type(self).__bases__[0](**{**self.hyperparameters(), number: value, **others})
        return form.components(pairs)  # type: ignore[no-any-return]

    return edit


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    ("parent", "edit"),
    [
        (InfoNCE, at("temperature", 0.05)),
        (ArcCon, at("margin", ArcCon().margin)),
        (MPT, at("margin", MPT().margin)),
        (MHE, at("weight", 1.0)),
    ],
)
def test_components_that_are_right_at_the_default_only_are_found(parent: Any, edit: Edit) -> None:
    lines = proved(written(mistaken(parent, edit)))
    assert lines[FIRST].passed
    assert NUMBERS in failed(lines)
    assert lines[NUMBERS].mistakes


@pytest.mark.usefixtures("briefly")
def test_a_number_that_changes_nothing_is_found() -> None:
    def formula(self: InfoNCE, pairs: Pairs) -> Tensor:
        return InfoNCE(temperature=0.05).formula(pairs)

    def components(self: InfoNCE, pairs: Pairs) -> Terms:
        return InfoNCE(temperature=0.05).components(pairs)

    plain = {"attraction": Objective.attraction, "repulsion": Objective.repulsion}
    lines = proved(written(InfoNCE, formula=formula, components=components, **plain))
    assert failed(lines) == {"each number changes the loss"}
    assert lines["each number changes the loss"].worst == "not temperature"


def of_the_whole_row(o: Any, pairs: Pairs, terms: Terms) -> Terms:
    """The positive in W, and its pull 1/tau: only the sum of both is right."""
    weight = (pairs.similarity() / o.temperature).masked_fill(
        ~pairs.negative() & ~torch.eye(*pairs.negative().shape, dtype=torch.bool), -torch.inf
    )
    weight = weight.softmax(dim=1) / o.temperature
    one = torch.ones_like(terms.pull)
    return replace(terms, dissipation=one, weight=weight, pull=one / o.temperature)


def moved_into_weight(_: Any, pairs: Pairs, terms: Terms) -> Terms:
    gd = terms.dissipation
    return replace(
        terms,
        dissipation=torch.ones_like(gd),
        weight=terms.weight * gd[:, None],
        pull=terms.pull * gd,
    )


def moved_into_dissipation(factor: float) -> Edit:
    return lambda o, p, t: replace(
        t,
        dissipation=t.dissipation * factor,
        weight=t.weight / factor,
        pull=t.pull / factor,
    )


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    ("edit", "line", "says"),
    [
        (of_the_whole_row, "W is 0 outside the negatives", "set these weights to 0"),
        (moved_into_weight, "GD has all that weight and pull share", "move the factor"),
        (moved_into_dissipation(20), "GD is from 0 to 1", "divide GD by its upper bound"),
        (moved_into_dissipation(-1), "GD is from 0 to 1", "change the sign of GD"),
    ],
)
def test_parts_whose_product_alone_is_right_are_found(edit: Edit, line: str, says: str) -> None:
    lines = proved(mistaken(InfoNCE, edit))
    assert lines[FIRST].passed
    assert line in failed(lines)
    assert lines[line].means.startswith(says)


@pytest.mark.slow
@pytest.mark.parametrize("name", Objective.registered)
def test_parts_of_built_in_objectives_mean_what_the_papers_define(name: str) -> None:
    cls = Objective.registered[name]
    cases = [cls(**setting) for setting in [*settings(cls), *numbers(cls)]]
    cases = [case for case in cases if case.has_terms]
    assert all(check.passed for check in objective_check._roles(cases))
    assert objective_check._used(cls).passed


def in_the_batch(self: InfoNCE, pairs: Pairs) -> Tensor:
    """InfoNCE that knows no additional negatives and no groups."""
    logits = pairs.views.anchors @ pairs.views.positives.T / self.temperature
    return logits.logsumexp(dim=1) - logits.diagonal()


def in_the_batch_only(self: InfoNCE, pairs: Pairs) -> Terms:
    views = pairs.views
    terms = InfoNCE.components(self, pairs.of(Views(views.anchors, views.positives)))
    more = 0 if views.negatives is None else len(views.negatives)
    return replace(terms, weight=torch.nn.functional.pad(terms.weight, (0, more)))


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ({"formula": in_the_batch}, False),
        ({"formula": in_the_batch, "components": in_the_batch_only}, False),
        ({"formula": in_the_batch, "takes_negatives": False}, False),
        ({"formula": in_the_batch, "takes_negatives": False, "pairwise": False}, True),
    ],
)
def test_negatives_and_groups_that_are_left_out_are_found(
    body: dict[str, object], known: bool
) -> None:
    objective = written(InfoNCE, **body)()
    assert double_entry(objective, *batch("random", 24, 6)) <= EXACT
    assert (extended_error(objective, *batch("random", 24, 6)) <= EXACT) is known


@pytest.mark.usefixtures("briefly")
def test_components_that_leave_groups_out_are_found() -> None:
    def components(self: InfoNCE, pairs: Pairs) -> Terms:
        views = replace(pairs.views, groups=None)
        return InfoNCE.components(self, pairs.of(views))

    lines = proved(written(InfoNCE, components=components))
    assert lines[FIRST].passed
    assert MORE in failed(lines)
    assert "the components are the same with groups and without" in lines[MORE].means
    assert "additional negatives and without" not in lines[MORE].means


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    ("invariances", "found"),
    [
        ({"rotation", "permutation", "scale", "view swap"}, None),
        ({"rotation", "permutation"}, "not declared, but the loss stays the same"),
    ],
)
def test_false_declarations_are_found(invariances: set[str], found: str | None) -> None:
    false = [
        check
        for check in prove(written(MPT, invariances=frozenset(invariances)), SHAPES)
        if not check.passed
    ]
    assert [check.name for check in false] == [f"invariance: {'scale' if found else 'view swap'}"]
    assert false[0].worst == found if found else float(false[0].worst) > EXACT


@pytest.mark.parametrize(
    ("parent", "declared", "found"),
    [
        (NTXent, "none", "its formula compares the anchors with each other"),
        (MHE, "none", "its formula returns one number for the batch"),
        (DCLW, "none", "the loss of an anchor changes with other anchors"),
        (InfoNCE, "linear", "its value is not linear in the sums over the negatives"),
        (InfoNCE, "total", "its value is not a function of the sum of all exponentials"),
        (DCLW, "linear", "its value is not linear in the sums over the negatives"),
    ],
)
def test_anchors_that_are_coupled_otherwise_than_declared(
    parent: type[Objective], declared: str, found: str
) -> None:
    objective = written(parent, coupling=declared)()
    with pytest.raises(WrongCoupling, match=found):
        [
            disagreement(form, *batch("random", 600, 6))
            for form in (objective, objective.symmetric())
        ]


def test_the_proof_names_what_is_declared_wrongly() -> None:
    checks = list(prove(written(InfoNCE, coupling="linear"), [(2, 2)]))
    (check,) = (check for check in checks if not check.passed)
    assert "infonce declares coupling='linear', but its value is not linear" in check.worst


def test_a_part_of_several_processes_that_is_wrong_without_a_statistic() -> None:
    """What asks for the embeddings cannot be refused where it is computed; the proof sees it."""

    def formula(self: Objective, pairs: Pairs) -> Tensor:
        return (pairs.views.anchors * pairs.views.own.mean(dim=0)).sum(dim=1)

    assert disagreement(written(InfoNCE, formula=formula)(), *batch("random", 24, 6)) > 0.01


class TestWhatAFormulaMayNotDo:
    """Each is refused, or computed as it stands, by every backend."""

    a, b = batch("clustered", 16, 6)

    @pytest.mark.parametrize("backend", ["auto", "eager"])
    def test_a_change_in_place_is_no_change_of_other_statistics(self, backend: str) -> None:
        def formula(self: InfoNCE, pairs: Pairs) -> Tensor:
            positive = pairs.positive
            positive += 0.5
            return torch.nn.functional.softplus(pairs.gap(self.temperature))

        changed = written(InfoNCE, formula=formula)()
        expected = InfoNCE()(self.a, self.b)
        torch.testing.assert_close(changed(self.a, self.b, backend=backend), expected)

    @pytest.mark.parametrize("backend", ["auto", "eager", "rowblock"])
    def test_a_temperature_for_each_anchor(self, backend: str) -> None:
        def formula(self: InfoNCE, pairs: Pairs) -> Tensor:
            return pairs.gap(0.05 + 0.01 * pairs.positive)

        with pytest.raises(ValueError, match="give one number as the temperature"):
            written(InfoNCE, formula=formula)()(self.a, self.b, backend=backend)

    @pytest.mark.parametrize("backend", ["auto", "eager", "rowblock"])
    @pytest.mark.parametrize(
        ("result", "says"),
        [
            (
                lambda gap: gap[:, None],
                r"one for each anchor; for (\d+) anchors, it returned the shape \(\1, 1\)",
            ),
            (
                lambda gap: (gap > 0).long(),
                "floating-point numbers from the .*; found torch.int64",
            ),
        ],
    )
    def test_values_of_another_shape_or_kind(
        self, result: Callable[[Tensor], Tensor], says: str, backend: str
    ) -> None:
        def formula(self: InfoNCE, pairs: Pairs) -> Tensor:
            return result(pairs.gap(self.temperature))

        with pytest.raises(ValueError, match=says):
            written(InfoNCE, formula=formula)()(self.a, self.b, backend=backend)
