"""Several processes from start to end: what a run leaves, and what ends one early."""

import csv
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch

from isotrope.cli.main import guarded
from isotrope.core import distributed
from isotrope.core.errors import InputError, LostProcess
from isotrope.training import launch as launching
from isotrope.training.checkpoints import step_of
from isotrope.training.fit_text import fit
from isotrope.training.optimisers import step_seed
from isotrope.training.settings import TrainSettings
from isotrope.training.text import summary, train
from tests.patience import MINUTES
from tests.training.conftest import sentences
from tests.training.interrupted import checkpoints

# an objective that obeys: it fails where and when the environment says
OBEYS = """
import os, signal, time
from isotrope.objectives.infonce import InfoNCE
from isotrope.core.hyper import Paper

calls = 0

class Obeys(InfoNCE, paper=Paper("none", "none", "none")):
    def formula(self, pairs):
        global calls
        if len(pairs.views.positives) == 15:  # not when it is tried on small batches
            calls += 1
        rank, call, what = os.environ.get("OBEY", "9 9 go").split(" ", 2)
        if os.environ.get("RANK") == rank and calls == int(call):
            if what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "await SIGTERM":  # which the callback of its handler has then noted
                until = time.monotonic() + 600
                while signal.getsignal(signal.SIGTERM).__self__.stop_signal is None:
                    assert time.monotonic() < until, "no SIGTERM came"
                    time.sleep(0.01)
        return super().formula(pairs)
"""


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Settings of a small run on pairs, whose batches of 15 are split into 8 and 7."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "corpus.txt").write_text("\n".join(sentences(300)) + "\n")
    (folder / "obeys.py").write_text(textwrap.dedent(OBEYS))
    return {
        "files": [str(folder / "corpus.txt")],
        "views": "adjacent",
        "output": str(folder / "two"),
        "encoder": "scratch",
        "plugin": [str(folder / "obeys.py")],
        "objective": "obeys",
        "device": "cpu",
        "devices": 2,
        "batch_size": 15,
        "max_steps": 6,
        "log_every": 1,
        "eval_every": 3,
        "checkpoint_every": 2,
        "seed": 7,
        "progress": False,
        "dev": "auto",
        "dropout": 0.0,
        "learning_rate": 1e-3,
    }


@pytest.fixture(scope="module")
def two(shared: dict) -> Path:
    outcome = fit(**shared)
    assert outcome.exit_code == 0
    assert outcome.result.metrics["steps"] == 6
    return outcome.output


def without_speed(found: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{k: v for k, v in row.items() if k != "samples_per_second"} for row in found]


@pytest.mark.slow  # two interpreters import everything; tests/training/test_shares.py is quick
def test_two_processes_leave_one_run_folder(two: Path) -> None:
    assert [int(row["step"]) for row in rows(two)] == [0, 1, 2, 3, 4, 5, 6]
    assert [int(row["step"]) for row in rows(two) if row["dev"]] == [0, 3, 6]
    assert len(list((two / "tensorboard").glob("events*"))) == 1
    assert len(checkpoints(two)) == 2
    assert not (two / "tokens").exists()
    result = json.loads((two / "result.json").read_text())
    assert result["provenance"]["command"] == sys.argv
    assert (two / "model" / "README.md").is_file()


@pytest.mark.slow
def test_two_processes_see_what_one_sees(shared: dict, two: Path, tmp_path: Path) -> None:
    """Without dropout every number of every step is that of one process, in float32."""
    one = rows(fit(**{**shared, "output": str(tmp_path / "one"), "devices": 1}).output)
    assert_same_numbers(one, rows(two))
    assert float(one[0]["uniformity"]) > float(one[5]["uniformity"]) + 0.01, "it learns meanwhile"


def assert_same_numbers(found: list[dict[str, str]], expected: list[dict[str, str]]) -> None:
    for row, other in zip(found[:6], expected[:6], strict=True):
        for name in ("loss", "gradient_norm", "alignment", "uniformity", "dissipation", "ratio"):
            assert float(row[name]) == pytest.approx(float(other[name]), rel=1e-4), name


@pytest.mark.nightly
def test_a_lost_process_and_a_scheduler_end_a_run_that_goes_on_exactly(
    shared: dict, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {**shared, "output": str(tmp_path / "broken")}
    monkeypatch.setenv("OBEY", "1 4 die")
    with pytest.raises(
        LostProcess,
        match=r"process 1 of 2 was killed \(SIGKILL, .*memory\); run the same command with "
        r"resume=True to continue from the last checkpoint",
    ):
        fit(**broken)
    output = Path(broken["output"])
    first = step_of(checkpoints(output)[0])
    assert first <= 3
    assert not (Path(broken["output"]) / "result.json").exists()

    monkeypatch.setenv("OBEY", "1 2 await SIGTERM")  # in step 5, after the next checkpoint
    told, before = threading.Event(), signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=_terminate_us_after_the_next, args=(output, told)).start()
    try:
        stopped = fit(**broken, resume=True)
    finally:
        told.set()
        signal.signal(signal.SIGTERM, before)
    assert stopped.exit_code == launching.REQUEUE
    assert stopped.result.metrics["steps"] == 5
    assert step_of(checkpoints(output)[0]) == 5
    assert "to continue from the checkpoint in" in summary(stopped)

    monkeypatch.delenv("OBEY")
    resumed = fit(**broken, resume=True).output
    assert without_speed(rows(resumed)) == without_speed(rows(two))
    first, second = weights(two), weights(resumed)
    assert all(torch.equal(first[k], second[k]) for k in first)
    again = fit(**broken, resume=True)
    assert again.result.metrics["steps"] == 6


