"""Building objectives from settings, plugins, and the errors on the way."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.objectives import InfoNCE, ModifiedBarlowTwins, Paradigm
from isotrope.paradigm import registry
from isotrope.paradigm.compose import part
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import (
    Always,
    ArcRatio,
    Dissipation,
    Energy,
    Fraction,
    Hardest,
    Margin,
    MetricRatio,
    Power,
    Ratio,
    Softmax,
    Static,
    Uniform,
    Weight,
)
from tests.paradigm.batches import batch


def test_build_sets_hyperparameters() -> None:
    assert registry.build("InfoNCE", {"temperature": "0.1"}) == InfoNCE(temperature=0.1)


def test_build_exchanges_components() -> None:
    objective = registry.build("infonce", {"dissipation": "margin:0.3"})
    assert isinstance(objective, Paradigm)
    assert objective.parent == InfoNCE()
    assert objective.dissipation == Margin(margin=0.3)


def test_a_number_for_a_field_named_like_a_component_sets_the_field() -> None:
    assert registry.build("barlowtwins", {"weight": 5}).weight == 5.0
    assert registry.build("modifiedbarlowtwins", {"ratio": 1}) == ModifiedBarlowTwins(ratio=1.0)
    edited = registry.build("barlowtwins", {"weight": "softmax:0.1"})
    assert edited.weight == Softmax(temperature=0.1)


def test_unknown_objective_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown objective 'infonec' .did you mean 'infonce'"):
        registry.build("infonec")


def test_only_a_near_name_is_suggested_and_files_are_mentioned() -> None:
    with pytest.raises(InputError, match=r"add (--plugin FILE|plugin=)") as refused:
        registry.find("boundednce")
    assert "did you mean" not in str(refused.value)


def test_the_line_for_a_plain_function_makes_it_an_objective(tmp_path: Path) -> None:
    text = "import torch\nfrom isotrope import Objective, Paper\n"
    text += "def my_loss(a, b): return (a - b).square().sum(1).mean()\n"
    (file := tmp_path / "plain.py").write_text(text)
    with pytest.raises(InputError) as refused:
        registry.load_plugin(file)
    _, _, line = refused.value.problem.partition("and add: ")
    file.write_text(text + line)
    assert registry.load_plugin(file) == ["myloss"]
    try:
        loss = registry.build("myloss")
    finally:
        del Objective.registered["myloss"]
    anchors, positives = torch.eye(4, 5), torch.eye(4, 5).roll(1, 0)
    assert float(loss(2 * anchors, positives)) == pytest.approx(2)
    with pytest.raises(ValueError, match="takes no additional negatives"):
        loss(anchors, positives, positives)


def test_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no setting 'temprature' .did you mean 'temperature'"):
        registry.build("infonce", {"temprature": 1})


@pytest.mark.parametrize("value", ["warm", True, None, [1]])
def test_a_setting_that_is_no_number(value: object) -> None:
    with pytest.raises(InputError, match="temperature must be a number"):
        registry.build("infonce", {"temperature": value})


def test_a_setting_out_of_bounds() -> None:
    with pytest.raises(InputError, match=r"must be >= 0\.0001; found -1"):
        registry.build("infonce", {"temperature": -1})


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (Dissipation, "margin:0.2", Margin(margin=0.2)),
        (Dissipation, "none", Always()),
        (Dissipation, "margin:0.45:distance", Margin(margin=0.45, metric="distance")),
        (Dissipation, "fraction:0.05:0.17", Fraction(temperature=0.05, margin=0.17)),
        (Weight, "softmax:0.1:Positives:batch", Softmax(0.1, "positives", "batch")),
        (Weight, "hardest:angle", Hardest(metric="angle")),
        (Weight, "uniform", Uniform()),
        (Weight, "power:3", Power(power=3.0)),
        (Weight, "energy:0.5", Energy(temperature=0.5)),
        (Ratio, "arccon:0.2", ArcRatio(margin=0.2)),
        (Ratio, "met:angle", MetricRatio(metric="angle")),
        (Dissipation, Fraction(temperature=0.1), Fraction(temperature=0.1)),
        (Weight, "softmax", Softmax()),
        (Weight, "Hardest", Hardest()),
        (Ratio, 1.5, Static(ratio=1.5)),
        (Ratio, "1.5", Static(ratio=1.5)),
        (Ratio, "1e-3", Static(ratio=0.001)),
        (Ratio, "static:2", Static(ratio=2.0)),
    ],
)
def test_short_forms_of_parts(kind: type, given: object, expected: object) -> None:
    assert part(kind, given) == expected


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Dissipation, "margn:0.2", "unknown dissipation 'margn' .did you mean 'margin'"),
        (Dissipation, "none:1", "'none' takes no value; found '1'"),
        (Dissipation, "margin:1:dot:2", "'margin' takes margin:metric; found '1:dot:2'"),
        (Dissipation, "margin:wide", "a number; found 'wide'"),
        (Dissipation, "margin:1:cube", "one of dot, distance, angle; found 'cube'"),
        (Dissipation, "margin:-1", "must be >= 0; found -1"),
        (Weight, 3, "weight: give one of energy, hardest, power, softmax, uniform; found 3"),
    ],
)
def test_bad_parts(kind: type, given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(kind, given)


TOY = '''
"""A toy objective."""
from typing import Annotated
from isotrope.core.hyper import Hyper
from isotrope.core.terms import Terms
from isotrope.core.hyper import Paper
from isotrope.paradigm.objective import Objective
import torch


class PluginToy(Objective, paper=Paper("none", "none", "none")):
    """Only the positive pulls."""

    pull: Annotated[float, Hyper("p", "strength", above=0)] = 1.0

    def formula(self, pairs):
        return -self.pull * pairs.positive

    def components(self, pairs):
        n = len(pairs.views.anchors)
        zero = torch.zeros_like(pairs.similarity())
        return Terms(torch.ones(n), zero, torch.full((n,), self.pull), scale=1 / n)
'''


def test_a_plugin_is_found_and_its_hyperparameters_checked(tmp_path: Path) -> None:
    file = tmp_path / "toy.py"
    file.write_text(TOY)
    try:
        assert registry.load_plugin(file) == ["plugintoy"]
        assert registry.load_plugin(file) == ["plugintoy"], "a second run in one process"
        assert "plugintoy" in registry.names()
        a, b = batch("random", 4, 3)
        value = registry.build("plugintoy", {"pull": 2})(a, b)
        torch.testing.assert_close(value, -2 * torch.cosine_similarity(a, b).mean())
    finally:
        Objective.registered.pop("plugintoy", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1/0", "failed: ZeroDivisionError"),
        ("x = 1", "defines no new objective"),
        ("raise SystemExit(0)", "failed: SystemExit"),
        (
            "from isotrope.paradigm.objective import Objective\nclass Bare(Objective): pass",
            r"name the paper of class Bare: class Bare\(Objective, paper=Paper\(...\)\)",
        ),
        (
            "from isotrope.core.hyper import Paper\n"
            "from isotrope.paradigm.objective import Objective\n"
            "class InfoNCE(Objective, paper=Paper('','','')): pass",
            "rename InfoNCE: isotrope.objectives.infonce also registers 'infonce'",
        ),
        (
            "from isotrope.core.hyper import Paper\n"
            "from isotrope.paradigm.objective import Objective\n"
            "class Bare(Objective, paper=Paper('','','')):\n  tau: float\n  scale: float = 1.0",
            "give tau of Bare a default",
        ),
    ],
)
def test_bad_plugins(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    saved = dict(Objective.registered)
    try:
        with pytest.raises(InputError, match=message):
            registry.load_plugin(file)
    finally:
        Objective.registered.clear()
        Objective.registered.update(saved)


@pytest.fixture
def registered() -> Iterator[None]:
    """Forget the plugins of a test."""
    saved = dict(Objective.registered)
    yield
    Objective.registered.clear()
    Objective.registered.update(saved)


@pytest.mark.usefixtures("registered")
def test_a_plugin_runs_again_only_if_it_changed(tmp_path: Path) -> None:
    file = tmp_path / "toy.py"
    file.write_text(TOY)
    registry.load_plugin(file)
    toy = registry.build("plugintoy", {"pull": 2})
    assert registry.load_plugin(file) == ["plugintoy"]
    assert registry.as_settings(toy) == ("plugintoy", {"pull": 2.0}), "its class is the same"
    file.write_text(TOY.replace("PluginToy", "PluginOther"))
    assert registry.load_plugin(file) == ["pluginother"]
    assert "plugintoy" not in registry.names()
    file.write_text(TOY.replace("PluginToy", "PluginThird") + "1/0")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        registry.load_plugin(file)
    assert {"plugintoy", "pluginother", "pluginthird"} & {*registry.names()} == {"pluginother"}


@pytest.mark.usefixtures("registered")
def test_plugins_of_one_name_in_two_folders_are_two_plugins(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "toy.py").write_text(TOY)
    registry.load_plugin(tmp_path / "a" / "toy.py")
    with pytest.raises(InputError, match="rename PluginToy: isotrope_plugin_toy"):
        registry.load_plugin(tmp_path / "b" / "toy.py")


@pytest.mark.usefixtures("registered")
def test_an_imported_file_is_also_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "imported_toy.py"
    file.write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    imported = importlib.import_module("imported_toy")
    monkeypatch.delitem(sys.modules, "imported_toy")
    monkeypatch.setitem(sys.modules, "imported_toy", imported)  # removed after the test
    assert registry.load_plugin(file) == ["plugintoy"]
    assert registry.as_settings(imported.PluginToy()) == ("plugintoy", {"pull": 1.0})


@pytest.mark.parametrize("exchanged", [{"ratio": 1.5}, {"dissipation": "margin:0.3"}])
@pytest.mark.parametrize(
    ("name", "own"), [("barlowtwins", {"space": "batchnorm"}), ("vicreg", {"space": "raw"})]
)
def test_a_loss_without_components_keeps_none(
    name: str, own: dict[str, str], exchanged: dict[str, object]
) -> None:
    with pytest.raises(InputError, match=f"objective {name}: .* has no gradient components"):
        registry.build(name, {**own, **exchanged})


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        registry.load_plugin(tmp_path / "none.py")
    (tmp_path / "loss.txt").write_text("")
    with pytest.raises(InputError, match=r"must end in \.py"):
        registry.load_plugin(tmp_path / "loss.txt")


def test_negatives_where_there_is_no_place_for_them() -> None:
    a, b = batch("random", 4, 3)
    with pytest.raises(ValueError, match="BarlowTwins takes no additional negatives"):
        registry.build("barlowtwins")(a, b, a)


def test_a_single_row_cannot_be_compared() -> None:
    a, b = batch("random", 2, 3)
    with pytest.raises(ValueError, match="compares rows with each other; found 1"):
        InfoNCE()(a[:1], b[:1])


def test_what_pushes_nothing_has_no_ratio_and_no_repulsion() -> None:
    with pytest.raises(InputError, match=r"a ratio is .*, and NegativeCosine pushes nothing"):
        registry.build("negativecosine", {"ratio": 2})
    with pytest.raises(InputError, match="set part to attraction: this objective pushes nothing"):
        registry.build("negativecosine", {"part": "repulsion"})
    edited = registry.build("negativecosine", {"ratio": 2, "weight": "softmax:0.05"})
    assert edited.terms(*batch("random", 4, 3)).weight.any()


def test_a_hyperparameter_without_its_name_is_refused_with_the_names() -> None:
    with pytest.raises(
        TypeError, match=r"by name \(temperature, in_batch\); found 0.1 without a name"
    ):
        InfoNCE(0.1)  # type: ignore[misc]


def test_the_constructor_shows_its_preset() -> None:
    import inspect

    assert list(inspect.signature(InfoNCE).parameters) == ["temperature", "in_batch", "preset"]
    import isotrope.objectives

    assert "InfoNCE" in dir(isotrope.objectives)
    assert "pkgutil" not in dir(isotrope.objectives)
