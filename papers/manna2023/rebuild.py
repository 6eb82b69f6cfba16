"""Restores a training on images at a checkpoint: its method and the batches that came next.

For looking at a run afterwards, without training. A checkpoint has the encoder, the heads and
whatever else a method keeps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from isotrope.core.distributed import all_gather_views
from isotrope.core.documents import read_yaml
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.images.batches import ImageBatch
from isotrope.encoders.device import find_device
from isotrope.paradigm.objective import Objective
from isotrope.training.checkpoints import ChecksumMismatch, read_checkpoint
from isotrope.training.images.method import ImageMethod, at_least_float
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import prepare
from isotrope.training.optimisers import step_seed, weight_decay_at

# what only decided how the run was computed
_PLAIN = {"precision": "32", "devices": 1, "progress": False, "micro_batch": None}

Terms = Callable[[], list[Views]]


@dataclass(frozen=True)
class Rebuilt:
    """A run at a step.

    Attributes:
        objective: the run's objective.
        module: all that has parameters or state, in training mode, on the device asked for.
        terms: one function for each batch; it returns the terms of the batch's loss, raw
            embeddings with history, and draws the random numbers of the batch's step.
        decay: the weight decay at this step of each parameter that wants a gradient, in order.
        step: updates that the weights have had.
        learning_rate: the rate of the update that came next.
        peak: the largest learning rate of the run.
        about: what of all this has a name or a number, for the record.
    """

    objective: Objective
    module: nn.Module
    terms: list[Terms]
    decay: list[float]
    step: int
    learning_rate: float
    peak: float
    about: dict[str, Any]


def rebuild(
    folder: Path,
    file: Path,
    *,
    batches: Sequence[int] = (0,),
    batch_size: int | None = None,
    batch_norm: Literal["batch", "running"] = "batch",
    device: str = "auto",
) -> Rebuilt:
    """Return a run as it was at a step."""
    changes = {**_PLAIN, "device": device}
    if batch_size is not None:
        changes["batch_size"] = batch_size
    config = folder / "config.yaml"
    settings = ImageSettings.read(
        {"output": str(folder), **read_yaml(config)}, source=str(config)
    ).model_copy(update=changes)
    state = _read(file)
    prepared = prepare(settings)
    method, plan = prepared.module, prepared.module.plan
    try:
        method.load_state_dict(state["state_dict"])
    except RuntimeError as error:
        raise InputError(
            f"the checkpoint is not of {folder}: {str(error).splitlines()[-1].strip()}"
        ) from error
    method.to(find_device(device)).train()
    norms = [part for part in method.modules() if isinstance(part, _BatchNorm)]
    for part in norms if batch_norm == "running" else []:
        part.eval()
    step = int(state["global_step"])
    decay = weight_decay_at(plan, step)
    return Rebuilt(
        objective=method.objective,
        module=method,
        terms=[_terms(method, prepared.batches.at(step + n)) for n in batches],
        decay=[
            decay if plan.decay_all or p.ndim > 1 else 0.0
            for p in method.parameters()
            if p.requires_grad
        ],
        step=step,
        learning_rate=method.learning_rate_at(step),
        peak=plan.learning_rate,
        about={
            "run": folder.name,
            "weights": str(file),
            "step": step,
            "head": "as trained",
            "batch_norm": f"{batch_norm} statistics" if norms else "none",
            "method": method.name,
            "objective": prepared.objective_name,
            "encoder": method.encoder.name,
            "steps": method.steps,
            "batch_size": prepared.batches.size,
            "optimizer": plan.optimizer,
            "weight_decay": decay,
            "data": prepared.images.fingerprint,
        },
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        state = read_checkpoint(file)
        if not {"state_dict", "global_step"} <= set(state):
            raise ChecksumMismatch("it holds no run")
    except ChecksumMismatch as error:
        raise InputError(f"{file} is no checkpoint that can be read ({error})") from error
    return state


def _terms(method: ImageMethod, batch: ImageBatch) -> Terms:
    """Return a function that gives the terms of a method on fixed crops."""
    crops = method.crops(batch._replace(images=batch.images.to(method.device)))

    def terms() -> list[Views]:
        method.step = batch.step
        torch.manual_seed(step_seed(method.seed, batch.step))
        views = [view.map(at_least_float) for view in method.views(crops)]
        return [
            whole.views for whole in method.completed([all_gather_views(view) for view in views])
        ]

    return terms
