"""Spectra of a training and sizes of image sets, as jobs."""

from pathlib import Path
from typing import Any

import pytest

from isotrope.core import InputError
from isotrope.diagnostics.curvature import Hessian
from papers.machinery.artifact import Results
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.manna2023.frameworks import at_end
from papers.manna2023.spectra import format_over_seeds, spectra_of, variants
from papers.measurements import image_set, spectrum


def tiny(**changes: Any) -> PaperJob:
    own = {
        "limit": 64,
        "width": 2,
        "method.hidden": 8,
        "method.dimension": 4,
        "spectrum.iterations": 4,
        "spectrum.epochs": [1, 2],
        "spectrum.variants": [{"batch_norm": "running", "seeds": [1]}],
    }
    settings = {**at_end("smoke", "MIOv1")[0].settings, **own, **changes}
    return PaperJob("spectrum", {k: v for k, v in settings.items() if v is not None})


def test_a_cell_from_stop_to_store(tmp_path: Path, monkeypatch) -> None:
    places, job, product = DataRegistry(None, tmp_path), tiny(), Hessian.__matmul__
    count, stop_at = 0, 6  # in the second of three spectra

    def counted(self: Hessian, vector: Any) -> Any:
        nonlocal count
        if count == stop_at:
            raise KeyboardInterrupt
        count += 1
        return product(self, vector)

    monkeypatch.setattr(Hessian, "__matmul__", counted)
    assert spectrum.check(job, places) == []
    with pytest.raises(KeyboardInterrupt):
        spectrum.run(job, places, tmp_path / "run")
    stop_at = 10**6
    result = spectrum.run(job, places, tmp_path / "run")
    assert count == 6 + 3 * 4, "the training goes on, its spectra are taken again"

    kept = result.details["spectra"]
    assert [(one["epoch"], one["step"]) for one in kept] == [(1, 2), (2, 4), (2, 4)]
    assert [one["hessian"]["batch_norm"] for one in kept] == [
        *["batch statistics"] * 2,
        "running statistics",
    ]
    assert result.metrics["lambda_max"] == kept[1]["numbers"]["lambda_max"]
    assert result.metrics["lambda_max"] != kept[2]["numbers"]["lambda_max"]
    assert isinstance(result.metrics["knn"], float)
    assert str(tmp_path) not in result.to_json()

    JobStore(tmp_path / "cells").keep(job, result)
    again = JobStore(tmp_path / "cells").find(job)
    found = Results({job: again} if again else {})
    first, last = spectra_of(found, "MIOv1", [job])
    assert (first.epoch, last.epoch) == (1, 2)
    assert last.spectrum.largest[0] == pytest.approx(result.metrics["lambda_max"], rel=1e-5)
    assert last.spectrum.numbers()["negative"] == result.metrics["negative"]
    assert last.spectrum.size == result.metrics["parameters"]
    assert [one.variant for one in variants(found, "MIOv1", job)] == [
        {},
        {"batch_norm": "running", "seeds": [1]},
    ]


def test_settings_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="miov4"):
        spectrum.check(tiny(objective="miov4"), DataRegistry(None, tmp_path))


def test_the_sizes_of_digits(tmp_path: Path) -> None:
    places, job = DataRegistry(None, tmp_path), PaperJob("image_set", {"data": "digits"})
    assert image_set.check(job, places) == []
    found = image_set.run(job, places, tmp_path).metrics
    assert found == {"classes": 10, "training": 1438, "test": 359, "side": 8}
    assert "no folder of data" in image_set.check(PaperJob("image_set", {"data": "x"}), places)[0]
    with pytest.raises(InputError, match="has data and nothing else"):
        image_set.check(PaperJob("image_set", {"data": "digits", "side": 8}), places)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.2345], "1.234"),
        ([5.0, 5.0], "5 ± 0"),
        ([3.906, 4.034], "3.970 ± 0.091"),
        ([29.0, 30.0, 29.0], "29.33 ± 0.58"),
        ([1660.0, 4060.0], "2,900 ± 1,700"),
    ],
)
def test_mean_and_deviation_end_at_the_same_digit(values: list[float], text: str) -> None:
    assert format_over_seeds(values) == text
