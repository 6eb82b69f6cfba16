"""A package's public names: which they are, and when they are imported."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = """
from typing import TYPE_CHECKING
from isotrope.core import public

if TYPE_CHECKING:
    from lazily import part as part
    from lazily.part import number as number
if not TYPE_CHECKING:
    from math import pi
public(__name__)
"""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "lazily").mkdir()
    (tmp_path / "lazily" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "lazily" / "part.py").write_text("number = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("lazily", "lazily.part"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("names")
def test_only_imports_for_type_checkers_are_public_and_they_are_late() -> None:
    package = importlib.import_module("lazily")
    assert package.__all__ == dir(package) == ["number", "part"]
    assert "lazily.part" not in sys.modules
    assert package.number == 3
    assert package.part is sys.modules["lazily.part"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing
