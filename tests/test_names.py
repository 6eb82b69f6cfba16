"""The names of the package are these, each says what it does, and a page of the docs uses it."""

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import isotrope
from tests.docs.run_page import blocks

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


def imported(code: str) -> Iterator[str]:
    """Yield the dotted names that imports of the package, and its attributes, refer to."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "isotrope":
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
            yield from (name for name in names if name.split(".")[0] == "isotrope")
        elif isinstance(node, ast.Attribute):
            yield from re.findall(r"isotrope(?:\.\w+)+$", ast.unparse(node))


def named(page: str) -> Iterator[str]:
    """Yield the dotted names of the package on a page: in Python, and in sentences."""
    for block in blocks(page):
        if block.language == "python":
            yield from imported(block.text)
    prose = " ".join(re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE).split())
    for span in re.findall(r"`([^`]+)`", prose):
        if re.match(r"(from|import) isotrope\b", span):
            yield from imported(span)
        elif whole := re.match(r"(isotrope(?:\.\w+)+)(?![\w/*-])", span):
            yield whole[1]
    for span, module in re.findall(r"`([^`]+)` (?:from|of|in) `(isotrope(?:\.\w+)+)`", prose):
        yield from (f"{module}.{name}" for name in re.findall(r"(?<![\w.])([A-Za-z]\w*)\(", span))


HANDWRITTEN = [page for page in PAGES if page.parent.name in (ROOT.name, "docs", "guide")]


@pytest.mark.parametrize(
    "page", [page for page in HANDWRITTEN if page.stem != "LOG"], ids=lambda page: page.stem
)
def test_each_name_on_a_page_exists(page: Path) -> None:
    names = set(named(page.read_text(encoding="utf-8")))
    assert not [name for name in sorted(names) if pydoc.locate(name) is None]


def test_names_on_a_page_are_seen() -> None:
    page = """Use `one(two("FILE"))` from `isotrope.a`, `isotrope.b.c(x)` or
`from isotrope.d import e, f`, not the file `isotrope.yaml-old`.

```python
from isotrope.g import h
import isotrope

isotrope.i.j(3)
```
"""
    assert {f"isotrope.{name}" for name in ("a", "a.one", "a.two", "b.c", "d.e", "d.f")} | {
        f"isotrope.{name}" for name in ("g.h", "i", "i.j")
    } == set(named(page)) - {"isotrope"}


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
