"""No place to write: full, read-only or vanished; one line, and what was good stays as it was."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isotrope.cli.main import guarded
from isotrope.core.errors import InputError
from isotrope.core.run_folder import LOCK
from isotrope.training.checkpoints import read_checkpoint
from tests.training.images.test_train import flags
from tests.training.interrupted import at, checkpoints

Fit = Callable[..., Any]


def test_a_folder_that_vanishes(
    kind: str,
    settings: dict[str, Any],
    train: Fit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not made anew: a folder with half a run would be taken for one."""
    output = Path(settings["output"])
    at(monkeypatch, 3, lambda: shutil.rmtree(output))
    with pytest.raises(
        InputError, match=rf"^start again: the folder {output} was removed or replaced"
    ):
        train(**settings)
    assert not output.exists()


def test_a_folder_that_vanishes_after_the_last_step(
    kind: str,
    settings: dict[str, Any],
    train: Fit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = Path(settings["output"])
    settings |= {"checkpoint_every": 100, "log_every": 100}
    at(monkeypatch, 5, lambda: shutil.rmtree(output))
    with pytest.raises(InputError, match="was removed or replaced"):
        train(**settings)
    assert not output.exists()


def test_a_folder_that_another_run_has_taken(
    kind: str,
    settings: dict[str, Any],
    train: Fit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is in it now is not touched."""
    output = Path(settings["output"])

    def replaced() -> None:
        output.rename(tmp := output.with_name("aside"))
        (output / "checkpoints").mkdir(parents=True)
        for name in (LOCK, "config.yaml", "metrics.csv"):
            shutil.copy(tmp / name, output / name)
        before.update({path: path.stat().st_mtime_ns for path in output.rglob("*")})

    before: dict[Path, int] = {}
    at(monkeypatch, 3, replaced)
    with pytest.raises(InputError, match="was removed or replaced"):
        train(**settings)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert len(before) == 4


@pytest.mark.parametrize(
    "error",
    [
        errno.ENOSPC,
        *(pytest.param(e, marks=pytest.mark.slow) for e in (errno.EROFS, errno.EIO, errno.EDQUOT)),
    ],
)
def test_a_checkpoint_that_cannot_be_written(
    kind: str,
    settings: dict[str, Any],
    train: Fit,
    error: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = Path(settings["output"])
    sync = os.fsync

    def full(number: int) -> None:
        raise OSError(error, os.strerror(error))

    at(monkeypatch, 3, lambda: monkeypatch.setattr(os, "fsync", full))
    reason = os.strerror(error).lower()
    with pytest.raises(
        InputError, match=rf"cannot write .*(checkpoint-\d|metrics\.csv).*: {reason}; [fc]"
    ):
        train(**settings)
    monkeypatch.undo()
    assert os.fsync is sync
    assert [path.name for path in checkpoints(output)] == ["checkpoint-3", "checkpoint-2"]
    assert train(**settings, resume=True).exit_code == 0


LIMITED = """
import resource, signal, sys
from isotrope.cli.main import guarded
from isotrope.training.trainers import RunTrainer
save = RunTrainer._save_checkpoint
def limited(self, *given):
    if self.state.global_step == 3:
        # of all files from now on, as if the disk were full
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
    save(self, *given)
RunTrainer._save_checkpoint = limited
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.exit(guarded(sys.argv[2:]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("size", [0, 5_000, 200_000])
def test_a_disk_that_fills_up(tmp_path: Path, size: int) -> None:
    """The system itself cuts the file short, in Python's writes and in torch's own."""
    output = tmp_path / "run"
    given = {
        "data": "digits",
        "limit": 32,
        "encoder": "resnet9",
        "width": 4,
        "batch_size": 16,
        "max_steps": 6,
        "checkpoint_every": 1,
        "knn_every": 0,
        "linear": False,
        "seed": 3,
        "progress": False,
        "output": str(output),
    }
    command = [sys.executable, "-c", LIMITED, str(size), "train-images", *flags(given)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2, run.stderr
    *progress, error = run.stderr.splitlines()
    assert error.startswith(f"isotrope: error: cannot write {output}")
    assert "; free some space" in error
    assert not any("error" in line.lower() or "Traceback" in line for line in progress)
    assert read_checkpoint(checkpoints(output)[0])["global_step"] == 2
    assert guarded(["train-images", *flags(given), "--resume"]) == 0


def test_a_place_that_nobody_can_write_to(
    settings: dict[str, Any],
    train: Fit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read-only folder, and one that has become so."""
    output = Path(settings["output"])

    def forbidden(name: Any, *given: Any, **named: Any) -> int:
        if str(name).endswith(LOCK):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(name, *given, **named)

    opened = os.open
    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(
        InputError, match=r"cannot write .*run/\.lock: read-only file system; choose"
    ):
        train(**settings)
    monkeypatch.undo()
    assert not output.exists()
    if Path("/proc/self").exists():
        with pytest.raises(InputError, match=r"cannot write /proc/run/\.lock: no such file"):
            train(**{**settings, "output": "/proc/run"})
