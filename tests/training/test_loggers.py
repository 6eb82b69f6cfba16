"""Where the numbers go beside metrics.csv: TensorBoard, and the loggers of transformers."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from isotrope.cli.main import guarded
from isotrope.diagnostics.metrics import MEASURED
from isotrope.training.fit_text import fit
from tests.refused import refused_setting
from tests.training.interrupted import power_cut


class Service(TrainerCallback):
    """A logger of transformers, whose package is not installed."""

    def __init__(self) -> None:
        self.name = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.name = args.run_name

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: object) -> None:
        said.append((self.name, state.global_step, dict(logs)))


said: list[tuple[str, int, dict[str, float]]] = []


@pytest.fixture(autouse=True)
def _service(monkeypatch: pytest.MonkeyPatch) -> None:
    said.clear()
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "wandb", Service)
    monkeypatch.setattr("isotrope.training.run.check_loggers", lambda names: None)


def test_the_same_numbers_go_there(quick: dict) -> None:
    outcome = fit(**quick, dev="auto", logger=["tensorboard", "wandb"])
    assert {name for name, _, _ in said} == {"run"}
    looked = [(step, values) for _, step, values in said if "loss" in values]
    assert [step for step, _ in looked] == [0, 2, 4, 5]
    assert {*MEASURED, "learning_rate", "gradient_norm"} <= looked[0][1].keys()
    assert [step for _, step, values in said if "dev" in values] == [0, 3, 6]
    board = EventAccumulator(str(outcome.output / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["scalars"]) == {name for _, _, values in said for name in values}
    assert [event.step for event in board.Scalars("positive_mean")] == [0, 2, 4, 5]


def test_a_resumed_run_goes_on_there(quick: dict) -> None:
    with power_cut(5):
        fit(**quick, logger="wandb")
    outcome = fit(**quick, logger="wandb", resume=True)
    assert [step for _, step, values in said if "loss" in values] == [0, 2, 4, 4, 5]
    assert not (outcome.output / "tensorboard").exists()


def test_callbacks_of_whoever_trains_are_called(settings: dict, train: Any) -> None:
    class Ending(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            seen.append((state.global_step, given["model"].training))
            control.should_training_stop = state.global_step == 4

    seen: list[tuple[int, bool]] = []
    outcome = train(**settings, callbacks=[Ending()])
    assert seen == [(step, True) for step in (1, 2, 3, 4)]
    assert outcome.result.metrics["steps"] == 4


def test_without_the_package_nothing_begins(quick: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused_setting("logger", value="wandb", remedy="pip install wandb"):
        fit(**quick, logger="wandb")
    assert not Path(quick["output"]).exists()


def test_a_logger_is_named_on_the_command_line(
    quick: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", *quick["files"], "--output", "x", "--logger"]
    assert guarded([*line, "tensorboard", "mlflow", "--print-config"]) == 0
    assert "logger:\n- tensorboard\n- mlflow\n" in capsys.readouterr().out
    assert guarded([*line, "comet"]) == 2
    assert (
        "--logger comet: input should be 'tensorboard', 'trackio', 'wandb' or 'mlflow'"
        in capsys.readouterr().err
    )
