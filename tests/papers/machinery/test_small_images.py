"""Trainings on small images by name."""

from pathlib import Path

import pytest

from isotrope.core import InputError
from papers.machinery.artifact import SCALES, Scale
from papers.machinery.data_registry import DataRegistry
from papers.machinery.recipes import SMALL, small_images
from papers.measurements.images import check


@pytest.mark.parametrize("scale", SCALES)
def test_every_name_resolves_and_is_different(scale: Scale) -> None:
    nowhere = DataRegistry(None, Path("unused"))
    jobs = [small_images(scale, name, (0,))[0] for name in SMALL]
    assert len(set(jobs)) == len(SMALL)
    for job in jobs:
        assert check(job, nowhere) == (
            [] if scale == "smoke" else ["cifar10: no folder of data was given (--data DIR)"]
        )


def test_only_short_trainings_have_what_they_need() -> None:
    (brief,), (whole,) = (small_images(scale, "BYOL", (0,)) for scale in ("cpu", "paper"))
    assert brief.settings["method.predictor_rate"] == 10
    assert "method.predictor_rate" not in whole.settings
    assert "learning_rate" not in whole.settings
    with pytest.raises(InputError, match=r"'SimCLR, c = 4' .did you mean 'SimCLR, c = 3'"):
        small_images("cpu", "SimCLR, c = 4")
