"""No file imports, directly or through others, a file that imports it."""

from pathlib import Path

import grimp
import networkx as nx
import pytest

# the methods modify(), symmetric() and parts of an objective return objectives
ALLOWED = [
    {"isotrope.paradigm.compose", "isotrope.paradigm.forms", "isotrope.paradigm.objective"},
]


def circles(*packages: str) -> list[set[str]]:
    """Return the groups of files that import each other, by imports of any kind.

    Imports within functions and those under ``TYPE_CHECKING`` count as all others do.
    """
    graph = grimp.build_graph(*packages, cache_dir=None)
    files = nx.DiGraph()
    for file in graph.modules:
        files.add_edges_from(
            (file, other) for other in graph.find_modules_directly_imported_by(file)
        )
    return [group for group in nx.strongly_connected_components(files) if len(group) > 1]


def test_there_is_no_other_circle() -> None:
    assert circles("isotrope", "papers") == ALLOWED


def test_a_circle_of_late_imports_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "circular"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "first.py").write_text("import circular.second\n")
    (folder / "second.py").write_text("def late():\n    from circular import third\n")
    (folder / "third.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import circular.first\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("circular") == [{f"circular.{name}" for name in ("first", "second", "third")}]
