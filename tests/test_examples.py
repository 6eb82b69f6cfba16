"""The scripts of examples run, and show what they say."""

import itertools
import re
import runpy
from pathlib import Path

import pytest

from isotrope.encoders.sentence import SentenceEncoder
from isotrope.objectives import ModifiedBarlowTwins

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, capsys) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_surgery_changes_one_component_at_a_time(capsys) -> None:
    """Its last assertion is that it ends at the registered objective's gradient."""
    out = run("surgery.py", capsys)
    assert out.endswith("The last gradient is that of ModifiedBarlowTwins(), to the last bit.\n")
    steps = re.split(r"\n(?=Barlow|\+ )", out.strip())
    assert [s.split(":")[0].split(",")[0] for s in steps] == [
        "Barlow Twins",
        "+ GD",
        "+ W",
        "+ R",
    ]

    def lines(label: str) -> list[str]:
        return [re.search(rf"^  {label} +(.*)$", s, re.M)[1] for s in steps]

    dissipation, weight, ratio = lines("GD"), lines("W"), lines("R")
    assert dissipation[0] == "mean 1.00: 64 of 64 anchors move"
    assert dissipation[1] != dissipation[0]
    assert dissipation[1] == dissipation[2] == dissipation[3]
    assert weight[0] == weight[1] != weight[2] == weight[3]
    assert ratio[0] != ratio[3]
    assert ratio[3] == "1.50 to 1.50 over the anchors"
    # from the second edit on the step leads to the positive
    cosines = [float(re.search(r"step +cosine ([+-]\S+)", s)[1]) for s in steps]
    assert max(cosines[:2]) < 0.1 < 0.8 < min(cosines[2:])


def test_surgery_notices_another_end(monkeypatch, capsys) -> None:
    script = runpy.run_path(str(EXAMPLES / "surgery.py"))
    other = lambda: ModifiedBarlowTwins(ratio=1.25)  # noqa: E731
    monkeypatch.setitem(script["main"].__globals__, "ModifiedBarlowTwins", other)
    with pytest.raises(AssertionError):
        script["main"]()
    assert "to the last bit" not in capsys.readouterr().out


def test_statistics_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "river stone cloud engine garden mirror ocean paper".split()  # noqa: SIM905
    texts = [f"{a} {b} {c}" for a, b, c in itertools.permutations(words, 3)][:16]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    SentenceEncoder.scratch(texts, max_length=32).save(tmp_path / "model")
    main = runpy.run_path(str(EXAMPLES / "model_statistics.py"))["main"]
    main(str(tmp_path / "texts.txt"), str(tmp_path / "model"), batch=8)
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path / 'model'}\n  positive angles  mean 0.")
    assert re.search(r"hardest weight  0\.01: \d.*  3: 0\.14", out), "a seventh, of 7 negatives"
    assert re.search(r"ratio of alignuniform  .* of 16 active anchors of 16\n", out)
