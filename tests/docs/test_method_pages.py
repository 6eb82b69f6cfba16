"""The pages of the methods on images: generated, complete, and committed as they are generated."""

from pathlib import Path

import pytest

from docs.generate.method_pages import method_index, method_page, write_method_pages
from isotrope.core.hyper import hypers
from isotrope.core.image_methods import METHODS
from isotrope.training.images.settings import find_method

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "methods"


@pytest.mark.parametrize("name", METHODS)
def test_the_committed_page_is_what_the_class_says(name: str) -> None:
    cls = find_method(name)
    text = (COMMITTED / f"{name}.md").read_text(encoding="utf-8")
    assert text == method_page(cls), "out of date: make docs"
    for heading in (
        "**Pairs of views.**",
        "**Heads.**",
        "**Target update.**",
        "**Recipe.**",
        "**Reference.**",
    ):
        assert heading in text
    for field in hypers(cls.options_class):
        assert f"| `--method.{field}` |" in text
    assert f"train-images IMAGES --method {name}" in text
    assert f"{cls.recipe.learning_rate:g}" in text
    for side in (32, 224):
        assert f"| {side} x {side} |" in text


def test_the_committed_index_and_nothing_else() -> None:
    index = (COMMITTED / "README.md").read_text(encoding="utf-8")
    assert index == method_index([find_method(name) for name in METHODS])
    assert {f.name for f in COMMITTED.iterdir()} == {"README.md", *(f"{n}.md" for n in METHODS)}


def test_crops_that_are_alike_share_a_line(tmp_path: Path) -> None:
    files = write_method_pages([find_method("byol"), find_method("dino")], tmp_path)
    assert [file.name for file in files] == ["README.md", "byol.md", "dino.md"]
    crops = {
        file.stem: [line for line in file.read_text().splitlines() if line.startswith("| 224 x")]
        for file in files
    }
    # BYOL's two are alike; DINO has two large ones that differ, and eight small ones
    assert [line.split(" | ")[1] for line in crops["byol"]] == ["2"]
    assert [line.split(" | ")[1] for line in crops["dino"]] == ["1", "1", "8"]
