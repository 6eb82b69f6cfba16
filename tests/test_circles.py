"""No file imports, directly or through others, a file that imports it."""

from pathlib import Path

import grimp
import networkx as nx
import pytest

ALLOWED = [
    # the methods modify(), symmetric() and parts of an objective return objectives
    {"isotrope.paradigm.compose", "isotrope.paradigm.forms", "isotrope.paradigm.objective"},
    # a Doctor makes the callbacks that a trainer takes, and these call the Doctor back: its type is
    # imported for the type checker alone
    {f"isotrope.adapters.doctor.{name}" for name in ("doctor", "hugging_face", "lightning")},
    # an encoder saves its adapter; there its type is imported for the type checker alone
    {"isotrope.encoders.lora", "isotrope.encoders.sentence"},
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
    assert [x for x in circles("isotrope", "papers") if x not in ALLOWED] == []


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
