"""A training that ends in the middle of a step, as by a power cut."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from isotrope.training import simcse


@contextmanager
def power_cut(step: int) -> Iterator[None]:
    """Let what trains a text encoder inside fail in this step, and see that it does."""
    made = simcse.SimCSE.training_step

    def dies(self, batch, batch_idx):
        if self.global_step == step:
            raise RuntimeError("the power is gone")
        return made(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simcse.SimCSE, "training_step", dies)
        with pytest.raises(RuntimeError, match="power"):
            yield
