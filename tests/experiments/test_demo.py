"""The demo: small and twice in the suite, whole in the longer checks."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.experiments.demo import OBJECTIVES, RECIPE, demo

SMALL = replace(RECIPE, heldout=100, trained=600, steps=3, batch_size=16, probe=16)


@pytest.mark.slow
def test_one_seed_prints_the_same_metrics_twice(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    told: list[str] = []
    first = demo(tmp_path / "demo", recipe=SMALL, tell=told.append)
    again = demo(tmp_path / "demo", recipe=SMALL, tell=told.append)  # replaces the first
    assert [r.cells()[:-1] for r in first.rows] == [r.cells()[:-1] for r in again.rows]
    assert [r.model for r in first.rows] == ["untrained", *OBJECTIVES]
    assert all(r.dissipation is not None for r in first.rows[1:])
    assert first.rows[2].ratio is None, "Barlow Twins' ratio is matrix-valued"
    page = first.report.read_text()
    assert "Held-out functions" in page
    for name in OBJECTIVES:
        assert (tmp_path / "demo" / name / "model" / "modules.json").is_file()
    functions = re.match(r"([\d,]+) documented functions", told[0])
    assert functions is not None
    assert int(functions[1].replace(",", "")) > 2_000


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
    assert best.helped
    assert best.gain == pytest.approx(best.mrr - scores["untrained"])
    assert len(outcome.examples) == 3
