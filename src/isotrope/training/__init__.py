"""Training on text and images: settings, run folders, and trainers of Hugging Face.

``settings`` declares the settings of a training (and imports nothing heavy). ``run`` is shared by
runs on text and on images: folder, processes and outcome. ``loop`` assembles a run: ``trainers``
are those of sentence-transformers and transformers with exact steps, ``callbacks`` run between
steps, ``checkpoints`` checks which checkpoints are complete, ``progress`` prints the progress,
``loggers`` writes TensorBoard's file, and ``nan_guard`` stops at a number that is not finite.

Text: ``fit_text`` is ``isotrope.fit``, ``text`` the whole run (data, encoder, steps, dev score, run
folder), ``text_module`` the trained module, and ``card`` the model card.
Images: the package ``images`` has the methods, which use ``recipe``, ``optimisers`` and, for
batches larger than memory, ``gradient_cache``.

Several processes: ``launch`` starts and watches them; each runs ``worker``.
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
