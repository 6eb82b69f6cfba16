"""Floor 5: our training, the only room beside ``adapters`` that imports Lightning.

``settings`` says what a training can be told (and imports nothing heavy), ``run`` is what a run of
text and one of images have in common: its folder, its processes, its checkpoints and its outcome.
``loop`` makes the steps of both, ``step`` is the loss and the seed of one, ``callbacks`` what
happens between steps, ``progress`` what is printed meanwhile, ``loggers`` where the numbers go
besides metrics.csv, ``nan_guard`` what finds a number that is not finite, and ``rebuild`` shows a
run as it stood at a step.

Text: ``fit_text`` is ``isotrope.fit``, ``text`` the whole (data, encoder, steps, dev score, run
folder), ``simcse`` the method (two views of text, one objective), ``dev_score`` what ``--dev``
scores, ``card`` the model card.
Images: the folder ``images``; ``recipe`` and ``optimisers`` are what its methods train with.

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
