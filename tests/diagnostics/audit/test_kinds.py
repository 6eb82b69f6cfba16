"""An audit of every kind of data is printed and written, also if rows are apart or repeated."""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from isotrope.cli.main import guarded
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.verbs import audit
from tests.training.conftest import sentences

TEXTS = [*sentences(18), "the same text", "the same text"]  # the last two rows are equal
SECOND = [f"{text} and more" for text in TEXTS]

# the columns of a table, the title of its audit, and flags
KINDS: dict[str, tuple[dict[str, Sequence[Any]], str, dict[str, str]]] = {
    "texts": ({"text": TEXTS}, "20 texts", {}),
    "adjacent texts": ({"text": TEXTS}, "19 pairs", {"views": "adjacent"}),
    "pairs": ({"anchor": TEXTS, "positive": SECOND}, "20 pairs", {}),
    "one answer": ({"anchor": TEXTS, "positive": ["an answer"] * 20}, "20 pairs", {}),
    "negatives": (
        {"anchor": TEXTS, "positive": SECOND, "negative": TEXTS[::-1]},
        "20 pairs with hard negatives",
        {},
    ),
    "grouped": (
        {"anchor": TEXTS, "positive": SECOND, "topic": [i // 4 for i in range(20)]},
        "20 pairs",
        {"groups": "topic"},
    ),
    "labelled": ({"text": TEXTS, "label": ["a", "b"] * 10}, "20 pairs", {}),
    "scored": (
        {"sentence1": TEXTS, "sentence2": SECOND, "score": [0.1 * (i % 10) for i in range(20)]},
        "20 pairs",
        {"columns": "sentence1,sentence2"},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an encoder with random weights."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("encoder")
    SentenceEncoder.scratch(sentences(60), width=32, layers=1, vocabulary=300).save(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_in_memory(kind: str, folder: Path) -> None:
    table, title, flags = KINDS[kind]
    frame = pytest.importorskip("pandas").DataFrame(table)
    found = audit(frame, encoder=folder, batch_size=8, dev=None, **flags)
    assert str(found).startswith(title)
    assert repr(found).startswith(f"TextAudit({title}")
    json.loads(found.to_json())
    if not flags and kind not in ("labelled", "one answer"):
        plain = TEXTS if kind == "texts" else list(zip(*table.values(), strict=True))
        again = audit(plain, encoder=folder, batch_size=8, dev=None)
        assert str(again) == str(found)


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_file_by_the_command_if_every_row_is_apart(
    kind: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("isotrope.diagnostics.audit.pairs._MOST", -1.0)
    table, title, flags = KINDS[kind]
    file, output = tmp_path / "data.csv", tmp_path / "audit"
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([[*table], *zip(*table.values(), strict=True)])
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    asked = ["audit", str(file), "--encoder", str(folder), "--batch-size", "8", *words]
    code = guarded([*asked, "--output", str(output)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert printed.out.startswith(title)
    first = 3 if kind == "adjacent texts" else 2  # line 1 of the file has the names of columns
    listed = printed.out.partition("\nRows that are apart\n")[2].partition("\nSettings\n")[0]
    assert re.search(rf"^{first} +{TEXTS[0][:20]}", listed, re.M)
    assert ("its positive" in listed) == (kind != "texts")
    assert ("row of the positive" in listed) == (kind == "labelled")
    if kind == "labelled":  # the first of 10 texts is paired with the last, on line 20 of the file
        assert re.search(r"^2 .* 20$", listed, re.M)
        assert re.search(r"^4 .* 2$", listed, re.M)
    assert ("the two texts of such a row" in printed.out) == (kind != "texts")
    assert "Rows that are apart" in (output / "audit.html").read_text()


def test_of_a_plain_file_of_texts(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sentences.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS))
    assert guarded(["audit", str(file), "--encoder", str(folder), "--dev", "none"]) == 0
    assert capsys.readouterr().out.startswith("20 texts of sentences.txt, ")
