"""What other libraries call a setting, and what is nearly one of ours, is understood."""

import pytest

from isotrope.core.settings import flag
from isotrope.core.spelling import ALIASES, intended_name
from isotrope.training.images.settings import ImageSettings
from isotrope.training.settings import TrainSettings

OURS = [flag(name) for name in TrainSettings.model_fields] + ["objective.temperature"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("lr", "learning-rate"),
        ("learningrate", "learning-rate"),
        ("learning_rat", "learning-rate"),
        ("batchsize", "batch-size"),
        ("output_dir", "output"),
        ("output-dir", "output"),
        ("model", "encoder"),
        ("max-grad-norm", "clip"),
        ("gradient_clip_val", "clip"),
        ("num_train_epochs", "epochs"),
        ("temprature", "objective.temperature"),
        ("objective.temprature", "objective.temperature"),
        ("tau", "objective.temperature"),
        ("sede", "seed"),
        ("foo", None),
        ("", None),
    ],
)
def test_what_was_meant(word: str, expected: str | None) -> None:
    assert intended_name(word, OURS) == expected


def test_only_what_is_known_is_suggested() -> None:
    assert intended_name("lr", ["lora", "seed"]) is None
    assert intended_name("dataset", ["data", "dev"]) == "data"
    assert intended_name("dataset", ["files", "dev"]) == "files"


def test_every_name_of_ours_in_the_table_is_one() -> None:
    fields = {flag(name) for cls in (TrainSettings, ImageSettings) for name in cls.model_fields}
    assert set(ALIASES) <= fields | {"resume", "objective.temperature"}
    known = [*fields, "resume", "objective.temperature"]
    assert all(intended_name(known_name, known) == known_name for known_name in ALIASES)
