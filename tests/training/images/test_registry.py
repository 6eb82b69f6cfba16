"""Methods by name, and their options from settings."""

import dataclasses

import pytest

from isotrope.core.errors import InputError
from isotrope.core.hyper import hypers
from isotrope.core.image_methods import METHODS
from isotrope.data.images.augment import two_views
from isotrope.objectives import InfoNCE
from isotrope.paradigm import registry
from isotrope.training.images.settings import ImageSettings, find_method, options_of
from isotrope.training.images.train import objective_of


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_name_a_paper_and_a_recipe_that_exists(name: str) -> None:
    cls = find_method(name.upper())
    assert cls.name == name
    assert cls.paper.reference
    options = options_of(name)
    assert set(hypers(type(options))) == {f.name for f in dataclasses.fields(options)}
    for objective in {cls.recipe.objective, *cls.recipe.objective_settings}:
        registry.build(objective, cls.settings_of(objective, options))
    assert len(two_views(cls.recipe.augment, 32)) == 2
    assert [a.size for a in cls.augments_of(32, options)] == [32, 32]
    assert cls.augments_of(32, options, "p3") == two_views("p3", 32)
    # dino's eight small crops are of no use to methods of two views
    assert len(cls.augments_of(224, options, "dino")) == (10 if name == "dino" else 2)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "part", ["Pairs of views:", "Heads:", "Target update:", "Recipe:", "Ours:", "Reference:"]
)
def test_the_docstring_has_its_parts_in_order(name: str, part: str) -> None:
    parts = ["Pairs of views:", "Heads:", "Target update:", "Recipe:", "Ours:", "Reference:"]
    text = find_method(name).__doc__ or ""
    places = [text.index(f"\n    {p}") for p in parts]
    assert places == sorted(places)
    assert text.count(f"\n    {part}") == 1


@pytest.mark.parametrize(
    ("objective", "method", "expected"),
    [
        ("ntxent", "simclr", 0.1),
        ("dcl", "simclr", 0.1),
        ("dclw", "simclr", 0.1),
        ("infonce", "simclr", 0.1),
        ("miov3", "simclr", 0.2),
        ("infonce", "mocov2", 0.07),
        ("infonce", "mocov3", 0.2),
    ],
)
def test_temperatures_of_manna_et_al(objective: str, method: str, expected: float) -> None:
    settings = find_method(method).settings_of(objective, options_of(method))
    assert registry.build(objective, settings).temperature == expected


def test_only_a_method_with_a_queue_trains_without_negatives_of_the_batch() -> None:
    def settings(method: str) -> ImageSettings:
        alone = {"in_batch": "false"}
        return ImageSettings(data="digits", method=method, output="o", objective_settings=alone)

    assert objective_of(settings("mocov2")) == (
        "infonce",
        InfoNCE(temperature=0.07, in_batch=False),
    )
    with pytest.raises(InputError, match="in_batch=False needs additional negatives"):
        objective_of(settings("mocov3"))


def test_options_are_what_flags_say() -> None:
    options = options_of("mocov2", {"queue": "64", "decay": "0.5", "symmetric": "False"})
    assert (options.queue, options.decay, options.symmetric) == (64, 0.5, False)
    assert isinstance(options.queue, int)
    assert options_of("mocov2") == find_method("mocov2").options_class()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "simcrl",
            {},
            r"unknown method 'simcrl' \(did you mean 'simclr'\?\); known: simclr",
        ),
        ("byol", {"decai": 1}, r"has no option 'decai' \(did you mean 'decay'\?\); known: hidden"),
        ("byol", {"decay": 1.5}, r"method byol: decay of BYOLOptions .* >= 0, <= 1; found 1\.5"),
        ("byol", {"decay": "much"}, r"method byol: decay must be a number; found 'much'"),
        ("mocov2", {"queue": 16.5}, r"queue must be a whole number; found 16\.5"),
        ("mocov2", {"symmetric": "yes"}, r"symmetric must be one of false, true; found 'yes'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(name: str, settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        options_of(name, settings)
