"""Words and lines can be read: contrasts in both colour schemes, and each picture is explained."""

import itertools
import re

import pytest

from isotrope.reports.html import source
from isotrope.reports.plots import INK, styles
from isotrope.reports.quantities import QUANTITIES, explained


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def schemes() -> list[dict[str, str]]:
    """The colours by name, light and dark."""
    found = re.findall(r":root \{([^}]*)\}", source("sheet.css"))
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", text)) for text in found]


@pytest.mark.parametrize("colours", schemes(), ids=["light", "dark"])
def test_contrasts(colours: dict[str, str]) -> None:
    for words, ground in itertools.product(("ink", "muted", "good", "bad"), ("paper", "tint")):
        assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    lines = [style.colour for style in styles(6)] + [INK, colours["focus"]]
    for line in lines:
        assert contrast(line, colours["paper"]) >= 3, line


def test_every_picture_is_explained() -> None:
    for quantity in QUANTITIES:
        assert explained({quantity.key}) or quantity.key == "loss", quantity.key
    assert len(explained({"trajectory"})) == 2
    assert explained(set()) == []
