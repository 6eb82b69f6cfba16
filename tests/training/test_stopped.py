"""Asked to stop before the first step, or after the last: still "run me again"; what is said."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from isotrope.core.errors import LostProcess
from isotrope.core.result import Result
from isotrope.training import loop, run_callback, text
from isotrope.training.dev_scorer import DevScorer
from isotrope.training.fit_text import fit
from isotrope.training.launch import REQUEUE
from isotrope.training.loop import is_lost_worker
from isotrope.training.run import Outcome, run, stop_message
from isotrope.training.settings import TrainSettings
from isotrope.training.trainers import RunTrainer

Fit = Callable[..., Any]


@pytest.fixture(autouse=True)
def _handler_of_ours():
    """A signal that nobody handles would end the tests."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_while_the_first_batch_is_fetched(
    settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer has then set up everything."""
    loader = RunTrainer.get_train_dataloader

    def asked(self: RunTrainer) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return loader(self)

    monkeypatch.setattr(RunTrainer, "get_train_dataloader", asked)
    outcome = train(**settings)
    assert outcome.exit_code == REQUEUE
    assert outcome.result.metrics["steps"] == 1
    assert stop_message(outcome).startswith("stopped at step 1; run the same command with --resume")
    monkeypatch.undo()
    assert train(**settings, resume=True).exit_code == 0


def test_while_the_processes_agree_whether_to_stop(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This may take as long as the slowest process needs for its step."""
    values: list[int] = []

    def asked(value: int, device: object) -> int:
        values.append(value)
        if len(values) == 2:
            signal.raise_signal(signal.SIGTERM)
        return value

    monkeypatch.setattr(run_callback, "all_reduce_max", asked)
    outcome = fit(**{**quick, "max_steps": 6})
    assert outcome.exit_code == REQUEUE
    assert outcome.result.metrics["steps"] == 2


def test_after_the_last_step(
    settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = loop.make_steps

    def asked(*given: Any, **named: Any) -> int:
        code = steps(*given, **named)
        signal.raise_signal(signal.SIGTERM)
        return code

    monkeypatch.setattr(loop, "make_steps", asked)
    outcome = train(**settings)
    assert outcome.exit_code == REQUEUE
    assert stop_message(outcome).startswith("stopped; run the same command with --resume to")
    monkeypatch.undo()
    assert train(**settings, resume=True).exit_code == 0


@pytest.mark.parametrize("prefer", ["trained", "original"])
def test_with_the_last_step_no_second_training_begins(
    prefer: str, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**quick, "dev": "auto", "holdout": 0.2, "prefer": prefer}
    given |= {"refit": True, "eval_every": 0}
    after_step = DevScorer.after_step

    def asked(self: DevScorer, at: int) -> None:
        after_step(self, at)
        if at == self.module.steps:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(DevScorer, "after_step", asked)
    outcome = fit(**given)
    assert "refit" not in outcome.result.details
    if prefer == "original":  # nothing is left to do
        assert outcome.exit_code == outcome.result.metrics["dev_best_step"] == 0
        return
    assert outcome.exit_code == 128 + signal.SIGINT
    assert "first training, whose model is saved in" in stop_message(outcome)
    monkeypatch.undo()
    again = text.train(TrainSettings.read(given), resume=True)
    assert again.exit_code == 0
    assert "refit" in again.result.details


def test_with_early_stopping_no_second_training_begins(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**quick, "dev": "auto", "holdout": 0.2, "prefer": "trained"}
    given |= {"refit": True, "eval_every": 1, "patience": 1, "max_steps": 40}
    after_step = DevScorer.after_step

    def asked(self: DevScorer, at: int) -> None:
        after_step(self, at)
        if self.is_exhausted:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(DevScorer, "after_step", asked)
    outcome = fit(**given)
    assert 0 < outcome.result.metrics["steps"] < 40
    assert outcome.exit_code == 128 + signal.SIGINT
    assert "refit" not in outcome.result.details
    assert "first training, whose model is saved in" in stop_message(outcome)
    monkeypatch.undo()
    again = text.train(TrainSettings.read(given), resume=True)
    assert again.exit_code == 0
    assert "refit" in again.result.details


def test_where_there_is_no_checkpoint_none_is_spoken_of(tmp_path: Path) -> None:
    said = stop_message(Outcome(Result("train", "x", {"steps": 0}), tmp_path, exit_code=REQUEUE))
    assert said == (
        "run the same command with --resume to begin again: stopped without a checkpoint"
    )


def test_in_the_second_training_the_first_model_is_spoken_of(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**quick, "dev": "auto", "holdout": 0.2, "prefer": "trained"}
    given |= {"refit": True, "eval_every": 0}
    steps, calls = RunTrainer.get_train_dataloader, iter(range(9))

    def asked(self: RunTrainer) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return steps(self)

    monkeypatch.setattr(RunTrainer, "get_train_dataloader", asked)
    outcome = fit(**given)
    assert outcome.result.metrics["dev_best_step"]
    assert outcome.exit_code == 128 + signal.SIGINT
    said = stop_message(outcome)
    assert said.startswith("run the same command with --resume to continue: ")
    assert f"first training, whose model is saved in {outcome.output / 'model'}" in said
    assert said.endswith(outcome.result.details["verdict"])
    settings, waiting = TrainSettings.read(given), "nothing to train"
    assert "refit" in text.train(settings, resume=True, lines=True).result.details
    assert waiting not in capsys.readouterr().err
    text.train(settings, resume=True, lines=True)
    assert waiting in capsys.readouterr().err


def test_a_worker_that_dies_while_a_batch_is_handed_over_has_gone() -> None:
    def _try_get_data(error: Exception) -> None:
        raise error

    def found(error: Exception) -> bool:
        try:
            _try_get_data(error)
        except Exception as raised:
            return is_lost_worker(raised)
        return False

    assert hasattr(_MultiProcessingDataLoaderIter, "_try_get_data"), "torch calls it otherwise"
    assert found(ConnectionResetError(104, "Connection reset by peer"))
    assert found(EOFError())
    assert not found(ValueError())
    assert not is_lost_worker(ConnectionResetError(104, "of something else"))
    assert is_lost_worker(RuntimeError("DataLoader worker (pid 5) is killed by signal: Killed."))


def test_a_lost_process_that_torch_reports_twice_is_one_error(tmp_path: Path) -> None:
    """torch's handler of signals raises again, wherever the first error is being dealt with."""

    def work(*_: object) -> Outcome:
        try:
            raise LostProcess("a process that reads data died")
        finally:
            raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    settings = TrainSettings(files=["corpus.txt"], output=tmp_path / "run")
    with pytest.raises(LostProcess, match="died; run the same command"):
        run(settings, work, resume=False)
