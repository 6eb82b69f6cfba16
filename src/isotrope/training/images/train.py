"""Trains an image encoder: checks the settings, reads the data, trains, scores and saves.

The model of the last step is saved. The step to save is not chosen by the kNN accuracy, because
this accuracy is measured on the test set.
"""

import functools
import math
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from isotrope.core.distributed import barrier, rank, rows_of, world_size
from isotrope.core.errors import InputError
from isotrope.core.legible import counted, legible
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.data.images.batches import ImageBatch, ImageBatches
from isotrope.data.images.encoded import EncodedImages
from isotrope.data.images.records import ImageSet
from isotrope.diagnostics.metrics import MEASURED, TRACKED, columns
from isotrope.encoders.cut_initialize import cut_initialize
from isotrope.encoders.device import find_device
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.image_nets import ARCHITECTURES
from isotrope.evaluation.image_tasks import both_features, knn_evaluation
from isotrope.evaluation.linear_probe import linear_probe
from isotrope.measures.judgement import DevHistory
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training.card import image_card
from isotrope.training.dev_scorer import DevScorer
from isotrope.training.fit_text import by_name, check_callbacks
from isotrope.training.images.inputs import build_encoder, open_images, warn_of_lost_grey
from isotrope.training.images.method import ImageMethod
from isotrope.training.images.settings import ImageSettings, find_method, options_of
from isotrope.training.launch import GRACE, cores
from isotrope.training.loop import Steps, TrainingTask
from isotrope.training.nan_guard import check_finite_weights
from isotrope.training.optimisers import refuse_long_warmup
from isotrope.training.progress import warn
from isotrope.training.recipe import Plan
from isotrope.training.run import Outcome, end_message, hardware, run, write_config
from isotrope.training.trainers import ImageTrainer

_MAX_FOLDER_BYTES = 75  # multiprocessing appends 32 bytes, and a socket path may have 107
_NOT_SCORED = "to find out whether training helps, add a test part, and labels of several classes"


def fit_images(
    data: str | Path,
    *,
    encoder: "str | Path | ImageEncoder" = "resnet18",
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    **settings: Any,
) -> Outcome:
    """Train an image encoder; the arguments are the fields of ``ImageSettings``.

    Args:
        data: Folder, .npz file or ``"digits"``, as for ``isotrope train-images``.
        encoder: A name or folder, or your own encoder, such as
            ``ImageEncoder.wrap(module, dimension=512, image_size=32)``. Your own encoder is trained
            in place; the setting ``cut`` does not divide its initial weights.
        resume: Whether to continue an interrupted run, as with ``--resume``.
        callbacks: Callbacks of transformers. They are called between steps, after isotrope's own.
        settings: Any other setting, e.g. ``output="runs/x"``, ``method="byol"``, ``cut=9``,
            ``method_settings={"decay": 0.99}``, ``max_steps=100``. ``objective`` is a name, a class
            or an instance.

    Returns:
        The outcome; ``isotrope.load(outcome.output)`` is the trained encoder. After training a
        wrapped module, use the module itself, because the folder has only its weights.

    Raises:
        InputError: The settings, the data, the encoder or the folder cannot be used.
    """
    own_encoder = encoder if isinstance(encoder, ImageEncoder) else None
    name = encoder if own_encoder is None else own_encoder.name
    checked = ImageSettings.read({"data": data, "encoder": name, **by_name(settings)})
    checked.check_used(own=own_encoder is not None)
    check_callbacks(callbacks, checked.devices)
    work = functools.partial(_train, own_encoder=own_encoder, callbacks=callbacks)
    return run(checked, work, resume=resume)


def train(settings: ImageSettings, *, resume: bool = False, lines: bool = False) -> Outcome:
    """Train an encoder and write the run folder; see :func:`isotrope.training.run.run`."""
    return run(settings, _train, resume=resume, lines=lines)


