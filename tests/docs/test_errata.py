"""The page of errata is generated, and what shows an erratum is there."""

import ast
from pathlib import Path

import pytest

from docs.generate.errata_page import KINDS, Erratum, document, errata, errata_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_generated() -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert page == errata_page(errata()), "make docs"


@pytest.mark.parametrize("row", errata(), ids=lambda row: row.number)
def test_what_shows_it_is_there(row: Erratum) -> None:
    assert row.kind in KINDS
    assert row.paper in document()["versions"]
    assert bool(row.right) == (row.kind != "withdrawn")
    if row.shown_by:
        file, _, test = row.shown_by.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if row.artifact:
        paper, name = row.artifact.split()
        verdicts = (ROOT / f"docs/results/reproduce/{paper}/{name}.csv").read_text(encoding="utf-8")
        assert f"\nerratum {row.number}," in verdicts


def test_numbers_stay() -> None:
    rows = errata()
    assert [row.number for row in rows] == [f"E{n}" for n in range(1, len(rows) + 1)]
    # cited in papers/ and elsewhere: these stay
    cited = {"E1": "VICReg", "E10": "figure 3", "E23": "obtuse", "E34": "eq. 25"}
    for row in rows:
        assert cited.get(row.number, "") in row.where
    withdrawn = {row.number for row in rows if row.kind == "withdrawn"}
    assert withdrawn == {"E4", "E6", "E7", "E8", "E9", "E19", "E36", "E37", "E44"}
