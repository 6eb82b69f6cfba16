"""Finds the complete checkpoints of a run, which are folders that transformers' trainer writes.

``checkpoints/checkpoint-N/`` contains the trained weights (``model.pt``) and the states of
optimiser and schedule. ``run.pt`` has the dev scores, the training time, and a row that is not yet
in metrics.csv. ``complete.json`` is written last and has a hash of each file. No run resumes from a
checkpoint without this file. torch executes no code of a checkpoint (``weights_only``).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState

from isotrope.core.documents import check_file, read_json
from isotrope.core.errors import CannotResume
from isotrope.core.files import file_digest, os_errors_as_input_errors, remove, write_text
from isotrope.core.result import json_text
from isotrope.core.run_folder import COMPLETE, STATES, WEIGHTS

_NEWEST = 2  # number of newest checkpoints that are kept, permanent or not


class ChecksumMismatch(ValueError):
    """A file has changed since it was written."""


def step_of(folder: Path) -> int:
    """Return the number of updates in a checkpoint's name."""
    return int(folder.name.removeprefix("checkpoint-"))


def _all(folder: Path) -> list[Path]:
    """Return all checkpoints of a run, newest first, complete or not."""
    folders = [path for path in folder.glob("checkpoint-*") if path.is_dir()]
    numbered = [path for path in folders if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(numbered, key=step_of, reverse=True)


def finish(folder: Path) -> None:
    """Mark a checkpoint as complete after all its files are on the disk."""
    digests = {}
    with os_errors_as_input_errors(folder):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name != COMPLETE:
                digests[str(file.relative_to(folder))] = file_digest(file, 16)
        write_text(folder / COMPLETE, json_text({"step": step_of(folder), "blake2b": digests}))


def verify(folder: Path) -> None:
    """Check that a checkpoint is unchanged since it was written."""
    try:
        digests = read_json(folder / COMPLETE)["blake2b"]
        for file in sorted(folder.rglob("*")):
            if not file.is_dir():
                check_file(file, folder)  # before anything opens it
        state = TrainerState(**read_json(folder / "trainer_state.json"))
        if state.global_step != step_of(folder):
            raise ChecksumMismatch(f"trainer_state.json has step {state.global_step}")
        # complete.json must have a digest of weights and states: None equals no digest
        for name, digest in {**dict.fromkeys((WEIGHTS, STATES)), **digests}.items():
            check_file(folder / name, folder)
            if file_digest(folder / name, 16) != digest:
                raise ChecksumMismatch(f"{name} does not match its digest")
    except ChecksumMismatch:
        raise
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ChecksumMismatch(str(error)) from error


def exists(folder: Path) -> bool:
    """Return whether a run has a checkpoint with the file complete.json."""
    return any(folder.glob(f"checkpoint-*/{COMPLETE}"))


def newest(folder: Path, tell: Callable[[str], None]) -> Path | None:
    """Return the newest checkpoint of a run that is complete and undamaged, or None.

    Each skipped checkpoint is reported to ``tell``. If there are complete checkpoints, but all of
    them are damaged, CannotResume is raised.
    """
    damaged = []
    for checkpoint in _all(folder):
        if not (checkpoint / COMPLETE).exists():
            tell(f"warning: skipped {checkpoint}, which is incomplete: {COMPLETE} is missing")
            continue
        try:
            verify(checkpoint)
        except ChecksumMismatch as error:
            damaged.append(f"{checkpoint} ({error})")
            tell(f"warning: the checkpoint {damaged[-1]} is damaged; trying an earlier one")
            continue
        return checkpoint
    if damaged:
        raise CannotResume(
            f"start again in another folder: no checkpoint can be read ({', '.join(damaged)})"
        )
    return None


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Return a dict with ``state_dict`` (weights) and ``global_step`` of a complete checkpoint."""
    verify(folder)
    state = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)
    return {"state_dict": state, "global_step": step_of(folder)}


def discard_incomplete(folder: Path) -> None:
    """Remove incomplete checkpoints."""
    for checkpoint in _all(folder):
        if not (checkpoint / COMPLETE).exists():
            remove(checkpoint)


def check_unchanged(what: str, before: str | None, now: str | None) -> None:
    """Refuse to resume a run whose data have changed."""
    if before != now:
        raise CannotResume(
            f"restore the {what}, or start again in another output folder: the data have changed "
            f"since the checkpoint was written (old fingerprint {before}, new fingerprint {now})"
        )


class Checkpoints:
    """Decides after which steps the trainer saves, and which checkpoints are permanent.

    Args:
        folder: Folder of all checkpoints.
        every: Number of steps between checkpoints.
        keep: Number of steps between permanent checkpoints; step 0 and the last step also get
            one. With None, no checkpoint is permanent, and the last step is not saved.
        last: Last step of the run.
    """

    def __init__(self, folder: Path, *, every: int, last: int, keep: int | None = None) -> None:
        self.folder, self.every, self.last, self.keep = folder, every, last, keep

    def stays(self, step: int) -> bool:
        """Return whether the checkpoint of a step is permanent."""
        return self.keep is not None and (step % self.keep == 0 or step == self.last)

    def rotate(self) -> None:
        """Remove checkpoints that are neither permanent nor among the newest two."""
        for checkpoint in _all(self.folder)[_NEWEST:]:
            if not self.stays(step_of(checkpoint)):
                (checkpoint / COMPLETE).unlink(missing_ok=True)  # before all other files
                remove(checkpoint)

    def due(self, step: int) -> bool:
        """Return whether the trainer saves a checkpoint after a step."""
        return self.stays(step) or (step % self.every == 0 and step != self.last)
