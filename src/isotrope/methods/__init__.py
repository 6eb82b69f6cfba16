"""Floor 5: our training, the only room beside ``adapters`` that imports Lightning.

``settings`` says what a training can be told (and imports nothing heavy), ``simcse`` is the method
(two views of text, one objective), ``callbacks`` what happens between steps, ``loggers`` where its
numbers go besides, ``card`` the model card, ``watch`` the dev score, ``training`` the whole: data,
encoder, steps, dev score, run folder.

On images: ``image_method`` is what the eight methods share (``simclr``, ``byol``, ...: a paper and
a file each, found by ``image_methods``), ``recipe`` and ``optimisers`` are what they train with,
``image_measures`` what is logged, and ``image_settings``, ``image_card`` and ``image_training``
their counterparts of the above; ``run`` is what a run of text and one of images have in common.

Batches larger than memory: ``gradient_cache`` runs the encoder twice, one chunk's graph at a time.
Several processes: ``launch`` starts and watches them, ``rank`` is one of them, and ``shares`` gives
each the loss with which all together learn what one would.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isotrope.methods.image_training import fit_images as fit_images
    from isotrope.methods.training import fit as fit

__all__ = ["fit", "fit_images"]

_HOME = {"fit": "training", "fit_images": "image_training"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - one of the lazy names
    if name not in _HOME:
        raise AttributeError(f"module 'isotrope.methods' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isotrope.methods.{_HOME[name]}"), name)
