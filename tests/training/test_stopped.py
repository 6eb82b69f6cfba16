"""Asked to stop before the first step, or after the last: still "run me again"; what is said."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from isotrope.core.result import Result
from isotrope.training import callbacks
from isotrope.training.launch import REQUEUE
from isotrope.training.run import Outcome, stop_message

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
    """Lightning has then set up everything, and its own handlers would be in place."""
    begun, asking = DataLoader.__iter__, []
    set_up = callbacks.Stop.setup

    def ready(self: callbacks.Stop, *given: Any, **named: Any) -> None:
        set_up(self, *given, **named)
        asking.append(signal.SIGTERM)

    def asked(self: Any) -> Any:
        if asking:
            signal.raise_signal(asking.pop())
        return begun(self)

    monkeypatch.setattr(callbacks.Stop, "setup", ready)
    monkeypatch.setattr(DataLoader, "__iter__", asked)
    outcome = train(**settings)
    assert outcome.exit_code == REQUEUE
    assert outcome.result.metrics["steps"] == 1
    assert stop_message(outcome).startswith("stopped at step 1; a checkpoint is in ")
    monkeypatch.undo()
    assert train(**settings, resume=True).exit_code == 0


def test_after_the_last_step(
    settings: dict[str, Any], train: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = callbacks.Stop.restore

    def asked(self: callbacks.Stop) -> None:
        given(self)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(callbacks.Stop, "restore", asked)
    outcome = train(**settings)
    assert outcome.exit_code == REQUEUE
    assert stop_message(outcome).startswith("stopped; a checkpoint is in ")
    monkeypatch.undo()
    assert train(**settings, resume=True).exit_code == 0


def test_where_there_is_no_checkpoint_none_is_spoken_of(tmp_path: Path) -> None:
    said = stop_message(Outcome(Result("train", "x", {"steps": 0}), tmp_path, exit_code=REQUEUE))
    assert said == (
        "stopped before the first checkpoint: run the same command with --resume to start"
    )
