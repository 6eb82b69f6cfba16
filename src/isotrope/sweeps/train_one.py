"""Trains one run in its own folder, or resumes it there."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from isotrope.core.errors import CannotResume, LostProcess
from isotrope.core.run_folder import RunFolder
from isotrope.training.run import Outcome
from isotrope.training.settings import RunSettings

Settings = TypeVar("Settings", bound=RunSettings)


def trained(train: Callable[..., Outcome], settings: Settings) -> Outcome:
    """Train, from the last checkpoint if there is one; from the start if it cannot be used.

    Args:
        train: The function that trains on text or on images.
        settings: Settings with an output that belongs to this training alone.
    """
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
