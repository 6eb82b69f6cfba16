"""The doctor in anybody's training: one object, any loss, any trainer.

One line where the trainer is made::

    trainer = SentenceTransformerTrainer(..., callbacks=[isotrope.Doctor()])

The doctor keeps what the model embeds and the gradient that the training's own backward pass brings
to it. From these it recognises the loss, its temperature, and how much each anchor still learns,
from which negatives. Nothing is computed twice, no graph is kept, and no weight changes by a bit.

- :mod:`~isotrope.adapters.doctor.doctor`: the object, which every trainer is given;
- :mod:`~isotrope.adapters.doctor.hugging_face` and :mod:`~isotrope.adapters.doctor.lightning`: what
  it does when a trainer of transformers, or Lightning, says that something has happened;
- :mod:`~isotrope.adapters.doctor.watch`: the hooks on the model and the loss;
- :mod:`~isotrope.adapters.doctor.sentences`: the lines that it says.

Nothing here imports transformers or Lightning: a callback is an object with the right methods.
"""

from isotrope.adapters.doctor.doctor import Doctor

__all__ = ["Doctor"]
