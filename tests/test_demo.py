"""The demo: small and twice in the suite, whole in the longer checks."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.demo import MODELS, RECIPE, Row, _closing, _examples, demo, line
from examples.docstrings import Documented
from isotrope.core.errors import InputError
from isotrope.core.result import Result

SMALL = replace(RECIPE, heldout=100, trained=600, steps=3, batch_size=16, probe=16)


@pytest.mark.nightly  # minutes; tests/training/test_repeat.py compares smaller runs
def test_one_seed_prints_the_same_metrics_twice(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    told: list[str] = []
    first = demo(tmp_path / "demo", recipe=SMALL, tell=told.append)
    again = demo(tmp_path / "demo", recipe=SMALL, tell=told.append)  # replaces the first
    assert [r.cells()[:-1] for r in first.rows] == [r.cells()[:-1] for r in again.rows]
    assert [r.model for r in first.rows] == ["untrained", *MODELS]
    assert all(r.dissipation is not None for r in first.rows[2:])
    assert first.rows[3].ratio is None, "Barlow Twins' ratio is matrix-valued"
    # the line, the row and the run agree on which model was saved
    for row in first.rows[1:]:
        result = Result.load(tmp_path / "demo" / row.model / "result.json")
        assert row.saved == (result.metrics["dev_best_step"] == result.metrics["steps"])
        at = next(i for i, words in enumerate(told) if words.startswith(f"{row.model}: "))
        saved = row.mrr if row.saved else first.rows[0].mrr
        assert told[at].startswith(
            f"{row.model}: MRR@10 {100 * saved:.2f} on the held-out functions"
        )
        assert told[at + 1].endswith(result.details["verdict"])
        assert ("the saved model is the one before training" in told[at + 1]) == (not row.saved)
    assert set(first.diagnoses) == set(MODELS)
    closing = "\n".join(_closing(first, tmp_path / "demo"))
    assert "infonce: " in closing
    assert f"isotrope diagnose {tmp_path / 'demo'}" in closing
    page = first.report.read_text()
    assert "Not diagnosed yet" not in page
    assert "Held-out functions" in page
    for name in MODELS:
        assert (tmp_path / "demo" / name / "model" / "modules.json").is_file()
    functions = re.match(r"([\d,]+) documented functions", told[0])
    assert functions is not None
    assert int(functions[1].replace(",", "")) > 2_000


def test_the_line_has_the_score_of_the_model_that_was_saved() -> None:
    untrained = Row("untrained", mrr=0.6521, recall=0.56, alignment=1.0, uniformity=-3.6)
    kept = replace(untrained, model="infonce", mrr=0.6982)
    assert line(kept, untrained) == (
        "infonce: MRR@10 69.82 on the held-out functions: the saved model"
    )
    left = replace(untrained, model="barlowtwins", mrr=0.6576, saved=False)
    assert line(left, untrained) == (
        "barlowtwins: MRR@10 65.21 on the held-out functions: the saved model, the one before "
        "fine-tuning (last step, not saved: 65.76)"
    )
    label, *scores = left.shown()[:3]
    assert (label, scores) == ("barlowtwins (last step, not saved)", pytest.approx([65.76, 56]))


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds something else than a demo \(thesis.tex\)"):
        demo(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_somebody_elses_run_of_the_same_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "infonce").mkdir()
    (tmp_path / "infonce" / "config.yaml").write_text("files:\n- mine.txt\noutput: infonce\n")
    with pytest.raises(InputError, match=r"holds something else than a demo \(infonce\)"):
        demo(tmp_path)
    assert (tmp_path / "infonce" / "config.yaml").exists()


@pytest.mark.nightly
def test_the_whole_demo_beats_the_untrained_model(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    outcome = demo(tmp_path / "demo")
    scores = {row.model: row.mrr for row in outcome.rows}
    assert outcome.best != "untrained"
    assert scores[outcome.best] > scores["untrained"] + 0.02
    best = next(row for row in outcome.rows if row.model == outcome.best)
    assert best.saved
    assert best.judgement is not None
    assert best.judgement.outcome == "improved"
    gain = best.judgement.numbers["last"]["difference"] / 100
    assert gain == pytest.approx(best.mrr - scores["untrained"])
    assert len(outcome.examples) == 3


def test_the_first_example_got_better() -> None:
    """Of three that changed: the first got worse, the second better."""
    heldout = [Documented(name, name, f"{name} target") for name in "abc"]
    rows = {"a": 0, "b": 1, "c": 2}

    class Fixed:
        def __init__(self, wrong: dict[str, int]) -> None:
            self.wrong = wrong

        def encode(self, texts: list[str]) -> np.ndarray:
            places = [rows[t[0]] if "target" in t else self.wrong[t] for t in texts]
            return np.eye(3)[places]

    before, after = Fixed({"a": 0, "b": 0, "c": 0}), Fixed({"a": 1, "b": 1, "c": 1})
    examples = _examples(heldout, before, after)
    assert [one.query for one in examples] == ["b", "a", "c"]
    assert examples[0].after[0] == examples[0].answer
