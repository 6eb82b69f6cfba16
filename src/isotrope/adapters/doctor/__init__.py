"""The doctor as a callback, ``isotrope.Doctor``: one object for any loss and any trainer.

Add one line to the trainer::

    trainer = SentenceTransformerTrainer(..., callbacks=[isotrope.Doctor()])

The doctor keeps the model's embeddings and the gradient that the training's own backward pass
computes for them. From these it recognises the loss, its temperature, and how much each anchor
still learns, from which negatives. Nothing is computed twice, no graph is kept, and the weights
are bitwise the same.

- :mod:`~isotrope.adapters.doctor.doctor`: the callback itself;
- :mod:`~isotrope.adapters.doctor.hugging_face` and :mod:`~isotrope.adapters.doctor.lightning`: the
  handlers of the events of a transformers trainer, and of Lightning;
- :mod:`~isotrope.adapters.doctor.hosts`: how hosts call what a change is about;
- :mod:`~isotrope.adapters.doctor.messages`: the lines that it prints.

Nothing here imports transformers or Lightning: a callback is an object with the right methods.
"""

from isotrope.adapters.doctor.doctor import Doctor

__all__ = ["Doctor"]
