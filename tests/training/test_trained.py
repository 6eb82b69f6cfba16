"""Trained: a training of a cell goes on from whatever was left in its folder."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import Diverged, InputError, LostProcess
from isotrope.core.result import Result
from isotrope.training.run import Outcome, trained
from isotrope.training.settings import TrainSettings
from isotrope.training.text import train
from isotrope.training.trainers import RunTrainer
from tests.training.conftest import sentences


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 steps that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "texts.txt").write_text("\n".join(sentences(48)) + "\n")
    train(settings(folder))
    return folder


def settings(folder: Path, **more: Any) -> TrainSettings:
    own = {
        "files": str(folder / "texts.txt"),
        "output": str(folder / "run"),
        "encoder": "scratch",
        "batch_size": 8,
        "max_length": 12,
        "max_steps": 6,
        "keep_every": 2,
        "checkpoint_every": 10**9,
        "log_every": 1,
        "progress": False,
    }
    return TrainSettings.read({**own, **more})


@pytest.fixture
def stopped(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same run, as it is after kill -9 in its fifth step."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    shutil.copy(whole / "texts.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints" / "checkpoint-6")
    shutil.rmtree(run / "model")
    config = (run / "config.yaml").read_text().replace(str(whole), str(tmp_path))
    (run / "config.yaml").write_text(config)
    return tmp_path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are made."""
    made: list[int] = []
    plain = RunTrainer.training_step

    def step(self: RunTrainer, *args: Any) -> Any:
        made.append(self.state.global_step)
        return plain(self, *args)

    monkeypatch.setattr(RunTrainer, "training_step", step)
    return made


def numbers(run: Path) -> list[list[str]]:
    """What was logged, without how fast it was."""
    lines = (run / "metrics.csv").read_text().splitlines()
    return [line.split(",")[:-1] for line in lines]


def test_a_killed_run_goes_on_from_the_last_checkpoint_that_stays(
    whole: Path, stopped: Path, steps: list[int]
) -> None:
    outcome = trained(settings(stopped))
    assert steps == [4, 5]
    assert outcome.result.metrics["steps"] == 6
    assert numbers(stopped / "run") == numbers(whole / "run")


def test_a_run_that_lacks_only_its_end_is_ended(stopped: Path, whole: Path) -> None:
    name = "run/checkpoints/checkpoint-6"
    shutil.copytree(whole / name, stopped / name)
    outdated = stopped / "run" / "diagnosis.json"
    outdated.write_text("{}")  # of the steps before
    outcome = trained(settings(stopped))
    assert outcome.result.metrics["steps"] == 6
    assert (stopped / "run" / "result.json").is_file()
    assert not outdated.exists()


def test_a_finished_run_is_not_trained_again(whole: Path, steps: list[int]) -> None:
    assert trained(settings(whole)).result.metrics["steps"] == 6
    assert steps == []


@pytest.mark.parametrize("what", ["damaged", "changed", "no run"])
def test_what_cannot_be_used_is_begun_again(stopped: Path, steps: list[int], what: str) -> None:
    run, more = stopped / "run", {}
    if what == "damaged":
        for file in (run / "checkpoints").glob("*/model.pt"):
            file.write_bytes(file.read_bytes()[:100])
    elif what == "changed":
        more["learning_rate"] = 1e-4
    else:
        shutil.rmtree(run)
        (run / ".config.yaml.abcd1234").mkdir(parents=True)  # killed while it wrote settings
    assert trained(settings(stopped, **more)).result.metrics["steps"] == 6
    assert steps == [0, 1, 2, 3, 4, 5]


def test_what_cannot_be_trained_at_all_says_why(stopped: Path) -> None:
    for output in (stopped / "run", stopped / "new"):
        with pytest.raises(InputError, match="unknown objective 'mine'"):
            trained(settings(stopped, objective="mine", output=str(output)))


@pytest.mark.parametrize("error", [Diverged("training diverged"), InputError("the disk is full")])
def test_what_was_left_stays_where_it_is_not_at_fault(stopped: Path, error: InputError) -> None:
    calls = []

    def failing(settings: TrainSettings, *, resume: bool) -> Outcome:
        calls.append(resume)
        raise error

    with pytest.raises(type(error)):
        trained(settings(stopped), failing)
    assert calls == [True]
    assert (stopped / "run" / "checkpoints" / "checkpoint-4").is_dir()


@pytest.mark.parametrize(("code", "error"), [(130, KeyboardInterrupt), (75, LostProcess)])
def test_a_request_to_stop_is_no_result(
    tmp_path: Path, code: int, error: type[BaseException]
) -> None:
    def asked(settings: TrainSettings, *, resume: bool) -> Outcome:
        return Outcome(Result("train", "x", {}), tmp_path, exit_code=code)

    (tmp_path / "texts.txt").write_text("a\n")
    with pytest.raises(error):
        trained(settings(tmp_path), asked)
