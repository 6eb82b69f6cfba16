"""Training of text and image encoders; Lightning is imported only here and in ``adapters``.

``settings`` declares the settings (and imports nothing heavy); ``run`` has what runs of text and
images share: folder, processes, checkpoints and outcome. ``loop`` is the training loop of both,
``step`` the loss and the seed of one step, ``callbacks`` the work between steps, ``progress`` the
printed progress and ``loggers`` the loggers besides metrics.csv. ``nan_guard`` finds numbers that
are not finite, and ``rebuild`` restores a run as it was at a step.

Text: ``fit_text`` is ``isotrope.fit``, ``text`` a whole training run (data, encoder, steps, dev
score, run folder), ``simcse`` the method (two views of text, one objective), ``dev_score`` the
scores of ``--dev``, ``card`` the model card.
Images: the package ``images``; ``recipe`` and ``optimisers`` hold what its methods train with.

Batches larger than memory: ``gradient_cache`` runs the encoder twice, one chunk's graph at a time.
Several processes: ``launch`` starts and watches them, ``worker`` is one of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isotrope.training.fit_text import fit as fit
    from isotrope.training.images.train import fit_images as fit_images

__all__ = ["fit", "fit_images"]

_HOME = {"fit": "fit_text", "fit_images": "images.train"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - one of the lazy names
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isotrope.training.{_HOME[name]}"), name)
