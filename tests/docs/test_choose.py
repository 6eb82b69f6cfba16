"""The page on choosing an objective: its tables are those of the files and of the registry."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "choose.md"


@pytest.fixture(scope="module")
def build() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "build.py"))


def test_the_tables_are_what_was_measured(build: dict) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert build["choose"](text) == text, "out of date: make docs"
    # what the prose says of them
    assert "| [`infonce`](../objectives/infonce.md) | +4.2 ± 0.3 |" in text
    assert min(build["gains"]()["infonce"]) > 0, "gained on every seed"
    knn = build["accuracies"]("knn")
    for name, shown in (("DCL", "40.0 ± 0.6 with `dcl`"), ("SimCLR", "40.2 ± 0.4 with NT-Xent")):
        assert f"{build['_spread'](knn[name][8], 1)}" == shown.partition(" with")[0]
        assert shown in " ".join(text.split())
    best, second = knn["MIOv3"][8], knn["SimCLR"][8]
    assert sum(best) / 3 - sum(second) / 3 < 1, "cannot be told apart"
    assert min(sum(knn[name][8]) / 3 for name in knn if len(knn[name][8]) == 3) < 33.1


def test_the_columns_are_those_of_the_metrics(build: dict) -> None:
    text = (PAGE.parent / "anatomy.md").read_text(encoding="utf-8")
    assert build["columns_of"](text) == text, "out of date: make docs"


def test_another_measurement_is_another_page(build: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    read = build["_read"]
    rows = read("demo-seeds.csv")
    rows[2]["MRR@10"] = "0.9"
    monkeypatch.setitem(
        build["choose"].__globals__, "_read", lambda f: rows if "demo" in f else read(f)
    )
    changed = build["choose"](text)
    assert changed != text
    assert "+4.2 ±" not in changed


def test_the_picture_shows_both(build: dict) -> None:
    drawn = build["picture"]().decode()
    assert drawn.startswith("<?xml")
    assert (PAGE.parent / "measured.svg").stat().st_size > 10_000
