"""The spectra of a tiny training on images: what the settings change, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import InputError
from papers.manna2023.run_spectrum import SpectrumSettings, measure
from tests.papers.manna2023.test_rebuild import images, last

QUICK: dict[str, Any] = {"iterations": 6, "batch_size": 6, "device": "cpu"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images(tmp_path_factory.mktemp("images"), weight_decay=0.05)


def numbers(run: Path, **settings: Any) -> dict[str, Any]:
    chosen = SpectrumSettings(**{**QUICK, "seeds": (11,), **settings})
    return measure(run, chosen, last(run)).result.metrics


def test_the_same_again_is_the_same_to_the_bit(run: Path) -> None:
    """Also from nothing: what a finished process left is not needed."""
    before = numbers(run)
    assert numbers(run) == before
    for state in (run / "spectrum").glob("*.npz"):
        state.unlink()
    assert numbers(run) == before


@pytest.mark.slow
def test_settings_change_what_they_name(run: Path) -> None:
    plain = numbers(run)
    decayed = numbers(run, weight_decay=True)
    assert decayed["lambda_max"] - plain["lambda_max"] == pytest.approx(0.05, rel=0.02)
    assert numbers(run, batch_norm="running")["loss"] != plain["loss"]
    assert numbers(run, keep_graph=False)["lambda_max"] == plain["lambda_max"]
    assert numbers(run, threshold=1e9)["flat"] > plain["flat"]
    assert numbers(run, iterations=3)["ritz_values"] == 3


@pytest.mark.slow
def test_several_seeds_and_batches_are_averaged(run: Path) -> None:
    settings = SpectrumSettings(**QUICK, seeds=(0, 1, 2), probes=2, batches=2)
    found = measure(run, settings, last(run))
    values = [spectrum.largest[0] for spectrum in found.spectra]
    assert len({*values}) == 3
    assert found.result.metrics["lambda_max"] == pytest.approx(sum(values) / 3)
    assert all(len(spectrum.probes) == 2 for spectrum in found.spectra)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations must be 1 or more; found 0"),
        ({"probes": 0}, "probes must be 1 or more"),
        ({"batches": -1}, "batches must be 1 or more"),
        ({"seeds": (1, 1)}, r"whole numbers from 0 to 2\^63 - 1; found \[1, 1\]"),
        ({"seeds": (-1,)}, r"whole numbers from 0 to 2\^63 - 1; found \[-1\]"),
        ({"threshold": 0.0}, "threshold must be above 0 and finite; found 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SpectrumSettings(**settings)
