"""Pictures of spectra: what is drawn, in both formats, the same numbers the same bytes."""

import numpy as np

from papers.plots.spectra import DensityCurve, spectra


def curve(title: str, centre: float = 0.0) -> DensityCurve:
    where = np.linspace(-5, 10, 200)
    return DensityCurve(
        title, where, np.exp(-((where - centre) ** 2)), np.array([-2.0, centre, 7.0])
    )


def test_names_and_both_formats() -> None:
    found = spectra([curve("one"), curve("two", 3.0)])
    assert found.png.startswith(b"\x89PNG")
    assert found.svg.count(b"<svg") == 1
    assert found == spectra([curve("one"), curve("two", 3.0)])
    assert found.svg != spectra([curve("one"), curve("two", 4.0)]).svg


def test_every_spectrum_has_a_row_of_ticks() -> None:
    """Taller with each, so that none hides another."""

    def height(count: int) -> float:
        svg = spectra([curve(str(i)) for i in range(count)]).svg.decode()
        return float(svg.split('height="')[1].split("pt")[0])

    one, two, six = (height(count) for count in (1, 2, 6))
    assert one < two < six
