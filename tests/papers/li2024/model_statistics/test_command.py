"""``python -m papers.li2024.model_statistics``: the statistics of an encoder, printed."""

import itertools
import re
from pathlib import Path

import pytest

from isotrope.encoders.sentence import SentenceEncoder
from papers.li2024.model_statistics.__main__ import main


@pytest.mark.slow  # a real encoder
def test_statistics_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "river stone cloud engine garden mirror ocean paper".split()  # noqa: SIM905
    texts = [f"{a} {b} {c}" for a, b, c in itertools.permutations(words, 3)][:16]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    SentenceEncoder.scratch(texts, max_length=32).save(tmp_path / "model")
    main(str(tmp_path / "texts.txt"), str(tmp_path / "model"), batch=8)
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path / 'model'}\n  positive angles  mean 0.")
    assert re.search(r"hardest weight  0\.01: \d.*  3: 0\.14", out), "a seventh, of 7 negatives"
    assert re.search(r"ratio of alignuniform  .* of 16 active anchors of 16\n", out)
