"""Services beside TensorBoard, with stand-ins for their packages, which are not installed."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightning.pytorch.loggers import wandb as lightnings
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isotrope.cli.main import guarded
from isotrope.core.errors import InputError
from isotrope.diagnostics.metrics import MEASURED
from isotrope.training import loggers
from isotrope.training.fit_text import fit
from tests.training.interrupted import power_cut

STAND_IN = """
import json, os
from pathlib import Path

run = None


class _Config:
    def __init__(self, tell):
        self.tell = tell

    def update(self, values, allow_val_change=False):
        self.tell({"config": values})


class _Run:
    def __init__(self, **how):
        self.id = how["id"] or "new1"
        self.file = Path(how["dir"]) / "wandb.jsonl"
        self.tell({"init": {**how, "dir": str(how["dir"])}})
        self.config = _Config(self.tell)

    def tell(self, what):
        with self.file.open("a") as handle:
            handle.write(json.dumps(what) + "\\n")

    def log(self, values):
        self.tell({"log": values})

    def finish(self):
        self.tell({"finish": True})


def init(**how):
    if os.environ.get("STAND_IN") == "refuses":
        raise RuntimeError("api_key not\\nconfigured")
    return _Run(**how)
"""


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "site" / "wandb"
    (package / "sdk").mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    (package / "sdk" / "__init__.py").write_text("")
    (package / "sdk" / "lib.py").write_text("class RunDisabled: ...\n")
    (package / "wandb_run.py").write_text("class Run: ...\n")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(lightnings, "_WANDB_AVAILABLE", True)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        del sys.modules[name]


def told(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "wandb.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("wandb")
def test_the_same_numbers_go_there(quick: dict) -> None:
    outcome = fit(**quick, dev="auto", logger=["tensorboard", "wandb"])
    said = told(outcome.output)
    assert said[0]["init"]["project"] == "mine"
    assert said[0]["init"]["name"] == "run"
    assert said[1]["config"]["batch-size"] == 16
    logged = [what["log"] for what in said if "log" in what]
    looked = [values for values in logged if "loss" in values]
    assert [values["trainer/global_step"] for values in looked] == [0, 2, 4, 5]
    assert {*MEASURED, "learning_rate", "gradient_norm"} <= looked[0].keys()
    assert [v["trainer/global_step"] for v in logged if "dev" in v] == [0, 3, 6]
    assert said[-1] == {"finish": True}
    board = EventAccumulator(str(outcome.output / "tensorboard"))
    board.Reload()
    scalars = {name for values in logged for name in values} - {"trainer/global_step"}
    assert set(board.Tags()["scalars"]) == scalars
    assert [event.step for event in board.Scalars("positive_mean")] == [0, 2, 4, 5]


@pytest.mark.usefixtures("wandb")
def test_a_resumed_run_is_the_same_run_there(quick: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    from isotrope.training import simcse

    step = simcse.SimCSE.training_step

    def dies(self, batch, batch_idx):
        if self.global_step == 5:
            raise RuntimeError("the power is gone")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(simcse.SimCSE, "training_step", dies)
    with pytest.raises(RuntimeError, match="power"):
        fit(**quick, logger="wandb")
    monkeypatch.setattr(simcse.SimCSE, "training_step", step)
    folder = fit(**quick, logger="wandb", resume=True).output
    assert [what["init"]["id"] for what in told(folder) if "init" in what] == [None, "new1"]


@pytest.mark.usefixtures("wandb")
def test_where_it_refuses_the_reason_is_told(quick: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "refuses")
    with pytest.raises(InputError, match=r"wandb cannot begin a run \(api_key not configured\)"):
        fit(**quick, logger="wandb")


def test_without_the_package_nothing_begins(quick: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^logger wandb needs .*: pip install wandb"):
        fit(**quick, logger="wandb")
    assert not Path(quick["output"]).exists()


class Server:
    """As much of Lightning's MLFlowLogger as is used."""

    def __init__(self, experiment, *, run_name, tracking_uri, save_dir, run_id) -> None:
        self.experiment, self.version = experiment, run_id or "new1"
        self.told = [("init", run_name, tracking_uri, save_dir, run_id)]
        made.append(self)

    def log_hyperparams(self, params) -> None:
        self.told.append(("config", params["batch-size"]))

    def log_metrics(self, values, step) -> None:
        self.told.append((step, sorted(values)))

    def finalize(self, status) -> None:
        self.told.append((status,))


made: list[Server] = []


TRACKIO = """
import json, os
from pathlib import Path


class _Run:
    def __init__(self, **how):
        self.config = {}
        self.tell({"init": how})

    def tell(self, what):
        with Path(os.environ["TRACKIO_DIR"]).open("a") as handle:
            handle.write(json.dumps(what) + "\\n")

    def log(self, metrics, step):
        self.tell({"step": step, "config": self.config["batch-size"], **metrics})

    def finish(self):
        self.tell({"finish": True})


def init(**how):
    print("* Created new run")
    return _Run(**how)
"""


def test_trackio_gets_the_same_numbers_and_its_run_goes_on(
    quick: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "trackio.py").write_text(TRACKIO)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "said.jsonl"))
    importlib.invalidate_caches()
    with power_cut(5):
        fit(**quick, logger="trackio")
    fit(**quick, logger="trackio", resume=True)
    said = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    first, second = (what["init"] for what in said if "init" in what)
    assert first["name"].startswith("run-")
    assert first["name"] == second["name"]
    assert [first["resume"], second["resume"]] == ["never", "must"]
    assert first["project"] == "isotrope"
    assert [what["step"] for what in said if "loss" in what] == [0, 2, 4, 4, 5]
    assert {what["config"] for what in said if "loss" in what} == {16}
    assert [what for what in said if "finish" in what] == [{"finish": True}] * 2
    assert capsys.readouterr().out == "", "what it prints is no result"
    sys.modules.pop("trackio")


def test_mlflow_gets_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "MLFlowLogger", Server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    (tmp_path / "config.yaml").write_text("batch-size: 16\n")
    ours = loggers.Loggers(tmp_path, ["mlflow"])
    ours.start()
    ours.log({"loss": 1.0, "dev": None}, 3)
    ours.close()
    assert made[-1].experiment == "isotrope"
    start = ("init", tmp_path.name, "http://localhost:5000", str(tmp_path / "mlruns"), None)
    assert made[-1].told == [start, ("config", 16), (3, ["loss"]), ("success",)]
    assert ours.run_ids == {"mlflow": "new1"}
    again = loggers.Loggers(tmp_path, ["mlflow"])
    again.run_ids = {"mlflow": "old"}
    again.start()
    assert made[-1].told[0][-1] == "old"
    assert not (tmp_path / "tensorboard").exists()


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
