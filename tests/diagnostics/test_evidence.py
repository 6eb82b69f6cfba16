"""Evidence: what is read of a run folder, whatever state it is in."""

import json
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.evidence import RunEvidence, of_run
from isotrope.diagnostics.findings import MISSED
from isotrope.objectives.infonce import InfoNCE
from tests.reports.folders import OLD, write_run

HEADER = "step,loss,dead,dev\n"


def unfinished(folder: Path, lines: str, settings: str = "files: [a.txt]\n") -> Path:
    """Write a run that has not come to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.csv").write_text(HEADER + lines)
    (folder / "config.yaml").write_text(settings)
    return folder


def test_a_finished_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", dev=(80.0, 82.0, 81.0), parameters={"temperature": 0.1})
    case = of_run(run)
    assert RunFolder(run).is_run
    assert case.kind == "text"
    assert [score for _, score in case.scores] == [80.0, 82.0, 81.0]
    assert case.objective == InfoNCE(temperature=0.1)
    assert all(row.get("loss") is not None for row in case.rows)
    assert case.notes == (f"{len(case.rows)} logged steps", "3 scores")


def test_commands_in_repeated_advice_can_be_copied(tmp_path: Path) -> None:
    run = write_run(tmp_path / "my run")
    result = json.loads((run / "result.json").read_text())
    result["details"]["next"] = "next, train longer; then `isotrope evaluate RUN/rejected`"
    (run / "result.json").write_text(json.dumps(result))
    assert f"`isotrope evaluate '{run}'/rejected`" in "".join(of_run(run).notes)


def test_an_old_run_has_fewer_columns(tmp_path: Path) -> None:
    case = of_run(write_run(tmp_path / "run", columns=OLD))
    assert case.end("dead") == pytest.approx(0.01)
    assert case.end("positive_mean") is None
    assert case.first("std") is None


def test_rows_of_one_step_are_one_and_the_last_line_may_be_cut(tmp_path: Path) -> None:
    run = unfinished(tmp_path, "0,,,50\n0,2.5,0.5,\n10,1.5,0.75,\n20,1.")
    case = of_run(run)
    assert [row["step"] for row in case.rows] == [0, 10]
    assert case.scores == [(0, 50.0)]
    assert case.series("dead") == [0.5, 0.75]
    assert "2 logged steps" in case.notes
    assert any(note.startswith(MISSED) and note.endswith(" step 10") for note in case.notes)
    assert case.objective is None
    assert "the objective is not known" in case.notes


def test_early_and_end_are_medians(tmp_path: Path) -> None:
    case = RunEvidence(rows=[{"step": i, "dead": float(i)} for i in range(9)])
    assert case.first("dead") == 0
    assert case.early("dead") == 2
    assert case.end("dead") == 7
    assert RunEvidence(rows=[{"step": 0, "dead": 1.0}]).early("dead") is None


def test_the_probe_stands_in_for_what_was_not_logged() -> None:
    case = RunEvidence(
        rows=[{"step": 0, "dead": 1.0}], probe={"norm": 3.0, "dead": 0.0, "count": 9.0}
    )
    assert case.end("norm") == 3
    assert case.end("dead") == 1
    assert case.batch_size == 9


def test_images_are_scored_by_their_neighbours(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,knn\n0,2.0,60\n9,1.0,70\n")
    (tmp_path / "config.yaml").write_text("data: digits\nobjective: byol-like\n")
    case = of_run(tmp_path)
    assert case.kind == "images"
    assert [score for _, score in case.scores] == [60, 70]
    assert any(note.startswith(f"{MISSED}the objective byol-like") for note in case.notes)


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        ("0,2.5,x,\n10,1,1,1\n", "files: [a]\n", r"metrics.csv, line 2: could not convert.*'x'"),
        (
            "0,2.5\n10,1,1,1\n",
            "files: [a]\n",
            r"metrics.csv, line 2: expected 4 cells, found 2",
        ),
        (",2.5,1,\n", "files: [a]\n", r"metrics.csv, line 2: the row has no step"),
        ("0,1,1,1\n", "{", r"config.yaml, line 1: .* is not YAML"),
        ("0,1,1,1\n", "- a\n", "config.yaml: .* must hold settings"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, lines: str, settings: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        of_run(unfinished(tmp_path, lines, settings))


def test_a_log_that_is_no_text_is_named(tmp_path: Path) -> None:
    run = unfinished(tmp_path, "")
    (run / "metrics.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"metrics.csv: save this file as UTF-8; it is not"):
        of_run(run)


def test_a_finished_run_is_not_in_the_middle_of_a_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with (run / "metrics.csv").open("a") as handle:
        handle.write("700,0.5")
    with pytest.raises(InputError, match=r"metrics\.csv, line \d+: expected .*; remove the line$"):
        of_run(run)


@pytest.mark.parametrize("step", ["1e300", "-1", "inf"])
def test_a_step_that_no_run_has_is_refused(tmp_path: Path, step: str) -> None:
    run = unfinished(tmp_path, f"{step},1.5,0.5,\n10,1.5,0.5,\n")
    with pytest.raises(InputError, match=r"metrics\.csv, line 2: the step .*; remove the line$"):
        of_run(run)


def test_an_objective_is_a_name(tmp_path: Path) -> None:
    run = unfinished(tmp_path, "0,1.5,0.5,\n", "files: [a.txt]\nobjective: [1, 2]\n")
    with pytest.raises(InputError, match=r"of the objective in .*: found \[1, 2\]"):
        of_run(run)


def test_a_loss_of_sentence_transformers_has_no_objective(tmp_path: Path) -> None:
    lines = "0,0.5,,\n10,0.4,,\n"
    case = of_run(unfinished(tmp_path / "run", lines, "files: [a.txt]\nloss: CoSENTLoss\n"))
    assert case.objective is None
    assert "the gradient components of the loss CoSENTLoss are not logged" in case.notes
    (found,) = diagnose(case).findings
    assert found.verdict == "not-enough-seen"
    assert (
        found.change
        == "train with this loss in your own trainer, and measure with isotrope.Doctor()"
    )
