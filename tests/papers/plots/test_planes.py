"""Pictures of a few points in the plane."""

import re

import numpy as np
import pytest

from papers.plots.planes import Dots, Plane, planes

ORIGIN = np.zeros(2)


def panel(title: str = "one", reach: float = 1.0) -> Plane:
    dots = [Dots("anchor", ORIGIN[None]), Dots("negative", np.array([[reach, 0.0], [0.0, 1.0]]))]
    return Plane(title, dots, steps=[(ORIGIN, np.array([-0.5, 0.0]))])


def size(svg: bytes) -> tuple[float, float]:
    found = [re.search(rf'{side}="([\d.]+)pt"'.encode(), svg) for side in ("width", "height")]
    width, height = (float(match.group(1)) for match in found if match)
    return width, height


def test_both_formats_and_the_same_bytes() -> None:
    found = planes([panel()])
    assert found.png.startswith(b"\x89PNG")
    assert found == planes([panel()])
    assert found.svg != planes([panel(reach=2.0)]).svg


def test_a_row_holds_as_many_as_asked() -> None:
    one, two, three = (size(planes([panel()] * count, columns=2).svg) for count in (1, 2, 3))
    assert one[0] < two[0] == three[0]
    assert one[1] == two[1] < three[1]


def test_panels_of_a_row_are_to_one_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """And to one scale in both directions, with all that is drawn inside."""
    seen = []
    monkeypatch.setattr("papers.plots.planes.written", seen.append)
    ring = Plane("ring", [Dots("positive", ORIGIN[None])], circles=[(np.array([3.0, 0.0]), 2.0)])
    planes([panel(), ring, panel()], columns=2)
    limits = [(*axes.get_xlim(), *axes.get_ylim()) for axes in seen[0].axes]
    assert limits[0] == limits[1] != limits[2]
    assert all(axes.get_aspect() == 1 for axes in seen[0].axes[:3])
    assert limits[0][0] < 0
    assert limits[0][1] > 5


def test_the_legend_has_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("papers.plots.planes.written", seen.append)
    planes([panel()])
    texts = [text.get_text() for text in seen[0].legends[0].get_texts()]
    assert texts == ["anchor", "negative"]
