"""Audits pictures with the encoder and heads of a training, before the training's first step.

``isotrope.audit_images`` calls :func:`audit`. This file embeds the pictures as ``train`` would;
``isotrope.diagnostics.audit`` then compares the embeddings, for texts and pictures alike.

Each picture is cropped and embedded once, in equal batches of the training's size or more. As in
training, batch normalisation uses the statistics of the batch. The running statistics are not used:
they come from other data, or are still the initial values.
"""

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.distributed import all_gather_views
from isotrope.core.errors import InputError
from isotrope.core.progress import bar
from isotrope.data.images.batches import ImageBatch
from isotrope.data.order import Order
from isotrope.data.text.repeats import hash64
from isotrope.diagnostics.audit.options import AuditSettings
from isotrope.diagnostics.audit.pictures import AuditedPictures, PictureAudit
from isotrope.diagnostics.audit.rows import Embedded
from isotrope.diagnostics.audit.run import audit_pictures, checked_objective
from isotrope.encoders.device import find_device
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.image_nets import ARCHITECTURES
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import ImageTask, prepare
from isotrope.training.optimisers import step_seed


def audit(
    settings: ImageSettings, of_audit: AuditSettings, *, own_encoder: ImageEncoder | None = None
) -> PictureAudit:
    """Return an audit of the pictures of a training. Nothing is written.

    Args:
        settings: Settings of the training; the audit is one process with any settings.
        of_audit: Settings of the audit, but batch size and seed are those of the training.
        own_encoder: Encoder of the user, which is copied; None for that of ``settings``.

    Raises:
        InputError: The pictures, the encoder or the objective cannot be read or audited.
    """
    one_process = settings.model_copy(update={"workers": 0, "devices": 1, "micro_batch": None})
    task = prepare(one_process, copy.deepcopy(own_encoder))
    objective = checked_objective(task.module.objective)
    embedded, pixel_hashes = _first_views(task)
    images, labels = task.images, task.images.train.labels
    if labels is not None and labels.min() < 0:  # the class of some pictures is unknown
        labels = None
    return audit_pictures(
        AuditedPictures(images.name, images.train.names, labels, pixel_hashes, len(images.skipped)),
        embedded,
        objective,
        of_audit.model_copy(update={"batch_size": task.batches.size, "seed": settings.seed}),
        encoder=task.module.encoder.name,
        method=task.module.name,
        scratch=own_encoder is None and settings.encoder in ARCHITECTURES,
    )


@torch.no_grad()
def _first_views(task: ImageTask) -> tuple[Embedded, NDArray[np.uint64]]:
    """Return the first pair of views of every picture, and a hash of its pixels."""
    part, settings = task.images.train, task.settings
    device, n = find_device(settings.device), len(part.images)
    module = task.module.to(device).train()
    pixel_hashes, sides = np.empty(n, np.uint64), list[tuple[Tensor, Tensor]]()
    order = Order(n, settings.seed, 0)[np.arange(n)]
    batches = np.array_split(order, max(1, n // task.batches.size))
    with bar(n, "embed", "images") as done, torch.random.fork_rng():
        for step, rows in enumerate(batches):
            pixels = part.images.read(rows)
            pixel_hashes[rows] = [hash64(picture.tobytes()) for picture in pixels]
            torch.manual_seed(step_seed(settings.seed, step))
            batch = ImageBatch(torch.from_numpy(pixels).to(device), step, len(rows))
            # a method completes gathered views, also those of one process; further pairs of views
            # have the same pictures as the first
            pairs = [all_gather_views(pair) for pair in module.views(module.crops(batch))]
            views = module.completed(pairs)[0].views
            if not views.in_batch:
                raise InputError(
                    f"use `--method simclr` or `--method mocov3`: {module.name} takes negatives "
                    "from a queue, and the queue contains only noise before the first step"
                )
            sides.append((views.anchors, views.positives))
            done(len(rows))
    place = torch.from_numpy(np.argsort(order))
    anchors, positives = (torch.cat(side).float().cpu()[place] for side in zip(*sides, strict=True))
    return Embedded(anchors, positives, torch.arange(n)), pixel_hashes
