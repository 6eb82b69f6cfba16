"""Trains or resumes one run in its own folder."""

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
        settings: Settings of the run; no other training uses its output folder.
        train: Function that trains; by default the one for the kind of settings (text or images).
    """
    if train is None:
        train = importlib.import_module(settings.module).train
    run = Path(settings.output)
    if not RunFolder(run).config.is_file():
        shutil.rmtree(run, ignore_errors=True)  # the process was killed before it wrote settings
    try:
        outcome = train(settings, resume=True)
    except CannotResume:
        # other settings, or damaged checkpoints: the folder is ours, so train from the start
        shutil.rmtree(run, ignore_errors=True)
        outcome = train(settings, resume=True)
    if outcome.exit_code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if outcome.exit_code:
        raise LostProcess("stopped on request; the same command continues from the checkpoint")
    return outcome
