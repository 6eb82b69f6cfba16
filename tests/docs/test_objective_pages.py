"""The pages of the objectives: generated, complete, and committed as they are generated."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs.generate.objective_pages import index, page, write_pages
from isotrope.core.hyper import hypers
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from tests.docs.run_page import blocks

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "docs" / "objectives"
NAMES = [n for n in registry.names() if Objective.registered[n].__module__.startswith("isotrope.")]


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_page_is_what_the_class_says(name: str) -> None:
    cls = Objective.registered[name]
    text = (COMMITTED / f"{name}.md").read_text(encoding="utf-8")
    assert text == page(cls), "out of date: make docs"
    for heading in ("**Loss", "**Gradient.**", "**Shapes.**", "**Reference.**"):
        assert heading in text
    for field in hypers(cls):
        assert f"| `{field}` |" in text
    drawn = COMMITTED / f"{name}.svg"
    assert drawn.exists() == cls().has_terms
    if drawn.exists():
        assert f"]({name}.svg)" in text
        root = ET.parse(drawn).getroot()
        assert root.tag.endswith("svg")
        # two maps of colours or a hatched one, and the curve of the weights
        assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) >= 1
        assert root.find(".//*[@id='line2d_1']") is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_example_can_be_pasted(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, printed = (
        block for block in blocks((COMMITTED / f"{name}.md").read_text("utf-8"))[1:3]
    )
    exec(compile(program.text, f"{name}.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == printed.text


def test_the_committed_index_and_nothing_else() -> None:
    assert (COMMITTED / "README.md").read_text(encoding="utf-8") == index(NAMES)
    stems = {f.stem for f in COMMITTED.iterdir()} - {"README"}
    assert stems == set(NAMES), "pages of objectives that are gone"


def test_the_same_class_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [f.read_bytes() for f in write_pages(["mpt", "dino"], tmp_path / "a")]
    second = [f.read_bytes() for f in write_pages(["mpt", "dino"], tmp_path / "b")]
    assert first == second
    assert not (tmp_path / "a" / "dino.svg").exists()


def test_code_is_not_escaped_and_mathematics_is() -> None:
    text = page(Objective.registered["infonce"])
    assert "With `in_batch=False` they" in text
    assert r"L\_i = -log( e^{s\_ii'/tau}" in text
