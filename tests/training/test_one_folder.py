"""Two runs on one folder: the second is refused at once and touches nothing; readers still read."""

import os
from pathlib import Path

import pytest

import isotrope
from isotrope.cli.main import guarded
from isotrope.core.errors import InputError
from isotrope.core.run_folder import LOCK
from isotrope.training import launch as launching
from isotrope.training.fit_text import fit
from isotrope.training.images.train import fit_images
from isotrope.training.run import trained
from isotrope.training.settings import TrainSettings
from isotrope.training.text import train
from tests.core.test_lock import held, is_free
from tests.training.conftest import IMAGES


@pytest.fixture(params=["text", "images"])
def run(request: pytest.FixtureRequest, quick: dict) -> tuple[list[str], Path]:
    """The arguments of a run on two processes, and its folder; neither is ever started."""
    output = Path(quick["output"])
    data = ["train", *quick["files"]] if request.param == "text" else ["train-images", "digits"]
    return [*data, "--output", str(output), "--batch-size", "16"], output


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_is_one_line_and_exit_code_2(
    run: tuple[list[str], Path], devices: int, resume: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, output = run
    with held(output) as (process, _):
        (output / "config.yaml").write_text("anything")
        before = {path: path.stat().st_mtime_ns for path in (output, *output.rglob("*"))}
        more = ["--devices", str(devices), "--device", "cpu", *["--resume"] * resume]
        assert guarded([*arguments, *more]) == 2
        error = capfd.readouterr().err
        assert error.startswith(
            f"isotrope: error: another process is training in {output} (process {process.pid} on "
        )
        assert error.count("\n") == 1
        after = {path: path.stat().st_mtime_ns for path in (output, *output.rglob("*"))}
        assert after == before


def test_a_second_run_in_the_same_process(quick: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that begins before the first has written anything but its lock."""
    from isotrope.training import text

    prepare = text._prepare
    refused = []

    def prepared(*given: object) -> object:
        with pytest.raises(
            InputError, match="an earlier call of this process is training in"
        ) as caught:
            fit(**quick)
        refused.append(caught)
        return prepare(*given)

    monkeypatch.setattr(text, "_prepare", prepared)
    assert fit(**{**quick, "max_steps": 1}).exit_code == 0
    assert len(refused) == 1


@pytest.mark.parametrize("kind", ["text", "images"])
def test_the_lock_is_held_to_the_end_and_then_gone(
    quick: dict, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that a killed process has left is no hindrance, and no content."""
    from isotrope.core.result import Result

    output = Path(quick["output"])
    output.mkdir()
    (output / LOCK).write_text("process 1 on nowhere\n")
    save, free = Result.save, []

    def saved(self: Result, path: Path) -> None:
        save(self, path)
        free.append(is_free(output))

    monkeypatch.setattr(Result, "save", saved)
    if kind == "text":
        fit(**{**quick, "max_steps": 1})
    else:
        fit_images(**IMAGES, output=str(output))
    assert free == [False]
    assert not (output / LOCK).exists()


@pytest.mark.parametrize("devices", [1, 2])
def test_a_finished_run_is_not_begun_again(
    quick: dict, devices: int, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = fit(**{**quick, "max_steps": 1, "device": "cpu"})
    settings = TrainSettings.read({**quick, "max_steps": 1, "device": "cpu", "devices": devices})
    assert train(settings, resume=True, lines=True).result == outcome.result
    assert f"nothing to train: the run in {outcome.output} is" in capsys.readouterr().err


def test_what_is_refused_leaves_no_lock(quick: dict, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    before = (tmp_path / "run").stat().st_mtime_ns
    for resume in (False, True):
        with pytest.raises(
            InputError, match=r"continue the run in|has no config|has files, but no run"
        ):
            fit(**quick, resume=resume)
    assert (tmp_path / "run").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_running_folder_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "run"
    fit_images(**IMAGES, output=str(output))
    with held(output) as (process, _):
        for command in (["evaluate", "--knn"], ["diagnose"], ["report"]):
            extra = ["--output", str(tmp_path / "report.html")] * (command == ["report"])
            assert guarded([*command, str(output), *extra]) == 0, capsys.readouterr().err
        assert isotrope.load(output).dimension > 0
        assert process.poll() is None
        assert not is_free(output)


def test_who_was_started_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not launching.launched()
    monkeypatch.setenv("ISOTROPE_LAUNCHER", str(os.getppid()))
    assert launching.launched()
    monkeypatch.setenv("ISOTROPE_LAUNCHER", str(os.getpid()))  # our own child's
    assert not launching.launched()


def test_of_several_processes_the_starter_and_the_first_have_the_folder(
    quick: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between, and when one of them is killed, nobody else gets in (tests/core/test_lock)."""
    output, found = Path(quick["output"]), []

    def launch(devices: int, task: object, order: object) -> tuple[int, None]:
        with held(output, "started"):
            found.append(is_free(output))
        return 0, None

    monkeypatch.setattr("isotrope.training.run.launch", launch)
    assert fit(**quick, devices=2, device="cpu").exit_code == 0
    assert found == [False]
    assert not output.exists()
    monkeypatch.setattr("isotrope.training.run.launched", lambda: True)
    monkeypatch.setenv("RANK", "0")  # as the starter sets it
    with held(output, "starter"):
        assert fit(**{**quick, "max_steps": 1}).exit_code == 0
        assert (output / LOCK).exists()


def test_a_folder_of_other_files_is_not_removed(quick: dict) -> None:
    output = Path(quick["output"])
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    settings = TrainSettings.read({**quick, "output": str(output)})
    with pytest.raises(InputError, match="to resume"):
        trained(settings)  # as a sweep does
    assert (output / "thesis.txt").exists()
