"""Jobs of images: a small training, and what was logged of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isotrope.core import InputError, Result
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.recipes import image_jobs
from papers.measurements import images


def smoke(**more: Any) -> PaperJob:
    small = {"method.hidden": 8, "method.dimension": 4, "limit": 64, "width": 2}
    (job,) = image_jobs("smoke", "simclr", **{**small, **more})
    return job


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("images")
    return images.run(smoke(), DataRegistry(None, folder), folder / "cell")


def test_every_epoch_has_its_accuracy_and_means(measured: Result) -> None:
    rows = measured.details["looks"]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert all(0 <= row["knn"] <= 100 for row in rows)
    assert all(row["norm"] > 0 for row in rows[1:])
    assert rows[1]["loss"] != rows[2]["loss"]
    assert measured.metrics["knn"] == rows[-1]["knn"]
    assert isinstance(measured.metrics["linear"], float)
    assert measured.metrics["steps"] == rows[-1]["step"] == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"method": "simlcr"}, "did you mean 'simclr'"),
        ({"method.hiden": 3}, "hiden"),
        ({"objective": "infonec"}, "did you mean 'infonce'"),
        ({"augment": "p33"}, "no augmentation is called 'p33'"),
        ({"with": 3}, "with: unknown setting"),
        ({"width": 0}, "width=0"),
    ],
)
def test_what_could_run_nowhere_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    job = smoke()
    with pytest.raises(InputError, match=said):
        images.check(replace(job, settings={**job.settings, **more}), DataRegistry(None, tmp_path))


def test_a_cell_has_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a job of images has data"):
        images.check(PaperJob("images", {"method": "simclr"}), DataRegistry(None, tmp_path))


def test_what_is_missing_here_is_listed(tmp_path: Path) -> None:
    assert images.check(smoke(), DataRegistry(None, tmp_path)) == []
    job = smoke(data="cifar10", encoder="resnet19", width=None)
    data, encoder = images.check(job, DataRegistry(tmp_path, tmp_path))
    assert data.startswith("cifar10: there is no")
    assert encoder.startswith("resnet19: of the Hugging Face hub")
