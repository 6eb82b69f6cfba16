"""A training that ends in the middle of a step, as by a power cut, and its checkpoints."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isotrope.core.run_folder import COMPLETE
from isotrope.training.checkpoints import step_of
from isotrope.training.trainers import RunTrainer


def at(patch: pytest.MonkeyPatch, step: int, what: Callable[[], object]) -> None:
    """Have something happen as a step begins."""
    made = RunTrainer.training_step

    def now(self, *given):
        if self.state.global_step == step:
            what()
        return made(self, *given)

    patch.setattr(RunTrainer, "training_step", now)


@contextmanager
def power_cut(step: int) -> Iterator[None]:
    """Let what trains inside fail in this step, and see that it does."""

    def dies() -> None:
        raise RuntimeError("the power is gone")

    with pytest.MonkeyPatch.context() as patch:
        at(patch, step, dies)
        with pytest.raises(RuntimeError, match="power"):
            yield


def checkpoints(run: str | Path) -> list[Path]:
    """Return the whole checkpoints of a run, the newest first."""
    whole = [file.parent for file in Path(run).glob(f"checkpoints/*/{COMPLETE}")]
    return sorted(whole, key=step_of, reverse=True)
