"""Run folders are read whole, or refused with the file that is wrong."""

from pathlib import Path

import numpy as np
import pytest

from isotrope.cli.main import main
from isotrope.core.errors import InputError
from isotrope.diagnostics.target import diagnose
from isotrope.reports.comparison import cells, columns
from isotrope.reports.run_summary import verdict
from isotrope.reports.runs import read_run
from tests.reports.folders import write_run


def test_finished_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "first"))
    assert (run.name, run.objective, run.parameters) == ("first", "infonce", {"temperature": 0.05})
    assert run.finished
    assert run.metric("dev_best") == 87.13
    assert run.metric("dev_best_step") == 20
    assert list(run.steps[:3]) == [0, 2, 4]
    assert np.isnan(run.series["loss"][0])
    assert run.dev_name == "dev STS Spearman (dev.tsv)"


def test_run_in_progress_reads_what_is_there(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x", finished=False, parameters={"temperature": 0.1})
    with (folder / "metrics.csv").open("a", encoding="utf-8") as handle:
        handle.write("42,1.0")  # in the middle of a line
    run = read_run(folder)
    assert not run.finished
    assert run.steps[-1] == 40
    assert (run.objective, run.parameters) == ("infonce", {"temperature": 0.1})
    assert run.metric("dev_start") == 86.61
    assert (run.metric("dev_best"), run.metric("dev_best_step")) == (87.13, 20)
    assert run.metric("dissipation") == pytest.approx(0.24, abs=0.01)
    assert run.metric("seconds") is None


def test_run_that_has_not_logged_yet(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x", finished=False)
    (folder / "metrics.csv").write_text("step,lo", encoding="utf-8")
    run = read_run(folder)
    assert len(run.steps) == 0
    assert run.metric("dev_best") is None
    assert run.last("loss") is None


def test_rows_of_one_step_are_merged(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x")
    (folder / "metrics.csv").write_text("step,loss,dev\n2,0.5,\n\n0,,80\n2,,81\n", encoding="utf-8")
    run = read_run(folder)
    assert list(run.steps) == [0, 2]
    assert list(run.series["dev"]) == [80, 81]
    assert run.series["loss"][1] == 0.5


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.csv", "", r"metrics\.csv, line 1: the header has no column 'step'"),
        ("metrics.csv", "loss\n1\n", r"metrics\.csv, line 1: the header has no column 'step'"),
        (
            "metrics.csv",
            "step,loss\n1,2\n3",
            r"metrics\.csv, line 3: expected 2 cells, found 1",
        ),
        (
            "metrics.csv",
            "step,loss\n1,x\n",
            r"metrics\.csv, line 2: .*'x'; every cell must be a number",
        ),
        ("metrics.csv", "step,loss\n,2\n", r"metrics\.csv, line 2: the row has no step"),
        ("metrics.csv", "step,loss\n-1,2\n", r"line 2: the step -1 is not between 0 and 2\^53"),
        ("metrics.csv", "step,loss\n1e16,2\n", r"the step 1e\+16 is not between 0 and 2\^53"),
        (
            "metrics.csv",
            "step,loss,loss\n0,1,2\n",
            "1: the header has the column 'loss' twice",
        ),
        (
            "metrics.csv",
            b"\xff\xfe",
            r"metrics\.csv: save this file as UTF-8; it is not UTF-8 text \(byte 0",
        ),
        ("config.yaml", "a: [", r"config\.yaml, line 1: correct this file; it is not YAML"),
        ("config.yaml", "- a\n", r"config\.yaml: .* must hold settings"),
        ("result.json", "{", r"result\.json is not a result of isotrope"),
        ("result.json", '{"kind":"train","name":"x","metrics":[]}', "metrics must be an object"),
        (
            "result.json",
            '{"kind":"sts","name":"x","metrics":{}}',
            r"the result of another command \(sts\)",
        ),
    ],
)
def test_damaged_file_is_named(tmp_path: Path, file: str, text: str | bytes, message: str) -> None:
    folder = write_run(tmp_path / "x")
    (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InputError, match=message):
        read_run(folder)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"give the output folder of .*nowhere is not a folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"cannot find the file .*metrics\.csv"):
        read_run(tmp_path)
    run = write_run(tmp_path / "run")
    (run / "config.yaml").unlink()
    with pytest.raises(InputError, match=r"config\.yaml: check the path; there is no such file"):
        read_run(run)


def test_the_log_of_a_loop_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,norm\n0,2,1\n10,1,3\n", encoding="utf-8")
    run = read_run(tmp_path)
    assert run.foreign
    assert (run.objective, run.parameters, run.of_images) == ("?", {}, False)
    assert verdict(run) == "Your own training loop, up to step 10: no dev score was measured."
    (row,) = cells([run])
    told = dict(zip([key for key, _, _ in columns([run])], row, strict=True))
    assert told["seconds"].title == "not measured in this run"


def test_settings_of_another_program_beside_the_log_of_the_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hydra writes config.yaml into the output folder of a trainer."""
    (tmp_path / "config.yaml").write_text("trainer:\n  lr: 1e-5\nobjective: infonce\n")
    recorded = tmp_path / "isotrope"
    recorded.mkdir()
    rows = "".join(f"{10 * i},1.5,0.3\n" for i in range(5))
    (recorded / "metrics.csv").write_text(f"step,loss,hardest_share\n{rows}")
    run = read_run(tmp_path)
    assert run.foreign
    assert run.series["loss"].tolist() == [1.5] * 5
    assert "logged steps: 5" in str(diagnose(tmp_path))
    page = tmp_path / "report.html"
    with pytest.raises(SystemExit, match="0"):
        main(["report", str(tmp_path), str(tmp_path), "-o", str(page)])
    assert "left out" not in capsys.readouterr().err


def test_a_quote_that_never_ends_is_no_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x")
    (folder / "metrics.csv").write_text('step,loss\n"' + "1," * 100_000 + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics\.csv is not CSV \(.*\); restore the file$"):
        read_run(folder)


def test_numbers_that_no_axis_holds_were_not_measured(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x")
    (folder / "metrics.csv").write_text("step,loss\n1,1e308\n2,-1e308\n3,3e38\n", encoding="utf-8")
    assert np.isfinite(read_run(folder).series["loss"]).tolist() == [False, False, True]
    (folder / "metrics.csv").write_text("step,loss\n1e300,1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics\.csv, line 2: the step .*; remove the line$"):
        read_run(folder)