def _train(
    settings: ImageSettings,
    lines: bool,
    own_encoder: ImageEncoder | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Outcome:
    """Check everything, write the run folder, and train; an invalid run leaves no folder."""
    task = prepare(settings, own_encoder)
    if rank() == 0:
        write_config(settings)
    barrier()
    torch.manual_seed(settings.seed)
    return task.run(lines=lines, callbacks=callbacks)


def prepare(settings: ImageSettings, own_encoder: ImageEncoder | None = None) -> "ImageTask":
    """Check the settings, read the data and build the modules to train; write nothing.

    Args:
        settings: Settings of the run.
        own_encoder: Encoder of the user. None if ``settings.encoder`` names the encoder.
    """
    registry.load_plugins(settings.plugin)
    method = find_method(settings.method)
    options = options_of(settings.method, settings.method_settings)
    name, objective = objective_of(settings)
    scratch = own_encoder is None and settings.encoder in ARCHITECTURES
    settings.check_used(warn)  # the conditions that need no fact
    settings.check_used(warn, scratch=scratch)  # only those that need this fact
    if scratch:  # the images decide the size of the encoder
        images = open_images(settings, settings.image_size)
        encoder = build_encoder(settings, images.side)
        cut_initialize(encoder, settings.cut, what=settings.cut_what)
    else:  # the encoder decides the size of the images
        encoder = own_encoder or ImageEncoder.load(settings.encoder, device=settings.device)
        settings.check_used(side=encoder.image_size)
        images = open_images(settings, encoder.image_size)
    if _worker_count(settings, images):
        _check_temporary_folder(tempfile.gettempdir())
    batches = ImageBatches(images.train, settings.batch_size, settings.seed)
    if batches.size < world_size():
        raise InputError(
            f"use at most `--devices {batches.size}`: a batch has {batches.size} images, too few "
            f"for {world_size()} processes"
        )
    module = method(
        encoder=encoder,
        objective=objective,
        plan=_make_plan(settings, method, batches),
        options=options,
        augments=method.augments_of(encoder.image_size, options, settings.augment),
        seed=settings.seed,
        log_every=settings.log_every,
        caching=settings.micro_batch,
        scaled=settings.precision == "16",
        backend=settings.backend,
    )
    module.cut_heads(settings.cut, settings.cut_what)
    return ImageTask(
        settings=settings,
        module=module,
        columns=columns("images"),
        objective_name=name,
        batch_size=batches.size,
        steps_per_epoch=batches.steps_per_epoch,
        fingerprint=images.fingerprint,
        clip=settings.clip or method.recipe.clip,
        dev=_knn_scorer(settings, module, images),
        images=images,
        batches=batches,
    )


def _knn_scorer(settings: ImageSettings, module: ImageMethod, images: ImageSet) -> DevScorer:
    """Return the object that measures kNN accuracy if there are labels."""
    score = functools.partial(knn_evaluation, module.encoder, images, limit=settings.knn_images)
    return DevScorer(
        history=DevHistory("kNN accuracy", saved="last"),
        module=module,
        score=score if has_labels(images) else None,
        advice=_NOT_SCORED,
        column="knn",
        every=settings.knn_every * module.plan.steps_per_epoch,
    )


def _make_plan(settings: ImageSettings, method: type[ImageMethod], batches: ImageBatches) -> Plan:
    """Return the recipe's plan, in which given settings replace the recipe's values."""
    per_epoch = batches.steps_per_epoch
    steps = settings.max_steps or max(1, math.ceil(settings.epochs * per_epoch))
    plan = method.recipe.plan(steps=steps, steps_per_epoch=per_epoch, batch_size=batches.size)
    if settings.optimizer not in (None, plan.optimizer):
        settings.check_used(usual=plan.optimizer)
        # SimCLR, BYOL, Barlow Twins and MoCo v3 do not apply LARS to biases and norms
        all_decay = plan.decay_all and settings.optimizer != "lars"
        plan = replace(plan, optimizer=settings.optimizer, decay_all=all_decay)
    if (rate := settings.learning_rate) is not None:
        last = min(plan.last_learning_rate, rate)
        plan = replace(plan, learning_rate=rate, last_learning_rate=last)
    if settings.weight_decay is not None:
        plan = replace(plan, weight_decay=settings.weight_decay, last_weight_decay=None)
    if settings.warmup_epochs is not None:
        plan = replace(plan, warmup_steps=round(settings.warmup_epochs * per_epoch))
        refuse_long_warmup(plan, f"`--warmup-epochs {settings.warmup_epochs:g}`")
    return replace(plan, scheduler=settings.scheduler)


def objective_of(settings: ImageSettings) -> tuple[str, Objective]:
    """Return a tuple (name, objective); given settings replace those of the recipe."""
    method = find_method(settings.method)
    options = options_of(settings.method, settings.method_settings)
    name = (settings.objective or method.recipe.objective).lower()
    recipe_settings = method.settings_of(name, options)
    objective = registry.build(name, {**recipe_settings, **settings.objective_settings})
    method.check_objective(objective)
    return name, objective


def has_labels(images: ImageSet) -> bool:
    """Return whether models can be scored: a test set and labels of two or more classes exist."""
    train_labels, test = images.train.labels, images.test
    if train_labels is None or test is None or test.labels is None:
        return False
    known = train_labels[train_labels >= 0]
    return bool((known != known[:1]).any())


def _worker_count(settings: ImageSettings, images: ImageSet) -> int:
    if settings.workers is None:
        return 0 if images.in_memory else min(8, cores())
    return settings.workers


def _check_temporary_folder(folder: str) -> None:
    """Refuse a folder whose path is too long for a socket: the workers would hang."""
    if os.name == "posix" and len(os.fsencode(folder)) > _MAX_FOLDER_BYTES:
        raise InputError(
            f"set TMPDIR to a folder whose path has at most {_MAX_FOLDER_BYTES} bytes, or use "
            f"`--workers 0`: the path {folder} has {len(os.fsencode(folder))} bytes, too many for "
            "the sockets of workers"
        )


def _wait_for_the_run(worker: int) -> None:
    """Let the run end its step: Ctrl-C and schedulers send signals to the workers, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(round(GRACE)))  # ends the process


@dataclass(kw_only=True)
class ImageTask(TrainingTask):
    """A training on images whose settings are checked and whose data are read."""

    kind = "train-images"
    logged = (*MEASURED, *TRACKED)
    rate_column = "images_per_second"
    trainer_class = ImageTrainer

    settings: ImageSettings
    module: ImageMethod
    images: ImageSet
    batches: ImageBatches

    def loader(self, start: int) -> DataLoader[ImageBatch]:
        """Return a loader of the batches from step ``start`` on; workers decode the images."""
        at = functools.partial(self.batches.at, part=rows_of(self.batches.size))
        return DataLoader(
            Steps(at, start, self.module.steps),
            batch_size=None,
            num_workers=_worker_count(self.settings, self.images),
            pin_memory=find_device(self.settings.device).type == "cuda",
            # the main process handles Ctrl-C: the workers continue until the current step is done
            worker_init_fn=_wait_for_the_run,
        )

    def introduce(self, say: Callable[[str], None]) -> None:
        """Print a summary of the run."""
        images, module, cut = self.images, self.module, self.settings.cut
        test = "no test part" if images.test is None else f"{len(images.test.images):,} to test on"
        skipped = ""
        if images.skipped:
            files = _count_and_names(len(images.skipped), images.skipped)
            skipped = f", unreadable files skipped: {files}"
        say(hardware(self.settings))
        say(
            f"{images.name}: {len(images.train.images):,} images of {images.side} x {images.side}, "
            f"{test}{skipped}"
        )
        if isinstance(images.train.images, EncodedImages):
            warn_of_lost_grey(images.train.images)
        plan = module.plan
        say(
            f"{counted(module.steps, 'step')} with batches of {self.batches.size}; {module.name} "
            f"with {self.objective_name}; {module.encoder.name}, {module.encoder.dimension} "
            f"features; {plan.optimizer}, learning rate {plan.learning_rate:g}, weight decay "
            f"{plan.weight_decay:g}" + (f"; cut {cut:g}" if cut != 1 else "")
        )
        if not has_labels(images):
            say(
                "no kNN accuracy is measured: it needs labels of at least two classes, and a test "
                "part (--holdout 0.1 holds out 10% of the images)"
            )

    def finish(self) -> Result:
        """Score the final model with a linear probe, save the model, and return the result."""
        result, encoder = self.result(), self.module.encoder
        check_finite_weights(encoder, self.module.steps)
        result.metrics["linear"] = None
        if self.settings.linear and has_labels(self.images):
            top1 = linear_probe(*both_features(encoder, self.images)).metrics["linear_top1"]
            result.metrics["linear"] = 100 * float(top1 or 0.0)
        ensure_not_replaced(self.output)
        card = image_card(self.settings, result, encoder.usage)
        encoder.save(RunFolder(self.output).model, card=card)
        return result

    def details(self) -> dict[str, Any]:
        """Return the details that runs on images add to the result."""
        images, module = self.images, self.module
        return {
            "method": {"name": module.name, "options": asdict(module.options)},
            "encoder": {"name": module.encoder.name, "dimension": module.encoder.dimension},
            "model": {"fingerprint": module.encoder.fingerprint()},
            "plan": asdict(module.plan),
            "batch_size": self.batches.size,
            "augments": [asdict(augment) for augment in module.augments],
            "data": {
                "path": self.settings.data,
                "images": len(images.train.images),
                "test": None if images.test is None else len(images.test.images),
                "side": images.side,
                "skipped": len(images.skipped),
                "skipped_files": list(images.skipped[:100]),
                "replaced": len(images.replaced),
                "replaced_files": list(images.replaced[:100]),
            },
        }


def summary(outcome: Outcome) -> str:
    """Return the lines that the command line prints at the end of a run."""
    metrics, data = outcome.result.metrics, outcome.result.details["data"]
    notes = ""
    if metrics.get("linear") is not None:
        notes += f"linear probe {metrics['linear']:.2f}\n"
    for key, fate in (
        ("skipped", "read and were skipped"),
        ("replaced", "decoded and were replaced by others"),
    ):
        if data[key]:
            files = _count_and_names(data[key], data[f"{key}_files"])
            notes += f"images that could not be {fate}: {files}\n"
    return end_message(outcome, notes, f", {metrics['images_per_second']:.0f} images/s")


def _count_and_names(count: int, names: Sequence[str]) -> str:
    """Return the number of files and the names of the first three."""
    return f"{count:,} ({', '.join(map(legible, names[:3]))}{', ...' if count > 3 else ''})"
