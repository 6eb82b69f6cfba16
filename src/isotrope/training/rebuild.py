"""Restores a run at a checkpoint: its model, its objective and the next batches.

For looking at a run afterwards, without training. A checkpoint has the encoder, the heads and
whatever else a method keeps. Where a run has none (one of fewer steps than ``checkpoint-every``),
there is only the saved encoder: the objective then sees its embeddings themselves, without a head.
"""

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from isotrope.core.checksum import ChecksumMismatch
from isotrope.core.distributed import all_gather_views
from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.core.views import Views
from isotrope.data.images.batches import ImageBatch
from isotrope.data.text.batches import Batch, Batches
from isotrope.encoders.device import find_device
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training import text
from isotrope.training.images import train
from isotrope.training.images.method import ImageMethod, at_least_float
from isotrope.training.images.settings import ImageSettings
from isotrope.training.optimisers import weight_decay_at
from isotrope.training.run import checkpoint, read_checkpoint
from isotrope.training.settings import RunSettings, TrainSettings, read_yaml
from isotrope.training.simcse import SimCSE, nested
from isotrope.training.step import step_seed

__all__ = ["NO_HEAD", "Rebuilt", "rebuild"]

NO_HEAD = "none: the run kept no checkpoint, so the objective sees the encoder's embeddings"
"""What ``about`` says of the head where there is only the saved encoder."""

# what only decided how the run was computed
_PLAIN = {"precision": "32", "devices": 1, "progress": False}
# a saved encoder brings its own
_SAVED_TEXT: dict[str, Any] = {
    "head": "none",
    "pooling": None,
    "lora": None,
    "lora_alpha": None,
    "lora_targets": [],
}
_SAVED_IMAGES: dict[str, Any] = {"width": None, "stem": "auto", "pixels": "imagenet", "cut": 1.0}

Terms = Callable[[], list[Views]]


@dataclass(frozen=True)
class Rebuilt:
    """A run at a step.

    Attributes:
        objective: the run's objective.
        module: all that has parameters or state, in training mode, on the requested device.
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


@dataclass(frozen=True)
class _Wanted:
    """The parts of a run that are restored."""

    folder: Path
    state: dict[str, Any] | None
    step: int
    steps: list[int]  # whose batches are taken
    device: torch.device


def rebuild(
    folder: Path,
    *,
    file: Path | None = None,
    batches: Sequence[int] = (0,),
    batch_size: int | None = None,
    batch_norm: Literal["batch", "running"] = "batch",
    device: str = "auto",
    tell: Callable[[str], None] = lambda line: None,
) -> Rebuilt:
    """Return a run as it stood at a step.

    Args:
        folder: the run folder; its data must lie where they were.
        file: a checkpoint; None takes the newest in the folder, or else the saved encoder.
        batches: which, counted from the one that came next.
        batch_size: rows of a batch; None for the run's.
        batch_norm: whether batch normalisations take the statistics of the batch, as in training,
            or their running ones.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        tell: takes warnings.

    Raises:
        InputError: no run, no such checkpoint or one of another run, or data that are missing.
    """
    settings = _settings(folder)
    registry.check_plugins(settings.plugin, folder)
    source, state, step = _weights(folder, file, tell)
    wanted = _Wanted(folder, state, step, [step + n for n in batches], find_device(device))
    changes = {**_PLAIN, "device": device, "output": str(folder), "plugin": []}
    if batch_size is not None:
        changes["batch_size"] = batch_size
    settings = type(settings).read({**settings.model_dump(), **changes})
    if isinstance(settings, ImageSettings):
        rebuilt = _images(settings, wanted)
    else:
        assert isinstance(settings, TrainSettings)
        rebuilt = _text(settings, wanted)
    norms = [part for part in rebuilt.module.modules() if isinstance(part, _BatchNorm)]
    for part in norms if batch_norm == "running" else []:
        part.eval()
    rebuilt.about.update(
        run=folder.name,
        weights=str(source),
        step=step,
        head="as trained" if state else NO_HEAD,
        batch_norm=f"{batch_norm} statistics" if norms else "none",
    )
    return rebuilt


def _settings(folder: Path) -> RunSettings:
    config = folder / "config.yaml"
    if not config.is_file():
        raise InputError(
            f"{folder} is no run folder (it has no config.yaml); give one that `isotrope train` or "
            "`isotrope train-images` has written"
        )
    values = {"output": str(folder), **read_yaml(config)}
    kind = TrainSettings if "files" in values else ImageSettings
    return kind.read(values, source=str(config))


def _weights(
    folder: Path, file: Path | None, tell: Callable[[str], None]
) -> tuple[Path, dict[str, Any] | None, int]:
    """Return where the weights are, the state of a checkpoint if there is one, and the step."""
    if file is None:
        file = _newest(folder / "checkpoints", tell)
    if file is not None:
        state = _read(file)
        return file, state["state_dict"], int(state["global_step"])
    if not (folder / "model").is_dir() or not (folder / "result.json").is_file():
        raise InputError(
            f"{folder} has neither a checkpoint nor a saved model: it was stopped before; go on "
            "with --resume"
        )
    metrics = Result.load(folder / "result.json").metrics
    best = metrics.get("dev_best_step")  # of text the best step is saved
    return folder / "model", None, int((metrics.get("steps") if best is None else best) or 0)


def _newest(folder: Path, tell: Callable[[str], None]) -> Path | None:
    """Return the checkpoint of the latest step, the last step's included if it was kept."""
    file, step = checkpoint(folder, tell)
    paths = (path for path in folder.glob("step-*.ckpt") if path.stem[5:].isdecimal())
    numbered = [(int(path.stem[5:]), path) for path in paths]
    latest = max(numbered, default=(-1, None))
    return latest[1] if file is None or latest[0] > step else file


