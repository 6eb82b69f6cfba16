"""Training on text and images: settings, the loop, callbacks and run folders.

Besides ``adapters``, this is the only package that imports Lightning.

``settings`` declares the settings of a training (and imports nothing heavy). ``run`` is shared by
runs on text and on images: folder, processes, checkpoints and outcome. ``loop`` makes the steps of
both, ``step`` computes the loss and seeds one step, ``callbacks`` run between steps, ``progress``
prints the progress line, ``loggers`` send the numbers elsewhere than metrics.csv, and ``nan_guard``
stops at a number that is not finite.

Text: ``fit_text`` is ``isotrope.fit``, ``text`` the whole run (data, encoder, steps, dev score, run
folder), ``simcse`` the method (two views of text, one objective), ``dev_score`` the score of
``--dev``, and ``card`` the model card.
Images: the package ``images``; ``recipe`` and ``optimisers`` are used by its methods.

Batches larger than memory: ``gradient_cache`` runs the encoder twice, one chunk's graph at a time.
Several processes: ``launch`` starts and watches them, ``worker`` is one of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isotrope.training.fit_text import fit as fit
    from isotrope.training.images.train import fit_images as fit_images

__all__ = ["fit", "fit_images"]

_HOME = {"fit": "fit_text", "fit_images": "images.train"}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isotrope.training.{_HOME[name]}"), name)