def _terminate_us_after_the_next(output: Path, told: threading.Event) -> None:
    """As a scheduler does, again and again."""
    before, until = checkpoints(output)[0], time.monotonic() + MINUTES
    while checkpoints(output)[0] == before and time.monotonic() < until:
        time.sleep(0.02)
    while not told.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        told.wait(3)


@pytest.mark.slow
def test_bad_input_of_a_process_is_one_line_and_leaves_nothing(
    shared: dict, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert guarded(arguments(shared, output=tmp_path / "run", batch_size=301)) == 2
    error = capfd.readouterr().err
    assert error.startswith("isotrope: error: use a batch size of at most 230, not")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def arguments(shared: dict, **changed: object) -> list[str]:
    given = {k: v for k, v in {**shared, **changed}.items() if k not in ("progress", "files")}
    lists = {"plugin": given.pop("plugin")[0]}
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in {**given, **lists}.items()]
    return ["train", shared["files"][0], *flags]


@pytest.mark.slow
def test_torchrun_and_micro_batches(shared: dict, two: Path, tmp_path: Path) -> None:
    changed = {"output": tmp_path / "run", "devices": 1, "micro_batch": 4}
    runner = ["torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "isotrope"]
    done = subprocess.run(
        [sys.executable, "-m", *runner, *arguments(shared, **changed)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("report: isotrope report") == 1
    assert_same_numbers(rows(tmp_path / "run"), rows(two))


# what needs no processes


def refused(**changed: object) -> str:
    settings = TrainSettings.read({"files": "x.txt", "output": "nowhere", **changed})
    with pytest.raises(InputError) as caught:
        train(settings)
    return str(caught.value)


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "batch_size=3: each of the 4 processes needs a row of every batch; use" in refused(
        devices=4, batch_size=3, device="cpu"
    )
    monkeypatch.setattr("isotrope.training.run.find_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "devices=2 (use at most 1, one for each GPU)" in refused(devices=2)
    monkeypatch.setattr("isotrope.training.run.find_device", lambda _: torch.device("mps"))
    assert "add device='cpu': an Apple GPU takes only one process" in refused(devices=2)


def environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    given = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in {**given, **values}.items():
        monkeypatch.setenv(name, value)


def test_torchrun_and_devices_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, WORLD_SIZE="4", LOCAL_WORLD_SIZE="2")
    assert distributed.launched_processes() == (4, 2)
    assert "torchrun has started 2 processes on this machine" in refused(devices=3, device="cpu")
    monkeypatch.delenv("MASTER_PORT")
    assert distributed.launched_processes() == (1, 1)  # half an environment is none


def test_a_machine_that_does_not_see_the_run_folder(
    quick: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotrope.training.text.rank", lambda: 1)
    monkeypatch.setattr("isotrope.training.text.barrier", lambda: None)
    monkeypatch.setattr("isotrope.training.text_data.rank", lambda: 1)
    with pytest.raises(InputError, match=r"process 1 cannot see .*tokens, which the first process"):
        fit(**quick)


def test_what_ended_a_run_is_told_from_its_consequences() -> None:
    def verdict(*answers: tuple[str, object]) -> int:
        return launching._verdict(dict(enumerate(answers)), len(answers))

    bug, gone, wrong = ("bug", "oh"), ("gone", "no peer"), ("failed", InputError("a bad file"))
    assert verdict(("done", (0, "a")), ("done", (0, "b"))) == 0
    assert verdict(("done", (75, "a")), gone) == 75
    assert verdict(("stopped", signal.SIGTERM), ("stopped", signal.SIGTERM)) == 75
    assert verdict(("done", (130, "a")), ("stopped", signal.SIGINT)) == 130
    with pytest.raises(InputError, match="a bad file"):
        verdict(gone, wrong)
    with pytest.raises(LostProcess, match=r"process 1 of 2 was killed \(SIGTERM\)"):
        verdict(gone, ("lost", -15))
    with pytest.raises(MemoryError, match="none left"):
        verdict(gone, bug, ("machine", MemoryError("none left")))
    with pytest.raises(RuntimeError, match=r"one of 2 processes failed:\noh"):
        verdict(gone, bug)
    with pytest.raises(LostProcess, match="process 0 of 2 ended with exit code 3"):
        verdict(("lost", 3), gone)
    with pytest.raises(LostProcess, match="no peer"):
        verdict(gone, gone)


@pytest.mark.parametrize(("flags", "how"), [([], "with --resume"), (["--resume"], "again")])
def test_a_lost_process_is_one_line_and_exit_code_75(
    quick: dict,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    how: str,
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise RuntimeError("[../third_party/gloo/pair.cc:534] Connection closed by peer")

    monkeypatch.setattr("isotrope.training.text._train", gone)
    command = ["train", *quick["files"], "--recipe", "papers", "--output", quick["output"]]
    assert guarded([*command, *flags]) == launching.REQUEUE
    assert capsys.readouterr().err == (
        "isotrope: error: this process ended because another process of the run ended; run "
        f"the same command {how} to start again: there is no checkpoint\n"
    )


def test_every_process_has_dropout_of_its_own() -> None:
    seeds = {step_seed(7, step, rank) for step in range(50) for rank in range(8)}
    assert len(seeds) == 400
    assert step_seed(7, 3) == step_seed(7, 3, 0)
