"""The names of the package are these, each says what it does, and a page of the docs uses it."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import isotrope

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NAMES = [
    *("Doctor", "Hyper", "Objective", "Pairs", "Paper", "Paradigm", "Preset", "Temperature"),
    *("Terms", "Views", "__version__", "audit", "audit_images", "compare", "decompose"),
    *("diagnose", "evaluate", "fit", "fit_images", "load", "objectives", "parts", "report"),
    *("search", "softplus", "sweep"),
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


def test_the_page_of_the_api_has_all() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in set(NAMES) - {"__version__"}:
        written = (
            f"`isotrope.{name}`"
            if inspect.ismodule(getattr(isotrope, name))
            else (f"\n::: isotrope.{name}\n")
        )
        assert written in page


def test_no_two_classes_share_a_name() -> None:
    """A reader who meets a name in a trace or a search must find one class."""
    places: dict[str, list[str]] = {}
    for room in ("src", "papers"):
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    name = node.name.strip("_")
                    places.setdefault(name, []).append(f"{file.relative_to(ROOT)}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert twice == {}
