"""`benchmarks/audit.py` plants what it says, and ranks what belongs together."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from examples.docstrings import Documented
from tests.diagnostics.audit.handmade import embedded, of

spec = importlib.util.spec_from_file_location(
    "benchmarks_audit", Path(__file__).parents[1] / "benchmarks" / "audit.py"
)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


def test_a_planted_pair_has_the_words_of_one_docstring(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [
        Documented(f"name {i}", f"query of {i} words", f"word{i} " * (50 if i < 99 else 9))
        for i in range(600)
    ]
    monkeypatch.setattr(benchmark, "collect", lambda packages: list(items))
    rows, together = benchmark.planted(0)
    assert (len(rows), len(together)) == (520, 60)
    for i, j in together:
        assert sorted(rows[i][0].split()) == sorted(rows[j][0].split())
        assert rows[i][1] == rows[j][1] == " ".join(25 * rows[i][1].split()[:1])


def test_what_belongs_together_is_ranked_first() -> None:
    plain = embedded(60)
    anchors, positives = plain.anchors.clone(), plain.positives.clone()
    together = [(2 * i, 2 * i + 1) for i in range(10)]
    noise = torch.randn(2, 60, 48, generator=torch.Generator().manual_seed(5)) / 48**0.5
    for i, j in together:
        anchors[j], positives[j] = anchors[i] + 0.3 * noise[0, i], positives[i] + 0.3 * noise[1, i]
    apart = [(30, 31), (40, 41)]
    found = {r["score"]: r for r in benchmark.scored(of(anchors, positives), together, apart)}
    assert found["reciprocal push"]["ap"] == found["reciprocal push"]["ap_labelled"] == 1
    assert found["evidence"]["precision"] == found["evidence"]["recall"] == 1
    assert set(found) >= {"push", "cosine", "relative margin", "cosine of anchors"}


def test_labels_are_read_with_every_sentence_once(tmp_path: Path) -> None:
    file = tmp_path / "transfer" / "mrpc" / "test.tsv"
    file.parent.mkdir(parents=True)
    file.write_text("1\ta\tb\n0\tb\tc\n1\td\td\n")
    assert benchmark.labelled(tmp_path, "mrpc") == (["a", "b", "c", "d"], [(0, 1)], [(1, 2)])


def test_pictures_of_one_class_belong_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    for number in range(12):
        folder = tmp_path / "cifar10" / "abc"[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    monkeypatch.setattr(benchmark, "SHOWN", 12)
    monkeypatch.setattr(benchmark, "STRONGEST", (5, 1000))
    few, every, flagged = benchmark.pictures(tmp_path, 0, 0)
    assert few["rows"] == 12
    assert few["belong"] == 3 * 6
    assert every["precision"] == round(18 / 66, 3)  # all pairs: of 12 pictures each has 11 partners
    assert 0 <= flagged["flagged"] <= 66


def test_cost_is_measured() -> None:
    row = benchmark.cost(50, 4)
    assert (row["rows"], row["dimension"]) == (50, 4)
    assert row["megabytes"] > 10