def _read(file: Path) -> dict[str, Any]:
    try:
        state = read_checkpoint(file)
        if not {"state_dict", "global_step"} <= set(state):
            raise ChecksumMismatch("it holds no run")
    except ChecksumMismatch as error:
        raise InputError(f"{file} is no checkpoint that can be read ({error})") from error
    return state


def _load(module: nn.Module, wanted: _Wanted) -> None:
    """Give a module the weights of the checkpoint, if there is one."""
    if wanted.state is not None:
        try:
            module.load_state_dict(wanted.state)
        except RuntimeError as error:
            raise InputError(
                f"the checkpoint is not of {wanted.folder}: {str(error).splitlines()[-1].strip()}"
            ) from error
    module.to(wanted.device).train()


def _images(settings: ImageSettings, wanted: _Wanted) -> Rebuilt:
    if wanted.state is None:
        saved = {"encoder": str(wanted.folder / "model"), **_SAVED_IMAGES}
        settings = settings.model_copy(update=saved)
    prepared = train.prepare(settings.model_copy(update={"micro_batch": None}))
    method, plan = prepared.module, prepared.module.plan
    if wanted.state is None and prepared.objective_name == "dino":
        raise InputError(
            f"{wanted.folder} kept no checkpoint, and without its head there are no logits for "
            "objective dino; train it with a smaller --checkpoint-every"
        )
    _load(method, wanted)
    views = _image_terms if wanted.state else _views_without_head
    decay = weight_decay_at(plan, wanted.step)
    module = method if wanted.state else method.encoder
    return Rebuilt(
        objective=method.objective,
        module=module,
        terms=[views(method, prepared.batches.at(step)) for step in wanted.steps],
        decay=[
            decay if plan.decay_all or p.ndim > 1 else 0.0
            for p in module.parameters()
            if p.requires_grad
        ],
        step=wanted.step,
        learning_rate=method.learning_rate_at(wanted.step),
        peak=plan.learning_rate,
        about={
            "method": method.name,
            "objective": prepared.objective_name,
            "encoder": method.encoder.name,
            "steps": prepared.module.steps,
            "batch_size": prepared.batches.size,
            "optimizer": plan.optimizer,
            "weight_decay": decay,
            "data": prepared.images.fingerprint,
        },
    )


def _image_terms(method: ImageMethod, batch: ImageBatch) -> Terms:
    """Return what gives the terms of a method on crops that stay the same."""
    crops = method.crops(batch._replace(images=batch.images.to(method.device)))

    def terms() -> list[Views]:
        method.step = batch.step
        torch.manual_seed(step_seed(method.seed, batch.step))
        views = [view.map(at_least_float) for view in method.views(crops)]
        return [
            whole.views for whole in method.completed([all_gather_views(view) for view in views])
        ]

    return terms


def _views_without_head(method: ImageMethod, batch: ImageBatch) -> Terms:
    """Return what gives the encoder's embeddings of the first two crops."""
    crops = method.crops(batch._replace(images=batch.images.to(method.device)))

    def terms() -> list[Views]:
        torch.manual_seed(step_seed(method.seed, batch.step))
        return [Views(*(method.encoder(crop) for crop in crops[:2]))]

    return terms


def _text(settings: TrainSettings, wanted: _Wanted) -> Rebuilt:
    if wanted.state is None:
        saved = {"encoder": str(wanted.folder / "model"), **_SAVED_TEXT}
        settings = settings.model_copy(update=saved)
    objective = registry.build(settings.objective, settings.objective_settings)
    encoder = text.encoder_of(settings)
    with tempfile.TemporaryDirectory(prefix="isotrope-") as temporary:
        tokens = wanted.folder / "tokens"  # those of a run that has not come to its end
        tokenised = (tokens / "manifest.json").is_file()
        store = text.store_of(
            settings, encoder, tokens if tokenised else Path(temporary) / "tokens"
        )
        batches = Batches(store, settings.batch_size, settings.seed)
        steps = text.steps_of(settings, batches)
        # micro-batches stay in the batches, whose dropout masks they decide
        plain = settings.model_copy(update={"micro_batch": None})
        module = text.module_of(plain, encoder, objective, steps)
        _load(module, wanted)
        taken = [text.batch_at(settings, encoder, store, batches, step) for step in wanted.steps]
    return Rebuilt(
        objective=objective,
        module=module,
        terms=[
            functools.partial(_text_terms, module, batch, step_seed(settings.seed, step))
            for batch, step in zip(taken, wanted.steps, strict=True)
        ],
        decay=[settings.weight_decay for p in module.parameters() if p.requires_grad],
        step=wanted.step,
        learning_rate=module.learning_rate_at(wanted.step),
        peak=settings.learning_rate,
        about={
            "method": "simcse",
            "objective": settings.objective,
            "encoder": settings.encoder,
            **({"matryoshka": list(module.prefixes)} if module.prefixes else {}),
            "steps": steps,
            "batch_size": settings.batch_size,
            "optimizer": "adamw",
            "weight_decay": settings.weight_decay,
            "data": store.report.fingerprint,
        },
    )


def _text_terms(module: SimCSE, batch: Batch, seed: int) -> list[Views]:
    torch.manual_seed(seed)
    return nested(module.views(batch), module.prefixes)
