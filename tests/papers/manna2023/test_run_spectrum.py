"""The spectra of a tiny training on images: what the settings change."""

from typing import Any

import pytest

from isotrope.training import ImageSettings
from papers.measurements.spectrum import Question, measure
from tests.papers.measurements.test_restored import STEP, images


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ImageSettings:
    return images(tmp_path_factory.mktemp("images"), weight_decay=0.05)


def numbers(run: ImageSettings, **settings: Any) -> dict[str, Any]:
    question = Question(**{"iterations": 6, "batch_size": 6, "seeds": (11,), **settings})
    return measure(run, question, STEP)["numbers"]


def test_the_same_again_is_the_same_to_the_bit(run: ImageSettings) -> None:
    assert numbers(run) == numbers(run)


@pytest.mark.slow
def test_settings_change_what_they_name(run: ImageSettings) -> None:
    assert numbers(run, batch_norm="running")["loss"] != numbers(run)["loss"]
    assert numbers(run, iterations=3)["ritz_values"] == 3


@pytest.mark.slow
def test_several_seeds_are_averaged(run: ImageSettings) -> None:
    question = Question(iterations=6, batch_size=6, seeds=(0, 1, 2))
    found = measure(run, question, STEP)
    values = [one["probes"][0]["values"][-1] for one in found["spectra"]]
    assert len({*values}) == 3
    assert found["numbers"]["lambda_max"] == pytest.approx(sum(values) / 3, rel=1e-5)
