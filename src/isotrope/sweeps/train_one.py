"""Trains one run in its own folder, or resumes it there."""

import importlib
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from isotrope.core.errors import CannotResume, LostProcess
from isotrope.core.run_folder import RunFolder
from isotrope.training.run import Outcome
from isotrope.training.settings import RunSettings


def trained(settings: RunSettings, train: Callable[..., Outcome] | None = None) -> Outcome:
    """Train from the last checkpoint, or from the start if there is no usable one.

    Args:
        settings: Settings whose output folder only this training uses.
        train: Function that trains; by default chosen by the settings (text or images).
    """
    if train is None:
        train = importlib.import_module(settings.module).train
    run = Path(settings.output)
    if not RunFolder(run).config.is_file():
        shutil.rmtree(run, ignore_errors=True)  # killed before it was a run
    try:
        outcome = train(settings, resume=True)
    except CannotResume:
        # other settings, or checkpoints that nothing can read: it is ours to begin again
        shutil.rmtree(run, ignore_errors=True)
        outcome = train(settings, resume=True)
    if outcome.exit_code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if outcome.exit_code:
        raise LostProcess("stopped on request; the same command continues from the checkpoint")
    return outcome
