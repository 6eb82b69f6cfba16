"""The papers use the library from outside, and the library does not know where it lies."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def imported(file: Path) -> Iterator[tuple[str, str]]:
    """Module and name of everything that a file imports from the package."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isotrope"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_papers_import_what_a_package_says_is_public() -> None:
    names = [one for file in (ROOT / "papers").rglob("*.py") for one in imported(file)]
    assert len(names) > 100
    for module, name in names:
        assert module.count(".") <= 1, f"{module} is deeper than a room"
        assert name in importlib.import_module(module).__all__, (module, name)


def test_the_package_looks_for_nothing_beside_itself() -> None:
    for file in (ROOT / "src" / "isotrope").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "parents[" not in text, file
        assert "shared/data" not in text, file
