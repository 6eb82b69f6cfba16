"""The names of the package are these, each says what it does, and a page of the docs uses it."""

import inspect
import re
from pathlib import Path

import pytest

import isotrope

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NAMES = [
    *("Anatomy", "Hyper", "Objective", "Pairs", "Paper", "Paradigm", "Preset", "Temperature"),
    *("Terms", "Views", "__version__", "compare", "decompose", "diagnose", "evaluate", "fit"),
    *("fit_images", "load", "objectives", "parts", "report", "search", "softplus", "sweep"),
]


def test_they_are_exactly_these() -> None:
    """A name more or less is a change of what others build on: CHANGELOG.md tells them."""
    assert isotrope.__all__ == NAMES
    assert dir(isotrope) == sorted(NAMES)
    with pytest.raises(AttributeError, match="module 'isotrope' has no attribute 'train'"):
        _ = isotrope.train


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__version__"])
def test_each_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(isotrope, name)), "no docstring"
    used = re.compile(rf"isotrope\.{name}\b|from isotrope import .*\b{name}\b")
    assert any(used.search(page.read_text(encoding="utf-8")) for page in PAGES), "on no page"


def test_no_room_takes_the_name_of_a_function() -> None:
    """A package of that name would replace the function as soon as anything imports it."""
    rooms = {path.stem for path in (ROOT / "src" / "isotrope").iterdir()}
    functions = [name for name in NAMES if inspect.isfunction(getattr(isotrope, name))]
    assert not rooms & set(functions)
