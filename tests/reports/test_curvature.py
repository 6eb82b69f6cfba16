"""Spectra beside the runs: the last one is read, drawn with its numbers, or refused by name."""

from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.reports.curvature import densities, read_spectrum
from isotrope.reports.panels import panel
from isotrope.reports.quantities import QUANTITIES
from isotrope.reports.runs import read_run
from tests.reports.folders import write_run, write_spectrum
from tests.reports.test_html import report

(SPECTRUM,) = (quantity for quantity in QUANTITIES if quantity.kind == "density")


def test_the_last_step_is_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    assert read_spectrum(run) is None
    for step in (5, 40, 12):
        write_spectrum(run, step=step, top=step)
    found = read_spectrum(run)
    assert found is not None
    assert (found.step, found.metrics["lambda_max"]) == (40, 40)
    assert found.verdict == "strict saddle; the rate is too high"
    assert [list(values) for values, _ in found.probes] == [[-1.5, 0, 40]] * 2


def test_densities_integrate_to_one_and_lie_where_the_values_are(tmp_path: Path) -> None:
    spectra = [
        read_spectrum(write_spectrum(write_run(tmp_path / name), top=top))
        for name, top in (("one", 12.5), ("two", 30.0))
    ]
    one, nothing, two = densities([spectra[0], None, spectra[1]])
    assert nothing is None
    for found, share_at_top, top in ((one, 0.1, 12.5), (two, 0.1, 30.0)):
        assert found is not None
        where, density = found
        step = where[1] - where[0]
        assert density.sum() * step == pytest.approx(1, abs=1e-3)
        near = np.abs(where - top) < 2
        assert density[near].sum() * step == pytest.approx(share_at_top, abs=1e-3)
    assert densities([None]) == [None]


def test_the_picture_and_the_table(tmp_path: Path) -> None:
    runs = [write_spectrum(write_run(tmp_path / "one")), write_run(tmp_path / "two")]
    drawn = panel(SPECTRUM, [read_run(run) for run in runs])
    assert drawn is not None
    assert drawn.without == ("two",)
    scale = drawn.scales["spectrum"]
    assert (scale.across, scale.along, scale.log) == ("eigenvalue", True, True)
    assert 'id="series-spectrum-0"' in drawn.svg
    _, page = report(tmp_path, *runs)
    for words in ("Eigenvalues of the Hessian", "12.50", "strict saddle; the rate is too high"):
        assert words in page.text
    _, page = report(tmp_path, runs[1])
    assert "Eigenvalues of the Hessian" not in page.text


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "step-40.csv",
            "seed,probe\n0,0\n",
            r"step-40\.csv .* no spectrum \(KeyError.*spectrum .*x`",
        ),
        ("step-40.csv", None, r"step-40.csv: no such file"),
        ("step-40.json", "{", r"step-40\.json is not a result of isotrope"),
        ("step-40.json", '{"kind":"spectrum","name":"x","metrics":{}}', r"no spectrum \(KeyError"),
    ],
)
def test_damaged(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    run = write_spectrum(write_run(tmp_path / "x"))
    path = run / "spectrum" / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_run(run)
